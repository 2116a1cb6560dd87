//! One direction of the link.

use h2lab_base::JsonSchema;
use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bottleneck::{Bottleneck, QueueDiscipline};
use super::chance::Chance;
use super::delay::DelayLine;
use super::loss::Loss;
use super::packet::FlowNumber;
use super::reorder::Reorderer;
use super::script::Script;
use super::{BlackOut, Displacement, Impairment, LinkSpec, Packet, Step};
use h2lab_base::random::{Counter, derive};
use h2lab_base::units::{Bandwidth, Time};

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropCause {
    /// The loss model dropped it.
    Lost,
    /// A line of the script named it.
    Scripted,
    /// It entered during a black-out.
    BlackOut,
    /// The queue was full.
    TailDropped,
    /// CoDel dropped it at the head of the queue.
    CodelDropped,
}

/// The impairments of a packet that passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Marks {
    /// It is the second of two: the link made it.
    pub is_copy: bool,
    /// It leaves its place in the order.
    pub is_reordered: bool,
    /// The bit of its payload that is flipped, counted from 0; see [`super::write_corrupted`].
    pub corrupt: Option<u32>,
}

/// An admitted packet, for [`Pipe::enqueue`] with whatever the caller needs to forward it.
#[derive(Debug, PartialEq, Eq)]
pub struct Passage {
    /// Its index in its direction, from 0; a copy has that of its original.
    pub index: u64,
    /// When it entered.
    pub at: Time,
    /// Its impairments.
    pub marks: Marks,
    bytes: u32,
    displaced: Option<Displacement>,
}

/// The decision about a packet as it entered.
#[derive(Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is dropped.
    Dropped {
        /// Its index in its direction, from 0.
        index: u64,
        /// Why.
        cause: DropCause,
    },
    /// It passes, perhaps duplicated.
    Passes {
        /// The packet itself.
        original: Passage,
        /// Its copy, which follows it, if it is duplicated.
        copy: Option<Passage>,
    },
}

/// Totals of one direction. `packets_in + duplicated = delivered + dropped() + in_flight` always holds, or the cell is
/// invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct DirectionTotals {
    /// Packets that entered.
    pub packets_in: u64,
    /// Packets that came out, copies included.
    pub delivered: u64,
    /// Packets that the loss model dropped.
    pub lost: u64,
    /// Packets that found the queue full.
    pub tail_dropped: u64,
    /// Packets that CoDel dropped at the head of the queue.
    #[serde(default)]
    pub codel_dropped: u64,
    /// Packets that a script named.
    #[serde(default)]
    pub scripted: u64,
    /// Packets that entered during a black-out.
    #[serde(default)]
    pub black_out: u64,
    /// Packets still inside at the end.
    pub in_flight: u64,
    /// Copies that the link made.
    #[serde(default)]
    pub duplicated: u64,
    /// Packets that left their place in the order.
    #[serde(default)]
    pub reordered: u64,
    /// Packets of which a bit was flipped.
    #[serde(default)]
    pub corrupted: u64,
    /// Bytes that entered, at the network layer.
    pub bytes_in: u64,
}

impl DirectionTotals {
    /// Packets dropped, for any cause.
    pub fn dropped(&self) -> u64 {
        self.lost + self.scripted + self.black_out + self.tail_dropped + self.codel_dropped
    }

    /// Whether every packet is accounted for.
    pub fn adds_up(&self) -> bool {
        self.packets_in + self.duplicated == self.delivered + self.dropped() + self.in_flight
    }

    fn count(&mut self, cause: DropCause) {
        *match cause {
            DropCause::Lost => &mut self.lost,
            DropCause::Scripted => &mut self.scripted,
            DropCause::BlackOut => &mut self.black_out,
            DropCause::TailDropped => &mut self.tail_dropped,
            DropCause::CodelDropped => &mut self.codel_dropped,
        } += 1;
    }
}

