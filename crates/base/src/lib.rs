//! Values that every other crate uses: times and sizes with their units, seeded random streams, counters of TCP and QUIC, text that
//! came from a peer, how counts and dates are written, what output hides, lists of millions of records in little memory.
//!
//! Never contains: a protocol, a policy, I/O, a clock.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod calendar;
pub mod counters;
pub mod counts;
pub mod packed;
pub mod random;
pub mod secrets;
pub mod spans;
pub mod spelling;
pub mod text;
pub mod units;

/// Derives the JSON Schema of a type with the feature `schema`; without it, derives nothing.
#[cfg(not(feature = "schema"))]
pub use h2lab_no_schema::JsonSchema;
#[cfg(feature = "schema")]
pub use schemars::JsonSchema;
