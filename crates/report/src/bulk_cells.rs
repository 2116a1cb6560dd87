//! Cells of bulk work: what text, JSON and HTML have in common. Bytes over time come first, then what limited them.

use std::fmt::Write;

use super::factors::{BASELINE, factor};
use super::format::{bytes, count, number, plural, ratio};
use super::limit;
use super::style::{Paint, TextStyle, painted, paragraph};
use super::table::{Column, name, number as numeric};
use super::{Report, condition, fold, sentences};
use h2lab_analysis::bulk::{BoundConnection, Pooled, TransferStalls};
use h2lab_analysis::stats::{CellState, CellSummary, repetitions_of};
use h2lab_base::units::{format_bytes, measured_time};
use h2lab_model::Confidence;
use h2lab_model::bulk::rate::bits_text;
use h2lab_model::bulk::{Binding, BindingKind, ByteMeter};
use h2lab_model::scenario::Cell;
use h2lab_model::workload::Protocol;

/// A cell of bulk work.
#[derive(Debug)]
pub(super) struct BulkCell<'a> {
    /// What every cell has.
    pub summary: &'a CellSummary,
    /// What distinguishes its condition from the first one: `RTT 25ms`, or [`BASELINE`].
    pub factor: String,
    /// Its figures; `None` if no bytes arrived.
    pub pooled: Option<Pooled>,
    /// Its rate as a share of what TCP by itself carries under the same condition; `None` where that was not measured soundly.
    pub of_tcp: Option<f64>,
}

impl BulkCell<'_> {
    /// Bits per second in the measured time, of the median repetition; `None` where the state forbids a figure.
    pub fn rate(&self) -> Option<f64> {
        let is_sound = self.summary.state == CellState::Ok;
        self.pooled.as_ref().filter(|_| is_sound).map(|pooled| pooled.rate.median)
    }

    /// The rate in Mbit/s for a table, else the state in a word.
    pub fn rate_text(&self) -> String {
        match (self.rate(), &self.summary.state) {
            (Some(rate), _) => number(rate / 1e6),
            (None, CellState::Ok) => "none".to_owned(),
            (None, state) => state.name().to_owned(),
        }
    }

    /// The note on a rate above the link's: bytes that waited for a lost one, and were delivered in the measured time, had
    /// crossed the link before.
    fn beyond(&self) -> Option<String> {
        let bandwidth = self.summary.cell.link.as_ref()?.downlink.bandwidth?;
        let rate = self.pooled.as_ref()?.rate.max;
        let is_beyond = rate > MOST_DATA * bandwidth.bits_per_second() as f64;
        is_beyond.then(|| {
            format!(
                "doubtful: {} of data exceeds the link's bandwidth of {bandwidth}: some crossed it before the \
                 measured time, then waited for a lost packet",
                bits_text(rate)
            )
        })
    }

    /// What limited it, unless that is the link itself, or unknown.
    fn bound(&self) -> Option<&BoundConnection> {
        let bound = self.pooled.as_ref()?.bound.as_ref().filter(|_| self.rate().is_some())?;
        (!matches!(bound.binding.kind, BindingKind::Link | BindingKind::Unknown)).then_some(bound)
    }
}

/// The cells of a run whose work is bulk, in the order of the plan; `None` for another run.
pub(super) fn of<'a>(report: &Report<'a>) -> Option<Vec<BulkCell<'a>>> {
    let cells = &report.analysis.cells;
    let first = &cells.first().filter(|summary| summary.cell.work.bulk)?.cell;
    let mut all: Vec<BulkCell<'a>> = cells
        .iter()
        .map(|summary| BulkCell {
            summary,
            factor: factor(first, &summary.cell),
            pooled: Pooled::of(&repetitions_of(report.run, summary.cell.index)),
            of_tcp: None,
        })
        .collect();
    let shares: Vec<Option<f64>> = all.iter().map(|one| share_of_tcp(one, &all)).collect();
    for (one, share) in all.iter_mut().zip(shares) {
        one.of_tcp = share;
    }
    Some(all)
}

/// See [`BulkCell::of_tcp`]. HTTP's settings and the length of a response do not concern TCP.
fn share_of_tcp(one: &BulkCell<'_>, all: &[BulkCell<'_>]) -> Option<f64> {
    let is_alike = |other: &Cell| {
        let cell = &one.summary.cell;
        other.protocol == Protocol::Tcp
            && (&other.link, &other.congestion, &other.sysctls, other.work.arrival)
                == (&cell.link, &cell.congestion, &cell.sysctls, cell.work.arrival)
    };
    let tcp = all.iter().find(|other| is_alike(&other.summary.cell)).filter(|tcp| tcp.beyond().is_none())?;
    let (rate, tcp) = (one.rate().filter(|_| one.beyond().is_none())?, tcp.rate()?);
    (tcp > 0.0).then(|| rate / tcp)
}

