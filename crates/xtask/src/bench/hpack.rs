//! `cargo xtask bench hpack`: what decoding a header field costs, in time and in instructions.
//!
//! The decoder is not part of the public interface, so that the measurements are ignored tests of `wire`, run in the
//! profile of what is published.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use super::{Arguments, instruments};
use crate::process;

/// Nanoseconds that a field may take on typical requests.
const GOAL: f64 = 60.0;
/// The measurements.
const TESTS: [&str; 3] = ["requests_of_a_browser", "requests_of_a_service", "responses_of_a_service"];
/// The function in them that decodes, as callgrind selects it.
const DECODING: &str = "--toggle-collect=*decode_all*";

/// What a measurement printed: `hpack KIND: N ns per field, …, M fields in all`.
#[derive(Debug, PartialEq)]
struct CodecFigures<'a> {
    line: &'a str,
    nanos: f64,
    fields: f64,
}

/// Measures and prints; fails if a kind of message exceeds the goal.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    super::need(&super::INSTRUMENTS[..1])?;
    let program = build()?;
    let (mut held, mut table) = (true, String::new());
    for test in TESTS {
        let name = format!("h2::hpack::cost::{test}");
        let words = [&program.display().to_string(), name.as_str(), "--exact", "--ignored", "--nocapture"];
        let output =
            Command::new(words[0]).args(&words[1..]).output().context("cannot start the measurement")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let figures = figures(&said).with_context(|| format!("{test} printed no figures:\n{said}"))?;
        let words: Vec<String> = words.map(str::to_owned).to_vec();
        let count = instruments::instructions_of(DECODING, &words)?.count / figures.fields;
        let holds = figures.nanos <= GOAL;
        let mark = if holds { "" } else { "  EXCEEDED" };
        let line = format!("{}: {count:.0} instructions per field (goal {GOAL} ns){mark}", figures.line);
        println!("{line}");
        let _ = writeln!(table, "{line}"); // writing to a String cannot fail
        held &= holds;
    }
    if let Some(file) = &arguments.record {
        let text = format!(
            "# What decoding header fields costs\n\n`cargo xtask bench hpack`: of 25 rounds of 400 blocks the median; \
             instructions in user space, by callgrind, of the decoding alone.\n\n```text\n{table}```\n"
        );
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the tests of `wire` in that profile; returns where they are.
fn build() -> Result<PathBuf> {
    let words = [
        "test",
        "--profile",
        process::PROFILE,
        "--no-run",
        "--lib",
        "-p",
        "h2lab-wire",
        "--message-format=json",
    ];
    let messages = process::said(&mut process::cargo(words))?;
    let executable = |line: &str| {
        serde_json::from_str::<serde_json::Value>(line).ok()?["executable"].as_str().map(PathBuf::from)
    };
    messages.lines().find_map(executable).context("cargo names no executable")
}

/// The figures in the output of the test runner.
fn figures(said: &str) -> Option<CodecFigures<'_>> {
    let line = said
        .lines()
        .find_map(|line| line.find("hpack ").map(|at| &line[at..]).filter(|line| line.contains(" ns ")))?;
    let nanos = line.split_once(": ")?.1.split_once(" ns")?.0.parse().ok()?;
    let fields = line.rsplit_once(", ")?.1.split_once(" fields in all")?.0.parse().ok()?;
    Some(CodecFigures { line, nanos, fields })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_among_what_the_test_runner_says() {
        let line = "hpack a: 12.5 ns per field, 3.0 fields and 9.0 bytes per block, 300 fields in all";
        let said =
            format!("\nrunning 1 test\ntest wire::h2::hpack::cost::a ... {line}\nok\n\ntest result: ok");
        assert_eq!(figures(&said), Some(CodecFigures { line, nanos: 12.5, fields: 300.0 }));
        assert_eq!(figures("running 0 tests"), None);
    }
}
