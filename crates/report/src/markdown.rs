//! The report as Markdown, to paste into an issue.

use std::fmt::Write;

use super::bulk_cells::{self, BulkCell};
use super::format::{count, millis, rate, shell_line};
use super::matrix::{self, MatrixRow};
use super::table::Column;
use super::{
    Condition, Report, answer, causes, condition, load_text, machines, notes, pairs, sentences, text,
};
use crate::diagnosis::Said;
use h2lab_analysis::stats::{CellState, CellSummary, RampSteps, Tail};

/// Of each run the answer, the verdicts, a table per condition, and the findings. Several runs are distinguished by their names.
pub fn markdown(reports: &[Report<'_>]) -> String {
    let title = |report: &Report<'_>| match reports {
        [_] => "h2lab".to_owned(),
        _ => escaped(report.name()),
    };
    let runs = reports.iter().map(|report| format!("# {}\n\n{}", title(report), one(report)));
    runs.collect::<Vec<_>>().join("\n")
}

/// What records show of which nothing was compared, with what is said beside the findings.
pub fn markdown_of_findings(report: &Report<'_>, said: &Said) -> String {
    let mut out = markdown(&[*report]);
    for sentence in said.paragraphs() {
        let _ = writeln!(out, "\n{}", escaped(&sentence));
    }
    out
}

/// A table: its titles, and whether each column stands left.
pub(super) fn table(out: &mut String, titles: &[String], sides: &[bool], rows: &[Vec<String>]) {
    let line = |cells: &[String]| {
        format!("| {} |\n", cells.iter().map(|cell| escaped(cell)).collect::<Vec<_>>().join(" | "))
    };
    let sides: Vec<&str> = sides.iter().map(|left| if *left { "---" } else { "--:" }).collect();
    *out += &line(titles);
    let _ = writeln!(out, "|{}|", sides.join("|"));
    for row in rows {
        *out += &line(row);
    }
}

/// The titles of columns with their units, and their sides.
pub(super) fn titled(columns: &[Column]) -> (Vec<String>, Vec<bool>) {
    let title = |column: &Column| format!("{} {}", column.title, column.unit).trim().to_owned();
    (columns.iter().map(title).collect(), columns.iter().map(|column| column.left).collect())
}

/// What the conditions of `--fail-if` say, those that are true first.
pub(super) fn conditions(out: &mut String, conditions: &[Condition]) {
    if conditions.is_empty() {
        return;
    }
    *out += "\n## Conditions of --fail-if\n\n";
    for (word, is_true) in [("true", Some(true)), ("undecided", None), ("not true", Some(false))] {
        for condition in conditions.iter().filter(|condition| condition.is_true == is_true) {
            let _ = writeln!(out, "- **{word}**: {}", escaped(&condition.said));
        }
    }
}

/// Code in a line, whatever backticks it has.
fn code(text: &str) -> String {
    let is_other = |c: char| c != '`';
    let longest = text.split(is_other).map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest + 1);
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}

/// The verdicts as a table, and in full for readers who unfold them.
fn verdicts(out: &mut String, report: &Report<'_>) {
    let Some(matrix) = matrix::of(report) else { return };
    let _ = writeln!(out, "\n## {}\n", escaped(&matrix.title()));
    let row = |row: &MatrixRow| {
        let fields = row.fields.iter().map(|field| match field {
            None => "-".to_owned(),
            Some(field) if field.second().is_empty() => field.first(),
            Some(field) => format!("{} ({})", field.first(), field.second()),
        });
        let is_named = matrix.titles()[1] == row.baseline;
        let baseline = if is_named { String::new() } else { format!("{} ", row.baseline) };
        [row.condition.clone(), baseline + &row.baseline_figure].into_iter().chain(fields).collect()
    };
    let rows: Vec<Vec<String>> = matrix.rows.iter().map(row).collect();
    table(out, &matrix.titles(), &vec![true; matrix.columns.len() + 2], &rows);
    let _ = writeln!(out, "\n<details><summary>In sentences</summary>\n");
    for field in matrix.rows.iter().flat_map(|row| row.fields.iter().flatten()) {
        let _ = writeln!(out, "- {}", escaped(&field.sentence));
    }
    let _ = writeln!(out, "\n</details>\n");
    let notes = matrix.notes().into_iter().chain(sentences::how_sure(report));
    for note in notes.chain(sentences::missing_tails(report)) {
        let _ = writeln!(out, "{}\n", escaped(&note));
    }
}

/// What settings with several values do.
fn settings(out: &mut String, report: &Report<'_>) {
    let Some(pairs) = pairs::of(report) else { return };
    let _ = writeln!(out, "\n## {}\n", escaped(&pairs.title));
    for sentence in &pairs.sentences {
        let _ = writeln!(out, "- {}", escaped(sentence));
    }
    if let Some(note) = &pairs.note {
        let _ = writeln!(out, "\n{}", escaped(note));
    }
}

