//! How many requests a server serves on one connection, and how it ends the connection then.

use std::time::Duration;

use h2lab_model::probe::server::{SequentialRequests, Stop, quota};
use h2lab_model::probe::{Check, EvidenceItem, Severity, Verdict, id};
use h2lab_model::workload::Protocol;
use h2lab_wire::ErrorCode;
use h2lab_wire::h2::frame::MAX_31_BITS;

use crate::probe::h1::{H1Outcome, Sequence};
use crate::probe::raw_h2_client::{Opening, RawH2Client};
use crate::probe::url::results::{UrlResults, decided};
use crate::probe::{ProbeError, Prober, Result};

/// Requests that are tried on one connection of HTTP/2: above the highest default limit of any server (10,000).
const MOST: u64 = 10_050;
/// The same of HTTP/1.1, where the defaults are 100 and 1,000.
const MOST_H1: u64 = 1_050;
/// By what the number of requests that are left is divided for the search over HTTP/2, and for that over HTTP/1.1.
const SHARES: (u64, u64) = (2, 6);
/// Requests that are sent together where the quota ends, to see what becomes of those above it.
const ABOVE: u64 = 8;
/// How long a server may take to answer what is above the last stream.
const SETTLE: Duration = Duration::from_millis(200);

/// How many of `range` requests may be made, and why the series stops after them.
fn reach(prober: &Prober, range: u64, share: u64) -> (u64, Stop) {
    let room = prober.budget.requests_left() / share;
    if room >= range {
        return (range, Stop::Range);
    }
    (room, Stop::Budget(format!("no more were made of {range}; {}", prober.budget.remedy())))
}

/// Makes requests one after the other until the server ends the connection, or until `most` were made: then it stops
/// for the reason `then`.
fn row(
    prober: &mut Prober,
    protocol: Protocol,
    method: &str,
    (most, then): (u64, Stop),
) -> Result<(RawH2Client, SequentialRequests)> {
    let mut client = RawH2Client::open(prober, protocol, &Opening::default())?;
    let mut answered = 0;
    let stop = loop {
        if let Some(stop) = ending(&client) {
            break stop;
        }
        if answered >= most {
            break then;
        }
        client.streams.clear();
        let stream = match client.ask(prober, method) {
            Ok(stream) => stream,
            Err(ProbeError::Exhausted(why)) => break Stop::Budget(why.to_string()),
            Err(error) => return Err(error),
        };
        if stream.status.is_some() && stream.ended {
            answered += 1;
        } else if let Some(stop) = ending(&client) {
            break stop;
        } else {
            let how = stream.reset.map_or_else(
                || "was not answered in time".to_owned(),
                |code| format!("was reset ({code}), and the connection continues"),
            );
            break Stop::Failed(format!("request {} {how}", answered + 1));
        }
    };
    Ok((client, SequentialRequests { answered, stop }))
}

/// Why the connection has ended, if it has. An error is no quota.
fn ending(client: &RawH2Client) -> Option<Stop> {
    let how = client.ended()?;
    if client.goaways.iter().any(|goaway| goaway.code != ErrorCode::NO_ERROR) {
        return Some(Stop::Failed(how));
    }
    // The last GOAWAY says which stream was the last; a first one may leave it open (RFC 9113 §6.8).
    let last = client.goaways.last().map(|goaway| goaway.last_stream).filter(|last| *last < MAX_31_BITS);
    Some(Stop::Ended { how, declared: last.map(|last| u64::from(last).div_ceil(2)) })
}

/// The quota of HTTP/2, how the connection ends there, and what becomes of requests above it.
pub fn http2(prober: &mut Prober, protocol: Protocol, found: &mut UrlResults) -> Result<()> {
    let reach = reach(prober, MOST, SHARES.0);
    let (client, first) = match row(prober, protocol, found.method(), reach) {
        Ok(row) => row,
        Err(error) => {
            found.add(decided(id::LIMT101, Err(error))?.of(protocol.to_string()));
            return Ok(());
        }
    };
    let second = first.end().map(|(_, high)| unprocessed(prober, protocol, found.method(), high));
    let (check, second) = match second {
        None => {
            let summary = "the connection did not end, so nothing was left unprocessed";
            (Ok(Check::new(id::LIMT103, Verdict::Undecided, summary)), None)
        }
        Some(Ok((check, row))) => (Ok(check), row),
        Some(Err(error)) => (Err(error), None),
    };
    let unprocessed = decided(id::LIMT103, check)?;
    let (bound, verdict, severity, summary) = quota(&first, second.as_ref(), true);
    let check = Check::new(id::LIMT101, verdict, summary).severe(severity);
    found.add(check.of(protocol.to_string()).with("one request after the other", client.items()));
    found.limits.requests_per_connection = Some(bound);
    found.add(goaway(&client, &first));
    found.add(unprocessed);
    Ok(())
}

fn goaway(client: &RawH2Client, row: &SequentialRequests) -> Check {
    if row.end().is_none() {
        let summary = "the server did not close the connection in an orderly way, so its way is unknown";
        return Check::new(id::LIMT102, Verdict::Undecided, summary);
    }
    let is_graceful = client.goaways.first().is_some_and(|goaway| goaway.last_stream >= MAX_31_BITS);
    let check = match (client.goaways.len(), is_graceful) {
        (0, _) => Check::new(id::LIMT102, Verdict::Fail, "it closes the connection without GOAWAY")
            .severe(Severity::Medium),
        (_, true) => Check::new(id::LIMT102, Verdict::Pass, "graceful: GOAWAY 2147483647 first"),
        (_, false) => Check::new(
            id::LIMT102,
            Verdict::Fail,
            "abrupt: the first GOAWAY names the last stream, and requests sent meanwhile are lost",
        ),
    };
    check.with("the end of the connection", client.ending(6))
}

