//! What kept one end of a TCP connection from sending, as far as its packets show.
//!
//! A congestion window is visible only to its kernel. But a sender limited by it sends when an acknowledgement arrives,
//! with as much in flight as it ever had; a sender without data does neither. And a sender with more data than it sends
//! shows this: its segment is full, while the last segment of its data is as short as the rest. As long as data is in
//! flight, the rest then waits for the window. With nothing in flight it would be sent at once, unless it is short and
//! Nagle's algorithm (RFC 9293 §3.7.4) or its program held it back. So a short segment sent when everything is
//! acknowledged proves nothing.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use super::flow::Transmission;
use super::latency_breakdown::{Drop, Repair};
use h2lab_base::counters::INITIAL_SEGMENTS;
use h2lab_base::units::Time;
use h2lab_wire::trace::Direction;

/// A sender sends its queued data within this time after an acknowledgement.
const PROMPT: Duration = Duration::from_millis(1);
/// After this long without sending, the congestion window is taken to be the initial one again: the least
/// retransmission timeout.
const IDLE: Duration = Duration::from_millis(200);

/// A packet with payload as its sender sent it.
#[derive(Debug, Clone)]
pub(super) struct Send {
    /// Its bytes.
    pub bytes: Range<u64>,
    /// What the link did to it.
    pub sent: Transmission,
    /// How its first byte was sent before; `None` if it is new.
    pub before: Option<Before>,
    /// It is full, so that its sender had more data.
    pub is_full: bool,
}

/// The packet that a retransmission replaces.
#[derive(Debug, Clone, Copy)]
pub(super) struct Before {
    /// When it was sent.
    pub at: Time,
    /// Its first byte: in TCP that of the retransmission.
    pub start: u64,
}

/// An acknowledgement as received by the sender of the data.
#[derive(Debug, Clone)]
pub(super) struct Ack {
    /// When.
    pub at: Time,
    /// All bytes before this have arrived.
    pub end: u64,
    /// Selectively acknowledged ranges.
    pub sacks: Vec<Range<u64>>,
}

/// The timer values of a sender that an observer needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timers {
    /// The least round trip of the path.
    pub rtt: Duration,
    /// `net.ipv4.tcp_rto_min_us`: the least retransmission timeout on top of the round trip.
    pub rto_min: Duration,
}

impl Timers {
    /// How long after an acknowledgement a loss may be detected from it: at once, or after the reordering window (RFC
    /// 8985 §6.2: a quarter of the round trip).
    fn reordering(self) -> Duration {
        self.rtt / 4 + Duration::from_millis(3)
    }

    /// Which timer caused a retransmission of data that had been sent `elapsed` before, after a silence of `silence`.
    /// `is_revealed`: later data had been acknowledged.
    ///
    /// A retransmission timeout comes a round trip and `rto_min` after the segment (RFC 6298, as implemented in Linux).
    /// If a probe came in between, the timeout is counted from the segment nevertheless, and the silence is shorter by
    /// the two round trips that the probe waited (RFC 8985 §7.2). A revealed loss has no probe: it is retransmitted
    /// after the reordering window, which a kernel with a slow clock may notice two ticks of 10 ms late.
    fn fired(self, elapsed: Duration, silence: Duration, is_revealed: bool) -> Repair {
        let timeout = (self.rtt + self.rto_min).mul_f64(0.95);
        let probe = self.rtt * 5 / 2 + Duration::from_millis(10);
        let is_long = silence >= probe && silence >= self.rto_min / 2;
        match is_revealed {
            true if is_long => Repair::Timeout,
            true => Repair::Fast,
            false if is_long || elapsed >= timeout => Repair::Timeout,
            false => Repair::Probe,
        }
    }
}

/// A retransmission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Resent {
    at: Time,
    repair: Repair,
}

/// The moment at which new bytes were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fresh {
    at: Time,
    /// One past its bytes.
    end: u64,
    /// Since when, at the earliest, the congestion window had held them back; `None` if it had not.
    held_since: Option<Time>,
    /// The last drop that had reduced the window.
    after: Option<Drop>,
}

/// A time in which a sender held back data, until it sent new data again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hold {
    /// When it had last sent new data.
    pub from: Time,
    /// When it sent new data again; [`Time::NEVER`] if it never did and not all that it had sent was acknowledged.
    pub until: Time,
    /// The last drop that had reduced the window.
    pub after: Option<Drop>,
}

/// How one end of a connection sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sending {
    fresh: Vec<Fresh>,
    resent: Vec<Resent>,
    /// The hold at its end, if any.
    last: Option<Hold>,
}

