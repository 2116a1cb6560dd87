//! The JSON of `compare --json` and `run --json`, as far as items read it. Unknown fields are none of our business.

use anyhow::{Context, Result};
use serde::Deserialize;

/// The whole document.
#[derive(Debug, Deserialize)]
pub struct Document {
    /// One per cell.
    pub cells: Vec<Cell>,
    /// One per comparison.
    pub verdicts: Vec<CellVerdict>,
    /// The study's part, if the scenario asks for one.
    pub study: Option<Study>,
}

/// A cell.
#[derive(Debug, Deserialize)]
pub struct Cell {
    /// Its place in the matrix.
    pub index: u32,
    /// `h1`, `h1s`, `h2`, `h2c`.
    pub protocol: String,
    /// The server, or the URL.
    pub target: String,
    /// Connections asked for.
    pub connections: u32,
    /// Requests after which the server ends a connection; null: never.
    pub max_requests_per_connection: Option<u32>,
    /// `single-flight` or `stampede`; null over HTTP/1.1, which dials for each request that waits.
    pub dial_policy: Option<String>,
    /// `ok`, `unstable`, `invalid` or `unsupported`.
    pub state: String,
    /// Successful responses per second inside the measured time.
    pub throughput_rps: f64,
    /// Connections that were opened.
    pub connections_opened: u64,
    /// Connections between two proxies in all repetitions; null where there is only one proxy, or none.
    #[serde(default)]
    pub hop_connections: Option<u64>,
    /// Those that never carried a request.
    pub useless_dials: u64,
    /// How requests ended.
    pub requests: Requests,
    /// Latencies in microseconds.
    pub latency_us: Latencies,
    /// Why it is not ok.
    pub reasons: Vec<String>,
    /// The server's process, if it is a real program.
    pub server: Option<Program>,
    /// The sidecar's.
    pub sidecar: Option<Program>,
    /// Diagnoses.
    pub findings: Vec<Finding>,
    /// The transfer, if the cell is one.
    pub bulk: Option<Bulk>,
}

/// A transfer of a cell.
#[derive(Debug, Deserialize)]
pub struct Bulk {
    /// What the scenario varied here, in words.
    pub factor: String,
    /// Bits per second, of the repetitions.
    pub rate_bps: Spread,
    /// What held it back.
    pub limit: Option<Limit>,
    /// What of HTTP/2 crossed.
    pub frames: Option<BulkFrames>,
}

/// Of several figures.
#[derive(Debug, Deserialize)]
pub struct Spread {
    /// The one in the middle.
    pub median: f64,
}

/// What held a transfer back.
#[derive(Debug, Deserialize)]
pub struct Limit {
    /// `stream-window`, `receive-buffer` …
    pub kind: String,
    /// How that is known.
    pub sentence: String,
    /// What to set.
    pub fixes: Vec<Fix>,
}

/// Frames of a transfer.
#[derive(Debug, Deserialize)]
pub struct BulkFrames {
    /// Mean length of DATA, in bytes.
    pub mean_data: f64,
}

/// A program that ran beside us.
#[derive(Debug, Deserialize)]
pub struct Program {
    /// `nginx`, `envoy` …
    pub name: String,
    /// As the tool prints it.
    pub version: String,
}

/// A study: every configuration under every condition.
#[derive(Debug, Deserialize)]
pub struct Study {
    /// In the order of the matrix.
    pub conditions: Vec<Condition>,
    /// Parties, a protocol and a number of connections.
    pub configurations: Vec<Configuration>,
    /// How many connections each multiplexed protocol needs between the same parties.
    pub needed: Vec<Needed>,
    /// The ramps of each cell.
    pub ramps: Vec<Ramps>,
}

/// What cells of a study share, whatever the parties.
#[derive(Debug, Deserialize)]
pub struct Condition {
    /// `RTT 25ms, 3% loss`.
    pub name: String,
    /// Both delays.
    pub rtt_ms: f64,
    /// The worse direction's share of packets lost.
    pub loss: f64,
    /// What the PFTK model says that the work needs.
    pub predicted_connections: Option<u32>,
}

/// A configuration.
#[derive(Debug, Deserialize)]
pub struct Configuration {
    /// `direct, h2c × 4`.
    pub name: String,
    /// Over the link.
    pub protocol: String,
    /// The index of its cell in each condition.
    pub cells: Vec<Option<u32>>,
}

/// How many connections one protocol needs under a condition.
#[derive(Debug, Deserialize)]
pub struct Needed {
    /// Its place among the conditions.
    pub condition: usize,
    /// The parties behind the generator.
    pub parties: String,
    /// The protocol.
    pub protocol: String,
    /// The least of those tried that is enough.
    pub connections: Option<u32>,
    /// The least that was found to be enough, if it is not known whether fewer are.
    pub at_most: Option<u32>,
    /// The most tried, if that is not enough.
    pub more_than: Option<u32>,
    /// The least whose verdict is undecided, if none is known to be enough.
    pub undecided: Option<u32>,
}

/// How many slow requests of a cell lie on ramps.
#[derive(Debug, Deserialize)]
pub struct Ramps {
    /// The cell's index.
    pub cell: u32,
    /// Slow requests.
    pub slow: u64,
    /// The share of them that lies on ramps; null without slow ones.
    pub share: Option<f64>,
}

