//! Runs the load in this process, keeps the record and reports it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use h2lab_analysis::stats::{doubt_of_status, requests_due};
use h2lab_base::counts::plural;
use h2lab_base::units::{Time, format_duration};
use h2lab_model::record::{CellRecord, Environment, RunRecord, SCHEMA_VERSION, Sample};
use h2lab_model::workload::{Arrival, Share};

use super::super::exit::{MissingRequirement, Usage};
use super::super::output::{self, Concluded};
use super::super::{Exit, foreign, needs, note, policy, rights, signals};
use super::LoadArgs;
use super::dump::{self, Dump, Undumped};
use super::exporter::Exporter;
use super::plan::{self, LoadPlan};
use super::requests::{self, Requests};
use super::view::{LoadView, Show};
use crate::run::folder;
use crate::run::messages::Failure;
use crate::run::store::{self, RunFolder};
use h2lab_lab::topology::sched;
use h2lab_lab::topology::sched::SchedulingPolicy;
use h2lab_net::clock::Clock;
use h2lab_net::privileges::{self, CapabilitySet};
use h2lab_net::resources;
use h2lab_net::tcp::Endpoint;
use h2lab_net::tls::TlsOptions;
use h2lab_report::per_second;
use h2lab_roles::client::reach::tls_options;
use h2lab_roles::load;
use h2lab_roles::load::{LoadError, LoadResult, LoadSpec, SampleListener};

/// Runs the load from the flags to the exit code.
pub fn run(args: &LoadArgs, command_line: Vec<String>) -> Result<Exit> {
    args.reach.check(&args.client.protocol)?;
    let requests = requests::read(&args.urls, args.urls_file.as_deref(), args.client.request.template)?;
    let protocols = plan::protocols(args, requests.url.is_tls())?;
    let plans = protocols
        .iter()
        .map(|&protocol| plan::plan(args, &requests, protocol))
        .collect::<Result<Vec<_>>>()?;
    // Figures may be shown on a port below 1024.
    let port = args.prometheus.map_or(privileges::NONE, |_| CapabilitySet::NET_BIND_SERVICE);
    rights::reduce(args.load.socket.rights() | port)?;
    check_open_files(resources::raise_open_files(), plans.iter().map(|plan| plan.cell.max_connections))?;
    args.output.check_names(std::slice::from_ref(&plans[0].cell))?;
    let tls = tls_options(&args.reach.tls.trust()?);
    let endpoints = args.reach.endpoints(&requests.text, &requests.url)?;
    check_congestion(args, &plans, &endpoints)?;
    let doubt = args.load.threads.and_then(|threads| foreign::doubtful_threads(threads, folder::cpus()));
    if let Some(doubt) = doubt.filter(|_| !args.quiet) {
        note(&doubt);
    }
    let stop = signals::stop_flag()?;
    let beside = Beside::start(args)?;
    let begun = Begun::now(args, command_line)?;
    let loaded = Attempts { args, requests: &requests, tls: &tls, stop: &stop, beside: &beside }
        .first_that_works(&plans, &endpoints);
    let undumped = beside.finish();
    let mut loaded = begun.unless_failed(loaded)?;
    let aside = args.dump.as_deref().is_some_and(dump::is_stdout);
    let dumped = match undumped {
        None => Ok(()),
        Some(Undumped { words, error }) => {
            loaded.record.warnings.push(words);
            let written = error.map_or(Ok(()), Err);
            if aside {
                output::printed(written).map_err(Into::into)
            } else {
                written.context("--dump: not every request could be written")
            }
        }
    };
    begun.conclude(args, loaded, dumped)
}

/// A load that has begun.
pub(super) struct Begun {
    command_line: Vec<String>,
    started: SystemTime,
    /// The run folder, if it is to be kept.
    out: Option<PathBuf>,
}

