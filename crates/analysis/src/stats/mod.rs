//! From records to figures: percentiles, the state of each cell, intervals of ratios, verdicts.
//!
//! [`analyse`] is the entry point. Everything is a pure function of the record; the only randomness is in the
//! bootstrap, seeded with the run's seed.

mod answer;
mod bars;
mod bootstrap;
mod bulk_rate;
#[cfg(test)]
mod calibration;
mod checks;
mod connections;
pub(crate) mod correction;
mod ending;
mod fisher;
mod latency;
mod pairs;
mod planned;
mod pool;
mod process;
mod ramp_steps;
mod ramps;
mod rate;
mod reproduction;
mod runs;
mod shares;
mod silence;
pub mod state;
mod status;
pub mod study;
mod summarise;
mod summary;
mod tallied;
mod threshold;
mod transfer;
mod transport;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};

pub use answer::Answer;
pub use bars::{HistogramBar, bars};
pub use bootstrap::RatioInterval;
pub(crate) use bootstrap::{spread_of_repetitions, spread_of_some};
pub(crate) use bulk_rate::bulk_verdicts;
pub use connections::{
    ByteCounts, Closing, ConnectionTotals, GoAwayCount, PushCounts, RequestSpread, ResetCount, Stalls,
    TlsHandshakes,
};
pub use ending::Ending;
pub(crate) use fisher::fail_more;
pub use latency::{Latency, Percentiles, Tail};
pub use pairs::{Pair, Setting};
pub use planned::{is_planned, measured_of_plan};
pub use pool::PoolLimit;
pub use process::ProcessTotals;
pub use ramp_steps::{Overload, RampStep, RampSteps};
pub use ramps::Ramps;
pub use rate::RateRatio;
pub use reproduction::{Agreement, ComparedOn, OwnVerdict, Reproduction};
pub use runs::{CellComparison, RunsComparison, compare_runs};
pub use shares::{LostShares, ShareState, ShareTotals, measured_requests_due, requests_due, share_lateness};
pub use silence::Silence;
pub use state::{invalid_reasons, link_doubts};
pub use status::{doubt_of_status, redirect, refusal};
pub use study::Study;
pub use summary::{CellState, CellSummary, ErrorCount, Failed, Instability, RepetitionSeries, RequestCounts};
pub(crate) use tallied::replays;
pub use threshold::{CellFigures, Checked, Judged, Threshold, ThresholdError};
pub use transfer::{Transfers, is_too_long, longer_flags};
pub use transport::{GeneratorTotals, LinkTotals, PerRequest, QuicEnd, TcpEnd};
pub use verdict::{CellVerdict, Conclusion, Unclaimed};

use h2lab_base::counts::count;
use h2lab_model::record::{CellRecord, RunRecord};
use h2lab_model::scenario::Naming;

/// The result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Analysis {
    /// Each cell, its repetitions pooled, in the order of the matrix.
    pub cells: Vec<CellSummary>,
    /// Each cell of a group against the group's baseline, in the same order.
    pub verdicts: Vec<CellVerdict>,
    /// Cells that differ in one setting, such as the congestion control, compared with the first cell that has another
    /// value of it.
    pub pairs: Vec<Pair>,
    /// Verdicts that several machines have found, each by itself: see [`Analysis::reproduced_by`].
    pub reproductions: Vec<Reproduction>,
    /// Warnings about the measurement as a whole; those about one cell are in its summary.
    pub warnings: Vec<String>,
}

impl Analysis {
    /// The cell with this index in the matrix.
    pub fn cell(&self, index: u32) -> Option<&CellSummary> {
        self.cells.iter().find(|summary| summary.cell.index == index)
    }

    /// Groups of comparable cells, in the order of the matrix.
    pub fn groups(&self) -> Vec<Vec<&CellSummary>> {
        let mut groups: BTreeMap<u32, Vec<&CellSummary>> = BTreeMap::new();
        for summary in &self.cells {
            groups.entry(summary.cell.group).or_default().push(summary);
        }
        groups.into_values().collect()
    }
}

