//! What agents have reported: parts are fetched, checked and stored, and a unit of which nothing can be used is measured again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use h2lab_base::units::format_bytes;
use h2lab_model::fleet::{AgentName, UnitPart};
use h2lab_model::record::{CellRecord, MeasuredOn};
use h2lab_model::scenario::Cell;
use h2lab_nats::{NatsError, StoredReport};

use super::super::import::{self, Expected};
use super::super::queue::{JobState, lacking, measured_in_other_copies};
use super::super::reports::{self, Counted, OfRun};
use super::super::{KeptRun, RemoteObserver, failed};
use super::{Driver, READ, SILENCE_TIMEOUT, run_of_copy};
use crate::run::execute::unkept;
use crate::run::messages::with_causes;
use crate::run::part;
use crate::run::store::StoredElsewhere;

/// A part that does not come is fetched so often at least before it is given up.
const FEWEST_FETCHES: u32 = 3;
/// So many reports of a unit by one agent may be of no use; no more of its parts of that unit are fetched.
const MOST_USELESS: u32 = 5;

/// How long NATS has not answered.
#[derive(Debug, Default)]
pub(super) struct Outage {
    /// The first of the errors in a row.
    since: Option<Instant>,
}

impl Outage {
    /// NATS has answered.
    fn end(&mut self) {
        self.since = None;
    }

    /// It has not; whether that lasts too long.
    fn goes_on(&mut self, now: Instant) -> bool {
        now.saturating_duration_since(*self.since.get_or_insert(now)) >= SILENCE_TIMEOUT
    }
}

/// A report whose part does not come now. Others are handled meanwhile.
#[derive(Debug)]
pub(super) struct Postponed {
    report: StoredReport,
    since: Instant,
    /// How often it was tried.
    fetches: u32,
}

impl Postponed {
    /// Whether the next try is the last.
    fn is_last_fetch(&self, now: Instant) -> bool {
        self.fetches + 1 >= FEWEST_FETCHES && now.saturating_duration_since(self.since) >= SILENCE_TIMEOUT
    }
}

/// What is known of a part.
enum Fetched {
    /// All of its unit is in it.
    Whole(Vec<StoredElsewhere>),
    /// It does not come now.
    Later(NatsError),
    /// It is of no use, in words.
    Useless(String),
}

