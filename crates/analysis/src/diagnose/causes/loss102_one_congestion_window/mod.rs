//! LOSS102: bodies of several streams share one congestion window that a loss has reduced.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use super::loss::LOSS102 as META;
use super::views::open::Open;
use super::views::spans::Spans;
use super::views::{PACED, hop_words, is_lost_to_full_queues, more_connections};
use crate::diagnose::facts::retransmissions_of;
use crate::diagnose::{Case, Confidence, Evidence, Finding, Repetition, Rule, hop};
use h2lab_base::counters::TcpTick;
use h2lab_base::units::{Time, measured_time, millis_f64};
use h2lab_link::LinkSpec;
use h2lab_model::Fix;
use h2lab_model::record::{CellRecord, PacketRecord};
use h2lab_model::settings::{Knob, Peer, Role, Wish, advise};
use h2lab_wire::trace::{Direction, Facts, Stall};

/// TCP sends in bursts: with this part of its congestion window in flight it waits for acknowledgements.
const FULL: f64 = 0.9;
/// A round trip longer than the path's by this factor indicates a queue: the bottleneck is full, and more windows would
/// carry no more.
const QUEUE: f64 = 1.5;
/// Ticks of a busy machine are further apart than this; then little is known of the time between them.
const LONGEST_STEP: Duration = Duration::from_millis(50);
/// Bytes of a segment over Ethernet.
const SEGMENT: u32 = 1_448;
/// The least number of connections that is advised.
const MANY: u32 = 8;
/// With more bytes in flight a sender whose windows are not known may wait for credit: half of the default window of
/// HTTP/2, since credit comes by halves.
const LEAST_CREDIT: u64 = 32 << 10;

/// The rule.
#[derive(Debug)]
pub(super) struct OneCongestionWindow;

impl Rule for OneCongestionWindow {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let cell = case.cell();
        if !cell.protocol.is_multiplexed() {
            return Vec::new();
        }
        let mut bound = Bound::default();
        for repetition in &case.repetitions {
            // Retransmitted although nothing was lost: a busy machine acknowledged late.
            if has_lost_nothing(repetition.record) {
                continue;
            }
            if cell.sidecar.is_some() {
                bound.add_hop(repetition);
                continue;
            }
            if cell.protocol.is_quic() {
                bound.add_quic(repetition);
                continue;
            }
            bound.add(repetition, true);
            if cell.work.body_length() > 0 {
                bound.add(repetition, false);
            }
        }
        if bound.time.is_zero() || !case.is_worth_time(bound.cost) {
            return Vec::new();
        }
        vec![finding(case, &bound)]
    }
}

/// Times in which a full congestion window held up two or more bodies.
#[derive(Debug, Default)]
struct Bound {
    time: Duration,
    /// The sum of the bodies' times, minus what each would have taken with a congestion window of its own.
    cost: Duration,
    /// Bodies times seconds.
    bodies: f64,
    /// Segments times seconds.
    window: f64,
}

impl Bound {
    /// Adds the times of bodies that the server sends, or that we send.
    fn add(&mut self, repetition: &Repetition<'_>, server: bool) {
        let record = repetition.record;
        let explained = of_loss101(repetition.facts());
        let mut flowing = flowing(repetition, server);
        let mut last: BTreeMap<u32, &TcpTick> = BTreeMap::new();
        for tick in record.tcp.iter().filter(|tick| tick.server == server) {
            let Some(before) = last.insert(tick.connection, tick) else { continue };
            let time = tick.at.since(before.at);
            if time > LONGEST_STEP || !is_bound(repetition, before) || !is_bound(repetition, tick) {
                continue;
            }
            // A body that fits into the window would not have waited for another one.
            let is_small = u64::from(tick.cwnd) * u64::from(SEGMENT) >= record.cell.work.body_length();
            if !server && is_small {
                continue;
            }
            let open = flowing.get_mut(&tick.connection);
            let bodies = open.map_or(0, |open| open.throughout(before.at, tick.at));
            let is_explained =
                explained.get(&tick.connection).is_some_and(|spans| spans.meet(before.at, tick.at));
            let gain = gain(record, rate(tick), bodies, server);
            if bodies >= 2 && !is_explained {
                self.count(time, bodies, gain, tick.cwnd);
            }
        }
    }

    /// Adds the times of requests over QUIC, small ones too: no other rule counts their wait, since LOSS101 is about
    /// TCP. While the window of either end is full, each request that is due and not answered waits for it; also one
    /// that is not sent yet, since only answers raise the limit of streams.
    fn add_quic(&mut self, repetition: &Repetition<'_>) {
        let record = repetition.record;
        let mut waiting = waiting(repetition);
        let mut last: BTreeMap<(u32, bool), &TcpTick> = BTreeMap::new();
        let mut counted: BTreeMap<u32, Time> = BTreeMap::new();
        for tick in &record.tcp {
            let Some(before) = last.insert((tick.connection, tick.server), tick) else { continue };
            let counted = counted.entry(tick.connection).or_default();
            let begin = before.at.max(*counted);
            let is_step = tick.at > begin && tick.at.since(before.at) <= LONGEST_STEP;
            if !is_step || !is_bound(repetition, before) || !is_bound(repetition, tick) {
                continue;
            }
            *counted = tick.at;
            let open = waiting.get_mut(&tick.connection);
            let requests = open.map_or(0, |open| open.throughout(begin, tick.at));
            if requests >= 2 {
                let gain = gain(record, rate(tick), requests, tick.server);
                self.count(tick.at.since(begin), requests, gain, tick.cwnd);
            }
        }
    }

