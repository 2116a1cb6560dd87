//! h2c smuggling and the translation of HTTP/2 into HTTP/1.1, through a proxy whose backend we are.
//!
//! Everything is seen from both sides: our client sends what no client should, and [`Desk`] records what arrives behind the
//! proxy, byte for byte. What follows from it is [`h2lab_core::probe::smuggling`]'s and [`h2lab_core::probe::downgrade`]'s.

mod desk;
pub mod fixture;

use std::time::{Duration, Instant};

use h2lab_core::probe::downgrade::ask::Ask;
use h2lab_core::probe::downgrade::case::Case;
use h2lab_core::probe::downgrade::{self, CASES, CONTROL, Judged};
use h2lab_core::probe::smuggling::attempt::{Aim, Attempt, Progress};
use h2lab_core::probe::smuggling::backend::{Backend, attempt};
use h2lab_core::probe::smuggling::checks::{self, Baseline, Tried};
use h2lab_core::probe::smuggling::hop::Hop;
use h2lab_core::probe::smuggling::judge::{self, Arrived};
use h2lab_core::probe::smuggling::offer::{Manner, OFFERS, Offer};
use h2lab_core::probe::{Check, Exhibit, Verdict};
use h2lab_core::trace::Direction;
use h2lab_core::units::millis_f64;
use h2lab_core::workload::Protocol;

use super::{Heard, Host, Line, ProbeError, Prober, Tape};
pub use desk::Desk;

/// How long the backend's record may lag behind what the client has seen.
const SETTLE: Duration = Duration::from_millis(200);

/// What is asked of the proxy.
#[derive(Debug, Clone)]
pub struct Paths {
    /// One that it lets through.
    pub allowed: String,
    /// One that it does not.
    pub forbidden: String,
}

/// Why nothing can be concluded.
#[derive(Debug, thiserror::Error)]
pub enum SmugglingError {
    /// See [`ProbeError`].
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The proxy leads somewhere else.
    #[error(
        "a plain request for {path} did not reach our backend at {backend} ({answer}): make the proxy forward to that address, or \
         name a path that it forwards with --allowed"
    )]
    NotBehind {
        /// The path.
        path: String,
        /// Where we listen.
        backend: std::net::SocketAddr,
        /// What the client got.
        answer: String,
    },
}

/// What was found.
#[derive(Debug)]
pub struct Found {
    /// All checks.
    pub checks: Vec<Check>,
    /// Doubts.
    pub warnings: Vec<String>,
}

/// Tries every variant of the offer against both kinds of backend.
///
/// `protocol` is what the proxy is dialled for: `h1` or `h1s`.
pub fn upgrades(
    prober: &mut Prober,
    desk: &Desk,
    protocol: Protocol,
    paths: &Paths,
) -> Result<Found, SmugglingError> {
    reach(prober, desk, protocol, &paths.allowed)?;
    let baseline = baseline(prober, desk, protocol, &paths.forbidden)?;
    let mut tried = Vec::new();
    for manner in Manner::ALL {
        for (n, offer) in OFFERS.iter().enumerate() {
            let name = format!("{n}-{}", manner.name());
            tried.push(try_offer(prober, desk, protocol, paths, (&name, manner, offer))?);
        }
    }
    let warnings = match baseline {
        Baseline::Refused(_) => Vec::new(),
        Baseline::Reached => vec![format!(
            "the proxy lets {} through, so that nothing is forbidden that could be reached: name a path that it denies with \
             --forbidden",
            paths.forbidden
        )],
    };
    Ok(Found { checks: checks::checks(&tried, &paths.forbidden, baseline), warnings })
}

