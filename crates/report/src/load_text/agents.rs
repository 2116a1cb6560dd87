//! The agents that made a load together: what was offered, how well they began together, and a row for each share.

use std::time::Duration;

use super::super::Report;
use super::super::format::{count, number, plural};
use super::super::machines;
use super::super::page::{Page, listed, some};
use super::super::style::{Paint, paragraph};
use super::super::table::{Column, name, number as numeric};
use h2lab_analysis::stats::{ShareState, ShareTotals};
use h2lab_base::units::{measured_time, millis_f64};
use h2lab_model::record::CellRecord;
use h2lab_model::record::agents::{LastProgress, ShareLateness, ShareSummary};

/// The columns of [`rows`].
const COLUMNS: [Column; 10] = [
    name("agent"),
    numeric("part", "").rank(2),
    numeric("offered", "").rank(1),
    numeric("p50", "ms late").rank(6),
    numeric("p99", "ms late").rank(3),
    numeric("max", "ms late").rank(5),
    numeric("CPU", "% of one").rank(7),
    numeric("began", "ms late").rank(4),
    numeric("monotonic clock", "ahead").rank(8),
    name("").rank(1),
];

/// What is said of the agents of a load.
pub(crate) struct AgentParts {
    /// Lines, each with its name.
    pub lines: Vec<(String, String)>,
    /// The table's columns with their units.
    pub columns: Vec<(&'static str, &'static str)>,
    /// A row for each share.
    pub rows: Vec<Vec<String>>,
    /// Which agents ran on one machine, and what became of shares that are missing, in sentences.
    pub sentences: Vec<String>,
}

/// What is said of the agents of a run that is a load; `None` if it had none.
pub(crate) fn parts(report: &Report<'_>) -> Option<AgentParts> {
    let repetition = report.run.repetitions.iter().find(|repetition| !repetition.agents.is_empty())?;
    let totals = ShareTotals::of(repetition)?;
    let lines = [("Shares", shares(&totals)), ("Offered", offered(&totals)), ("Start", start(&totals))];
    let lines = lines.into_iter().filter(|(_, text)| !text.is_empty());
    let has_warmup = !repetition.cell.work.phases.warmup.is_zero();
    let lost = repetition.agents.iter().filter_map(|share| lost(share, has_warmup));
    Some(AgentParts {
        lines: lines.map(|(name, text)| (name.to_owned(), text)).collect(),
        columns: COLUMNS.iter().map(|column| (column.title, column.unit)).collect(),
        rows: rows(repetition),
        sentences: machines::shares_of_one_machine(&repetition.agents).into_iter().chain(lost).collect(),
    })
}

/// Writes them below the figures of the load.
pub(super) fn write(page: &mut Page, report: &Report<'_>) {
    let Some(parts) = parts(report) else { return };
    page.heading("Agents");
    for (name, text) in &parts.lines {
        page.line(name, text);
    }
    page.table(Paint::Dim, &COLUMNS, &parts.rows);
    for text in &parts.sentences {
        paragraph(&mut page.out, page.style, "- ", text);
    }
}

/// `3, 1 late, 1 lost`.
fn shares(totals: &ShareTotals) -> String {
    listed([Some(count(totals.all)), some(totals.late, "late"), some(totals.lost, "lost")])
}

/// `120,000 of 180,000 requests`.
fn offered(totals: &ShareTotals) -> String {
    match totals.asked {
        // A whole number of requests of a schedule that has parts of one.
        Some(asked) if asked.abs_diff(totals.offered) > totals.all => {
            format!("{} of {}", count(totals.offered), plural(asked, "request"))
        }
        _ => plural(totals.offered, "request"),
    }
}

/// `started within 0.21 ms (clocks ± 0.08 ms)`; empty if no start is known.
fn start(totals: &ShareTotals) -> String {
    let clocks = totals.clock_error.map(|error| format!("clocks ± {}", measured_time(error)));
    match (totals.skew, clocks) {
        (Some(skew), Some(clocks)) => format!("started within {} ({clocks})", measured_time(skew)),
        (Some(skew), None) => format!("started within {}", measured_time(skew)),
        (None, clocks) => clocks.unwrap_or_default(),
    }
}

fn rows(repetition: &CellRecord) -> Vec<Vec<String>> {
    repetition.agents.iter().map(row).collect()
}

