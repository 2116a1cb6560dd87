//! MUX107: pushed responses arrive while requests wait for their own responses.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::mux::MUX107 as META;
use super::views::spans::Spans;
use crate::diagnose::{Case, Confidence, Evidence, Finding, Repetition, Rule};
use h2lab_base::counts::{count, plural};
use h2lab_base::units::{Time, format_bytes, millis_f64};
use h2lab_model::Fix;
use h2lab_model::record::{CellRecord, ConnectionRecord};
use h2lab_model::settings::Knob;
use h2lab_wire::trace::{Direction, FrameEvent, FrameKind};

/// Pushed bytes below this share of all body bytes cause no notable delay.
const LEAST_BYTES: f64 = 0.2;

/// The rule.
#[derive(Debug)]
pub(super) struct WastedPush;

impl Rule for WastedPush {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let protocol = case.cell().protocol;
        if protocol.is_quic() || !protocol.is_multiplexed() {
            return Vec::new();
        }
        let mut pushed = Pushed::default();
        for repetition in &case.repetitions {
            pushed.add(repetition);
        }
        let is_much = pushed.bytes as f64 >= pushed.all_bytes as f64 * LEAST_BYTES;
        if !is_much || !case.is_worth_time(pushed.waited) {
            return Vec::new();
        }
        vec![finding(case, &pushed)]
    }
}

/// DATA that the server sent without a request.
fn is_pushed(frame: &FrameEvent) -> bool {
    is_body(frame) && frame.stream.0.is_multiple_of(2)
}

fn is_body(frame: &FrameEvent) -> bool {
    frame.kind == FrameKind::DATA && frame.direction == Direction::Down
}

/// What was pushed in a cell, and what that cost.
#[derive(Debug, Default)]
struct Pushed {
    responses: u64,
    bytes: u64,
    /// Bytes of all bodies.
    all_bytes: u64,
    /// How long requests whose responses were due waited while pushed bytes arrived.
    waited: Duration,
    /// The number of requests that waited.
    delayed: u64,
}

impl Pushed {
    fn add(&mut self, repetition: &Repetition<'_>) {
        let record = repetition.record;
        let bytes = |of: fn(&FrameEvent) -> bool| {
            record.frames.iter().filter(|frame| of(frame)).map(|frame| u64::from(frame.length)).sum::<u64>()
        };
        self.bytes += bytes(is_pushed);
        self.all_bytes += bytes(is_body);
        self.responses += record.connections.iter().map(promises).sum::<u64>();
        let facts = repetition.facts();
        let spans = spans(record, facts.rtt);
        for sample in record.samples.iter().filter(|sample| sample.sent_at.happened()) {
            let Some(spans) = spans.get(&sample.connection) else { continue };
            let waited = spans.within(sample.sent_at + facts.quickest, sample.completed_at);
            self.waited += waited;
            self.delayed += u64::from(!waited.is_zero());
        }
    }
}

fn promises(connection: &ConnectionRecord) -> u64 {
    connection.counters.frames_received[usize::from(FrameKind::PUSH_PROMISE.0)]
}

/// The times in which pushed bytes left the link, by connection: each frame takes as long as the link needs for it, but
/// at most the time since the frame before it.
fn spans(record: &CellRecord, rtt: Duration) -> BTreeMap<u32, Spans> {
    let mut spans: BTreeMap<u32, Vec<(Time, Time)>> = BTreeMap::new();
    let rate = rate(record, rtt);
    let mut last: BTreeMap<u32, Time> = BTreeMap::new();
    for frame in record.frames.iter().filter(|frame| frame.direction == Direction::Down) {
        let before = last.insert(frame.connection, frame.at);
        if let (Some(before), Some(rate)) = (before.filter(|_| is_pushed(frame)), rate) {
            let takes = Duration::from_secs_f64(f64::from(frame.length) / rate);
            let begin = before.max(frame.at - takes);
            spans.entry(frame.connection).or_default().push((begin, frame.at));
        }
    }
    spans.into_iter().map(|(connection, spans)| (connection, Spans::of(spans))).collect()
}

/// Bytes per second of the downlink: its bandwidth, else the most that arrived in one round trip. `None` if nothing is
/// known about it.
fn rate(record: &CellRecord, rtt: Duration) -> Option<f64> {
    if let Some(bandwidth) = record.cell.link.as_ref().and_then(|link| link.downlink.bandwidth) {
        return Some(bandwidth.bits_per_second() as f64 / 8.0).filter(|rate| *rate > 0.0);
    }
    let mut most = 0;
    let mut inside: u64 = 0;
    // Frames of a capture may be out of order: only lengths that were added are subtracted.
    let mut recent: VecDeque<(Time, u64)> = VecDeque::new();
    for frame in record.frames.iter().filter(|frame| is_body(frame)) {
        inside += u64::from(frame.length);
        recent.push_back((frame.at, frame.length.into()));
        while recent.front().is_some_and(|(at, _)| *at + rtt <= frame.at) {
            inside -= recent.pop_front().map_or(0, |(_, length)| length);
        }
        most = most.max(inside);
    }
    (most > 0 && !rtt.is_zero()).then(|| most as f64 / rtt.as_secs_f64())
}

fn finding(case: &Case<'_>, pushed: &Pushed) -> Finding {
    let share = pushed.bytes as f64 * 100.0 / pushed.all_bytes.max(1) as f64;
    Finding {
        symptom: format!(
            "{:.0} % of all bytes of bodies were pushed ({} in {}) and no request asked for them; {} of {} waited meanwhile",
            share,
            format_bytes(pushed.bytes),
            plural(pushed.responses, "response"),
            count(pushed.delayed),
            plural(case.samples().count() as u64, "request"),
        ),
        evidence: vec![
            Evidence::new("responses that the server promised", pushed.responses as f64, "responses"),
            Evidence::new("bytes of them that came", pushed.bytes as f64, "bytes"),
            Evidence::new("their part of all bytes of bodies", share, "%"),
            Evidence::new("time that due responses waited for these", millis_f64(pushed.waited), "ms"),
        ],
        confidence: Confidence::Observed,
        fixes: vec![
            case.advise(Knob::Push, None),
            Fix::new(
                "client",
                "SETTINGS_ENABLE_PUSH 0 (ours: without --push)",
                "the server must not push then (RFC 9113 §8.4); 103 with Link fields says what will be needed",
            ),
        ],
        confirm: "run the same cell without --push: our client refuses pushes, and responses come earlier"
            .to_owned(),
        ..case.finding(&META, pushed.waited, "while pushed bytes arrived that nobody had asked for")
    }
}