/// One direction of a link: packets go in, and come out later or never.
///
/// A packet first meets black-outs, script and loss model; the first that drops it is its cause. What passes is duplicated,
/// corrupted and displaced, then meets bandwidth and queue, then delay and jitter. What is dropped before the queue uses no
/// bandwidth, as in netem; a copy does. Copies are made of the packet as it entered: only the original has a flipped bit.
///
/// Each impairment sees each packet, whatever the others do to it, and draws from a stream of its own: turning one on does
/// not move the draws of another. `T` is what the caller needs to forward the packet: its bytes, a slot in a ring, nothing.
#[derive(Debug)]
pub struct Pipe<T> {
    start: Time,
    blackouts: Vec<BlackOut>,
    script: Script,
    loss: Loss,
    duplicate: Chance,
    corrupt: Chance,
    corrupt_bit: Counter,
    reorder: Reorderer,
    bottleneck: Option<Bottleneck<(Passage, T)>>,
    queue_bytes: u64,
    discipline: QueueDiscipline,
    delay: DelayLine<T>,
    /// Whether a packet may skip the delay at any time.
    may_skip: bool,
    /// Changes still to come, in the order of time.
    steps: VecDeque<Step>,
    /// The current delay and jitter.
    now_delayed: (Duration, Duration),
    /// Packets dropped by CoDel that [`Pipe::poll_dropped`] has yet to return.
    dropped: VecDeque<(Passage, T)>,
    totals: DirectionTotals,
}

impl<T> Pipe<T> {
    /// A direction with this impairment, which starts at `start`. Each purpose has its own stream of random numbers
    /// under `seed`; the two directions of a link need different seeds, see [`LinkSpec::pipes`].
    pub fn new(impairment: &Impairment, seed: u64, start: Time) -> Self {
        let queue_bytes = impairment.queue_limit();
        let discipline = impairment.queue_discipline;
        let new = |rate| Bottleneck::new(rate, queue_bytes, discipline);
        let later = impairment.steps.iter().filter_map(|step| step.reorder);
        let mut reorders = std::iter::once(impairment.reorder).chain(later);
        let mut steps = impairment.steps.clone();
        steps.sort_by_key(|step| step.at);
        Self {
            start,
            blackouts: impairment.blackouts.clone(),
            script: Script::new(impairment.script.clone()),
            loss: Loss::new(impairment.loss, impairment.loss_per, seed, start),
            duplicate: Chance::new(impairment.duplicate, seed, "duplicate"),
            corrupt: Chance::new(impairment.corrupt, seed, "corrupt"),
            corrupt_bit: Counter::new(seed, "corrupt bit"),
            reorder: Reorderer::new(impairment.reorder, seed),
            bottleneck: impairment.bandwidth.map(new),
            queue_bytes,
            discipline,
            delay: DelayLine::new(impairment.delay, impairment.jitter, impairment.jitter_order, seed),
            may_skip: reorders.any(|reorder| reorder.skips()),
            steps: steps.into(),
            now_delayed: (impairment.delay, impairment.jitter),
            dropped: VecDeque::new(),
            totals: DirectionTotals::default(),
        }
    }

    /// Decides about the next packet, which belongs to `flow` and arrived at `now`.
    pub fn admit(&mut self, now: Time, packet: &Packet, flow: FlowNumber) -> Admission {
        self.advance(now);
        let index = self.totals.packets_in;
        self.totals.packets_in += 1;
        self.totals.bytes_in += u64::from(packet.bytes);
        let since = now.since(self.start);
        let causes = [
            (self.blackouts.iter().any(|blackout| blackout.covers(since)), DropCause::BlackOut),
            (self.script.takes(packet, flow), DropCause::Scripted),
            (self.loss.takes(now, flow), DropCause::Lost),
        ];
        if let Some((_, cause)) = causes.into_iter().find(|(takes, _)| *takes) {
            self.totals.count(cause);
            return Admission::Dropped { index, cause };
        }
        let displaced = self.reorder.displaces(index);
        let corrupt =
            (packet.payload > 0 && self.corrupt.hits(index)).then(|| self.bit(index, packet.payload));
        let marks = Marks { is_copy: false, is_reordered: displaced.is_some(), corrupt };
        let is_doubled = self.duplicate.hits(index);
        self.totals.duplicated += u64::from(is_doubled);
        self.totals.reordered += u64::from(displaced.is_some());
        self.totals.corrupted += u64::from(corrupt.is_some());
        let passage = |marks| Passage { index, at: now, marks, bytes: packet.bytes, displaced };
        let copy = is_doubled.then(|| passage(Marks { is_copy: true, corrupt: None, ..marks }));
        Admission::Passes { original: passage(marks), copy }
    }

