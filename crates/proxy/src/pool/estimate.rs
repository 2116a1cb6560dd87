//! How many connections the path of an upstream wants.
//!
//! Two figures decide, both of all its connections together:
//!
//! - **Requests behind a hole.** A lost segment stops what follows it on its connection until it has been sent again: a round trip, and
//!   the quarter of one that RACK waits for reordering (RFC 8985 §6.2). With `N` connections each such time stops one `N`-th of the
//!   requests. `N` is what keeps the stopped ones below [`HELD_SHARE`].
//! - **Congestion windows.** A sender that loses the share `p` of its segments has a window of about √(3 / 2p) (Mathis et al., 1997).
//!   `N` is what keeps [`WINDOW_SHARE`] of the windows in use.
//!
//! Without losses one connection is enough, and a second one only where the first is held back by its window all the same.
//! The number follows a rise within a second, and a fall only after [`SETTLED`], a few connections at a time: a path that loses one packet
//! in a while would otherwise make it swing.

use std::time::Duration;

use h2lab_base::units::Time;

use super::path::PathReading;

/// The share of requests that may be stopped by the loss of another one.
const HELD_SHARE: f64 = 0.15;
/// The share of all congestion windows that is used on average.
const WINDOW_SHARE: f64 = 0.5;
/// Fewer retransmissions than this in the time of the slow average are chance.
const LEAST_LOSSES: f64 = 3.0;
/// The time over which a rise is averaged.
const FAST: Duration = Duration::from_millis(700);
/// The time over which a fall is averaged.
const SLOW: Duration = Duration::from_secs(8);
/// For so long fewer connections must have been enough before one is given up.
pub const SETTLED: Duration = Duration::from_secs(10);
/// Then one is given up each time, or a sixth of them.
const STEP_DOWN: Duration = Duration::from_secs(2);
/// See [`STEP_DOWN`].
const DOWN_PART: u32 = 6;

/// An average of a rate with exponential weights.
#[derive(Debug, Clone, Copy, Default)]
struct Average {
    per_second: f64,
}

impl Average {
    /// `count` happened in `lasted`.
    fn add(&mut self, count: f64, lasted: Duration, over: Duration) {
        let seconds = lasted.as_secs_f64();
        let weight = 1.0 - (-seconds / over.as_secs_f64()).exp();
        self.per_second += (count / seconds - self.per_second) * weight;
    }
}

/// A rate that rises fast and falls slowly.
#[derive(Debug, Clone, Copy, Default)]
struct Rate {
    fast: Average,
    slow: Average,
}

impl Rate {
    fn add(&mut self, count: f64, lasted: Duration) {
        self.fast.add(count, lasted, FAST);
        self.slow.add(count, lasted, SLOW);
    }

    fn per_second(self) -> f64 {
        self.fast.per_second.max(self.slow.per_second)
    }
}

/// What was counted over all connections since the last look, for [`Estimate::look`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Interval {
    sent: u64,
    retransmitted: u64,
    received: u64,
    rtt: Duration,
    readings: u32,
    held_back: u32,
}

impl Interval {
    /// Adds a connection's progress from one reading to the next.
    pub fn add(&mut self, before: &PathReading, after: &PathReading) {
        self.sent += after.sent.saturating_sub(before.sent);
        self.retransmitted += after.retransmitted.saturating_sub(before.retransmitted);
        self.received += after.received.saturating_sub(before.received);
        self.rtt += after.rtt;
        self.readings += 1;
        self.held_back += u32::from(after.unsent > 0 && after.in_flight >= after.window);
    }
}

/// The estimate of one upstream.
#[derive(Debug, Clone, Copy)]
pub struct Estimate {
    looked_at: Time,
    sent: Rate,
    received: Rate,
    retransmitted: Rate,
    rtt: Duration,
    wanted: u32,
    /// Since when fewer would have been enough; the number is given up at this time at the earliest.
    fewer_at: Time,
}

impl Estimate {
    /// For an upstream that is new at `now`.
    pub fn new(now: Time) -> Self {
        Self {
            looked_at: now,
            sent: Rate::default(),
            received: Rate::default(),
            retransmitted: Rate::default(),
            rtt: Duration::ZERO,
            wanted: 1,
            fewer_at: now + SETTLED,
        }
    }

