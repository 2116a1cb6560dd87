//! CONN106: an idle connection fell silent, and requests that join it hang.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use super::conn::CONN106 as META;
use super::views::at_client;
use crate::diagnose::facts::retransmissions_of;
use crate::diagnose::{Case, Confidence, Evidence, Finding, Repetition, Rule};
use h2lab_base::counters::TcpTick;
use h2lab_base::counts::plural;
use h2lab_base::units::{Time, measured_time, millis_f64};
use h2lab_model::record::{CellRecord, CloseReason, ConnectionRecord, Level, Sample};
use h2lab_model::settings::{Knob, Role, Wish, advise};
use h2lab_wire::trace::Direction;

/// Nothing came from the server for at least this long before the first request that hangs.
const IDLE: Duration = Duration::from_secs(1);
/// Nothing came after it for this many round trips …
const ROUND_TRIPS: u32 = 10;
/// … and for at least this long: TCP repeats a segment three times in that.
const SILENT: Duration = Duration::from_secs(1);
/// At least this many segments were sent again meanwhile: fewer losses in a row are usual.
const LEAST_AGAIN: u32 = 3;
/// A client that pings a silent connection this often notices in half a minute, and no server counts that as abuse.
const KEEP_ALIVE_MS: u64 = 15_000;

/// The rule.
#[derive(Debug)]
pub(super) struct SilentConnection;

impl Rule for SilentConnection {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let protocol = case.cell().protocol;
        // QUIC repeats contents and not segments, and probes by itself.
        if !protocol.is_multiplexed() || protocol.is_quic() {
            return Vec::new();
        }
        let silent: Vec<Silent> = case.repetitions.iter().flat_map(silent).collect();
        let hung: usize = silent.iter().map(|one| one.hung).sum();
        let waited: Duration = silent.iter().map(|one| one.waited).sum();
        let finding = case.finding(&META, waited, "on connections that had fallen silent");
        let Some(longest) = silent.iter().max_by_key(|one| one.lasted) else { return Vec::new() };
        if !case.is_worth(finding.cost_share) {
            return Vec::new();
        }
        let why = "an unanswered PING shows that the connection is gone, and the next request dials";
        let of_client = || at_client("a PING every 15 s", Knob::KeepAlive, Some(KEEP_ALIVE_MS), why);
        let wish = Wish { knob: Knob::KeepAlive, role: Role::Front, value: Some(KEEP_ALIVE_MS) };
        let fixes = case.cell().client.keep_alive.is_none().then(of_client).into_iter();
        vec![Finding {
            symptom: format!(
                "{} hung on {} that had been silent for {} or more: for up to {} no byte came and TCP sent {} again, while \
                 requests on other connections were answered",
                plural(hung as u64, "request"),
                plural(silent.len() as u64, "connection"),
                measured_time(silent.iter().map(|one| one.idle).min().unwrap_or_default()),
                measured_time(longest.lasted),
                plural(longest.again.into(), "segment")
            ),
            evidence: vec![
                Evidence::new("requests that hung", hung as f64, "requests"),
                Evidence::new("connections that fell silent", silent.len() as f64, "connections")
                    .seen(longest.connection, longest.since),
                Evidence::new("the longest silence after a request", millis_f64(longest.lasted), "ms"),
                Evidence::new("time without a byte before it", millis_f64(longest.idle), "ms"),
                Evidence::new("segments sent again in it", longest.again.into(), "segments"),
            ],
            // What forgot the connection is not seen: a NAT, a balancer, or a server that was replaced.
            confidence: Confidence::Inferred,
            fixes: fixes.chain([advise(&case.peer(), wish)]).collect(),
            confirm: case.compare("--keep-alive 10s") + ": with PINGs no request hangs for longer than 20 s",
            ..finding
        }]
    }
}

/// A connection that fell silent.
#[derive(Debug)]
struct Silent {
    connection: u32,
    /// When the first request was sent that hung.
    since: Time,
    /// For how long nothing had come before.
    idle: Duration,
    /// For how long nothing came after that.
    lasted: Duration,
    /// Segments that our end sent again meanwhile.
    again: u32,
    /// Requests that hung.
    hung: usize,
    /// How long these took in sum.
    waited: Duration,
}

