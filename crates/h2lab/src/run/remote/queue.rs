//! The units of a run, which agents may measure each, and what has become of them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use h2lab_model::fleet::queue::{Class, Unit, UnitTask, UnmetNeeds, classes, programs, units};
use h2lab_model::fleet::{AgentCard, AgentName};
use h2lab_model::record::RunRecord;
use h2lab_model::scenario::Cell;

/// Why a job has failed whose agents have all measured its cells in another copy.
const NONE_LEFT: &str = "every agent that can measure it has measured the same cells in another copy, and the comparison \
                         needs another machine: name one more with --agents";

/// One unit, to be measured by one machine.
#[derive(Debug)]
pub(super) struct Job {
    /// Its repetitions, by index of the cell and number of the repetition.
    pub cells: Vec<(u32, u32)>,
    /// Which measurement of these cells it is: 0, or n for the n-th reproduction.
    pub copy: u32,
    /// The class of agents that can measure it.
    pub class: u32,
    /// What the other agents of its copy lack, in words.
    pub lacks: Vec<String>,
    /// Programs that its agents have not, each with why a cell that needs it is unsupported.
    pub missing: BTreeMap<String, String>,
    /// What has become of it.
    pub state: JobState,
}

impl Job {
    /// Whether this is one of its repetitions.
    pub fn has(&self, cell: &Cell) -> bool {
        self.cells.contains(&(cell.index, cell.repetition))
    }

    /// Why its agents find a cell unsupported, if it needs a program that they have not.
    pub fn unsupported(&self, cell: &Cell) -> Option<String> {
        let why = programs(cell).into_iter().filter_map(|name| self.missing.get(name));
        let why: Vec<&str> = why.map(String::as_str).collect();
        (!why.is_empty()).then(|| why.join("; "))
    }

    /// Whether `run` has any of its repetitions.
    pub fn is_begun(&self, run: &RunRecord) -> bool {
        run.repetitions.iter().any(|one| self.has(&one.cell))
    }
}

/// What has become of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JobState {
    /// It is to be measured.
    Open,
    /// It was measured, and is stored here.
    Stored,
    /// It could not be measured, in words.
    Failed(String),
}

/// All units of a run.
#[derive(Debug)]
pub(super) struct Queue {
    /// By copy, then in the order of the plan.
    pub jobs: Vec<Job>,
    /// Which agents can measure what.
    pub classes: Vec<Class>,
}

/// Why agents cannot make a run.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum QueueRefusal {
    /// A unit is more than any of them can do.
    #[error(transparent)]
    Unmet(#[from] UnmetNeeds),
    /// There are fewer agents than machines that each comparison is to be made by.
    #[error("--reproduce {copies} needs {copies} agents, one for each measurement; {agents} answered")]
    TooFewAgents {
        /// How often each comparison is measured.
        copies: u32,
        /// Agents.
        agents: usize,
    },
}

