//! Past runs in a list, with a line or two on what each measured.

use std::fmt::Write;
use std::time::Duration;

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fold;
use super::format::{count, millis, plural, rate, shell_line, shell_word};
use super::style::{Paint, TextStyle, paragraph};
use super::table::{Column, name, number};
use h2lab_analysis::stats::{
    CellState, CellSummary, Failed, is_planned, measured_of_plan, repetitions_by_cell,
};
use h2lab_base::units::nanos;
use h2lab_model::record::RunRecord;
use h2lab_model::workload::Protocol;

/// A run of the past.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PastRun {
    /// Its folder.
    pub folder: String,
    /// When it began, UTC, RFC 3339.
    pub started: String,
    /// Its command line without what may be a secret.
    pub command: Vec<String>,
    /// Whether it was interrupted before its end.
    pub interrupted: bool,
    /// Repetitions that its plan has and it has not; 0 for a load.
    pub missing: usize,
    /// The line that resumes it, if it is not complete; `…` stands for what is not kept.
    pub resume: Option<String>,
    /// Each cell, its repetitions pooled.
    pub cells: Vec<PastCell>,
}

/// A cell of a run of the past.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PastCell {
    /// How tables name it.
    pub label: String,
    /// Who answered: `origin`, `nginx`, or a URL.
    pub target: String,
    /// The protocol.
    pub protocol: Protocol,
    /// Successful responses per second.
    pub throughput_rps: f64,
    /// The median response time in microseconds; null if nothing was answered.
    pub p50_us: Option<f64>,
    /// Its 99th percentile.
    pub p99_us: Option<f64>,
    /// Requests that failed.
    pub failed: u64,
    /// `ok`, `unstable`, `failed`, `invalid` or `unsupported`; `no-response` or `no-success` of a cell that failed so.
    pub state: String,
}

/// The list entry of a run in `folder`. Verdicts are not computed: an interval takes a second each.
pub fn past_run(run: &RunRecord, folder: &str) -> PastRun {
    let cells = repetitions_by_cell(&run.repetitions).into_values();
    let missing = missing(run);
    PastRun {
        folder: folder.to_owned(),
        started: run.started.clone(),
        command: run.command.clone(),
        interrupted: run.interrupted,
        missing,
        resume: resume_line(run, folder),
        cells: cells.map(|repetitions| past_cell(&CellSummary::of(&repetitions))).collect(),
    }
}

fn missing(run: &RunRecord) -> usize {
    measured_of_plan(run).map_or(0, |[measured, planned]| planned - measured)
}

/// The command that resumes an interrupted run; `None` if it was complete, or has no plan. Files and servers given only on the
/// command line are those of its command, and `…` stands for what is not kept.
pub fn resume_line(run: &RunRecord, folder: &str) -> Option<String> {
    if !run.interrupted || !is_planned(run) {
        return None;
    }
    let scenario = run.scenario.without_secrets();
    if !scenario.matrix.live.is_empty() || scenario.needs_its_file() {
        return Some(format!("{} --resume {folder}", shell_line(&run.command)));
    }
    let again = of_agents(&run.command).into_iter().chain(scenario.withheld());
    let words = std::iter::once(format!("h2lab run --resume {folder}")).chain(again);
    Some(words.collect::<Vec<_>>().join(" "))
}

/// The flags of a command that say which agents make its run, and how they are reached.
fn of_agents(command: &[String]) -> Vec<String> {
    let is_of_agents = |flag: &str| flag == "--agents" || flag == "--creds" || flag.starts_with("--nats");
    if !command.iter().any(|word| word.split('=').next() == Some("--agents")) {
        return Vec::new();
    }
    let mut flags = Vec::new();
    let mut words = command.iter();
    while let Some(word) = words.next() {
        match word.split_once('=') {
            Some((flag, _)) if is_of_agents(flag) => flags.push(shell_word(word)),
            None if is_of_agents(word) => {
                flags.push(word.clone());
                flags.extend(words.next().map(|value| shell_word(value)));
            }
            None if word == "--unlike-machines" => flags.push(word.clone()),
            _ => {}
        }
    }
    flags
}

