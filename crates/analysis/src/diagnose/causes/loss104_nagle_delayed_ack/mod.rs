//! LOSS104: the server holds a small segment back until a delayed acknowledgement comes.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::loss::LOSS104 as META;
use crate::diagnose::{Case, Confidence, Evidence, Finding, Repetition, Rule};
use h2lab_base::counts::plural;
use h2lab_base::units::{Time, measured_time, millis_f64};
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
        found.or_else(|| is_slower.then(whole).flatten()).into_iter().collect()
    }
}

/// The finding, if there are enough of these pauses, they are of one kind, and they cost enough.
fn of_pauses(case: &Case<'_>, pauses: Vec<Pause>, place: &str) -> Option<Finding> {
    let all = pauses.len();
    let held: Vec<Pause> = pauses.into_iter().filter(|pause| pause.is_held).collect();
    let time: Duration = held.iter().map(|pause| pause.length).sum();
    let is_alike = held.len() as f64 >= ALIKE * all as f64;
    let is_chance = held.iter().filter(|pause| pause.is_near_any).count() * 2 > held.len();
    let is_it = held.len() >= LEAST && is_alike && !is_chance && case.is_worth_time(time);
    is_it.then(|| finding(case, &held, time, place))
}

/// A time in which nothing came on a connection although a response had begun.
#[derive(Debug, Clone, Copy)]
struct Pause {
    connection: u32,
    begin: Time,
    length: Duration,
    /// The pause is as long as a delayed acknowledgement and a round trip, and that acknowledgement is in the packet
    /// log if there is one; or the pause ended a round trip after a request, which carried the acknowledgement before
    /// its timer expired.
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

fn finding(case: &Case<'_>, held: &[Pause], time: Duration, place: &str) -> Finding {
    let each = time / u32::try_from(held.len()).unwrap_or(u32::MAX).max(1);
    let is_seen = case.repetitions.iter().all(|repetition| repetition.facts().has_packet_log);
    let longest = held.iter().max_by_key(|pause| pause.length);
    let pauses = Evidence::new(
        "pauses until an acknowledgement, delayed or with a request",
        held.len() as f64,
        "pauses",
    );
    Finding {
        symptom: format!(
            "{} {place}, {} on average: a round trip and the 40 ms for which an acknowledgement is delayed, or \
             less if a request takes it along; the server holds its next segment back until that comes",
            plural(held.len() as u64, "pause"),
            measured_time(each)
        ),
        evidence: vec![
            longest.map_or_else(|| pauses.clone(), |pause| pauses.clone().seen(pause.connection, pause.begin)),
            Evidence::new("their length, on average", millis_f64(each), "ms"),
        ],
        confidence: if is_seen { Confidence::Observed } else { Confidence::Inferred },
        fixes: vec![case.advise(Knob::NoDelay, None)],
        confirm: "set TCP_NODELAY at the server, or have it send the head and the body in one write, and run `h2lab diagnose \
                  --again latest`: the pauses must go"
            .to_owned(),
        ..case.finding(&META, time, "waiting for a segment that the server held back until a delayed acknowledgement")
    }
}
