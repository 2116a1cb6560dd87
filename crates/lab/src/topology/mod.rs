//! The machine's part of the emulated link: namespaces, devices, the packet pump, and what this machine allows.
//!
//! One mechanism serves root and plain user: [`Mechanism`]. Which privileges a machine grants is its [`IsolationLevel`]. A
//! process calls [`enter`] before it starts threads, makes [`Namespaces`] around itself, starts programs in them with
//! [`Namespaces::command`], and carries the packets between them with a [`Pump`]. [`h2lab_link`] decides what happens to a
//! packet; here it is only carried out.
//!
//! `sch_netem` was rejected: it is not in every kernel, its random generator cannot be seeded, it does not report what it
//! dropped, and it needs a root of its own. TUN devices were rejected as the main mechanism: on some machines only root may open
//! `/dev/net/tun`, and they do not timestamp packets.

mod address;
mod capability_check;
mod capture_buffer;
mod congestion;
mod create;
mod device;
pub mod doctor;
mod enter;
mod error;
mod interrupts;
mod namespaces;
mod netlink;
mod netns_handle;
mod packet_batch;
mod packet_log;
mod port;
mod pump;
mod received;
mod remedy;
mod ring;
pub mod sched;
mod setup_step;
mod side;
mod spec;
mod subreaper;
mod supervisor;
mod sys;
mod sysctl;
mod tun;
mod user_commands;
mod veth;
mod vnet;

pub use address::Addressing;
pub use capture_buffer::{CaptureBuffer, CapturedPackets, Intake, Kept};
pub use congestion::{CongestionReadBack, available as available_congestion};
pub use device::MTU;
pub use enter::{EnteredNamespaces, IsolationLevel, Outside, enter, enter_beside};
pub use error::TopologyError;
pub use interrupts::Interrupts;
pub use namespaces::Namespaces;
pub use pump::{LinkResult, Pump, PumpOptions};
pub use setup_step::SetupStep;
pub use side::Side;
pub use spec::{Mechanism, TopologySpec};
pub use sysctl::{present as present_sysctls, try_all as try_sysctls};
pub use user_commands::{keep_network_rights, name_ends};