impl Queue {
    /// The units of `plan`, each to be measured by so many machines, at least one, among these agents. Agents are divided among the
    /// copies by their programs and names, so that no machine measures a unit twice, in whatever order they are given, and the run
    /// itself, the first copy, has an agent with the most programs; agents of one machine measure the same copy, unless there are
    /// fewer machines than copies. A program that no agent has makes its cells unsupported, as in a run without agents, unless no
    /// cell of a copy would be left.
    pub fn new(plan: &[Cell], agents: &[AgentCard], copies: u32) -> Result<Self, QueueRefusal> {
        let copies = copies.max(1);
        if agents.len() < copies as usize {
            return Err(QueueRefusal::TooFewAgents { copies, agents: agents.len() });
        }
        let units: Vec<Unit> = units(plan);
        let needed: BTreeSet<&String> = units.iter().flat_map(|unit| &unit.needs.programs).collect();
        let programs =
            |agent: &AgentCard| agent.programs.iter().filter(|(name, _)| needed.contains(name)).count();
        let mut agents = agents.to_vec();
        agents.sort_by(|a, b| programs(b).cmp(&programs(a)).then_with(|| a.name.cmp(&b.name)));
        let of_copies = copies_of(&agents, copies);
        let mut queue = Self { jobs: Vec::with_capacity(units.len() * copies as usize), classes: Vec::new() };
        for copy in 0..copies {
            let group = agents.iter().zip(&of_copies).filter(|(_, its)| **its == copy);
            let group: Vec<AgentCard> = group.map(|(agent, _)| agent.clone()).collect();
            let mut needed = units.clone();
            let missing: Vec<BTreeSet<String>> =
                units.iter().map(|unit| unit.needs.missing_programs(&group)).collect();
            if is_any_possible(plan, &units, &missing) {
                for (unit, missing) in needed.iter_mut().zip(&missing) {
                    unit.needs.programs.retain(|name| !missing.contains(name));
                }
            }
            let (of_group, of_units) = classes(&needed, &group)?;
            let first = queue.classes.len() as u32;
            let renumbered =
                of_group.into_iter().map(|class| Class { number: first + class.number, ..class });
            queue.classes.extend(renumbered);
            let lacks = |unit: &Unit| -> Vec<String> {
                let of_agent = |agent: &AgentCard| {
                    let lacks = unit.needs.met_by(agent).err()?;
                    Some(format!("{} cannot measure it: {lacks}", agent.name))
                };
                group.iter().filter_map(of_agent).collect()
            };
            for ((unit, class), missing) in needed.iter().zip(of_units).zip(missing) {
                let (class, lacks) = (first + class, lacks(unit));
                let why = |name: String| {
                    let why = why_missing(&name, queue.agents_in(class), &group, &agents);
                    (name, why)
                };
                let missing = missing.into_iter().map(why).collect();
                let (cells, state) = (unit.cells.clone(), JobState::Open);
                queue.jobs.push(Job { cells, copy, class, lacks, missing, state });
            }
        }
        Ok(queue)
    }

    /// The same units while no agent can measure them: none can be added.
    pub fn unassigned(plan: &[Cell], copies: u32) -> Self {
        let units: Vec<Unit> = units(plan);
        let job = |copy: u32, unit: &Unit| Job {
            cells: unit.cells.clone(),
            copy,
            class: 0,
            lacks: Vec::new(),
            missing: BTreeMap::new(),
            state: JobState::Open,
        };
        let of_copy = |copy| units.iter().map(move |unit| job(copy, unit));
        Self { jobs: (0..copies.max(1)).flat_map(of_copy).collect(), classes: Vec::new() }
    }

    /// The number in the queue of a job's `attempt`, from 0 on. A job that is added again must have another number, since `JetStream`
    /// drops a second message of one number.
    pub fn number(&self, job: usize, attempt: u32) -> u32 {
        attempt.wrapping_mul(self.jobs.len() as u32).wrapping_add(job as u32)
    }

    /// The job of a number in the queue.
    pub fn job_of(&self, number: u32) -> Option<usize> {
        let jobs = u32::try_from(self.jobs.len()).ok().filter(|jobs| *jobs > 0)?;
        Some((number % jobs) as usize)
    }

    /// The task of a job's `attempt` in this run.
    pub fn task(&self, run: &str, job: usize, attempt: u32) -> UnitTask {
        let cells = self.jobs[job].cells.clone();
        UnitTask { run: run.to_owned(), unit: self.number(job, attempt), cells }
    }

    /// The open jobs of units that wait at NATS, given as (class, number) in the order of their numbers: attempt and class of the last
    /// one of each. A job need not wait in its own class: it may have been given to other agents since.
    pub fn waiting(&self, units: impl IntoIterator<Item = (u32, u32)>) -> BTreeMap<usize, (u32, u32)> {
        let known = units.into_iter().filter(|(class, _)| !self.agents_in(*class).is_empty());
        let waiting = known.filter_map(|(class, number)| {
            let job = self.job_of(number)?;
            Some((job, (number / self.jobs.len() as u32, class)))
        });
        waiting.filter(|(job, _)| self.jobs[*job].state == JobState::Open).collect()
    }

