//! Whether a handler that was written for HTTP/1.1 behaves the same over HTTP/2.

use std::time::Duration;

use h2lab_base::units::format_bytes;
use h2lab_model::probe::server::{Answer, AnswerEnd, ComparedAnswers, Comparison};
use h2lab_model::probe::{Check, Verdict, id};
use h2lab_model::workload::Protocol;
use h2lab_wire::h2::raw::field_block;

use super::results::{UrlResults, decided};
use super::speaks::{next_head, read_head, shown, status_of, upgrade_request};
use crate::probe::ask::{Question, ask};
use crate::probe::raw_connection::{Put, RawConnection, ReadOutcome};
use crate::probe::raw_h2_client::{Opening, RawH2Client, RawStream};
use crate::probe::{ProbeError, Prober, Result};

mod body_limit;

/// Fields that make a response of HTTP/2 malformed (RFC 9113 §8.2.2).
const FORBIDDEN: [&str; 5] = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];
/// A response is streamed if its body takes so long from the first piece to the last.
const STREAMS: Duration = Duration::from_millis(50);
/// From here on a response is large.
const LARGE: u64 = 8 << 20;
/// A body too large to read into memory, in bytes.
const GIBIBYTE: u64 = 1 << 30;
/// What is sent of it where the length that is announced does not decide.
const UPLOAD: u64 = 768 << 10;
/// How long a server may take to refuse that.
const REFUSAL: Duration = Duration::from_secs(1);
/// The key of RFC 6455's own example.
const WEBSOCKET_KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// Makes all of these checks.
pub fn look(prober: &mut Prober, found: &mut UrlResults) -> Result<()> {
    match (found.h1, found.h2) {
        (Some(h1), Some(h2)) => {
            match pair(prober, h1, h2, found) {
                Ok(gets) => {
                    found.add(streaming(&gets));
                    found.add(trailers(&gets));
                }
                Err(error) => found.add(decided(id::MIGR101, Err(error))?),
            }
            found.decide(id::MIGR102, |found| forbidden(prober, h2, found))?;
        }
        _ => {
            let summary = "the server does not speak both HTTP/1.1 and HTTP/2 here: nothing can be compared";
            found.add(Check::new(id::MIGR101, Verdict::Undecided, summary));
        }
    }
    if let Some(h1) = found.h1 {
        found.decide(id::MIGR105, |found| connection_upgrade(prober, h1, found.h2))?;
    }
    let check = expect(found);
    found.add(check);
    if let Some(h1) = found.h1 {
        found.decide(id::MIGR107, |found| upgrade_body(prober, h1, found.upgrades))?;
    }
    if let Some(h1) = found.h1.filter(|_| found.h2.is_some() || found.upgrades) {
        found.decide(id::MIGR109, |found| body_limit::body_limit(prober, h1, found))?;
    }
    if let Some(answer) = &found.h1_answer {
        let check = large(answer);
        found.add(check);
    }
    Ok(())
}

/// Compares the versions with GET, HEAD and POST; returns the answers to GET.
fn pair(prober: &mut Prober, h1: Protocol, h2: Protocol, found: &mut UrlResults) -> Result<ComparedAnswers> {
    let question = |method: &str, body: &[u8]| {
        let question = Question { method: method.to_owned(), body: body.to_vec(), ..Question::get() };
        question.with("te", "trailers").with("accept", "*/*").with("user-agent", "h2lab")
    };
    let mut gets = None;
    for (method, body) in [("GET", &b""[..]), ("HEAD", b""), ("POST", b"h2lab")] {
        let question = question(method, body);
        let pair = ComparedAnswers {
            h1: ask(prober, h1, &question)?,
            again: ask(prober, h1, &question)?,
            h2: ask(prober, h2, &question)?,
        };
        found.add(same(method, &pair));
        gets = gets.or(Some(pair));
    }
    gets.ok_or(ProbeError::Interrupted) // there is always one
}

