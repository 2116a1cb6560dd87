//! How large the files of a run are.

use h2lab_base::JsonSchema;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use h2lab_base::random::Counter;
use h2lab_base::units::{ParseQuantityError, parse_bytes};

/// Sizes of files in bytes. Written `100M`, or `normal:100M:20M` for a mean and a standard deviation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum Sizes {
    /// All alike.
    Fixed(u64),
    /// Normally distributed, cut at 1 byte.
    Normal {
        /// The mean, in bytes.
        mean: u64,
        /// The standard deviation, in bytes.
        deviation: u64,
    },
}

impl Sizes {
    /// The purpose under which sizes are drawn from a run's seed.
    pub const PURPOSE: &'static str = "bulk sizes";

    /// The size of file `n`, whatever was drawn before; `random` is the stream of [`Sizes::PURPOSE`]. At least 1 byte:
    /// a normal sample can be below zero, which must neither wrap around to 16 EiB nor ask for nothing (chasqui does
    /// both).
    pub fn of(self, n: u64, random: &Counter) -> u64 {
        match self {
            Self::Fixed(bytes) => bytes.max(1),
            Self::Normal { mean, deviation } => {
                let drawn = mean as f64 + deviation as f64 * standard_normal(n, random);
                // The cast saturates, at 0 too.
                (drawn.round() as u64).max(1)
            }
        }
    }

    /// The mean, in bytes, if nothing is cut.
    pub const fn mean(self) -> u64 {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Normal { mean, .. } => mean,
        }
    }
}

/// The `n`-th number of the standard normal distribution (Box and Muller 1958, the cosine's half): at most 8.6 from
/// zero, since the smallest uniform number is 2^-53.
fn standard_normal(n: u64, random: &Counter) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64_at(2 * n)).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64_at(2 * n + 1)).cos()
}

impl fmt::Display for Sizes {
    /// The form that is parsed, in bytes if no unit is exact.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Fixed(bytes) => f.write_str(&exact(bytes)),
            Self::Normal { mean, deviation } => write!(f, "normal:{}:{}", exact(mean), exact(deviation)),
        }
    }
}

/// `100M`, in the largest unit that divides it.
fn exact(bytes: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "k")];
    let found = units.into_iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    found.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

impl FromStr for Sizes {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse =
            || ParseQuantityError::new(text, "a size from 1 byte (such as 100M), or normal:MEAN:DEVIATION");
        let size = |text: &str| parse_bytes(text).map_err(|_| refuse());
        let sizes = match text.strip_prefix("normal:").map(|rest| rest.split_once(':')) {
            None => Self::Fixed(size(text)?),
            Some(Some((mean, deviation))) => Self::Normal { mean: size(mean)?, deviation: size(deviation)? },
            Some(None) => return Err(refuse()),
        };
        if sizes.mean() == 0 { Err(refuse()) } else { Ok(sizes) }
    }
}

impl TryFrom<String> for Sizes {
    type Error = ParseQuantityError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Sizes> for String {
    fn from(sizes: Sizes) -> Self {
        sizes.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn samples_have_the_mean_and_the_deviation_that_were_asked_for() {
        let random = Counter::new(42, Sizes::PURPOSE);
        let sizes = Sizes::Normal { mean: 100_000_000, deviation: 20_000_000 };
        let n = 20_000;
        let drawn: Vec<f64> = (0..n).map(|k| sizes.of(k, &random) as f64).collect();
        let mean = drawn.iter().sum::<f64>() / n as f64;
        let deviation = (drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64).sqrt();
        // Four standard errors: σ/√n of the mean, σ/√2n of the deviation.
        assert!((mean - 1e8).abs() < 4.0 * 2e7 / (n as f64).sqrt(), "{mean}");
        assert!((deviation - 2e7).abs() < 4.0 * 2e7 / (2.0 * n as f64).sqrt(), "{deviation}");
    }

    #[test]
    fn a_sample_below_zero_is_one_byte_and_none_wraps_around() {
        let random = Counter::new(1, Sizes::PURPOSE);
        let sizes = Sizes::Normal { mean: 10, deviation: 1000 };
        let drawn: Vec<u64> = (0..10_000).map(|k| sizes.of(k, &random)).collect();
        assert!(drawn.iter().all(|&bytes| (1..=10 + 8_600).contains(&bytes)));
        let least = drawn.iter().filter(|&&bytes| bytes == 1).count();
        assert!((4_500..5_500).contains(&least), "half of them are cut: {least}");
        assert_eq!(Sizes::Fixed(0).of(0, &random), 1);
    }

    #[test]
    fn the_seed_decides() {
        let sizes = Sizes::Normal { mean: 1 << 30, deviation: 1 << 28 };
        let drawn = |seed| [0, 1, 2].map(|n| sizes.of(n, &Counter::new(seed, Sizes::PURPOSE)));
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }

    #[test]
    fn sizes_read_back_as_they_are_written() {
        for text in ["100M", "1", "1025", "3G", "normal:100M:20M", "normal:1:0"] {
            assert_eq!(text.parse::<Sizes>().unwrap().to_string(), text);
        }
        for bad in ["", "0", "normal:1M", "normal:0:1M", "normal:1M:", "uniform:1:2", "-1", "1M:2M"] {
            assert!(bad.parse::<Sizes>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_distribution_gives_a_size_of_zero(mean in any::<u64>(), deviation in any::<u64>(), n in 0_u64..1000) {
            let random = Counter::new(3, Sizes::PURPOSE);
            let sizes = Sizes::Normal { mean, deviation };
            prop_assert!(sizes.of(n, &random) >= 1);
        }
    }
}
