//! Bulk work in the page: bars of each factor with the baseline as lines, rates over time, the table of each cell.

use serde::Serialize;

use super::axis::{PlotArea, Scale};
use super::bars::{WIDTH, frame, short};
use super::svg::{Anchor, Svg};
use super::template::render;
use crate::bulk_cells;
use crate::bulk_cells::{BulkCell, Held};
use crate::factors::BASELINE;
use crate::{Report, condition, sentences};
use h2lab_model::bulk::rate::bits_text;
use h2lab_model::workload::Protocol;

/// What the template shows.
#[derive(Serialize)]
struct Part {
    /// Each protocol and the colour of its bars.
    protocols: Vec<(&'static str, usize)>,
    bars: String,
    columns: Vec<(&'static str, &'static str)>,
    groups: Vec<Group>,
    held: Vec<Held>,
}

/// Cells of one condition.
#[derive(Serialize)]
struct Group {
    factor: String,
    /// The whole condition.
    heading: String,
    over_time: String,
    cells: Vec<Cell>,
}

#[derive(Serialize)]
struct Cell {
    state: String,
    reason: Option<String>,
    row: Vec<String>,
    notes: Vec<String>,
}

const ROW: f64 = 24.0;
const HEADING: f64 = 28.0;
/// Points of a curve over time.
const POINTS: usize = 60;

/// The part of the page, if the run's work is bulk.
pub(super) fn draw(report: &Report<'_>) -> Option<String> {
    let cells = bulk_cells::of(report)?;
    let (protocols, _) = bulk_cells::overview(&cells);
    let colour = |protocol: Protocol| protocols.iter().position(|one| *one == protocol).unwrap_or(0) % 7;
    let part = Part {
        protocols: protocols.iter().map(|one| (one.name(), colour(*one))).collect(),
        bars: bars(&cells, &colour),
        columns: bulk_cells::COLUMNS.iter().map(|column| (column.title, column.unit)).collect(),
        groups: groups(report, &cells, &colour),
        held: bulk_cells::held(&cells),
    };
    Some(render(include_str!("bulk.html"), &part))
}

/// Runs of cells of one condition.
fn by_group<'a, 'b>(cells: &'b [BulkCell<'a>]) -> impl Iterator<Item = &'b [BulkCell<'a>]> {
    cells.chunk_by(|a, b| a.summary.cell.group == b.summary.cell.group)
}

/// A bar for each cell under the name of its factor; the rates of the baseline are lines through all of them.
fn bars(cells: &[BulkCell<'_>], colour: &dyn Fn(Protocol) -> usize) -> String {
    let height = cells.len() as f64 * ROW + by_group(cells).count() as f64 * HEADING + 6.0;
    let rates = cells.iter().filter_map(BulkCell::rate).map(|rate| rate / 1e6);
    let frame = frame(rates, cells.iter().map(|one| one.summary.label.as_str()), 90.0, height);
    let mut svg = Svg::new(WIDTH, height + 44.0, "The rate of each cell, as bars");
    let logarithmic = if frame.x.is_log() { ", logarithmic" } else { "" };
    let title = format!("Mbit/s in the measured time{logarithmic}; dashed lines: the baseline's");
    frame.draw_x(&mut svg, &title, 0.0);
    let mut y = frame.top;
    for group in by_group(cells) {
        svg.text("condition", (8.0, y + 19.0), Anchor::Start, &group[0].factor);
        y += HEADING;
        for one in group {
            bar(&mut svg, &frame, y, one, colour(one.summary.cell.protocol));
            y += ROW;
        }
    }
    for one in cells.iter().filter(|one| one.factor == BASELINE) {
        if let Some(rate) = one.rate() {
            let x = frame.at_x(rate / 1e6);
            let class = format!("baseline stroke{}", colour(one.summary.cell.protocol));
            svg.line(&class, (x, frame.top), (x, frame.bottom()));
        }
    }
    svg.finish()
}

fn bar(svg: &mut Svg, frame: &PlotArea, y: f64, one: &BulkCell<'_>, colour: usize) {
    let (top, thick) = (y + 3.0, ROW - 7.0);
    let baseline = y + ROW / 2.0 + 4.0;
    svg.text("label", (frame.left - 8.0, baseline), Anchor::End, &short(&one.summary.label));
    let Some(rate) = one.rate() else {
        let note = sentences::state(one.summary).unwrap_or_default();
        svg.rectangle("hatched empty", (frame.left, top), (frame.width, thick), &note);
        svg.text("on-hatch", (frame.left + 10.0, baseline), Anchor::Start, &one.rate_text());
        return;
    };
    let of_tcp = one.of_tcp.map_or(String::new(), |share| format!(", {:.0} % of tcp", share * 100.0));
    let note = format!("{}, {}: {}{of_tcp}", one.factor, one.summary.label, bits_text(rate));
    let end = frame.at_x(rate / 1e6).max(frame.left + 1.0);
    let class = format!("bar fill{colour}");
    svg.rectangle(&class, (frame.left, top), (end - frame.left, thick), &note);
    svg.text("value", (end + 6.0, baseline), Anchor::Start, &bits_text(rate));
}

fn groups(report: &Report<'_>, cells: &[BulkCell<'_>], colour: &dyn Fn(Protocol) -> usize) -> Vec<Group> {
    let all = report.analysis.groups();
    let one = |group: &[BulkCell<'_>]| {
        let number = group[0].summary.cell.group;
        let whole = all.iter().find(|its| its.first().is_some_and(|first| first.cell.group == number));
        Group {
            factor: group[0].factor.clone(),
            heading: whole.map_or_else(String::new, |its| condition::heading(report, its)),
            over_time: over_time(group, colour),
            cells: group.iter().map(cell).collect(),
        }
    };
    by_group(cells).map(one).collect()
}

