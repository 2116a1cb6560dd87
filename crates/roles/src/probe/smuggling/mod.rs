//! h2c smuggling and the translation of HTTP/2 into HTTP/1.1, through a proxy whose backend we are.
//!
//! Everything is seen from both sides: our client sends what no client should, and [`BackendListener`] records what
//! arrives behind the proxy, byte for byte. [`h2lab_model::probe::smuggling`] and [`h2lab_model::probe::downgrade`]
//! draw the conclusions.

mod backend_listener;
pub mod fixture;

use std::time::{Duration, Instant};

use h2lab_base::units::millis_f64;
use h2lab_model::probe::downgrade;
use h2lab_model::probe::downgrade::case;
use h2lab_model::probe::downgrade::case::DowngradeCase;
use h2lab_model::probe::downgrade::exchange::DowngradeExchange;
use h2lab_model::probe::downgrade::{CASES, CONTROL, Judged, Series};
use h2lab_model::probe::smuggling::attempt::{Attempt, AttemptProgress, SmugglingTarget};
use h2lab_model::probe::smuggling::backend::{Backend, attempt};
use h2lab_model::probe::smuggling::backend_request;
use h2lab_model::probe::smuggling::backend_request::BackendBytes;
use h2lab_model::probe::smuggling::checks;
use h2lab_model::probe::smuggling::checks::{Baseline, Missed, Tried};
use h2lab_model::probe::smuggling::judge;
use h2lab_model::probe::smuggling::judge::{Arrived, Observation};
use h2lab_model::probe::smuggling::offer::{OFFERS, OfferVariant, Strictness};
use h2lab_model::probe::{Check, EvidenceItem, Verdict};
use h2lab_model::workload::Protocol;
use h2lab_wire::trace::Direction;

use super::{Host, ProbeError, Prober, RawConnection, ReadOutcome, Result, Transcript};
use crate::client::ConnectError;
pub use backend_listener::BackendListener;
use h2lab_net::tls::TlsError;

/// How long the backend's record may lag behind what the client has seen.
const SETTLE: Duration = Duration::from_millis(200);
/// How long a proxy may consider its backend dead: its health checks run every few seconds and need several answers.
const HEALTH: Duration = Duration::from_secs(15);
/// How often it is asked again meanwhile.
const AGAIN: Duration = Duration::from_millis(500);
/// Bytes of a conversation that are kept as evidence.
const KEPT: usize = 256 * 1024;

/// What is checked of the proxy.
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
        "a plain request for {path} did not reach our backend at {backend} ({answer}{hint}): make the proxy forward \
         to that address in HTTP/1.1 without TLS, or give a path that it forwards (--allowed)"
    )]
    NotBehind {
        /// The path.
        path: String,
        /// Where we listen.
        backend: std::net::SocketAddr,
        /// What the client got.
        answer: String,
        /// What came to the backend instead, if anything did.
        hint: String,
    },
}

/// What was found.
#[derive(Debug, Default)]
pub struct SmugglingResults {
    /// All checks.
    pub checks: Vec<Check>,
    /// The offers of h2c, with what both sides saw of each.
    pub attempts: Vec<Observation>,
    /// The software that the proxy claims to be.
    pub software: Option<String>,
    /// Doubts.
    pub warnings: Vec<String>,
}

/// Tries every variant of the offer against both kinds of backend.
///
/// `protocol` is what the proxy is dialled for: `h1` or `h1s`.
pub fn upgrades(
    prober: &mut Prober,
    listener: &BackendListener,
    protocol: Protocol,
    paths: &Paths,
) -> Result<SmugglingResults, SmugglingError> {
    let mut proxy = Proxy { prober, listener, protocol };
    let software = proxy.reach(&paths.allowed)?;
    let baseline = proxy.baseline(&paths.forbidden)?;
    let (mut tried, mut missed) = (Vec::new(), Vec::<Missed>::new());
    for strictness in Strictness::ALL {
        for (n, offer) in OFFERS.iter().enumerate() {
            let name = format!("{n}-{}", strictness.name());
            // If it has gone, or must not be asked any more, the rest is skipped.
            let sent = match missed.last() {
                Some(missed) => Err(missed.why.clone()),
                None => decided(proxy.try_offer(paths, (&name, strictness, offer)))?,
            };
            match sent {
                Ok(seen) => tried.push(seen),
                Err(why) => missed.push(Missed { offer: offer.id, backend: strictness, why }),
            }
        }
    }
    let checks = checks::checks(&tried, &missed, &paths.forbidden, baseline);
    let attempts = tried.into_iter().map(|tried| tried.observation).collect();
    Ok(SmugglingResults {
        checks,
        attempts,
        software,
        warnings: baseline.doubt(&paths.forbidden).into_iter().collect(),
    })
}

