//! A study by agents: as fast as there are agents, with the verdicts of one, and whole whoever is killed on the way.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::figures::{list, number, text};
use super::fleet::{DEADLINE, Fleet, Launch, THREE, json};
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;
use crate::verify::started::{Ended, Ending};

/// One-way delays: a condition of each, which is a unit. Of an even number each of two agents gets half.
const DELAYS: [&str; 6] = ["8ms", "9ms", "10ms", "11ms", "12ms", "13ms"];
/// Protocols in each condition, and repetitions of each cell.
const PROTOCOLS: u64 = 2;
const REPETITIONS: u64 = 2;
/// Of the time of one agent, how much two may need.
const MOST: f64 = 0.6;
/// The tool may call cells invalid on a busy machine, which then have further repetitions.
const TRIES: u32 = 3;
/// How long an agent may take to begin a unit: first the queue must give back what a killed one had.
const TO_BEGIN: Duration = Duration::from_secs(120);
/// After so long an agent is in the middle of its unit, which takes 15 s and more.
const MIDDLE: Duration = Duration::from_secs(3);

/// Cells of little CPU: 300 requests/s over an emulated link. With 3 % loss both protocols differ in each condition.
fn scenario() -> String {
    let delays: Vec<String> = DELAYS.iter().map(|delay| format!("{delay:?}")).collect();
    format!(
        "seed = 1\nrepetitions = {REPETITIONS}\n\
         [work]\nmethod = \"POST\"\npath = \"/\"\nshape = \"mesh\"\nbody-bytes = 1024\nrate = 300\nmeasure = \"3s\"\n\
         warmup = \"250ms\"\ndrain = \"500ms\"\ntimeout = \"30s\"\n\
         [link]\ndelay = [{}]\nloss = \"3%\"\nloss-model = \"bernoulli\"\ncongestion = \"cubic\"\n\
         [matrix]\norigin = \"origin\"\nprotocols = [\"h1\", \"h2c\"]\nconnections = 1\nwarm-pool = 32\nmax-connections = 512\n",
        delays.join(", ")
    )
}

/// Two agents that may emulate links, and a scenario.
fn fleet(h2lab: &H2lab) -> Result<Fleet<'_>> {
    let mut fleet = Fleet::new(h2lab, &THREE[..2])?;
    fleet.start_nats("", "")?;
    fleet.start_agents(&THREE[..2], LAB)?;
    fs::write(fleet.folder().join("study.toml"), scenario())?;
    Ok(fleet)
}

const LAB: Launch<'static> = Launch { before: &[], flags: &["--allow", "lab"], variables: &[] };

/// By two agents in hardly more than half the time.
pub fn study(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let fleet = fleet(h2lab)?;
    let (one, alone) = measured(&fleet, THREE[0], "one")?;
    let (two, together) = measured(&fleet, &THREE[..2].join(","), "two")?;
    let ratio = together.as_secs_f64() / alone.as_secs_f64();
    let text = format!(
        "{} conditions: one agent {:.1} s, two {:.1} s: {ratio:.2} of it",
        DELAYS.len(),
        alone.as_secs_f64(),
        together.as_secs_f64()
    );
    outcome.check(ratio <= MOST, text);
    let (ours, theirs) = (verdicts(&two)?, verdicts(&one)?);
    let text = format!("verdicts by two agents: {}; by one: {}", ours.join(", "), theirs.join(", "));
    outcome.check(ours == theirs && ours.len() == DELAYS.len(), text);
    for (document, agents) in [(&one, 1), (&two, 2)] {
        whole(&mut outcome, document)?;
        on_machines(&mut outcome, document, agents)?;
    }
    Ok(outcome)
}

/// Runs the study by these agents; its document, and how long it took. Again while the tool does not trust it.
fn measured(fleet: &Fleet<'_>, agents: &str, out: &str) -> Result<(Value, Duration)> {
    let mut last = String::new();
    for attempt in 1..=TRIES {
        let folder = format!("{out}-{attempt}");
        let words = ["run", "study.toml", "--json", "--quiet", "--agents", agents, "--out", folder.as_str()];
        let ended = fleet.drive(&words)?;
        if ended.ending == Ending::Code(0) {
            return Ok((json(&ended)?, ended.took));
        }
        last = format!("{}: {}", ended.ending, ended.last_words());
    }
    bail!("void {TRIES} times, so nothing is shown either way: {last}")
}

/// What is said of each comparison.
fn verdicts(document: &Value) -> Result<Vec<String>> {
    list(document, "/verdicts")?.iter().map(|verdict| Ok(text(verdict, "/verdict")?.to_owned())).collect()
}

