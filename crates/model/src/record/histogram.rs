//! Durations counted in buckets: bounded memory for any number of them.
//!
//! The buckets are those of `HdrHistogram` with a unit of 1 ns and three significant digits: below 2048 ns each value has
//! its own, above that each power of two is cut into 1024. A value read back is at most 0.1 % off. They are implemented here
//! again because a recorder fills several histograms per request, and takes them away ten times per second as short
//! lists: a thousand full arrays would be a gigabyte. A test compares them with the original crate.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use h2lab_base::units::nanos;

/// Buckets per power of two.
const STEPS: u64 = 1024;
/// log2 of [`STEPS`].
const STEP_BITS: u32 = 10;

/// The number of the bucket that `ns` falls into.
const fn bucket_of(ns: u64) -> usize {
    // Below 2 × STEPS the shift is 0 and the value is its own number.
    let shift = (ns | STEPS).ilog2() - STEP_BITS;
    ((shift as u64) * STEPS + (ns >> shift)) as usize
}

/// The lowest value of a bucket.
const fn lowest_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket / STEPS).saturating_sub(1);
    (bucket - shift * STEPS) << shift
}

/// The highest value that falls into the same bucket as `ns`.
const fn highest_like(ns: u64) -> u64 {
    let shift = (ns | STEPS).ilog2() - STEP_BITS;
    ns | ((1 << shift) - 1)
}

/// Durations of one kind, counted by bucket: the stored form, which lists only buckets that are not empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Histogram {
    /// (lowest duration of the bucket in nanoseconds, how many fell into it), rising.
    buckets: Vec<(u64, u64)>,
    /// How many durations.
    n: u64,
    /// Their exact sum, in nanoseconds.
    sum_ns: u128,
    /// The exact smallest, in nanoseconds.
    min_ns: u64,
    /// The exact largest, in nanoseconds.
    max_ns: u64,
}

impl Histogram {
    /// A histogram of these durations.
    pub fn of(durations: impl IntoIterator<Item = Duration>) -> Self {
        let mut meter = DurationMeter::default();
        durations.into_iter().for_each(|duration| meter.record(nanos(duration)));
        meter.take()
    }

    /// (lowest duration of the bucket in nanoseconds, how many fell into it), rising.
    pub fn buckets(&self) -> &[(u64, u64)] {
        &self.buckets
    }

    /// How many durations it counts.
    pub const fn n(&self) -> u64 {
        self.n
    }

    /// Whether it counts none.
    pub const fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// The sum of all durations in nanoseconds, exact.
    pub const fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// The smallest and the largest duration, exact; `None` if there is none.
    pub const fn extremes(&self) -> Option<(Duration, Duration)> {
        if self.n == 0 {
            return None;
        }
        Some((Duration::from_nanos(self.min_ns), Duration::from_nanos(self.max_ns)))
    }

    /// Whether it is one, if it comes from another machine: rising buckets, none of them empty, whose counts are its number,
    /// extremes in their order, and a sum that so many durations can have.
    pub(crate) fn adds_up(&self) -> bool {
        let counted: u128 = self.buckets.iter().map(|(_, count)| u128::from(*count)).sum();
        let is_bucket = |&(ns, count): &(u64, u64)| count > 0 && lowest_of(bucket_of(ns)) == ns;
        self.buckets.is_sorted_by(|(one, _), (next, _)| one < next)
            && self.buckets.iter().all(is_bucket)
            && counted == u128::from(self.n)
            && self.extremes().is_none_or(|(least, most)| least <= most)
            && self.sum_ns <= u128::from(self.n) * u128::from(u64::MAX)
    }

    /// Adds another one: the result is the histogram of both. Counts stay at the largest number: those of another
    /// machine may be any.
    pub fn merge(&mut self, other: &Self) {
        if other.n == 0 {
            return;
        }
        self.min_ns = if self.n == 0 { other.min_ns } else { self.min_ns.min(other.min_ns) };
        self.max_ns = self.max_ns.max(other.max_ns);
        self.n = self.n.saturating_add(other.n);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        let (ours, theirs) = (std::mem::take(&mut self.buckets), &other.buckets);
        self.buckets.reserve(ours.len().max(theirs.len()));
        let (mut ours, mut theirs) = (ours.into_iter().peekable(), theirs.iter().copied().peekable());
        while let (Some(&(ns, count)), Some(&(their_ns, their_count))) = (ours.peek(), theirs.peek()) {
            let mut both: u64 = 0;
            if ns <= their_ns {
                both = count;
                ours.next();
            }
            if their_ns <= ns {
                both = both.saturating_add(their_count);
                theirs.next();
            }
            self.buckets.push((ns.min(their_ns), both));
        }
        self.buckets.extend(ours);
        self.buckets.extend(theirs);
    }

