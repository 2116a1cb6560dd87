//! The study of sidecars on lossy links, and what its readers asked for: the shipped scenarios against the real programs.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::{Item, item};
use crate::process;
use crate::verify::binary::H2lab;
use crate::verify::document::{Cell, Condition, Configuration, Document, Needed, Percentiles};
use crate::verify::numbers::{agreement_ms, deviations, median};
use crate::verify::outcome::ItemOutcome;

/// What `sidecar-chaos --quick` may take.
const QUICK: Duration = Duration::from_secs(600);
/// A single p99 is noisy: figures that depend on one are measured with each of these seeds, and the median counts.
pub(super) const SEEDS: [u32; 3] = [1, 2, 3];

/// The promises of this file.
pub fn items() -> Vec<Item> {
    vec![
        item(
            "study",
            "sidecar-chaos --quick in ten minutes: without loss the median and the p95 of all topologies agree (p99: \
             study-equal); at 3 % loss HTTP/2 on one connection between two sidecars has a worse p99 than HTTP/1.1 in any topology (at RTT 0: \
             study-worst); ramps: >= 50 % of the slow requests of h2c x 4 where a round trip takes time, <= 5 % of h1's; with \
             k connections HTTP/2 catches up; between two of ours HTTP/2 has a better p99 than HTTP/1.1, and fails nothing; HAProxy, nginx and \
             Envoy run in it",
            study,
        ),
        item(
            "study-equal",
            "without loss and delay the p99 of all topologies agrees (of each the middle of three seeds: in a repetition of 5 s one \
             pause of 51 ms of this machine decides a p99)",
            equal_without_loss,
        ),
        item(
            "study-worst",
            "at 3 % loss and RTT 0 HTTP/2 on one connection between two sidecars has a worse p99 than HTTP/1.1 in any topology, \
             too: repetitions of 20 s, since there both wait for timeouts, and what differs are those that double",
            worst_without_delay,
        ),
        item(
            "study-bbr",
            "RTT 25 ms, 3 %, one connection: unstable under cubic, under bbr p99 <= h1's (the middle of three seeds)",
            bbr,
        ),
        item("study-bursts", "Gilbert-Elliott changes k at RTT 25 ms (the middle of three seeds)", bursts),
        item(
            "study-knob",
            "k is printed for each condition beside the PFTK model's; with the most connections HTTP/2 matches HTTP/1.1",
            knob,
        ),
    ]
}

/// Runs a shipped scenario until the tool trusts all of its cells, for a few times; and how long that run took.
pub(super) fn measure(h2lab: &H2lab, scenario: &str, more: &[&str]) -> Result<(Document, Duration)> {
    let path = process::workspace().join("scenarios").join(format!("{scenario}.toml"));
    let path = path.to_str().context("the workspace's path is not UTF-8")?;
    let words: Vec<&str> = [path].iter().chain(more).copied().collect();
    h2lab.measure_in_time("run", &words)
}

fn configuration<'a>(run: &'a Document, name: &str) -> Result<&'a Configuration> {
    let configurations = &run.study()?.configurations;
    configurations
        .iter()
        .find(|configuration| configuration.name == name)
        .with_context(|| format!("there is no configuration `{name}`"))
}

/// The cell of the configuration `name` under a condition.
fn cell<'a>(run: &'a Document, name: &str, condition: usize) -> Result<&'a Cell> {
    run.cell_of(configuration(run, name)?, condition).with_context(|| format!("{name} was not measured"))
}

/// The p99 in milliseconds; infinite where the load is not carried. A cell that says nothing of the load is an error and not
/// the worst.
fn p99_ms(cell: &Cell) -> Result<f64> {
    Ok(response(cell)?.map_or(f64::INFINITY, |response| response.p99 / 1e3))
}

/// The same of the median.
fn p50_ms(cell: &Cell) -> Result<f64> {
    Ok(response(cell)?.map_or(f64::INFINITY, |response| response.p50 / 1e3))
}

/// The same of the p95.
fn p95_ms(cell: &Cell) -> Result<f64> {
    Ok(response(cell)?.map_or(f64::INFINITY, |response| response.p95 / 1e3))
}

/// The response times; `None` where the load is not carried.
fn response(cell: &Cell) -> Result<Option<&Percentiles>> {
    match cell.state.as_str() {
        "ok" => cell.response().map(Some),
        "unstable" => Ok(None),
        state => bail!("{} is {state}: {}", cell.label(), cell.reasons.join("; ")),
    }
}

