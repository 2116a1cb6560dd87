//! `h2lab probe URL`: all that is asked of a server.

mod extensions;
mod limits;
mod readiness;
mod resistance;
mod speaks;

use std::time::Duration;

use h2lab_core::probe::{Check, CheckMeta, Limits, ProbeReport, Subject, Verdict, checklist};
use h2lab_core::workload::Protocol;

use super::ask::Answer;
use super::{ProbeError, Prober};
use crate::client::url::Url;

/// What is known of the server so far.
#[derive(Debug, Default)]
struct Found {
    checks: Vec<Check>,
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
    /// What became of a POST that expects 100-continue: interim statuses and the final one.
    expected: Vec<(Protocol, Vec<u16>, u16)>,
    h3: bool,
    h3_answer: Option<Answer>,
}

impl Found {
    fn add(&mut self, check: Check) {
        self.checks.push(check);
    }
}

/// What is asked of a server beyond what it speaks.
#[derive(Debug, Clone, Copy)]
pub struct Wishes {
    /// How long idle connections are watched at most.
    pub idle: Duration,
    /// Whether attacks are made.
    pub resistance: bool,
}

/// Probes the server of `url`, as `prober` meets it. `tell` hears what is being done. That it cannot be reached at all, an
/// interruption, or something wrong on our side is an error.
pub fn run(
    prober: &mut Prober,
    url: &Url,
    wishes: Wishes,
    tell: &mut dyn FnMut(&str),
) -> Result<ProbeReport, ProbeError> {
    drop(super::Line::dial(prober, Protocol::H1)?); // nobody there is told at once, and not once for each protocol
    let mut found = Found::default();
    tell("what it speaks");
    speaks::look(prober, url, &mut found)?;
    extensions::look(prober, &mut found)?;
    tell("whether HTTP/1.1 and HTTP/2 answer alike");
    readiness::look(prober, &mut found)?;
    if let (true, Some(protocol)) = (wishes.resistance, found.h2) {
        resistance::look(prober, protocol, wishes.idle, &mut found, tell)?;
    }
    limits::look(prober, wishes.idle, &mut found, tell)?;
    Ok(report(prober, url, found))
}

fn report(prober: &Prober, url: &Url, found: Found) -> ProbeReport {
    let software = found.software;
    let mut checks: Vec<Check> =
        found.checks.into_iter().map(|check| check.for_product(software.as_deref())).collect();
    checks.sort_by_key(|check| (h2lab_core::probe::Group::of(&check.id), check.id.clone()));
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

/// The check, or why it could not be made; what must end the whole probe goes on as an error.
fn decided(meta: &CheckMeta, check: Result<Check, ProbeError>) -> Result<Check, ProbeError> {
    match check {
        Ok(check) => Ok(check),
        Err(error @ (ProbeError::Connect(_) | ProbeError::Exhausted(_))) => {
            Ok(Check::new(meta, Verdict::Undecided, error.to_string()))
        }
        Err(error) => Err(error),
    }
}
