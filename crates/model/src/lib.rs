//! The inputs and records of h2lab: workload, scenario and its plan of cells, records of runs and transfers, timelines,
//! checks of a probe, messages of a fleet. Values and their rules; [`record`] is all that crosses from a run to a report.
//!
//! Never contains: statistics of cells, verdicts on speed, findings, layout of reports, I/O, a clock.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod bulk;
mod confidence;
pub mod experiment;
mod fix;
pub mod fleet;
pub mod foreign;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod probe;
pub mod record;
pub mod scenario;
pub mod settings;
pub mod sidecar;
pub mod timeline;
pub mod workload;

pub use confidence::Confidence;
pub use fix::Fix;
