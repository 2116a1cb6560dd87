//! LOSS104: the server holds a small segment back until an acknowledgement comes, at once or delayed.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::loss::LOSS104 as META;
use crate::diagnose::{Case, Confidence, Evidence, Finding, Repetition, Rule};
use h2lab_base::counts::plural;
use h2lab_base::units::{Time, measured_time, millis_f64};
use h2lab_model::experiment;
use h2lab_model::record::{CellRecord, Sample};
use h2lab_model::settings::Knob;
use h2lab_wire::trace::{Direction, FrameKind};

/// The least time for which Linux delays an acknowledgement (`TCP_DELACK_MIN`), with a timer that is up to two ticks
/// late.
const DELAYED: RangeInclusive<Duration> = Duration::from_millis(36)..=Duration::from_millis(48);
/// A pause of a response that exceeds the round trip by no more than this may come from the scheduling of processes.
const SHORT: Duration = Duration::from_millis(10);
/// How far the arrival of the held segment may be from one round trip after the acknowledgement.
const PROMPT: Duration = Duration::from_millis(4);
/// At many requests per second one of them is near any time. For most pauses there must be none at this much earlier
/// time.
const ELSEWHERE: Duration = Duration::from_millis(12);
/// Fewer pauses may be chance.
const LEAST: usize = 20;
/// This share of all longer pauses must have this length: the pauses of a handler vary, or have another length.
const ALIKE: f64 = 0.8;

/// Payload bytes of a message that fits one segment: 1,448 with the timestamps of TCP, less the overhead of frames and
/// TLS.
const SMALL: u32 = 1_400;
/// Over a shorter round trip the delay of any handler may be as long.
const LEAST_RTT: Duration = Duration::from_millis(2);
/// How far the time from head to body may be from a round trip, as a part of that.
const OFF: f64 = 0.15;
/// Over short round trips it may be this far: processes are not woken more exactly.
const OFF_TIME: Duration = Duration::from_micros(500);
/// Fewer bodies that are a round trip late may be chance.
const LEAST_BODIES: usize = 10;
/// This share of all small responses must have such a body. Where the client's kernel delays some of its
/// acknowledgements, the others are later.
const MOST: f64 = 0.6;

/// The rule.
#[derive(Debug)]
pub(super) struct NagleDelayedAck;

impl Rule for NagleDelayedAck {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let cell = case.cell();
        if !cell.protocol.is_multiplexed() || cell.protocol.is_quic() {
            return Vec::new();
        }
        let within = case.repetitions.iter().flat_map(pauses).collect();
        let found = of_pauses(case, within, "in the middle of a response");
        // For other reasons, too, a server may answer only when the next request arrives; then it does so over HTTP/1.1
        // as well.
        let is_slower = case.against.as_ref().is_some_and(|against| against.verdict.is_slower());
        let whole =
            || of_pauses(case, case.repetitions.iter().flat_map(withheld).collect(), "before a response");
        let found = found.or_else(|| of_bodies(case));
        found.or_else(|| is_slower.then(whole).flatten()).into_iter().collect()
    }
}

/// The finding, if there are enough of these pauses, they are of one kind, and they cost enough.
fn of_pauses(case: &Case<'_>, pauses: Vec<Pause>, place: &str) -> Option<Finding> {
    let all = pauses.len();
    let held: Vec<Pause> = pauses.into_iter().filter(|pause| pause.is_held).collect();
    let is_alike = held.len() as f64 >= ALIKE * all as f64;
    let is_chance = held.iter().filter(|pause| pause.is_near_any).count() * 2 > held.len();
    let is_it = held.len() >= LEAST && is_alike && !is_chance && case.is_worth_time(total(&held));
    let symptom = || {
        format!(
            "{} {place}, {} on average: a round trip and the 40 ms for which an acknowledgement is delayed, or \
             less if a request takes it along; the server holds its next segment back until that comes",
            plural(held.len() as u64, "pause"),
            measured_time(average(&held))
        )
    };
    is_it.then(|| Finding {
        symptom: symptom(),
        ..finding(
            case,
            &held,
            "pauses until an acknowledgement, delayed or with a request",
            "waiting for a segment that the server held back until a delayed acknowledgement",
        )
    })
}

