//! The machine of a repetition that an agent made.

use serde::{Deserialize, Serialize};

/// Who made a repetition, and on which machine. Repetitions that this machine made itself have none: their run says what it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MeasuredOn {
    /// The agent's name.
    pub agent: String,
    /// Kernel and machine, as the agent reports it.
    pub machine: String,
    /// What must be equal of two machines before their figures may be compared:
    /// [`AgentCard::likeness`](crate::fleet::AgentCard::likeness).
    pub likeness: String,
}