/// Each cell is there, with each of its repetitions once.
fn whole(outcome: &mut ItemOutcome, document: &Value) -> Result<()> {
    let cells = list(document, "/cells")?;
    let repetitions = cells
        .iter()
        .map(|cell| number(cell, "/repetitions").map(|n| n as u64))
        .collect::<Result<Vec<u64>>>()?;
    let expected = DELAYS.len() as u64 * PROTOCOLS;
    let is_whole = repetitions.len() as u64 == expected && repetitions.iter().all(|n| *n == REPETITIONS);
    outcome
        .check(is_whole, format!("{} of {expected} cells, repetitions {repetitions:?}", repetitions.len()));
    Ok(())
}

/// Each comparison was made on one machine, and each agent made some.
fn on_machines(outcome: &mut ItemOutcome, document: &Value, agents: usize) -> Result<()> {
    let machines = list(document, "/machines")?;
    let mut groups: Vec<u64> = Vec::new();
    for machine in machines {
        let own: Vec<u64> = list(machine, "/groups")?.iter().filter_map(Value::as_u64).collect();
        outcome.note(format!("{} measured the groups {own:?}", text(machine, "/agent")?));
        groups.extend(own);
    }
    let count = groups.len();
    groups.sort_unstable();
    groups.dedup();
    let text = format!("{count} groups on {} machines, each group on one", machines.len());
    outcome.check(machines.len() == agents && count == groups.len(), text);
    Ok(())
}

/// One agent is killed twice in the middle of a unit, and the driver once.
pub fn killed(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let mut fleet = fleet(h2lab)?;
    let (agents, victim) = (THREE[..2].join(","), THREE[0]);
    let words = ["run", "study.toml", "--json", "--quiet", "--agents", &agents, "--out", "run"];
    let mut driver = fleet.begin(&words)?;
    for time in ["first", "second"] {
        let waited = fleet.await_busy(victim, TO_BEGIN, |busy| busy)?;
        // Who only looks whether there is a unit is busy for a moment as well.
        std::thread::sleep(MIDDLE);
        fleet.await_busy(victim, TO_BEGIN, |busy| busy)?;
        ensure!(driver.ending()?.is_none(), "the study is over before the {time} kill: {}", driver.stderr());
        outcome.note(format!("killed {victim} for the {time} time, {:.1} s later", waited.as_secs_f64()));
        fleet.kill_agent(victim)?;
        fleet.start_agents(&[victim], LAB)?;
    }
    ensure!(driver.ending()?.is_none(), "the study is over before its driver is killed: {}", driver.stderr());
    drop(driver);
    outcome.note("killed the driver");
    let ended = resumed(&fleet, &agents)?;
    let is_kept = matches!(ended.ending, Ending::Code(0 | 5));
    outcome.check(is_kept, format!("run --resume: {}, {:.1} s", ended.ending, ended.took.as_secs_f64()));
    let document = json(&ended)?;
    // What the tool does not trust is measured again, and then there are more repetitions.
    let is_trusted = list(&document, "/cells")?.iter().all(|cell| cell["state"] != "invalid");
    if is_trusted {
        whole(&mut outcome, &document)?;
    } else {
        outcome.check(false, "cells are invalid: the machine was busy");
    }
    let left = fleet.agents()?;
    outcome.check(list(&left, "/runs")?.is_empty(), "no run is open at the NATS server");
    Ok(outcome)
}

/// The run is taken up by another driver.
fn resumed(fleet: &Fleet<'_>, agents: &str) -> Result<Ended> {
    let words = ["run", "--resume", "run", "--json", "--quiet", "--agents", agents];
    fleet.begin(&words)?.end(DEADLINE).context("the driver that resumes")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cells(repetitions: u64) -> Value {
        let cell = json!({"repetitions": repetitions});
        json!({"cells": vec![cell; DELAYS.len() * PROTOCOLS as usize]})
    }

    #[test]
    fn a_study_is_whole_with_each_repetition_once_and_not_with_one_twice() {
        let holds = |document: &Value| {
            let mut outcome = ItemOutcome::default();
            whole(&mut outcome, document).unwrap();
            outcome.holds()
        };
        assert!(holds(&cells(REPETITIONS)));
        assert!(!holds(&cells(REPETITIONS + 1)) && !holds(&cells(REPETITIONS - 1)));
        assert!(!holds(&json!({"cells": []})));
    }

    #[test]
    fn a_group_that_two_machines_measured_is_no_comparison() {
        let holds = |second: &[u64]| {
            let machines = json!({"machines": [
                {"agent": "a", "groups": [0, 1]},
                {"agent": "b", "groups": second},
            ]});
            let mut outcome = ItemOutcome::default();
            on_machines(&mut outcome, &machines, 2).unwrap();
            outcome.holds()
        };
        assert!(holds(&[2]) && !holds(&[1, 2]));
    }

    #[test]
    fn the_scenario_is_toml_with_a_list_of_delays() {
        let scenario: toml::Table = scenario().parse().unwrap();
        assert_eq!(scenario["link"]["delay"].as_array().map(Vec::len), Some(DELAYS.len()));
    }
}