impl Begun {
    /// Begins now: the run folder is there from now on.
    pub fn now(args: &LoadArgs, command_line: Vec<String>) -> Result<Self> {
        let started = SystemTime::now();
        let choose = || folder::choose(args.out.as_deref(), started, args.load.seed);
        let out = (!args.no_store).then(choose).transpose()?;
        if let Some(out) = &out {
            signals::remove_if_empty(out);
        }
        Ok(Self { command_line, started, out })
    }

    /// What came of it; without a result its run folder is removed.
    pub fn unless_failed<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            // It is empty and would only be litter; the error matters more than one in tidying up.
            let _ = self.out.as_ref().map(std::fs::remove_dir);
        }
        result
    }

    /// Keeps what was measured, reports it and judges it. `dumped` is what came of `--dump`.
    pub fn conclude(mut self, args: &LoadArgs, loaded: Loaded, dumped: Result<()>) -> Result<Exit> {
        let Loaded { plan, record, interrupted } = loaded;
        if record.cell.work.phases.measure.is_zero()
            && let Some(out) = self.out.take()
        {
            // It is empty: nothing was stored yet.
            let _ = std::fs::remove_dir(out);
            note(&"nothing was measured, and no run folder is kept");
        }
        let run = RunRecord {
            schema: SCHEMA_VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: humantime::format_rfc3339_seconds(self.started).to_string(),
            command: self.command_line,
            seed: args.load.seed,
            machine: folder::machine(),
            scenario: plan.scenario,
            repetitions: vec![record],
            interrupted,
            failure: None,
            resumed: Vec::new(),
        };
        let run = run.without_secrets();
        let kept = self.out.as_deref().map_or(Ok(()), |path| keep(path, &run));
        let concluded = Concluded::new(&run, self.out.as_deref().filter(|_| kept.is_ok()));
        let kept = kept.and_then(|()| concluded.store());
        let aside = args.dump.as_deref().is_some_and(dump::is_stdout);
        output::write_load(&concluded, &args.output, aside)?;
        kept.and(dumped)?;
        if interrupted {
            return Ok(Exit::Interrupted);
        }
        output::judge(std::slice::from_ref(&concluded), &args.output)
    }
}

/// Refuses more connections than files may be open: dials would fail in the middle of the run, one by one.
fn check_open_files(limit: u64, connections: impl Iterator<Item = u32>) -> Result<(), MissingRequirement> {
    /// Files for all else: threads' own, the run folder, reports.
    const OTHERS: u64 = 64;
    let needed = connections.max().map_or(0, u64::from) + OTHERS;
    if needed > limit {
        return Err(MissingRequirement(format!(
            "{} connections need {needed} open files, and this process may have {limit}: raise its hard limit \
             (`ulimit -Hn {needed}` as root, `LimitNOFILE=` of a service, nofile in limits.conf), or lower -c",
            needed - OTHERS
        )));
    }
    Ok(())
}

/// Refuses congestion control that the sockets of TCP could not have; QUIC's is refused with the scenario.
fn check_congestion(args: &LoadArgs, plans: &[LoadPlan], endpoints: &[Endpoint]) -> Result<()> {
    let Some(name) = args.load.socket.congestion.as_deref() else { return Ok(()) };
    if endpoints.iter().any(|endpoint| matches!(endpoint, Endpoint::Unix(_))) {
        return Err(Usage("--congestion: a Unix socket has no congestion control".to_owned()).into());
    }
    if plans.iter().all(|plan| plan.cell.protocol.is_quic()) {
        return Ok(());
    }
    Ok(policy::check_congestion(name)?)
}

/// Stores the run. If that fails nothing is left of it: a load is one repetition.
fn keep(path: &std::path::Path, run: &RunRecord) -> Result<()> {
    let kept = RunFolder::create(path, run).and_then(|mut folder| {
        run.repetitions.iter().try_for_each(|repetition| folder.stage(repetition))?;
        folder.finish(run.interrupted)
    });
    if kept.is_err() {
        // The first error counts.
        let _ = store::discard(path);
    }
    kept.with_context(|| format!("the run cannot be kept in {}", path.display()))
}