/// The machines of agents, and whether they find the same.
fn of_machines(out: &mut String, report: &Report<'_>) {
    let machines = machines::of(report).map(|of| ("Machines", of.title, of.lines));
    let reproductions = machines::reproductions(report).map(|of| ("Reproduction", of.title, of.lines));
    for (heading, title, lines) in machines.into_iter().chain(reproductions) {
        let _ = writeln!(out, "\n## {heading}: {}\n", escaped(&title));
        for line in lines {
            let _ = writeln!(out, "- {}", escaped(&line));
        }
    }
}

/// The steps of a run with one cell whose rate changes.
fn steps(out: &mut String, report: &Report<'_>) {
    let [summary] = report.analysis.cells.as_slice() else { return };
    let Some(steps) = RampSteps::of(summary) else { return };
    let (titles, sides) = titled(&load_text::STEP_COLUMNS);
    out.push('\n');
    table(out, &titles, &sides, &load_text::step_rows(&steps));
}

/// What the slow requests of a group waited for, if that was analysed.
fn tails(out: &mut String, report: &Report<'_>, group: &[&CellSummary]) {
    let Some(found) = causes::table(report, group) else { return };
    let _ =
        writeln!(out, "\n### Where the time of slow requests went\n\nIn each field: {}.\n", causes::LEGEND);
    let (titles, sides) = titled(&found.columns);
    let rows: Vec<Vec<String>> = found.rows.iter().map(|(_, row, _)| row.clone()).collect();
    table(out, &titles, &sides, &rows);
    out.push('\n');
    for (summary, _, notes) in &found.rows {
        let _ = writeln!(out, "- {}: {}", escaped(&summary.label), escaped(&notes.join("; ")));
    }
}

