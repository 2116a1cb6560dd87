//! The analysis of records: statistics and verdicts, facts and rules, what slow requests waited for, what limited a transfer.
//!
//! Everything is computed from [`h2lab_model::record`], so that a report can be made again from a run folder.
//! Never contains: I/O, a clock, tables, pages; a conclusion is a sentence.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod bulk;
pub mod diagnose;
pub mod experiment;
pub mod fleet;
pub mod stats;
