//! Bonferroni's correction of intervals for several claims in one run.

/// The share of runs that may have a false claim.
const FALSE: f64 = 0.05;

/// How many times wider the interval of each of `looks` looks is than that of a single look, in the logarithm of the
/// ratio: from the normal quantile of the share that is left for each look.
pub(crate) fn of_looks(looks: u32) -> f64 {
    let quantile = |looks: u32| upper_normal(FALSE / 2.0 / f64::from(looks.max(1)));
    quantile(looks) / quantile(1)
}

/// An end of the interval of `ratio`, `by` times as far from the ratio in the logarithm.
pub(crate) fn widened(ratio: f64, end: f64, by: f64) -> f64 {
    ((end / ratio).ln() * by).exp() * ratio
}

/// The value that a standard normal variable exceeds with this probability, 0 to ½: Abramowitz and Stegun 26.2.23, to 0.00045.
fn upper_normal(probability: f64) -> f64 {
    let t = (-2.0 * probability.ln()).sqrt();
    let above = 0.010_328_f64.mul_add(t, 0.802_853).mul_add(t, 2.515_517);
    let below = 0.001_308_f64.mul_add(t, 0.189_269).mul_add(t, 1.432_788).mul_add(t, 1.0);
    t - above / below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_looks_widen_the_interval_as_bonferroni_says() {
        assert!((of_looks(1) - 1.0).abs() < 1e-9);
        assert!((upper_normal(0.025) - 1.959_964).abs() < 5e-4);
        assert!((upper_normal(0.001) - 3.090_232).abs() < 5e-4);
        assert!((widened(2.0, 1.0, 2.0) - 0.5).abs() < 1e-9 && (widened(2.0, 4.0, 2.0) - 8.0).abs() < 1e-9);
        assert!((widened(2.0, 1.5, 1.0) - 1.5).abs() < 1e-9);
    }
}