fn same(method: &str, pair: &ComparedAnswers) -> Check {
    let check = match pair.compare() {
        Comparison::Same(notes) => {
            let all = format!("the same over both: {}, {} bytes", pair.h1.outcome(), pair.h1.body_bytes);
            let summary = std::iter::once(all).chain(notes).collect::<Vec<_>>().join("; ");
            Check::new(id::MIGR101, Verdict::Pass, summary)
        }
        Comparison::Undecided(why) => Check::new(id::MIGR101, Verdict::Undecided, why),
        Comparison::Differ(several) => Check::new(id::MIGR101, Verdict::Fail, several.join("; ")),
    };
    check.of(method).with("over HTTP/1.1", pair.h1.items.clone()).with("over HTTP/2", pair.h2.items.clone())
}

fn streaming(pair: &ComparedAnswers) -> Check {
    let h1 = pair.h1.spread().min(pair.again.spread());
    let h2 = pair.h2.spread();
    let all = [&pair.h1, &pair.again, &pair.h2];
    if !all.iter().all(|answer| answer.is_answered()) {
        return Check::new(id::MIGR103, Verdict::Undecided, "no complete responses to compare");
    }
    if h1 < STREAMS {
        let summary = "the response is immediate: there is nothing to compare";
        return Check::new(id::MIGR103, Verdict::Unsupported, summary);
    }
    let rendered = |spread: Duration| format!("{} ms", spread.as_millis());
    let summary =
        format!("first piece to last: {} over HTTP/1.1, {} over HTTP/2", rendered(h1), rendered(h2));
    let verdict = if h2 >= h1 / 4 { Verdict::Pass } else { Verdict::Fail };
    Check::new(id::MIGR103, verdict, summary).with("over HTTP/2", pair.h2.items.clone())
}

fn trailers(pair: &ComparedAnswers) -> Check {
    let all = [&pair.h1, &pair.again, &pair.h2];
    let has_all = all.iter().all(|answer| answer.ended == AnswerEnd::Complete);
    let (verdict, summary) = match pair.trailers_differ() {
        _ if !has_all => (Verdict::Undecided, "no complete responses to compare".to_owned()),
        Some((h1, h2)) => (Verdict::Fail, format!("over HTTP/1.1: {h1:?}; over HTTP/2: {h2:?}")),
        None if pair.h1.trailers.is_empty() => (Verdict::Unsupported, "this path has none".to_owned()),
        None => {
            let names: Vec<&str> = pair.h1.trailers.iter().map(|(name, _)| name.as_str()).collect();
            (Verdict::Pass, format!("{} over both", shown(&names.join(", "))))
        }
    };
    Check::new(id::MIGR104, verdict, summary).with("over HTTP/2, with TE: trailers", pair.h2.items.clone())
}

/// Our engine refuses such a response, so it is requested frame by frame.
fn forbidden(prober: &mut Prober, protocol: Protocol, found: &UrlResults) -> Result<Check> {
    let mut client = RawH2Client::open(prober, protocol, &Opening::default())?;
    let answer = client.ask(prober, "GET")?;
    let listed = |fields: &[(String, String)]| -> Vec<String> {
        let is_forbidden = |name: &str| FORBIDDEN.contains(&name.to_ascii_lowercase().as_str());
        fields
            .iter()
            .filter(|(name, _)| is_forbidden(name))
            .map(|(name, value)| shown(&format!("{name}: {value}")))
            .collect()
    };
    let Some(status) = answer.status else {
        let how = client.ended().unwrap_or_else(|| "no response received in time".to_owned());
        let check = Check::new(id::MIGR102, Verdict::Undecided, format!("no answer over HTTP/2: {how}"));
        return Ok(check.with("one GET", client.items()));
    };
    let over_h2 = listed(&answer.fields);
    if !over_h2.is_empty() {
        let summary = format!("a response of HTTP/2 has {}", over_h2.join(", "));
        return Ok(Check::new(id::MIGR102, Verdict::Fail, summary).with("one GET", client.items()));
    }
    let over_h1 = found.h1_answer.as_ref().map(|answer| listed(&answer.fields)).unwrap_or_default();
    let set: Vec<&String> = over_h1
        .iter()
        .filter(|field| {
            ["keep-alive:", "proxy-connection:", "upgrade:"].iter().any(|name| field.starts_with(name))
        })
        .collect();
    let summary = match set.as_slice() {
        [] => format!("none over HTTP/2, in the response {status}"),
        set => format!(
            "none over HTTP/2, in the response {status}; over HTTP/1.1 there are {set:?}, which the server removes"
        ),
    };
    Ok(Check::new(id::MIGR102, Verdict::Pass, summary).with("one GET", client.items()))
}

