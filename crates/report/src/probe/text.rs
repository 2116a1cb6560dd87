//! A probe's report for a terminal: a line for each check, what failed in full, the limits, the checklist.

use std::fmt::Write;

use super::causes_of;
use crate::TextStyle;
use crate::format::plural;
use crate::prose::hanging;
use crate::table::wrap;
use h2lab_base::units::format_bytes;
use h2lab_model::Fix;
use h2lab_model::probe::{
    Bound, Check, CheckEvidence, EvidenceItem, Group, Mark, ProbeReport, ServerLimits, Severity, Subject,
    Verdict, is_product,
};
use h2lab_wire::trace::Direction;

/// Frames of one piece of evidence that are shown: the first ones and the last ones.
const SHOWN: (usize, usize) = (8, 4);
/// Characters of a frame or of bytes that are shown.
const WIDTH: usize = 150;
/// Where the summary of a check begins.
const INDENT: usize = 14;

/// Lines of `text`, at most `width` wide, all but the first indented by `hang`.
fn paragraph(text: &str, width: usize, hang: usize) -> Vec<String> {
    let lines = wrap(text, width.saturating_sub(hang));
    let indent = " ".repeat(hang);
    lines
        .into_iter()
        .enumerate()
        .map(|(k, line)| if k == 0 { line } else { format!("{indent}{line}") })
        .collect()
}

/// The report. Evidence is shown for failures, and with `verbose` for everything.
pub fn probe_text(report: &ProbeReport, style: TextStyle, verbose: bool) -> String {
    let software = report.software.as_ref().map_or_else(String::new, |software| format!(" ({software})"));
    let mut out = hanging("", &format!("{}{software}", report.target), style);
    for (group, letters) in Group::ALL {
        let checks: Vec<&Check> =
            report.checks.iter().filter(|check| check.id.starts_with(letters)).collect();
        if !checks.is_empty() {
            let _ = writeln!(out, "\n{group}");
            for (k, check) in checks.iter().enumerate() {
                let is_same = |other: &&Check| other.id == check.id && other.verdict == Verdict::Fail;
                let repeats = check.case.is_some() && checks[..k].iter().any(is_same);
                render(&mut out, check, report, style, verbose, repeats);
            }
        }
    }
    limits(&mut out, &report.limits, style);
    checklist(&mut out, report, style);
    for warning in &report.warnings {
        let lines = paragraph(&format!("warning: {warning}"), style.behind(0), 2);
        let _ = write!(out, "\n{}\n", lines.join("\n"));
    }
    out.push('\n');
    closing(report).lines().for_each(|line| out.push_str(&hanging("", line, style)));
    style.printable(out)
}

/// Reports one check. If it `repeats` another failed case of the same check, it has the same fixes and similar evidence, which
/// are shown once.
fn render(
    out: &mut String,
    check: &Check,
    report: &ProbeReport,
    style: TextStyle,
    verbose: bool,
    repeats: bool,
) {
    let failed = check.verdict == Verdict::Fail;
    let (start, end) = match (style.colour, check.verdict) {
        (true, Verdict::Fail) => ("\x1b[31m", "\x1b[0m"),
        (true, Verdict::Pass) => ("\x1b[32m", "\x1b[0m"),
        _ => ("", ""),
    };
    let verdict = check.verdict.to_string();
    let name = match &check.case {
        Some(case) => format!("{} {} ({case})", check.id, check.name),
        None => format!("{} {}", check.id, check.name),
    };
    let severity = if failed { format!(" [{}]", check.severity) } else { String::new() };
    let rendered = paragraph(&format!("{name}{severity}: {}", check.summary), style.behind(INDENT), 2);
    let gap = " ".repeat(INDENT);
    for (k, line) in rendered.iter().enumerate() {
        let _ = match k {
            0 => writeln!(out, "  {start}{verdict:<12}{end}{line}"),
            _ => writeln!(out, "{gap}{line}"),
        };
    }
    if (failed && !repeats) || verbose {
        check.evidence.iter().for_each(|evidence| show(out, evidence, style, &gap));
    }
    if repeats {
        return;
    }
    for cause in causes_of(check) {
        let _ = writeln!(out, "{gap}cause {}: h2lab explain {}", cause.id, cause.id);
    }
    let (own, others) = fixes(check, report.software.as_deref());
    for fix in own {
        let text = format!("fix, {}: {}  ({})", fix.product, fix.setting, fix.why);
        for line in paragraph(&text, style.behind(INDENT), 4) {
            let _ = writeln!(out, "{gap}{line}");
        }
    }
    if !others.is_empty() {
        let text = format!("{}: h2lab explain {}", others.join(", "), check.id);
        out.push_str(&hanging(&format!("{gap}for "), &text, style));
    }
}

