//! `h2lab probe URL`: all that is asked of a server.

mod speaks;

use h2lab_core::probe::{Check, CheckMeta, ProbeReport, Subject, Verdict};

use super::{ProbeError, Prober};
use crate::client::url::Url;

/// Probes the server of `url`, as `prober` meets it. `tell` hears what is being done. Only an interruption, or something wrong
/// on our side, is an error.
pub fn run(prober: &mut Prober, url: &Url, tell: &mut dyn FnMut(&str)) -> Result<ProbeReport, ProbeError> {
    tell("what it speaks");
    let spoken = speaks::look(prober, url)?;
    Ok(ProbeReport {
        target: url.to_string(),
        subject: Subject::Server,
        software: spoken.software,
        checks: spoken.checks,
        limits: Default::default(),
        checklist: Vec::new(),
        spent: prober.budget().spent(prober.now()),
        warnings: Vec::new(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// The check, or why it could not be made; an interruption goes on as an error.
fn decided(meta: &CheckMeta, check: Result<Check, ProbeError>) -> Result<Check, ProbeError> {
    match check {
        Ok(check) => Ok(check),
        Err(error @ (ProbeError::Connect(_) | ProbeError::Exhausted(_))) => {
            Ok(Check::new(meta, Verdict::Undecided, error.to_string()))
        }
        Err(error) => Err(error),
    }
}
