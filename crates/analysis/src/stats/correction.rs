//! Bonferroni's correction of intervals for several claims in one run.
//!
//! An interval whose width was estimated from few repetitions or blocks is one of Student's t: its tails are heavy, so that
//! a smaller chance of error makes it much wider than the normal distribution has it.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

/// The share of runs that may have a false claim.
pub(super) const FALSE: f64 = 0.05;

/// Among how many looks of the same width an interval is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Looks {
    /// Of the part that is from the blocks within the repetitions.
    pub blocks: u32,
    /// Whether how repetitions vary is judged by those of other cells as well.
    is_variation_known: bool,
}

impl From<u32> for Looks {
    fn from(looks: u32) -> Self {
        Self { blocks: looks, is_variation_known: false }
    }
}

impl Looks {
    /// Of two cells with few repetitions, whose variation is judged elsewhere, with the degrees of freedom of more cells:
    /// here it has the normal distribution's factor.
    pub(crate) const fn at_known_variation(looks: u32) -> Self {
        Self { blocks: looks, is_variation_known: true }
    }

    /// The part of an interval that is from how repetitions vary, where `of` has that part for so many looks.
    pub(crate) fn of_repetitions(self, of: impl Fn(u32) -> f64) -> f64 {
        if self.is_variation_known {
            of(1) * of_looks_at_known_variation(self.blocks)
        } else {
            of(self.blocks)
        }
    }
}

/// How many times wider the interval of each of `looks` looks is than that of a single look, in the logarithm of the
/// ratio, by Student's t with this many degrees of freedom.
pub(crate) fn of_looks(looks: u32, freedom: usize) -> f64 {
    half_width(looks, freedom) / half_width(1, freedom)
}

/// The same of a variation that is known: by the normal distribution.
pub(crate) fn of_looks_at_known_variation(looks: u32) -> f64 {
    let quantile = |looks: u32| upper_normal(FALSE / 2.0 / f64::from(looks.max(1)));
    quantile(looks) / quantile(1)
}

/// Half the width of the interval of each of `looks` looks by Student's t with this many degrees of freedom, in standard
/// errors.
pub(crate) fn half_width(looks: u32, freedom: usize) -> f64 {
    student(FALSE / f64::from(looks.max(1)), freedom)
}

/// The value that a standard normal variable exceeds with this probability, 0 to ½: Abramowitz and Stegun 26.2.23, to 0.00045.
fn upper_normal(probability: f64) -> f64 {
    let t = (-2.0 * probability.ln()).sqrt();
    let above = 0.010_328_f64.mul_add(t, 0.802_853).mul_add(t, 2.515_517);
    let below = 0.001_308_f64.mul_add(t, 0.189_269).mul_add(t, 1.432_788).mul_add(t, 1.0);
    t - above / below
}

/// The value that the magnitude of Student's t exceeds with this probability, by bisection.
fn student(probability: f64, freedom: usize) -> f64 {
    /// Each halves an interval of π/2.
    const STEPS: u32 = 60;
    let (mut below, mut above) = (0.0, FRAC_PI_2);
    for _ in 0..STEPS {
        let angle: f64 = f64::midpoint(below, above);
        if within(angle, freedom) < 1.0 - probability {
            below = angle;
        } else {
            above = angle;
        }
    }
    (freedom.max(1) as f64).sqrt() * below.tan()
}

/// The probability that Student's t lies within ±√freedom × the tangent of this angle: Abramowitz and Stegun 26.7.3 and
/// 26.7.4.
fn within(angle: f64, freedom: usize) -> f64 {
    let (sine, cosine) = angle.sin_cos();
    let is_odd = freedom == 0 || freedom % 2 == 1;
    let (mut power, mut term) = if is_odd { (1, cosine) } else { (0, 1.0) };
    let mut sum = 0.0;
    while power + 2 <= freedom {
        sum += term;
        term *= cosine * cosine * (power + 1) as f64 / (power + 2) as f64;
        power += 2;
    }
    if is_odd { FRAC_2_PI * sine.mul_add(sum, angle) } else { sine * sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_few_runs_many_looks_widen_the_interval_as_students_t_has_it() {
        // Two-sided, from the tables.
        let known = [
            (0.05, 1, 12.706),
            (0.05, 2, 4.303),
            (0.002, 3, 10.215),
            (0.01, 4, 4.604),
            (0.05, 5, 2.571),
            (0.002, 10, 4.144),
        ];
        for (probability, freedom, value) in known {
            let found = student(probability, freedom);
            assert!((found - value).abs() < 0.001, "{probability} {freedom}: {found}");
        }
        assert!((of_looks(5, 4) - 4.604 / 2.776).abs() < 0.001);
        let normal = of_looks_at_known_variation(15);
        assert!((of_looks(15, 10_000) - normal).abs() < 0.002, "as the normal distribution");
        assert!((half_width(5, 4) - 4.604).abs() < 0.001);
        assert!(of_looks(1, 0).is_finite());
    }

    #[test]
    fn many_looks_widen_the_interval_as_bonferroni_says() {
        assert!((of_looks_at_known_variation(1) - 1.0).abs() < 1e-9);
        assert!((upper_normal(0.025) - 1.959_964).abs() < 5e-4);
        assert!((upper_normal(0.001) - 3.090_232).abs() < 5e-4);
    }

    #[test]
    fn a_variation_that_is_known_has_the_factor_of_the_normal_distribution() {
        let of = |looks: u32| half_width(looks, 2);
        assert!((Looks::from(10).of_repetitions(of) - half_width(10, 2)).abs() < 1e-9);
        let known = Looks::at_known_variation(10).of_repetitions(of);
        assert!((known - half_width(1, 2) * of_looks_at_known_variation(10)).abs() < 1e-9);
        assert!(known < half_width(10, 2) && Looks::at_known_variation(10).blocks == 10);
    }
}
