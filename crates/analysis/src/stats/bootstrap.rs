//! The confidence interval of a ratio of two quantiles, by block bootstrap.
//!
//! Requests of one stall are one event, so single requests are never resampled: a per-request bootstrap calls HTTP/1.1
//! different from itself in a third of all runs. As in the experiment, repetitions are resampled first, then blocks of
//! time within them (Künsch 1989; circular, Politis and Romano 1992). Blocks are at least twice as long as the longest
//! stall that requests shared, so that few stalls are cut in two. If a repetition is too short for two such blocks, the
//! interval is computed from shorter ones, but [`RatioInterval::is_sound`] then prevents any conclusion from it.
//!
//! Two repetitions of three seconds have few blocks, and with few blocks a bootstrap's percentiles are too narrow: by
//! √((n − 1) / n), since it divides by n, and because it does not account for Student's t. Both are corrected by
//! stretching the interval about the estimate, in the logarithm (Hesterberg 2015, "What teachers should know about the
//! bootstrap", §4: the narrowness bias).
//!
//! A machine has good and bad phases that last as long as a repetition. Blocks do not capture them, and resampling two
//! repetitions is too little. So the interval is never narrower than Student's t over the quantiles of the repetitions
//! gives: with two repetitions each that is 4.3 standard errors. `calibration.rs` checks all this.
//!
//! An interval that is one of several has Bonferroni's correction (`correction.rs`), of both parts: that of the blocks by
//! the degrees of freedom of the blocks, that of the repetitions by those of the repetitions. Replicates so far outside
//! that they would give the smaller share themselves are too few.

use std::time::Duration;

use super::correction::{self, Looks};
use super::latency::nearest_rank;
use super::summary::{CellSummary, RepetitionSeries};
use h2lab_base::random::Counter;
use h2lab_base::units::nanos;

/// Bootstrap replicates. Each end of a 95 % interval then rests on 50 replicates.
pub(super) const REPLICATES: usize = 2000;
/// The share of the replicates outside the interval, both sides together.
pub(super) const OUTSIDE: f64 = 0.05;
/// No block is shorter than this: several stalls of a lossy link.
const MIN_BLOCK: Duration = Duration::from_millis(250);
/// A repetition has at least this many blocks, however long its stalls. With one block, only whole repetitions would be
/// resampled, and two repetitions that happen to agree would give an interval of zero width.
pub(super) const MIN_BLOCKS: u32 = 2;
/// A repetition has at most this many blocks: longer blocks are as sound, forty are enough, and the work stays bounded.
const MAX_BLOCKS: u32 = 40;
/// A block is at least as long as this many times the longest stall.
const STALLS_PER_BLOCK: u32 = 2;
/// Blocks may begin at any multiple of this part of their length.
pub(super) const STEPS: usize = 4;

/// The ratio candidate / baseline of one quantile, with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RatioInterval {
    /// The quantile, 0 to 1.
    pub share: f64,
    /// The baseline's quantile.
    pub baseline: Duration,
    /// The candidate's quantile.
    pub candidate: Duration,
    /// Candidate over baseline.
    pub ratio: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
    /// The length of the blocks that were resampled.
    pub block: Duration,
    /// The longest stall that requests of either cell shared.
    pub longest_stall: Duration,
    /// How many such blocks the cell with fewer of them has.
    pub blocks: usize,
}

impl RatioInterval {
    /// Whether the interval lies on one side of 1.
    pub fn is_clear_of_one(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }

    /// Whether its blocks are as long as its stalls demand. If not, it is narrower than it should be.
    pub fn is_sound(&self) -> bool {
        self.block >= self.longest_stall * STALLS_PER_BLOCK
    }

    /// How long a repetition must be measured for an interval that is sound.
    pub fn needed_repetition(&self) -> Duration {
        self.longest_stall * STALLS_PER_BLOCK * MIN_BLOCKS
    }
}

/// With fewer requests there is no 95 % interval for a quantile: the median lies outside the range of five requests in
/// 6 % of cases.
pub(super) const LEAST_REQUESTS: u64 = 6;

