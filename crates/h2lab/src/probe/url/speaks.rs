//! What a server speaks: the protocols, and on which ports.

use h2lab_core::probe::{Check, Verdict, id};
use h2lab_core::units::Time;
use h2lab_core::workload::Protocol;

use super::{Found, decided};
use crate::client::ConnectError;
use crate::client::url::Url;
use crate::probe::ask::{Answer, Ended, Question, Way, ask};
use crate::probe::line::{Heard, Line, Put};
use crate::probe::talk::{Opening, Talk};
use crate::probe::{ProbeError, Prober};

/// What a client sends to begin HTTP/2 by an upgrade: `MAX_CONCURRENT_STREAMS` 100, no push (RFC 7540 §3.2.1).
pub const HTTP2_SETTINGS: &str = "AAMAAABkAAIAAAAA";

/// Tries each protocol that the URL's scheme allows.
pub fn look(prober: &mut Prober, url: &Url, found: &mut Found) -> Result<(), ProbeError> {
    let tls = url.is_tls();
    let (h1, h2) = if tls { (Protocol::H1s, Protocol::H2) } else { (Protocol::H1, Protocol::H2c) };
    let check = http1(prober, h1, found);
    found.add(decided(id::PROT101, check)?);
    let check = http10(prober, h1);
    found.add(decided(id::PROT102, check)?);
    if tls {
        let check = http2(prober, h2, found);
        found.add(decided(id::PROT103, check)?);
        let summary = "an upgrade to h2c is for clear text; over TLS there is ALPN";
        found.add(Check::new(id::PROT105, Verdict::Unsupported, summary));
    } else {
        let check = http2(prober, h2, found);
        found.add(decided(id::PROT104, check)?);
        let check = upgrade(prober, found);
        found.add(decided(id::PROT105, check)?);
    }
    if tls {
        let check = http3(prober, found);
        found.add(decided(id::PROT106, check)?);
    }
    let check = ports(prober, tls, found);
    found.add(decided(id::PROT107, check)?);
    Ok(())
}

/// Whether an attempt failed because the server speaks something else, and not because nothing can be reached.
pub fn speaks_otherwise(error: &ConnectError) -> bool {
    matches!(
        error,
        ConnectError::WrongProtocol { .. }
            | ConnectError::Closed(_)
            | ConnectError::Protocol(_)
            | ConnectError::NoAnswer(_)
            | ConnectError::Tls(_)
            | ConnectError::TlsTimeout(_)
    )
}

/// A GET of the host's path, and what is learnt from its answer.
fn get(prober: &mut Prober, way: Way, found: &mut Found) -> Result<Answer, ProbeError> {
    let path = prober.host.path.clone();
    let answer = ask(prober, way, &Question::get(&path))?;
    if found.software.is_none() {
        found.software = answer.field("server").map(str::to_owned);
    }
    if let Some(services) = answer.field("alt-svc") {
        found.alt_svc = Some(services.to_owned());
    }
    Ok(answer)
}

fn http1(prober: &mut Prober, protocol: Protocol, found: &mut Found) -> Result<Check, ProbeError> {
    let answer = match get(prober, Way::Plain(protocol), found) {
        Ok(answer) => answer,
        Err(ProbeError::Connect(error)) if speaks_otherwise(&error) => {
            return Ok(Check::new(id::PROT101, Verdict::Fail, format!("no {protocol}: {error}")));
        }
        Err(error) => return Err(error),
    };
    let verdict = if answer.status > 0 { Verdict::Pass } else { Verdict::Fail };
    let check = Check::new(id::PROT101, verdict, format!("{protocol}: {}", answer.outcome()))
        .with("one request of HTTP/1.1", answer.exhibits.clone());
    if answer.status > 0 {
        found.h1 = Some(protocol);
        found.h1_answer = Some(answer);
    }
    Ok(check)
}

