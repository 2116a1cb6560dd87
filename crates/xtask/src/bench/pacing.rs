//! How punctual load generators are: `cargo xtask bench load --only pacing`.
//!
//! An open loop at 20,000 and at 50,000 requests per second, as root and as nobody. The server records the arrivals.
//! Request number i should arrive a constant time after i/rate. That time is not known, so the earliest request of all
//! is taken to be punctual, and the lateness of the others is counted from its line. A generator that sends evenly is
//! at 0 all the time; one that sleeps in steps of a millisecond shows a median of half a millisecond.

use std::path::Path;

use anyhow::{Context, Result};

use super::ratio::middle;
use crate::generators::{Job, Stamps, Tool};
use crate::process;
use crate::verify::binary::H2lab;

/// What is asked of the generators.
#[derive(Debug)]
pub struct Pace {
    /// What `--only` selects.
    pub id: &'static str,
    /// `h1` over 50 connections, or `h2c` over one.
    protocol: &'static str,
    /// Requests per second.
    rate: u32,
    /// Whether they run without any privilege, as uid 65534.
    as_nobody: bool,
}

impl Pace {
    /// What the 99th percentile of our lateness may be in any round, in microseconds.
    const fn limit_us(&self) -> f64 {
        if self.rate > 20_000 { 500.0 } else { 100.0 }
    }
}

/// All of them.
pub const PACES: [Pace; 8] = [
    Pace { id: "pacing-h1-20k", protocol: "h1", rate: 20_000, as_nobody: false },
    Pace { id: "pacing-h2c-20k", protocol: "h2c", rate: 20_000, as_nobody: false },
    Pace { id: "pacing-h1-50k", protocol: "h1", rate: 50_000, as_nobody: false },
    Pace { id: "pacing-h2c-50k", protocol: "h2c", rate: 50_000, as_nobody: false },
    Pace { id: "pacing-nobody-h1-20k", protocol: "h1", rate: 20_000, as_nobody: true },
    Pace { id: "pacing-nobody-h2c-20k", protocol: "h2c", rate: 20_000, as_nobody: true },
    Pace { id: "pacing-nobody-h1-50k", protocol: "h1", rate: 50_000, as_nobody: true },
    Pace { id: "pacing-nobody-h2c-50k", protocol: "h2c", rate: 50_000, as_nobody: true },
];

/// Seconds of a run.
const SECONDS: u32 = 3;
/// The time that is not judged: connections are made, and programs warm up.
const START_NS: u64 = 500_000_000;
/// The default number of rounds.
const ROUNDS: u32 = 3;

/// How late the requests of a run were, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Lateness {
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
    /// Requests that arrived in all, as a share of those that were requested.
    sent: f64,
}

impl Lateness {
    /// Of arrivals in nanoseconds; `None` if nothing came after the start.
    fn of(mut arrivals: Vec<u64>, rate: u32, seconds: u32) -> Option<Self> {
        arrivals.sort_unstable();
        let sent = arrivals.len() as f64 / (f64::from(rate) * f64::from(seconds));
        let judged_from = arrivals.first()? + START_NS;
        let ns_per_request = 1e9 / f64::from(rate);
        let judged = arrivals.iter().enumerate().filter(|(_, at)| **at >= judged_from);
        let mut late: Vec<f64> = judged.map(|(i, &at)| at as f64 - i as f64 * ns_per_request).collect();
        late.sort_by(f64::total_cmp);
        let earliest = *late.first()?;
        let at = |share: f64| {
            let rank = (share * late.len() as f64).ceil() as usize;
            (late[rank.clamp(1, late.len()) - 1] - earliest) / 1e3
        };
        Some(Self { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1.0), sent })
    }
}

/// The figures of one run of one tool.
#[derive(Debug, Clone, Copy)]
struct PacingFigures {
    lateness: Lateness,
    /// CPU of the generator per request, in microseconds, with what it does before and after the load.
    cpu_us: f64,
}

impl PacingFigures {
    const fn p99(&self) -> f64 {
        self.lateness.p99
    }
}

