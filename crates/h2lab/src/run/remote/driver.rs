//! The driver of a run by agents, from the first unit in the queue to the last one that is stored.

mod connection;
mod missing;
mod reported;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use h2lab_base::counts::plural;
use h2lab_base::units::format_duration;
use h2lab_model::fleet::messages::{decode, encode};
use h2lab_model::fleet::queue::plan_digest;
use h2lab_model::fleet::{AgentName, RunInfo};
use h2lab_model::record::RunRecord;
use h2lab_model::scenario::Cell;
use h2lab_nats::{Nats, NatsError};
use h2lab_roles::fleet::agent::SILENCE_TIMEOUT;

use self::connection::Connection;
use self::missing::Missing;
use self::reported::{Outage, Postponed};
use self::waiting::Waiting;
use super::failures::{Failures, ReportedReasons, grouped};
use super::queue::{JobState, Queue};
use super::{ASK, KeptRun, ReadyRun, RemoteObserver, failed, resume_line};
use crate::run::agent::who;
use crate::run::execute::unkept;
use crate::run::fleet::driver as our_name;
use crate::run::messages::{Failure, FailureKind};
use crate::run::store::{self, RunFolder};

/// How long a new report is waited for, before anything else is looked at.
const READ: Duration = Duration::from_secs(1);
/// How often it is asked who is there.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// A unit whose agent is not heard of for so long goes to another one.
const ACK_WAIT: Duration = Duration::from_secs(30);
/// An agent that does not answer for so long is named.
const SILENT: Duration = Duration::from_secs(20);

/// A further measurement of the plan.
struct FurtherRun {
    run: RunRecord,
    /// `None` if it was finished before.
    folder: Option<RunFolder>,
}

/// An agent of the run.
struct AgentContact {
    /// When it answered last.
    at: Instant,
    /// Whether its silence was reported.
    is_told: bool,
    /// With whom it was busy then.
    busy: Option<String>,
}

/// See the module.
pub(super) struct Driver<'a> {
    nats: Nats,
    plan: &'a [Cell],
    queue: Queue,
    /// The attempt of each job that counts.
    attempts: Vec<u32>,
    /// The class of agents that each job was given to last.
    given: Vec<u32>,
    /// Which agents have failed at each job: nothing could be used of what they have reported.
    failures: Vec<Failures>,
    /// Why units were not measured, as far as the user knows.
    told: ReportedReasons,
    /// Whether the user knows that units wait.
    waiting: Waiting,
    run: RunRecord,
    folder: RunFolder,
    /// Those from the second one on.
    copies: Vec<FurtherRun>,
    reproduce: u32,
    /// What is kept of the run; `None` before it has a number.
    kept: Option<KeptRun>,
    /// The agents of a resumed run when it was driven last: they may have reported since.
    former: Vec<AgentName>,
    /// Units, by number, with the agents that have reported them, and how many of these reports were of no use.
    useless: BTreeMap<(u32, AgentName), u32>,
    /// Reports whose parts do not come now.
    postponed: VecDeque<Postponed>,
    /// Whether NATS answers.
    outage: Outage,
    agents: BTreeMap<AgentName, AgentContact>,
    /// What the machines of this run are; `None` if they may be unlike, or none is known yet.
    likeness: Option<String>,
    may_be_unlike: bool,
    /// The NATS servers, as they are shown.
    servers: String,
    connection: Connection,
    /// Why no agent can measure what is left once all reports are fetched.
    refused: Option<Failure>,
    /// The last report that was read.
    after: u64,
    next_check: Instant,
    /// Units that nobody will report.
    missing: Missing,
    /// Whether agents may measure, or have measured, for this run.
    is_begun: bool,
}

/// How a run has ended.
pub(super) struct Ended {
    /// What is stored of it.
    pub run: RunRecord,
    /// Its folder.
    pub folder: RunFolder,
    /// What ended it early.
    pub outcome: Result<()>,
    /// Whether nothing is stored, and its agents may have measured: the folder is needed to find that again.
    pub is_left_to_agents: bool,
    /// Whether the user has ended it before anything was measured: there is nothing to report, here or at NATS.
    pub is_empty: bool,
}

