//! The latency breakdown of each slow request: marks over the scatter that open it, the breakdown itself, and the table of
//! causes.
//!
//! A mark is a button: it can be clicked, and reached by keyboard (Tab to the first, arrows to the others). `breakdown.js`
//! renders the breakdown from data beside the picture; without scripts the slowest requests are there as text.

use serde::Serialize;

use super::axis::PlotArea;
use super::svg::{Mark, Svg};
use super::template::render;
use crate::causes;
use crate::causes::{LEGEND, Tail};
use crate::{Report, format};
use h2lab_analysis::diagnose::waits::{CauseKind, LatencyBreakdown};
use h2lab_analysis::stats::CellSummary;
use h2lab_base::units::millis_f64;
use h2lab_model::record::CellRecord;

/// Latency breakdowns of a whole page: about a kilobyte each.
const ON_PAGE: usize = 2_000;
/// Latency breakdowns of one cell, if there are few cells; more marks would overlap.
const OF_CELL: usize = 150;
/// The least number of a cell.
const LEAST: usize = 10;
/// Latency breakdowns that are written out for readers without scripts.
const AS_TEXT: usize = 3;

/// A slow request at its place in the scatter.
#[derive(Debug)]
pub(super) struct Point<'a> {
    breakdown: &'a LatencyBreakdown,
    repetition: u32,
    /// Seconds of measured time, repetitions side by side.
    at_s: f64,
}

impl Point<'_> {
    fn response_ms(&self) -> f64 {
        millis_f64(self.breakdown.completed_at.since(self.breakdown.scheduled_at))
    }

    /// A line that describes it.
    fn title(&self) -> String {
        let breakdown = self.breakdown;
        let main = breakdown
            .main()
            .map_or_else(|| breakdown.dominant.name().to_owned(), |main| main.cause.to_string());
        format!("slow request: {} ms, mostly {main}", format::number(self.response_ms()))
    }
}

/// The slow requests of a cell that are marked, in the order of time.
pub(super) fn points<'a>(
    report: &Report<'a>,
    summary: &CellSummary,
    repetitions: &[&CellRecord],
) -> Vec<Point<'a>> {
    let Some(tail) = Tail::of(report, summary.cell.index) else { return Vec::new() };
    let cells = report.analysis.cells.len().max(1);
    let most = (ON_PAGE / cells).clamp(LEAST, OF_CELL);
    let mut points: Vec<Point<'_>> = tail
        .slowest()
        .into_iter()
        .take(most)
        .filter_map(|(repetition, breakdown)| {
            let place =
                repetitions.iter().position(|one_repetition| one_repetition.cell.repetition == repetition)?;
            let measured =
                |one_repetition: &&CellRecord| one_repetition.cell.work.phases.measure.as_secs_f64();
            let before: f64 = repetitions[..place].iter().map(measured).sum();
            let one_repetition = repetitions[place];
            let from = one_repetition.cell.work.phases.measure_from(one_repetition.started_at);
            Some(Point {
                breakdown,
                repetition,
                at_s: before + breakdown.scheduled_at.since(from).as_secs_f64(),
            })
        })
        .collect();
    points.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    points
}

/// Marks them in the scatter.
pub(super) fn mark(svg: &mut Svg, frame: &PlotArea, points: &[Point<'_>]) {
    if points.is_empty() {
        return;
    }
    svg.begin("marks");
    for (index, point) in points.iter().enumerate() {
        let class = format!("mark {}", class(point.breakdown.dominant));
        let at = (frame.at_x(point.at_s), frame.at_y(point.response_ms()));
        svg.mark(&Mark { class: &class, at, index, label: &point.title() });
    }
    svg.end();
}

/// A cause's class in the style sheet: its colour and pattern.
pub(super) const fn class(kind: CauseKind) -> &'static str {
    match kind {
        CauseKind::OwnLoss => "c-own",
        CauseKind::HeadOfLine => "c-other",
        CauseKind::UnnamedLoss => "c-some",
        CauseKind::HandshakeLoss => "c-handshake-loss",
        CauseKind::Handshake => "c-handshake",
        CauseKind::CongestionWindow => "c-congestion",
        CauseKind::FlowWindow => "c-flow",
        CauseKind::StreamSlot => "c-slot",
        CauseKind::Server => "c-server",
        CauseKind::Client => "c-client",
        CauseKind::Queue => "c-queue",
        CauseKind::Propagation => "c-delay",
        CauseKind::Unknown => "c-unknown",
    }
}

