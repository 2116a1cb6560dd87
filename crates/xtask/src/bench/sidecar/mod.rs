//! `cargo xtask bench sidecar`: what a pair of our sidecars costs beside pairs of other proxies.
//!
//! Callers speak HTTP/1.1 to the first proxy of a pair. The first speaks HTTP/2 to the second (Debian's nginx:
//! HTTP/1.1), and the second speaks HTTP/1.1 to nginx with 1 KiB for every request. Each proxy has one thread. All
//! pairs run for the whole time and are measured by turns, every second round in the opposite order. What is printed
//! are medians of the rounds; the gates are medians of the rounds' ratios.

mod configuration;
mod loads;
mod pair;

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use self::loads::{BODY, CALLERS, Idle, RATE};
use self::pair::{ENVOY_TLS, HAPROXY, KINDS, Kind, OURS, OURS_TLS, Pair};
use super::ratio::{Ratios, middle};
use super::{Arguments, need};
use crate::verify::binary::H2lab;
use crate::verify::nginx::{Listen, Nginx};

/// The default number of rounds, and with `--quick`.
const ROUNDS: u32 = 9;
const QUICK_ROUNDS: u32 = 3;
/// Idle connections.
const IDLE: usize = 10_000;
/// Connections before a pair's memory is read: its first requests have taken their memory by then.
const FIRST: usize = 50;
/// Files that a proxy or we need beside one for each connection.
const OTHER_FILES: usize = 500;
/// Files that each of them needs in all: some reserve a connection to the service for each connection of a caller.
const ALL_FILES: usize = 2 * IDLE + OTHER_FILES;
/// Programs that must be there.
const TOOLS: &[(&str, &str)] =
    &[("wrk", "wrk"), ("nginx", "nginx-light"), ("prlimit", "util-linux"), ("setpriv", "util-linux")];

/// What is measured, as `--only` selects it.
const PARTS: [&str; 3] = ["saturation", "paced", "idle"];

/// A pair that runs, and what was measured of it.
struct Row {
    kind: &'static Kind,
    pair: Pair,
    saturated: Vec<Saturated>,
    paced: Vec<Paced>,
    /// Bytes per idle connection.
    idle: Option<f64>,
}

/// A round at saturation.
#[derive(Debug, Clone, Copy)]
struct Saturated {
    rate: f64,
    /// CPU in microseconds per request, of the callers' proxy and of the service's.
    cpu_us: [f64; 2],
}

/// A round of the open loop, in microseconds.
#[derive(Debug, Clone, Copy)]
struct Paced {
    /// How much longer the median is than without proxies.
    added_us: f64,
    /// CPU of both per request.
    cpu_us: f64,
}

impl Saturated {
    fn both(&self) -> f64 {
        self.cpu_us.iter().sum()
    }
}

/// What must hold between two pairs.
struct Gate {
    what: &'static str,
    ours: &'static Kind,
    peer: &'static Kind,
    /// The part that measures it.
    part: &'static str,
    figures: fn(&Row) -> Vec<f64>,
    limit: f64,
    aim: f64,
}

/// CPU per request at saturation.
fn saturated_us(row: &Row) -> Vec<f64> {
    row.saturated.iter().map(Saturated::both).collect()
}

/// How much longer the median of the open loop is.
fn added_us(row: &Row) -> Vec<f64> {
    row.paced.iter().map(|paced| paced.added_us).collect()
}

/// CPU per request of the open loop.
fn paced_us(row: &Row) -> Vec<f64> {
    row.paced.iter().map(|paced| paced.cpu_us).collect()
}

/// Memory per idle connection.
fn idle_bytes(row: &Row) -> Vec<f64> {
    row.idle.into_iter().collect()
}

/// What step 11 promises.
const GATES: [Gate; 8] = [
    Gate {
        what: "CPU per request at saturation",
        ours: &OURS,
        peer: &HAPROXY,
        part: "saturation",
        figures: saturated_us,
        limit: 1.0,
        aim: 0.75,
    },
    Gate {
        what: "added p50 at 1,000/s",
        ours: &OURS,
        peer: &HAPROXY,
        part: "paced",
        figures: added_us,
        limit: 1.0,
        aim: 0.78,
    },
    Gate {
        what: "CPU per request at 1,000/s",
        ours: &OURS,
        peer: &HAPROXY,
        part: "paced",
        figures: paced_us,
        limit: 1.0,
        aim: 0.8,
    },
    Gate {
        what: "memory per idle connection",
        ours: &OURS,
        peer: &HAPROXY,
        part: "idle",
        figures: idle_bytes,
        limit: 1.5,
        aim: 1.0,
    },
    Gate {
        what: "CPU per request at saturation",
        ours: &OURS_TLS,
        peer: &ENVOY_TLS,
        part: "saturation",
        figures: saturated_us,
        limit: 1.0,
        aim: 0.5,
    },
    Gate {
        what: "added p50 at 1,000/s",
        ours: &OURS_TLS,
        peer: &ENVOY_TLS,
        part: "paced",
        figures: added_us,
        limit: 1.0,
        aim: 0.5,
    },
    Gate {
        what: "CPU per request at 1,000/s",
        ours: &OURS_TLS,
        peer: &ENVOY_TLS,
        part: "paced",
        figures: paced_us,
        limit: 1.0,
        aim: 0.5,
    },
    Gate {
        what: "memory per idle connection",
        ours: &OURS_TLS,
        peer: &ENVOY_TLS,
        part: "idle",
        figures: idle_bytes,
        limit: 1.5,
        aim: 1.0,
    },
];

