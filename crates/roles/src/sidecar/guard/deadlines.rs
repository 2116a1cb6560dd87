//! How long requests may take.

use h2lab_base::units::Time;
use h2lab_proxy::fields::Version;
use h2lab_proxy::refusal::ProxyError;
use h2lab_wire::ErrorCode;

use super::super::exchange::{Exchange, Refusal};
use super::super::side::Peer;
use super::super::{Sidecar, mark, side, side_at};
use super::{DEFAULT_RETRY_AFTER, Guard};

/// What is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Late {
    /// A connection to an instance.
    Connection,
    /// This instance, where another one may be asked.
    Attempt,
    /// The head of the response.
    Response,
    /// The next byte of a body.
    Stream,
    /// All of it.
    Request,
}

impl Guard {
    /// What of an exchange is due next, and when.
    fn due_of(&self, exchange: &Exchange) -> (Time, Late) {
        let watched = &exchange.watched;
        let mut due = (watched.request_due, Late::Request);
        if watched.probes.is_some() {
            return due; // a check has a timeout of its own, for all of it
        }
        let Some(of) = self.services.get(exchange.service as usize) else { return due };
        let mut bound = |at: Time, what| {
            if at < due.0 {
                due = (at, what);
            }
        };
        let timeouts = &of.timeouts;
        let is_answered = exchange.is_answered || exchange.answer.is_some();
        let may_be_last = timeouts.attempt.is_zero() || watched.is_last || exchange.asked.is_tunnel();
        let attempt_from = match exchange.up {
            _ if may_be_last || is_answered => None,
            None => exchange.instance.map(|_| watched.tried_from),
            Some(_) => exchange.request.is_done().then_some(watched.moved_at),
        };
        if let Some(from) = attempt_from {
            bound(from + timeouts.attempt, Late::Attempt);
        }
        if !is_answered && exchange.up.is_none() {
            bound(watched.waits_from + of.bounds.wait.unwrap_or(timeouts.response), Late::Connection);
        } else if !is_answered && (exchange.request.is_done() || exchange.asked.is_tunnel()) {
            bound(watched.moved_at + timeouts.response, Late::Response);
        } else if !timeouts.stream.is_zero() {
            bound(watched.moved_at + timeouts.stream, Late::Stream);
        }
        due
    }
}

