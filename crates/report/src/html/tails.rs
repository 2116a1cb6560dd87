//! One row per cell: the median and the tail of its response times, grouped by condition. A cell without a figure has a hatched
//! row with its state. The axis is logarithmic where values are far apart, so that there are dots, and no bars from a zero that is
//! nowhere.

use super::axis::{PlotArea, Scale, Unit};
use super::form::{Form, Rows, both};
use super::svg::{Anchor, Svg};
use super::ways::{Way, Ways};
use crate::format::rate;
use crate::{Report, condition, sentences};
use h2lab_analysis::stats::{CellState, CellSummary};
use h2lab_base::units::{millis_f64, nanos};
use h2lab_model::record::Level;
use std::time::Duration;

const HEADING: f64 = 30.0;

/// How the picture is read.
pub(super) const KEY: &str = "For each configuration: a stroke at the p50, a dot at the p99 (p95 where marked), \
     joined by a line; the bracket around the dot spans its repetitions, from least to largest. Hatched: no figure, \
     for the reason given.";

/// The rows of all groups under one scale, so that conditions compare too.
pub(super) fn draw(report: &Report<'_>, ways: &Ways) -> String {
    both(|form| picture(report, ways, form))
}

fn picture(report: &Report<'_>, ways: &Ways, form: Form) -> String {
    const VALUE: usize = 16;
    let (groups, cells) = (report.analysis.groups(), &report.analysis.cells);
    let rows = Rows::new(form, cells.iter().map(|summary| summary.label.as_str()), VALUE);
    let height = cells.len() as f64 * rows.height() + groups.len() as f64 * HEADING + 6.0;
    let figures: Vec<Figures> = cells.iter().filter_map(Figures::of).collect();
    let largest = figures.iter().map(Figures::largest).fold(0.0, f64::max).max(1e-3);
    let smallest = figures.iter().map(|figures| figures.median).fold(largest, f64::min).max(largest * 1e-6);
    let unit = Unit::of_time(largest);
    let frame = rows.area(height, Scale::fitting(unit.scaled(smallest), unit.scaled(largest)));
    // Without a figure an axis would have values that nothing has.
    let has_axis = !figures.is_empty();
    let below = if has_axis { 46.0 } else { 6.0 };
    let mut svg = Svg::new(form.width(), height + below, "Median and tail of each configuration, as dots");
    if has_axis {
        let logarithmic = if frame.x.is_log() { " (logarithmic)" } else { "" };
        frame.draw_x(&mut svg, &format!("response time, {}{logarithmic}", unit.name), 0.0);
    }
    let mut y = frame.top;
    for group in &groups {
        svg.text("condition", (6.0, y + 20.0), Anchor::Start, &heading(report, group, form));
        y += HEADING;
        for summary in group {
            row(&mut svg, (rows, &frame, unit), y, summary, ways.way(summary));
            y += rows.height();
        }
    }
    svg.finish()
}

/// The name of a group, as long as there is room for it.
fn heading(report: &Report<'_>, group: &[&CellSummary], form: Form) -> String {
    let most = if form == Form::Wide { 92 } else { 50 };
    let whole = condition::heading(report, group);
    let short = || condition::distinction(report, group).unwrap_or_else(|| whole.clone());
    let text = if whole.chars().count() <= most { whole.clone() } else { short() };
    if text.chars().count() <= most { text } else { text.chars().take(most - 1).chain(['…']).collect() }
}

/// What is drawn of a sound cell, in milliseconds.
struct Figures {
    median: f64,
    tail: f64,
    /// The least and the largest tail of its repetitions, if there are several whose requests are all known.
    spread: Option<(f64, f64)>,
}

impl Figures {
    fn of(summary: &CellSummary) -> Option<Self> {
        if summary.state != CellState::Ok || summary.response.is_empty() {
            return None;
        }
        let share = summary.response.tail().share();
        let is_known = summary.level == Level::Full && summary.series.len() > 1;
        let tails = || {
            summary.series.iter().filter_map(move |repetition| {
                let times = repetition.points.iter().map(|(_, response)| nanos(response)).collect();
                quantile_ms(times, share)
            })
        };
        let spread = is_known.then(|| (tails().fold(f64::INFINITY, f64::min), tails().fold(0.0, f64::max)));
        Some(Self {
            median: millis_f64(summary.response.quantile(0.5)),
            tail: millis_f64(summary.response.quantile(share)),
            spread: spread.filter(|(least, _)| least.is_finite()),
        })
    }

    fn largest(&self) -> f64 {
        self.spread.map_or(self.tail, |(_, most)| most.max(self.tail))
    }
}

/// The quantile of these nanoseconds in milliseconds, by nearest rank, if there are any.
pub(super) fn quantile_ms(mut nanos: Vec<u64>, share: f64) -> Option<f64> {
    nanos.sort_unstable();
    let rank = (nanos.len() as f64 * share - 1e-9).ceil() as usize;
    nanos.get(rank.checked_sub(1)?).map(|ns| millis_f64(Duration::from_nanos(*ns)))
}

