//! The JSON document of `load --json`: the one cell's fields at the top, and the run's.

use h2lab_analysis::stats::{ShareState, ShareTotals};
use h2lab_base::JsonSchema;
use h2lab_model::record::agents::ShareSummary;
use serde::{Deserialize, Serialize};

use super::CellDocument;
use super::build::cell;
use super::round::micros;
use crate::{Report, answer};

/// The document of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadDocument {
    /// The cell, as in `compare --json`.
    #[serde(flatten)]
    pub cell: CellDocument,
    /// The command line, as given.
    pub command: Vec<String>,
    /// When it began, UTC, RFC 3339.
    pub started: String,
    /// Kernel and machine.
    pub machine: String,
    /// Where the run folder is; null if it was not kept.
    pub run_folder: Option<String>,
    /// Where the HTML report is; null if none was written.
    pub report: Option<String>,
    /// The answer, in one to three sentences.
    #[serde(default)]
    pub answer: String,
    /// Whether it was interrupted before its end.
    pub interrupted: bool,
    /// The agents that made the load; absent if this process made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<SharesDocument>,
}

/// The agents that made a load together. The figures of the load are those of the shares that are not lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SharesDocument {
    /// Shares into which the load was divided.
    pub all: u64,
    /// Shares that began more than 1 ms and their clock's error after the common instant.
    pub late: u64,
    /// Shares whose figures are missing.
    pub lost: u64,
    /// Requests that were due in the measured time at the agents whose shares are not lost.
    pub offered: u64,
    /// How many the whole load would have had in that time; null in closed loop, which offers what is answered.
    pub asked: Option<u64>,
    /// Between the first and the last share to begin, on the driver's clock; null if fewer than two are known to have begun.
    pub started_within_us: Option<f64>,
    /// The largest error of an agent's clock; null if no clock was compared.
    pub clock_error_us: Option<f64>,
    /// Each share, by number.
    pub shares: Vec<ShareDocument>,
}

/// One agent's share of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShareDocument {
    /// `whole`, `late` or `lost`.
    pub state: String,
    /// Its figures.
    #[serde(flatten)]
    pub share: ShareSummary,
}

/// The agents of a load, if it had any.
fn shares(report: &Report<'_>) -> Option<SharesDocument> {
    let repetition = report.run.repetitions.iter().find(|repetition| !repetition.agents.is_empty())?;
    let totals = ShareTotals::of(repetition)?;
    let share = |share: &ShareSummary| ShareDocument {
        state: ShareState::of(share).name().to_owned(),
        share: share.clone(),
    };
    Some(SharesDocument {
        all: totals.all,
        late: totals.late,
        lost: totals.lost,
        offered: totals.offered,
        asked: totals.asked,
        started_within_us: totals.skew.map(micros),
        clock_error_us: totals.clock_error.map(micros),
        shares: repetition.agents.iter().map(share).collect(),
    })
}

/// The document of a run that is a load: it has one cell.
///
/// # Panics
///
/// If the run has no repetition.
pub fn load_document(report: &Report<'_>) -> LoadDocument {
    let summary = report.analysis.cells.first().expect("a load has one cell");
    let run = report.run;
    let mut cell = cell(report, summary);
    cell.warnings = [report.analysis.warnings.clone(), cell.warnings].concat();
    LoadDocument {
        cell,
        command: run.command.clone(),
        started: run.started.clone(),
        machine: run.machine.clone(),
        run_folder: report.folder.map(str::to_owned),
        report: report.page.map(str::to_owned),
        answer: answer::line(report),
        interrupted: run.interrupted,
        agents: shares(report),
    }
}
