//! The plan executor: one child per visit, everything on disk after each.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use h2lab_core::record::{CellRecord, RunRecord};
use h2lab_core::scenario::{Cell, Target};
use h2lab_core::stats;

use super::child::{Ended, LAB, LOAD, Running, self_command};
use super::messages::{Failure, FailureKind, Progress};
use super::spec::{GeneratorSpec, LabSpec, TlsTrust};
use super::store::{self, RunFolder};
use crate::io::clock::Clock;

/// How often an invalid visit is tried again.
pub const MAX_ATTEMPTS: u32 = 3;

/// A live server, resolved.
#[derive(Debug, Clone)]
pub struct LiveServer {
    /// The URL as it stands in the plan.
    pub url: String,
    /// Its address.
    pub address: std::net::SocketAddr,
    /// Host, and port unless it is the scheme's own.
    pub authority: String,
    /// The name for SNI.
    pub server_name: String,
}

/// What a plan needs besides its cells.
#[derive(Debug)]
pub struct Setting<'a> {
    /// Live servers, for cells with [`Target::Url`].
    pub live: &'a [LiveServer],
    /// How TLS servers are believed.
    pub tls: TlsTrust,
    /// Requests after which a server that we start ends a connection.
    pub max_requests_per_connection: Option<u32>,
    /// Set by Ctrl-C.
    pub stop: &'a AtomicBool,
}

/// Is told how the run goes; the command line shows it.
pub trait Observer {
    /// A visit begins: number `k` of `n`.
    fn begins(&mut self, k: usize, n: usize, cell: &Cell, attempt: u32);
    /// The visit goes on.
    fn progress(&mut self, progress: &Progress);
    /// The visit ended; `doubts` says why it is invalid, if it is.
    fn ended(&mut self, record: &CellRecord, doubts: &[String]);
    /// The visit could not be made.
    fn failed(&mut self, cell: &Cell, failure: &Failure);
}

/// How a run ended.
#[derive(Debug)]
pub struct Executed {
    /// All that was measured; of visits tried again only the last try.
    pub run: RunRecord,
    /// Cells that could not be done with their server, and why.
    pub unsupported: Vec<(Cell, Failure)>,
    /// Where the run folder is.
    pub folder: PathBuf,
}

/// Makes the visits of `plan` in order. Fails if a child cannot do its work at all; a failed request never fails a run.
pub fn execute(
    mut run: RunRecord,
    plan: &[Cell],
    path: PathBuf,
    setting: &Setting<'_>,
    observer: &mut dyn Observer,
) -> Result<Executed> {
    let mut folder = RunFolder::create(&path, &run)?;
    let clock_origin_ns = Clock::start().origin_ns();
    let mut unsupported: Vec<(Cell, Failure)> = Vec::new();
    let mut failure = None;
    for (k, cell) in plan.iter().enumerate() {
        if unsupported.iter().any(|(other, _)| other.index == cell.index) {
            continue;
        }
        match visit(cell, (k, plan.len()), clock_origin_ns, &folder, setting, observer) {
            Ok(Some(record)) => {
                folder.add(&record)?;
                run.visits.push(record);
            }
            Ok(None) => {
                run.interrupted = true;
                break;
            }
            Err(error) => match error.downcast::<Failure>() {
                Ok(reason) if reason.kind == FailureKind::Unsupported => {
                    observer.failed(cell, &reason);
                    unsupported.push((cell.clone(), reason));
                }
                Ok(reason) => {
                    failure = Some(anyhow::Error::new(reason));
                    break;
                }
                Err(other) => {
                    failure = Some(other);
                    break;
                }
            },
        }
    }
    folder.finish(run.interrupted || failure.is_some())?;
    match failure {
        // Nothing was measured: the folder, which was empty before, would only be litter. The error matters more than
        // one in tidying up.
        Some(error) if run.visits.is_empty() => {
            let _ = store::discard(&path);
            Err(error)
        }
        Some(error) => Err(error.context(format!("what was measured before is kept in {}", path.display()))),
        None => Ok(Executed { run, unsupported, folder: path }),
    }
}

/// One visit, tried again while its measurement is invalid. `None` if stopped.
fn visit(
    cell: &Cell,
    (k, n): (usize, usize),
    clock_origin_ns: u64,
    folder: &RunFolder,
    setting: &Setting<'_>,
    observer: &mut dyn Observer,
) -> Result<Option<CellRecord>> {
    let mut attempt = 0;
    loop {
        observer.begins(k, n, cell, attempt);
        let mut child = start(cell, clock_origin_ns, folder, setting)?;
        let incoming = match child.receive(setting.stop, &mut |progress| observer.progress(progress))? {
            Ended::Done(incoming) => incoming,
            Ended::Stopped => return Ok(None),
        };
        child.finish()?;
        let record = incoming.finish(cell.clone(), attempt)?;
        let doubts = stats::invalid_reasons(&record);
        observer.ended(&record, &doubts);
        attempt += 1;
        if doubts.is_empty() || attempt == MAX_ATTEMPTS || setting.stop.load(Ordering::Relaxed) {
            return Ok(Some(record));
        }
    }
}

/// Starts the child that makes the visit: a lab, or the generator alone over a real network.
fn start(cell: &Cell, clock_origin_ns: u64, folder: &RunFolder, setting: &Setting<'_>) -> Result<Running> {
    match &cell.target {
        Target::Url { url } => {
            let server = setting
                .live
                .iter()
                .find(|server| server.url == *url)
                .context("a URL that was not resolved")?;
            let spec = GeneratorSpec {
                cell: cell.clone(),
                address: server.address,
                authority: server.authority.clone(),
                server_name: server.server_name.clone(),
                tls: setting.tls.clone(),
                clock_origin_ns,
                cpu: None,
            };
            Running::start(self_command(LOAD), &spec)
        }
        Target::Origin | Target::Sut { .. } => {
            let logs = folder.path().join("logs");
            std::fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
            let spec = LabSpec::Visit {
                cell: Box::new(cell.clone()),
                clock_origin_ns,
                logs: std::path::absolute(&logs)?,
                max_requests_per_connection: setting.max_requests_per_connection,
            };
            Running::start(self_command(LAB), &spec)
        }
    }
}
