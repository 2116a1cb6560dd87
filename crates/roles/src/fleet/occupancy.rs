//! Who an agent works for: one at a time, since two that measure on one machine would disturb each other.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use h2lab_base::units::Time;

use h2lab_net::clock::Clock;
use h2lab_net::lock::lock;

/// Who an agent works for.
#[derive(Debug)]
pub(super) struct Occupancy {
    clock: Clock,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// For whom, and since when.
    with: Option<(String, Time)>,
    /// Nothing new is begun.
    is_draining: bool,
}

/// Why an agent takes no work now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Occupied {
    /// It works for another one.
    #[error("it is busy with {with}")]
    Busy {
        /// For whom, and for how long already.
        with: String,
    },
    /// It finishes what it does, and then ends.
    #[error("it is shutting down, and takes no new work")]
    Draining,
}

impl Occupancy {
    /// It works for nobody.
    pub fn new() -> Arc<Self> {
        let clock = Clock::start();
        Arc::new(Self { clock, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Takes the agent for `with`, until the reservation is dropped.
    pub fn take(self: &Arc<Self>, with: String) -> Result<Reservation, Occupied> {
        let mut state = lock(&self.state);
        if let Some((other, since)) = &state.with {
            return Err(Occupied::Busy { with: self.described(other, *since) });
        }
        if state.is_draining {
            return Err(Occupied::Draining);
        }
        state.with = Some((with, self.clock.now()));
        Ok(Reservation { occupancy: Arc::clone(self) })
    }

    /// For whom it works, and for how long already.
    pub fn with(&self) -> Option<String> {
        lock(&self.state).with.as_ref().map(|(with, since)| self.described(with, *since))
    }

    fn described(&self, with: &str, since: Time) -> String {
        let whole = self.clock.now().since(since);
        format!("{with}, {} s", whole.as_secs())
    }

    /// From now on nothing new is begun.
    pub fn drain(&self) {
        lock(&self.state).is_draining = true;
    }

    /// Waits until it works for nobody, at most so long; whether it is so.
    pub fn wait_until_free(&self, timeout: Duration) -> bool {
        let state = lock(&self.state);
        let waited = self.changed.wait_timeout_while(state, timeout, |state| state.with.is_some());
        waited.unwrap_or_else(PoisonError::into_inner).0.with.is_none()
    }
}

/// The agent works for somebody as long as this lives.
#[derive(Debug)]
pub struct Reservation {
    occupancy: Arc<Occupancy>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        lock(&self.occupancy.state).with = None;
        self.occupancy.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_one_learns_for_whom_the_agent_works_and_gets_it_when_that_is_over() {
        let occupancy = Occupancy::new();
        let first = occupancy.take("ann".to_owned()).unwrap();
        let refused = occupancy.take("ben".to_owned()).unwrap_err();
        assert!(matches!(&refused, Occupied::Busy { with } if with.starts_with("ann, ")), "{refused}");
        assert!(!occupancy.wait_until_free(Duration::ZERO));
        drop(first);
        assert!(occupancy.wait_until_free(Duration::ZERO) && occupancy.with().is_none());
        assert!(occupancy.take("ben".to_owned()).is_ok());
    }

    #[test]
    fn one_that_drains_finishes_its_work_and_takes_no_more() {
        let occupancy = Occupancy::new();
        let first = occupancy.take("ann".to_owned()).unwrap();
        occupancy.drain();
        assert!(occupancy.with().is_some(), "it goes on");
        drop(first);
        assert_eq!(occupancy.take("ben".to_owned()).unwrap_err(), Occupied::Draining);
    }
}
