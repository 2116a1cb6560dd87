//! The command line of h2lab, and a run of a plan: cell by cell, into a run folder.
//!
//! A thin library under the `h2lab` binary, so that tests and `xtask` reach its parts. See `ARCHITECTURE.md`.
//! Never contains: a protocol, a rule, a statistic.

#![deny(clippy::print_stderr, reason = "it panics where stderr takes nothing; use say!")]

// Before the modules that use its macro.
#[macro_use]
mod stderr;
mod terminal;
mod text_writer;

pub mod cli;
pub mod run;
