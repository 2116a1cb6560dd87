//! Active health checks: the sidecar's own requests, over a connection that also takes requests of clients, or, if none
//! of those has room, over one of its own. The first loop makes them, for all.

use h2lab_base::units::Time;
use h2lab_proxy::guard::health;
use h2lab_proxy::head::Part;
use h2lab_proxy::refusal::ProxyError;
use h2lab_wire::ErrorCode;

use super::super::body::KEPT;
use super::super::exchange::Refusal;
use super::super::{Sidecar, mark, side};

impl Sidecar<'_> {
    /// Asks the instances whose time has come.
    pub(super) fn probe(&mut self, now: Time) {
        for service in 0..self.guard.services.len() as u32 {
            let Some(health) = &self.guard.services[service as usize].health else { continue };
            let interval = health.interval;
            for instance in self.pools.of(service).to_vec() {
                let pool = self.pools.get(instance);
                if pool.probe_at == Time::ZERO {
                    pool.probe_at = health::first_check(now, interval, &mut self.random);
                }
                if pool.is_probed || now < pool.probe_at {
                    continue;
                }
                pool.is_probed = true;
                pool.probe_at = health::next_check(now, interval, &mut self.random);
                self.ask(service, instance, now);
            }
        }
    }

    fn ask(&mut self, service: u32, instance: u32, now: Time) {
        let Some(health) = &self.guard.services[service as usize].health else { return };
        let id = self.exchanges.begin();
        let exchange = self.exchanges.get(id);
        let pool = self.pools.get(instance);
        pool.load.open += 1;
        (exchange.service, exchange.instance, exchange.began_at) = (service, Some(instance), now);
        let authority = pool.authority();
        let head = &mut exchange.head;
        head.clear();
        head.set(Part::Method, b"GET");
        head.set(Part::Authority, authority.as_bytes());
        head.set(Part::Path, health.path.as_bytes());
        head.add(b"user-agent", &[b"h2lab-health"]);
        exchange.request.push(&[], true);
        let watched = &mut exchange.watched;
        watched.probes = Some(instance);
        (watched.request_due, watched.waits_from, watched.moved_at) = (now + health.timeout, now, now);
        self.watch(id);
    }

    /// Whether an exchange is a check that is still under way. One that is over has a result.
    pub(in super::super) fn is_probing(&mut self, id: u32, now: Time) -> bool {
        let exchange = self.exchanges.get(id);
        let Some(instance) = exchange.watched.probes else { return false };
        let is_over = exchange.response.has_ended() || exchange.response.waiting() >= KEPT;
        let succeeded = match (&exchange.answer, &exchange.refusal) {
            // The check could not be made, which is not the instance's fault.
            (_, Some(refusal)) if refusal.error == ProxyError::ConnectionLimitReached => None,
            (_, Some(_)) => Some(false),
            (Some(answer), None) if is_over => Some((200..300).contains(&answer.status)),
            _ => return true,
        };
        exchange.watched.probes = None;
        self.abandon_checks(instance);
        match succeeded {
            Some(succeeded) => self.probed(instance, succeeded, now),
            None => self.pools.get(instance).is_probed = false,
        }
        false
    }

    /// The connection that was made for a check alone is there. It carries nothing else.
    pub(in super::super) fn begin_check(&mut self, (id, generation): (u32, u32), slot: u32, now: Time) {
        if self.exchanges.waits(id, generation) {
            self.stop_waiting(id);
            self.send(id, slot, now);
        }
        if let Some(side) = side(&mut self.slots, slot) {
            side.engine.goaway(now, ErrorCode::NO_ERROR, b"it was for a health check");
            mark(side, slot, &mut self.dirty);
        }
    }

    /// A check was not processed, as where its connection ends by GOAWAY: it is made once more. `None`: its instance has gone.
    pub(in super::super) fn probe_again(&mut self, id: u32) -> Option<u32> {
        let exchange = self.exchanges.get(id);
        let instance = exchange.watched.probes?;
        let pool = self.pools.get(instance);
        if pool.part.is_leaving || !pool.is_probed {
            exchange.refuse(502, "the instance is unreachable");
            return None;
        }
        pool.load.open += 1;
        exchange.instance = Some(instance);
        Some(instance)
    }

    /// No connection could be made for a check.
    pub(in super::super) fn fail_check(&mut self, (id, generation): (u32, u32), refusal: Refusal) {
        if self.exchanges.waits(id, generation) {
            self.stop_waiting(id);
            self.exchanges.get(id).refusal = Some(refusal);
            self.exchanges.stir(id);
        }
    }

    fn probed(&mut self, instance: u32, succeeded: bool, now: Time) {
        let pool = self.pools.get(instance);
        pool.is_probed = false;
        let service = pool.service;
        let Some(of) = self.guard.services.get_mut(service as usize) else { return };
        let Some(health) = &of.health else { return };
        of.counts.failed_checks += u64::from(!succeeded);
        if pool.health.checked(succeeded, health.healthy, health.unhealthy) {
            pool.standing.examined(pool.health);
            self.guard.shared.judged();
            let detail = if succeeded {
                format!("{} is back in use: health check passed (GET {})", pool.name, health.path)
            } else {
                format!("{} is out of use: health check failed (GET {})", pool.name, health.path)
            };
            let kind = if succeeded {
                ProxyError::ProxyInternalResponse
            } else {
                ProxyError::DestinationUnavailable
            };
            let about = self.pools.name(instance).to_owned();
            self.guard.note(service, &about, kind, &detail, now);
            self.reconsider(service, now);
        }
    }
}
