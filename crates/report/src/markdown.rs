//! The report as Markdown, to paste into an issue.

use std::fmt::Write;

use super::bulk_cells::{self, BulkCell};
use super::format::{count, millis, rate};
use super::runs::{self, Compared};
use super::table::Column;
use super::{Report, causes, condition, notes, sentences};
use h2lab_analysis::stats::{CellState, CellSummary, Tail};

/// Of each run the verdicts, a table per condition, and the findings. Several runs are distinguished by their names.
pub fn markdown(reports: &[Report<'_>]) -> String {
    let title = |report: &Report<'_>| match reports {
        [_] => "h2lab".to_owned(),
        _ => escaped(report.name()),
    };
    let runs = reports.iter().map(|report| format!("# {}\n\n{}", title(report), one(report)));
    let mut out = runs.collect::<Vec<_>>().join("\n");
    for comparison in Compared::all(reports) {
        compared(&mut out, &comparison);
    }
    out
}

/// A run against the first one.
fn compared(out: &mut String, comparison: &Compared<'_>) {
    let _ = writeln!(out, "\n# {}\n", escaped(&comparison.heading()));
    let titles: Vec<&str> = runs::COLUMNS.iter().map(|column| column.title).collect();
    let sides = runs::COLUMNS.map(|column| if column.left { "---" } else { "--:" });
    let _ = writeln!(out, "| {} |\n|{}|", titles.join(" | "), sides.join("|"));
    for row in comparison.rows() {
        let cells: Vec<String> = row.iter().map(|cell| escaped(cell)).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out.push('\n');
    for doubt in comparison.doubts() {
        let _ = writeln!(out, "- {}", escaped(&doubt));
    }
}

/// What the slow requests of a group waited for, if that was analysed.
fn tails(out: &mut String, report: &Report<'_>, group: &[&CellSummary]) {
    let Some(table) = causes::table(report, group) else { return };
    let _ =
        writeln!(out, "\n### Where the time of slow requests went\n\nIn each field: {}.\n", causes::LEGEND);
    let titles: Vec<String> = table
        .columns
        .iter()
        .map(|column| format!("{} {}", column.title, column.unit).trim().to_owned())
        .collect();
    let _ = writeln!(out, "| {} |\n|---|{}", titles.join(" | "), "--:|".repeat(titles.len() - 1));
    for (_, row, _) in &table.rows {
        let cells: Vec<String> = row.iter().map(|cell| escaped(cell)).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out.push('\n');
    for (summary, _, notes) in &table.rows {
        let _ = writeln!(out, "- {}: {}", escaped(&summary.label), escaped(&notes.join("; ")));
    }
}

/// The transfers of cells of bulk work, and their limits.
fn bulk(out: &mut String, cells: &[BulkCell<'_>]) {
    let title = |column: &Column| format!("{} {}", column.title, column.unit).trim().to_owned();
    let titles: Vec<String> = bulk_cells::COLUMNS.iter().map(title).collect();
    let sides = bulk_cells::COLUMNS.map(|column| if column.left { "---" } else { "--:" });
    let _ = writeln!(out, "| varied | {} |\n|---|{}|", titles.join(" | "), sides.join("|"));
    for one in cells {
        let row: Vec<String> = bulk_cells::row(one).iter().map(|figure| escaped(figure)).collect();
        let _ = writeln!(out, "| {} | {} |", escaped(&one.factor), row.join(" | "));
    }
    for held in bulk_cells::held(cells) {
        let _ = writeln!(out, "\n## {}\n\n{}\n", escaped(&held.title), escaped(&held.shown));
        if let Some(fix) = &held.fix {
            let _ = writeln!(out, "- fix: {}", escaped(fix));
        }
    }
}

/// One run, without its title.
fn one(report: &Report<'_>) -> String {
    let mut out = sentences::claim(report).map_or(String::new(), |claim| format!("{}\n\n", escaped(&claim)));
    for verdict in &report.analysis.verdicts {
        let _ = writeln!(out, "- {}", escaped(&sentences::verdict(report, verdict)));
    }
    let moved = bulk_cells::of(report);
    if let Some(cells) = &moved {
        bulk(&mut out, cells);
    }
    let groups = if moved.is_some() { Vec::new() } else { report.analysis.groups() };
    for group in groups {
        let _ = writeln!(out, "\n## {}\n", escaped(&condition::heading(report, &group)));
        out += "| cell | offered/s | served/s | p50 ms | p95 ms | p99 ms | max ms | n | failed | connections |\n";
        out += "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n";
        for summary in &group {
            row(&mut out, summary);
        }
        let notes = group.iter().flat_map(|summary| {
            notes::of(summary)
                .into_iter()
                .map(|note| format!("- {}: {}\n", escaped(&summary.label), escaped(&note)))
        });
        let notes: String = notes.collect();
        if !notes.is_empty() {
            let _ = write!(out, "\n{notes}");
        }
        tails(&mut out, report, &group);
    }
    for finding in report.findings {
        let _ = writeln!(
            out,
            "\n## {}\n\n{}\n",
            escaped(&sentences::finding_title(report, finding)),
            escaped(&finding.symptom)
        );
        let _ = writeln!(out, "- cost: {}", escaped(&finding.cost));
        for fix in &finding.fixes {
            let _ = writeln!(out, "- fix: {}: `{}` - {}", fix.product, fix.setting, escaped(&fix.why));
        }
    }
    out.push('\n');
    for level in sentences::recordings(report) {
        let _ = writeln!(out, "- recorded: {}", escaped(&level));
    }
    for doubt in sentences::warnings(report) {
        let _ = writeln!(out, "- doubt: {}", escaped(&doubt));
    }
    let _ = writeln!(
        out,
        "\n`{}` · seed {} · h2lab {}",
        report.run.command.join(" "),
        report.run.seed,
        report.run.version
    );
    out
}

fn row(out: &mut String, summary: &CellSummary) {
    let latencies = match summary.response.percentiles() {
        Some(p) if summary.state == CellState::Ok => {
            let p99 = if summary.response.tail() == Tail::P99 { millis(p.p99) } else { "-".to_owned() };
            [millis(p.p50), millis(p.p95), p99, millis(p.max)].join(" | ")
        }
        _ => format!("{} | - | - | -", summary.state.name()),
    };
    let _ = writeln!(
        out,
        "| {} | {} | {} | {latencies} | {} | {} | {} |",
        escaped(&summary.label),
        rate(summary.offered_rps),
        rate(summary.served_rps),
        count(summary.response.n()),
        count(summary.requests.failed),
        count(summary.connections.opened)
    );
}

/// Escapes Markdown: a URL or a server's output may be in it.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '|' | '<' | '>' | '*' | '_' | '`' | '[' | ']' | '\\') {
            escaped.push('\\');
        }
        escaped.push(if c.is_control() { ' ' } else { c });
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_as_many_cells_as_its_header() {
        let fixture = super::super::testing::Fixture::new();
        let markdown = markdown(&[fixture.report()]);
        let rows: Vec<usize> = markdown
            .lines()
            .filter(|line| line.starts_with('|'))
            .map(|line| line.matches('|').count())
            .collect();
        assert_eq!(rows.len(), 2 * (2 + 4));
        assert!(rows.iter().all(|&n| n == 11), "{rows:?}");
    }

    #[test]
    fn of_several_runs_each_has_its_title() {
        let fixture = super::super::testing::Fixture::new();
        let two = markdown(&[fixture.report(), Report { folder: Some("b"), ..fixture.report() }]);
        let titles: Vec<&str> = two.lines().filter(|line| line.starts_with("# ")).collect();
        let compared = "# b against ./h2lab-runs/20260131T120000Z-42: no difference was resolved";
        assert_eq!(titles, ["# ./h2lab-runs/20260131T120000Z-42", "# b", compared]);
    }

    #[test]
    fn the_level_of_recording_and_every_doubt_are_reported() {
        let mut fixture = super::super::testing::Fixture::new();
        fixture.run.repetitions[0].warnings.push("recording went from full to tail by itself".to_owned());
        fixture.analysis = h2lab_analysis::stats::analyse(&fixture.run);
        let markdown = markdown(&[fixture.report()]);
        for words in ["\n- recorded: full: every request", "- doubt: ", "recording went from full to tail"] {
            assert!(markdown.contains(words), "{words}: {markdown}");
        }
    }

    #[test]
    fn what_a_server_says_is_never_markup() {
        assert_eq!(escaped("<b>|x"), "\\<b\\>\\|x");
    }
}
