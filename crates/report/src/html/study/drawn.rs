//! What all pictures of a study are drawn from, and what they are put into.

use serde::Serialize;

use super::super::ways::Ways;
use crate::Report;
use crate::study::{self, ConditionLabel};
use h2lab_analysis::stats::CellSummary;
use h2lab_analysis::stats::study::Study;

/// A picture with its name.
#[derive(Serialize)]
pub(super) struct Panel {
    pub name: String,
    pub picture: String,
}

/// The figures of one kind of a study.
#[derive(Serialize)]
pub(super) struct Panels {
    /// How they are read.
    pub key: String,
    pub panels: Vec<Panel>,
}

/// The pictures of one condition.
#[derive(Serialize)]
pub(super) struct Scatters {
    pub heading: String,
    /// The colours of the protocols: class and name.
    pub protocols: Vec<(String, &'static str)>,
    pub configurations: Vec<Panel>,
    pub overlays: Vec<Panel>,
}

/// A study with what its pictures need.
pub(super) struct Drawn<'a> {
    pub report: &'a Report<'a>,
    pub study: &'a Study,
    pub ways: &'a Ways,
    /// The names of the conditions.
    pub conditions: Vec<ConditionLabel>,
}

/// A configuration's cell under a condition, with the configuration's name.
pub(super) struct Named<'a> {
    pub name: String,
    pub summary: &'a CellSummary,
}

impl<'a> Drawn<'a> {
    /// The cells under a condition, in the order of the configurations.
    pub fn cells(&self, condition: usize) -> Vec<Named<'a>> {
        let named = |configuration: &h2lab_analysis::stats::study::Configuration| {
            let summary = self.report.analysis.cell((*configuration.cells.get(condition)?)?)?;
            Some(Named { name: study::configuration(self.report, configuration), summary })
        };
        self.study.configurations.iter().filter_map(named).collect()
    }

    /// The cells with the fewest connections of their parties and protocol: the topologies themselves.
    pub fn topologies(&self, condition: usize) -> Vec<Named<'a>> {
        let mut cells = self.cells(condition);
        let key = |summary: &CellSummary| (summary.cell.parties(), summary.cell.protocol, summary.cell.twin);
        let mut least: Vec<(String, _, _, u32)> = Vec::new();
        for Named { summary, .. } in &cells {
            let ((parties, protocol, twin), n) = (key(summary), summary.cell.connections);
            match least.iter_mut().find(|(p, q, t, _)| (p, *q, *t) == (&parties, protocol, twin)) {
                Some((.., fewest)) => *fewest = n.min(*fewest),
                None => least.push((parties, protocol, twin, n)),
            }
        }
        cells.retain(|Named { summary, .. }| {
            let (parties, protocol, twin) = key(summary);
            least.contains(&(parties, protocol, twin, summary.cell.connections))
        });
        cells
    }
}
