//! Verdicts: each cell of a group against the group's baseline.
//!
//! A difference is claimed only if the interval of the ratio excludes 1 AND the difference is relevant: at least 10 %,
//! and above what our own lateness could cause. For tails the interval must be sound, too: its repetitions long enough
//! for the stalls in them. The few requests of a stall hardly change a median, and a cell in which most requests stall
//! is unstable; `calibration.rs` shows that the median's interval holds. Everything else is "no difference resolved",
//! which is a good verdict.

use std::time::Duration;

use super::bootstrap::{self, RatioInterval};
use super::rate::{self, RateRatio};
use super::runs::unclaimed_rate;
use super::{CellState, CellSummary, Tail, reproduction};
use h2lab_model::scenario::Cell;

/// A ratio nearer to 1 than this is not worth acting on.
pub(super) const EFFECT: f64 = 0.10;
/// A difference below this is not claimed, whatever its ratio: timers, wake-ups and caches of a loaded machine cause as
/// much.
const FLOOR: Duration = Duration::from_micros(200);
/// Nor is one below this many times our own lateness (generator and link, p99, of either cell): one cell may have been
/// unlucky with half of it, and the other lucky with the other half.
const LATENESS_FACTOR: u32 = 2;

/// The conclusion on a cell against its baseline.
#[derive(Debug, Clone, Copy, PartialEq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Conclusion {
    /// Its tail is faster than the baseline's.
    Faster,
    /// Its tail is slower than the baseline's.
    Slower,
    /// Too similar, or too few requests to decide.
    NoDifference,
    /// It cannot carry the load, the baseline can.
    Unstable {
        /// Requests per second that were due.
        offered_rps: f64,
        /// Requests per second that were served.
        served_rps: f64,
    },
    /// It carries the load, the baseline cannot.
    BaselineUnstable {
        /// Requests per second that were due at the baseline.
        offered_rps: f64,
        /// Requests per second that the baseline served.
        served_rps: f64,
    },
    /// Neither carries the load.
    BothUnstable,
    /// The server of one of them ended by itself, or answered no request successfully.
    Failed,
    /// One of them was not measured soundly.
    Invalid,
    /// One of them could not be measured at all.
    Unsupported,
    /// They were measured by machines that are unlike, so that they may differ by more than what is compared.
    UnlikeMachines,
}

impl Conclusion {
    /// The name in JSON and reports.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Whether there is no verdict, since one of the two has no sound measurement that may be compared.
    pub(super) const fn is_void(&self) -> bool {
        matches!(self, Self::Failed | Self::Invalid | Self::Unsupported | Self::UnlikeMachines)
    }

    /// Whether one or both do not carry their load.
    pub const fn is_of_load(&self) -> bool {
        matches!(self, Self::Unstable { .. } | Self::BaselineUnstable { .. } | Self::BothUnstable)
    }

    /// Whether it claims that the two differ in latency.
    pub const fn claims_a_difference(&self) -> bool {
        matches!(self, Self::Faster | Self::Slower)
    }
}

/// Why no difference is claimed of two figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unclaimed {
    /// There is no figure to compare.
    NoFigure,
    /// There are fewer than six requests.
    TooFew,
    /// Stalls are too long for the time measured: the interval is narrower than it should be.
    Unsound,
    /// The interval includes 1, and a difference of a tenth or more.
    Undecided,
    /// The difference in milliseconds is below the floor, whatever the ratio.
    BelowFloor,
    /// The difference is less than a tenth.
    Small,
}

impl Unclaimed {
    /// Whether the figures are known to be equal; if not, another measurement may find a difference.
    pub const fn is_alike(self) -> bool {
        matches!(self, Self::BelowFloor | Self::Small)
    }
}

/// One cell against the baseline of its group.
#[derive(Debug, Clone, PartialEq)]
pub struct CellVerdict {
    /// The group of comparable cells.
    pub group: u32,
    /// The baseline's index in the matrix.
    pub baseline: u32,
    /// The cell's index in the matrix.
    pub cell: u32,
    /// The conclusion from the tail.
    pub conclusion: Conclusion,
    /// Which percentile represents the tail: that of the cell with fewer requests.
    pub tail: Tail,
    /// The ratio of the tails; `None` if the state of a cell rules it out.
    pub tail_ratio: Option<RatioInterval>,
    /// The ratio of the medians, likewise.
    pub median_ratio: Option<RatioInterval>,
    /// The conclusion from the medians only: medians may differ even if tails do not.
    pub median_conclusion: Option<Conclusion>,
    /// The ratio of the throughputs of two closed loops, if latencies are compared, since an open loop offers what its
    /// schedule says, whatever the server does; of two cells of which one or both do not carry their load, that of what
    /// they serve, with an interval from their rounds.
    pub throughput: Option<RateRatio>,
    /// Of bulk work: the ratio of the bytes per second. Nothing else of it is compared.
    pub bytes: Option<RateRatio>,
    /// Differences below this are not claimed.
    pub floor: Duration,
}

