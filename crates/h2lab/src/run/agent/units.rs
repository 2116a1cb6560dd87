//! Units of open runs: an agent takes one that it can measure, keeps it alive while it measures, stores what it measured as a part,
//! reports it, and only then acknowledges it. One that it could not measure it reports as such: the driver has it measured again,
//! or not. A unit whose agent ends goes back to the queue.
//!
//! A run needs no driver meanwhile. It is open as long as its entry is in the bucket of runs; an agent whose run was closed stops
//! within seconds.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail};
use h2lab_base::text::made_printable;
use h2lab_base::units::format_bytes;
use h2lab_model::fleet::messages::{decode, encode};
use h2lab_model::fleet::queue::run_title;
use h2lab_model::fleet::subjects::unit_part;
use h2lab_model::fleet::{AgentCard, Permissions, RunInfo, UnitPart, UnitReport, UnitTask};
use h2lab_model::record::{CellRecord, RunRecord, SCHEMA_VERSION};
use h2lab_model::scenario::{Cell, Target, labels};
use h2lab_nats::{Nats, NatsError, Taken};

use super::STORE_TIMEOUT;
use super::who::random_id;
use crate::run::execute::{Live, PlanContext, RunObserver, execute_part};
use crate::run::messages::{Failure, FailureKind, RepetitionProgress, is_exhausted, with_causes};
use crate::run::store::RunFolder;
use crate::run::{folder, part, preflight};
use h2lab_roles::fleet::shares::caught;

/// How long the queue is asked for a unit; it answers at once if it has one.
const TAKE: Duration = Duration::from_millis(100);
/// How often the queue is told that a unit is being measured; it gives one to another agent that was not heard of for 30 s.
const KEEP_EVERY: Duration = Duration::from_secs(10);
/// How often it is asked whether the run of a unit that is being measured is still open: soon after its driver has ended it, the
/// agent is free for others.
const CHECK_EVERY: Duration = Duration::from_secs(2);
/// How often the watcher looks whether it is to stop.
const CHECK_PERIOD: Duration = Duration::from_millis(100);
/// How long an agent takes no unit after one that it could not measure: the driver adds that one again, and another agent may do
/// better. The time is doubled while its own machine is the reason, as with a full disk. A message that is no unit is given back for
/// this time.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// The longest such time.
const LONGEST_REST: Duration = Duration::from_secs(120);
/// A unit that was given to agents so often, and that none has reported, is reported as failed.
const MOST_GIVEN: u64 = 10;

/// How many cells a unit is named by.
const MOST_LABELS: usize = 4;

/// Why a unit of a run that was closed is dropped. It is not acknowledged: its queue is deleted with the run, and an answer that does not
/// come would be waited for. A driver that opens the run again has a new one.
const CLOSED: &str = "the run was closed";

/// What an agent measures units with.
pub struct UnitsSetup {
    /// The connection.
    pub nats: Nats,
    /// What the agent is.
    pub card: AgentCard,
    /// What it permits.
    pub permissions: Permissions,
    /// Where what is measured goes until it is stored.
    pub folder: PathBuf,
}

/// Takes units of open runs and measures them, one at a time.
pub struct Units {
    setup: UnitsSetup,
    /// Which of the open runs is asked first: each has its turn.
    next: usize,
    /// Until then no unit is taken.
    paused_until: Option<Instant>,
    /// How long the agent rested last, if its own machine was the reason and it has measured nothing since.
    rested: Option<Duration>,
}

/// What came of a look at the queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Polled {
    /// There is no unit for this agent now.
    Nothing,
    /// A unit was measured and stored.
    Measured {
        /// Which one, printable.
        what: String,
    },
    /// A unit was taken and could not be measured.
    NotMeasured {
        /// Which one, printable.
        what: String,
        /// Why, and what became of it; printable.
        why: String,
    },
}

impl Units {
    /// An agent that has measured none yet.
    pub const fn new(setup: UnitsSetup) -> Self {
        Self { setup, next: 0, paused_until: None, rested: None }
    }

