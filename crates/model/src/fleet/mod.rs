//! Bulk transfers among several machines, without I/O: who fetches from whom, what their agents are told and tell, when one
//! of them is given up, and what all of it comes to.
//!
//! An *agent* does on one machine what it is told by [`ToAgent`] and tells [`FromAgent`]; how these values travel is a matter
//! of the role (`h2lab_roles::fleet`). The [`Coordinator`] makes a [`FleetPlan`] come true with them: messages and the time go
//! in, messages come out, and in the end there is a [`FleetRecord`].

pub mod coordinator;
pub mod figures;
pub mod job;
pub mod messages;
pub mod offset;
pub mod plan;
pub mod record;
pub mod summary;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use coordinator::{Coordinator, Stage};
pub use figures::{Ending, PairFigures, ServerFigures};
pub use job::{FleetJob, FleetTimeouts, Server, ServerPlace};
pub use messages::{AGENT_VERSION, FetchTask, FromAgent, MessageError, ServeTask, ToAgent, Trust};
pub use offset::{ClockOffset, RoundTrip};
pub use plan::{FleetPlan, FleetPlanError, Pair, Pairing};
pub use record::{AgentRecord, FleetRecord, PairEnd, PairRecord};
pub use summary::{FleetSummary, PairState, PairTally};
