//! A study by agents: as fast as there are agents, with the verdicts of one, and whole whoever is killed on the way.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::doing;
use super::figures::{list, number, text};
use super::fleet::{Fleet, INVALID, Launch, THREE, json};
use super::rest::cpu_with_children_s;
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;
use crate::verify::started::{Ended, Ending};

/// One-way delays and losses: a condition of each pair, which is a unit. Of an even number each of two agents gets half. None is
/// near the limit between two verdicts: without loss, or with a short round trip, both protocols are alike; with loss HTTP/2 over one
/// connection cannot carry the load at the longer delays.
const DELAYS: [&str; 3] = ["4ms", "20ms", "30ms"];
const LOSSES: [&str; 2] = ["0%", "3%"];
const CONDITIONS: usize = DELAYS.len() * LOSSES.len();
/// Protocols in each condition, and repetitions of each cell.
const PROTOCOLS: u64 = 2;
const REPETITIONS: u64 = 2;
/// Of the time of one agent, how much two may need.
const MOST: f64 = 0.6;
/// Of a CPU, how much the cells of one agent may need.
const CPU: f64 = 0.25;
/// A study of one agent takes two minutes, and three times as long if each cell is doubtful; only one that hangs takes longer.
const LONGEST: Duration = Duration::from_secs(900);
/// The tool may call cells invalid on a busy machine, which then have further repetitions.
const TRIES: u32 = 3;
/// How long an agent may take to begin a unit: first the queue must give back what a killed one had.
const TO_BEGIN: Duration = Duration::from_secs(120);
/// After so long an agent is in the middle of its unit, which takes 15 s and more.
const MIDDLE: Duration = Duration::from_secs(3);

