//! The parts of h2lab: client, origin, load generator, bulk transfer, agent of a fleet, probe, timeline, sidecar. Each
//! is a loop over the reactor that drives the engines of `h2lab_wire` and produces a record.
//!
//! This crate contains no statistics or verdicts of measured cells; the checks of a probe are decided here. What a role
//! needs for its decisions is passed to it as a value.

mod accepted;
pub mod bulk;
pub mod client;
mod date;
pub mod fleet;
mod heartbeat;
pub mod load;
pub mod origin;
pub mod probe;
pub mod sidecar;
pub mod timeline;