/// What came of a load.
pub(super) struct Loaded {
    /// As it was planned.
    pub plan: LoadPlan,
    /// What was measured.
    pub record: CellRecord,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
}

/// What progress is reported to while the load runs, beside the live view.
#[derive(Debug)]
struct Beside {
    dump: Option<Dump>,
    exporter: Option<Exporter>,
    listener: Option<Arc<dyn SampleListener>>,
}

impl Beside {
    fn start(args: &LoadArgs) -> Result<Self> {
        let threads = threads(args);
        let dump = args.dump.as_deref().map(Dump::create).transpose()?;
        let exporter = args.prometheus.map(|at| Exporter::start(at, threads)).transpose()?;
        let listeners: Vec<Arc<dyn SampleListener>> = dump
            .iter()
            .map(|dump| dump.listener() as Arc<dyn SampleListener>)
            .chain(exporter.iter().map(|exporter| exporter.metrics() as Arc<dyn SampleListener>))
            .chain([Arc::new(FirstResponse::default()) as Arc<dyn SampleListener>])
            .collect();
        let listener = (!listeners.is_empty()).then(|| Arc::new(All(listeners)) as Arc<dyn SampleListener>);
        Ok(Self { dump, exporter, listener })
    }

    /// Ends what was begun; what the dump does not hold.
    fn finish(self) -> Option<Undumped> {
        drop((self.listener, self.exporter));
        self.dump.and_then(Dump::finish)
    }
}

/// Tells at once that the first response is no success: a mistyped path would otherwise be measured to the end without a word.
#[derive(Debug, Default)]
struct FirstResponse {
    is_known: AtomicBool,
    /// What tells it: a terminal that takes nothing must not stop the load.
    telling: OnceLock<JoinHandle<()>>,
}

impl Drop for FirstResponse {
    fn drop(&mut self) {
        if let Some(telling) = self.telling.take() {
            // One that panicked has shown it.
            let _ = telling.join();
        }
    }
}

impl SampleListener for FirstResponse {
    fn ended(&self, _: u32, sample: &Sample) {
        if !sample.outcome.is_complete() || self.is_known.load(Ordering::Relaxed) {
            return;
        }
        if let Some(doubt) = doubt_of_status(sample.status)
            && !self.is_known.swap(true, Ordering::Relaxed)
        {
            let tell = move || note(&format_args!("the first response is {doubt}"));
            let telling = std::thread::Builder::new().name("note".to_owned()).spawn(tell);
            // Without a thread it is told in the report alone.
            let _ = telling.map(|telling| self.telling.set(telling));
        }
        self.is_known.store(true, Ordering::Relaxed);
    }
}

/// Notifies several listeners.
#[derive(Debug)]
struct All(Vec<Arc<dyn SampleListener>>);

impl SampleListener for All {
    fn ended(&self, thread: u32, sample: &Sample) {
        self.0.iter().for_each(|listener| listener.ended(thread, sample));
    }
}

/// Threads asked for; the load may have fewer.
fn threads(args: &LoadArgs) -> u32 {
    let is_open = args.load.rate.is_some() || args.load.ramp.is_some();
    args.load.threads.unwrap_or_else(|| usual_threads(folder::cpus(), is_open))
}

/// A thread per CPU. Threads of an open loop run before others, so that requests go out in time: they leave a CPU to what else runs
/// here, which may be the server.
pub(super) fn usual_threads(cpus: usize, is_open: bool) -> u32 {
    let cpus = u32::try_from(cpus).unwrap_or(1).max(1);
    if is_open { (cpus - 1).max(1) } else { cpus }
}

/// All that the attempts to load a server have in common.
struct Attempts<'a> {
    args: &'a LoadArgs,
    requests: &'a Requests,
    tls: &'a TlsOptions,
    stop: &'a AtomicBool,
    beside: &'a Beside,
}

