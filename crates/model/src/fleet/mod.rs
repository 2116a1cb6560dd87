//! Work by several machines, without I/O: messages between drivers and agents, division of the work, lost agents, results.
//!
//! An *agent* runs on one machine, receives [`ToAgent`] and sends [`FromAgent`]; the role (`h2lab_roles::fleet`) transports these
//! values, over a network that may lose them in a [`Session`]. Messages and the time go into a coordinator, messages come out: the
//! [`Coordinator`] executes a [`FleetPlan`] of bulk transfers, whose result is a [`FleetRecord`]; the [`LoadCoordinator`] makes a
//! load of shares, whose result is a [`LoadOutcome`]. The cells of a run wait in a queue instead, as [`Unit`]s.

mod agent_set;
pub mod allow;
pub mod card;
pub mod coordinator;
pub mod figures;
pub mod job;
pub mod load_coordinator;
pub mod load_job;
#[cfg(test)]
mod many;
pub mod messages;
pub mod offset;
pub mod plan;
pub mod queue;
pub mod reach;
pub mod record;
pub mod session;
pub mod subjects;
pub mod summary;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use agent_set::{Decider, Stage};
pub use allow::{AgentLimits, AllowEntry, AllowList, Demand, LoadRequest, Permissions, Refusal};
pub use card::AgentCard;
pub use coordinator::Coordinator;
pub use figures::{Ending, PairFigures, ServerFigures};
pub use job::{FleetJob, FleetTimeouts, Server, ServerPlace};
pub use load_coordinator::LoadCoordinator;
pub use load_job::{LoadJob, LoadOutcome, ShareEnd, ShareRecord};
pub use messages::{
    AGENT_VERSION, FetchTask, FromAgent, LoadTask, LoadTaskError, MessageError, PartReport, ServeTask,
    ShareProgress, ToAgent,
};
pub use offset::{ClockOffset, RoundTrip};
pub use plan::{FleetPlan, FleetPlanError, Pair, Pairing};
pub use queue::{Class, Needs, QueueError, RunInfo, Unit, UnitPart, UnitReport, UnitTask, UnmetNeeds};
pub use reach::{ClientIdentity, Reach, Trust};
pub use record::{AgentRecord, FleetRecord, PairEnd, PairRecord};
pub use session::{Session, SessionError};
pub use subjects::{AgentName, RandomId};
pub use summary::{FleetSummary, PairState, PairTally};
