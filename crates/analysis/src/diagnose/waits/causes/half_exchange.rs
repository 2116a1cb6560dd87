//! A message in transit: its bytes, and what their losses cost.

use std::ops::Range;

use super::delays::Delays;
use super::timeline::Timeline;
use crate::diagnose::waits::connection::{HalfConnection, Traced};
use crate::diagnose::waits::flow::ByteRange;
use crate::diagnose::waits::latency_breakdown::{Cause, Repair, Whose};
use crate::diagnose::waits::streams::Exchange;
use h2lab_base::units::Time;
use h2lab_wire::trace::Direction;

/// A request or a response, and the direction of the connection that it took.
pub(super) struct HalfExchange<'a> {
    pub traced: &'a Traced,
    pub direction: Direction,
    pub delays: &'a Delays,
    /// Its bytes, in order.
    own: Vec<Range<u64>>,
    /// Where it begins.
    pub start: u64,
    /// One past its last byte.
    pub end: u64,
}

impl<'a> HalfExchange<'a> {
    /// One half of an exchange; `None` if no frame of it was seen.
    pub fn new(
        traced: &'a Traced,
        exchange: &Exchange,
        direction: Direction,
        delays: &'a Delays,
    ) -> Option<Self> {
        let own: Vec<Range<u64>> =
            traced.frames_of(exchange, direction).map(|frame| frame.bytes.clone()).collect();
        let (start, end) = (own.first()?.start, own.last()?.end);
        Some(Self { traced, direction, delays, own, start, end })
    }

    pub fn half_connection(&self) -> &'a HalfConnection {
        self.traced.half_connection(self.direction)
    }

    /// When its first byte entered the link.
    pub fn first_sent(&self) -> Time {
        self.half_connection().first_sent(self.start)
    }

    /// When its last byte could be read.
    pub fn come(&self) -> Time {
        self.half_connection().history.readable(self.end)
    }

    pub fn is_own(&self, bytes: &Range<u64>) -> bool {
        let first = self.own.partition_point(|own| own.end <= bytes.start);
        self.own.get(first).is_some_and(|own| own.start < bytes.end)
    }

    /// Claims the times in which lost segments were missing. The loss that was repaired last is claimed first: without
    /// it the others would have mattered less.
    pub fn claim_losses(&self, byte_ranges: &[&ByteRange], from: Time, until: Time, timeline: &mut Timeline) {
        let mut late: Vec<&&ByteRange> =
            byte_ranges.iter().filter(|byte_range| byte_range.sent.drops().next().is_some()).collect();
        late.sort_by_key(|byte_range| std::cmp::Reverse(byte_range.sent.arrived()));
        for byte_range in late {
            for (begin, end, cause) in self.losses(byte_range) {
                timeline.claim(begin.max(from), end.min(until), cause);
            }
        }
    }

    /// The losses of a byte range, each from when it took effect to when the next one did, or to the arrival.
    fn losses(&self, byte_range: &'a ByteRange) -> impl Iterator<Item = (Time, Time, Cause)> {
        let whose = if self.is_own(&byte_range.bytes) { Whose::Own } else { self.owner(&byte_range.bytes) };
        self.delays.lacks(self.direction, &byte_range.sent).map(move |lack| {
            let sending = &self.half_connection().sending;
            let repair = lack.next.map_or(Repair::Never, |next| sending.repair(lack.lost.at, next.at));
            let drop = lack.lost.drop(self.direction);
            (lack.from, lack.until, Cause::Loss { whose, drop, repair })
        })
    }

    /// The owner of these bytes.
    fn owner(&self, bytes: &Range<u64>) -> Whose {
        // A frame of a stream is more specific than a frame of the connection beside it.
        let frames = self.traced.frames(self.direction).of(bytes);
        let Some(frame) = frames.iter().find(|frame| frame.stream != 0).or(frames.first()) else {
            return Whose::Unnamed;
        };
        let id = self.traced.streams.exchange(frame.stream).and_then(|exchange| exchange.id);
        Whose::Other { stream: frame.stream, id }
    }
}
