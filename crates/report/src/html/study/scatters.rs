//! Every configuration's requests over time under the conditions with the most loss, small and side by side, on linear scales:
//! only there a ramp is a straight line.

use super::super::axis::{PlotArea, Scale};
use super::super::raster::Density;
use super::super::svg::{Anchor, Svg};
use super::super::ways::{Way, colour};
use super::drawn::{Drawn, Named, Panel, Scatters};
use crate::format::rate;
use h2lab_analysis::stats::{CellState, CellSummary};
use h2lab_base::units::millis_f64;

const WIDTH: f64 = 400.0;
const PLOT: f64 = 150.0;
const LEFT: f64 = 50.0;
const TOP: f64 = 30.0;
/// How much of the first repetition is drawn: in more, a ramp of 200 ms would be a speck.
const SECONDS: f64 = 5.0;

/// The pictures under each condition with the highest loss.
pub(super) fn draw(drawn: &Drawn<'_>) -> Vec<Scatters> {
    let most = drawn.study.conditions.iter().map(|condition| condition.loss).fold(0.0, f64::max);
    let is_worst = |k: &usize| drawn.study.conditions[*k].loss >= most;
    (0..drawn.conditions.len()).filter(is_worst).map(|condition| of_condition(drawn, condition)).collect()
}

fn of_condition(drawn: &Drawn<'_>, condition: usize) -> Scatters {
    let cells: Vec<Named<'_>> =
        drawn.cells(condition).into_iter().filter(|named| !named.summary.response.is_empty()).collect();
    let sound: Vec<&CellSummary> = cells.iter().map(|named| named.summary).filter(|s| is_sound(s)).collect();
    let shared_scale = scale(&sound);
    // Overload is unbounded: an overloaded cell would compress all others to the bottom.
    let y = |summary: &CellSummary| if is_sound(summary) { shared_scale } else { scale(&[summary]) };
    let panel = |named: &Named<'_>| Panel {
        name: caption(drawn, named),
        picture: picture(&named.name, &[named.summary], y(named.summary)),
    };
    let overlay = |shared: &Named<'_>| {
        let http1 = cells.iter().find(|named| {
            !named.summary.cell.protocol.is_multiplexed()
                && named.summary.cell.group == shared.summary.cell.group
        })?;
        let name = format!("{} over {}", shared.name, http1.summary.label);
        Some(Panel { picture: picture(&name, &[http1.summary, shared.summary], y(shared.summary)), name })
    };
    let mut protocols: Vec<(String, &str)> = Vec::new();
    for protocol in cells.iter().map(|named| named.summary.cell.protocol) {
        let entry = (Way::of(protocol).class(), protocol.name());
        if !protocols.contains(&entry) {
            protocols.push(entry);
        }
    }
    Scatters {
        heading: drawn.conditions[condition].line(),
        protocols,
        configurations: cells.iter().map(panel).collect(),
        overlays: cells
            .iter()
            .filter(|named| named.summary.cell.protocol.is_multiplexed())
            .filter_map(overlay)
            .collect(),
    }
}

/// Whether a cell's response times are bounded.
fn is_sound(summary: &CellSummary) -> bool {
    summary.state == CellState::Ok
}

/// Response times up to the highest p99.9 of these cells.
fn scale(cells: &[&CellSummary]) -> Scale {
    let tails = cells.iter().map(|summary| millis_f64(summary.response.quantile(0.999)));
    let largest = tails.fold(0.0, f64::max);
    Scale::linear(if largest > 0.0 { largest } else { 1000.0 })
}

/// The caption of a picture: the configuration, its state, its ramps.
fn caption(drawn: &Drawn<'_>, named: &Named<'_>) -> String {
    let state = match &named.summary.state {
        CellState::Ok => String::new(),
        CellState::Unstable { served_rps, offered_rps, .. } => {
            format!(" – unstable: {}/s of {}/s", rate(*served_rps), rate(*offered_rps))
        }
        state => format!(" – {}", state.name()),
    };
    let share = drawn.study.ramps_of(named.summary.cell.index).and_then(|ramps| ramps.share());
    let ramps = share.map_or(String::new(), |share| format!(" – {:.0} % on ramps", share * 100.0));
    format!("{}{state}{ramps}", named.name)
}

fn picture(name: &str, cells: &[&CellSummary], y: Scale) -> String {
    let measured = cells
        .iter()
        .filter_map(|summary| summary.series.first())
        .map(|repetition| repetition.duration.as_secs_f64());
    let x = Scale::Linear { from: 0.0, to: measured.fold(0.0, f64::max).clamp(1e-3, SECONDS) };
    let frame = PlotArea { left: LEFT, top: TOP, width: WIDTH - LEFT - 8.0, height: PLOT, x, y };
    let mut svg =
        Svg::new(WIDTH, TOP + PLOT + 40.0, &format!("Response times of {name} over the time of sending"));
    frame.draw_x(&mut svg, "due, s", 0.0);
    frame.draw_y(&mut svg, "response time, ms");
    svg.image((frame.left, frame.top), (frame.width, frame.height), &rasterise(&frame, cells));
    if let [http1, shared] = cells {
        for (k, summary) in [http1, shared].into_iter().enumerate() {
            let x = frame.right() - 100.0 + 52.0 * k as f64;
            let protocol = summary.cell.protocol;
            svg.rectangle(
                &format!("bar {}", Way::of(protocol).class()),
                (x, 9.0),
                (9.0, 9.0),
                &summary.label,
            );
            svg.text("tick", (x + 13.0, 18.0), Anchor::Start, protocol.name());
        }
    }
    svg.finish()
}

/// The requests of the first repetitions; those above the scale are at its upper edge.
fn rasterise(frame: &PlotArea, cells: &[&CellSummary]) -> String {
    let colours: Vec<_> = cells.iter().map(|summary| colour(summary.cell.protocol)).collect();
    let mut density = Density::new(frame.width as usize, frame.height as usize, &colours);
    let Scale::Linear { to, .. } = frame.x else { return density.uri() };
    for (class, summary) in cells.iter().enumerate() {
        let points = summary.series.first().into_iter().flat_map(|repetition| &repetition.points);
        for (due, response) in points.filter(|(due, _)| due.as_secs_f64() < to) {
            density.point(class, frame.x.position(due.as_secs_f64()), frame.y.position(millis_f64(response)));
        }
    }
    density.uri()
}
