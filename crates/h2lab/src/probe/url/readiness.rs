//! Whether a handler that was written for HTTP/1.1 is the same over HTTP/2.

use std::collections::BTreeSet;
use std::time::Duration;

use h2lab_core::probe::{Check, Verdict, id};
use h2lab_core::units::format_bytes;
use h2lab_core::workload::Protocol;

use super::speaks::{read_head, upgrade_request};
use super::{Found, decided};
use crate::probe::ask::{Answer, Ended, Question, Way, ask};
use crate::probe::line::Line;
use crate::probe::talk::{Opening, Talk, literal};
use crate::probe::{ProbeError, Prober};

/// Fields that belong to the connection or the moment, and may differ.
const PASSING: [&str; 12] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "date",
    "age",
    "via",
    "alt-svc",
    "expires",
    "last-modified",
];
/// Fields that make a response of HTTP/2 malformed (RFC 9113 §8.2.2).
const FORBIDDEN: [&str; 5] = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];
/// A response whose body takes so long from the first piece to the last streams.
const STREAMS: Duration = Duration::from_millis(50);
/// From here on a response is large.
const LARGE: u64 = 8 << 20;
/// A body that nobody would read into memory, in bytes.
const GIBIBYTE: u64 = 1 << 30;
/// How long a server may take to refuse that.
const REFUSAL: Duration = Duration::from_secs(1);
/// The key of RFC 6455's own example.
const WEBSOCKET_KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// Looks at all of it.
pub fn look(prober: &mut Prober, found: &mut Found) -> Result<(), ProbeError> {
    match (found.h1, found.h2) {
        (Some(h1), Some(h2)) => {
            let gets = pair(prober, Way::Plain(h1), Way::Plain(h2), found);
            match gets {
                Ok(gets) => {
                    found.add(streaming(&gets));
                    found.add(trailers(&gets));
                }
                Err(error) => found.add(decided(id::MIGR101, Err(error))?),
            }
            let check = forbidden(prober, h2, found);
            found.add(decided(id::MIGR102, check)?);
        }
        _ => {
            let summary = "the server does not speak both HTTP/1.1 and HTTP/2 here: nothing can be compared";
            found.add(Check::new(id::MIGR101, Verdict::Undecided, summary));
        }
    }
    if let Some(h1) = found.h1 {
        let check = connection_upgrade(prober, h1, found.h2);
        found.add(decided(id::MIGR105, check)?);
    }
    found.add(expect(found));
    if found.h1 == Some(Protocol::H1) {
        let check = upgrade_body(prober, found.upgrades);
        found.add(decided(id::MIGR107, check)?);
    }
    if let Some(answer) = &found.h1_answer {
        let check = large(answer);
        found.add(check);
    }
    Ok(())
}

/// The answers to one question over both versions, and to the first once more.
struct Pair {
    h1: Answer,
    again: Answer,
    h2: Answer,
}

/// Compares the versions with GET, HEAD and POST; the answers to GET.
fn pair(prober: &mut Prober, h1: Way, h2: Way, found: &mut Found) -> Result<Pair, ProbeError> {
    let path = prober.host.path.clone();
    let question = |method: &str, body: &[u8]| {
        let question = Question { method: method.to_owned(), body: body.to_vec(), ..Question::get(&path) };
        question.with("te", "trailers").with("accept", "*/*").with("user-agent", "h2lab")
    };
    let mut gets = None;
    for (method, body) in [("GET", &b""[..]), ("HEAD", b""), ("POST", b"h2lab")] {
        let question = question(method, body);
        let pair = Pair {
            h1: ask(prober, h1, &question)?,
            again: ask(prober, h1, &question)?,
            h2: ask(prober, h2, &question)?,
        };
        found.add(same(method, &pair));
        gets = gets.or(Some(pair));
    }
    gets.ok_or(ProbeError::Interrupted) // there is always one
}