fn row(svg: &mut Svg, (rows, frame, unit): (Rows, &PlotArea, Unit), y: f64, summary: &CellSummary, way: Way) {
    rows.label(svg, "label", y, &summary.label);
    let middle = rows.middle(y);
    let Some(figures) = Figures::of(summary) else {
        let (class, words) = no_figure(summary);
        let size = (frame.width, 16.0);
        svg.rectangle(
            class,
            (frame.left, middle - 8.0),
            size,
            &sentences::state(summary).unwrap_or_default(),
        );
        svg.text("on-hatch", (frame.left + 8.0, middle + 4.5), Anchor::Start, &words);
        return;
    };
    let at = |ms: f64| frame.at_x(unit.scaled(ms));
    let name = summary.response.tail().name();
    let tail = unit.text(figures.tail);
    let between = figures.spread.map_or(String::new(), |(least, most)| {
        format!(" ({} to {} in its repetitions)", unit.text(least), unit.text(most))
    });
    let note = format!(
        "{}: p50 {}, {name} {tail}{between}, n {}",
        summary.label,
        unit.text(figures.median),
        crate::format::count(summary.response.n())
    );
    let colour = way.class();
    svg.line(&format!("reach {colour}"), (at(figures.median), middle), (at(figures.tail), middle));
    svg.line(
        &format!("median {colour}"),
        (at(figures.median), middle - 7.0),
        (at(figures.median), middle + 7.0),
    );
    if let Some((least, most)) = figures.spread {
        svg.line("bracket", (at(least), middle), (at(most), middle));
        for end in [least, most] {
            svg.line("bracket", (at(end), middle - 4.0), (at(end), middle + 4.0));
        }
    }
    svg.shape(&format!("dot {colour}"), way.shape(), ((at(figures.tail), middle), 5.0), &note);
    let marked = if name == "p99" { tail } else { format!("{tail} ({name})") };
    rows.value(svg, y, at(figures.largest()), &marked);
}

/// The class and words of a row without a figure.
pub(super) fn no_figure(summary: &CellSummary) -> (&'static str, String) {
    match &summary.state {
        CellState::Unstable { served_rps, offered_rps, .. } => {
            ("hatched", format!("unstable: serves {} of {}/s", rate(*served_rps), rate(*offered_rps)))
        }
        CellState::Ok => ("hatched empty", "no answer".to_owned()),
        state => ("hatched empty", state.name().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fixture;

    #[test]
    fn every_cell_has_a_dot_with_its_spread_or_a_hatched_row_with_the_reason() {
        let fixture = Fixture::new();
        let report = fixture.report();
        let picture = picture(&report, &Ways::of(&report), Form::Wide);
        let sound = fixture.analysis.cells.iter().filter(|cell| Figures::of(cell).is_some()).count();
        assert_eq!(picture.matches("class=\"dot way-").count(), sound);
        assert_eq!(picture.matches("class=\"hatched").count(), fixture.analysis.cells.len() - sound);
        assert_eq!(picture.matches("class=\"bracket\"").count(), 3 * sound);
        assert!(!picture.contains("class=\"bar"), "the axis may be logarithmic");
        assert!(picture.contains("serves 290 of 1,000/s"), "{picture}");
    }

    #[test]
    fn there_is_no_axis_without_a_figure() {
        let mut fixture = Fixture::new();
        for cell in &mut fixture.analysis.cells {
            cell.state = CellState::Invalid { reasons: vec!["late".to_owned()] };
        }
        let report = fixture.report();
        let picture = picture(&report, &Ways::of(&report), Form::Wide);
        assert!(!picture.contains("response time, ") && picture.contains("class=\"hatched"), "{picture}");
    }

    #[test]
    fn values_have_the_unit_of_their_axis() {
        let fixture = Fixture::new();
        let report = fixture.report();
        let picture = picture(&report, &Ways::of(&report), Form::Narrow);
        assert!(picture.contains(">response time, ms"), "{picture}");
        let values: Vec<&str> = picture
            .split("class=\"value\"")
            .skip(1)
            .filter_map(|rest| rest.split(['>', '<']).nth(1))
            .collect();
        assert!(!values.is_empty() && values.iter().all(|value| value.contains(" ms")), "{values:?}");
    }

    #[test]
    fn a_quantile_is_that_of_the_nearest_rank() {
        assert_eq!(quantile_ms(Vec::new(), 0.99), None);
        assert_eq!(quantile_ms((1..=100).rev().map(|ms| ms * 1_000_000).collect(), 0.99), Some(99.0));
        assert_eq!(quantile_ms(vec![5_000_000], 0.95), Some(5.0));
    }
}
