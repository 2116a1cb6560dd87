//! The requests of several agents arrive as those of one generator: gaps between arrivals, as tshark saw them at the origin.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::figures::{Capture, list, number, text};
use super::fleet::{DEADLINE, Fleet, Launch, ORIGIN, PORT, THREE, json};
use crate::verify::binary::H2lab;
use crate::verify::numbers::quantile;
use crate::verify::outcome::ItemOutcome;
use crate::verify::started::{Ending, Started};

/// Requests per second of all agents.
const RATE: f64 = 6_000.0;
const SECONDS: f64 = 20.0;
/// The agents' common start, at most, besides the error of their clocks; in µs.
const SKEW_US: f64 = 1_000.0;
/// Shares of gaps that are compared.
const SHARES: [f64; 5] = [0.1, 0.5, 0.9, 0.99, 0.999];
/// By how much a quantile of the gaps may differ from that of one generator: of 110,000 gaps, five standard deviations of the
/// 99.9th percentile.
const TOLERANCE: f64 = 0.10;
/// What a busy machine adds to a gap, in µs.
const JITTER_US: f64 = 50.0;
/// The tool may call a load invalid on a busy machine.
const TRIES: u32 = 3;
/// Makes the clocks of an agent differ by so many seconds.
const CLOCKS: [(&str, &str); 2] = [("kek-1", "1000"), ("kek-2", "86400")];

/// One process, whoever makes it.
pub fn arrivals(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let mut fleet = Fleet::of_three(h2lab)?;
    let poisson = ["--arrival", "poisson"];
    let (document, by_agents) = of_agents(&fleet, &poisson)?;
    started(&mut outcome, "clocks of one machine", &document)?;
    compared(&mut outcome, &by_agents, &of_one(&fleet, h2lab, &poisson)?)?;
    for (name, seconds) in CLOCKS {
        fleet.kill_agent(name)?;
        let words =
            ["unshare", "--time", "--monotonic", seconds, "--boottime", seconds, "--fork", "--kill-child"];
        fleet.start_agents(&[name], Launch { before: &words, ..Launch::default() })?;
    }
    let (document, by_agents) = of_agents(&fleet, &[])?;
    started(&mut outcome, "clocks of time namespaces, 1,000 and 86,400 s ahead", &document)?;
    let error_us = number(&document, "/agents/clock_error_us")?;
    even(&mut outcome, &by_agents, &of_one(&fleet, h2lab, &[])?, error_us)?;
    Ok(outcome)
}

/// The words of the load, without what is asked for.
fn words<'a>(rate: &'a str, time: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let load = ["load", "--json", "--quiet", "--no-store", "-c60", "-q", rate, "-z", time];
    load.iter().chain(more).copied().collect()
}

/// The load by three agents: its document, and the gaps at the origin in µs.
fn of_agents(fleet: &Fleet<'_>, more: &[&str]) -> Result<(Value, Vec<f64>)> {
    let (rate, time, names, url) =
        (RATE.to_string(), format!("{SECONDS}s"), THREE.join(","), fleet.url("/")?);
    let all: Vec<&str> =
        words(&rate, &time, more).into_iter().chain(["--agents", names.as_str(), url.as_str()]).collect();
    captured(fleet, "agents", || fleet.begin(&all))
}

/// The same by one generator on the machine of the first agent.
fn of_one(fleet: &Fleet<'_>, h2lab: &H2lab, more: &[&str]) -> Result<Vec<f64>> {
    let (rate, time, url) = (RATE.to_string(), format!("{SECONDS}s"), fleet.url("/")?);
    let (node, _) = fleet.network().node(THREE[0])?;
    let begin = || {
        let mut command = node.command(h2lab.path());
        command.args(words(&rate, &time, more)).arg(&url);
        Started::begin(&mut command, fleet.folder(), &fleet.file_name("one"))
    };
    Ok(captured(fleet, "one", begin)?.1)
}

/// Makes a load while the origin's device is watched.
fn captured(fleet: &Fleet<'_>, name: &str, begin: impl Fn() -> Result<Started>) -> Result<(Value, Vec<f64>)> {
    let (origin, _) = fleet.network().node(ORIGIN)?;
    let filter = format!("tcp dst port {PORT} and tcp[tcpflags] & tcp-push != 0");
    let mut last = String::new();
    for _ in 0..TRIES {
        let capture = Capture::begin(origin, "eth0", fleet.folder(), &fleet.file_name(name), &filter)?;
        let ended = begin()?.end(DEADLINE)?;
        let rows = capture.end("tcp.len > 0", &["frame.time_relative"])?;
        if ended.ending == Ending::Code(0) {
            return Ok((json(&ended)?, gaps(&times(&rows)?)?));
        }
        last = format!("{}: {}", ended.ending, ended.last_words());
    }
    bail!("{name}: void {TRIES} times, so nothing is shown either way: {last}")
}

/// Seconds of each packet.
fn times(rows: &[Vec<String>]) -> Result<Vec<f64>> {
    let time =
        |row: &Vec<String>| row.first().and_then(|time| time.parse().ok()).context("a packet without a time");
    rows.iter().map(time).collect()
}

/// The gaps between arrivals in µs, without the first and the last second, in which not all agents may be there.
fn gaps(times: &[f64]) -> Result<Vec<f64>> {
    let (first, last) = times.first().zip(times.last()).context("no request was seen")?;
    let inner: Vec<f64> = times.iter().copied().filter(|at| (first + 1.0..last - 1.0).contains(at)).collect();
    ensure!(inner.len() > 1_000, "{} requests in the middle of {}", inner.len(), times.len());
    Ok(inner.windows(2).map(|pair| (pair[1] - pair[0]) * 1e6).collect())
}

