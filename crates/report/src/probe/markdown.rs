//! A probe as Markdown, to paste into an issue.

use std::fmt::Write;

use super::{closing, probe_document};
use crate::markdown::{escaped, table};
use h2lab_model::probe::{Check, ProbeReport, Verdict};

/// The closing sentences, a table of all checks, and the fixes of those that failed.
pub fn probe_markdown(report: &ProbeReport) -> String {
    let software = report.software.as_ref().map_or(String::new(), |software| format!(" ({software})"));
    let mut out = format!("# h2lab probe: {}\n\n", escaped(&format!("{}{software}", report.target)));
    for line in closing(report).lines().filter(|line| !line.is_empty()) {
        let _ = writeln!(out, "**{}**\n", escaped(line));
    }
    let titles = ["check", "verdict", "severity", "seen"].map(str::to_owned);
    let row = |check: &Check| {
        let case = check.case.as_ref().map(|case| format!(" ({case})")).unwrap_or_default();
        vec![
            format!("{} {}{case}", check.id, check.name),
            check.verdict.to_string(),
            check.severity.to_string(),
            check.summary.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = report.checks.iter().map(row).collect();
    table(&mut out, &titles, &[true; 4], &rows);
    for cause in probe_document(report).causes {
        let checks = cause.checks.join(", ");
        let _ = write!(out, "\n- cause {} of {checks}: `h2lab explain {}`", cause.id, cause.id);
    }
    let failed = report.checks.iter().filter(|check| check.verdict == Verdict::Fail);
    for fix in failed.flat_map(|check| &check.fix) {
        let _ = write!(out, "\n- fix: {}: `{}` - {}", fix.product, fix.setting, escaped(&fix.why));
    }
    for warning in &report.warnings {
        let _ = write!(out, "\n- doubt: {}", escaped(warning));
    }
    let _ = writeln!(out, "\n\nh2lab {}", report.version);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::testing::report;

    #[test]
    fn every_check_is_a_row_and_what_failed_has_its_fix() {
        let text = probe_markdown(&report());
        assert!(text.starts_with("# h2lab probe: http://127.0.0.1:8080/ (nginx/1.22.1)\n"), "{text}");
        assert_eq!(text.matches("\n| PROT101").count(), 5, "{text}");
        assert!(text.contains("(in clear \\<&\"\\>)") && text.contains("\n- fix: "), "{text}");
        assert!(text.contains("\n- cause CONN108 of PROT101: `h2lab explain CONN108`"), "{text}");
    }
}
