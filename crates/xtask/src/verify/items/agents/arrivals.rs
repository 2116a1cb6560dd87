//! The requests of several agents arrive as those of one generator: gaps between arrivals, as tshark saw them at the origin.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::doing;
use super::figures::{Capture, list, number, text};
use super::fleet::{DEADLINE, Fleet, INVALID, Launch, ORIGIN, PORT, THREE, json};
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
/// By how much a quantile of the gaps may differ besides, on a busy machine; in µs.
const JITTER_US: f64 = 25.0;
/// By how much the rate of all may differ from what was asked for: an agent that is not there with the others takes a third of it.
const RATE_TOLERANCE: f64 = 0.01;
/// By how much nine of ten gaps of one agent may be less even than those of one generator at three times its rate; a fifth of its
/// period, in µs.
const UNEVEN_US: f64 = 100.0;
/// By how much an offset may be off besides the error that is printed with it: the beginnings of clocks are read, too. In seconds.
const READING_S: f64 = 50e-6;
/// The tool may call a load invalid on a busy machine.
const TRIES: u32 = 3;
/// By how many seconds time namespaces have the clocks of these agents ahead; that of the third one is the driver's.
const CLOCKS: [(&str, u32); 2] = [(THREE[0], 1_000), (THREE[1], 86_400)];

/// A request at the origin: when it came, in seconds, and from which address.
type Arrival = (f64, String);

/// One process, whoever makes it.
pub fn arrivals(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let mut fleet = Fleet::of_three(h2lab)?;
    let poisson = ["--arrival", "poisson"];
    let (document, by_agents) = of_agents(&fleet, &poisson)?;
    started(&mut outcome, "clocks of one machine", &document, &[])?;
    compared(&mut outcome, &gaps(&by_agents)?, &gaps(&of_one(&fleet, h2lab, &poisson)?)?)?;
    for (name, seconds) in CLOCKS {
        fleet.kill_agent(name)?;
        let seconds = seconds.to_string();
        let [monotonic, boottime] = [seconds.as_str(); 2];
        let words =
            ["unshare", "--time", "--monotonic", monotonic, "--boottime", boottime, "--fork", "--kill-child"];
        fleet.start_agents(&[name], Launch { before: &words, ..Launch::default() })?;
    }
    let (document, by_agents) = of_agents(&fleet, &[])?;
    started(&mut outcome, "clocks of time namespaces, 1,000 and 86,400 s ahead", &document, &CLOCKS)?;
    let error_us = number(&document, "/agents/clock_error_us")?;
    even(&mut outcome, &by_agents, &of_one(&fleet, h2lab, &[])?, error_us)?;
    Ok(outcome)
}

/// The words of the load, without what is asked for.
fn words<'a>(rate: &'a str, time: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let load = ["load", "--json", "--quiet", "--no-store", "-c60", "-q", rate, "-z", time];
    load.iter().chain(more).copied().collect()
}

/// The load by three agents: its document, and what the origin saw.
fn of_agents(fleet: &Fleet<'_>, more: &[&str]) -> Result<(Value, Vec<Arrival>)> {
    let (rate, time, names, url) =
        (RATE.to_string(), format!("{SECONDS}s"), THREE.join(","), fleet.url("/")?);
    let all: Vec<&str> =
        words(&rate, &time, more).into_iter().chain(["--agents", names.as_str(), url.as_str()]).collect();
    captured(fleet, "agents", || fleet.begin(&all))
}

/// The same by one generator on the machine of the first agent.
fn of_one(fleet: &Fleet<'_>, h2lab: &H2lab, more: &[&str]) -> Result<Vec<Arrival>> {
    let (rate, time, url) = (RATE.to_string(), format!("{SECONDS}s"), fleet.url("/")?);
    let (node, _) = fleet.network().node(THREE[0])?;
    let begin = || {
        let mut command = node.command(h2lab.path());
        command.args(words(&rate, &time, more)).arg(&url);
        Started::begin(&mut command, fleet.folder(), &fleet.file_name("one"))
    };
    Ok(captured(fleet, "one", begin)?.1)
}

/// Makes a load while the origin's device is watched; again while the tool does not trust it.
fn captured(
    fleet: &Fleet<'_>,
    name: &str,
    begin: impl Fn() -> Result<Started>,
) -> Result<(Value, Vec<Arrival>)> {
    let (origin, _) = fleet.network().node(ORIGIN)?;
    let filter = format!("tcp dst port {PORT} and tcp[tcpflags] & tcp-push != 0");
    let mut last = String::new();
    for _ in 0..TRIES {
        doing(format!("a load of {SECONDS} s, {name}"));
        let capture = Capture::begin(origin, "eth0", fleet.folder(), &fleet.file_name(name), &filter)?;
        let ended = begin()?.end(DEADLINE)?;
        let rows = capture.end("tcp.len > 0", &["frame.time_relative", "ip.src"])?;
        match ended.ending {
            Ending::Code(0) => return Ok((json(&ended)?, arrivals_in(&rows)?)),
            Ending::Code(INVALID) => ended.last_words().clone_into(&mut last),
            ending => bail!("{name}: {ending}: {}", ended.last_words()),
        }
    }
    bail!("{name}: void {TRIES} times, so nothing is shown either way: {last}")
}

