//! An agent's share of a load: made in this process, stored as a run folder, and put into the object store as a part.
//!
//! The folder is a temporary one, so that a share is stored whole or not at all: what fails on the way, a full disk too, is
//! reported to the driver.

mod start_wait;
mod watched;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail, ensure};
use h2lab_analysis::stats::requests_due;
use h2lab_base::counts::{count, plural};
use h2lab_base::units::{Time, format_bytes, format_duration};
use h2lab_model::fleet::subjects::share_part;
use h2lab_model::fleet::{AgentLimits, AgentName, LoadTask, PartReport, ShareProgress};
use h2lab_model::record::{CellRecord, Environment, Outcome, RunRecord, SCHEMA_VERSION};
use h2lab_model::scenario::Cell;
use h2lab_model::workload::Arrival;
use h2lab_nats::Nats;

use self::start_wait::{StartWait, longest_wait};
use self::watched::Watched;
use super::who::random_id;
use super::{STORE_TIMEOUT, card};
use crate::run::messages::{Failure, with_causes};
use crate::run::store::RunFolder;
use crate::run::{folder, part};
use h2lab_lab::topology::sched::SchedulingPolicy;
use h2lab_lab::topology::{available_congestion, sched};
use h2lab_net::lock::lock;
use h2lab_net::resources;
use h2lab_net::tcp::{Endpoint, StreamSocket};
use h2lab_roles::client::reach::{endpoints, tls_options};
use h2lab_roles::client::url::Url;
use h2lab_roles::fleet::shares::{Share, ShareEvents, Shares, caught};
use h2lab_roles::load::{self, LoadError, LoadProgress, LoadResult, LoadSpec, SampleListener, StartGate};

/// Open files that this process needs besides the connections of a share.
const OTHER_FILES: u64 = 64;

/// What makes an agent's shares.
#[derive(Clone)]
pub struct AgentShares {
    nats: Nats,
    name: AgentName,
    limits: AgentLimits,
    /// Where what is measured goes until it is stored.
    folder: PathBuf,
    /// Takes what came of a share, in one sentence.
    log: fn(&str),
}

impl fmt::Debug for AgentShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentShares").field("name", &self.name).finish_non_exhaustive()
    }
}

impl AgentShares {
    /// Those of the agent `name`, within `limits`; `folder` is where it may write, and `log` takes what came of each in one
    /// sentence.
    pub const fn new(
        nats: Nats,
        name: AgentName,
        limits: AgentLimits,
        folder: PathBuf,
        log: fn(&str),
    ) -> Self {
        Self { nats, name, limits, folder, log }
    }
}

impl Shares for AgentShares {
    fn start(&self, task: LoadTask, events: ShareEvents) -> Result<Box<dyn Share>, String> {
        let cell = task.cell().map_err(|error| error.to_string())?;
        // As the driver has read it.
        let url = if cell.work.template { Url::with_placeholders(&task.url) } else { task.url.parse() };
        let url = url.map_err(|error| format!("{}: {error}", task.url))?;
        check_open_files(resources::raise_open_files(), &cell, task.share.of)?;
        // QUIC's is checked with the scenario.
        if let Some(name) = task.congestion.as_deref().filter(|_| !cell.protocol.is_quic()) {
            check_congestion(name)?;
        }
        let running = Arc::new(RunningShare::default());
        let work = ShareWork { agent: self.clone(), task, cell, url, events, running: Arc::clone(&running) };
        let thread = std::thread::Builder::new().name("share".to_owned()).spawn(move || work.run());
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Box::new(UnderWay { running, thread: Some(thread) }))
    }
}

/// Refuses a share of `of` of more connections than files may be open: dials would fail one by one.
fn check_open_files(limit: u64, cell: &Cell, of: u32) -> Result<(), String> {
    let connections = u64::from(cell.max_connections.div_ceil(of.max(1)));
    let needed = connections + OTHER_FILES;
    if needed > limit {
        return Err(format!(
            "{connections} connections need {needed} open files, and the agent may have {limit}: raise \
             `LimitNOFILE=` of its service, or lower -c"
        ));
    }
    Ok(())
}

