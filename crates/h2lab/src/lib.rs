//! The shell of h2lab: sockets, namespaces, processes, the run folder, the command line.
//!
//! A thin library under the `h2lab` binary, so that tests and `xtask` reach its parts. See `ARCHITECTURE.md`.

pub mod run;