impl Driver<'_> {
    /// Reads new reports, and handles them until it is to stop: each may be of a part of many megabytes. Whether there may be more to
    /// handle now. Fails if NATS has not answered for long.
    pub(super) fn read_reports(
        &mut self,
        wait: Duration,
        stop: &AtomicBool,
        observer: &mut dyn RemoteObserver,
    ) -> Result<bool> {
        let is_stopped = || stop.load(Ordering::Relaxed);
        self.handle_postponed(observer)?;
        let reports = match self.nats.reports().read(&self.id(), self.after, wait) {
            Ok(reports) => reports,
            Err(error) if passes(&error) && !self.outage.goes_on(Instant::now()) => {
                // Agents go on meanwhile.
                sleep(READ);
                return Ok(!is_stopped());
            }
            Err(error) => return Err(failed(error)),
        };
        self.outage.end();
        let are_there_any = !reports.is_empty();
        for report in reports {
            // What is not handled stays at NATS, for whoever resumes the run.
            if is_stopped() {
                return Ok(false);
            }
            self.after = report.sequence;
            if let Some(error) = self.handle(&report, false, observer)? {
                observer.notes(&format!("a part is fetched later: {error}"));
                self.postponed.push_back(Postponed { report, since: Instant::now(), fetches: 1 });
            }
        }
        Ok(are_there_any && !is_stopped())
    }

    /// Handles the report again that was postponed first.
    fn handle_postponed(&mut self, observer: &mut dyn RemoteObserver) -> Result<()> {
        let Some(mut postponed) = self.postponed.pop_front() else { return Ok(()) };
        let is_last = postponed.is_last_fetch(Instant::now());
        if self.handle(&postponed.report, is_last, observer)?.is_some() {
            postponed.fetches += 1;
            self.postponed.push_back(postponed);
        }
        Ok(())
    }

    /// Handles a report. With an error it has to be handled again later, unless this is the last try.
    fn handle(
        &mut self,
        stored: &StoredReport,
        is_last: bool,
        observer: &mut dyn RemoteObserver,
    ) -> Result<Option<NatsError>> {
        let id = self.id();
        let of = OfRun { run: &id, queue: &self.queue, attempts: &self.attempts, former: &self.former };
        let Counted { agent, job, report } = match reports::counted(stored, &of) {
            Ok(counted) => counted,
            Err(why) => {
                observer.notes(&format!("a report is ignored: {why}"));
                return Ok(None);
            }
        };
        let unit = (report.unit, agent);
        let part = match report.outcome {
            Ok(part) => part,
            Err(why) => {
                self.dismiss(job, unit, &why, observer)?;
                return Ok(None);
            }
        };
        // It was stored before this driver began, another agent was quicker, or this one could not acknowledge the unit and has
        // measured it once more.
        let is_stored = self.queue.jobs[job].state == JobState::Stored;
        if is_stored || self.useless.get(&unit).is_some_and(|useless| *useless >= MOST_USELESS) {
            self.forget(&part);
            return Ok(None);
        }
        let on = MeasuredOn {
            agent: report.agent,
            machine: report.machine,
            likeness: report.likeness,
            host: report.host,
        };
        let likeness = on.likeness.clone();
        let why = match self.fetch(job, &part, on)? {
            Fetched::Whole(repetitions) => {
                self.store(job, repetitions, unit.1.as_str(), observer)?;
                if !self.may_be_unlike {
                    self.likeness.get_or_insert(likeness);
                }
                if report.delivered > 1 {
                    let cell = observer.describe(self.first_cell(job));
                    observer.notes(&format!(
                        "{cell}: given to agents {} times, since one gave it back or ended; {} has measured it",
                        report.delivered, unit.1
                    ));
                }
                self.forget(&part);
                return Ok(None);
            }
            Fetched::Later(error) if !is_last => return Ok(Some(error)),
            Fetched::Later(error) => format!("its part cannot be fetched: {error}"),
            Fetched::Useless(why) => why,
        };
        self.forget(&part);
        self.dismiss(job, unit, &why, observer)?;
        Ok(None)
    }

    /// Fetches a part. Fails if this machine cannot, or may not.
    fn fetch(&mut self, job: usize, part: &UnitPart, on: MeasuredOn) -> Result<Fetched> {
        if let Some(wanted) = self.likeness.as_ref().filter(|wanted| **wanted != on.likeness) {
            let why = format!("its machine is {}, and the others are {wanted}", on.likeness);
            return Ok(Fetched::Useless(why));
        }
        let runs = std::iter::once(&self.run).chain(self.copies.iter().map(|copy| &copy.run));
        if measured_in_other_copies(&self.queue.jobs[job], runs).contains(on.agent.as_str()) {
            return Ok(Fetched::Useless("it has measured the same cells in another copy".to_owned()));
        }
        if let Some(why) = too_large(part) {
            return Ok(Fetched::Useless(why));
        }
        let incoming = self.folder.incoming().map_err(|error| unkept(self.folder.path(), &error))?;
        let file = incoming.join("part.tar");
        match self.nats.parts().get(&part.object, &file, part.bytes) {
            Ok(stored) if (stored.bytes, &stored.digest) == (part.bytes, &part.digest) => {}
            Ok(_) => return Ok(Fetched::Useless("its part is not what it has reported".to_owned())),
            Err(error) if passes(&error) && !self.outage.goes_on(Instant::now()) => {
                return Ok(Fetched::Later(error));
            }
            // The disk of this machine.
            Err(error @ NatsError::Io { .. }) => return Err(unkept(self.folder.path(), &error.into())),
            Err(error) if passes(&error) || is_of_driver(&error) => return Err(failed(error)),
            Err(error) => return Ok(Fetched::Useless(error.to_string())),
        }
        self.outage.end();
        let expected = Expected { plan: self.plan, cells: &self.queue.jobs[job].cells, on };
        match import::read(&file, &incoming.join("run"), &expected) {
            Ok(repetitions) => Ok(Fetched::Whole(repetitions)),
            Err(error) if is_exhausted(&error) => Err(unkept(self.folder.path(), &error)),
            Err(error) => Ok(Fetched::Useless(with_causes(&error))),
        }
    }

    /// Adds the repetitions of a job, of which none is there yet, to the run that it belongs to.
    fn store(
        &mut self,
        job: usize,
        mut repetitions: Vec<StoredElsewhere>,
        agent: &str,
        observer: &mut dyn RemoteObserver,
    ) -> Result<()> {
        let job = &mut self.queue.jobs[job];
        for one in repetitions.iter_mut().map(|one| &mut one.record).filter(|one| one.unsupported.is_some()) {
            // The agent knows of its own machine only.
            one.unsupported = job.unsupported(&one.cell).or_else(|| one.unsupported.take());
        }
        let (run, folder) = run_of_copy(job.copy, &mut self.run, &mut self.folder, &mut self.copies);
        if let Some(folder) = folder {
            folder.import(&repetitions).map_err(|error| unkept(folder.path(), &error))?;
        }
        let records: Vec<CellRecord> = repetitions.into_iter().map(|one| one.record).collect();
        observer.stored(agent, &records);
        run.repetitions.extend(records);
        debug_assert!(lacking(&job.cells, run, self.plan).is_none(), "it was checked");
        job.state = JobState::Stored;
        self.folder.clear_incoming().map_err(|error| unkept(self.folder.path(), &error))
    }

    /// Has a job measured again of which this unit was reported and nothing can be used, unless it was added again since, or was given to
    /// other agents: one that has not the unit could have it added again without end.
    fn dismiss(
        &mut self,
        job: usize,
        unit: (u32, AgentName),
        why: &str,
        observer: &mut dyn RemoteObserver,
    ) -> Result<()> {
        let (number, agent) = (unit.0, unit.1.clone());
        let useless = self.useless.entry(unit).or_default();
        *useless = useless.saturating_add(1);
        if !self.queue.is_with(job, self.attempts[job], self.given[job], number, &agent) {
            return Ok(());
        }
        self.again(job, &agent, why, observer)
    }

    /// Has a job measured again at which this agent has failed, by others where there are any, unless it was tried too often.
    fn again(
        &mut self,
        job: usize,
        agent: &AgentName,
        why: &str,
        observer: &mut dyn RemoteObserver,
    ) -> Result<()> {
        if self.queue.jobs[job].state != JobState::Open {
            return Ok(());
        }
        let able = self.queue.agents_of(job);
        let next = self.failures[job].note(agent, able);
        let (attempt, most) = self.failures[job].attempts(able, next.as_deref().unwrap_or_default());
        let brief = self.told.brief(why);
        let said = format!("attempt {attempt} of {most}, by {agent}, failed: {brief}");
        let Some(next) = next else {
            observer.not_measured(self.first_cell(job), &said);
            let agents = self.failures[job].agents();
            self.queue.jobs[job].state = JobState::Failed(format!("{why} (tried by {agents})"));
            return Ok(());
        };
        self.attempts[job] += 1;
        if let Some(kept) = self.kept.clone().filter(|kept| kept.attempts < self.attempts[job]) {
            self.keep(KeptRun { attempts: self.attempts[job], ..kept })?;
        }
        observer.not_measured(self.first_cell(job), &format!("{said}; it is measured again"));
        self.give(job, next)?;
        self.add(job)
    }

    /// The first cell of a job, by which people know it.
    pub(super) fn first_cell(&self, job: usize) -> &Cell {
        let first = self.queue.jobs[job].cells.first();
        let its = self.plan.iter().find(|cell| first == Some(&(cell.index, cell.repetition)));
        its.unwrap_or(&self.plan[0])
    }

    /// Deletes a part that is not needed; what remains goes when it is 7 days old.
    fn forget(&self, part: &UnitPart) {
        let _ = self.nats.parts().delete(&part.object);
    }
}

