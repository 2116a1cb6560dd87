//! How many connections the path of an upstream needs.
//!
//! Two figures decide, both of all its connections together:
//!
//! - **Requests behind a hole.** A lost segment stops what follows it on its connection until it has been sent again: a round trip, and
//!   the quarter of one that RACK waits for reordering (RFC 8985 §6.2), but [`LEAST_HOLE`] at least. With `N` connections
//!   each such time stops one `N`-th of the requests. `N` is what keeps the stopped ones below [`HELD_SHARE`]. Over QUIC a lost packet
//!   stops only the requests whose bytes it had, and asks for no connection.
//! - **Congestion windows.** A sender that loses the share `p` of its segments has a window of about √(3 / 2p) (Mathis et al., 1997).
//!   `N` is what keeps [`WINDOW_SHARE`] of the windows in use.
//!
//! Both count only segments of messages. PINGs and their answers are as many again, and increase with the number of
//! connections: if they counted, each connection would ask for further ones. The share that is lost is taken from all
//! segments ([`Share`]).
//!
//! Without losses one connection is enough; there is a second one only where the first is limited by its window all the
//! same. The number follows a rise within two seconds. It falls a few connections at a time, and only to the most that
//! was needed in the last [`PEAKS`] × [`STEP_DOWN`]: counts vary by chance, small ones more than large ones, and the
//! number would otherwise follow them up and down. A twelfth more or an eighth less changes nothing.

use std::time::Duration;

use h2lab_base::units::Time;

use super::path::PathReading;

/// The share of requests that may be stopped by the loss of another one.
const HELD_SHARE: f64 = 0.08;
/// The shortest time of a hole, in seconds. On a path of less than a few milliseconds it is timers that end a hole, not
/// round trips: the kernel probes for a lost tail after two ticks at the earliest (`TCP_TIMEOUT_MIN`), and a tick of
/// Linux has 4 ms or 1 ms. Without that bound one connection carried all at RTT 0.1 ms, and the window that its
/// timeouts left held back half of 1,000 requests per second.
const LEAST_HOLE: f64 = 0.008;
/// The share of all congestion windows that is used on average.
const WINDOW_SHARE: f64 = 0.5;
/// Fewer retransmissions than this in the time of the slow average are chance.
const LEAST_LOSSES: f64 = 3.0;
/// The time over which what changes is averaged: rates, and the share of losses where that has changed.
const FAST: Duration = Duration::from_millis(700);
/// The time over which the share of losses is averaged while it stays as it is.
const SLOW: Duration = Duration::from_secs(8);
/// How often a connection is given up, or a sixth of them.
const STEP_DOWN: Duration = Duration::from_secs(2);
/// See [`STEP_DOWN`].
const DOWN_PART: u32 = 6;
/// For how many times of [`STEP_DOWN`] the most that was needed counts: for so long fewer connections must have been
/// enough before one is given up. Three times [`SLOW`]: with less, the number would follow random changes of the
/// averages.
const PEAKS: usize = 12;
/// What is kept beyond the most that was needed, as a part of it.
const SPARE: f64 = 0.125;
/// By which part the number may be too small before there are more. The estimate converges from below: with a larger
/// part the last steps would be left out.
const MISSING_PART: u32 = 12;
/// How many looks in a row must find all connections held back by their windows before there is a second one. Windows
/// grow within a few round trips, and a burst after a pause of a process is over by then.
const HELD_LOOKS: u32 = 2;
/// Bytes of a segment.
const SEGMENT: u64 = 1_448;

/// Counts that fade: after `over` 1/e of them is left.
fn fade(counts: &mut [f64; 2], more: [f64; 2], lasted: Duration, over: Duration) {
    let left = (-lasted.as_secs_f64() / over.as_secs_f64()).exp();
    for (count, more) in counts.iter_mut().zip(more) {
        *count = *count * left + more;
    }
}

/// Which share of the segments is lost: over [`SLOW`], or since that changed by more than is chance. So the average over many seconds,
/// which hardly moves while the path stays as it is, follows a change at once.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    /// Sent and lost lately.
    fast: [f64; 2],
    /// Sent and lost over a longer time.
    slow: [f64; 2],
}

