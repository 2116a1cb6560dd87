//! The confidence interval of a ratio of two throughputs: the same block bootstrap as for quantiles, over successes per piece of
//! time.
//!
//! Of cells that do not carry their load, what they serve is all that is compared, and the interval is that of Student's
//! t over their rounds alone ([`between_rounds`]). From three rounds on it is that of the ratios within rounds: what a
//! round does to both cells is no difference. Of two such ratios, one degree of freedom would be left; the variation of
//! both cells about their own means has two, and is too wide rather than too narrow where a round affects both. Of a
//! single round the variation is unknown.

use std::time::Duration;

use super::bootstrap::{
    MIN_BLOCKS, OUTSIDE, REPLICATES, STEPS, block_length, spread_of_repetitions, stretch,
};
use super::correction::Looks;
use super::latency::nearest_rank;
use super::summary::RepetitionSeries;
use h2lab_base::JsonSchema;
use h2lab_base::random::Counter;
use serde::{Deserialize, Serialize};

/// A ratio of successes per second, or in bulk work of bytes per second, with its 95 % interval by block bootstrap and from
/// the variation between repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RateRatio {
    /// Cell over baseline.
    pub ratio: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
    /// The cell's.
    pub cell_rps: f64,
    /// The baseline's.
    pub baseline_rps: f64,
}