    /// Takes at most one unit, measures it and reports it. `is_free` says whether the agent works for nobody: one that is busy
    /// asks for no unit. `reserve` is called with whom the agent works for, once it has a unit, and the agent works for that run
    /// until what it returns is dropped; `None` means that the agent is busy. While it waits for a unit it is not reserved, so
    /// that no driver is refused: if a driver comes first, the unit goes back at once. `stop` ends a measurement, whose unit goes
    /// back at once as well.
    pub fn poll<R>(
        &mut self,
        stop: &AtomicBool,
        is_free: impl Fn() -> bool,
        reserve: impl Fn(String) -> Option<R>,
    ) -> Result<Polled, NatsError> {
        if self.paused_until.is_some_and(|until| Instant::now() < until) {
            return Ok(Polled::Nothing);
        }
        let open = self.open()?;
        for place in 0..open.len() {
            if !is_free() {
                return Ok(Polled::Nothing);
            }
            let turn = (self.next + place) % open.len();
            let (info, class) = &open[turn];
            match self.setup.nats.cells().take(&info.run, *class, TAKE) {
                Ok(Some(taken)) => {
                    self.next = turn + 1;
                    let with = format!("{} of {}", run_title(&info.run), info.driver);
                    let with = made_printable(&with).into_owned();
                    let Some(_reservation) = reserve(with.clone()) else {
                        ignore_absent(taken.give_back(Duration::ZERO))?;
                        return Ok(Polled::Nothing);
                    };
                    return self.handle(info, &with, taken, stop);
                }
                // A run that is being closed has no queue any more.
                Ok(None) | Err(NatsError::Absent { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Polled::Nothing)
    }

    /// The classes of open runs that name this agent.
    fn open(&self) -> Result<Vec<(RunInfo, u32)>, NatsError> {
        let name = self.setup.card.name.as_str();
        let mut open = Vec::new();
        for (run, bytes) in self.setup.nats.runs().all()? {
            // Runs of another version are for other agents.
            let Ok(info) = decode::<RunInfo>(&String::from_utf8_lossy(&bytes)) else { continue };
            if info.run != run {
                continue;
            }
            let ours = info.classes.iter().filter(|class| class.agents.iter().any(|agent| agent == name));
            let ours: Vec<u32> = ours.map(|class| class.number).collect();
            open.extend(ours.into_iter().map(|class| (info.clone(), class)));
        }
        Ok(open)
    }

    /// Measures a unit that was taken, of the run that is called `with`.
    fn handle(
        &mut self,
        info: &RunInfo,
        with: &str,
        taken: Taken,
        stop: &AtomicBool,
    ) -> Result<Polled, NatsError> {
        let task = match task_of(&taken, info) {
            Ok(task) => task,
            Err(why) => {
                ignore_absent(taken.give_back(RETRY_AFTER))?;
                return Ok(Polled::NotMeasured { what: format!("a unit ({with})"), why });
            }
        };
        if let Some(why) = given_too_often(taken.delivered()) {
            // Its plan may be what ends agents.
            return self.fail(&task, taken, numbered(&task, with), why, false, stop);
        }
        let planned = panic_as_error(|| {
            let cells = task.cells_of(&info.plan()?)?;
            Ok((title(&cells), cells))
        });
        let (named, cells) = match planned {
            Ok((named, cells)) => (named, Ok(cells)),
            Err(error) => (None, Err(error)),
        };
        let what = named.map_or_else(|| numbered(&task, with), |named| format!("{named} ({with})"));
        let halt = Halt::default();
        let measure = || panic_as_error(|| self.measured(info, &task, &cells?, &halt));
        match (self.with_keepalive(&taken, info, stop, &halt, measure), halt.why.get()) {
            (Ok(part), _) if self.is_closed(&task.run) => {
                // Nobody would fetch it; what remains goes when it is 7 days old.
                let _ = self.setup.nats.parts().delete(&part.object);
                Ok(Polled::NotMeasured { what, why: CLOSED.to_owned() })
            }
            (Ok(part), _) => {
                self.rested = None;
                self.report(&task, Ok(part), &taken, stop)?;
                ignore_absent(taken.done())?;
                Ok(Polled::Measured { what })
            }
            (Err(_), Some(Halted::Stopped)) => {
                ignore_absent(taken.give_back(Duration::ZERO))?;
                Ok(Polled::NotMeasured { what, why: "the agent ends; it goes back".to_owned() })
            }
            (Err(_), Some(Halted::Closed)) => Ok(Polled::NotMeasured { what, why: CLOSED.to_owned() }),
            (Err(error), None) => {
                let why = made_printable(&with_causes(&error)).into_owned();
                self.fail(&task, taken, what, why, is_of_machine(&error), stop)
            }
        }
    }

    /// Whether a run was closed. Without a connection that is not known, and it counts as open.
    fn is_closed(&self, run: &str) -> bool {
        matches!(self.setup.nats.runs().get(run), Ok(None))
    }

    /// Reports that a unit was not measured, unless its run was closed: whether it is measured again, the driver decides.
    /// `is_of_machine` says that this machine is the reason.
    fn fail(
        &mut self,
        task: &UnitTask,
        taken: Taken,
        what: String,
        why: String,
        is_of_machine: bool,
        stop: &AtomicBool,
    ) -> Result<Polled, NatsError> {
        let rest = rest_after(self.rested.filter(|_| is_of_machine));
        self.rested = is_of_machine.then_some(rest);
        self.paused_until = Some(Instant::now() + rest);
        if self.is_closed(&task.run) {
            return Ok(Polled::NotMeasured { what, why: CLOSED.to_owned() });
        }
        self.report(task, Err(why.clone()), &taken, stop)?;
        ignore_absent(taken.done())?;
        Ok(Polled::NotMeasured { what, why })
    }

    /// Does `work` while the queue is told that the unit is being measured. `halt` is set when the agent is stopped or the run was
    /// closed.
    fn with_keepalive<T>(
        &self,
        taken: &Taken,
        info: &RunInfo,
        stop: &AtomicBool,
        halt: &Halt,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let (over, is_over) = channel::<()>();
        std::thread::scope(|scope| {
            let watch = move || self.watch(taken, info, stop, halt, &is_over);
            let watcher = std::thread::Builder::new().name("keep-unit".to_owned());
            watcher.spawn_scoped(scope, watch).context("cannot start a thread")?;
            let done = work();
            drop(over); // the watcher ends with it
            done
        })
    }

    fn watch(&self, taken: &Taken, info: &RunInfo, stop: &AtomicBool, halt: &Halt, is_over: &Receiver<()>) {
        let begun = Instant::now();
        let (mut checked_at, mut kept) = (begun, begun);
        while is_over.recv_timeout(CHECK_PERIOD) == Err(RecvTimeoutError::Timeout) {
            if stop.load(Ordering::Relaxed) {
                halt.set(Halted::Stopped);
            }
            // Requests would wait for the connection, and the end of the measurement for them. It goes on: the server may be back
            // in time.
            if !self.setup.nats.is_connected() {
                continue;
            }
            if is_due(&mut checked_at, CHECK_EVERY, Instant::now()) && self.is_closed(&info.run) {
                halt.set(Halted::Closed);
                return;
            }
            if is_due(&mut kept, KEEP_EVERY, Instant::now()) {
                let _ = taken.keep();
            }
        }
    }

    /// Measures the cells of a unit and stores them as a part.
    fn measured(&self, info: &RunInfo, task: &UnitTask, cells: &[Cell], halt: &Halt) -> Result<UnitPart> {
        // What is measured, and nothing else of the scenario is: servers, sysctls and all else are those of these cells.
        self.setup.permissions.check_unit(cells)?;
        if cells.is_empty() || cells.iter().any(|cell| matches!(cell.target, Target::Url { .. })) {
            bail!("it has cells that are not behind the emulated link, or none");
        }
        preflight::sysctls(cells, &halt.flag)?;
        let at = &self.setup.folder;
        let temporary = tempfile::Builder::new().prefix("unit-").tempdir_in(at);
        let temporary = temporary.with_context(|| format!("no folder can be made in {}", at.display()))?;
        let (path, file) = (temporary.path().join("run"), temporary.path().join("part.tar"));
        let run = begun(info, &cells[0]);
        let folder = RunFolder::create(&path, &run)?;
        let context = PlanContext { live: &Live::default(), stop: &halt.flag, own: None };
        let run = execute_part(run, cells, folder, &context, &mut Unobserved)?;
        if run.interrupted {
            bail!("it was stopped");
        }
        drop(run);
        part::pack(&path, &file)?;
        let size = std::fs::metadata(&file).context("the part cannot be read")?.len();
        if size > part::MOST_BYTES {
            bail!("it has {}, and a part at most {}", format_bytes(size), format_bytes(part::MOST_BYTES));
        }
        if self.is_closed(&task.run) {
            halt.set(Halted::Closed);
            bail!(CLOSED);
        }
        let measurement = random_id().context("the system gave no random numbers")?;
        let object = unit_part(task.run.parse()?, task.unit, measurement, &self.setup.card.name);
        let is_wanted = || !halt.flag.load(Ordering::Relaxed);
        let stored = self.setup.nats.parts().put_within(&object, &file, STORE_TIMEOUT, &is_wanted)?;
        Ok(UnitPart { object, bytes: stored.bytes, digest: stored.digest })
    }

    /// Reports what came of a unit. What was stored is worth as much as the report of it: both are tried for the same time.
    fn report(
        &self,
        task: &UnitTask,
        outcome: Result<UnitPart, String>,
        taken: &Taken,
        stop: &AtomicBool,
    ) -> Result<(), NatsError> {
        let card = &self.setup.card;
        let report = UnitReport {
            run: task.run.clone(),
            unit: task.unit,
            agent: card.name.to_string(),
            machine: card.machine.clone(),
            likeness: card.likeness(),
            host: card.host.clone(),
            outcome,
            delivered: taken.delivered(),
        };
        let line = encode(&report).expect("a report is plain data").into_bytes();
        let reports = self.setup.nats.reports();
        until_reported(STORE_TIMEOUT, stop, || {
            let added = reports.add(&task.run, task.unit, card.name.as_str(), line.clone());
            if added.is_err() {
                // Meanwhile no other agent should get it; where this fails as well, one may.
                let _ = taken.keep();
            }
            added
        })
    }
}

/// Tries again what fails for a reason that may pass: for `timeout`, and until the agent is stopped. Each attempt takes its time by
/// itself.
fn until_reported(
    timeout: Duration,
    stop: &AtomicBool,
    mut attempt: impl FnMut() -> Result<(), NatsError>,
) -> Result<(), NatsError> {
    let begun = Instant::now();
    loop {
        match attempt() {
            // Absent: a server that has lost its streams has none until the driver has set it up again.
            Err(NatsError::Unreachable { .. } | NatsError::Timeout { .. } | NatsError::Absent { .. })
                if begun.elapsed() < timeout && !stop.load(Ordering::Relaxed) => {}
            ended => return ended,
        }
    }
}

/// Whether it is time, `now`, to do again what was done at `last`; `last` is `now` then.
fn is_due(last: &mut Instant, every: Duration, now: Instant) -> bool {
    let is_due = now.saturating_duration_since(*last) >= every;
    if is_due {
        *last = now;
    }
    is_due
}

/// How a unit is named whose cells are not known: by its number in the queue of the run that is called `with`.
fn numbered(task: &UnitTask, with: &str) -> String {
    format!("unit {} ({with})", task.unit)
}

/// What a unit measures, printable: `h1, h2c × 4 over delay 5ms`. All its cells have one link. `None` if there are none.
fn title(cells: &[Cell]) -> Option<String> {
    let first = cells.first()?;
    let mut different: Vec<String> = Vec::new();
    for label in labels(cells).into_values() {
        if !different.contains(&label) {
            different.push(label);
        }
    }
    let more = different.len().saturating_sub(MOST_LABELS);
    different.truncate(MOST_LABELS);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let link = first.link.as_ref().map_or(String::new(), |link| format!(" over {}", link.uplink));
    let title = format!("{}{more}{link}", different.join(", "));
    Some(made_printable(&title).into_owned())
}

/// Why a unit that is given to an agent for the `delivered`-th time is not begun any more, if that is so.
fn given_too_often(delivered: u64) -> Option<String> {
    let given = delivered.saturating_sub(1);
    (given >= MOST_GIVEN).then(|| format!("it was given to agents {given} times, and none has reported it"))
}

/// How long an agent rests after a failure, if it rested so long `before` for the same reason.
fn rest_after(before: Option<Duration>) -> Duration {
    before.map_or(RETRY_AFTER, |before| (before * 2).min(LONGEST_REST))
}

/// Whether this machine is why a unit was not measured: its disk, its memory, its rights.
fn is_of_machine(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref().is_some_and(is_exhausted)
            || matches!(cause.downcast_ref::<NatsError>(), Some(NatsError::Io { .. }))
            || cause.downcast_ref().is_some_and(|failure: &Failure| failure.kind == FailureKind::Environment)
    })
}

/// Does `work`, a panic of which is an error, too: the agent must live to report it.
fn panic_as_error<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    caught(work).map_err(anyhow::Error::msg)?
}

