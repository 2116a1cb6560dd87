//! Whether a thread of a role runs when it has to.
//!
//! The requests of an open loop show how late they are. Those of a closed loop are due when the one before has ended, so that a
//! generator that was stopped for two seconds would call itself punctual: the deadlines of its loop show it.

use std::time::Duration;

use h2lab_base::units::Time;

/// The times in which a thread did not run although a deadline of its own had passed.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    /// What is shorter is no pause: the kernel's counts are not so precise, and calls may block.
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
    /// which a busy machine explains, and waiting for its disk.
    pub const fn new(shortest: Duration, busy_ns: u64) -> Self {
        Self { shortest, busy_ns, paused: Duration::ZERO, longest: Duration::ZERO }
    }

    /// The deadline `due` is dealt with now. Time in which the thread was busy since the deadline before is no pause.
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

#[cfg(test)]
mod tests {
    use super::*;

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
