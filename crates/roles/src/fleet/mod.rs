//! Bulk transfers among several machines: agents that fetch and serve, what carries their messages, and the driver.
//!
//! What is decided is decided by [`h2lab_model::fleet`]. Here an [`agent`] does what its messages say, a [`carrier`]
//! brings them to one in this process or in another one (in a network namespace of this machine, or behind ssh), where
//! [`stdio`] reads and writes them, and [`drive`] stands between carriers and the conductor.

pub mod agent;
pub mod carrier;
mod drive;
pub mod event;
mod fetch;
mod serve;
pub mod stdio;

pub use carrier::Way;
pub use drive::{DriveError, drive};