/// The finding, if the bodies of most small responses were held back until the client had acknowledged the head, which
/// it does at once. Behind a sidecar that may be a matter of another hop.
fn of_bodies(case: &Case<'_>) -> Option<Finding> {
    if case.cell().sidecar.is_some() {
        return None;
    }
    let all: Vec<Pause> = case.repetitions.iter().flat_map(bodies).collect();
    let held: Vec<Pause> = all.iter().copied().filter(|pause| pause.is_held).collect();
    let is_most = held.len() as f64 >= MOST * all.len() as f64;
    let is_it = held.len() >= LEAST_BODIES && is_most && case.is_worth_time(total(&held));
    let symptom = || {
        format!(
            "the bodies of {} came one round trip after their heads, {} on average: the client acknowledges a \
             head at once, and the server holds the body back until that comes",
            plural(held.len() as u64, "small response"),
            measured_time(average(&held))
        )
    };
    is_it.then(|| Finding {
        symptom: symptom(),
        unaffected_by: Some(experiment::Knob::QuickAcks),
        ..finding(
            case,
            &held,
            "pauses of one round trip between head and body",
            "waiting for a body that the server held back until its head was acknowledged",
        )
    })
}

/// How long these pauses are together.
fn total(held: &[Pause]) -> Duration {
    held.iter().map(|pause| pause.length).sum()
}

/// How long these pauses are on average.
fn average(held: &[Pause]) -> Duration {
    total(held) / u32::try_from(held.len()).unwrap_or(u32::MAX).max(1)
}

/// A time in which nothing came on a connection although a response had begun.
#[derive(Debug, Clone, Copy)]
struct Pause {
    connection: u32,
    begin: Time,
    length: Duration,
    /// The pause is as long as a delayed acknowledgement and a round trip, and that acknowledgement is in the packet
    /// log if there is one; or the pause ended a round trip after a request, which carried the acknowledgement before
    /// its timer expired. Or it is a round trip between head and body of a small response.
    is_held: bool,
    /// The pause was ended by a request, and there is another request at a time where none has to be.
    is_near_any: bool,
}

/// The pauses of a repetition that are longer than a round trip.
fn pauses(repetition: &Repetition<'_>) -> Vec<Pause> {
    let (record, facts) = (repetition.record, repetition.facts());
    let acks = facts.has_packet_log.then(|| acknowledgements(repetition));
    let requests = requests(record);
    // For each connection the last frame that arrived: its stream, and when.
    let mut last: BTreeMap<u32, (u32, Time)> = BTreeMap::new();
    let mut pauses = Vec::new();
    for frame in record.frames.iter().filter(|frame| frame.direction == Direction::Down) {
        let before = last.insert(frame.connection, (frame.stream.0, frame.at));
        let is_body = frame.kind == FrameKind::DATA && frame.stream.0 > 0;
        let Some((_, begin)) = before.filter(|(stream, _)| is_body && *stream == frame.stream.0) else {
            continue;
        };
        let length = frame.at.since(begin);
        let delay = length.saturating_sub(facts.rtt);
        if delay <= SHORT {
            continue;
        }
        // Whether one of these times is after the beginning of the pause and a round trip before its end.
        let ends = frame.at - facts.rtt;
        let is_ended_by = |all: &BTreeMap<u32, Vec<Time>>| {
            near(all, frame.connection, ends).is_some_and(|at| at > begin + SHORT)
        };
        let is_delayed = DELAYED.contains(&delay) && acks.as_ref().is_none_or(is_ended_by);
        let is_held = is_delayed || delay < *DELAYED.start() && is_ended_by(&requests);
        let is_near_any = !is_delayed && near(&requests, frame.connection, ends - ELSEWHERE).is_some();
        pauses.push(Pause { connection: frame.connection, begin, length, is_held, is_near_any });
    }
    pauses
}

/// The times for which whole responses were late, beyond a round trip. They were held if they arrived a round trip
/// after a later request, which acknowledged what the server had sent before.
fn withheld(repetition: &Repetition<'_>) -> Vec<Pause> {
    let (record, rtt) = (repetition.record, repetition.facts().rtt);
    let requests = requests(record);
    let of = |sample: Sample| {
        let (begin, at) = (sample.sent_at + rtt, sample.first_byte_at);
        let length = at.since(begin);
        // One that was sent again is late for that reason.
        let is_first = sample.sent_at.happened() && sample.replays == 0;
        if !at.happened() || !is_first || length <= SHORT {
            return None;
        }
        // If a response was in flight when this request was sent, its acknowledgement is delayed from its arrival on.
        let is_possible = length <= rtt + *DELAYED.end();
        let ended_by = near(&requests, sample.connection, at - rtt);
        let is_held = is_possible && ended_by.is_some_and(|sent| sent > sample.sent_at + SHORT);
        let is_near_any = near(&requests, sample.connection, at - rtt - ELSEWHERE).is_some();
        Some(Pause { connection: sample.connection, begin, length, is_held, is_near_any })
    };
    record.samples.iter().filter_map(of).collect()
}

/// A message exchange, as its frames show it.
#[derive(Debug, Default)]
struct Exchange {
    /// When the head of the final response came.
    head: Option<Time>,
    /// When the first piece of its body came.
    body: Option<Time>,
    /// Bytes of the response's body.
    received: u32,
    /// Bytes of the request's body.
    sent: u32,
}

