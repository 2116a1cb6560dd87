//! Protection of services and of the sidecar itself: what `h2lab_proxy::guard` decides is applied here.

mod admission;
mod attempt;
mod deadlines;
mod failures;
mod memory;
mod own;
mod probe;
mod share;
mod standing;

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use h2lab_base::units::{Time, format_duration};
use h2lab_model::sidecar::ProtectionStatus;
use h2lab_proxy::config::{Config as File, Health, Listen, Retry, Service, Timeouts};
use h2lab_proxy::guard::breaker::{Bounds, Overflow};
use h2lab_proxy::guard::budget::Budget;
use h2lab_proxy::guard::deadlines::Deadlines;
use h2lab_proxy::guard::memory::Pressure;
use h2lab_proxy::guard::outlier::{self, Rules};
use h2lab_proxy::refusal::ProxyError;

use super::exchange::Refusal;
use super::threads::{Common, Shared};
use memory::Held;
pub use own::{in_short, own_answer, unreachable};
pub use share::{ServiceShare, SharedRate};
pub use standing::Standing;

/// For how long the same note on the same service is not repeated.
pub(super) const NOTE_PERIOD: Duration = Duration::from_secs(10);
/// After what time to retry, where that is not known: a second is long for a proxy, and short for a caller.
pub(super) const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// What is known of a service.
#[derive(Debug)]
pub struct ServiceGuard {
    /// Its name in the file.
    pub name: String,
    /// How long it may take.
    pub timeouts: Timeouts,
    /// What of it is sent again.
    pub retry: Retry,
    /// When its instances are left out.
    pub rules: Rules,
    /// The health checks of its instances.
    pub health: Option<Health>,
    /// Since the start.
    pub counts: ProtectionStatus,
    bounds: Bounds,
    /// What is counted for all loops.
    share: ServiceShare,
    /// Requests under way in this loop.
    open: u32,
    /// Requests of this loop that wait, as reported to all loops.
    waiting: u32,
    /// Requests of this loop that the budget of all loops does not include yet.
    unbudgeted: u64,
}

/// What protects services and the sidecar, in a loop.
#[derive(Debug)]
pub struct Guard {
    /// By number.
    pub services: Vec<ServiceGuard>,
    /// Of each listener.
    listeners: Vec<Option<SharedRate>>,
    /// Of exchanges, by number.
    pub due: Deadlines,
    shared: Arc<Shared>,
    on_note: Option<fn(&str)>,
    /// What is held, if that is bounded.
    held: Option<Held>,
    /// Connections of clients that were closed because memory was short.
    pub closed: u64,
    /// When instances that were left out are looked at next.
    tend_at: Time,
    /// When connections that are idle are looked for next.
    sweep_at: Time,
    /// When the failures of instances are compared next.
    compare_at: Time,
    /// The count of judgements of instances that was last seen.
    judgements: u64,
    /// Requests of this loop wait, and this was reported to all loops.
    has_waiting: bool,
}

/// What is watched of an exchange.
#[derive(Debug, Default)]
pub struct Watched {
    /// When all of it must be over.
    pub request_due: Time,
    /// Since when it waits for a connection.
    pub waits_from: Time,
    /// When a part of it was passed on last.
    pub moved_at: Time,
    /// Since when it has its instance.
    pub tried_from: Time,
    /// The attempt under way may take as long as a response: it cannot be sent again.
    pub is_last: bool,
    /// How often it may be sent again although it may have been processed.
    pub attempts: u8,
    /// It is the sidecar's own health check of this instance.
    pub probes: Option<u32>,
    /// The instance at which it has failed.
    pub avoids: Option<u32>,
    /// It is gRPC's: so are the sidecar's own answers.
    pub is_grpc: bool,
    /// It counts among the open requests of its service.
    pub is_counted: bool,
}

impl Guard {
    /// As the file says. `common` is what the first loop counts; `None` for that loop itself.
    pub fn new(
        file: &File,
        on_note: Option<fn(&str)>,
        shared: &Arc<Shared>,
        common: Option<&Common>,
    ) -> Self {
        let services = file.service.iter().map(|(name, service)| {
            let mut new = ServiceGuard::new(name, service, file);
            if let Some(share) = common.and_then(|common| common.services.get(name)) {
                new.share = share.clone();
            }
            new
        });
        let rates = || file.listen.iter().map(|listen| listen.rate.as_ref().map(SharedRate::new)).collect();
        Self {
            services: services.collect(),
            listeners: common.map_or_else(rates, |common| common.rates.clone()),
            due: Deadlines::default(),
            shared: Arc::clone(shared),
            on_note,
            held: file.memory.map(|memory| Held::new(memory.0, Arc::clone(shared))),
            closed: 0,
            tend_at: Time::ZERO,
            sweep_at: Time::ZERO,
            compare_at: Time::ZERO + outlier::INTERVAL,
            judgements: 0,
            has_waiting: false,
        }
    }

