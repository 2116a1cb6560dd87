//! The JSON document of `load --json`: the one cell's fields at the top, and the run's.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CellDocument;
use super::build::cell;
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
    }
}
