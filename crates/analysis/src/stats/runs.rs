//! Two runs against each other: whether what changed between them made a difference.
//!
//! Cells correspond if they have the same label and the same position among those with that label; the only cells of
//! two runs with one cell each correspond, too. Their figures are compared like those of one run (`verdict.rs`), with
//! one more doubt: the runs were not interleaved, so that other changes in between are in the ratio but in no interval.

use std::collections::BTreeMap;
use std::time::Duration;

use super::bootstrap::{self, RatioInterval};
use super::rate::{self, RateRatio};
use super::verdict::{EFFECT, conclude, floor, unclaimed};
use super::{Analysis, CellState, CellSummary, Conclusion, Tail, Unclaimed};
use h2lab_base::units::format_duration;
use h2lab_model::record::RunRecord;

/// A cell of a run against the corresponding one of an earlier run.
#[derive(Debug, Clone, PartialEq)]
pub struct CellComparison {
    /// The label of both; `h1 → h2` if they differ.
    pub label: String,
    /// The index of the first run's cell in its matrix.
    pub baseline: u32,
    /// The index of the other run's cell in its matrix.
    pub cell: u32,
    /// The ratio of the medians; `None` if either cell has no latency.
    pub median: Option<RatioInterval>,
    /// Which percentile represents the tail: that of the cell with fewer requests.
    pub tail: Tail,
    /// The ratio of the tails.
    pub tail_ratio: Option<RatioInterval>,
    /// The ratio of the throughputs; `None` if either served nothing, or if an open loop was offered another load.
    pub throughput: Option<RateRatio>,
    /// The conclusions on the median, the tail and the throughput: [`Conclusion::Faster`] is less time, or more
    /// throughput.
    pub conclusions: [Conclusion; 3],
    /// Why no difference is claimed for each of these; `None` if one is claimed, or if a state decided.
    pub unclaimed: [Option<Unclaimed>; 3],
    /// Differences of times below this are not claimed.
    pub floor: Duration,
    /// The differences in their work, as text: then the ratio compares two different questions.
    pub differs_in: Vec<String>,
}

impl CellComparison {
    /// The ratios of median, tail and throughput, in the order of the conclusions, each with its interval.
    pub fn ratios(&self) -> [Option<[f64; 3]>; 3] {
        let of_time = |ratio: Option<RatioInterval>| ratio.map(|of| [of.ratio, of.low, of.high]);
        let throughput = self.throughput.map(|of| [of.ratio, of.low, of.high]);
        [of_time(self.median), of_time(self.tail_ratio), throughput]
    }

    /// Whether any difference is claimed to be real.
    pub fn is_real(&self) -> bool {
        self.conclusions.iter().any(Conclusion::claims_a_difference)
    }
}

/// A run against an earlier one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunsComparison {
    /// Each pair of cells that correspond, in the order of the other run's matrix.
    pub differences: Vec<CellComparison>,
    /// Cells of the first run that have no counterpart.
    pub only_first: Vec<String>,
    /// Cells of the other run that have none.
    pub only_second: Vec<String>,
}

/// Compares `second` with `first`. The bootstrap uses the second run's seed.
pub fn compare_runs(first: (&RunRecord, &Analysis), second: (&RunRecord, &Analysis)) -> RunsComparison {
    let is_pair = first.1.cells.len() == 1 && second.1.cells.len() == 1;
    let name = |summary: &CellSummary| if is_pair { String::new() } else { summary.label.clone() };
    let mut baselines: BTreeMap<String, Vec<&CellSummary>> = BTreeMap::new();
    for summary in first.1.cells.iter().rev() {
        baselines.entry(name(summary)).or_default().push(summary);
    }
    let mut comparison = RunsComparison::default();
    for candidate in &second.1.cells {
        match baselines.get_mut(&name(candidate)).and_then(Vec::pop) {
            Some(baseline) => {
                let mut difference = difference(baseline, candidate, second.0.seed);
                if first.0.machine != second.0.machine {
                    let machines = format!("machine ({}; {})", first.0.machine, second.0.machine);
                    difference.differs_in.push(machines);
                }
                comparison.differences.push(difference);
            }
            None => comparison.only_second.push(candidate.label.clone()),
        }
    }
    let left = baselines.into_values().flatten();
    let mut left: Vec<&CellSummary> = left.collect();
    left.sort_by_key(|summary| summary.cell.index);
    comparison.only_first = left.iter().map(|summary| summary.label.clone()).collect();
    comparison
}

