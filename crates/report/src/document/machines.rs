//! The machines of a run whose comparisons agents made, and what each found of the same comparison.

use h2lab_base::JsonSchema;
use h2lab_base::text::made_printable;
use serde::{Deserialize, Serialize};

use super::RatioDocument;
use super::round::rounded;
use super::runs::ratio;
use crate::{Report, machines};
use h2lab_analysis::stats::{OwnVerdict, Reproduction};

/// An agent's machine, and what it measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineDocument {
    /// The agent's name.
    pub agent: String,
    /// Kernel and machine.
    pub machine: String,
    /// What is equal of machines whose figures may be compared.
    pub likeness: String,
    /// The groups of comparable cells that it measured, or a part of.
    pub groups: Vec<u32>,
}

/// A comparison that several machines made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReproductionDocument {
    /// The cell's index in the matrix.
    pub cell: u32,
    /// The baseline's index in the matrix.
    pub baseline: u32,
    /// `reproduced`, `not-reproduced`, `undecided`, `no-verdict` (of none of the machines) or `unlike-machines`.
    pub agreement: String,
    /// The largest ratio of the tails divided by the smallest one; null with fewer than two, and of unlike machines.
    pub spread: Option<f64>,
    /// What each machine found; first the one whose figures are those of the run.
    pub found: Vec<OwnVerdictDocument>,
    /// All of it in a sentence.
    pub sentence: String,
}

/// What one machine found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnVerdictDocument {
    /// The agent's name.
    pub agent: String,
    /// Its verdict, by the names of [`super::VerdictDocument::verdict`].
    pub verdict: String,
    /// The ratio of the tails; null where a state forbids it.
    pub tail: Option<RatioDocument>,
}

/// The machines of a run, in the order of what they measured.
pub(super) fn machines_of(report: &Report<'_>) -> Vec<MachineDocument> {
    let mut all: Vec<MachineDocument> = Vec::new();
    for compared in report.analysis.compared_on() {
        for machine in compared.machines {
            let [agent, kind, likeness] = [&machine.agent, &machine.machine, &machine.likeness]
                .map(|text| made_printable(text).into_owned());
            let is_same = |known: &&mut MachineDocument| {
                (&known.agent, &known.machine, &known.likeness) == (&agent, &kind, &likeness)
            };
            match all.iter_mut().find(is_same) {
                Some(known) => known.groups.push(compared.group),
                None => {
                    all.push(MachineDocument {
                        agent,
                        machine: kind,
                        likeness,
                        groups: vec![compared.group],
                    });
                }
            }
        }
    }
    all
}

/// The comparisons that several machines made.
pub(super) fn reproductions(report: &Report<'_>) -> Vec<ReproductionDocument> {
    let found = |one: &OwnVerdict| OwnVerdictDocument {
        agent: made_printable(&one.machine.agent).into_owned(),
        verdict: one.verdict.conclusion.name().to_owned(),
        tail: one.verdict.tail_ratio.as_ref().map(ratio),
    };
    let document = |one: &Reproduction| ReproductionDocument {
        cell: one.cell,
        baseline: one.baseline,
        agreement: one.agreement.name().to_owned(),
        spread: one.spread.map(rounded),
        found: one.found.iter().map(found).collect(),
        sentence: machines::reproduction(report, one),
    };
    report.analysis.reproductions.iter().map(document).collect()
}
