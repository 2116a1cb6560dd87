//! `h2lab probe URL`: all checks of a server.

mod extensions;
mod limits;
mod ports;
mod readiness;
mod resistance;
mod results;
mod speaks;

use h2lab_model::probe::{Check, ProbeReport, Subject, checklist};
use h2lab_model::workload::Protocol;

use super::dial::reach;
use super::{ProbeError, Prober, Result};
use crate::client::url::Url;
pub use results::CheckOptions;
pub(super) use results::UrlResults;

/// Probes the server of `url`, as `prober` reaches it. `notify` is called with the current step. Fails if the server
/// cannot be reached at all, or if something is wrong on our side. What an interruption or the end of the budget cuts
/// off is in a warning.
pub fn run(
    prober: &mut Prober,
    url: &Url,
    options: &CheckOptions,
    notify: &mut dyn FnMut(&str),
) -> Result<ProbeReport> {
    if prober.host.protocols != [Protocol::H3] {
        reach(prober)?;
    }
    let mut found = UrlResults::default();
    if !prober.host.protocols.is_empty() {
        let names: Vec<String> = prober.host.protocols.iter().map(Protocol::to_string).collect();
        let asked = names.join(", ");
        found
            .warnings
            .push(format!("only {asked} was requested: checks that need another protocol were skipped"));
    }
    match look(prober, url, options, &mut found, notify) {
        Ok(()) => {}
        Err(ProbeError::Interrupted) if !found.checks.is_empty() => {
            found.warnings.push("interrupted: only what was checked by then is reported".to_owned());
        }
        Err(ProbeError::Exhausted(why)) => {
            found.warnings.push(format!("only what was checked by then is reported: {why}"));
        }
        Err(error) => return Err(error),
    }
    Ok(report(prober, url, found))
}

fn look(
    prober: &mut Prober,
    url: &Url,
    options: &CheckOptions,
    found: &mut UrlResults,
    notify: &mut dyn FnMut(&str),
) -> Result<()> {
    notify("protocols");
    speaks::look(prober, url, found)?;
    if !options.ports.is_empty() {
        notify("protocols of its other ports");
        ports::look(prober, &options.ports, found)?;
    }
    extensions::look(prober, found)?;
    let both = if url.is_tls() { [Protocol::H1s, Protocol::H2] } else { [Protocol::H1, Protocol::H2c] };
    if both.into_iter().all(|protocol| prober.host.asks(protocol)) {
        notify("whether HTTP/1.1 and HTTP/2 give the same responses");
        readiness::look(prober, found)?;
    }
    // Attacks come last: they may leave a server in a state in which nothing else can be measured.
    limits::look(prober, options.idle, found, notify)?;
    if let (true, Some(protocol)) = (options.resistance, found.h2) {
        resistance::look(prober, protocol, options, found, notify)?;
    }
    Ok(())
}

fn report(prober: &Prober, url: &Url, found: UrlResults) -> ProbeReport {
    let software = found.software;
    let mut checks: Vec<Check> =
        found.checks.into_iter().map(|check| check.for_product(software.as_deref())).collect();
    checks.sort_by_key(|check| (h2lab_model::probe::Group::of(&check.id), check.id.clone()));
    let checklist = checklist(&checks);
    ProbeReport {
        target: prober.host.hidden.hide_in_url(&url.to_string()).into_owned(),
        subject: Subject::Server,
        software,
        checks,
        limits: found.limits,
        checklist,
        attempts: Vec::new(),
        spent: prober.budget.spent(prober.now()),
        warnings: found.warnings,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}