    /// Takes in what happened since the last look, and returns how many connections there should be, from 1 to `most`.
    pub fn look(&mut self, now: Time, interval: Interval, most: u32) -> u32 {
        let lasted = now.since(self.looked_at);
        if lasted.is_zero() || interval.readings == 0 {
            return self.wanted;
        }
        self.looked_at = now;
        self.sent.add(interval.sent as f64, lasted);
        self.received.add(interval.received as f64, lasted);
        self.retransmitted.add(interval.retransmitted as f64, lasted);
        self.rtt = interval.rtt / interval.readings;
        let needed = self.needed(interval.held_back == interval.readings).clamp(1, most.max(1));
        if needed >= self.wanted {
            (self.wanted, self.fewer_at) = (needed, now + SETTLED);
        } else if now >= self.fewer_at {
            let fewer = self.wanted - (self.wanted / DOWN_PART).max(1);
            (self.wanted, self.fewer_at) = (fewer.max(needed), now + STEP_DOWN);
        }
        self.wanted
    }

    fn needed(&self, held_back: bool) -> u32 {
        let losses = self.retransmitted.per_second();
        if self.retransmitted.slow.per_second * SLOW.as_secs_f64() < LEAST_LOSSES {
            return if held_back { 2 } else { 1 };
        }
        let (sent, received) = (self.sent.per_second(), self.received.per_second());
        let loss = (losses / sent).min(1.0);
        // The other direction loses as much, as far as anybody can see from here.
        let both = losses + loss * received;
        let rtt = self.rtt.as_secs_f64();
        let by_holes = both * 1.25 * rtt / HELD_SHARE;
        let window = (1.5 / loss).sqrt();
        let by_window = sent.max(received) * rtt / (WINDOW_SHARE * window);
        by_holes.max(by_window).ceil() as u32
    }

    /// The share of segments that were lost, as averaged.
    pub fn loss(&self) -> f64 {
        let sent = self.sent.per_second();
        if sent > 0.0 { self.retransmitted.per_second() / sent } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(25);
    const LOOK: Duration = Duration::from_millis(100);

    /// Looks for `seconds` at 1,000 segments per second each way, of which the share `loss` is sent again; all numbers that were wanted.
    fn look(estimate: &mut Estimate, now: &mut Time, seconds: f64, loss: f64) -> Vec<u32> {
        let mut wanted = Vec::new();
        let mut owed = 0.0;
        for _ in 0..(seconds / LOOK.as_secs_f64()) as u32 {
            *now += LOOK;
            owed += 100.0 * loss;
            let retransmitted = owed as u64;
            owed -= retransmitted as f64;
            let before = PathReading::default();
            let after =
                PathReading { rtt: RTT, window: 10, sent: 100, received: 100, retransmitted, ..before };
            let mut interval = Interval::default();
            interval.add(&before, &after);
            wanted.push(estimate.look(*now, interval, 64));
        }
        wanted
    }

    #[test]
    fn without_loss_one_is_enough_and_with_it_as_many_as_leave_few_behind_a_hole() {
        let (mut now, mut estimate) = (Time::from_millis(1), Estimate::new(Time::ZERO));
        assert!(look(&mut estimate, &mut now, 60.0, 0.0).iter().all(|wanted| *wanted == 1));
        let rising = look(&mut estimate, &mut now, 20.0, 0.03);
        let settled = *rising.last().expect("some");
        assert!((10..=16).contains(&settled), "{rising:?}");
        let after_two_seconds = rising[20];
        assert!(after_two_seconds * 4 >= settled * 3, "within two seconds most of it: {rising:?}");
    }

    #[test]
    fn it_falls_step_by_step_and_ends_below_two_within_a_minute() {
        let (mut now, mut estimate) = (Time::from_millis(1), Estimate::new(Time::ZERO));
        look(&mut estimate, &mut now, 30.0, 0.03);
        let falling = look(&mut estimate, &mut now, 60.0, 0.0);
        assert!(
            falling.windows(2).all(|pair| pair[1] <= pair[0] && pair[0] - pair[1] <= (pair[0] / 6).max(1)),
            "{falling:?}"
        );
        assert!(falling.last().is_some_and(|wanted| *wanted <= 2), "{falling:?}");
    }

    #[test]
    fn a_loss_now_and_then_changes_nothing() {
        let (mut now, mut estimate) = (Time::from_millis(1), Estimate::new(Time::ZERO));
        let wanted = look(&mut estimate, &mut now, 120.0, 0.0002);
        assert!(wanted.iter().all(|wanted| *wanted == 1), "{:?}", wanted.iter().max());
    }

    #[test]
    fn a_steady_path_does_not_make_it_swing() {
        let (mut now, mut estimate) = (Time::from_millis(1), Estimate::new(Time::ZERO));
        look(&mut estimate, &mut now, 30.0, 0.01);
        let wanted = look(&mut estimate, &mut now, 60.0, 0.01);
        let changes = wanted.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(changes <= 6, "{wanted:?}");
    }
}
