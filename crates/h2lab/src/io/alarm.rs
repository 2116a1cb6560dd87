//! Waking for the very moment at which something is due.

use std::time::Duration;

use h2lab_core::units::nanos;

/// How long before something is due to set the alarm.
///
/// Waking takes 5 µs on a busy CPU and 100 µs on one that has to leave its sleep, in a virtual machine above all. So the
/// sleeper wakes early by what three of four of its last wake-ups took, and stays awake for the rest, which is short: always
/// waking 50 µs early was rejected, since at thousands of wake-ups per second it takes a third of a core from whoever else
/// needs it.
#[derive(Debug)]
pub struct Alarm {
    margin_nanos: u64,
    longest_nanos: u64,
    awake: Duration,
}

impl Alarm {
    /// By how much one wake-up moves the margin, in nanoseconds.
    const STEP: u64 = 250;
    /// By how much the margin shrinks when there was no time to sleep, in nanoseconds: what is due every 50 µs would keep
    /// us from ever learning that waking has become quicker.
    const DOUBT: u64 = 5;

    /// An alarm whose owner never stays awake for longer than `longest`.
    pub fn new(longest: Duration) -> Self {
        Self { margin_nanos: 0, longest_nanos: nanos(longest), awake: Duration::ZERO }
    }

    /// How long before the moment to wake.
    pub const fn margin(&self) -> Duration {
        Duration::from_nanos(self.margin_nanos)
    }

    /// Waking took `late`. Steps of 3 up and 1 down settle at the third quartile, whatever the outliers.
    pub fn rang(&mut self, late: Duration) {
        self.margin_nanos = if nanos(late) > self.margin_nanos {
            (self.margin_nanos + 3 * Self::STEP).min(self.longest_nanos)
        } else {
            self.margin_nanos.saturating_sub(Self::STEP)
        };
    }

    /// The moment was nearer than the margin, so that there was no sleep.
    pub const fn skipped(&mut self) {
        self.margin_nanos = self.margin_nanos.saturating_sub(Self::DOUBT);
    }

    /// So long its owner stayed awake to be there in time.
    pub fn stayed_awake(&mut self, time: Duration) {
        self.awake += time;
    }

    /// The sum of that: CPU that no work was done with.
    pub const fn awake(&self) -> Duration {
        self.awake
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_micros(100);

    #[test]
    fn the_alarm_settles_at_the_third_quartile_of_wake_ups_and_ignores_outliers() {
        let mut alarm = Alarm::new(LONGEST);
        for k in 0..20_000_u64 {
            // 1 to 40 µs evenly, and now and then 10 ms.
            let micros = if k % 100 == 99 { 10_000 } else { k * 7 % 40 + 1 };
            alarm.rang(Duration::from_micros(micros));
        }
        let margin = alarm.margin().as_micros();
        assert!((27..=34).contains(&margin), "{margin} µs");
    }

    #[test]
    fn nobody_stays_awake_longer_than_the_limit() {
        let mut alarm = Alarm::new(LONGEST);
        (0..10_000).for_each(|_| alarm.rang(Duration::from_secs(1)));
        assert_eq!(alarm.margin(), LONGEST);
        (0..10_000).for_each(|_| alarm.rang(Duration::ZERO));
        assert_eq!(alarm.margin(), Duration::ZERO);
    }

    #[test]
    fn what_never_sleeps_comes_to_doubt_its_margin() {
        let mut alarm = Alarm::new(LONGEST);
        (0..10_000).for_each(|_| alarm.rang(Duration::from_secs(1)));
        alarm.skipped();
        assert!(alarm.margin() < LONGEST, "it sleeps again some time");
        (0..100_000).for_each(|_| alarm.skipped());
        assert_eq!(alarm.margin(), Duration::ZERO);
    }
}