    /// Takes in a packet that was just admitted; fails with the cause if the queue drops it.
    pub fn enqueue(&mut self, passage: Passage, payload: T) -> Result<(), DropCause> {
        let Passage { at, bytes, index, displaced, .. } = passage;
        let Some(bottleneck) = &mut self.bottleneck else {
            self.delay.enter(at, index, displaced, payload);
            return Ok(());
        };
        if bottleneck.enter(at, bytes, (passage, payload)).is_ok() {
            return Ok(());
        }
        self.totals.count(DropCause::TailDropped);
        Err(DropCause::TailDropped)
    }

    /// When there is something to do; [`Time::NEVER`] if nothing is inside. It may turn out that nothing is due then.
    pub fn next_at(&self) -> Time {
        let out = self.delay.next_at();
        match &self.bottleneck {
            Some(bottleneck) if bottleneck.inside() > 0 => {
                let step = self.steps.front().map_or(Time::NEVER, |step| self.start + step.at);
                out.min(bottleneck.next_at() + self.delay.floor(self.may_skip)).min(step)
            }
            _ => out,
        }
    }

    /// Takes out the next packet that is due at `now`, with the time at which it was due.
    pub fn poll(&mut self, now: Time) -> Option<(Time, T)> {
        self.advance(now);
        let out = self.delay.leave(now)?;
        self.totals.delivered += 1;
        Some(out)
    }

    /// A packet that was dropped after it had been queued, and why. Call it after [`Pipe::poll`] until `None`.
    pub fn poll_dropped(&mut self) -> Option<(Passage, DropCause, T)> {
        self.dropped.pop_front().map(|(passage, payload)| (passage, DropCause::CodelDropped, payload))
    }

    /// The packet log's totals up to now.
    pub fn totals(&self) -> DirectionTotals {
        let inside = self.delay.inside() + self.bottleneck.as_ref().map_or(0, Bottleneck::inside);
        DirectionTotals { in_flight: inside as u64, ..self.totals }
    }

    /// Processes all events up to `now`, in the order of time.
    fn advance(&mut self, now: Time) {
        while let Some(at) = self.steps.front().map(|step| self.start + step.at).filter(|at| *at <= now) {
            self.drain(at);
            if let Some(step) = self.steps.pop_front() {
                self.change(&step, at);
            }
        }
        self.drain(now);
    }

    /// Moves what has left the bottleneck by `now` into the delay line.
    fn drain(&mut self, now: Time) {
        let Self { bottleneck: Some(bottleneck), delay, dropped, totals, .. } = self else { return };
        while let Some((left, (passage, payload))) = bottleneck.leave(now, |_, packet| {
            totals.count(DropCause::CodelDropped);
            dropped.push_back(packet);
        }) {
            delay.enter(left, passage.index, passage.displaced, payload);
        }
    }

    /// Applies `step` from `at` on.
    fn change(&mut self, step: &Step, at: Time) {
        let (delay, jitter) = self.now_delayed;
        self.now_delayed = (step.delay.unwrap_or(delay), step.jitter.unwrap_or(jitter));
        self.delay.change(self.now_delayed.0, self.now_delayed.1);
        if let Some(loss) = step.loss {
            self.loss.change(loss, at);
        }
        if let Some(reorder) = step.reorder {
            self.reorder.change(reorder);
        }
        if let Some(share) = step.duplicate {
            self.duplicate.change(share);
        }
        if let Some(share) = step.corrupt {
            self.corrupt.change(share);
        }
        if let Some(bandwidth) = step.bandwidth {
            self.change_bandwidth(bandwidth, at);
        }
    }

    fn change_bandwidth(&mut self, bandwidth: Bandwidth, at: Time) {
        match &mut self.bottleneck {
            Some(bottleneck) => bottleneck.change(at, bandwidth),
            none => *none = Some(Bottleneck::new(bandwidth, self.queue_bytes, self.discipline)),
        }
    }

    /// The bit of a payload that is flipped in packet `index`.
    fn bit(&self, index: u64, payload: u32) -> u32 {
        ((u128::from(self.corrupt_bit.at(index)) * u128::from(payload) * 8) >> 64) as u32
    }
}

impl LinkSpec {
    /// The uplink's and the downlink's pipe under one seed, independent of each other; they start at `start`.
    pub fn pipes<T>(&self, seed: u64, start: Time) -> (Pipe<T>, Pipe<T>) {
        (
            Pipe::new(&self.uplink, derive(seed, "uplink"), start),
            Pipe::new(&self.downlink, derive(seed, "downlink"), start),
        )
    }
}

#[cfg(test)]
mod tests;
