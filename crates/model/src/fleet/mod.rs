//! Bulk transfers among several machines, without I/O: who fetches from whom, the messages of their agents, when one
//! of them is given up, and the result.
//!
//! An *agent* runs on one machine, receives [`ToAgent`] and sends [`FromAgent`]; the role (`h2lab_roles::fleet`) transports these
//! values. The [`Coordinator`] executes a [`FleetPlan`] with them: messages and the time go in, messages come out, and the result
//! is a [`FleetRecord`].

pub mod coordinator;
pub mod figures;
pub mod job;
pub mod messages;
pub mod offset;
pub mod plan;
pub mod reach;
pub mod record;
pub mod summary;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use coordinator::{Coordinator, Stage};
pub use figures::{Ending, PairFigures, ServerFigures};
pub use job::{FleetJob, FleetTimeouts, Server, ServerPlace};
pub use messages::{AGENT_VERSION, FetchTask, FromAgent, MessageError, ServeTask, ToAgent};
pub use offset::{ClockOffset, RoundTrip};
pub use plan::{FleetPlan, FleetPlanError, Pair, Pairing};
pub use reach::{ClientIdentity, Reach, Trust};
pub use record::{AgentRecord, FleetRecord, PairEnd, PairRecord};
pub use summary::{FleetSummary, PairState, PairTally};
