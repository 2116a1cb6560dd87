//! Does the load in this process, keeps it and tells it.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use h2lab_core::record::{CellRecord, Environment, RunRecord, SCHEMA_VERSION};
use h2lab_core::units::{Time, format_duration};
use h2lab_core::workload::Arrival;

use super::super::live::trust;
use super::super::output::{self, Concluded};
use super::super::{Exit, reach, signals};
use super::LoadArgs;
use super::live::{Show, View};
use super::plan::{self, Plan};
use super::requests::{self, Requests};
use crate::client::ConnectError;
use crate::io::clock::Clock;
use crate::io::tcp::Endpoint;
use crate::io::tls::{TlsError, TlsOptions};
use crate::load::{self, LoadError, LoadResult, LoadSpec};
use crate::run::folder;
use crate::run::messages::Failure;
use crate::run::store::RunFolder;
use crate::topology::sched::{self, Priority};

/// Runs the load from the flags to the exit code.
pub fn run(args: &LoadArgs, command_line: Vec<String>) -> Result<Exit> {
    let requests = requests::read(&args.urls, &args.request)?;
    let protocols = plan::protocols(&args.load, requests.url.is_tls())?;
    let plans = protocols
        .iter()
        .map(|&protocol| plan::plan(args, &requests, protocol))
        .collect::<Result<Vec<_>>>()?;
    args.output.check_names(std::slice::from_ref(&plans[0].cell))?;
    let tls = trust(&args.live)?.options();
    let endpoints = reach::endpoints(&requests.text, &requests.url, &args.live.resolve, &args.reach)?;
    let stop = signals::stop_flag()?;
    let started = SystemTime::now();
    let out =
        (!args.no_store).then(|| folder::choose(args.out.as_deref(), started, args.load.seed)).transpose()?;
    let loaded =
        Attempts { args, requests: &requests, tls: &tls, stop: &stop }.first_that_works(&plans, &endpoints);
    let Loaded { plan, record, interrupted } = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            // It is empty and would only be litter; the error matters more than one in tidying up.
            let _ = out.map(std::fs::remove_dir);
            return Err(error);
        }
    };
    let run = RunRecord {
        schema: SCHEMA_VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: humantime::format_rfc3339_seconds(started).to_string(),
        command: command_line,
        seed: args.load.seed,
        machine: folder::machine(),
        scenario: plan.scenario,
        visits: vec![record],
        interrupted,
    };
    let kept = out.as_deref().map_or(Ok(()), |path| keep(path, &run));
    let concluded = Concluded::new(&run, out.as_deref().filter(|_| kept.is_ok()));
    let kept = kept.and_then(|()| concluded.store());
    output::tell_load(&concluded, &args.output)?;
    kept?;
    if interrupted {
        return Ok(Exit::Interrupted);
    }
    output::judge_load(&concluded, &args.output)
}

/// Stores the run.
fn keep(path: &std::path::Path, run: &RunRecord) -> Result<()> {
    let mut folder = RunFolder::create(path, run)?;
    run.visits.iter().try_for_each(|visit| folder.add(visit))?;
    folder.finish(run.interrupted)
}

/// What came of a load.
struct Loaded {
    plan: Plan,
    record: CellRecord,
    interrupted: bool,
}

/// All that the attempts to load a server have in common.
struct Attempts<'a> {
    args: &'a LoadArgs,
    requests: &'a Requests,
    tls: &'a TlsOptions,
    stop: &'a AtomicBool,
}

impl Attempts<'_> {
    /// Tries the protocols of `plans` and the endpoints, in order, until one carries load. An attempt that fails has sent no
    /// request, so that nothing is sent that was not asked for.
    fn first_that_works(&self, plans: &[Plan], endpoints: &[Endpoint]) -> Result<Loaded> {
        let (mut protocol, mut place) = (0, 0);
        loop {
            let (plan, at) = (&plans[protocol], &endpoints[place]);
            let error = match self.load(plan, at) {
                Ok(loaded) => return Ok(loaded),
                Err(error) => error,
            };
            match &error {
                LoadError::Unreachable { why, .. } if is_not_spoken(why) && protocol + 1 < plans.len() => {
                    protocol += 1;
                    eprintln!("note: {}, so {} is used", why, plans[protocol].cell.protocol);
                }
                LoadError::Unreachable { why, .. } if is_not_there(why) && place + 1 < endpoints.len() => {
                    place += 1;
                    eprintln!("note: {at}: {why}; trying {}", endpoints[place]);
                }
                _ => return Err(Failure::from(error).into()),
            }
        }
    }

    /// Loads the server at `endpoint`.
    fn load(&self, plan: &Plan, endpoint: &Endpoint) -> Result<Loaded, LoadError> {
        let spec = LoadSpec {
            cell: plan.cell.clone(),
            address: endpoint.clone(),
            authority: self.requests.url.authority().to_owned(),
            server_name: self.requests.url.host().to_owned(),
            tls: self.tls.clone(),
            clock_origin_ns: Clock::start().origin_ns(),
            requests: plan.requests.map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
            threads: self.args.load.threads.unwrap_or_else(|| u32::try_from(folder::cpus()).unwrap_or(1)),
            record: self.args.load.record.0,
            tap: self.args.frames,
            stop: Some(self.stop),
        };
        let view = View::start(self.shown(), plan);
        // An open loop sleeps between requests, and another program's slice must not make it late.
        let priority = if matches!(plan.cell.work.arrival, Arrival::Closed { .. }) {
            Priority::Ordinary
        } else {
            sched::prefer()
        };
        let mut is_told = false;
        let finished = load::run(&spec, &mut |progress| {
            if !is_told {
                is_told = true;
                view.announce(&self.announcement(plan, endpoint));
            }
            view.show(progress);
        });
        drop(view);
        let result = finished?.close();
        let interrupted = result.interrupted;
        Ok(Loaded { record: record(plan, result, priority), plan: plan.clone(), interrupted })
    }

    /// How progress is shown.
    fn shown(&self) -> Show {
        match () {
            () if self.args.quiet => Show::Nothing,
            () if self.args.no_live => Show::Lines,
            () => Show::of_terminal(),
        }
    }

    /// What is done, in a line.
    fn announcement(&self, plan: &Plan, endpoint: &Endpoint) -> String {
        format!("{} at {endpoint}: {}", self.requests.text, sentence(plan))
    }
}

