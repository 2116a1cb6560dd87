//! The one clock of a run.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use h2lab_base::units::{Time, nanos};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Reads the kernel's monotonic clock relative to the origin of the run.
///
/// The origin is a plain number that the parent hands to its children, so that the times of the generator, the link
/// and the server, three processes, compare directly. `std::time::Instant` hides that number, therefore it is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    origin_ns: u64,
}

impl Clock {
    /// The clock of a run whose origin is at `origin_ns` of `CLOCK_MONOTONIC`, in nanoseconds.
    pub const fn new(origin_ns: u64) -> Self {
        Self { origin_ns }
    }

    /// The clock of a run that begins now.
    pub fn start() -> Self {
        Self::new(monotonic_ns())
    }

    /// The time since the origin; [`Time::ZERO`] before it.
    #[inline]
    pub fn now(self) -> Time {
        Time::from_nanos(monotonic_ns().saturating_sub(self.origin_ns))
    }

    /// The origin on `CLOCK_MONOTONIC`, in nanoseconds, for [`Clock::new`] in another process.
    pub const fn origin_ns(self) -> u64 {
        self.origin_ns
    }
}

/// The times of a [`Clock`] as [`Instant`]s, for a library that takes those as arguments. One pair of readings relates the two,
/// and the rest is addition: a time converted and back is the same time.
#[derive(Debug, Clone, Copy)]
pub struct Instants {
    /// [`Time::ZERO`].
    origin: Instant,
}

impl Instants {
    /// Those of `clock`.
    pub fn of(clock: Clock) -> Self {
        let now = Instant::now();
        Self { origin: now.checked_sub(clock.now().since(Time::ZERO)).unwrap_or(now) }
    }

    /// `time` as an instant; it must have [happened](Time::happened).
    pub fn at(self, time: Time) -> Instant {
        self.origin + time.since(Time::ZERO)
    }

    /// An instant as a time.
    pub fn time(self, instant: Instant) -> Time {
        Time::from_nanos(nanos(instant.saturating_duration_since(self.origin)))
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds since some point before boot.
#[inline]
fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// CPU time that the calling thread has used so far, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
}

/// How long a thread has been able to run: on a CPU, or ready and waiting for one. The rest of its time it slept, was stopped by a
/// signal, or its whole machine was.
#[derive(Debug)]
pub struct RunnableTime {
    /// `/proc/PID/task/TID/schedstat` of the thread that made this: its time on CPUs, its time of waiting for one, in nanoseconds
    /// (Documentation/scheduler/sched-stats.rst); `None` where the kernel does not count.
    schedstat: Option<File>,
}

impl RunnableTime {
    /// That of the calling thread.
    pub fn of_this_thread() -> Self {
        Self { schedstat: File::open("/proc/thread-self/schedstat").ok() }
    }

    /// The time so far, in nanoseconds; only the time on CPUs if the kernel does not count the waiting.
    pub fn ns(&self) -> u64 {
        self.counted().unwrap_or_else(thread_cpu_ns)
    }

    fn counted(&self) -> Option<u64> {
        let mut line = [0; 64];
        let length = self.schedstat.as_ref()?.read_at(&mut line, 0).ok()?;
        let mut numbers = std::str::from_utf8(&line[..length]).ok()?.split_ascii_whitespace();
        let mut next = || numbers.next()?.parse::<u64>().ok();
        Some(next()? + next()?)
    }
}

/// CPU time that all threads of this process have used so far.
pub fn process_cpu() -> Duration {
    Duration::from_nanos(nanoseconds(clock_gettime(ClockId::ProcessCPUTime)))
}

/// The clocks read here are never negative and last 584 years.
#[inline]
fn nanoseconds(time: Timespec) -> u64 {
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_can_run_and_one_that_sleeps_cannot() {
        let runnable = RunnableTime::of_this_thread();
        let (before, cpu_before) = (runnable.ns(), thread_cpu_ns());
        while thread_cpu_ns() < cpu_before + 20_000_000 {
            std::hint::spin_loop();
        }
        let after = runnable.ns();
        assert!(after >= before + 10_000_000, "{before} {after}: what runs on is counted at ticks");
        std::thread::sleep(Duration::from_millis(20));
        assert!(runnable.ns() >= after, "it never goes back");
    }

    #[test]
    fn two_clocks_of_one_origin_agree() {
        let first = Clock::start();
        let second = Clock::new(first.origin_ns());
        let (before, between, after) = (first.now(), second.now(), first.now());
        assert!(before <= between && between <= after);
    }

    #[test]
    fn a_time_survives_as_an_instant() {
        let clock = Clock::start();
        let instants = Instants::of(clock);
        for time in [Time::ZERO, Time::from_nanos(1), clock.now(), Time::from_nanos(1 << 50)] {
            assert_eq!(instants.time(instants.at(time)), time);
        }
        let drift = instants.at(clock.now()).duration_since(Instant::now());
        assert!(drift < std::time::Duration::from_secs(1), "both count from the same moment");
    }

    #[test]
    fn a_time_before_the_origin_reads_as_zero() {
        assert_eq!(Clock::new(u64::MAX).now(), Time::ZERO);
    }

    #[test]
    fn cpu_time_of_a_thread_grows_with_its_work() {
        let before = thread_cpu_ns();
        let mut sum = 0_u64;
        while thread_cpu_ns() == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(thread_cpu_ns() > before);
    }
}