/// All rounds of one pace; the table, and whether our limit holds.
pub fn of_pace(pace: &Pace, h2lab: &H2lab, tools: &[Tool], rounds: Option<u32>) -> Result<(String, bool)> {
    let Pace { id, protocol, rate, as_nobody } = *pace;
    let stamps = H2lab::build_example("stamps")?;
    let rounds = rounds.unwrap_or(ROUNDS);
    let (connections, streams) = if protocol == "h1" { (50, 1) } else { (1, 200) };
    let as_nobody = as_nobody && process::is_root();
    let tools: Vec<Tool> = tools.iter().copied().filter(|tool| !as_nobody || tool.is_for_all()).collect();
    let mut all: Vec<Vec<PacingFigures>> = vec![Vec::new(); tools.len()];
    let mut class = String::new();
    for _ in 0..rounds {
        for (index, &tool) in tools.iter().enumerate() {
            let server = Stamps::start(&stamps)?;
            let url = server.url.clone();
            let job = Job {
                protocol,
                connections,
                streams,
                seconds: SECONDS,
                rate: Some(rate),
                url: &url,
                as_nobody,
            };
            let folder = tempfile::tempdir()?;
            let Some(done) = tool.run(h2lab, &job, folder.path()).with_context(|| id.to_owned())? else {
                continue;
            };
            let arrivals = server.end()?;
            if tool == Tool::H2lab {
                class = scheduling_class(folder.path())?;
            }
            let cpu_us = done.cpu_us / arrivals.len() as f64;
            let lateness = Lateness::of(arrivals, rate, SECONDS)
                .with_context(|| format!("{id}: too few requests of {} arrived", tool.name()))?;
            all[index].push(PacingFigures { lateness, cpu_us });
        }
    }
    let user = if as_nobody { "uid 65534" } else { "this user" };
    let mut table = format!(
        "{id}: {rate} requests/s, {connections} × {streams}, {rounds} rounds of {SECONDS} s as {user}; lateness at the server in \
         µs, medians and the worst round\n\n\
         | | p50 | p99 | worst p99 | p99.9 | max | sent | CPU µs/request |\n|---|---|---|---|---|---|---|---|\n"
    );
    for (tool, figures) in tools.iter().zip(&all).filter(|(_, figures)| !figures.is_empty()) {
        table.push_str(&line(*tool, figures));
    }
    let ours = all.first().filter(|figures| !figures.is_empty()).context("ours is always there")?;
    let (p99, limit) = (worst(ours), pace.limit_us());
    let holds = p99 <= limit;
    let mark = if holds { "" } else { "  EXCEEDED" };
    Ok((table + &format!("\nours ({class}): worst p99 {p99:.0} µs, limit {limit}{mark}\n"), holds))
}

/// How the threads of ours were scheduled, from its run folder.
fn scheduling_class(folder: &Path) -> Result<String> {
    let head: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("run/run.json"))?)?;
    let placement = head.pointer("/repetitions/0/environment/placement").and_then(|it| it.as_array());
    let priority = placement.into_iter().flatten().find(|pair| pair[0] == "generator priority");
    let class = priority.and_then(|pair| pair[1].as_str()).context("run.json has no generator priority")?;
    Ok(class.to_owned())
}

/// A tool's line of the table: medians of the rounds.
fn line(tool: Tool, figures: &[PacingFigures]) -> String {
    let of = |value: fn(&Lateness) -> f64| median(figures, |figures| value(&figures.lateness));
    format!(
        "| {} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.1} % | {:.1} |\n",
        tool.name(),
        of(|late| late.p50),
        of(|late| late.p99),
        worst(figures),
        of(|late| late.p999),
        of(|late| late.max),
        of(|late| late.sent) * 100.0,
        median(figures, |figures| figures.cpu_us)
    )
}

/// The 99th percentile of the worst round.
fn worst(figures: &[PacingFigures]) -> f64 {
    figures.iter().map(PacingFigures::p99).fold(0.0, f64::max)
}

fn median(figures: &[PacingFigures], value: impl Fn(&PacingFigures) -> f64) -> f64 {
    let mut values: Vec<f64> = figures.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    middle(&values)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten seconds at 1,000 per second; each arrival may be moved.
    fn run(moved: impl Fn(u64) -> u64) -> Lateness {
        Lateness::of((0..10_000).map(|i| 7_000 + i * 1_000_000 + moved(i)).collect(), 1_000, 10).unwrap()
    }

    #[test]
    fn an_even_generator_is_never_late_whenever_it_begins() {
        assert_eq!(run(|_| 0), Lateness { p50: 0.0, p99: 0.0, p999: 0.0, max: 0.0, sent: 1.0 });
    }

    #[test]
    fn bursts_are_late_by_the_time_to_their_end() {
        // Ten at a time, when the last of them is due.
        let late = run(|i| (9 - i % 10) * 1_000_000);
        assert_eq!((late.p50, late.max), (4_000.0, 9_000.0));
    }

    #[test]
    fn what_happens_in_the_first_half_second_is_not_judged() {
        assert!(run(|i| if i < 490 { 300 } else { 0 }).max < 1e-9);
        let after = run(|i| if i == 600 { 300_000 } else { 0 });
        assert_eq!((after.p99, after.max), (0.0, 300.0));
    }

    #[test]
    fn a_generator_that_falls_behind_is_late_at_the_end() {
        let late = run(|i| i * 100_000); // 10 % slow
        assert!(late.p50 > 400_000.0 && late.max > 900_000.0, "{late:?}");
    }
}