/// A unit whose queue is gone, since its run was closed, is nobody's any more.
fn ignore_absent(acknowledged: Result<(), NatsError>) -> Result<(), NatsError> {
    match acknowledged {
        Err(NatsError::Absent { .. }) => Ok(()),
        acknowledged => acknowledged,
    }
}

/// The task of a unit that was taken from the queue of this run.
fn task_of(taken: &Taken, info: &RunInfo) -> Result<UnitTask, String> {
    let task: UnitTask =
        decode(&String::from_utf8_lossy(taken.payload())).map_err(|error| error.to_string())?;
    if task.run == info.run { Ok(task) } else { Err("it is a unit of another run".to_owned()) }
}

/// The record of a unit of which nothing was measured yet.
fn begun(info: &RunInfo, first: &Cell) -> RunRecord {
    RunRecord {
        schema: SCHEMA_VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        command: Vec::new(),
        seed: first.seed,
        machine: folder::machine(),
        scenario: info.scenario.clone(),
        repetitions: Vec::new(),
        interrupted: false,
        failure: None,
        resumed: Vec::new(),
    }
}

/// What ends a measurement before its end.
#[derive(Debug, Default)]
struct Halt {
    flag: AtomicBool,
    /// The first reason.
    why: OnceLock<Halted>,
}

