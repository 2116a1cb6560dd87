//! `cargo xtask bench hpack`: what decoding a header field costs.
//!
//! The decoder is no part of the public interface, so that the measurement is an ignored test of the core, run in the
//! release profile.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::process;

/// Nanoseconds that a field may take on typical requests.
const GOAL: f64 = 60.0;

/// Measures and prints; fails if a kind of message exceeds the goal.
pub fn run() -> Result<ExitCode> {
    let test = ["--lib", "hpack::cost", "--", "--ignored", "--nocapture", "--test-threads=1"];
    let mut command = process::cargo(["test", "--release", "--quiet", "-p", "h2lab-core"]);
    let output = command.args(test).output().context("cannot start cargo")?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("the measurement failed:\n{said}{}", String::from_utf8_lossy(&output.stderr));
    }
    let figures = figures(&said)?;
    let mut held = true;
    for (line, nanos) in figures {
        let holds = nanos <= GOAL;
        println!("{line} (goal {GOAL} ns){}", if holds { "" } else { "  EXCEEDED" });
        held &= holds;
    }
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The lines `hpack KIND: N ns per field …` and their figures.
fn figures(said: &str) -> Result<Vec<(&str, f64)>> {
    let figure = |line: &str| line.split_once(": ")?.1.split_once(" ns")?.0.parse().ok();
    let lines = said.lines().filter_map(|line| line.find("hpack ").map(|at| &line[at..]));
    let figures: Vec<(&str, f64)> = lines.filter_map(|line| Some((line, figure(line)?))).collect();
    if figures.is_empty() {
        bail!("the measurement printed no figure:\n{said}");
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_among_what_the_test_runner_says() {
        let said = "\nrunning 1 test\nhpack a: 12.5 ns per field, 3 fields\n.hpack b: 70 ns per field\n\ntest result: ok";
        let read = figures(said).unwrap();
        assert_eq!(read.iter().map(|figure| figure.1).collect::<Vec<f64>>(), [12.5, 70.0]);
        assert!(figures("running 0 tests").is_err());
    }
}
