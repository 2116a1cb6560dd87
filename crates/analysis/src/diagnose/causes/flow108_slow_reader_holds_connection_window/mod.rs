//! FLOW108: one response that the client does not read uses up the connection window, and the others wait.
//!
//! For request bodies the client cannot distinguish a server that did not read from data that was still in flight.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use super::flow::FLOW108 as META;
use super::flow101_download_stream_window::fix;
use super::views::spans::Spans;
use super::views::waiting::Waiting;
use super::views::windows::{DEFAULT_WINDOW, SPENT, initial_window};
use crate::diagnose::{Case, Confidence, Evidence, Finding, Repetition, Rule};
use h2lab_base::counts::plural;
use h2lab_base::units::{Time, format_bytes, measured_time, millis_f64};
use h2lab_model::Fix;
use h2lab_model::record::{CellRecord, ConnectionRecord};
use h2lab_model::settings::Knob;
use h2lab_wire::trace::{Direction, FrameEvent, FrameKind};

/// The part of the connection window that one stream must hold.
const HELD: f64 = 0.8;
/// A client that reads returns credit sooner than this after the data arrived, or within two round trips.
const LEAST: Duration = Duration::from_millis(50);
/// The advised window is this many times the present one: this many streams can continue whose readers stop.
const STREAMS: u64 = 16;
/// The smallest connection window that is advised.
const LEAST_WINDOW: u64 = 16 << 20;

/// The rule.
#[derive(Debug)]
pub(super) struct SlowReader;

impl Rule for SlowReader {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let protocol = case.cell().protocol;
        if protocol.is_quic() || !protocol.is_multiplexed() {
            return Vec::new();
        }
        finding(case, &Found::of(case)).into_iter().collect()
    }
}

/// A time in which a connection had no credit, and one stream held most of the window.
#[derive(Debug, Clone, Copy)]
struct Hold {
    connection: u32,
    stream: u32,
    begin: Time,
    end: Time,
    /// The size of the connection window in bytes, and how much of it the stream held.
    window: u64,
    held: u64,
}

impl Hold {
    const fn duration(&self) -> Duration {
        self.end.since(self.begin)
    }
}

/// The holds of a cell, and what they cost.
#[derive(Debug, Default)]
struct Found {
    holds: Vec<Hold>,
    /// Other requests that waited meanwhile.
    waiting: Waiting,
    stream_window: u64,
}

impl Found {
    fn of(case: &Case<'_>) -> Self {
        let mut found = Self::default();
        case.repetitions.iter().for_each(|repetition| found.add(repetition));
        found
    }

    fn add(&mut self, repetition: &Repetition<'_>) {
        let (record, facts) = (repetition.record, repetition.facts());
        let holds = holds(record, facts.rtt);
        let [of_all, of_stream] =
            [|_: &Hold| None, |hold: &Hold| Some(hold.stream)].map(|of| spans(&holds, of));
        for sample in record.samples.iter().filter(|sample| sample.sent_at.happened()) {
            // Before that the request had nothing to wait for.
            let due = sample.sent_at + facts.quickest;
            let during = |of: &BTreeMap<(u32, Option<u32>), Spans>, stream: Option<u32>| {
                let spans = of.get(&(sample.connection, stream));
                spans.map_or(Duration::ZERO, |spans| spans.within(due, sample.completed_at))
            };
            let own = during(&of_stream, Some(sample.stream.0));
            self.waiting.add(during(&of_all, None).saturating_sub(own));
        }
        let windows = record.connections.iter().map(|connection| initial_window(connection, Direction::Down));
        self.stream_window = windows.fold(self.stream_window, u64::max);
        self.holds.extend(holds);
    }
}

/// When the window of each connection was held, with the stream that `of` returns as part of the key: there may be many
/// holds, and many more requests.
fn spans(holds: &[Hold], of: fn(&Hold) -> Option<u32>) -> BTreeMap<(u32, Option<u32>), Spans> {
    let mut spans: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for hold in holds {
        spans.entry((hold.connection, of(hold))).or_default().push((hold.begin, hold.end));
    }
    spans.into_iter().map(|(of, spans)| (of, Spans::of(spans))).collect()
}

/// The holds of a repetition over a path with this round trip.
fn holds(record: &CellRecord, rtt: Duration) -> Vec<Hold> {
    let connections = record.connections.iter();
    let mut shared: BTreeMap<u32, Shared> =
        connections.map(|connection| (connection.index, Shared::new(connection))).collect();
    let mut last = Time::ZERO;
    for frame in &record.frames {
        last = last.max(frame.at);
        if let Some(shared) = shared.get_mut(&frame.connection) {
            shared.see(frame);
        }
    }
    let all = shared.into_values().flat_map(|shared| shared.ended(last));
    all.filter(|hold| hold.duration() >= LEAST.max(rtt * 2)).collect()
}

