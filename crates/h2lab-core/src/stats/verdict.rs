//! Verdicts: each cell of a group against the group's baseline.
//!
//! A difference is claimed only if the interval of the ratio is clear of 1 AND the difference is worth a word: at least
//! 10 %, and above what our own lateness could make. Everything else is "no difference resolved", which is a good
//! verdict.

use std::time::Duration;

use super::bootstrap::{self, RatioInterval};
use super::{CellState, CellSummary, Tail};

/// A ratio nearer to 1 than this is no difference that anybody should act on.
const EFFECT: f64 = 0.10;
/// A difference below this is none, whatever its ratio: timers, wake-ups and caches of a loaded machine differ as much.
const FLOOR: Duration = Duration::from_micros(200);
/// Nor is one below this many times our own lateness (generator and link, p99, of either cell): half of it could be
/// the one cell's bad luck and half the other's good luck.
const LATENESS_FACTOR: u32 = 2;

/// What is concluded about a cell against its baseline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Conclusion {
    /// Its slow requests are faster than the baseline's.
    Faster,
    /// Its slow requests are slower than the baseline's.
    Slower,
    /// Too alike, or too few requests to tell.
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
    /// One of them was not measured soundly.
    Invalid,
    /// One of them could not be measured at all.
    Unsupported,
}

impl Conclusion {
    /// The name in JSON and reports.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::NoDifference => "no-difference",
            Self::Unstable { .. } => "unstable",
            Self::BaselineUnstable { .. } => "baseline-unstable",
            Self::BothUnstable => "both-unstable",
            Self::Invalid => "invalid",
            Self::Unsupported => "unsupported",
        }
    }

    /// Whether it claims that the two differ in latency.
    pub const fn claims_a_difference(&self) -> bool {
        matches!(self, Self::Faster | Self::Slower)
    }
}

/// One cell against the baseline of its group.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The group of comparable cells.
    pub group: u32,
    /// The baseline's index in the matrix.
    pub baseline: u32,
    /// The cell's index in the matrix.
    pub cell: u32,
    /// What is concluded from the tail.
    pub conclusion: Conclusion,
    /// Which percentile stands for the tail: that of the cell with fewer requests.
    pub tail: Tail,
    /// The ratio of the tails; `None` where the state of a cell forbids it.
    pub tail_ratio: Option<RatioInterval>,
    /// The ratio of the medians, likewise.
    pub median_ratio: Option<RatioInterval>,
    /// What the medians alone would say: the usual request may differ where the slow ones do not.
    pub median_conclusion: Option<Conclusion>,
    /// Differences below this are not claimed.
    pub floor: Duration,
}

/// Compares the cells of one group with its baseline: the first HTTP/1.1 cell, or the first cell if there is none.
pub(super) fn compare(group: &[&CellSummary], seed: u64) -> Vec<Verdict> {
    let baseline = group.iter().find(|summary| !summary.cell.protocol.is_multiplexed()).or(group.first());
    let Some(&baseline) = baseline else { return Vec::new() };
    let others = group.iter().filter(|summary| summary.cell.index != baseline.cell.index);
    others.map(|candidate| one(baseline, candidate, seed)).collect()
}

fn one(baseline: &CellSummary, candidate: &CellSummary, seed: u64) -> Verdict {
    let tail = baseline.response.tail().min(candidate.response.tail());
    let floor = floor(baseline, candidate);
    let mut verdict = Verdict {
        group: candidate.cell.group,
        baseline: baseline.cell.index,
        cell: candidate.cell.index,
        conclusion: Conclusion::NoDifference,
        tail,
        tail_ratio: None,
        median_ratio: None,
        median_conclusion: None,
        floor,
    };
    match by_state(baseline, candidate) {
        Some(conclusion) => verdict.conclusion = conclusion,
        None => {
            let seed = seed.wrapping_add(u64::from(candidate.cell.index));
            let ratio = |share| bootstrap::ratio(share, &baseline.series, &candidate.series, seed);
            verdict.tail_ratio = ratio(tail.share());
            verdict.median_ratio = ratio(0.5);
            let conclude = |ratio: RatioInterval| conclude(&ratio, floor);
            verdict.conclusion = verdict.tail_ratio.map_or(Conclusion::NoDifference, conclude);
            verdict.median_conclusion = verdict.median_ratio.map(conclude);
        }
    }
    verdict
}

/// What the states alone decide: latencies are compared only between two cells that both carry the load.
fn by_state(baseline: &CellSummary, candidate: &CellSummary) -> Option<Conclusion> {
    use CellState::{Invalid, Ok, Unstable, Unsupported};
    match (&baseline.state, &candidate.state) {
        (Ok, Ok) => None,
        (Unsupported { .. }, _) | (_, Unsupported { .. }) => Some(Conclusion::Unsupported),
        (Invalid { .. }, _) | (_, Invalid { .. }) => Some(Conclusion::Invalid),
        (Unstable { .. }, Unstable { .. }) => Some(Conclusion::BothUnstable),
        (Ok, &Unstable { offered_rps, served_rps, .. }) => Some(Conclusion::Unstable { offered_rps, served_rps }),
        (&Unstable { offered_rps, served_rps, .. }, Ok) => {
            Some(Conclusion::BaselineUnstable { offered_rps, served_rps })
        }
    }
}

fn floor(baseline: &CellSummary, candidate: &CellSummary) -> Duration {
    let lateness = |summary: &CellSummary| {
        let link = summary.link.as_ref().map_or(Duration::ZERO, |link| link.late_p99);
        summary.generator.lateness.quantile(0.99) + link
    };
    FLOOR.max(lateness(baseline).max(lateness(candidate)) * LATENESS_FACTOR)
}

/// What a ratio's interval allows to claim.
fn conclude(ratio: &RatioInterval, floor: Duration) -> Conclusion {
    let worth_a_word = (ratio.ratio - 1.0).abs() >= EFFECT && ratio.candidate.abs_diff(ratio.baseline) >= floor;
    match ratio.is_clear_of_one() && worth_a_word {
        true if ratio.ratio < 1.0 => Conclusion::Faster,
        true => Conclusion::Slower,
        false => Conclusion::NoDifference,
    }
}
