//! What is counted of a service, for all loops together.
//!
//! A bound that a service does not have costs nothing: nothing is counted for it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_proxy::config::{Rate, Retry, Service};
use h2lab_proxy::guard::breaker::{Bounds, Overflow};
use h2lab_proxy::guard::budget::Budget;
use h2lab_proxy::guard::rate::RateLimiter;

/// A rate of a service or a listener.
#[derive(Debug, Clone)]
pub struct SharedRate(Arc<Mutex<RateLimiter>>);

impl SharedRate {
    /// With full buckets.
    pub fn new(rate: &Rate) -> Self {
        Self(Arc::new(Mutex::new(rate.limiter())))
    }

    /// Takes a request of this client, or returns after what time to retry.
    pub fn take(&self, client: &str, now: Time) -> Result<(), Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take(client, now)
    }
}

/// What is counted of a service.
#[derive(Debug, Clone)]
pub struct ServiceShare {
    /// Requests under way, of loops that have a bound for them.
    open: Arc<AtomicU32>,
    /// Of these, those that wait for a connection.
    waiting: Arc<AtomicU32>,
    budget: Arc<Mutex<Budget>>,
    /// How many requests a second it takes.
    pub rate: Option<SharedRate>,
    /// Held while an instance is left out: the last one must stay.
    ejecting: Arc<Mutex<()>>,
}

impl ServiceShare {
    /// Nothing yet.
    pub fn new(service: &Service, retry: &Retry) -> Self {
        Self {
            open: Arc::default(),
            waiting: Arc::default(),
            budget: Arc::new(Mutex::new(Budget::new(retry.budget, retry.per_second))),
            rate: service.rate.as_ref().map(SharedRate::new),
            ejecting: Arc::default(),
        }
    }

    /// What is under way is kept. Budget and rate begin anew, unless they are the same as before.
    pub fn following(self, before: &Self, is_same_budget: bool, is_same_rate: bool) -> Self {
        let Self { open, waiting, budget, rate, ejecting } = before.clone();
        Self {
            open,
            waiting,
            ejecting,
            budget: if is_same_budget { budget } else { self.budget },
            rate: if is_same_rate { rate } else { self.rate },
        }
    }

    /// One more request is under way, unless there are too many.
    pub fn open(&self, bounds: &Bounds) -> Result<(), Overflow> {
        reserve(&self.open, |open| bounds.may_open(open))
    }

    /// One more waits, unless too many do.
    pub fn wait(&self, bounds: &Bounds) -> Result<(), Overflow> {
        reserve(&self.waiting, |waiting| bounds.may_wait(waiting))
    }

    /// A loop has `now` requests under way instead of `before`.
    pub fn change_open(&self, before: u32, now: u32) {
        change(&self.open, before, now);
    }

    /// In a loop, `now` requests wait instead of `before`.
    pub fn change_waiting(&self, before: u32, now: u32) {
        change(&self.waiting, before, now);
    }

    /// The budget of what is sent again.
    pub fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No other loop leaves an instance out while this is held.
    pub fn ejecting(&self) -> Arc<Mutex<()>> {
        Arc::clone(&self.ejecting)
    }
}

/// Counts one more, if that may be.
fn reserve(count: &AtomicU32, may: impl Fn(u32) -> Result<(), Overflow>) -> Result<(), Overflow> {
    let next = |n| may(n).is_ok().then_some(n + 1);
    match count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
        Ok(_) => Ok(()),
        Err(n) => may(n),
    }
}

fn change(count: &AtomicU32, before: u32, now: u32) {
    if now != before {
        // Modulo 2^32: a loop has added before what it subtracts.
        count.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_come_at_the_same_time_do_not_exceed_a_bound() {
        let share = ServiceShare::new(&Service::default(), &Retry::default());
        let bounds = Bounds { open: Some(100), waiting: Some(7), wait: None };
        let taken: (usize, usize) = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let open = (0..1_000).filter(|_| share.open(&bounds).is_ok()).count();
                        (open, (0..1_000).filter(|_| share.wait(&bounds).is_ok()).count())
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("it ends"))
                .fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1))
        });
        assert_eq!(taken, (100, 7));
        share.change_open(60, 59);
        assert_eq!((share.open(&bounds), share.open(&bounds)), (Ok(()), Err(Overflow::Open(100))));
        share.change_waiting(5, 0);
        assert_eq!((0..9).filter(|_| share.wait(&bounds).is_ok()).count(), 5);
    }

    #[test]
    fn what_is_the_same_goes_on_and_what_is_not_begins_anew() {
        let rate =
            |per_second| Some(Rate { per_second, burst: None, key: h2lab_proxy::config::RateKey::All });
        let service = Service { rate: rate(1), ..Service::default() };
        let retry = Retry { budget: 0, per_second: 0, ..Retry::default() };
        let before = ServiceShare::new(&service, &retry);
        let take =
            |share: &ServiceShare| share.rate.as_ref().is_some_and(|rate| rate.take("a", Time::ZERO).is_ok());
        assert_eq!((take(&before), take(&before)), (true, false));
        let after = |is_same| ServiceShare::new(&service, &retry).following(&before, is_same, is_same);
        assert_eq!((take(&after(true)), take(&after(false))), (false, true));
        assert!(Arc::ptr_eq(&after(true).budget, &before.budget));
        assert!(!Arc::ptr_eq(&after(false).budget, &before.budget));
        assert!(Arc::ptr_eq(&after(false).open, &before.open));
    }
}