impl Attempts<'_> {
    /// Tries the protocols of `plans` and the endpoints, in order, until one carries load. An attempt that fails has sent no
    /// request, so that nothing is sent that was not asked for.
    fn first_that_works(&self, plans: &[LoadPlan], endpoints: &[Endpoint]) -> Result<Loaded> {
        let (mut protocol, mut place) = (0, 0);
        loop {
            let (plan, at) = (&plans[protocol], &endpoints[place]);
            let error = match self.load(plan, at) {
                Ok(loaded) => return Ok(loaded),
                Err(error) => error,
            };
            match &error {
                LoadError::Unreachable { why, .. } if why.is_not_spoken() && protocol + 1 < plans.len() => {
                    protocol += 1;
                    let next = plans[protocol].cell.protocol;
                    note(&format_args!("{why}, so {next} is used"));
                    if let Some(told) = needs::without_effect(&self.args.client, next) {
                        note(&told);
                    }
                }
                LoadError::Unreachable { why, .. } if why.is_not_there() && place + 1 < endpoints.len() => {
                    place += 1;
                    note(&format_args!("{at}: {why}; trying {}", endpoints[place]));
                }
                _ => return Err(Failure::from(error).into()),
            }
        }
    }

    /// Loads the server at `endpoint`.
    fn load(&self, plan: &LoadPlan, endpoint: &Endpoint) -> Result<Loaded, LoadError> {
        // An open loop sleeps between requests, and another program's slice must not make it late.
        let is_open = !matches!(plan.cell.work.arrival, Arrival::Closed { .. });
        let spec = LoadSpec {
            cell: plan.cell.clone(),
            address: endpoint.clone(),
            authority: self.requests.url.authority().to_owned(),
            server_name: self.requests.url.host().to_owned(),
            tls: self.tls.clone(),
            clock_origin_ns: Clock::start().origin_ns(),
            requests: plan.requests.map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
            threads: threads(self.args),
            record: self.args.load.record.0,
            tap: self.args.frames,
            on_thread: is_open.then_some(|| {
                // Its lateness says whether it worked.
                let _ = (sched::prefer(), sched::sharpen_timers());
            }),
            sharp: true,
            share: Share::default(),
            start: None,
            stop: Some(self.stop),
        };
        let view = LoadView::start(shown(self.args), plan);
        let priority = if is_open { sched::prefer() } else { SchedulingPolicy::Ordinary };
        if is_open {
            let _ = sched::sharpen_timers();
        }
        let mut is_reported = false;
        let finished = load::run_observed(&spec, self.beside.listener.as_ref(), &mut |progress| {
            if let Some(exporter) = &self.beside.exporter {
                exporter.metrics().show(progress);
            }
            if !is_reported {
                is_reported = true;
                view.announce(&self.announcement(plan, endpoint));
            }
            view.show(progress);
        });
        drop(view);
        let result = finished?.close();
        resources::give_back_freed_memory();
        let interrupted = result.interrupted;
        Ok(Loaded { record: record(plan, result, priority), plan: plan.clone(), interrupted })
    }

    /// What is done, in a line.
    fn announcement(&self, plan: &LoadPlan, endpoint: &Endpoint) -> String {
        let text = plan.cell.work.url_as_shown(&self.requests.text);
        format!("{text} at {endpoint}: {}", sentence(plan))
    }
}

/// How progress is shown.
pub(super) fn shown(args: &LoadArgs) -> Show {
    match () {
        () if args.quiet => Show::Nothing,
        () if args.no_live => Show::Lines,
        () => Show::of_terminal(),
    }
}

