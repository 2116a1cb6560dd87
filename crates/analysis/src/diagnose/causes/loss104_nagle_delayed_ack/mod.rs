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
use h2lab_model::settings::{Knob, Role, Wish, advise};
use h2lab_wire::trace::{Direction, FrameKind};

/// For how long Linux delays an acknowledgement at least (`TCP_DELACK_MIN`), with a timer that is up to two ticks late.
const DELAYED: RangeInclusive<Duration> = Duration::from_millis(36)..=Duration::from_millis(48);
/// A pause of a response that is no longer than this, beyond the round trip, may be the scheduling of processes.
const SHORT: Duration = Duration::from_millis(10);
/// How far from the acknowledgement's round trip the held segment may come.
const PROMPT: Duration = Duration::from_millis(4);
/// Fewer pauses may be chance.
const LEAST: usize = 20;
/// So many of all longer pauses must be of this length: those of a handler vary, or have another one.
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
        let pauses: Vec<Pause> = case.repetitions.iter().flat_map(pauses).collect();
        let held: Vec<Pause> = pauses.iter().filter(|pause| pause.is_held).copied().collect();
        let time: Duration = held.iter().map(|pause| pause.length).sum();
        let is_alike = held.len() as f64 >= ALIKE * pauses.len() as f64;
        let is_it = held.len() >= LEAST && is_alike && case.is_worth_time(time);
        is_it.then(|| finding(case, &held, time)).into_iter().collect()
    }
}

/// A time in which nothing came on a connection although a response had begun.
#[derive(Debug, Clone, Copy)]
struct Pause {
    connection: u32,
    begin: Time,
    length: Duration,
    /// It is as long as a delayed acknowledgement and a round trip; with a packet log the acknowledgement was seen.
    is_held: bool,
}

/// The pauses of a repetition that are longer than a round trip.
fn pauses(repetition: &Repetition<'_>) -> Vec<Pause> {
    let (record, facts) = (repetition.record, repetition.facts());
    let acks = facts.has_packet_log.then(|| acknowledgements(repetition));
    // Of each connection the last frame that came: its stream, and when.
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
        let is_seen = acks.as_ref().is_none_or(|acks| {
            let acks = acks.get(&frame.connection).map_or(&[][..], Vec::as_slice);
            let first = acks.partition_point(|at| *at + facts.rtt + PROMPT < frame.at);
            acks.get(first).is_some_and(|at| *at > begin + SHORT && *at + facts.rtt <= frame.at + PROMPT)
        });
        let is_held = DELAYED.contains(&delay) && is_seen;
        pauses.push(Pause { connection: frame.connection, begin, length, is_held });
    }
    pauses
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

fn finding(case: &Case<'_>, held: &[Pause], time: Duration) -> Finding {
    let each = time / u32::try_from(held.len()).unwrap_or(u32::MAX).max(1);
    let is_seen = case.repetitions.iter().all(|repetition| repetition.facts().has_packet_log);
    let longest = held.iter().max_by_key(|pause| pause.length);
    let pauses = Evidence::new("pauses of a round trip and 36 to 48 ms", held.len() as f64, "pauses");
    Finding {
        symptom: format!(
            "{} in the middle of a response, {} on average: a round trip and the 40 ms for which an acknowledgement is delayed; \
             the server holds its next segment back until that comes",
            plural(held.len() as u64, "pause"),
            measured_time(each)
        ),
        evidence: vec![
            longest.map_or_else(|| pauses.clone(), |pause| pauses.clone().seen(pause.connection, pause.begin)),
            Evidence::new("their length, on average", millis_f64(each), "ms"),
        ],
        confidence: if is_seen { Confidence::Observed } else { Confidence::Inferred },
        fixes: vec![advise(&case.peer(), Wish { knob: Knob::NoDelay, role: Role::Front, value: None })],
        confirm: "set TCP_NODELAY at the server, or have it send the head and the body in one write, and run `h2lab diagnose \
                  --again latest`: the pauses must go"
            .to_owned(),
        ..case.finding(&META, time, "waiting for a segment that the server held back until a delayed acknowledgement")
    }
}
