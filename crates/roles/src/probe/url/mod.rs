//! `h2lab probe URL`: all checks of a server.

mod extensions;
mod limits;
mod ports;
mod readiness;
mod resistance;
mod speaks;

use std::time::Duration;

use h2lab_model::probe::server::Answer;
use h2lab_model::probe::{Check, CheckMeta, Limits, ProbeReport, Subject, Verdict, checklist};
use h2lab_model::workload::Protocol;

use super::dial::reach;
use super::{ProbeError, Prober};
use crate::client::url::Url;

/// What is known of the server so far.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) checks: Vec<Check>,
    limits: Limits,
    warnings: Vec<String>,
    /// Its `server` field.
    software: Option<String>,
    /// What its `alt-svc` field announces.
    alt_svc: Option<String>,
    /// HTTP/1.1, if it speaks that, and its answer.
    h1: Option<Protocol>,
    h1_answer: Option<Answer>,
    /// HTTP/2, if it speaks that at once, and its answer.
    h2: Option<Protocol>,
    h2_answer: Option<Answer>,
    /// Whether it switches to h2c by an upgrade.
    upgrades: bool,
    /// What became of a POST that expects 100-continue.
    expected: Vec<(Protocol, Answer)>,
    h3: bool,
    /// The response of the path is so large that it is requested in full only once.
    is_large: bool,
}

/// A response above this is large, in bytes of its body.
const LARGE: u64 = 1 << 20;
/// What is read of a large response once that is known.
const READ_OF_LARGE: u64 = 128 << 10;

impl Found {
    fn add(&mut self, check: Check) {
        self.checks.push(check);
    }

    /// Notes how large the response of the path is: a large one is not fetched again and again.
    fn weigh(&mut self, prober: &mut Prober, answer: &Answer) {
        let announced = answer.field("content-length").and_then(|length| length.parse().ok());
        if announced.unwrap_or(0).max(answer.body_bytes) > LARGE {
            self.is_large = true;
            prober.most_read = READ_OF_LARGE;
        }
    }

    /// The names of what it speaks.
    fn spoken(&self) -> Vec<String> {
        let protocols = [self.h1, self.h2].into_iter().flatten().map(|protocol| protocol.to_string());
        let more = [(self.upgrades, "h2c by upgrade"), (self.h3, "h3 (UDP)")];
        protocols.chain(more.into_iter().filter(|(is, _)| *is).map(|(_, name)| name.to_owned())).collect()
    }

    /// The method of requests where only the number matters.
    const fn method(&self) -> &'static str {
        if self.is_large { "HEAD" } else { "GET" }
    }
}

/// What to check of a server beyond its protocols.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// Other ports of the host, to be checked for their protocols.
    pub ports: Vec<u16>,
    /// How long idle connections are watched at most.
    pub idle: Duration,
    /// Whether attacks are made.
    pub resistance: bool,
    /// The server's process, if its memory is to be watched during attacks.
    pub pid: Option<u32>,
}

/// Probes the server of `url`, as `prober` reaches it. `notify` is called with the current step. That it cannot be reached at
/// all, or something wrong on our side, is an error. What an interruption or the end of the budget cuts off is in a warning.
pub fn run(
    prober: &mut Prober,
    url: &Url,
    wishes: &Wishes,
    notify: &mut dyn FnMut(&str),
) -> Result<ProbeReport, ProbeError> {
    reach(prober)?;
    let mut found = Found::default();
    match look(prober, url, wishes, &mut found, notify) {
        Ok(()) => {}
        Err(ProbeError::Interrupted) if !found.checks.is_empty() => {
            found.warnings.push("interrupted: only what was checked by then is told".to_owned());
        }
        Err(ProbeError::Exhausted(why)) => {
            found.warnings.push(format!("only what was checked by then is told: {why}"));
        }
        Err(error) => return Err(error),
    }
    Ok(report(prober, url, found))
}

fn look(
    prober: &mut Prober,
    url: &Url,
    wishes: &Wishes,
    found: &mut Found,
    notify: &mut dyn FnMut(&str),
) -> Result<(), ProbeError> {
    notify("what it speaks");
    speaks::look(prober, url, found)?;
    if !wishes.ports.is_empty() {
        notify("what its other ports speak");
        ports::look(prober, &wishes.ports, found)?;
    }
    extensions::look(prober, found)?;
    notify("whether HTTP/1.1 and HTTP/2 answer alike");
    readiness::look(prober, found)?;
    // Attacks come last: they may leave a server in a state in which nothing else can be measured.
    limits::look(prober, wishes.idle, found, notify)?;
    if let (true, Some(protocol)) = (wishes.resistance, found.h2) {
        resistance::look(prober, protocol, wishes, found, notify)?;
    }
    Ok(())
}

fn report(prober: &Prober, url: &Url, found: Found) -> ProbeReport {
    let software = found.software;
    let mut checks: Vec<Check> =
        found.checks.into_iter().map(|check| check.for_product(software.as_deref())).collect();
    checks.sort_by_key(|check| (h2lab_model::probe::Group::of(&check.id), check.id.clone()));
    let checklist = checklist(&checks);
    ProbeReport {
        target: url.to_string(),
        subject: Subject::Server,
        software,
        checks,
        limits: found.limits,
        checklist,
        attempts: Vec::new(),
        spent: prober.budget().spent(prober.now()),
        warnings: found.warnings,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// The check, or why it could not be made; what must end the whole probe is passed on as an error.
fn decided(meta: &CheckMeta, check: Result<Check, ProbeError>) -> Result<Check, ProbeError> {
    match check {
        Ok(check) => Ok(check),
        Err(error) if error.ends_it() => Err(error),
        Err(error) => Ok(Check::new(meta, Verdict::Undecided, error.to_string())),
    }
}
