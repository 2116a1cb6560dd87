//! Every request of a cell over time, and the drops of the link beneath.

use super::axis::{PlotArea, Scale};
use super::latency_breakdown;
use super::raster::{Colour, Density};
use super::svg::{Anchor, Svg};
use super::ways::colour;
use h2lab_analysis::stats::CellSummary;
use h2lab_base::units::{Time, millis_f64};
use h2lab_model::record::{CellRecord, Level, Sample};
use h2lab_wire::trace::Direction;

const WIDTH: f64 = 400.0;
const PLOT: f64 = 160.0;
const LEFT: f64 = 66.0;
const TOP: f64 = 30.0;
/// The height of each strip of drops.
const STRIP: f64 = 12.0;
/// The space between the plot and the strips: half a line of the lowest tick's label.
const GAP: f64 = 9.0;

/// The colour of failures, and of drops up and down. Nothing depends on colour only: failures are counted in the table, and each
/// direction's drops have a strip of their own.
const FAILED: Colour = [216, 27, 96];
const DROPPED: Colour = [128, 128, 128];
/// Classes of points; the colour of the first is that of the configuration.
const SUCCEEDED: usize = 0;
const OTHER: usize = 1;
const LOST_UP: usize = 2;
const LOST_DOWN: usize = 3;

/// The range of response times for all cells of a group, so that they compare by eye.
pub(super) fn scale(group: &[&CellSummary]) -> Scale {
    let latencies = || group.iter().map(|summary| &summary.response).filter(|response| !response.is_empty());
    let smallest = latencies().map(|l| millis_f64(l.quantile(0.0))).fold(f64::INFINITY, f64::min);
    let largest = latencies().map(|l| millis_f64(l.quantile(1.0))).fold(0.0, f64::max);
    if largest > 0.0 { Scale::log(smallest.clamp(1e-3, largest), largest) } else { Scale::log(1.0, 1000.0) }
}

/// The scatter of one cell: its repetitions side by side.
pub(super) fn draw(
    summary: &CellSummary,
    repetitions: &[&CellRecord],
    y: Scale,
    breakdowns: &[latency_breakdown::Point<'_>],
) -> String {
    let lossy = repetitions.iter().any(|repetition| repetition.packets.iter().any(is_drop));
    let strips = if lossy { GAP + 2.0 * STRIP } else { 0.0 };
    let seconds = summary.measured.as_secs_f64().max(1e-9);
    let x = Scale::Linear { from: 0.0, to: seconds };
    let frame = PlotArea { left: LEFT, top: TOP, width: WIDTH - LEFT - 12.0, height: PLOT, x, y };
    let new = if breakdowns.is_empty() { Svg::new } else { Svg::with_buttons };
    let label = format!("Response times of {} over time", summary.label);
    let mut svg = new(WIDTH, TOP + PLOT + strips + 40.0, &label);
    frame.draw_x(&mut svg, "measured time, s (repetitions side by side)", strips);
    let points = match summary.level {
        Level::Full => "each point a request",
        Level::Tail => "a sample",
        Level::Hist => "none kept",
    };
    frame.draw_y(&mut svg, &format!("response time, ms (logarithmic); {points}"));
    let size = (frame.width, PLOT + strips);
    let colours = [colour(summary.cell.protocol), FAILED, DROPPED, DROPPED];
    svg.image((frame.left, frame.top), size, &rasterise(&frame, repetitions, strips, &colours));
    if lossy {
        svg.text("strip", (frame.left - 6.0, frame.bottom() + GAP + STRIP - 2.0), Anchor::End, "lost up");
        svg.text(
            "strip",
            (frame.left - 6.0, frame.bottom() + GAP + 2.0 * STRIP - 2.0),
            Anchor::End,
            "lost down",
        );
    }
    let mut begin = 0.0;
    for repetition in repetitions.iter().take(repetitions.len().saturating_sub(1)) {
        begin += repetition.cell.work.phases.measure.as_secs_f64();
        svg.line("between", (frame.at_x(begin), frame.top), (frame.at_x(begin), frame.bottom() + strips));
    }
    latency_breakdown::mark(&mut svg, &frame, breakdowns);
    svg.finish()
}

fn is_drop(packet: &h2lab_model::record::PacketRecord) -> bool {
    packet.fate.is_drop()
}

/// All requests, and the strips of drops beneath, as one picture.
fn rasterise(frame: &PlotArea, repetitions: &[&CellRecord], strips: f64, colours: &[Colour; 4]) -> String {
    let (plot, height) = (PLOT as usize, (PLOT + strips) as usize); // one raster pixel per unit of the picture
    let mut density = Density::new(frame.width as usize, height, colours);
    let mut begin = 0.0;
    for repetition in repetitions {
        let phases = &repetition.cell.work.phases;
        let from = phases.measure_from(repetition.started_at);
        let until = phases.measure_until(repetition.started_at);
        let at = |time: Time| frame.x.position(begin + time.since(from).as_secs_f64());
        for sample in repetition.samples.iter().filter(|sample| sample.measured) {
            let class = if sample.outcome.is_success() { SUCCEEDED } else { OTHER };
            density.point(class, at(sample.scheduled_at), in_plot(frame, &sample, plot, height));
        }
        for packet in repetition.packets.iter().filter(|p| is_drop(p) && (from..until).contains(&p.at)) {
            let (class, row) = if packet.direction == Direction::Up { (LOST_UP, 0) } else { (LOST_DOWN, 1) };
            let top = plot + GAP as usize + row * STRIP as usize;
            density.tick(class, at(packet.at), top, top + STRIP as usize - 3);
        }
        begin += phases.measure.as_secs_f64();
    }
    density.uri()
}

/// The height of a sample's point in the whole picture, whose lowest part are the strips.
fn in_plot(frame: &PlotArea, sample: &Sample, plot: usize, height: usize) -> f64 {
    let strips = (height - plot) as f64 / height as f64;
    strips + frame.y.position(millis_f64(sample.response_time())) * (1.0 - strips)
}
