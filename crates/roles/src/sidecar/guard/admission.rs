//! Which requests are taken, and which may wait.

use h2lab_base::units::Time;
use h2lab_proxy::grpc;

use super::super::Sidecar;
use super::super::pool::Pools;

impl Sidecar<'_> {
    /// A request has come: it is refused if there are too many, and watched from now on.
    pub(in super::super) fn admit_request(&mut self, id: u32, listener: u32, client: &str, now: Time) {
        let exchange = self.exchanges.get(id);
        let watched = &mut exchange.watched;
        (watched.request_due, watched.waits_from, watched.moved_at) = (Time::NEVER, now, now);
        watched.is_grpc = grpc::is_grpc(exchange.head.field(b"content-type"));
        if exchange.refusal.is_some() {
            // A request that no route takes counts for the rate, too.
            if let Err(too_fast) = self.guard.take_of_listener(listener, client, now) {
                exchange.refusal = Some(too_fast);
            }
        } else {
            match self.guard.admit(exchange.service, listener, client, now) {
                Err(refusal) => exchange.refusal = Some(refusal),
                Ok(()) => exchange.watched.is_counted = true,
            }
        }
        if exchange.refusal.is_none()
            && let Some(of) = self.guard.services.get(exchange.service as usize)
        {
            let watched = &mut exchange.watched;
            watched.attempts = of.retry.attempts;
            if !of.timeouts.request.is_zero() {
                watched.request_due = now + of.timeouts.request;
            }
            let deadline = exchange.head.field(b"grpc-timeout").and_then(grpc::timeout);
            if let Some(deadline) = deadline.filter(|_| watched.is_grpc) {
                watched.request_due = watched.request_due.min(now + deadline);
            }
        }
        self.watch(id);
    }

    /// Whether a request may wait for a connection; it is refused if too many do.
    pub(in super::super) fn may_wait(&mut self, id: u32) -> bool {
        let service = self.exchanges.get(id).service;
        let Some(of) = self.guard.services.get_mut(service as usize).filter(|of| of.bounds.waiting.is_some())
        else {
            return true;
        };
        let waiting = count_waiting(&self.pools, service);
        of.share.change_waiting(of.waiting, waiting);
        of.waiting = waiting;
        match of.share.wait(&of.bounds) {
            Ok(()) => {
                of.waiting += 1;
                self.guard.has_waiting = true;
                true
            }
            Err(overflow) => {
                self.exchanges.get(id).refusal = Some(of.overflow(overflow));
                self.exchanges.stir(id);
                false
            }
        }
    }

    /// Makes known to all loops how many requests of this one still wait.
    pub(in super::super) fn tell_waiting(&mut self) {
        if !self.guard.has_waiting {
            return;
        }
        self.guard.has_waiting = false;
        for (service, of) in (0..).zip(&mut self.guard.services) {
            if of.waiting > 0 {
                let waiting = count_waiting(&self.pools, service);
                of.share.change_waiting(of.waiting, waiting);
                of.waiting = waiting;
                self.guard.has_waiting |= waiting > 0;
            }
        }
    }
}

/// How many requests wait for a connection to an instance of a service.
fn count_waiting(pools: &Pools, service: u32) -> u32 {
    let waits = |instance: &u32| pools.all[*instance as usize].waiting;
    pools.of(service).iter().map(waits).sum()
}