/// What was seen, or why it could not be; what must end the whole probe is passed on as an error.
fn decided<T>(seen: Result<T>) -> Result<Result<T, String>> {
    match seen {
        Ok(seen) => Ok(Ok(seen)),
        Err(error @ (ProbeError::Connect(_) | ProbeError::Exhausted(_))) => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}

/// Sends what an [`Attempt`] has and passes it what arrives, until it is over, the proxy ends it, or the time is up.
///
/// Bytes are reported once it is known how they must be read: frames come in one piece with the 101.
fn converse(
    prober: &mut Prober,
    line: &mut RawConnection,
    attempt: &mut Attempt,
) -> Result<Vec<EvidenceItem>> {
    let (began, until) = (prober.now(), prober.soon());
    let (mut crossed, mut kept) = (Vec::new(), 0);
    // A proxy that keeps sending is not read for longer.
    while !attempt.is_over() && prober.now() < until {
        prober.check_stop()?;
        let bytes = attempt.transmit(prober.now());
        if !bytes.is_empty() {
            crossed.push((prober.now(), Direction::Up, bytes.clone()));
            line.send(&bytes, until, prober)?;
        }
        match line.listen(until, prober)? {
            ReadOutcome::Bytes => {
                let bytes = std::mem::take(&mut line.incoming);
                attempt.receive(prober.now(), &bytes);
                if kept < KEPT {
                    kept += bytes.len();
                    crossed.push((prober.now(), Direction::Down, bytes));
                }
            }
            ReadOutcome::Eof | ReadOutcome::Broken => attempt.end(prober.now()),
            ReadOutcome::Silence => break,
        }
    }
    let mut transcript = Transcript::new(began, prober.host.hidden.clone());
    if matches!(attempt.progress(), AttemptProgress::Switched(_)) {
        transcript.reads_frames();
    }
    for (at, direction, bytes) in crossed {
        transcript.record(at, direction, &bytes);
    }
    Ok(transcript.items())
}

/// Whether the bytes of a connection begin with the attempt called `name`.
fn is_of(backend_request: &BackendBytes, name: &str) -> bool {
    attempt(backend_request.bytes()).is_some_and(|found| found == name)
}

/// The protocol that `bytes` begin, if that is another than HTTP/1.1.
fn foreign(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [b'P', b'R', b'I', b' ', ..] => Some("; what it sends to the backend is HTTP/2"),
        [0x16, 3, ..] => Some("; what it sends to the backend is TLS"),
        _ => None,
    }
}

/// Sends every malformed request of HTTP/2 to `host`, which leads to the same backend, in `protocol`: `h2c` or `h2`. `path` is one
/// that the proxy forwards.
pub fn downgrades(
    prober: &mut Prober,
    listener: &BackendListener,
    (host, protocol): (Host, Protocol),
    path: &str,
) -> Result<SmugglingResults> {
    let before = std::mem::replace(&mut prober.host, host);
    let found = Proxy { prober, listener, protocol }.send_cases(path);
    prober.host = before;
    found
}

/// What became of a case.
struct Sent {
    judged: Judged,
    answer: String,
    items: Vec<EvidenceItem>,
    speaks: bool,
    /// The proxy takes the backend for dead, or has no room.
    is_trouble: bool,
    /// The software that it claims to be.
    server: Option<String>,
}

impl Sent {
    /// Whether a proper request came to the backend.
    fn is_through(&self) -> bool {
        self.judged.handling == downgrade::Handling::Normalised
    }
}

/// A proxy on one of its ports, with our backend behind it.
struct Proxy<'a> {
    prober: &'a mut Prober,
    listener: &'a BackendListener,
    protocol: Protocol,
}

