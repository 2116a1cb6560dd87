//! The plan executor: one child per repetition, everything on disk after each. Whatever ends a run early, what was measured until
//! then is kept and reported.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use h2lab_analysis::diagnose::waits::Waits;
use h2lab_analysis::stats;
use h2lab_model::fleet::Trust;
use h2lab_model::record::{CellRecord, RunRecord};
use h2lab_model::scenario::{Cell, Target};
use h2lab_model::workload::Protocol;

use super::child::{ChildOutcome, LAB, LOAD, Running, self_command};
use super::messages::{Failure, FailureKind, RepetitionProgress, failure_of, with_causes};
use super::spec::{GeneratorSpec, LabSpec};
use super::store::{self, RunFolder};
use h2lab_lab::sut::OwnConfig;
use h2lab_net::clock::Clock;
use h2lab_net::tcp::Endpoint;

/// How often an invalid repetition is tried again.
pub const MAX_ATTEMPTS: u32 = 3;

/// A live server, resolved.
#[derive(Debug, Clone)]
pub struct LiveServer {
    /// The URL as in the plan.
    pub url: String,
    /// Its address.
    pub address: Endpoint,
    /// Host, and port unless it is the scheme's own.
    pub authority: String,
    /// The name for SNI.
    pub server_name: String,
    /// Protocols that it was found not to speak, and what it did instead.
    pub refused: Vec<(Protocol, String)>,
    /// How long it took for a single response, of the protocols that it speaks in the quickest; `None` before it was asked.
    pub takes: Option<Duration>,
    /// A status other than of success that it answers in every protocol, when it was asked once.
    pub refuses: Option<u16>,
}

impl Live {
    /// Whether a server answers something about the request itself that is no success, such as 404: a rate cannot change that.
    pub fn refuses(&self) -> bool {
        let of_rate = |status: &u16| matches!(status, 429 | 503);
        self.servers.iter().filter_map(|server| server.refuses).any(|status| !of_rate(&status))
    }

    /// How long a single response of the slowest server took.
    pub fn takes(&self) -> Option<Duration> {
        self.servers.iter().filter_map(|server| server.takes).max()
    }
}

/// Live servers, and how to trust those of them that speak TLS.
#[derive(Debug, Clone, Default)]
pub struct Live {
    /// The servers.
    pub servers: Vec<LiveServer>,
    /// What to trust.
    pub tls: Trust,
}

/// What a plan needs besides its cells.
#[derive(Debug)]
pub struct PlanContext<'a> {
    /// Live servers, for cells with [`Target::Url`]; none where all cells are behind the emulated link.
    pub live: &'a Live,
    /// Set by Ctrl-C.
    pub stop: &'a AtomicBool,
    /// The user's configuration of the server that is started; `None`: ours.
    pub own: Option<&'a OwnConfig>,
}

/// Is notified of how the run goes; the command line shows it.
pub trait RunObserver {
    /// A repetition begins: number `k` of `n`.
    fn begins(&mut self, k: usize, n: usize, cell: &Cell, attempt: u32);
    /// Progress of the repetition.
    fn progress(&mut self, progress: &RepetitionProgress);
    /// The repetition ended and is invalid; `doubts` says why.
    fn invalid(&mut self, cell: &Cell, doubts: &[String]);
    /// The repetition is made, the k-th of the plan, after as many tries as it took.
    fn finished(&mut self, k: usize, record: &CellRecord);
    /// The repetition could not be made: the server does not speak the cell's protocol.
    fn failed(&mut self, cell: &Cell, failure: &Failure);
}

/// What is said of a run that the user ended before anything was measured.
pub const NOTHING_MEASURED: &str = "nothing was measured, and no run folder is kept";

/// How a run ended.
#[derive(Debug)]
pub struct Executed {
    /// All that was measured, and the cells that could not be; of repetitions tried again only the last try.
    pub run: RunRecord,
    /// Where the run folder is, or was: none is left of a run without any repetition that was made here.
    pub folder: PathBuf,
    /// Why the run ended before its plan did, or is not kept whole; `None` also if it was interrupted.
    pub failure: Option<anyhow::Error>,
}

