//! The order in which streams with body to send get their turns (RFC 9218 §10).
//!
//! The most urgent stream goes first. Within one urgency, incremental streams share the bandwidth, one turn each in the
//! order in which they came back, so that none starves. Non-incremental ones share one place in that order, which the
//! stream with the lowest id takes until it ends. A client without a preference gets equal shares: served one by one,
//! the first large response would hold up every other.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::Priority;

/// A stream's place in the order. It is void once the stream has been given another one, or has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SendPlace {
    pub(super) stream: u32,
    serial: u32,
    /// The urgency.
    pub(super) level: u8,
    /// Whether it shares the bandwidth: incremental, or without a priority. Non-incremental streams share one place.
    pub(super) shares: bool,
}

impl SendPlace {
    /// No place.
    pub(super) const NONE: Self = Self { stream: 0, serial: 0, level: 0, shares: true };
}

/// The order within one urgency.
#[derive(Debug, Default)]
struct Level {
    /// `None` is the place of the non-incremental streams.
    ring: VecDeque<Option<SendPlace>>,
    one_by_one: BinaryHeap<Reverse<SendPlace>>,
    /// The first of those was taken and has not come back: their place is kept for it.
    is_out: bool,
}

impl Level {
    fn push(&mut self, send_place: SendPlace) {
        if send_place.shares {
            self.ring.push_back(Some(send_place));
            return;
        }
        if self.one_by_one.is_empty() && !self.is_out {
            self.ring.push_back(None);
        }
        self.one_by_one.push(Reverse(send_place));
    }

    /// Takes send places until one is valid, and counts them.
    fn pop(&mut self, is_valid: &impl Fn(SendPlace) -> bool, taken: &mut usize) -> Option<SendPlace> {
        loop {
            if let Some(send_place) = self.ring.pop_front()? {
                *taken += 1;
                if is_valid(send_place) {
                    return Some(send_place);
                }
                continue;
            }
            while let Some(Reverse(send_place)) = self.one_by_one.pop() {
                *taken += 1;
                if is_valid(send_place) {
                    self.is_out = true;
                    return Some(send_place);
                }
            }
        }
    }

    fn put_back(&mut self, send_place: SendPlace) {
        if send_place.shares {
            return self.ring.push_front(Some(send_place));
        }
        self.is_out = false;
        self.one_by_one.push(Reverse(send_place));
        self.ring.push_front(None);
    }

    fn returned(&mut self) {
        if std::mem::take(&mut self.is_out) && !self.one_by_one.is_empty() {
            self.ring.push_back(None);
        }
    }

    fn retain(&mut self, is_valid: &impl Fn(SendPlace) -> bool) {
        self.one_by_one.retain(|Reverse(send_place)| is_valid(*send_place));
        let has_place = !self.one_by_one.is_empty();
        self.ring.retain(|place| place.map_or(has_place, is_valid));
    }
}

/// The order of all streams that wait for their turn.
#[derive(Debug, Default)]
pub(super) struct SendScheduler {
    levels: [Level; Priority::URGENCIES],
    issued: u32,
    /// Send places in the levels, void ones included.
    send_places: usize,
}

impl SendScheduler {
    /// Puts a stream behind all others of its urgency.
    pub(super) fn push(&mut self, stream: u32, priority: Option<Priority>) -> SendPlace {
        self.issued = self.issued.wrapping_add(1);
        let urgency = priority.map_or(Priority::DEFAULT_URGENCY, |priority| priority.urgency);
        let send_place = SendPlace {
            stream,
            serial: self.issued,
            level: urgency % Priority::URGENCIES as u8,
            shares: priority.is_none_or(|priority| priority.incremental),
        };
        self.levels[usize::from(send_place.level)].push(send_place);
        self.send_places += 1;
        send_place
    }

    /// Takes the next valid send place, if it is of urgency `least` or a more urgent one.
    pub(super) fn pop(&mut self, least: u8, is_valid: &impl Fn(SendPlace) -> bool) -> Option<SendPlace> {
        let mut taken = 0;
        let levels = self.levels.iter_mut().take(usize::from(least) + 1);
        let send_place = { levels }.find_map(|level| level.pop(is_valid, &mut taken));
        self.send_places -= taken;
        send_place
    }

    /// Puts a send place back where it was taken.
    pub(super) fn put_back(&mut self, send_place: SendPlace) {
        self.levels[usize::from(send_place.level)].put_back(send_place);
        self.send_places += 1;
    }

    /// The stream with this send place has had its turn, or will not take it: if it is non-incremental, the next may
    /// go.
    pub(super) fn returned(&mut self, send_place: SendPlace) {
        if !send_place.shares {
            self.levels[usize::from(send_place.level)].returned();
        }
    }

    /// The memory that it takes, in bytes.
    pub(super) fn held(&self) -> usize {
        let places = |level: &Level| level.ring.capacity() * size_of::<Option<SendPlace>>();
        let send_places = |level: &Level| level.one_by_one.capacity() * size_of::<SendPlace>();
        self.levels.iter().map(|level| places(level) + send_places(level)).sum()
    }

