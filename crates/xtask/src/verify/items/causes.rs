//! The causes of slow requests, against scripts that decide what requests wait for.

use std::process::Stdio;

use anyhow::{Context, Result};

use crate::process;
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;

/// Scripts under each of two congestion controls: six of every kind, and more than 200 in all. A test run makes do with fewer.
const SCRIPTS: &str = "114";
/// The cases of the topology tests.
const CASES: &str = "causes_are_those_that_scripts_made";

/// Precision and recall of each kind of cause; the cases fail if one is below 99 %.
pub fn scripts(_: &H2lab) -> Result<ItemOutcome> {
    topology(CASES, &[("H2LAB_CAUSE_SCRIPTS", SCRIPTS)])
}

/// The cases of the topology tests whose names contain `cases`, with their figures.
pub fn topology(cases: &str, environment: &[(&str, &str)]) -> Result<ItemOutcome> {
    let mut command =
        process::cargo(["test", "--quiet", "--package", "h2lab", "--test", "topology", "--", cases]);
    command.envs(environment.iter().copied());
    let output =
        command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    Ok(read(&String::from_utf8_lossy(&output.stdout), output.status.success()))
}

/// The figures in the output of the cases.
fn read(text: &str, succeeded: bool) -> ItemOutcome {
    let mut outcome = ItemOutcome::default();
    for line in text.lines() {
        if let Some(figure) = line.strip_prefix("figure: ") {
            outcome.note(figure);
        } else if let Some((name, result)) =
            line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
        {
            outcome.check(result.starts_with("ok"), name.replace('_', " "));
        } else if !succeeded && !line.is_empty() {
            outcome.note(line);
        }
    }
    // No case, or a program that failed beside its cases, shows nothing.
    if !succeeded || !outcome.holds() {
        outcome.check(false, "the topology tests failed, or held no such case");
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str =
        "test causes_are_those (root) ... ok (54.1 s)\nfigure: cubic, Own: precision 100.0 % of 96\n";

    #[test]
    fn figures_are_shown_and_cases_decide() {
        let outcome = read(REPORT, true);
        let figures: Vec<String> = outcome.figures().iter().map(ToString::to_string).collect();
        assert_eq!(figures, ["ok   causes are those (root)", "     cubic, Own: precision 100.0 % of 96"]);
        assert!(outcome.holds());
    }

    #[test]
    fn a_failure_and_no_case_at_all_hold_nothing() {
        assert!(!read(REPORT, false).holds());
        assert!(!read("", true).holds());
        assert!(!read(&REPORT.replace("ok (", "FAILED ("), false).holds());
    }
}
