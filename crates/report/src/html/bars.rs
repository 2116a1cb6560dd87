//! One bar per cell: its tail, grouped by condition. A cell without a figure has a hatched bar with its state.

use super::axis::{PlotArea, Scale};
use super::svg::{Anchor, Svg};
use crate::format::{millis_unit, rate};
use crate::{Report, condition, sentences};
use h2lab_analysis::stats::{CellState, CellSummary};
use h2lab_base::units::millis_f64;

/// The width of a picture of bars.
pub(super) const WIDTH: f64 = 960.0;
/// The least width for labels; longer ones get what they need.
const LEFT: f64 = 130.0;
const RIGHT: f64 = 150.0;
const ROW: f64 = 26.0;
const HEADING: f64 = 30.0;

/// The bars of all groups under one scale, so that conditions compare too.
pub(super) fn draw(report: &Report<'_>) -> String {
    let groups = report.analysis.groups();
    let cells = &report.analysis.cells;
    let height = cells.len() as f64 * ROW + groups.len() as f64 * HEADING + 6.0;
    let labels = cells.iter().map(|summary| summary.label.as_str());
    let frame = frame(cells.iter().filter_map(tail_ms), labels, LEFT, height);
    let mut svg = Svg::new(WIDTH, height + 44.0, "The tail of each cell, as bars");
    let logarithmic = if frame.x.is_log() { ", logarithmic" } else { "" };
    frame.draw_x(
        &mut svg,
        &format!("response time, ms{logarithmic}: bar to p99 (p95 where so marked), stroke at p50"),
        0.0,
    );
    let mut y = frame.top;
    for group in &groups {
        svg.text("condition", (8.0, y + 20.0), Anchor::Start, &condition::heading(report, group));
        y += HEADING;
        for (place, summary) in group.iter().enumerate() {
            bar(&mut svg, &frame, y, place, summary);
            y += ROW;
        }
    }
    svg.finish()
}

/// The tail of a cell that has one.
fn tail_ms(summary: &CellSummary) -> Option<f64> {
    let sound = summary.state == CellState::Ok && !summary.response.is_empty();
    sound.then(|| millis_f64(summary.response.quantile(summary.response.tail().share())))
}

fn bar(svg: &mut Svg, frame: &PlotArea, y: f64, place: usize, summary: &CellSummary) {
    let (top, thick) = (y + 4.0, ROW - 8.0);
    let baseline = y + ROW / 2.0 + 4.0;
    svg.text("label", (frame.left - 8.0, baseline), Anchor::End, &short(&summary.label));
    let Some(tail) = tail_ms(summary) else {
        let (class, words) = no_figure(summary);
        let size = (frame.width, thick);
        svg.rectangle(class, (frame.left, top), size, &sentences::state(summary).unwrap_or_default());
        svg.text("on-hatch", (frame.left + 10.0, baseline), Anchor::Start, &words);
        return;
    };
    let (name, p50) = (summary.response.tail().name(), summary.response.quantile(0.5));
    let tail_text = millis_unit(summary.response.quantile(summary.response.tail().share()));
    let note = format!(
        "{}: p50 {}, {name} {tail_text}, n {}",
        summary.label,
        millis_unit(p50),
        summary.response.n()
    );
    let end = frame.at_x(tail);
    svg.rectangle(&format!("bar fill{}", place % 7), (frame.left, top), (end - frame.left, thick), &note);
    let middle = frame.at_x(millis_f64(p50));
    svg.line("median", (middle, top), (middle, top + thick));
    let marked = if name == "p99" { tail_text } else { format!("{tail_text} ({name})") };
    svg.text("value", (end + 6.0, baseline), Anchor::Start, &marked);
}

/// The class and words of a bar without a figure.
fn no_figure(summary: &CellSummary) -> (&'static str, String) {
    match &summary.state {
        CellState::Unstable { served_rps, offered_rps, .. } => {
            ("hatched", format!("unstable: serves {}/s of {}/s", rate(*served_rps), rate(*offered_rps)))
        }
        CellState::Ok => ("hatched empty", "no answer".to_owned()),
        state => ("hatched empty", state.name().to_owned()),
    }
}

/// A label that fits beside its bar; a long URL keeps its end, which distinguishes it from the others.
pub(super) fn short(label: &str) -> String {
    const FITS: usize = 36;
    let length = label.chars().count();
    if length <= FITS {
        label.to_owned()
    } else {
        format!("…{}", label.chars().skip(length - FITS + 1).collect::<String>())
    }
}

/// The frame of bars for these figures, one below the other in `height`, right of their labels, which have `least` at least.
pub(super) fn frame<'a>(
    figures: impl Iterator<Item = f64>,
    labels: impl Iterator<Item = &'a str>,
    least: f64,
    height: f64,
) -> PlotArea {
    let figures: Vec<f64> = figures.collect();
    let largest = figures.iter().copied().fold(0.0, f64::max).max(1e-3);
    let smallest = figures.iter().copied().fold(largest, f64::min);
    let left = least.max(16.0 + room(labels.map(short)));
    PlotArea {
        left,
        top: 4.0,
        width: WIDTH - left - RIGHT,
        height,
        x: Scale::fitting(smallest / 2.0, largest),
        y: Scale::Linear { from: 0.0, to: 1.0 },
    }
}

/// The width that the longest of these labels takes, at the size of the page's smaller text.
pub(super) fn room(labels: impl Iterator<Item = String>) -> f64 {
    const CHARACTER: f64 = 6.6;
    CHARACTER * labels.map(|label| label.chars().count()).max().unwrap_or(0) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_label_keeps_its_end() {
        assert_eq!(short("h2c × 16"), "h2c × 16");
        let url = "h1 at http://proxy.service.example:8080/";
        assert_eq!(short(url), "… http://proxy.service.example:8080/");
        assert_eq!(short(&url[4..]), url[4..], "36 characters fit");
    }
}