fn past_cell(summary: &CellSummary) -> PastCell {
    let micros = |share| {
        let latency = &summary.response;
        (!latency.is_empty()).then(|| nanos(latency.quantile(share)) as f64 / 1e3)
    };
    PastCell {
        label: summary.label.clone(),
        target: summary.cell.target.name().to_owned(),
        protocol: summary.cell.protocol,
        throughput_rps: summary.served_rps,
        p50_us: micros(0.5),
        p99_us: micros(0.99),
        failed: summary.requests.failed,
        state: state(summary).to_owned(),
    }
}

/// The state, and how a cell failed.
fn state(summary: &CellSummary) -> &'static str {
    match &summary.state {
        CellState::Failed { how: Failed::NoResponse, .. } => "no-response",
        CellState::Failed { how: Failed::NoSuccess, .. } => "no-success",
        state => state.name(),
    }
}

const COLUMNS: [Column; 8] = [
    name("started"),
    name("cell").rank(1),
    number("served/s", "").rank(3),
    number("p50 ms", "").rank(5),
    number("p99 ms", "").rank(2),
    number("failed", "").rank(4),
    name("state").rank(1),
    name("target").rank(6),
];

/// Cells of one run that are listed; further ones are counted.
const LISTED: usize = 4;

/// The list for a terminal, in the order given: under each run its folder and its command.
pub fn history_text(runs: &[PastRun], style: TextStyle) -> String {
    if runs.is_empty() {
        return "No stored runs.\n".to_owned();
    }
    let rows: Vec<Vec<String>> = runs.iter().flat_map(rows).collect();
    let table = fold::fold(&COLUMNS, &rows, style);
    let mut out = String::new();
    for line in &table.header {
        let _ = writeln!(out, "{}", style.paint(Paint::Bold, line));
    }
    let mut rows = table.rows.iter();
    for run in runs {
        for row in rows.by_ref().take(rows_of(run)) {
            let _ = writeln!(out, "{row}");
        }
        let mut place = String::new();
        let ended = if run.interrupted { " (interrupted)" } else { "" };
        let more = run.cells.len().saturating_sub(LISTED);
        let more = if more == 0 { String::new() } else { format!(", {}", plural(more as u64, "more cell")) };
        paragraph(
            &mut place,
            style,
            "  ",
            &format!("{}{ended}{more}: {}", run.folder, shell_line(&run.command)),
        );
        if let Some(line) = &run.resume {
            let missing = plural(run.missing as u64, "repetition");
            // A command is to be copied: it has a line of its own, however long.
            let _ = writeln!(place, "  {missing} missing; to resume:\n  {line}");
        }
        let _ = writeln!(out, "{}", style.paint(Paint::Dim, place.trim_end()));
    }
    if let Some(note) = &table.note {
        paragraph(&mut out, style, "", note);
    }
    style.printable(out)
}

fn rows_of(run: &PastRun) -> usize {
    run.cells.len().clamp(1, LISTED)
}