/// A connection's window for responses, and which streams have used it.
#[derive(Debug)]
struct Shared {
    connection: u32,
    credit: i64,
    /// The most credit that there was at any time.
    window: i64,
    /// For each open stream: bytes of DATA whose credit has not been returned.
    held: BTreeMap<u32, i64>,
    open: Option<Hold>,
    holds: Vec<Hold>,
}

impl Shared {
    fn new(connection: &ConnectionRecord) -> Self {
        let window = DEFAULT_WINDOW.cast_signed();
        Self {
            connection: connection.index,
            credit: window,
            window,
            held: BTreeMap::new(),
            open: None,
            holds: Vec::new(),
        }
    }

    fn see(&mut self, frame: &FrameEvent) {
        let is_data = frame.kind == FrameKind::DATA && frame.direction == Direction::Down;
        let is_credit = frame.kind == FrameKind::WINDOW_UPDATE && frame.direction == Direction::Up;
        if is_data {
            self.credit -= i64::from(frame.length);
            *self.held.entry(frame.stream.0).or_default() += i64::from(frame.length);
        } else if is_credit && frame.stream.0 > 0 {
            // An increase of a window at the beginning does not return credit for data that arrived.
            if let Some(held) = self.held.get_mut(&frame.stream.0) {
                *held = (*held - i64::from(frame.value)).max(0);
            }
        } else if is_credit {
            self.credit += i64::from(frame.value);
            self.window = self.window.max(self.credit);
        }
        if is_credit && (self.credit >= SPENT || self.is_read(frame)) {
            self.end(frame.at);
        }
        if is_data && self.credit < SPENT && self.open.is_none() {
            self.open = self.begin(frame.at);
        }
        // Clients return no stream credit once the stream has ended: from then on it is not known what it held.
        if frame.direction == Direction::Down && (frame.ends_stream() || frame.kind == FrameKind::RST_STREAM)
        {
            self.held.remove(&frame.stream.0);
        }
    }

    /// Whether this frame returns credit to the stream that holds the window.
    fn is_read(&self, frame: &FrameEvent) -> bool {
        self.open.is_some_and(|open| open.stream == frame.stream.0)
    }

    /// The window has just been used up: the hold, if one stream has most of it.
    fn begin(&self, at: Time) -> Option<Hold> {
        let (stream, held) = self.held.iter().max_by_key(|(_, held)| **held)?;
        let is_one = *held as f64 >= HELD * self.window as f64;
        is_one.then(|| Hold {
            connection: self.connection,
            stream: *stream,
            begin: at,
            end: at,
            window: self.window.max(0).cast_unsigned(),
            held: (*held).max(0).cast_unsigned(),
        })
    }

    fn end(&mut self, at: Time) {
        self.holds.extend(self.open.take().map(|open| Hold { end: at, ..open }));
    }

    /// All holds; one that is still open ends with the record.
    fn ended(mut self, last: Time) -> Vec<Hold> {
        self.end(last);
        self.holds
    }
}

fn finding(case: &Case<'_>, found: &Found) -> Option<Finding> {
    let longest = found.holds.iter().max_by_key(|hold| hold.duration())?;
    if !case.is_worth_time(found.waiting.time) {
        return None;
    }
    let mut evidence = Evidence::list([
        (
            "times in which the connection had no credit and one stream held it",
            found.holds.len() as f64,
            "times",
        ),
        ("bytes of the connection window", longest.window as f64, "bytes"),
        ("of them held by that stream", longest.held as f64, "bytes"),
        ("requests that waited meanwhile", found.waiting.requests as f64, "requests"),
    ]);
    let duration = Evidence::new("the longest", millis_f64(longest.duration()), "ms");
    evidence.insert(1, duration.seen(longest.connection, longest.begin));
    let large = (found.stream_window.max(longest.window) * STREAMS).clamp(LEAST_WINDOW, i32::MAX as u64);
    let how = "without credit for the connection, which a stream held that nobody read";
    Some(Finding {
        symptom: format!(
            "the client did not read a response (stream {}) for {}, which held {} of the connection window of {}: {} waited",
            longest.stream,
            measured_time(longest.duration()),
            format_bytes(longest.held),
            format_bytes(longest.window),
            plural(found.waiting.requests, "other request"),
        ),
        evidence,
        // That the application did not read is concluded from the missing credit.
        confidence: Confidence::Inferred,
        fixes: vec![
            Fix::new(
                "client",
                "responses are read as they come, or their streams are reset",
                "what is not read holds credit of all streams; a transfer that may pause has a connection of its own",
            ),
            fix(Knob::ConnectionWindow, large),
        ],
        confirm: case.compare(&format!("-W {large}"))
            + ": with a connection window for several streams the others must go on while one is not read",
        ..case.finding(&META, found.waiting.time, how)
    })
}