impl CellVerdict {
    /// Whether the cell is known to be slower, or to carry less of the load.
    pub const fn is_slower(&self) -> bool {
        matches!(self.conclusion, Conclusion::Slower | Conclusion::Unstable { .. })
    }

    /// Whether its median is known to be slower, and its tail is not.
    pub fn is_slower_in_median_only(&self) -> bool {
        let is_tail = matches!(self.conclusion, Conclusion::NoDifference | Conclusion::Faster);
        is_tail && self.median_conclusion == Some(Conclusion::Slower)
    }

    /// Whether the cell is known not to be slower, neither in its tail nor in its median.
    pub fn is_no_slower(&self) -> bool {
        if self.median_conclusion == Some(Conclusion::Slower) {
            return false;
        }
        match self.conclusion {
            Conclusion::Faster | Conclusion::BaselineUnstable { .. } => true,
            Conclusion::NoDifference => self.unclaimed().is_some_and(Unclaimed::is_alike),
            _ => false,
        }
    }

    /// Why its tail is neither faster nor slower; `None` if it is, or if states decided.
    pub fn unclaimed(&self) -> Option<Unclaimed> {
        match self.tail_ratio {
            _ if self.conclusion != Conclusion::NoDifference => None,
            // Cells without a success are not "no difference", but `Failed`.
            None => Some(self.bytes.as_ref().and_then(unclaimed_rate).unwrap_or(Unclaimed::TooFew)),
            Some(tail) if !tail.is_sound() => Some(Unclaimed::Unsound),
            Some(tail) => unclaimed(&tail, self.floor),
        }
    }
}

/// Compares the cells of one group with its baseline: the first HTTP/1.1 cell, or the first cell if there is none. A
/// cell whose protocol the target does not speak is a baseline only if there is no other. A cell with another limit of
/// requests per connection is compared with the same cell with the first limit: that shows the cost of the limit, for
/// any protocol.
pub(super) fn compare(group: &[&CellSummary], seed: u64) -> Vec<CellVerdict> {
    // Bulk work is judged by bytes over time, not by requests.
    if group.iter().any(|summary| summary.cell.work.bulk) {
        return Vec::new();
    }
    let spoken = || group.iter().filter(|summary| !matches!(summary.state, CellState::Unsupported { .. }));
    let http1 = spoken().find(|summary| !summary.cell.protocol.is_multiplexed());
    let Some(&baseline) = http1.or(spoken().next()).or(group.first()) else { return Vec::new() };
    let others = group.iter().filter(|summary| summary.cell.index != baseline.cell.index);
    let beside = |candidate| under_first_limit(group, candidate).unwrap_or(baseline);
    others.map(|candidate| one(beside(candidate), candidate, seed, 1)).collect()
}

/// The first cell of the group that differs from `candidate` only in the limit of requests per connection. `None` if
/// that is the candidate itself, or a cell that was not measured.
fn under_first_limit<'a>(group: &[&'a CellSummary], candidate: &CellSummary) -> Option<&'a CellSummary> {
    let but_for_limit = |summary: &CellSummary| {
        let cell = &summary.cell;
        let Cell { protocol, twin, connections, streams, dial, .. } = *cell;
        (protocol, cell.h2c_mode, twin, connections, streams, dial, cell.target.clone())
    };
    let first = group.iter().find(|summary| but_for_limit(summary) == but_for_limit(candidate))?;
    let is_other = first.cell.max_requests_per_connection != candidate.cell.max_requests_per_connection;
    (is_other && !matches!(first.state, CellState::Unsupported { .. })).then_some(first)
}

/// The verdict on one cell against its baseline, before anything is compared.
pub(super) fn open(baseline: &CellSummary, candidate: &CellSummary) -> CellVerdict {
    CellVerdict {
        group: candidate.cell.group,
        baseline: baseline.cell.index,
        cell: candidate.cell.index,
        conclusion: Conclusion::NoDifference,
        tail: baseline.response.tail().min(candidate.response.tail()),
        tail_ratio: None,
        median_ratio: None,
        median_conclusion: None,
        throughput: None,
        bytes: None,
        floor: floor(baseline, candidate),
    }
}