/// A higher share of a link's bits per second is not data: headers of Ethernet, IP and TCP take 3 %.
const MOST_DATA: f64 = 0.97;

/// A line of [`overview`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// What was varied: `RTT 25ms`; with the number of connections where a factor has several.
    pub name: String,
    /// The places of the cells of each protocol among the run's cells.
    pub cells: Vec<Option<usize>>,
}

/// The overview of the run: the protocols, and a row for each factor.
pub(super) fn overview(cells: &[BulkCell<'_>]) -> (Vec<Protocol>, Vec<Row>) {
    let mut protocols: Vec<Protocol> = Vec::new();
    for one in cells {
        if !protocols.contains(&one.summary.cell.protocol) {
            protocols.push(one.summary.cell.protocol);
        }
    }
    let mut rows: Vec<(u32, Row)> = Vec::new();
    for (place, one) in cells.iter().enumerate() {
        let cell = &one.summary.cell;
        let column = protocols.iter().position(|protocol| *protocol == cell.protocol).unwrap_or(0);
        let free = rows.iter_mut().find(|(group, row)| *group == cell.group && row.cells[column].is_none());
        // One that is not multiplexed has as many connections as responses, which the factor states.
        match free {
            Some((_, row)) => row.cells[column] = Some(place),
            None => {
                let is_further = rows.iter().any(|(group, _)| *group == cell.group);
                let over = if is_further {
                    format!(", over {}", plural(cell.connections.into(), "connection"))
                } else {
                    String::new()
                };
                let mut row = Row { name: one.factor.clone() + &over, cells: vec![None; protocols.len()] };
                row.cells[column] = Some(place);
                rows.push((cell.group, row));
            }
        }
    }
    (protocols, rows.into_iter().map(|(_, row)| row).collect())
}

/// Columns of the figures of each cell.
pub(super) const COLUMNS: [Column; 11] = [
    name("cell"),
    numeric("rate", "Mbit/s").rank(1),
    numeric("of", "tcp").goes_on().rank(2),
    numeric("data", "GB").rank(3),
    numeric("reads", "").rank(8),
    numeric("largest", "KiB").rank(9),
    numeric("DATA", "KiB mean/most").rank(6),
    numeric("WINDOW_", "UPDATEs").goes_on().rank(7),
    numeric("CPU s/GB", "cli/srv").rank(5),
    numeric("retrans", "srv").rank(4),
    name("limited by").rank(1),
];

/// A cell's figures under [`COLUMNS`].
pub(super) fn row(one: &BulkCell<'_>) -> Vec<String> {
    let label = one.summary.label.clone();
    let Some(pooled) = one.pooled.as_ref() else {
        let dashes = std::iter::repeat_n("-".to_owned(), COLUMNS.len() - 1);
        return std::iter::once(label).chain(dashes).collect();
    };
    let kib = |bytes: f64| number((bytes / 102.4).round() / 10.0);
    let dash = || "-".to_owned();
    let cpu = |cpu: Option<f64>| cpu.map_or_else(|| "?".to_owned(), number);
    let frames = &pooled.frames;
    vec![
        label,
        one.rate_text(),
        one.of_tcp.map_or_else(dash, ratio),
        number((pooled.bytes as f64 / 1e7).round() / 100.0),
        pooled.io.socket_reads.map_or_else(dash, count),
        kib(pooled.io.largest_buffer as f64),
        frames
            .mean_data()
            .map_or_else(dash, |mean| format!("{}/{}", kib(mean), kib(frames.largest_data as f64))),
        if frames.data > 0 { count(frames.updates) } else { dash() },
        format!("{}/{}", cpu(pooled.cpu_per_gb), cpu(pooled.peer_cpu_per_gb)),
        pooled.retransmits.map_or_else(|| "?".to_owned(), count),
        held_back(pooled),
    ]
}

/// What limited the data, in a word or two: `send buffer`, with a question mark if that is not measured.
fn held_back(pooled: &Pooled) -> String {
    let Some(bound) = &pooled.bound else { return "-".to_owned() };
    let sure = match bound.binding.confidence {
        None | Some(Confidence::Confirmed | Confidence::Observed) => "",
        Some(Confidence::Inferred | Confidence::Guessed) => "?",
    };
    match bound.binding.kind {
        BindingKind::Unknown => "?".to_owned(),
        kind => format!("{}{sure}", kind.words().trim_start_matches("the ")),
    }
}

/// The notes beneath a cell's row: the rate over time, the settings, how uneven streams were, what failed.
pub(super) fn notes(one: &BulkCell<'_>) -> Vec<String> {
    let Some(pooled) = &one.pooled else { return Vec::new() };
    let mut notes = vec![format!(
        "{} in {}, {} in total; over time {}",
        bytes(pooled.bytes as f64),
        measured_time(std::time::Duration::from_millis(pooled.elapsed.as_millis() as u64)),
        bits_text(pooled.whole),
        pooled.meters.iter().map(sparkline).collect::<Vec<_>>().join(" | ")
    )];
    let asked = [
        pooled
            .asked
            .max_frame_size
            .map(|most| format!("frames up to {} accepted", format_bytes(most.into()))),
        pooled.asked.update_bytes.map(|bytes| format!("credit after {}", format_bytes(bytes.into()))),
    ];
    let waited = waits(&pooled.stalls);
    let waited = (!waited.is_empty()).then(|| format!("waited for {}", waited.join(", ")));
    let facts: Vec<String> = asked.into_iter().flatten().chain(waited).collect();
    notes.extend((!facts.is_empty()).then(|| facts.join("; ")));
    notes.extend(pooled.per_stream.filter(|spread| spread.n > 1).map(|spread| {
        let [least, middle, most] = [spread.min, spread.median, spread.max].map(bits_text);
        format!(
            "{} streams: min {least}, median {middle}, max {most}, each over its own time",
            count(spread.n)
        )
    }));
    notes.extend(one.beyond());
    let failed = pooled.tally.failed;
    notes.extend((failed > 0).then(|| {
        format!(
            "{} of {} failed; the bytes received count",
            count(failed),
            plural(pooled.tally.all(), "response")
        )
    }));
    notes
}

/// What data waited for, longest first, where it was seen and is not zero.
fn waits(stalls: &TransferStalls) -> Vec<String> {
    let mut waits: Vec<_> = [
        ("stream windows", stalls.stream_window),
        ("the connection window", stalls.connection_window),
        ("the congestion window", stalls.congestion_window),
        ("the send buffer", stalls.send_buffer),
        ("the receive buffer", stalls.receive_buffer),
    ]
    .into_iter()
    .filter_map(|(what, time)| Some((what, time.filter(|time| time.as_millis() >= 50)?)))
    .collect();
    waits.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    waits.into_iter().map(|(what, time)| format!("{what} {:.1} s", time.as_secs_f64())).collect()
}

/// Rates of equal parts of a repetition, at most so many, in bits per second. The last part ends with the last byte, and its rate is
/// that of its own time; one of less than half of the others' time is shown together with the one before it: a single read would tower
/// over all others.
pub(super) fn rates(meter: &ByteMeter, most: usize) -> (std::time::Duration, Vec<f64>) {
    let each = meter.intervals().len().div_ceil(most).max(1);
    let span = meter.interval() * each as u32;
    let mut parts: Vec<(std::time::Duration, u64)> = (meter.intervals().chunks(each).enumerate())
        .map(|(n, bytes)| {
            let time = span.min(meter.elapsed().saturating_sub(span * n as u32));
            (time, bytes.iter().sum())
        })
        .collect();
    if let Some((time, bytes)) = parts.pop_if(|(time, _)| *time < span / 2) {
        match parts.last_mut() {
            Some(before) => *before = (before.0 + time, before.1 + bytes),
            None => parts.push((time.max(meter.interval() / 10), bytes)),
        }
    }
    let rate = |(time, bytes)| h2lab_model::bulk::rate::bits_per_second(bytes, time).unwrap_or(0.0);
    (span, parts.into_iter().map(rate).collect())
}

/// The rate over time as a line of bars, in steps of an eighth of the highest.
fn sparkline(meter: &ByteMeter) -> String {
    const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let (_, rates) = rates(meter, 24);
    let most = rates.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    rates.iter().map(|rate| STEPS[((rate / most * 7.0).round() as usize).min(7)]).collect()
}

/// A limit of cells other than the link, listed once: its name, which cells, what shows it, what lifts it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(super) struct Held {
    /// `Limited by the send buffer (3 cells)`.
    pub title: String,
    /// The cells, with their rates.
    pub cells: String,
    /// What shows it in the slowest of them.
    pub shown: String,
    /// What lifts it there, a line each.
    pub fixes: Vec<String>,
    /// The first of them as a sentence.
    pub change: String,
}