/// Cells of little CPU: 300 requests/s over an emulated link.
fn scenario() -> String {
    format!(
        "seed = 1\nrepetitions = {REPETITIONS}\n\
         [work]\nmethod = \"POST\"\npath = \"/\"\nshape = \"mesh\"\nbody-bytes = 1024\nrate = 300\nmeasure = \"3s\"\n\
         warmup = \"250ms\"\ndrain = \"500ms\"\ntimeout = \"30s\"\n\
         [link]\ndelay = {DELAYS:?}\nloss = {LOSSES:?}\nloss-model = \"bernoulli\"\ncongestion = \"cubic\"\n\
         [matrix]\norigin = \"origin\"\nprotocols = [\"h1\", \"h2c\"]\nconnections = 1\nwarm-pool = 32\nmax-connections = 512\n",
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
    let (one, alone, cpu) = measured(&fleet, THREE[0], "one")?;
    outcome.check(cpu <= CPU, format!("the cells of one agent need {:.0} % of a CPU", cpu * 100.0));
    let (two, together, _) = measured(&fleet, &THREE[..2].join(","), "two")?;
    let ratio = together.as_secs_f64() / alone.as_secs_f64();
    let text = format!(
        "{} conditions, {PROTOCOLS} protocols, {REPETITIONS} repetitions of each: one agent {:.1} s, two {:.1} s: {ratio:.2} of it",
        CONDITIONS,
        alone.as_secs_f64(),
        together.as_secs_f64()
    );
    outcome.check(ratio <= MOST, text);
    let (ours, theirs) = (verdicts(&two)?, verdicts(&one)?);
    let text = format!("verdicts by two agents: {}; by one: {}", ours.join(", "), theirs.join(", "));
    outcome.check(ours == theirs && ours.len() == CONDITIONS, text);
    for (document, agents) in [(&one, 1), (&two, 2)] {
        whole(&mut outcome, document)?;
        on_machines(&mut outcome, document, agents)?;
    }
    Ok(outcome)
}

/// Runs the study by these agents; its document, how long it took, and how much of a CPU the first agent needed. Again while the tool
/// does not trust it.
fn measured(fleet: &Fleet<'_>, agents: &str, out: &str) -> Result<(Value, Duration, f64)> {
    let first = fleet.agent(THREE[0])?.id();
    let mut last = String::new();
    for attempt in 1..=TRIES {
        doing(format!("the study by {agents}"));
        let folder = format!("{out}-{attempt}");
        let before = cpu_with_children_s(first)?;
        let words = ["run", "study.toml", "--json", "--quiet", "--agents", agents, "--out", folder.as_str()];
        let ended = fleet.begin(&words)?.end(LONGEST)?;
        match ended.ending {
            Ending::Code(0) => {
                let cpu_s = cpu_with_children_s(first)? - before;
                return Ok((json(&ended)?, ended.took, cpu_s / ended.took.as_secs_f64()));
            }
            Ending::Code(INVALID) => ended.last_words().clone_into(&mut last),
            ending => bail!("by {agents}: {ending}: {}", ended.last_words()),
        }
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
    let expected = CONDITIONS as u64 * PROTOCOLS;
    let is_whole = repetitions.len() as u64 == expected && repetitions.iter().all(|n| *n == REPETITIONS);
    outcome
        .check(is_whole, format!("{} of {expected} cells, repetitions {repetitions:?}", repetitions.len()));
    Ok(())
}

/// No repetition was taken over twice, which the report would not show: of several it counts the last one.
fn once(outcome: &mut ItemOutcome, fleet: &Fleet<'_>, folder: &str) -> Result<()> {
    let path = fleet.folder().join(folder).join("run.json");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let (all, twice) = stored(&serde_json::from_str(&text)?)?;
    outcome.check(twice == 0, format!("{all} measurements are in the run folder, {twice} of them twice"));
    Ok(())
}

/// How many measurements of repetitions a run has, and how many of them are there before.
fn stored(run: &Value) -> Result<(usize, usize)> {
    let key = |one: &Value| -> Result<[u64; 3]> {
        let part = |pointer: &str| number(one, pointer).map(|n| n as u64);
        Ok([part("/cell/index")?, part("/cell/repetition")?, part("/attempt")?])
    };
    let mut keys = list(run, "/repetitions")?.iter().map(key).collect::<Result<Vec<_>>>()?;
    let all = keys.len();
    keys.sort_unstable();
    keys.dedup();
    Ok((all, all - keys.len()))
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
        doing(format!("the study goes on until {victim} is killed for the {time} time"));
        let waited = fleet.await_busy(victim, TO_BEGIN, |busy| busy)?;
        std::thread::sleep(MIDDLE);
        // It may have been at the end of a unit.
        fleet.await_busy(victim, TO_BEGIN, |busy| busy)?;
        ensure!(driver.ending()?.is_none(), "the study is over before the {time} kill: {}", driver.stderr());
        outcome.note(format!(
            "killed {victim} for the {time} time; it had a unit after {:.1} s",
            waited.as_secs_f64()
        ));
        fleet.kill_agent(victim)?;
        fleet.start_agents(&[victim], LAB)?;
    }
    ensure!(driver.ending()?.is_none(), "the study is over before its driver is killed: {}", driver.stderr());
    drop(driver);
    outcome.note("killed the driver");
    doing("run --resume");
    let ended = resumed(&fleet, &agents)?;
    let is_kept = matches!(ended.ending, Ending::Code(0 | INVALID));
    outcome.check(is_kept, format!("run --resume: {}, {:.1} s", ended.ending, ended.took.as_secs_f64()));
    let document = json(&ended)?;
    // Also if the tool does not trust some of it, on a machine on which agents were just killed and started.
    whole(&mut outcome, &document)?;
    once(&mut outcome, &fleet, "run")?;
    let doubtful = list(&document, "/cells")?.iter().filter(|cell| cell["state"] == "invalid").count();
    outcome.note(format!("{doubtful} cells are invalid"));
    let left = fleet.agents()?;
    outcome.check(list(&left, "/runs")?.is_empty(), "no run is open at the NATS server");
    Ok(outcome)
}

/// The run is taken up by another driver.
fn resumed(fleet: &Fleet<'_>, agents: &str) -> Result<Ended> {
    let words = ["run", "--resume", "run", "--json", "--quiet", "--agents", agents];
    fleet.begin(&words)?.end(LONGEST).context("the driver that resumes")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cells(repetitions: u64) -> Value {
        let cell = json!({"repetitions": repetitions});
        json!({"cells": vec![cell; CONDITIONS * PROTOCOLS as usize]})
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
    fn a_repetition_that_was_measured_again_is_not_there_twice_and_one_that_was_stored_twice_is() {
        let one = |attempt: u32| json!({"cell": {"index": 3, "repetition": 1}, "attempt": attempt});
        assert_eq!(stored(&json!({"repetitions": [one(0), one(1)]})).unwrap(), (2, 0));
        assert_eq!(stored(&json!({"repetitions": [one(0), one(1), one(1)]})).unwrap(), (3, 1));
        assert!(stored(&json!({"repetitions": [{}]})).is_err());
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
