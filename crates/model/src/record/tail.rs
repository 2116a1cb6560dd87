//! Which requests are kept besides being counted, at [`Level::Tail`](super::Level::Tail).

use h2lab_base::random::Counter;
use h2lab_base::units::nanos;

use super::tally::Tallier;
use super::{Histogram, Sample};

/// Chooses the requests that are kept: the slow ones, those that failed, and a uniform part.
#[derive(Debug)]
pub struct TailSample {
    /// Response times of all processed successes.
    all: Histogram,
    /// Requests that took longer are slow: the quantile of `all` that only [`TailSample::SLOW`] `/ every` exceed.
    slow_ns: u64,
    /// One failed request in so many is kept: a power of two, which doubles whenever too many are kept.
    every: u64,
    /// Failed requests so far.
    failed: u64,
    random: Counter,
    /// Requests until the next one of the uniform sample.
    next: u64,
}

impl TailSample {
    /// One request in so many is kept whatever its latency, until there are too many.
    pub const UNIFORM: u64 = 1_000;

    /// The share of requests that are slow, until there are too many.
    const SLOW: f64 = 0.01;

    /// Nothing is known yet, so that no success is slow; `seed` is that of the uniform sample.
    pub fn new(seed: u64) -> Self {
        let mut tail = Self {
            all: Histogram::default(),
            slow_ns: u64::MAX,
            every: 1,
            failed: 0,
            random: Counter::new(seed, "uniform sample"),
            next: 0,
        };
        tail.next = tail.gap();
        tail
    }

    /// Evenly distributed with the mean [`TailSample::UNIFORM`] `× every`, so that it does not resonate with a pattern of the
    /// requests.
    fn gap(&mut self) -> u64 {
        1 + self.random.below(2 * Self::UNIFORM * self.every - 1)
    }

    /// Adds response times of successes.
    pub fn learn(&mut self, recent: &Histogram) {
        self.all.merge(recent);
        let rank = (self.all.n() as f64 * (1.0 - Self::SLOW / self.every as f64)).ceil() as u64;
        if rank > 0 {
            self.slow_ns = nanos(self.all.at_rank(rank));
        }
    }

    /// Whether to keep a request: it was slow, it has failed, or it is in the uniform sample.
    pub fn wants(&mut self, sample: &Sample) -> bool {
        self.next -= 1;
        let has_turn = self.next == 0;
        if has_turn {
            self.next = self.gap();
        }
        let is_slow = sample.response_ns() > self.slow_ns;
        if sample.outcome.is_success() {
            return has_turn || is_slow;
        }
        self.failed += 1;
        has_turn || self.failed.is_multiple_of(self.every)
    }

    /// Has `tallier` count these requests, which are in the order in which they ended, and adds those to `kept` that are kept.
    pub fn count(&mut self, samples: &[Sample], tallier: &mut Tallier, kept: &mut Vec<Sample>) {
        for sample in samples {
            tallier.add(sample);
            if self.wants(sample) {
                kept.push(*sample);
            }
        }
    }

    /// Half as many will be kept.
    pub fn become_stricter(&mut self) {
        self.every *= 2;
        self.learn(&Histogram::default());
    }

    /// Applies that to those that are kept.
    pub fn thin(&self, kept: &mut Vec<Sample>) {
        let mut has_turn = false;
        kept.retain(|sample| {
            if sample.outcome.is_success() && sample.response_ns() > self.slow_ns {
                return true;
            }
            has_turn = !has_turn;
            has_turn
        });
    }

    /// How strict the choice became: one failed request in so many was kept, and of the slow ones the slowest of so many.
    pub const fn kept_one_in(&self) -> u64 {
        self.every
    }
}