/// Makes the repetitions of `plan` that `run` has not, in order, and adds them to `folder`. A failed request never fails a run,
/// and what fails a run in its middle is described in [`Executed::failure`], beside what was measured before. Fails if nothing
/// could be measured. Nothing is left of the folder then, nor if the user ended the run before its first repetition was made.
pub fn execute(
    run: RunRecord,
    plan: &[Cell],
    folder: RunFolder,
    context: &PlanContext<'_>,
    observer: &mut dyn RunObserver,
) -> Result<Executed> {
    let mut plan = Some(plan.to_vec());
    execute_rounds(run, &mut |_| plan.take().unwrap_or_default(), folder, context, observer)
}

/// The same in rounds: `next` gives the repetitions of each by what was measured until then, and none at the end.
pub fn execute_rounds(
    mut run: RunRecord,
    next: &mut dyn FnMut(&RunRecord) -> Vec<Cell>,
    mut folder: RunFolder,
    context: &PlanContext<'_>,
    observer: &mut dyn RunObserver,
) -> Result<Executed> {
    let mut ended = Ok(());
    while ended.is_ok() && !run.interrupted {
        let plan = next(&run);
        if plan.is_empty() {
            break;
        }
        ended = measure_all(&mut run, &plan, &mut folder, context, observer);
    }
    let executed = finish(run, folder, ended)?;
    if executed.run.repetitions.is_empty() {
        // The folder would look like that of a run with results. Once more if that fails, since programs of a lab that is being killed
        // may have written meanwhile; an error in tidying up does not matter.
        let _ = store::discard(&executed.folder).or_else(|_| store::discard(&executed.folder));
    }
    Ok(executed)
}

/// Makes all repetitions of `plan`, a part of a run that another machine pools with others, and finishes `folder`. That nothing could
/// be measured, since servers do not speak what was asked, is a result here. Fails if anything else was in the way; what the folder
/// has is of no use then.
#[cfg(feature = "nats")]
pub fn execute_part(
    mut run: RunRecord,
    plan: &[Cell],
    mut folder: RunFolder,
    context: &PlanContext<'_>,
    observer: &mut dyn RunObserver,
) -> Result<RunRecord> {
    let path = folder.path().to_owned();
    measure_all(&mut run, plan, &mut folder, context, observer)?;
    folder.finish(run.interrupted).map_err(|error| unkept(&path, &error))?;
    Ok(run)
}

/// Finishes the folder of a run whose measurements have `ended`. Fails if nothing could be measured; nothing is left of the folder
/// then.
pub fn finish(mut run: RunRecord, mut folder: RunFolder, ended: Result<()>) -> Result<Executed> {
    let path = folder.path().to_owned();
    run.interrupted |= ended.is_err();
    let why = ended.as_ref().err().map(failure_of);
    run.failure = why.as_ref().map(|why| why.message.clone());
    folder.fail(why);
    let finished = folder.finish(run.interrupted);
    let is_measured = run.repetitions.iter().any(|repetition| repetition.unsupported.is_none());
    let failure = match ended {
        // That the folder cannot be written is not to say that what was measured is kept there.
        Err(error) if is_measured && error.downcast_ref::<Unkept>().is_none() => {
            Some(error.context(format!("what was measured before is kept in {}", path.display())))
        }
        Err(error) => Some(error),
        Ok(()) if is_measured => finished.err().map(|error| unkept(&path, &error)),
        Ok(()) => unspoken(&run).map(anyhow::Error::new),
    };
    match failure {
        Some(error) if !is_measured => {
            // The folder, which was empty before, would only be litter. The error matters more than one in tidying up.
            let _ = store::discard(&path);
            Err(error)
        }
        failure => Ok(Executed { run, folder: path, failure }),
    }
}