/// A WebSocket over HTTP/1.1, and if there is one, over HTTP/2.
fn connection_upgrade(prober: &mut Prober, h1: Protocol, h2: Option<Protocol>) -> Result<Check> {
    prober.take_request()?;
    let mut line = RawConnection::dial(prober, h1)?;
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: {WEBSOCKET_KEY}\r\n{}\r\n",
        prober.host.path,
        prober.host.authority,
        prober.host.lines()
    );
    let until = prober.soon();
    line.send(request.as_bytes(), until, prober)?;
    let head = read_head(&mut line, prober, until)?.unwrap_or_default();
    let items = line.transcript.items();
    if head.is_empty() && line.over.is_none() {
        let check =
            Check::new(id::MIGR105, Verdict::Undecided, "no response in time to a WebSocket handshake");
        return Ok(check.with("a WebSocket handshake over HTTP/1.1", items));
    }
    let status = shown(head.lines().next().unwrap_or("no answer"));
    let check = |verdict, summary: String| {
        Check::new(id::MIGR105, verdict, summary).with("a WebSocket handshake over HTTP/1.1", items.clone())
    };
    if !status.starts_with("HTTP/1.1 101") {
        return Ok(check(Verdict::Unsupported, format!("this path does not accept WebSocket: {status}")));
    }
    let Some(h2) = h2 else {
        return Ok(check(
            Verdict::Fail,
            "this path takes over connections, and HTTP/2 is not established".to_owned(),
        ));
    };
    let mut client = RawH2Client::open(prober, h2, &Opening::default())?;
    if client.settings.get(&8) != Some(&1) {
        let summary =
            "a WebSocket over HTTP/1.1, and no RFC 8441 over HTTP/2: clients must stay on HTTP/1.1 for it";
        return Ok(check(Verdict::Fail, summary.to_owned()));
    }
    prober.take_request()?;
    let stream = client.next_stream();
    let mut block = client.block(prober, "CONNECT", &[]);
    let further: [(&[u8], &[u8]); 2] = [(b":protocol", b"websocket"), (b"sec-websocket-version", b"13")];
    block.extend(field_block(further));
    let head = client.head(stream, &block, false);
    client.send(prober, &head)?;
    client.until(prober.soon(), prober, |client| client.is_settled(stream))?;
    let RawStream { status, reset, .. } = client.streams.get(&stream).cloned().unwrap_or_default();
    let is_silent = status.is_none() && reset.is_none() && client.ended().is_none();
    let rendered = check(
        match status {
            Some(200..=299) => Verdict::Pass,
            _ if is_silent => Verdict::Undecided,
            _ => Verdict::Fail,
        },
        format!(
            "a WebSocket over HTTP/1.1; over HTTP/2 by RFC 8441: {}",
            status.map_or("no answer".to_owned(), |s| s.to_string())
        ),
    );
    Ok(rendered.with("an extended CONNECT", client.items()))
}

fn expect(found: &UrlResults) -> Check {
    let [h1, h2] = [false, true].map(|multiplexed| {
        found.expected.iter().find(|(protocol, _)| protocol.is_multiplexed() == multiplexed)
    });
    let (Some((_, h1)), Some((_, h2))) = (h1, h2) else {
        return Check::new(id::MIGR106, Verdict::Undecided, "it was not requested over both versions");
    };
    let rendered = |answer: &Answer| {
        let interim = answer.interim.iter().map(|(status, ..)| status.to_string());
        interim.chain([answer.outcome()]).collect::<Vec<_>>().join(", ")
    };
    let continues = |answer: &Answer| answer.interim.iter().any(|(status, ..)| *status == 100);
    let same = h1.status == h2.status && continues(h1) == continues(h2);
    let verdict = match (h1.status, h2.status) {
        (0, 0) => Verdict::Undecided,
        (0, _) if h1.ended == AnswerEnd::Silence => Verdict::Undecided,
        (_, 0) if h2.ended == AnswerEnd::Silence => Verdict::Undecided,
        _ if same => Verdict::Pass,
        _ => Verdict::Fail,
    };
    Check::new(id::MIGR106, verdict, format!("HTTP/1.1: {}; HTTP/2: {}", rendered(h1), rendered(h2)))
        .with("a POST that expects 100-continue over HTTP/1.1", h1.items.clone())
        .with("the same over HTTP/2", h2.items.clone())
}

