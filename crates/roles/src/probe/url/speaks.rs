//! What a server speaks: the protocols, and on which ports.

use h2lab_base::text::printable;
use h2lab_base::units::{Time, format_bytes, millis_f64};
use h2lab_model::probe::server::{Answer, AnswerEnd};
use h2lab_model::probe::{Check, EvidenceItem, Verdict, id};
use h2lab_model::workload::Protocol;
use h2lab_wire::trace::Direction;

use super::results::UrlResults;
use crate::client::ConnectError;
use crate::client::url::Url;
use crate::probe::ask::{Question, ask};
use crate::probe::raw_connection::{Put, RawConnection, ReadOutcome};
use crate::probe::raw_h2_client::{Opening, RawH2Client};
use crate::probe::{ProbeError, Prober, Result, distrusts};

/// What a client sends to begin HTTP/2 by an upgrade: `MAX_CONCURRENT_STREAMS` 100, no push (RFC 7540 §3.2.1).
pub const HTTP2_SETTINGS: &str = "AAMAAABkAAIAAAAA";

/// Bytes of a head that are read.
const HEAD: usize = 1 << 16;
/// Characters of a status line or a product that are shown.
const WIDTH: usize = 120;

/// `text` of the peer as it may be shown, and not all of it if it is long.
pub fn shown(text: &str) -> String {
    let text = printable(text.as_bytes());
    match text.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text,
    }
}

/// Tries each protocol that the URL's scheme allows, of those that are to be asked for.
pub fn look(prober: &mut Prober, url: &Url, found: &mut UrlResults) -> Result<()> {
    let tls = url.is_tls();
    let (h1, h2) = if tls { (Protocol::H1s, Protocol::H2) } else { (Protocol::H1, Protocol::H2c) };
    let is_all = prober.host.protocols.is_empty();
    if prober.host.asks(h1) {
        found.decide(id::PROT101, |found| http1(prober, h1, found))?;
        found.decide(id::PROT102, |_| http10(prober, h1))?;
    }
    if prober.host.asks(h2) {
        found.decide(if tls { id::PROT103 } else { id::PROT104 }, |found| http2(prober, h2, found))?;
    }
    if is_all || h2 == Protocol::H2c && prober.host.asks(h2) {
        found.decide(id::PROT105, |found| upgrade(prober, h1, found))?;
    }
    if tls && prober.host.asks(Protocol::H3) {
        found.decide(id::PROT106, |found| http3(prober, found))?;
    }
    if is_all {
        found.decide(id::PROT107, |found| ports(prober, tls, found))?;
    }
    Ok(())
}

/// Whether an attempt failed because the server speaks something else, and not because nothing can be reached or nothing came
/// in time.
pub const fn speaks_otherwise(error: &ConnectError) -> bool {
    !distrusts(error)
        && matches!(
            error,
            ConnectError::WrongProtocol { .. }
                | ConnectError::Closed(_)
                | ConnectError::Protocol(_)
                | ConnectError::Tls(_)
        )
}

/// A GET of the host's path, and what is learnt from its answer.
fn get(prober: &mut Prober, protocol: Protocol, found: &mut UrlResults) -> Result<Answer> {
    let answer = ask(prober, protocol, &Question::get())?;
    if found.software.is_none() {
        found.software = answer.field("server").map(shown);
    }
    if let Some(services) = answer.field("alt-svc") {
        found.alt_svc = Some(services.to_owned());
    }
    found.weigh(prober, &answer);
    Ok(answer)
}

