//! Mean, median, p95 and p99 of every topology: a panel for each condition, all on one scale.

use super::super::axis::{PlotArea, Scale};
use super::super::bars::{room, short};
use super::super::svg::{Anchor, Svg};
use super::drawn::{Drawn, Named, Panel, millis};
use crate::format::rate;
use h2lab_analysis::stats::{CellState, CellSummary, Latency, Tail};
use h2lab_base::units::millis_f64;

const WIDTH: f64 = 400.0;
/// The height of one bar; four make a topology.
const BAR: f64 = 6.0;
/// A topology's height, with the gap to the next.
const ROW: f64 = 4.0 * BAR + 8.0;
/// Room for the figure at the end of the longest bar.
const RIGHT: f64 = 52.0;

/// A figure of a distribution, in milliseconds.
type LatencyFigure = fn(&Latency) -> f64;

/// The statistics drawn for each topology, with their classes.
pub(super) const STATISTICS: [(&str, LatencyFigure, &str); 4] = [
    ("mean", |latency| millis_f64(latency.mean()), "fill6"),
    ("median", |latency| millis_f64(latency.quantile(0.5)), "fill1"),
    ("p95", |latency| millis_f64(latency.quantile(0.95)), "fill5"),
    ("p99", |latency| millis_f64(latency.quantile(0.99)), "fill2"),
];

/// A panel for each condition.
pub(super) fn draw(drawn: &Drawn<'_>) -> Vec<Panel> {
    let panels: Vec<Vec<Named<'_>>> =
        (0..drawn.conditions.len()).map(|condition| drawn.topologies(condition)).collect();
    let figures = || {
        let sound = panels.iter().flatten().filter(|named| is_reported(named.summary));
        sound.flat_map(|named| STATISTICS.map(|(_, figure, _)| figure(&named.summary.response)))
    };
    let (smallest, largest) = (figures().fold(f64::INFINITY, f64::min), figures().fold(0.0, f64::max));
    let x =
        if largest > 0.0 { Scale::log(smallest.max(1e-3) / 2.0, largest) } else { Scale::log(1.0, 1000.0) };
    let names = panels.iter().flatten().map(|named| short(&named.name));
    let left = 14.0 + room(names);
    let panel = |(condition_label, cells): (&crate::study::ConditionLabel, &Vec<Named<'_>>)| Panel {
        name: condition_label.line(),
        picture: picture(&condition_label.line(), cells, left, x),
    };
    drawn.conditions.iter().zip(&panels).map(panel).collect()
}

/// Whether a cell's figures may be shown.
fn is_reported(summary: &CellSummary) -> bool {
    summary.state == CellState::Ok && !summary.response.is_empty()
}

fn picture(condition: &str, cells: &[Named<'_>], left: f64, x: Scale) -> String {
    let height = cells.len() as f64 * ROW;
    let y = Scale::Linear { from: 0.0, to: 1.0 };
    let frame = PlotArea { left, top: 4.0, width: WIDTH - left - RIGHT, height, x, y };
    let label = format!("Mean, median, p95 and p99 of each topology at {condition}");
    let mut svg = Svg::new(WIDTH, height + 44.0, &label);
    frame.draw_x(&mut svg, "response time, ms (logarithmic)", 0.0);
    for (k, named) in cells.iter().enumerate() {
        row(&mut svg, &frame, frame.top + k as f64 * ROW + 4.0, named);
    }
    svg.finish()
}

fn row(svg: &mut Svg, frame: &PlotArea, top: f64, named: &Named<'_>) {
    let middle = top + 2.0 * BAR + 4.0;
    svg.text("label", (frame.left - 8.0, middle), Anchor::End, &short(&named.name));
    let summary = named.summary;
    if !is_reported(summary) {
        let (class, words) = match &summary.state {
            CellState::Unstable { served_rps, offered_rps, .. } => {
                ("hatched", format!("unstable: {}/s of {}/s", rate(*served_rps), rate(*offered_rps)))
            }
            CellState::Ok => ("hatched empty", "no answer".to_owned()),
            state => ("hatched empty", state.name().to_owned()),
        };
        svg.rectangle(class, (frame.left, top + 2.0), (frame.width, 4.0 * BAR - 4.0), &words);
        svg.text("on-hatch", (frame.left + 8.0, middle), Anchor::Start, &words);
        return;
    }
    // A percentile that too few requests support is not drawn.
    let supported = |name: &str| name != "p99" || summary.response.tail() == Tail::P99;
    let mut end = (0.0, String::new());
    for (k, (name, figure, class)) in STATISTICS.iter().enumerate().filter(|(_, (name, ..))| supported(name))
    {
        let value = figure(&summary.response);
        let width = (frame.at_x(value) - frame.left).max(1.0);
        let note = format!("{}: {name} {}", named.name, millis(value));
        svg.rectangle(&format!("bar {class}"), (frame.left, top + k as f64 * BAR), (width, BAR), &note);
        end = (frame.left + width, millis(value));
    }
    svg.text("value", (end.0 + 4.0, top + 4.0 * BAR), Anchor::Start, &end.1);
}