fn http10(prober: &mut Prober, protocol: Protocol) -> Result<Check, ProbeError> {
    prober.take_request()?;
    let mut line = Line::dial(prober, protocol)?;
    let request = format!("GET {} HTTP/1.0\r\nHost: {}\r\n\r\n", prober.host.path, prober.host.authority);
    let until = prober.soon();
    line.send(prober, request.as_bytes(), until)?;
    while line.over().is_none() && line.incoming.len() < 1 << 20 {
        if line.listen(prober, until)? == Heard::Silence {
            break;
        }
    }
    let text = String::from_utf8_lossy(&line.incoming).into_owned();
    let head = text.split("\r\n\r\n").next().unwrap_or_default().to_ascii_lowercase();
    let status = head.lines().next().unwrap_or_default().to_ascii_uppercase();
    let exhibits = line.tape.exhibits();
    let check = |verdict, summary: String| {
        Check::new(id::PROT102, verdict, summary).with("one request of HTTP/1.0", exhibits.clone())
    };
    Ok(if !status.starts_with("HTTP/1.") {
        check(Verdict::Unsupported, "no response of HTTP/1.x came".to_owned())
    } else if status.contains(" 505") || status.contains(" 426") {
        check(Verdict::Unsupported, format!("it refuses HTTP/1.0: {status}"))
    } else if head.contains("\r\ntransfer-encoding:") {
        check(Verdict::Fail, "it answers HTTP/1.0 in chunks, which that does not know".to_owned())
    } else if line.over().is_none() && !head.contains("\r\nconnection: keep-alive") {
        check(
            Verdict::Fail,
            "it keeps the connection open, though HTTP/1.0 ends a response by closing".to_owned(),
        )
    } else {
        check(Verdict::Pass, format!("{status}, and the end by closing"))
    })
}

fn http2(prober: &mut Prober, protocol: Protocol, found: &mut Found) -> Result<Check, ProbeError> {
    let meta = if protocol.is_tls() { id::PROT103 } else { id::PROT104 };
    let how = if protocol.is_tls() { "ALPN chose" } else { "prior knowledge of" };
    let answer = match get(prober, Way::Plain(protocol), found) {
        Ok(answer) => answer,
        Err(ProbeError::Connect(error)) if speaks_otherwise(&error) => {
            return Ok(Check::new(meta, Verdict::Unsupported, error.to_string()));
        }
        Err(error) => return Err(error),
    };
    let speaks = answer.status > 0 || !answer.settings.is_empty();
    let verdict = match (&answer.ended, speaks) {
        (Ended::Complete, true) => Verdict::Pass,
        (_, false) => Verdict::Unsupported,
        _ => Verdict::Fail,
    };
    let check = Check::new(meta, verdict, format!("{how} {protocol}: {}", answer.outcome()))
        .with("one request of HTTP/2", answer.exhibits.clone());
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
         HTTP2-Settings: {HTTP2_SETTINGS}\r\n{lines}\r\n",
        prober.host.path, prober.host.authority
    )
}

/// Reads the head of a response of HTTP/1.1, interim ones too; its bytes are taken from the line. `None` if none came.
pub fn read_head(line: &mut Line, prober: &Prober, until: Time) -> Result<Option<String>, ProbeError> {
    loop {
        if let Some(end) = line.incoming.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&line.incoming[..end]).into_owned();
            line.incoming.drain(..end + 4);
            return Ok(Some(head));
        }
        if line.incoming.len() > 1 << 16 || line.listen(prober, until)? != Heard::Bytes {
            return Ok(None);
        }
    }
}