fn difference(baseline: &CellSummary, candidate: &CellSummary, seed: u64) -> CellComparison {
    let tail = baseline.response.tail().min(candidate.response.tail());
    let seed = seed.wrapping_add(u64::from(candidate.cell.index));
    let ratio = |share| bootstrap::of_cells(share, baseline, candidate, seed, 1);
    // The same run twice: resampling would show a difference where there is none.
    let is_same = baseline.series == candidate.series;
    let exact = |of: RatioInterval| if is_same { RatioInterval { low: 1.0, high: 1.0, ..of } } else { of };
    let (median, tail_ratio) = (ratio(0.5).map(exact), ratio(tail.share()).map(exact));
    // An open loop serves what it is offered: another load cannot be compared.
    let is_same_load = baseline.cell.work.arrival == candidate.cell.work.arrival || {
        let is_closed = |summary: &CellSummary| summary.cell.work.arrival.rate().is_none();
        is_closed(baseline) && is_closed(candidate)
    };
    let throughput =
        is_same_load.then(|| rate::ratio(&baseline.series, &candidate.series, seed, 1)).flatten();
    let throughput = throughput.map(|of| if is_same { RateRatio { low: 1.0, high: 1.0, ..of } } else { of });
    let floor = floor(baseline, candidate);
    let of_time = |ratio: Option<RatioInterval>, must_be_sound: bool| match ratio {
        None if baseline.is_dead() || candidate.is_dead() => {
            (Conclusion::NoDifference, Some(Unclaimed::NoFigure))
        }
        None => (Conclusion::NoDifference, Some(Unclaimed::TooFew)),
        Some(ratio) if must_be_sound && !ratio.is_sound() => {
            (Conclusion::NoDifference, Some(Unclaimed::Unsound))
        }
        Some(ratio) => (conclude(&ratio, floor), unclaimed(&ratio, floor)),
    };
    let of_rate = |ratio: Option<RateRatio>| {
        let none = (Conclusion::NoDifference, Some(Unclaimed::NoFigure));
        ratio.map_or(none, |ratio| (conclude_rate(&ratio), unclaimed_rate(&ratio)))
    };
    let concluded = match doubtful(baseline, candidate) {
        Some(conclusion) => [(conclusion, None); 3],
        None if is_same => [(Conclusion::NoDifference, Some(Unclaimed::Small)); 3],
        None => [of_time(median, false), of_time(tail_ratio, true), of_rate(throughput)],
    };
    CellComparison {
        label: if baseline.label == candidate.label {
            candidate.label.clone()
        } else {
            format!("{} → {}", baseline.label, candidate.label)
        },
        baseline: baseline.cell.index,
        cell: candidate.cell.index,
        median,
        tail,
        tail_ratio,
        throughput,
        conclusions: concluded.map(|(conclusion, _)| conclusion),
        unclaimed: concluded.map(|(_, why)| why),
        floor,
        differs_in: differs_in(baseline, candidate),
    }
}

/// The conclusion that the states require. The figures of a cell that cannot carry its load are still worth comparing
/// between runs: the load is the same.
fn doubtful(baseline: &CellSummary, candidate: &CellSummary) -> Option<Conclusion> {
    let is = |of: fn(&CellState) -> bool| of(&baseline.state) || of(&candidate.state);
    match () {
        () if is(|state| matches!(state, CellState::Unsupported { .. })) => Some(Conclusion::Unsupported),
        () if is(|state| matches!(state, CellState::Failed { .. })) => Some(Conclusion::Failed),
        () if is(|state| matches!(state, CellState::Invalid { .. })) => Some(Conclusion::Invalid),
        () if baseline.is_dead() || candidate.is_dead() => Some(Conclusion::Failed),
        () => None,
    }
}

/// The conclusion that a ratio of throughputs supports.
pub(super) fn conclude_rate(ratio: &RateRatio) -> Conclusion {
    match unclaimed_rate(ratio) {
        Some(_) => Conclusion::NoDifference,
        None if ratio.ratio > 1.0 => Conclusion::Faster,
        None => Conclusion::Slower,
    }
}