/// Pools the repetitions of each cell, judges each cell and compares the cells of each group.
pub fn analyse(run: &RunRecord) -> Analysis {
    let mut cells: Vec<CellSummary> = repetitions_by_cell(&run.repetitions)
        .into_values()
        .map(|repetitions| CellSummary::of(&repetitions))
        .collect();
    name(&mut cells);
    let mut analysis = Analysis {
        cells,
        verdicts: Vec::new(),
        pairs: Vec::new(),
        reproductions: Vec::new(),
        warnings: Vec::new(),
    };
    analysis.verdicts =
        analysis.groups().iter().flat_map(|group| verdict::compare(group, run.seed)).collect();
    analysis.pairs = pairs::compare(&analysis, run);
    let mut verdicts = analysis.verdicts.iter().chain(analysis.pairs.iter().map(|pair| &pair.verdict));
    if verdicts.any(|verdict| verdict.tail_ratio.is_some() || verdict.bytes.is_some())
        && analysis.cells.iter().any(|cell| cell.repetitions == 1)
    {
        analysis.warnings.push("cells with one repetition: intervals omit run-to-run variation".to_owned());
    }
    let different =
        analysis.groups().iter().filter_map(|group| different_answers(group)).collect::<BTreeSet<_>>();
    analysis.warnings.extend(different);
    let lengths =
        analysis.groups().iter().filter_map(|group| different_lengths(group)).collect::<BTreeSet<_>>();
    analysis.warnings.extend(lengths);
    analysis.warnings.extend(transfer::limited(&analysis.cells));
    analysis.warnings.extend(planned::warning(run));
    analysis
}

/// Why the cells of a group do not do the same work, if so.
pub(crate) fn different_work(group: &[&CellSummary]) -> Option<String> {
    different_answers(group).or_else(|| different_lengths(group))
}

/// Describes cells of a group that are answered with different statuses, if there are any: a redirect is not the same
/// work as its target. If both get both statuses, as from a server that fails half of its requests, the work is the
/// same.
fn different_answers(group: &[&CellSummary]) -> Option<String> {
    let usual = |cell: &CellSummary| cell.statuses.iter().max_by_key(|(_, n)| **n).map(|(status, _)| *status);
    let share = |cell: &CellSummary, status: u16| {
        let all: u64 = cell.statuses.values().sum();
        cell.statuses.get(&status).copied().unwrap_or(0) as f64 / all.max(1) as f64
    };
    let (first, status) = group.iter().find_map(|cell| Some((cell, usual(cell)?)))?;
    let (other, its) = group.iter().find_map(|cell| {
        let its = usual(cell).filter(|its| *its != status)?;
        (share(cell, status) * 2.0 < share(first, status)).then_some((cell, its))
    })?;
    Some(format!(
        "{} gets status {status}, {} gets {its}: the work compared is not the same",
        first.label, other.label
    ))
}

/// Bodies whose lengths differ by less than this belong to the same work: they may contain a date or a token.
const LENGTH_SHARE: f64 = 1.1;
/// The same in bytes.
const LENGTH_BYTES: u64 = 64;

/// Describes cells of a group that get responses of different lengths, if there are any: that is not the same work. If
/// both get short and long responses, as with a mix of requests, the work may be the same. So the lower quartile of the
/// longer ones is compared with the upper quartile of the others.
fn different_lengths(group: &[&CellSummary]) -> Option<String> {
    let of = |cell: &&CellSummary| Some((cell.label.clone(), cell.body_quartiles?));
    let lengths: Vec<(String, [u64; 3])> = group.iter().filter_map(of).collect();
    let (short, its) = lengths.iter().min_by_key(|(_, [.., upper])| *upper)?;
    let (long, others) = lengths.iter().max_by_key(|(_, [lower, ..])| *lower)?;
    let [.., upper] = its;
    let [lower, ..] = others;
    let differs = *lower > upper + LENGTH_BYTES && *lower as f64 > *upper as f64 * LENGTH_SHARE;
    differs.then(|| {
        format!(
            "half of the responses that {long} gets have {} bytes or more, of those that {short} gets {}: the work compared is not the same",
            count(others[1]),
            count(its[1])
        )
    })
}

/// The interval of the ratio of two cells' quantiles at `share`, one of `looks`; `None` where there are too few requests.
pub(crate) fn interval_of_times(
    share: f64,
    baseline: &CellSummary,
    candidate: &CellSummary,
    seed: u64,
    looks: impl Into<correction::Looks>,
) -> Option<RatioInterval> {
    bootstrap::of_cells(share, baseline, candidate, seed, looks).filter(RatioInterval::is_sound)
}