fn cell(one: &BulkCell<'_>) -> Cell {
    Cell {
        state: one.summary.state.name().to_owned(),
        reason: sentences::state(one.summary),
        row: bulk_cells::row(one),
        notes: bulk_cells::notes(one),
    }
}

/// The rate of each cell's first repetition over time.
fn over_time(group: &[BulkCell<'_>], colour: &dyn Fn(Protocol) -> usize) -> String {
    let curve = |one: &BulkCell<'_>| -> Option<(usize, Vec<(f64, f64)>)> {
        let (span, rates) = bulk_cells::rates(one.pooled.as_ref()?.meters.first()?, POINTS);
        let middle = |n: usize| (n as f64 + 0.5) * span.as_secs_f64();
        let points = rates.iter().enumerate().map(|(n, rate)| (middle(n), rate / 1e6)).collect();
        Some((colour(one.summary.cell.protocol), points))
    };
    let curves: Vec<(usize, Vec<(f64, f64)>)> = group.iter().filter_map(curve).collect();
    let most = |of: fn(&(f64, f64)) -> f64| {
        curves.iter().flat_map(|(_, points)| points).map(of).fold(1e-3, f64::max)
    };
    let frame = PlotArea {
        left: 50.0,
        top: 20.0,
        width: 560.0,
        height: 150.0,
        x: Scale::Linear { from: 0.0, to: most(|point| point.0) },
        y: Scale::linear(most(|point| point.1)),
    };
    let mut svg = Svg::new(640.0, 212.0, "Rates over time");
    frame.draw_x(&mut svg, "seconds from the first request on, warm-up included", 0.0);
    frame.draw_y(&mut svg, "Mbit/s");
    for (colour, points) in &curves {
        let points: Vec<(f64, f64)> = points.iter().map(|&(x, y)| (frame.at_x(x), frame.at_y(y))).collect();
        svg.path(&format!("line stroke{colour}"), &points);
    }
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_well_formed;
    use crate::testing::Fixture;

    #[test]
    fn a_page_of_bulk_work_is_well_formed_and_has_a_bar_for_each_cell_and_a_line_for_each_of_the_baseline() {
        let page = crate::html(&[Fixture::bulk().report()]);
        assert_well_formed(&page);
        assert_eq!(page.matches("class=\"bar fill").count(), 5);
        assert_eq!(page.matches("class=\"baseline stroke").count(), 2);
        assert!(page.contains("stream window 64 KiB - 1"), "the factor");
        assert!(!page.contains("Response time:"), "nobody waits for one of these");
        for load in ["http://", "https://", "src=", "url("] {
            assert!(!page.replace("url(#", "").contains(load), "{load}");
        }
    }
}