fn same(method: &str, pair: &Pair) -> Check {
    let differences = differences(pair);
    let check = match differences.as_slice() {
        [] => {
            let summary = format!("the same over both: {}, {} bytes", pair.h1.outcome(), pair.h1.body_bytes);
            Check::new(id::MIGR101, Verdict::Pass, summary)
        }
        several => Check::new(id::MIGR101, Verdict::Fail, several.join("; "))
            .with("over HTTP/1.1", pair.h1.exhibits.clone())
            .with("over HTTP/2", pair.h2.exhibits.clone()),
    };
    check.of(method)
}

/// What differs between the versions and does not differ within the first.
fn differences(pair: &Pair) -> Vec<String> {
    let Pair { h1, again, h2 } = pair;
    let mut found = Vec::new();
    if h1.outcome() != h2.outcome() && h1.outcome() == again.outcome() {
        found.push(format!("HTTP/1.1 ends with {}, HTTP/2 with {}", h1.outcome(), h2.outcome()));
        return found;
    }
    let names: BTreeSet<&String> = h1.fields.iter().chain(&h2.fields).map(|(name, _)| name).collect();
    for name in names {
        if PASSING.contains(&name.as_str()) || name.starts_with(':') {
            continue;
        }
        let values = |answer: &Answer| -> Vec<String> {
            answer.fields.iter().filter(|(found, _)| found == name).map(|(_, value)| value.clone()).collect()
        };
        let (first, second, other) = (values(h1), values(again), values(h2));
        if first == second && first != other {
            found.push(format!("{name} is {first:?} over HTTP/1.1 and {other:?} over HTTP/2"));
        }
    }
    if h1.body == again.body && (h1.body != h2.body || h1.body_bytes != h2.body_bytes) {
        found.push(format!("the bodies differ: {} and {} bytes", h1.body_bytes, h2.body_bytes));
    }
    found
}

/// From the first piece of a body to the last.
fn spread(answer: &Answer) -> Duration {
    let first = answer.pieces.first().copied().unwrap_or_default();
    answer.pieces.last().map_or(Duration::ZERO, |last| last.saturating_sub(first))
}

fn streaming(pair: &Pair) -> Check {
    let h1 = spread(&pair.h1).min(spread(&pair.again));
    let h2 = spread(&pair.h2);
    if h1 < STREAMS {
        let summary = "the response comes at once: there is nothing to compare";
        return Check::new(id::MIGR103, Verdict::Unsupported, summary);
    }
    let told = |spread: Duration| format!("{} ms", spread.as_millis());
    let summary =
        format!("from the first piece to the last {} over HTTP/1.1 and {} over HTTP/2", told(h1), told(h2));
    let verdict = if h2 >= h1 / 4 { Verdict::Pass } else { Verdict::Fail };
    Check::new(id::MIGR103, verdict, summary).with("over HTTP/2", pair.h2.exhibits.clone())
}

fn trailers(pair: &Pair) -> Check {
    let names =
        |answer: &Answer| answer.trailers.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>().join(", ");
    let (h1, h2) = (names(&pair.h1), names(&pair.h2));
    let check = |verdict, summary: String| {
        Check::new(id::MIGR104, verdict, summary)
            .with("over HTTP/2, with TE: trailers", pair.h2.exhibits.clone())
    };
    match (h1.as_str(), h2.as_str()) {
        ("", "") => check(Verdict::Unsupported, "this path has none".to_owned()),
        (h1, h2) if h1 == h2 => check(Verdict::Pass, format!("{h1} over both")),
        (h1, h2) => check(Verdict::Fail, format!("over HTTP/1.1: {h1:?}; over HTTP/2: {h2:?}")),
    }
}

