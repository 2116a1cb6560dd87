//! The pure half of h2lab: HTTP engines, link emulator, workload, statistics, rules and reports.
//!
//! Nothing here opens a socket or a file, reads a clock or the environment, starts a thread or prints. Every
//! function maps a value to a value, or `(now, input)` to outputs, so that everything runs in virtual time too.
//! Read `ARCHITECTURE.md` first; [`wire`] is the heart, [`record`] is all that crosses from a run to a report.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod bulk;
pub mod diagnose;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod link;
pub mod probe;
pub mod random;
pub mod record;
pub mod report;
pub mod scenario;
pub mod stats;
pub mod timeline;
pub mod trace;
pub mod units;
pub mod wire;
pub mod workload;
