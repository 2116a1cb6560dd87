//! A probe as a page: what failed first, every check as a field of a table, then each check with its evidence.

use serde::Serialize;

use super::parts;
use super::shell::{Repeat, Section, Shell};
use super::template::render;
use crate::format::plural;
use crate::probe::{amount, causes_of, closing, known_limits};
use h2lab_model::probe::{Check, CheckEvidence, Group, Mark, ProbeReport, Subject, Verdict};
use h2lab_wire::trace::Direction;

#[derive(Serialize)]
struct Overview {
    groups: Vec<GroupRow>,
}

/// The checks of a group.
#[derive(Serialize)]
struct GroupRow {
    name: String,
    checks: Vec<CheckBox>,
}

#[derive(Serialize)]
struct CheckBox {
    /// Its address in the page.
    id: String,
    class: &'static str,
    sign: &'static str,
    verdict: String,
    severity: String,
    /// Its id, name and case.
    name: String,
    code: String,
    summary: String,
    evidence: Vec<Seen>,
    /// The ids of the causes that it is evidence for.
    causes: Vec<&'static str>,
    fixes: Vec<(String, String, String)>,
    failed: bool,
}

#[derive(Serialize)]
struct Seen {
    what: String,
    items: Vec<String>,
}

#[derive(Serialize)]
struct Checklist {
    items: Vec<(&'static str, &'static str, String, String)>,
}

/// Pieces of evidence of one kind that are kept in a page.
const EVIDENCE: usize = 60;

/// A probe as a page that loads nothing; `command` is the command line that made it.
pub fn probe_page(report: &ProbeReport, command: &[String]) -> String {
    let groups: Vec<GroupRow> = groups(report);
    let mut sections = Vec::new();
    let is_failed = |check: &&Check| check.verdict == Verdict::Fail;
    let failed = report.checks.iter().filter(is_failed).count();
    let overview = Overview { groups };
    sections.push(Section::new(
        "overview",
        "Overview",
        render(include_str!("probe_overview.html"), &overview),
    ));
    if failed > 0 {
        sections.push(Section::new(
            "failed",
            "Failed checks",
            render(include_str!("probe_failed.html"), &overview),
        ));
    }
    let limits: Vec<(String, String)> = known_limits(&report.limits)
        .into_iter()
        .map(|(name, bound)| (name.to_owned(), format!("{} ({})", amount(bound), bound.how)))
        .collect();
    if !limits.is_empty() {
        sections.push(Section::new("limits", "Limits", parts::lines(&limits)));
    }
    if !report.checklist.is_empty() {
        let title =
            if report.subject == Subject::Client { "Score card" } else { "Checklist of a migration to h2c" };
        sections.push(Section::new(
            "checklist",
            title,
            render(include_str!("probe_list.html"), &checklist(report)),
        ));
    }
    let every = Section::new("checks", "Every check", render(include_str!("probe_checks.html"), &overview));
    sections.push(every.folded(plural(report.checks.len() as u64, "check")));
    Shell {
        kind: "probe".to_owned(),
        answer: answer(report),
        notes: vec![closing(report).lines().next().unwrap_or_default().to_owned()],
        warnings: report.warnings.clone(),
        sections,
        repeat: Repeat { command: command.to_vec(), version: report.version.clone(), ..Repeat::default() },
        style: include_str!("probe.css"),
        ..Shell::default()
    }
    .render()
}

/// What it comes to: how many checks failed, and the worst of them.
fn answer(report: &ProbeReport) -> Vec<String> {
    let software = report.software.as_ref().map_or(String::new(), |software| format!(" ({software})"));
    let all = report.checks.len() as u64;
    let failed: Vec<&Check> = report.checks.iter().filter(|check| check.verdict == Verdict::Fail).collect();
    let Some(worst) = failed.iter().max_by_key(|check| check.severity) else {
        return vec![format!("{}{software}: none of {} failed.", report.target, plural(all, "check"))];
    };
    vec![
        format!("{}{software}: {} of {} failed.", report.target, failed.len(), plural(all, "check")),
        format!(
            "Worst ({}): {} {}: {}.",
            worst.severity,
            worst.id,
            worst.name,
            worst.summary.trim_end_matches('.')
        ),
    ]
}