/// Sends what an [`Attempt`] says and gives it what comes, until it is over, the proxy ends it, or patience does.
///
/// What crossed is told when it is known how it must be read: frames come in one piece with the 101.
fn converse(prober: &mut Prober, line: &mut Line, attempt: &mut Attempt) -> Result<Vec<Exhibit>, ProbeError> {
    let (began, until) = (prober.now(), prober.soon());
    let mut crossed = Vec::new();
    while !attempt.is_over() {
        let bytes = attempt.transmit(prober.now());
        if !bytes.is_empty() {
            crossed.push((prober.now(), Direction::Up, bytes.clone()));
            line.send(prober, &bytes, until)?;
        }
        match line.listen(prober, until)? {
            Heard::Bytes => {
                let bytes = std::mem::take(&mut line.incoming);
                attempt.receive(prober.now(), &bytes);
                crossed.push((prober.now(), Direction::Down, bytes));
            }
            Heard::Eof | Heard::Broken => attempt.end(prober.now()),
            Heard::Silence => break,
        }
    }
    let mut tape = Tape::new(began);
    if matches!(attempt.progress(), Progress::Switched(_)) {
        tape.reads_frames();
    }
    for (at, direction, bytes) in crossed {
        tape.record(at, direction, &bytes);
    }
    Ok(tape.exhibits())
}

/// What the backend has of the attempt called `name`.
fn arrived<T>(desk: &Desk, name: &str, look: impl Fn(&Backend) -> T) -> Option<T> {
    desk.wait(Instant::now() + SETTLE, |backends| {
        backends.iter().find(|backend| is_of(backend.hop(), name)).map(&look)
    })
}

/// Whether the bytes of a connection begin with the attempt called `name`.
fn is_of(hop: &Hop, name: &str) -> bool {
    attempt(hop.bytes()).is_some_and(|found| found == name)
}

/// Makes sure that a plain request for `path` comes through to our backend.
fn reach(prober: &mut Prober, desk: &Desk, protocol: Protocol, path: &str) -> Result<(), SmugglingError> {
    let progress = plain(prober, protocol, path, "reach")?;
    if arrived(desk, "reach", |_| ()).is_some() {
        return Ok(());
    }
    let answer = match progress {
        Progress::Answered { status, .. } => format!("the proxy answered {status}"),
        _ => "the proxy gave no answer".to_owned(),
    };
    Err(SmugglingError::NotBehind { path: path.to_owned(), backend: desk.address(), answer })
}

/// What the proxy does with a plain request for the forbidden path.
fn baseline(
    prober: &mut Prober,
    desk: &Desk,
    protocol: Protocol,
    path: &str,
) -> Result<Baseline, ProbeError> {
    let progress = plain(prober, protocol, path, "baseline")?;
    if arrived(desk, "baseline", |_| ()).is_some() {
        return Ok(Baseline::Reached);
    }
    Ok(Baseline::Refused(match progress {
        Progress::Answered { status, .. } => Some(status),
        _ => None,
    }))
}

/// Asks for `path` as any client would.
fn plain(prober: &mut Prober, protocol: Protocol, path: &str, name: &str) -> Result<Progress, ProbeError> {
    prober.take_request()?;
    let mut line = Line::dial(prober, protocol)?;
    let authority = prober.host.authority.clone();
    let aim = Aim { authority: &authority, allowed: path, forbidden: path };
    let mut attempt = Attempt::new(name, None, &aim);
    converse(prober, &mut line, &mut attempt)?;
    Ok(attempt.progress().clone())
}