fn row(share: &ShareSummary) -> Vec<String> {
    let millis = |ns: u64| number(millis_f64(Duration::from_nanos(ns)));
    let unknown = || "-".to_owned();
    // What an older version stored of a lost one has numbers that were not measured. One that had no request was not late with any.
    let due = share.due.filter(|_| share.lost.is_none());
    let late = |ns: Option<u64>| match (due, ns) {
        (Some(1..), Some(ns)) => millis(ns),
        _ => unknown(),
    };
    let lateness = |of: fn(&ShareLateness) -> u64| late(share.late.as_ref().map(of));
    let state = ShareState::of(share);
    let cpu = share.generator.map(|generator| {
        let busy = generator.cpu_ns as f64 / generator.wall_ns.max(1) as f64;
        number((busy * 100.0).round())
    });
    vec![
        share.agent.clone(),
        format!("{} of {}", count(u64::from(share.number) + 1), count(share.of.into())),
        due.map_or_else(unknown, count),
        lateness(|late| late.p50_ns),
        lateness(|late| late.p99_ns),
        lateness(|late| late.max_ns),
        cpu.unwrap_or_else(unknown),
        late(share.start_late_ns),
        clock(share).unwrap_or_else(unknown),
        if state == ShareState::Whole { String::new() } else { state.name().to_owned() },
    ]
}

/// `−12.3 s ± 0.080 ms`: by how much its clock is ahead, signed as in `h2lab agents`.
fn clock(share: &ShareSummary) -> Option<String> {
    let clock = share.clock?;
    let sign = if clock.offset_ns < 0 { '−' } else { '+' };
    let offset = measured_time(Duration::from_nanos(clock.offset_ns.unsigned_abs()));
    let uncertainty = measured_time(Duration::from_nanos(clock.uncertainty_ns));
    Some(format!("{sign}{offset} ± {uncertainty}"))
}