/// The connections of a repetition that fell silent while others were answered.
fn silent(repetition: &Repetition<'_>) -> Vec<Silent> {
    let record = repetition.record;
    let mut candidates = hanging(record);
    candidates.retain(|_, one| one.idle >= IDLE);
    if candidates.is_empty() {
        return Vec::new();
    }
    let facts = repetition.facts();
    let least = SILENT.max(facts.rtt * ROUND_TRIPS);
    let mut last_seen: BTreeMap<u32, Time> = BTreeMap::new();
    for tick in record.tcp.iter().filter(|tick| !tick.server) {
        last_seen.insert(tick.connection, tick.at);
    }
    let answered = answered(record);
    let found = candidates.into_values().filter_map(|one| {
        let connection = record.connection(one.connection).filter(|connection| is_left_alone(connection))?;
        let until = connection.closed_at.min(*last_seen.get(&one.connection)?);
        let steps = retransmissions_of(facts, one.connection, false).iter();
        let again = steps.filter(|step| step.until > one.since && step.until <= until);
        let again: u32 = again.map(|step| step.segments).sum();
        let lasted = until.since(one.since);
        // It is silent itself: whatever is answered was sent on another.
        let later = answered.partition_point(|(sent, _)| *sent < one.since);
        let is_only_one = answered[later..].iter().any(|(_, answer)| *answer <= until);
        let is_silent =
            lasted >= least && again >= LEAST_AGAIN && is_only_one && !is_acknowledged(record, &one);
        is_silent.then_some(Silent { lasted, again, ..one })
    });
    found.collect()
}

/// The connections whose last requests have no answer.
fn hanging(record: &CellRecord) -> BTreeMap<u32, Silent> {
    let hung = || {
        let sent = record.samples.iter().filter(|sample| sample.sent_at.happened());
        sent.filter(|sample| !sample.first_byte_at.happened())
    };
    // Where some answers were not kept, no connection is known to be silent.
    if record.generator.level != Level::Full || hung().next().is_none() {
        return BTreeMap::new();
    }
    let mut heard: BTreeMap<u32, Time> =
        record.connections.iter().map(|one| (one.index, one.ready_at)).collect();
    let answers = record.samples.iter().filter(|sample| sample.first_byte_at.happened()).map(|sample| {
        let complete = if sample.outcome.is_complete() { sample.completed_at } else { sample.first_byte_at };
        (sample.connection, complete)
    });
    let frames = record.frames.iter().filter(|frame| frame.direction == Direction::Down);
    for (connection, at) in answers.chain(frames.map(|frame| (frame.connection, frame.at))) {
        if let Some(last) = heard.get_mut(&connection) {
            *last = at.max(*last);
        }
    }
    let mut hanging: BTreeMap<u32, Silent> = BTreeMap::new();
    for sample in hung() {
        let Some(heard) = heard.get(&sample.connection).filter(|heard| sample.sent_at > **heard) else {
            continue;
        };
        let one = hanging.entry(sample.connection).or_insert_with(|| Silent::new(&sample, *heard));
        if sample.sent_at < one.since {
            (one.since, one.idle) = (sample.sent_at, sample.sent_at.since(*heard));
        }
        one.hung += 1;
        one.waited += sample.response_time();
    }
    hanging
}

impl Silent {
    fn new(sample: &Sample, heard: Time) -> Self {
        let (connection, since) = (sample.connection, sample.sent_at);
        let idle = since.since(heard);
        let [lasted, waited] = [Duration::ZERO; 2];
        Self { connection, since, idle, lasted, again: 0, hung: 0, waited }
    }
}

/// Whether something was acknowledged after the first request that hangs, as in a slow upload: each acknowledgement of new
/// data changes the smoothed round trip.
fn is_acknowledged(record: &CellRecord, one: &Silent) -> bool {
    let is_later = |tick: &&TcpTick| !tick.server && tick.connection == one.connection && tick.at > one.since;
    let mut rtts = record.tcp.iter().filter(is_later).map(|tick| tick.rtt_us);
    let first = rtts.next();
    rtts.any(|rtt| Some(rtt) != first)
}

/// Whether nothing came at its end either: a FIN or a reset of TCP is an answer.
const fn is_left_alone(connection: &ConnectionRecord) -> bool {
    matches!(connection.closed, CloseReason::Cell | CloseReason::Local { .. } | CloseReason::TimedOut { .. })
}

/// When requests were sent and their answers began, by the former.
fn answered(record: &CellRecord) -> Vec<(Time, Time)> {
    let answered = record.samples.iter().filter(|sample| sample.first_byte_at.happened());
    let mut answered: Vec<(Time, Time)> =
        answered.map(|sample| (sample.sent_at, sample.first_byte_at)).collect();
    answered.sort_unstable();
    answered
}
