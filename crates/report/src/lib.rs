//! Reports for people and programs: text, JSON, CSV, Markdown, self-contained HTML. All from the same summaries.
//!
//! A report is of one run or of several, one after the other; [`Diff`] compares two.
//!
//! Never contains: I/O, a clock, a decision: conclusions are drawn in `h2lab_analysis`.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod agents_text;
mod answer;
mod bulk_cells;
mod bulk_interchange;
mod bulk_text;
mod causes;
mod condition;
mod csv;
mod diagnosis;
mod diff;
pub mod document;
mod factors;
mod fleet_text;
mod fold;
mod format;
pub mod hdr;
mod history;
mod html;
mod junit;
mod limit;
mod live;
mod load_text;
mod machines;
mod markdown;
mod matrix;
mod notes;
mod page;
mod pairs;
mod probe;
mod prose;
mod runs;
mod sarif;
mod sentences;
mod sidecar;
mod study;
mod style;
mod table;
#[cfg(test)]
mod testing;
mod text;
mod timeline;
mod vegeta;

pub use agents_text::agents_text;
pub use bulk_interchange::{bulk_junit, bulk_sarif, fleet_junit, fleet_sarif};
pub use bulk_text::bulk_text;
pub use causes::Explained;
pub use csv::csv;
pub use diagnosis::{
    CauseDocument, Diagnosis, DiagnosisDocument, FixDocument, Fixing, Said, SinceDocument, TrialDocument,
    UncheckedDocument, junit_of_findings, of_capture as diagnosis_of_capture,
    of_client as diagnosis_of_client, of_run as diagnosis_of_run, of_sidecar as diagnosis_of_sidecar,
    sarif_of_findings, since_document, since_text,
};
pub use diff::{Diff, DiffSide, PrintedError, PrintedRun};
pub use document::{
    AgentsDocument, BulkDocument, Document, FleetDocument, LoadDocument, NatsServerDocument, OpenRunDocument,
    RunsComparisonDocument, RunsDocument, TimelineAsked, TimelineDocument, agent_card_document,
    bulk_document, document, documents, fleet_document, load_document, timeline_document,
};
pub use fleet_text::{fleet_plan_text, fleet_text};
pub use format::{per_second, shell_line, without_flags};
pub use history::{PastCell, PastRun, history_text, past_run, resume_line};
pub use html::{
    bulk_page, diagnosis_page, findings_page, fleet_page, html, probe_page, sidecar_page, study_page,
    timeline_page, timeline_svg,
};
pub use live::repetition_figures;
pub use load_text::load_text;
pub use markdown::{markdown, markdown_of_findings};
pub use notes::failing;
pub use probe::{
    ProbeCauseDocument, ProbeDocument, junit, probe_document, probe_markdown, probe_text, sarif,
};
pub use prose::{hanging, prose};
pub use sentences::judged;
pub use sidecar::sidecar_metrics;
pub use style::{AnswerPlace, TextStyle};
pub use table::wrap;
pub use text::text;
pub use timeline::{study_text, timeline_text};
pub use vegeta::vegeta;

use h2lab_analysis::diagnose::Finding;
use h2lab_analysis::stats::Analysis;
use h2lab_model::record::{CellRecord, RunRecord};

/// What a report is about.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// The run.
    pub run: &'a RunRecord,
    /// Its figures.
    pub analysis: &'a Analysis,
    /// Its diagnosis, costliest first.
    pub findings: &'a [Finding],
    /// What slow requests waited for, of each repetition where that was analysed.
    pub causes: &'a [Explained],
    /// Where the run folder is, if it was kept.
    pub folder: Option<&'a str>,
    /// Where the HTML report is, if there is one.
    pub page: Option<&'a str>,
    /// What the conditions of `--fail-if` say, if the report includes them.
    pub conditions: &'a [Condition],
}

/// What a condition of `--fail-if` says of a cell, or of a pair of cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Whether it is true; `None` if there are too few requests to tell.
    pub is_true: Option<bool>,
    /// The condition, and the figures.
    pub said: String,
}

impl Report<'_> {
    /// Whether all of it was read out of packets of a client that is not ours.
    fn is_of_packets(&self) -> bool {
        let mut measured = self.run.repetitions.iter().filter(|one| one.unsupported.is_none()).peekable();
        measured.peek().is_some() && measured.all(CellRecord::is_of_packets)
    }

    /// The seed of its random choices; `None` of a capture, in which nothing was drawn.
    fn seed(&self) -> Option<u64> {
        let seed = self.run.seed;
        (seed != 0 || !self.is_of_packets()).then_some(seed)
    }

    /// What distinguishes the run from others: its folder, else when it began.
    fn name(&self) -> &str {
        self.folder.unwrap_or(&self.run.started)
    }

    /// The same in a few characters: the folder's own name.
    fn short_name(&self) -> &str {
        let name = self.name().trim_end_matches('/');
        name.rsplit('/').next().unwrap_or(name)
    }
}
