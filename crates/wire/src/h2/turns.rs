//! In which order streams with body to send go on (RFC 9218 §10).
//!
//! The most urgent go first. Among equals the bandwidth is shared, a turn to each in the order in which they came back,
//! so that none of them starves. Those whose client wishes them one after another share one place in that order, which
//! the stream with the lowest id takes until it ends. A client that wishes nothing gets equal shares: served one by
//! one, the first large response would hold up every other.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::Priority;

/// A stream's place in the order. It is void once the stream has been given another one, or has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket {
    pub(super) stream: u32,
    serial: u32,
    /// The urgency.
    pub(super) level: u8,
    /// Whether it shares with its equals; else it goes one by one with those of its kind.
    pub(super) shares: bool,
}

impl Ticket {
    /// No place.
    pub(super) const NONE: Self = Self { stream: 0, serial: 0, level: 0, shares: true };
}

/// Who goes on next within one urgency.
#[derive(Debug, Default)]
struct Level {
    /// `None` is the place of the streams that go one by one.
    ring: VecDeque<Option<Ticket>>,
    one_by_one: BinaryHeap<Reverse<Ticket>>,
    /// The first of those was taken and has not come back: their place is kept for it.
    is_out: bool,
}

impl Level {
    fn push(&mut self, ticket: Ticket) {
        if ticket.shares {
            self.ring.push_back(Some(ticket));
            return;
        }
        if self.one_by_one.is_empty() && !self.is_out {
            self.ring.push_back(None);
        }
        self.one_by_one.push(Reverse(ticket));
    }

    /// Takes tickets until one is valid, and counts them.
    fn pop(&mut self, is_valid: &impl Fn(Ticket) -> bool, taken: &mut usize) -> Option<Ticket> {
        loop {
            if let Some(ticket) = self.ring.pop_front()? {
                *taken += 1;
                if is_valid(ticket) {
                    return Some(ticket);
                }
                continue;
            }
            while let Some(Reverse(ticket)) = self.one_by_one.pop() {
                *taken += 1;
                if is_valid(ticket) {
                    self.is_out = true;
                    return Some(ticket);
                }
            }
        }
    }

    fn put_back(&mut self, ticket: Ticket) {
        if ticket.shares {
            return self.ring.push_front(Some(ticket));
        }
        self.is_out = false;
        self.one_by_one.push(Reverse(ticket));
        self.ring.push_front(None);
    }

    fn returned(&mut self) {
        if std::mem::take(&mut self.is_out) && !self.one_by_one.is_empty() {
            self.ring.push_back(None);
        }
    }

    fn retain(&mut self, is_valid: &impl Fn(Ticket) -> bool) {
        self.one_by_one.retain(|Reverse(ticket)| is_valid(*ticket));
        let has_place = !self.one_by_one.is_empty();
        self.ring.retain(|place| place.map_or(has_place, is_valid));
    }
}

/// The order of all streams that wait for their turn.
#[derive(Debug, Default)]
pub(super) struct Turns {
    levels: [Level; Priority::URGENCIES],
    issued: u32,
    /// Tickets in the levels, void ones included.
    tickets: usize,
}

impl Turns {
    /// Gives a stream the last place among its equals.
    pub(super) fn push(&mut self, stream: u32, wish: Option<Priority>) -> Ticket {
        self.issued = self.issued.wrapping_add(1);
        let urgency = wish.map_or(Priority::DEFAULT_URGENCY, |wish| wish.urgency);
        let ticket = Ticket {
            stream,
            serial: self.issued,
            level: urgency % Priority::URGENCIES as u8,
            shares: wish.is_none_or(|wish| wish.incremental),
        };
        self.levels[usize::from(ticket.level)].push(ticket);
        self.tickets += 1;
        ticket
    }

    /// Takes the valid ticket whose turn it is, if it is of urgency `least` or a more urgent one.
    pub(super) fn pop(&mut self, least: u8, is_valid: &impl Fn(Ticket) -> bool) -> Option<Ticket> {
        let mut taken = 0;
        let levels = self.levels.iter_mut().take(usize::from(least) + 1);
        let ticket = { levels }.find_map(|level| level.pop(is_valid, &mut taken));
        self.tickets -= taken;
        ticket
    }

    /// Puts a ticket back where it was taken.
    pub(super) fn put_back(&mut self, ticket: Ticket) {
        self.levels[usize::from(ticket.level)].put_back(ticket);
        self.tickets += 1;
    }

    /// The stream with this ticket has had its turn, or will not take it: if it goes one by one, so may the next.
    pub(super) fn returned(&mut self, ticket: Ticket) {
        if !ticket.shares {
            self.levels[usize::from(ticket.level)].returned();
        }
    }

    /// What it takes of memory, in bytes.
    pub(super) fn held(&self) -> usize {
        let places = |level: &Level| level.ring.capacity() * size_of::<Option<Ticket>>();
        let tickets = |level: &Level| level.one_by_one.capacity() * size_of::<Ticket>();
        self.levels.iter().map(|level| places(level) + tickets(level)).sum()
    }