/// The transfers of cells of bulk work, and their limits.
fn bulk(out: &mut String, cells: &[BulkCell<'_>]) {
    let (mut titles, mut sides) = titled(&bulk_cells::COLUMNS);
    titles.insert(0, "varied".to_owned());
    sides.insert(0, true);
    let row = |one: &BulkCell<'_>| [vec![one.factor.clone()], bulk_cells::row(one)].concat();
    let rows: Vec<Vec<String>> = cells.iter().map(row).collect();
    out.push('\n');
    table(out, &titles, &sides, &rows);
    for held in bulk_cells::held(cells) {
        let _ = writeln!(out, "\n## {}\n\n{}\n", escaped(&held.title), escaped(&held.shown));
        for fix in &held.fixes {
            let _ = writeln!(out, "- fix: {}", escaped(fix));
        }
    }
}

/// One run, without its title.
fn one(report: &Report<'_>) -> String {
    let answer = answer::of(report).into_iter().map(|sentence| format!("**{}**\n", escaped(&sentence)));
    let mut out: String = answer.collect();
    conditions(&mut out, report.conditions);
    verdicts(&mut out, report);
    settings(&mut out, report);
    steps(&mut out, report);
    let moved = bulk_cells::of(report);
    if let Some(cells) = &moved {
        bulk(&mut out, cells);
    }
    let groups = if moved.is_some() { Vec::new() } else { report.analysis.groups() };
    for group in groups {
        let _ = writeln!(out, "\n## {}\n", escaped(&condition::heading(report, &group)));
        out += "| cell | offered/s | served/s | p50 ms | p95 ms | p99 ms | max ms | n | failed + cut | connections |\n";
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
    if report.is_of_packets() {
        let _ = writeln!(out, "\n{}.", escaped(&sentences::work(report).unwrap_or_default()));
    }
    findings(&mut out, report);
    of_machines(&mut out, report);
    out.push('\n');
    for level in sentences::recordings(report) {
        let _ = writeln!(out, "- recorded: {}", escaped(&level));
    }
    warnings(&mut out, report);
    let seed = report.seed().map_or(String::new(), |seed| format!(" · seed {seed}"));
    let command = code(&shell_line(&report.run.command));
    let _ = writeln!(out, "\n{command}{seed} · h2lab {}", report.run.version);
    out
}

/// What makes the figures doubtful.
pub(super) fn warnings(out: &mut String, report: &Report<'_>) {
    for doubt in sentences::warnings(report) {
        let _ = writeln!(out, "- doubt: {}", escaped(&doubt));
    }
}

/// The findings: what is seen, what it costs, what to change.
pub(super) fn findings(out: &mut String, report: &Report<'_>) {
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
    for line in sentences::unexplained_lines(report) {
        let _ = writeln!(out, "\n{}", escaped(&line));
    }
}

fn row(out: &mut String, summary: &CellSummary) {
    let latencies = match summary.response.percentiles() {
        Some(p) if summary.state == CellState::Ok && !summary.is_dead() => {
            let dash = || "-".to_owned();
            let p95 = if summary.response.n() >= sentences::FEW { millis(p.p95) } else { dash() };
            let p99 = if summary.response.tail() == Tail::P99 { millis(p.p99) } else { dash() };
            [millis(p.p50), p95, p99, millis(p.max)].join(" | ")
        }
        _ if summary.state == CellState::Ok => "- | - | - | -".to_owned(),
        _ => format!("{} | - | - | -", summary.state.name()),
    };
    let _ = writeln!(
        out,
        "| {} | {} | {} | {latencies} | {} | {} | {} |",
        escaped(&summary.label),
        rate(summary.offered_rps),
        rate(summary.served_rps),
        count(summary.response.n()),
        text::failed(summary),
        count(summary.connections.opened)
    );
}

/// Escapes Markdown: a URL or a server's output may be in it.
pub(super) fn escaped(text: &str) -> String {
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
        let (verdicts, cells) = rows.split_at(2 + 2);
        assert!(verdicts.iter().all(|&n| n == 6), "{rows:?}");
        assert_eq!(cells.len(), 2 * (2 + 4));
        assert!(cells.iter().all(|&n| n == 11), "{rows:?}");
    }

    #[test]
    fn of_several_runs_each_has_its_title() {
        let fixture = super::super::testing::Fixture::new();
        let two = markdown(&[fixture.report(), Report { folder: Some("b"), ..fixture.report() }]);
        let titles: Vec<&str> = two.lines().filter(|line| line.starts_with("# ")).collect();
        assert_eq!(titles, ["# ./h2lab-runs/20260131T120000Z-42", "# b"]);
    }

    #[test]
    fn the_answer_comes_first_and_the_verdicts_follow_as_a_table() {
        let fixture = super::super::testing::Fixture::new();
        let markdown = markdown(&[fixture.report()]);
        let lines: Vec<&str> = markdown.lines().filter(|line| !line.is_empty()).collect();
        assert!(
            lines[1].starts_with("**Overloaded at 3% loss: one HTTP/2 connection serves 290 of"),
            "{}",
            lines[1]
        );
        let row = "| 3% loss | p99 276 ms | unstable (290 of 1,000/s) | unstable (916 of 1,000/s) | undecided 1.83 × (0.89–2.46) |";
        assert!(lines.contains(&row), "{markdown}");
        assert!(
            markdown.contains("<details><summary>In sentences</summary>\n\n- Without loss: "),
            "{markdown}"
        );
    }

    #[test]
    fn requests_that_were_cut_off_are_counted_as_in_text() {
        let mut fixture = super::super::testing::Fixture::new();
        (fixture.analysis.cells[0].requests.failed, fixture.analysis.cells[0].requests.unfinished) =
            (0, 4_332);
        let markdown = markdown(&[fixture.report()]);
        assert!(
            markdown.contains(" failed + cut | connections |") && markdown.contains("| 0+4,332 |"),
            "{markdown}"
        );
    }

    #[test]
    fn the_level_of_recording_and_every_doubt_are_reported() {
        let mut fixture = super::super::testing::Fixture::new();
        fixture.run.repetitions[0].warnings.push("recording switched from full to tail".to_owned());
        fixture.analysis = h2lab_analysis::stats::analyse(&fixture.run);
        let markdown = markdown(&[fixture.report()]);
        for words in
            ["\n- recorded: full: every request", "- doubt: ", "recording switched from full to tail"]
        {
            assert!(markdown.contains(words), "{words}: {markdown}");
        }
    }

    #[test]
    fn the_command_can_be_pasted_into_a_shell() {
        let mut fixture = super::super::testing::Fixture::new();
        fixture.run.command = ["h2lab", "compare", "--fail-if", "errors > 0.1%"].map(str::to_owned).to_vec();
        let page = markdown(&[fixture.report()]);
        assert!(page.contains("\n`h2lab compare --fail-if 'errors > 0.1%'` · seed "), "{page}");
        assert_eq!([code("a"), code("a``b"), code("`a")], ["`a`", "```a``b```", "`` `a ``"]);
    }

    #[test]
    fn each_condition_stands_there_with_whether_it_is_true_and_the_figures() {
        let fixture = super::super::testing::Fixture::new();
        let said = |is_true, said: &str| Condition { is_true, said: said.to_owned() };
        let conditions =
            [said(Some(false), "errors > 0.1%: h1 has errors 0.000 %"), said(Some(true), "p99 > 1ms: h1")];
        let page = markdown(&[Report { conditions: &conditions, ..fixture.report() }]);
        let expected = "\n## Conditions of --fail-if\n\n- **true**: p99 \\> 1ms: h1\n\
                        - **not true**: errors \\> 0.1%: h1 has errors 0.000 %\n";
        assert!(page.contains(expected), "{page}");
        assert!(!markdown(&[fixture.report()]).contains("Conditions"));
    }

    #[test]
    fn what_a_server_says_is_never_markup() {
        assert_eq!(escaped("<b>|x"), "\\<b\\>\\|x");
    }
}
