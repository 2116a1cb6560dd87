//! Promises that are shown by tests: the same tests that CI runs, here against the published binary and with more rounds.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use crate::process;
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;

/// Moments at which each signal is sent; a test run makes do with fewer.
const ROUNDS: &str = "25";

/// What is ignored because it asserts nothing: `bench` runs it. Anything else that is ignored is not shown, and so does not hold.
const MEASUREMENT: &str = "ignored, a measurement";

/// The users that may run it.
pub fn privileges(h2lab: &H2lab) -> Result<ItemOutcome> {
    suite(h2lab, &["--package", "h2lab", "--test", "integration"], "privileges::")
}

/// What a user gets wrong.
pub fn bad_input(h2lab: &H2lab) -> Result<ItemOutcome> {
    suite(h2lab, &["--package", "h2lab", "--test", "integration"], "cli_errors::")
}

/// What may not outlive a run.
pub fn leftovers(h2lab: &H2lab) -> Result<ItemOutcome> {
    suite(h2lab, &["--package", "h2lab", "--test", "integration"], "leftovers::")
}

/// The report in a browser.
pub fn html(h2lab: &H2lab) -> Result<ItemOutcome> {
    suite(h2lab, &["--package", "h2lab", "--test", "integration"], "report_html::")
}

/// A/A in virtual time: drawn from models of latency, and end to end with our engines over a model of TCP.
pub fn calibration(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = suite(h2lab, &["--package", "h2lab-analysis", "--lib"], "stats::calibration::")?;
    outcome.add(suite(h2lab, &["--package", "h2lab-analysis", "--test", "simulation"], "calibration::")?);
    Ok(outcome)
}

/// A/A of experiments, drawn from models of latency: the test that takes too long for `cargo xtask test`.
pub fn simulated(h2lab: &H2lab) -> Result<ItemOutcome> {
    let tests = Tests { filter: "experiment::calibration::of_a_thousand", ignored: true, ..Tests::default() };
    suite(h2lab, &["--release", "--package", "h2lab-analysis", "--lib"], tests)
}

/// Which tests are run, and how. A text stands for those whose names contain it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tests<'a> {
    /// Those whose names contain this.
    pub filter: &'a str,
    /// But for those whose names contain one of these.
    pub skip: &'a [&'a str],
    /// Those that are ignored, and no others.
    pub ignored: bool,
    /// With these variables of the environment.
    pub variables: &'a [(&'a str, &'a str)],
}

impl<'a> From<&'a str> for Tests<'a> {
    fn from(filter: &'a str) -> Self {
        Self { filter, ..Self::default() }
    }
}

/// Runs tests; each is a figure, and so is each line `figure: …` that they print. `which`: the flags of cargo that select a binary.
pub fn suite<'a>(h2lab: &H2lab, which: &[&str], tests: impl Into<Tests<'a>>) -> Result<ItemOutcome> {
    let Tests { filter, skip, ignored, variables } = tests.into();
    let mut command = process::cargo(["test", "--quiet"]);
    command.args(which).args(["--", "--show-output", "--format=pretty", filter]);
    command.args(skip.iter().flat_map(|other| ["--skip", other]));
    command.args(ignored.then_some("--ignored"));
    command.env("H2LAB_TEST_BINARY", h2lab.path()).env("H2LAB_TEST_ROUNDS", ROUNDS);
    command.envs(variables.iter().copied());
    let output =
        command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let outcome = read(&text, filter);
    ensure!(
        outcome.holds() == output.status.success(),
        "cargo test says otherwise: {}\n{text}",
        output.status
    );
    Ok(outcome)
}

/// The figures in the output of `cargo test`.
fn read(text: &str, filter: &str) -> ItemOutcome {
    let mut outcome = ItemOutcome::default();
    for line in text.lines() {
        if let Some(figure) = line.strip_prefix("figure: ") {
            outcome.note(figure);
        } else if let Some((name, result)) =
            line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
        {
            let name = name.trim_start_matches(filter).replace('_', " ");
            if result.starts_with(MEASUREMENT) {
                outcome.note(format!("{name}: {result}"));
            } else {
                outcome.check(result == "ok", name);
            }
        }
    }
    if !outcome.holds() {
        let failures = text.lines().skip_while(|line| *line != "failures:").take(60);
        failures.for_each(|line| outcome.note(line));
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_is_a_figure() {
        let outcome = read("test a::b_works ... ok\nfigure: 3 of 3\ntest result: ok. 1 passed\n", "a::");
        let figures: Vec<String> = outcome.figures().iter().map(ToString::to_string).collect();
        assert_eq!(figures, ["ok   b works", "     3 of 3"]);
        assert!(outcome.holds());
    }

    #[test]
    fn a_failed_test_fails_the_item_and_shows_why_and_none_at_all_fails_too() {
        let outcome = read("test a::b ... FAILED\n\nfailures:\n\n---- a::b ----\nboom\n", "a::");
        assert!(!outcome.holds());
        assert!(outcome.figures().iter().any(|figure| figure.to_string().contains("boom")));
        assert!(!read("running 0 tests\n", "a::").holds());
    }

    #[test]
    fn a_measurement_may_be_left_out_and_no_other_test() {
        let measured = "test a::b ... ok\ntest a::c ... ignored, a measurement: cargo xtask bench hpack\n";
        assert!(read(measured, "a::").holds());
        assert!(!read("test a::b ... ok\ntest a::c ... ignored, it takes long\n", "a::").holds());
    }
}