/// The verdict on one cell against its baseline; its intervals are those of one of `looks` verdicts.
pub(super) fn one(baseline: &CellSummary, candidate: &CellSummary, seed: u64, looks: u32) -> CellVerdict {
    let mut verdict = open(baseline, candidate);
    let (tail, floor) = (verdict.tail, verdict.floor);
    match by_state(baseline, candidate) {
        Some(conclusion) => {
            verdict.conclusion = conclusion;
            verdict.throughput = conclusion
                .is_of_load()
                .then(|| rate::between_rounds(&baseline.series, &candidate.series, looks))
                .flatten();
        }
        None => {
            let seed = seed.wrapping_add(u64::from(candidate.cell.index));
            let ratio = |share| bootstrap::of_cells(share, baseline, candidate, seed, looks);
            verdict.tail_ratio = ratio(tail.share());
            verdict.median_ratio = ratio(0.5);
            let conclude = |ratio: RatioInterval| conclude(&ratio, floor);
            let tail = verdict.tail_ratio.filter(RatioInterval::is_sound);
            verdict.conclusion = tail.map_or(Conclusion::NoDifference, conclude);
            verdict.median_conclusion = verdict.median_ratio.map(conclude);
            let is_closed = [baseline, candidate].iter().all(|s| s.cell.work.arrival.rate().is_none());
            verdict.throughput =
                is_closed.then(|| rate::ratio(&baseline.series, &candidate.series, seed, looks)).flatten();
        }
    }
    verdict
}

/// The conclusion that the states require: latencies are compared only between two cells that both carry the load.
pub(super) fn by_state(baseline: &CellSummary, candidate: &CellSummary) -> Option<Conclusion> {
    use CellState::{Failed, Invalid, Ok, Unstable, Unsupported};
    match (&baseline.state, &candidate.state) {
        (Unsupported { .. }, _) | (_, Unsupported { .. }) => Some(Conclusion::Unsupported),
        (Failed { .. }, _) | (_, Failed { .. }) => Some(Conclusion::Failed),
        (Invalid { .. }, _) | (_, Invalid { .. }) => Some(Conclusion::Invalid),
        // The ages of unfinished requests are not latencies. Bulk work is compared by bytes.
        _ if !candidate.cell.work.bulk && (baseline.is_dead() || candidate.is_dead()) => {
            Some(Conclusion::Failed)
        }
        _ if reproduction::are_unlike(&[baseline, candidate]) => Some(Conclusion::UnlikeMachines),
        (Ok, Ok) => None,
        (Unstable { .. }, Unstable { .. }) => Some(Conclusion::BothUnstable),
        (Ok, &Unstable { offered_rps, served_rps, .. }) => {
            Some(Conclusion::Unstable { offered_rps, served_rps })
        }
        (&Unstable { offered_rps, served_rps, .. }, Ok) => {
            Some(Conclusion::BaselineUnstable { offered_rps, served_rps })
        }
    }
}

pub(super) fn floor(baseline: &CellSummary, candidate: &CellSummary) -> Duration {
    let lateness = |summary: &CellSummary| {
        let link = summary.link.as_ref().map_or(Duration::ZERO, |link| link.late_p99);
        summary.generator.lateness.quantile(0.99) + link
    };
    FLOOR.max(lateness(baseline).max(lateness(candidate)) * LATENESS_FACTOR)
}

/// The conclusion that a ratio's interval supports.
pub(super) fn conclude(ratio: &RatioInterval, floor: Duration) -> Conclusion {
    match unclaimed(ratio, floor) {
        Some(_) => Conclusion::NoDifference,
        None if ratio.ratio < 1.0 => Conclusion::Faster,
        None => Conclusion::Slower,
    }
}

