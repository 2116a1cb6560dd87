//! LOSS106: the bottleneck's queue holds less than what passes in a round trip, and overflows.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::loss::LOSS106 as META;
use super::views::spans::Spans;
use super::views::windows::Stop;
use super::views::{PACED, at_client};
use crate::diagnose::{Case, Confidence, Evidence, Finding, Repetition, Rule};
use h2lab_base::counters::INITIAL_WINDOW;
use h2lab_base::counts::{count, plural};
use h2lab_base::units::{Bandwidth, Time, format_bytes, format_exact, millis_f64};
use h2lab_link::QueueDiscipline;
use h2lab_model::Fix;
use h2lab_model::record::{CellRecord, PacketFate, PacketRecord, Sample};
use h2lab_model::scenario::Cell;
use h2lab_model::settings::{Knob, Peer, Role, Wish, advise};
use h2lab_wire::trace::Direction;

/// Fewer packets may be those of one start: slow start ends in a full queue, however long that is.
const LEAST: u64 = 10;
/// Likewise, they must not all be of one round trip through the full queue: slow start overflows for so long.
const TIMES: u64 = 2;
/// At least this share of all drops must be at queues that are too short, of both directions: others are random loss.
const MOST: f64 = 0.9;
/// A link that is used for this part of the time or more is full: a longer queue would only delay.
const FULL: f64 = 0.9;

/// The rule.
#[derive(Debug)]
pub(super) struct QueueTooShort;

impl Rule for QueueTooShort {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let cell = case.cell();
        // Behind a sidecar the packets are those of another connection than the requests.
        if !cell.protocol.is_multiplexed() || cell.sidecar.is_some() {
            return Vec::new();
        }
        let directions = [Direction::Up, Direction::Down];
        let queues: Vec<Queue> =
            directions.into_iter().filter_map(|direction| Queue::of(cell, direction)).collect();
        let seen = queues.iter().map(|queue| (Seen::of(case, queue, &queues), queue));
        let worst = seen.max_by_key(|(seen, _)| seen.full);
        let found = worst.filter(|(seen, _)| seen.is_queue() && case.is_worth_time(seen.cost()));
        found.map(|(seen, queue)| finding(case, &seen, queue)).into_iter().collect()
    }
}

/// A queue that is too short for its path.
#[derive(Debug)]
struct Queue {
    direction: Direction,
    bandwidth: Bandwidth,
    /// One way.
    delay: Duration,
    rtt: Duration,
    /// What it holds, in bytes.
    limit: u64,
    /// What passes in a round trip, in bytes.
    product: u64,
}

impl Queue {
    /// The queue of a direction of the emulated link; `None` if it holds a round trip, or if there is none.
    fn of(cell: &Cell, direction: Direction) -> Option<Self> {
        let link = cell.link.as_ref()?;
        let one = if direction == Direction::Up { &link.uplink } else { &link.downlink };
        let (rtt, limit) = (link.rtt(), one.queue_limit());
        let product = one.bandwidth_delay_product(rtt).filter(|product| limit < *product)?;
        let is_plain = one.queue_discipline == QueueDiscipline::DropTail;
        let bandwidth = one.bandwidth.filter(|_| is_plain)?;
        Some(Self { direction, bandwidth, delay: one.delay, rtt, limit, product })
    }

    const fn name(&self) -> &'static str {
        if matches!(self.direction, Direction::Up) { "uplink" } else { "downlink" }
    }

    fn is_of_it(&self, packet: &PacketRecord) -> bool {
        packet.direction == self.direction
    }

    /// Whether the packet found this queue full.
    fn is_full_for(&self, packet: &PacketRecord) -> bool {
        self.is_of_it(packet) && packet.fate == PacketFate::TailDropped
    }
}

/// What became of the packets of all repetitions of a cell, and what that cost.
#[derive(Debug, Default)]
struct Seen {
    /// Packets that entered this direction.
    packets: u64,
    /// Of these, those that found the queue full.
    full: u64,
    /// How often it was full, counted once in a round trip through it.
    times: u64,
    /// Those that found the other direction's queue full, which is too short as well.
    other: u64,
    /// Packets that the link dropped in either direction for any other reason.
    random: u64,
    /// For how long requests were under way.
    open: Duration,
    /// For how long the link sent.
    used: Duration,
    /// What bodies with credit took beyond what a link takes that always sends, from the first full queue on.
    idle: Duration,
    /// What streams waited behind missing segments.
    blocked: Duration,
}

