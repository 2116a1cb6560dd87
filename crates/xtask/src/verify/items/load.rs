//! Promises about `h2lab load`: it measures what others measure, and what a stalled server hides from a closed loop.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::bench::{Pair, ratio::Ratios};
use crate::generators::{self, Job, Origin, Tool};
use crate::verify::binary::H2lab;
use crate::verify::items::suites::suite;
use crate::verify::outcome::ItemOutcome;

/// Rounds of the agreement, the tools in turns: enough for an interval in which the median lies with 95 %.
const ROUNDS: u32 = 9;
/// The work on which tools have to agree: a server that takes 5 ms, and one that pauses for 200 ms of each second. The runs last
/// whole seconds, so that each has the same share of pauses wherever it begins.
const PATHS: [&str; 2] = ["/delay/5", "/stall?every=1000&ms=200"];
/// Requests per second, of which 100 are in flight at the end of a pause.
const RATE: u32 = 500;
const SECONDS: u32 = 4;
/// HTTP/1.1 needs a connection for each of them.
const CONNECTIONS_H1: u32 = 150;
const STREAMS_H2C: u32 = 200;

const INTEGRATION: &[&str] = &["--package", "h2lab", "--test", "integration"];

/// Loops, templates, endings, self-checks; servers that misbehave; the defects of other tools.
pub fn suites(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = suite(h2lab, INTEGRATION, "load::")?;
    outcome.add(suite(h2lab, INTEGRATION, "robust::")?);
    outcome.add(suite(h2lab, INTEGRATION, "defects::")?);
    Ok(outcome)
}

/// Every frame with its time, among them those of a connection that is used up.
pub fn trace(h2lab: &H2lab) -> Result<ItemOutcome> {
    suite(h2lab, INTEGRATION, "trace::")
}

/// Percentiles of response times in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Percentiles {
    p50: f64,
    p90: f64,
    p95: f64,
    p99: f64,
}

impl Percentiles {
    /// As a tool reports them in its JSON.
    fn of(tool: Tool, report: &Value) -> Result<Self> {
        let (place, names, per_ms) = match tool {
            Tool::H2lab => ("/latency_us/response", ["p50", "p90", "p95", "p99"], 1e3),
            Tool::Oha => ("/latencyPercentiles", ["p50", "p90", "p95", "p99"], 1e-3),
            Tool::Vegeta => ("/latencies", ["50th", "90th", "95th", "99th"], 1e6),
            _ => bail!("the report of {} is not read here", tool.name()),
        };
        Self::at(report, place, names, per_ms).with_context(|| format!("{}: {report}", tool.name()))
    }

    fn at(report: &Value, place: &str, names: [&str; 4], per_ms: f64) -> Option<Self> {
        let values = report.pointer(place)?;
        let [p50, p90, p95, p99] = names.map(|name| Some(values.get(name)?.as_f64()? / per_ms));
        Some(Self { p50: p50?, p90: p90?, p95: p95?, p99: p99? })
    }
}

impl std::fmt::Display for Percentiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { p50, p90, p95, p99 } = self;
        write!(f, "p50 {p50:.2}  p90 {p90:.2}  p95 {p95:.2}  p99 {p99:.2} ms")
    }
}

/// One of the percentiles.
type PercentileFigure = fn(&Percentiles) -> f64;

/// The difference that two tools may have, in milliseconds: 5 % or 150 µs, whichever is more.
fn allowed_ms(theirs: f64) -> f64 {
    (theirs * 0.05).max(0.15)
}

/// Whether ours and a peer agree, and the figures in words: they do not if even the nearest end of the interval of the median
/// ratio is further away than allowed. Comparing the medians alone was rejected: on a machine of two CPUs each tool's own p99 of a
/// 5 ms response differs by milliseconds from round to round.
fn compared(ratios: &Ratios) -> (bool, String) {
    let (ours, theirs) = (ratios.ours, ratios.peer);
    let allowed = allowed_ms(theirs);
    let [low, high] = [ratios.low, ratios.high].map(|ratio| theirs * (ratio - 1.0));
    let line = format!(
        "ours {ours:.3} ms, theirs {theirs:.3}; {low:+.3} to {high:+.3} apart (95 % of median), {allowed:.3} allowed"
    );
    (low <= allowed && -high <= allowed, line)
}

