//! The machines of a run whose comparisons agents made, and what each found of the same comparison.

use h2lab_base::JsonSchema;
use h2lab_base::text::made_printable;
use serde::{Deserialize, Serialize};

use super::RatioDocument;
use super::round::rounded;
use super::runs::ratio;
use crate::{Report, machines};
use h2lab_analysis::stats::{OwnVerdict, Reproduction};

/// An agent with its machine, and what it measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineDocument {
    /// The agent's name.
    pub agent: String,
    /// Kernel and machine.
    pub machine: String,
    /// What is equal of machines whose figures may be compared.
    pub likeness: String,
    /// The boot ID of the machine's kernel: agents that have one in common ran on one machine. Empty if it is not known.
    #[serde(default)]
    pub host: String,
    /// The groups of comparable cells that it measured, or a part of.
    pub groups: Vec<u32>,
    /// The groups that it measured once more, after another agent: what it found is in `reproductions`.
    #[serde(default)]
    pub measured_again: Vec<u32>,
}

/// A comparison that several agents made, each by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReproductionDocument {
    /// The cell's index in the matrix.
    pub cell: u32,
    /// The baseline's index in the matrix.
    pub baseline: u32,
    /// `reproduced`, `not-reproduced`, `undecided`, `no-verdict` (none of the agents has one), `unlike-machines` or
    /// `one-machine`: the agents ran on one machine, so that it is a repetition and no reproduction.
    pub agreement: String,
    /// The largest ratio of the tails divided by the smallest one; null with fewer than two, and of unlike machines.
    pub spread: Option<f64>,
    /// What each agent found; first the one whose figures are those of the run.
    pub found: Vec<OwnVerdictDocument>,
    /// All of it in a sentence.
    pub sentence: String,
}

/// What one agent found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnVerdictDocument {
    /// The agent's name.
    pub agent: String,
    /// Its verdict, by the names of [`super::VerdictDocument::verdict`].
    pub verdict: String,
    /// The same in the word of `sentence`: of `no-difference` it is `same` or `undecided`.
    #[serde(default)]
    pub word: String,
    /// The ratio of the tails; null where a state forbids it.
    pub tail: Option<RatioDocument>,
}

/// The agents of a run with their machines, in the order of what they measured; at last those that only measured again.
pub(super) fn machines_of(report: &Report<'_>) -> Vec<MachineDocument> {
    let compared = report.analysis.compared_on();
    let document = |one: machines::Machine<'_>| {
        let [agent, machine, likeness] =
            [&one.on.agent, &one.on.machine, &one.on.likeness].map(|text| made_printable(text).into_owned());
        MachineDocument {
            agent,
            machine,
            likeness,
            host: one.on.host.as_str().to_owned(),
            groups: one.measured,
            measured_again: one.reproduced,
        }
    };
    machines::each(report, &compared).into_iter().map(document).collect()
}

/// The comparisons that several agents made.
pub(super) fn reproductions(report: &Report<'_>) -> Vec<ReproductionDocument> {
    let found = |one: &OwnVerdict| OwnVerdictDocument {
        agent: made_printable(&one.machine.agent).into_owned(),
        verdict: one.verdict.conclusion.name().to_owned(),
        word: machines::word(&one.verdict).to_owned(),
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