/// Fixes that are shown where the product is not known.
const FIXES: usize = 5;

/// The fixes to show, and the products of the others: those of the detected software, if there are any, else the first.
fn fixes<'a>(check: &'a Check, software: Option<&str>) -> (Vec<&'a Fix>, Vec<&'a str>) {
    let is_its = |fix: &&Fix| software.is_some_and(|software| is_product(software, &fix.product));
    let (mut own, mut others): (Vec<&Fix>, Vec<&Fix>) = check.fix.iter().partition(is_its);
    if own.is_empty() {
        own = others.drain(..others.len().min(FIXES)).collect();
    }
    let mut others: Vec<&str> = others.into_iter().map(|fix| fix.product.as_str()).collect();
    others.dedup();
    (own, others)
}

fn show(out: &mut String, evidence: &CheckEvidence, style: TextStyle, gap: &str) {
    for line in paragraph(&evidence.what, style.behind(INDENT), 2) {
        let _ = writeln!(out, "{gap}{line}");
    }
    let n = evidence.items.len();
    let (first, last) = SHOWN;
    for (k, evidence_item) in evidence.items.iter().enumerate() {
        if n > first + last && k == first {
            let _ = writeln!(out, "{gap}  {:>10}  … {} more …", "", n - first - last);
        }
        if k < first || k + last >= n {
            let (lead, seen) = one(evidence_item);
            out.push_str(&hanging(&format!("{gap}  {lead}"), &seen, style));
        }
    }
}

/// `     1.203  ← ` and `GOAWAY[0] …`
fn one(evidence_item: &EvidenceItem) -> (String, String) {
    let arrow = if evidence_item.direction == Direction::Up { '→' } else { '←' };
    let seen = match evidence_item.seen.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{} …", &evidence_item.seen[..end]),
        None => evidence_item.seen.clone(),
    };
    (format!("{:>10.3}  {arrow} ", evidence_item.at_ms), seen)
}

/// The limits that are known, with their names.
pub(crate) fn known_limits(limits: &ServerLimits) -> Vec<(&'static str, &Bound)> {
    let rows = [
        ("requests on a connection (HTTP/2)", &limits.requests_per_connection),
        ("requests on a connection (HTTP/1.1)", &limits.h1_requests_per_connection),
        ("concurrent streams, announced", &limits.concurrent_streams_advertised),
        ("concurrent streams, served", &limits.concurrent_streams),
        ("idle before the end (HTTP/2)", &limits.idle_ms),
        ("idle before the end (HTTP/1.1)", &limits.h1_idle_ms),
        ("header list, announced", &limits.header_list_advertised),
        ("one header field", &limits.header_field),
        ("many header fields", &limits.header_block),
        ("request body", &limits.request_body),
        ("PINGs in a row", &limits.pings),
        ("DATA frame sent", &limits.data_frame),
        ("stream window", &limits.stream_window),
        ("largest stream window", &limits.largest_stream_window),
        ("connection window", &limits.connection_window),
        ("stream credit returned after", &limits.stream_credit),
    ];
    rows.into_iter().filter_map(|(name, bound)| Some((name, bound.as_ref()?))).collect()
}

fn limits(out: &mut String, limits: &ServerLimits, style: TextStyle) {
    let known = known_limits(limits);
    let Some(wide) = known.iter().map(|(name, _)| name.len()).max() else { return };
    out.push_str("\nLimits\n");
    for (name, bound) in known {
        let (line, how) = (format!("  {name:<wide$}  {}", amount(bound)), format!("({})", bound.how));
        if line.chars().count() + 2 + how.chars().count() <= style.behind(0) {
            let _ = writeln!(out, "{line}  {how}");
        } else {
            out.push_str(&hanging(&format!("  {name:<wide$}  "), &amount(bound), style));
            out.push_str(&hanging("      ", &how, style));
        }
    }
}