    /// Whether a unit of this number is what is to be measured of a job whose `attempt` was given to `class`, and `agent` may take it.
    pub fn is_with(&self, job: usize, attempt: u32, class: u32, number: u32, agent: &AgentName) -> bool {
        let mut able = self.agents_in(class).iter();
        number == self.number(job, attempt) && able.any(|able| able == agent.as_str())
    }

    /// The agents that may measure what is open, if each of them is gone; each job was `given` to a class.
    pub fn all_gone(&self, given: &[u32], is_gone: impl Fn(&str) -> bool) -> Option<BTreeSet<&str>> {
        let able = self.open().into_iter().flat_map(|job| self.agents_in(given[job]));
        let able: BTreeSet<&str> = able.map(String::as_str).collect();
        (!able.is_empty() && able.iter().all(|agent| is_gone(agent))).then_some(able)
    }

    /// The agents that can measure a job.
    pub fn agents_of(&self, job: usize) -> &[String] {
        self.agents_in(self.jobs[job].class)
    }

    /// Whether this agent can measure a job.
    pub fn is_for(&self, job: usize, agent: &AgentName) -> bool {
        self.agents_of(job).iter().any(|able| able == agent.as_str())
    }

    /// The number of the class of these agents, and whether it is a new one.
    pub fn class_of(&mut self, agents: Vec<String>) -> (u32, bool) {
        if let Some(class) = self.classes.iter().find(|class| class.agents == agents) {
            return (class.number, false);
        }
        let number = self.classes.len() as u32;
        self.classes.push(Class { number, agents });
        (number, true)
    }

    /// The agents of a class.
    pub fn agents_in(&self, class: u32) -> &[String] {
        let class = self.classes.iter().find(|known| known.number == class);
        class.map_or(&[], |class| &class.agents)
    }

    /// Takes open jobs from agents that have measured the same cells in another copy: `runs` are the records of all copies, in
    /// order. A job for which no agent is left has failed. Returns the jobs that other agents are to measure now, or none.
    pub fn exclude_measured(&mut self, runs: &[&RunRecord]) -> Vec<usize> {
        let mut changed = Vec::new();
        for job in self.open() {
            let measured = measured_in_other_copies(&self.jobs[job], runs.iter().copied());
            if !self.agents_of(job).iter().any(|agent| measured.contains(agent.as_str())) {
                continue;
            }
            changed.push(job);
            let agents = self.agents_left(job, &measured);
            if agents.is_empty() {
                self.jobs[job].state = JobState::Failed(NONE_LEFT.to_owned());
            } else {
                self.jobs[job].class = self.class_of(agents).0;
            }
        }
        changed
    }

    /// The agents of a job that have not `measured` its cells; if there are none, those of its other copies that have not, and that
    /// are not to.
    fn agents_left(&self, job: usize, measured: &BTreeSet<&str>) -> Vec<String> {
        let is_left = |agent: &&String| !measured.contains(agent.as_str());
        let own: Vec<String> = self.agents_of(job).iter().filter(is_left).cloned().collect();
        if !own.is_empty() {
            return own;
        }
        let is_same = |other: &usize| *other != job && self.jobs[*other].cells == self.jobs[job].cells;
        let same: Vec<usize> = (0..self.jobs.len()).filter(is_same).collect();
        let is_taken = |agent: &String| {
            let mut open = same.iter().filter(|other| self.jobs[**other].state == JobState::Open);
            open.any(|other| self.agents_of(*other).contains(agent))
        };
        let others: BTreeSet<&String> = same.iter().flat_map(|other| self.agents_of(*other)).collect();
        others.into_iter().filter(is_left).filter(|agent| !is_taken(agent)).cloned().collect()
    }

    /// Jobs that are open.
    pub fn open(&self) -> Vec<usize> {
        let is_open = |job: &usize| self.jobs[*job].state == JobState::Open;
        (0..self.jobs.len()).filter(is_open).collect()
    }

    /// The jobs that have failed, and why.
    pub fn failures(&self) -> Vec<(usize, &str)> {
        let failures = (0..).zip(&self.jobs).filter_map(|(number, job)| match &job.state {
            JobState::Failed(why) => Some((number, why.as_str())),
            JobState::Open | JobState::Stored => None,
        });
        failures.collect()
    }

