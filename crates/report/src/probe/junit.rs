//! `JUnit` XML for CI systems: a test case for each check, in a suite for each group.

use std::fmt::Write;

use h2lab_model::probe::{Check, Group, ProbeReport, Verdict};

/// The report as a `JUnit` document. Undecided and unsupported checks count as skipped.
pub fn junit(report: &ProbeReport) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let (all, failed) = (report.checks.len(), report.count(Verdict::Fail));
    let _ = writeln!(
        out,
        "<testsuites name=\"h2lab probe {}\" tests=\"{all}\" failures=\"{failed}\" errors=\"0\" time=\"{:.3}\">",
        escape(&report.target),
        report.spent.ms as f64 / 1e3,
    );
    for (group, letters) in Group::ALL {
        let checks: Vec<&Check> =
            report.checks.iter().filter(|check| check.id.starts_with(letters)).collect();
        if !checks.is_empty() {
            suite(&mut out, group, &checks);
        }
    }
    out.push_str("</testsuites>\n");
    out
}

fn suite(out: &mut String, group: Group, checks: &[&Check]) {
    let failed = checks.iter().filter(|check| check.verdict == Verdict::Fail).count();
    let skipped = checks.iter().filter(|check| is_skipped(check.verdict)).count();
    let _ = writeln!(
        out,
        "  <testsuite name=\"{group}\" tests=\"{}\" failures=\"{failed}\" errors=\"0\" skipped=\"{skipped}\">",
        checks.len(),
    );
    for check in checks {
        let case = check.case.as_ref().map(|case| format!(" ({case})")).unwrap_or_default();
        let name = escape(&format!("{} {}{case}", check.id, check.name));
        let summary = escape(&check.summary);
        let _ = writeln!(out, "    <testcase classname=\"h2lab.probe.{}\" name=\"{name}\">", check.id);
        if check.verdict == Verdict::Fail {
            let _ = writeln!(
                out,
                "      <failure type=\"{}\" message=\"{summary}\">{}</failure>",
                check.severity,
                escape(&details(check)),
            );
        } else if is_skipped(check.verdict) {
            let _ = writeln!(out, "      <skipped message=\"{}: {summary}\"/>", check.verdict);
        } else {
            let _ = writeln!(out, "      <system-out>{summary}</system-out>");
        }
        out.push_str("    </testcase>\n");
    }
    out.push_str("  </testsuite>\n");
}

const fn is_skipped(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Unsupported | Verdict::Undecided)
}

/// Evidence and fixes, one per line.
pub(super) fn details(check: &Check) -> String {
    let mut out = String::new();
    for evidence in &check.evidence {
        let _ = writeln!(out, "{}", evidence.what);
        for item in &evidence.items {
            let _ = writeln!(out, "  {:?} {:.3} ms: {}", item.direction, item.at_ms, item.seen);
        }
    }
    for fix in &check.fix {
        let _ = writeln!(out, "fix, {}: {} ({})", fix.product, fix.setting, fix.why);
    }
    out
}

/// Text for XML 1.0: markup escaped, forbidden characters replaced.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\t' | '\n' => out.push(character),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ => out.push(character),
        }
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

    #[test]
    fn what_xml_cannot_have_is_replaced() {
        assert_eq!(escape("a\u{0}b\u{1b}c\nd<&>\""), "a\u{fffd}b\u{fffd}c\nd&lt;&amp;&gt;&quot;");
    }
}
