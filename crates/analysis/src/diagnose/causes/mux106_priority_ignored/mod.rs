//! MUX106: DATA of less urgent responses arrives between the DATA of an urgent one, although the client stated their
//! priorities.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::mux::MUX106 as META;
use crate::diagnose::{Case, Confidence, Evidence, Finding, Repetition, Rule};
use h2lab_base::counts::{count, plural};
use h2lab_base::units::{Time, format_bytes, millis_f64};
use h2lab_model::Fix;
use h2lab_model::record::{CellRecord, ConnectionRecord, Sample};
use h2lab_model::settings::Knob;
use h2lab_wire::Priority;
use h2lab_wire::trace::{Direction, FrameEvent, FrameKind};

/// Fewer responses may be chance.
const LEAST: u64 = 3;
/// An urgent response that gets less than this part of an equal share had no more data to send: others may fill the
/// link.
const SHARE: f64 = 0.5;

/// The rule.
#[derive(Debug)]
pub(super) struct PriorityIgnored;

impl Rule for PriorityIgnored {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let protocol = case.cell().protocol;
        if protocol.is_quic() || !protocol.is_multiplexed() {
            return Vec::new();
        }
        let mut found = Found::default();
        case.repetitions.iter().for_each(|repetition| found.add(repetition));
        // Only the urgent requests are affected: beside many others their time is a small part of the total.
        if found.mixed < LEAST || !case.is_worth(found.share_of_urgent()) {
            return Vec::new();
        }
        vec![finding(case, &found)]
    }
}

/// A response of which some DATA has arrived, and what arrived between its parts.
#[derive(Debug)]
struct Response {
    urgency: u8,
    begun: Time,
    /// When its latest DATA arrived.
    last: Time,
    bytes: u64,
    /// Bytes since then: of less urgent responses, and of all responses.
    pending: [u64; 2],
    /// The same between its first DATA and its last.
    between: [u64; 2],
    lazy_streams: BTreeSet<u32>,
}

impl Response {
    /// How long less urgent responses kept it waiting: the same share of the time as they have of the bytes.
    fn waited(&self) -> Duration {
        let [lazy, all] = self.between;
        self.last.since(self.begun).mul_f64(lazy as f64 / all.max(1) as f64)
    }
}

/// What arrived in a cell.
#[derive(Debug, Default)]
struct Found {
    /// Urgent responses between whose DATA frames those of less urgent ones arrived.
    mixed: u64,
    /// Bytes of the less urgent ones.
    bytes: u64,
    waited: Duration,
    /// The response time of all requests that were more urgent than others of their connection.
    urgent: Duration,
    urgencies: BTreeSet<u8>,
    longest: Option<(u32, u32, Time, Duration)>,
}

impl Found {
    /// The part of the urgent requests' response time that less urgent ones took, 0 to 1.
    fn share_of_urgent(&self) -> f64 {
        if self.urgent.is_zero() { 0.0 } else { self.waited.as_secs_f64() / self.urgent.as_secs_f64() }
    }

    fn add(&mut self, repetition: &Repetition<'_>) {
        let record = repetition.record;
        // A response without credit could not be sent before the others.
        let stopped: BTreeSet<(u32, u32)> =
            repetition.stops().iter().map(|stop| (stop.connection, stop.stream)).collect();
        let stating = record.connections.iter().filter(|connection| !connection.http.priorities.is_empty());
        let mut lines: BTreeMap<u32, Line> =
            stating.map(|connection| (connection.index, Line::of(connection))).collect();
        self.urgent += urgent_time(record, &lines);
        for frame in record.frames.iter().filter(|frame| frame.direction == Direction::Down) {
            let Some(line) = lines.get_mut(&frame.connection) else { continue };
            let Some(response) = line.see(frame) else { continue };
            if !stopped.contains(&(frame.connection, frame.stream.0)) {
                self.count(frame.connection, frame.stream.0, &response);
            }
        }
    }

    fn count(&mut self, connection: u32, stream: u32, response: &Response) {
        let (bytes, time) = (response.between[0], response.waited());
        let equal = bytes as f64 / response.lazy_streams.len().max(1) as f64;
        if bytes == 0 || (response.bytes as f64) < SHARE * equal {
            return;
        }
        self.mixed += 1;
        self.bytes += bytes;
        self.waited += time;
        self.urgencies.insert(response.urgency);
        if self.longest.is_none_or(|(.., longest)| time > longest) {
            self.longest = Some((connection, stream, response.begun, time));
        }
    }
}

