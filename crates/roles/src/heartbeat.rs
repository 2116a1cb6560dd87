//! Whether a thread of a role runs when it has to.
//!
//! The requests of an open loop show how late they are. A request of a closed loop is due when the one before has
//! ended, so a generator that was stopped for two seconds would appear punctual. The deadlines of its loop show the
//! pause.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use h2lab_base::units::{Time, nanos};
use h2lab_net::clock::{Clock, RunnableTime};

/// The times in which a thread did not run although a deadline of its own had passed.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    /// Shorter times are no pauses: the kernel's counts are not so precise, and calls may block.
    shortest: Duration,
    /// How long the thread had been busy at the last deadline.
    busy_ns: u64,
    /// The sum of those times.
    pub paused: Duration,
    /// The longest of them.
    pub longest: Duration,
}

impl Heartbeat {
    /// Pauses count from this length on. `busy_ns` is for how long the thread has been busy until now: on a CPU or waiting for one,
    /// which a busy machine explains.
    pub const fn new(shortest: Duration, busy_ns: u64) -> Self {
        Self { shortest, busy_ns, paused: Duration::ZERO, longest: Duration::ZERO }
    }

    /// The deadline `due` is handled now. Time in which the thread was busy since the previous deadline is no pause.
    pub fn beat(&mut self, due: Time, now: Time, busy_ns: u64) {
        let worked = Duration::from_nanos(busy_ns.saturating_sub(self.busy_ns));
        self.busy_ns = busy_ns;
        let pause = now.since(due).saturating_sub(worked);
        if pause >= self.shortest {
            self.paused += pause;
            self.longest = self.longest.max(pause);
        }
    }
}

/// How often a [`Pulse`] looks at the clock.
const PERIOD: Duration = Duration::from_millis(20);

/// A thread that only sleeps. It is late when its process or its machine was stopped, but not when a call of another
/// thread blocked, as calls to a disk do.
#[derive(Debug)]
pub(crate) struct Pulse {
    is_over: Arc<AtomicBool>,
    paused_ns: Arc<AtomicU64>,
    /// `None` once it has been waited for.
    thread: Option<JoinHandle<()>>,
}

impl Pulse {
    /// Begins. Pauses count from `shortest` on.
    pub fn start(shortest: Duration, clock: Clock) -> io::Result<Self> {
        Self::start_due(clock.now() + PERIOD, shortest, clock)
    }

    /// Begins with a first look at `due`. A process may be stopped before the thread has run for the first time.
    fn start_due(first: Time, shortest: Duration, clock: Clock) -> io::Result<Self> {
        let (is_over, paused_ns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (flag, sum) = (Arc::clone(&is_over), Arc::clone(&paused_ns));
        let beat = move || {
            let runnable = RunnableTime::of_this_thread();
            let (mut heartbeat, mut due) = (Heartbeat::new(shortest, 0), first);
            loop {
                std::thread::park_timeout(due.since(clock.now()));
                let now = clock.now();
                heartbeat.beat(due, now, runnable.ns());
                due = now + PERIOD;
                sum.store(nanos(heartbeat.paused), Ordering::Relaxed);
                if flag.load(Ordering::Acquire) {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("heartbeat".to_owned()).spawn(beat)?;
        Ok(Self { is_over, paused_ns, thread: Some(thread) })
    }

    /// For how long the process has not run so far.
    pub fn paused(&self) -> Duration {
        Duration::from_nanos(self.paused_ns.load(Ordering::Relaxed))
    }

    /// The same, until the thread ends now.
    pub fn stop(mut self) -> Duration {
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        self.paused()
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_blocks_for_long_is_no_pause_of_the_process() {
        let clock = Clock::start();
        let pulse = Pulse::start(Duration::from_millis(20), clock).unwrap();
        let call = Duration::from_millis(300);
        let mut blocked = Duration::ZERO;
        // A machine that is stopped meanwhile is a pause, too: the loop goes on until that was the smaller part.
        while blocked.is_zero() || pulse.paused() * 2 >= blocked {
            assert!(blocked < 200 * call, "{:?} of {blocked:?}", pulse.paused());
            let from = clock.now();
            std::thread::sleep(call);
            blocked += clock.now().since(from);
        }
    }

    #[test]
    fn a_process_that_is_stopped_before_the_thread_has_run_was_stopped() {
        let clock = Clock::start();
        let due = clock.now() + PERIOD;
        std::thread::sleep(Duration::from_millis(120));
        // The time for which the new thread itself waits for a CPU is not counted.
        let paused = Pulse::start_due(due, Duration::from_millis(20), clock).unwrap().stop();
        assert!(paused >= Duration::from_millis(90), "{paused:?}");
    }

    const MS: u64 = 1_000_000;

    fn after(beats: &[(u64, u64, u64)]) -> (u64, u64) {
        let mut heartbeat = Heartbeat::new(Duration::from_millis(10), 0);
        for &(due, now, cpu) in beats {
            heartbeat.beat(Time::from_millis(due), Time::from_millis(now), cpu * MS);
        }
        (heartbeat.paused.as_millis() as u64, heartbeat.longest.as_millis() as u64)
    }

    #[test]
    fn a_deadline_met_two_seconds_late_is_a_pause_and_one_met_in_time_is_none() {
        assert_eq!(after(&[(10, 10, 1), (20, 2_021, 2), (2_031, 2_031, 3)]), (2_000, 2_000));
        assert_eq!(after(&[(10, 10, 0), (20, 29, 0)]), (0, 0), "the scheduler's own");
        assert_eq!(after(&[(10, 110, 0), (120, 170, 0)]), (150, 100));
    }

    #[test]
    fn a_thread_that_is_busy_is_not_paused() {
        assert_eq!(after(&[(10, 10, 0), (20, 120, 100)]), (0, 0));
        assert_eq!(after(&[(10, 10, 0), (20, 120, 40)]), (60, 60));
    }
}