    /// What the first loop counts, by service and by listener.
    pub fn shares(&self) -> (BTreeMap<String, ServiceShare>, Vec<Option<SharedRate>>) {
        let services = self.services.iter().map(|of| (of.name.clone(), of.share.clone()));
        (services.collect(), self.listeners.clone())
    }

    /// Another configuration takes the place of `before`: `number` gives the number of a service, which is new where it is the next one.
    /// What is counted is kept. The bound of memory stays. `common` as in [`Guard::new`].
    pub fn follow(
        &mut self,
        before: &File,
        file: &File,
        number: &dyn Fn(&str) -> Option<u32>,
        common: Option<&Common>,
    ) {
        for of in &mut self.services {
            of.health = None; // services that are gone are not asked any more
        }
        for (name, service) in &file.service {
            let mut new = ServiceGuard::new(name, service, file);
            let given = common.and_then(|common| common.services.get(name));
            let Some(old) = number(name).and_then(|number| self.services.get_mut(number as usize)) else {
                new.share = given.cloned().unwrap_or(new.share);
                self.services.push(new);
                continue;
            };
            let is_same_rate = before.service.get(name).is_some_and(|old| old.rate == service.rate);
            new.share = match given {
                Some(share) => share.clone(),
                None => new.share.following(&old.share, new.retry == old.retry, is_same_rate),
            };
            new.succeed(old);
            *old = new;
        }
    }

    /// Listeners take as many requests as the first loop says.
    pub fn take_rates(&mut self, rates: &[Option<SharedRate>]) {
        self.listeners = rates.to_vec();
    }

    /// Sets how many requests a listener takes. `is_same`: as many as before, so that what was counted is kept.
    pub fn limit_listener(&mut self, place: Option<usize>, listen: &Listen, is_same: bool) {
        let Some(place) = place else { return };
        if self.listeners.len() <= place {
            self.listeners.resize_with(place + 1, || None);
        }
        if !is_same || self.listeners[place].is_none() {
            self.listeners[place] = listen.rate.as_ref().map(SharedRate::new);
        }
    }

    /// A listener is gone: another one may get its place.
    pub fn forget_listener(&mut self, place: u32) {
        if let Some(rate) = self.listeners.get_mut(place as usize) {
            *rate = None;
        }
    }

    /// Whether a listener takes one more request of this client; why not, if it does not.
    fn take_of_listener(&self, listener: u32, client: &str, now: Time) -> Result<(), Refusal> {
        match self.listeners.get(listener as usize) {
            Some(Some(rate)) => rate.take(client, now).map_err(|after| too_fast(after, "this listener")),
            _ => Ok(()),
        }
    }

    /// Whether one more request of this client may go to this service; why not, if it may not.
    fn admit(&mut self, service: u32, listener: u32, client: &str, now: Time) -> Result<(), Refusal> {
        if let Err(too_fast) = self.take_of_listener(listener, client, now) {
            if let Some(of) = self.services.get_mut(service as usize) {
                of.counts.rate_limited += 1;
            }
            return Err(too_fast);
        }
        let pressure = self.pressure();
        let Some(of) = self.services.get_mut(service as usize) else { return Ok(()) };
        if pressure >= Pressure::Shed {
            of.counts.shed += 1;
            let refusal = Refusal::new(503, "memory limit reached").come_again_after(DEFAULT_RETRY_AFTER);
            return Err(refusal.because(ProxyError::ProxyInternalResponse));
        }
        if let Some(rate) = &of.share.rate
            && let Err(after) = rate.take(client, now)
        {
            of.counts.rate_limited += 1;
            return Err(too_fast(after, &format!("service {}", of.name)));
        }
        if of.is_bounded() {
            of.share.open(&of.bounds).map_err(|overflow| of.overflow(overflow))?;
        }
        of.unbudgeted += 1; // what is refused here is no load of the service
        of.open += 1;
        Ok(())
    }

    /// A request is over.
    pub fn release(&mut self, service: u32) {
        if let Some(of) = self.services.get_mut(service as usize) {
            of.open = of.open.saturating_sub(1);
            if of.is_bounded() {
                of.share.change_open(1, 0);
            }
        }
    }