/// All limits of cells, that of most cells first.
pub(super) fn held(cells: &[BulkCell<'_>]) -> Vec<Held> {
    let of = |limit: &Binding| -> Option<(usize, Held)> {
        let is_its =
            |one: &&BulkCell<'_>| one.bound().is_some_and(|bound| limit::is_same(&bound.binding, limit));
        let mut its: Vec<&BulkCell<'_>> = cells.iter().filter(is_its).collect();
        its.sort_by(|a, b| a.rate().unwrap_or(0.0).total_cmp(&b.rate().unwrap_or(0.0)));
        let slowest = its.first()?;
        let binding = &slowest.bound()?.binding;
        let rendered = |one: &&BulkCell<'_>| {
            format!("{} {} ({} Mbit/s)", one.factor, one.summary.label, one.rate_text())
        };
        let held = Held {
            title: format!("{} ({})", limit::concluded(binding), plural(its.len() as u64, "cell")),
            cells: its.iter().map(rendered).collect::<Vec<_>>().join(", "),
            shown: format!("{} {}: {}", slowest.factor, slowest.summary.label, binding.sentence),
            fixes: limit::fixes(binding),
            change: limit::change(binding),
        };
        Some((its.len(), held))
    };
    let mut different: Vec<&Binding> = Vec::new();
    for limit in cells.iter().filter_map(|one| Some(&one.bound()?.binding)) {
        if !different.iter().any(|other| limit::is_same(other, limit)) {
            different.push(limit);
        }
    }
    different.sort_by_key(|limit| (limit.kind, limit.confidence));
    let mut all: Vec<(usize, Held)> = different.into_iter().filter_map(of).collect();
    all.sort_by_key(|(cells, _)| std::cmp::Reverse(*cells));
    all.into_iter().map(|(_, held)| held).collect()
}

