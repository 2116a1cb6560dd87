//! Mean, median, p95 and p99 of every topology: a panel for each condition, all on one scale. The scale is logarithmic, so that
//! there are dots, and no bars from a zero that is nowhere.

use super::super::axis::{PlotArea, Scale, Unit};
use super::super::form::short;
use super::super::svg::{Anchor, Shape, Svg};
use super::super::tails::no_figure;
use super::drawn::{Drawn, Named, Panel};
use h2lab_analysis::stats::{CellState, CellSummary, Latency, Tail};
use h2lab_base::units::millis_f64;

const WIDTH: f64 = 400.0;
/// A topology's height: its name, and its dots beneath.
const ROW: f64 = 42.0;
const LEFT: f64 = 20.0;

/// How the panels are read.
pub(super) const KEY: &str = "Response time: a stroke at the median, a small ring at the mean, a small dot at the \
     p95, and a large dot with its figure at the p99. For each topology and protocol, the fewest connections \
     measured. Hatched: does not carry the load, so has no response times.";

/// A panel for each condition.
pub(super) fn draw(drawn: &Drawn<'_>) -> Vec<Panel> {
    let panels: Vec<Vec<Named<'_>>> =
        (0..drawn.conditions.len()).map(|condition| drawn.topologies(condition)).collect();
    let sound = || panels.iter().flatten().filter(|named| is_reported(named.summary));
    let of = |share: f64| sound().map(move |named| millis_f64(named.summary.response.quantile(share)));
    let (smallest, largest) = (of(0.5).fold(f64::INFINITY, f64::min), of(0.99).fold(0.0, f64::max));
    let unit = Unit::of_time(largest);
    let x = if largest > 0.0 {
        Scale::log(unit.scaled(smallest.max(1e-3)), unit.scaled(largest))
    } else {
        Scale::log(1.0, 1000.0)
    };
    let panel = |(condition_label, cells): (&crate::study::ConditionLabel, &Vec<Named<'_>>)| Panel {
        name: condition_label.line(),
        picture: picture(drawn, &condition_label.line(), cells, (x, unit)),
    };
    drawn.conditions.iter().zip(&panels).map(panel).collect()
}

/// Whether a cell's figures may be shown.
fn is_reported(summary: &CellSummary) -> bool {
    summary.state == CellState::Ok && !summary.response.is_empty()
}

fn picture(drawn: &Drawn<'_>, condition: &str, cells: &[Named<'_>], (x, unit): (Scale, Unit)) -> String {
    let height = cells.len() as f64 * ROW;
    let y = Scale::Linear { from: 0.0, to: 1.0 };
    let frame = PlotArea { left: LEFT, top: 4.0, width: WIDTH - 2.0 * LEFT, height, x, y };
    let label = format!("Mean, median, p95 and p99 of each topology at {condition}");
    let mut svg = Svg::new(WIDTH, height + 46.0, &label);
    frame.draw_x(&mut svg, &format!("response time, {} (logarithmic)", unit.name), 0.0);
    for (k, named) in cells.iter().enumerate() {
        row(&mut svg, drawn, (&frame, unit), frame.top + k as f64 * ROW, named);
    }
    svg.finish()
}

fn row(svg: &mut Svg, drawn: &Drawn<'_>, (frame, unit): (&PlotArea, Unit), top: f64, named: &Named<'_>) {
    let (summary, middle) = (named.summary, top + 30.0);
    svg.text("label", (6.0, top + 15.0), Anchor::Start, &short(&named.name));
    if !is_reported(summary) {
        let (class, words) = no_figure(summary);
        svg.rectangle(class, (frame.left, middle - 8.0), (frame.width, 16.0), &words);
        svg.text("on-hatch", (frame.left + 8.0, middle + 4.5), Anchor::Start, &words);
        return;
    }
    let (latency, way): (&Latency, _) = (&summary.response, drawn.ways.way(summary));
    let tail = if latency.tail() == Tail::P99 { ("p99", 0.99) } else { ("p95", 0.95) };
    let ms = |share: f64| millis_f64(latency.quantile(share));
    let at = |ms: f64| (frame.at_x(unit.scaled(ms)), middle);
    let note = |what: &str, ms: f64| format!("{}: {what} {}", named.name, unit.text(ms));
    let colour = way.class();
    svg.line(&format!("reach {colour}"), at(ms(0.5)), at(ms(tail.1)));
    let (x, y) = at(ms(0.5));
    svg.line(&format!("median {colour}"), (x, y - 7.0), (x, y + 7.0));
    let mean = millis_f64(latency.mean());
    svg.shape(&format!("ring {colour}"), Shape::Circle, (at(mean), 3.0), &note("mean", mean));
    // A percentile that too few requests support is not drawn.
    if tail.0 == "p99" {
        svg.shape(&format!("dot {colour}"), way.shape(), (at(ms(0.95)), 3.0), &note("p95", ms(0.95)));
    }
    svg.shape(&format!("dot {colour}"), way.shape(), (at(ms(tail.1)), 5.0), &note(tail.0, ms(tail.1)));
    let mark = if tail.0 == "p99" { "" } else { " (p95)" };
    svg.text("value", (WIDTH - 6.0, top + 15.0), Anchor::End, &format!("{}{mark}", unit.text(ms(tail.1))));
}
