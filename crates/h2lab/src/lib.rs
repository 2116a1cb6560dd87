//! The command line of h2lab, and a run of a plan: cell by cell, into a run folder.
//!
//! A thin library under the `h2lab` binary, so that tests and `xtask` reach its parts. See `ARCHITECTURE.md`.
//! Never contains: a protocol, a rule, a statistic.

pub mod cli;
pub mod run;