impl RateRatio {
    /// Whether the interval lies on one side of 1.
    pub fn is_clear_of_one(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

/// The interval of the ratio of two cells' throughputs, one of `looks`. `None` if either has served nothing.
///
/// Blocks are as long as those of the quantiles: what stalls requests stalls throughput. The same seed gives the same
/// interval.
pub(super) fn ratio(
    baseline: &[RepetitionSeries],
    candidate: &[RepetitionSeries],
    seed: u64,
    looks: impl Into<Looks>,
) -> Option<RateRatio> {
    let looks = looks.into();
    let both = || baseline.iter().chain(candidate);
    let longest_stall = both().map(|repetition| repetition.longest_stall).max().unwrap_or_default();
    let shortest =
        both().map(|repetition| repetition.duration).filter(|duration| !duration.is_zero()).min()?;
    let block = block_length(longest_stall, shortest);
    let [base, cand] = [baseline, candidate].map(|repetitions| Pieces::new(repetitions, block));
    let (base, cand) = (base?, cand?);
    let estimate = (cand.rate() / base.rate()).ln();
    let mut random = [Counter::new(seed, "rate baseline"), Counter::new(seed, "rate candidate")];
    let mut replicates: Vec<f64> = (0..REPLICATES)
        .map(|_| (cand.replicate(&mut random[1]) / base.replicate(&mut random[0])).ln())
        .collect();
    replicates.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| replicates[nearest_rank(share, REPLICATES as u64) as usize - 1];
    let repetitions = base.repetitions.len().min(cand.repetitions.len());
    let stretch = stretch(base.blocks().min(cand.blocks()), repetitions, looks.blocks);
    // If everything was served in a few slices, resampling them shows no variation, so that it is unknown.
    let is_known = [baseline, candidate].iter().all(|side| slices(side) >= MIN_SLICES);
    if !is_known {
        let ratio = estimate.exp();
        let (low, high) = (ratio / UNKNOWN, ratio * UNKNOWN);
        return Some(RateRatio { baseline_rps: base.rate(), cell_rps: cand.rate(), ratio, low, high });
    }
    let rates = || [base.repetition_rates(), cand.repetition_rates()];
    let between = looks.of_repetitions(|looks| spread_of_repetitions(rates(), looks));
    let end = |replicate: f64| stretch * (replicate - estimate);
    Some(RateRatio {
        baseline_rps: base.rate(),
        cell_rps: cand.rate(),
        ratio: estimate.exp(),
        low: (estimate + end(at(OUTSIDE / 2.0)).min(-between)).exp(),
        high: (estimate + end(at(1.0 - OUTSIDE / 2.0)).max(between)).exp(),
    })
}

/// From this many rounds on, the ratios within them show how much they vary.
const LEAST_RATIOS: usize = 3;

/// The interval of the ratio of what two cells serve, from their rounds alone, one of `looks`; too wide for any conclusion
/// if one of them has a single round. `None` if one of them has a round in which it served nothing, or none.
pub(super) fn between_rounds(
    baseline: &[RepetitionSeries],
    candidate: &[RepetitionSeries],
    looks: u32,
) -> Option<RateRatio> {
    let of_round = |repetition: &RepetitionSeries| {
        let served: u64 = repetition.served.iter().map(|(_, served)| served).sum();
        let rate = served as f64 / repetition.duration.as_secs_f64();
        (rate.is_finite() && rate > 0.0).then_some((repetition.round, rate))
    };
    let of_cell = |cell: &[RepetitionSeries]| cell.iter().map(of_round).collect::<Option<Vec<(u32, f64)>>>();
    let [base, cand] = [of_cell(baseline)?, of_cell(candidate)?];
    // Repetitions have one length, so that this is what was served over the time of all of them.
    let mean = |cell: &[(u32, f64)]| cell.iter().map(|(_, rate)| rate).sum::<f64>() / cell.len() as f64;
    let (baseline_rps, cell_rps) = (mean(&base), mean(&cand));
    let within = |(round, rate): &(u32, f64)| {
        let of_base = base.iter().find(|(other, _)| other == round)?.1;
        Some(rate / of_base)
    };
    let ratios: Vec<f64> = cand.iter().filter_map(within).collect();
    // What is served in a round is a whole number, and one request more or less is chance: rounds that are alike are
    // no proof of an exact ratio.
    let one_request = |cell: &[RepetitionSeries], rate: f64| {
        let seconds = cell.iter().map(|one| one.duration.as_secs_f64()).fold(f64::INFINITY, f64::min);
        1.0 + 1.0 / (rate * seconds)
    };
    let least = one_request(baseline, baseline_rps) * one_request(candidate, cell_rps);
    let by = match ratios.len() {
        _ if base.len().min(cand.len()) < 2 => UNKNOWN,
        n if n < LEAST_RATIOS => {
            let rates = [base, cand].map(|cell| cell.into_iter().map(|(_, rate)| rate).collect());
            spread_of_repetitions(rates, looks).exp()
        }
        // Nothing varies beside them.
        _ => spread_of_repetitions([ratios, Vec::new()], looks).exp(),
    };
    let (ratio, by) = (cell_rps / baseline_rps, by.max(least));
    ratio.is_finite().then(|| RateRatio { ratio, low: ratio / by, high: ratio * by, cell_rps, baseline_rps })
}

/// With fewer slices than a measurement of the least number of blocks has, nothing is concluded.
const MIN_SLICES: usize = MIN_BLOCKS as usize * STEPS;
/// An interval that is wider than its ratio by this factor in both directions is meaningless.
const UNKNOWN: f64 = 1e6;

/// In how many slices of time a side served something.
fn slices(side: &[RepetitionSeries]) -> usize {
    side.iter().map(|repetition| repetition.served.len()).sum()
}

/// The successes of a cell in short, equal pieces of time; a block is [`STEPS`] neighbouring pieces.
struct Pieces {
    /// Per repetition: its seconds, and the successes in each piece.
    repetitions: Vec<(f64, Vec<f64>)>,
}

impl Pieces {
    /// `None` if nothing was served in one of the repetitions: its ratio is meaningless.
    fn new(repetitions: &[RepetitionSeries], block: Duration) -> Option<Self> {
        let repetitions: Vec<(f64, Vec<f64>)> = repetitions
            .iter()
            .filter(|repetition| !repetition.duration.is_zero())
            .map(|repetition| (repetition.duration.as_secs_f64(), pieces(repetition, block)))
            .collect();
        let is_served = |(_, pieces): &(f64, Vec<f64>)| pieces.iter().any(|&served| served > 0.0);
        (!repetitions.is_empty() && repetitions.iter().all(is_served)).then_some(Self { repetitions })
    }

    /// How many blocks fit side by side.
    fn blocks(&self) -> usize {
        self.repetitions.iter().map(|(_, pieces)| pieces.len() / STEPS).sum()
    }

    /// Successes per second.
    fn rate(&self) -> f64 {
        let served: f64 = self.repetitions.iter().flat_map(|(_, pieces)| pieces).sum();
        served / self.repetitions.iter().map(|(seconds, _)| seconds).sum::<f64>()
    }

    /// The same of each repetition.
    fn repetition_rates(&self) -> Vec<f64> {
        self.repetitions.iter().map(|(seconds, pieces)| pieces.iter().sum::<f64>() / seconds).collect()
    }

    /// The rate of one resampled cell: repetitions with replacement, in each of them circular blocks with replacement.
    fn replicate(&self, random: &mut Counter) -> f64 {
        let (mut served, mut seconds) = (0.0, 0.0);
        for _ in 0..self.repetitions.len() {
            let (length, pieces) = &self.repetitions[random.below(self.repetitions.len() as u64) as usize];
            for _ in 0..pieces.len() / STEPS {
                let first = random.below(pieces.len() as u64) as usize;
                served += (first..first + STEPS).map(|piece| pieces[piece % pieces.len()]).sum::<f64>();
            }
            seconds += length;
        }
        // A replicate without successes has no logarithm; it is an extreme in either case.
        served.max(f64::MIN_POSITIVE) / seconds
    }
}

/// Cuts a repetition into equal pieces, [`STEPS`] per block and at least [`MIN_BLOCKS`] blocks.
fn pieces(repetition: &RepetitionSeries, block: Duration) -> Vec<f64> {
    let blocks = (repetition.duration.as_secs_f64() / block.as_secs_f64() + 1e-9).floor();
    repetition.served_in_pieces(blocks.max(f64::from(MIN_BLOCKS)) as usize * STEPS)
}

impl RepetitionSeries {
    /// The successes in each of `n` equal pieces of the measured time. The successes of a slice are assumed to be
    /// evenly spread between its beginning and that of the next one.
    pub fn served_in_pieces(&self, n: usize) -> Vec<f64> {
        spread(self, n)
    }
}

fn spread(repetition: &RepetitionSeries, n: usize) -> Vec<f64> {
    let seconds = repetition.duration.as_secs_f64();
    let mut pieces = vec![0.0; n];
    // The shortest distance between two slices is their width: slices without successes are left out.
    let begins: Vec<f64> = repetition.served.iter().map(|(at, _)| at.as_secs_f64()).collect();
    let width = begins.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min);
    let piece = seconds / n as f64;
    for (&begin, &(_, served)) in begins.iter().zip(&repetition.served) {
        let end = (begin + width).min(seconds).max(begin + 1e-9);
        let (first, last) = ((begin / piece) as usize, (end / piece).ceil() as usize);
        for (k, count) in pieces.iter_mut().enumerate().take(last.min(n)).skip(first.min(n - 1)) {
            let overlap = end.min((k + 1) as f64 * piece) - begin.max(k as f64 * piece);
            *count += served as f64 * overlap.max(0.0) / (end - begin);
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_base::packed::Packed;

    /// Repetitions of ten seconds in slices of 100 ms.
    fn repetitions(n: u64, served: impl Fn(u64, u64) -> u64) -> Vec<RepetitionSeries> {
        let slices =
            |repetition| (0..100).map(|k| (Duration::from_millis(100 * k), served(repetition, k))).collect();
        (0..n)
            .map(|repetition| RepetitionSeries {
                round: repetition as u32,
                duration: Duration::from_secs(10),
                longest_stall: Duration::ZERO,
                points: Packed::new(),
                served: slices(repetition),
                failed: Vec::new(),
            })
            .collect()
    }

    #[test]
    fn what_never_varies_has_an_exact_ratio() {
        let ratio = ratio(&repetitions(1, |_, _| 100), &repetitions(1, |_, _| 150), 1, 1).unwrap();
        assert!((ratio.baseline_rps - 1_000.0).abs() < 1e-6 && (ratio.cell_rps - 1_500.0).abs() < 1e-6);
        assert!([ratio.low, ratio.ratio, ratio.high].iter().all(|r| (r - 1.5).abs() < 1e-9), "{ratio:?}");
        assert!(ratio.is_clear_of_one());
    }

    #[test]
    fn pieces_hold_all_that_was_served_wherever_their_edges_lie() {
        let repetition = &repetitions(1, |_, k| k * 7)[0];
        for millis in [250, 333, 1_000, 4_999, 20_000] {
            let pieces = pieces(repetition, Duration::from_millis(millis));
            let sum: f64 = pieces.iter().sum();
            assert!((sum - 7.0 * 4_950.0).abs() < 1e-6, "{millis}: {sum}");
        }
    }

    #[test]
    fn a_rate_that_wanders_gives_a_wide_interval_and_a_steady_one_a_narrow_one() {
        let steady = repetitions(1, |_, k| 100 + k % 3);
        let wandering = repetitions(1, |_, k| if (k / 20) % 2 == 0 { 60 } else { 144 });
        let width = |of: &[RepetitionSeries]| {
            let ratio = ratio(&steady, of, 1, 1).unwrap();
            (ratio.high / ratio.low).ln()
        };
        assert!(width(&steady) < 0.02, "{}", width(&steady));
        assert!(width(&wandering) > 0.1, "{}", width(&wandering));
        assert!(!ratio(&steady, &wandering, 1, 1).unwrap().is_clear_of_one());
    }

    #[test]
    fn repetitions_that_disagree_widen_the_interval() {
        let uneven = repetitions(2, |repetition, _| 100 + 60 * repetition);
        assert!(!ratio(&repetitions(2, |_, _| 100), &uneven, 1, 1).unwrap().is_clear_of_one());
    }

    #[test]
    fn what_overloaded_cells_serve_is_compared_from_two_rounds() {
        let rounds = |n: u64, served: u64| repetitions(n, move |round, _| served + round);
        let between = |of: [u64; 2]| between_rounds(&rounds(of[0], 100), &rounds(of[1], 29), 1).unwrap();
        let [one, other, two] = [[1, 1], [2, 1], [2, 2]].map(between);
        assert!((one.ratio - 0.29).abs() < 1e-9 && !one.is_clear_of_one(), "{one:?}");
        assert!(!other.is_clear_of_one(), "{other:?}");
        // The rounds are 0.01 and 0.034 apart, in the logarithm: 4.303 × 0.0177 to either side.
        assert!(((two.high / two.ratio).ln() - 0.076).abs() < 0.001, "{two:?}");
        assert!(((two.ratio / two.low).ln() - 0.076).abs() < 0.001 && two.high < 1.0, "{two:?}");
        assert!((two.baseline_rps - 1_005.0).abs() < 1e-6 && (two.cell_rps - 295.0).abs() < 1e-6, "{two:?}");
        assert_eq!(between_rounds(&rounds(2, 100), &repetitions(2, |round, _| round), 1), None);
        assert_eq!(between_rounds(&[], &[], 1), None);
    }

    #[test]
    fn rounds_that_serve_the_same_number_leave_a_request_more_or_less_open() {
        let of = |rounds: u64, served: u64| {
            let in_three_seconds = |mut one: RepetitionSeries| {
                one.duration = Duration::from_secs(3);
                one.served = vec![(Duration::ZERO, served)];
                one
            };
            repetitions(rounds, |_, _| 1).into_iter().map(in_three_seconds).collect::<Vec<_>>()
        };
        for rounds in [2, 3] {
            let ratio = between_rounds(&of(rounds, 150), &of(rounds, 144), 1).unwrap();
            assert!((ratio.ratio - 0.96).abs() < 1e-9, "{ratio:?}");
            let by = (151.0 / 150.0) * (145.0 / 144.0);
            assert!((ratio.high / ratio.ratio - by).abs() < 1e-9, "{ratio:?}");
            assert!((ratio.ratio / ratio.low - by).abs() < 1e-9, "{ratio:?}");
            let alike = between_rounds(&of(rounds, 150), &of(rounds, 149), 1).unwrap();
            assert!(!alike.is_clear_of_one(), "a single request: {alike:?}");
        }
    }

    #[test]
    fn what_a_round_does_to_both_cells_is_no_difference_from_three_rounds() {
        // Rounds differ by a half and a third; of what one cell serves in them the other serves 20, 22 and 21 %.
        let base = repetitions(3, |round, _| 1_000 * (2 + round));
        let cand = repetitions(3, |round, _| [400, 660, 840][round as usize]);
        let half = |candidate: &[RepetitionSeries], looks: u32| {
            let of = between_rounds(&base, candidate, looks).unwrap();
            (of.high / of.ratio).ln()
        };
        // By the tables, Student's t at 5 % and 1 % for two degrees of freedom: 4.303 and 9.925.
        assert!((half(&cand, 1) - 4.303 * 0.027_52).abs() < 0.001, "{}", half(&cand, 1));
        assert!((half(&cand, 5) - 9.925 * 0.027_52).abs() < 0.001, "{}", half(&cand, 5));
        let mut other_rounds = cand.clone();
        for repetition in &mut other_rounds {
            repetition.round += 3;
        }
        assert!(half(&other_rounds, 1) > 0.7, "{}", half(&other_rounds, 1));
    }

    #[test]
    fn a_run_of_a_single_slice_decides_nothing() {
        let short = |served| {
            let duration = Duration::from_millis(10);
            [RepetitionSeries {
                duration,
                served: vec![(Duration::ZERO, served)],
                ..repetitions(1, |_, _| 1).remove(0)
            }]
        };
        let ratio = ratio(&short(300), &short(600), 1, 1).unwrap();
        assert!((ratio.ratio - 2.0).abs() < 1e-9 && !ratio.is_clear_of_one(), "{ratio:?}");
        assert!(ratio.high > ratio.low * 100.0);
    }

    #[test]
    fn nothing_served_cannot_be_compared() {
        assert_eq!(ratio(&repetitions(1, |_, _| 0), &repetitions(1, |_, _| 100), 1, 1), None);
        assert_eq!(ratio(&[], &repetitions(1, |_, _| 100), 1, 1), None);
    }
}