    /// The duration with this 1-based rank among all, in rising order, to within 0.1 %; the first and the last are exact.
    /// Zero for rank 0 or none at all.
    pub fn at_rank(&self, rank: u64) -> Duration {
        self.at_ranks([rank]).next().unwrap_or_default()
    }

    /// [`Histogram::at_rank`] for these ranks, in rising order, in one pass.
    pub fn at_ranks(&self, ranks: impl IntoIterator<Item = u64>) -> impl Iterator<Item = Duration> {
        // Durations up to and including the bucket `next`, once it is passed.
        let (mut next, mut passed) = (0, 0_u64);
        ranks.into_iter().map(move |rank| {
            if rank == 0 || self.n == 0 {
                return Duration::ZERO;
            }
            while passed < rank && next < self.buckets.len() {
                passed = passed.saturating_add(self.buckets[next].1);
                next += 1;
            }
            let ns = match rank {
                1 => self.min_ns,
                rank if passed < rank => self.max_ns,
                _ => highest_like(self.buckets[next - 1].0),
            };
            // `clamp` panics if the extremes contradict each other, as those of another machine may.
            Duration::from_nanos(ns.min(self.max_ns).max(self.min_ns))
        })
    }
}

/// Counts durations quickly; [`DurationMeter::take`] makes a [`Histogram`] of them. It grows with the largest duration, to 220
/// KiB for a minute, and keeps its space.
#[derive(Debug)]
pub struct DurationMeter {
    counts: Vec<u32>,
    n: u64,
    sum_ns: u128,
    /// `u64::MAX` if there is none.
    min_ns: u64,
    max_ns: u64,
}

impl Default for DurationMeter {
    fn default() -> Self {
        Self { counts: Vec::new(), n: 0, sum_ns: 0, min_ns: u64::MAX, max_ns: 0 }
    }
}

