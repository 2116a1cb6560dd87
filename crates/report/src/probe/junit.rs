//! `JUnit` XML of a probe: a test case for each check, in a suite for each group.

use std::fmt::Write;

use super::causes_of;
use crate::junit::{Case, CaseOutcome, Suites};
use h2lab_model::probe::{Check, Group, ProbeReport, Verdict};

/// The report as a `JUnit` document. Undecided and unsupported checks count as skipped.
pub fn junit(report: &ProbeReport) -> String {
    let suite = |(group, letters): (Group, &str)| {
        let its = report.checks.iter().filter(|check| check.id.starts_with(letters));
        (group.to_string(), its.map(case).collect())
    };
    let suites = Suites {
        name: format!("h2lab probe {}", report.target),
        seconds: report.spent.ms as f64 / 1e3,
        all: Group::ALL.into_iter().map(suite).collect(),
    };
    suites.xml()
}

fn case(check: &Check) -> Case {
    let of = check.case.as_ref().map(|case| format!(" ({case})")).unwrap_or_default();
    Case {
        class: format!("h2lab.probe.{}", check.id),
        name: format!("{} {}{of}", check.id, check.name),
        outcome: match check.verdict {
            Verdict::Fail => CaseOutcome::Failed {
                kind: check.severity.to_string(),
                message: check.summary.clone(),
                details: details(check),
            },
            Verdict::Unsupported | Verdict::Undecided => {
                CaseOutcome::Skipped(format!("{}: {}", check.verdict, check.summary))
            }
            Verdict::Pass | Verdict::Ignored => CaseOutcome::Passed(check.summary.clone()),
        },
    }
}

/// Evidence, causes and fixes, one per line.
pub(super) fn details(check: &Check) -> String {
    let mut out = String::new();
    for evidence in &check.evidence {
        let _ = writeln!(out, "{}", evidence.what);
        for item in &evidence.items {
            let _ = writeln!(out, "  {:?} {:.3} ms: {}", item.direction, item.at_ms, item.seen);
        }
    }
    for cause in causes_of(check) {
        let _ = writeln!(out, "cause {}: h2lab explain {}", cause.id, cause.id);
    }
    for fix in &check.fix {
        let _ = writeln!(out, "fix, {}: {} ({})", fix.product, fix.setting, fix.why);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::testing::report;

    #[test]
    fn a_suite_counts_what_it_has() {
        insta::assert_snapshot!(junit(&report()));
    }
}
