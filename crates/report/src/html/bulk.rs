//! Bulk work in the page: the rate of each factor with the baseline as lines, rates over time, the table of each cell.

use std::time::Duration;

use serde::Serialize;

use super::axis::{PlotArea, Scale, Unit};
use super::form::{Form, Rows, both};
use super::shell::Section;
use super::svg::{Anchor, Svg};
use super::template::render;
use super::ways::{Way, Ways};
use crate::bulk_cells;
use crate::bulk_cells::{BulkCell, Held};
use crate::factors::BASELINE;
use crate::{Report, condition, sentences};

/// The picture, and the colours of the protocols: class and name.
#[derive(Serialize)]
struct Rates {
    protocols: Vec<(String, &'static str)>,
    picture: String,
}

#[derive(Serialize)]
struct HeldBack {
    held: Vec<Held>,
}

/// Every condition.
#[derive(Serialize)]
struct EachCondition {
    columns: Vec<(&'static str, &'static str)>,
    groups: Vec<Group>,
    open: bool,
}

/// Cells of one condition.
#[derive(Serialize)]
struct Group {
    /// Its address in the page.
    id: String,
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

const HEADING: f64 = 28.0;
/// Points of a curve over time.
const POINTS: usize = 60;
/// Conditions are shown unfolded if there are no more than this.
const OPEN: usize = 2;

/// The sections, if the run's work is bulk.
pub(super) fn draw(report: &Report<'_>, ways: &Ways, prefix: &str) -> Option<Vec<Section>> {
    let cells = bulk_cells::of(report)?;
    let (protocols, _) = bulk_cells::overview(&cells);
    let rates = Rates {
        protocols: protocols.iter().map(|one| (Way::of(*one).class(), one.name())).collect(),
        picture: both(|form| picture(&cells, ways, form)),
    };
    let groups = groups(report, &cells, ways, prefix);
    let groups = EachCondition {
        columns: bulk_cells::COLUMNS.iter().map(|column| (column.title, column.unit)).collect(),
        open: groups.len() <= OPEN,
        groups,
    };
    let held = bulk_cells::held(&cells);
    let section = |id: &str, title: &str, body: String| Section::new(format!("{prefix}{id}"), title, body);
    let mut sections = vec![section("rates", "Rates", render(include_str!("bulk_rates.html"), &rates))];
    if !held.is_empty() {
        let body = render(include_str!("bulk_held.html"), &HeldBack { held });
        sections.push(section("held", "What limited the rate", body));
    }
    sections.push(section("conditions", "Each condition", render(include_str!("bulk_groups.html"), &groups)));
    Some(sections)
}

/// Runs of cells of one condition.
fn by_group<'a, 'b>(cells: &'b [BulkCell<'a>]) -> impl Iterator<Item = &'b [BulkCell<'a>]> {
    cells.chunk_by(|a, b| a.summary.cell.group == b.summary.cell.group)
}