    /// Reports to the operator what the client does not get. The same message on a service, or on its instance `about`,
    /// is printed only now and then.
    pub fn note(&self, service: u32, about: &str, error: ProxyError, detail: &str, now: Time) {
        let (Some(write), Some(of)) = (self.on_note, self.services.get(service as usize)) else { return };
        let whom = format!("{} {about}", of.name);
        let Some(others) = self.shared.may_note(whom, error, now, NOTE_PERIOD) else { return };
        match others {
            0 => write(&format!("service {}: {detail}", of.name)),
            n => write(&format!("service {}: {detail} ({n} more since the last such line)", of.name)),
        }
    }
}

/// The answer to a request that comes before it is due.
fn too_fast(after: Duration, whose: &str) -> Refusal {
    Refusal::new(429, format!("rate limit of {whose} exceeded")).come_again_after(after)
}

impl ServiceGuard {
    fn new(name: &str, service: &Service, file: &File) -> Self {
        let retry = service.retry.as_ref().unwrap_or(&file.retry).clone();
        Self {
            name: name.to_owned(),
            timeouts: file.timeouts.of(&service.timeouts),
            rules: service.outlier.rules(),
            health: service.health.clone(),
            counts: ProtectionStatus::default(),
            bounds: service.limits.bounds(),
            share: ServiceShare::new(service, &retry),
            open: 0,
            waiting: 0,
            unbudgeted: 0,
            retry,
        }
    }

    /// Whether requests under way are counted for all loops.
    const fn is_bounded(&self) -> bool {
        self.bounds.open.is_some()
    }

    /// What was counted in this loop is kept.
    fn succeed(&mut self, old: &Self) {
        (self.counts, self.open, self.unbudgeted) = (old.counts, old.open, old.unbudgeted);
        self.waiting = old.waiting;
        let counted = |of: &Self| if of.is_bounded() { of.open } else { 0 };
        self.share.change_open(counted(old), counted(self));
    }

    /// The budget of all loops, which includes all requests of this one.
    fn budget(&mut self, now: Time) -> MutexGuard<'_, Budget> {
        let requests = std::mem::take(&mut self.unbudgeted);
        let mut budget = self.share.budget();
        budget.requests(requests, now);
        budget
    }

    /// A bound is reached.
    fn overflow(&mut self, overflow: Overflow) -> Refusal {
        *(match overflow {
            Overflow::Open(_) => &mut self.counts.over_open,
            Overflow::Waiting(_) => &mut self.counts.over_waiting,
        }) += 1;
        Refusal::new(503, format!("service {} is at its limit: {overflow}", self.name))
            .because(ProxyError::ConnectionLimitReached)
            .come_again_after(DEFAULT_RETRY_AFTER)
    }

    /// What did not come within this time.
    fn late(&self, what: &str, after: Duration) -> String {
        format!("service {}: {what} within {}", self.name, format_duration(after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(text: &str) -> (File, Guard) {
        let file = File::parse(&format!(
            "[[listen]]\naddress = '127.0.0.1:1'\nservice = 'a'\n{text}\n[service.a]\ninstances = ['http://127.0.0.1:2']\n\
             rate = {{ per-second = 1, burst = 3 }}\nretry = {{ budget = 100, per-second = 0 }}\n"
        ));
        let file = file.expect("it is right");
        let shared = Arc::new(Shared::new(1).expect("a loop"));
        let guard = Guard::new(&file, None, &shared, None);
        (file, guard)
    }

    #[test]
    fn requests_that_are_refused_add_nothing_to_the_budget_of_retries() {
        let (_, mut guard) = guard("");
        let taken = (0..100).filter(|_| guard.admit(0, 0, "a", Time::ZERO).is_ok()).count();
        let mut budget = guard.services[0].budget(Time::ZERO);
        assert_eq!((taken, (0..100).filter(|_| budget.retry(Time::ZERO)).count()), (3, 3));
    }

    #[test]
    fn the_rate_of_a_listener_goes_on_unless_it_is_another_one() {
        let (file, mut guard) = guard("rate = { per-second = 1, burst = 1 }");
        let taken = |guard: &mut Guard| guard.admit(0, 0, "a", Time::ZERO).is_ok();
        assert_eq!((taken(&mut guard), taken(&mut guard)), (true, false));
        guard.limit_listener(Some(0), &file.listen[0], true);
        assert!(!taken(&mut guard), "a reload that does not change it takes nothing back");
        guard.limit_listener(Some(0), &file.listen[0], false);
        assert_eq!((taken(&mut guard), taken(&mut guard)), (true, false));
        guard.forget_listener(0);
        guard.limit_listener(Some(0), &file.listen[0], true);
        assert!(taken(&mut guard), "another listener has its place");
    }
}