impl<'a> Driver<'a> {
    /// One that has not begun.
    pub fn new(
        ready: ReadyRun,
        run: RunRecord,
        plan: &'a [Cell],
        folder: RunFolder,
        kept: Option<KeptRun>,
    ) -> Self {
        let ReadyRun { nats, cards, queue, asked, refused } = ready;
        let now = Instant::now();
        let measured = run.repetitions.iter().find_map(|one| Some(one.machine.as_ref()?.likeness.clone()));
        let likeness = cards.first().map(h2lab_model::fleet::AgentCard::likeness).or(measured);
        let heard = |card: h2lab_model::fleet::AgentCard| {
            (card.name, AgentContact { at: now, is_told: false, busy: card.busy })
        };
        Self {
            connection: Connection::new(&nats),
            nats,
            plan,
            attempts: vec![0; queue.jobs.len()],
            given: queue.jobs.iter().map(|job| job.class).collect(),
            failures: vec![Failures::default(); queue.jobs.len()],
            told: ReportedReasons::default(),
            waiting: Waiting::default(),
            queue,
            run,
            folder,
            copies: Vec::new(),
            reproduce: asked.reproduce.max(1),
            former: kept.as_ref().map(|kept| kept.agents.clone()).unwrap_or_default(),
            useless: BTreeMap::new(),
            postponed: VecDeque::new(),
            outage: Outage::default(),
            is_begun: kept.is_some(),
            kept,
            agents: cards.into_iter().map(heard).collect(),
            likeness: likeness.filter(|_| !asked.may_be_unlike),
            may_be_unlike: asked.may_be_unlike,
            servers: asked.servers,
            refused,
            after: 0,
            next_check: now + ASK_EVERY,
            missing: Missing::new(now),
        }
    }

    /// Works until all units are stored or have failed, until the user's word, or until it cannot go on.
    pub fn work(&mut self, stop: &AtomicBool, observer: &mut dyn RemoteObserver) -> Result<()> {
        self.open_copies()?;
        self.discard_incomplete(observer)?;
        match self.refused.take() {
            None => self.begin(stop, observer)?,
            Some(refusal) => self.take_reported(&refusal, stop, observer)?,
        }
        while !self.queue.open().is_empty() {
            if stop.load(Ordering::Relaxed) {
                self.run.interrupted = true;
                return Ok(());
            }
            if !self.check_connection(observer)? {
                sleep(READ);
                continue;
            }
            self.read_reports(READ, stop, observer)?;
            if Instant::now() >= self.next_check {
                self.check(observer)?;
            }
            self.look_for_missing(stop, observer)?;
            self.show(observer);
        }
        let failures = self.queue.failures();
        if failures.is_empty() {
            return Ok(());
        }
        let all = plural(self.queue.jobs.len() as u64, "unit");
        let named = failures.iter().map(|(job, why)| (observer.describe(self.first_cell(*job)), *why));
        let message = format!("{} of {all} could not be measured: {}", failures.len(), grouped(named));
        Err(Failure { kind: FailureKind::Environment, message }.into())
    }

    fn show(&self, observer: &mut dyn RemoteObserver) {
        let count = |is_counted: &dyn Fn(&JobState) -> bool| {
            let jobs = self.queue.jobs.iter().filter(|job| is_counted(&job.state));
            jobs.map(|job| job.cells.len()).sum::<usize>()
        };
        observer.stands(count(&|state| *state == JobState::Stored), count(&|_| true));
    }

    /// The folders of further measurements.
    fn open_copies(&mut self) -> Result<()> {
        for copy in 1..self.reproduce {
            let path = store::reproduction(self.folder.path(), copy);
            let copy = if !path.join("run.json").exists() {
                let run = self.without_repetitions();
                let folder = RunFolder::create(&path, &run)?;
                FurtherRun { run, folder: Some(folder) }
            } else if store::read_heads(&path)?.interrupted {
                let store::Reopened { folder, run, .. } = store::reopen(&path)?;
                FurtherRun { run, folder: Some(folder) }
            } else {
                FurtherRun { run: store::read_heads(&path)?, folder: None }
            };
            self.copies.push(copy);
        }
        self.queue.note_stored(0, &self.run, self.plan);
        for (number, copy) in (1..).zip(&self.copies) {
            self.queue.note_stored(number, &copy.run, self.plan);
        }
        Ok(())
    }