/// The interval of the ratio of two cells' quantiles at `share`, one of `looks`. `None` if either has fewer than
/// [`LEAST_REQUESTS`].
pub(super) fn of_cells(
    share: f64,
    baseline: &CellSummary,
    candidate: &CellSummary,
    seed: u64,
    looks: impl Into<Looks>,
) -> Option<RatioInterval> {
    let enough = baseline.response.n().min(candidate.response.n()) >= LEAST_REQUESTS;
    enough.then(|| ratio(share, &baseline.series, &candidate.series, seed, looks)).flatten()
}

/// The interval of the ratio of the quantiles of these repetitions at `share`, one of `looks`. `None` if either side has
/// no requests.
///
/// The same seed gives the same interval. Cost: about 2 × [`REPLICATES`] × pieces × log² of the number of requests; a
/// second for a million requests.
pub(super) fn ratio(
    share: f64,
    baseline: &[RepetitionSeries],
    candidate: &[RepetitionSeries],
    seed: u64,
    looks: impl Into<Looks>,
) -> Option<RatioInterval> {
    let looks = looks.into();
    let both = || baseline.iter().chain(candidate);
    let longest_stall = both().map(|repetition| repetition.longest_stall).max().unwrap_or_default();
    let shortest = both().map(|repetition| repetition.duration).min().unwrap_or_default();
    let block = block_length(longest_stall, shortest);
    let (baseline, candidate) = (Blocks::new(baseline, block)?, Blocks::new(candidate, block)?);
    let (base, cand) = (baseline.quantile(share), candidate.quantile(share));
    let estimate = (cand / base).ln();
    let mut random = [Counter::new(seed, "bootstrap baseline"), Counter::new(seed, "bootstrap candidate")];
    let mut replicates: Vec<f64> = (0..REPLICATES)
        .map(|_| {
            (candidate.replicate(share, &mut random[1]) / baseline.replicate(share, &mut random[0])).ln()
        })
        .collect();
    replicates.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| replicates[nearest_rank(share, REPLICATES as u64) as usize - 1];
    let blocks = baseline.count().min(candidate.count());
    let stretch = stretch(blocks, baseline.repetitions.len().min(candidate.repetitions.len()), looks.blocks);
    let between = looks.of_repetitions(|looks| between_repetitions(share, &baseline, &candidate, looks));
    Some(RatioInterval {
        share,
        baseline: Duration::from_nanos(base as u64),
        candidate: Duration::from_nanos(cand as u64),
        ratio: estimate.exp(),
        low: (estimate + (stretch * (at(OUTSIDE / 2.0) - estimate)).min(-between)).exp(),
        high: (estimate + (stretch * (at(1.0 - OUTSIDE / 2.0) - estimate)).max(between)).exp(),
        block,
        longest_stall,
        blocks,
    })
}

/// The length of blocks for a longest stall, if the shortest repetition has this length: twice the stall, at least
/// [`MIN_BLOCK`] and a [`MAX_BLOCKS`]th of the repetition, at most a [`MIN_BLOCKS`]th.
pub(super) fn block_length(longest_stall: Duration, shortest: Duration) -> Duration {
    (longest_stall * STALLS_PER_BLOCK).max(MIN_BLOCK).max(shortest / MAX_BLOCKS).min(shortest / MIN_BLOCKS)
}

/// How much wider than the replicates' percentiles a sound interval is, given `blocks` blocks in `repetitions` repetitions,
/// if it is one of `looks`: Student's t over the normal quantile, and √(n / (n − 1)).
pub(super) fn stretch(blocks: usize, repetitions: usize, looks: u32) -> f64 {
    let freedom = blocks.saturating_sub(repetitions).max(1);
    let n = blocks.max(2) as f64;
    half_width(looks, freedom) / 1.96 * (n / (n - 1.0)).sqrt()
}

/// Half the width of the interval from the quantiles of the repetitions, in the logarithm: Student's t with the
/// variance between repetitions, pooled over both cells. 0 if neither cell has a second repetition: then it is unknown.
fn between_repetitions(share: f64, baseline: &Blocks, candidate: &Blocks, looks: u32) -> f64 {
    spread_of_repetitions([baseline, candidate].map(|cell| cell.repetition_quantiles(share)), looks)
}

