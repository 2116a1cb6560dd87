//! A run whose cells several agents measure: the units of its plan, which agents can measure each, and what is said of them.
//!
//! A *unit* is what one agent measures, in one go: all cells that are compared with each other, with all their repetitions in the
//! order of the plan (A/B/B/A), so that no comparison is one of two machines. Units wait in a queue by *class*, that is, by which
//! agents can measure them. What is here is sent with [`super::messages::encode`], so that another version is recognised.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::messages::is_part_of;
use super::{AgentCard, Demand};
use crate::record::HostId;
use crate::scenario::{Cell, Scenario, ScenarioError, Sysctls, Target};
use crate::workload::{Arrival, DialPolicy, EngineSettings, H2cMode, Protocol};
use h2lab_transfer::{Algorithm, Digest};

/// Cells that one agent measures.
#[derive(Debug, Clone, PartialEq)]
pub struct Unit {
    /// Its place in the run, from 0 on.
    pub number: u32,
    /// Its repetitions, by index of the cell and number of the repetition, in the order of the plan.
    pub cells: Vec<(u32, u32)>,
    /// What the machine that measures it must have.
    pub needs: Needs,
}

/// What a machine must have, and how much its agent must do.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Needs {
    /// Servers under test, by the names of scenarios.
    pub programs: BTreeSet<String>,
    /// Congestion controls of its kernel.
    pub congestion: BTreeSet<String>,
    /// Whether it must be able, and willing, to emulate a link.
    pub lab: bool,
    /// The most that its cells behind the emulated link ask for, each for itself; `None` if it has no such cell.
    pub demand: Option<Demand>,
}

impl Needs {
    fn of(cells: &[&Cell]) -> Self {
        let is_lab = |cell: &&&Cell| !matches!(cell.target, Target::Url { .. });
        let demands = cells.iter().filter(is_lab).map(|cell| Demand::of_cell(cell, 1));
        Self {
            programs: cells.iter().flat_map(|cell| programs(cell)).map(str::to_owned).collect(),
            congestion: cells.iter().filter_map(|cell| cell.congestion.clone()).collect(),
            lab: cells.iter().any(|cell| is_lab(&cell)),
            demand: most(demands),
        }
    }

    /// Whether this agent has it; the error says what it lacks. Whether it permits the target, only it can tell.
    pub fn met_by(&self, agent: &AgentCard) -> Result<(), String> {
        let mut lacks: Vec<String> = Vec::new();
        if self.lab && agent.isolation.is_none() {
            lacks.push("it cannot make network namespaces".to_owned());
        }
        if self.lab && !agent.allow.iter().any(|word| word == "lab") {
            lacks.push("its --allow has no `lab`".to_owned());
        }
        if self.lab && agent.limits.bytes.is_some() {
            lacks.push("it has --max-bytes, and the bytes of a cell are not counted".to_owned());
        }
        lacks.extend(self.demand.iter().flat_map(|demand| agent.limits.above_in_words(demand)));
        lacks.extend(self.missing_at(agent).map(|name| format!("{name} is not installed")));
        let congestion = self.congestion.iter().filter(|name| !agent.congestion.contains(name));
        lacks.extend(congestion.map(|name| format!("its kernel has no congestion control {name}")));
        if lacks.is_empty() { Ok(()) } else { Err(lacks.join(", ")) }
    }

    /// The programs that its machine must do without: of the agents that have all else, those that the first one lacks
    /// which lacks the fewest. None if an agent has all of it, or if each lacks something else.
    pub fn missing_programs(&self, agents: &[AgentCard]) -> BTreeSet<String> {
        let all_else = Self { programs: BTreeSet::new(), ..self.clone() };
        let able = agents.iter().filter(|agent| all_else.met_by(agent).is_ok());
        let missing = able.map(|agent| self.missing_at(agent).cloned().collect::<BTreeSet<String>>());
        missing.min_by_key(BTreeSet::len).unwrap_or_default()
    }

    /// Its programs that are not on the machine of this agent.
    fn missing_at(&self, agent: &AgentCard) -> impl Iterator<Item = &String> {
        let is_there = move |name: &String| agent.programs.iter().any(|(installed, _)| installed == name);
        self.programs.iter().filter(move |name| !is_there(name))
    }
}