pub(super) fn http1(prober: &mut Prober, protocol: Protocol, found: &mut UrlResults) -> Result<Check> {
    let answer = match get(prober, protocol, found) {
        Ok(answer) => answer,
        Err(ProbeError::Connect(error)) if speaks_otherwise(&error) => {
            return Ok(Check::new(id::PROT101, Verdict::Fail, format!("no {protocol}: {error}")));
        }
        Err(error) => return Err(error),
    };
    let is_1_0 = answer.items.iter().find(|item| item.direction == Direction::Down);
    let is_1_0 = is_1_0.is_some_and(|item| item.seen.starts_with("HTTP/1.0 "));
    let verdict = match (answer.status, &answer.ended) {
        (1.., _) if is_1_0 => Verdict::Fail,
        (1.., _) => Verdict::Pass,
        (0, AnswerEnd::Silence) => Verdict::Undecided,
        (0, _) => Verdict::Fail,
    };
    let version = if is_1_0 { ", in HTTP/1.0" } else { "" };
    let check = Check::new(id::PROT101, verdict, format!("{protocol}: {}{version}", answer.outcome()))
        .with("one request of HTTP/1.1", answer.items.clone());
    if answer.status > 0 {
        found.h1 = Some(protocol);
        found.h1_answer = Some(answer);
    }
    Ok(check)
}

/// How the rest of a response, which is read and not kept, ended.
struct Rest {
    bytes: u64,
    is_over: bool,
    /// We stopped, not the server.
    is_cut: bool,
}

/// Reads on for as long as something comes, and not more than is read of any response.
fn rest(prober: &mut Prober, line: &mut RawConnection) -> Result<Rest> {
    let mut bytes = 0;
    loop {
        bytes += line.incoming.len() as u64;
        line.incoming.clear();
        let is_cut = bytes >= prober.most_read;
        if is_cut || line.over.is_some() {
            return Ok(Rest { bytes, is_over: line.over.is_some(), is_cut });
        }
        if line.listen(prober.soon(), prober)? == ReadOutcome::Silence && line.incoming.is_empty() {
            return Ok(Rest { bytes, is_over: false, is_cut: false });
        }
    }
}

fn http10(prober: &mut Prober, protocol: Protocol) -> Result<Check> {
    prober.take_request()?;
    let mut line = RawConnection::dial(prober, protocol)?;
    let request = {
        let host = &prober.host;
        format!("GET {} HTTP/1.0\r\nHost: {}\r\n{}\r\n", host.path, host.authority, host.lines())
    };
    let until = prober.soon();
    line.send(request.as_bytes(), until, prober)?;
    let head = read_head(&mut line, prober, until)?;
    let Some(head) = head.filter(|head| head.starts_with("HTTP/1.")) else {
        let items = line.transcript.items();
        let (verdict, summary) = if line.over.is_none() && line.incoming.is_empty() {
            (Verdict::Undecided, "no response received in time")
        } else {
            (Verdict::Unsupported, "no HTTP/1.x response received")
        };
        return Ok(Check::new(id::PROT102, verdict, summary).with("one request of HTTP/1.0", items));
    };
    let status = shown(head.lines().next().unwrap_or_default());
    let head = head.to_ascii_lowercase();
    let rest = rest(prober, &mut line)?;
    let (verdict, summary) = http10_verdict(&status, &head, &rest);
    Ok(Check::new(id::PROT102, verdict, summary).with("one request of HTTP/1.0", line.transcript.items()))
}

/// The verdict on a response to HTTP/1.0, whose `head` is in lower case.
fn http10_verdict(status: &str, head: &str, rest: &Rest) -> (Verdict, String) {
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .and_then(|length| length.trim().parse::<u64>().ok());
    let has_all = length.is_none_or(|length| rest.bytes >= length);
    let read = format_bytes(rest.bytes);
    if status.contains(" 505") || status.contains(" 426") {
        (Verdict::Unsupported, format!("it refuses HTTP/1.0: {status}"))
    } else if head.contains("\r\ntransfer-encoding:") {
        (Verdict::Fail, "it answers HTTP/1.0 in chunks, which HTTP/1.0 does not have".to_owned())
    } else if rest.is_over {
        (Verdict::Pass, format!("{status}, and the end by closing"))
    } else if rest.is_cut {
        let summary = format!("{status}; its body continues after {read}; its end was not awaited");
        (Verdict::Undecided, summary)
    } else if !has_all {
        (Verdict::Undecided, format!("{status}; its body stops after {read} without an end"))
    } else if head.contains("\r\nconnection: keep-alive") {
        (Verdict::Pass, format!("{status}, and the connection is kept, as declared"))
    } else {
        let summary = "it keeps the connection open, though HTTP/1.0 ends a response by closing";
        (Verdict::Fail, summary.to_owned())
    }
}