    /// How many send places are in the order, void ones included.
    pub(super) const fn send_places(&self) -> usize {
        self.send_places
    }

    /// Drops the void send places.
    pub(super) fn retain(&mut self, is_valid: &impl Fn(SendPlace) -> bool) {
        self.levels.iter_mut().for_each(|level| level.retain(is_valid));
        let places = |level: &Level| level.one_by_one.len() + level.ring.iter().flatten().count();
        self.send_places = self.levels.iter().map(places).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::unnecessary_wraps, reason = "it stands beside the priority of those that say nothing")]
    const fn priority(urgency: u8, incremental: bool) -> Option<Priority> {
        Some(Priority { urgency, incremental })
    }

    fn order_of(waiting: &[(u32, Option<Priority>)]) -> SendScheduler {
        let mut order = SendScheduler::default();
        for (stream, priority) in waiting {
            order.push(*stream, *priority);
        }
        order
    }

    fn next(order: &mut SendScheduler) -> Option<SendPlace> {
        order.pop(7, &|_| true)
    }

    /// The streams of the next `n` turns, each of which needs another one after it.
    fn send_scheduler(waiting: &[(u32, Option<Priority>)], n: usize) -> Vec<u32> {
        let mut order = order_of(waiting);
        let again = |order: &mut SendScheduler, send_place: SendPlace| {
            let (_, priority) = waiting.iter().find(|(stream, _)| *stream == send_place.stream).unwrap();
            order.returned(send_place);
            order.push(send_place.stream, *priority);
            send_place.stream
        };
        (0..n).map(|_| next(&mut order).map(|send_place| again(&mut order, send_place)).unwrap()).collect()
    }

    #[test]
    fn the_more_urgent_go_before_all_others() {
        assert_eq!(
            send_scheduler(&[(1, priority(7, true)), (3, None), (5, priority(2, false))], 3),
            [5, 5, 5]
        );
    }

    #[test]
    fn equals_take_turns_whether_they_asked_for_it_or_said_nothing() {
        assert_eq!(send_scheduler(&[(5, None), (1, priority(3, true)), (3, None)], 6), [5, 1, 3, 5, 1, 3]);
    }

    #[test]
    fn those_that_go_one_by_one_go_by_their_ids_and_share_one_place() {
        let one_by_one = priority(3, false);
        assert_eq!(send_scheduler(&[(5, one_by_one), (1, one_by_one), (3, one_by_one)], 3), [1, 1, 1]);
        let mixed = [(5, one_by_one), (7, None), (1, one_by_one), (9, None)];
        assert_eq!(send_scheduler(&mixed, 6), [1, 7, 9, 1, 7, 9]);
    }

    #[test]
    fn of_those_that_go_one_by_one_the_next_waits_until_the_first_comes_back_or_is_done() {
        let mut order = order_of(&[(1, priority(3, false)), (3, priority(3, false)), (5, None)]);
        let first = next(&mut order).unwrap();
        assert_eq!((first.stream, next(&mut order).unwrap().stream, next(&mut order)), (1, 5, None));
        order.returned(first);
        assert_eq!(next(&mut order).unwrap().stream, 3);
    }

    #[test]
    fn a_send_place_that_is_put_back_is_the_next_again() {
        for priority in [None, priority(3, false)] {
            let mut order = order_of(&[(1, priority), (3, priority), (5, None)]);
            let first = next(&mut order).unwrap();
            order.put_back(first);
            assert_eq!((next(&mut order), order.send_places()), (Some(first), 2));
            order.returned(first);
            let rest = [next(&mut order), next(&mut order)]
                .map(|send_place| send_place.map(|send_place| send_place.stream));
            assert_eq!(
                (rest, next(&mut order)),
                (if priority.is_none() { [Some(3), Some(5)] } else { [Some(5), Some(3)] }, None)
            );
        }
    }

    #[test]
    fn the_less_urgent_are_left_alone_if_asked_to() {
        let mut order = order_of(&[(1, priority(4, true)), (3, priority(5, true))]);
        assert_eq!(order.pop(3, &|_| true), None);
        assert_eq!(order.pop(4, &|_| true).unwrap().stream, 1);
        assert_eq!((order.pop(4, &|_| true), order.send_places()), (None, 1));
    }

    #[test]
    fn void_send_places_are_passed_over_and_leave_no_place_behind() {
        let all: Vec<_> =
            (1..=9).map(|stream| (stream, if stream % 2 == 0 { priority(3, false) } else { None })).collect();
        let is_valid = |send_place: SendPlace| matches!(send_place.stream, 4 | 7);
        let mut order = order_of(&all);
        assert_eq!(order.pop(7, &is_valid).unwrap().stream, 4);
        assert_eq!(order.pop(7, &is_valid).unwrap().stream, 7);
        assert_eq!(order.pop(7, &is_valid), None);
        let mut order = order_of(&all);
        order.retain(&|send_place: SendPlace| send_place.stream == 7);
        assert_eq!(order.send_places(), 1);
        assert_eq!((next(&mut order).unwrap().stream, next(&mut order)), (7, None));
    }
}
