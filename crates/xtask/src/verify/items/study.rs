//! The study of sidecars on lossy links, and what its readers asked for: the shipped scenarios against the real programs.

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{Item, item};
use crate::process;
use crate::verify::binary::H2lab;
use crate::verify::numbers::{agreement_ms, median};
use crate::verify::outcome::Outcome;

/// Exit code of a run in which a verdict lacks a sound measurement.
const INVALID: i32 = 5;
/// How often a scenario is run whose needed cells the tool itself does not trust.
const TRIES: u32 = 3;

/// A run of a study, as far as items read it.
#[derive(Debug, Deserialize)]
struct Run {
    cells: Vec<Cell>,
    study: Study,
}

#[derive(Debug, Deserialize)]
struct Study {
    conditions: Vec<Condition>,
    ways: Vec<Way>,
    needed: Vec<Needed>,
    ramps: Vec<Ramps>,
}

#[derive(Debug, Deserialize)]
struct Condition {
    name: String,
    rtt_ms: f64,
    loss: f64,
    predicted_connections: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct Way {
    name: String,
    protocol: String,
    cells: Vec<Option<u32>>,
}

#[derive(Debug, Deserialize)]
struct Needed {
    condition: usize,
    parties: String,
    protocol: String,
    connections: Option<u32>,
    more_than: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct Ramps {
    cell: u32,
    slow: u64,
    share: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Cell {
    index: u32,
    state: String,
    connections: u32,
    reasons: Vec<String>,
    throughput_rps: f64,
    server: Option<Process>,
    sidecar: Option<Process>,
    latency_us: Latencies,
}

#[derive(Debug, Deserialize)]
struct Process {
    name: String,
    version: String,
}

#[derive(Debug, Deserialize)]
struct Latencies {
    response: Option<Percentiles>,
}

#[derive(Debug, Deserialize)]
struct Percentiles {
    p50: f64,
    p99: f64,
}

/// The promises of this file.
pub fn items() -> Vec<Item> {
    vec![
        item(
            "study",
            "sidecar-chaos --quick in ten minutes: without loss all topologies agree; at 3 % loss HTTP/2 on one connection \
             between two sidecars has the worst p99 (at RTT 0: study-worst); ramps: >= 50 % of the slow requests of h2c x 4, <= 5 % \
             of h1's; with k connections HTTP/2 catches up; HAProxy, nginx and Envoy run in it",
            study,
        ),
        item(
            "study-worst",
            "at 3 % loss and RTT 0 HTTP/2 on one connection between two sidecars has the worst p99, too: visits of 20 s, since \
             there both wait for timeouts, and what tells them apart are those that double",
            worst_without_delay,
        ),
        item(
            "study-bbr",
            "RTT 25 ms, 3 %, one connection: unstable under cubic, under bbr p99 <= h1's (the middle of three seeds)",
            bbr,
        ),
        item("study-bursts", "Gilbert-Elliott changes k at RTT 25 ms", bursts),
        item(
            "study-knob",
            "k is printed for each condition beside the PFTK model's; with the most connections HTTP/2 matches HTTP/1.1",
            knob,
        ),
    ]
}

/// Runs a shipped scenario until the tool trusts all of its cells, for a few times.
fn measure(h2lab: &H2lab, scenario: &str, more: &[&str]) -> Result<Run> {
    let path = process::workspace().join("scenarios").join(format!("{scenario}.toml"));
    let path = path.to_str().context("the workspace's path is not UTF-8")?;
    let words: Vec<String> =
        ["run", path, "--json", "--out=run"].iter().chain(more).map(|&word| word.to_owned()).collect();
    let mut doubts = String::new();
    for _ in 0..TRIES {
        let folder = tempfile::tempdir()?;
        let run = h2lab.run(folder.path(), &words, "")?;
        if !matches!(run.code, Some(0 | INVALID)) {
            bail!("`h2lab {}` ended with {:?}: {}", words.join(" "), run.code, run.stderr.trim());
        }
        let run: Run = serde_json::from_str(&run.stdout).context("stdout is not the document of a study")?;
        let invalid: Vec<&Cell> = run.cells.iter().filter(|cell| cell.state == "invalid").collect();
        if invalid.is_empty() {
            return Ok(run);
        }
        doubts = invalid.iter().flat_map(|cell| cell.reasons.clone()).collect::<Vec<_>>().join("; ");
    }
    bail!("void {TRIES} times, so nothing is shown either way; {doubts}");
}

impl Run {
    fn cell(&self, way: &Way, condition: usize) -> Option<&Cell> {
        let index = (*way.cells.get(condition)?)?;
        self.cells.iter().find(|cell| cell.index == index)
    }

    fn way(&self, name: &str) -> Result<&Way> {
        self.study
            .ways
            .iter()
            .find(|way| way.name == name)
            .with_context(|| format!("there is no way `{name}`"))
    }

    /// The p99 in milliseconds of each way's cell under a condition; infinite where the load is not carried.
    fn p99s(&self, condition: usize) -> Vec<(&Way, f64)> {
        let of = |way| Some((way, self.cell(way, condition)?.p99_ms()));
        self.study.ways.iter().filter_map(of).collect()
    }
}

impl Cell {
    fn p99_ms(&self) -> f64 {
        match &self.latency_us.response {
            Some(response) if self.state == "ok" => response.p99 / 1e3,
            _ => f64::INFINITY,
        }
    }
}

/// `254 ms`, or that there is none.
fn told(p99: f64) -> String {
    if p99.is_finite() { format!("{p99:.1} ms") } else { "unstable".to_owned() }
}

/// The study itself.
fn study(h2lab: &H2lab) -> Result<Outcome> {
    let run = measure(h2lab, "sidecar-chaos", &["--quick"])?;
    let mut outcome = Outcome::default();
    for (k, condition) in run.study.conditions.iter().enumerate() {
        if condition.loss > 0.0 {
            if condition.rtt_ms > 0.0 {
                worst(&mut outcome, &run, k)?;
            }
            ramps(&mut outcome, &run, k)?;
        } else {
            equal(&mut outcome, &run, k);
        }
    }
    needed(&mut outcome, &run);
    programs(&mut outcome, &run);
    Ok(outcome)
}

/// Without loss nothing is worth a word.
fn equal(outcome: &mut Outcome, run: &Run, condition: usize) {
    let p99s = run.p99s(condition);
    let extreme = |better: fn(f64, f64) -> f64, from| p99s.iter().map(|(_, p99)| *p99).fold(from, better);
    let (least, most) = (extreme(f64::min, f64::INFINITY), extreme(f64::max, 0.0));
    let text = format!(
        "{}: p99 of {} ways from {} to {}",
        run.study.conditions[condition].name,
        p99s.len(),
        told(least),
        told(most)
    );
    outcome.check(most - least <= agreement_ms(least), text);
}

/// HTTP/2 on one connection between two sidecars is the worst of the topologies.
fn worst(outcome: &mut Outcome, run: &Run, condition: usize) -> Result<()> {
    // HAProxy, which decides by itself how many connections it holds, is none of the study's.
    let is_one = |way: &Way| way.name.starts_with("two envoys, h2") && way.name.ends_with("× 1");
    let p99s = run.p99s(condition);
    // More connections are the cure, and no topology of the study.
    let topologies = p99s.iter().filter(|(way, _)| is_one(way) || way.protocol == "h1");
    let (shared, others): (Vec<_>, Vec<_>) = topologies.copied().partition(|(way, _)| is_one(way));
    let worst_other = others.iter().map(|(_, p99)| *p99).fold(0.0, f64::max);
    let name = &run.study.conditions[condition].name;
    if shared.is_empty() {
        bail!("{name}: no HTTP/2 between two sidecars");
    }
    for (way, p99) in shared {
        let text =
            format!("{name}: {} p99 {}; the worst of HTTP/1.1 {}", way.name, told(p99), told(worst_other));
        outcome.check(worst_other.is_finite() && p99 > worst_other, text);
    }
    Ok(())
}

/// The same where a round trip takes no time.
fn worst_without_delay(h2lab: &H2lab) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let more = ["--delay=0ms", "--loss=3%", "--visits=1", "-z=20s"];
    worst(&mut outcome, &measure(h2lab, "sidecar-chaos", &more)?, 0)?;
    Ok(outcome)
}

/// Ramps are HTTP/2's. Without a round trip requests hardly ever wait for one another on four connections: our client gives
/// them to those that do not stand still.
fn ramps(outcome: &mut Outcome, run: &Run, condition: usize) -> Result<()> {
    for (way, allowed) in [("direct, h2c × 4", 0.5..=1.0), ("direct, h1", 0.0..=0.05)] {
        let cell = run.cell(run.way(way)?, condition).with_context(|| format!("{way} was not measured"))?;
        let ramps = run.study.ramps.iter().find(|ramps| ramps.cell == cell.index);
        let ramps = ramps.with_context(|| format!("{way} has no ramps"))?;
        let share = ramps.share.unwrap_or(0.0);
        let name = &run.study.conditions[condition].name;
        outcome.check(
            allowed.contains(&share),
            format!("{name}: {way}: {:.1} % of {} slow requests on ramps", share * 100.0, ramps.slow),
        );
    }
    Ok(())
}

/// With k connections HTTP/2 catches up where nothing stands between.
fn needed(outcome: &mut Outcome, run: &Run) {
    for needed in run.study.needed.iter().filter(|needed| needed.parties == "origin") {
        let condition = &run.study.conditions[needed.condition];
        let predicted = condition.predicted_connections.map_or("nothing".to_owned(), |n| n.to_string());
        let text = match (needed.connections, needed.more_than) {
            (Some(k), _) => format!("{}: {} matches h1 with {k}", condition.name, needed.protocol),
            (None, Some(k)) => format!("{}: {} does not match h1 with {k}", condition.name, needed.protocol),
            (None, None) => format!("{}: {} is not known", condition.name, needed.protocol),
        };
        outcome.check(needed.connections.is_some(), format!("{text}; the PFTK model says {predicted}"));
    }
}

/// The real programs really ran.
fn programs(outcome: &mut Outcome, run: &Run) {
    for name in ["haproxy", "nginx-proxy", "envoy"] {
        let of = |cell: &'_ Cell| -> Option<String> {
            let process = [cell.sidecar.as_ref(), cell.server.as_ref()]
                .into_iter()
                .flatten()
                .find(|p| p.name == name)?;
            (cell.throughput_rps > 0.0).then(|| process.version.clone())
        };
        let versions: Vec<String> = run.cells.iter().filter_map(of).collect();
        let version = versions.first().map_or("not there", String::as_str);
        outcome.check(!versions.is_empty(), format!("{name} {version}: {} cells", versions.len()));
    }
}

/// What congestion control does to one connection. The p99 of one look is noisy, so that the middle of three counts.
fn bbr(h2lab: &H2lab) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut ratios = Vec::new();
    for seed in 1..=3 {
        let run = measure(h2lab, "bbr-vs-cubic", &["--quick", &format!("--seed={seed}")])?;
        for (k, condition) in run.study.conditions.iter().enumerate() {
            let of = |way: &str| -> Result<&Cell> {
                run.cell(run.way(way)?, k).with_context(|| format!("{way} was not measured"))
            };
            let (http1, one) = (of("direct, h1")?, of("direct, h2c × 1")?);
            let text = format!(
                "seed {seed}, {}: h2c × 1 {} served {:.0}/s, p99 {}; h1 p99 {}",
                condition.name,
                one.state,
                one.throughput_rps,
                told(one.p99_ms()),
                told(http1.p99_ms())
            );
            if condition.name.contains("bbr") {
                ratios.push(one.p99_ms() / http1.p99_ms());
                outcome.note(text);
            } else {
                outcome.check(one.state == "unstable", text);
            }
        }
    }
    let middle = median(&ratios).context("there is no condition with bbr")?;
    outcome.check(middle <= 1.0, format!("bbr: p99 of h2c × 1 is {middle:.2} × h1's"));
    Ok(outcome)
}