impl Sidecar<'_> {
    /// Ends connections of HTTP/2 clients that have had no request for long: in two steps (RFC 9113 §6.8), so that one that is on its way
    /// is still taken. HTTP/1.1 has one step; its engine takes it.
    pub(super) fn end_idle(&mut self, now: Time) {
        let idle = self.config.file.timeouts.client_idle;
        if idle.is_zero() {
            return;
        }
        for slot in 0..self.slots.len() as u32 {
            if let Some(side) = side(&mut self.slots, slot)
                && side.version != Version::H1
                && matches!(side.peer, Peer::Client { .. })
                && side.streams.len() == 0
                && side.used_at + idle <= now
                && !side.engine.is_draining()
            {
                side.engine.goaway(now, ErrorCode::NO_ERROR, b"idle timeout");
                mark(side, slot, &mut self.dirty);
            }
        }
    }

    /// Gives the memory of buffers back that idle clients' connections hold.
    pub(super) fn release_idle(&mut self, now: Time) {
        for slot in 0..self.slots.len() as u32 {
            if let Some(side) = side(&mut self.slots, slot)
                && matches!(side.peer, Peer::Client { .. })
            {
                side.release_if_idle(now);
                self.weigh_slot(slot);
            }
        }
    }

    /// Something of an exchange has changed that may make it due earlier.
    pub(in super::super) fn watch(&mut self, id: u32) {
        let (at, _) = self.guard.due_of(self.exchanges.get(id));
        self.guard.due.set(id, at);
    }

    /// Ends what takes too long.
    pub(in super::super) fn expire(&mut self, now: Time) {
        while let Some(id) = self.guard.due.expired(now) {
            let exchange = self.exchanges.get(id);
            if !exchange.is_open || exchange.refusal.is_some() {
                continue; // it is about to be answered
            }
            match self.guard.due_of(exchange) {
                (at, Late::Stream) if at <= now && self.takes_some(id) => {
                    self.exchanges.get(id).watched.moved_at = now;
                    self.watch(id);
                }
                (at, Late::Attempt) if at <= now => self.end_attempt(id, now),
                (at, late) if at <= now => self.give_up(id, late, now),
                (at, _) => self.guard.due.set(id, at),
            }
        }
    }

    /// Whether the recipient of what waits has taken some of what its socket has.
    fn takes_some(&mut self, id: u32) -> bool {
        let exchange = self.exchanges.get(id);
        let (down, up) = (exchange.down, exchange.up);
        let waits = [(down, exchange.response.waiting() > 0), (up, exchange.request.waiting() > 0)];
        let mut recipients = waits.into_iter().filter(|(_, waits)| *waits).filter_map(|(at, _)| at);
        recipients
            .any(|at| side_at(&mut self.slots, at).is_some_and(|side| side.is_blocked() && side.takes_some()))
    }

    /// Whether the deadline of a request has passed that its instance has reset; the request is then answered with
    /// that. Instances get the deadlines of gRPC and reset at them, too. The clock is read again: an event that comes
    /// late in a long turn may be after the deadline although the turn began before it.
    pub(in super::super) fn is_past_deadline(&mut self, id: u32) -> bool {
        let now = self.clock.now();
        let exchange = self.exchanges.get(id);
        if exchange.watched.request_due > now || exchange.response.has_ended() {
            return false;
        }
        exchange.up = None;
        self.give_up(id, Late::Request, now);
        true
    }

    fn give_up(&mut self, id: u32, late: Late, now: Time) {
        let exchange = self.exchanges.get(id);
        let Some(of) = self.guard.services.get_mut(exchange.service as usize) else { return };
        let timeouts = of.timeouts;
        of.counts.timeouts += u64::from(exchange.watched.probes.is_none()); // checks have a count of their own
        let is_silent = !exchange.request.has_ended() && exchange.request.waiting() == 0;
        let is_asked = exchange.up.is_some() && exchange.request.is_done();
        let is_asked = is_asked && !exchange.is_answered && exchange.watched.probes.is_none();
        // The time that it was given, not the time that has passed, so that the text is the same each time.
        let given = exchange.watched.request_due.since(exchange.began_at);
        // A deadline of the client's own says nothing of the instance.
        let is_failure = is_asked
            && match late {
                Late::Response => true,
                Late::Request => given == timeouts.request,
                Late::Connection | Late::Attempt | Late::Stream => false,
            };
        let refusal = match late {
            Late::Connection => {
                let after = of.bounds.wait.unwrap_or(timeouts.response);
                Refusal::new(503, of.late("no connection to an instance was available", after))
                    .come_again_after(DEFAULT_RETRY_AFTER)
            }
            Late::Response | Late::Attempt => {
                Refusal::new(504, of.late("no response from an instance", timeouts.response))
            }
            Late::Stream if is_silent && !exchange.is_answered => {
                Refusal::new(408, of.late("the rest of the request body did not arrive", timeouts.stream))
            }
            Late::Stream => {
                Refusal::new(504, of.late("no data of the request or its response", timeouts.stream))
                    .because(ProxyError::HttpResponseIncomplete)
            }
            Late::Request => Refusal::new(504, of.late("no complete response", given)),
        };
        exchange.refusal = Some(refusal);
        let instance = exchange.instance;
        self.stop_waiting(id);
        self.exchanges.stir(id);
        if let (true, Some(instance)) = (is_failure, instance) {
            self.judge(instance, true, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use h2lab_proxy::config::Config as File;

    use super::super::super::threads::Shared;
    use super::*;

    #[test]
    fn a_check_is_late_by_its_own_timeout_alone() {
        let file = File::parse(
            "[[listen]]\naddress = '127.0.0.1:1'\nservice = 'a'\n[service.a]\ninstances = ['http://127.0.0.1:2']\n\
             limits = { wait = '1ms' }\ntimeouts = { response = '1ms', stream = '1ms', attempt = '1ms' }\n",
        )
        .expect("it is right");
        let guard = Guard::new(&file, None, &Arc::new(Shared::new(1).expect("a loop")), None);
        let mut exchange = Exchange::default();
        exchange.watched.request_due = Time::ZERO + Duration::from_secs(60);
        let due = |exchange: &Exchange| guard.due_of(exchange).1;
        assert_eq!(due(&exchange), Late::Connection);
        exchange.watched.probes = Some(0);
        assert_eq!(due(&exchange), Late::Request);
    }
}