impl Share {
    fn add(&mut self, sent: f64, lost: f64, lasted: Duration) {
        fade(&mut self.fast, [sent, lost], lasted, FAST);
        fade(&mut self.slow, [sent, lost], lasted, SLOW);
        let expected = self.fast[0] * self.share();
        // Losses are counted, and vary as counts do; they vary more where they come in bursts.
        if (self.fast[1] - expected).abs() > 3.0 * expected.sqrt() + 2.0 {
            self.slow = self.fast;
        }
    }

    /// From 0 to 1.
    fn share(&self) -> f64 {
        let [sent, lost] = self.slow;
        if sent > 0.0 { (lost / sent).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Whether that many may have been lost by chance.
    fn is_chance(&self) -> bool {
        self.slow[1] < LEAST_LOSSES
    }
}

/// A rate, averaged over [`FAST`] with exponential weights.
#[derive(Debug, Clone, Copy, Default)]
struct Average {
    per_second: f64,
}

impl Average {
    /// `count` happened in `lasted`.
    fn add(&mut self, count: f64, lasted: Duration) {
        let seconds = lasted.as_secs_f64();
        let weight = 1.0 - (-seconds / FAST.as_secs_f64()).exp();
        self.per_second += (count / seconds - self.per_second) * weight;
    }
}

/// What was counted over all connections since the last look, for [`Estimate::look`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Interval {
    sent: u64,
    lost: i64,
    /// Segments of requests, and of responses.
    messages: [u64; 2],
    rtt: Duration,
    readings: u32,
    held_back: u32,
    /// Of these, how many are of connections on which requests do not wait for another one's packets.
    by_stream: u32,
}

impl Interval {
    /// Whether any request was sent.
    pub const fn has_requests(&self) -> bool {
        self.messages[0] > 0
    }

    /// Adds a connection's progress from one reading to the next.
    pub fn add(&mut self, before: &PathReading, after: &PathReading) {
        let since = |count: fn(&PathReading) -> u64| count(after).saturating_sub(count(before));
        self.sent += since(|path| path.sent);
        self.lost += after.lost_since(before);
        let requests = since(|path| path.requests);
        // One segment each, or as many as their bytes need. PINGs have hardly any.
        let [up, down] = &mut self.messages;
        *up += requests.max(since(|path| path.bytes_sent) / SEGMENT);
        *down += requests.max(since(|path| path.bytes_received) / SEGMENT);
        // Not the smoothed round trip, which includes the time for which processes at both ends wait for a CPU: more
        // connections would make that longer.
        self.rtt += after.min_rtt;
        self.readings += 1;
        self.by_stream += u32::from(after.is_by_stream);
        self.held_back += u32::from(after.unsent > 0 && after.in_flight >= after.window);
    }
}

/// The estimate of one upstream.
#[derive(Debug, Clone, Copy)]
pub struct Estimate {
    looked_at: Time,
    lost: Share,
    /// Segments of requests, and of responses.
    messages: [Average; 2],
    rtt: Duration,
    /// Looks in a row that found all connections held back.
    held_back: u32,
    /// Whether requests wait for another one's packets.
    has_holes: bool,
    wanted: u32,
    /// The most that was needed in each of the last periods of [`STEP_DOWN`], this one first.
    peaks: [f64; PEAKS],
    /// When the next period begins, and connections may be given up.
    step_at: Time,
}

impl Estimate {
    /// For an upstream that is new at `now`.
    pub fn new(now: Time) -> Self {
        Self {
            looked_at: now,
            lost: Share::default(),
            messages: [Average::default(); 2],
            rtt: Duration::ZERO,
            held_back: 0,
            has_holes: true,
            wanted: 1,
            peaks: [0.0; PEAKS],
            step_at: now + STEP_DOWN,
        }
    }