/// The servers under test of a cell, by the names of scenarios.
pub fn programs(cell: &Cell) -> BTreeSet<&str> {
    let server = match &cell.target {
        Target::Sut { name } => Some(name.as_str()),
        Target::Origin | Target::Url { .. } => None,
    };
    server.into_iter().chain(cell.sidecar.as_ref().map(|sidecar| sidecar.name.as_str())).collect()
}

/// What is within the bounds of an agent if each of these is, and only then.
fn most(demands: impl Iterator<Item = Demand>) -> Option<Demand> {
    demands.reduce(|one, other| Demand {
        // A cell without a rate is within no bound of rates, whatever the others have.
        rate: one.rate.zip(other.rate).map(|(one, other)| one.max(other)),
        connections: one.connections.max(other.connections),
        time: one.time.max(other.time),
    })
}

/// The units of a plan, in the order in which it first has a cell of each.
pub fn units(plan: &[Cell]) -> Vec<Unit> {
    let mut questions: Vec<Cell> = Vec::new();
    let mut members: Vec<Vec<&Cell>> = Vec::new();
    let mut of_group: BTreeMap<u32, usize> = BTreeMap::new();
    for cell in plan {
        let place = *of_group.entry(cell.group).or_insert_with(|| {
            // The cells of a group may differ in what live servers are asked for: its first cell stands for it.
            let question = question(cell);
            questions.iter().position(|known| *known == question).unwrap_or_else(|| {
                questions.push(question);
                members.push(Vec::new());
                members.len() - 1
            })
        });
        members[place].push(cell);
    }
    let unit = |(number, cells): (u32, Vec<&Cell>)| Unit {
        number,
        needs: Needs::of(&cells),
        cells: cells.iter().map(|cell| (cell.index, cell.repetition)).collect(),
    };
    (0..).zip(members).map(unit).collect()
}

/// The part that compared cells have in common: link, work, seed and the client's policy. Cells of a group differ in how they talk to
/// the target; across groups cells are compared that differ in their parties, congestion control, sysctls or engines. In bulk work,
/// paths and numbers of responses at a time are set side by side, too.
fn question(cell: &Cell) -> Cell {
    let mut common = Cell {
        index: 0,
        group: 0,
        repetition: 0,
        seed: 0,
        target: Target::Origin,
        sidecar: None,
        protocol: Protocol::H1,
        h2c_mode: H2cMode::default(),
        twin: 0,
        connections: 0,
        max_connections: 0,
        streams: 0,
        max_requests_per_connection: None,
        congestion: None,
        sysctls: Sysctls::default(),
        client: EngineSettings::default(),
        server: EngineSettings::default(),
        dial: DialPolicy::default(),
        ..cell.clone()
    };
    if common.work.bulk {
        common.work.path.clear();
        common.work.arrival = Arrival::Closed { concurrency: 1 };
    }
    common
}

/// Agents that can measure the same units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    /// Its number, from 0 on.
    pub number: u32,
    /// Their names.
    pub agents: Vec<String>,
}

/// A unit that no agent can measure.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no agent can measure unit {unit}: {}", .why.join("; "))]
pub struct UnmetNeeds {
    /// The unit.
    pub unit: u32,
    /// What each agent lacks.
    pub why: Vec<String>,
}

/// The classes of these units among these agents, and the number of the class of each unit.
pub fn classes(units: &[Unit], agents: &[AgentCard]) -> Result<(Vec<Class>, Vec<u32>), UnmetNeeds> {
    let mut classes: Vec<Class> = Vec::new();
    let mut of_unit = Vec::new();
    for unit in units {
        let able = agents.iter().filter(|agent| unit.needs.met_by(agent).is_ok());
        let able: Vec<String> = able.map(|agent| agent.name.to_string()).collect();
        if able.is_empty() {
            let lacks =
                |agent: &AgentCard| Some(format!("{}: {}", agent.name, unit.needs.met_by(agent).err()?));
            return Err(UnmetNeeds { unit: unit.number, why: agents.iter().filter_map(lacks).collect() });
        }
        let known = classes.iter().position(|class| class.agents == able).unwrap_or_else(|| {
            classes.push(Class { number: classes.len() as u32, agents: able });
            classes.len() - 1
        });
        of_unit.push(known as u32);
    }
    Ok((classes, of_unit))
}

/// A digest of a plan, by which an agent knows that it has expanded the scenario to the cells that the driver means.
pub fn plan_digest(plan: &[Cell]) -> String {
    let mut digest = Digest::new(Algorithm::Sha256);
    for cell in plan {
        digest.update(&serde_json::to_vec(cell).expect("a cell is plain data"));
        digest.update(b"\n");
    }
    digest.checksum().map(|sum| sum.hex()).unwrap_or_default()
}