/// Makes the repetitions and adds them to run and folder, until the end, a failure, or the user's word.
fn measure_all(
    run: &mut RunRecord,
    plan: &[Cell],
    folder: &mut RunFolder,
    context: &PlanContext<'_>,
    observer: &mut dyn RunObserver,
) -> Result<()> {
    let clock_origin_ns = Clock::start().origin_ns();
    for (k, cell) in plan.iter().enumerate() {
        if run.has(cell) {
            continue;
        }
        let mut doubtful = None;
        let measured_repetition =
            repetition(cell, (k, plan.len()), clock_origin_ns, folder, context, observer, &mut doubtful);
        // If the retry meant to replace it failed, a doubtful repetition is reported as such rather than lost.
        if let (Err(_) | Ok(None), Some(doubtful)) = (&measured_repetition, doubtful) {
            keep(run, folder, doubtful)?;
        }
        match measured_repetition {
            Ok(Some(measured_repetition)) => {
                observer.finished(k, &measured_repetition.record);
                keep(run, folder, measured_repetition)?;
            }
            Ok(None) => {
                run.interrupted = true;
                return Ok(());
            }
            Err(error) => {
                let record = unsupported(cell, ended(cell, run, error), observer)?;
                keep(run, folder, Measured { record, waits: None })?;
            }
        }
    }
    Ok(())
}

/// A repetition that was made.
#[derive(Debug)]
struct Measured {
    record: CellRecord,
    /// What its slow requests waited for, if that was asked.
    waits: Option<Waits>,
}

/// Adds a repetition to the run and to its folder. What its slow requests waited for is read from there again when it is
/// reported.
fn keep(run: &mut RunRecord, folder: &mut RunFolder, measured_repetition: Measured) -> Result<()> {
    let kept = folder.add_explained(&measured_repetition.record, measured_repetition.waits.as_ref());
    run.repetitions.push(measured_repetition.record);
    kept.map_err(|error| unkept(folder.path(), &error))
}

/// The record of a cell that its server does not speak; any other error remains one.
fn unsupported(cell: &Cell, error: anyhow::Error, observer: &mut dyn RunObserver) -> Result<CellRecord> {
    let failure: Failure = error.downcast()?;
    if failure.kind != FailureKind::Unsupported {
        return Err(failure.into());
    }
    observer.failed(cell, &failure);
    Ok(CellRecord::unsupported(cell.clone(), failure.message))
}

/// That a live server cannot be reached any more which answered requests of this run: then it has ended, whether that was while it was
/// measured or between two repetitions. Any other error remains one.
fn ended(cell: &Cell, run: &RunRecord, error: anyhow::Error) -> anyhow::Error {
    let has_answered = |repetition: &CellRecord| {
        repetition.cell.target == cell.target
            && (repetition.samples.iter().any(|sample| sample.outcome.is_complete())
                || repetition.tallies.iter().any(|tally| tally.class.outcome.is_complete()))
    };
    let is_gone = matches!(cell.target, Target::Url { .. })
        && error.downcast_ref::<Failure>().is_some_and(|failure| failure.kind == FailureKind::Unreachable)
        && run.repetitions.iter().any(has_answered);
    if !is_gone {
        return error;
    }
    let message = format!("the server can no longer be reached: {error}");
    Failure { kind: FailureKind::Ended, message }.into()
}

/// Why nothing was measured although nothing failed; `None` if the user ended the run before its first repetition.
fn unspoken(run: &RunRecord) -> Option<Failure> {
    let message = run.repetitions.iter().find_map(|repetition| repetition.unsupported.clone())?;
    Some(Failure { kind: FailureKind::Unsupported, message })
}

/// The run folder cannot be written: the disk is full, or it was removed.
#[derive(Debug, thiserror::Error)]
#[error("the run cannot be kept in {0}")]
struct Unkept(String);

/// Why `folder` cannot be written, which it names once.
pub fn unkept(folder: &Path, error: &anyhow::Error) -> anyhow::Error {
    let folder = folder.display().to_string();
    let message = with_causes(error).replace(&format!("{folder}/"), "");
    let failure = Failure { kind: FailureKind::Environment, message };
    anyhow::Error::new(failure).context(Unkept(folder))
}

