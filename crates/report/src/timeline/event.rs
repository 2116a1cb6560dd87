//! Events of an exchange, for a line of text or a mark of a picture.

use std::fmt::Write as _;

use h2lab_base::counts::plural;
use h2lab_model::timeline::{ResetSender, StatusRuns, TimeSpread, TimelineStream, TimelineSummary};

/// An event, for a line of text or a mark of a picture.
#[derive(Debug, Clone, PartialEq)]
pub struct TimelineEvent {
    /// Its name.
    pub name: String,
    /// Its time, in milliseconds since the client began to connect.
    pub ms: f64,
    /// The spread of its time over several runs.
    pub spread: Option<TimeSpread>,
    /// Its kind.
    pub kind: EventKind,
}

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// A step of connecting.
    Connect,
    /// The request was sent.
    Request,
    /// A promise arrived.
    Promise,
    /// An interim response arrived.
    Interim,
    /// The response's head arrived.
    Headers,
    /// A piece of its body, or its trailers.
    Data,
    /// It was complete.
    End,
    /// It was reset.
    Reset,
}

/// The events of connecting.
pub fn connect_events(summary: &TimelineSummary) -> Vec<TimelineEvent> {
    let connect = &summary.connect;
    let steps = [
        ("connected_ms", "connected", connect.connected_ms),
        ("tls_ms", "TLS", connect.tls_ms),
        ("settings_ms", "SETTINGS", connect.settings_ms),
    ];
    let event = |(key, name, ms): (&str, &str, Option<f64>)| {
        let spread = summary.connect_spread.get(key).copied();
        Some(TimelineEvent { name: name.to_owned(), ms: ms?, spread, kind: EventKind::Connect })
    };
    steps.into_iter().filter_map(event).collect()
}

/// The events of a stream, in the order of time.
pub fn stream_events(TimelineStream { stream, spread, .. }: &TimelineStream) -> Vec<TimelineEvent> {
    let mut events = Vec::new();
    let mut add = |key: &str, name: String, ms: Option<f64>, kind| {
        if let Some(ms) = ms {
            events.push(TimelineEvent { name, ms, spread: spread.get(key).copied(), kind });
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
        let by = if reset.by == ResetSender::Client { "client" } else { "server" };
        let name = format!("reset by {by} {}", reset.error_code);
        add("", name, Some(reset.ms), EventKind::Reset);
    }
    events.sort_by(|a, b| a.ms.total_cmp(&b.ms));
    events
}

/// `stream 1  /early?ms=80`, and what belongs to the stream rather than to a single time.
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

/// The note on streams that are not shown.
pub fn left_off(summary: &TimelineSummary) -> Option<String> {
    (summary.left_off > 0).then(|| {
        format!(
            "{} not shown: only the first 1,000 of a run are kept",
            plural(summary.left_off.into(), "more stream")
        )
    })
}
