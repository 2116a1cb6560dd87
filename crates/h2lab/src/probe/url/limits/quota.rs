//! How many requests a server serves on one connection, and how it ends the connection then.

use h2lab_core::probe::{Bound, Check, Severity, Verdict, id};
use h2lab_core::wire::h2::frame::MAX_31_BITS;
use h2lab_core::workload::Protocol;

use super::super::speaks::read_head;
use super::super::{Found, decided};
use crate::probe::line::{Heard, Line, Put};
use crate::probe::talk::{Opening, Talk};
use crate::probe::{ProbeError, Prober};

/// Requests that are tried on one connection of HTTP/2: above the highest limit that is anybody's default (10,000).
const MOST: u64 = 10_050;
/// The same of HTTP/1.1, where the defaults are 100 and 1,000.
const MOST_H1: u64 = 1_050;
/// The part of the requests that are left which the search over HTTP/2 may use, and that over HTTP/1.1.
const SHARES: (u64, u64) = (2, 6);
/// Requests that are sent together where the quota ends, to see what becomes of those above it.
const ABOVE: u64 = 8;

/// What became of a connection on which one request after the other was made.
struct Row {
    talk: Talk,
    answered: u64,
    /// Why it stopped before the server ended it, if it did.
    stopped: Option<String>,
}

/// Makes requests one after the other until the server ends the connection, or `most` were made.
fn row(prober: &mut Prober, protocol: Protocol, most: u64) -> Result<Row, ProbeError> {
    let mut talk = Talk::open(prober, protocol, &Opening::default())?;
    let mut answered = 0;
    let mut stopped = None;
    while talk.ended().is_none() {
        if answered >= most {
            stopped = Some(format!("{answered} requests were answered, and no more were made"));
            break;
        }
        let stream = match talk.get(prober) {
            Ok(stream) => stream,
            Err(ProbeError::Exhausted(why)) => {
                stopped = Some(why.to_string());
                break;
            }
            Err(error) => return Err(error),
        };
        if stream.status.is_none() || !stream.ended {
            break;
        }
        answered += 1;
        talk.streams.clear();
    }
    Ok(Row { talk, answered, stopped })
}

/// The quota of HTTP/2, how the connection ends there, and what becomes of requests above it.
pub fn http2(prober: &mut Prober, protocol: Protocol, found: &mut Found) -> Result<(), ProbeError> {
    let most = MOST.min(prober.budget().requests_left() / SHARES.0);
    let row = match row(prober, protocol, most) {
        Ok(row) => row,
        Err(error) => {
            found.add(decided(id::LIMT101, Err(error))?.of(protocol.to_string()));
            return Ok(());
        }
    };
    let bound = bound(&row);
    let quota = bound.value;
    let check = match quota {
        Some(n) => judge(n, format!("the connection ends after exactly {n} requests: {}", bound.how)),
        None => Check::new(id::LIMT101, Verdict::Pass, format!("no end within {} requests", row.answered)),
    };
    found.add(check.of(protocol.to_string()).with("one request after the other", row.talk.exhibits()));
    found.limits.requests_per_connection = Some(bound);
    found.add(goaway(row));
    let check = match quota {
        Some(n) => unprocessed(prober, protocol, n),
        None => {
            Ok(Check::new(id::LIMT103, Verdict::Undecided, "no end was met, so nothing was left unprocessed"))
        }
    };
    found.add(decided(id::LIMT103, check)?);
    Ok(())
}

fn bound(row: &Row) -> Bound {
    if let Some(why) = &row.stopped {
        return Bound::between(Some(row.answered), None, "requests", why.clone());
    }
    let how = row.talk.ended().unwrap_or_else(|| "a request was not answered".to_owned());
    // The last GOAWAY says which stream was the last; a first one may leave it open (RFC 9113 §6.8).
    let last = row.talk.goaways.last().map(|goaway| goaway.last_stream).filter(|last| *last < MAX_31_BITS);
    let told = last.map(|last| u64::from(last).div_ceil(2));
    if told.is_some_and(|told| told != row.answered) {
        return Bound::between(Some(row.answered), told, "requests", how);
    }
    Bound::exact(row.answered, "requests", how)
}