/// Why a part is not even fetched.
fn too_large(part: &UnitPart) -> Option<String> {
    let (bytes, most) = (part.bytes, part::MOST_BYTES);
    let why = || format!("its part has {}, and may have {}", format_bytes(bytes), format_bytes(most));
    (bytes > most).then(why)
}

/// Whether an error may be over in a moment, with nothing done.
const fn passes(error: &NatsError) -> bool {
    matches!(error, NatsError::Unreachable { .. } | NatsError::Timeout { .. } | NatsError::Full)
}

/// Whether an error is that of the driver and its server: it would come with any other part as well.
const fn is_of_driver(error: &NatsError) -> bool {
    matches!(
        error,
        NatsError::Denied { .. }
            | NatsError::NoJetStream
            | NatsError::Gone
            | NatsError::Refused { .. }
            | NatsError::Tls { .. }
    )
}

/// Whether it is this machine that cannot take a part over, and not the part that is of no use.
fn is_exhausted(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref().is_some_and(crate::run::messages::is_exhausted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_of_the_connection_passes_and_a_missing_right_does_not() {
        let timeout = NatsError::Timeout { what: "x".to_owned(), after: READ };
        assert!(passes(&timeout) && !is_of_driver(&timeout));
        assert!(passes(&NatsError::Full));
        for error in [NatsError::Denied { subject: "x".into() }, NatsError::NoJetStream, NatsError::Gone] {
            assert!(!passes(&error) && is_of_driver(&error), "{error}");
        }
        let corrupt = NatsError::Corrupt { what: "x".into(), reason: "y".into() };
        let large = NatsError::TooLarge { what: "x".into(), bytes: 2, most: 1 };
        for error in [corrupt, large, NatsError::Absent { what: "x".into() }] {
            assert!(!passes(&error) && !is_of_driver(&error), "the part is of no use: {error}");
        }
    }

    #[test]
    fn a_full_disk_is_ours_and_a_damaged_part_is_not() {
        let full = std::io::Error::from(rustix::io::Errno::NOSPC);
        assert!(is_exhausted(&anyhow::Error::new(full).context("cannot unpack samples.parquet")));
        assert!(!is_exhausted(&anyhow::anyhow!("the part is damaged")));
        let cut = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        assert!(!is_exhausted(&anyhow::Error::new(cut)));
    }

    #[test]
    fn errors_in_a_row_end_the_run_after_a_minute_and_an_answer_begins_the_minute_anew() {
        let (mut outage, begin) = (Outage::default(), Instant::now());
        assert!(!outage.goes_on(begin));
        assert!(!outage.goes_on(begin + SILENCE_TIMEOUT.saturating_sub(Duration::from_nanos(1))));
        assert!(outage.goes_on(begin + SILENCE_TIMEOUT));
        outage.end();
        assert!(!outage.goes_on(begin + SILENCE_TIMEOUT));
        assert!(!outage.goes_on(begin + SILENCE_TIMEOUT * 3 / 2));
        assert!(outage.goes_on(begin + SILENCE_TIMEOUT * 2));
    }

    #[test]
    fn a_part_that_never_comes_is_given_up_after_a_minute_and_three_tries() {
        let since = Instant::now();
        let postponed = |fetches| {
            let report = StoredReport { sequence: 1, agent: "kek-1".to_owned(), payload: Vec::new() };
            Postponed { report, since, fetches }
        };
        assert!(!postponed(1).is_last_fetch(since + SILENCE_TIMEOUT));
        assert!(!postponed(9).is_last_fetch(since + SILENCE_TIMEOUT.saturating_sub(Duration::from_nanos(1))));
        assert!(postponed(2).is_last_fetch(since + SILENCE_TIMEOUT));
    }

    #[test]
    fn a_part_of_more_bytes_than_one_may_have_is_not_fetched() {
        let part =
            |bytes| UnitPart { object: "run.0.1.a".to_owned(), bytes, digest: "SHA-256=AAAA".to_owned() };
        assert_eq!(too_large(&part(part::MOST_BYTES)), None);
        let why = too_large(&part(part::MOST_BYTES + 1)).unwrap();
        assert!(why.starts_with("its part has 64"), "{why}");
    }
}
