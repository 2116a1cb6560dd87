//! One waterfall as text: a line for each event, with a track that shows its time.

use std::fmt::Write as _;

use super::event::{EventKind, TimelineEvent, connect_events, left_off, stream_events, stream_title};
use crate::style::{Paint, TextStyle};
use h2lab_model::timeline::TimelineSummary;

/// Columns of the names, and of the times after them.
const NAME: usize = 20;
const TIME: usize = 10;
const SPREAD: usize = 16;

/// The lines of one waterfall.
pub(super) fn waterfall(out: &mut String, summary: &TimelineSummary, track: &Track) {
    let connect = connect_events(summary);
    if !connect.is_empty() {
        track.lines(out, "connect", &connect, 0.0);
    }
    for one in &summary.streams {
        let events = stream_events(one);
        let from = events.first().map_or(0.0, |event| event.ms);
        track.lines(out, &stream_title(one), &events, from);
    }
    if let Some(text) = left_off(summary) {
        let _ = writeln!(out, "{text}");
    }
}

/// The time axis of a line.
pub(super) struct Track {
    style: TextStyle,
    width: usize,
    most: f64,
    has_spread: bool,
}

impl Track {
    /// An axis that fits all of these summaries.
    pub fn of<'a>(summaries: impl IntoIterator<Item = &'a TimelineSummary>, style: TextStyle) -> Self {
        let (mut most, mut has_spread) = (0.0_f64, false);
        for summary in summaries {
            let streams = summary.streams.iter().flat_map(stream_events);
            most = connect_events(summary).into_iter().chain(streams).fold(most, |most, event| {
                has_spread |= event.spread.is_some();
                most.max(event.ms)
            });
        }
        let taken = 2 + NAME + TIME + if has_spread { SPREAD } else { 0 } + 2;
        Self {
            style,
            width: style.limit().saturating_sub(taken).clamp(16, 80),
            most: most.max(1e-6),
            has_spread,
        }
    }

    fn lines(&self, out: &mut String, title: &str, events: &[TimelineEvent], from: f64) {
        let _ = writeln!(out, "{}", self.style.paint(Paint::Bold, title));
        let mut before = from;
        for event in events {
            let time = format!("{:.2}", event.ms);
            let mut line = format!("  {:<NAME$}{time:>TIME$}", event.name);
            if self.has_spread {
                let spread = event.spread.map(|one| format!("{:.1}–{:.1}", one.min, one.max));
                let spread =
                    if self.style.unicode { spread } else { spread.map(|text| text.replace('–', "-")) };
                let _ = write!(line, "{:>SPREAD$}", spread.unwrap_or_default());
            }
            let _ = writeln!(out, "{line}  {}", self.mark(before, event));
            before = before.max(event.ms);
        }
    }

    /// The track between the previous event and this one.
    fn mark(&self, before: f64, event: &TimelineEvent) -> String {
        let place = |ms: f64| ((ms / self.most) * (self.width - 1) as f64).round() as usize;
        let (from, to) = (place(before.min(event.ms)), place(event.ms));
        let (dash, dot) = match (self.style.unicode, event.kind) {
            (true, EventKind::Interim) => ('─', "◆"),
            (true, EventKind::Promise) => ('─', "▶"),
            (true, EventKind::Reset) => ('─', "✗"),
            (true, _) => ('─', "●"),
            (false, EventKind::Interim) => ('-', "+"),
            (false, EventKind::Promise) => ('-', ">"),
            (false, EventKind::Reset) => ('-', "x"),
            (false, _) => ('-', "*"),
        };
        let paint = match event.kind {
            EventKind::Interim | EventKind::Promise => Paint::Green,
            EventKind::Reset => Paint::Red,
            _ => Paint::Dim,
        };
        let line: String = std::iter::repeat_n(dash, to - from).collect();
        format!("{}{line}{}", " ".repeat(from), self.style.paint(paint, dot))
    }
}