/// Why a measurement is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Halted {
    /// The agent ends.
    Stopped,
    /// The run was closed.
    Closed,
}

impl Halt {
    fn set(&self, why: Halted) {
        let _ = self.why.set(why); // the first one counts
        self.flag.store(true, Ordering::Relaxed);
    }
}

/// Nobody looks at how a unit goes.
struct Unobserved;

impl RunObserver for Unobserved {
    fn begins(&mut self, _: usize, _: usize, _: &Cell, _: u32) {}
    fn progress(&mut self, _: &RepetitionProgress) {}
    fn invalid(&mut self, _: &Cell, _: &[String]) {}
    fn finished(&mut self, _: usize, _: &CellRecord) {}
    fn failed(&mut self, _: &Cell, _: &Failure) {}
}

#[cfg(test)]
mod tests {
    use h2lab_model::fleet::queue::units;
    use h2lab_model::scenario::Scenario;

    use super::*;

    /// The names of the units of a run.
    fn titles(scenario: &str) -> Vec<String> {
        let plan = Scenario::from_toml(scenario).unwrap().plan();
        let title = |cells| title(&UnitTask { run: String::new(), unit: 0, cells }.cells_of(&plan).unwrap());
        units(&plan).into_iter().map(|unit| title(unit.cells).unwrap()).collect()
    }