/// The interval of the ratio of two cells' successes per second, one of `looks`; `None` where there are none.
pub(crate) fn interval_of_rates(
    baseline: &CellSummary,
    candidate: &CellSummary,
    seed: u64,
    looks: impl Into<correction::Looks>,
) -> Option<RateRatio> {
    rate::ratio(&baseline.series, &candidate.series, seed, looks)
}

/// The verdict on `candidate` against `baseline`.
pub(crate) fn verdict_on(baseline: &CellSummary, candidate: &CellSummary, seed: u64) -> CellVerdict {
    verdict::one(baseline, candidate, seed, 1)
}

/// The same of the repetitions of two cells of the same work, whether that is bulk or not; one of `looks`.
pub(crate) fn verdict_of(
    baseline: &[&CellRecord],
    candidate: &[&CellRecord],
    seed: u64,
    looks: u32,
) -> CellVerdict {
    if candidate.iter().any(|repetition| repetition.cell.work.bulk) {
        return bulk_rate::compared(baseline, candidate, seed, looks);
    }
    verdict::one(&CellSummary::of(baseline), &CellSummary::of(candidate), seed, looks)
}

/// The rates of two cells that do not carry their load, if that of `candidate` is known to be a tenth lower or more: one
/// of `looks`.
pub(crate) fn lower_rate(
    baseline: &[&CellRecord],
    candidate: &[&CellRecord],
    looks: u32,
) -> Option<RateRatio> {
    let [base, cand] = [baseline, candidate].map(|cell| CellSummary::of(cell).series);
    rate::between_rounds(&base, &cand, looks).filter(|rate| runs::conclude_rate(rate) == Conclusion::Slower)
}

/// Differences of times below this are not claimed: they may be our own lateness.
pub(crate) fn time_floor(baseline: &CellSummary, candidate: &CellSummary) -> std::time::Duration {
    verdict::floor(baseline, candidate)
}

/// The response time such that at least `share` (0 to 1) of a repetition's measured requests were at or below it; zero
/// if it has none.
pub fn response_quantile(measured: &CellRecord, share: f64) -> std::time::Duration {
    tallied::RESPONSE.quantile(measured, share)
}

/// The repetitions of one cell that count, in the order of their numbers.
pub fn repetitions_of(run: &RunRecord, index: u32) -> Vec<&CellRecord> {
    repetitions_by_cell(&run.repetitions).remove(&index).unwrap_or_default()
}

/// The repetitions of each cell. If a repetition was attempted several times, the last attempt counts: the earlier ones
/// were invalid.
pub fn repetitions_by_cell(repetitions: &[CellRecord]) -> BTreeMap<u32, Vec<&CellRecord>> {
    let mut last: BTreeMap<(u32, u32), &CellRecord> = BTreeMap::new();
    for measured in repetitions {
        let entry = last.entry((measured.cell.index, measured.cell.repetition)).or_insert(measured);
        if measured.attempt >= entry.attempt {
            *entry = measured;
        }
    }
    let mut cells: BTreeMap<u32, Vec<&CellRecord>> = BTreeMap::new();
    for ((index, _), measured) in last {
        cells.entry(index).or_default().push(measured);
    }
    cells
}