/// The same for any figure with one value above 0 per repetition of either cell.
pub(crate) fn spread_of_repetitions(figures: [Vec<f64>; 2], looks: u32) -> f64 {
    let compared = [figures[0].len(), figures[1].len()];
    spread_of_some(figures, compared, looks)
}

/// The same if only this many repetitions of each are compared, and the others only show the variation. 0 if that is
/// unknown.
pub(crate) fn spread_of_some(figures: [Vec<f64>; 2], compared: [usize; 2], looks: u32) -> f64 {
    let (mut squares, mut freedom, mut per_mean) = (0.0, 0, 0.0);
    for (cell, compared) in figures.into_iter().zip(compared).filter(|(cell, _)| !cell.is_empty()) {
        let logs: Vec<f64> = cell.iter().map(|figure| figure.ln()).collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        squares += logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
        freedom += logs.len() - 1;
        per_mean += 1.0 / compared.max(1) as f64;
    }
    if freedom == 0 { 0.0 } else { half_width(looks, freedom) * (squares / freedom as f64 * per_mean).sqrt() }
}

/// Half the width of an interval that is one of `looks`, in standard errors.
fn half_width(looks: u32, freedom: usize) -> f64 {
    student_t_975(freedom) * correction::of_looks(looks, freedom)
}

/// The 97.5 % quantile of Student's t.
fn student_t_975(freedom: usize) -> f64 {
    const TABLE: [f64; 20] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    ];
    // Beyond the table, the first term of the Cornish-Fisher expansion is accurate to three digits.
    TABLE.get(freedom - 1).copied().unwrap_or(1.96 + 2.42 / freedom as f64)
}

/// A cell's response times, cut into short pieces of time; a block is [`STEPS`] neighbouring pieces.
struct Blocks {
    /// Per repetition, per piece: sorted response times in nanoseconds.
    repetitions: Vec<Vec<Vec<u64>>>,
    /// All of them, sorted.
    pooled: Vec<u64>,
}

impl Blocks {
    fn new(repetitions: &[RepetitionSeries], block: Duration) -> Option<Self> {
        let repetitions: Vec<Vec<Vec<u64>>> = repetitions
            .iter()
            .filter(|repetition| !repetition.points.is_empty() && !repetition.duration.is_zero())
            .map(|repetition| pieces(repetition, block))
            .collect();
        let mut pooled: Vec<u64> = repetitions.iter().flatten().flatten().copied().collect();
        pooled.sort_unstable();
        (!pooled.is_empty()).then_some(Self { repetitions, pooled })
    }

    /// How many blocks fit side by side.
    fn count(&self) -> usize {
        self.repetitions.iter().map(|pieces| pieces.len() / STEPS).sum()
    }

    fn quantile(&self, share: f64) -> f64 {
        self.pooled[nearest_rank(share, self.pooled.len() as u64) as usize - 1].max(1) as f64
    }

    /// The quantile of each repetition separately.
    fn repetition_quantiles(&self, share: f64) -> Vec<f64> {
        let quantile = |pieces: &Vec<Vec<u64>>| {
            let mut all: Vec<u64> = pieces.iter().flatten().copied().collect();
            all.sort_unstable();
            all[nearest_rank(share, all.len() as u64) as usize - 1].max(1) as f64
        };
        self.repetitions.iter().map(quantile).collect()
    }

    /// The quantile of one resampled cell: repetitions with replacement, in each of them blocks with replacement.
    fn replicate(&self, share: f64, random: &mut Counter) -> f64 {
        let mut weights: Vec<Vec<u32>> =
            self.repetitions.iter().map(|pieces| vec![0; pieces.len()]).collect();
        for _ in 0..self.repetitions.len() {
            let repetition = random.below(self.repetitions.len() as u64) as usize;
            let n = weights[repetition].len();
            for _ in 0..n / STEPS {
                let first = random.below(n as u64) as usize;
                (first..first + STEPS).for_each(|piece| weights[repetition][piece % n] += 1);
            }
        }
        let drawn: Vec<(&[u64], u64)> = weights
            .iter()
            .zip(&self.repetitions)
            .flat_map(|(weights, pieces)| weights.iter().zip(pieces))
            .filter(|(weight, piece)| **weight > 0 && !piece.is_empty())
            .map(|(&weight, piece)| (piece.as_slice(), u64::from(weight)))
            .collect();
        let total: u64 = drawn.iter().map(|(piece, weight)| piece.len() as u64 * weight).sum();
        let rank = nearest_rank(share, total);
        let at_or_below = |value: u64| {
            drawn
                .iter()
                .map(|(piece, weight)| weight * piece.partition_point(|&v| v <= value) as u64)
                .sum::<u64>()
        };
        let index = self.pooled.partition_point(|&value| at_or_below(value) < rank);
        self.pooled[index.min(self.pooled.len() - 1)].max(1) as f64
    }
}