/// One time of each configuration's cell under a condition, but of those that a program cannot speak.
fn times(
    run: &Document,
    condition: usize,
    of: fn(&Cell) -> Result<f64>,
) -> Result<Vec<(&Configuration, f64)>> {
    let cells = run
        .study()?
        .configurations
        .iter()
        .filter_map(|configuration| Some((configuration, run.cell_of(configuration, condition)?)));
    cells
        .filter(|(_, cell)| cell.state != "unsupported")
        .map(|(configuration, cell)| Ok((configuration, of(cell)?)))
        .collect()
}

/// `254 ms`, or that there is none.
fn rendered(p99: f64) -> String {
    if p99.is_finite() { format!("{p99:.1} ms") } else { "unstable".to_owned() }
}

/// The study itself.
fn study(h2lab: &H2lab) -> Result<ItemOutcome> {
    let (run, taken) = measure(h2lab, "sidecar-chaos", &["--quick"])?;
    let mut outcome = ItemOutcome::default();
    let text = format!("{} cells in {} s", run.cells.len(), taken.as_secs());
    outcome.check(taken <= QUICK, text);
    for (k, condition) in run.study()?.conditions.iter().enumerate() {
        if condition.loss > 0.0 {
            if condition.rtt_ms > 0.0 {
                worst(&mut outcome, &run, k)?;
                ours(&mut outcome, &run, k)?;
            }
            ramps(&mut outcome, &run, k)?;
        } else {
            let of = |time: fn(&Cell) -> Result<f64>| -> Result<Vec<f64>> {
                Ok(times(&run, k, time)?.into_iter().map(|(_, ms)| ms).collect())
            };
            equal(&mut outcome, &condition.name, "median", &of(p50_ms)?);
            equal(&mut outcome, &condition.name, "p95", &of(p95_ms)?);
        }
    }
    needed(&mut outcome, &run)?;
    programs(&mut outcome, &run);
    Ok(outcome)
}

/// Without loss nothing is worth a word: the configurations' times in milliseconds, as `what` names them, lie close together.
fn equal(outcome: &mut ItemOutcome, condition: &str, what: &str, times: &[f64]) {
    let (least, most) =
        times.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), &ms| (least.min(ms), most.max(ms)));
    let text = format!(
        "{condition}: {what} of {} configurations from {} to {}",
        times.len(),
        rendered(least),
        rendered(most)
    );
    outcome.check(most - least <= agreement_ms(least), text);
}

/// The same of p99s, which a single repetition of the quick study has by chance.
fn equal_without_loss(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut runs = Vec::new();
    for seed in SEEDS {
        let more = ["--quick", "--delay=0ms", "--loss=0%", &format!("--seed={seed}")];
        runs.push(measure(h2lab, "sidecar-chaos", &more)?.0);
    }
    let mut outcome = ItemOutcome::default();
    for (k, condition) in runs[0].study()?.conditions.iter().enumerate() {
        let seeds: Vec<Vec<f64>> = runs
            .iter()
            .map(|run| Ok(times(run, k, p99_ms)?.into_iter().map(|(_, p99)| p99).collect()))
            .collect::<Result<_>>()?;
        ensure!(
            seeds.iter().all(|p99s| p99s.len() == seeds[0].len()),
            "{}: the runs have other ways",
            condition.name
        );
        let middles: Vec<f64> = (0..seeds[0].len())
            .filter_map(|configuration| {
                median(&seeds.iter().map(|p99s| p99s[configuration]).collect::<Vec<_>>())
            })
            .collect();
        equal(&mut outcome, &condition.name, "the middle p99", &middles);
    }
    Ok(outcome)
}

/// HTTP/2 on one connection between two sidecars has slower slow requests than HTTP/1.1 in any topology.
fn worst(outcome: &mut ItemOutcome, run: &Document, condition: usize) -> Result<()> {
    // HAProxy, which decides by itself how many connections it holds, is none of the study's.
    const SHARED: [&str; 2] = ["two envoys, h2c × 1", "two envoys, h2 × 1"];
    let p99s = times(run, condition, p99_ms)?;
    let http1 = p99s.iter().filter(|(configuration, _)| configuration.protocol == "h1");
    let worst_other = http1.map(|(_, p99)| *p99).fold(0.0, f64::max);
    let name = &run.study()?.conditions[condition].name;
    for configuration in SHARED {
        let p99 = p99_ms(cell(run, configuration, condition)?)?;
        let text = format!(
            "{name}: {configuration} p99 {}; the worst of HTTP/1.1 {}",
            rendered(p99),
            rendered(worst_other)
        );
        outcome.check(worst_other.is_finite() && p99 > worst_other, text);
    }
    Ok(())
}

