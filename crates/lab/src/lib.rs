//! The emulated network and the servers in it: namespaces, devices, the packet pump ([`topology`]), and real servers under test
//! with their configurations ([`sut`]).
//!
//! Never contains: a client, HTTP, statistics.

pub mod sut;
pub mod topology;