/// Measures what `--only` selects, prints it, and records it; fails if a gate does not hold.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let wanted = |part: &str| {
        arguments.only.is_empty() || arguments.only.iter().any(|only| part.starts_with(only.as_str()))
    };
    if !PARTS.iter().any(|part| wanted(part)) {
        bail!("nothing begins with that; there are {}", PARTS.join(", "));
    }
    need(TOOLS)?;
    let h2lab = H2lab::build()?;
    let rounds = arguments.rounds.unwrap_or(if arguments.quick { QUICK_ROUNDS } else { ROUNDS });
    let files = pair::raise_open_files(ALL_FILES as u64)? as usize;
    let service = Nginx::serving(
        &format!("keepalive_timeout 1h; return 200 '{}';", "y".repeat(BODY)),
        &[Listen::H1],
        1_000_000_000,
    )?;
    let direct = SocketAddr::from((Ipv4Addr::LOCALHOST, service.port(0)));
    let folder = tempfile::tempdir()?;
    let (mut rows, mut notes) = start(&h2lab, direct.port(), folder.path())?;
    print!("{notes}");
    for round in 0..rounds {
        if wanted("saturation") {
            saturate(&mut rows, round % 2 == 1, folder.path())?;
        }
        if wanted("paced") {
            pace(&mut rows, round % 2 == 1, &h2lab, direct)?;
        }
    }
    if wanted("idle") {
        let count = IDLE.min(files.saturating_sub(OTHER_FILES) / 2);
        let more = if count < IDLE {
            format!(
                "; {IDLE} need {ALL_FILES} open files, {files} are allowed (`ulimit -Hn`), and raising that takes CAP_SYS_RESOURCE"
            )
        } else {
            String::new()
        };
        let note = format!("* {count} idle connections{more}\n");
        print!("{note}");
        notes += &note;
        for row in &mut rows {
            row.idle = Some(idle(&row.pair, count).with_context(|| row.kind.name)?);
        }
    }
    let (gates, held) = judge(&rows, &wanted);
    let report = format!("{}\n{gates}", table(&rows));
    print!("\n{report}");
    if let Some(file) = &arguments.record {
        std::fs::write(file, markdown(arguments, rounds, &notes, &report))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    // With this few rounds the gates decide nothing.
    Ok(if held || arguments.quick { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Starts the pairs whose programs are installed; for the others, returns how to install them.
fn start(h2lab: &H2lab, service: u16, folder: &Path) -> Result<(Vec<Row>, String)> {
    let (mut rows, mut notes) = (Vec::new(), String::new());
    for kind in KINDS {
        if let Some(line) = kind.missing() {
            let _ = writeln!(notes, "* {}: **not measured**: {line}", kind.name); // writing to a String cannot fail
            continue;
        }
        let pair = Pair::start(kind, h2lab, service, folder)?;
        rows.push(Row { kind, pair, saturated: Vec::new(), paced: Vec::new(), idle: None });
    }
    for row in &rows {
        loads::saturate(row.pair.entry(), folder).with_context(|| row.kind.name)?; // warm, and not counted
    }
    Ok((rows, notes))
}

/// The rows of a round, in its order.
fn in_order(rows: &mut [Row], is_reversed: bool) -> Vec<&mut Row> {
    let mut order: Vec<&mut Row> = rows.iter_mut().collect();
    if is_reversed {
        order.reverse();
    }
    order
}

fn saturate(rows: &mut [Row], is_reversed: bool, folder: &Path) -> Result<()> {
    for row in in_order(rows, is_reversed) {
        let before = row.pair.cpu_us()?;
        let (rate, requests) = loads::saturate(row.pair.entry(), folder).with_context(|| row.kind.name)?;
        let after = row.pair.cpu_us()?;
        let cpu_us = [0, 1].map(|n| (after[n] - before[n]) / requests);
        row.saturated.push(Saturated { rate, cpu_us });
    }
    Ok(())
}

fn pace(rows: &mut [Row], is_reversed: bool, h2lab: &H2lab, service: SocketAddr) -> Result<()> {
    let (direct_us, _) = loads::pace(h2lab, service).context("without proxies")?;
    for row in in_order(rows, is_reversed) {
        let before = row.pair.cpu_us()?;
        let (p50_us, requests) = loads::pace(h2lab, row.pair.entry()).with_context(|| row.kind.name)?;
        let after = row.pair.cpu_us()?;
        let cpu_us = [0, 1].iter().map(|n| after[*n] - before[*n]).sum::<f64>() / requests;
        row.paced.push(Paced { added_us: p50_us - direct_us, cpu_us });
    }
    Ok(())
}

/// Bytes of memory per connection that has had a response and is idle.
fn idle(pair: &Pair, count: usize) -> Result<f64> {
    let entry = pair.entry();
    let _first = Idle::open(entry, FIRST)?;
    let before = pair.memory()?;
    let _all = Idle::open(entry, count)?;
    Ok((pair.memory()? - before) / count as f64)
}

/// The median of figures; NaN of none.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    if figures.is_empty() { f64::NAN } else { middle(&figures) }
}

/// All figures.
fn table(rows: &[Row]) -> String {
    let mut table = format!(
        "| pair | requests/s, {CALLERS} callers | CPU µs/request: callers' | service's | both | added p50 µs at {RATE}/s | CPU µs/request | KiB per idle connection |\n|---|---|---|---|---|---|---|---|\n"
    );
    let figure = |value: f64, digits: usize| {
        if value.is_nan() { "-".to_owned() } else { format!("{value:.digits$}") }
    };
    for row in rows {
        let saturated = |of: fn(&Saturated) -> f64| median(row.saturated.iter().map(of).collect());
        let paced = |of: fn(&Paced) -> f64| median(row.paced.iter().map(of).collect());
        let cells = [
            figure(saturated(|round| round.rate), 0),
            figure(saturated(|round| round.cpu_us[0]), 1),
            figure(saturated(|round| round.cpu_us[1]), 1),
            figure(saturated(Saturated::both), 1),
            figure(paced(|round| round.added_us), 0),
            figure(paced(|round| round.cpu_us), 0),
            figure(row.idle.map_or(f64::NAN, |bytes| bytes / 1024.0), 1),
        ];
        let _ = writeln!(table, "| {} | {} |", row.kind.name, cells.join(" | ")); // writing to a String cannot fail
    }
    table
}

/// The gates' table, and whether all hold that were measured.
fn judge(rows: &[Row], wanted: &dyn Fn(&str) -> bool) -> (String, bool) {
    let mut text =
        "| | ours | peer | ratio | 95 % of median | limit | aim | |\n|---|---|---|---|---|---|---|---|\n"
            .to_owned();
    let mut held = true;
    for gate in GATES.iter().filter(|gate| wanted(gate.part)) {
        let figures = |kind: &Kind| {
            rows.iter().find(|row| row.kind == kind).map_or_else(Vec::new, |row| (gate.figures)(row))
        };
        let (line, holds) = gate.judge(&figures(gate.ours), &figures(gate.peer));
        text += &line;
        held &= holds;
    }
    (text, held)
}

impl Gate {
    /// Its line of the table, and whether it holds; it does not if a pair is missing.
    fn judge(&self, ours: &[f64], peer: &[f64]) -> (String, bool) {
        let Self { what, limit, aim, .. } = self;
        let names = format!("{} / {}: {what}", self.ours.name, self.peer.name);
        if ours.is_empty() || peer.is_empty() {
            return (format!("| {names} | | | | | ≤ {limit} | {aim} | **not measured** |\n"), false);
        }
        let pair = |(ours, peer): (&f64, &f64)| super::Pair { ours: *ours, peer: *peer };
        let found = Ratios::of(&ours.iter().zip(peer).map(pair).collect::<Vec<_>>());
        let holds = found.median <= *limit;
        let mark = if holds { "" } else { "**EXCEEDED**" };
        let line = format!(
            "| {names} | {:.1} | {:.1} | {:.2} | {:.2} to {:.2} | ≤ {limit} | {aim} | {mark} |\n",
            found.ours, found.peer, found.median, found.low, found.high
        );
        (line, holds)
    }
}

/// The report, and how to reproduce it.
fn markdown(arguments: &Arguments, rounds: u32, notes: &str, report: &str) -> String {
    let only = arguments.only.iter().fold(String::new(), |words, id| words + " --only " + id);
    format!(
        "# A pair of sidecars beside others\n\n`cargo xtask bench sidecar --rounds {rounds}{only}`: h1 → pair → nginx, POST of {BODY} \
         bytes, answers of {BODY}, one thread for each proxy.\n\n{notes}\n{report}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_holds_up_to_its_limit_and_not_without_figures() {
        let gate = &GATES[0];
        assert!(gate.judge(&[20.0; 5], &[20.0; 5]).1);
        let (line, holds) = gate.judge(&[20.3; 5], &[20.0; 5]);
        assert!(!holds && line.contains("**EXCEEDED**"), "{line}");
        assert!(!gate.judge(&[], &[20.0]).1);
    }

    #[test]
    fn gates_are_between_pairs_that_are_measured() {
        assert!(GATES.iter().all(|gate| KINDS.contains(&gate.ours) && KINDS.contains(&gate.peer)));
        assert!(GATES.iter().all(|gate| gate.ours.between == gate.peer.between));
        assert!(GATES.iter().all(|gate| PARTS.contains(&gate.part)));
    }

    #[test]
    fn what_was_not_measured_has_no_figure() {
        assert!(median(Vec::new()).is_nan());
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
    }
}