/// One repetition, tried again while its measurement is invalid. `None` if stopped. `doubtful` is left with the last try whose
/// measurement was invalid.
fn repetition(
    cell: &Cell,
    (k, n): (usize, usize),
    clock_origin_ns: u64,
    folder: &RunFolder,
    context: &PlanContext<'_>,
    observer: &mut dyn RunObserver,
    doubtful: &mut Option<Measured>,
) -> Result<Option<Measured>> {
    let mut attempt = 0;
    loop {
        observer.begins(k, n, cell, attempt);
        let mut child = start(cell, clock_origin_ns, folder, context)?;
        let incoming = match child.receive(context.stop, &mut |progress| observer.progress(progress)) {
            Ok(ChildOutcome::Done(incoming)) => incoming,
            Ok(ChildOutcome::Stopped) => return Ok(None),
            Err(error) if attempt + 1 < MAX_ATTEMPTS && was_killed(&error) => {
                observer.invalid(cell, &[error.to_string()]);
                attempt += 1;
                continue;
            }
            Err(error) => return Err(error),
        };
        child.finish()?;
        let (record, waits) = incoming.finish(cell.clone(), attempt)?;
        let doubts = stats::invalid_reasons(&record);
        if !doubts.is_empty() {
            observer.invalid(cell, &doubts);
        }
        attempt += 1;
        if doubts.is_empty() || attempt == MAX_ATTEMPTS || context.stop.load(Ordering::Relaxed) {
            return Ok(Some(Measured { record, waits }));
        }
        *doubtful = Some(Measured { record, waits });
    }
}

/// Whether a process of ours was killed while it measured.
fn was_killed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Failure>().is_some_and(|failure| failure.kind == FailureKind::Killed)
}

/// Starts the child that makes the repetition: a lab, or the generator alone over a real network.
fn start(
    cell: &Cell,
    clock_origin_ns: u64,
    folder: &RunFolder,
    context: &PlanContext<'_>,
) -> Result<Running> {
    match &cell.target {
        Target::Url { url } => {
            let mut servers = context.live.servers.iter();
            let server = servers.find(|server| server.url == *url).context("a URL that was not resolved")?;
            if let Some((_, why)) = server.refused.iter().find(|(protocol, _)| *protocol == cell.protocol) {
                return Err(Failure { kind: FailureKind::Unsupported, message: why.clone() }.into());
            }
            let spec = GeneratorSpec {
                cell: cell.clone(),
                address: server.address.clone(),
                authority: server.authority.clone(),
                server_name: server.server_name.clone(),
                tls: context.live.tls.clone(),
                clock_origin_ns,
                cpu: None,
            };
            Running::start(self_command(LOAD), &spec)
        }
        Target::Origin | Target::Sut { .. } => {
            let logs = folder.path().join("logs");
            std::fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
            let spec = LabSpec {
                cell: cell.clone(),
                clock_origin_ns,
                logs: std::path::absolute(&logs)?,
                scratch: std::path::absolute(folder.path())?,
                pcap: cell.capture.pcap.then(|| folder.next_pcap(cell)).transpose()?,
                own: context.own.cloned(),
            };
            Running::start(self_command(LAB), &spec)
        }
    }
}

#[cfg(test)]
mod tests {
    use h2lab_model::record::testing::{Model, cell, one_repetition, run};

    use super::super::messages::MissingRequirement;
    use super::*;

    /// Sees nothing: no repetition is made here.
    struct Unseen;

    impl RunObserver for Unseen {
        fn begins(&mut self, _: usize, _: usize, _: &Cell, _: u32) {}
        fn progress(&mut self, _: &RepetitionProgress) {}
        fn invalid(&mut self, _: &Cell, _: &[String]) {}
        fn finished(&mut self, _: usize, _: &CellRecord) {}
        fn failed(&mut self, _: &Cell, _: &Failure) {}
    }