/// A quota that spends a shared connection within a second of an ordinary load is a defect.
fn judge(n: u64, summary: String) -> Check {
    let severity = if n < 10_000 { Severity::Medium } else { Severity::Low };
    Check::new(id::LIMT101, Verdict::Fail, summary).severe(severity)
}

fn goaway(row: Row) -> Check {
    let Row { mut talk, stopped, .. } = row;
    if stopped.is_some() {
        let summary = "the server did not end the connection, so that nothing is known of how it would";
        return Check::new(id::LIMT102, Verdict::Undecided, summary);
    }
    let exhibits = std::mem::take(&mut talk.goaways);
    let is_graceful = exhibits.first().is_some_and(|goaway| goaway.last_stream >= MAX_31_BITS);
    let check = match (exhibits.len(), is_graceful) {
        (0, _) => Check::new(id::LIMT102, Verdict::Fail, "it closes the connection without GOAWAY")
            .severe(Severity::Medium),
        (_, true) => Check::new(id::LIMT102, Verdict::Pass, "graceful: GOAWAY 2147483647 comes first"),
        (_, false) => Check::new(
            id::LIMT102,
            Verdict::Fail,
            "abrupt: the first GOAWAY names the last stream, and what the client has sent meanwhile is lost",
        ),
    };
    check.with("the end of the connection", talk.ending(6))
}

/// Fills a connection up to its last but one request and sends several together: those up to the GOAWAY's last stream must be
/// answered, those above it must not.
fn unprocessed(prober: &mut Prober, protocol: Protocol, quota: u64) -> Result<Check, ProbeError> {
    if prober.budget().requests_left() < quota + ABOVE {
        let summary = format!("another {} requests are more than the budget has", quota + ABOVE);
        return Ok(Check::new(id::LIMT103, Verdict::Undecided, summary));
    }
    let Row { mut talk, answered, .. } = row(prober, protocol, quota.saturating_sub(2))?;
    if talk.ended().is_some() {
        let summary = format!("this time the connection ended after {answered} requests");
        return Ok(Check::new(id::LIMT103, Verdict::Undecided, summary));
    }
    let path = prober.host.path.clone();
    let mut burst = Vec::new();
    let mut streams = Vec::new();
    for _ in 0..ABOVE {
        prober.take_request()?;
        let stream = talk.next_stream();
        let block = talk.block(prober, "GET", &path, &[]);
        burst.extend(talk.head(stream, &block, true));
        streams.push(stream);
    }
    talk.send(prober, &burst)?;
    let until = prober.soon();
    talk.until(prober, until, |talk| {
        let last = talk.goaways.last().map_or(MAX_31_BITS, |goaway| goaway.last_stream);
        streams.iter().all(|stream| *stream > last || talk.is_over(*stream))
    })?;
    let settle = prober.now() + std::time::Duration::from_millis(200);
    talk.until(prober, settle, |_| false)?; // what is answered although it is above the last stream
    let Some(last) = talk.goaways.last().map(|goaway| goaway.last_stream) else {
        let summary = "no GOAWAY said which requests were processed: none of them may be sent again safely";
        return Ok(Check::new(id::LIMT103, Verdict::Fail, summary).with("a burst", talk.ending(12)));
    };
    let answered = |stream: &&u32| talk.streams.get(stream).is_some_and(|stream| stream.status.is_some());
    let above = streams.iter().filter(|stream| **stream > last).filter(answered).count();
    let below = streams.iter().filter(|stream| **stream <= last).count();
    let served = streams.iter().filter(|stream| **stream <= last).filter(answered).count();
    let check = if above > 0 {
        let summary = format!(
            "{above} requests above the last stream {last} were answered: whoever sends them again has them twice"
        );
        Check::new(id::LIMT103, Verdict::Fail, summary).severe(Severity::High)
    } else if served < below {
        let summary =
            format!("{} of {below} requests up to the last stream {last} were not answered", below - served);
        Check::new(id::LIMT103, Verdict::Fail, summary)
    } else {
        let left = streams.len() - below;
        let summary = format!(
            "of {ABOVE} requests sent together {served} up to the last stream {last} were answered, {left} above it were not \
             processed"
        );
        Check::new(id::LIMT103, Verdict::Pass, summary)
    };
    Ok(check.with("a burst where the connection ends", talk.ending(16)))
}