/// Runs a tool once on a path of the origin; all that it reports.
fn report(tool: Tool, h2lab: &H2lab, origin: &Origin, path: &str, job: Job<'_>) -> Result<Option<Value>> {
    let url = origin.url(job.protocol, path);
    let folder = tempfile::tempdir()?;
    let done = tool.run(h2lab, &Job { url: &url, ..job }, folder.path())?;
    done.map(|done| tool.report(&done, folder.path())).transpose()
}

/// p50 and p99 of ours against vegeta's and oha's.
pub fn agreement(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let tools = peers(&mut outcome);
    for protocol in ["h1", "h2c"] {
        for path in PATHS {
            outcome.add(agreement_on(h2lab, protocol, path, &tools)?);
        }
    }
    Ok(outcome)
}

/// Ours and the tools whose latencies count from the schedule, or that start requests independent of the server; one that is not
/// installed cannot agree.
fn peers(outcome: &mut ItemOutcome) -> Vec<Tool> {
    let wanted = [Tool::H2lab, Tool::Vegeta, Tool::Oha];
    let tools = generators::installed(&wanted);
    for missing in wanted.iter().filter(|tool| !tools.contains(tool)) {
        outcome.check(false, format!("{} is not installed", missing.name()));
    }
    tools
}

fn agreement_on(h2lab: &H2lab, protocol: &'static str, path: &str, tools: &[Tool]) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let (connections, streams) = if protocol == "h1" { (CONNECTIONS_H1, 1) } else { (1, STREAMS_H2C) };
    let origin = Origin::start(h2lab)?;
    let job =
        Job { protocol, connections, streams, seconds: SECONDS, rate: Some(RATE), url: "", as_nobody: false };
    let mut all: Vec<Vec<Percentiles>> = vec![Vec::new(); tools.len()];
    for round in 1..=ROUNDS {
        let mut line = format!("{protocol} {path} round {round}, p50/p99 in ms:");
        for (tool, rendered) in tools.iter().zip(&mut all) {
            let said = report(*tool, h2lab, &origin, path, job)?.context("all of them can")?;
            let percentiles = Percentiles::of(*tool, &said)?;
            rendered.push(percentiles);
            let _ = write!(line, "  {} {:.3}/{:.3}", tool.name(), percentiles.p50, percentiles.p99);
        }
        outcome.note(line);
    }
    let values: [(&str, PercentileFigure); 2] = [("p50", |p| p.p50), ("p99", |p| p.p99)];
    for (name, value) in values {
        for (tool, rendered) in tools.iter().zip(&all).skip(1) {
            let rounds: Vec<_> =
                all[0].iter().zip(rendered).map(|(a, b)| Pair { ours: value(a), peer: value(b) }).collect();
            let (agrees, line) = compared(&Ratios::of(&rounds));
            outcome.check(agrees, format!("{protocol} {path} {name} against {}: {line}", tool.name()));
        }
    }
    Ok(outcome)
}

/// The origin pauses once, for 500 ms in the middle of a load of 3 s at 1,000/s. The place does not matter: wherever the load
/// begins, 3 s have one pause, in two parts at worst, and the requests that are due in it wait as long.
const PAUSE_PATH: &str = "/stall?every=3000&ms=500&at=1500";
const PAUSE: Job<'static> = Job {
    protocol: "h1",
    connections: 10,
    streams: 1,
    seconds: 3,
    rate: Some(1_000),
    url: "",
    as_nobody: false,
};
/// What is true of it in milliseconds: of 3,000 requests those due in the pause wait for its end, evenly up to 500 ms.
const TRUTH: [(&str, f64); 3] = [("p90", 200.0), ("p95", 350.0), ("p99", 470.0)];
/// By how much a percentile may differ from it: what a request takes besides, the backlog's too.
const PAUSE_TOLERANCE: f64 = 25.0;

