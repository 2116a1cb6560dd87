//! Runs against the first of them, in the document of several runs.

use std::collections::BTreeMap;

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RatioDocument;
use super::round::{micros, rounded};
use crate::Report;
use crate::runs::Compared;
use h2lab_analysis::stats::{CellComparison, CellFigures, RateRatio, RatioInterval};
use h2lab_base::units::millis_f64;

/// A run against the first one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunsComparisonDocument {
    /// The first run: its folder, or when it began.
    pub first: String,
    /// The other run.
    pub second: String,
    /// What changed, in a sentence.
    #[serde(default)]
    pub statement: String,
    /// Each pair of cells that are called alike, or the only ones of two runs with one each.
    pub cells: Vec<DifferenceDocument>,
    /// Of `diff`: the figures of each pair, which is all that there is where one side is a document without requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<FigurePairDocument>,
    /// Cells of the first run without a counterpart.
    pub only_first: Vec<String>,
    /// Cells of the other run without one.
    pub only_second: Vec<String>,
    /// What makes the ratios doubtful, in sentences.
    pub warnings: Vec<String>,
}

/// The figures of two cells that correspond, by the names that `--fail-if` has: times in ms, `errors` as a share of 1, `throughput`
/// per second. Null where a cell has none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FigurePairDocument {
    /// How the second one is called.
    pub label: String,
    /// The first run's.
    pub first: BTreeMap<String, Option<f64>>,
    /// The other run's.
    pub then: BTreeMap<String, Option<f64>>,
}

/// The figures of pairs of cells.
pub(crate) fn figure_pairs(pairs: &[(CellFigures, CellFigures)]) -> Vec<FigurePairDocument> {
    let named = |figures: &CellFigures| {
        let value = |(name, value): (&str, f64)| (name.to_owned(), value.is_finite().then(|| rounded(value)));
        CellFigures::NAMES.into_iter().zip(figures.values).map(value).collect()
    };
    let pair = |(first, then): &(CellFigures, CellFigures)| FigurePairDocument {
        label: then.label.clone(),
        first: named(first),
        then: named(then),
    };
    pairs.iter().map(pair).collect()
}

/// A cell against the corresponding one of the first run. Ratios are the other run's figure over the first one's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DifferenceDocument {
    /// What both are called.
    pub label: String,
    /// The index of the first run's cell.
    pub baseline: u32,
    /// The index of the other run's cell.
    pub cell: u32,
    /// Whether any difference is claimed to be real.
    pub real: bool,
    /// The ratio of the medians; null if either cell has no latency.
    pub median: Option<RatioDocument>,
    /// `faster`, `slower`, `no-difference`, `invalid` or `unsupported`.
    pub median_verdict: String,
    /// The percentile that stands for the tail: `p99` or `p95`.
    pub tail_percentile: String,
    /// The ratio of the tails, likewise.
    pub tail: Option<RatioDocument>,
    /// As of the median.
    pub tail_verdict: String,
    /// The ratio of the throughputs; null if either served nothing.
    pub throughput: Option<RateRatio>,
    /// As of the median: `faster` is more throughput.
    pub throughput_verdict: String,
    /// In what the work of the two differs.
    pub differs_in: Vec<String>,
}

/// Each run but the first against the first.
pub(super) fn comparisons(reports: &[Report<'_>]) -> Vec<RunsComparisonDocument> {
    Compared::all(reports).iter().map(comparison).collect()
}

/// A run against the first one.
pub(crate) fn comparison(compared: &Compared<'_>) -> RunsComparisonDocument {
    let comparison = &compared.comparison;
    RunsComparisonDocument {
        first: compared.first.name().to_owned(),
        second: compared.second.name().to_owned(),
        statement: compared.heading(),
        figures: Vec::new(),
        cells: comparison.differences.iter().map(difference).collect(),
        only_first: comparison.only_first.clone(),
        only_second: comparison.only_second.clone(),
        warnings: compared.doubts(),
    }
}

fn difference(difference: &CellComparison) -> DifferenceDocument {
    let [median, tail, throughput] = difference.conclusions.map(|conclusion| conclusion.name().to_owned());
    DifferenceDocument {
        label: difference.label.clone(),
        baseline: difference.baseline,
        cell: difference.cell,
        real: difference.is_real(),
        median: difference.median.as_ref().map(ratio),
        median_verdict: median,
        tail_percentile: difference.tail.name().to_owned(),
        tail: difference.tail_ratio.as_ref().map(ratio),
        tail_verdict: tail,
        throughput: difference.throughput.as_ref().map(rate_ratio),
        throughput_verdict: throughput,
        differs_in: difference.differs_in.clone(),
    }
}

pub(super) fn ratio(interval: &RatioInterval) -> RatioDocument {
    RatioDocument {
        ratio: rounded(interval.ratio),
        low: rounded(interval.low),
        high: rounded(interval.high),
        cell_us: micros(interval.candidate),
        baseline_us: micros(interval.baseline),
        block_ms: rounded(millis_f64(interval.block)),
        blocks: interval.blocks,
    }
}

pub(super) fn rate_ratio(ratio: &RateRatio) -> RateRatio {
    RateRatio {
        ratio: rounded(ratio.ratio),
        low: rounded(ratio.low),
        high: rounded(ratio.high),
        cell_rps: rounded(ratio.cell_rps),
        baseline_rps: rounded(ratio.baseline_rps),
    }
}