    /// Discards what is there of units that are there in part, as after one of their repetitions was found damaged: what is missing
    /// would be measured on another machine, or at least at another time, than what it is compared with.
    fn discard_incomplete(&mut self, observer: &mut dyn RemoteObserver) -> Result<()> {
        for number in self.queue.open() {
            let job = &self.queue.jobs[number];
            let (run, folder) = run_of_copy(job.copy, &mut self.run, &mut self.folder, &mut self.copies);
            let Some(folder) = folder.filter(|_| job.is_begun(run)) else { continue };
            let discarded = folder.discard_repetitions(&job.cells);
            discarded.map_err(|error| unkept(folder.path(), &error))?;
            run.repetitions.retain(|one| !job.has(&one.cell));
            let why = self
                .told
                .brief("a repetition of its unit is missing or damaged; all of the unit is measured again");
            observer.not_measured(self.first_cell(number), &why);
        }
        Ok(())
    }

    fn without_repetitions(&self) -> RunRecord {
        let run = &self.run;
        RunRecord {
            schema: run.schema,
            version: run.version.clone(),
            started: run.started.clone(),
            command: run.command.clone(),
            seed: run.seed,
            machine: run.machine.clone(),
            scenario: run.scenario.clone(),
            repetitions: Vec::new(),
            interrupted: false,
            failure: None,
            resumed: Vec::new(),
        }
    }

    /// The number of the run.
    fn id(&self) -> String {
        self.kept.as_ref().map(|kept| kept.run.to_string()).unwrap_or_default()
    }

    /// Takes over what was reported while no driver was there, of a run that no agent can go on with. Fails if units are left: the
    /// `refusal` says why nobody measures them.
    fn take_reported(
        &mut self,
        refusal: &Failure,
        stop: &AtomicBool,
        observer: &mut dyn RemoteObserver,
    ) -> Result<()> {
        self.attempts.fill(self.kept.as_ref().map_or(0, |kept| kept.attempts));
        while self.read_reports(Duration::ZERO, stop, observer)? {}
        // Each part comes, or is given up.
        while !self.postponed.is_empty() && !stop.load(Ordering::Relaxed) {
            self.read_reports(READ, stop, observer)?;
        }
        self.show(observer);
        let open = self.queue.open().len();
        if open == 0 || stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let all = plural(self.queue.jobs.len() as u64, "comparison");
        let message = format!("{open} of {all} are still to be measured: {}", refusal.message);
        Err(Failure { kind: refusal.kind, message }.into())
    }

    /// Opens the run at NATS, and puts all units into the queue that are neither stored nor in it, unless it is to stop.
    fn begin(&mut self, stop: &AtomicBool, observer: &mut dyn RemoteObserver) -> Result<()> {
        let is_resumed = self.kept.is_some();
        let run = match &self.kept {
            Some(kept) => kept.run,
            None => who::random_id().context("the system gave no random numbers")?,
        };
        let attempts = self.kept.as_ref().map_or(0, |kept| kept.attempts + 1);
        let (agents, reproduce) = (self.agents.keys().cloned().collect(), self.reproduce);
        self.attempts.fill(attempts);
        self.keep(KeptRun { run, reproduce, attempts, agents })?;
        self.nats.setup().map_err(failed)?;
        let id = self.id();
        let mut waiting = BTreeMap::new();
        if is_resumed {
            // What was measured while no driver was there.
            while self.read_reports(Duration::ZERO, stop, observer)? {}
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            // Units whose reports were useless are done, or are in a moment.
            let spent: BTreeSet<u32> = self.useless.keys().map(|(unit, _)| *unit).collect();
            let is_reassigned = self.exclude_measured(observer);
            if !is_reassigned && self.is_open_for_the_same_agents(&id)? {
                let units = self.nats.cells().waiting(&id).map_err(failed)?;
                waiting = self.queue.waiting(units.into_iter().filter(|(_, number)| !spent.contains(number)));
            } else {
                self.nats.cells().purge(&id).map_err(failed)?;
            }
        }
        self.given = self.queue.jobs.iter().map(|job| job.class).collect();
        for (&job, &(attempt, class)) in &waiting {
            (self.attempts[job], self.given[job]) = (attempt, class);
        }
        self.announce()?;
        self.is_begun = true;
        for class in &self.queue.classes {
            self.nats.cells().open_class(&id, class.number, ACK_WAIT).map_err(failed)?;
        }
        for job in self.queue.open() {
            if !waiting.contains_key(&job) {
                self.add(job)?;
            }
        }
        self.show(observer);
        Ok(())
    }