/// One variant against one kind of backend.
fn try_offer(
    prober: &mut Prober,
    desk: &Desk,
    protocol: Protocol,
    paths: &Paths,
    (name, manner, offer): (&str, Manner, &Offer),
) -> Result<Tried, ProbeError> {
    prober.take_request()?;
    let began = prober.now();
    let mut line = Line::dial(prober, protocol)?;
    let authority = prober.host.authority.clone();
    let aim = Aim { authority: &authority, allowed: &paths.allowed, forbidden: &paths.forbidden };
    let mut attempt = Attempt::new(name, Some(offer), &aim);
    let exhibits = converse(prober, &mut line, &mut attempt)?;
    let progress = attempt.progress();
    let seen = arrived(desk, name, |backend| {
        let hop = backend.hop();
        let head = hop.requests().first().map(|request| hop.bytes()[request.head.clone()].to_vec());
        (head, backend.switched().cloned(), backend.arrived_at())
    });
    let (head, switched, arrived_at) = seen.unwrap_or_default();
    let arrived = Arrived { head: head.as_deref(), switched: switched.as_ref() };
    let observation = judge::observe(offer, manner, progress, &arrived);
    let arrived_ms = arrived_at.map(|at| millis_f64(at.since(began)));
    Ok(Tried { observation, exhibits, arrived_ms })
}

/// Sends every malformed request of HTTP/2 to `host`, which leads to the same backend, in `protocol`: `h2c` or `h2`.
pub fn downgrades(
    prober: &mut Prober,
    desk: &Desk,
    host: Host,
    protocol: Protocol,
) -> Result<Vec<Check>, ProbeError> {
    let before = std::mem::replace(&mut prober.host, host);
    let found = send_cases(prober, desk, protocol);
    prober.host = before;
    found
}

fn send_cases(prober: &mut Prober, desk: &Desk, protocol: Protocol) -> Result<Vec<Check>, ProbeError> {
    let control = match send_case(prober, desk, protocol, &CONTROL, "control") {
        Ok(sent) => sent,
        Err(error @ (ProbeError::Interrupted | ProbeError::Exhausted(_))) => return Err(error),
        Err(error) => {
            let why = format!("HTTP/2 cannot be spoken with the proxy: {error}");
            return Ok(downgrade::checks::none(Verdict::Unsupported, &why));
        }
    };
    if !control.speaks {
        let why = "the proxy does not speak HTTP/2 on this port (name one that does with --h2-proxy)";
        return Ok(downgrade::checks::none(Verdict::Unsupported, why));
    }
    if control.judged.handling != downgrade::Handling::Normalised {
        let why = format!("a proper request over HTTP/2 did not reach our backend ({})", control.answer);
        return Ok(downgrade::checks::none(Verdict::Undecided, &why));
    }
    let mut found = Vec::new();
    for case in CASES {
        let sent = send_case(prober, desk, protocol, case, &format!("down-{}", case.id))?;
        found.push(downgrade::checks::check(case, &sent.judged, &sent.answer, sent.exhibits));
    }
    Ok(found)
}

/// What became of a case.
struct Sent {
    judged: Judged,
    answer: String,
    exhibits: Vec<Exhibit>,
    speaks: bool,
}

fn send_case(
    prober: &mut Prober,
    desk: &Desk,
    protocol: Protocol,
    case: &Case,
    name: &str,
) -> Result<Sent, ProbeError> {
    prober.take_request()?;
    let scheme = if protocol.is_tls() { "https" } else { "http" };
    let mut line = Line::dial(prober, protocol)?;
    line.tape.reads_frames();
    let authority = prober.host.authority.clone();
    let mut ask = Ask::new(case, scheme, &authority, name);
    let until = prober.soon();
    while !ask.is_over() {
        let bytes = ask.transmit();
        if !bytes.is_empty() {
            line.send(prober, &bytes, until)?;
        }
        match line.listen(prober, until)? {
            Heard::Bytes => {
                let bytes = std::mem::take(&mut line.incoming);
                ask.receive(prober.now(), &bytes);
            }
            Heard::Eof | Heard::Broken => ask.end(),
            Heard::Silence => break,
        }
    }
    let judged = arrived(desk, name, |backend| downgrade::judge(case, ask.answer(), Some(backend.hop())))
        .unwrap_or_else(|| downgrade::judge(case, ask.answer(), None));
    let (answer, speaks) = (ask.answer().words(), ask.answer().speaks);
    Ok(Sent { judged, answer, exhibits: line.tape.exhibits(), speaks })
}