/// A row for each cell under the name of its factor; the rates of the baseline are lines through all of them.
fn picture(cells: &[BulkCell<'_>], ways: &Ways, form: Form) -> String {
    const VALUE: usize = 12;
    let rates = || cells.iter().filter_map(BulkCell::rate);
    let (least, largest) = (rates().fold(f64::INFINITY, f64::min), rates().fold(1.0, f64::max));
    let unit = Unit::of_rate(largest);
    let rows = Rows::new(form, cells.iter().map(|one| one.summary.label.as_str()), VALUE);
    let height = cells.len() as f64 * rows.height() + by_group(cells).count() as f64 * HEADING + 6.0;
    let frame =
        rows.area(height, Scale::fitting(unit.scaled(least.min(largest) / 2.0), unit.scaled(largest)));
    let mut svg = Svg::new(form.width(), height + 46.0, "The rate of each configuration");
    let logarithmic = if frame.x.is_log() { ", logarithmic" } else { "" };
    frame.draw_x(&mut svg, &format!("{} in the measured time{logarithmic}", unit.name), 0.0);
    for one in cells.iter().filter(|one| one.factor == BASELINE) {
        if let Some(rate) = one.rate() {
            let x = frame.at_x(unit.scaled(rate));
            let class = format!("baseline {}", ways.way(one.summary).class());
            svg.line(&class, (x, frame.top), (x, frame.bottom()));
        }
    }
    let mut y = frame.top;
    for group in by_group(cells) {
        svg.text("condition", (6.0, y + 19.0), Anchor::Start, &group[0].factor);
        y += HEADING;
        for one in group {
            row(&mut svg, (rows, &frame, unit), y, one, ways.way(one.summary));
            y += rows.height();
        }
    }
    svg.finish()
}

fn row(svg: &mut Svg, (rows, frame, unit): (Rows, &PlotArea, Unit), y: f64, one: &BulkCell<'_>, way: Way) {
    let middle = rows.middle(y);
    rows.label(svg, "label", y, &one.summary.label);
    let Some(rate) = one.rate() else {
        let note = sentences::state(one.summary).unwrap_or_default();
        svg.rectangle("hatched empty", (frame.left, middle - 8.0), (frame.width, 16.0), &note);
        svg.text("on-hatch", (frame.left + 8.0, middle + 4.5), Anchor::Start, &one.rate_text());
        return;
    };
    let of_tcp = one.of_tcp.map_or(String::new(), |share| format!(", {:.0} % of tcp", share * 100.0));
    let note = format!("{}, {}: {}{of_tcp}", one.factor, one.summary.label, unit.text(rate));
    let (end, colour) = (frame.at_x(unit.scaled(rate)), way.class());
    // Only on a linear axis a bar's length is its value.
    if !frame.x.is_log() {
        svg.rectangle(
            &format!("bar {colour}"),
            (frame.left, middle - 4.0),
            ((end - frame.left).max(1.0), 8.0),
            &note,
        );
    }
    let mut last = end;
    if let Some(spread) = one.pooled.as_ref().map(|pooled| pooled.rate).filter(|spread| spread.n > 1) {
        let ends = [spread.min, spread.max].map(|rate| frame.at_x(unit.scaled(rate)));
        svg.line("bracket", (ends[0], middle), (ends[1], middle));
        for x in ends {
            svg.line("bracket", (x, middle - 4.0), (x, middle + 4.0));
        }
        last = ends[1].max(end);
    }
    svg.shape(&format!("dot {colour}"), way.shape(), ((end, middle), 5.0), &note);
    rows.value(svg, y, last, &unit.text(rate));
}

fn groups(report: &Report<'_>, cells: &[BulkCell<'_>], ways: &Ways, prefix: &str) -> Vec<Group> {
    let all = report.analysis.groups();
    let one = |group: &[BulkCell<'_>]| {
        let number = group[0].summary.cell.group;
        let whole = all.iter().find(|its| its.first().is_some_and(|first| first.cell.group == number));
        Group {
            id: super::condition_id(prefix, number),
            factor: group[0].factor.clone(),
            heading: whole.map_or_else(String::new, |its| condition::heading(report, its)),
            over_time: over_time(group, ways),
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
fn over_time(group: &[BulkCell<'_>], ways: &Ways) -> String {
    let curves = group.iter().filter_map(|one| {
        let meter = one.pooled.as_ref()?.meters.first()?;
        let (span, rates) = bulk_cells::rates(meter, POINTS);
        Some(RateCurve { way: ways.way(one.summary), name: one.summary.label.clone(), span, rates })
    });
    rates_over_time(&curves.collect::<Vec<_>>())
}

/// Rates over time: the look and the name of whose they are, the length of each piece of time, and the rate in each.
pub(super) struct RateCurve {
    pub way: Way,
    pub name: String,
    pub span: Duration,
    pub rates: Vec<f64>,
}

/// Rates over time with their legend.
pub(super) fn rates_over_time(curves: &[RateCurve]) -> String {
    let entries = curves.iter().map(|curve| (curve.way, curve.name.clone(), String::new()));
    let legend = super::ways::legend(entries);
    format!("{}\n{legend}", both(|form| over_time_in(curves, form)))
}

fn over_time_in(curves: &[RateCurve], form: Form) -> String {
    const HEIGHT: f64 = 220.0;
    let longest = curves.iter().map(|curve| curve.span.as_secs_f64() * curve.rates.len() as f64);
    let largest = curves.iter().flat_map(|curve| &curve.rates).copied().fold(1.0, f64::max);
    let unit = Unit::of_rate(largest);
    let frame = PlotArea {
        left: 56.0,
        top: 30.0,
        width: form.width() - 56.0 - 22.0,
        height: HEIGHT - 30.0 - 48.0,
        x: Scale::Linear { from: 0.0, to: longest.fold(1e-3, f64::max) },
        y: Scale::linear(unit.scaled(largest)),
    };
    let mut svg = Svg::new(form.width(), HEIGHT, "Rates over time");
    frame.draw_x(&mut svg, "seconds from the first request on", 0.0);
    frame.draw_y(&mut svg, unit.name);
    for (entry, RateCurve { way, span, rates, .. }) in curves.iter().enumerate() {
        let at = |n: usize| frame.at_x((n as f64 + 0.5) * span.as_secs_f64());
        let points: Vec<(f64, f64)> =
            rates.iter().enumerate().map(|(n, rate)| (at(n), frame.at_y(unit.scaled(*rate)))).collect();
        svg.begin_entry(entry);
        if !points.is_empty() {
            svg.path(&way.line(), &points);
        }
        svg.end();
    }
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_well_formed;
    use crate::testing::Fixture;

    #[test]
    fn a_page_of_bulk_work_is_well_formed_and_has_a_row_for_each_cell_and_a_line_for_each_of_the_baseline() {
        let page = crate::html(&[Fixture::bulk().report()]);
        assert_well_formed(&page);
        for (class, each) in [("bar way-", 5), ("baseline way-", 2)] {
            assert_eq!(page.matches(&format!("class=\"{class}")).count(), 2 * each, "in both forms: {class}");
        }
        assert!(page.contains("stream window 64 KiB - 1"), "the factor");
        assert!(!page.contains("Response time:"), "nobody waits for one of these");
        for load in ["http://", "https://", "src=", "url("] {
            assert!(!page.replace("url(#", "").contains(load), "{load}");
        }
    }
}