    /// Leaves no unit to an agent that has measured the same cells in another copy; whether any was.
    fn exclude_measured(&mut self, observer: &mut dyn RemoteObserver) -> bool {
        let mut runs = vec![&self.run];
        runs.extend(self.copies.iter().map(|copy| &copy.run));
        let changed = self.queue.exclude_measured(&runs);
        for job in &changed {
            if let JobState::Failed(why) = &self.queue.jobs[*job].state {
                let why = self.told.brief(why);
                observer.not_measured(self.first_cell(*job), &why);
            }
        }
        !changed.is_empty()
    }

    /// Sends agents what they must know of the run.
    fn announce(&self) -> Result<()> {
        let id = self.id();
        let line = encode(&self.info(&id)).context("cannot write a message")?;
        self.nats.runs().put(&id, line.into_bytes()).map_err(failed)
    }

    /// Has these agents measure a job from now on.
    fn give(&mut self, job: usize, agents: Vec<String>) -> Result<()> {
        let (class, is_new) = self.queue.class_of(agents);
        self.given[job] = class;
        if is_new {
            self.nats.cells().open_class(&self.id(), class, ACK_WAIT).map_err(failed)?;
            self.announce()?;
        }
        Ok(())
    }

    /// Whether the run is still open, with the same classes of agents: then its queue is as this driver would fill it.
    fn is_open_for_the_same_agents(&self, id: &str) -> Result<bool> {
        let Some(bytes) = self.nats.runs().get(id).map_err(failed)? else { return Ok(false) };
        let info = decode::<RunInfo>(&String::from_utf8_lossy(&bytes));
        Ok(info.is_ok_and(|info| info.classes == self.queue.classes))
    }

    fn info(&self, id: &str) -> RunInfo {
        RunInfo {
            run: id.to_owned(),
            driver: our_name(),
            started: self.run.started.clone(),
            scenario: self.run.scenario.clone(),
            plan_digest: plan_digest(self.plan),
            agents: self.agents.keys().map(ToString::to_string).collect(),
            classes: self.queue.classes.clone(),
            units: self.queue.jobs.len() as u32,
        }
    }

    fn keep(&mut self, kept: KeptRun) -> Result<()> {
        let written = self.folder.keep_agents(&kept);
        written.map_err(|error| unkept(self.folder.path(), &error))?;
        self.kept = Some(kept);
        Ok(())
    }

    /// Puts a job into the queue.
    fn add(&self, job: usize) -> Result<()> {
        let task = self.queue.task(&self.id(), job, self.attempts[job]);
        let line = encode(&task).context("cannot write a message")?;
        let class = self.given[job];
        self.nats.cells().add(&task.run, class, task.unit, line.into_bytes()).map_err(failed)
    }

    /// Asks who is there. Fails if no agent that can measure anything of what is left has answered for long.
    fn check(&mut self, observer: &mut dyn RemoteObserver) -> Result<()> {
        let present = who::ask(&self.nats, ASK).unwrap_or_default();
        // If the connection has ended meanwhile, nobody could answer.
        let is_connected = self.check_connection(observer)?;
        let now = Instant::now();
        self.next_check = now + ASK_EVERY;
        if !is_connected {
            return Ok(());
        }
        for seen in present.agents {
            if let Some(heard) = self.agents.get_mut(&seen.card.name) {
                if std::mem::take(&mut heard.is_told) {
                    observer.notes(&format!("agent {} answers again", seen.card.name));
                }
                heard.at = now;
                heard.busy = seen.card.busy;
            }
        }
        for (name, heard) in &mut self.agents {
            if !heard.is_told && now.duration_since(heard.at) >= SILENT {
                heard.is_told = true;
                let silent = format_duration(SILENT);
                observer.notes(&format!(
                    "agent {name} has not answered for {silent}; a unit that it has goes to another one"
                ));
            }
        }
        self.tell_waiting(now, observer);
        let is_gone = |name: &str| {
            let heard = name.parse().ok().and_then(|name: AgentName| self.agents.get(&name));
            heard.is_none_or(|heard| now.duration_since(heard.at) >= SILENCE_TIMEOUT)
        };
        let Some(able) = self.queue.all_gone(&self.given, is_gone) else { return Ok(()) };
        let message = format!(
            "no agent that can measure what is left ({}) has answered for {}",
            able.into_iter().collect::<Vec<_>>().join(", "),
            format_duration(SILENCE_TIMEOUT)
        );
        Err(Failure { kind: FailureKind::Environment, message }.into())
    }