/// Appends the text about the cells to a report for a terminal.
pub(super) fn text(out: &mut String, report: &Report<'_>, cells: &[BulkCell<'_>], style: TextStyle) {
    at_a_glance(out, cells, style);
    each(out, report, cells, style);
    let held = held(cells);
    if held.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{}", style.paint(Paint::Bold, "Findings"));
    for one in held {
        painted(out, style, Paint::Bold, "- ", &format!("{}: {}", one.title, one.cells));
        paragraph(out, style, "  ", &one.shown);
        for fix in &one.fixes {
            paragraph(out, style, "  fix:  ", fix);
        }
    }
}

/// The table of rates.
fn at_a_glance(out: &mut String, cells: &[BulkCell<'_>], style: TextStyle) {
    let (protocols, rows) = overview(cells);
    let columns: Vec<Column> =
        std::iter::once(name("Mbit/s")).chain(protocols.iter().map(|one| numeric(one.name(), ""))).collect();
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|row| {
            let figure =
                |place: &Option<usize>| place.map_or_else(|| "-".to_owned(), |at| cells[at].rate_text());
            std::iter::once(row.name).chain(row.cells.iter().map(figure)).collect()
        })
        .collect();
    out.push('\n');
    let table = fold::fold(&columns, &rows, style);
    // A block does not show the first column's title.
    let titles = if style.is_narrow() { vec![columns[0].title.to_owned()] } else { table.header };
    for line in &titles {
        let _ = writeln!(out, "{}", style.paint(Paint::Bold, line));
    }
    for row in &table.rows {
        let _ = writeln!(out, "{row}");
    }
}

