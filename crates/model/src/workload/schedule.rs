//! When each request is due, and which of them count.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Arrival;
use h2lab_base::random::Counter;
use h2lab_base::units::{Time, duration_text};

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
    /// recorded with the age that it has reached.
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

/// The absolute times at which an open loop's requests are due: a pure function of arrival and seed.
///
/// Intervals are never accumulated in floating point: request k is due at the time by which k requests were to be sent,
/// k / rate for a constant schedule. Several threads share one schedule: each takes every n-th request. So they do with a
/// Poisson process, of which each thread draws all intervals: some 20 ns for each request of all threads.
#[derive(Debug, Clone)]
pub struct Schedule {
    arrival: Arrival,
    start: Time,
    /// The request that is due next, counted over all parts.
    number: u64,
    parts: u32,
    next: Time,
    random: Counter,
}

impl Schedule {
    /// A schedule that begins at `start`. In closed loop nothing is ever due by the clock.
    pub fn new(arrival: Arrival, start: Time, seed: u64) -> Self {
        Self::part(arrival, start, seed, 0, 1)
    }

    /// The requests of one thread: the `part`-th of `parts`, counted from 0.
    pub fn part(arrival: Arrival, start: Time, seed: u64, part: u32, parts: u32) -> Self {
        let random = Counter::new(seed, "arrival");
        let mut schedule = Self { arrival, start, number: u64::from(part), parts, next: Time::NEVER, random };
        schedule.next = schedule.due_after(start, part + 1);
        schedule
    }

    /// When the next request is due.
    pub const fn next_at(&self) -> Time {
        self.next
    }

    /// Takes the next request off the schedule and returns when it was due.
    pub fn advance(&mut self) -> Time {
        let due = self.next;
        self.number += u64::from(self.parts);
        self.next = self.due_after(due, self.parts);
        due
    }

    /// When request `number` is due if the one so many `intervals` before it was due at `previous`.
    fn due_after(&mut self, previous: Time, intervals: u32) -> Time {
        let at = |seconds: f64| Duration::from_nanos((seconds * 1e9).round() as u64);
        match self.arrival {
            Arrival::Closed { .. } => Time::NEVER,
            Arrival::Constant { rate } => self.start + at(self.number as f64 / rate),
            Arrival::Poisson { rate } => (0..intervals).fold(previous, |due, _| due + self.interval(rate)),
            Arrival::Ramp { from, to, over, steps } => {
                self.start + at(ramp(self.number as f64, from, to, over.as_secs_f64(), steps))
            }
        }
    }

    /// An exponentially distributed interval with mean 1 / rate.
    fn interval(&mut self, rate: f64) -> Duration {
        let uniform = 1.0 - self.random.next_f64(); // (0, 1]: the logarithm is finite
        Duration::from_nanos((-uniform.ln() / rate * 1e9).round() as u64)
    }
}

/// How many requests are due in the first `time` of an open loop; `None` in closed loop.
pub fn due_within(arrival: Arrival, time: Duration) -> Option<f64> {
    let seconds = time.as_secs_f64();
    Some(match arrival {
        Arrival::Closed { .. } => return None,
        Arrival::Constant { rate } | Arrival::Poisson { rate } => rate * seconds,
        Arrival::Ramp { from, to, over, steps } => {
            let over = over.as_secs_f64();
            let done = (seconds / over).clamp(0.0, 1.0);
            let within = match steps {
                0 => f64::midpoint(from, from + (to - from) * done) * done * over,
                _ => (0..steps)
                    .map(|step| {
                        let rate = step_rate(from, to, step, steps);
                        let share = (done * f64::from(steps) - f64::from(step)).clamp(0.0, 1.0);
                        rate * share * over / f64::from(steps)
                    })
                    .sum(),
            };
            within + to * (seconds - over).max(0.0)
        }
    })
}

/// The rate of a step of a ramp: the first is at `from`, the last at `to`.
fn step_rate(from: f64, to: f64, step: u32, steps: u32) -> f64 {
    from + (to - from) * f64::from(step) / f64::from((steps - 1).max(1))
}

/// The time in seconds at which a ramp has sent `requests`.
fn ramp(requests: f64, from: f64, to: f64, over: f64, steps: u32) -> f64 {
    // A straight line is one flight.
    let flights = if steps == 0 { 1 } else { steps };
    let mut left = requests;
    for step in 0..flights {
        let (first, last) = match steps {
            0 => (from, to),
            _ => {
                let rate = step_rate(from, to, step, steps);
                (rate, rate)
            }
        };
        let seconds = over / f64::from(flights);
        let sent = f64::midpoint(first, last) * seconds;
        if left < sent {
            // first · t + a · t² / 2 = left, solved so that a straight line (a = 0) does not divide by zero.
            let a = (last - first) / seconds;
            let root = (first * first + 2.0 * a * left).max(0.0).sqrt();
            let within = if left > 0.0 { 2.0 * left / (first + root) } else { 0.0 };
            return f64::from(step) * seconds + within;
        }
        left -= sent;
    }
    over + left / to
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
    fn a_ramp_has_sent_the_area_below_its_line_at_any_time() {
        let over = Duration::from_secs(10);
        let sent_by = |arrival, seconds: u64| {
            let mut schedule = Schedule::new(arrival, Time::ZERO, 1);
            std::iter::from_fn(|| Some(schedule.advance()))
                .take_while(|due| *due < Time::ZERO + Duration::from_secs(seconds))
                .count()
        };
        let line = Arrival::Ramp { from: 100.0, to: 500.0, over, steps: 0 };
        assert_eq!([sent_by(line, 5), sent_by(line, 10), sent_by(line, 12)], [1000, 3000, 4000]);
        let down = Arrival::Ramp { from: 500.0, to: 100.0, over, steps: 0 };
        assert_eq!([sent_by(down, 5), sent_by(down, 10)], [2000, 3000]);
        let stairs = Arrival::Ramp { from: 100.0, to: 500.0, over, steps: 5 };
        assert_eq!([2, 4, 10, 11].map(|at| sent_by(stairs, at)), [200, 600, 3000, 3500]);
        let idle = Arrival::Ramp { from: 0.0, to: 10.0, over, steps: 0 };
        assert_eq!(sent_by(idle, 10), 50);
        for (arrival, seconds) in [(line, 5), (line, 12), (down, 5), (stairs, 4), (stairs, 11), (idle, 10)] {
            let expected = due_within(arrival, Duration::from_secs(seconds)).unwrap();
            assert!((expected - sent_by(arrival, seconds) as f64).abs() <= 1.0, "{arrival:?} {seconds}");
        }
    }

    #[test]
    fn threads_share_a_schedule_and_together_send_what_one_would() {
        let over = Duration::from_secs(1);
        for arrival in [
            Arrival::Constant { rate: 1000.0 },
            Arrival::Ramp { from: 10.0, to: 900.0, over, steps: 0 },
            Arrival::Poisson { rate: 1000.0 },
        ] {
            let mut whole = Schedule::new(arrival, Time::ZERO, 1);
            let mut parts: Vec<_> =
                (0..3).map(|part| Schedule::part(arrival, Time::ZERO, 1, part, 3)).collect();
            for k in 0..999 {
                assert_eq!(whole.advance(), parts[k % 3].advance(), "request {k}");
            }
        }
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