/// Our engine refuses such a response, therefore it is asked for frame by frame.
fn forbidden(prober: &mut Prober, protocol: Protocol, found: &Found) -> Result<Check, ProbeError> {
    let mut talk = Talk::open(prober, protocol, &Opening::default())?;
    let answer = talk.get(prober)?;
    let listed = |fields: &[(String, String)]| -> Vec<String> {
        let is_forbidden = |name: &str| FORBIDDEN.contains(&name.to_ascii_lowercase().as_str());
        fields
            .iter()
            .filter(|(name, _)| is_forbidden(name))
            .map(|(name, value)| format!("{name}: {value}"))
            .collect()
    };
    let over_h2 = listed(&answer.fields);
    if !over_h2.is_empty() {
        let summary = format!("a response of HTTP/2 has {}", over_h2.join(", "));
        return Ok(Check::new(id::MIGR102, Verdict::Fail, summary).with("one GET", talk.exhibits()));
    }
    let over_h1 = found.h1_answer.as_ref().map(|answer| listed(&answer.fields)).unwrap_or_default();
    let set: Vec<&String> = over_h1
        .iter()
        .filter(|field| {
            ["keep-alive:", "proxy-connection:", "upgrade:"].iter().any(|name| field.starts_with(name))
        })
        .collect();
    let summary = match set.as_slice() {
        [] => "none over HTTP/2".to_owned(),
        set => format!("none over HTTP/2; over HTTP/1.1 there are {set:?}, which the server takes out"),
    };
    Ok(Check::new(id::MIGR102, Verdict::Pass, summary).with("one GET", talk.exhibits()))
}

/// A WebSocket over HTTP/1.1, and if there is one, over HTTP/2.
fn connection_upgrade(prober: &mut Prober, h1: Protocol, h2: Option<Protocol>) -> Result<Check, ProbeError> {
    prober.take_request()?;
    let mut line = Line::dial(prober, h1)?;
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: {WEBSOCKET_KEY}\r\n\r\n",
        prober.host.path, prober.host.authority
    );
    let until = prober.soon();
    line.send(prober, request.as_bytes(), until)?;
    let head = read_head(&mut line, prober, until)?.unwrap_or_default();
    let exhibits = line.tape.exhibits();
    let status = head.lines().next().unwrap_or("no answer").to_owned();
    let check = |verdict, summary: String| {
        Check::new(id::MIGR105, verdict, summary)
            .with("a WebSocket handshake over HTTP/1.1", exhibits.clone())
    };
    if !status.starts_with("HTTP/1.1 101") {
        return Ok(check(Verdict::Unsupported, format!("this path takes no WebSocket: {status}")));
    }
    let Some(h2) = h2 else {
        return Ok(check(
            Verdict::Fail,
            "this path takes over connections, and there is no HTTP/2 yet".to_owned(),
        ));
    };
    let mut talk = Talk::open(prober, h2, &Opening::default())?;
    if talk.settings.get(&8) != Some(&1) {
        let summary =
            "a WebSocket over HTTP/1.1, and no RFC 8441 over HTTP/2: clients must stay on HTTP/1.1 for it";
        return Ok(check(Verdict::Fail, summary.to_owned()));
    }
    prober.take_request()?;
    let stream = talk.next_stream();
    let path = prober.host.path.clone();
    let mut block = talk.block(prober, "CONNECT", &path, &[]);
    block.extend(literal(b":protocol", b"websocket"));
    block.extend(literal(b"sec-websocket-version", b"13"));
    let head = talk.head(stream, &block, false);
    talk.send(prober, &head)?;
    let until = prober.soon();
    talk.until(prober, until, |talk| {
        talk.streams.get(&stream).is_some_and(|stream| stream.status.is_some() || stream.is_over())
    })?;
    let status = talk.streams.get(&stream).and_then(|stream| stream.status);
    let told = check(
        if status.is_some_and(|status| (200..300).contains(&status)) { Verdict::Pass } else { Verdict::Fail },
        format!(
            "a WebSocket over HTTP/1.1; over HTTP/2 by RFC 8441: {}",
            status.map_or("no answer".to_owned(), |s| s.to_string())
        ),
    );
    Ok(told.with("an extended CONNECT", talk.exhibits()))
}