    /// Adds the times of requests over a sidecar's connection on the link, of whose ends nothing but packets is known.
    /// While the window of either end held back data, each request whose answer was overdue waited for it: in the
    /// sidecar, in the server, or behind others.
    fn add_hop(&mut self, repetition: &Repetition<'_>) {
        let (record, facts) = (repetition.record, repetition.hop());
        if !facts.has_packet_log {
            return;
        }
        let explained = of_loss101(facts);
        let mut overdue = overdue(facts);
        let mut counted: BTreeMap<u32, Time> = BTreeMap::new();
        for held in hop::held_back(record, facts.rtt) {
            let counted = counted.entry(held.connection).or_default();
            let begin = held.from.max(*counted);
            if held.until <= begin || held.bytes > LEAST_CREDIT {
                continue;
            }
            *counted = held.until;
            let open = overdue.get_mut(&held.connection);
            let requests = open.map_or(0, |open| open.throughout(begin, held.until));
            let missing = explained.get(&held.connection).map(|spans| spans.within(begin, held.until));
            if requests >= 2 {
                let rate = held.bytes as f64 * 8.0 / facts.rtt.as_secs_f64().max(f64::MIN_POSITIVE);
                let gain = gain(record, rate, requests, held.direction == Direction::Down);
                let time = held.until.since(begin).saturating_sub(missing.unwrap_or_default());
                self.count(time, requests, gain, held.window);
            }
        }
    }

    /// Adds a time in which `bodies` bodies shared a window of `window` segments, and in which one window for each
    /// would carry `gain` times as much.
    fn count(&mut self, time: Duration, bodies: usize, gain: f64, window: u32) {
        if gain <= 1.0 {
            return;
        }
        self.time += time;
        self.cost += time.mul_f64(bodies as f64 * (1.0 - 1.0 / gain));
        self.bodies += time.as_secs_f64() * bodies as f64;
        self.window += time.as_secs_f64() * f64::from(window);
    }
}

/// When the bodies of each connection were sent, by the server or by us. There may be as many bodies as ticks of TCP:
/// the search must not visit every body for each tick.
fn flowing(repetition: &Repetition<'_>, server: bool) -> BTreeMap<u32, Open> {
    let mut spans: BTreeMap<u32, Vec<(Time, Time)>> = BTreeMap::new();
    for sample in &repetition.record.samples {
        let (begin, end) = if server {
            (sample.first_byte_at, sample.completed_at)
        } else {
            // Without an answer, the body was sent until the request was given up; with one, until a round trip before
            // the answer.
            let answered = Some(sample.first_byte_at).filter(|at| at.happened());
            (sample.sent_at, answered.map_or(sample.completed_at, |at| at - repetition.facts().rtt))
        };
        if begin.happened() && end.happened() {
            spans.entry(sample.connection).or_default().push((begin, end));
        }
    }
    spans.into_iter().map(|(connection, spans)| (connection, Open::of(spans))).collect()
}

/// When the requests of each connection over QUIC waited for an answer; a request that was never sent counts for all of
/// them.
fn waiting(repetition: &Repetition<'_>) -> BTreeMap<u32, Open> {
    let one_way = repetition.facts().rtt / 2;
    let mut unsent: Vec<(Time, Time)> = Vec::new();
    let connections = repetition.record.tcp.iter().map(|tick| (tick.connection, Vec::new()));
    let mut spans: BTreeMap<u32, Vec<(Time, Time)>> = connections.collect();
    for sample in &repetition.record.samples {
        let answered = Some(sample.completed_at).filter(|at| at.happened());
        let span = (sample.scheduled_at, answered.map_or(Time::NEVER, |at| at - one_way));
        if !sample.sent_at.happened() {
            unsent.push(span);
        } else if let Some(spans) = spans.get_mut(&sample.connection) {
            spans.push(span);
        }
    }
    let of = |mut spans: Vec<(Time, Time)>| {
        spans.extend(&unsent);
        Open::of(spans)
    };
    spans.into_iter().map(|(connection, spans)| (connection, of(spans))).collect()
}

/// When the answers of the requests of each connection were overdue.
fn overdue(facts: &Facts) -> BTreeMap<u32, Open> {
    let mut spans: BTreeMap<u32, Vec<(Time, Time)>> = BTreeMap::new();
    for flight in &facts.flights {
        spans.entry(flight.connection).or_default().push((flight.due_at, flight.ended_at));
    }
    spans.into_iter().map(|(connection, spans)| (connection, Open::of(spans))).collect()
}

