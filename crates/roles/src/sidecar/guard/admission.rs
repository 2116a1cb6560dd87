//! Which requests are taken, and which may wait.

use h2lab_base::units::Time;
use h2lab_proxy::grpc;

use super::super::Sidecar;

impl Sidecar<'_> {
    /// A request has come: it is refused if there are too many, and watched from now on.
    pub(in super::super) fn admit_request(&mut self, id: u32, listener: u32, client: &str, now: Time) {
        let exchange = self.exchanges.get(id);
        let watched = &mut exchange.watched;
        (watched.request_due, watched.waits_from, watched.moved_at) = (Time::NEVER, now, now);
        watched.is_grpc = grpc::is_grpc(exchange.head.field(b"content-type"));
        if exchange.refusal.is_none() {
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
        let mut waiting = 0;
        for instance in self.pools.of(service).to_vec() {
            // Those that are over are still in the queue.
            let queue = &mut self.pools.get(instance).waiting;
            queue.retain(|(id, generation)| {
                let exchange = self.exchanges.get(*id);
                exchange.is_open && exchange.generation == *generation && exchange.waits
            });
            waiting += queue.len() as u32;
        }
        let Err(overflow) = of.bounds.may_wait(waiting) else { return true };
        self.exchanges.get(id).refusal = Some(of.overflow(overflow));
        self.exchanges.stir(id);
        false
    }
}
