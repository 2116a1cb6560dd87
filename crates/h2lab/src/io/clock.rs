//! The one clock of a run.

use h2lab_core::units::Time;
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
    pub fn now(self) -> Time {
        Time::from_nanos(monotonic_ns().saturating_sub(self.origin_ns))
    }

    /// The origin on `CLOCK_MONOTONIC`, in nanoseconds, for [`Clock::new`] in another process.
    pub const fn origin_ns(self) -> u64 {
        self.origin_ns
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds since some point before boot.
fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// CPU time that the calling thread has used so far, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
}

/// The clocks read here are never negative and last 584 years.
fn nanoseconds(time: Timespec) -> u64 {
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_clocks_of_one_origin_agree() {
        let first = Clock::start();
        let second = Clock::new(first.origin_ns());
        let (before, between, after) = (first.now(), second.now(), first.now());
        assert!(before <= between && between <= after);
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