fn upgrade(prober: &mut Prober, found: &mut Found) -> Result<Check, ProbeError> {
    prober.take_request()?;
    let mut line = Line::dial(prober, Protocol::H1)?;
    let request = upgrade_request(prober, "GET", "");
    let until = prober.soon();
    if line.send(prober, request.as_bytes(), until)? != Put::All {
        return Ok(Check::new(id::PROT105, Verdict::Unsupported, "it closes the connection"));
    }
    let head = read_head(&mut line, prober, until)?.unwrap_or_default();
    let status = head.lines().next().unwrap_or_default().to_owned();
    if !status.starts_with("HTTP/1.1 101") {
        let (verdict, summary) = if status.is_empty() {
            (Verdict::Unsupported, "no response of HTTP/1.1 came".to_owned())
        } else {
            (Verdict::Ignored, format!("it answers in HTTP/1.1 as if nothing had been offered: {status}"))
        };
        return Ok(Check::new(id::PROT105, verdict, summary).with("one offer", line.tape.exhibits()));
    }
    let mut talk = Talk::on(line, false);
    talk.greet(prober, &Opening::default())?;
    let until = prober.soon();
    talk.next_stream(); // stream 1 is the request that upgraded
    talk.until(prober, until, |talk| talk.has_settings && talk.is_over(1))?;
    let first = talk.streams.get(&1).and_then(|stream| stream.status);
    let second = if talk.has_settings { talk.get(prober)?.status } else { None };
    let told = |status: Option<u16>| status.map_or_else(|| "nothing".to_owned(), |status| status.to_string());
    let (verdict, summary) = match (talk.has_settings, first, second) {
        (false, ..) => (Verdict::Fail, "101, but no HTTP/2 behind it".to_owned()),
        (_, Some(first), Some(second)) => {
            found.upgrades = true;
            (Verdict::Pass, format!("101, {first} on stream 1 and {second} on stream 3"))
        }
        // The request that upgraded was answered in HTTP/2, and the server says that it has not looked at the other.
        (_, Some(first), None) if talk.goaways.last().is_some_and(|goaway| goaway.last_stream == 1) => {
            found.upgrades = true;
            let ended = talk.ended().unwrap_or_default();
            (Verdict::Pass, format!("101 and {first} on stream 1; stream 3 is left unprocessed: {ended}"))
        }
        (_, first, second) => (
            Verdict::Fail,
            format!("101 and SETTINGS, but {} on stream 1 and {} on stream 3", told(first), told(second)),
        ),
    };
    Ok(Check::new(id::PROT105, verdict, summary).with("an upgrade and a second request", talk.exhibits()))
}

fn http3(prober: &mut Prober, found: &mut Found) -> Result<Check, ProbeError> {
    let announced = found.alt_svc.clone().filter(|services| services.contains("h3"));
    let told = announced.as_ref().map_or_else(
        || "Alt-Svc does not announce it".to_owned(),
        |services| format!("Alt-Svc announces it: {services}"),
    );
    let (verdict, summary) = match get(prober, Way::Plain(Protocol::H3), found) {
        Ok(answer) if answer.status > 0 => {
            found.h3 = true;
            found.h3_answer = Some(answer.clone());
            (Verdict::Pass, format!("QUIC on the UDP port of the same number: {}; {told}", answer.outcome()))
        }
        Ok(answer) => (Verdict::Fail, format!("QUIC is there, but {}; {told}", answer.outcome())),
        Err(ProbeError::Connect(error)) if announced.is_some() => (
            Verdict::Fail,
            format!("{told}, and it is not to be reached on the UDP port of the URL: {error}"),
        ),
        Err(ProbeError::Connect(error)) => (Verdict::Unsupported, format!("{error}; {told}")),
        Err(error) => return Err(error),
    };
    Ok(Check::new(id::PROT106, verdict, summary))
}

/// Whether the port also speaks what the scheme of the URL says it does not.
fn ports(prober: &mut Prober, tls: bool, found: &Found) -> Result<Check, ProbeError> {
    let path = prober.host.path.clone();
    let mut spoken: Vec<String> = Vec::new();
    spoken.extend(found.h1.map(|protocol| protocol.to_string()));
    spoken.extend(found.h2.map(|protocol| protocol.to_string()));
    spoken.extend(found.upgrades.then(|| "h2c by upgrade".to_owned()));
    spoken.extend(found.h3.then(|| "h3 (UDP)".to_owned()));
    let other = if tls {
        ask(prober, Way::Plain(Protocol::H1), &Question::get(&path)).ok().filter(|answer| answer.status > 0)
    } else {
        let insecure = std::mem::replace(&mut prober.host.tls.insecure, true);
        let answer = ask(prober, Way::Plain(Protocol::H1s), &Question::get(&path));
        prober.host.tls.insecure = insecure;
        answer.ok().filter(|answer| answer.status > 0)
    };
    prober.check_stop()?;
    let both = found.h1.is_some() && (found.h2.is_some() || found.upgrades);
    let mut summary =
        format!("this port: {}", if spoken.is_empty() { "nothing".to_owned() } else { spoken.join(", ") });
    if let Some(answer) = &other {
        let what = if tls { "in clear" } else { "over TLS" };
        summary = format!("{summary}; {what} it answers {}", answer.outcome());
    }
    let served_both = other.is_some_and(|answer| (200..400).contains(&answer.status));
    let verdict = match (served_both && tls, both) {
        (true, _) => Verdict::Fail,
        (false, true) => Verdict::Pass,
        (false, false) => Verdict::Unsupported,
    };
    Ok(Check::new(id::PROT107, verdict, summary))
}