/// A latency breakdown as the script reads it.
#[derive(Serialize)]
struct BreakdownData {
    /// A line that describes it.
    title: String,
    /// When it was due, and its connection.
    place: String,
    /// The class of the cause that took most of its time.
    main: &'static str,
    /// Each interval: milliseconds since the request was due, its length in milliseconds, class, text.
    parts: Vec<(f64, f64, &'static str, String)>,
}

/// What is shown beneath a cell's scatter.
#[derive(Serialize)]
struct Beneath {
    data: String,
    /// Each cause that is the main one of a marked request: class, name, how many.
    legend: Vec<(&'static str, &'static str, usize)>,
    as_text: Vec<String>,
    marked: usize,
    all: u64,
}

/// The part beneath a scatter that its marks open; empty if there is none.
pub(super) fn beneath(report: &Report<'_>, summary: &CellSummary, points: &[Point<'_>]) -> String {
    if points.is_empty() {
        return String::new();
    }
    let breakdown_data: Vec<BreakdownData> = points.iter().map(breakdown_data).collect();
    let data = serde_json::to_string(&breakdown_data).expect("a breakdown is plain data");
    let of_kind = |kind: CauseKind| points.iter().filter(|point| point.breakdown.dominant == kind).count();
    let mut slowest: Vec<&Point<'_>> = points.iter().collect();
    slowest.sort_by(|a, b| b.response_ms().total_cmp(&a.response_ms()));
    let text = |point: &&Point<'_>| format!("{}\n{}\n{}", point.title(), place(point), point.breakdown);
    let page = Beneath {
        // Nothing in a breakdown can end the script element; escaped, `<` is still JSON.
        data: data.replace('<', "\\u003c"),
        legend: CauseKind::ALL
            .iter()
            .map(|&kind| (class(kind), kind.name(), of_kind(kind)))
            .filter(|(.., requests)| *requests > 0)
            .collect(),
        as_text: slowest.iter().take(AS_TEXT).map(text).collect(),
        marked: points.len(),
        all: Tail::of(report, summary.cell.index).map_or(0, |tail| tail.split.requests),
    };
    render(include_str!("latency_breakdown.html"), &page)
}

fn breakdown_data(point: &Point<'_>) -> BreakdownData {
    let breakdown = point.breakdown;
    let millis = |time: std::time::Duration| (millis_f64(time) * 1e3).round() / 1e3;
    let part = |interval: &h2lab_analysis::diagnose::waits::Interval| {
        let from = millis(interval.from.since(breakdown.scheduled_at));
        (from, millis(interval.length()), class(interval.cause.kind()), interval.cause.to_string())
    };
    BreakdownData {
        title: point.title(),
        place: place(point),
        main: class(breakdown.dominant),
        parts: breakdown.intervals.iter().map(part).collect(),
    }
}

/// When a request was due, and its connection.
fn place(point: &Point<'_>) -> String {
    let due = format!("due at {} s (repetition {})", format::number(point.at_s), point.repetition + 1);
    match point.breakdown.place {
        None if point.breakdown.never_went() => format!("{due}, did not enter the link"),
        None => format!("{due}, not found on the link"),
        Some(place) => {
            let stream = place.stream.map_or(String::new(), |stream| format!(", stream {stream}"));
            format!(
                "{due}, connection of port {}{stream}; sample {}",
                place.client_port, point.breakdown.sample
            )
        }
    }
}

/// The table of a group.
#[derive(Serialize)]
struct Causes {
    legend: &'static str,
    columns: Vec<(&'static str, &'static str)>,
    rows: Vec<(Vec<String>, String)>,
}

/// Where the time of the group's slow requests went; empty if that was not analysed.
pub(super) fn table(report: &Report<'_>, group: &[&CellSummary]) -> String {
    let Some(table) = causes::table(report, group) else { return String::new() };
    let page = Causes {
        legend: LEGEND,
        columns: table.columns.iter().map(|column| (column.title, column.unit)).collect(),
        rows: table.rows.into_iter().map(|(_, row, notes)| (row, notes.join("; "))).collect(),
    };
    render(include_str!("causes.html"), &page)
}

#[cfg(test)]
mod tests {
    use super::super::html;
    use crate::testing::Fixture;

    #[test]
    fn a_mark_is_a_button_and_its_latency_breakdown_is_in_the_page() {
        let page = html(&[Fixture::explained().report()]);
        let marks = page.matches("role=\"button\"").count();
        assert!((20..=super::OF_CELL).contains(&marks), "{marks}");
        assert_eq!(
            page.matches("tabindex=\"0\" role=\"button\"").count(),
            1,
            "Tab leads to the first of each picture"
        );
        let data = page.split("<script type=\"application/json\">").nth(1).unwrap();
        let data: serde_json::Value = serde_json::from_str(data.split("</script>").next().unwrap()).unwrap();
        let breakdowns = data.as_array().unwrap();
        assert_eq!(breakdowns.len(), marks);
        for breakdown in breakdowns {
            let parts = breakdown["parts"].as_array().unwrap();
            assert_eq!(parts.len(), 4);
            assert_eq!(parts[1][2], "c-other");
            assert!(
                parts[1][3].as_str().unwrap().contains("stream 5's lost segment (down 17)"),
                "{breakdown}"
            );
        }
        assert!(page.contains("Where the time of slow requests went"));
    }

    #[test]
    fn a_cell_without_a_breakdown_says_why() {
        let page = html(&[Fixture::unsupported().report()]);
        assert!(page.contains("unsupported: no TLS secrets open QUIC"));
    }

    #[test]
    fn a_page_without_causes_has_no_marks() {
        let page = html(&[Fixture::new().report()]);
        assert!(!page.contains("role=\"button\"") && !page.contains("Where the time of slow requests went"));
    }

    #[test]
    fn every_class_has_its_colour() {
        let css = include_str!("latency_breakdown.css");
        for &kind in h2lab_analysis::diagnose::waits::CauseKind::ALL {
            assert!(css.contains(&format!(".{} {{ fill", super::class(kind))), "{kind:?}");
        }
    }
}