    /// Notes the jobs of `copy` whose repetitions `run` has.
    pub fn note_stored(&mut self, copy: u32, run: &RunRecord, plan: &[Cell]) {
        for job in self.jobs.iter_mut().filter(|job| job.copy == copy && job.state == JobState::Open) {
            if lacking(&job.cells, run, plan).is_none() {
                job.state = JobState::Stored;
            }
        }
    }
}

/// Whether any cell of these units needs none of the programs that are `missing` for its unit.
fn is_any_possible(plan: &[Cell], units: &[Unit], missing: &[BTreeSet<String>]) -> bool {
    let needed: BTreeMap<u32, BTreeSet<&str>> =
        plan.iter().map(|cell| (cell.index, programs(cell))).collect();
    units.iter().zip(missing).any(|(unit, missing)| {
        unit.cells.iter().any(|(index, _)| needed[index].iter().all(|name| !missing.contains(*name)))
    })
}

/// Why cells with a program are unsupported: the agents that are `able` to measure their unit have all else. They are among
/// the `group` that measures this copy, and this among all `agents` of the run.
fn why_missing(program: &str, able: &[String], group: &[AgentCard], agents: &[AgentCard]) -> String {
    let has_it = |agent: &&AgentCard| agent.programs.iter().any(|(installed, _)| installed == program);
    let place = match able {
        [only] => only.clone(),
        several => format!("one of {}", several.join(", ")),
    };
    // One of the group that has it lacks something else.
    if group.iter().any(|agent| has_it(&agent)) {
        return format!("no agent that can measure its comparison has `{program}`: install it on {place}");
    }
    let elsewhere: Vec<&str> = agents.iter().filter(has_it).map(|agent| agent.name.as_str()).collect();
    if elsewhere.is_empty() {
        return format!("no agent has `{program}`: install it on {place}");
    }
    let own = elsewhere.join(", ");
    format!("only {own} has `{program}`, for another measurement of the comparison: install it on {place}")
}

/// The machine of each of these agents, numbered from 0 on; one that is not known is another one for each agent.
pub(super) fn machines(agents: &[AgentCard]) -> Vec<usize> {
    let mut firsts: Vec<&AgentCard> = Vec::new();
    let mut numbers = Vec::with_capacity(agents.len());
    for agent in agents {
        let number = firsts.iter().position(|first| first.host.is_same(&agent.host)).unwrap_or(firsts.len());
        if number == firsts.len() {
            firsts.push(agent);
        }
        numbers.push(number);
    }
    numbers
}

/// Which copy each of these agents is to measure.
fn copies_of(agents: &[AgentCard], copies: u32) -> Vec<u32> {
    let machines = machines(agents);
    let has_enough = machines.iter().any(|machine| machine + 1 >= copies as usize);
    let numbers = if has_enough { machines } else { (0..agents.len()).collect() };
    numbers.into_iter().map(|number| number as u32 % copies).collect()
}

/// The agents that have measured cells of a job in another copy: `runs` are the records of all copies, in order.
pub(super) fn measured_in_other_copies<'r>(
    job: &Job,
    runs: impl Iterator<Item = &'r RunRecord>,
) -> BTreeSet<&'r str> {
    let others = (0..).zip(runs).filter(|(copy, _)| *copy != job.copy);
    let records = others.flat_map(|(_, run)| &run.repetitions).filter(|one| job.has(&one.cell));
    records.filter_map(|one| Some(one.machine.as_ref()?.agent.as_str())).collect()
}