    /// Takes in what happened since the last look, and returns how many connections there should be, from 1 to `most`.
    pub fn look(&mut self, now: Time, interval: Interval, most: u32) -> u32 {
        let lasted = now.since(self.looked_at);
        if lasted.is_zero() || interval.readings == 0 {
            return self.wanted;
        }
        self.looked_at = now;
        self.lost.add(interval.sent as f64, interval.lost as f64, lasted);
        for (rate, count) in self.messages.iter_mut().zip(interval.messages) {
            rate.add(count as f64, lasted);
        }
        self.rtt = interval.rtt / interval.readings;
        self.has_holes = interval.by_stream < interval.readings;
        let is_held_back = interval.held_back == interval.readings;
        self.held_back = if is_held_back { self.held_back.saturating_add(1) } else { 0 };
        let needed = self.needed(self.held_back >= HELD_LOOKS).min(f64::from(most.max(1)));
        let whole = needed.ceil() as u32;
        if whole > self.wanted + self.wanted / MISSING_PART {
            self.wanted = whole;
        }
        self.peaks[0] = self.peaks[0].max(needed);
        if now >= self.step_at {
            self.step_at = now + STEP_DOWN;
            self.step_down();
            self.peaks.rotate_right(1);
            self.peaks[0] = needed;
        }
        self.wanted
    }

    /// Gives some up, if fewer have been enough for long.
    fn step_down(&mut self) {
        let peak = self.peaks.iter().copied().fold(0.0, f64::max);
        let enough = ((peak * (1.0 + SPARE)).ceil() as u32).max(1);
        if enough < self.wanted {
            let fewer = self.wanted - (self.wanted / DOWN_PART).max(1);
            self.wanted = fewer.max(enough);
        }
    }

    /// How many connections would be right; less than one where that has much to spare.
    fn needed(&self, held_back: bool) -> f64 {
        if self.lost.is_chance() {
            return if held_back { 2.0 } else { 0.0 };
        }
        let loss = self.loss();
        let [up, down] = self.messages.map(|average| average.per_second);
        let rtt = self.rtt.as_secs_f64();
        // The other direction loses as much, as far as can be seen from here.
        let hole = (1.25 * rtt).max(LEAST_HOLE);
        let by_holes = if self.has_holes { loss * (up + down) * hole / HELD_SHARE } else { 0.0 };
        let window = (1.5 / loss).sqrt();
        let by_window = up.max(down) * rtt / (WINDOW_SHARE * window);
        by_holes.max(by_window).max(if held_back { 2.0 } else { 0.0 })
    }