/// What came, by the fields of each packet.
fn arrivals_in(rows: &[Vec<String>]) -> Result<Vec<Arrival>> {
    let arrival = |row: &Vec<String>| {
        let time = row.first()?.parse::<f64>().ok()?;
        Some((time, row.get(1)?.clone()))
    };
    rows.iter().map(|row| arrival(row).context("a packet without a time or a sender")).collect()
}

/// What came from each address.
fn by_client(arrivals: &[Arrival]) -> BTreeMap<&str, Vec<Arrival>> {
    let mut clients: BTreeMap<&str, Vec<Arrival>> = BTreeMap::new();
    for arrival in arrivals {
        clients.entry(arrival.1.as_str()).or_default().push(arrival.clone());
    }
    clients
}

/// The gaps between arrivals in µs, without the first and the last second, in which not all agents may be there.
fn gaps(arrivals: &[Arrival]) -> Result<Vec<f64>> {
    let ((first, _), (last, _)) = arrivals.first().zip(arrivals.last()).context("no request was seen")?;
    let middle = first + 1.0..last - 1.0;
    let inner: Vec<f64> = arrivals.iter().map(|(at, _)| *at).filter(|at| middle.contains(at)).collect();
    ensure!(inner.len() > 1_000, "{} requests in the middle of {}", inner.len(), arrivals.len());
    Ok(inner.windows(2).map(|pair| (pair[1] - pair[0]) * 1e6).collect())
}

/// Arrivals per second with such gaps in µs.
fn rate(gaps: &[f64]) -> f64 {
    1e6 * gaps.len() as f64 / gaps.iter().sum::<f64>()
}

fn quantiles(gaps: &[f64]) -> Result<Vec<f64>> {
    SHARES.iter().map(|share| quantile(gaps, *share).context("no gap")).collect()
}

/// Gaps as they are printed.
fn rendered(gaps: &[f64]) -> Result<String> {
    let mut line = format!("{:.0}/s, {} gaps:", rate(gaps), gaps.len());
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
    (agents - one).abs() <= (one * TOLERANCE).max(JITTER_US)
}

/// A constant rate of three: all are there at once, and each is as even as one generator. How even all of them are together is
/// printed: their schedules are as far apart as their clocks are known, and that is no less than the gap between two requests.
fn even(outcome: &mut ItemOutcome, agents: &[Arrival], one: &[Arrival], error_us: f64) -> Result<()> {
    let (all, alone) = (gaps(agents)?, gaps(one)?);
    outcome.note(format!("constant by three agents:  {}", rendered(&all)?));
    outcome.note(format!("constant by one generator: {}", rendered(&alone)?));
    let (period, own_period) = (1e6 / RATE, 1e6 * THREE.len() as f64 / RATE);
    let (ours, theirs) = (deviation(&all, period)?, deviation(&alone, period)?);
    outcome.note(format!(
        "9 of 10 gaps are within {ours:.1} µs of {period:.1} by three, {theirs:.1} by one; clocks ± {error_us:.1} µs"
    ));
    let arrive = rate(&all);
    let is_whole = (arrive / RATE - 1.0).abs() <= RATE_TOLERANCE;
    outcome.check(is_whole, format!("{arrive:.0} of {RATE}/s arrive while all three are there"));
    let clients = by_client(agents);
    outcome.check(clients.len() == THREE.len(), format!("requests come from {} addresses", clients.len()));
    for (client, arrivals) in clients {
        let own = deviation(&gaps(&arrivals)?, own_period)?;
        let text = format!("{client}: 9 of 10 gaps are within {own:.1} µs of {own_period:.1}");
        outcome.check(own <= theirs + UNEVEN_US, text);
    }
    Ok(())
}

/// By how much the middle nine of ten gaps differ from the period at most, all in µs.
fn deviation(gaps: &[f64], period: f64) -> Result<f64> {
    let ends = [0.05, 0.95].map(|share| quantile(gaps, share).map(|gap| (gap - period).abs()));
    let [least, most] = ends;
    Ok(least.context("no gap")?.max(most.context("no gap")?))
}