fn quantiles(gaps: &[f64]) -> Result<Vec<f64>> {
    SHARES.iter().map(|share| quantile(gaps, *share).context("no gap")).collect()
}

/// Gaps as they are printed.
fn rendered(gaps: &[f64]) -> Result<String> {
    let mut line = format!("{:.0}/s, gaps", 1e6 * gaps.len() as f64 / gaps.iter().sum::<f64>());
    for (share, gap) in SHARES.iter().zip(quantiles(gaps)?) {
        let _ = write!(line, " p{} {gap:.1}", share * 100.0);
    }
    Ok(line + " µs")
}

/// A Poisson process of three is that of one.
fn compared(outcome: &mut ItemOutcome, agents: &[f64], one: &[f64]) -> Result<()> {
    outcome.note(format!("Poisson by three agents:   {}", rendered(agents)?));
    outcome.note(format!("Poisson by one generator:  {}", rendered(one)?));
    let theory: Vec<String> =
        SHARES.iter().map(|share| format!("{:.1}", -(1.0 - share).ln() / RATE * 1e6)).collect();
    outcome.note(format!("a Poisson process of 6,000/s has {} µs", theory.join(", ")));
    for ((share, ours), theirs) in SHARES.iter().zip(quantiles(agents)?).zip(quantiles(one)?) {
        let text = format!("p{}: {ours:.1} µs by three, {theirs:.1} by one", share * 100.0);
        outcome.check(is_near(ours, theirs), text);
    }
    Ok(())
}

/// Whether a gap of agents is that of one generator.
fn is_near(agents: f64, one: f64) -> bool {
    (agents - one).abs() <= (one * TOLERANCE).max(JITTER_US / 2.0)
}

/// A constant rate of three is as even as that of one, but for the error of the clocks: shares are interleaved by time.
fn even(outcome: &mut ItemOutcome, agents: &[f64], one: &[f64], error_us: f64) -> Result<()> {
    outcome.note(format!("constant by three agents:  {}", rendered(agents)?));
    outcome.note(format!("constant by one generator: {}", rendered(one)?));
    let (ours, theirs) = (deviation(agents)?, deviation(one)?);
    let text = format!(
        "9 of 10 gaps are within {ours:.1} µs of {:.1} by three, {theirs:.1} by one; clocks ± {error_us:.1} µs",
        1e6 / RATE
    );
    outcome.check(ours <= theirs + 2.0 * error_us + JITTER_US, text);
    Ok(())
}

/// By how much the middle nine of ten gaps differ from the period at most, in µs.
fn deviation(gaps: &[f64]) -> Result<f64> {
    let ends = [0.05, 0.95].map(|share| quantile(gaps, share).map(|gap| (gap - 1e6 / RATE).abs()));
    let [least, most] = ends;
    Ok(least.context("no gap")?.max(most.context("no gap")?))
}

/// The common start of a load, its shares, and what its agents say of themselves.
fn started(outcome: &mut ItemOutcome, clocks: &str, document: &Value) -> Result<()> {
    let (skew, error) =
        (number(document, "/agents/started_within_us")?, number(document, "/agents/clock_error_us")?);
    let text = format!("{clocks}: started within {:.3} ms (clocks ± {:.3} ms)", skew / 1e3, error / 1e3);
    outcome.check(skew <= SKEW_US + error, text);
    for share in list(document, "/agents/shares")? {
        let state = text_of(share)?;
        let (offset, uncertainty) =
            (number(share, "/clock/offset_ns")?, number(share, "/clock/uncertainty_ns")?);
        let late = number(share, "/late/p99_ns")?;
        let cpu = number(share, "/generator/cpu_ns")? / number(share, "/generator/wall_ns")?.max(1.0);
        let text = format!(
            "{state}: clock {:+.6} s ± {:.3} ms, late p99 {:.3} ms, {:.0} % of a CPU",
            offset / 1e9,
            uncertainty / 1e6,
            late / 1e6,
            cpu * 100.0
        );
        outcome.check(share["state"] == "whole", text);
    }
    Ok(())
}

/// Name and state of a share.
fn text_of(share: &Value) -> Result<String> {
    Ok(format!("{} is {}", text(share, "/agent")?, text(share, "/state")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_those_of_the_middle_and_few_of_them_show_nothing() {
        let times: Vec<f64> = (0..30_000).map(|n| f64::from(n) / RATE).collect();
        let gaps = gaps(&times).unwrap();
        assert!((17_900..18_100).contains(&gaps.len()), "{}", gaps.len());
        assert!(deviation(&gaps).unwrap() < 0.001);
        assert!(super::gaps(&times[..2_000]).is_err() && super::gaps(&[]).is_err());
    }

    #[test]
    fn a_gap_is_near_up_to_a_tenth_or_25_us() {
        assert!(is_near(1_099.0, 1_000.0) && !is_near(1_101.0, 1_000.0));
        assert!(is_near(124.0, 100.0) && !is_near(126.0, 100.0));
    }

    #[test]
    fn a_packet_without_a_time_is_an_error() {
        assert_eq!(times(&[vec!["0.5".to_owned()]]).unwrap(), [0.5]);
        assert!(times(&[vec![String::new()]]).is_err());
    }
}
