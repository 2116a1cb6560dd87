//! Bulk transfers among several machines: agents that fetch and serve, what carries their messages, and the driver.
//!
//! Decisions are made by [`h2lab_model::fleet`]. Here an [`agent`] does what its messages order, an [`agent_transport`] carries
//! them to one in this process or in another one (in a network namespace of this machine, or behind ssh), where [`stdio`] reads
//! and writes them, and [`drive`] connects agent transports and the coordinator.

pub mod agent;
pub mod agent_transport;
mod drive;
pub mod event;
mod fetch;
mod serve;
pub mod stdio;

pub use agent_transport::TransportKind;
pub use drive::{DriveError, drive};