pub(super) fn http2(prober: &mut Prober, protocol: Protocol, found: &mut UrlResults) -> Result<Check> {
    let meta = if protocol.is_tls() { id::PROT103 } else { id::PROT104 };
    let how = if protocol.is_tls() { "ALPN chose" } else { "prior knowledge of" };
    let answer = match get(prober, protocol, found) {
        Ok(answer) => answer,
        Err(ProbeError::Connect(error)) if speaks_otherwise(&error) => {
            return Ok(Check::new(meta, Verdict::Unsupported, error.to_string()));
        }
        Err(error) => return Err(error),
    };
    let speaks = answer.status > 0 || !answer.settings.is_empty();
    let verdict = match (&answer.ended, speaks) {
        (AnswerEnd::Complete | AnswerEnd::Cut, true) => Verdict::Pass,
        (AnswerEnd::Silence, _) => Verdict::Undecided,
        (_, false) => Verdict::Unsupported,
        _ => Verdict::Fail,
    };
    let check = Check::new(meta, verdict, format!("{how} {protocol}: {}", answer.outcome()))
        .with("one request of HTTP/2", answer.items.clone());
    if speaks {
        found.h2 = Some(protocol);
        found.h2_answer = Some(answer);
    }
    Ok(check)
}

/// The request that asks for an upgrade to HTTP/2, with further lines.
pub fn upgrade_request(prober: &Prober, method: &str, lines: &str) -> String {
    format!(
        "{method} {} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
         HTTP2-Settings: {HTTP2_SETTINGS}\r\n{lines}{}\r\n",
        prober.host.path,
        prober.host.authority,
        prober.host.lines()
    )
}

/// Reads the next head of HTTP/1.1, interim ones too; its bytes are taken from the line. `None` if none came.
pub fn next_head(line: &mut RawConnection, prober: &mut Prober, until: Time) -> Result<Option<String>> {
    let mut last = ReadOutcome::Bytes;
    loop {
        if let Some(end) = line.incoming.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&line.incoming[..end]).into_owned();
            line.incoming.drain(..end + 4);
            return Ok(Some(head));
        }
        if line.incoming.len() > HEAD || last != ReadOutcome::Bytes {
            return Ok(None);
        }
        last = line.listen(until, prober)?;
    }
}

/// The status of a head.
pub fn status_of(head: &str) -> Option<u16> {
    head.lines().next()?.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()
}

/// Reads the head of the final response, or of a 101, behind any other interim ones. `None` if none came.
pub fn read_head(line: &mut RawConnection, prober: &mut Prober, until: Time) -> Result<Option<String>> {
    loop {
        match next_head(line, prober, until)? {
            Some(head) if status_of(&head).is_some_and(|status| status < 200 && status != 101) => {}
            head => return Ok(head),
        }
    }
}

pub(super) fn upgrade(prober: &mut Prober, h1: Protocol, found: &mut UrlResults) -> Result<Check> {
    prober.take_request()?;
    let mut line = match RawConnection::dial(prober, h1) {
        Ok(line) => line,
        Err(ProbeError::Connect(error)) if speaks_otherwise(&error) => {
            return Ok(Check::new(id::PROT105, Verdict::Unsupported, format!("no {h1}: {error}")));
        }
        Err(error) => return Err(error),
    };
    let request = upgrade_request(prober, found.method(), "");
    let until = prober.soon();
    if line.send(request.as_bytes(), until, prober)? != Put::All {
        return Ok(Check::new(id::PROT105, Verdict::Unsupported, "it closes the connection"));
    }
    let head = read_head(&mut line, prober, until)?.unwrap_or_default();
    let rendered = shown(head.lines().next().unwrap_or_default());
    let ordinary = found.h1_answer.as_ref().map(|answer| answer.status);
    let (verdict, summary) = match status_of(&head) {
        Some(101) => return behind_101(prober, line, h1, found),
        Some(status @ (400.. | 300..=399)) if Some(status) != ordinary => {
            (Verdict::Unsupported, format!("it refuses the offer: {rendered}"))
        }
        Some(_) => (Verdict::Ignored, format!("it ignores the offer and answers in HTTP/1.1: {rendered}")),
        None if line.over.is_none() && line.incoming.is_empty() => {
            (Verdict::Undecided, "no response received in time".to_owned())
        }
        None => (Verdict::Unsupported, "no HTTP/1.1 response received".to_owned()),
    };
    Ok(Check::new(id::PROT105, verdict, summary).with("one offer", line.transcript.items()))
}