/// Labels each cell by what distinguishes it from the others of its group.
fn name(cells: &mut [CellSummary]) {
    let groups = Naming::by_group(cells.iter().map(|summary| &summary.cell));
    for summary in cells {
        summary.naming = groups[&summary.cell.group].clone();
        summary.label = summary.naming.label(&summary.cell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::record::testing::{Model, cell, one_repetition, run};
    use h2lab_model::scenario::Target;
    use h2lab_model::workload::Protocol;

    #[test]
    fn of_several_attempts_at_a_repetition_the_last_counts() {
        let cell = cell(0, 0, Protocol::H1, 4, 0.0);
        let mut first = one_repetition(&cell, 0, &Model::CLEAN);
        first.link.as_mut().unwrap().device_drops = 9;
        let mut second = one_repetition(&cell, 0, &Model::CLEAN);
        second.attempt = 1;
        let analysis = analyse(&run(vec![second, first]));
        assert_eq!((analysis.cells.len(), analysis.cells[0].repetitions), (1, 1));
        assert_eq!(analysis.cells[0].state, CellState::Ok);
    }

    #[test]
    fn intervals_of_a_single_repetition_come_with_a_warning_in_bulk_work_too() {
        let with = |index: u32, round: u32, frame: u32| {
            let mut record = h2lab_model::bulk::testing::bulk_repetition(Protocol::H2c, 100e6);
            (record.cell.index, record.cell.group, record.cell.repetition) = (index, index, round);
            record.cell.client.max_frame_size = Some(frame);
            record
        };
        let warned = |rounds: u32| {
            let records = (0..rounds).flat_map(|round| [with(0, round, 16_384), with(1, round, 1 << 20)]);
            let analysis = analyse(&run(records.collect()));
            assert!(analysis.verdicts.is_empty() && analysis.pairs.len() == 1);
            analysis.warnings.iter().any(|words| words.contains("omit run-to-run variation"))
        };
        assert_eq!([1, 2].map(warned), [true, false]);
    }

    #[test]
    fn a_redirect_beside_what_it_leads_to_is_reported() {
        let answered = |index, status| {
            let mut record = one_repetition(&cell(index, 0, Protocol::H1, 4, 0.0), 0, &Model::CLEAN);
            record.cell.target = Target::Url { url: format!("http://{index}.example/") };
            record.samples.edit().iter_mut().for_each(|sample| sample.status = status);
            record
        };
        let warned = |statuses: [u16; 2]| {
            let run = run(vec![answered(0, statuses[0]), answered(1, statuses[1])]);
            analyse(&run).warnings.iter().any(|words| words.contains("work compared is not the same"))
        };
        assert!(warned([302, 200]) && !warned([200, 200]));
        let half = |index, shift| {
            let mut record = answered(index, 200);
            let mut n = 0;
            record.samples.edit().iter_mut().for_each(|sample| {
                n += 1;
                sample.status = if n % 100 < 50 + shift { 503 } else { 200 };
            });
            record
        };
        let run = run(vec![half(0, 1), half(1, -1)]);
        let doubts = analyse(&run).warnings;
        assert!(!doubts.iter().any(|words| words.contains("not the same")), "{doubts:?}");
    }

    #[test]
    fn bodies_of_different_lengths_are_reported() {
        let answered = |index, lengths: [u64; 2]| {
            let mut record = one_repetition(&cell(index, 0, Protocol::H1, 4, 0.0), 0, &Model::CLEAN);
            record.cell.target = Target::Url { url: format!("http://{index}.example/") };
            for (n, sample) in record.samples.edit().iter_mut().enumerate() {
                sample.body_bytes = lengths[n % 2];
            }
            record
        };
        let warned = |one, other| {
            let run = run(vec![answered(0, one), answered(1, other)]);
            analyse(&run).warnings.into_iter().find(|words| words.contains("work compared is not the same"))
        };
        let said = warned([1; 2], [200_000; 2]).unwrap();
        assert!(
            said.contains("have 200,000 bytes or more, of those that ") && said.contains(" gets 1: "),
            "{said}"
        );
        assert_eq!(warned([1_000; 2], [1_100; 2]), None, "a tenth");
        assert!(warned([1_000; 2], [1_101; 2]).is_some());
        assert_eq!(warned([10; 2], [74; 2]), None, "64 bytes");
        assert!(warned([10; 2], [75; 2]).is_some());
        assert_eq!(warned([1, 200_000], [200_000; 2]), None, "a mix of both");
    }

    #[test]
    fn cells_are_called_by_what_differs() {
        let at = |index, group, url: &str| {
            let mut cell = cell(index, group, Protocol::H1, 4, 0.0);
            cell.target = Target::Url { url: url.to_owned() };
            one_repetition(&cell, 0, &Model::CLEAN)
        };
        let analysis =
            analyse(&run(vec![at(0, 0, "http://a/"), at(1, 0, "http://b/"), at(2, 1, "http://b/")]));
        let labels: Vec<&str> = analysis.cells.iter().map(|cell| cell.label.as_str()).collect();
        assert_eq!(labels, ["h1 at http://a/", "h1 at http://b/", "h1"]);
    }
}
