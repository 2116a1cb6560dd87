//! The record of a fleet: the only source of its report. Times are those of the driver's clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ClockOffset, Pair, PairFigures, ServerFigures};
use crate::bulk::{ByteMeter, TransferDirection};
use crate::workload::{EngineSettings, Protocol};
use h2lab_base::secrets::without_secrets;
use h2lab_base::units::Time;
use h2lab_transfer::Sizes;

/// An agent, or a server that ran already.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentRecord {
    /// What it is called.
    pub name: String,
    /// Where it serves; `None` for a client, and for a server that never did.
    pub url: Option<String>,
    /// Kernel and machine; `None` for a server that ran already, and for an agent that never reported it.
    pub machine: Option<String>,
    /// Version of h2lab, likewise.
    pub version: Option<String>,
    /// How its clock was related to the driver's; `None` if that was not measured.
    pub offset: Option<ClockOffset>,
    /// The cost of serving; `None` for a client, for a server that ran already, and if it was not reported.
    pub served: Option<ServerFigures>,
    /// Why it was lost; `None` if it was not.
    pub lost: Option<String>,
}

impl AgentRecord {
    /// An agent of which only its name is known.
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            url: None,
            machine: None,
            version: None,
            offset: None,
            served: None,
            lost: None,
        }
    }
}

/// How a pair ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PairEnd {
    /// Its client reported the result.
    Reported(Box<PairFigures>),
    /// Its client could fetch nothing at all.
    Failed {
        /// Why.
        why: String,
    },
    /// No result: an agent died, or fell silent.
    Lost {
        /// How that was detected.
        why: String,
    },
}

/// A pair and its result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairRecord {
    /// As it was planned.
    pub pair: Pair,
    /// How it ended.
    pub end: PairEnd,
    /// Bytes over time. For a lost pair, as last reported by its client.
    pub meter: ByteMeter,
    /// How long after the common start it was begun, by its client's own clock; `None` if that is not known.
    pub late: Option<Duration>,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetAsked {
    /// Which way the bytes went.
    #[serde(default)]
    pub direction: TransferDirection,
    /// Transfers at a time of each client.
    pub concurrency: u32,
    /// For how long.
    pub duration: Duration,
    /// How long results could take after that.
    pub grace: Duration,
    /// How much was asked for, or sent, at a time.
    pub sizes: Sizes,
    /// Settings of the engines that were set explicitly.
    pub engine: EngineSettings,
    /// Congestion control; `None` left it to the systems.
    pub congestion: Option<String>,
}

/// A run of `bulk drive`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetRecord {
    /// [`crate::bulk::record::RECORD_VERSION`].
    pub schema: u32,
    /// Version of h2lab.
    pub version: String,
    /// The command line, as given.
    pub command: Vec<String>,
    /// When it began, UTC, RFC 3339.
    pub started: String,
    /// Kernel and machine of the driver.
    pub machine: String,
    /// The seed of everything random.
    pub seed: u64,
    /// The protocol.
    pub protocol: Protocol,
    /// What was asked for.
    pub asked: FleetAsked,
    /// The clients.
    pub clients: Vec<AgentRecord>,
    /// The servers.
    pub servers: Vec<AgentRecord>,
    /// Each pair of the plan, in its order.
    pub pairs: Vec<PairRecord>,
    /// The instant at which all were to begin; [`Time::NEVER`] if they never began.
    pub start_at: Time,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// Doubts about the result, in sentences.
    pub warnings: Vec<String>,
}

impl FleetRecord {
    /// The record without the values of queries in URLs, which may be secrets.
    #[must_use]
    pub fn without_secrets(mut self) -> Self {
        let hide = |text: &mut String| *text = without_secrets(text).into_owned();
        for agent in self.clients.iter_mut().chain(&mut self.servers) {
            hide(&mut agent.name);
            agent.url.iter_mut().chain(&mut agent.lost).for_each(hide);
        }
        for pair in &mut self.pairs {
            if let PairEnd::Failed { why } | PairEnd::Lost { why } = &mut pair.end {
                hide(why);
            }
        }
        self.warnings.iter_mut().for_each(hide);
        self
    }
}