impl Seen {
    /// What became of the packets of `queue`, which is one of these `queues` of both directions.
    fn of(case: &Case<'_>, queue: &Queue, queues: &[Queue]) -> Self {
        let mut seen = Self::default();
        let has_log = |repetition: &&Repetition<'_>| repetition.record.link.is_some();
        case.repetitions.iter().filter(has_log).for_each(|repetition| seen.add(repetition, queue, queues));
        seen
    }

    fn add(&mut self, repetition: &Repetition<'_>, queue: &Queue, queues: &[Queue]) {
        let record = repetition.record;
        let dropped = record.packets.iter().filter(|packet| packet.fate.is_drop());
        for packet in dropped.filter(|packet| !queue.is_full_for(packet)) {
            let is_other = queues.iter().any(|other| other.is_full_for(packet));
            let kind = if is_other { &mut self.other } else { &mut self.random };
            *kind += 1;
        }
        // A sender hears of a drop after this long.
        let through = queue.rtt + queue.bandwidth.transmission_time(queue.limit);
        let (mut first, mut last) = (None, None);
        for packet in record.packets.iter().filter(|packet| queue.is_of_it(packet)) {
            self.packets += 1;
            if !queue.is_full_for(packet) {
                continue;
            }
            self.full += 1;
            first = first.or(Some(packet.at));
            if last.is_none_or(|last| packet.at.since(last) >= through) {
                self.times += 1;
                last = Some(packet.at);
            }
        }
        let under_way = record.samples.iter().filter(|sample| sample.sent_at.happened());
        let spans = under_way.map(|sample| (sample.sent_at, sample.completed_at));
        self.open += Spans::of(spans.filter(|(_, end)| end.happened())).within(Time::ZERO, Time::NEVER);
        let carried = Carried::of(record, queue);
        self.used += queue.bandwidth.transmission_time(carried.before(Time::NEVER));
        self.blocked += repetition.blocked().iter().map(|blocked| blocked.stream_time).sum::<Duration>();
        let Some(first) = first else { return };
        let mut idle = Duration::ZERO;
        for (begin, end) in bodies(record, queue) {
            // When all is sent, it is the server that takes the rest of the time.
            let (begin, end) = (begin.max(first), end.min(carried.last(end)));
            let bytes = carried.before(end).saturating_sub(carried.before(begin));
            idle += end.since(begin).saturating_sub(queue.bandwidth.transmission_time(bytes));
        }
        // Nor is the time in which a body had no credit that of the queue.
        let is_of_window =
            |stop: &&Stop| stop.direction == queue.direction && stop.is_prompt && stop.begin >= first;
        let stops = repetition.stops().iter().filter(is_of_window);
        self.idle += idle.saturating_sub(stops.map(Stop::of_window).sum());
    }

    /// Whether full queues, and not random loss or a full link, are what made requests wait.
    fn is_queue(&self) -> bool {
        let at_queues = self.full + self.other;
        self.full >= LEAST
            && self.times >= TIMES
            && at_queues as f64 >= MOST * (at_queues + self.random) as f64
            && self.used.as_secs_f64() < FULL * self.open.as_secs_f64()
    }

    /// Streams may wait behind missing segments while the link idles: the larger one counts.
    fn cost(&self) -> Duration {
        self.idle.max(self.blocked)
    }
}

/// When bodies were under way at the bottleneck: from their first byte on until their last one.
fn bodies(record: &CellRecord, queue: &Queue) -> impl Iterator<Item = (Time, Time)> {
    let (is_up, delay, rtt) = (queue.direction == Direction::Up, queue.delay, queue.rtt);
    let is_whole = |sample: &Sample| sample.first_byte_at.happened() && sample.completed_at.happened();
    let spans = record.samples.iter().filter(is_whole).map(move |sample| {
        if is_up {
            (sample.sent_at, sample.first_byte_at - rtt)
        } else {
            (sample.first_byte_at - delay, sample.completed_at - delay)
        }
    });
    let has_bodies = !is_up || record.cell.work.body_length() > 0;
    spans.filter(move |(begin, end)| has_bodies && begin < end)
}