    /// How many tickets are in the order, void ones included.
    pub(super) const fn tickets(&self) -> usize {
        self.tickets
    }

    /// Drops the void tickets.
    pub(super) fn retain(&mut self, is_valid: &impl Fn(Ticket) -> bool) {
        self.levels.iter_mut().for_each(|level| level.retain(is_valid));
        let places = |level: &Level| level.one_by_one.len() + level.ring.iter().flatten().count();
        self.tickets = self.levels.iter().map(places).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::unnecessary_wraps, reason = "it stands beside the wish of those that say nothing")]
    const fn wish(urgency: u8, incremental: bool) -> Option<Priority> {
        Some(Priority { urgency, incremental })
    }

    fn order_of(waiting: &[(u32, Option<Priority>)]) -> Turns {
        let mut order = Turns::default();
        for (stream, wish) in waiting {
            order.push(*stream, *wish);
        }
        order
    }

    fn next(order: &mut Turns) -> Option<Ticket> {
        order.pop(7, &|_| true)
    }

    /// The streams of the next `n` turns, each of which wants another one after it.
    fn turns(waiting: &[(u32, Option<Priority>)], n: usize) -> Vec<u32> {
        let mut order = order_of(waiting);
        let again = |order: &mut Turns, ticket: Ticket| {
            let (_, wish) = waiting.iter().find(|(stream, _)| *stream == ticket.stream).unwrap();
            order.returned(ticket);
            order.push(ticket.stream, *wish);
            ticket.stream
        };
        (0..n).map(|_| next(&mut order).map(|ticket| again(&mut order, ticket)).unwrap()).collect()
    }

    #[test]
    fn the_more_urgent_go_before_all_others() {
        assert_eq!(turns(&[(1, wish(7, true)), (3, None), (5, wish(2, false))], 3), [5, 5, 5]);
    }

    #[test]
    fn equals_take_turns_whether_they_asked_for_it_or_said_nothing() {
        assert_eq!(turns(&[(5, None), (1, wish(3, true)), (3, None)], 6), [5, 1, 3, 5, 1, 3]);
    }

    #[test]
    fn those_that_go_one_by_one_go_by_their_ids_and_share_one_place() {
        let one_by_one = wish(3, false);
        assert_eq!(turns(&[(5, one_by_one), (1, one_by_one), (3, one_by_one)], 3), [1, 1, 1]);
        let mixed = [(5, one_by_one), (7, None), (1, one_by_one), (9, None)];
        assert_eq!(turns(&mixed, 6), [1, 7, 9, 1, 7, 9]);
    }

    #[test]
    fn of_those_that_go_one_by_one_the_next_waits_until_the_first_comes_back_or_is_done() {
        let mut order = order_of(&[(1, wish(3, false)), (3, wish(3, false)), (5, None)]);
        let first = next(&mut order).unwrap();
        assert_eq!((first.stream, next(&mut order).unwrap().stream, next(&mut order)), (1, 5, None));
        order.returned(first);
        assert_eq!(next(&mut order).unwrap().stream, 3);
    }

    #[test]
    fn a_ticket_that_is_put_back_is_the_next_again() {
        for wish in [None, wish(3, false)] {
            let mut order = order_of(&[(1, wish), (3, wish), (5, None)]);
            let first = next(&mut order).unwrap();
            order.put_back(first);
            assert_eq!((next(&mut order), order.tickets()), (Some(first), 2));
            order.returned(first);
            let rest = [next(&mut order), next(&mut order)].map(|ticket| ticket.map(|ticket| ticket.stream));
            assert_eq!(
                (rest, next(&mut order)),
                (if wish.is_none() { [Some(3), Some(5)] } else { [Some(5), Some(3)] }, None)
            );
        }
    }

    #[test]
    fn the_less_urgent_are_left_alone_if_asked_to() {
        let mut order = order_of(&[(1, wish(4, true)), (3, wish(5, true))]);
        assert_eq!(order.pop(3, &|_| true), None);
        assert_eq!(order.pop(4, &|_| true).unwrap().stream, 1);
        assert_eq!((order.pop(4, &|_| true), order.tickets()), (None, 1));
    }

    #[test]
    fn void_tickets_are_passed_over_and_leave_no_place_behind() {
        let all: Vec<_> =
            (1..=9).map(|stream| (stream, if stream % 2 == 0 { wish(3, false) } else { None })).collect();
        let is_valid = |ticket: Ticket| matches!(ticket.stream, 4 | 7);
        let mut order = order_of(&all);
        assert_eq!(order.pop(7, &is_valid).unwrap().stream, 4);
        assert_eq!(order.pop(7, &is_valid).unwrap().stream, 7);
        assert_eq!(order.pop(7, &is_valid), None);
        let mut order = order_of(&all);
        order.retain(&|ticket: Ticket| ticket.stream == 7);
        assert_eq!(order.tickets(), 1);
        assert_eq!((next(&mut order).unwrap().stream, next(&mut order)), (7, None));
    }
}