fn expect(found: &Found) -> Check {
    let [h1, h2] = [false, true].map(|multiplexed| {
        found.expected.iter().find(|(protocol, ..)| protocol.is_multiplexed() == multiplexed)
    });
    let (Some((_, h1_interim, h1_status)), Some((_, h2_interim, h2_status))) = (h1, h2) else {
        return Check::new(id::MIGR106, Verdict::Undecided, "it was not answered over both versions");
    };
    let told = |interim: &[u16], status: u16| {
        let all: Vec<String> = interim.iter().chain([&status]).map(u16::to_string).collect();
        all.join(", ")
    };
    let (over_h1, over_h2) = (told(h1_interim, *h1_status), told(h2_interim, *h2_status));
    let same = h1_status == h2_status && h1_interim.contains(&100) == h2_interim.contains(&100);
    let verdict = if same { Verdict::Pass } else { Verdict::Fail };
    Check::new(id::MIGR106, verdict, format!("HTTP/1.1: {over_h1}; HTTP/2: {over_h2}"))
}

fn upgrade_body(prober: &mut Prober, upgrades: bool) -> Result<Check, ProbeError> {
    if !upgrades {
        return Ok(Check::new(id::MIGR107, Verdict::Unsupported, "it does not upgrade to h2c"));
    }
    prober.take_request()?;
    let mut line = Line::dial(prober, Protocol::H1)?;
    let request = upgrade_request(prober, "POST", &format!("Content-Length: {GIBIBYTE}\r\n"));
    let until = prober.now() + REFUSAL;
    line.send(prober, request.as_bytes(), until)?;
    let head = read_head(&mut line, prober, until)?;
    let status = head.as_deref().and_then(|head| head.lines().next()).unwrap_or_default().to_owned();
    let (verdict, summary) = match status.split(' ').nth(1).and_then(|code| code.parse::<u16>().ok()) {
        Some(status @ (413 | 431)) => (Verdict::Pass, format!("{status} for a gibibyte that is announced")),
        Some(101) => (Verdict::Fail, "it switches with a gibibyte of body still to come".to_owned()),
        Some(100) => (Verdict::Fail, "it asks for a gibibyte of body with the upgrade in view".to_owned()),
        Some(status) => {
            (Verdict::Pass, format!("{status} in HTTP/1.1: it does not upgrade with such a body"))
        }
        None if line.over().is_some() => (Verdict::Pass, "it closes the connection".to_owned()),
        None => (Verdict::Fail, "it waits for a gibibyte of body".to_owned()),
    };
    Ok(Check::new(id::MIGR107, verdict, summary).with("a POST that upgrades", line.tape.exhibits()))
}

fn large(answer: &Answer) -> Check {
    let length = answer.field("content-length").and_then(|length| length.parse::<u64>().ok());
    let bytes = length.unwrap_or(answer.body_bytes).max(answer.body_bytes);
    let summary = format!("the response has {}", format_bytes(bytes));
    if bytes < LARGE && answer.ended != Ended::Cut {
        return Check::new(id::MIGR108, Verdict::Pass, summary);
    }
    Check::new(id::MIGR108, Verdict::Fail, format!("{summary}: HTTP/1.1 carries it faster"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, fields: &[(&str, &str)], body: &str) -> Answer {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Answer {
            status,
            fields,
            body: body.into(),
            body_bytes: body.len() as u64,
            ended: Ended::Complete,
            ..Answer::none(None)
        }
    }

    #[test]
    fn only_what_differs_between_versions_and_not_from_call_to_call_is_a_difference() {
        let h1 = answer(200, &[("x-a", "1"), ("x-id", "7"), ("date", "a"), ("connection", "close")], "b");
        let again = answer(200, &[("x-a", "1"), ("x-id", "8"), ("date", "b")], "b");
        let same = answer(200, &[("x-a", "1"), ("x-id", "9"), ("date", "c")], "b");
        let pair = |h2: Answer| Pair { h1: h1.clone(), again: again.clone(), h2 };
        assert_eq!(differences(&pair(same)), [""; 0]);
        let other = differences(&pair(answer(200, &[("x-id", "9")], "bb")));
        assert_eq!(other.len(), 2, "{other:?}");
        assert!(other[0].starts_with("x-a is") && other[1].starts_with("the bodies differ"), "{other:?}");
        assert!(differences(&pair(answer(500, &[], "")))[0].contains("HTTP/2 with 500"));
    }
}