/// What became of a share that is missing. What its agent reported last counts from the beginning of the warm-up on.
fn lost(share: &ShareSummary, has_warmup: bool) -> Option<String> {
    let lost = share.lost.as_ref()?;
    let from = if has_warmup { ", warm-up included" } else { "" };
    let reported = match &lost.progress {
        Some(LastProgress { elapsed_ns, due, succeeded, failed }) => format!(
            "last reported after {}{from}: {} due, {} succeeded, {} failed",
            measured_time(Duration::from_nanos(*elapsed_ns)),
            count(*due),
            count(*succeeded),
            count(*failed)
        ),
        None => "reported nothing".to_owned(),
    };
    Some(format!("{} is lost: {}; {reported}. Its requests are not in the figures.", share.agent, lost.why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TextStyle;
    use crate::load_text::load_text;
    use crate::table::lay_out;
    use h2lab_model::record::agents::{LostShare, ShareClock};
    use h2lab_model::record::testing::{Model, cell, one_repetition, run};
    use h2lab_model::record::{GeneratorSummary, HostId, RunRecord};
    use h2lab_model::workload::{Arrival, Protocol};

    /// A load of 1,000 requests/s by three agents; the last one was lost.
    fn load() -> RunRecord {
        let mut record = one_repetition(&cell(0, 0, Protocol::H1, 4, 0.0), 0, &Model::CLEAN);
        (record.cell.link, record.link) = (None, None);
        record.cell.work.arrival = Arrival::Constant { rate: 1000.0 };
        let share = |number: u32| ShareSummary {
            clock: Some(ShareClock { offset_ns: -12_300_000_000, uncertainty_ns: 80_000 }),
            due: Some(1_000),
            late: Some(ShareLateness { p50_ns: 12_000, p99_ns: 200_000, max_ns: 1_100_000 }),
            generator: Some(GeneratorSummary { cpu_ns: 350, wall_ns: 1_000, ..GeneratorSummary::default() }),
            start_late_ns: Some(u64::from(number) * 210_000),
            ..ShareSummary::new(&format!("kek-{number}"), number, 3)
        };
        let progress = Some(LastProgress { elapsed_ns: 2_000_000_000, due: 666, succeeded: 660, failed: 3 });
        let lost = ShareSummary {
            lost: Some(LostShare { why: "it was silent for 60s".to_owned(), progress }),
            ..ShareSummary::new("kek-2", 2, 3)
        };
        record.agents = vec![share(0), share(1), lost];
        run(vec![record])
    }

    fn rendered(run: &RunRecord) -> String {
        rendered_at(run, 140)
    }

    fn rendered_at(run: &RunRecord, width: usize) -> String {
        let analysis = h2lab_analysis::stats::analyse(run);
        let report = Report {
            run,
            analysis: &analysis,
            findings: &[],
            causes: &[],
            folder: None,
            page: None,
            conditions: &[],
        };
        load_text(&report, TextStyle { width, ..TextStyle::default() })
    }

    #[test]
    fn agents_have_a_row_each_and_what_was_offered_is_said_beside_what_was_asked() {
        let text = rendered(&load());
        for words in [
            "\nAgents\n",
            "3, 1 lost",
            "2,000 of 3,000 requests",
            "of 1,000/s that were due; the share of kek-2 (333/s) is lost",
            "started within 0.210 ms (clocks ± 0.080 ms)",
            "−12.3 s ± 0.080 ms",
            "kek-2 is lost: it was silent for 60s; last reported after 2 s, warm-up included: 666 due, 660 succeeded, \
             3 failed.",
            "invalid: 1 of 3 shares is missing",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        let row = text.lines().find(|line| line.starts_with("kek-1 ")).expect("a row of it");
        let figures: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(figures[1..10], ["2", "of", "3", "1,000", "0.012", "0.200", "1.10", "35", "0.210"]);
        let lost = text.lines().find(|line| line.starts_with("kek-2 ") && line.ends_with("lost")).unwrap();
        assert_eq!(lost.split_whitespace().nth(4), Some("-"), "its requests are not offered: {lost}");
    }

    #[test]
    fn a_clock_that_is_ahead_has_a_plus_and_one_that_is_behind_a_minus() {
        let clock = |offset_ns| {
            let clock = Some(ShareClock { offset_ns, uncertainty_ns: 80_000 });
            super::clock(&ShareSummary { clock, ..ShareSummary::new("kek-1", 0, 1) }).unwrap()
        };
        assert_eq!(clock(12_300_000_000), "+12.3 s ± 0.080 ms");
        assert_eq!(clock(-12_300_000_000), "−12.3 s ± 0.080 ms");
    }

    #[test]
    fn an_agent_without_a_request_was_not_late() {
        let idle = ShareSummary {
            due: Some(0),
            late: Some(ShareLateness::default()),
            start_late_ns: Some(0),
            ..ShareSummary::new("kek-1", 0, 2)
        };
        assert_eq!(row(&idle)[2..], ["0", "-", "-", "-", "-", "-", "-", ""]);
    }

    #[test]
    fn a_narrow_table_keeps_how_late_agents_were_longer_than_clocks_and_cpu() {
        let rows = rows(&load().repetitions[0]);
        let titles = |limit| lay_out(&COLUMNS, &rows, limit).swap_remove(0);
        let narrow = titles(60);
        assert!(narrow.contains("p99") && !narrow.contains("clock") && !narrow.contains("CPU"), "{narrow}");
        assert!(titles(140).contains("monotonic clock"), "{}", titles(140));
    }

    #[test]
    fn on_a_narrow_terminal_each_agent_has_a_block_and_no_line_is_too_long() {
        let text = rendered_at(&load(), 40);
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        let whole = "\nkek-1\n  part: 2 of 3\n  offered: 1,000\n  p50: 0.012 ms late\n  p99: 0.200 ms late\n  \
                     max: 1.10 ms late\n  CPU: 35 % of one\n  began: 0.210 ms late\n  monotonic clock: −12.3 s ± 0.080 ms\n  \
                     ahead\nkek-2\n";
        assert!(text.contains(whole), "{text}");
        let lost = "\nkek-2\n  part: 3 of 3\n  offered: -\n  p50: -\n";
        assert!(text.contains(lost) && text.contains("\n  monotonic clock: -\n  lost\n"), "{text}");
    }

    #[test]
    fn a_closed_loop_that_lacks_shares_names_them_without_a_rate() {
        let mut run = load();
        run.repetitions[0].cell.work.arrival = Arrival::Closed { concurrency: 4 };
        let lost = run.repetitions[0].agents[2].lost.clone();
        run.repetitions[0].agents[1].lost = lost;
        let text = rendered(&run);
        assert!(text.contains(" successes/s; the shares of kek-1, kek-2 are lost\n"), "{text}");
    }

    #[test]
    fn agents_of_one_machine_are_said_to_be_and_those_of_others_are_not() {
        let mut run = load();
        assert!(!rendered(&run).contains("on one machine"), "it is not known");
        for (share, host) in run.repetitions[0].agents.iter_mut().zip(["x", "y", "x"]) {
            share.host = HostId::new(host);
        }
        let text = rendered(&run);
        assert!(text.contains("\n- agents kek-0 and kek-2 ran on one machine\n"), "{text}");
    }

    #[test]
    fn a_load_of_this_process_says_nothing_of_agents() {
        let mut run = load();
        run.repetitions[0].agents.clear();
        assert!(!rendered(&run).contains("Agents"));
    }
}
