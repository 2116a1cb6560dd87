//! Promises about the HTTP engines: conformance, hostile peers, the second opinion of tshark, windows, fuzzing, speed.

use std::process::Stdio;

use anyhow::{Context, Result};

use super::suites::suite;
use crate::process;
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;

/// Runs of the conformance suites in a row: one of ten that fails is a flake, and none is promised.
const CONFORMANCE_RUNS: u32 = 10;

const INTEGRATION: &[&str] = &["--package", "h2lab", "--test", "integration"];
const SIMULATION: &[&str] = &["--package", "h2lab-analysis", "--test", "simulation"];
const WIRE: &[&str] = &["--package", "h2lab-wire", "--lib"];

/// h2spec against the origin, h2specd against the client, again and again.
pub fn conformance(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    for _ in 0..CONFORMANCE_RUNS {
        outcome.add(suite(h2lab, INTEGRATION, "conformance::")?);
    }
    Ok(outcome)
}

/// HPACK against the standard's examples, another library and nghttp2's tools.
pub fn hpack(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = suite(h2lab, WIRE, "hpack::")?;
    outcome.add(suite(h2lab, INTEGRATION, "hpack::")?);
    Ok(outcome)
}

/// HTTP/1.1: every refusal beside its legal neighbour.
pub fn http1(h2lab: &H2lab) -> Result<ItemOutcome> {
    suite(h2lab, WIRE, "h1::")
}

/// Attacks on both roles while others are served.
pub fn hostile(h2lab: &H2lab) -> Result<ItemOutcome> {
    suite(h2lab, INTEGRATION, "hostile::")
}

/// tshark reads the same frames as our Tap.
pub fn tshark(h2lab: &H2lab) -> Result<ItemOutcome> {
    suite(h2lab, INTEGRATION, "tshark::")
}

/// Both ways into HTTP/2 in clear, and TLS.
pub fn beginnings(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = suite(h2lab, INTEGRATION, "upgrade::")?;
    outcome.add(suite(h2lab, INTEGRATION, "tls::")?);
    Ok(outcome)
}

/// Windows that tune themselves, in virtual time.
pub fn windows(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = suite(h2lab, SIMULATION, "tuning::")?;
    outcome.add(suite(h2lab, SIMULATION, "flow_control::")?);
    Ok(outcome)
}

/// Every fuzz target finds the bug that is planted for it.
pub fn fuzz(_: &H2lab) -> Result<ItemOutcome> {
    xtask(&["fuzz-proof"])
}

/// A subject of `bench`, each line of its table a figure.
pub fn bench(subject: &str) -> Result<ItemOutcome> {
    xtask(&["bench", subject])
}

/// Runs a command of ours that judges itself; its lines are notes.
pub fn xtask(arguments: &[&str]) -> Result<ItemOutcome> {
    let mut command = process::cargo(["xtask"]);
    command.args(arguments);
    let output =
        command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    let mut outcome = ItemOutcome::default();
    String::from_utf8_lossy(&output.stdout).lines().for_each(|line| outcome.note(line));
    outcome.check(output.status.success(), format!("cargo xtask {}", arguments.join(" ")));
    Ok(outcome)
}
