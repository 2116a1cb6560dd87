//! Percentile curves: the whole distribution of every cell of a group in one plot.

use super::axis::{PlotArea, Scale, Unit};
use super::form::{Form, both, short};
use super::svg::{Anchor, Svg, escape};
use super::ways::{Way, Ways, legend};
use crate::format::plural;
use h2lab_analysis::stats::{CellState, CellSummary};
use h2lab_base::units::millis_f64;

/// Points per curve.
const POINTS: u32 = 90;
/// A curve ends where fewer than this many requests are above: beyond, it would draw single requests.
const ABOVE: f64 = 6.0;
/// The share at which a curve begins: the median.
const FIRST: f64 = 0.5;

/// A curve: a cell, how it looks, its name and what else the legend says.
pub(super) struct Curve<'a> {
    pub summary: &'a CellSummary,
    pub way: Way,
    pub name: String,
    pub more: String,
}

/// The curves of one group. A cell of which only a point would be drawn is left out: the table has its figures.
pub(super) fn draw(group: &[&CellSummary], ways: &Ways, heading: &str) -> String {
    let is_short = |summary: &&CellSummary| !summary.response.is_empty() && last(summary) <= FIRST;
    let (short_of, group): (Vec<&CellSummary>, Vec<&CellSummary>) = group.iter().copied().partition(is_short);
    let note = left_out(&short_of);
    if !short_of.is_empty() && group.iter().all(|summary| summary.response.is_empty()) {
        return note;
    }
    let state = |summary: &CellSummary| match summary.state {
        CellState::Ok => String::new(),
        _ => summary.state.name().to_owned(),
    };
    let curves = group.into_iter().map(|summary| Curve {
        summary,
        way: ways.way(summary),
        name: short(&summary.label),
        more: state(summary),
    });
    draw_named(&curves.collect::<Vec<_>>(), heading) + &note
}

/// Which cells are left out, and why; empty if none is.
fn left_out(cells: &[&CellSummary]) -> String {
    if cells.is_empty() {
        return String::new();
    }
    let few = |summary: &&CellSummary| {
        let answered = plural(summary.response.n(), "request");
        escape(&format!("{} (answered: {answered})", short(&summary.label)))
    };
    let names = cells.iter().map(few).collect::<Vec<_>>().join(", ");
    format!("<p class=\"note\">Too few requests for a curve of percentiles: {names}.</p>")
}

/// The curves with their legend.
pub(super) fn draw_named(curves: &[Curve<'_>], heading: &str) -> String {
    let drawn: Vec<&Curve<'_>> = curves.iter().filter(|curve| !curve.summary.response.is_empty()).collect();
    let picture = both(|form| picture(&drawn, heading, form));
    let entries = drawn.iter().map(|curve| (curve.way, curve.name.clone(), curve.more.clone()));
    format!("{picture}\n{}", legend(entries))
}

fn picture(drawn: &[&Curve<'_>], heading: &str, form: Form) -> String {
    let (width, height) = (form.width(), if form == Form::Wide { 320.0 } else { 280.0 });
    let mut svg = Svg::new(width, height, &format!("Percentiles of response time at {heading}"));
    if drawn.is_empty() {
        svg.text("title", (width / 2.0, height / 2.0), Anchor::Middle, "no request succeeded");
        return svg.finish();
    }
    let millis = |curve: &Curve<'_>, share| millis_f64(curve.summary.response.quantile(share));
    let smallest = drawn.iter().map(|curve| millis(curve, 0.5)).fold(f64::INFINITY, f64::min);
    let largest = drawn.iter().map(|curve| millis(curve, last(curve.summary))).fold(0.0, f64::max);
    let unit = Unit::of_time(largest);
    let frame = PlotArea {
        left: 56.0,
        top: 30.0,
        width: width - 56.0 - 24.0,
        height: height - 30.0 - 48.0,
        x: Scale::Percentile { to: drawn.iter().map(|curve| last(curve.summary)).fold(0.9, f64::max) },
        y: Scale::log(unit.scaled(smallest.max(1e-3)), unit.scaled(largest)),
    };
    frame.draw_x(&mut svg, "share of requests answered within …", 0.0);
    frame.draw_y(&mut svg, &format!("… response time, {} (logarithmic)", unit.name));
    for (entry, curve) in drawn.iter().enumerate() {
        svg.begin_entry(entry);
        one(&mut svg, &frame, unit, curve);
        svg.end();
    }
    svg.finish()
}

/// The share at which a cell's curve ends.
fn last(summary: &CellSummary) -> f64 {
    (1.0 - ABOVE / summary.response.n() as f64).clamp(FIRST, 0.999)
}

fn one(svg: &mut Svg, frame: &PlotArea, unit: Unit, curve: &Curve<'_>) {
    let Curve { summary, way, name, .. } = curve;
    let end = last(summary);
    let millis = |share: f64| millis_f64(summary.response.quantile(share));
    let at = |share: f64| (frame.at_x(share), frame.at_y(unit.scaled(millis(share))));
    let share = |i: u32| 1.0 - 0.5 * ((1.0 - end) / 0.5).powf(f64::from(i) / f64::from(POINTS));
    let points: Vec<(f64, f64)> = (0..=POINTS).map(|i| at(share(i))).collect();
    let doubtful = if summary.state == CellState::Ok { "" } else { " doubtful" };
    svg.path(&format!("{}{doubtful}", way.line()), &points);
    for share in [0.5, 0.9, 0.95, 0.99, 0.999].into_iter().filter(|&share| share <= end) {
        let note = format!("{name}: p{} {}", (share * 1000.0).round() / 10.0, unit.text(millis(share)));
        svg.shape(&format!("dot {}", way.class()), way.shape(), (at(share), 4.0), &note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::record::testing::{Model, cell, one_repetition};
    use h2lab_model::workload::Protocol;

    #[test]
    fn a_cell_of_which_only_its_median_would_be_drawn_is_named_instead() {
        let of = |n: usize| {
            let mut record = one_repetition(&cell(0, 0, Protocol::H2c, 4, 0.0), 0, &Model::CLEAN);
            let mut samples = record.samples.edit();
            samples.retain(|sample| sample.measured);
            samples.truncate(n);
            drop(samples);
            let summary = CellSummary::of(&[&record]);
            assert_eq!(summary.response.n(), n as u64);
            summary
        };
        let [few, enough] = [12, 13].map(of);
        let drawn = |group: &[&CellSummary]| draw(group, &Ways::default(), "RTT 25ms");
        let note = format!(
            "<p class=\"note\">Too few requests for a curve of percentiles: {} (answered: 12 requests).</p>",
            few.label
        );
        assert_eq!(drawn(&[&few]), note);
        let both = drawn(&[&few, &enough]);
        assert!(both.contains("<svg") && both.ends_with(&note), "{both}");
        let one = drawn(&[&enough]);
        assert!(one.contains("<svg") && !one.contains("Too few requests"), "{one}");
    }
}