fn rows(run: &PastRun) -> Vec<Vec<String>> {
    let time = |micros: Option<f64>| {
        micros.map_or("-".to_owned(), |micros| millis(Duration::from_secs_f64(micros / 1e6)))
    };
    let of_cell = |cell: &PastCell| {
        [
            cell.label.clone(),
            rate(cell.throughput_rps),
            time(cell.p50_us),
            time(cell.p99_us),
            count(cell.failed),
            cell.state.clone(),
            cell.target.clone(),
        ]
    };
    let nothing = ["-", "-", "-", "-", "-", "nothing measured", ""].map(str::to_owned);
    let cells: Vec<_> = run.cells.iter().take(LISTED).map(of_cell).collect();
    let cells = if cells.is_empty() { vec![nothing] } else { cells };
    let started = |place: usize| if place == 0 { run.started.clone() } else { String::new() };
    cells.into_iter().enumerate().map(|(k, cell)| [started(k)].into_iter().chain(cell).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::Fixture;
    use h2lab_model::record::Outcome;

    use super::*;

    #[test]
    fn a_run_is_its_cells_its_folder_and_its_command() {
        let fixture = Fixture::new();
        let run = past_run(&fixture.run, "runs/1");
        assert_eq!(run.cells.len(), 8);
        assert!((run.cells[0].p50_us.unwrap() - 25_070.0).abs() < 100.0, "{:?}", run.cells[0]);
        let text = history_text(std::slice::from_ref(&run), TextStyle::default());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("started") && lines[1].starts_with("2026-01-31T12:00:00Z"), "{text}");
        assert_eq!(lines.len(), 1 + LISTED + 1, "{text}");
        assert_eq!(lines[5].trim(), "runs/1, 4 more cells: h2lab compare --seed 42");
        let narrow = history_text(&[run], TextStyle { width: 40, ..TextStyle::default() });
        assert!(narrow.starts_with("2026-01-31T12:00:00Z\n  cell: "), "{narrow}");
        assert_eq!(narrow.matches("\n  cell: ").count(), LISTED, "{narrow}");
    }

    #[test]
    fn a_run_by_agents_is_resumed_by_them() {
        let mut fixture = Fixture::new();
        fixture.run.interrupted = true;
        let mut line = |command: &str| {
            fixture.run.command = command.split(' ').map(str::to_owned).collect();
            resume_line(&fixture.run, "runs/1").unwrap()
        };
        assert_eq!(line("h2lab run study.toml --nats nats://hub"), "h2lab run --resume runs/1");
        assert_eq!(
            line(
                "h2lab run study.toml --agents a,b --seed 7 --nats=tls://hub --creds me.creds --unlike-machines"
            ),
            "h2lab run --resume runs/1 --agents a,b --nats=tls://hub --creds me.creds --unlike-machines"
        );
    }

    #[test]
    fn a_run_in_which_nothing_succeeded_is_not_ok() {
        let state_of = |answered: bool| {
            let mut fixture = Fixture::new();
            let record = &mut fixture.run.repetitions[0];
            record.cell.work.arrival = h2lab_model::workload::Arrival::Closed { concurrency: 4 };
            let outcome = if answered { Outcome::Status } else { Outcome::Reset };
            for sample in record.samples.edit().iter_mut() {
                (sample.outcome, sample.status) = (outcome, if answered { 503 } else { 0 });
            }
            let record = record.clone();
            fixture.run.repetitions = vec![record];
            past_run(&fixture.run, "x").cells[0].state.clone()
        };
        assert_eq!((state_of(true).as_str(), state_of(false).as_str()), ("no-success", "no-response"));
    }

    #[test]
    fn an_interrupted_run_says_what_is_missing_and_what_to_type() {
        let mut fixture = Fixture::new();
        fixture.run.interrupted = true;
        fixture.run.scenario.work.body = Some("secret".into());
        fixture.run.scenario = fixture.run.scenario.without_secrets();
        fixture.run.scenario.repetitions = 5;
        let run = past_run(&fixture.run, "runs/1");
        assert_eq!(
            run.missing,
            2 * 5 - 2 * 2,
            "two cells of the plan, of which two repetitions each are there"
        );
        assert_eq!(run.resume.as_deref(), Some("h2lab run --resume runs/1 -d …"));
        let text = history_text(&[run], TextStyle::default());
        assert!(
            text.contains("\n  6 repetitions missing; to resume:\n  h2lab run --resume runs/1 -d …\n"),
            "{text}"
        );
        fixture.run.command[1] = "load".to_owned();
        assert_eq!(past_run(&fixture.run, "x").resume, None);
        fixture.run.command[1] = "compare".to_owned();
        fixture.run.interrupted = false;
        assert_eq!(past_run(&fixture.run, "x").resume, None);
    }

    #[test]
    fn runs_of_nothing_and_no_runs_at_all_are_reported() {
        let mut fixture = Fixture::new();
        fixture.run.repetitions.clear();
        fixture.run.interrupted = true;
        let text = history_text(&[past_run(&fixture.run, "x")], TextStyle::default());
        assert!(text.contains("nothing measured") && text.contains("x (interrupted): h2lab"), "{text}");
        assert_eq!(history_text(&[], TextStyle::default()), "No stored runs.\n");
    }
}