/// How people are told of a run: by the beginning of its number, which tells it from others of one driver.
pub fn run_title(run: &str) -> String {
    format!("run {}", run.chars().take(8).collect::<String>())
}

/// What is known of a run while it is open. Its texts are as the driver wrote them: make them printable before they are shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// The run's number: 32 hexadecimal digits.
    pub run: String,
    /// Who started it: user and machine.
    pub driver: String,
    /// When, UTC, RFC 3339.
    pub started: String,
    /// What is measured.
    pub scenario: Scenario,
    /// [`plan_digest`] of its plan.
    pub plan_digest: String,
    /// The agents that it was started with.
    pub agents: Vec<String>,
    /// Which of them can measure what.
    pub classes: Vec<Class>,
    /// How many units there are, copies among them.
    pub units: u32,
}

/// Why an agent cannot measure what it was given.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The scenario would be refused as a file, too.
    #[error("the scenario of the run is refused: {0}")]
    Scenario(#[from] ScenarioError),
    /// It means other cells here.
    #[error(
        "the scenario of the run has other cells here than at its driver: install the same h2lab at driver and agents"
    )]
    OtherPlan,
    /// It names a cell that is not in the plan.
    #[error("the unit has repetition {repetition} of cell {index}, which the plan of the run has not")]
    NoSuchCell {
        /// The cell's index.
        index: u32,
        /// The repetition.
        repetition: u32,
    },
    /// It names a repetition more than once.
    #[error("the unit has repetition {repetition} of cell {index} more than once")]
    Twice {
        /// The cell's index.
        index: u32,
        /// The repetition.
        repetition: u32,
    },
}

impl RunInfo {
    /// The plan of the run, after the scenario was checked as one that came as a message: the same that the agent's permissions are
    /// compared with.
    pub fn plan(&self) -> Result<Vec<Cell>, QueueError> {
        let plan = self.scenario.as_received()?.plan();
        if plan_digest(&plan) == self.plan_digest { Ok(plan) } else { Err(QueueError::OtherPlan) }
    }
}

/// A unit in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitTask {
    /// The run.
    pub run: String,
    /// The unit.
    pub unit: u32,
    /// See [`Unit::cells`].
    pub cells: Vec<(u32, u32)>,
}

impl UnitTask {
    /// Its repetitions out of the plan of the run, in its order. Nothing is copied before each of them is known to be in the plan,
    /// and named once: so they are no more than the plan has.
    pub fn cells_of(&self, plan: &[Cell]) -> Result<Vec<Cell>, QueueError> {
        let planned: BTreeMap<(u32, u32), &Cell> =
            plan.iter().map(|cell| ((cell.index, cell.repetition), cell)).collect();
        let mut named = BTreeSet::new();
        let mut cells: Vec<&Cell> = Vec::new();
        for &(index, repetition) in &self.cells {
            let Some(&cell) = planned.get(&(index, repetition)) else {
                return Err(QueueError::NoSuchCell { index, repetition });
            };
            if !named.insert((index, repetition)) {
                return Err(QueueError::Twice { index, repetition });
            }
            cells.push(cell);
        }
        Ok(cells.into_iter().cloned().collect())
    }
}

/// Where the run folder of a unit is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitPart {
    /// The part's name. It ends with a point and the agent's name.
    pub object: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// The digest that the store computed of it.
    pub digest: String,
}

/// What became of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitReport {
    /// The run.
    pub run: String,
    /// The unit.
    pub unit: u32,
    /// The agent that measured it.
    pub agent: String,
    /// Kernel and machine.
    pub machine: String,
    /// [`AgentCard::likeness`] of its machine.
    pub likeness: String,
    /// Which machine that is.
    #[serde(default)]
    pub host: HostId,
    /// Where what was measured is; why nothing could be measured otherwise.
    pub outcome: Result<UnitPart, String>,
    /// How often the unit was taken from the queue: more than once if an agent gave it back, or died.
    pub delivered: u64,
}

impl UnitReport {
    /// Whether its part can be the agent's own: it comes from another machine.
    pub fn is_sound(&self) -> bool {
        let is_own = |part: &UnitPart| is_part_of(&part.object, &part.digest, part.bytes, &self.agent);
        self.outcome.as_ref().map_or(true, is_own)
    }
}

#[cfg(test)]
mod tests;
