//! The waterfall of one exchange as text.

use std::fmt::Write as _;

use super::hops;
use crate::document::TimelineDocument;
use crate::text::{Paint, TextStyle, paragraph};
use h2lab_model::timeline::{Initiator, Spread, StatusRuns, Summary, TimelineStream};

/// Columns of the names, and of the times behind them.
const NAME: usize = 20;
const TIME: usize = 10;
const SPREAD: usize = 16;

/// Something that happened, for a line of text or a mark of a picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// What.
    pub name: String,
    /// When, in milliseconds since the client began to connect.
    pub ms: f64,
    /// How far that lies apart, with several runs.
    pub spread: Option<Spread>,
    /// What kind of thing it is.
    pub kind: EventKind,
}

/// What kind of thing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The connection came a step further.
    Connect,
    /// The request went out.
    Request,
    /// A promise came.
    Promise,
    /// An interim response came.
    Interim,
    /// The response's head came.
    Headers,
    /// A piece of its body, or its trailers.
    Data,
    /// It was complete.
    End,
    /// It was given up.
    Reset,
}

/// How a connection came to be.
pub fn connect_events(summary: &Summary) -> Vec<Event> {
    let connect = &summary.connect;
    let steps = [
        ("connected_ms", "connected", connect.connected_ms),
        ("tls_ms", "TLS", connect.tls_ms),
        ("settings_ms", "SETTINGS", connect.settings_ms),
    ];
    let event = |(key, name, ms): (&str, &str, Option<f64>)| {
        let spread = summary.connect_spread.get(key).copied();
        Some(Event { name: name.to_owned(), ms: ms?, spread, kind: EventKind::Connect })
    };
    steps.into_iter().filter_map(event).collect()
}

/// What happened on a stream, in the order of time.
pub fn stream_events(TimelineStream { stream, spread, .. }: &TimelineStream) -> Vec<Event> {
    let mut events = Vec::new();
    let mut add = |key: &str, name: String, ms: Option<f64>, kind| {
        if let Some(ms) = ms {
            events.push(Event { name, ms, spread: spread.get(key).copied(), kind });
        }
    };
    add("promise_ms", "PUSH_PROMISE".to_owned(), stream.promise_ms, EventKind::Promise);
    add("request_ms", "request".to_owned(), stream.request_ms, EventKind::Request);
    for (place, interim) in stream.interim.iter().enumerate() {
        let links = match interim.links {
            0 => String::new(),
            1 => " (1 link)".to_owned(),
            n => format!(" ({n} links)"),
        };
        let name = format!("{}{links}", interim.status);
        add(&format!("interim[{place}]"), name, Some(interim.ms), EventKind::Interim);
    }
    let status = stream.status.map_or_else(|| "HEADERS".to_owned(), |status| format!("HEADERS {status}"));
    add("headers_ms", status, stream.headers_ms, EventKind::Headers);
    add("first_data_ms", "first DATA".to_owned(), stream.first_data_ms, EventKind::Data);
    let several = stream.last_data_ms > stream.first_data_ms;
    let last = stream.last_data_ms.filter(|_| several);
    add("last_data_ms", "last DATA".to_owned(), last, EventKind::Data);
    add("trailers_ms", "trailers".to_owned(), stream.trailers_ms, EventKind::Data);
    add("end_ms", "end".to_owned(), stream.end_ms, EventKind::End);
    if let Some(reset) = &stream.reset {
        let by = if reset.by == Initiator::Client { "client" } else { "server" };
        let name = format!("reset by {by} {}", reset.error_code);
        add("", name, Some(reset.ms), EventKind::Reset);
    }
    events.sort_by(|a, b| a.ms.total_cmp(&b.ms));
    events
}