/// What the link delivered in a direction: when the bottleneck had sent a packet, and all bytes until then.
#[derive(Debug)]
struct Carried(Vec<(Time, u64)>);

impl Carried {
    fn of(record: &CellRecord, queue: &Queue) -> Self {
        let delivered = record.packets.iter().filter(|packet| queue.is_of_it(packet));
        let delivered = delivered.filter(|packet| packet.out_at.happened());
        let mut carried: Vec<(Time, u64)> =
            delivered.map(|packet| (packet.out_at - queue.delay, u64::from(packet.bytes))).collect();
        carried.sort_unstable();
        let mut sum = 0;
        for (_, bytes) in &mut carried {
            sum += *bytes;
            *bytes = sum;
        }
        Self(carried)
    }

    /// Bytes until this time.
    fn before(&self, at: Time) -> u64 {
        self.until(at).1
    }

    /// When the last of them was sent.
    fn last(&self, at: Time) -> Time {
        self.until(at).0
    }

    fn until(&self, at: Time) -> (Time, u64) {
        let sent = self.0.partition_point(|(sent_at, _)| *sent_at <= at);
        sent.checked_sub(1).map_or((Time::ZERO, 0), |last| self.0[last])
    }
}

fn finding(case: &Case<'_>, seen: &Seen, queue: &Queue) -> Finding {
    let used = 100.0 * seen.used.as_secs_f64() / seen.open.as_secs_f64();
    Finding {
        symptom: format!(
            "{} of {} on the {} found its queue of {} full, at {}; {} pass in a round trip, and the link was used for {used:.0} % \
             of the time in which requests were under way",
            count(seen.full),
            plural(seen.packets, "packet"),
            queue.name(),
            format_bytes(queue.limit),
            plural(seen.times, "time"),
            format_bytes(queue.product),
        ),
        evidence: vec![
            Evidence::new("packets that found the queue full", seen.full as f64, "packets"),
            Evidence::new(
                "packets that found that of the other direction full",
                seen.other as f64,
                "packets",
            ),
            Evidence::new("packets dropped otherwise", seen.random as f64, "packets"),
            Evidence::new("what the queue holds", queue.limit as f64, "bytes"),
            Evidence::new("bandwidth × round trip", queue.product as f64, "bytes"),
            Evidence::new("part of the time in which the link sent", used, "%"),
            Evidence::new("time of bodies beyond what a full link takes", millis_f64(seen.idle), "ms"),
            Evidence::new("stream-time behind missing segments", millis_f64(seen.blocked), "ms"),
        ],
        confidence: Confidence::Observed,
        fixes: fixes(case.cell(), queue),
        confirm: confirm(case, queue),
        ..case.finding(&META, seen.cost(), "behind what a full queue dropped, or while the link idled")
    }
}

fn fixes(cell: &Cell, queue: &Queue) -> Vec<Fix> {
    let mut fixes = vec![Fix::new(
        "network",
        &format!(
            "a queue of {} at the bottleneck (here: --queue {})",
            format_bytes(queue.product),
            queue.product
        ),
        "it keeps the link busy while TCP's window grows again; a full one delays by a round trip",
    )];
    if !cell.protocol.is_quic() && cell.congestion.as_deref() != Some("bbr") {
        let wish = Wish { knob: Knob::CongestionControl, role: Role::Kernel, value: None };
        fixes.push(Fix::new("kernel", &advise(&Peer::started("linux"), wish).setting, PACED));
    }
    if cell.connections > 1 && u64::from(cell.connections) * u64::from(INITIAL_WINDOW) > queue.limit {
        let why = "their first windows, ten segments each, overflow the queue together";
        fixes.push(at_client("fewer connections", Knob::UpstreamConnections, Some(1), why));
    }
    fixes
}

fn confirm(case: &Case<'_>, queue: &Queue) -> String {
    let command = case.compare(&format!(
        "-c {} --loss 0% --delay {} --bandwidth {} --queue {},{}",
        case.cell().connections,
        format_exact(queue.delay),
        queue.bandwidth.to_exact_text(),
        queue.limit,
        queue.product
    ));
    command + ": with the longer queue few packets are dropped, and the link is used"
}
