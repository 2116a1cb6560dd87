//! Percentile curves: the whole distribution of every cell of a group in one plot.

use super::axis::{PlotArea, Scale};
use super::bars::{room, short};
use super::svg::{Anchor, Svg};
use crate::format::millis_unit;
use h2lab_analysis::stats::{CellState, CellSummary};
use h2lab_base::units::millis_f64;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 330.0;
/// The least width of the legend.
const LEGEND: f64 = 150.0;
/// Points per curve.
const POINTS: u32 = 120;
/// A curve ends where fewer than this many requests are above: beyond, it would draw single requests.
const ABOVE: f64 = 6.0;

/// The number of colours and dashes; further curves reuse them.
pub(super) const STYLES: usize = 7;

/// The curves of one group.
pub(super) fn draw(group: &[&CellSummary], heading: &str) -> String {
    let state = |summary: &CellSummary| match summary.state {
        CellState::Ok => String::new(),
        _ => summary.state.name().to_owned(),
    };
    let names: Vec<(String, String)> =
        group.iter().map(|summary| (short(&summary.label), state(summary))).collect();
    draw_named(group, &names, heading)
}

/// The curves of these cells, each with its name and a second line in the legend.
pub(super) fn draw_named(group: &[&CellSummary], names: &[(String, String)], heading: &str) -> String {
    let drawn: Vec<(usize, &CellSummary)> =
        group.iter().copied().enumerate().filter(|(_, summary)| !summary.response.is_empty()).collect();
    let millis = |summary: &CellSummary, share| millis_f64(summary.response.quantile(share));
    let smallest = drawn.iter().map(|(_, s)| millis(s, 0.5)).fold(f64::INFINITY, f64::min);
    let largest = drawn.iter().map(|(_, s)| millis(s, last(s))).fold(0.0, f64::max);
    let mut svg = Svg::new(WIDTH, HEIGHT, &format!("Percentiles of response time at {heading}"));
    if drawn.is_empty() {
        svg.text("title", (WIDTH / 2.0, HEIGHT / 2.0), Anchor::Middle, "no request was answered");
        return svg.finish();
    }
    let frame = PlotArea {
        left: 54.0,
        top: 28.0,
        width: WIDTH - 54.0 - LEGEND.max(40.0 + room(names.iter().map(|(name, _)| name.clone()))),
        height: HEIGHT - 28.0 - 46.0,
        x: Scale::Percentile { to: drawn.iter().map(|(_, s)| last(s)).fold(0.9, f64::max) },
        y: Scale::log(smallest.max(1e-3), largest),
    };
    frame.draw_x(&mut svg, "this share of the requests was answered within …", 0.0);
    frame.draw_y(&mut svg, "… response time, ms (logarithmic)");
    for (row, (place, summary)) in drawn.iter().enumerate() {
        svg.begin("curve");
        curve(&mut svg, &frame, *place, summary);
        legend(&mut svg, &frame, row, *place, &names[*place]);
        svg.end();
    }
    svg.finish()
}

/// The share at which a cell's curve ends.
fn last(summary: &CellSummary) -> f64 {
    (1.0 - ABOVE / summary.response.n() as f64).clamp(0.5, 0.999)
}

fn curve(svg: &mut Svg, frame: &PlotArea, place: usize, summary: &CellSummary) {
    let end = last(summary);
    let at = |share: f64| (frame.at_x(share), frame.at_y(millis_f64(summary.response.quantile(share))));
    let share = |i: u32| 1.0 - 0.5 * ((1.0 - end) / 0.5).powf(f64::from(i) / f64::from(POINTS));
    let points: Vec<(f64, f64)> = (0..=POINTS).map(|i| at(share(i))).collect();
    let class = if summary.state == CellState::Ok { "line" } else { "line doubtful" };
    svg.path(&format!("{class} stroke{}", place % STYLES), &points);
    for share in [0.5, 0.9, 0.95, 0.99, 0.999].into_iter().filter(|&share| share <= end) {
        let latency = millis_unit(summary.response.quantile(share));
        let note = format!("{}: p{} {latency}", summary.label, (share * 1000.0).round() / 10.0);
        svg.dot(&format!("dot fill{}", place % STYLES), at(share), &note);
    }
}

fn legend(svg: &mut Svg, frame: &PlotArea, row: usize, place: usize, (name, more): &(String, String)) {
    let y = frame.top + 10.0 + 34.0 * row as f64;
    let x = frame.right() + 14.0;
    svg.line(&format!("line stroke{}", place % STYLES), (x, y), (x + 26.0, y));
    svg.text("label toggle", (x + 32.0, y + 4.0), Anchor::Start, name);
    svg.text("tick", (x + 32.0, y + 18.0), Anchor::Start, more);
}