impl DurationMeter {
    /// Counts a duration, in nanoseconds. More than 2³² of them in one bucket between two takes saturate.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.record_times(ns, 1);
    }

    /// Counts a duration so many times.
    #[inline]
    pub fn record_times(&mut self, ns: u64, times: u32) {
        let bucket = bucket_of(ns);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] = self.counts[bucket].saturating_add(times);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        self.n += u64::from(times);
        self.sum_ns += u128::from(ns) * u128::from(times);
    }

    /// How many have been counted since it was last taken.
    pub const fn n(&self) -> u64 {
        self.n
    }

    /// Returns what was counted and resets.
    pub fn take(&mut self) -> Histogram {
        if self.n == 0 {
            return Histogram::default();
        }
        let (from, to) = (bucket_of(self.min_ns), bucket_of(self.max_ns));
        let touched = self.counts[from..=to].iter_mut().zip(from..).filter(|(count, _)| **count > 0);
        let buckets =
            touched.map(|(count, bucket)| (lowest_of(bucket), u64::from(std::mem::take(count)))).collect();
        let histogram =
            Histogram { buckets, n: self.n, sum_ns: self.sum_ns, min_ns: self.min_ns, max_ns: self.max_ns };
        (self.n, self.sum_ns, self.min_ns, self.max_ns) = (0, 0, u64::MAX, 0);
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_base::random::Counter;

    #[test]
    fn every_value_lies_in_its_bucket_and_buckets_follow_each_other() {
        for ns in (0..70).flat_map(|bit: u32| {
            let power = 1_u64.checked_shl(bit).unwrap_or(u64::MAX);
            [power.saturating_sub(1), power, power.saturating_add(1), power.saturating_add(power / 3)]
        }) {
            let bucket = bucket_of(ns);
            assert!(lowest_of(bucket) <= ns && ns <= highest_like(ns), "{ns}");
            assert_eq!(bucket_of(lowest_of(bucket)), bucket, "{ns}");
            assert_eq!(bucket_of(highest_like(ns)), bucket, "{ns}");
            if highest_like(ns) < u64::MAX {
                assert_eq!(bucket_of(highest_like(ns) + 1), bucket + 1, "{ns}");
            }
            let width = highest_like(ns) - lowest_of(bucket);
            assert!(width <= ns / 1000, "three significant digits of {ns}");
        }
    }

    #[test]
    fn counts_sum_and_extremes_are_exact_and_ranks_three_digits() {
        let mut random = Counter::new(1, "histogram");
        let mut draw = || {
            let bits = random.below(40) + 1;
            random.below(1 << bits)
        };
        let mut values: Vec<u64> = (0..50_000).map(|_| draw()).collect();
        let histogram = Histogram::of(values.iter().map(|&ns| Duration::from_nanos(ns)));
        values.sort_unstable();
        assert_eq!(histogram.n(), 50_000);
        assert_eq!(histogram.sum_ns(), values.iter().map(|&ns| u128::from(ns)).sum());
        let nanos = |ns| Duration::from_nanos(ns);
        assert_eq!(histogram.extremes(), Some((nanos(values[0]), nanos(values[49_999]))));
        for rank in [1, 2, 25_000, 49_500, 49_999, 50_000] {
            let (read, exact) = (histogram.at_rank(rank).as_nanos() as f64, values[rank as usize - 1] as f64);
            assert!(read >= exact && read <= exact * 1.001 + 1.0, "rank {rank}: {read} for {exact}");
        }
        assert_eq!(histogram.at_rank(0), Duration::ZERO);
        let ranks = [0, 1, 1, 2, 700, 700, 25_000, 50_000, 50_001];
        assert!(histogram.at_ranks(ranks).eq(ranks.map(|rank| histogram.at_rank(rank))));
        assert_eq!(Histogram::default().at_ranks([1]).next(), Some(Duration::ZERO));
    }

    #[test]
    fn merged_histograms_are_the_histogram_of_all() {
        let mut random = Counter::new(2, "histogram");
        let values: Vec<Duration> =
            (0..10_000).map(|_| Duration::from_nanos(random.below(1 << 30))).collect();
        let mut merged = Histogram::default();
        for part in values.chunks(3_333) {
            merged.merge(&Histogram::of(part.iter().copied()));
        }
        merged.merge(&Histogram::default());
        assert_eq!(merged, Histogram::of(values));
    }

    /// These buckets, which need not be those of a histogram, for so many durations.
    fn claimed(buckets: &[(u64, u64)], n: u64, sum_ns: u128) -> Histogram {
        let [first, last] = [buckets.first(), buckets.last()].map(|bucket| bucket.map_or(0, |(ns, _)| *ns));
        Histogram { buckets: buckets.to_vec(), n, sum_ns, min_ns: first, max_ns: last }
    }

    #[test]
    fn counts_that_are_too_large_together_stay_at_the_largest_number() {
        let merged = |n, other| {
            let mut merged = claimed(&[(5, n)], n, u128::MAX);
            merged.merge(&claimed(&[(5, other)], other, 1));
            (merged.n(), merged.buckets()[0].1, merged.sum_ns())
        };
        assert_eq!(merged(u64::MAX - 2, 1), (u64::MAX - 1, u64::MAX - 1, u128::MAX));
        for (n, other) in [(u64::MAX - 1, 1), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)] {
            assert_eq!(merged(n, other), (u64::MAX, u64::MAX, u128::MAX));
        }
        let mut full = claimed(&[(5, u64::MAX - 1)], u64::MAX - 1, 0);
        full.merge(&claimed(&[(7, 3)], 3, 21));
        assert_eq!(full.at_rank(u64::MAX), Duration::from_nanos(7), "ranks do not wrap either");
    }

    #[test]
    fn what_is_no_histogram_does_not_add_up() {
        assert!(Histogram::default().adds_up());
        assert!(Histogram::of([1, 2_000_000, 7].map(Duration::from_nanos)).adds_up());
        let largest = u128::from(u64::MAX) * 2;
        assert!(claimed(&[(1, 2)], 2, largest).adds_up());
        let wrong = [
            (&[(1, 2)][..], 2, largest + 1),
            (&[(1, 2)], 3, 3),
            (&[(1, u64::MAX), (5, 1)], 0, 0),
            (&[(5, 1), (1, 1)], 2, 6),
            (&[(1, 1), (1, 1)], 2, 2),
            (&[(1, 2), (5, 0)], 2, 2),
            (&[(2049, 2)], 2, 4098),
        ];
        for (buckets, n, sum_ns) in wrong {
            assert!(!claimed(buckets, n, sum_ns).adds_up(), "{buckets:?}, {n}, {sum_ns}");
        }
        for lowest in [2047, 2048, 2050] {
            assert!(claimed(&[(lowest, 2)], 2, 2).adds_up(), "a bucket begins at {lowest}");
        }
        let extremes = |min_ns, max_ns| Histogram { min_ns, max_ns, ..claimed(&[(1, 2)], 2, 2) };
        assert!(extremes(1, 1).adds_up() && !extremes(9, 1).adds_up());
    }

    #[test]
    fn ranks_of_extremes_that_contradict_each_other_do_not_panic() {
        let wrong = Histogram { min_ns: 9, max_ns: 1, ..claimed(&[(5, 3)], 3, 15) };
        assert!(wrong.at_ranks(0..=4).skip(1).all(|duration| duration == Duration::from_nanos(9)));
    }

    #[test]
    fn a_meter_begins_anew_when_it_is_taken() {
        let mut meter = DurationMeter::default();
        meter.record(5_000);
        assert_eq!(meter.take().n(), 1);
        assert_eq!(meter.take(), Histogram::default());
        meter.record(7);
        assert_eq!(meter.take().buckets(), [(7, 1)]);
    }
}
