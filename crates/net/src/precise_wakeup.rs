//! Waking at the exact moment at which something is due.

use std::time::Duration;

use h2lab_base::units::nanos;

use crate::cpu_budget::CpuBudget;

/// How long before something is due to wake.
///
/// Waking takes 5 µs on a busy CPU and 100 µs on an idle one, especially in a virtual machine. So the sleeper wakes
/// early, by the time that nearly all of its last wake-ups took (three of four, for example), and stays awake for the
/// short rest. Always waking 50 µs early was rejected: at thousands of wake-ups per second it takes a third of a core
/// from other threads.
#[derive(Debug)]
pub struct PreciseWakeup {
    margin_nanos: u64,
    longest_nanos: u64,
    /// Steps up after a wake-up that was late; after one in time it is one step down.
    up: u64,
    awake: Duration,
    /// How much of its CPU its owner may use, spinning included.
    pub budget: CpuBudget,
}

impl PreciseWakeup {
    /// By how much one wake-up moves the margin, in nanoseconds.
    const STEP: u64 = 250;
    /// By how much the margin shrinks when there was no time to sleep, in nanoseconds. Without it the margin would not
    /// adapt to quicker wake-ups while there is a deadline every 50 µs.
    const DOUBT: u64 = 5;

    /// A precise wake-up that is late one time in `one_late_in`, which is at least 2, and whose owner never stays awake for
    /// longer than `longest`.
    pub fn new(one_late_in: u32, longest: Duration, budget: CpuBudget) -> Self {
        let up = u64::from(one_late_in.max(2)) - 1;
        Self { margin_nanos: 0, longest_nanos: nanos(longest), up, awake: Duration::ZERO, budget }
    }

    /// How long before the moment to wake: what the budget allows, at most.
    pub fn margin(&self) -> Duration {
        Duration::from_nanos(self.margin_nanos).min(self.budget.for_waiting())
    }

    /// Waking took `late`. Steps of 3 up and 1 down settle at the third quartile, whatever the outliers; 9 at the 90th
    /// percentile.
    pub fn woke(&mut self, late: Duration) {
        self.margin_nanos = if nanos(late) > self.margin_nanos {
            (self.margin_nanos + self.up * Self::STEP).min(self.longest_nanos)
        } else {
            self.margin_nanos.saturating_sub(Self::STEP)
        };
    }

    /// The moment was nearer than the margin, so there was no sleep.
    pub const fn skipped(&mut self) {
        self.margin_nanos = self.margin_nanos.saturating_sub(Self::DOUBT);
    }

    /// Its owner stayed awake for `time` to be in time.
    pub fn stayed_awake(&mut self, time: Duration) {
        self.awake += time;
    }

    /// The total time for which its owner stayed awake: CPU time without work.
    pub const fn awake(&self) -> Duration {
        self.awake
    }
}

#[cfg(test)]
mod tests {
    use h2lab_base::units::Time;

    use super::*;
    use crate::cpu_budget::CpuShares;

    const LONGEST: Duration = Duration::from_micros(100);

    fn late_one_time_in(n: u32) -> PreciseWakeup {
        let shares = CpuShares { waiting: 50, working: 93 };
        PreciseWakeup::new(n, LONGEST, CpuBudget::new(shares, Time::ZERO, 0))
    }

    #[test]
    fn the_precise_wake_up_settles_at_its_quantile_of_wake_ups_and_ignores_outliers() {
        for (one_late_in, micros) in [(4, 27..=34), (10, 33..=43)] {
            let mut precise_wakeup = late_one_time_in(one_late_in);
            for k in 0..20_000_u64 {
                // 1 to 40 µs evenly, and now and then 10 ms.
                let micros = if k % 100 == 99 { 10_000 } else { k * 7 % 40 + 1 };
                precise_wakeup.woke(Duration::from_micros(micros));
            }
            let margin = precise_wakeup.margin().as_micros();
            assert!(micros.contains(&margin), "one in {one_late_in}: {margin} µs");
        }
    }

    #[test]
    fn nobody_stays_awake_longer_than_the_limit() {
        let mut precise_wakeup = late_one_time_in(4);
        (0..10_000).for_each(|_| precise_wakeup.woke(Duration::from_secs(1)));
        assert_eq!(precise_wakeup.margin(), LONGEST);
        (0..10_000).for_each(|_| precise_wakeup.woke(Duration::ZERO));
        assert_eq!(precise_wakeup.margin(), Duration::ZERO);
    }

    #[test]
    fn what_never_sleeps_comes_to_doubt_its_margin() {
        let mut precise_wakeup = late_one_time_in(4);
        (0..10_000).for_each(|_| precise_wakeup.woke(Duration::from_secs(1)));
        precise_wakeup.skipped();
        assert!(precise_wakeup.margin() < LONGEST, "it sleeps again some time");
        (0..100_000).for_each(|_| precise_wakeup.skipped());
        assert_eq!(precise_wakeup.margin(), Duration::ZERO);
    }

    #[test]
    fn nobody_stays_awake_beyond_the_budget() {
        let mut precise_wakeup = late_one_time_in(4);
        (0..10_000).for_each(|_| precise_wakeup.woke(Duration::from_secs(1)));
        // The saved millisecond and the half microsecond that was added, less what was used.
        precise_wakeup.budget.settle(Time::from_micros(1), 980_000);
        assert_eq!(precise_wakeup.margin(), Duration::from_nanos(20_500));
        precise_wakeup.budget.settle(Time::from_micros(2), 2_000_000);
        assert_eq!(precise_wakeup.margin(), Duration::ZERO);
    }
}
