//! Data that its sender spreads over the time for which its credit is enough, as BBR does. Then no stream stops for
//! credit. Still, each part arrives as soon as its own credit allows, and could have arrived earlier with more credit.

use std::collections::VecDeque;
use std::time::Duration;

use h2lab_base::units::Time;

/// A link that carries this part of its known capacity is the limit: no window is.
const FULL_LINK: f64 = 0.8;
/// The same for a capacity that is only inferred from the most that was seen, which is less exact.
const FULL_SEEN: f64 = 0.6;
/// Periods with fewer round trips than this occur in slow start as well.
const LEAST_ROUNDS: u32 = 2;

/// Since when all data of a window has arrived one round trip after its credit.
#[derive(Debug, Default)]
pub(super) struct Promptness {
    /// The increment whose first data was judged last.
    judged: Time,
    /// When the first data of the first increment arrived from which on all increments were used at once.
    pub since: Option<Time>,
}

impl Promptness {
    /// Data arrived at `at`, for which the increment of the time `granted` was needed. If it arrived no more than
    /// `longest` after that, it was sent at once. Only the first data of each increment counts: the rest may be spread.
    /// `is_read`: the client returned the increment as soon as the data for it had arrived; otherwise the client
    /// spreads the data, by reading slowly.
    pub fn see(&mut self, granted: Time, at: Time, longest: Duration, is_read: bool) {
        if granted == self.judged {
            return;
        }
        self.judged = granted;
        if at.since(granted) > longest || !is_read {
            self.since = None;
        } else {
            self.since.get_or_insert(at);
        }
    }
}

/// How much data arrived, and when.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// The shortest time over which a rate is computed.
    least: Duration,
    /// Bytes per second that the link carries, if that is known.
    capacity: Option<f64>,
    /// When data arrived, and the total at that time, for the last `least`.
    recent: VecDeque<(Time, u64)>,
    /// Bytes so far.
    pub total: u64,
    /// The highest rate so far, in bytes per second.
    most: f64,
}

impl Arrivals {
    pub const fn new(least: Duration, capacity: Option<f64>) -> Self {
        Self { least, capacity, recent: VecDeque::new(), total: 0, most: 0.0 }
    }

    /// A frame of `bytes` bytes was complete at `at`.
    pub fn see(&mut self, at: Time, bytes: u64) {
        self.total += bytes;
        self.recent.push_back((at, self.total));
        while self.recent.get(1).is_some_and(|(second, _)| at.since(*second) >= self.least) {
            self.recent.pop_front();
        }
        // From a frame at least `least` ago, and from the one after it, over at least `least`: neither rate is more
        // than the link carried.
        for (from, before) in self.recent.iter().take(2) {
            let lasted = at.since(*from).max(self.least);
            self.most = self.most.max((self.total - before) as f64 / lasted.as_secs_f64());
        }
    }

    /// Whether the link had room for more than what arrived since `begin`, when `before` bytes had arrived.
    fn has_room(&self, begin: Time, before: u64, end: Time) -> bool {
        let rate = (self.total - before) as f64 / end.since(begin).as_secs_f64().max(f64::MIN_POSITIVE);
        rate < self.capacity.map_or(self.most * FULL_SEEN, |capacity| capacity * FULL_LINK)
    }
}

/// A period in which the data of a stream arrived as soon as its credit allowed, without a stop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paced {
    /// When it began.
    pub begin: Time,
    /// [`Arrivals::total`] at that time.
    pub before: u64,
}

impl Paced {
    /// What a larger window would have saved until `end`, for each round trip: when it ended, and the part of it that
    /// was lost. Without the window limit, the sender would have doubled its data in each round trip, as in slow start,
    /// so that `n` round trips would have taken log₂(1 + n). Empty if the link was full or the period is short.
    pub fn lost(self, end: Time, rtt: Duration, arrivals: &Arrivals) -> Vec<(Time, Duration)> {
        let lasted = end.since(self.begin);
        let rounds = (lasted.as_nanos() / rtt.as_nanos().max(1)) as u32;
        if rounds < LEAST_ROUNDS || !arrivals.has_room(self.begin, self.before, end) {
            return Vec::new();
        }
        let each = lasted / rounds;
        let needed = (1.0 + f64::from(rounds)).log2() / f64::from(rounds);
        (1..=rounds).map(|round| (self.begin + each * round, each.mul_f64(1.0 - needed))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const RTT: Duration = Duration::from_millis(40);

    fn at(ms: u32) -> Time {
        Time::ZERO + MS * ms
    }

    /// 64 KiB per round trip of 40 ms, one frame every 10 ms, after a first burst at ten times that rate.
    fn after_a_burst(capacity: Option<f64>) -> Arrivals {
        let mut arrivals = Arrivals::new(RTT / 8, capacity);
        for ms in (0..8).chain((1..=24).map(|frame| 10 * frame)) {
            arrivals.see(at(ms), 16 << 10);
        }
        arrivals
    }

    #[test]
    fn rounds_of_one_window_cost_what_slow_start_would_have_saved() {
        let paced = Paced { begin: at(40), before: 12 * (16 << 10) };
        let lost = paced.lost(at(240), RTT, &after_a_burst(None));
        let ends: Vec<Time> = lost.iter().map(|(end, _)| *end).collect();
        assert_eq!(ends, [at(80), at(120), at(160), at(200), at(240)]);
        let all: Duration = lost.iter().map(|(_, lost)| *lost).sum();
        // Five round trips, where log₂ 6 = 2.58 would do.
        assert_eq!(all.as_millis(), 96);
        assert_eq!(paced.lost(at(119), RTT, &after_a_burst(None)), [], "slow start looks like that, too");
    }

    #[test]
    fn a_full_link_is_what_limits() {
        let paced = Paced { begin: at(40), before: 12 * (16 << 10) };
        // 1.64 MB/s came.
        assert_eq!(paced.lost(at(240), RTT, &after_a_burst(Some(1.8e6))), []);
        assert!(!paced.lost(at(240), RTT, &after_a_burst(Some(2.4e6))).is_empty());
        let mut even = Arrivals::new(RTT / 8, None);
        (1..=24).for_each(|frame| even.see(at(10 * frame), 16 << 10));
        let paced = Paced { begin: at(40), before: 4 * (16 << 10) };
        assert_eq!(paced.lost(at(240), RTT, &even), [], "it never came faster");
    }

    #[test]
    fn credit_in_hand_ends_it() {
        let mut prompt = Promptness::default();
        prompt.see(Time::ZERO, at(10), RTT, true);
        assert_eq!(prompt.since, None, "the initial window is no increment");
        prompt.see(at(10), at(50), RTT, true);
        prompt.see(at(10), at(70), RTT, true);
        prompt.see(at(50), at(90), RTT, true);
        assert_eq!(prompt.since, Some(at(50)));
        prompt.see(at(90), at(131), RTT, true);
        assert_eq!(prompt.since, None);
        prompt.see(at(131), at(171), RTT, true);
        assert_eq!(prompt.since, Some(at(171)));
        prompt.see(at(171), at(211), RTT, false);
        assert_eq!(prompt.since, None, "the client read it late");
    }
}
