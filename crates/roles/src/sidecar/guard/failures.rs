//! What follows when an instance fails: the request is sent again, if there is budget for it, and the instance may be left out.

use std::sync::PoisonError;
use std::time::Duration;

use h2lab_base::counts::noun_of;
use h2lab_base::units::{Time, format_duration};
use h2lab_proxy::config::RetryOn;
use h2lab_proxy::guard::{outlier, panic};
use h2lab_proxy::refusal::ProxyError;
use h2lab_proxy::retry::Fate;

use super::super::Sidecar;

/// How often instances that are left out are looked at.
const INSTANCE_CHECK_PERIOD: Duration = Duration::from_millis(100);
/// How often connections of clients are looked at.
const SWEEP: Duration = Duration::from_millis(500);

impl Sidecar<'_> {
    /// Whether a request that has met this fate is sent again. What may have been processed needs budget.
    pub(in super::super) fn repeats(&mut self, id: u32, fate: Fate, on: RetryOn, now: Time) -> bool {
        let service = self.exchanges.get(id).service;
        let of = self.guard.services.get(service as usize);
        let is_asked_for = of.is_some_and(|of| of.retry.on.contains(&on));
        (fate == Fate::Unprocessed || is_asked_for) && self.may_afford(id, fate, now)
    }

    /// The same of what the configuration asks for in any case.
    pub(super) fn may_afford(&mut self, id: u32, fate: Fate, now: Time) -> bool {
        let exchange = self.exchanges.get(id);
        if !exchange.may_repeat(fate) {
            return false;
        }
        if fate == Fate::Unprocessed {
            return true;
        }
        let Some(of) = self.guard.services.get_mut(exchange.service as usize) else { return false };
        let may = of.budget(now).retry(now);
        *(if may { &mut of.counts.retries } else { &mut of.counts.over_budget }) += 1;
        may
    }

    /// A request begins anew: it finds another connection.
    pub(in super::super) fn repeat(&mut self, id: u32, fate: Fate, now: Time) {
        let exchange = self.exchanges.get(id);
        exchange.up = None;
        exchange.repeated += 1;
        exchange.was_tried = false;
        exchange.request.rewind();
        exchange.watched.waits_from = now;
        if fate != Fate::Unprocessed {
            exchange.watched.avoids = exchange.instance;
        }
        self.totals.repeated += 1;
        self.observer.repeated();
        self.leave(id);
        self.exchanges.stir(id);
        self.watch(id);
    }

    /// A response with this status has come: `true` if the request is sent again instead, and its stream is of no use.
    pub(in super::super) fn repeats_status(&mut self, id: u32, status: u16, now: Time) -> bool {
        let repeats = status >= 500 && self.repeats(id, Fate::Unknown, RetryOn::Status(status), now);
        if repeats {
            self.repeat(id, Fate::Unknown, now);
        }
        repeats
    }

    /// Whether a request that found no connection is given to another instance, or waits for one.
    pub(in super::super) fn retries_connections(&self, service: u32) -> bool {
        let of = self.guard.services.get(service as usize);
        of.is_none_or(|of| of.retry.on.contains(&RetryOn::Connect))
    }

    /// An attempt at an instance has ended.
    pub(in super::super) fn judge(&mut self, instance: u32, failed: bool, now: Time) {
        let pool = self.pools.get(instance);
        pool.judged(failed, now);
        let Some(of) = self.guard.services.get_mut(pool.service as usize) else { return };
        of.counts.failures += u64::from(failed);
        if pool.standing.ended(failed, &mut pool.uncounted, &of.rules, now) {
            let why = format!(
                "after {} consecutive {}",
                of.rules.consecutive,
                noun_of(of.rules.consecutive.into(), "failure")
            );
            self.eject(instance, &why, now);
        }
    }

    /// Leaves an instance out for a while, if enough others are left.
    fn eject(&mut self, instance: u32, why: &str, now: Time) {
        let service = self.pools.get(instance).service;
        let Some(of) = self.guard.services.get_mut(service as usize) else { return };
        let ejecting = of.share.ejecting();
        let alone = ejecting.lock().unwrap_or_else(PoisonError::into_inner);
        let numbers = self.pools.of(service);
        let out =
            numbers.iter().filter(|number| self.pools.all[**number as usize].standing.is_out(now)).count();
        if !outlier::may_eject(out, numbers.len(), &of.rules) {
            return;
        }
        let pool = &self.pools.all[instance as usize];
        let Some(until) = pool.standing.eject(&of.rules, now) else { return };
        drop(alone);
        of.counts.ejections += 1;
        let time = format_duration(until.since(now));
        let detail = format!("{} ejected for {time} {why}", pool.name);
        self.guard.note(service, &pool.name, ProxyError::DestinationUnavailable, &detail, now);
        self.guard.shared.judged();
        self.reconsider(service, now);
    }

    /// Finds out which instances of a service are avoided.
    pub(in super::super) fn reconsider(&mut self, service: u32, now: Time) {
        let Some(of) = self.guard.services.get(service as usize) else { return };
        let mut numbers = self.pools.of(service).to_vec();
        numbers.retain(|number| self.pools.all[*number as usize].part.at.member.weight > 0); // others take none
        let candidates: Vec<_> =
            numbers.iter().map(|number| self.pools.all[*number as usize].candidate(now)).collect();
        let panic::Asked { avoided, joined } = panic::asked(&candidates, of.rules.panic);
        for (number, is_avoided) in numbers.into_iter().zip(avoided) {
            let pool = self.pools.get(number);
            (pool.is_avoided, pool.joined) = (is_avoided, joined);
        }
    }

    /// Lets instances come back, and compares those of a service with each other.
    pub(in super::super) fn tend(&mut self, now: Time) {
        let judgements = self.guard.shared.judgements();
        let is_told = std::mem::replace(&mut self.guard.judgements, judgements) != judgements;
        if now < self.guard.tend_at {
            if is_told {
                // Another loop has left an instance out, or takes it again.
                (0..self.guard.services.len() as u32).for_each(|service| self.reconsider(service, now));
            }
            return;
        }
        self.guard.tend_at = now + INSTANCE_CHECK_PERIOD;
        self.count_all(now);
        if now >= self.guard.sweep_at {
            self.guard.sweep_at = now + SWEEP;
            self.end_idle(now);
            self.release_idle(now);
        }
        let compares = self.is_first() && now >= self.guard.compare_at;
        if compares {
            self.guard.compare_at = now + outlier::INTERVAL;
        }
        for service in 0..self.guard.services.len() as u32 {
            if compares {
                self.compare(service, now);
            }
            self.reconsider(service, now);
        }
        if self.is_first() {
            self.probe(now);
        }
    }

    /// Makes known to all loops what this one has counted.
    fn count_all(&mut self, now: Time) {
        for of in self.guard.services.iter_mut().filter(|of| of.unbudgeted > 0) {
            drop(of.budget(now));
        }
        for pool in &mut self.pools.all {
            pool.standing.count(&mut pool.uncounted);
        }
    }

    fn compare(&mut self, service: u32, now: Time) {
        let rules = self.guard.services[service as usize].rules;
        let numbers = self.pools.of(service).to_vec();
        let mut records: Vec<_> =
            numbers.iter().map(|number| self.pools.all[*number as usize].standing.record()).collect();
        let worse = outlier::compare(
            &mut records.iter_mut().map(|record| &mut **record).collect::<Vec<_>>(),
            &rules,
            now,
        );
        drop(records);
        for index in worse {
            self.eject(numbers[index], "because it fails far more often than the others", now);
        }
    }
}
