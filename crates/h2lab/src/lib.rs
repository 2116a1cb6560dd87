//! The shell of h2lab: sockets, namespaces, processes, the run folder, the command line.
//!
//! A thin library under the `h2lab` binary, so that tests and `xtask` reach its parts. See `ARCHITECTURE.md`.

pub mod bulk;
pub mod cli;
pub mod client;
pub mod fleet;
pub mod io;
pub mod load;
pub mod origin;
pub mod probe;
pub mod run;
pub mod sut;
pub mod timeline;
pub mod topology;