/// HTTP/2 between two sidecars of ours is quicker than HTTP/1.1 between them, and fails no request.
fn ours(outcome: &mut ItemOutcome, run: &Document, condition: usize) -> Result<()> {
    let (http2, http1) =
        (cell(run, "two h2labs, h2c × 1", condition)?, cell(run, "two h2labs, h1", condition)?);
    let (own, baseline) = (p99_ms(http2)?, p99_ms(http1)?);
    let text = format!(
        "{}: two h2labs p99 {} over HTTP/2, {} over HTTP/1.1; {} of {} failed",
        run.study()?.conditions[condition].name,
        rendered(own),
        rendered(baseline),
        http2.requests.failed,
        http2.requests.sent
    );
    outcome.check(own < baseline && http2.requests.failed == 0, text);
    Ok(())
}

/// The same where a round trip takes no time.
fn worst_without_delay(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let more = ["--delay=0ms", "--loss=3%", "--repetitions=1", "-z=20s"];
    worst(&mut outcome, &measure(h2lab, "sidecar-chaos", &more)?.0, 0)?;
    Ok(outcome)
}

/// Ramps are HTTP/2's. Without a round trip requests hardly ever wait for one another on four connections, since our client
/// avoids stalled ones: there only HTTP/1.1 is checked. A cell of `--quick` may have no more than 150 slow requests, of which
/// chance puts one or two more on ramps: a share is outside its limit from two standard deviations on.
fn ramps(outcome: &mut ItemOutcome, run: &Document, condition: usize) -> Result<()> {
    let study = run.study()?;
    let Condition { name, rtt_ms, .. } = &study.conditions[condition];
    for (configuration, limit, is_least) in [("direct, h2c × 4", 0.5, true), ("direct, h1", 0.05, false)] {
        let cell = cell(run, configuration, condition)?;
        let ramps = study.ramps.iter().find(|ramps| ramps.cell == cell.index);
        let ramps = ramps.with_context(|| format!("{configuration} has no ramps"))?;
        let share = ramps.share.unwrap_or(0.0);
        let outside = deviations((share * ramps.slow as f64).round() as u64, ramps.slow, limit);
        let text = format!(
            "{name}: {configuration}: {:.1} % of {} slow requests on ramps, {outside:+.1} standard deviations from {:.0} %",
            share * 100.0,
            ramps.slow,
            limit * 100.0
        );
        if *rtt_ms > 0.0 || !is_least {
            outcome.check(if is_least { outside >= -2.0 } else { ramps.slow == 0 || outside <= 2.0 }, text);
        } else {
            outcome.note(text);
        }
    }
    Ok(())
}

/// `4`, `at most 4`, `more than 16`, or that it is not known.
fn least(needed: &Needed) -> String {
    match (needed.connections, needed.at_most, needed.more_than, needed.undecided) {
        (Some(k), ..) => k.to_string(),
        (None, Some(k), ..) => format!("at most {k}"),
        (None, None, Some(k), _) => format!("more than {k}"),
        (None, None, None, Some(k)) => format!("not known, {k} undecided"),
        (None, None, None, None) => "not known".to_owned(),
    }
}

/// With k connections HTTP/2 catches up where there is no proxy in between.
fn needed(outcome: &mut ItemOutcome, run: &Document) -> Result<()> {
    let study = run.study()?;
    let direct: Vec<&Needed> = study.needed.iter().filter(|needed| needed.parties == "origin").collect();
    ensure!(!direct.is_empty(), "nothing is said of how many connections are needed");
    let mut is_decided = false;
    for needed in direct {
        let condition = &study.conditions[needed.condition];
        let predicted = condition.predicted_connections.map_or("nothing".to_owned(), |n| n.to_string());
        let text = format!(
            "{}: connections with which {} matches h1: {}; the PFTK model says {predicted}",
            condition.name,
            needed.protocol,
            least(needed)
        );
        if needed.undecided.is_some() {
            outcome.note(text);
            continue;
        }
        // That fewer might be enough, too, takes nothing from it.
        is_decided = true;
        outcome.check(needed.connections.or(needed.at_most).is_some(), text);
    }
    outcome.check(is_decided, "the number is decided under at least one condition");
    Ok(())
}