/// The times of each connection that a missing segment explains: LOSS101 accounts for them. A stall without a missing
/// segment does not belong to them, for example in an upload, where nothing is to come from the server.
fn of_loss101(facts: &Facts) -> BTreeMap<u32, Spans> {
    let mut spans: BTreeMap<u32, Vec<(Time, Time)>> = BTreeMap::new();
    if facts.has_packet_log {
        for hole in &facts.holes {
            spans.entry(hole.connection).or_default().push((hole.begin, hole.end.max(hole.begin)));
        }
    } else {
        let has_step = |stall: &&Stall| {
            [false, true].into_iter().any(|server| {
                let steps = retransmissions_of(facts, stall.connection, server);
                let first = steps.partition_point(|step| step.until + facts.quickest < stall.begin);
                steps.get(first).is_some_and(|step| step.after <= stall.end)
            })
        };
        for stall in facts.stalls.iter().filter(has_step) {
            spans.entry(stall.connection).or_default().push((stall.begin, stall.end));
        }
    }
    spans.into_iter().map(|(connection, spans)| (connection, Spans::of(spans))).collect()
}

/// Whether the link's packets are known, and none was dropped or corrupted so that its receiver dropped it.
fn has_lost_nothing(record: &CellRecord) -> bool {
    let is_lost = |packet: &PacketRecord| packet.fate.is_drop() || packet.marks.corrupt.is_some();
    !record.packets.is_empty() && !record.packets.iter().any(is_lost)
}

/// Whether the full window of the sender is the only limit: after a loss, without a queue in the path.
fn is_bound(repetition: &Repetition<'_>, tick: &TcpTick) -> bool {
    let path = repetition.facts().rtt;
    tick.retransmits > 0
        && f64::from(tick.unacked) >= f64::from(tick.cwnd) * FULL
        && Duration::from_micros(tick.rtt_us.into()) <= path.mul_f64(QUEUE)
}

/// What a full window carries, in bits per second.
fn rate(tick: &TcpTick) -> f64 {
    let window = f64::from(tick.cwnd) * f64::from(SEGMENT) * 8.0;
    window / Duration::from_micros(tick.rtt_us.max(1).into()).as_secs_f64()
}

/// How many times as much many windows would carry: one window for each body, limited by the room on a link of known
/// capacity, if one window carries `rate` bits per second.
fn gain(record: &CellRecord, rate: f64, bodies: usize, server: bool) -> f64 {
    let of_link = |link: &LinkSpec| if server { link.downlink.bandwidth } else { link.uplink.bandwidth };
    let capacity = record.cell.link.as_ref().and_then(of_link);
    let room = capacity.map_or(f64::INFINITY, |capacity| capacity.bits_per_second() as f64 / rate.max(1.0));
    room.min(bodies as f64)
}

fn finding(case: &Case<'_>, bound: &Bound) -> Finding {
    let seconds = bound.time.as_secs_f64();
    let (bodies, window) = (bound.bodies / seconds, bound.window / seconds);
    let rtt = case.repetitions.iter().map(|repetition| repetition.facts().rtt).max().unwrap_or_default();
    let cell = case.cell();
    let many = MANY.max(2 * cell.connections);
    let mut fixes = vec![more_connections(
        Some(many.into()),
        "each has a congestion window of its own, and a loss cuts one of them",
    )];
    let is_quic = cell.protocol.is_quic();
    if cell.congestion.as_deref() != Some("bbr") {
        let random = "at the sender: random loss does not cut its window";
        fixes.push(bbr(is_quic, if is_lost_to_full_queues(case) { PACED } else { random }));
    }
    let load = if is_quic || cell.sidecar.is_some() { "requests" } else { "bodies" };
    let units = if is_quic { "datagrams" } else { "segments" };
    Finding {
        symptom: format!(
            "after a loss, {bodies:.1} {load} at a time shared one full congestion window of {window:.0} {units} for {} in all{}",
            measured_time(bound.time),
            hop_words(cell)
        ),
        evidence: vec![
            Evidence::new(
                "time in which the window was full and no queue was on the path",
                millis_f64(bound.time),
                "ms",
            ),
            Evidence::new(&format!("{load} that shared it, on average"), bodies, "streams"),
            Evidence::new("the window, on average", window, units),
            Evidence::new("round trip of the path", millis_f64(rtt), "ms"),
        ],
        confidence: Confidence::Inferred,
        fixes,
        confirm: case.compare(&format!("-c {},{many}", cell.connections))
            + ": with more connections they come faster, and without loss one is enough",
        ..case.finding(
            &META,
            bound.cost,
            "on a share of one congestion window beyond what a window each would take",
        )
    }
}

/// A congestion control whose window a single loss does not cut. In QUIC it belongs to the library, not to the kernel.
fn bbr(is_quic: bool, why: &str) -> Fix {
    let wish = Wish { knob: Knob::CongestionControl, role: Role::Kernel, value: None };
    let setting = |program: &str| advise(&Peer::started(program), wish).setting;
    let (product, setting) = if is_quic {
        ("QUIC library", format!("congestion control bbr ({})", setting("h2lab")))
    } else {
        ("kernel", setting("linux"))
    };
    Fix { wish: Some(wish), ..Fix::new(product, &setting, why) }
}