/// How the requests of a cell ended.
#[derive(Debug, Deserialize)]
pub struct Requests {
    /// Those that were due inside the measured time.
    pub sent: u64,
    /// Complete 2xx or 3xx responses.
    pub succeeded: u64,
    /// Neither succeeded nor merely unfinished.
    pub failed: u64,
}

/// The three latencies of a cell.
#[derive(Debug, Deserialize)]
pub struct Latencies {
    /// From the scheduled moment to the last byte; null if no request has it.
    pub response: Option<Percentiles>,
}

/// Percentiles in microseconds.
#[derive(Debug, Deserialize)]
pub struct Percentiles {
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// A diagnosis.
#[derive(Debug, Deserialize)]
pub struct Finding {
    /// `LOSS101` …
    pub rule: String,
    /// What is seen, in a sentence.
    pub symptom: String,
    /// What it rests on.
    pub evidence: Vec<Evidence>,
    /// What to change.
    pub fixes: Vec<Fix>,
    /// Its part of the difference from another protocol: 0 of an observation.
    pub explains: Option<f64>,
}

/// A number that a diagnosis rests on.
#[derive(Debug, Deserialize)]
pub struct Evidence {
    /// The number.
    pub value: f64,
}

/// A change that should help.
#[derive(Debug, Deserialize)]
pub struct Fix {
    /// The product that it is for.
    pub product: String,
    /// The setting, as its configuration spells it.
    pub setting: String,
    /// What it does and what it costs.
    pub why: String,
}

/// A cell against the baseline of its group.
#[derive(Debug, Deserialize)]
pub struct CellVerdict {
    /// `no-difference`, `faster`, `slower`, `unstable` …
    pub verdict: String,
    /// The same in words.
    pub sentence: String,
}

impl Document {
    /// Reads the document from stdout.
    pub fn parse(stdout: &str) -> Result<Self> {
        serde_json::from_str(stdout).context("stdout is not the document of `compare --json`")
    }

    /// The cell of a protocol; `connections` distinguishes cells of a multiplexed one.
    pub fn cell(&self, protocol: &str, connections: Option<u32>) -> Result<&Cell> {
        let fits = |cell: &&Cell| {
            cell.protocol == protocol && connections.is_none_or(|connections| connections == cell.connections)
        };
        self.cells.iter().find(fits).with_context(|| format!("there is no cell {protocol} {connections:?}"))
    }

    /// The study's part.
    pub fn study(&self) -> Result<&Study> {
        self.study.as_ref().context("the document has no study")
    }

    /// The cell of a way under a condition.
    pub fn cell_of(&self, configuration: &Configuration, condition: usize) -> Option<&Cell> {
        let index = (*configuration.cells.get(condition)?)?;
        self.cells.iter().find(|cell| cell.index == index)
    }

    /// Cells that the tool does not trust.
    pub fn invalid(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(|cell| cell.state == "invalid")
    }
}

impl Cell {
    /// `h2c × 16`.
    pub fn label(&self) -> String {
        format!("{} × {}", self.protocol, self.connections)
    }

    /// The percentiles of the response time.
    pub fn response(&self) -> Result<&Percentiles> {
        let response = self.latency_us.response.as_ref();
        response.with_context(|| format!("{} answered nothing", self.label()))
    }

    /// The 99th percentile of the response time in milliseconds.
    pub fn p99_ms(&self) -> Result<f64> {
        Ok(self.response()?.p99 / 1e3)
    }

    /// The finding of a rule.
    pub fn finding(&self, rule: &str) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.rule == rule)
    }
}

impl CellVerdict {
    /// Whether it says that two cells differ.
    pub fn claims_a_difference(&self) -> bool {
        !matches!(self.verdict.as_str(), "no-difference" | "invalid" | "unsupported" | "both-unstable")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"{
        "version": "x",
        "cells": [{
            "index": 0, "server": null, "sidecar": null,
            "protocol": "h2c", "target": "origin", "max_requests_per_connection": null, "dial_policy": "single-flight",
            "useless_dials": 0, "connections": 16, "repetitions": 1, "state": "ok", "throughput_rps": 998.5, "connections_opened": 16,
            "requests": {"sent": 3000, "succeeded": 2999, "failed": 1, "unfinished": 0},
            "latency_us": {"response": null}, "reasons": [],
            "findings": [{"rule": "CONN101", "symptom": "s", "evidence": [], "fixes": [{"product": "nginx", "setting": "k", "why": "w"}]}]
        }],
        "verdicts": [{"verdict": "no-difference", "sentence": "a"}, {"verdict": "slower", "sentence": "b"}],
        "study": null
    }"#;

    #[test]
    fn cells_are_found_by_protocol_and_connections() {
        let document = Document::parse(SMALL).unwrap();
        assert_eq!(document.cell("h2c", Some(16)).unwrap().label(), "h2c × 16");
        assert!(document.cell("h2c", Some(4)).is_err());
        assert!(document.cell("h1", None).is_err());
    }

    #[test]
    fn a_percentile_that_is_not_given_is_an_error_and_not_a_zero() {
        assert!(Document::parse(SMALL).unwrap().cells[0].p99_ms().is_err());
    }

    #[test]
    fn verdicts_claim_or_do_not() {
        let claims: Vec<bool> =
            Document::parse(SMALL).unwrap().verdicts.iter().map(CellVerdict::claims_a_difference).collect();
        assert_eq!(claims, [false, true]);
    }
}