/// What follows a 101: only a second request that is answered makes it HTTP/2.
fn behind_101(
    prober: &mut Prober,
    line: RawConnection,
    h1: Protocol,
    found: &mut UrlResults,
) -> Result<Check> {
    let mut client = RawH2Client::on(line, h1.is_tls());
    client.greet(prober, &Opening::default())?;
    client.next_stream(); // stream 1 is the request that upgraded
    client.until(prober.soon(), prober, |client| client.has_settings && client.is_over(1))?;
    let first = client.streams.get(&1).and_then(|stream| stream.status);
    let second = if client.has_settings { client.ask(prober, found.method())?.status } else { None };
    let rendered =
        |status: Option<u16>| status.map_or_else(|| "nothing".to_owned(), |status| status.to_string());
    let (verdict, summary) = match (client.has_settings, first, second) {
        (false, ..) => (Verdict::Fail, "101, but no HTTP/2 behind it".to_owned()),
        (_, Some(first), Some(second)) => {
            found.upgrades = true;
            (Verdict::Pass, format!("101, {first} on stream 1 and {second} on stream 3"))
        }
        // The request that upgraded was answered in HTTP/2, and the server says that it has not processed the other.
        (_, Some(first), None) if client.goaways.last().is_some_and(|goaway| goaway.last_stream == 1) => {
            found.upgrades = true;
            let ended = client.ended().unwrap_or_default();
            (Verdict::Pass, format!("101 and {first} on stream 1; stream 3 is left unprocessed: {ended}"))
        }
        (_, first, second) => {
            let is_open = client.ended().is_none();
            let (verdict, but) =
                if is_open { (Verdict::Undecided, "and in time") } else { (Verdict::Fail, "but") };
            let [first, second] = [first, second].map(rendered);
            (verdict, format!("101 and SETTINGS, {but} {first} on stream 1 and {second} on stream 3"))
        }
    };
    Ok(Check::new(id::PROT105, verdict, summary).with("an upgrade and a second request", client.items()))
}

/// Where an `Alt-Svc` field has HTTP/3 (RFC 7838 §3): host, empty for the same one, and port of each alternative.
fn h3_alternatives(services: &str) -> Vec<(&str, u16)> {
    let alternative = |one: &str| -> Option<(usize, usize, u16)> {
        let start = one.find("h3=\"")? + 4;
        let end = start + one[start..].find('"')?;
        let colon = start + one[start..end].rfind(':')?;
        Some((start, colon, one[colon + 1..end].parse().ok()?))
    };
    services
        .split(',')
        .filter_map(|one| alternative(one).map(|(start, colon, port)| (&one[start..colon], port)))
        .collect()
}

