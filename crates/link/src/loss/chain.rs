//! The state of a loss model for one stream of packets.

use std::time::Duration;

use super::LossModel;
use h2lab_base::random::Counter;
use h2lab_base::units::{Ratio, Time};

/// A chain of verdicts: packet n has the same fate under the same seed, whenever it comes; if the model is clocked by time, a
/// packet at time t has the same fate, whatever came before.
#[derive(Debug, Clone)]
pub struct LossChain {
    model: LossModel,
    /// Number n decides about packet n.
    by_packet: Counter,
    /// Number n is the length of state n; of a model that is clocked by packets number 0 is the state it begins in.
    by_time: Counter,
    /// Index of the next packet.
    packets: u64,
    /// Index of the next draw of `by_time`.
    states: u64,
    is_bad: bool,
    /// Packets that the burst has yet to drop.
    rest: u32,
    /// When the state of a model that is clocked by time ends.
    until: Time,
}

impl LossChain {
    /// `model` under `seed`, from `start` on.
    pub fn new(model: LossModel, seed: u64, start: Time) -> Self {
        let (by_packet, by_time) = (Counter::new(seed, "loss"), Counter::new(seed, "loss by time"));
        let mut chain =
            Self { model, by_packet, by_time, packets: 0, states: 0, is_bad: false, rest: 0, until: start };
        chain.begin(start);
        chain
    }

    /// Changes the model from `now` on. Packets keep their numbers: a packet that 1 % would have dropped is dropped
    /// at 3 % too.
    pub fn change(&mut self, model: LossModel, now: Time) {
        if model != self.model {
            self.model = model;
            (self.is_bad, self.rest) = (false, 0);
            self.begin(now);
        }
    }

    /// Whether the next packet, which comes at `now`, is lost. `now` does not go back.
    pub fn takes_next(&mut self, now: Time) -> bool {
        let draw = self.by_packet.f64_at(self.packets);
        self.packets += 1;
        match self.model {
            LossModel::None => false,
            LossModel::Bernoulli { p } => draw < p.get(),
            LossModel::GilbertElliott { p, r } => {
                // The transition precedes the verdict, as in netem: a burst begins with the packet that triggers it.
                self.is_bad = if self.is_bad { draw >= r.get() } else { draw < p.get() };
                self.is_bad
            }
            LossModel::Burst { p, length } => {
                if self.rest == 0 && draw < p.get() {
                    self.rest = length;
                }
                let is_lost = self.rest > 0;
                self.rest = self.rest.saturating_sub(1);
                is_lost
            }
            LossModel::GilbertElliottByTime { share, burst: bad }
            | LossModel::BurstByTime { share, length: bad } => {
                while now >= self.until {
                    self.is_bad = !self.is_bad;
                    let length = self.length(share.get(), bad);
                    self.until += length;
                }
                self.is_bad
            }
        }
    }

    /// Begins in the model's stationary state. Otherwise short repetitions, and the first packets of each connection,
    /// would lose less than the share, and a client that opens more connections would lose less.
    fn begin(&mut self, start: Time) {
        let mut draw = || {
            self.states += 1;
            self.by_time.f64_at(self.states - 1)
        };
        match self.model {
            LossModel::None | LossModel::Bernoulli { .. } => {}
            LossModel::GilbertElliott { p, r } => {
                self.is_bad = p > Ratio::ZERO && draw() < p.get() / (p.get() + r.get());
            }
            LossModel::Burst { p, length } => {
                // The number of packets that are still to be dropped is 1 to length - 1 with equal probability. Each of
                // these states has p times the probability of the state in which a burst may begin.
                let further = f64::from(length.saturating_sub(1));
                let share = p.get() * further / (1.0 + p.get() * further);
                let draw = draw();
                self.rest = if draw < share { 1 + (draw / share * further) as u32 } else { 0 };
            }
            LossModel::GilbertElliottByTime { share, burst: bad }
            | LossModel::BurstByTime { share, length: bad } => {
                let (share, draw) = (share.get(), draw());
                self.is_bad = draw < share;
                // The remainder of an exponentially distributed time has the same distribution. The remainder of a
                // fixed time is uniform, and so is a draw below `share`.
                let is_fixed = self.is_bad && matches!(self.model, LossModel::BurstByTime { .. });
                let left = if is_fixed { bad.mul_f64(draw / share) } else { self.length(share, bad) };
                self.until = start + left;
            }
        }
    }