/// For each small response with a body, the time from its head to the body. A request with a body of several segments
/// does not count: a server may begin its response before all of them have come.
fn bodies(repetition: &Repetition<'_>) -> Vec<Pause> {
    let (record, facts) = (repetition.record, repetition.facts());
    let rtt = facts.rtt;
    if rtt < LEAST_RTT {
        return Vec::new();
    }
    let off = rtt.mul_f64(OFF).max(OFF_TIME);
    let acks = facts.has_packet_log.then(|| acknowledgements(repetition));
    let of = |((connection, _), exchange): ((u32, u32), Exchange)| {
        let (begin, end) = exchange.head.zip(exchange.body)?;
        if exchange.sent.max(exchange.received) > SMALL {
            return None;
        }
        let length = end.since(begin);
        let is_acknowledged = acks.as_ref().is_none_or(|acks| near(acks, connection, end - rtt).is_some());
        let is_held = length.abs_diff(rtt) <= off && is_acknowledged;
        Some(Pause { connection, begin, length, is_held, is_near_any: false })
    };
    exchanges(record).into_iter().filter_map(of).collect()
}

/// The exchanges of a repetition, by connection and stream.
fn exchanges(record: &CellRecord) -> BTreeMap<(u32, u32), Exchange> {
    let mut exchanges: BTreeMap<(u32, u32), Exchange> = BTreeMap::new();
    for frame in record.frames.iter().filter(|frame| frame.stream.0 > 0) {
        let one = exchanges.entry((frame.connection, frame.stream.0)).or_default();
        match (frame.direction, frame.kind) {
            (Direction::Up, FrameKind::DATA) => one.sent = one.sent.saturating_add(frame.length),
            (Direction::Down, FrameKind::DATA) => {
                one.received = one.received.saturating_add(frame.length);
                one.body = one.body.or(Some(frame.at));
            }
            // Heads before the last one are interim, and one after the body has trailers.
            (Direction::Down, FrameKind::HEADERS) if one.body.is_none() => one.head = Some(frame.at),
            _ => {}
        }
    }
    exchanges
}

/// The first of a connection's times that is near enough to `time` to have ended a pause.
fn near(all: &BTreeMap<u32, Vec<Time>>, connection: u32, time: Time) -> Option<Time> {
    let its = all.get(&connection)?;
    let first = its.partition_point(|at| *at + PROMPT < time);
    its.get(first).copied().filter(|at| *at <= time + PROMPT)
}

/// When the client sent requests, by connection, in order.
fn requests(record: &CellRecord) -> BTreeMap<u32, Vec<Time>> {
    let mut requests: BTreeMap<u32, Vec<Time>> = BTreeMap::new();
    for sample in record.samples.iter().filter(|sample| sample.sent_at.happened()) {
        requests.entry(sample.connection).or_default().push(sample.sent_at);
    }
    for times in requests.values_mut() {
        times.sort_unstable();
    }
    requests
}

/// When the client sent segments without data, by connection.
fn acknowledgements(repetition: &Repetition<'_>) -> BTreeMap<u32, Vec<Time>> {
    let record = repetition.record;
    let ports: BTreeMap<u16, u32> =
        record.connections.iter().map(|one| (one.local_port, one.index)).collect();
    let mut acks: BTreeMap<u32, Vec<Time>> = BTreeMap::new();
    let bare =
        record.packets.iter().filter(|packet| packet.direction == Direction::Up && packet.payload == 0);
    for packet in bare {
        if let Some(connection) = ports.get(&packet.client_port) {
            acks.entry(*connection).or_default().push(packet.at);
        }
    }
    acks
}

/// The finding without its symptom. `what` names the pauses, `how` the time spent in them.
fn finding(case: &Case<'_>, held: &[Pause], what: &str, how: &str) -> Finding {
    let is_seen = case.repetitions.iter().all(|repetition| repetition.facts().has_packet_log);
    let longest = held.iter().max_by_key(|pause| pause.length);
    let pauses = Evidence::new(what, held.len() as f64, "pauses");
    Finding {
        evidence: vec![
            longest.map_or_else(|| pauses.clone(), |pause| pauses.clone().seen(pause.connection, pause.begin)),
            Evidence::new("their length, on average", millis_f64(average(held)), "ms"),
        ],
        confidence: if is_seen { Confidence::Observed } else { Confidence::Inferred },
        fixes: vec![case.advise(Knob::NoDelay, None)],
        confirm: "set TCP_NODELAY at the server, or have it send the head and the body in one write, and run `h2lab diagnose \
                  --again latest`: the pauses must go"
            .to_owned(),
        ..case.finding(&META, total(held), how)
    }
}
