//! Percentiles of one kind of latency, and which of them may be printed.

use std::time::Duration;

use h2lab_base::packed::Packed;
use h2lab_base::units::nanos;
use h2lab_model::record::Histogram;

/// All latencies of one kind in one cell. Percentiles are by nearest rank: exact if every request was kept, which takes
/// about two bytes each, and accurate to three digits if requests were counted in histograms.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Latency {
    values: Values,
    sum_ns: u128,
}

/// How the latencies are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Values {
    /// Each of them in nanoseconds, sorted.
    Sorted(Packed<u64, 1>),
    /// Counts by size.
    Counted(Histogram),
}

impl Default for Values {
    fn default() -> Self {
        Self::Sorted(Packed::new())
    }
}

/// The percentiles that every report has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percentiles {
    /// How many latencies there are.
    pub n: u64,
    /// The smallest.
    pub min: Duration,
    /// Half are at or below.
    pub p50: Duration,
    /// 90 % are at or below.
    pub p90: Duration,
    /// 95 % are at or below.
    pub p95: Duration,
    /// 99 % are at or below.
    pub p99: Duration,
    /// 99.9 % are at or below.
    pub p999: Duration,
    /// The largest.
    pub max: Duration,
    /// The arithmetic mean.
    pub mean: Duration,
}

/// The percentile that represents the tail of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tail {
    /// Too few requests for the 99th percentile: the 95th.
    P95,
    /// The 99th percentile.
    P99,
}

impl Tail {
    /// A p99 is reported only with this many latencies above it; otherwise it rests on a few requests of one stall.
    pub const NEEDED_ABOVE: u64 = 50;

    /// The share of latencies at or below it, 0 to 1.
    pub const fn share(self) -> f64 {
        match self {
            Self::P95 => 0.95,
            Self::P99 => 0.99,
        }
    }

    /// `p99` or `p95`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::P95 => "p95",
            Self::P99 => "p99",
        }
    }
}

impl Latency {
    /// Latencies in any order.
    pub fn new(latencies: impl IntoIterator<Item = Duration>) -> Self {
        let mut sorted_ns: Vec<u64> = latencies.into_iter().map(nanos).collect();
        sorted_ns.sort_unstable();
        let sum_ns = sorted_ns.iter().map(|&ns| u128::from(ns)).sum();
        Self { values: Values::Sorted(sorted_ns.into_iter().collect()), sum_ns }
    }

    /// Latencies counted in a histogram.
    pub const fn counted(histogram: Histogram) -> Self {
        Self { sum_ns: histogram.sum_ns(), values: Values::Counted(histogram) }
    }

    /// How many there are.
    pub const fn n(&self) -> u64 {
        match &self.values {
            Values::Sorted(sorted) => sorted.len() as u64,
            Values::Counted(histogram) => histogram.n(),
        }
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.n() == 0
    }

    /// As a histogram, to be exported or merged with those of other runs.
    pub fn histogram(&self) -> Histogram {
        match &self.values {
            Values::Sorted(sorted) => Histogram::of(sorted.iter().map(Duration::from_nanos)),
            Values::Counted(histogram) => histogram.clone(),
        }
    }

    /// The smallest latency such that at least `share` (0 to 1) of all are at or below it; zero if there are none.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = nearest_rank(share, self.n());
        match &self.values {
            Values::Sorted(sorted) => {
                let value = rank.checked_sub(1).and_then(|index| sorted.get(index as usize));
                Duration::from_nanos(value.unwrap_or(0))
            }
            Values::Counted(histogram) => histogram.at_rank(rank),
        }
    }

    /// The arithmetic mean; zero if there are none.
    pub fn mean(&self) -> Duration {
        let mean = self.sum_ns.checked_div(u128::from(self.n())).unwrap_or(0);
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// How many latencies lie above the quantile of `share` by rank.
    pub fn above(&self, share: f64) -> u64 {
        self.n() - nearest_rank(share, self.n())
    }

    /// The percentile to print for the tail.
    pub fn tail(&self) -> Tail {
        if self.above(Tail::P99.share()) >= Tail::NEEDED_ABOVE { Tail::P99 } else { Tail::P95 }
    }

    /// The usual percentiles; `None` if there are no latencies.
    pub fn percentiles(&self) -> Option<Percentiles> {
        (!self.is_empty()).then(|| Percentiles {
            n: self.n(),
            min: self.quantile(0.0),
            p50: self.quantile(0.5),
            p90: self.quantile(0.9),
            p95: self.quantile(0.95),
            p99: self.quantile(0.99),
            p999: self.quantile(0.999),
            max: self.quantile(1.0),
            mean: self.mean(),
        })
    }
}

/// The 1-based nearest rank of `share` among `n` values: ⌈share · n⌉, at least 1; 0 only if `n` is 0.
///
/// The product is lowered by one part in 10^12 first, since 0.99 · 5000 is slightly above 4950 in binary.
pub(super) fn nearest_rank(share: f64, n: u64) -> u64 {
    let rank = (share * n as f64 * (1.0 - 1e-12)).ceil() as u64;
    rank.max(1).min(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_to(n: u64) -> Latency {
        Latency::new((1..=n).rev().map(Duration::from_millis))
    }

    #[test]
    fn percentiles_are_exact_by_nearest_rank() {
        let p = one_to(1000).percentiles().unwrap();
        let millis = [p.min, p.p50, p.p90, p.p95, p.p99, p.p999, p.max].map(|d| d.as_millis());
        assert_eq!(millis, [1, 500, 900, 950, 990, 999, 1000]);
        assert_eq!(p.mean, Duration::from_micros(500_500));
        assert_eq!(p.n, 1000);
    }

    #[test]
    fn no_latency_has_no_percentiles_and_one_is_all_of_them() {
        assert_eq!(Latency::default().percentiles(), None);
        let one = one_to(1).percentiles().unwrap();
        assert_eq!((one.min, one.p50, one.max), (one.mean, one.mean, one.mean));
    }

    #[test]
    fn a_histogram_gives_the_same_percentiles_to_three_digits_and_the_same_mean() {
        let exact = one_to(20_000);
        let counted = Latency::counted(exact.histogram());
        assert_eq!((counted.n(), counted.mean(), counted.tail()), (exact.n(), exact.mean(), exact.tail()));
        assert_eq!(counted.above(0.99), exact.above(0.99));
        for share in [0.0, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let (counted, exact) = (counted.quantile(share), exact.quantile(share));
            assert!(counted >= exact && counted <= exact.mul_f64(1.001), "{share}: {counted:?} {exact:?}");
        }
        assert_eq!(counted.quantile(0.0), exact.quantile(0.0));
        assert_eq!(counted.quantile(1.0), exact.quantile(1.0));
        assert_eq!(Latency::counted(Histogram::default()).percentiles(), None);
    }

    #[test]
    fn a_p99_needs_fifty_latencies_above_it() {
        assert_eq!(one_to(5000).above(0.99), 50);
        assert_eq!(one_to(5000).tail(), Tail::P99);
        assert_eq!(one_to(4999).above(0.99), 49);
        assert_eq!(one_to(4999).tail(), Tail::P95);
    }
}