/// Refuses congestion control that no TCP socket of this agent could have: each dial would fail with the system's words.
fn check_congestion(name: &str) -> Result<(), String> {
    StreamSocket::may_have_congestion(name).map_err(|error| {
        let available = available_congestion().join(", ");
        format!(
            "--congestion {name}: the kernel does not allow it for the agent ({error}); available: {available}; for \
             more, `sudo modprobe tcp_{name}` there; without root, net.ipv4.tcp_allowed_congestion_control must also \
             name it"
        )
    })
}

/// How a share goes, as its agent's threads see it.
#[derive(Debug, Default)]
struct RunningShare {
    start: Mutex<Start>,
    stop: AtomicBool,
    /// Nobody waits for its result any more.
    is_dropped: AtomicBool,
    /// Which limit of the agent has ended it.
    limit: OnceLock<String>,
    /// Bytes sent and received so far, by all attempts.
    moved: AtomicU64,
}

/// When a share begins.
#[derive(Debug, Default)]
struct Start {
    /// Where the load waits that is under way or being dialled.
    gate: Arc<StartGate>,
    /// When the first request is due, as far as that is known: the gate of a later attempt gets it, too.
    at: Option<Time>,
}

impl RunningShare {
    /// The first request is due at `at`.
    fn begin(&self, at: Time) {
        let mut start = lock(&self.start);
        start.at = Some(at);
        start.gate.begin_at(at);
    }

    /// The gate of the next attempt.
    fn next_gate(&self) -> Arc<StartGate> {
        let gate = Arc::new(StartGate::new());
        let mut start = lock(&self.start);
        if let Some(at) = start.at {
            gate.begin_at(at);
        }
        start.gate = Arc::clone(&gate);
        gate
    }

    /// Fails if nobody waits for the result any more.
    fn check_wanted(&self) -> Result<()> {
        ensure!(!self.is_dropped.load(Ordering::Relaxed), "its driver's session has ended");
        Ok(())
    }