/// Why it supports no difference.
pub(super) fn unclaimed_rate(ratio: &RateRatio) -> Option<Unclaimed> {
    let is_small = |ratio: f64| (ratio - 1.0).abs() < EFFECT;
    match ratio.is_clear_of_one() {
        true if is_small(ratio.ratio) => Some(Unclaimed::Small),
        true => None,
        false if is_small(ratio.low) && is_small(ratio.high) => Some(Unclaimed::Small),
        false => Some(Unclaimed::Undecided),
    }
}

/// The differences of two cells with the same label, except numbers and seeds.
fn differs_in(baseline: &CellSummary, candidate: &CellSummary) -> Vec<String> {
    let (a, b) = (&baseline.cell, &candidate.cell);
    let mut differences = Vec::new();
    let mut compare = |what: &str, one: String, other: String| {
        if one != other {
            differences.push(format!("{what} ({one}; {other})"));
        }
    };
    compare("target", a.parties(), b.parties());
    compare("protocol", a.protocol.to_string(), b.protocol.to_string());
    compare("connections", a.connections.to_string(), b.connections.to_string());
    compare("streams", a.streams.to_string(), b.streams.to_string());
    compare(
        "request",
        format!("{} {}", a.work.method, a.work.path),
        format!("{} {}", b.work.method, b.work.path),
    );
    compare("body bytes", a.work.body_length().to_string(), b.work.body_length().to_string());
    compare("kinds of requests", a.work.mix.len().to_string(), b.work.mix.len().to_string());
    compare("arrival", arrival(baseline), arrival(candidate));
    let time = |summary: &CellSummary| format_duration(summary.measured / summary.repetitions.max(1));
    // -n and Ctrl-C may end a load at any time.
    let is_same_length = a.work.phases.measure.abs_diff(b.work.phases.measure) * 20 <= a.work.phases.measure;
    if !is_same_length {
        compare("measured time", time(baseline), time(candidate));
    }
    let others = [
        ("link", a.link != b.link),
        ("congestion control", baseline.congestion != candidate.congestion),
        ("sysctls", a.sysctls != b.sysctls),
        ("client's engine", a.client != b.client),
        ("client's policy", (a.dial, a.policy) != (b.dial, b.policy)),
        ("limit of requests", a.max_requests_per_connection != b.max_requests_per_connection),
        ("header fields", a.work.headers != b.work.headers || a.work.shape != b.work.shape),
    ];
    differences.extend(others.iter().filter(|(_, differ)| *differ).map(|(what, _)| (*what).to_owned()));
    differences
}

fn arrival(summary: &CellSummary) -> String {
    use h2lab_model::workload::Arrival;
    match summary.cell.work.arrival {
        Arrival::Closed { concurrency } => format!("closed loop of {concurrency}"),
        Arrival::Constant { rate } => format!("{rate}/s"),
        Arrival::Poisson { rate } => format!("{rate}/s Poisson"),
        Arrival::Ramp { from, to, over, steps } => {
            format!("ramp {from} to {to}/s in {}, {steps} steps", format_duration(over))
        }
    }
}

#[cfg(test)]
mod tests {
    use Protocol::{H1, H2, H2c};

    use super::*;
    use crate::stats::analyse;
    use h2lab_model::record::testing::{Model, cell, one_repetition, run};
    use h2lab_model::workload::{Arrival, Protocol};

    /// A run of one cell, measured twice.
    fn of(model: &Model, change: impl Fn(&mut h2lab_model::scenario::Cell)) -> RunRecord {
        let mut cell = cell(0, 0, Protocol::H1, 32, 0.0);
        change(&mut cell);
        run(vec![one_repetition(&cell, 0, model), one_repetition(&cell, 1, model)])
    }

    fn compared(first: &RunRecord, second: &RunRecord) -> RunsComparison {
        compare_runs((first, &analyse(first)), (second, &analyse(second)))
    }

