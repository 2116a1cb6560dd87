//! When a closed loop lets answers gather before it reads them.
//!
//! A server that writes each answer by itself wakes its client for each of them, which then sends one request, which wakes the
//! server: both spend their time on system calls. A client that reads a little later finds several answers in one read and sends as
//! many requests in one write, so that both have less to do for each request. So ours sleeps [`REST`] before it waits for answers,
//! where that is short beside what they take.

use std::num::NonZeroU64;
use std::time::Duration;

/// How long to let answers gather.
const REST: Duration = Duration::from_micros(20);

/// Only where so many requests are under way does the server have enough to do meanwhile.
const MIN_OUTSTANDING: u64 = 32;

/// Answers take at least so long: [`REST`] is 5 % of it.
const MIN_RESPONSE: Duration = Duration::from_micros(400);

/// Whether to let answers gather, decided anew in each period from the one before.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// Requests that had ended at the last decision.
    ended: u64,
    /// Wake-ups since.
    wakes: u64,
    is_wanted: bool,
}

impl Gathering {
    /// For the calling thread, whose sleeps become as short as they are asked to be: Linux adds 50 µs by default.
    pub fn of_this_thread() -> Self {
        // If that fails, a sleep lasts for up to 50 µs more.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        Self::default()
    }

    /// Sleeps for [`REST`] where that is wanted. A wake-up follows.
    pub fn rest(&mut self) {
        if self.before_waiting() {
            std::thread::sleep(REST);
        }
    }

    /// Whether to sleep before waiting; counts the wake-up that follows.
    const fn before_waiting(&mut self) -> bool {
        self.wakes += 1;
        self.is_wanted
    }

    /// Decides for the next period. So many requests were `due` since the beginning, of which `outstanding` are under way.
    pub fn decide(&mut self, due: u64, outstanding: u64, period: Duration) {
        let ended = due - outstanding;
        let recent = ended - std::mem::replace(&mut self.ended, ended);
        let wakes = std::mem::take(&mut self.wakes).max(1);
        // Little's law.
        let response = period.mul_f64(outstanding as f64 / recent.max(1) as f64);
        // Once answers gather there are more of them per wake-up: else it would end at once.
        let at_a_time = if self.is_wanted { 2 } else { 4 };
        self.is_wanted = recent > 0
            && outstanding >= MIN_OUTSTANDING
            && recent * at_a_time < outstanding * wakes
            && response >= MIN_RESPONSE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(10);

    /// Whether answers gather after a period in which so many came in so many wake-ups.
    fn gathers(outstanding: u64, ended: u64, wakes: u64) -> bool {
        let mut gathering = Gathering::default();
        (0..wakes).for_each(|_| assert!(!gathering.before_waiting()));
        gathering.decide(ended + outstanding, outstanding, PERIOD);
        gathering.before_waiting()
    }

    #[test]
    fn answers_gather_where_many_are_under_way_and_few_come_at_a_time() {
        assert!(gathers(100, 1_000, 900));
        assert!(!gathers(31, 300, 300), "few requests");
        assert!(!gathers(100, 1_000, 40), "25 at a time are enough");
        assert!(gathers(100, 1_000, 41));
        assert!(!gathers(100, 0, 10), "none came");
    }

    #[test]
    fn answers_that_come_within_400_us_are_not_waited_for() {
        assert!(gathers(100, 2_500, 2_500), "100 in 10 ms / 2,500 × 100");
        assert!(!gathers(100, 2_501, 2_501));
    }

    #[test]
    fn it_ends_when_half_of_them_come_at_a_time() {
        let mut gathering = Gathering::default();
        let mut gathers = |ended: u64, wakes: u64| {
            (0..wakes).for_each(|_| {
                gathering.before_waiting();
            });
            gathering.decide(ended + 100, 100, PERIOD);
            gathering.is_wanted
        };
        assert!(gathers(1_000, 1_000));
        assert!(gathers(2_000, 21));
        assert!(!gathers(3_000, 20));
    }
}
