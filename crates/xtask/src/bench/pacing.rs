//! How punctual load generators are: `cargo xtask bench load --only pacing`.
//!
//! An open loop at 20,000 requests per second, whose arrivals the server notes. Request number i should arrive a constant
//! time after i/rate; which time is not known, therefore the earliest request of all is taken to be punctual and the
//! lateness of the others counts from its line. A generator that is even arrives at 0 all the time; one that sleeps in
//! steps of a millisecond shows a median of half of one.

use anyhow::{Context, Result};

use super::ratio::middle;
use crate::generators::{Job, Stamps, Tool};
use crate::verify::binary::H2lab;

/// What `--only` selects.
pub const IDS: [&str; 2] = ["pacing-h1", "pacing-h2c"];

/// Requests per second.
const RATE: u32 = 20_000;
/// Seconds of a run.
const SECONDS: u32 = 3;
/// What is not judged: connections are made, and programs warm up.
const START_NS: u64 = 500_000_000;
/// The default number of rounds.
const ROUNDS: u32 = 3;
/// What the 99th percentile of our lateness may be, and what it is wanted to be, in microseconds.
const LIMIT_US: f64 = 200.0;
const AIM_US: f64 = 50.0;

/// How late the requests of a run were, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Lateness {
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
    /// Requests that arrived in all, by those that were asked for.
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

/// What one run of one tool gave.
#[derive(Debug, Clone, Copy)]
struct PacingFigures {
    lateness: Lateness,
    /// CPU of the generator per request, in microseconds.
    cpu_us: f64,
}

/// All rounds over one protocol; the table, and whether our limit holds.
pub fn of_protocol(id: &str, h2lab: &H2lab, tools: &[Tool], rounds: Option<u32>) -> Result<(String, bool)> {
    let stamps = H2lab::build_example("stamps")?;
    let rounds = rounds.unwrap_or(ROUNDS);
    let (protocol, connections, streams) = if id == IDS[0] { ("h1", 50, 1) } else { ("h2c", 1, 200) };
    let mut all: Vec<Vec<PacingFigures>> = vec![Vec::new(); tools.len()];
    for _ in 0..rounds {
        for (index, &tool) in tools.iter().enumerate() {
            let server = Stamps::start(&stamps)?;
            let url = server.url.clone();
            let job = Job { protocol, connections, streams, seconds: SECONDS, rate: Some(RATE), url: &url };
            let folder = tempfile::tempdir()?;
            let Some(done) = tool.run(h2lab, &job, folder.path()).with_context(|| id.to_owned())? else {
                continue;
            };
            let arrivals = server.end()?;
            let cpu_us = done.cpu_us / arrivals.len() as f64;
            let lateness = Lateness::of(arrivals, RATE, SECONDS)
                .with_context(|| format!("{id}: too few requests of {} arrived", tool.name()))?;
            all[index].push(PacingFigures { lateness, cpu_us });
        }
    }
    let mut table = format!(
        "{id}: {RATE} requests/s, {connections} × {streams}, {rounds} rounds of {SECONDS} s; lateness at the server in µs\n\n\
         | | p50 | p99 | p99.9 | max | sent | CPU µs/request |\n|---|---|---|---|---|---|---|\n"
    );
    for (tool, figures) in tools.iter().zip(&all).filter(|(_, figures)| !figures.is_empty()) {
        table.push_str(&line(*tool, figures));
    }
    let ours = all.first().filter(|figures| !figures.is_empty()).context("ours is always there")?;
    let p99 = median(ours, |figures| figures.lateness.p99);
    let holds = p99 <= LIMIT_US;
    let mark = if holds { "" } else { "  EXCEEDED" };
    Ok((table + &format!("\nours: p99 {p99:.0} µs, limit {LIMIT_US}, aim {AIM_US}{mark}\n"), holds))
}

/// A tool's line of the table: medians of the rounds.
fn line(tool: Tool, figures: &[PacingFigures]) -> String {
    let of = |value: fn(&Lateness) -> f64| median(figures, |figures| value(&figures.lateness));
    format!(
        "| {} | {:.0} | {:.0} | {:.0} | {:.0} | {:.1} % | {:.1} |\n",
        tool.name(),
        of(|late| late.p50),
        of(|late| late.p99),
        of(|late| late.p999),
        of(|late| late.max),
        of(|late| late.sent) * 100.0,
        median(figures, |figures| figures.cpu_us)
    )
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