/// `stream 1  /early?ms=80`, and what of it no single time tells.
pub fn stream_title(one: &TimelineStream) -> String {
    let stream = &one.stream;
    let mut title = format!("stream {}  {}", stream.id, stream.path);
    if stream.pushed {
        title.push_str(", pushed");
    }
    let promised = one.spread.get("promise_ms").map_or(1, |spread| spread.runs);
    match one.unfinished {
        0 => {}
        n if n < promised => {
            let _ = write!(title, ", not finished in {n} of {promised} runs");
        }
        _ => title.push_str(", not finished"),
    }
    if one.statuses.len() > 1 {
        let times = |StatusRuns { status, runs }: &StatusRuns| format!("{status} in {runs}");
        let all: Vec<String> = one.statuses.iter().map(times).collect();
        let _ = write!(title, " ({} runs)", all.join(", "));
    }
    title
}

/// What is said of streams that are not shown.
pub fn left_off(summary: &Summary) -> Option<String> {
    (summary.left_off > 0).then(|| {
        format!("{} more streams are not shown: only the first 1,000 of a run are kept", summary.left_off)
    })
}

/// What the figures are.
pub fn heading(document: &TimelineDocument) -> String {
    let times = if document.runs == 1 {
        "one run".to_owned()
    } else {
        format!("medians of {} runs and how far they lie apart", document.runs)
    };
    let push = if document.protocol.is_multiplexed() && !document.push { ", push refused" } else { "" };
    format!(
        "{} {} over {}{push}: {times}, in ms since the client began to connect",
        document.method, document.url, document.protocol
    )
}

/// The document for people. `unicode`: whether lines and dots beyond ASCII may be used.
pub fn timeline_text(document: &TimelineDocument, style: TextStyle, unicode: bool) -> String {
    let mut out = String::new();
    paragraph(&mut out, style, "", &style.paint(Paint::Bold, &heading(document)));
    if document.legs.is_empty() {
        let summary = document.summary();
        let track = Track::of([&summary], style, unicode);
        waterfall(&mut out, &summary, &track);
    } else {
        hops::tell(&mut out, document, style, unicode);
    }
    if document.answered < document.runs {
        let missing = document.runs - document.answered;
        let why = document.each.iter().find_map(|run| run.failed.as_deref()).unwrap_or("no response came");
        let text = format!("\n{missing} of {} runs were not answered: {why}\n", document.runs);
        out.push_str(&style.paint(Paint::Red, &text));
    }
    out
}