/// The real programs really ran.
fn programs(outcome: &mut ItemOutcome, run: &Document) {
    for name in ["haproxy", "nginx-proxy", "envoy", "h2lab"] {
        let of = |cell: &'_ Cell| -> Option<String> {
            let program = [cell.sidecar.as_ref(), cell.server.as_ref()]
                .into_iter()
                .flatten()
                .find(|p| p.name == name)?;
            (cell.throughput_rps > 0.0).then(|| program.version.clone())
        };
        let versions: Vec<String> = run.cells.iter().filter_map(of).collect();
        let version = versions.first().map_or("not there", String::as_str);
        outcome.check(!versions.is_empty(), format!("{name} {version}: {} cells", versions.len()));
    }
}

/// What congestion control does to one connection.
fn bbr(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let mut ratios = Vec::new();
    for seed in SEEDS {
        let (run, _) = measure(h2lab, "bbr-vs-cubic", &["--quick", &format!("--seed={seed}")])?;
        for (k, condition) in run.study()?.conditions.iter().enumerate() {
            let (http1, one) = (cell(&run, "direct, h1", k)?, cell(&run, "direct, h2c × 1", k)?);
            let (baseline, own) = (p99_ms(http1)?, p99_ms(one)?);
            ensure!(baseline.is_finite(), "{}: h1 does not carry the load either", condition.name);
            let text = format!(
                "seed {seed}, {}: h2c × 1 {} served {:.0}/s, p99 {}; h1 p99 {}",
                condition.name,
                one.state,
                one.throughput_rps,
                rendered(own),
                rendered(baseline)
            );
            if condition.name.contains("bbr") {
                ratios.push(own / baseline);
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
fn bursts(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let mut conditions: Vec<(String, Vec<f64>)> = Vec::new();
    for seed in SEEDS {
        let (run, _) = measure(h2lab, "burst-vs-random", &["--quick", &format!("--seed={seed}")])?;
        let study = run.study()?;
        for needed in &study.needed {
            let condition = &study.conditions[needed.condition];
            outcome.note(format!(
                "seed {seed}, {}: k {}, PFTK {:?}",
                condition.name,
                least(needed),
                condition.predicted_connections
            ));
            // More than the most that were tried is beyond all that can be distinguished from it.
            let known = needed.connections.or(needed.at_most).map(f64::from);
            let known = known.or(needed.more_than.map(|_| f64::INFINITY));
            let k = known.with_context(|| format!("{}: k is not known", condition.name))?;
            match conditions.iter_mut().find(|(name, _)| *name == condition.name) {
                Some((_, found)) => found.push(k),
                None => conditions.push((condition.name.clone(), vec![k])),
            }
        }
    }
    let [(random, independent), (states, bursts)] = conditions.as_slice() else {
        bail!("{} conditions where two were asked for", conditions.len());
    };
    let (one, other) = (median(independent), median(bursts));
    let text = format!("the middle k is {one:?} at {random} and {other:?} at {states}");
    outcome.check(one != other, text);
    Ok(outcome)
}

/// The knob that the study's readers asked about.
fn knob(h2lab: &H2lab) -> Result<ItemOutcome> {
    let (run, _) = measure(h2lab, "connections-knob", &["--quick"])?;
    let mut outcome = ItemOutcome::default();
    for condition in &run.study()?.conditions {
        outcome.note(format!(
            "{}: RTT {} ms, PFTK {:?}",
            condition.name, condition.rtt_ms, condition.predicted_connections
        ));
    }
    for cell in &run.cells {
        let median = cell.latency_us.response.as_ref().map_or(f64::NAN, |response| response.p50 / 1e3);
        outcome.note(format!(
            "{}: {}, p50 {median:.1} ms, p99 {}",
            cell.label(),
            cell.state,
            rendered(p99_ms(cell)?)
        ));
    }
    needed(&mut outcome, &run)?;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cell of a study, with a p99 in microseconds.
    fn made(index: u32, state: &str, p99: u32, server: &str) -> String {
        format!(
            r#"{{"index": {index}, "protocol": "h2c", "target": "origin", "connections": 1,
            "max_requests_per_connection": null, "dial_policy": null, "state": "{state}", "throughput_rps": 290,
            "connections_opened": 1, "useless_dials": 0, "requests": {{"sent": 1, "succeeded": 1, "failed": 0}},
            "latency_us": {{"response": {{"p50": 1, "p95": {p99}, "p99": {p99}}}}}, "reasons": [], "findings": [],
            "server": {server}, "sidecar": null}}"#
        )
    }

    /// HTTP/1.1, and two Envoys with HTTP/2 on one connection in these states.
    fn run(clear: &str, tls: &str) -> Document {
        let envoy = r#"{"name": "envoy", "version": "1"}"#;
        let cells =
            [made(0, "ok", 260_000, "null"), made(1, clear, 2, envoy), made(2, tls, 2, envoy)].join(",");
        let text = format!(
            r#"{{"cells": [{cells}], "verdicts": [],
            "study": {{"conditions": [{{"name": "RTT 25ms, 3% loss", "rtt_ms": 25, "loss": 0.03, "predicted_connections": 5}}],
            "configurations": [{{"name": "direct, h1", "protocol": "h1", "cells": [0]}},
                     {{"name": "two envoys, h2c × 1", "protocol": "h2c", "cells": [1]}},
                     {{"name": "two envoys, h2 × 1", "protocol": "h2", "cells": [2]}}],
            "needed": [], "ramps": []}}}}"#
        );
        Document::parse(&text).unwrap()
    }

    #[test]
    fn what_does_not_carry_the_load_is_worse_than_any_figure_and_what_is_quicker_is_not() {
        let holds = |tls| {
            let mut outcome = ItemOutcome::default();
            worst(&mut outcome, &run("unstable", tls), 0).map(|()| outcome.holds())
        };
        assert!(holds("unstable").unwrap());
        assert!(!holds("ok").unwrap());
        assert!(holds("unsupported").is_err(), "nothing was measured");
    }

    #[test]
    fn ways_that_do_not_agree_are_not_called_equal() {
        let equal_now = |times: &[f64]| {
            let mut outcome = ItemOutcome::default();
            equal(&mut outcome, "RTT 0", "p99", times);
            outcome.holds()
        };
        assert!(equal_now(&[1.0, 4.0, 2.0]));
        assert!(!equal_now(&[1.0, 4.1, 2.0]));
        assert!(!equal_now(&[1.0, f64::INFINITY]), "one does not carry the load");
    }

    #[test]
    fn what_cannot_be_spoken_has_no_time_and_what_is_not_carried_an_infinite_one() {
        let of = |clear, tls| -> Vec<f64> {
            times(&run(clear, tls), 0, p99_ms).unwrap().into_iter().map(|(_, p99)| p99).collect()
        };
        assert_eq!(of("unsupported", "unsupported"), [260.0]);
        assert_eq!(of("unstable", "ok"), [260.0, f64::INFINITY, 0.002]);
    }

    #[test]
    fn a_study_that_says_nothing_of_what_is_needed_shows_nothing() {
        assert!(needed(&mut ItemOutcome::default(), &run("ok", "ok")).is_err());
    }

    #[test]
    fn a_number_that_is_enough_shows_it_even_if_fewer_might_be() {
        for (connections, at_most, more_than, undecided, holds, rendered) in [
            (Some(4), None, None, None, true, ": 4;"),
            (None, Some(2), None, None, true, ": at most 2;"),
            (None, None, Some(16), None, false, ": more than 16;"),
            (None, None, None, Some(8), false, ": not known, 8 undecided;"),
            (None, None, None, None, false, ": not known;"),
        ] {
            let (parties, protocol) = ("origin".to_owned(), "h2c".to_owned());
            let one = Needed { condition: 0, parties, protocol, connections, at_most, more_than, undecided };
            let (mut run, mut outcome) = (run("ok", "ok"), ItemOutcome::default());
            run.study.as_mut().unwrap().needed.push(one);
            needed(&mut outcome, &run).unwrap();
            let line = outcome.figures()[0].to_string();
            assert!(outcome.holds() == holds && line.contains(rendered), "{line}");
        }
    }

    #[test]
    fn a_program_that_answered_nothing_did_not_run() {
        let mut outcome = ItemOutcome::default();
        programs(&mut outcome, &run("ok", "ok"));
        let lines: Vec<String> = outcome.figures().iter().map(ToString::to_string).collect();
        assert!(lines[2].starts_with("ok") && lines[0].starts_with("FAIL"), "{lines:?}");
    }
}
