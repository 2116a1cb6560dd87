//! Executes a plan, repetition by repetition, in child processes, and keeps what was measured.
//!
//! Read [`execute`] first: the parent. [`lab`] is the child that makes a repetition behind the emulated link, [`generator`]
//! its child that makes the load. [`commands`] runs programs of the user's in a lab instead. With the feature `nats`, `agent` is
//! what agents on other machines do, and `remote` a run whose cells they measure.

#[cfg(feature = "nats")]
pub mod agent;
mod bulk;
pub mod capture;
pub mod child;
mod client_command;
pub mod commands;
pub mod execute;
#[cfg(feature = "nats")]
pub mod fleet;
pub mod folder;
pub mod generator;
pub mod history;
pub mod keys;
pub mod lab;
pub mod messages;
#[cfg(feature = "nats")]
pub mod part;
mod pcap;
mod placement;
pub mod preflight;
#[cfg(feature = "nats")]
pub mod remote;
mod server_watch;
pub mod spec;
pub mod store;