    #[test]
    fn a_unit_is_named_by_its_first_cells_and_their_link() {
        let link = "repetitions = 2\n[link]\ndelay = ['5ms', '20ms']\n\
                    [matrix]\norigin = ['origin', 'nginx']\n";
        let names = titles(&format!("{link}protocols = ['h1', 'h2c']"));
        let [near, far] = names.as_slice() else { panic!("{names:?}") };
        assert!(near.starts_with("h1, h2c × 1 over ") && near.contains("5ms"), "{near}");
        assert!(far.starts_with("h1, h2c × 1 over ") && far.contains("20ms"), "{far}");
        let names = titles(&format!("{link}protocols = 'h2c'\nconnections = [1, 2, 3, 4]"));
        assert!(names[0].starts_with("h2c × 1, h2c × 2, h2c × 3, h2c × 4 over "), "{names:?}");
        let names = titles(&format!("{link}protocols = 'h2c'\nconnections = [1, 2, 3, 4, 5, 6]"));
        assert!(names[0].starts_with("h2c × 1, h2c × 2, h2c × 3, h2c × 4 and 2 more over "), "{names:?}");
        assert_eq!(title(&[]), None);
    }

    #[test]
    fn what_is_done_every_two_seconds_is_due_after_two_and_then_after_two_more() {
        let begun = Instant::now();
        let (mut last, at) = (begun, |ms| begun + Duration::from_millis(ms));
        let is_due = |ms| is_due(&mut last, CHECK_EVERY, at(ms));
        let due = [1999, 2000, 2001, 3999, 5000, 6999, 7000].map(is_due);
        assert_eq!(due, [false, true, false, false, true, false, true]);
    }

