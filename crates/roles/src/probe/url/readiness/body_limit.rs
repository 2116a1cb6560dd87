//! Whether each way in limits the body of a request in the same way.

use h2lab_base::units::format_bytes;
use h2lab_model::probe::{Check, EvidenceItem, Verdict, id};
use h2lab_model::workload::Protocol;

use super::{GIBIBYTE, REFUSAL, UrlResults, read_head, status_of, upgrade_request};
use crate::probe::raw_connection::{Put, RawConnection, ReadOutcome};
use crate::probe::raw_h2_client::{Opening, RawH2Client};
use crate::probe::{Prober, Result};

/// The most that is sent of a body, in bytes.
const MOST: u64 = 256 << 10;
/// A server that took less had not seen a body that some limit would refuse.
const LEAST: u64 = 128 << 10;
/// Bytes of body that are sent at a time.
const PIECE: usize = 16 << 10;

/// The way in whose body must be read before HTTP/2 begins.
pub(super) const BY_UPGRADE: &str = "h2c by upgrade";

/// What became of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Taken {
    /// This many bytes went and were not refused: the server waits for more, has switched, or answered without an
    /// error.
    Open(u64, Option<u16>),
    /// 413, 431, or the end of the stream or connection.
    Refused(String),
    /// The server failed.
    Broken(u16),
    /// Another answer, which says nothing of a limit.
    Other(u16),
}

impl Taken {
    fn of(status: Option<u16>, ended: Option<String>, sent: u64) -> Self {
        match (status, ended) {
            (Some(status @ (413 | 431)), _) => Self::Refused(status.to_string()),
            (Some(status @ 400..=499), _) => Self::Other(status),
            (Some(status @ 500..), _) => Self::Broken(status),
            (Some(status), _) => Self::Open(sent, Some(status)),
            (None, Some(how)) => Self::Refused(how),
            (None, None) => Self::Open(sent, None),
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Open(sent, None) => format!("takes {} and waits for more", format_bytes(*sent)),
            Self::Open(sent, Some(status)) => format!("{status} after {}", format_bytes(*sent)),
            Self::Refused(how) => how.clone(),
            Self::Broken(status) | Self::Other(status) => status.to_string(),
        }
    }

    /// Whether both are the same to a client, apart from how far it came.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Other(one), Self::Other(two)) => one == two,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// A way in, what became of the body there, and the evidence.
type WayIn = (String, Taken, Vec<EvidenceItem>);

/// Sends the body over every way in that was found.
pub(super) fn body_limit(prober: &mut Prober, h1: Protocol, found: &UrlResults) -> Result<Check> {
    // Each way in at most a share, and as much is left for what follows.
    let most = MOST.min(prober.budget.bytes_left() / 4);
    let mut ways = vec![over_h1(prober, h1, false, most)?];
    if let Some(h2) = found.h2 {
        ways.push(over_h2(prober, h2, most)?);
    }
    if found.upgrades {
        ways.push(over_h1(prober, h1, true, most)?);
    }
    let results: Vec<(&str, &Taken)> = ways.iter().map(|(way, taken, _)| (way.as_str(), taken)).collect();
    let (verdict, summary) = judged(&results);
    let check = Check::new(id::MIGR109, verdict, summary);
    Ok(ways.into_iter().fold(check, |check, (way, _, items)| check.with(format!("a POST over {way}"), items)))
}

/// The verdict on what the ways in did. An upgrade alone may be refused: that is a limit that it should have.
pub(super) fn judged(ways: &[(&str, &Taken)]) -> (Verdict, String) {
    let rendered: Vec<String> = ways.iter().map(|(way, taken)| format!("{way}: {}", taken.words())).collect();
    let is_stricter =
        |way: &str, taken: &Taken| way == BY_UPGRADE && matches!(taken, Taken::Refused(_)) && ways.len() > 2;
    let compared: Vec<&Taken> =
        ways.iter().filter(|(way, taken)| !is_stricter(way, taken)).map(|(_, taken)| *taken).collect();
    let is_short = |taken: &&Taken| matches!(taken, Taken::Open(sent, None) if *sent < LEAST);
    let verdict = match compared.as_slice() {
        [] | [_] => Verdict::Unsupported,
        all if all.iter().any(is_short) => Verdict::Undecided,
        [first, others @ ..] if others.iter().all(|taken| taken.is_like(first)) => Verdict::Pass,
        all if all.iter().any(|taken| matches!(taken, Taken::Other(_))) => Verdict::Undecided,
        _ => Verdict::Fail,
    };
    (verdict, rendered.join("; "))
}

/// In HTTP/1.1, with an offer to upgrade or without.
fn over_h1(prober: &mut Prober, h1: Protocol, upgrades: bool, most: u64) -> Result<WayIn> {
    prober.take_request()?;
    let mut line = RawConnection::dial(prober, h1)?;
    let length = format!("Content-Length: {GIBIBYTE}\r\n");
    let request = if upgrades {
        upgrade_request(prober, "POST", &length)
    } else {
        let host = &prober.host;
        format!("POST {} HTTP/1.1\r\nHost: {}\r\n{length}{}\r\n", host.path, host.authority, host.lines())
    };
    let until = prober.now() + REFUSAL;
    line.send(request.as_bytes(), until, prober)?;
    let mut sent = 0;
    while sent < most && line.over.is_none() && line.incoming.is_empty() {
        let piece = PIECE.min((most - sent) as usize);
        if line.send(&[b'a'; PIECE][..piece], prober.soon(), prober)? != Put::All {
            break;
        }
        sent += piece as u64;
        if line.listen(prober.now(), prober)? == ReadOutcome::Bytes {
            break;
        }
    }
    let until = prober.now() + REFUSAL;
    let head = read_head(&mut line, prober, until)?;
    let ended = line.over.is_some().then(|| "the connection ends".to_owned());
    let taken = Taken::of(head.as_deref().and_then(status_of), ended, sent);
    let way = if upgrades { BY_UPGRADE } else { "HTTP/1.1" };
    Ok((way.to_owned(), taken, line.transcript.items()))
}

/// In HTTP/2.
fn over_h2(prober: &mut Prober, h2: Protocol, most: u64) -> Result<WayIn> {
    let mut client = RawH2Client::open(prober, h2, &Opening::default())?;
    let length = GIBIBYTE.to_string();
    let stream = client.request(prober, "POST", &[("content-length", &length)], false)?;
    let sent = client.body(prober, stream, most, false)?;
    let until = prober.now() + REFUSAL;
    client.until(until, prober, |client| client.ended().is_some() || client.is_settled(stream))?;
    let its = client.streams.get(&stream).cloned().unwrap_or_default();
    let reset = its.reset.map(|code| format!("RST_STREAM {code}"));
    let taken = Taken::of(its.status, reset.or_else(|| client.ended()), sent);
    Ok(("HTTP/2".to_owned(), taken, client.ending(6)))
}