/// How losses are spread decides how many connections it takes.
fn bursts(h2lab: &H2lab) -> Result<Outcome> {
    let run = measure(h2lab, "burst-vs-random", &["--quick"])?;
    let mut outcome = Outcome::default();
    let mut found = Vec::new();
    for needed in &run.study.needed {
        let condition = &run.study.conditions[needed.condition];
        outcome.note(format!(
            "{}: k = {:?}, more than {:?}, PFTK {:?}",
            condition.name, needed.connections, needed.more_than, condition.predicted_connections
        ));
        found.push((needed.connections, needed.more_than));
    }
    found.dedup();
    outcome.check(found.len() > 1, "k differs between independent losses and two states");
    Ok(outcome)
}

/// The knob that the study's readers asked about.
fn knob(h2lab: &H2lab) -> Result<Outcome> {
    let run = measure(h2lab, "connections-knob", &["--quick"])?;
    let mut outcome = Outcome::default();
    for condition in &run.study.conditions {
        outcome.note(format!(
            "{}: RTT {} ms, PFTK {:?}",
            condition.name, condition.rtt_ms, condition.predicted_connections
        ));
    }
    for cell in &run.cells {
        let median = cell.latency_us.response.as_ref().map_or(f64::NAN, |response| response.p50 / 1e3);
        outcome.note(format!(
            "× {}: {}, p50 {median:.1} ms, p99 {}",
            cell.connections,
            cell.state,
            told(cell.p99_ms())
        ));
    }
    needed(&mut outcome, &run);
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = r#"{"cells": [
        {"index": 0, "state": "ok", "connections": 32, "reasons": [], "throughput_rps": 1000,
         "server": null, "sidecar": null, "latency_us": {"response": {"p50": 25000, "p99": 260000}}},
        {"index": 1, "state": "unstable", "connections": 1, "reasons": [], "throughput_rps": 290,
         "server": {"name": "envoy", "version": "1"}, "sidecar": null, "latency_us": {"response": {"p50": 1, "p99": 2}}}],
        "study": {"conditions": [{"name": "RTT 25ms, 3% loss", "rtt_ms": 25, "loss": 0.03, "predicted_connections": 5}],
        "ways": [{"name": "direct, h1", "protocol": "h1", "cells": [0]},
                 {"name": "two envoys, h2c × 1", "protocol": "h2c", "cells": [1]}],
        "needed": [], "ramps": []}}"#;

    #[test]
    fn what_does_not_carry_the_load_is_worse_than_any_figure() {
        let run: Run = serde_json::from_str(RUN).unwrap();
        let mut outcome = Outcome::default();
        worst(&mut outcome, &run, 0).unwrap();
        assert!(outcome.holds(), "{:?}", outcome.figures());
    }

    #[test]
    fn cells_that_do_not_agree_are_not_called_equal() {
        let mut run: Run = serde_json::from_str(RUN).unwrap();
        let equal_now = |run: &Run| {
            let mut outcome = Outcome::default();
            equal(&mut outcome, run, 0);
            outcome.holds()
        };
        assert!(!equal_now(&run), "one is unstable");
        run.study.ways.truncate(1);
        assert!(equal_now(&run));
    }

    #[test]
    fn a_program_that_answered_nothing_did_not_run() {
        let run: Run = serde_json::from_str(RUN).unwrap();
        let mut outcome = Outcome::default();
        programs(&mut outcome, &run);
        let lines: Vec<String> = outcome.figures().iter().map(ToString::to_string).collect();
        assert!(lines[2].starts_with("ok") && lines[0].starts_with("FAIL"), "{lines:?}");
    }
}
