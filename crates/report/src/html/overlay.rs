//! Several runs in one picture: percentiles, tails over time, throughput over time.
//!
//! A run has the same look in all three. Its colour is that of the protocol, as everywhere; dashes and dots distinguish runs.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::axis::{PlotArea, Scale, Unit};
use super::curves::{self, Curve};
use super::form::short;
use super::svg::{Anchor, Svg};
use super::tails::quantile_ms;
use super::ways::Way;
use crate::Report;
use h2lab_analysis::stats::CellSummary;

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 230.0;
/// Intervals of the measured time with one figure each.
const PIECES: usize = 60;
/// No interval is shorter: a percentile of a few requests is noise.
const SHORTEST: Duration = Duration::from_millis(200);

/// The pictures of cells that correspond.
#[derive(Debug, Serialize)]
pub(super) struct Overlay {
    pub heading: String,
    curves: String,
    tails: String,
    rates: String,
}

/// A cell of one of the runs.
struct Series<'a> {
    run: &'a str,
    summary: &'a CellSummary,
    /// Its place among the runs.
    place: usize,
}

impl Series<'_> {
    const fn way(&self) -> Way {
        Way::variant(self.summary.cell.protocol, self.place)
    }
}

/// One overlay for all runs that have one cell each; else one for each cell of the first run that others have, too.
pub(super) fn draw(reports: &[Report<'_>]) -> Vec<Overlay> {
    if reports.len() < 2 {
        return Vec::new();
    }
    let have_one_each = reports.iter().all(|report| report.analysis.cells.len() == 1);
    let mut sets: BTreeMap<(String, usize), Vec<Series<'_>>> = BTreeMap::new();
    for (place, report) in reports.iter().enumerate() {
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for summary in &report.analysis.cells {
            let nth = seen.entry(&summary.label).or_default();
            let name = if have_one_each { String::new() } else { summary.label.clone() };
            let series = Series { run: report.short_name(), summary, place };
            sets.entry((name, *nth)).or_default().push(series);
            *nth += 1;
        }
    }
    let shared = sets.into_values().filter(|series| series.len() > 1);
    let mut overlays: Vec<(u32, Overlay)> =
        shared.map(|series| (series[0].summary.cell.index, overlay(&series))).collect();
    overlays.sort_by_key(|(index, _)| *index);
    overlays.into_iter().map(|(_, overlay)| overlay).collect()
}

fn overlay(series: &[Series<'_>]) -> Overlay {
    let first = &series[0].summary.label;
    let is_one = series.iter().all(|series| series.summary.label == *first);
    let what = if is_one { first.clone() } else { "All".to_owned() };
    let heading = format!("{what} of {} runs in one picture", series.len());
    Overlay { curves: percentiles(series, &heading), tails: tails(series), rates: rates(series), heading }
}

/// Percentile curves, with the legend for all three pictures.
fn percentiles(series: &[Series<'_>], heading: &str) -> String {
    let curves = series.iter().map(|series| Curve {
        summary: series.summary,
        way: series.way(),
        name: series.run.to_owned(),
        more: short(&series.summary.label),
    });
    curves::draw_named(&curves.collect::<Vec<_>>(), heading)
}

/// The 99th percentile of each interval.
fn tails(series: &[Series<'_>]) -> String {
    let points = |summary: &CellSummary| {
        over_time(summary, |repetition, n| {
            let mut pieces: Vec<Vec<u64>> = vec![Vec::new(); n];
            let width = repetition.duration.as_secs_f64() / n as f64;
            for (at, response) in &repetition.points {
                let piece = (at.as_secs_f64() / width) as usize;
                pieces[piece.min(n - 1)].push(h2lab_base::units::nanos(response));
            }
            pieces.into_iter().map(|nanos| quantile_ms(nanos, 0.99)).collect()
        })
    };
    let lines: Vec<Vec<(f64, f64)>> = series.iter().map(|series| points(series.summary)).collect();
    picture(series, &lines, "p99 of each time slice", true)
}

/// Successes per second in each interval.
fn rates(series: &[Series<'_>]) -> String {
    let points = |summary: &CellSummary| {
        over_time(summary, |repetition, n| {
            let width = repetition.duration.as_secs_f64() / n as f64;
            repetition.served_in_pieces(n).into_iter().map(|served| Some(served / width)).collect()
        })
    };
    let lines: Vec<Vec<(f64, f64)>> = series.iter().map(|series| points(series.summary)).collect();
    picture(series, &lines, "successes per second", false)
}

/// (seconds, figure) in the middle of each interval, repetitions side by side.
fn over_time(
    summary: &CellSummary,
    figures: impl Fn(&h2lab_analysis::stats::RepetitionSeries, usize) -> Vec<Option<f64>>,
) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    let mut begin = 0.0;
    for repetition in summary.series.iter().filter(|repetition| !repetition.duration.is_zero()) {
        let n = (repetition.duration.as_nanos() / SHORTEST.as_nanos()).clamp(2, PIECES as u128) as usize;
        let seconds = repetition.duration.as_secs_f64();
        let width = seconds / n as f64;
        let at = |k: usize| begin + (k as f64 + 0.5) * width;
        points.extend(
            figures(repetition, n).into_iter().enumerate().filter_map(|(k, figure)| Some((at(k), figure?))),
        );
        begin += seconds;
    }
    points
}

fn picture(series: &[Series<'_>], lines: &[Vec<(f64, f64)>], title: &str, is_latency: bool) -> String {
    let longest = series.iter().map(|series| series.summary.measured.as_secs_f64()).fold(0.0, f64::max);
    let values = || lines.iter().flatten().map(|(_, value)| *value);
    let (smallest, largest) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let mut svg = Svg::new(WIDTH, HEIGHT, title);
    if largest <= 0.0 || longest <= 0.0 {
        svg.text("title", (WIDTH / 2.0, HEIGHT / 2.0), Anchor::Middle, "no request succeeded");
        return svg.finish();
    }
    let unit = Unit::of_time(largest);
    let scaled = |value: f64| if is_latency { unit.scaled(value) } else { value };
    let y = if is_latency {
        Scale::fitting(scaled(smallest.max(1e-3)), scaled(largest))
    } else {
        Scale::linear(largest)
    };
    let frame = PlotArea {
        left: 58.0,
        top: 30.0,
        width: WIDTH - 58.0 - 14.0,
        height: HEIGHT - 30.0 - 48.0,
        x: Scale::Linear { from: 0.0, to: longest },
        y,
    };
    let of = if is_latency { format!("{title}, {}", unit.name) } else { title.to_owned() };
    frame.draw_x(&mut svg, "measured time, s (repetitions side by side)", 0.0);
    frame.draw_y(&mut svg, &format!("{of}{}", if y.is_log() { " (logarithmic)" } else { "" }));
    // Entries of the legend are those with an answer.
    let drawn = series.iter().zip(lines).filter(|(series, _)| !series.summary.response.is_empty());
    for (entry, (series, line)) in drawn.enumerate() {
        let points: Vec<(f64, f64)> =
            line.iter().map(|&(x, y)| (frame.at_x(x), frame.at_y(scaled(y)))).collect();
        svg.begin_entry(entry);
        if !points.is_empty() {
            svg.path(&series.way().line(), &points);
        }
        svg.end();
    }
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::Fixture;
    use super::*;

    #[test]
    fn one_run_has_no_overlay_and_cells_that_correspond_share_one() {
        let fixture = Fixture::new();
        assert!(draw(&[fixture.report()]).is_empty());
        let overlays = draw(&[fixture.report(), fixture.report()]);
        assert_eq!(overlays.len(), fixture.analysis.cells.len());
        assert!(overlays[0].heading.starts_with("h1 of 2 runs"), "{}", overlays[0].heading);
        for picture in [&overlays[0].curves, &overlays[0].tails, &overlays[0].rates] {
            for style in ["line way-h1 dash0", "line way-h1 tone1 dash1"] {
                assert!(picture.contains(style), "{style}: {picture}");
            }
        }
    }
}
