//! The threads of a load as a team: they begin at the same moment, and if one fails all end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::workload::Share;

use h2lab_net::clock::Clock;
use h2lab_net::lock::lock;

/// From the end of dialling to the first request, so that the first one is not late.
pub(super) const LEAD: Duration = Duration::from_millis(1);

/// One thread's part of a load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    /// Its number among the parts of the whole load, from 0.
    pub number: u32,
    /// How many parts the whole load has: threads of all its shares.
    pub of: u32,
    /// Its number among the threads of this process, from 0.
    pub thread: u32,
    /// How many threads this process has.
    pub threads: u32,
    /// Where these meet; `None` for one that is alone.
    pub team: Option<&'a Team>,
}

impl<'a> Part<'a> {
    /// The only one.
    pub const WHOLE: Self = Self { number: 0, of: 1, thread: 0, threads: 1, team: None };

    /// The part of thread `thread` of the `threads` of a share. Shares take turns in the numbers, so that what does not divide evenly
    /// is spread over the shares, and not all of it is the first one's.
    pub const fn of_share(share: Share, thread: u32, threads: u32, team: Option<&'a Team>) -> Self {
        Self { number: share.number + share.of * thread, of: share.of * threads, thread, threads, team }
    }

    /// Whether there is one of so many CPUs on which no thread of this load runs. Only then may ours stay awake while nothing is
    /// due: a real-time thread that does not sleep leaves nothing to others on its CPU, such as a server on the same machine.
    pub const fn leaves_one_of(&self, cpus: usize) -> bool {
        (self.threads as usize) < cpus
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
    /// Threads that are ready.
    threads: u32,
    /// The latest instant that one of them has come with.
    instant: Option<Time>,
    /// One of them is not to begin.
    is_stopped: bool,
    /// When the first request is due, once all are ready; `None` if they do not begin.
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

    /// Waits until all threads are ready and returns the time at which all begin: `instant`, or as soon as they can if it comes too
    /// soon. None begins if one of them comes without an instant. If one has failed it returns at once.
    pub fn meet(&self, clock: Clock, instant: Option<Time>) -> Option<Time> {
        let mut ready = lock(&self.ready);
        ready.threads += 1;
        ready.instant = ready.instant.max(instant);
        ready.is_stopped |= instant.is_none();
        if ready.threads == self.size {
            let soonest = clock.now() + LEAD;
            ready.start = ready.instant.filter(|_| !ready.is_stopped).map(|instant| instant.max(soonest));
            self.changed.notify_all();
        }
        while ready.threads < self.size {
            if self.has_failed() {
                return None;
            }
            ready = self.changed.wait(ready).unwrap_or_else(PoisonError::into_inner);
        }
        ready.start
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
            let waiting = scope.spawn(|| team.meet(Clock::start(), Some(Time::ZERO)));
            drop(FailOnPanic(Some(&team)));
            assert_eq!(waiting.join().unwrap(), None);
        });
        assert!(team.has_failed());
    }

    #[test]
    fn a_team_begins_at_one_time_when_the_last_is_ready() {
        let clock = Clock::start();
        let late = Time::ZERO + Duration::from_secs(3_600);
        for instant in [Time::ZERO, late] {
            let starts = met(clock, [Some(instant); 4]);
            assert!(starts.iter().all(|start| start.is_some() && *start == starts[0]), "{starts:?}");
            assert!(starts[0] >= Some(Time::ZERO + LEAD), "{starts:?}");
            assert!(instant < late || starts[0] == Some(late), "{starts:?}");
        }
    }

    #[test]
    fn a_team_of_which_one_is_stopped_does_not_begin() {
        let instant = Some(Time::ZERO);
        assert_eq!(met(Clock::start(), [instant, None, instant, instant]), [None; 4]);
    }

    #[test]
    fn shares_of_threads_are_the_parts_of_the_whole_load_and_each_is_there_once() {
        for (of, threads) in [(1, 1), (1, 4), (5, 1), (3, 4)] {
            let shares = (0..of).map(|number| Share { number, of });
            let parts = shares.flat_map(|share| (0..threads).map(move |thread| (share, thread)));
            let mut numbers: Vec<u32> = parts
                .map(|(share, thread)| Part::of_share(share, thread, threads, None))
                .inspect(|part| assert_eq!((part.of, part.threads), (of * threads, threads)))
                .map(|part| part.number)
                .collect();
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..of * threads), "{of} shares of {threads}");
        }
    }

    /// When each of so many threads begins that come with these instants.
    fn met(clock: Clock, instants: [Option<Time>; 4]) -> Vec<Option<Time>> {
        let team = &Team::new(4);
        std::thread::scope(|scope| {
            let threads = instants.map(|instant| scope.spawn(move || team.meet(clock, instant)));
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }
}
