//! The study's part of the document.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RatioDocument;
use super::round::rounded;
use super::runs::ratio;
use crate::{Report, study};
use h2lab_analysis::stats::study::{Needed, Study};
use h2lab_model::scenario::Topology;
use h2lab_model::workload::Protocol;

/// Every configuration beside every other, under every condition: of a scenario that says `study = true`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StudyDocument {
    /// The conditions, in the order of the matrix.
    pub conditions: Vec<ConditionDocument>,
    /// The configurations, in the order in which they come first.
    pub configurations: Vec<ConfigurationDocument>,
    /// How many connections HTTP/2 or HTTP/3 needs so that its tail is no slower than that of HTTP/1.1.
    pub needed: Vec<NeededDocument>,
    /// The ramps of each cell whose requests were all kept.
    pub ramps: Vec<RampsDocument>,
}

/// What cells share, whoever takes part in them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConditionDocument {
    /// In words: `RTT 25ms, 3% loss`, and what else differs between conditions.
    pub name: String,
    /// Both one-way delays together.
    pub rtt_ms: f64,
    /// Share of packets lost by chance, 0 to 1; the worse direction.
    pub loss: f64,
    /// Connections that the PFTK model says the work needs in HTTP/2; null where it does not cover the work.
    pub predicted_connections: Option<u32>,
}

/// Parties, a protocol and a number of connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigurationDocument {
    /// In words: `two envoys, h2c × 1`.
    pub name: String,
    /// Who takes part behind the generator, as in `needed`.
    pub parties: String,
    /// Where sidecars stand.
    pub topology: Topology,
    /// The sidecar's program; null without one.
    pub sidecar: Option<String>,
    /// The protocol over the link.
    pub protocol: Protocol,
    /// The index of its cell in each condition, in their order; null where there is none.
    pub cells: Vec<Option<u32>>,
}

/// Connections that one protocol needs between the same parties under one condition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NeededDocument {
    /// The place of the condition.
    pub condition: usize,
    /// In words: `two envoys, h2c`.
    pub name: String,
    /// Who takes part behind the generator: `parties` of the configurations that it is about.
    pub parties: String,
    /// The protocol.
    pub protocol: Protocol,
    /// The least number of those tried that is enough; null if none is, if that is not known, or a proxy decides by itself.
    pub connections: Option<u32>,
    /// The least number that was found to be enough, where that of a smaller one is undecided or was not measured soundly.
    pub at_most: Option<u32>,
    /// The most that was tried, where that was not enough.
    pub more_than: Option<u32>,
    /// Where a proxy decides by itself: the connections that it held in a repetition.
    pub held: Option<f64>,
    /// Whether what was tried or held last is enough; null if that is undecided, or was not measured soundly.
    pub matches: Option<bool>,
    /// The least number whose verdict is undecided, where no number that was tried is known to be enough; otherwise null.
    pub undecided: Option<u32>,
    /// Its tail compared with that of HTTP/1.1; null without `undecided`, and if too few requests were measured.
    pub undecided_tail: Option<RatioDocument>,
}

/// The ramps of a cell: requests that were sent one after the other and answered together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RampsDocument {
    /// The cell's index in the matrix.
    pub cell: u32,
    /// Delayed requests: they take more than twice as long as the quickest twentieth of their repetition, and by more than 10 ms.
    /// Not those whose tail or causes are reported.
    pub slow: u64,
    /// Those of them that lie on a ramp.
    pub slow_on_ramps: u64,
    /// Ramps.
    pub ramps: u64,
    /// The share of the delayed requests that lie on ramps, 0 to 1; null if none is delayed.
    pub share: Option<f64>,
}

/// The study of a run, if its scenario asks for one.
pub(super) fn document(report: &Report<'_>) -> Option<StudyDocument> {
    let found = study::of(report)?;
    let names = study::conditions(report, &found);
    let conditions =
        found.conditions.iter().zip(&names).map(|(condition, condition_label)| ConditionDocument {
            name: condition_label.line(),
            rtt_ms: rounded(h2lab_base::units::millis_f64(condition.rtt)),
            loss: condition.loss,
            predicted_connections: condition.predicted,
        });
    let ramps = found.ramps.iter().map(|(cell, ramps)| RampsDocument {
        cell: *cell,
        slow: ramps.delayed,
        slow_on_ramps: ramps.delayed_on_ramps,
        ramps: ramps.ramps,
        share: ramps.share().map(rounded),
    });
    Some(StudyDocument {
        conditions: conditions.collect(),
        configurations: configurations(report, &found),
        needed: needed(report, &found),
        ramps: ramps.collect(),
    })
}

fn configurations(report: &Report<'_>, found: &Study) -> Vec<ConfigurationDocument> {
    let configuration = |configuration: &h2lab_analysis::stats::study::Configuration| {
        let cell = &configuration.cells.iter().flatten().find_map(|index| report.analysis.cell(*index))?.cell;
        Some(ConfigurationDocument {
            name: study::configuration(report, configuration),
            parties: configuration.parties.clone(),
            topology: cell.topology(),
            sidecar: cell.sidecar.as_ref().map(|sidecar| sidecar.name.clone()),
            protocol: cell.protocol,
            cells: configuration.cells.clone(),
        })
    };
    found.configurations.iter().filter_map(configuration).collect()
}

fn needed(report: &Report<'_>, found: &Study) -> Vec<NeededDocument> {
    let of = |need: &h2lab_analysis::stats::study::Need| -> Vec<NeededDocument> {
        let one = |(condition, one): (usize, &Needed)| {
            let unknown = NeededDocument {
                condition,
                name: study::need(report, found, need),
                parties: need.parties.clone(),
                protocol: need.protocol,
                connections: None,
                at_most: None,
                more_than: None,
                held: None,
                matches: None,
                undecided: None,
                undecided_tail: None,
            };
            match *one {
                Needed::Connections(n) => {
                    NeededDocument { connections: Some(n), matches: Some(true), ..unknown }
                }
                Needed::AtMost(n) => NeededDocument { at_most: Some(n), matches: Some(true), ..unknown },
                Needed::MoreThan(n) => NeededDocument { more_than: Some(n), matches: Some(false), ..unknown },
                Needed::CameOut { held, matches } => {
                    NeededDocument { held: Some(rounded(held)), matches, ..unknown }
                }
                Needed::Undecided { connections, tail } => NeededDocument {
                    undecided: Some(connections),
                    undecided_tail: tail.as_ref().map(ratio),
                    ..unknown
                },
                Needed::Unknown => unknown,
            }
        };
        need.found.iter().enumerate().map(one).collect()
    };
    found.needs.iter().flat_map(of).collect()
}
