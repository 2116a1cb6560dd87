//! A run whose cells agents on other machines measure: the driver.
//!
//! The driver puts the units of the plan into a queue of `JetStream`, reads the reports of agents, and takes over what they measured into
//! its own run folder. It decides nothing that agents need while they work: it may be killed and resume the run, and finds what was
//! measured meanwhile. The number of the run, by which all of this is found, is kept in the run folder.
//!
//! Nothing is counted twice: a unit is stored as a whole or not at all, and only if it is not there yet.

mod driver;
mod failures;
mod import;
mod leave;
mod queue;
mod reports;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use h2lab_base::counts::plural;
use h2lab_model::fleet::queue::units;
use h2lab_model::fleet::{AgentCard, AgentName, RandomId};
use h2lab_model::record::{CellRecord, RunRecord};
use h2lab_model::scenario::Cell;
use h2lab_nats::{Nats, NatsError};
use serde::{Deserialize, Serialize};

use super::agent::who::{self, Present};
use super::execute::{self, Executed};
use super::messages::{Failure, FailureKind};
use super::store::{self, RunFolder};
use driver::{Driver, Ended};
pub use leave::DrivenRun;
use queue::{Queue, QueueRefusal};

/// How long agents may take to answer who is there.
const ASK: Duration = Duration::from_secs(1);

/// What a run folder keeps of the agents that make the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptRun {
    /// Its number at NATS.
    pub run: RandomId,
    /// By how many machines each comparison is made.
    pub reproduce: u32,
    /// The highest attempt of a unit: see `Queue::number`.
    pub attempts: u32,
    /// The agents, as they were named last.
    pub agents: Vec<AgentName>,
}

/// What was asked.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The agents that may measure.
    pub agents: Vec<AgentName>,
    /// By how many machines each comparison is to be made, 1 or more.
    pub reproduce: u32,
    /// Whether machines may be unlike.
    pub may_be_unlike: bool,
    /// The NATS servers, as they are shown.
    pub servers: String,
}

/// Is notified of how the run goes; the command line shows it.
pub trait RemoteObserver {
    /// So many of all repetitions are stored here.
    fn stands(&mut self, stored: usize, all: usize);
    /// What an agent measured was taken over.
    fn stored(&mut self, agent: &str, records: &[CellRecord]);
    /// The unit with this cell was not measured.
    fn not_measured(&mut self, cell: &Cell, why: &str);
    /// Something else that the user should know.
    fn notes(&mut self, words: &str);
    /// What the run waits for, or that it goes on: nothing is wrong.
    fn waits(&mut self, words: &str);
    /// The words by which the user knows a cell.
    fn describe(&self, cell: &Cell) -> String;
}

/// A run that can begin: its agents are there, and each unit can be measured by at least one of them; or agents have measured
/// for it before, and what they have reported can be fetched.
pub struct ReadyRun {
    nats: Nats,
    /// None if it is refused.
    cards: Vec<AgentCard>,
    queue: Queue,
    asked: Asked,
    /// Why no agent can measure what is left once all reports are fetched.
    refused: Option<Failure>,
}

impl ReadyRun {
    /// How many repetitions of the plan are measured: without cells whose program no agent of their unit has.
    pub fn to_measure(&self, plan: &[Cell]) -> usize {
        let own = || self.queue.jobs.iter().filter(|job| job.copy == 0);
        let is_measured = |cell: &&Cell| own().any(|job| job.has(cell) && job.unsupported(cell).is_none());
        plan.iter().filter(is_measured).count()
    }

