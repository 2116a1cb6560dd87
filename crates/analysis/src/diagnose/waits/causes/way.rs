//! A message on its way: its bytes, and what their losses cost.

use std::ops::Range;

use super::{Delays, Timeline};
use crate::diagnose::waits::connection::{Lane, Traced};
use crate::diagnose::waits::flow::{Stretch, Transmission};
use crate::diagnose::waits::story::{Cause, Repair, Whose};
use crate::diagnose::waits::streams::Exchange;
use h2lab_base::units::Time;
use h2lab_wire::trace::Direction;

/// A request or a response, and the direction of the connection that it took.
pub(super) struct Way<'a> {
    pub traced: &'a Traced,
    pub direction: Direction,
    pub delays: &'a Delays,
    /// Its bytes, in their order.
    own: Vec<Range<u64>>,
    /// Where it begins.
    pub start: u64,
    /// One past its last byte.
    pub end: u64,
}

impl<'a> Way<'a> {
    /// The way of one half of an exchange; `None` if no frame of it was seen.
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

    pub fn lane(&self) -> &'a Lane {
        self.traced.lane(self.direction)
    }

    /// When its first byte entered the link.
    pub fn first_sent(&self) -> Time {
        self.lane().first_sent(self.start)
    }

    /// When its last byte could be read.
    pub fn come(&self) -> Time {
        self.lane().history.readable(self.end)
    }

    pub fn is_own(&self, bytes: &Range<u64>) -> bool {
        let first = self.own.partition_point(|own| own.end <= bytes.start);
        self.own.get(first).is_some_and(|own| own.start < bytes.end)
    }

    /// The times in which segments were missing that had been lost. What came last is claimed first: without its loss the
    /// others' would have mattered less.
    pub fn claim_losses(&self, stretches: &[&Stretch], from: Time, until: Time, timeline: &mut Timeline) {
        let mut late: Vec<&&Stretch> =
            stretches.iter().filter(|stretch| stretch.sent.drops().next().is_some()).collect();
        late.sort_by_key(|stretch| std::cmp::Reverse(stretch.sent.arrived()));
        for stretch in late {
            for (begin, end, cause) in self.losses(stretch) {
                timeline.claim(begin.max(from), end.min(until), cause);
            }
        }
    }

    /// From when each loss of a stretch was felt to when the next one was, or to its arrival.
    fn losses(&self, stretch: &'a Stretch) -> impl Iterator<Item = (Time, Time, Cause)> {
        let whose = if self.is_own(&stretch.bytes) { Whose::Own } else { self.owner(&stretch.bytes) };
        let brought = stretch.sent.brought();
        let due = move |lost: &Transmission| self.delays.due(self.direction, lost, brought);
        stretch.sent.drops().map(move |(lost, next)| {
            let end = match next {
                Some(next) if next.is_lost => due(next),
                _ => stretch.sent.arrived(),
            };
            let repair = next.map_or(Repair::Never, |next| self.lane().sending.repair(lost.at, next.at));
            (due(lost), end, Cause::Loss { whose, drop: lost.drop(self.direction), repair })
        })
    }

    /// Whose bytes these are.
    fn owner(&self, bytes: &Range<u64>) -> Whose {
        // A stream's frame says more than one of the connection beside it.
        let frames = self.traced.frames(self.direction).of(bytes);
        let Some(frame) = frames.iter().find(|frame| frame.stream != 0).or(frames.first()) else {
            return Whose::Unnamed;
        };
        let id = self.traced.streams.exchange(frame.stream).and_then(|exchange| exchange.id);
        Whose::Other { stream: frame.stream, id }
    }
}
