//! A load that several agents make together: who makes which share, and what became of each.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{AgentRecord, FleetTimeouts, LoadTask, PartReport, ShareProgress};
use crate::workload::Share;
use h2lab_base::units::Time;

/// The whole job.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadJob {
    /// Names of the agents, 1 to [`Share::MOST`]; each makes one share, in this order.
    pub agents: Vec<String>,
    /// The load. Its share is set for each agent.
    pub task: LoadTask,
    /// How long the load takes: warm-up, measured time and drain.
    pub duration: Duration,
    /// Timeouts. The grace includes the time in which agents store what they measured.
    pub waits: FleetTimeouts,
}

impl LoadJob {
    /// Which share the agent at `place` makes.
    pub(super) fn share(&self, place: usize) -> Share {
        Share { number: place as u32, of: self.agents.len() as u32 }
    }

    /// Its task.
    pub(super) fn task(&self, place: usize) -> LoadTask {
        LoadTask { share: self.share(place), ..self.task.clone() }
    }
}

/// How a share ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShareEnd {
    /// Its records are stored, and can be fetched.
    Reported(Box<PartReport>),
    /// Its agent refused it, or could not prepare it: no request of it was sent.
    Failed {
        /// Why.
        why: String,
    },
    /// There are no records of it: its agent died, fell silent, or could not store them.
    Lost {
        /// How that was detected.
        why: String,
        /// What its agent reported last, if it reported anything: this much of the load was really offered.
        progress: Option<Box<ShareProgress>>,
    },
}

/// A share and what became of it. Times are those of the driver's clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShareRecord {
    /// Its agent.
    pub agent: AgentRecord,
    /// Which share it is.
    pub share: Share,
    /// How it ended.
    pub end: ShareEnd,
    /// How late its first request was sent: the time from the common instant to the beginning of its schedule, and from when that
    /// request was due until it was sent. `None` if that was not reported.
    pub late: Option<Duration>,
}

/// What became of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadOutcome {
    /// The instant at which all were to begin; [`Time::NEVER`] if they never began.
    pub start_at: Time,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// Each share, in the order of agents.
    pub shares: Vec<ShareRecord>,
}