impl Proxy<'_> {
    /// Makes sure that a plain request for `path` reaches our backend, which a proxy may take for down until its health checks have
    /// succeeded. Returns what software the proxy claims to be.
    fn reach(&mut self, path: &str) -> Result<Option<String>, SmugglingError> {
        let deadline = Instant::now() + HEALTH;
        let progress = loop {
            let asked = self.plain(path, "reach")?;
            if self.arrived("reach", |_| ()).is_some() {
                return Ok(asked.server().map(str::to_owned));
            }
            let progress = asked.progress().clone();
            let is_trouble = matches!(progress, AttemptProgress::Answered { status, .. } if backend_request::is_gateway_trouble(status));
            if !is_trouble || Instant::now() >= deadline {
                break progress;
            }
            self.pause()?;
        };
        let answer = match progress {
            AttemptProgress::Answered { status, .. } => format!("the proxy answered {status}"),
            _ => "the proxy did not respond".to_owned(),
        };
        let (backend, hint) = (self.listener.address(), self.came_instead().unwrap_or_default().to_owned());
        Err(SmugglingError::NotBehind { path: path.to_owned(), backend, answer, hint })
    }

    /// What the proxy does with a plain request for the forbidden path.
    fn baseline(&mut self, path: &str) -> Result<Baseline> {
        let asked = self.plain(path, "baseline")?;
        if self.arrived("baseline", |_| ()).is_some() {
            return Ok(Baseline::Reached);
        }
        Ok(Baseline::of(asked.progress()))
    }

    /// Asks for `path` as any client would.
    fn plain(&mut self, path: &str, name: &str) -> Result<Attempt> {
        self.prober.take_request()?;
        let mut line = RawConnection::dial(self.prober, self.protocol)?;
        let authority = self.prober.host.authority.clone();
        let aim = SmugglingTarget { authority: &authority, allowed: path, forbidden: path };
        let mut attempt = Attempt::new(name, None, &aim);
        converse(self.prober, &mut line, &mut attempt)?;
        Ok(attempt)
    }

    /// One variant against one kind of backend.
    fn try_offer(
        &mut self,
        paths: &Paths,
        (name, strictness, offer): (&str, Strictness, &OfferVariant),
    ) -> Result<Tried> {
        self.prober.take_request()?;
        let began = self.prober.now();
        let mut line = RawConnection::dial(self.prober, self.protocol)?;
        let authority = self.prober.host.authority.clone();
        let aim =
            SmugglingTarget { authority: &authority, allowed: &paths.allowed, forbidden: &paths.forbidden };
        let mut attempt = Attempt::new(name, Some(offer), &aim);
        let items = converse(self.prober, &mut line, &mut attempt)?;
        let progress = attempt.progress();
        let seen = self.arrived(name, |backend| {
            let backend_request = backend.backend_request();
            let head = backend_request
                .requests()
                .first()
                .map(|request| backend_request.bytes()[request.head.clone()].to_vec());
            (head, backend.switched().cloned(), backend.arrived_at())
        });
        let (head, switched, arrived_at) = seen.unwrap_or_default();
        let arrived = Arrived { head: head.as_deref(), switched: switched.as_ref() };
        let observation = judge::observe(offer, strictness, progress, &arrived);
        let arrived_ms = arrived_at.map(|at| millis_f64(at.since(began)));
        Ok(Tried { observation, items, arrived_ms })
    }

    fn send_cases(&mut self, path: &str) -> Result<SmugglingResults> {
        let software = match self.first_control(path)? {
            Ok(software) => software,
            Err(checks) => return Ok(SmugglingResults { checks, ..SmugglingResults::default() }),
        };
        let mut series = Series::default();
        for (n, case) in CASES.iter().enumerate() {
            let name = format!("down-{}", case.id);
            let rest = &CASES[n + 1..];
            match decided(self.send_case(case, path, &name))? {
                Ok(sent) => {
                    let check = downgrade::checks::check(case, &sent.judged, &sent.answer, sent.items);
                    series.push(check, sent.judged.handling);
                }
                Err(why) => {
                    series.give_up(&why, &CASES[n..]);
                    break;
                }
            }
            if series.wants_control(rest.is_empty()) {
                let name = format!("control-{n}");
                let lost = match decided(self.send_case(&CONTROL, path, &name))? {
                    Ok(sent) if sent.is_through() => None,
                    Ok(sent) => Some(sent.answer),
                    Err(why) => Some(why),
                };
                let Some(why) = lost else {
                    series.prove();
                    continue;
                };
                series.give_up(&format!("a valid request no longer reached our backend ({why})"), rest);
                break;
            }
        }
        Ok(SmugglingResults { checks: series.into_checks(), software, ..SmugglingResults::default() })
    }

    /// The checks of all topics if no valid request over HTTP/2 reaches our backend; otherwise the software that the
    /// proxy claims to be.
    fn first_control(&mut self, path: &str) -> Result<Result<Option<String>, Vec<Check>>> {
        let deadline = Instant::now() + HEALTH;
        loop {
            let control = match self.send_case(&CONTROL, path, "control") {
                Ok(sent) => sent,
                Err(
                    error @ ProbeError::Connect(
                        ConnectError::Tls(TlsError::Alpn { .. } | TlsError::NotTls)
                        | ConnectError::WrongProtocol { .. },
                    ),
                ) => {
                    let why = format!("HTTP/2 cannot be spoken with the proxy: {error}");
                    return Ok(Err(downgrade::checks::none(Verdict::Unsupported, &why)));
                }
                Err(error @ (ProbeError::Connect(_) | ProbeError::Exhausted(_))) => {
                    let why = format!("a valid request over HTTP/2 could not be sent: {error}");
                    return Ok(Err(downgrade::checks::none(Verdict::Undecided, &why)));
                }
                Err(error) => return Err(error),
            };
            if control.is_through() {
                return Ok(Ok(control.server));
            }
            if control.is_trouble && Instant::now() < deadline {
                self.pause()?;
                continue;
            }
            if control.speaks {
                let why = format!(
                    "a valid request over HTTP/2 for {path} did not reach our backend ({}): give a path that the \
                     proxy forwards (--allowed)",
                    control.answer
                );
                return Ok(Err(downgrade::checks::none(Verdict::Undecided, &why)));
            }
            let why = "the proxy does not speak HTTP/2 on this port (name one that does with --h2-proxy)";
            return Ok(Err(downgrade::checks::none(Verdict::Unsupported, why)));
        }
    }

    fn send_case(&mut self, case: &DowngradeCase, path: &str, name: &str) -> Result<Sent> {
        self.prober.take_request()?;
        let scheme = if self.protocol.is_tls() { "https" } else { "http" };
        let mut line = RawConnection::dial(self.prober, self.protocol)?;
        line.transcript.reads_frames();
        let authority = self.prober.host.authority.clone();
        let mut exchange = DowngradeExchange::new(
            case,
            &case::DowngradeTarget { scheme, authority: &authority, path },
            name,
        );
        let until = self.prober.soon();
        while !exchange.is_over() && self.prober.now() < until {
            self.prober.check_stop()?;
            let bytes = exchange.transmit();
            if !bytes.is_empty() {
                line.send(&bytes, until, self.prober)?;
            }
            match line.listen(until, self.prober)? {
                ReadOutcome::Bytes => {
                    let bytes = std::mem::take(&mut line.incoming);
                    exchange.receive(self.prober.now(), &bytes);
                }
                ReadOutcome::Eof | ReadOutcome::Broken => exchange.end(),
                ReadOutcome::Silence => break,
            }
        }
        let judged = self
            .arrived(name, |backend| {
                downgrade::judge(case, exchange.answer(), Some(backend.backend_request()))
            })
            .unwrap_or_else(|| downgrade::judge(case, exchange.answer(), None));
        let (answer, speaks) = (exchange.answer().words(), exchange.answer().speaks);
        let is_trouble = exchange.answer().status.is_some_and(backend_request::is_gateway_trouble);
        let server = exchange.answer().server.clone();
        Ok(Sent { judged, answer, items: line.transcript.items(), speaks, is_trouble, server })
    }

    /// What the backend has recorded of the attempt called `name`.
    fn arrived<T>(&self, name: &str, look: impl Fn(&Backend) -> T) -> Option<T> {
        self.listener.wait(Instant::now() + SETTLE, |backends| {
            backends.iter().find(|backend| is_of(backend.backend_request(), name)).map(&look)
        })
    }

    /// Waits before a proxy is asked again; nothing that arrives ends it earlier.
    fn pause(&self) -> Result<()> {
        self.listener.wait(Instant::now() + AGAIN, |_| None::<()>);
        self.prober.check_stop()
    }

    /// What a proxy sends to our backend that is not HTTP/1.1 in clear.
    fn came_instead(&self) -> Option<&'static str> {
        self.listener.wait(Instant::now(), |backends| {
            backends.iter().find_map(|backend| foreign(backend.backend_request().bytes()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_http_1_1_at_the_backend_is_named() {
        assert!(foreign(b"PRI * HTTP/2.0\r\n").unwrap().contains("HTTP/2"));
        assert!(foreign(&[0x16, 3, 1, 2]).unwrap().contains("TLS"));
        assert_eq!(foreign(b"POST / HTTP/1.1\r\n"), None);
        assert_eq!(foreign(b""), None);
    }
}