    /// The share of segments that were lost, as averaged.
    pub fn loss(&self) -> f64 {
        self.lost.share()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(25);
    const CHECK_PERIOD: Duration = Duration::from_millis(100);

    fn look(estimate: &mut Estimate, now: &mut Time, seconds: f64, loss: f64) -> Vec<u32> {
        look_at(estimate, now, seconds, (loss, RTT))
    }

    /// Looks for `seconds` at 1,000 segments per second each way, of which the share `loss` is sent again; all numbers that were wanted.
    fn look_at(
        estimate: &mut Estimate,
        now: &mut Time,
        seconds: f64,
        (loss, min_rtt): (f64, Duration),
    ) -> Vec<u32> {
        let mut wanted = Vec::new();
        let mut owed = 0.0;
        for _ in 0..(seconds / CHECK_PERIOD.as_secs_f64()) as u32 {
            *now += CHECK_PERIOD;
            owed += 100.0 * loss;
            let now_lost = owed as u64;
            owed -= now_lost as f64;
            let before = PathReading::default();
            let after =
                PathReading { min_rtt, window: 10, sent: 100, requests: 100, lost: now_lost, ..before };
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
        assert!((20..=27).contains(&settled), "{rising:?}");
        let after_two_seconds = rising[20];
        assert!(after_two_seconds * 4 >= settled * 3, "within two seconds three quarters of it: {rising:?}");
    }

    #[test]
    fn on_a_short_path_that_loses_packets_one_connection_is_not_enough() {
        let (mut now, mut estimate) = (Time::from_millis(1), Estimate::new(Time::ZERO));
        let short = Duration::from_micros(100);
        assert!(look_at(&mut estimate, &mut now, 30.0, (0.0, short)).iter().all(|wanted| *wanted == 1));
        let wanted = look_at(&mut estimate, &mut now, 20.0, (0.03, short));
        assert!(wanted.last().is_some_and(|wanted| (5..=8).contains(wanted)), "{wanted:?}");
        let few = look_at(&mut estimate, &mut now, 90.0, (0.0001, short));
        assert!(few.last().is_some_and(|wanted| *wanted == 1), "{few:?}");
    }

    #[test]
    fn what_was_sent_again_and_had_arrived_is_no_loss() {
        // A machine that stops for a moment answers late: each look finds segments sent again, and the next one their DSACKs.
        let (mut now, mut estimate) = (Time::from_millis(1), Estimate::new(Time::ZERO));
        let reading = |sent, lost| PathReading {
            min_rtt: Duration::from_micros(100),
            sent,
            lost,
            requests: sent,
            ..PathReading::default()
        };
        let mut before = reading(0, 0);
        for look in 1..=600 {
            now += CHECK_PERIOD;
            let after = reading(look * 20, if look % 2 == 1 { 2 } else { 0 });
            let mut interval = Interval::default();
            interval.add(&before, &after);
            assert_eq!(estimate.look(now, interval, 64), 1, "look {look}");
            before = after;
        }
        assert!(estimate.loss() < 0.005, "{}", estimate.loss());
    }

    #[test]
    fn over_quic_only_congestion_windows_ask_for_more() {
        let look = |per_look: u64| {
            let (mut now, mut estimate, mut sent, mut wanted) =
                (Time::from_millis(1), Estimate::new(Time::ZERO), 0, 0);
            let reading = |sent| PathReading {
                min_rtt: RTT,
                sent,
                requests: sent,
                lost: sent * 3 / 100,
                is_by_stream: true,
                ..PathReading::default()
            };
            for _ in 0..200 {
                now += CHECK_PERIOD;
                let mut interval = Interval::default();
                interval.add(&reading(sent), &reading(sent + per_look));
                wanted = estimate.look(now, interval, 64);
                sent += per_look;
            }
            wanted
        };
        // At 3 % a window of 7 packets carries 280 requests a second.
        assert_eq!([look(100), look(10)], [8, 1]);
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
    fn a_burst_that_one_look_finds_held_back_makes_no_second_connection() {
        let (mut now, mut estimate) = (Time::from_millis(1), Estimate::new(Time::ZERO));
        let before = PathReading::default();
        let mut look = |unsent: u32| {
            now += CHECK_PERIOD;
            let after = PathReading {
                min_rtt: RTT,
                window: 10,
                in_flight: 10,
                unsent,
                sent: 10,
                requests: 10,
                ..before
            };
            let mut interval = Interval::default();
            interval.add(&before, &after);
            estimate.look(now, interval, 64)
        };
        assert_eq!([0, 1, 0, 1, 1].map(&mut look), [1, 1, 1, 1, 2]);
    }

    #[test]
    fn a_loss_now_and_then_changes_nothing() {
        let (mut now, mut estimate) = (Time::from_millis(1), Estimate::new(Time::ZERO));
        // One in ten seconds: were it no chance, a path as long as this would need a second connection.
        let long = Duration::from_millis(300);
        let wanted = look_at(&mut estimate, &mut now, 120.0, (0.0001, long));
        assert!(wanted.iter().all(|wanted| *wanted == 1), "{:?}", wanted.iter().max());
        let more = look_at(&mut estimate, &mut now, 120.0, (0.0008, long));
        assert!(more.last().is_some_and(|wanted| *wanted > 1), "{more:?}");
    }

    #[test]
    fn a_little_less_changes_nothing_and_what_remains_has_some_to_spare() {
        let (mut now, mut estimate) = (Time::from_millis(1), Estimate::new(Time::ZERO));
        let settled = look(&mut estimate, &mut now, 60.0, 0.03).last().copied();
        let less = look(&mut estimate, &mut now, 90.0, 0.0285);
        assert!(less.iter().all(|wanted| Some(*wanted) == settled), "{settled:?} {less:?}");
        // 15.6 would be right, of which an eighth is kept.
        let half = look(&mut estimate, &mut now, 120.0, 0.02);
        assert!(half.last().is_some_and(|wanted| (17..=19).contains(wanted)), "{half:?}");
    }
}