    /// Ends the load because of a limit of this agent's.
    fn end(&self, why: impl FnOnce() -> String) {
        let _ = self.limit.get_or_init(why); // the first one counts
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A share under way.
#[derive(Debug)]
struct UnderWay {
    running: Arc<RunningShare>,
    thread: Option<JoinHandle<()>>,
}

impl Share for UnderWay {
    fn begin(&self, at: Time) {
        self.running.begin(at);
    }

    fn stop(&self) {
        self.running.stop.store(true, Ordering::Relaxed);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.running.is_dropped.store(true, Ordering::Relaxed);
        self.running.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // One that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

/// All that the thread of a share has.
struct ShareWork {
    agent: AgentShares,
    task: LoadTask,
    cell: Cell,
    url: Url,
    events: ShareEvents,
    running: Arc<RunningShare>,
}

/// What a generator gave.
struct Generated {
    result: LoadResult,
    priority: SchedulingPolicy,
    /// How late the first request was sent.
    late: Duration,
    /// The newest progress.
    last: ShareProgress,
}

impl ShareWork {
    /// Makes the share and reports its end.
    fn run(self) {
        match outcome(|| self.made()) {
            Ok(report) => {
                (self.agent.log)(&self.ended(&report));
                self.events.stored(report);
            }
            Err(why) => self.events.failed(why),
        }
    }

    /// What came of it, for the log.
    fn ended(&self, report: &PartReport) -> String {
        let ShareProgress { succeeded, failed, .. } = report.last;
        let early = match self.running.limit.get() {
            Some(why) => format!(", ended before its time: {why}"),
            None if report.interrupted => ", ended before its time".to_owned(),
            None => String::new(),
        };
        let (number, of) = (u64::from(self.task.share.number) + 1, self.task.share.of);
        let (bytes, succeeded, failed) =
            (format_bytes(report.bytes), plural(succeeded, "request"), count(failed));
        format!(
            "share {number} of {of} is over: {succeeded} succeeded, {failed} failed{early}; its part of {bytes} is stored"
        )
    }

    fn made(&self) -> Result<PartReport> {
        let started = SystemTime::now();
        let generated = self.loaded()?;
        self.running.check_wanted()?;
        let Generated { result, priority, late, last } = generated;
        let (started_at, cpu) = (result.started_at, Duration::from_nanos(result.generator.cpu_ns));
        let interrupted = result.interrupted;
        let run = self.run_record(started, result, priority);
        let last = match run.repetitions.first() {
            Some(record) => progress_at_end(record, &last),
            None => last,
        };
        // To store it may take minutes: nothing of it is in flight meanwhile.
        self.events.progress(last.clone());
        let object = share_part(random_id().context("the system gave no random numbers")?, &self.agent.name);
        let stored = self.store(run, &object)?;
        let (bytes, digest) = (stored.bytes, stored.digest);
        let clock_origin_ns = self.events.clock().origin_ns();
        Ok(PartReport {
            object,
            bytes,
            digest,
            started_at,
            clock_origin_ns,
            host: card::host(),
            late,
            interrupted,
            cpu,
            last,
        })
    }

    /// Tries the addresses of the server in order, until one carries load. An attempt that fails has sent no request.
    fn loaded(&self) -> Result<Generated> {
        let endpoints = endpoints(&self.task.reach, &self.url).map_err(anyhow::Error::msg)?;
        let last = endpoints.len().saturating_sub(1);
        let wait = StartWait { since: Instant::now(), most: longest_wait(self.agent.limits.time) };
        for (place, endpoint) in endpoints.iter().enumerate() {
            match self.load(endpoint, &wait) {
                Err(LoadError::Unreachable { why, .. }) if why.is_not_there() && place < last => {}
                loaded => return Ok(loaded.map_err(Failure::from)?),
            }
        }
        bail!("its server has no address")
    }

    /// One attempt, in a thread of its own, which may have real-time priority.
    fn load(&self, endpoint: &Endpoint, wait: &StartWait) -> Result<Generated, LoadError> {
        let gate = self.running.next_gate();
        std::thread::scope(|scope| {
            let generate = || self.generated(endpoint, &gate);
            let loading =
                std::thread::Builder::new().name("load".to_owned()).spawn_scoped(scope, generate)?;
            wait.wait_for_start(&gate, &self.running, || loading.is_finished(), || self.events.planned());
            loading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn generated(&self, endpoint: &Endpoint, gate: &StartGate) -> Result<Generated, LoadError> {
        // An open loop sleeps between requests, and another program's slice must not make it late.
        let is_open = !matches!(self.cell.work.arrival, Arrival::Closed { .. });
        let spec = LoadSpec {
            cell: self.cell.clone(),
            address: endpoint.clone(),
            authority: self.url.authority().to_owned(),
            server_name: self.url.host().to_owned(),
            tls: tls_options(&self.task.trust),
            clock_origin_ns: self.events.clock().origin_ns(),
            requests: self.task.requests.map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
            threads: threads(self.task.threads, folder::cpus(), is_open),
            record: Some(self.task.level),
            tap: self.task.frames,
            on_thread: is_open.then_some(|| {
                // Its lateness says whether it worked.
                let _ = (sched::prefer(), sched::sharpen_timers());
            }),
            sharp: true,
            share: self.task.share,
            start: Some(gate),
            stop: Some(&self.running.stop),
        };
        let priority = if is_open { sched::prefer() } else { SchedulingPolicy::Ordinary };
        if is_open {
            let _ = sched::sharpen_timers();
        }
        let watched = Arc::new(Watched::new(&self.running, self.agent.limits.bytes));
        let listener = Arc::clone(&watched) as Arc<dyn SampleListener>;
        let mut last = ShareProgress::default();
        let finished = load::run_observed(&spec, Some(&listener), &mut |progress| {
            self.check_time(progress.elapsed);
            last = share_progress(progress);
            self.events.progress(last.clone());
        });
        let result = finished?.close();
        resources::give_back_freed_memory();
        Ok(Generated { result, priority, late: watched.late(), last })
    }

    /// Ends a load that lasts longer than the agent may.
    fn check_time(&self, elapsed: Duration) {
        if let Some(most) = self.agent.limits.time.filter(|most| elapsed >= *most) {
            self.running.end(|| format!("--max-time {} is over", format_duration(most)));
        }
    }

    /// The run, with the record of this share as it is alone.
    fn run_record(&self, started: SystemTime, result: LoadResult, priority: SchedulingPolicy) -> RunRecord {
        let mut warnings = result.warnings;
        if let Some(why) = self.running.limit.get() {
            warnings.push(format!("it has ended its share before its time: {why}"));
        }
        let record = CellRecord {
            started_at: result.started_at,
            samples: result.samples.into_iter().collect(),
            tallies: result.tallies,
            connections: result.connections,
            frames: result.frames,
            tcp: result.tcp,
            generator: result.generator,
            environment: Environment {
                placement: vec![("generator priority".to_owned(), priority.name().to_owned())],
                ..Environment::default()
            },
            warnings,
            ..CellRecord::empty(self.cell.clone())
        };
        RunRecord {
            schema: SCHEMA_VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: humantime::format_rfc3339_seconds(started).to_string(),
            command: Vec::new(),
            seed: self.cell.seed,
            machine: folder::machine(),
            scenario: self.task.scenario.clone(),
            repetitions: vec![record],
            interrupted: result.interrupted,
            failure: None,
            resumed: Vec::new(),
        }
        .without_secrets()
    }

    /// Stores the run as the part `object`. Nothing of it is left here, whether or not that succeeds.
    fn store(&self, run: RunRecord, object: &str) -> Result<h2lab_nats::StoredPart> {
        let at = &self.agent.folder;
        let temporary = tempfile::Builder::new().prefix("share-").tempdir_in(at);
        let temporary = temporary.with_context(|| format!("no folder can be made in {}", at.display()))?;
        let (folder, file) = (temporary.path().join("run"), temporary.path().join("part.tar"));
        keep(&folder, &run)?;
        drop(run);
        // What follows takes minutes where there are gigabytes.
        self.running.check_wanted()?;
        part::pack(&folder, &file)?;
        let size = std::fs::metadata(&file).context("the part cannot be read")?.len();
        if size > part::MOST_BYTES {
            let most = format_bytes(part::MOST_BYTES);
            bail!("it has {}, and a part at most {most}: give --record tail", format_bytes(size));
        }
        let is_wanted = || self.running.check_wanted().is_ok();
        Ok(self.agent.nats.parts().put_within(object, &file, STORE_TIMEOUT, &is_wanted)?)
    }
}

/// What came of a share; why nothing did, in words.
fn outcome<T>(made: impl FnOnce() -> Result<T>) -> Result<T, String> {
    caught(made)?.map_err(|error| with_causes(&error))
}

/// Threads of a share, of those that the driver asks for at most: no more than CPUs. Threads of an open loop run before others, so
/// that requests go out in time: they leave a CPU to what else runs here.
fn threads(asked: u32, cpus: usize, is_open: bool) -> u32 {
    let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
    let own = if is_open { cpus.saturating_sub(1) } else { cpus };
    asked.min(own).max(1)
}

/// Stores a run of one repetition.
fn keep(folder: &Path, run: &RunRecord) -> Result<()> {
    let mut stored = RunFolder::create(folder, run)?;
    run.repetitions.iter().try_for_each(|repetition| stored.stage(repetition))?;
    stored.finish(run.interrupted)
}

/// How far a share was at its end, by what is stored of it; `last` was reported before.
fn progress_at_end(record: &CellRecord, last: &ShareProgress) -> ShareProgress {
    let ended = |is_counted: fn(Outcome) -> bool| match record.tallies.as_slice() {
        [] => record.samples.iter().filter(|sample| is_counted(sample.outcome)).count() as u64,
        tallies => {
            let counted = tallies.iter().filter(|tally| is_counted(tally.class.outcome));
            counted.map(|tally| tally.counts.requests).sum()
        }
    };
    ShareProgress {
        elapsed: last.elapsed.max(Duration::from_nanos(record.generator.wall_ns)),
        total: last.total,
        due: requests_due(record),
        succeeded: ended(Outcome::is_success),
        failed: ended(Outcome::is_failure),
        opened: last.opened,
        ..ShareProgress::default()
    }
}

fn share_progress(progress: &LoadProgress) -> ShareProgress {
    ShareProgress {
        elapsed: progress.elapsed,
        total: progress.total,
        due: progress.due,
        succeeded: progress.succeeded,
        failed: progress.failed,
        waiting: progress.waiting,
        in_flight: progress.in_flight,
        connections: progress.connections,
        opened: progress.opened,
        recent: progress.recent.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::record::testing::{Model, cell, counted, one_repetition};
    use h2lab_model::workload::Protocol;

    #[test]
    fn a_later_attempt_begins_when_the_share_was_told_to() {
        let running = RunningShare::default();
        assert!(!running.next_gate().wait_for_instant(Duration::ZERO));
        running.begin(Time::from_millis(7));
        assert!(lock(&running.start).gate.wait_for_instant(Duration::ZERO), "the one of this attempt");
        assert!(running.next_gate().wait_for_instant(Duration::ZERO));
    }

    #[test]
    fn a_share_is_wanted_until_it_is_dropped() {
        let running = Arc::<RunningShare>::default();
        let share = UnderWay { running: Arc::clone(&running), thread: None };
        share.stop();
        assert!(running.check_wanted().is_ok(), "what it has measured is");
        drop(share);
        assert_eq!(running.check_wanted().unwrap_err().to_string(), "its driver's session has ended");
    }

    #[test]
    fn a_share_that_panics_has_failed() {
        assert_eq!(outcome(|| Ok(7)), Ok(7));
        assert_eq!(outcome::<()>(|| bail!("why")), Err("why".to_owned()));
        let panics = outcome::<()>(|| panic!("what broke")).unwrap_err();
        assert!(panics.contains("what broke"), "{panics}");
    }

    #[test]
    fn connections_of_a_share_need_open_files_of_this_agent_only() {
        let cell = Cell { max_connections: 3_000, ..cell(0, 0, Protocol::H1, 4, 0.0) };
        assert!(check_open_files(1_064, &cell, 3).is_ok());
        let refused = check_open_files(1_063, &cell, 3).unwrap_err();
        assert!(refused.contains("1000 connections need 1064 open files"), "{refused}");
    }

    #[test]
    fn congestion_control_that_the_kernel_does_not_have_is_refused_with_what_it_has() {
        let own = available_congestion();
        let refused = check_congestion("nosuch").unwrap_err();
        assert!(refused.starts_with("--congestion nosuch: "), "{refused}");
        assert!(refused.contains(&format!("available: {}", own.join(", "))), "{refused}");
        // One of the system's is permitted to all, unless it was restricted to none.
        assert!(own.is_empty() || own.iter().any(|name| check_congestion(name).is_ok()), "{own:?}");
    }

    #[test]
    fn a_share_has_no_more_threads_than_cpus_and_in_an_open_loop_one_less() {
        assert_eq!([1, 2, 8].map(|cpus| threads(1024, cpus, true)), [1, 1, 7]);
        assert_eq!([1, 2, 8].map(|cpus| threads(1024, cpus, false)), [1, 2, 8]);
        assert_eq!([0, 3].map(|asked| threads(asked, 8, true)), [1, 3]);
    }

    #[test]
    fn at_its_end_a_share_has_the_counts_of_its_record_and_nothing_in_flight() {
        let mut record = one_repetition(&cell(0, 0, Protocol::H1, 4, 0.0), 0, &Model::CLEAN);
        for (n, sample) in record.samples.edit().iter_mut().enumerate() {
            sample.outcome = match n {
                0 => Outcome::Timeout,
                1 => Outcome::Unfinished,
                _ => Outcome::Succeeded,
            };
        }
        record.generator.wall_ns = 2_000_000_000;
        let due = record.samples.len() as u64;
        let last = ShareProgress { in_flight: 6, connections: 6, opened: 6, ..ShareProgress::default() };
        for record in [record.clone(), counted(record)] {
            let end = progress_at_end(&record, &last);
            assert_eq!((end.due, end.succeeded, end.failed), (due, due - 2, 1));
            assert_eq!((end.in_flight, end.connections, end.waiting, end.opened), (0, 0, 0, 6));
            assert_eq!(end.elapsed, Duration::from_secs(2));
        }
    }

    #[test]
    fn a_share_is_a_run_folder_of_one_repetition() {
        let parent = tempfile::tempdir().unwrap();
        let mut run = h2lab_model::record::testing::run(Vec::new());
        run.repetitions = vec![one_repetition(&cell(0, 0, Protocol::H1, 4, 0.0), 0, &Model::CLEAN)];
        run.interrupted = true;
        let (folder, file, into) =
            (parent.path().join("run"), parent.path().join("part"), parent.path().join("into"));
        keep(&folder, &run).unwrap();
        part::pack(&folder, &file).unwrap();
        part::unpack(&file, &into, part::MOST_BYTES).unwrap();
        let read = crate::run::store::read(&into).unwrap();
        assert_eq!((read.repetitions.len(), read.interrupted), (1, true));
        assert_eq!(read.repetitions[0].samples.len(), run.repetitions[0].samples.len());
    }
}
