//! The threads of a load as a team: they begin at the same moment, and if one fails all end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use h2lab_base::units::Time;

use h2lab_net::clock::Clock;
use h2lab_net::lock::lock;

/// From the end of dialling to the first request, so that the first one is not late.
pub(super) const LEAD: Duration = Duration::from_millis(1);

/// One thread's part of a load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    /// Its number, from 0.
    pub number: u32,
    /// How many there are.
    pub of: u32,
    /// Where they meet; `None` for one that is alone.
    pub team: Option<&'a Team>,
}

impl Part<'_> {
    /// The only one.
    pub const WHOLE: Self = Self { number: 0, of: 1, team: None };

    /// Whether there is one of so many CPUs on which no thread of this load runs. Only then may ours stay awake while nothing is
    /// due: a real-time thread that does not sleep leaves nothing to others on its CPU, such as a server on the same machine.
    pub const fn leaves_one_of(&self, cpus: usize) -> bool {
        (self.of as usize) < cpus
    }
}

/// What the threads of a load share.
#[derive(Debug)]
pub(super) struct Team {
    size: u32,
    ready: Mutex<Ready>,
    changed: Condvar,
    /// One of them has failed: the others end too.
    failed: AtomicBool,
}

#[derive(Debug, Default)]
struct Ready {
    /// Threads whose connections are up.
    threads: u32,
    /// When the first request is due, once all are ready.
    start: Option<Time>,
}

impl Team {
    pub fn new(size: u32) -> Self {
        Self {
            size,
            ready: Mutex::new(Ready::default()),
            changed: Condvar::new(),
            failed: AtomicBool::new(false),
        }
    }

    /// Waits until all threads are ready and returns the time at which all begin. If one has failed it returns at once.
    pub fn meet(&self, clock: Clock) -> Time {
        let mut ready = lock(&self.ready);
        ready.threads += 1;
        if ready.threads == self.size {
            ready.start = Some(clock.now() + LEAD);
            self.changed.notify_all();
        }
        loop {
            match ready.start {
                Some(start) => return start,
                None if self.has_failed() => return clock.now(),
                None => ready = self.changed.wait(ready).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Whether one of the threads has failed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Has all threads end.
    pub fn fail(&self) {
        // Under the lock, so that no thread checks before it and waits after it.
        let _ready = lock(&self.ready);
        self.failed.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }
}

/// Fails the team unless it is disarmed first: on a panic of its thread too.
pub(super) struct FailOnPanic<'a>(pub Option<&'a Team>);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if let Some(team) = self.0 {
            team.fail();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_team_that_fails_waits_for_nobody() {
        let team = Team::new(3);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| team.meet(Clock::start()));
            drop(FailOnPanic(Some(&team)));
            waiting.join().unwrap();
        });
        assert!(team.has_failed());
    }

    #[test]
    fn a_team_begins_at_one_time_when_the_last_is_ready() {
        let (team, clock) = (Team::new(4), Clock::start());
        let starts: Vec<Time> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| team.meet(clock))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(starts.iter().all(|start| *start == starts[0]), "{starts:?}");
    }
}
