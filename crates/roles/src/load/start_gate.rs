//! The moment at which a load begins whose connections are up already: several machines begin together.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_net::lock::lock;

/// What a load waits at between the end of dialling and its first request. Meanwhile it serves its connections: it answers what the
/// server asks, and dials again what the server closes. It waits for as long as it takes; [`LoadSpec::stop`](super::LoadSpec::stop)
/// ends that, and then nothing is sent. Whoever has a bound for it waits beside it, with [`StartGate::wait_for_instant`].
///
/// A gate is for one load. The load runs in a thread of its own; whoever decides the instant has another.
#[derive(Debug, Default)]
pub struct StartGate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Threads of the load whose connections are not up yet; `None` before the load has begun to dial.
    dialling: Option<u32>,
    /// When the first request is due.
    instant: Option<Time>,
    has_ended: bool,
}

/// How far a load at a [`StartGate`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// Its connections are not up yet.
    Dialling,
    /// Its connections are up: it waits for the instant, or is under way.
    Ready,
    /// It has ended: with an error, because it was stopped, or because it is done.
    Ended,
}

impl StartGate {
    /// A gate for one load.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits until the connections of the load are up, or until it has ended, for `timeout` at most; zero only looks.
    pub fn wait_ready(&self, timeout: Duration) -> Readiness {
        let is_dialling = |state: &mut State| state.readiness() == Readiness::Dialling;
        let waited = self.changed.wait_timeout_while(lock(&self.state), timeout, is_dialling);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.readiness()
    }

    /// Has the first request be due at `instant` on the load's clock. A load that learns this less than 20 ms before, or is not ready
    /// by then, begins as soon as it can, with all of its threads at the same time.
    pub fn begin_at(&self, instant: Time) {
        lock(&self.state).instant = Some(instant);
        self.changed.notify_all();
    }

    /// Waits until the load was told when to begin, or until it has ended, for `timeout` at most; `false` if neither is so by then.
    pub fn wait_for_instant(&self, timeout: Duration) -> bool {
        let is_untold = |state: &mut State| state.instant.is_none() && !state.has_ended;
        let waited = self.changed.wait_timeout_while(lock(&self.state), timeout, is_untold);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// The load begins to dial, with so many threads. It has ended when what this returns is dropped.
    pub(super) fn open(&self, threads: u32) -> OpenGate<'_> {
        lock(&self.state).dialling = Some(threads);
        OpenGate(self)
    }

    /// The connections of one more thread are up.
    pub(super) fn arrive(&self) {
        let mut state = lock(&self.state);
        state.dialling = state.dialling.map(|threads| threads.saturating_sub(1));
        self.changed.notify_all();
    }

    /// When the first request is due, as far as that is known.
    pub(super) fn instant(&self) -> Option<Time> {
        lock(&self.state).instant
    }
}

impl State {
    const fn readiness(&self) -> Readiness {
        match self.dialling {
            _ if self.has_ended => Readiness::Ended,
            Some(0) => Readiness::Ready,
            Some(_) | None => Readiness::Dialling,
        }
    }
}

/// A gate whose load has not ended.
#[derive(Debug)]
pub(super) struct OpenGate<'a>(&'a StartGate);

impl Drop for OpenGate<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).has_ended = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a hang meets it.
    const DEADLINE: Duration = Duration::from_secs(60);

    #[test]
    fn a_load_is_ready_when_the_connections_of_its_last_thread_are_up_and_until_it_ends() {
        let gate = StartGate::new();
        assert_eq!(gate.wait_ready(Duration::ZERO), Readiness::Dialling, "it has not begun");
        let open = gate.open(2);
        gate.arrive();
        assert_eq!(gate.wait_ready(Duration::ZERO), Readiness::Dialling);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.wait_ready(DEADLINE));
            gate.arrive();
            assert_eq!(waiting.join().unwrap(), Readiness::Ready);
        });
        drop(open);
        assert_eq!(gate.wait_ready(DEADLINE), Readiness::Ended);
    }

    #[test]
    fn whoever_waits_for_the_instant_of_a_load_is_told_when_it_is_known_or_when_it_is_needed_no_more() {
        let gate = StartGate::new();
        assert!(!gate.wait_for_instant(Duration::ZERO));
        assert!(!gate.wait_for_instant(Duration::from_millis(1)));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.wait_for_instant(DEADLINE));
            gate.begin_at(Time::ZERO);
            assert!(waiting.join().unwrap());
        });
        let ended = StartGate::new();
        drop(ended.open(1));
        assert!(ended.wait_for_instant(Duration::ZERO));
    }

    #[test]
    fn whoever_waits_for_a_load_that_fails_is_told_so() {
        let gate = StartGate::new();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.wait_ready(DEADLINE));
            drop(gate.open(1));
            assert_eq!(waiting.join().unwrap(), Readiness::Ended);
        });
    }
}
