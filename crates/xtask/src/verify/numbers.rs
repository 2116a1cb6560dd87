//! The little arithmetic that figures need.

/// The median; of an even count the lower one, which is a value that was measured. `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The smallest value that at least `share` of all values do not exceed. `None` of nothing.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// By how many standard deviations `hits` of `trials` differ from probability `p` (binomial).
pub fn deviations(hits: u64, trials: u64, p: f64) -> f64 {
    let (hits, trials) = (hits as f64, trials as f64);
    (hits - trials * p) / (trials * p * (1.0 - p)).sqrt()
}

/// The largest difference that two p99s may have and still agree: 3 ms or 15 %, whichever is more.
pub fn agreement_ms(smaller: f64) -> f64 {
    (smaller * 0.15).max(3.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(median(&values), Some(2.0));
        assert_eq!(quantile(&values, 0.99), Some(4.0));
        assert_eq!(quantile(&values, 0.0), Some(1.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn three_standard_deviations_of_a_million_packets_are_512_of_them() {
        assert!(deviations(30_511, 1_000_000, 0.03) < 3.0);
        assert!(deviations(30_512, 1_000_000, 0.03) > 3.0);
        assert!(deviations(29_488, 1_000_000, 0.03) < -3.0);
    }

    #[test]
    fn agreement_is_absolute_for_short_times_and_relative_for_long_ones() {
        assert!((agreement_ms(1.0) - 3.0).abs() < 1e-9);
        assert!((agreement_ms(20.0) - 3.0).abs() < 1e-9);
        assert!((agreement_ms(100.0) - 15.0).abs() < 1e-9);
    }
}
