//! Work of several machines: agents that transfer, serve and load, what carries their messages, and the driver.
//!
//! Decisions are made by [`h2lab_model::fleet`]. Here an [`agent`] does what its messages order, an [`agent_transport`] carries
//! them to one in this process or in another one (in a network namespace of this machine, or behind ssh), where [`stdio`] reads
//! and writes them, and [`drive`] connects agent transports and a coordinator. Agents that run already are reached by packets, over
//! NATS above all, which this crate does not know: [`session_transport`] is the driver's end, [`service`] the agent's.

pub mod agent;
pub mod agent_transport;
mod drive;
pub mod event;
mod fetch;
mod occupancy;
pub mod permits;
mod serve;
pub mod service;
pub mod session_transport;
pub mod shares;
pub mod stdio;

pub use agent_transport::TransportKind;
pub use drive::{DriveError, drive, drive_load};
pub use occupancy::{Occupied, Reservation};