impl Sending {
    /// Follows a sender. `sends` are in the order in which they entered the link; acknowledgements may be in any order.
    pub fn follow(direction: Direction, sends: &[Send], mut acks: Vec<Ack>, timers: Timers) -> Self {
        acks.sort_by_key(|ack| ack.at);
        let mut sender = Sender::new(direction, timers);
        let mut acks = acks.into_iter().peekable();
        for send in sends {
            while let Some(ack) = acks.next_if(|ack| ack.at <= send.sent.at) {
                sender.acknowledge(&ack);
            }
            sender.send(send);
        }
        for ack in acks {
            sender.acknowledge(&ack);
        }
        sender.finish()
    }

    /// All times in which the window held data back, in order and without overlaps.
    pub fn holds(&self) -> impl Iterator<Item = Hold> {
        let froms = std::iter::once(Time::ZERO).chain(self.fresh.iter().map(|fresh| fresh.at));
        let between = froms.zip(&self.fresh).filter(|(_, next)| next.held_since.is_some());
        between.map(|(from, next)| Hold { from, until: next.at, after: next.after }).chain(self.last)
    }

    /// Since when, at the earliest, the congestion window held back the new data with the byte at `place`, and the drop
    /// that had reduced the window; `None` if the window did not hold it back.
    pub fn held(&self, place: u64) -> Option<(Time, Option<Drop>)> {
        let fresh = self.fresh.get(self.fresh.partition_point(|fresh| fresh.end <= place))?;
        fresh.held_since.map(|since| (since, fresh.after))
    }

    /// The drop that had reduced the window when the byte at `place` was sent.
    pub fn shrunk_by(&self, place: u64) -> Option<Drop> {
        self.fresh.get(self.fresh.partition_point(|fresh| fresh.end <= place))?.after
    }

    /// How a segment that was sent at `lost`, and lost, was repaired by the one sent at `again`.
    pub fn repair(&self, lost: Time, again: Time) -> Repair {
        let from = self.resent.partition_point(|resent| resent.at <= lost);
        let until = self.resent.partition_point(|resent| resent.at <= again);
        let between = self.resent.get(from..until).unwrap_or_default();
        // Retransmissions that follow a timeout one by one, as its acknowledgements arrive, are due to that timeout.
        let timer = |kind| between.iter().any(|resent| resent.repair == kind);
        let own = between.last().map_or(Repair::Fast, |resent| resent.repair);
        if own == Repair::Probe {
            Repair::Probe
        } else if own == Repair::Timeout || timer(Repair::Timeout) {
            Repair::Timeout
        } else {
            Repair::Fast
        }
    }
}

/// The state of a sender.
struct Sender {
    direction: Direction,
    timers: Timers,
    seen: Sending,
    /// Packets in flight, by first byte; the value is the end.
    in_flight: BTreeMap<u64, u64>,
    /// The most segments that it was seen to have in flight since its window was last reset: its window is no smaller.
    dared: usize,
    /// When it last received an acknowledgement.
    last_ack_at: Time,
    /// The most recent acknowledgements, each with what was in flight before it.
    recent: VecDeque<(Time, usize)>,
    /// When it last received or sent a packet.
    last_event: Time,
    last_sent: Option<Time>,
    /// When everything had been acknowledged, if nothing is in flight.
    emptied: Option<Time>,
    /// Its last new data filled a segment.
    has_more: bool,
    /// One past the highest byte sent.
    highest: u64,
    /// Until this is acknowledged, it repairs a loss.
    recovers_until: u64,
    acknowledged: u64,
    /// One past the last byte known to have arrived.
    selectively_acknowledged: u64,
    shrunk_by: Option<Drop>,
    /// Its packets that were lost, by first byte, until they are retransmitted.
    lost: BTreeMap<u64, Drop>,
}

impl Sender {
    fn new(direction: Direction, timers: Timers) -> Self {
        Self {
            direction,
            timers,
            seen: Sending::default(),
            in_flight: BTreeMap::new(),
            dared: INITIAL_SEGMENTS as usize,
            last_ack_at: Time::ZERO,
            recent: VecDeque::new(),
            last_event: Time::ZERO,
            last_sent: None,
            emptied: None,
            has_more: false,
            highest: 0,
            recovers_until: 0,
            acknowledged: 0,
            selectively_acknowledged: 0,
            shrunk_by: None,
            lost: BTreeMap::new(),
        }
    }

