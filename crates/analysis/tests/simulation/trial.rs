//! What the tests share: the scenario that they vary, and whole runs.

use std::time::Duration;

use h2lab_base::units::Ratio;
use h2lab_model::record::{RunRecord, SCHEMA_VERSION};
use h2lab_model::scenario::{Axis, Cell, Scenario};
use h2lab_model::workload::Protocol;

use crate::model::{self, Setup};

/// The scenario that `h2lab compare` runs: h1, and h2c with 1, 4 and 16 connections, at 0 % and 3 % loss, RTT 25 ms.
pub fn scenario() -> Scenario {
    let text = include_str!("../../../../scenarios/compare.toml");
    let mut scenario = Scenario::from_toml(text).expect("the shipped scenario");
    // The scenario file has a shorter time, so that a run takes less than a minute of real time; here time costs
    // nothing.
    scenario.work.measure = Axis::one(Duration::from_secs(3));
    scenario
}

/// The same with one protocol, one number of connections and one share of loss, measured once.
pub fn one(protocol: Protocol, connections: u32, loss: f64) -> Scenario {
    let mut scenario = scenario();
    scenario.repetitions = 1;
    scenario.matrix.protocols = Axis::one(protocol);
    scenario.matrix.connections = Axis::one(connections.into());
    scenario.link.loss = Axis::one(Ratio::new(loss).expect("a share"));
    scenario
}

/// The only cell of a scenario that has one.
pub fn cell(scenario: &Scenario) -> Cell {
    let mut plan = scenario.plan();
    assert_eq!(plan.len(), 1, "the scenario has more than one repetition");
    plan.remove(0)
}

/// A run of a scenario before its first repetition.
pub fn not_begun(scenario: &Scenario) -> RunRecord {
    RunRecord {
        schema: SCHEMA_VERSION,
        version: "model".to_owned(),
        started: String::new(),
        command: Vec::new(),
        seed: scenario.seed.values()[0],
        machine: "virtual time".to_owned(),
        scenario: scenario.clone(),
        repetitions: Vec::new(),
        interrupted: false,
        failure: None,
        resumed: Vec::new(),
    }
}

/// All repetitions of a scenario, in the order of its plan.
pub fn run(scenario: &Scenario, setup: &Setup<'_>) -> RunRecord {
    let repetitions = scenario.plan().iter().map(|cell| model::repetition(cell, setup).record).collect();
    RunRecord { repetitions, ..not_begun(scenario) }
}