fn upgrade_body(prober: &mut Prober, h1: Protocol, upgrades: bool) -> Result<Check> {
    if !upgrades {
        return Ok(Check::new(id::MIGR107, Verdict::Unsupported, "it does not upgrade to h2c"));
    }
    prober.take_request()?;
    let mut line = RawConnection::dial(prober, h1)?;
    let request = upgrade_request(prober, "POST", &format!("Content-Length: {GIBIBYTE}\r\n"));
    let until = prober.now() + REFUSAL;
    line.send(request.as_bytes(), until, prober)?;
    let mut head = next_head(&mut line, prober, until)?;
    let mut sent = 0;
    // A server that accepts the announcement may still limit the content, as Go's MaxBytesHandler does.
    if head.as_deref().and_then(status_of).is_none_or(|status| status == 100) && line.over.is_none() {
        sent = upload(prober, &mut line)?;
        let until = prober.now() + REFUSAL;
        head = read_head(&mut line, prober, until)?;
    }
    let status = head.as_deref().and_then(status_of);
    let (verdict, summary) = upgraded_body(status, sent, line.over.is_some());
    Ok(Check::new(id::MIGR107, verdict, summary).with("a POST that upgrades", line.transcript.items()))
}

/// Sends a part of the body, as the budget allows; how much.
fn upload(prober: &mut Prober, line: &mut RawConnection) -> Result<u64> {
    const PIECE: usize = 16 << 10;
    let most = UPLOAD.min(prober.budget.bytes_left() / 3);
    let mut sent = 0;
    while sent < most && line.over.is_none() && line.incoming.is_empty() {
        if line.send(&[b'a'; PIECE], prober.soon(), prober)? != Put::All {
            break;
        }
        sent += PIECE as u64;
        if line.listen(prober.now(), prober)? != ReadOutcome::Silence {
            break;
        }
    }
    Ok(sent)
}

/// The verdict on a gibibyte that is announced on a request that upgrades, of which `sent` bytes were sent.
fn upgraded_body(status: Option<u16>, sent: u64, is_over: bool) -> (Verdict, String) {
    let after = if sent > 0 { format!(" after {}", format_bytes(sent)) } else { String::new() };
    match status {
        Some(status @ (413 | 431)) => {
            (Verdict::Pass, format!("{status}{after} of a gibibyte that is announced"))
        }
        Some(101) => (Verdict::Fail, format!("it switches{after} with a gibibyte of body still to come")),
        Some(status) => {
            (Verdict::Pass, format!("{status} in HTTP/1.1{after}: it does not upgrade with such a body"))
        }
        None if is_over => (Verdict::Pass, format!("it closes the connection{after}")),
        None => {
            let summary = format!(
                "it accepts {} of a gibibyte without refusal; the rest is not tested",
                format_bytes(sent)
            );
            (Verdict::Undecided, summary)
        }
    }
}

fn large(answer: &Answer) -> Check {
    let length = answer.field("content-length").and_then(|length| length.parse::<u64>().ok());
    let bytes = length.unwrap_or(answer.body_bytes).max(answer.body_bytes);
    let is_known = length.is_some() || answer.ended == AnswerEnd::Complete;
    let (verdict, summary) = if bytes >= LARGE {
        let more = if is_known { "" } else { " or more" };
        (Verdict::Fail, format!("the response has {}{more}: HTTP/1.1 carries it faster", format_bytes(bytes)))
    } else if is_known {
        (Verdict::Pass, format!("the response has {}", format_bytes(bytes)))
    } else {
        (Verdict::Undecided, format!("{} of the response received, no end", format_bytes(bytes)))
    };
    Check::new(id::MIGR108, verdict, summary).with("one request of HTTP/1.1", answer.items.clone())
}

#[cfg(test)]
mod tests;