    /// Closes the run at NATS, so that agents stop, and finishes the folders of further measurements.
    pub fn end(self, outcome: Result<()>, observer: &mut dyn RemoteObserver) -> Ended {
        let is_whole = outcome.is_ok() && !self.run.interrupted;
        let has_measured = |run: &RunRecord| run.repetitions.iter().any(|one| one.unsupported.is_none());
        let is_nothing = outcome.is_err() && !has_measured(&self.run);
        let may_go_on =
            !self.queue.open().is_empty() || self.copies.iter().any(|copy| has_measured(&copy.run));
        let is_left_to_agents = is_nothing && self.is_begun && may_go_on;
        let is_empty = outcome.is_ok() && self.run.interrupted && self.has_nothing();
        // Nobody can resume a run whose folder is deleted.
        let is_over = is_whole || is_empty || (is_nothing && !is_left_to_agents);
        // Without agents it was not opened again: those of its other drivers may go on.
        if self.kept.is_some() && (is_over || !self.agents.is_empty()) {
            let closed = close(&self.nats, &self.id(), is_over);
            if let Err(error) = closed {
                observer.notes(&format!(
                    "the run cannot be closed at NATS, and agents may go on with it: {error}"
                ));
            }
        }
        let outcome = match outcome {
            Err(error) if !is_over && !self.queue.open().is_empty() => Err(self.with_resume(error)),
            outcome => outcome,
        };
        let Self { run, folder, copies, .. } = self;
        let path = folder.path().to_owned();
        let mut finished = folder.clear_incoming();
        for copy in copies.into_iter().filter_map(|copy| copy.folder) {
            finished = finished.and(copy.finish(!is_whole));
        }
        let finished = finished.map_err(|error| unkept(&path, &error));
        Ended { run, folder, outcome: outcome.and(finished), is_left_to_agents, is_empty }
    }

    /// What ended the run, with how it is resumed.
    fn with_resume(&self, error: anyhow::Error) -> anyhow::Error {
        let run = RunRecord { interrupted: true, ..self.without_repetitions() };
        let advice = format!("to go on: {}", resume_line(&run, self.folder.path()));
        match error.downcast::<Failure>() {
            Ok(Failure { kind, message }) => Failure { kind, message: format!("{message}; {advice}") }.into(),
            // The disk of this machine: its words say what to do.
            Err(other) => other,
        }
    }

    /// Whether nothing is stored, and no report waits. If NATS does not say so, there may be one.
    fn has_nothing(&self) -> bool {
        let mut runs = std::iter::once(&self.run).chain(self.copies.iter().map(|copy| &copy.run));
        let is_unread = || {
            let reports = self.nats.reports().read(&self.id(), self.after, Duration::ZERO);
            reports.map_or(true, |reports| !reports.is_empty())
        };
        runs.all(|run| run.repetitions.is_empty()) && self.postponed.is_empty() && !is_unread()
    }
}

/// The run that the jobs of `copy` belong to, with its folder unless that was finished before: this one, or one of the `copies`.
fn run_of_copy<'r>(
    copy: u32,
    run: &'r mut RunRecord,
    folder: &'r mut RunFolder,
    copies: &'r mut [FurtherRun],
) -> (&'r mut RunRecord, Option<&'r mut RunFolder>) {
    match copy.checked_sub(1) {
        None => (run, Some(folder)),
        Some(place) => {
            let copy = &mut copies[place as usize];
            (&mut copy.run, copy.folder.as_mut())
        }
    }
}

/// Closes a run. Reports of one that is not over stay, for whoever resumes it.
pub(super) fn close(nats: &Nats, id: &str, is_over: bool) -> Result<(), NatsError> {
    let closed = nats.runs().delete(id).and(nats.cells().purge(id));
    if !is_over {
        return closed;
    }
    let parts = nats.parts();
    let left = parts.names(&format!("{id}."))?;
    closed.and(nats.reports().purge(id)).and(left.iter().try_for_each(|name| parts.delete(name)))
}