/// The table of each cell, by condition.
fn each(out: &mut String, report: &Report<'_>, cells: &[BulkCell<'_>], style: TextStyle) {
    let rows: Vec<Vec<String>> = cells.iter().map(row).collect();
    let table = fold::fold(&COLUMNS, &rows, style);
    let groups = report.analysis.groups();
    let mut last = None;
    for (one, row) in cells.iter().zip(&table.rows) {
        let group = one.summary.cell.group;
        if last != Some(group) {
            last = Some(group);
            let its = groups.iter().find(|its| its.first().is_some_and(|first| first.cell.group == group));
            let whole = its.map_or_else(String::new, |its| condition::heading(report, its));
            let heading =
                if one.factor == BASELINE { format!("{BASELINE}: {whole}") } else { one.factor.clone() };
            out.push('\n');
            painted(out, style, Paint::Bold, "", &heading);
            for line in &table.header {
                let _ = writeln!(out, "{}", style.paint(Paint::Dim, line));
            }
        }
        let _ = writeln!(out, "{row}");
        if let Some(state) = sentences::state(one.summary) {
            painted(out, style, Paint::Yellow, "  ", &state);
        }
        for note in notes(one) {
            paragraph(out, style, "  ", &note);
        }
    }
    if let Some(note) = &table.note {
        painted(out, style, Paint::Dim, "", note);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Fixture;
    use super::*;

    #[test]
    fn the_report_of_bulk_work() {
        insta::assert_snapshot!(crate::text(
            &[Fixture::bulk().report()],
            TextStyle { width: 130, ..TextStyle::default() }
        ));
    }

    /// Makes the limits of the cells from this one on guesses.
    fn guess(cells: &mut [BulkCell<'_>], from: usize) {
        for one in cells.iter_mut().skip(from) {
            let bound = one.pooled.as_mut().and_then(|pooled| pooled.bound.as_mut());
            bound.expect("it carried data").binding.confidence = Some(Confidence::Guessed);
        }
    }

    #[test]
    fn a_guessed_limit_is_no_fact_and_is_told_apart_from_one_that_was_seen() {
        let fixture = Fixture::bulk();
        let report = fixture.report();
        let mut cells = of(&report).unwrap();
        guess(&mut cells, 3);
        let titles = |cells: &[BulkCell<'_>]| -> Vec<String> {
            held(cells).into_iter().map(|held| held.title).collect()
        };
        let perhaps = "Perhaps limited by the send buffer, or the sender had nothing more to send";
        assert_eq!(
            titles(&cells),
            ["Limited by the send buffer (3 cells)".to_owned(), format!("{perhaps} (2 cells)")]
        );
        guess(&mut cells, 0);
        assert_eq!(titles(&cells), [format!("{perhaps} (5 cells)")]);
        let answer = crate::answer::of_bulk(&cells).join(" ");
        let change = format!("{perhaps} (5 cells). A change that decides it: sysctl -w net.ipv4.tcp_wmem=");
        assert!(answer.contains(&change), "{answer}");
    }

    #[test]
    fn a_share_of_tcp_is_of_the_same_condition_and_of_none_that_is_invalid() {
        let mut fixture = Fixture::bulk();
        let shares = |fixture: &Fixture| -> Vec<Option<f64>> {
            of(&fixture.report())
                .unwrap()
                .iter()
                .map(|one| one.of_tcp.map(|share| (share * 100.0).round()))
                .collect()
        };
        assert_eq!(shares(&fixture), [Some(100.0), Some(50.0), Some(100.0), Some(40.0), Some(25.0)]);
        fixture.run.repetitions[0].link.as_mut().unwrap().device_drops = 1;
        fixture.analysis = h2lab_analysis::stats::analyse(&fixture.run);
        assert_eq!(shares(&fixture), [None, None, Some(100.0), Some(40.0), None]);
    }

    #[test]
    fn a_rate_that_no_link_carries_is_doubtful_and_compared_with_nothing() {
        let mut fixture = Fixture::bulk();
        for repetition in fixture.run.repetitions.iter_mut().filter(|repetition| repetition.cell.index == 1) {
            let meter = &mut repetition.bulk.as_mut().unwrap().meter;
            // Data that waited for a lost packet arrives all at once.
            meter.add(meter.began() + std::time::Duration::from_millis(1500), 250_000_000);
        }
        let report = fixture.report();
        let cells = of(&report).unwrap();
        let doubtful = |one: &BulkCell<'_>| notes(one).iter().any(|note| note.starts_with("doubtful"));
        let doubts: Vec<bool> = cells.iter().map(doubtful).collect();
        assert_eq!(doubts, [false, true, false, false, false]);
        assert_eq!((cells[0].of_tcp, cells[1].of_tcp), (Some(1.0), None));
    }

    #[test]
    fn the_document_and_the_page_have_the_figures_of_the_table() {
        let fixture = Fixture::bulk();
        let report = fixture.report();
        let document = crate::document(&report);
        let page = crate::html(&[report]).replace("&#x2f;", "/");
        let markdown = crate::markdown(&[report]);
        for (one, cell) in of(&report).unwrap().iter().zip(&document.cells) {
            let bulk = cell.bulk.as_ref().unwrap();
            assert_eq!(number(bulk.rate_bps.median / 1e6), one.rate_text());
            assert_eq!((bulk.of_tcp.map(ratio), &bulk.factor), (one.of_tcp.map(ratio), &one.factor));
            assert_eq!(
                bulk.limit.as_ref(),
                one.pooled.as_ref().unwrap().bound.as_ref().map(|bound| &bound.binding)
            );
            for figure in row(one) {
                assert!(page.contains(&figure) && markdown.contains(&figure), "{figure}");
            }
        }
        assert!(document.verdicts.is_empty(), "nobody waits for a response of bulk work");
        assert_eq!(crate::document(&Fixture::new().report()).cells[0].bulk, None);
    }
}