/// Fills a connection up to its last but one request and sends several together. Those up to the GOAWAY's last stream
/// must be answered, those above it must not. The second connection shows whether the first one's number is a quota,
/// too.
fn unprocessed(
    prober: &mut Prober,
    protocol: Protocol,
    method: &str,
    quota: u64,
) -> Result<(Check, Option<SequentialRequests>)> {
    let undecided = |summary: String| Check::new(id::LIMT103, Verdict::Undecided, summary);
    if prober.budget.requests_left() < quota + ABOVE {
        let more = prober.budget.remedy();
        let summary = format!("another {} requests exceed the budget; {more}", quota + ABOVE);
        return Ok((undecided(summary), None));
    }
    let (mut client, mut second) = row(prober, protocol, method, (quota.saturating_sub(2), Stop::Range))?;
    let answered = second.answered;
    if client.ended().is_some() {
        let summary = format!("this time the connection ended after {answered} requests");
        return Ok((undecided(summary), Some(second)));
    }
    client.streams.clear();
    let mut burst = Vec::new();
    let mut streams = Vec::new();
    for _ in 0..ABOVE {
        prober.take_request()?;
        let stream = client.next_stream();
        let block = client.block(prober, method, &[]);
        burst.extend(client.head(stream, &block, true));
        streams.push(stream);
    }
    client.send(prober, &burst)?;
    client.until(prober.soon(), prober, |client| {
        let last = client.goaways.last().map_or(MAX_31_BITS, |goaway| goaway.last_stream);
        streams.iter().all(|stream| *stream > last || client.is_over(*stream))
    })?;
    client.settle(SETTLE, prober, |_| false)?; // what is answered although it is above the last stream
    let is_answered =
        |stream: &&u32| client.streams.get(stream).is_some_and(|stream| stream.status.is_some());
    second.stop = ending(&client).unwrap_or(Stop::Range);
    // A graceful end lets requests that were sent together through; the GOAWAY was sent because of one of them.
    let is_graceful = client.goaways.first().is_some_and(|goaway| goaway.last_stream >= MAX_31_BITS);
    second.answered += if is_graceful { 1 } else { streams.iter().filter(is_answered).count() as u64 };
    let evidence = |check: Check| check.with("a burst where the connection closes", client.ending(16));
    let last = client.goaways.last().map(|goaway| goaway.last_stream);
    let Some(last) = last else {
        let check = match &second.stop {
            Stop::Ended { .. } => {
                let summary = "no GOAWAY named the processed requests: none can be sent again safely";
                Check::new(id::LIMT103, Verdict::Fail, summary)
            }
            _ => undecided("this time the connection did not end".to_owned()),
        };
        return Ok((evidence(check), Some(second)));
    };
    let above = streams.iter().filter(|stream| **stream > last).filter(is_answered).count();
    let below = streams.iter().filter(|stream| **stream <= last).count();
    let served = streams.iter().filter(|stream| **stream <= last).filter(is_answered).count();
    let is_waiting = client.line.over.is_none()
        && streams.iter().any(|stream| *stream <= last && !client.is_over(*stream));
    let check = if above > 0 {
        let summary = format!(
            "{above} requests above the last stream {last} were answered: a client that sends them again duplicates them"
        );
        Check::new(id::LIMT103, Verdict::Fail, summary).severe(Severity::High)
    } else if served < below && is_waiting {
        undecided(format!("{} of {below} requests were not answered in time", below - served))
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
    Ok((evidence(check), Some(second)))
}

/// The quota of HTTP/1.1: after how many responses the connection ends, or is announced to.
pub fn http1(prober: &mut Prober, protocol: Protocol, found: &mut UrlResults) -> Result<Check> {
    let reach = reach(prober, MOST_H1, SHARES.1);
    let (first, items) = row_of_h1(prober, protocol, found.method(), reach)?;
    let second = match first.end() {
        // Once more, and a little further.
        Some((_, high)) if prober.budget.requests_left() / 2 > high => {
            let reach = (high + ABOVE, Stop::Range);
            Some(row_of_h1(prober, protocol, found.method(), reach)?.0)
        }
        _ => None,
    };
    let (bound, verdict, _, summary) = quota(&first, second.as_ref(), false);
    found.limits.h1_requests_per_connection = Some(bound);
    Ok(Check::new(id::LIMT101, verdict, summary).with("one request after the other", items))
}

fn row_of_h1(
    prober: &mut Prober,
    protocol: Protocol,
    method: &str,
    (most, then): (u64, Stop),
) -> Result<(SequentialRequests, Vec<EvidenceItem>)> {
    let mut sequence = Sequence::open(prober, protocol)?;
    let mut answered = 0;
    let ended = |how: &str| Stop::Ended { how: how.to_owned(), declared: None };
    let stop = loop {
        if answered >= most {
            break then;
        }
        match sequence.ask(prober, method) {
            Ok(H1Outcome::Answered) => answered += 1,
            Ok(H1Outcome::Last(how)) => {
                answered += 1;
                break ended(how);
            }
            Ok(H1Outcome::Closed) => break ended("it closed the connection"),
            Ok(H1Outcome::Failed(why)) => break Stop::Failed(format!("request {}: {why}", answered + 1)),
            Err(ProbeError::Exhausted(why)) => break Stop::Budget(why.to_string()),
            Err(error) => return Err(error),
        }
    };
    Ok((SequentialRequests { answered, stop }, sequence.line.transcript.last(6, |_| true)))
}