/// `1000 requests`, `60 s to 61 s`, `more than 1 MiB`.
pub(crate) fn amount(bound: &Bound) -> String {
    let rendered = |n: u64| match bound.unit.as_str() {
        "bytes" => format!("{n} bytes"),
        "ms" => format!("{:.1} s", n as f64 / 1e3),
        unit => format!("{n} {unit}"),
    };
    match (bound.value, bound.at_least, bound.at_most) {
        (Some(value), ..) => rendered(value),
        (None, Some(least), Some(most)) => format!("{} to {}", rendered(least), rendered(most)),
        (None, Some(least), None) => format!("at least {}", rendered(least)),
        (None, None, Some(most)) => format!("at most {}", rendered(most)),
        (None, None, None) => "unknown".to_owned(),
    }
}

fn checklist(out: &mut String, report: &ProbeReport, style: TextStyle) {
    if report.checklist.is_empty() {
        return;
    }
    let title =
        if report.subject == Subject::Client { "Score card" } else { "Checklist of a migration to h2c" };
    let _ = write!(out, "\n{title}\n");
    for item in &report.checklist {
        let mark = match item.mark {
            Mark::Ticked => "[✓]",
            Mark::Crossed => "[✗]",
            Mark::Open => "[?]",
        };
        let checks =
            if item.checks.is_empty() { String::new() } else { format!(" ({})", item.checks.join(", ")) };
        let text = format!("{mark} {}: {}{checks}", item.item, item.why);
        for line in paragraph(&text, style.behind(2), 4) {
            let _ = writeln!(out, "  {line}");
        }
    }
}

/// `2 failed (1 high, 1 low), 14 passed, 3 unsupported; sent 1,203 requests, 48 KiB …`
pub(crate) fn closing(report: &ProbeReport) -> String {
    let mut words: Vec<String> = Vec::new();
    for verdict in Verdict::ALL {
        let n = report.count(verdict);
        if n == 0 {
            continue;
        }
        let text = match verdict {
            Verdict::Fail => {
                let severities = Severity::ALL.into_iter().rev().filter_map(|severity| {
                    let bad = |check: &&Check| check.is_at_least(severity) && check.severity == severity;
                    let n = report.checks.iter().filter(bad).count();
                    (n > 0).then(|| format!("{n} {severity}"))
                });
                format!("{n} failed ({})", severities.collect::<Vec<_>>().join(", "))
            }
            Verdict::Pass => format!("{n} passed"),
            other => format!("{n} {other}"),
        };
        words.push(text);
    }
    let spent = report.spent;
    let received = match spent.received {
        0 => String::new(),
        n => format!(", received {},", format_bytes(n)),
    };
    let traffic = format!(
        "sent {} and {}{received} on {} in {:.1} s",
        plural(spent.requests, "request"),
        format_bytes(spent.bytes),
        plural(spent.connections, "connection"),
        spent.ms as f64 / 1e3,
    );
    let failed = report.count(Verdict::Fail) > 0;
    let next = if failed { "\n`h2lab explain ID` explains a check.\n" } else { "\n" };
    format!("{}; {traffic}.{next}", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::testing::report;

    #[test]
    fn what_failed_is_reported_with_its_evidence_and_its_fixes() {
        let style = TextStyle::default();
        insta::assert_snapshot!(probe_text(&report(), style, false));
    }

    #[test]
    fn limits_fit_a_narrow_terminal() {
        let mut report = report();
        let bound = Bound::between(Some(32_769), Some(1 << 40), "bytes", "413 for the declared length");
        report.limits.h1_requests_per_connection = Some(bound.clone());
        report.limits.header_field = Some(bound);
        let text = probe_text(&report, TextStyle { width: 60, ..TextStyle::default() }, false);
        let limits = text.lines().skip_while(|line| *line != "Limits").take_while(|line| !line.is_empty());
        let lines: Vec<&str> = limits.collect();
        assert!(lines.len() > 2 && lines.iter().all(|line| line.chars().count() <= 60), "{lines:#?}");
    }

    #[test]
    fn bounds_are_reported_as_far_as_they_are_known() {
        let of = |least, most| amount(&Bound::between(least, most, "requests", ""));
        assert_eq!(of(Some(1), Some(2)), "1 requests to 2 requests");
        assert_eq!(of(Some(1), None), "at least 1 requests");
        assert_eq!(of(None, Some(2)), "at most 2 requests");
        assert_eq!(amount(&Bound::exact(60_000, "ms", "")), "60.0 s");
    }
}
