//! The report for a terminal.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::format::shell_line;
use super::format::{count, millis, number, rate};
use super::style::{AnswerPlace, Paint, TextStyle, painted, paragraph};
use super::table::{Column, name, number as numeric};
use super::{
    Report, answer, bulk_cells, causes, condition, fold, machines, matrix, notes, pairs, sentences, study,
};
use h2lab_analysis::diagnose::Finding;
use h2lab_analysis::stats::{CellState, CellSummary, Tail};

/// A longer label gets its own line, so that figures stay in their columns.
const LONGEST_LABEL: usize = 14;

/// The report for a terminal: of each run the answer, a table per condition, the verdicts, findings, doubts, and where the files
/// are. Several runs are listed by name.
pub fn text(reports: &[Report<'_>], style: TextStyle) -> String {
    let text = match reports {
        [report] => one(report, style),
        _ => reports.iter().map(|report| headed(report, style)).collect::<Vec<_>>().join("\n"),
    };
    style.printable(text)
}

/// One of several runs, under its name.
fn headed(report: &Report<'_>, style: TextStyle) -> String {
    let heading = format!("Run {} ({})", report.name(), shell_line(&report.run.command));
    let mut out = String::new();
    painted(&mut out, style, Paint::Bold, "", &heading);
    out + &one(report, style)
}

/// One run.
fn one(report: &Report<'_>, style: TextStyle) -> String {
    let mut out = String::new();
    if style.answer == AnswerPlace::First {
        answer::text(&mut out, report, style);
        out.push('\n');
    }
    if let Some(line) = sentences::work(report) {
        paragraph(&mut out, style, "", &line);
    }
    if let Some(cells) = bulk_cells::of(report) {
        bulk_cells::text(&mut out, report, &cells, style);
        pairs::text(&mut out, report, style);
    } else {
        tables(&mut out, report, style);
        study::text(&mut out, report, style);
        causes::text(&mut out, report, style);
        matrix::text(&mut out, report, style);
        pairs::text(&mut out, report, style);
        findings(&mut out, report, style);
    }
    machines::text(&mut out, report, style);
    warnings(&mut out, report, style);
    places(&mut out, report, style);
    if style.answer == AnswerPlace::Last {
        out.push('\n');
        answer::text(&mut out, report, style);
    }
    out
}

/// The table's columns: title and unit.
pub(super) fn columns() -> Vec<(String, String)> {
    COLUMNS.iter().map(|column| (column.title.to_owned(), column.unit.to_owned())).collect()
}

/// A cell's figures under [`columns`], but for its label.
pub(super) fn figures(report: &Report<'_>, summary: &CellSummary) -> Vec<String> {
    row(report, summary).split_off(1)
}

const COLUMNS: [Column; 13] = [
    name("cell"),
    numeric("offered", "/s").rank(4),
    numeric("served", "/s").rank(1),
    numeric("p50", "ms").rank(2),
    numeric("p95", "ms").rank(3),
    numeric("p99", "ms").rank(1),
    numeric("max", "ms").rank(5),
    numeric("n", "").rank(6),
    numeric("failed", "+cut").goes_on().rank(2),
    numeric("conns", "/rep").rank(9),
    numeric("req/", "conn").goes_on().rank(10),
    numeric("retrans", "cli/srv").rank(7),
    numeric("dropped", "up/down").rank(8),
];

/// A table for each condition; all have the same columns.
fn tables(out: &mut String, report: &Report<'_>, style: TextStyle) {
    let groups = report.analysis.groups();
    let rows: Vec<Vec<String>> = groups.iter().flatten().map(|summary| row(report, summary)).collect();
    let table = fold::fold(&COLUMNS, &rows, style);
    let mut rows_left = &table.rows[..];
    for group in &groups {
        let (its, rest) = rows_left.split_at(group.len());
        rows_left = rest;
        out.push('\n');
        painted(out, style, Paint::Bold, "", &condition::heading(report, group));
        for line in &table.header {
            let _ = writeln!(out, "{}", style.paint(Paint::Dim, line));
        }
        for (row, summary) in its.iter().zip(group) {
            cell(out, row, summary, style);
        }
        if let Some(sizes) = sentences::request_sizes(group) {
            painted(out, style, Paint::Dim, "", &sizes);
        }
    }
    if let Some(note) = &table.note {
        painted(out, style, Paint::Dim, "", note);
    }
}

/// The row of a cell, and the notes beneath it.
fn cell(out: &mut String, row: &str, summary: &CellSummary, style: TextStyle) {
    if summary.label.chars().count() > LONGEST_LABEL {
        paragraph(out, style, "", &summary.label);
    }
    let _ = writeln!(out, "{row}");
    if let Some(state) = sentences::state(summary) {
        painted(out, style, Paint::Yellow, "  ", &state);
    }
    for note in notes::of(summary) {
        paragraph(out, style, "  ", &note);
    }
}

fn row(report: &Report<'_>, summary: &CellSummary) -> Vec<String> {
    let label = if summary.label.chars().count() > LONGEST_LABEL { "" } else { &summary.label };
    if summary.repetitions == 0 {
        // Not measured: a zero would look like a figure.
        let dashes = std::iter::repeat_n("-".to_owned(), COLUMNS.len() - 1);
        return std::iter::once(label.to_owned()).chain(dashes).collect();
    }
    let mut row = vec![label.to_owned(), rate(summary.offered_rps), rate(summary.served_rps)];
    row.extend(latencies(summary, sentences::is_alone(report)));
    let end = |end: &Option<h2lab_analysis::stats::TcpEnd>| {
        end.as_ref().map_or("?".to_owned(), |end| count(end.retransmits))
    };
    row.extend([
        failed(summary),
        number(summary.connections.opened as f64 / f64::from(summary.repetitions.max(1))),
        number(summary.requests_per_connection()),
        match &summary.quic_client {
            // QUIC counts lost packets; it retransmits their data in new ones.
            Some(quic) => format!("{} lost/?", count(quic.packets_lost)),
            None if report.is_of_packets() => {
                format!("{}/{}", end(&summary.tcp_client), count(seen_again(report, summary.cell.index)))
            }
            None => format!("{}/{}", end(&summary.tcp_client), end(&summary.tcp_server)),
        },
        match &summary.link {
            Some(link) => format!("{}/{}", count(link.dropped_up), count(link.dropped_down)),
            // There is a link, and its drops are in no packet.
            None if report.is_of_packets() && summary.cell.link.is_some() => "?".to_owned(),
            None => "-".to_owned(),
        },
    ]);
    row
}

/// How many segments of servers were seen again in the packets of a cell.
fn seen_again(report: &Report<'_>, cell: u32) -> u64 {
    let mut most: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for one in report.run.repetitions.iter().filter(|one| one.cell.index == cell) {
        for tick in one.tcp.iter().filter(|tick| tick.server) {
            let most = most.entry((one.cell.repetition, tick.connection)).or_default();
            *most = (*most).max(tick.retransmits);
        }
    }
    most.into_values().map(u64::from).sum()
}

/// Failures, and after a plus the requests that were cut off unfinished.
pub(super) fn failed(summary: &CellSummary) -> String {
    match (summary.requests.failed, summary.requests.unfinished) {
        (failed, 0) => count(failed),
        (failed, unfinished) => format!("{}+{}", count(failed), count(unfinished)),
    }
}

/// p50, p95, p99, max and n; dashes where the state forbids a figure. A p99 of too few requests is a dash, too, unless
/// the cell is alone; of so few that the answer has no tail, p95 and p99 are.
fn latencies(summary: &CellSummary, is_alone: bool) -> [String; 5] {
    let n = count(summary.response.n());
    let dash = || "-".to_owned();
    match summary.response.percentiles() {
        Some(p) if summary.state == CellState::Ok && !summary.is_dead() => {
            let has_tail = summary.response.n() >= sentences::FEW;
            let has_p99 = has_tail && (is_alone || summary.response.tail() == Tail::P99);
            let tail = |is_there, time| if is_there { millis(time) } else { dash() };
            [millis(p.p50), tail(has_tail, p.p95), tail(has_p99, p.p99), millis(p.max), n]
        }
        _ => [dash(), dash(), dash(), dash(), n],
    }
}

pub(super) fn findings(out: &mut String, report: &Report<'_>, style: TextStyle) {
    if report.findings.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{}", style.paint(Paint::Bold, "Findings"));
    for hop in sentences::hops(report) {
        paragraph(out, style, "", &hop);
    }
    let mut before: Option<&Finding> = None;
    for finding in report.findings {
        one_finding(out, report, finding, before, style);
        before = Some(finding);
    }
    for line in sentences::unexplained_lines(report) {
        paragraph(out, style, "- ", &line);
    }
}

/// A finding. Advice that `before` already gave in the same words is not repeated.
fn one_finding(
    out: &mut String,
    report: &Report<'_>,
    finding: &Finding,
    before: Option<&Finding>,
    style: TextStyle,
) {
    painted(out, style, Paint::Bold, "- ", &sentences::finding_title(report, finding));
    paragraph(out, style, "  ", &finding.symptom);
    paragraph(out, style, "  cost: ", &finding.cost);
    let rendered = before.map_or(&[][..], |before| &before.fixes);
    for fix in finding.fixes.iter().filter(|fix| !rendered.contains(fix)) {
        paragraph(out, style, "  fix:  ", &fix.line());
    }
    if finding.fixes.iter().any(|fix| rendered.contains(fix)) {
        let _ = writeln!(out, "  fix:  as above");
    }
    if before.is_none_or(|before| before.rule != finding.rule) {
        let _ = writeln!(out, "  more: h2lab explain {}", finding.rule);
    }
}

pub(super) fn warnings(out: &mut String, report: &Report<'_>, style: TextStyle) {
    let warnings = sentences::warnings(report);
    if warnings.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{}", style.paint(Paint::Bold, "Warnings"));
    for warning in warnings {
        paragraph(out, style, "- ", &warning);
    }
}

pub(super) fn places(out: &mut String, report: &Report<'_>, style: TextStyle) {
    out.push('\n');
    let _ = writeln!(
        out,
        "{}",
        style.paint(Paint::Dim, &format!("seed {}, h2lab {}", report.run.seed, report.run.version))
    );
    for (name, place) in [("run folder", report.folder), ("report", report.page)] {
        if let Some(place) = place {
            let _ = writeln!(out, "{name}: {place}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Fixture;
    use super::*;

    #[test]
    fn the_report_of_a_default_run() {
        insta::assert_snapshot!(text(&[Fixture::new().report()], TextStyle::default()));
    }

    #[test]
    fn the_report_of_a_run_that_has_just_ended_at_80_columns() {
        let style =
            TextStyle { width: 80, verdicts: true, answer: AnswerPlace::Last, ..TextStyle::default() };
        insta::assert_snapshot!(text(&[Fixture::new().report()], style));
    }

    #[test]
    fn the_report_of_a_default_run_at_60_columns() {
        insta::assert_snapshot!(text(
            &[Fixture::new().report()],
            TextStyle { width: 60, ..TextStyle::default() }
        ));
    }

    #[test]
    fn several_runs_stand_under_their_names_and_one_has_no_heading() {
        let fixture = Fixture::new();
        let (first, second) = (fixture.report(), Report { folder: Some("b"), ..fixture.report() });
        let alone = text(&[first], TextStyle::default());
        assert!(!alone.contains("Run "));
        let both = text(&[first, second], TextStyle::default());
        let headings: Vec<&str> = both.lines().filter(|line| line.starts_with("Run ")).collect();
        let name = "Run ./h2lab-runs/20260131T120000Z-42 (h2lab compare --seed 42)";
        assert_eq!(headings, [name, "Run b (h2lab compare --seed 42)"]);
        assert!(both.contains(&alone), "each run is reported as it is alone");
    }

    #[test]
    fn in_packets_segments_of_the_server_that_were_seen_again_are_its_retransmissions() {
        let tick = |connection, retransmits, server| h2lab_base::counters::TcpTick {
            at: h2lab_base::units::Time::ZERO,
            connection,
            retransmits,
            cwnd: 10,
            rtt_us: 1,
            unacked: 0,
            server,
        };
        let mut fixture = Fixture::new();
        let mut summary = fixture.analysis.cells[0].clone();
        summary.link = None;
        let row_of = |fixture: &Fixture| row(&fixture.report(), &summary).split_off(COLUMNS.len() - 2);
        assert_eq!(row_of(&fixture)[1], "-");
        for one in &mut fixture.run.repetitions {
            one.generator.wall_ns = 0;
            let is_its = one.cell.index == summary.cell.index && one.cell.repetition == 0;
            let seen = [tick(0, 1, true), tick(0, 2, true), tick(1, 3, true), tick(1, 9, false)];
            one.tcp = if is_its { seen.to_vec() } else { Vec::new() };
        }
        let [retransmits, dropped] = row_of(&fixture).try_into().expect("two columns");
        assert!(retransmits.ends_with("/5"), "{retransmits}");
        assert_eq!(dropped, "?", "a link, whose drops are not in the packets");
        summary.cell.link = None;
        assert_eq!(row(&fixture.report(), &summary).pop().as_deref(), Some("-"));
    }

    #[test]
    fn of_fewer_than_20_requests_there_is_no_p95_and_no_p99() {
        use h2lab_analysis::stats::Latency;
        use std::time::Duration;
        let summary = Fixture::new().analysis.cells[0].clone();
        let of = |n: u64| {
            let response = Latency::new((1..=n).map(Duration::from_millis));
            latencies(&CellSummary { response, ..summary.clone() }, true)
        };
        assert_eq!(of(19), ["10", "-", "-", "19", "19"]);
        assert_eq!(of(20), ["10", "19", "20", "20", "20"]);
    }

    #[test]
    fn no_line_is_wider_than_asked_for() {
        let fixture = Fixture::new();
        for width in [60, 80, 100, 120] {
            let text = text(&[fixture.report()], TextStyle { width, ..TextStyle::default() });
            let widest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
            assert!(widest.chars().count() <= width, "{} characters: {widest}", widest.chars().count());
        }
    }

    #[test]
    fn on_a_narrow_terminal_each_row_of_each_table_is_a_block_and_no_figure_is_left_out() {
        let at = |fixture: &Fixture, width| {
            let text = text(&[fixture.report()], TextStyle { width, ..TextStyle::default() });
            // A path is one word.
            let wide = text.lines().find(|line| line.chars().count() > width && !line.contains("h2lab-runs"));
            assert!(wide.is_none(), "{wide:?}: {text}");
            text
        };
        let narrow = at(&Fixture::new(), 40);
        let block = "\nh2c × 1\n  offered: 1,000/s\n  served: 290/s\n  p50: -\n  p95: -\n  p99: -\n  max: -\n  \
                     n: 6,000\n  failed+cut: 0+4,435\n  conns: 1/rep\n  req/conn: ";
        assert!(narrow.contains(block) && narrow.contains("\n  dropped: 266/266 up/down\n"), "{narrow}");
        assert!(!narrow.contains("Omitted"), "{narrow}");
        let wide = at(&Fixture::new(), 80);
        assert!(wide.contains("\nh2c × 1    1,000    290 ") && !wide.contains("served: "), "{wide}");
        let causes = at(&Fixture::explained(), 40);
        assert!(causes.contains("\nh2c × 1\n  own loss: 35%\n  other's loss: 50% 62\n"), "{causes}");
        assert!(at(&Fixture::bulk(), 40).contains("\nMbit/s\n"));
    }

    #[test]
    fn a_cell_that_the_target_does_not_speak_is_there_with_the_reason_and_no_figure() {
        let mut fixture = Fixture::new();
        let mut cell = fixture.run.repetitions[1].cell.clone();
        (cell.index, cell.protocol) = (8, h2lab_model::workload::Protocol::H2);
        let why = "h2 no: the server closes the connection".to_owned();
        fixture.run.repetitions.push(h2lab_model::record::CellRecord::unsupported(cell, why));
        fixture.analysis = h2lab_analysis::stats::analyse(&fixture.run);
        let report = fixture.report();
        let text = text(&[report], TextStyle::default());
        let line = text.lines().position(|line| line.starts_with("h2 × 1 ")).expect("its row");
        assert!(!text.lines().nth(line).unwrap()[7..].contains(|c: char| c.is_ascii_digit()), "{text}");
        let below = text.lines().nth(line + 1).unwrap();
        assert_eq!(below, "  unsupported: h2 no: the server closes the connection");
        assert!(text.contains("1 of 7 comparisons has no verdict: h2 × 1: h2 no: the server"), "{text}");
        let document = crate::document(&report);
        let cell = document.cells.last().unwrap();
        assert_eq!((cell.state.as_str(), cell.repetitions, cell.duration_s), ("unsupported", 0, 0.0));
        assert_eq!(cell.reasons, ["h2 no: the server closes the connection"]);
        let page = crate::html(&[report]);
        assert!(page.contains("unsupported: h2 no: the server closes the connection"));
    }

    #[test]
    fn there_is_no_escape_sequence_unless_asked_for() {
        let fixture = Fixture::new();
        assert!(!text(&[fixture.report()], TextStyle::default()).contains('\x1b'));
        assert!(
            text(&[fixture.report()], TextStyle { colour: true, ..TextStyle::default() }).contains("\x1b[1m")
        );
    }
}