    /// How long the state that begins now lasts, if bursts of `bad` fill `share` of the time.
    fn length(&mut self, share: f64, bad: Duration) -> Duration {
        let draw = self.by_time.f64_at(self.states);
        self.states += 1;
        let seconds = match (self.is_bad, self.model) {
            (true, LossModel::BurstByTime { .. }) => bad.as_secs_f64(),
            (true, _) => exponential(draw, bad.as_secs_f64()),
            (false, _) => exponential(draw, bad.as_secs_f64() * (1.0 - share) / share),
        };
        // Clamped to a time longer than any run. A state can be too short for any packet; if all packets are lost, the
        // good state always is.
        Duration::from_nanos((seconds.min(1e9) * 1e9).round() as u64)
    }
}

/// Converts a uniformly distributed number to an exponentially distributed one with this mean.
fn exponential(draw: f64, mean: f64) -> f64 {
    -(1.0 - draw).ln() * mean
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: u64 = 1_000_000;

    fn share(value: f64) -> Ratio {
        Ratio::new(value).unwrap()
    }

    /// The fates of `n` packets, one each `gap`.
    fn pattern_every(gap: Duration, model: LossModel, seed: u64, n: u64) -> Vec<bool> {
        let mut chain = LossChain::new(model, seed, Time::ZERO);
        let mut now = Time::ZERO;
        let mut next = || {
            now += gap;
            chain.takes_next(now)
        };
        (0..n).map(|_| next()).collect()
    }

    fn pattern(model: LossModel, seed: u64, n: u64) -> Vec<bool> {
        pattern_every(Duration::from_micros(10), model, seed, n)
    }

    fn lost(pattern: &[bool]) -> f64 {
        pattern.iter().filter(|&&lost| lost).count() as f64
    }

    fn bursts(pattern: &[bool]) -> Vec<usize> {
        pattern.chunk_by(|a, b| a == b).filter(|run| run[0]).map(<[bool]>::len).collect()
    }

    fn mean(lengths: &[usize]) -> f64 {
        lengths.iter().sum::<usize>() as f64 / lengths.len() as f64
    }

    #[test]
    fn bernoulli_loses_the_share_within_three_standard_deviations() {
        for (seed, p) in [(1, 0.03), (2, 0.03), (3, 0.01), (4, 0.5)] {
            let lost = lost(&pattern(LossModel::bernoulli(share(p)), seed, N));
            let (mean, sd) = (p * N as f64, (N as f64 * p * (1.0 - p)).sqrt());
            assert!((lost - mean).abs() <= 3.0 * sd, "seed {seed}: {lost} of {N} at {p}");
        }
    }

    #[test]
    fn gilbert_elliott_keeps_the_share_and_the_mean_burst() {
        for (p, burst) in [(0.03, 3.0), (0.01, 8.0)] {
            let pattern = pattern(LossModel::gilbert_elliott(share(p), burst), 5, N);
            let bursts = bursts(&pattern);
            let lost = lost(&pattern);
            // Losses come in bursts, so the count's deviation grows by about sqrt(2 · burst - 1).
            let sd = (N as f64 * p * (2.0 * burst - 1.0)).sqrt();
            assert!((lost - p * N as f64).abs() <= 3.0 * sd, "{lost} of {N} at {p}");
            // A geometric burst has a deviation just below its mean.
            let mean = mean(&bursts);
            assert!((mean - burst).abs() <= 3.0 * burst / (bursts.len() as f64).sqrt(), "mean burst {mean}");
        }
    }

    #[test]
    fn bernoulli_losses_do_not_cluster() {
        let mean = mean(&bursts(&pattern(LossModel::bernoulli(share(0.03)), 6, N)));
        assert!((mean - 1.0 / 0.97).abs() < 0.01, "mean burst {mean}");
    }

    #[test]
    fn a_burst_is_as_long_as_it_was_asked_for_or_several_of_them_in_a_row() {
        for (p, length) in [(0.03, 5), (0.01, 1), (0.2, 3)] {
            let model = LossModel::burst(share(p), length);
            let LossModel::Burst { p: begins, .. } = model else { panic!("{model:?}") };
            let (begins, pattern) = (begins.get(), pattern(model, 7, N));
            let bursts = bursts(&pattern);
            let whole = &bursts[1..bursts.len() - 1]; // the first and the last may be cut off
            assert!(whole.iter().all(|&run| run % length as usize == 0), "{p} {length}");
            // The packet after a burst begins the next with the same probability: runs are `length` times a geometric
            // number of mean 1 / (1 - begins).
            let (n, length) = (whole.len() as f64, f64::from(length));
            let expected = length / (1.0 - begins);
            let sd = length * begins.sqrt() / (1.0 - begins) / n.sqrt();
            assert!((mean(whole) - expected).abs() <= 3.0 * sd + 1e-9, "{} for {expected}", mean(whole));
            // The number of bursts is binomial, about N · share / length; each drops `length` packets.
            let sd = (N as f64 * p * length).sqrt();
            assert!((lost(&pattern) - N as f64 * p).abs() <= 3.0 * sd, "{p} {length}: {}", lost(&pattern));
        }
    }

    /// 10 s of a packet each 10 µs.
    const MODELS_BY_TIME: [(f64, u64); 2] = [(0.03, 2), (0.3, 5)];

    #[test]
    fn gilbert_elliott_by_time_keeps_the_share_and_the_mean_burst() {
        for (p, millis) in MODELS_BY_TIME {
            let model =
                LossModel::GilbertElliottByTime { share: share(p), burst: Duration::from_millis(millis) };
            let pattern = pattern(model, 8, N);
            let bursts = bursts(&pattern);
            let packets = millis as f64 * 100.0;
            let mean = mean(&bursts);
            assert!(
                (mean - packets).abs() <= 3.0 * packets / (bursts.len() as f64).sqrt(),
                "mean burst {mean}"
            );
            // The share of the time in the bad state of such a chain over T has the variance 2 s (1-s) τ / T with the
            // relaxation time τ = burst · (1 - s).
            let (seconds, tau) = (N as f64 * 1e-5, millis as f64 * 1e-3 * (1.0 - p));
            let sd = (2.0 * p * (1.0 - p) * tau / seconds).sqrt();
            let found = lost(&pattern) / N as f64;
            assert!((found - p).abs() <= 3.0 * sd, "{found} for {p} ± {sd}");
        }
    }

    #[test]
    fn a_burst_by_time_lasts_for_the_time_that_was_asked_for() {
        for (p, millis) in MODELS_BY_TIME {
            let model = LossModel::BurstByTime { share: share(p), length: Duration::from_millis(millis) };
            let pattern = pattern(model, 9, N);
            let bursts = bursts(&pattern);
            // Two bursts with less than 10 µs between them are one; a time holds one packet more or less.
            let packets = millis as usize * 100;
            let inner = &bursts[1..bursts.len() - 1];
            let alike = |run: usize| (run + 1) % packets <= 2 || run > packets;
            assert!(inner.iter().all(|&run| run + 1 >= packets && alike(run)), "{inner:?}");
            // Intervals are exponential, lengths are not: the deviation is below that of Gilbert-Elliott.
            let sd = (2.0 * p * (1.0 - p) * (millis as f64 * 1e-3) / (N as f64 * 1e-5)).sqrt();
            let found = lost(&pattern) / N as f64;
            assert!((found - p).abs() <= 3.0 * sd, "{found} for {p} ± {sd}");
        }
    }

    #[test]
    fn a_chain_begins_as_if_it_had_always_run() {
        let n = 20_000;
        let bad = Duration::from_secs(1);
        for model in [
            LossModel::BurstByTime { share: share(0.2), length: bad },
            LossModel::GilbertElliottByTime { share: share(0.2), burst: bad },
            LossModel::gilbert_elliott(share(0.2), 49.0),
            LossModel::gilbert_elliott(share(0.2), 1.0),
            LossModel::burst(share(0.2), 3),
            LossModel::burst(share(0.2), 1),
        ] {
            // Each of the first ten packets of a connection is lost as often as any other one.
            let mut hit = [0_u32; 10];
            for seed in 0..n {
                let mut chain = LossChain::new(model, seed, Time::ZERO);
                for (k, hit) in (1..).zip(&mut hit) {
                    *hit += u32::from(chain.takes_next(Time::from_micros(k)));
                }
            }
            let sd = (n as f64 * 0.2 * 0.8).sqrt();
            let is_near = |hit: &u32| (f64::from(*hit) - n as f64 * 0.2).abs() <= 4.0 * sd;
            assert!(hit.iter().all(is_near), "{model:?}: {hit:?} of {n}");
        }
    }

    #[test]
    fn what_a_chain_by_time_does_depends_on_the_time_and_not_on_who_sends() {
        let model = LossModel::GilbertElliottByTime { share: share(0.3), burst: Duration::from_millis(2) };
        let often = pattern_every(Duration::from_micros(10), model, 3, 100_000);
        let seldom = pattern_every(Duration::from_micros(250), model, 3, 4_000);
        assert!(seldom.iter().enumerate().all(|(k, &lost)| lost == often[(k + 1) * 25 - 1]));
        assert!(seldom.contains(&true) && seldom.contains(&false));
        // Clocked by packets it is the other way round.
        let model = LossModel::gilbert_elliott(share(0.3), 3.0);
        let often = pattern_every(Duration::from_micros(10), model, 3, 4_000);
        assert_eq!(often, pattern_every(Duration::from_micros(250), model, 3, 4_000));
    }

    #[test]
    fn a_seed_is_a_pattern() {
        let burst = Duration::from_millis(2);
        for model in [
            LossModel::bernoulli(share(0.03)),
            LossModel::gilbert_elliott(share(0.03), 3.0),
            LossModel::burst(share(0.03), 3),
            LossModel::GilbertElliottByTime { share: share(0.03), burst },
            LossModel::BurstByTime { share: share(0.03), length: burst },
        ] {
            assert_eq!(pattern(model, 9, 100_000), pattern(model, 9, 100_000));
            assert_ne!(pattern(model, 9, 100_000), pattern(model, 10, 100_000));
        }
    }

    #[test]
    fn the_ends_of_the_scale_are_all_and_nothing() {
        let bad = Duration::from_millis(1);
        assert!(!pattern(LossModel::None, 1, 1000).contains(&true));
        for p in [Ratio::ZERO, Ratio::ONE] {
            for model in [
                LossModel::Bernoulli { p },
                LossModel::Burst { p, length: 3 },
                LossModel::GilbertElliottByTime { share: p, burst: bad },
                LossModel::BurstByTime { share: p, length: bad },
            ] {
                let other = p == Ratio::ZERO;
                assert!(!pattern(model, 1, 100_000).contains(&other), "{model:?}");
            }
        }
    }

    #[test]
    fn a_larger_share_takes_what_the_smaller_one_took() {
        let few = pattern(LossModel::bernoulli(share(0.01)), 4, 10_000);
        let mut chain = LossChain::new(LossModel::None, 4, Time::ZERO);
        let mut many: Vec<bool> = (0..5_000).map(|_| chain.takes_next(Time::ZERO)).collect();
        assert!(!many.contains(&true));
        chain.change(LossModel::bernoulli(share(0.03)), Time::ZERO);
        many.extend((5_000..10_000).map(|_| chain.takes_next(Time::ZERO)));
        assert!((5_000..10_000).all(|k| many[k] || !few[k]));
        assert!(lost(&many) > lost(&few[5_000..]));
    }
}