    /// Executes a run in `path` that has these repetitions, and is to make no other one.
    fn executed(path: &Path, repetitions: Vec<CellRecord>) -> Executed {
        let mut folder = RunFolder::create(path, &run(Vec::new())).unwrap();
        for one in &repetitions {
            folder.add(one).unwrap();
        }
        let (live, stop) = (Live::default(), AtomicBool::new(true));
        let context = PlanContext { live: &live, stop: &stop, own: None };
        let run = RunRecord { interrupted: true, ..run(repetitions) };
        execute(run, &[], folder, &context, &mut Unseen).unwrap()
    }

    fn repetition() -> CellRecord {
        one_repetition(&cell(0, 0, Protocol::H1, 4, 0.0), 0, &Model::CLEAN)
    }

    #[test]
    fn a_run_that_is_ended_before_its_first_repetition_leaves_no_folder() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        let ended = executed(&path, Vec::new());
        assert!(ended.failure.is_none() && ended.folder == path && !path.exists());
    }

    #[test]
    fn a_run_that_is_ended_after_its_first_repetition_is_kept_and_can_be_resumed() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        executed(&path, vec![repetition()]);
        let again = store::reopen(&path).unwrap();
        assert_eq!((again.run.repetitions.len(), again.discarded.len()), (1, 0));
    }

    #[test]
    fn an_error_before_the_first_repetition_leaves_no_folder_and_one_after_it_leaves_what_was_measured() {
        let parent = tempfile::tempdir().unwrap();
        let ended = |name: &str, repetitions: Vec<CellRecord>| {
            let path = parent.path().join(name);
            let mut folder = RunFolder::create(&path, &run(Vec::new())).unwrap();
            for one in &repetitions {
                folder.add(one).unwrap();
            }
            let ended = finish(run(repetitions), folder, Err(anyhow::anyhow!("why")));
            (ended, path.exists())
        };
        let (nothing, is_there) = ended("nothing", Vec::new());
        assert!(nothing.is_err() && !is_there);
        let (something, is_there) = ended("something", vec![repetition()]);
        assert!(something.unwrap().failure.is_some() && is_there);
        let kept = store::read_heads(&parent.path().join("something")).unwrap();
        assert_eq!((kept.interrupted, kept.failure.as_deref()), (true, Some("why")));
    }

    #[test]
    fn a_folder_keeps_what_ended_its_run_so_that_reading_it_has_the_same_exit_code() {
        let parent = tempfile::tempdir().unwrap();
        let kept = |name: &str, ended: Result<()>| {
            let path = parent.path().join(name);
            let mut folder = RunFolder::create(&path, &run(Vec::new())).unwrap();
            folder.add(&repetition()).unwrap();
            finish(run(vec![repetition()]), folder, ended).unwrap();
            store::read_failure(&path).unwrap()
        };
        assert_eq!(kept("whole", Ok(())), None);
        let gone = Failure { kind: FailureKind::Ended, message: "gone".to_owned() };
        let error = anyhow::Error::new(gone.clone()).context("kept in x");
        assert_eq!(kept("gone", Err(error)), Some(gone));
        let full = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let full = kept("full", Err(anyhow::Error::new(full).context("cannot write x")));
        assert_eq!(full.map(|failure| failure.kind), Some(FailureKind::Environment));
        let missing = kept("missing", Err(MissingRequirement("no namespaces".to_owned()).into()));
        assert_eq!(missing.map(|failure| failure.kind), Some(FailureKind::Environment));
        #[cfg(feature = "nats")]
        {
            let refused = kept("refused", Err(h2lab_nats::NatsError::NoJetStream.into()));
            assert_eq!(refused.map(|failure| failure.kind), Some(FailureKind::Environment));
        }
    }

    #[test]
    fn what_others_have_put_into_the_folder_of_a_run_without_a_result_stays() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("thesis.txt"), "mine").unwrap();
        executed(&path, Vec::new());
        let left: Vec<_> = path.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["thesis.txt"]);
    }
}
