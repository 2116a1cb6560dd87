//! How much of its CPU a thread that has to be in time may use: how long it spins, and when it rests.
//!
//! Spinning meets a due time exactly, but where something is due every few microseconds it would never end. A real-time thread
//! that uses its whole CPU is throttled by the kernel for 50 ms in every second (sched(7), `sched_rt_runtime_us`, and since Linux
//! 6.12 the fair server): measured, 1 Gbit/s then carried 0.95 of it, with packets that were 50 ms late, and a generator of 50,000
//! requests/s had a p99 of 30 ms. An ordinary thread that never sleeps is no better off, since the scheduler then runs it last.
//!
//! So such a thread has a [`CpuBudget`]. When that is used up, it rests for [`REST`], even if something is due or comes in
//! meanwhile, and then processes all of that in one batch. That is far cheaper: waking for each packet and sending it by itself
//! took the packet pump 8 µs each, the receiver's stack included, and a packet in a batch takes 0.5 µs. Sleeping only until the
//! next packet was rejected: the kernel wakes us for each one that comes in, and at 1 Gbit/s that takes a core. So was giving up
//! the real-time priority, and reading the kernel's limit: that it is 95 % nearly everywhere does not show what others on this
//! CPU need.

use std::time::Duration;

use h2lab_base::units::{Time, nanos};

/// How long a thread rests that has used up its budget. It wakes up to 50 µs later.
pub const REST: Duration = Duration::from_micros(50);
/// The largest balance, in nanoseconds: an idle thread must not accumulate a second of spinning.
const MOST: u64 = 1_000_000;
/// How often a busy thread checks its budget: reading its CPU time is a system call.
const CHECK_PERIOD: Duration = Duration::from_micros(100);

/// The shares of its CPU that a thread may use, in percent.
#[derive(Debug, Clone, Copy)]
pub struct CpuShares {
    /// While it only waits until something is due.
    pub waiting: u64,
    /// At all: less than the 95 that the kernel allows real-time threads.
    pub working: u64,
}

/// CPU time that a thread may still use.
#[derive(Debug)]
pub struct CpuBudget {
    shares: CpuShares,
    waiting: u64,
    working: u64,
    /// When it was last settled, and the CPU time used until then.
    settled: Time,
    cpu: u64,
}

impl CpuBudget {
    /// As after a long rest that ended at `now`, for a thread that has used `cpu` nanoseconds of CPU time.
    pub const fn new(shares: CpuShares, now: Time, cpu: u64) -> Self {
        Self { shares, waiting: MOST, working: MOST, settled: now, cpu }
    }

    /// Whether it should be settled, also while there is work.
    pub fn is_old(&self, now: Time) -> bool {
        now.since(self.settled) >= CHECK_PERIOD
    }

    /// Updates the balance to `now`, when `cpu` nanoseconds have been used in all. It is never negative: work must be
    /// done, and the rest after it is short.
    pub fn settle(&mut self, now: Time, cpu: u64) {
        let passed = nanos(now.since(self.settled));
        let taken = cpu.saturating_sub(self.cpu);
        for (left, percent) in
            [(&mut self.waiting, self.shares.waiting), (&mut self.working, self.shares.working)]
        {
            let earned = passed.saturating_mul(percent) / 100;
            *left = left.saturating_add(earned).saturating_sub(taken).min(MOST);
        }
        (self.settled, self.cpu) = (now, cpu);
    }

    /// How long it may spin. If zero, it must rest before it waits for something to be due.
    pub const fn for_waiting(&self) -> Duration {
        Duration::from_nanos(self.waiting)
    }

    /// Whether it must rest, even if there is work.
    pub const fn is_overdrawn(&self) -> bool {
        self.working == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: Duration = Duration::from_micros(1);
    /// Those of the packet pump.
    const PUMP: CpuShares = CpuShares { waiting: 50, working: 93 };

    /// A second of a pump for which a packet is due every `gap`. Waking takes `waking`, a packet sent by itself `alone`, each
    /// further one of a batch `further`. Returns the share of CPU that it uses, and how late the latest packet is.
    fn second(gap: Duration, waking: Duration, alone: Duration, further: Duration) -> (f64, Duration) {
        let (mut now, mut due, mut cpu) = (Time::ZERO, Time::ZERO, Duration::ZERO);
        let mut budget = CpuBudget::new(PUMP, now, 0);
        let mut latest = Duration::ZERO;
        while now < Time::from_millis(1_000) {
            let mut cost = alone;
            while due <= now {
                latest = latest.max(now.since(due));
                (now, cpu, due) = (now + cost, cpu + cost, due + gap);
                cost = if due + cost <= now { further } else { alone };
            }
            budget.settle(now, nanos(cpu));
            let left = budget.for_waiting();
            if left.is_zero() || budget.is_overdrawn() {
                now = now + REST + waking;
            } else if due - waking.min(left) > now {
                now = due - waking.min(left) + waking;
            }
            let spun = due.since(now);
            (now, cpu) = (now + spun, cpu + spun);
        }
        (cpu.as_secs_f64() / now.as_secs_f64(), latest)
    }

    #[test]
    fn at_a_packet_every_12_us_half_of_the_cpu_is_free_and_none_is_later_than_a_rest_and_its_end() {
        for alone in [MICRO, 8 * MICRO, 11 * MICRO] {
            let (share, latest) = second(12 * MICRO, 30 * MICRO, alone, MICRO / 2);
            assert!((0.45..=0.54).contains(&share), "{alone:?}: {share}");
            assert!(latest <= 100 * MICRO, "{alone:?}: {latest:?}");
        }
    }

    #[test]
    fn a_link_that_is_mostly_idle_always_has_enough_to_be_in_time() {
        let (share, latest) = second(Duration::from_micros(500), 100 * MICRO, 8 * MICRO, MICRO);
        assert_eq!(latest, Duration::ZERO);
        assert!(share < 0.3, "{share}");
    }

    #[test]
    fn not_more_than_a_millisecond_is_saved_and_nothing_is_owed() {
        let mut budget = CpuBudget::new(PUMP, Time::ZERO, 7);
        let mut left = |micros, cpu| {
            budget.settle(Time::from_micros(micros), cpu);
            budget.for_waiting()
        };
        assert_eq!(left(1_000_000, 7), Duration::from_millis(1));
        assert_eq!(left(1_001_000, 1_000_007), 500 * MICRO, "half of what it took came in");
        assert_eq!(left(1_005_000, 5_000_007), Duration::ZERO);
        assert_eq!(left(1_005_100, 5_000_007), 50 * MICRO);
    }

    #[test]
    fn who_always_has_something_to_do_rests_in_time() {
        let mut budget = CpuBudget::new(PUMP, Time::ZERO, 0);
        let (mut now, mut cpu) = (Time::ZERO, Duration::ZERO);
        while now < Time::from_millis(1_000) {
            (now, cpu) = (now + CHECK_PERIOD, cpu + CHECK_PERIOD);
            assert!(budget.is_old(now) && !budget.is_old(now - MICRO));
            budget.settle(now, nanos(cpu));
            if budget.is_overdrawn() {
                now = now + REST + 50 * MICRO;
                budget.settle(now, nanos(cpu));
            }
        }
        let share = cpu.as_secs_f64() / now.as_secs_f64();
        assert!((0.91..=0.94).contains(&share), "{share}");
    }
}
