//! Paired rounds as one ratio with its interval.

use super::Pair;

/// The combined figures of the rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratios {
    /// The median of our figures.
    pub ours: f64,
    /// The median of the peer's.
    pub peer: f64,
    /// The median of the rounds' ratios, ours divided by the peer's.
    pub median: f64,
    /// Lower end of the interval that holds the true median with at least 95 %; with fewer than six rounds the least.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Ratios {
    /// From at least one round.
    pub fn of(pairs: &[Pair]) -> Self {
        let sorted = |value: fn(&Pair) -> f64| {
            let mut values: Vec<f64> = pairs.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let ratios = sorted(|pair| pair.ours / pair.peer);
        let skip = skipped(ratios.len());
        Self {
            ours: middle(&sorted(|pair| pair.ours)),
            peer: middle(&sorted(|pair| pair.peer)),
            median: middle(&ratios),
            low: ratios[skip],
            high: ratios[ratios.len() - 1 - skip],
        }
    }
}

/// The median of at least one sorted value.
pub fn middle(sorted: &[f64]) -> f64 {
    let n = sorted.len();
    if n % 2 == 1 { sorted[n / 2] } else { f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]) }
}

/// How many of `n` sorted values lie outside the interval at each end: the most for which a fair coin thrown `n` times
/// shows no more heads than that with a probability of at most 2.5 %.
fn skipped(n: usize) -> usize {
    let mut chance = (-(n as f64)).exp2(); // of no heads
    let (mut tail, mut k) = (chance, 0);
    while tail <= 0.025 {
        chance *= (n - k) as f64 / (k + 1) as f64;
        k += 1;
        tail += chance;
    }
    // `tail`, the probability of up to `k` heads, is above 2.5 % now. With `k` = 0 that of no heads is above it.
    k.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(ratios: &[f64]) -> Vec<Pair> {
        ratios.iter().map(|&ours| Pair { ours, peer: 1.0 }).collect()
    }

    #[test]
    fn nine_rounds_leave_one_out_at_each_end() {
        let ratios = Ratios::of(&pairs(&[9.0, 1.0, 8.0, 2.0, 7.0, 3.0, 6.0, 4.0, 5.0]));
        assert_eq!([ratios.low, ratios.median, ratios.high].map(|ratio| ratio as u32), [2, 5, 8]);
    }

    #[test]
    fn few_rounds_show_their_whole_range() {
        let ratios = Ratios::of(&pairs(&[3.0, 1.0]));
        assert_eq!([ratios.low, ratios.median, ratios.high].map(|ratio| ratio as u32), [1, 2, 3]);
        assert_eq!((skipped(1), skipped(5), skipped(6), skipped(8), skipped(9)), (0, 0, 0, 0, 1));
    }

    #[test]
    fn the_ratio_is_taken_per_round_and_not_of_the_medians() {
        let drifting = [(1.0, 2.0), (10.0, 20.0), (100.0, 200.0)].map(|(ours, peer)| Pair { ours, peer });
        assert!((Ratios::of(&drifting).median - 0.5).abs() < 1e-12);
    }
}