/// The common start of a load, its shares, and what its agents say of themselves. `ahead` has the seconds by which clocks were set
/// ahead; the others are the driver's.
fn started(outcome: &mut ItemOutcome, clocks: &str, document: &Value, ahead: &[(&str, u32)]) -> Result<()> {
    let (skew, error) =
        (number(document, "/agents/started_within_us")?, number(document, "/agents/clock_error_us")?);
    let text = format!("{clocks}: started within {:.3} ms (clocks ± {:.3} ms)", skew / 1e3, error / 1e3);
    outcome.check(skew <= SKEW_US + error, text);
    for share in list(document, "/agents/shares")? {
        let state = text_of(share)?;
        let (offset, uncertainty) =
            (number(share, "/clock/offset_ns")?, number(share, "/clock/uncertainty_ns")?);
        let (offset_s, error_s) = (offset / 1e9, uncertainty / 1e9);
        let late = number(share, "/late/p99_ns")?;
        let cpu = number(share, "/generator/cpu_ns")? / number(share, "/generator/wall_ns")?.max(1.0);
        let text = format!(
            "{state}: clock {offset_s:+.6} s ± {:.3} ms, late p99 {:.3} ms, {:.0} % of a CPU",
            uncertainty / 1e6,
            late / 1e6,
            cpu * 100.0
        );
        let set = ahead.iter().find(|(name, _)| share["agent"] == *name);
        let expected = set.map_or(0.0, |(_, seconds)| f64::from(*seconds));
        outcome.check(share["state"] == "whole" && is_clock(offset_s, expected, error_s), text);
    }
    Ok(())
}

/// Whether an offset that is printed with this error is that of a clock which was set so far ahead; all in seconds.
fn is_clock(offset: f64, ahead: f64, error: f64) -> bool {
    (offset - ahead).abs() <= error + READING_S
}

/// Name and state of a share.
fn text_of(share: &Value) -> Result<String> {
    Ok(format!("{} is {}", text(share, "/agent")?, text(share, "/state")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests of several clients in turn, at the same rate altogether, each so many µs late.
    fn in_turn(clients: &[f64]) -> Vec<Arrival> {
        let at = |n: usize| n as f64 / RATE + clients[n % clients.len()] / 1e6;
        (0..30_000).map(|n| (at(n), (n % clients.len()).to_string())).collect()
    }

    #[test]
    fn gaps_are_those_of_the_middle_and_few_of_them_show_nothing() {
        let arrivals = in_turn(&[0.0]);
        let gaps = gaps(&arrivals).unwrap();
        assert!((17_900..18_100).contains(&gaps.len()), "{}", gaps.len());
        assert!(deviation(&gaps, 1e6 / RATE).unwrap() < 0.001 && (rate(&gaps) / RATE - 1.0).abs() < 0.001);
        assert!(super::gaps(&arrivals[..2_000]).is_err() && super::gaps(&[]).is_err());
    }

    fn is_even(agents: &[Arrival]) -> bool {
        let mut outcome = ItemOutcome::default();
        even(&mut outcome, agents, &in_turn(&[0.0]), 500.0).unwrap();
        outcome.holds()
    }

    #[test]
    fn schedules_may_be_apart_but_each_is_even_and_none_is_missing() {
        let agents = in_turn(&[0.0, 90.0, 140.0]);
        assert!(is_even(&agents));
        let two: Vec<Arrival> = agents.iter().filter(|(_, from)| from != "2").cloned().collect();
        assert!(!is_even(&two));
        // Every second request of each is late.
        let late = in_turn(&[0.0, 0.0, 0.0, 110.0, 110.0, 110.0]);
        let of_three = |(n, (at, _)): (usize, Arrival)| (at, (n % THREE.len()).to_string());
        assert!(!is_even(&late.into_iter().enumerate().map(of_three).collect::<Vec<_>>()));
    }

    #[test]
    fn a_clock_is_off_by_what_it_was_set_within_its_error_and_not_by_the_opposite() {
        assert!(is_clock(1_000.000_3, 1_000.0, 0.000_3) && is_clock(-0.000_3, 0.0, 0.000_3));
        assert!(!is_clock(1_000.000_4, 1_000.0, 0.000_3) && !is_clock(-1_000.0, 1_000.0, 0.000_3));
    }

    #[test]
    fn a_gap_is_near_up_to_a_tenth_or_25_us() {
        assert!(is_near(1_099.0, 1_000.0) && !is_near(1_101.0, 1_000.0));
        assert!(is_near(124.0, 100.0) && !is_near(126.0, 100.0));
    }

    #[test]
    fn a_packet_without_a_time_or_a_sender_is_an_error() {
        let row = |fields: &[&str]| vec![fields.iter().map(|&field| field.to_owned()).collect::<Vec<_>>()];
        assert_eq!(arrivals_in(&row(&["0.5", "a"])).unwrap(), [(0.5, "a".to_owned())]);
        assert!(arrivals_in(&row(&["", "a"])).is_err() && arrivals_in(&row(&["0.5"])).is_err());
    }
}