/// The response time of the requests that are more urgent than the least urgent one of their connection.
fn urgent_time(record: &CellRecord, lines: &BTreeMap<u32, Line>) -> Duration {
    let of =
        |sample: &Sample| Some((sample.connection, lines.get(&sample.connection)?.urgency(sample.stream.0)));
    let mut least: BTreeMap<u32, u8> = BTreeMap::new();
    for (connection, urgency) in record.samples.iter().filter_map(|sample| of(&sample)) {
        let known = least.entry(connection).or_default();
        *known = urgency.max(*known);
    }
    let is_urgent =
        |sample: &Sample| of(sample).is_some_and(|(connection, urgency)| urgency < least[&connection]);
    record.samples.iter().filter(is_urgent).map(|sample| sample.response_time()).sum()
}

/// A connection's responses while their DATA arrives.
#[derive(Debug)]
struct Line {
    urgencies: BTreeMap<u32, u8>,
    open: BTreeMap<u32, Response>,
}

impl Line {
    fn of(connection: &ConnectionRecord) -> Self {
        Self { urgencies: connection.http.priorities.iter().copied().collect(), open: BTreeMap::new() }
    }

    fn urgency(&self, stream: u32) -> u8 {
        self.urgencies.get(&stream).copied().unwrap_or(Priority::DEFAULT_URGENCY)
    }

    /// Processes the next frame; returns the response that ends with it.
    fn see(&mut self, frame: &FrameEvent) -> Option<Response> {
        let stream = frame.stream.0;
        if frame.kind == FrameKind::DATA && frame.length > 0 {
            self.data(stream, frame);
        }
        let is_over = frame.ends_stream() || frame.kind == FrameKind::RST_STREAM;
        if is_over { self.open.remove(&stream).filter(|_| frame.ends_stream()) } else { None }
    }

    fn data(&mut self, stream: u32, frame: &FrameEvent) {
        let urgency = self.urgency(stream);
        let bytes = u64::from(frame.length);
        for response in self.open.values_mut() {
            response.pending[1] += bytes;
            if response.urgency < urgency {
                response.pending[0] += bytes;
                response.lazy_streams.insert(stream);
            }
        }
        let own = self.open.entry(stream).or_insert_with(|| Response {
            urgency,
            begun: frame.at,
            last: frame.at,
            bytes: 0,
            pending: [0; 2],
            between: [0; 2],
            lazy_streams: BTreeSet::new(),
        });
        own.bytes += bytes;
        own.last = frame.at;
        // This response had more to send at that time, and others were sent before it.
        let pending = std::mem::take(&mut own.pending);
        own.between.iter_mut().zip(pending).for_each(|(all, new)| *all += new);
    }
}

fn finding(case: &Case<'_>, found: &Found) -> Finding {
    let mut evidence = vec![
        Evidence::new(
            "urgent responses between whose DATA that of less urgent ones came",
            found.mixed as f64,
            "responses",
        ),
        Evidence::new("bytes of less urgent responses between it", found.bytes as f64, "bytes"),
    ];
    if let Some((connection, stream, at, time)) = found.longest {
        let what = format!("the longest time that these took, of stream {stream}");
        evidence.push(Evidence::new(&what, millis_f64(time), "ms").seen(connection, at));
    }
    let finding = case.finding(
        &META,
        found.waited,
        "while less urgent responses came between the parts of urgent ones",
    );
    Finding {
        cost: format!(
            "{}: {:.0} % of the time of the urgent requests",
            finding.cost,
            found.share_of_urgent() * 100.0
        ),
        symptom: format!(
            "{} of urgency {} came mixed with less urgent ones: {} of those came between their DATA, although the `priority` field \
             of each request said which goes first",
            plural(found.mixed, "response"),
            words(&found.urgencies),
            format_bytes(found.bytes),
        ),
        evidence,
        // That the rest of an urgent response was ready is concluded from how much of it arrived meanwhile.
        confidence: Confidence::Inferred,
        fixes: vec![
            case.advise(Knob::Priorities, None),
            Fix::new(
                "client",
                "a connection of its own for what is urgent",
                "a server that ignores priorities shares each connection among all of its responses",
            ),
        ],
        confirm: "the same requests to a server that follows RFC 9218 (`h2lab origin`): urgent responses must come whole".to_owned(),
        ..finding
    }
}

/// `0, 1 and 2`.
fn words(urgencies: &BTreeSet<u8>) -> String {
    let each: Vec<String> = urgencies.iter().map(|urgency| count(u64::from(*urgency))).collect();
    match each.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => each.concat(),
    }
}