/// `h2c, 4 connections, closed loop of 400 requests: GET for 10s`.
fn sentence(plan: &Plan) -> String {
    let (cell, work) = (&plan.cell, &plan.cell.work);
    let plural = |n: u32, noun: &str| format!("{n} {noun}{}", if n == 1 { "" } else { "s" });
    let connections = plural(cell.connections, "connection");
    let arrival = match work.arrival {
        Arrival::Closed { concurrency } => format!("closed loop of {}", plural(concurrency, "request")),
        Arrival::Constant { rate } => format!("{rate} requests/s"),
        Arrival::Poisson { rate } => format!("{rate} requests/s (Poisson)"),
        Arrival::Ramp { from, to, over, .. } => {
            format!("{from} to {to} requests/s over {}", format_duration(over))
        }
    };
    let what = match work.mix.len() {
        0 => format!("{} {}", work.method, work.path),
        n => format!("{n} kinds of requests"),
    };
    let measure = format_duration(work.phases.measure);
    let end = match plan.requests {
        Some(n) if work.phases.measure >= plan::ENDLESS => format!("{n} requests"),
        Some(n) => format!("{n} requests, {measure} at most"),
        None => format!("for {measure}"),
    };
    let warmup = work.phases.warmup;
    let warmup = if warmup.is_zero() {
        String::new()
    } else {
        format!(" after {} of warm-up", format_duration(warmup))
    };
    format!("{}, {connections}, {arrival}; {what}, {end}{warmup}", cell.protocol)
}

/// Whether a server speaks TLS but not the protocol that was offered to it.
fn is_not_spoken(why: &ConnectError) -> bool {
    let ConnectError::Tls(error) = why else { return false };
    matches!(error, TlsError::Alpn { .. }) || *error == TlsError::Alert("NoApplicationProtocol".to_owned())
}

/// Whether nothing answers at an address, so that another one of the same name is worth trying.
const fn is_not_there(why: &ConnectError) -> bool {
    matches!(why, ConnectError::Refused | ConnectError::Timeout | ConnectError::Io(_))
}

/// The record of a load, as if it had been planned to last as long as it did: -n and Ctrl-C end it before its time.
fn record(plan: &Plan, result: LoadResult, priority: Priority) -> CellRecord {
    let mut cell = plan.cell.clone();
    let is_complete = plan.requests.is_some_and(|n| due(&result) >= n);
    if is_complete || result.interrupted {
        let until = end_of(&cell.work.arrival, &result);
        let phases = &mut cell.work.phases;
        phases.measure = until.since(result.started_at + phases.warmup).min(phases.measure);
    }
    CellRecord {
        cell,
        attempt: 0,
        started_at: result.started_at,
        samples: result.samples,
        tallies: result.tallies,
        connections: result.connections,
        frames: result.frames,
        tcp: result.tcp,
        packets: Vec::new(),
        link: None,
        generator: result.generator,
        server: None,
        environment: Environment {
            placement: vec![("generator priority".to_owned(), priority.name().to_owned())],
            ..Environment::default()
        },
        warnings: result.warnings,
        unsupported: None,
    }
}

/// Requests that were due.
fn due(result: &LoadResult) -> u64 {
    match result.tallies.as_slice() {
        [] => result.samples.len() as u64,
        tallies => tallies.iter().map(|tally| tally.counts.requests).sum(),
    }
}

/// When a load was over that ended before its time: a closed loop with its last answer, an open one when the next request
/// would have been due, if the last one was kept.
fn end_of(arrival: &Arrival, result: &LoadResult) -> Time {
    let end = result.started_at + Duration::from_nanos(result.generator.wall_ns);
    match (arrival.rate(), result.samples.last()) {
        (Some(rate), Some(last)) if result.tallies.is_empty() => {
            last.scheduled_at + Duration::from_secs_f64(1.0 / rate)
        }
        _ => end,
    }
}
