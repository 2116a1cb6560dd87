//! The machine's half of the emulated link: namespaces, devices, the packet pump, and what this machine allows.
//!
//! One mechanism serves root and plain user. A process calls [`enter`] before it starts threads, makes [`Namespaces`]
//! around itself, starts programs in them with [`Namespaces::command`], and carries the packets between them with a
//! [`Pump`]. What happens to a packet is decided by [`h2lab_core::link`]; here it is only carried out.
//!
//! `sch_netem` was rejected: it is not in every kernel, draws from a generator that cannot be seeded, does not say what it
//! dropped, and needs a root of its own. TUN devices were rejected as the main way: `/dev/net/tun` is root's on some
//! machines, and each packet costs two system calls.

mod congestion;
pub mod doctor;
mod enter;
mod error;
mod ledger;
mod namespaces;
mod netlink;
mod pump;
mod remedy;
mod ring;
pub mod sched;
mod sys;
mod sysctl;

pub use congestion::{Congestion, available as available_congestion};
pub use enter::{Entered, enter};
pub use error::{Step, TopologyError};
pub use namespaces::{MTU, Namespaces, Side, TopologySpec};
pub use pump::{LinkResult, Pump, PumpOptions};
