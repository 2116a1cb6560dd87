//! Which packets are lost: a function of the seed and the packet's index, never of time.

use super::LossModel;
use crate::random::Counter;

/// A loss model at work on one direction.
///
/// Packet n of a direction meets the same fate under the same seed, whenever it comes and whatever the other impairments
/// are. A chain on the clock instead of on packets was not chosen: its bursts would hit more packets the faster the sender
/// is, and two protocols would never meet the same losses.
#[derive(Debug, Clone)]
pub struct Loss {
    model: LossModel,
    counter: Counter,
    /// Index of the next packet.
    next: u64,
    /// Whether a Gilbert-Elliott chain is in its bad state.
    is_bad: bool,
}

impl Loss {
    /// `model` under `seed`.
    pub const fn new(model: LossModel, seed: u64) -> Self {
        Self { model, counter: Counter::new(seed, "loss"), next: 0, is_bad: false }
    }

    /// Whether the next packet is lost.
    pub fn takes_next(&mut self) -> bool {
        let draw = self.counter.f64_at(self.next);
        self.next += 1;
        match self.model {
            LossModel::None => false,
            LossModel::Bernoulli { p } => draw < p.get(),
            LossModel::GilbertElliott { p, r } => {
                // The step comes before the verdict, as in netem: a burst begins with the packet that brings it on.
                self.is_bad = if self.is_bad { draw >= r.get() } else { draw < p.get() };
                self.is_bad
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Ratio;

    const N: u64 = 1_000_000;

    fn share(value: f64) -> Ratio {
        Ratio::new(value).unwrap()
    }

    fn pattern(model: LossModel, seed: u64, n: u64) -> Vec<bool> {
        let mut loss = Loss::new(model, seed);
        (0..n).map(|_| loss.takes_next()).collect()
    }

    fn bursts(pattern: &[bool]) -> Vec<usize> {
        pattern.chunk_by(|a, b| a == b).filter(|run| run[0]).map(<[bool]>::len).collect()
    }

    #[test]
    fn bernoulli_loses_the_share_within_three_standard_deviations() {
        for (seed, p) in [(1, 0.03), (2, 0.03), (3, 0.01), (4, 0.5)] {
            let lost = pattern(LossModel::bernoulli(share(p)), seed, N).iter().filter(|&&l| l).count() as f64;
            let (mean, sd) = (p * N as f64, (N as f64 * p * (1.0 - p)).sqrt());
            assert!((lost - mean).abs() <= 3.0 * sd, "seed {seed}: {lost} of {N} at {p}");
        }
    }

    #[test]
    fn gilbert_elliott_keeps_the_share_and_the_mean_burst() {
        for (p, burst) in [(0.03, 3.0), (0.01, 8.0)] {
            let pattern = pattern(LossModel::gilbert_elliott(share(p), burst), 5, N);
            let bursts = bursts(&pattern);
            let lost = bursts.iter().sum::<usize>() as f64;
            // Losses come in bursts, so the count's deviation grows by about sqrt(2 · burst - 1).
            let sd = (N as f64 * p * (2.0 * burst - 1.0)).sqrt();
            assert!((lost - p * N as f64).abs() <= 3.0 * sd, "{lost} of {N} at {p}");
            let mean = lost / bursts.len() as f64;
            // A geometric burst has a deviation just below its mean.
            assert!((mean - burst).abs() <= 3.0 * burst / (bursts.len() as f64).sqrt(), "mean burst {mean}");
        }
    }

    #[test]
    fn bernoulli_losses_do_not_cluster() {
        let bursts = bursts(&pattern(LossModel::bernoulli(share(0.03)), 6, N));
        let mean = bursts.iter().sum::<usize>() as f64 / bursts.len() as f64;
        assert!((mean - 1.0 / 0.97).abs() < 0.01, "mean burst {mean}");
    }

    #[test]
    fn a_seed_is_a_pattern() {
        for model in [LossModel::bernoulli(share(0.03)), LossModel::gilbert_elliott(share(0.03), 3.0)] {
            assert_eq!(pattern(model, 9, 10_000), pattern(model, 9, 10_000));
            assert_ne!(pattern(model, 9, 10_000), pattern(model, 10, 10_000));
        }
    }

    #[test]
    fn the_ends_of_the_scale_are_all_and_nothing() {
        assert!(!pattern(LossModel::None, 1, 1000).contains(&true));
        assert!(!pattern(LossModel::Bernoulli { p: Ratio::ZERO }, 1, 1000).contains(&true));
        assert!(!pattern(LossModel::Bernoulli { p: Ratio::ONE }, 1, 1000).contains(&false));
    }
}