/// A pause of the server is seen by from-schedule percentiles, and hidden from a closed loop.
pub fn omission(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let origin = Origin::start(h2lab)?;
    let said = report(Tool::H2lab, h2lab, &origin, PAUSE_PATH, PAUSE)?.context("ours can")?;
    let response = Percentiles::of(Tool::H2lab, &said)?;
    let service = Percentiles::at(&said, "/latency_us/service", ["p50", "p90", "p95", "p99"], 1e3)
        .context("service")?;
    outcome.note(format!("from the schedule:           {response}"));
    for ((name, truth), ours) in TRUTH.into_iter().zip([response.p90, response.p95, response.p99]) {
        let holds = (ours - truth).abs() <= PAUSE_TOLERANCE;
        outcome.check(holds, format!("{name} {ours:.0} ms where {truth:.0} ms is true"));
    }
    // Ten connections carry ten of the 500 requests through the pause; the others were not sent before its end.
    outcome.note(format!("same run, from sending only: {service}"));
    outcome.check(
        service.p99 * 10.0 < TRUTH[2].1,
        format!("what a closed loop would have reported hides it: p99 {:.2} ms", service.p99),
    );
    drop(origin);
    for tool in generators::installed(&[Tool::Oha, Tool::Vegeta]) {
        let origin = Origin::start(h2lab)?;
        let said = report(tool, h2lab, &origin, PAUSE_PATH, PAUSE)?.context("both can")?;
        let how = if tool == Tool::Oha { "oha --latency-correction" } else { tool.name() };
        outcome.note(format!("{how}: {}", Percentiles::of(tool, &said)?));
    }
    for tool in generators::installed(&[Tool::Hey]) {
        let origin = Origin::start(h2lab)?;
        let url = origin.url(PAUSE.protocol, PAUSE_PATH);
        let folder = tempfile::tempdir()?;
        let done = tool.run(h2lab, &Job { url: &url, ..PAUSE }, folder.path())?.context("hey can")?;
        let lines = done.stdout.lines().filter(|line| ["90%", "95%", "99%"].iter().any(|p| line.contains(p)));
        let rendered = lines.map(str::trim).collect::<Vec<&str>>().join(", ");
        outcome.note(format!("a closed loop with a limit of rate (hey -q): {rendered}"));
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_read_in_each_tools_units() {
        let ours = serde_json::json!({"latency_us": {"response": {"p50": 5000.0, "p90": 1.0, "p95": 1.0, "p99": 6000.0}}});
        let oha =
            serde_json::json!({"latencyPercentiles": {"p50": 0.005, "p90": 1.0, "p95": 1.0, "p99": 0.006}});
        let vegeta =
            serde_json::json!({"latencies": {"50th": 5_000_000, "90th": 1, "95th": 1, "99th": 6_000_000}});
        for (tool, report) in [(Tool::H2lab, ours), (Tool::Oha, oha), (Tool::Vegeta, vegeta)] {
            let read = Percentiles::of(tool, &report).unwrap();
            assert!((read.p50 - 5.0).abs() < 1e-9 && (read.p99 - 6.0).abs() < 1e-9, "{read:?}");
        }
        assert!(
            Percentiles::of(Tool::Oha, &serde_json::json!({"latencyPercentiles": {"p50": null}})).is_err()
        );
        assert!(Percentiles::of(Tool::Wrk, &Value::Null).is_err());
    }

    #[test]
    fn agreement_is_150_us_up_to_3_ms_and_relative_above() {
        assert!((allowed_ms(0.1) - 0.15).abs() < 1e-12 && (allowed_ms(3.0) - 0.15).abs() < 1e-12);
        assert!((allowed_ms(190.0) - 9.5).abs() < 1e-12);
    }

    #[test]
    fn tools_disagree_if_the_whole_interval_lies_beyond_what_is_allowed() {
        let agrees = |ours: [f64; 9]| compared(&Ratios::of(&ours.map(|ours| Pair { ours, peer: 10.0 }))).0;
        assert!(agrees([10.0; 9]) && agrees([10.4; 9]) && agrees([9.6; 9]));
        assert!(!agrees([10.6; 9]) && !agrees([9.4; 9]));
        // The second least of nine is the interval's lower end.
        assert!(agrees([10.1, 10.1, 11.0, 12.0, 12.0, 12.0, 12.0, 12.0, 40.0]));
        assert!(!agrees([10.1, 10.6, 11.0, 12.0, 12.0, 12.0, 12.0, 12.0, 40.0]));
    }
}