    #[test]
    fn a_run_that_is_half_as_slow_again_is_slower_and_one_that_is_alike_is_not() {
        let slow = Model { factor: 1.5, ..Model::CLEAN };
        let comparison = compared(&of(&Model::CLEAN, |_| ()), &of(&slow, |_| ()));
        let difference = &comparison.differences[0];
        assert_eq!(difference.conclusions[0], Conclusion::Slower);
        assert_eq!(difference.conclusions[1], Conclusion::Slower);
        assert_eq!(difference.conclusions[2], Conclusion::NoDifference, "the open loop sends as much");
        assert!((difference.median.unwrap().ratio - 1.5).abs() < 0.01);
        assert!((difference.throughput.unwrap().ratio - 1.0).abs() < 0.02);
        assert!(difference.is_real() && difference.differs_in.is_empty());
        let back = compared(&of(&slow, |_| ()), &of(&Model::CLEAN, |_| ()));
        assert_eq!(back.differences[0].conclusions[0], Conclusion::Faster);
        let same = compared(&of(&Model::CLEAN, |_| ()), &of(&Model::CLEAN, |cell| cell.seed = 7));
        assert!(!same.differences[0].is_real(), "{same:?}");
    }

    #[test]
    fn other_work_is_reported_with_both_values() {
        let other = of(&Model::CLEAN, |cell| {
            cell.work.path = "/other".to_owned();
            cell.work.arrival = Arrival::Constant { rate: 500.0 };
            cell.policy.no_tls_resumption = true;
        });
        let comparison = compared(&of(&Model::CLEAN, |_| ()), &other);
        let difference = &comparison.differences[0];
        assert_eq!(
            difference.differs_in,
            ["request (POST /; POST /other)", "arrival (1000/s; 500/s)", "client's policy"]
        );
        assert_eq!(difference.throughput, None, "half the rate was asked for");
        assert_eq!(difference.conclusions[2], Conclusion::NoDifference);
        // The schedule in the record is that of an open loop; only the arrival in the cell matters here.
        let closed = |concurrency| {
            let mut run = of(&Model::CLEAN, |_| ());
            for repetition in &mut run.repetitions {
                repetition.cell.work.arrival = Arrival::Closed { concurrency };
            }
            run
        };
        let throughput = |first: RunRecord, second| compared(&first, &second).differences[0].throughput;
        assert_eq!(throughput(of(&Model::CLEAN, |_| ()), closed(8)), None);
        assert!(throughput(closed(4), closed(8)).is_some(), "what more connections bring is a question");
    }

    #[test]
    fn of_a_handful_of_requests_no_time_is_compared() {
        let of = |requests: usize| {
            let mut record = one_repetition(&cell(0, 0, Protocol::H1, 4, 0.0), 0, &Model::CLEAN);
            record.cell.work.arrival = Arrival::Closed { concurrency: 1 };
            let mut samples = record.samples.edit();
            let measured = samples.iter_mut().filter(|sample| sample.measured);
            measured.skip(requests).for_each(|sample| sample.measured = false);
            drop(samples);
            run(vec![record])
        };
        let [few, enough] = [5, 6].map(|n| compared(&of(6), &of(n)).differences[0].clone());
        assert_eq!((few.median, few.unclaimed[0]), (None, Some(Unclaimed::TooFew)));
        assert!(enough.median.is_some());
    }

    #[test]
    fn cells_correspond_by_name_and_place_and_others_are_named() {
        let of = |protocols: &[Protocol]| {
            let cells = protocols.iter().enumerate();
            run(cells
                .map(|(k, &protocol)| {
                    one_repetition(&cell(k as u32, k as u32, protocol, 4, 0.0), 0, &Model::CLEAN)
                })
                .collect())
        };
        let comparison = compared(&of(&[H1, H2c, H1]), &of(&[H2, H1, H1]));
        let pairs: Vec<_> = comparison.differences.iter().map(|d| (d.baseline, d.cell)).collect();
        assert_eq!(pairs, [(0, 1), (2, 2)]);
        assert_eq!(
            (comparison.only_first, comparison.only_second),
            (vec!["h2c × 4".into()], vec!["h2 × 4".into()])
        );
    }

    #[test]
    fn a_void_measurement_has_no_conclusion() {
        let mut void = of(&Model::CLEAN, |_| ());
        void.repetitions.iter_mut().for_each(|repetition| repetition.link.as_mut().unwrap().device_drops = 9);
        let comparison = compared(&of(&Model::CLEAN, |_| ()), &void);
        assert_eq!(comparison.differences[0].conclusions, [Conclusion::Invalid; 3]);
    }
}
