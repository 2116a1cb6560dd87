//! When each request is due, and which of them count.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Arrival;
use crate::random::Counter;
use crate::units::{Time, duration_text};

/// The phases of a cell: only requests scheduled inside `measure` count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phases {
    /// Requests are sent but not counted.
    #[serde(with = "duration_text")]
    pub warmup: Duration,
    /// Requests scheduled in here are counted.
    #[serde(with = "duration_text")]
    pub measure: Duration,
    /// After `measure` no request is sent; those under way may still finish for this long. What is unfinished then is
    /// booked with the age that it has reached.
    #[serde(with = "duration_text")]
    pub drain: Duration,
}

impl Phases {
    /// When measuring begins, for a cell that starts at `start`.
    pub fn measure_from(&self, start: Time) -> Time {
        start + self.warmup
    }

    /// When measuring ends: no request is scheduled at or after it.
    pub fn measure_until(&self, start: Time) -> Time {
        start + self.warmup + self.measure
    }

    /// When the cell is cut.
    pub fn cut(&self, start: Time) -> Time {
        start + self.warmup + self.measure + self.drain
    }
}

/// The absolute times at which an open loop's requests are due: a pure function of rate and seed.
///
/// Intervals are never accumulated in floating point: request k of a constant schedule is due at exactly k / rate.
#[derive(Debug, Clone)]
pub struct Schedule {
    arrival: Arrival,
    start: Time,
    sent: u64,
    next: Time,
    random: Counter,
}

impl Schedule {
    /// A schedule that begins at `start`. In closed loop nothing is ever due by the clock.
    pub fn new(arrival: Arrival, start: Time, seed: u64) -> Self {
        let mut schedule =
            Self { arrival, start, sent: 0, next: Time::NEVER, random: Counter::new(seed, "arrival") };
        schedule.next = match arrival {
            Arrival::Closed { .. } => Time::NEVER,
            Arrival::Constant { .. } => start,
            Arrival::Poisson { rate } => start + schedule.interval(rate),
        };
        schedule
    }

    /// When the next request is due.
    pub const fn next_at(&self) -> Time {
        self.next
    }

    /// Takes the next request off the schedule and returns when it was due.
    pub fn advance(&mut self) -> Time {
        let due = self.next;
        self.sent += 1;
        self.next = match self.arrival {
            Arrival::Closed { .. } => Time::NEVER,
            Arrival::Constant { rate } => {
                self.start + Duration::from_nanos((self.sent as f64 * 1e9 / rate).round() as u64)
            }
            Arrival::Poisson { rate } => due + self.interval(rate),
        };
        due
    }

    /// An exponentially distributed interval with mean 1 / rate.
    fn interval(&mut self, rate: f64) -> Duration {
        let uniform = 1.0 - self.random.next_f64(); // (0, 1]: the logarithm is finite
        Duration::from_nanos((-uniform.ln() / rate * 1e9).round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_schedule_never_drifts() {
        let mut schedule = Schedule::new(Arrival::Constant { rate: 3.0 }, Time::from_millis(10), 1);
        let dues: Vec<u64> = (0..4).map(|_| schedule.advance().as_nanos()).collect();
        assert_eq!(dues, [10_000_000, 343_333_333, 676_666_667, 1_010_000_000]);
    }

    #[test]
    fn a_poisson_schedule_has_the_asked_mean_and_repeats_with_its_seed() {
        let times = |seed| {
            let mut schedule = Schedule::new(Arrival::Poisson { rate: 1000.0 }, Time::ZERO, seed);
            (0..20_000).map(|_| schedule.advance()).collect::<Vec<_>>()
        };
        assert_eq!(times(7), times(7));
        assert_ne!(times(7), times(8));
        let mean = times(7).last().unwrap().as_secs_f64() / 20_000.0;
        assert!((mean - 1e-3).abs() < 3e-5, "{mean}"); // 4 standard deviations of the mean of 20,000 intervals
    }

    #[test]
    fn a_closed_loop_is_never_due_by_the_clock() {
        assert_eq!(Schedule::new(Arrival::Closed { concurrency: 8 }, Time::ZERO, 1).next_at(), Time::NEVER);
    }

    #[test]
    fn phases_follow_each_other() {
        let phases = Phases {
            warmup: Duration::from_millis(500),
            measure: Duration::from_secs(3),
            drain: Duration::from_secs(1),
        };
        let start = Time::from_millis(100);
        assert_eq!(phases.measure_from(start), Time::from_millis(600));
        assert_eq!(phases.measure_until(start), Time::from_millis(3_600));
        assert_eq!(phases.cut(start), Time::from_millis(4_600));
    }
}