fn groups(report: &ProbeReport) -> Vec<GroupRow> {
    let numbered: Vec<(usize, &Check)> = report.checks.iter().enumerate().collect();
    let row = |(group, letters): (Group, &str)| {
        let its = numbered.iter().filter(|(_, check)| check.id.starts_with(letters));
        GroupRow { name: group.to_string(), checks: its.map(|(n, check)| check_box(*n, check)).collect() }
    };
    Group::ALL.into_iter().map(row).filter(|row| !row.checks.is_empty()).collect()
}

fn check_box(n: usize, check: &Check) -> CheckBox {
    let (class, sign) = match check.verdict {
        Verdict::Pass => ("better", "✓"),
        Verdict::Fail => ("worse", "✗"),
        Verdict::Undecided => ("doubtful", "?"),
        _ => ("none", "–"),
    };
    let case = check.case.as_ref().map_or(String::new(), |case| format!(" ({case})"));
    CheckBox {
        id: format!("check-{n}"),
        class,
        sign,
        verdict: check.verdict.to_string(),
        severity: check.severity.to_string(),
        name: format!("{} {}{case}", check.id, check.name),
        code: check.id.clone(),
        summary: check.summary.clone(),
        evidence: check.evidence.iter().map(seen).collect(),
        causes: causes_of(check).map(|cause| cause.id).collect(),
        fixes: check
            .fix
            .iter()
            .map(|fix| (fix.product.clone(), fix.setting.clone(), fix.why.clone()))
            .collect(),
        failed: check.verdict == Verdict::Fail,
    }
}

fn seen(evidence: &CheckEvidence) -> Seen {
    let item = |item: &h2lab_model::probe::EvidenceItem| {
        let arrow = if item.direction == Direction::Up { '→' } else { '←' };
        format!("{:>10.3}  {arrow} {}", item.at_ms, item.seen)
    };
    let mut items: Vec<String> = evidence.items.iter().take(EVIDENCE).map(item).collect();
    let more = evidence.items.len().saturating_sub(EVIDENCE);
    items.extend((more > 0).then(|| format!("            … {more} more")));
    Seen { what: evidence.what.clone(), items }
}

fn checklist(report: &ProbeReport) -> Checklist {
    let items = report.checklist.iter().map(|item| {
        let (class, sign) = match item.mark {
            Mark::Ticked => ("better", "✓"),
            Mark::Crossed => ("worse", "✗"),
            Mark::Open => ("doubtful", "?"),
        };
        let checks =
            if item.checks.is_empty() { String::new() } else { format!(" ({})", item.checks.join(", ")) };
        (class, sign, item.item.clone(), format!("{}{checks}", item.why))
    });
    Checklist { items: items.collect() }
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_sound;
    use super::*;
    use crate::probe::testing::report;

    #[test]
    fn what_failed_comes_first_and_every_check_has_its_evidence() {
        let page = probe_page(&report(), &["h2lab".to_owned(), "probe".to_owned()]);
        assert_sound(&page);
        assert!(page.contains("(nginx&#x2f;1.22.1): 1 of 5 checks failed."), "{page}");
        assert!(page.contains("Worst (high): PROT101"));
        assert_eq!(page.matches("href=\"#check-").count(), 5 + 1, "each is reached from the overview");
        for words in ["GOAWAY[0] PROTOCOL_ERROR last_stream_id 0", "limit bodies", "1000 requests", "a doubt"]
        {
            assert!(page.contains(words), "{words}");
        }
        assert!(page.find("Failed checks") < page.find("Every check"));
        // Once among what failed and once with its evidence; the others did not fail.
        assert_eq!(page.matches("<b>Cause</b> CONN108: <code>h2lab explain CONN108</code>").count(), 2);
    }

    #[test]
    fn a_probe_without_a_failure_says_so() {
        let mut report = report();
        report.checks.retain(|check| check.verdict == Verdict::Pass);
        let page = probe_page(&report, &[]);
        assert_sound(&page);
        assert!(page.contains("none of 1 check failed.") && !page.contains("Failed checks"), "{page}");
    }
}