    #[test]
    fn the_first_reason_to_stop_a_measurement_counts() {
        let halt = Halt::default();
        assert!(!halt.flag.load(Ordering::Relaxed));
        halt.set(Halted::Closed);
        halt.set(Halted::Stopped);
        assert_eq!((halt.flag.load(Ordering::Relaxed), halt.why.get()), (true, Some(&Halted::Closed)));
    }

    #[test]
    fn a_unit_is_given_to_agents_ten_times_and_then_reported() {
        assert_eq!([1, 2, 10].map(given_too_often), [const { None }; 3]);
        let why = given_too_often(11).unwrap();
        assert_eq!(why, "it was given to agents 10 times, and none has reported it");
        assert!(given_too_often(u64::MAX).is_some());
    }

    #[test]
    fn a_report_is_tried_again_while_what_fails_may_pass_and_the_agent_is_not_stopped() {
        let long = Duration::from_secs(3600);
        // How often it is tried if the agent is stopped in the third attempt.
        let attempts = |timeout, error: fn() -> NatsError| {
            let (stop, mut attempts) = (AtomicBool::new(false), 0);
            let ended = until_reported(timeout, &stop, || {
                attempts += 1;
                stop.store(attempts == 3, Ordering::Relaxed);
                Err(error())
            });
            assert!(ended.is_err());
            attempts
        };
        let passes = || NatsError::Timeout { what: String::new(), after: Duration::from_secs(10) };
        assert_eq!(attempts(long, passes), 3);
        assert_eq!(attempts(long, || NatsError::Absent { what: "a".into() }), 3);
        assert_eq!(attempts(Duration::ZERO, passes), 1);
        assert_eq!(attempts(long, || NatsError::NoJetStream), 1);
        assert!(until_reported(long, &AtomicBool::new(true), || Ok(())).is_ok());
    }

    #[test]
    fn an_agent_whose_machine_is_at_fault_rests_twice_as_long_each_time_up_to_two_minutes() {
        let rests = std::iter::successors(Some(rest_after(None)), |rest| Some(rest_after(Some(*rest))));
        let rests: Vec<u64> = rests.take(6).map(|rest| rest.as_secs()).collect();
        assert_eq!(rests, [10, 20, 40, 80, 120, 120]);
        let full = std::io::Error::from(rustix::io::Errno::DQUOT);
        assert!(is_of_machine(&anyhow::Error::new(full).context("cannot write samples.parquet")));
        let failure = |kind| anyhow::Error::new(Failure { kind, message: "no".to_owned() });
        assert!(is_of_machine(&failure(FailureKind::Environment)));
        assert!(!is_of_machine(&failure(FailureKind::Unsupported)));
        assert!(!is_of_machine(&anyhow::anyhow!("it has cells that are not in the plan")));
    }

    #[test]
    fn a_panic_while_a_unit_is_measured_is_an_error_with_its_words() {
        assert_eq!(panic_as_error(|| Ok(7)).unwrap(), 7);
        let error = panic_as_error::<()>(|| bail!("nginx does not start")).unwrap_err().to_string();
        assert_eq!(error, "nginx does not start");
        let error = panic_as_error::<()>(|| panic!("no cell")).unwrap_err().to_string();
        assert!(error.ends_with(": no cell"), "{error}");
    }

    #[test]
    fn a_unit_whose_run_was_closed_is_let_go_and_any_other_error_remains_one() {
        assert!(ignore_absent(Err(NatsError::Absent { what: "such a unit".into() })).is_ok());
        assert!(ignore_absent(Ok(())).is_ok());
        assert!(matches!(ignore_absent(Err(NatsError::Gone)), Err(NatsError::Gone)));
    }
}