/// The quota of HTTP/1.1: after how many responses the connection ends, or is announced to.
pub fn http1(prober: &mut Prober, protocol: Protocol, found: &mut Found) -> Result<Check, ProbeError> {
    let mut line = Line::dial(prober, protocol)?;
    let request = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", prober.host.path, prober.host.authority);
    let most = MOST_H1.min(prober.budget().requests_left() / SHARES.1);
    let (mut answered, mut ending) = (0, None);
    while ending.is_none() && answered < most {
        prober.take_request()?;
        let until = prober.soon();
        if line.send(prober, request.as_bytes(), until)? != Put::All {
            ending = Some("it closed the connection");
            break;
        }
        match response(&mut line, prober)? {
            Some(closes) => {
                answered += 1;
                ending = closes.then_some("its response says Connection: close");
            }
            None if line.over().is_some() => ending = Some("it closed the connection"),
            None => {
                let summary = format!("request {} was not answered as far as we can read it", answered + 1);
                return Ok(Check::new(id::LIMT101, Verdict::Undecided, summary));
            }
        }
    }
    let exhibits = line.tape.last(6, |_| true);
    let (bound, check) = match ending {
        Some(how) => (
            Bound::exact(answered, "requests", how),
            Check::new(
                id::LIMT101,
                Verdict::Pass,
                format!(
                    "the connection ends after exactly {answered} requests: {how}; HTTP/1.1 loses little by it"
                ),
            ),
        ),
        None => (
            Bound::between(Some(answered), None, "requests", "no more were made"),
            Check::new(id::LIMT101, Verdict::Pass, format!("no end within {answered} requests")),
        ),
    };
    found.limits.h1_requests_per_connection = Some(bound);
    Ok(check.with("one request after the other", exhibits))
}

/// Reads a response of HTTP/1.1 whole; whether it announces the end of the connection. `None` if it does not come.
pub fn response(line: &mut Line, prober: &Prober) -> Result<Option<bool>, ProbeError> {
    let until = prober.soon();
    let Some(head) = read_head(line, prober, until)? else { return Ok(None) };
    let head = head.to_ascii_lowercase();
    let value = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim)
    };
    let mut closes = value("connection").is_some_and(|value| value.contains("close"));
    if let Some(length) = value("content-length").and_then(|length| length.parse::<usize>().ok()) {
        let mut left = length;
        loop {
            let n = left.min(line.incoming.len());
            line.incoming.drain(..n);
            left -= n;
            if left == 0 {
                return Ok(Some(closes));
            }
            if line.listen(prober, until)? != Heard::Bytes {
                return Ok(None);
            }
        }
    }
    if value("transfer-encoding").is_some_and(|value| value.contains("chunked")) {
        loop {
            if let Some(end) = end_of_chunks(&line.incoming) {
                line.incoming.drain(..end);
                return Ok(Some(closes));
            }
            if line.listen(prober, until)? != Heard::Bytes {
                return Ok(None);
            }
        }
    }
    let status = head.split(' ').nth(1).unwrap_or_default();
    if !matches!(status, "204" | "304") {
        // The body ends with the connection.
        while line.over().is_none() && line.listen(prober, until)? == Heard::Bytes {
            line.incoming.clear();
        }
        closes = true;
    }
    Ok(Some(closes))
}

/// Where a chunked body ends, if all of it is there.
fn end_of_chunks(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let rest = bytes.get(at..)?;
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..end]).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        at += end + 2;
        if size > 0 {
            at = at.checked_add(size)?.checked_add(2)?;
            continue;
        }
        // Trailers, up to an empty line.
        loop {
            let rest = bytes.get(at..)?;
            let end = rest.windows(2).position(|two| two == b"\r\n")?;
            at += end + 2;
            if end == 0 {
                return Some(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunked_body_ends_behind_its_last_chunk_and_trailers() {
        assert_eq!(end_of_chunks(b"3\r\nabc\r\n0\r\n\r\nnext"), Some(13));
        assert_eq!(end_of_chunks(b"3;x=y\r\nabc\r\n0\r\na: b\r\n\r\n"), Some(23));
        assert_eq!(end_of_chunks(b"3\r\nabc\r\n0\r\n"), None);
        assert_eq!(end_of_chunks(b"3\r\nab"), None);
        assert_eq!(end_of_chunks(b"zz\r\n"), None);
    }
}