/// The first of these repetitions that `run` has not and that is not known to be impossible.
pub(super) fn lacking(cells: &[(u32, u32)], run: &RunRecord, plan: &[Cell]) -> Option<(u32, u32)> {
    let has = |(index, repetition): (u32, u32)| {
        let planned = plan.iter().find(|cell| (cell.index, cell.repetition) == (index, repetition));
        planned.is_some_and(|cell| run.has(cell))
    };
    cells.iter().copied().find(|cell| !has(*cell))
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::fleet::testing::agent_card;
    use h2lab_model::record::{CellRecord, HostId, MeasuredOn};
    use h2lab_model::scenario::Scenario;

    /// Three links, which are three units, of two cells with two repetitions each.
    fn plan() -> Vec<Cell> {
        let text = "repetitions = 2\n[link]\ndelay = ['1ms', '5ms', '20ms']\n[matrix]\nprotocols = ['h1', 'h2c']\n\
                    connections = 4";
        Scenario::from_toml(text).unwrap().plan()
    }

    fn card(name: &str, allow: &[&str]) -> AgentCard {
        AgentCard {
            isolation: Some("full".to_owned()),
            congestion: vec!["cubic".to_owned()],
            allow: allow.iter().map(|&word| word.to_owned()).collect(),
            ..agent_card(name)
        }
    }

    fn cards(names: &[&str]) -> Vec<AgentCard> {
        names.iter().map(|name| card(name, &["lab"])).collect()
    }

    #[test]
    fn each_unit_is_one_job_for_any_agent() {
        let queue = Queue::new(&plan(), &cards(&["a", "b"]), 1).unwrap();
        assert_eq!((queue.jobs.len(), queue.classes.len()), (3, 1));
        assert_eq!(queue.agents_of(2), ["a", "b"]);
        assert!(queue.is_for(0, &"b".parse().unwrap()) && !queue.is_for(0, &"c".parse().unwrap()));
        assert_eq!(queue.open(), [0, 1, 2]);
    }

    #[test]
    fn without_agents_the_units_are_the_same_and_nobody_can_take_one() {
        let with = Queue::new(&plan(), &cards(&["a", "b"]), 2).unwrap();
        let without = Queue::unassigned(&plan(), 2);
        let job = |job: &Job| (job.cells.clone(), job.copy);
        let jobs = |queue: &Queue| queue.jobs.iter().map(job).collect::<Vec<_>>();
        assert_eq!(jobs(&with), jobs(&without));
        assert!(without.classes.is_empty() && without.agents_of(0).is_empty());
        assert!(!without.is_with(0, 0, 0, 0, &"a".parse().unwrap()));
    }

    #[test]
    fn copies_of_a_unit_are_for_agents_of_their_own() {
        let queue = Queue::new(&plan(), &cards(&["a", "b", "c"]), 2).unwrap();
        assert_eq!(queue.jobs.len(), 6);
        let of: Vec<&[String]> = (0..6).map(|job| queue.agents_of(job)).collect();
        assert_eq!((of[0], of[3]), (&["a".to_owned(), "c".to_owned()][..], &["b".to_owned()][..]));
        assert_eq!((queue.jobs[2].copy, queue.jobs[3].copy), (0, 1));
        assert_eq!(queue.jobs[0].cells, queue.jobs[3].cells);
        let refused = Queue::new(&plan(), &cards(&["a"]), 2).unwrap_err();
        assert_eq!(refused, QueueRefusal::TooFewAgents { copies: 2, agents: 1 });
    }

    #[test]
    fn agents_of_one_machine_measure_the_same_copy_if_there_are_machines_enough() {
        let copies = |hosts: &[&str], copies| {
            let mut agents = cards(&["a", "b", "c", "d"][..hosts.len()]);
            for (agent, host) in agents.iter_mut().zip(hosts) {
                agent.host = HostId::new(host);
            }
            copies_of(&agents, copies)
        };
        assert_eq!(copies(&["x", "x", "y", "y"], 2), [0, 0, 1, 1]);
        assert_eq!(copies(&["x", "y", "x", "z"], 2), [0, 1, 0, 0]);
        assert_eq!(copies(&["x", "x", "x"], 2), [0, 1, 0], "they can only repeat it");
        assert_eq!(copies(&["", "", "", ""], 2), [0, 1, 0, 1], "each may be a machine of its own");
        assert_eq!(copies(&["x", "x"], 1), [0, 0]);
    }

    /// A run in which this agent has measured all cells of a job.
    fn measured_by(agent: &str, queue: &Queue, job: usize) -> RunRecord {
        let record = |cell: &Cell| CellRecord {
            machine: Some(MeasuredOn {
                agent: agent.to_owned(),
                machine: "Linux".to_owned(),
                likeness: "alike".to_owned(),
                host: HostId::default(),
            }),
            ..CellRecord::empty(cell.clone())
        };
        let plan = plan();
        let cells = plan.iter().filter(|cell| queue.jobs[job].has(cell));
        h2lab_model::record::testing::run(cells.map(record).collect())
    }

    #[test]
    fn agents_have_the_same_copies_in_whatever_order_they_are_named() {
        let of = |names: &[&str]| Queue::new(&plan(), &cards(names), 2).unwrap().classes;
        assert_eq!(of(&["a", "b", "c"]), of(&["c", "a", "b"]));
    }

    #[test]
    fn no_agent_measures_a_unit_again_in_another_copy() {
        let plan = plan();
        let none = h2lab_model::record::testing::run(Vec::new());
        // Before the run was resumed, b has measured unit 0 for the run itself.
        let mut queue = Queue::new(&plan, &cards(&["a", "b"]), 2).unwrap();
        let run = measured_by("b", &queue, 0);
        queue.note_stored(0, &run, &plan);
        assert_eq!(queue.exclude_measured(&[&run, &none]), [3]);
        assert_eq!((queue.agents_of(3), queue.agents_of(4)), (&["a".to_owned()][..], &["b".to_owned()][..]));
        assert!(queue.exclude_measured(&[&run, &none]).is_empty(), "there is no more to do");
        // With a third agent of that copy, that one goes on.
        let mut queue = Queue::new(&plan, &cards(&["a", "b", "c", "d"]), 2).unwrap();
        queue.note_stored(0, &run, &plan);
        assert_eq!(queue.exclude_measured(&[&run, &none]), [3]);
        assert_eq!(queue.agents_of(3), ["d"]);
    }

    #[test]
    fn a_copy_that_only_agents_of_other_copies_could_measure_has_failed_in_words() {
        let plan = plan();
        let mut queue = Queue::new(&plan, &cards(&["a", "b"]), 2).unwrap();
        let mut run = measured_by("b", &queue, 0);
        run.repetitions[0].machine.as_mut().unwrap().agent = "a".to_owned();
        queue.note_stored(0, &run, &plan);
        let none = h2lab_model::record::testing::run(Vec::new());
        assert_eq!(queue.exclude_measured(&[&run, &none]), [3]);
        assert_eq!(queue.failures(), [(3, NONE_LEFT)]);
    }

    #[test]
    fn a_unit_that_nobody_can_measure_is_refused_with_what_each_agent_lacks() {
        let agents = [card("a", &["lab"]), card("b", &["serve"])];
        let queue = Queue::new(&plan(), &agents, 1).unwrap();
        assert_eq!(queue.agents_of(0), ["a"]);
        assert_eq!(queue.jobs[0].lacks, ["b cannot measure it: its --allow has no `lab`"]);
        let refused = Queue::new(&plan(), &agents, 2).unwrap_err().to_string();
        assert!(refused.contains("b: its --allow has no `lab`"), "{refused}");
    }

    /// Requests to our origin and to two servers, which are one unit.
    fn plan_of_servers() -> Vec<Cell> {
        let text = "repetitions = 2\n[link]\ndelay = '5ms'\n[matrix]\norigin = ['origin', 'nginx', 'caddy']\n\
                    protocols = 'h1'\nconnections = 1";
        Scenario::from_toml(text).unwrap().plan()
    }

    fn card_with(name: &str, programs: &[&str]) -> AgentCard {
        let programs = programs.iter().map(|&program| (program.to_owned(), "1".to_owned()));
        AgentCard { programs: programs.collect(), ..card(name, &["lab"]) }
    }

    #[test]
    fn cells_whose_program_no_agent_of_their_unit_has_are_unsupported_with_what_is_to_be_installed_where() {
        let plan = plan_of_servers();
        let why = |agents: &[AgentCard]| {
            let queue = Queue::new(&plan, agents, 1).unwrap();
            assert_eq!((queue.jobs.len(), queue.jobs[0].cells.len()), (1, plan.len()), "all are in the unit");
            let of = |name: &str| {
                let cell = plan.iter().find(|cell| cell.target.name() == name).unwrap();
                queue.jobs[0].unsupported(cell).unwrap_or_default()
            };
            (queue.agents_of(0).join(","), ["origin", "nginx", "caddy"].map(of))
        };
        let both = ["nginx", "caddy"];
        let nothing = ["", "", ""].map(str::to_owned);
        assert_eq!(why(&[card_with("a", &["nginx"]), card_with("b", &both)]), ("b".to_owned(), nothing));
        let (agents, [origin, nginx, caddy]) = why(&[card_with("a", &["nginx"]), card_with("b", &["nginx"])]);
        assert_eq!((agents.as_str(), origin.as_str(), nginx.as_str()), ("a,b", "", ""));
        assert_eq!(caddy, "no agent has `caddy`: install it on one of a, b");
        let (agents, [_, nginx, caddy]) = why(&[card_with("a", &["nginx"]), card_with("b", &["caddy"])]);
        assert_eq!((agents.as_str(), nginx.as_str()), ("a", ""));
        assert_eq!(caddy, "no agent that can measure its comparison has `caddy`: install it on a");
        let (_, [_, nginx, _]) = why(&[card_with("a", &[])]);
        assert_eq!(nginx, "no agent has `nginx`: install it on a");
    }

    #[test]
    fn a_run_is_refused_if_no_agent_has_the_program_of_any_cell() {
        let of_caddy = |cell: &Cell| cell.target.name() == "caddy";
        let plan: Vec<Cell> = plan_of_servers().into_iter().filter(of_caddy).collect();
        let refused = Queue::new(&plan, &[card_with("a", &["nginx"])], 1).unwrap_err().to_string();
        assert_eq!(refused, "no agent can measure unit 0: a: caddy is not installed");
        // The run itself has an agent with the most programs, and a copy lacks what that one alone has.
        let agents = [card_with("a", &["nginx"]), card_with("b", &["nginx", "caddy"])];
        let plan_of_all = plan_of_servers();
        let queue = Queue::new(&plan_of_all, &agents, 2).unwrap();
        let of_caddy = plan_of_all.iter().find(|cell| of_caddy(cell)).unwrap();
        assert_eq!([queue.agents_of(0), queue.agents_of(1)], [["b"], ["a"]]);
        assert_eq!(queue.jobs[0].unsupported(of_caddy), None);
        let why = "only b has `caddy`, for another measurement of the comparison: install it on a";
        assert_eq!(queue.jobs[1].unsupported(of_caddy).as_deref(), Some(why));
        // So is one with a copy that would have nothing.
        let agents = [card_with("a", &["caddy"]), card_with("b", &["nginx"])];
        assert!(Queue::new(&plan, &agents, 1).is_ok() && Queue::new(&plan, &agents, 2).is_err());
    }

    #[test]
    fn a_job_that_is_added_again_has_another_number_and_is_the_same_job() {
        let queue = Queue::new(&plan(), &cards(&["a", "b"]), 2).unwrap();
        let mut numbers: Vec<u32> = (0..3)
            .flat_map(|attempt| (0..6).map(move |job| (job, attempt)))
            .map(|(job, attempt)| {
                let number = queue.number(job, attempt);
                assert_eq!(queue.job_of(number), Some(job));
                let task = queue.task("run", job, attempt);
                assert_eq!((task.unit, &task.cells), (number, &queue.jobs[job].cells));
                number
            })
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 18);
    }

    /// Three jobs for a and b, and a class of b alone, as after a has failed at one of them.
    fn with_class_of_one() -> Queue {
        let mut queue = Queue::new(&plan(), &cards(&["a", "b"]), 1).unwrap();
        assert_eq!(queue.class_of(vec!["b".to_owned()]), (1, true));
        queue
    }

    #[test]
    fn a_unit_that_waits_is_known_by_the_class_that_it_waits_in() {
        let mut queue = with_class_of_one();
        let waiting = |queue: &Queue, units: &[(u32, u32)]| queue.waiting(units.iter().copied());
        let expected = BTreeMap::from([(0, (0, 0)), (1, (2, 1))]);
        // Job 1 was added again twice, the last time for b alone; nobody can take what is in class 9.
        assert_eq!(waiting(&queue, &[(0, 0), (0, 4), (9, 5), (1, 7)]), expected);
        queue.jobs[1].state = JobState::Stored;
        assert_eq!(waiting(&queue, &[(0, 0), (1, 7)]), BTreeMap::from([(0, (0, 0))]));
    }

    #[test]
    fn only_agents_that_a_job_was_given_to_can_fail_at_it() {
        let queue = with_class_of_one();
        let [a, b] = ["a", "b"].map(|name| name.parse::<AgentName>().unwrap());
        // Attempt 1 of job 0, for b alone; a can measure it as well, and had attempt 0.
        assert!(queue.is_for(0, &a) && !queue.is_with(0, 1, 1, 3, &a));
        assert!(queue.is_with(0, 1, 1, 3, &b) && !queue.is_with(0, 1, 1, 0, &b));
    }

    #[test]
    fn a_run_goes_on_while_any_agent_is_there_that_may_measure_anything_of_what_is_left() {
        let mut queue = with_class_of_one();
        let gone = |queue: &Queue, gone: &[&str]| {
            let gone = queue.all_gone(&[0, 1, 1], |agent| gone.contains(&agent));
            gone.map(|agents| agents.into_iter().collect::<Vec<_>>().join(","))
        };
        assert_eq!(gone(&queue, &["b"]), None, "job 0 is for a as well");
        assert_eq!(gone(&queue, &["a"]), None);
        assert_eq!(gone(&queue, &["a", "b"]).as_deref(), Some("a,b"));
        queue.jobs[0].state = JobState::Stored;
        assert_eq!(gone(&queue, &["b"]).as_deref(), Some("b"), "what is left is for b alone");
        queue.jobs[1].state = JobState::Stored;
        queue.jobs[2].state = JobState::Stored;
        assert_eq!(gone(&queue, &["a", "b"]), None);
    }

    #[test]
    fn a_job_is_stored_when_all_of_its_repetitions_are() {
        let plan = plan();
        let mut queue = Queue::new(&plan, &cards(&["a", "b"]), 2).unwrap();
        let mut run = h2lab_model::record::testing::run(Vec::new());
        let (last, others) = queue.jobs[1].cells.split_last().unwrap();
        let (last, others) = (*last, others.to_vec());
        let record = |key: (u32, u32)| {
            CellRecord::empty(plan.iter().find(|cell| (cell.index, cell.repetition) == key).unwrap().clone())
        };
        run.repetitions = others.into_iter().map(record).collect();
        queue.note_stored(0, &run, &plan);
        assert_eq!(queue.open().len(), 6, "one repetition is missing");
        assert_eq!(lacking(&queue.jobs[1].cells, &run, &plan), Some(last));
        let begun = |run: &RunRecord| queue.jobs.iter().map(|job| job.is_begun(run)).collect::<Vec<_>>();
        // Its copy has the same cells, and another run.
        assert_eq!(begun(&run), [false, true, false, false, true, false]);
        assert_eq!(begun(&h2lab_model::record::testing::run(Vec::new())), [false; 6]);
        run.repetitions.push(record(last));
        queue.note_stored(0, &run, &plan);
        assert_eq!(queue.open(), [0, 2, 3, 4, 5], "its copy is another job");
        queue.jobs[0].state = JobState::Failed("no".to_owned());
        assert_eq!(queue.failures(), [(0, "no")]);
    }

    #[test]
    fn a_cell_that_its_server_does_not_speak_is_whole_with_one_record() {
        let plan = plan();
        let queue = Queue::new(&plan, &cards(&["a"]), 1).unwrap();
        let mut run = h2lab_model::record::testing::run(Vec::new());
        let indices: std::collections::BTreeSet<u32> =
            queue.jobs[0].cells.iter().map(|(index, _)| *index).collect();
        for index in indices {
            let cell = plan.iter().find(|cell| cell.index == index).unwrap().clone();
            run.repetitions.push(CellRecord::unsupported(cell, "no".to_owned()));
        }
        assert_eq!(lacking(&queue.jobs[0].cells, &run, &plan), None);
    }
}