    /// Finds the agents that were asked for. `measured` is what a run that is resumed has already, and `kept` what its folder has of
    /// its agents. If nothing may be left of that to measure, it can begin without any agent.
    pub fn find(
        nats: Nats,
        asked: Asked,
        plan: &[Cell],
        measured: &[CellRecord],
        kept: Option<&KeptRun>,
        observer: &mut dyn RemoteObserver,
    ) -> Result<Self> {
        let Present { agents, doubts } = who::ask_for(&nats, &asked.agents)?;
        for doubt in &doubts {
            observer.notes(doubt);
        }
        let find = |name: &AgentName| agents.iter().find(|seen| seen.card.name == *name);
        let cards: Vec<AgentCard> =
            asked.agents.iter().filter_map(find).map(|seen| seen.card.clone()).collect();
        let silent = asked.agents.iter().filter(|name| !cards.is_empty() && find(name).is_none());
        for name in silent {
            observer.notes(&format!("agent {name} does not answer; the others measure"));
        }
        match queue_of(&cards, &asked, plan, measured, observer) {
            Ok((queue, unsupported)) => {
                let repetition = repetition_note(&cards, asked.reproduce);
                unsupported.iter().chain(&repetition).for_each(|words| observer.notes(words));
                Ok(Self { nats, cards, queue, asked, refused: None })
            }
            Err(refusal) if kept.is_some_and(|kept| may_be_whole(&nats, kept, plan, measured)) => {
                let queue = Queue::unassigned(plan, asked.reproduce);
                Ok(Self { nats, cards: Vec::new(), queue, asked, refused: Some(refusal) })
            }
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// The run of `folder`, for whoever may have to leave it.
    pub fn driven_in(&self, folder: &RunFolder) -> DrivenRun {
        DrivenRun::new(self.nats.clone(), folder.path().to_owned())
    }

    /// Agents that are there and can measure; none if reports can be fetched only.
    pub fn agents(&self) -> impl Iterator<Item = &AgentName> {
        self.cards.iter().map(|card| &card.name)
    }

    /// Has agents measure what `run` lacks of `plan`, and adds it to `folder`. `kept` is what the folder of a resumed run has of its
    /// agents. As [`execute::execute`], it fails if nothing could be measured, and else describes what ended the run early; the
    /// folder stays where agents may have measured for it, since it says where that is found. None is left of a run that the
    /// user has ended before anything was measured. It also fails, and the folder stays as it is, if these machines are unlike
    /// those that have measured the plan a further time.
    pub fn execute(
        self,
        run: RunRecord,
        plan: &[Cell],
        folder: RunFolder,
        kept: Option<KeptRun>,
        stop: &AtomicBool,
        observer: &mut dyn RemoteObserver,
    ) -> Result<Executed> {
        if !self.asked.may_be_unlike {
            check_likeness(&self.cards, &measured_further(folder.path(), self.asked.reproduce)?)?;
        }
        let mut driver = Driver::new(self, run, plan, folder, kept);
        let ended = driver.work(stop, observer);
        match driver.end(ended, observer) {
            Ended { folder, outcome: Err(error), is_left_to_agents: true, .. } => {
                let _ = folder.finish(true); // what ended the run matters more
                Err(error.context("no comparison is stored here yet"))
            }
            Ended { run, folder, is_empty: true, .. } => {
                let path = folder.path().to_owned();
                // It would look like a run with results. An error in tidying up does not matter.
                let _ = folder.finish(true).and(store::discard(&path));
                Ok(Executed { run, folder: path, failure: None })
            }
            Ended { run, folder, outcome, .. } => execute::finish(run, folder, outcome),
        }
    }
}

/// The units of a run, and which of these agents can measure each; with it what is reported of cells that are
/// unsupported. Refuses agents that cannot make the run.
fn queue_of(
    cards: &[AgentCard],
    asked: &Asked,
    plan: &[Cell],
    measured: &[CellRecord],
    observer: &dyn RemoteObserver,
) -> Result<(Queue, Vec<String>), Failure> {
    check_versions(cards)?;
    if !asked.may_be_unlike {
        check_likeness(cards, measured)?;
    }
    if cards.is_empty() {
        let message = "none of these agents answers: `h2lab agents` lists those that are there".to_owned();
        return Err(Failure { kind: FailureKind::Unreachable, message });
    }
    let queue = Queue::new(plan, cards, asked.reproduce).map_err(|refusal| {
        let message = match &refusal {
            QueueRefusal::Unmet(unmet) => match first_cell(plan, unmet.unit) {
                Some(cell) => {
                    format!("no agent can measure {}: {}", observer.describe(cell), unmet.why.join("; "))
                }
                None => refusal.to_string(),
            },
            QueueRefusal::TooFewAgents { .. } => refusal.to_string(),
        };
        Failure { kind: FailureKind::Environment, message }
    })?;
    let unsupported = unsupported(&queue, plan, measured);
    let is_silent = |name: &&AgentName| cards.iter().all(|card| card.name != **name);
    // A cell that was found unsupported is not measured by `--resume` either: an agent that is only late must not decide it.
    match (unsupported.first(), asked.agents.iter().find(is_silent)) {
        (Some(words), Some(silent)) => {
            let advice = "which does not answer, may have it: start it, or omit it from --agents";
            let message = format!("{words}; agent {silent}, {advice}");
            Err(Failure { kind: FailureKind::Environment, message })
        }
        _ => Ok((queue, unsupported)),
    }
}

/// How many cells are unsupported for each reason, in words, of those of which nothing is `measured` yet: those of the run itself,
/// and those that it alone measures.
fn unsupported(queue: &Queue, plan: &[Cell], measured: &[CellRecord]) -> Vec<String> {
    let mut known: BTreeSet<u32> = measured.iter().map(|one| one.cell.index).collect();
    let mut reasons: BTreeMap<(bool, String), u64> = BTreeMap::new();
    // The jobs of the run itself are the first ones.
    for job in queue.jobs.iter().filter(|job| !job.missing.is_empty()) {
        for cell in plan.iter().filter(|cell| job.has(cell)) {
            let Some(why) = job.unsupported(cell).filter(|_| known.insert(cell.index)) else { continue };
            *reasons.entry((job.copy > 0, why)).or_default() += 1;
        }
    }
    let words = |((is_again, why), cells): ((bool, String), u64)| {
        let what = if is_again { "not measured again" } else { "unsupported, also if the run is resumed" };
        format!("{} {what}: {why}", plural(cells, "cell"))
    };
    reasons.into_iter().map(words).collect()
}

/// What users should know of agents that are asked to reproduce each other on fewer machines than that takes.
fn repetition_note(cards: &[AgentCard], reproduce: u32) -> Option<String> {
    let machines: BTreeSet<usize> = queue::machines(cards).into_iter().collect();
    (machines.len() < reproduce as usize).then(|| {
        format!(
            "these agents run on {}, and --reproduce {reproduce} is for as many machines: what agents of one machine \
             measure is a repetition, not a reproduction",
            plural(machines.len() as u64, "machine")
        )
    })
}

/// The first cell of a unit of this number, by which people know it.
fn first_cell(plan: &[Cell], unit: u32) -> Option<&Cell> {
    let units = units(plan);
    let first = units.iter().find(|one| one.number == unit)?.cells.first()?;
    plan.iter().find(|cell| (cell.index, cell.repetition) == *first)
}

/// Whether a run may be whole without another measurement: something of it is reported, or all of it is stored.
fn may_be_whole(nats: &Nats, kept: &KeptRun, plan: &[Cell], measured: &[CellRecord]) -> bool {
    let is_stored = |cell: &Cell| {
        let is_of = |one: &CellRecord| {
            one.cell.index == cell.index
                && (one.cell.repetition == cell.repetition || one.unsupported.is_some())
        };
        measured.iter().any(is_of)
    };
    let reports = || nats.reports().read(&kept.run.to_string(), 0, Duration::ZERO);
    plan.iter().all(is_stored) || reports().is_ok_and(|reports| !reports.is_empty())
}

/// The command that resumes a run which is not whole, of this folder.
fn resume_line(run: &RunRecord, folder: &Path) -> String {
    let folder = folder.display().to_string();
    h2lab_report::resume_line(run, &folder).unwrap_or_else(|| format!("h2lab run --resume {folder}"))
}

/// What was measured further times of a plan that so many machines are to measure, without its bulk.
fn measured_further(folder: &Path, reproduce: u32) -> Result<Vec<CellRecord>> {
    let folders = (1..reproduce).map(|copy| store::reproduction(folder, copy));
    let mut measured = Vec::new();
    for folder in folders.filter(|folder| folder.join("run.json").exists()) {
        measured.extend(store::read_heads(&folder)?.repetitions);
    }
    Ok(measured)
}

/// An error of NATS, with whose fault it is. A file of this machine is its own.
fn failed(error: NatsError) -> anyhow::Error {
    let kind = match error {
        NatsError::Io { .. } => return error.into(),
        NatsError::Unreachable { .. } | NatsError::Timeout { .. } | NatsError::Gone | NatsError::Full => {
            FailureKind::Unreachable
        }
        _ => FailureKind::Environment,
    };
    Failure { kind, message: error.to_string() }.into()
}

/// Refuses agents of another version: they would measure other cells, or in another way.
fn check_versions(cards: &[AgentCard]) -> Result<(), Failure> {
    let own = env!("CARGO_PKG_VERSION");
    match cards.iter().find(|card| card.version != own) {
        Some(card) => Err(Failure {
            kind: FailureKind::Environment,
            message: format!(
                "agent {} is h2lab {}, and this is {own}: install the same version at both",
                card.name, card.version
            ),
        }),
        None => Ok(()),
    }
}

/// Refuses machines whose figures may not be compared, with each other or with those that have `measured` before.
fn check_likeness(cards: &[AgentCard], measured: &[CellRecord]) -> Result<(), Failure> {
    let before = measured.iter().filter_map(|one| one.machine.as_ref());
    let mut kinds: BTreeSet<(String, String)> =
        before.map(|machine| (machine.likeness.clone(), machine.agent.clone())).collect();
    kinds.extend(cards.iter().map(|card| (card.likeness(), card.name.to_string())));
    let likenesses: BTreeSet<&String> = kinds.iter().map(|(likeness, _)| likeness).collect();
    if likenesses.len() < 2 {
        return Ok(());
    }
    let names = |kind: &String| {
        let of_kind = kinds.iter().filter(|(likeness, _)| likeness == kind).map(|(_, agent)| agent.as_str());
        format!("{} ({kind})", of_kind.collect::<Vec<_>>().join(", "))
    };
    let kinds: Vec<String> = likenesses.into_iter().map(names).collect();
    Err(Failure {
        kind: FailureKind::Usage,
        message: format!(
            "these machines are unlike: {}; name agents on machines that are alike, or give --unlike-machines (each comparison \
             still stays on one machine)",
            kinds.join("; ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::fleet::testing::agent_card;
    use h2lab_model::record::{HostId, MeasuredOn};

    fn card(name: &str, cpus: u32) -> AgentCard {
        AgentCard { cpus, ..agent_card(name) }
    }

    #[test]
    fn machines_that_are_unlike_are_refused_by_name_and_kind() {
        assert!(check_likeness(&[card("a", 8), card("b", 8)], &[]).is_ok());
        let refused = check_likeness(&[card("a", 8), card("b", 4), card("c", 8)], &[]).unwrap_err();
        assert_eq!(refused.kind, FailureKind::Usage);
        for words in ["a, c (h2lab", "b (h2lab", "4 × EPYC", "--unlike-machines"] {
            assert!(refused.message.contains(words), "{words}: {refused}");
        }
    }

    #[test]
    fn who_has_agents_of_one_machine_reproduce_each_other_is_told_before() {
        let on = |name: &str, host: &str| AgentCard { host: HostId::new(host), ..card(name, 8) };
        let note = repetition_note(&[on("a", "x"), on("b", "x")], 2).unwrap();
        assert!(note.starts_with("these agents run on 1 machine, and --reproduce 2 "), "{note}");
        assert_eq!(repetition_note(&[on("a", "x"), on("b", "y")], 2), None);
        assert_eq!(repetition_note(&[on("a", ""), on("b", "")], 2), None, "it is not known");
        assert_eq!(repetition_note(&[on("a", "x"), on("b", "x")], 1), None, "none was asked for");
    }

    /// A repetition that was measured by this machine.
    fn before(card: &AgentCard) -> CellRecord {
        let mut record = CellRecord::empty(h2lab_model::scenario::Scenario::default().plan()[0].clone());
        record.machine = Some(MeasuredOn {
            agent: card.name.to_string(),
            machine: card.machine.clone(),
            likeness: card.likeness(),
            host: card.host.clone(),
        });
        record
    }

    #[test]
    fn a_run_that_is_resumed_goes_on_with_machines_like_those_before() {
        assert!(check_likeness(&[card("b", 8)], &[before(&card("a", 8))]).is_ok());
        assert!(check_likeness(&[card("b", 8)], &[before(&card("a", 4))]).is_err());
    }

    #[test]
    fn machines_of_further_measurements_are_compared_with_those_that_go_on() {
        let parent = tempfile::tempdir().unwrap();
        assert!(measured_further(parent.path(), 3).unwrap().is_empty());
        let run = h2lab_model::record::testing::run(Vec::new());
        let mut folder = RunFolder::create(&store::reproduction(parent.path(), 2), &run).unwrap();
        folder.add(&before(&card("a", 4))).unwrap();
        drop(folder);
        assert!(measured_further(parent.path(), 2).unwrap().is_empty(), "it is not of this run");
        let measured = measured_further(parent.path(), 3).unwrap();
        assert!(check_likeness(&[card("b", 4)], &measured).is_ok());
        assert!(check_likeness(&[card("b", 8)], &measured).is_err());
    }

    /// An observer that ignores everything.
    struct IgnoringObserver;

    impl RemoteObserver for IgnoringObserver {
        fn stands(&mut self, _stored: usize, _all: usize) {}
        fn stored(&mut self, _agent: &str, _records: &[CellRecord]) {}
        fn not_measured(&mut self, _cell: &Cell, _why: &str) {}
        fn notes(&mut self, _words: &str) {}
        fn waits(&mut self, _words: &str) {}
        fn describe(&self, cell: &Cell) -> String {
            cell.label()
        }
    }

    #[test]
    fn cells_whose_program_no_agent_has_are_told_once_and_an_agent_that_is_silent_may_have_it() {
        let text = "repetitions = 2\n[link]\ndelay = ['1ms', '5ms']\n[matrix]\norigin = ['origin', 'caddy']\n\
                    protocols = 'h1'\nconnections = 1";
        let plan = h2lab_model::scenario::Scenario::from_toml(text).unwrap().plan();
        let (isolation, allow) = (Some("full".to_owned()), vec!["lab".to_owned()]);
        let congestion = vec!["cubic".to_owned()];
        let cards = [AgentCard { isolation, allow, congestion, ..card("a", 8) }];
        let told = |names: &[&str], measured: &[CellRecord]| {
            let agents = names.iter().map(|name| name.parse().unwrap()).collect();
            let asked = Asked { agents, reproduce: 1, may_be_unlike: false, servers: String::new() };
            queue_of(&cards, &asked, &plan, measured, &IgnoringObserver).map(|(_, told)| told)
        };
        let why = "no agent has `caddy`: install it on a";
        assert_eq!(
            told(&["a"], &[]).unwrap(),
            [format!("2 cells unsupported, also if the run is resumed: {why}")]
        );
        let refused = told(&["a", "b"], &[]).unwrap_err();
        assert_eq!(refused.kind, FailureKind::Environment);
        let expected = format!(
            "2 cells unsupported, also if the run is resumed: {why}; agent b, which does not answer, may have it"
        );
        assert!(refused.message.starts_with(&expected), "{refused}");
        // What a run that is resumed has of them is not asked for again.
        let of_caddy = plan.iter().filter(|cell| cell.target.name() == "caddy");
        let unsupported = of_caddy.map(|cell| CellRecord::unsupported(cell.clone(), why.to_owned()));
        let mut known: Vec<CellRecord> = unsupported.collect();
        assert!(told(&["a", "b"], &known).unwrap().is_empty());
        let first = known[0].cell.index;
        known.retain(|one| one.cell.index == first);
        assert_eq!(
            told(&["a"], &known).unwrap(),
            [format!("1 cell unsupported, also if the run is resumed: {why}")]
        );
    }

    #[test]
    fn an_agent_of_another_version_is_refused() {
        assert!(check_versions(&[card("a", 8)]).is_ok());
        let old = AgentCard { version: "0.0.1".to_owned(), ..card("kek-2", 8) };
        let refused = check_versions(&[card("a", 8), old]).unwrap_err().to_string();
        assert!(refused.starts_with("agent kek-2 is h2lab 0.0.1, and this is "), "{refused}");
    }

    #[test]
    fn what_a_folder_keeps_of_a_run_reads_back_as_it_was() {
        let kept = KeptRun {
            run: RandomId::new(7),
            reproduce: 2,
            attempts: 3,
            agents: vec!["kek-1".parse().unwrap()],
        };
        let text = serde_json::to_string(&kept).unwrap();
        assert_eq!(serde_json::from_str::<KeptRun>(&text).unwrap(), kept);
    }
}
