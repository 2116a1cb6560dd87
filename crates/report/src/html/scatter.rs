//! Every request of a cell over time, and the drops of the link beneath.

use std::collections::BTreeMap;
use std::time::Duration;

use super::axis::{PlotArea, Scale};
use super::latency_breakdown;
use super::raster::{Colour, Density};
use super::svg::{Anchor, Shape, Svg};
use super::ways::{Way, colour};
use crate::format::{millis_unit, plural};
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

/// Up to this many requests are drawn as dots: as pixels they would be hard to see.
const FEW: usize = 100;

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
    let measured = repetitions.iter().flat_map(|one| one.samples.iter()).filter(|sample| sample.measured);
    let are_dots = measured.take(FEW + 1).count() <= FEW;
    if lossy || !are_dots {
        let picture = rasterise(&frame, repetitions, strips, &colours, are_dots);
        svg.image((frame.left, frame.top), size, &picture);
    }
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
    if are_dots {
        dots(&mut svg, &frame, repetitions, Way::of(summary.cell.protocol));
    }
    latency_breakdown::mark(&mut svg, &frame, breakdowns);
    svg.finish()
}

fn is_drop(packet: &h2lab_model::record::PacketRecord) -> bool {
    packet.fate.is_drop()
}

/// Each request as a dot; those at one place are one dot, whose note counts them. A failed one is a hollow diamond, in which
/// a dot of an answered one can be seen.
fn dots(svg: &mut Svg, frame: &PlotArea, repetitions: &[&CellRecord], way: Way) {
    let mut places: BTreeMap<(usize, usize, usize), (u64, Duration)> = BTreeMap::new();
    let mut begin = 0.0;
    for repetition in repetitions {
        let phases = &repetition.cell.work.phases;
        let from = phases.measure_from(repetition.started_at);
        for sample in repetition.samples.iter().filter(|sample| sample.measured) {
            let x = frame.at_x(begin + sample.scheduled_at.since(from).as_secs_f64());
            let y = frame.at_y(millis_f64(sample.response_time()));
            let place = (class_of(&sample), x.round() as usize, y.round() as usize);
            places.entry(place).or_insert((0, sample.response_time())).0 += 1;
        }
        begin += phases.measure.as_secs_f64();
    }
    // The diamonds first: dots stay visible in them.
    for ((class, x, y), (n, age)) in places.into_iter().rev() {
        let (looks, shape, r, how) = if class == SUCCEEDED {
            (format!("dot {}", way.class()), Shape::Circle, 3.5, "answered")
        } else {
            ("dot failed".to_owned(), Shape::Diamond, 4.5, "failed or unfinished")
        };
        let note = format!("{} {how} after {}", plural(n, "request"), millis_unit(age));
        svg.shape(&looks, shape, ((x as f64, y as f64), r), &note);
    }
}

fn class_of(sample: &Sample) -> usize {
    if sample.outcome.is_success() { SUCCEEDED } else { OTHER }
}

/// All requests, unless they are drawn as dots, and the strips of drops beneath, as one picture.
fn rasterise(
    frame: &PlotArea,
    repetitions: &[&CellRecord],
    strips: f64,
    colours: &[Colour; 4],
    are_dots: bool,
) -> String {
    let (plot, height) = (PLOT as usize, (PLOT + strips) as usize); // one raster pixel per unit of the picture
    let mut density = Density::new(frame.width as usize, height, colours);
    let mut begin = 0.0;
    for repetition in repetitions {
        let phases = &repetition.cell.work.phases;
        let from = phases.measure_from(repetition.started_at);
        let until = phases.measure_until(repetition.started_at);
        let at = |time: Time| frame.x.position(begin + time.since(from).as_secs_f64());
        for sample in repetition.samples.iter().filter(|sample| sample.measured && !are_dots) {
            density.point(class_of(&sample), at(sample.scheduled_at), in_plot(frame, &sample, plot, height));
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

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::record::Outcome;
    use h2lab_model::record::testing::{Model, cell, one_repetition};
    use h2lab_model::workload::Protocol;

    /// The scatter of `n` requests, sent when the measurement began, of which one failed.
    fn scatter(n: usize) -> String {
        let mut record = one_repetition(&cell(0, 0, Protocol::H2c, 4, 0.0), 0, &Model::CLEAN);
        let from = record.cell.work.phases.measure_from(record.started_at);
        let mut samples = record.samples.edit();
        samples.retain(|sample| sample.measured);
        let first = samples.first().copied().expect("requests were measured");
        let completed_at = from + Duration::from_micros(25_100);
        let answered = Sample { scheduled_at: from, completed_at, outcome: Outcome::Succeeded, ..first };
        samples.clear();
        samples.push(Sample { outcome: Outcome::Refused, ..answered });
        samples.extend(std::iter::repeat_n(answered, n - 1));
        drop(samples);
        let summary = CellSummary::of(&[&record]);
        draw(&summary, &[&record], scale(&[&summary]), &[])
    }

    #[test]
    fn a_few_requests_are_dots_over_the_axis_and_failed_ones_are_marked() {
        let picture = scatter(4);
        let place = |words: &str| picture.find(words).unwrap_or_else(|| panic!("{words}: {picture}"));
        let failed = place("data-note=\"1 request failed or unfinished after 25.1 ms\"");
        let answered = place("class=\"dot way-h2c\" d=\"M62.5 ");
        let axis = picture.rfind("class=\"axis\"").expect("axes are drawn");
        assert!(axis < failed && failed < answered, "{picture}");
        assert!(picture.contains("data-note=\"3 requests answered after 25.1 ms\""), "{picture}");
    }

    #[test]
    fn many_requests_are_a_picture() {
        let kinds = |n| [scatter(n).contains("class=\"dot"), scatter(n).contains("<image")];
        assert_eq!(kinds(FEW), [true, false]);
        assert_eq!(kinds(FEW + 1), [false, true]);
    }
}
