//! Reactions to a peer that exceeds one of its [`crate::Limits`].

use super::connection::{Connection, Life, Receiving, Sending};
use super::head::Refusal;
use crate::limits::deadlines::Overdue;
use crate::{Error, Limit};
use h2lab_base::units::Time;

impl Connection {
    /// Call when all readable input was read: starts the timers of what is incomplete.
    pub(super) fn watch_input(&mut self, now: Time) {
        // A request's head and another's trailers have numbers of their own.
        let number = match self.receiving {
            Receiving::Head if !self.input.is_empty() => Some(2 * self.counters.requests),
            Receiving::Trailers => Some(2 * self.counters.requests + 1),
            _ => None,
        };
        // The rest may have come: we do not read it.
        self.deadlines.head_under_way(now, number.filter(|_| self.is_open() && self.wants_input()));
        if let Some(stream) = self.body_due() {
            self.deadlines.body_waits(now, stream);
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.life, Life::Open)
    }

    /// The stream on which the peer owes us body and does not wait for us to read.
    fn body_due(&self) -> Option<u32> {
        let exchange = self.exchange.as_ref().filter(|_| matches!(self.receiving, Receiving::Body(_)))?;
        let waits = exchange.sending == Sending::Head && !exchange.awaits_continue;
        (waits && self.is_open() && self.wants_input()).then_some(exchange.stream.0)
    }

    /// Acts on the peer's expired deadlines.
    pub(super) fn handle_timeouts(&mut self, now: Time) {
        while let Some(overdue) = self.deadlines.overdue(now, self.exchange.is_some()) {
            match overdue {
                Overdue::Head if self.is_open() => {
                    self.give_up(Limit::SlowHead, "the head did not come in time");
                }
                Overdue::Body(mark) if self.body_due().is_some_and(|stream| stream <= mark) => {
                    self.give_up(Limit::SlowBody, "the body did not come in time");
                }
                // The period belonged to another request, or this one keeps to the rate.
                Overdue::Body(_) | Overdue::BodyInTime => self.watch_input(now),
                Overdue::Output => {
                    self.counters.limit_hit(Limit::Stall);
                    // The peer does not read it.
                    self.output.clear();
                    self.end(Some(Error::Exceeded(self.deadlines.exceeded(Limit::Stall))));
                }
                Overdue::Idle if self.is_open() => {
                    self.counters.limit_hit(Limit::Idle);
                    self.end(None);
                }
                // HTTP/1.1 has no windows, and what has completed cannot be late.
                Overdue::Windows | Overdue::Head | Overdue::Idle => {}
            }
        }
    }

    /// Answers 408 (RFC 9110 §15.5.9), if no answer is under way, and ends the connection.
    fn give_up(&mut self, limit: Limit, what: &'static str) {
        self.counters.limit_hit(limit);
        let error = Error::Exceeded(self.deadlines.exceeded(limit));
        self.refuse_with(Refusal::with_status(what, 408), error);
    }
}