/// The lines of one waterfall.
pub(super) fn waterfall(out: &mut String, summary: &Summary, track: &Track) {
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

/// Where times stand on a line.
pub(super) struct Track {
    style: TextStyle,
    unicode: bool,
    width: usize,
    most: f64,
    has_spread: bool,
}

impl Track {
    /// One that shows all of these.
    pub fn of<'a>(summaries: impl IntoIterator<Item = &'a Summary>, style: TextStyle, unicode: bool) -> Self {
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
            unicode,
            width: style.limit().saturating_sub(taken).clamp(16, 80),
            most: most.max(1e-6),
            has_spread,
        }
    }

    fn lines(&self, out: &mut String, title: &str, events: &[Event], from: f64) {
        let _ = writeln!(out, "{}", self.style.paint(Paint::Bold, title));
        let mut before = from;
        for event in events {
            let time = format!("{:.2}", event.ms);
            let mut line = format!("  {:<NAME$}{time:>TIME$}", event.name);
            if self.has_spread {
                let spread = event.spread.map(|one| format!("{:.1}–{:.1}", one.min, one.max));
                let spread = if self.unicode { spread } else { spread.map(|text| text.replace('–', "-")) };
                let _ = write!(line, "{:>SPREAD$}", spread.unwrap_or_default());
            }
            let _ = writeln!(out, "{line}  {}", self.mark(before, event));
            before = before.max(event.ms);
        }
    }

    /// The way from what happened before to this.
    fn mark(&self, before: f64, event: &Event) -> String {
        let place = |ms: f64| ((ms / self.most) * (self.width - 1) as f64).round() as usize;
        let (from, to) = (place(before.min(event.ms)), place(event.ms));
        let (dash, dot) = match (self.unicode, event.kind) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{TimelineAsked, timeline_document};
    use h2lab_model::timeline::Stream;
    use h2lab_model::timeline::testing::{exchange, pushed};
    use h2lab_model::workload::Protocol;

    fn document(runs: Vec<h2lab_model::timeline::Waterfall>) -> TimelineDocument {
        let asked = TimelineAsked {
            url: "http://h/early".to_owned(),
            protocol: Protocol::H2c,
            method: "GET".to_owned(),
            push: true,
            interrupted: false,
        };
        timeline_document(asked, runs, (Vec::new(), Vec::new()))
    }

    #[test]
    fn each_thing_has_its_line_in_order_of_time() {
        let mut run = exchange("/early", &[(103, 2.0)], 80.0);
        run.streams.push(pushed("/style.css", 1.0, 4.0));
        let text = timeline_text(&document(vec![run]), TextStyle::default(), false);
        let names: Vec<&str> =
            text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(
            names,
            [
                "stream",
                "request",
                "103",
                "HEADERS",
                "first",
                "end",
                "stream",
                "PUSH_PROMISE",
                "HEADERS",
                "end"
            ]
        );
        assert!(text.is_ascii(), "{text}");
        let at = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        assert!(at("103").contains("2.00") && at("HEADERS 200").ends_with('*'), "{text}");
    }

    #[test]
    fn several_runs_show_how_far_they_lie_apart_and_what_was_not_answered() {
        let mut lost = exchange("/early", &[(103, 9.0)], 80.0);
        (lost.streams[0].status, lost.streams[0].end_ms, lost.streams[0].headers_ms) = (None, None, None);
        lost.failed = Some("the server ended it".to_owned());
        let runs =
            vec![exchange("/early", &[(103, 2.0)], 80.0), lost, exchange("/early", &[(103, 3.0)], 90.0)];
        let text = timeline_text(&document(runs), TextStyle::default(), true);
        assert!(text.contains("medians of 3 runs"), "{text}");
        let hints = text.lines().find(|line| line.trim_start().starts_with("103")).unwrap();
        assert!(hints.contains("3.00") && hints.contains("2.0–9.0"), "{hints}");
        assert!(text.contains("1 of 3 runs were not answered: the server ended it"), "{text}");
    }

    #[test]
    fn spreads_go_by_their_names() {
        let spread = Spread { min: 1.0, max: 2.0, runs: 2 };
        let spreads = std::collections::BTreeMap::from([("interim[0]".to_owned(), spread)]);
        let stream = exchange("/", &[(103, 1.5)], 9.0).streams.remove(0);
        let events = stream_events(&TimelineStream { stream, spread: spreads, ..TimelineStream::default() });
        assert_eq!(events.iter().find(|one| one.kind == EventKind::Interim).unwrap().spread, Some(spread));
        assert_eq!(events.iter().filter(|one| one.spread.is_some()).count(), 1);
    }

    #[test]
    fn what_no_time_tells_stands_in_the_title_and_below() {
        let run = |status: u16, end: Option<f64>| {
            let mut run = exchange("/early", &[], 80.0);
            run.streams[0].status = Some(status);
            run.streams.push(Stream { end_ms: end, ..pushed("/style.css", 1.0, 4.0) });
            run
        };
        let mut last = run(200, None);
        last.left_off = 3;
        let text = timeline_text(
            &document(vec![run(200, Some(4.0)), run(502, None), last]),
            TextStyle::default(),
            false,
        );
        assert!(text.contains("/early (200 in 2, 502 in 1 runs)"), "{text}");
        assert!(text.contains("/style.css, pushed, not finished in 2 of 3 runs"), "{text}");
        assert!(text.contains("3 more streams are not shown"), "{text}");
        let alone = timeline_text(&document(vec![run(200, None)]), TextStyle::default(), false);
        assert!(alone.contains("/style.css, pushed, not finished\n"), "{alone}");
    }
}