/// Why a ratio's interval supports no difference, soundness aside; `None` if it does.
pub(super) fn unclaimed(ratio: &RatioInterval, floor: Duration) -> Option<Unclaimed> {
    let is_small = |ratio: f64| (ratio - 1.0).abs() < EFFECT;
    let is_below = |end: f64| (end - 1.0).abs() * ratio.baseline.as_secs_f64() < floor.as_secs_f64();
    let ends = [ratio.low, ratio.high];
    match ratio.is_clear_of_one() {
        true if is_small(ratio.ratio) => Some(Unclaimed::Small),
        true if ratio.candidate.abs_diff(ratio.baseline) < floor => Some(Unclaimed::BelowFloor),
        true => None,
        false if ends.into_iter().all(is_small) => Some(Unclaimed::Small),
        false if ends.into_iter().all(is_below) => Some(Unclaimed::BelowFloor),
        false => Some(Unclaimed::Undecided),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::record::CellRecord;
    use h2lab_model::record::testing::{Model, cell, one_repetition};
    use h2lab_model::workload::Protocol;

    fn ratio(ratio: f64, low: f64, high: f64) -> RatioInterval {
        let baseline = Duration::from_millis(25);
        RatioInterval {
            share: 0.99,
            baseline,
            candidate: baseline.mul_f64(ratio),
            ratio,
            low,
            high,
            block: Duration::from_millis(250),
            longest_stall: Duration::ZERO,
            blocks: 24,
        }
    }

    #[test]
    fn a_verdict_needs_an_interval_clear_of_one() {
        assert_eq!(conclude(&ratio(1.3, 1.01, 1.6), FLOOR), Conclusion::Slower);
        assert_eq!(conclude(&ratio(1.3, 0.99, 1.6), FLOOR), Conclusion::NoDifference);
        assert_eq!(conclude(&ratio(0.7, 0.5, 0.99), FLOOR), Conclusion::Faster);
        assert_eq!(conclude(&ratio(0.7, 0.5, 1.0), FLOOR), Conclusion::NoDifference);
    }

    #[test]
    fn a_verdict_needs_an_effect_of_a_tenth() {
        assert_eq!(conclude(&ratio(1.11, 1.10, 1.12), FLOOR), Conclusion::Slower);
        assert_eq!(conclude(&ratio(1.09, 1.08, 1.10), FLOOR), Conclusion::NoDifference);
        assert_eq!(conclude(&ratio(0.91, 0.90, 0.92), FLOOR), Conclusion::NoDifference);
    }

    #[test]
    fn a_verdict_needs_a_difference_above_our_own_lateness() {
        let two_and_a_half_ms = ratio(1.1, 1.09, 1.11);
        assert_eq!(conclude(&two_and_a_half_ms, Duration::from_micros(2_499)), Conclusion::Slower);
        assert_eq!(conclude(&two_and_a_half_ms, Duration::from_micros(2_501)), Conclusion::NoDifference);
    }

    #[test]
    fn what_is_not_claimed_says_which_rule_was_not_met() {
        let why = |ratio: &RatioInterval, floor: Duration| unclaimed(ratio, floor);
        assert_eq!(why(&ratio(1.3, 1.01, 1.6), FLOOR), None);
        assert_eq!(why(&ratio(1.09, 1.08, 1.10), FLOOR), Some(Unclaimed::Small));
        assert_eq!(why(&ratio(1.0, 0.95, 1.05), FLOOR), Some(Unclaimed::Small));
        assert_eq!(why(&ratio(1.0, 0.85, 1.05), FLOOR), Some(Unclaimed::Undecided));
        assert_eq!(why(&ratio(1.3, 0.99, 1.6), FLOOR), Some(Unclaimed::Undecided));
        let floor = Duration::from_millis(10);
        assert_eq!(why(&ratio(1.3, 1.2, 1.4), floor), Some(Unclaimed::BelowFloor), "7.5 of 25 ms");
        assert_eq!(why(&ratio(1.0, 0.7, 1.3), floor), Some(Unclaimed::BelowFloor));
        assert_eq!(why(&ratio(1.0, 0.7, f64::INFINITY), floor), Some(Unclaimed::Undecided));
        assert!(Unclaimed::Small.is_alike() && !Unclaimed::Unsound.is_alike());
    }

    fn summary(index: u32, protocol: Protocol, change: impl Fn(&mut CellRecord)) -> CellSummary {
        let mut record = one_repetition(&cell(index, 0, protocol, 4, 0.0), 0, &Model::CLEAN);
        change(&mut record);
        CellSummary::of(&[&record])
    }

    #[test]
    fn the_floor_is_twice_our_own_lateness_but_never_below_200_microseconds() {
        let quiet = summary(0, Protocol::H1, |record| record.link.as_mut().unwrap().late_p99_ns = 1_000);
        assert_eq!(floor(&quiet, &quiet), FLOOR);
        let noisy = summary(1, Protocol::H2c, |record| record.link.as_mut().unwrap().late_p99_ns = 500_000);
        assert_eq!(floor(&quiet, &noisy), Duration::from_micros(1_040)); // 2 × (500 + the generator's 20)
    }

    #[test]
    fn what_the_target_does_not_speak_is_no_baseline_for_what_it_speaks() {
        let unsupported = |index, protocol| {
            let cell = cell(index, 0, protocol, 4, 0.0);
            CellSummary::of(&[&CellRecord::unsupported(cell, "no".to_owned())])
        };
        let cells = [
            unsupported(0, Protocol::H1),
            summary(1, Protocol::H2c, |_| ()),
            summary(2, Protocol::H2c, |_| ()),
        ];
        let verdicts = compare(&cells.iter().collect::<Vec<_>>(), 1);
        let reported: Vec<_> = verdicts.iter().map(|v| (v.baseline, v.cell, v.conclusion)).collect();
        assert_eq!(reported, [(1, 0, Conclusion::Unsupported), (1, 2, Conclusion::NoDifference)]);
        let neither = [unsupported(0, Protocol::H1), unsupported(1, Protocol::H2c)];
        assert_eq!(compare(&[&neither[0], &neither[1]], 1)[0].conclusion, Conclusion::Unsupported);
    }

    #[test]
    fn another_limit_is_held_against_the_first_one_and_not_against_another_protocol() {
        let limited = |index, protocol, limit| {
            summary(index, protocol, |record| record.cell.max_requests_per_connection = limit)
        };
        let limits = [
            (0, Protocol::H1, None),
            (1, Protocol::H1, Some(137)),
            (2, Protocol::H2c, None),
            (3, Protocol::H2c, Some(137)),
        ];
        let mut cells: Vec<_> =
            limits.into_iter().map(|(index, protocol, limit)| limited(index, protocol, limit)).collect();
        cells.push(summary(4, Protocol::H2c, |record| {
            record.cell.max_requests_per_connection = Some(137);
            record.cell.dial = h2lab_model::workload::DialPolicy::Stampede;
        }));
        let verdicts = compare(&cells.iter().collect::<Vec<_>>(), 1);
        let pairs: Vec<_> = verdicts.iter().map(|verdict| (verdict.cell, verdict.baseline)).collect();
        assert_eq!(pairs, [(1, 0), (2, 0), (3, 2), (4, 0)], "the last has no counterpart");
    }

    #[test]
    fn only_closed_loops_find_out_a_throughput() {
        let reported = |closed: bool| {
            let cells = [Protocol::H1, Protocol::H2c].map(|protocol| {
                summary(0, protocol, |record| {
                    if closed {
                        record.cell.work.arrival = h2lab_model::workload::Arrival::Closed { concurrency: 25 };
                    }
                })
            });
            one(&cells[0], &cells[1], 1, 1).throughput.map(|of| (of.ratio * 10.0).round())
        };
        assert_eq!((reported(true), reported(false)), (Some(10.0), None));
    }

    #[test]
    fn states_decide_before_latencies_do() {
        let ok = |index| summary(index, Protocol::H1, |_| ());
        let overloaded = |index| {
            summary(index, Protocol::H2c, |record| {
                let cut = record.cell.work.phases.cut(record.started_at);
                record.samples.edit().iter_mut().step_by(2).for_each(|s| s.completed_at = cut);
            })
        };
        let invalid = |index| summary(index, Protocol::H2c, |r| r.link.as_mut().unwrap().device_drops = 1);
        let conclude = |a: &CellSummary, b: &CellSummary| one(a, b, 1, 1).conclusion;
        assert_eq!(conclude(&ok(0), &ok(1)), Conclusion::NoDifference);
        assert_eq!(conclude(&ok(0), &invalid(1)), Conclusion::Invalid);
        assert_eq!(conclude(&overloaded(0), &overloaded(1)), Conclusion::BothUnstable);
        assert!(matches!(conclude(&overloaded(0), &ok(1)), Conclusion::BaselineUnstable { .. }));
        let Conclusion::Unstable { offered_rps, served_rps } = conclude(&ok(0), &overloaded(1)) else {
            panic!()
        };
        assert!(offered_rps > 999.0 && served_rps < 520.0, "{served_rps}");
    }

    #[test]
    fn what_is_served_of_a_load_that_is_not_carried_is_compared_from_two_rounds() {
        let of = |index: u32, rounds: u32, every: usize| {
            let rounds = (0..rounds).map(|round| {
                let mut record = one_repetition(&cell(index, 0, Protocol::H2c, 4, 0.0), round, &Model::CLEAN);
                let cut = record.cell.work.phases.cut(record.started_at);
                let mut samples = record.samples.edit();
                let late = samples.iter_mut().enumerate().filter(|(n, _)| n % every > 0);
                late.for_each(|(_, sample)| sample.completed_at = cut);
                drop(samples);
                record
            });
            CellSummary::of(&rounds.collect::<Vec<CellRecord>>().iter().collect::<Vec<_>>())
        };
        let served = |rounds: u32, every: [usize; 2]| {
            let verdict = one(&of(0, rounds, every[0]), &of(1, rounds, every[1]), 1, 1);
            (verdict.conclusion, verdict.throughput.unwrap())
        };
        let (conclusion, ratio) = served(2, [1, 2]);
        assert!(matches!(conclusion, Conclusion::Unstable { .. }), "{conclusion:?}");
        assert!((ratio.ratio - 0.5).abs() < 0.02 && ratio.high < 0.6, "{ratio:?}");
        let (conclusion, alone) = served(1, [1, 2]);
        assert!(matches!(conclusion, Conclusion::Unstable { .. }), "{conclusion:?}");
        assert!((alone.ratio - 0.5).abs() < 0.02 && !alone.is_clear_of_one(), "{alone:?}");
        let (conclusion, back) = served(2, [2, 1]);
        assert!(matches!(conclusion, Conclusion::BaselineUnstable { .. }) && back.low > 1.6, "{back:?}");
        let (conclusion, both) = served(2, [2, 4]);
        assert!(conclusion == Conclusion::BothUnstable && both.high < 0.6, "{both:?}");
    }

    #[test]
    fn without_a_single_success_the_ages_of_unfinished_requests_are_no_verdict() {
        use h2lab_model::record::Outcome::{Connect, Unfinished};
        let dead = |index, outcome| {
            summary(index, Protocol::H2c, |record| {
                record.cell.work.arrival = h2lab_model::workload::Arrival::Closed { concurrency: 25 };
                let cut = record.cell.work.phases.cut(record.started_at);
                record.samples.edit().iter_mut().for_each(|s| (s.outcome, s.completed_at) = (outcome, cut));
            })
        };
        let ok = summary(0, Protocol::H1, |_| ());
        for outcome in [Unfinished, Connect] {
            let verdict = one(&ok, &dead(1, outcome), 1, 1);
            let is_void = matches!(verdict.conclusion, Conclusion::Failed | Conclusion::Unsupported);
            assert!(is_void && verdict.tail_ratio.is_none(), "{outcome}: {verdict:?}");
        }
    }

    #[test]
    fn the_baseline_is_the_first_http1_cell_else_the_first() {
        let cells =
            [(0, Protocol::H2c), (1, Protocol::H1s), (2, Protocol::H1)].map(|(i, p)| summary(i, p, |_| ()));
        let verdicts = compare(&cells.iter().collect::<Vec<_>>(), 1);
        let pairs: Vec<_> = verdicts.iter().map(|v| (v.baseline, v.cell)).collect();
        assert_eq!(pairs, [(1, 0), (1, 2)]);
        let verdicts = compare(&[&cells[0], &cells[0]], 1);
        assert!(verdicts.is_empty(), "a cell is not compared with itself");
        assert!(compare(&[], 1).is_empty());
    }

    #[test]
    fn a_verdict_on_tails_needs_blocks_of_two_stalls_and_one_on_medians_does_not() {
        let slower = |stall: u64| {
            let [baseline, mut slow] = [1.0, 2.0].map(|factor| {
                let model = Model { factor, ..Model::CLEAN };
                CellSummary::of(&[&one_repetition(&cell(factor as u32, 0, Protocol::H2c, 4, 0.0), 0, &model)])
            });
            slow.series[0].longest_stall = Duration::from_millis(stall);
            let verdict = one(&baseline, &slow, 1, 1);
            (verdict.conclusion, verdict.median_conclusion)
        };
        assert_eq!(slower(750), (Conclusion::Slower, Some(Conclusion::Slower))); // half of a repetition of 3 s
        assert_eq!(slower(751), (Conclusion::NoDifference, Some(Conclusion::Slower)));
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let cells = [summary(0, Protocol::H1, |_| ()), summary(1, Protocol::H2c, |_| ())];
        let verdict = |seed| one(&cells[0], &cells[1], seed, 1).tail_ratio;
        assert_eq!(verdict(5), verdict(5));
        assert!(verdict(5).is_some());
    }
}