/// `h2c, 4 connections, closed loop of 400 requests: GET for 10s`.
pub(super) fn sentence(plan: &LoadPlan) -> String {
    let (cell, work) = (&plan.cell, &plan.cell.work);
    let connections = plural(cell.connections.into(), "connection");
    let arrival = match work.arrival {
        Arrival::Closed { concurrency } => {
            let at_once = u64::from(concurrency).min(plan.requests.unwrap_or(u64::MAX));
            format!("closed loop of {}", plural(at_once, "request"))
        }
        // hey's rate is per worker.
        Arrival::Constant { rate } => per_second(rate, "request") + " in total",
        Arrival::Poisson { rate } => per_second(rate, "request") + " in total (Poisson)",
        Arrival::Ramp { from, to, over, .. } => {
            format!("{from} to {to} requests/s over {}", format_duration(over))
        }
    };
    let what = match work.mix.len() {
        0 => format!("{} {}", work.method, work.url_as_shown(&work.path)),
        n => format!("{n} kinds of requests"),
    };
    let measure = format_duration(work.phases.measure);
    let end = match plan.requests {
        Some(n) if work.phases.measure >= plan::ENDLESS => plural(n, "request"),
        Some(n) => format!("{}, {measure} at most", plural(n, "request")),
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

/// The record of a load in this process.
fn record(plan: &LoadPlan, result: LoadResult, priority: SchedulingPolicy) -> CellRecord {
    let interrupted = result.interrupted;
    let mut record = CellRecord {
        cell: plan.cell.clone(),
        attempt: 0,
        started_at: result.started_at,
        samples: result.samples.into_iter().collect(),
        tallies: result.tallies,
        connections: result.connections,
        frames: result.frames,
        tcp: result.tcp,
        packets: Vec::new(),
        link: None,
        generator: result.generator,
        server: None,
        sidecar: None,
        bulk: None,
        agents: Vec::new(),
        environment: Environment {
            placement: vec![("generator priority".to_owned(), priority.name().to_owned())],
            ..Environment::default()
        },
        warnings: result.warnings,
        unsupported: None,
        machine: None,
    };
    let is_cut = interrupted && !had_its_time(&record);
    if is_cut || plan.requests.is_some_and(|n| requests_due(&record) >= n) {
        shorten(&mut record);
    }
    record
}

/// Whether a load had all the time in which its requests were due: if it was stopped, then while it waited for its last answers.
pub(super) fn had_its_time(record: &CellRecord) -> bool {
    let phases = &record.cell.work.phases;
    Duration::from_nanos(record.generator.wall_ns) >= phases.warmup + phases.measure
}

/// Makes the record of a load that ended before its time, by -n or by Ctrl-C, that of one which was planned to last as long as it did.
pub(super) fn shorten(record: &mut CellRecord) {
    let (until, started_at) = (end_of(record), record.started_at);
    let phases = &mut record.cell.work.phases;
    phases.measure = until.since(started_at + phases.warmup).min(phases.measure);
}

/// When a load was over that ended before its time: a closed loop with its last answer, an open one when the next request
/// would have been due, if the last one was kept.
fn end_of(record: &CellRecord) -> Time {
    let end = record.started_at + Duration::from_nanos(record.generator.wall_ns);
    match (record.cell.work.arrival.rate(), record.samples.last()) {
        (Some(rate), Some(last)) if record.tallies.is_empty() => {
            last.scheduled_at + Duration::from_secs_f64(1.0 / rate)
        }
        _ => end,
    }
}

#[cfg(test)]
mod tests {
    use super::{check_open_files, usual_threads};

    #[test]
    fn an_open_loop_leaves_a_cpu_to_others_and_a_closed_one_none() {
        assert_eq!([1, 2, 8].map(|cpus| usual_threads(cpus, true)), [1, 1, 7]);
        assert_eq!([1, 2, 8].map(|cpus| usual_threads(cpus, false)), [1, 2, 8]);
    }

    #[test]
    fn more_connections_than_open_files_are_refused_with_what_to_do() {
        assert!(check_open_files(1_024, [50, 960].into_iter()).is_ok());
        let why = check_open_files(1_024, [961].into_iter()).unwrap_err().to_string();
        for words in ["961 connections need 1025 open files", "may have 1024", "ulimit -Hn 1025", "-c"] {
            assert!(why.contains(words), "{words}: {why}");
        }
    }
}