/// Cuts a repetition into equal pieces, [`STEPS`] per block and at least [`MIN_BLOCKS`] blocks.
fn pieces(repetition: &RepetitionSeries, block: Duration) -> Vec<Vec<u64>> {
    let blocks =
        (repetition.duration.as_secs_f64() / block.as_secs_f64() + 1e-9).floor().max(f64::from(MIN_BLOCKS));
    let n = blocks as usize * STEPS;
    let mut pieces = vec![Vec::new(); n];
    for (offset, response) in &repetition.points {
        let piece = u128::from(nanos(offset)) * n as u128 / u128::from(nanos(repetition.duration));
        pieces[(piece as usize).min(n - 1)].push(nanos(response));
    }
    for piece in &mut pieces {
        piece.sort_unstable();
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Repetitions of three seconds at 1,000/s in which `response(k)` is the k-th response time.
    fn repetitions(n: usize, response: impl Fn(usize, u64) -> Duration) -> Vec<RepetitionSeries> {
        let points =
            |repetition| (0..3000).map(|k| (Duration::from_millis(k), response(repetition, k))).collect();
        (0..n)
            .map(|repetition| RepetitionSeries {
                round: repetition as u32,
                duration: Duration::from_secs(3),
                longest_stall: Duration::ZERO,
                points: points(repetition),
                served: Vec::new(),
                failed: Vec::new(),
            })
            .collect()
    }

    fn flat(millis: u64) -> Vec<RepetitionSeries> {
        repetitions(2, |_, _| Duration::from_millis(millis))
    }

    #[test]
    fn what_never_varies_has_an_exact_ratio() {
        let interval = ratio(0.99, &flat(20), &flat(30), 1, 1).unwrap();
        assert!([interval.low, interval.ratio, interval.high].iter().all(|r| (r - 1.5).abs() < 1e-12));
        assert!(interval.is_clear_of_one());
        assert_eq!(
            (interval.baseline, interval.candidate),
            (Duration::from_millis(20), Duration::from_millis(30))
        );
    }

    #[test]
    fn nothing_cannot_be_compared() {
        assert_eq!(ratio(0.99, &[], &flat(30), 1, 1), None);
        assert_eq!(ratio(0.99, &flat(20), &repetitions(0, |_, _| Duration::ZERO), 1, 1), None);
    }

    #[test]
    fn blocks_are_twice_the_longest_stall_within_bounds() {
        let millis = Duration::from_millis;
        let length = |stall, repetition| block_length(millis(stall), millis(repetition));
        assert_eq!(length(0, 60_000), millis(1_500), "a fortieth of the repetition");
        assert_eq!(length(10, 3_000), MIN_BLOCK);
        assert_eq!(length(200, 3_000), millis(400));
        assert_eq!(length(900, 3_000), millis(1_500), "half of the repetition");
    }

    #[test]
    fn an_interval_from_blocks_shorter_than_two_stalls_is_not_sound() {
        let with_stall = |millis| {
            let mut repetitions = flat(30);
            repetitions[1].longest_stall = Duration::from_millis(millis);
            (
                ratio(0.99, &flat(20), &repetitions, 1, 1).unwrap(),
                ratio(0.99, &repetitions, &flat(20), 1, 1).unwrap(),
            )
        };
        let (candidate, baseline) = with_stall(750);
        assert!(candidate.is_sound() && baseline.is_sound());
        let (candidate, baseline) = with_stall(751);
        assert!(!candidate.is_sound() && !baseline.is_sound());
        assert_eq!(candidate.needed_repetition(), Duration::from_millis(3_004));
        assert_eq!(candidate.block, Duration::from_millis(1_500));
    }

    #[test]
    fn one_stall_shared_by_a_hundred_requests_widens_the_interval() {
        // 2 % of the requests are slow: all in one stall, or each separately.
        let slow = |is_slow: bool| Duration::from_millis(if is_slow { 100 } else { 25 });
        let shared = repetitions(2, |_, k| slow((1000..1060).contains(&k)));
        let single = repetitions(2, |_, k| slow(k % 50 == 0));
        let width = |candidate: &[RepetitionSeries]| {
            let interval = ratio(0.99, &flat(25), candidate, 7, 1).unwrap();
            (interval.high / interval.low).ln()
        };
        assert!(width(&single) < 1e-9);
        assert!(width(&shared) > 1.0, "{}", width(&shared));
    }

    #[test]
    fn a_difference_between_repetitions_widens_the_interval() {
        let uneven = repetitions(2, |repetition, _| Duration::from_millis(20 + 10 * repetition as u64));
        let interval = ratio(0.5, &flat(10), &uneven, 7, 1).unwrap();
        assert!(!interval.is_clear_of_one(), "{interval:?}");
        assert!(ratio(0.5, &flat(10), &flat(20), 7, 1).unwrap().is_clear_of_one());
    }

    #[test]
    fn one_of_several_intervals_is_wider_by_students_t_of_what_it_is_based_on() {
        // Two repetitions each that do not vary in themselves, with an offset in the logarithm of 0.1 or less.
        let apart =
            |by: f64| repetitions(2, move |n, _| Duration::from_secs_f64(0.02 * (by * n as f64).exp()));
        let half = |looks: u32| {
            let interval = ratio(0.5, &apart(0.0), &apart(0.1), 7, looks).unwrap();
            (interval.high / interval.ratio).ln()
        };
        // By the tables, Student's t at 5 % and at 1 % for two degrees of freedom: 4.303 and 9.925. The normal
        // distribution would have it 1.31 times as wide.
        assert!((half(1) - 4.303 * 0.05).abs() < 0.001, "{}", half(1));
        assert!((half(5) - 9.925 * 0.05).abs() < 0.001, "{}", half(5));
        // Of 24 blocks, at 1 % for 22 degrees of freedom: 2.819, at 5 % 2.074.
        let by = stretch(24, 2, 5) / stretch(24, 2, 1);
        assert!((by - 2.819 / 2.074).abs() < 0.001, "{by}");
    }

    #[test]
    fn where_the_variation_of_repetitions_is_known_the_part_from_blocks_is_still_by_students_t() {
        let slow = |is_slow: bool| Duration::from_millis(if is_slow { 100 } else { 25 });
        let stalled = repetitions(2, |_, k| slow((1000..1060).contains(&k)));
        let half = |share: f64, candidate: &[RepetitionSeries], looks: Looks| {
            let interval = ratio(share, &flat(25), candidate, 7, looks).unwrap();
            (interval.ratio / interval.low).ln()
        };
        let by = |share: f64, candidate: &[RepetitionSeries]| {
            half(share, candidate, Looks::at_known_variation(5)) / half(share, candidate, 1.into())
        };
        // Repetitions that are alike have 24 blocks; of those that only differ from each other, nothing is from blocks.
        assert!((by(0.99, &stalled) - 2.819 / 2.074).abs() < 0.001, "{}", by(0.99, &stalled));
        let apart = repetitions(2, |n, _| Duration::from_secs_f64(0.02 * (0.1 * n as f64).exp()));
        assert!((by(0.5, &apart) - 2.576 / 1.960).abs() < 0.001, "{}", by(0.5, &apart));
    }

    #[test]
    fn few_blocks_stretch_the_interval_and_many_do_not() {
        assert!((stretch(8, 2, 1) - 2.447 / 1.96 * (8.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert!(stretch(400, 2, 1) < 1.01);
        assert!((student_t_975(20) - student_t_975(21)).abs() < 0.015, "the expansion continues the table");
    }
}