    fn acknowledge(&mut self, ack: &Ack) {
        self.recent.push_back((ack.at, self.in_flight.len()));
        (self.last_event, self.last_ack_at) = (ack.at, ack.at);
        self.acknowledged = self.acknowledged.max(ack.end);
        while let Some(first) = self.in_flight.first_entry() {
            if *first.get() > ack.end {
                break;
            }
            first.remove();
        }
        for block in &ack.sacks {
            self.selectively_acknowledged = self.selectively_acknowledged.max(block.end);
            let covered: Vec<u64> = self
                .in_flight
                .range(block.start..block.end.max(block.start))
                .filter(|(_, end)| **end <= block.end)
                .map(|(start, _)| *start)
                .collect();
            for start in covered {
                self.in_flight.remove(&start);
            }
        }
        if self.in_flight.is_empty() {
            self.emptied.get_or_insert(ack.at);
        }
    }

    fn send(&mut self, send: &Send) {
        let now = send.sent.at;
        while self.recent.front().is_some_and(|(at, _)| now.since(*at) > PROMPT) {
            self.recent.pop_front();
        }
        match send.before {
            Some(before) => self.send_again(send, before),
            None => self.send_new(send),
        }
        self.in_flight.insert(send.bytes.start, send.bytes.end);
        self.emptied = None;
        if send.sent.is_lost {
            self.lost.insert(send.bytes.start, send.sent.drop(self.direction));
        }
        self.highest = self.highest.max(send.bytes.end);
        self.last_event = now;
        self.last_sent = Some(now);
    }

    fn send_new(&mut self, send: &Send) {
        let now = send.sent.at;
        if self.last_sent.is_some_and(|last| now.since(last) > IDLE) {
            self.dared = self.dared.min(INITIAL_SEGMENTS as usize);
        }
        let recovers = self.acknowledged < self.recovers_until;
        let dares = self.recent.iter().map(|(_, in_flight)| *in_flight).max();
        // A sender with less in flight than it ever had could have sent before the acknowledgement arrived.
        let is_clocked = dares.is_some_and(|before| before > 0 && (recovers || before >= self.dared));
        let goes_on = self.goes_on(send);
        let held_since = (is_clocked || goes_on).then(|| self.held_since(now, goes_on));
        self.has_more = send.is_full;
        self.seen.fresh.push(Fresh { at: now, end: send.bytes.end, held_since, after: self.shrunk_by });
        if !recovers {
            self.dared = self.dared.max(self.in_flight.len() + 1);
        }
    }

    /// Whether this new data was already queued when the previous new data was sent, and the window held it.
    fn goes_on(&self, send: &Send) -> bool {
        let kept = |emptied: Time| send.is_full && send.sent.at.since(emptied) <= PROMPT;
        self.has_more && self.emptied.is_none_or(kept)
    }

    /// The sender was held at `now`: its queue had not run empty since it last sent new data that was not held.
    fn held_since(&self, now: Time, goes_on: bool) -> Time {
        match self.seen.fresh.last() {
            None => Time::ZERO,
            Some(Fresh { held_since: Some(since), at, .. }) if goes_on || now.since(*at) < IDLE => *since,
            Some(last) => last.at,
        }
    }

    /// The result after the last packet. A sender that had more data, or a loss to repair, was held until the end, or
    /// until nothing was in flight.
    fn finish(mut self) -> Sending {
        let unrepaired = self.lost.range(self.acknowledged..).next().map(|(_, drop)| *drop);
        let recovers = self.acknowledged < self.recovers_until || unrepaired.is_some();
        let until = self.emptied.unwrap_or(Time::NEVER);
        let last = self.seen.fresh.last().filter(|last| (self.has_more || recovers) && last.at < until);
        self.seen.last = last.map(|last| Hold { from: last.at, until, after: unrepaired.or(self.shrunk_by) });
        self.seen
    }

    fn send_again(&mut self, send: &Send, before: Before) {
        let now = send.sent.at;
        let is_prompt = now.since(self.last_ack_at) <= self.timers.reordering();
        let resends_on = self.seen.resent.last().filter(|last| now.since(last.at) <= PROMPT);
        let repair = match resends_on {
            // A timer may send several packets at once.
            Some(last) if !is_prompt || last.repair == Repair::Timeout => last.repair,
            _ if is_prompt => Repair::Fast,
            _ => {
                let is_revealed = self.selectively_acknowledged > send.bytes.start;
                self.timers.fired(now.since(before.at), now.since(self.last_event), is_revealed)
            }
        };
        self.seen.resent.push(Resent { at: now, repair });
        let lost = self.lost.remove(&before.start);
        self.shrunk_by = lost.or(self.shrunk_by);
        if repair != Repair::Probe {
            self.recovers_until = self.recovers_until.max(self.highest);
            self.dared = 0;
        }
    }
}