pub(super) fn http3(prober: &mut Prober, found: &mut UrlResults) -> Result<Check> {
    let announced = found.alt_svc.clone().filter(|services| services.contains("h3"));
    let rendered = announced.as_ref().map_or_else(
        || "Alt-Svc does not announce it".to_owned(),
        |services| format!("Alt-Svc announces it: {}", shown(services)),
    );
    let here = prober.host.endpoint.port();
    let alternatives = announced.as_deref().map(h3_alternatives).unwrap_or_default();
    let is_elsewhere =
        !alternatives.is_empty() && !alternatives.iter().any(|(host, port)| host.is_empty() && *port == here);
    let mut seen: Vec<EvidenceItem> = Vec::new();
    let mut show = |direction, at_ms, text: String| seen.push(EvidenceItem { direction, at_ms, seen: text });
    if let Some(services) = &announced {
        show(Direction::Down, 0.0, format!("alt-svc: {}", shown(services)));
    }
    show(Direction::Up, 0.0, format!("a QUIC connection to UDP port {here}, and one GET"));
    let (verdict, summary) = match get(prober, Protocol::H3, found) {
        Ok(answer) if answer.status > 0 => {
            found.h3 = true;
            let at = answer.head_at.map(millis_f64).unwrap_or_default();
            show(Direction::Down, at, format!("HTTP/3 {}", answer.status));
            (
                Verdict::Pass,
                format!("QUIC on the UDP port of the same number: {}; {rendered}", answer.outcome()),
            )
        }
        Ok(answer) if answer.ended == AnswerEnd::Silence => {
            (Verdict::Undecided, format!("QUIC is reachable, but no response in time; {rendered}"))
        }
        Ok(answer) => (Verdict::Fail, format!("QUIC is reachable, but {}; {rendered}", answer.outcome())),
        Err(ProbeError::Connect(error)) if is_elsewhere => {
            let summary = format!("{rendered}, another endpoint, not requested; here: {error}");
            (Verdict::Undecided, summary)
        }
        Err(ProbeError::Connect(error)) if announced.is_some() => (
            Verdict::Fail,
            format!("{rendered}, and it cannot be reached on the UDP port of the URL: {error}"),
        ),
        Err(ProbeError::Connect(error)) => (Verdict::Unsupported, format!("{error}; {rendered}")),
        Err(error) => return Err(error),
    };
    Ok(Check::new(id::PROT106, verdict, summary).with("Alt-Svc, and the QUIC attempt", seen))
}

/// Whether the port also speaks what the scheme of the URL says it does not.
fn ports(prober: &mut Prober, tls: bool, found: &UrlResults) -> Result<Check> {
    let protocol = if tls { Protocol::H1 } else { Protocol::H1s };
    let insecure = std::mem::replace(&mut prober.host.tls.insecure, true);
    let answer = ask(prober, protocol, &Question::get());
    prober.host.tls.insecure = insecure;
    let what = if tls { "in clear" } else { "over TLS" };
    let spoken = found.spoken();
    let rendered =
        format!("this port: {}", if spoken.is_empty() { "nothing".to_owned() } else { spoken.join(", ") });
    let other = match answer {
        Ok(answer) => Some(answer),
        Err(ProbeError::Connect(error)) if speaks_otherwise(&error) => None,
        Err(error) if error.ends_it() => return Err(error),
        Err(error) => {
            let summary = format!("{rendered}; {what} unknown: {error}");
            return Ok(Check::new(id::PROT107, Verdict::Undecided, summary));
        }
    };
    let both = found.h1.is_some() && (found.h2.is_some() || found.upgrades);
    let (verdict, summary) = match &other {
        Some(answer) if answer.status == 0 && answer.ended == AnswerEnd::Silence => {
            (Verdict::Undecided, format!("{rendered}; {what} no response in time"))
        }
        Some(answer) if answer.status > 0 => {
            let verdict = if tls && serves_in_clear(answer) { Verdict::Fail } else { port_verdict(both) };
            (verdict, format!("{rendered}; {what} it answers {}", answer.outcome()))
        }
        _ => (port_verdict(both), rendered),
    };
    let items = other.map(|answer| answer.items).unwrap_or_default();
    Ok(Check::new(id::PROT107, verdict, summary).with(format!("one request {what}"), items))
}

const fn port_verdict(both: bool) -> Verdict {
    if both { Verdict::Pass } else { Verdict::Unsupported }
}

/// Whether a response in clear serves what is meant to go over TLS. One that leads to https does not.
fn serves_in_clear(answer: &Answer) -> bool {
    let leads_to_tls =
        || answer.field("location").is_some_and(|to| to.to_ascii_lowercase().starts_with("https:"));
    match answer.status {
        200..=299 => true,
        300..=399 => !leads_to_tls(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
