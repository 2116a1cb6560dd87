//! `cargo xtask bench load`: `h2lab load`, as its users run it, beside the load generators that they use today.
//!
//! Each run has a server of its own, which counts requests and connections: no tool's own count is trusted. In a round
//! all tools do the same job one after the other, every second round in the opposite order; what is printed are medians
//! of the rounds, and the median of the rounds' ratios of CPU, ours by the peer's.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::pacing;
use super::peers::SMALL;
use super::ratio::{Ratios, middle};
use super::{Arguments, Pair};
use crate::generators::{self, Job, Origin, Tool};
use crate::verify::binary::H2lab;

/// Seconds of a run.
const SECONDS: u32 = 1;
/// The default number of rounds.
const ROUNDS: u32 = 9;

/// A closed loop that all tools run.
struct Shape {
    /// How `--only` selects it.
    id: &'static str,
    claim: &'static str,
    protocol: &'static str,
    connections: u32,
    streams: u32,
}

const SHAPES: &[Shape] = &[
    Shape { id: "h1-100", claim: "HTTP/1.1, 100 connections", protocol: "h1", connections: 100, streams: 1 },
    Shape {
        id: "h2c-1x100",
        claim: "HTTP/2 in clear, 1 × 100",
        protocol: "h2c",
        connections: 1,
        streams: 100,
    },
    Shape {
        id: "h2c-10x10",
        claim: "HTTP/2 in clear, 10 × 10",
        protocol: "h2c",
        connections: 10,
        streams: 10,
    },
    Shape {
        id: "h2-1x100", claim: "HTTP/2 over TLS, 1 × 100", protocol: "h2", connections: 1, streams: 100
    },
];

/// The figures of one run of one tool.
#[derive(Debug, Clone, Copy)]
struct ToolFigures {
    /// Requests per second that the server received.
    rate: f64,
    /// CPU of the generator per request, in microseconds.
    cpu_us: f64,
    /// Connections that the server accepted, and those without any request.
    connections: u64,
    useless: u64,
}

/// Measures what `--only` selects, prints it as it comes, and records it; fails if a limit does not hold.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let wanted = |id: &str| {
        arguments.only.is_empty() || arguments.only.iter().any(|only| id.starts_with(only.as_str()))
    };
    let shapes: Vec<&Shape> = SHAPES.iter().filter(|shape| wanted(shape.id)).collect();
    if shapes.is_empty() && !pacing::PACES.iter().any(|pace| wanted(pace.id)) {
        let paces = pacing::PACES.iter().map(|pace| pace.id);
        let ids: Vec<&str> = SHAPES.iter().map(|shape| shape.id).chain(paces).collect();
        bail!("nothing begins with that; there are {}", ids.join(", "));
    }
    let h2lab = H2lab::build()?;
    let tools = generators::installed(&Tool::ALL);
    let mut report = String::new();
    for shape in shapes {
        let text = of_shape(shape, &h2lab, &tools, arguments.rounds.unwrap_or(ROUNDS))?;
        println!("{text}");
        let _ = writeln!(report, "{text}"); // writing to a String cannot fail
    }
    let mut holds = true;
    for pace in pacing::PACES.iter().filter(|pace| wanted(pace.id)) {
        let (text, held) = pacing::of_pace(pace, &h2lab, &tools, arguments.rounds)?;
        println!("{text}");
        let _ = writeln!(report, "{text}");
        holds &= held;
    }
    if let Some(file) = &arguments.record {
        std::fs::write(file, markdown(&arguments.only, &report))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The report, and how to reproduce it.
fn markdown(only: &[String], report: &str) -> String {
    let only = only.iter().fold(String::new(), |words, id| words + " --only " + id);
    format!("# `h2lab load` beside other load generators\n\n`cargo xtask bench load{only}`\n\n{report}")
}

/// All rounds of a shape; its table.
fn of_shape(shape: &Shape, h2lab: &H2lab, tools: &[Tool], rounds: u32) -> Result<String> {
    let mut all: Vec<Vec<ToolFigures>> = vec![Vec::new(); tools.len()];
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..tools.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let figures = measure(shape, h2lab, tools[index])
                .with_context(|| format!("{}, {}", shape.id, tools[index].name()))?;
            all[index].extend(figures);
        }
    }
    let mut table = format!(
        "{}: {}, {rounds} rounds of {SECONDS} s\n\n| | requests/s | CPU µs/request | ours / its CPU | connections (useless) |\n|---|---|---|---|---|\n",
        shape.id, shape.claim
    );
    let (ours, rest) = all.split_first().context("ours is always there")?;
    for (tool, figures) in std::iter::once((Tool::H2lab, ours)).chain(tools[1..].iter().copied().zip(rest)) {
        if !figures.is_empty() {
            table.push_str(&line(tool, ours, figures));
        }
    }
    Ok(table)
}

/// A tool's line of the table.
fn line(tool: Tool, ours: &[ToolFigures], figures: &[ToolFigures]) -> String {
    let median = |value: fn(&ToolFigures) -> f64| {
        let mut values: Vec<f64> = figures.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        middle(&values)
    };
    let pair = |(ours, peer): (&ToolFigures, &ToolFigures)| Pair { ours: ours.cpu_us, peer: peer.cpu_us };
    let ratio = match tool {
        Tool::H2lab => "1".to_owned(),
        _ => {
            let pairs: Vec<Pair> = ours.iter().zip(figures).map(pair).collect();
            let Ratios { median, low, high, .. } = Ratios::of(&pairs);
            format!("{median:.2} ({low:.2} to {high:.2})")
        }
    };
    let ToolFigures { connections, useless, .. } = figures[figures.len() - 1];
    format!(
        "| {} | {:.0} | {:.2} | {ratio} | {connections} ({useless}) |\n",
        tool.name(),
        median(|figures| figures.rate),
        median(|figures| figures.cpu_us)
    )
}

/// One run of one tool on a server of its own; `None` if it cannot do it.
fn measure(shape: &Shape, h2lab: &H2lab, tool: Tool) -> Result<Option<ToolFigures>> {
    let origin = Origin::start(h2lab)?;
    let url = origin.url(shape.protocol, &format!("/bytes/{SMALL}"));
    let Shape { protocol, connections, streams, .. } = *shape;
    let job =
        Job { protocol, connections, streams, seconds: SECONDS, rate: None, url: &url, as_nobody: false };
    let folder = tempfile::tempdir()?;
    let Some(done) = tool.run(h2lab, &job, folder.path())? else { return Ok(None) };
    let served = origin.end()?;
    if served.requests == 0 {
        // The others can still be measured.
        println!("{}, {}: no request reached the server: {}", shape.id, tool.name(), done.stdout.trim());
        return Ok(None);
    }
    Ok(Some(ToolFigures {
        rate: served.requests as f64 / f64::from(SECONDS),
        cpu_us: done.cpu_us / served.requests as f64,
        connections: served.connections,
        useless: served.useless,
    }))
}
