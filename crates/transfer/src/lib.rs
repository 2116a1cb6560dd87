//! The logic of a file transfer without I/O: what is stored ([`Extents`]), what to request next ([`Parts`]), whether
//! the bytes are right ([`Digest`]), what survives an interruption ([`Journal`]), and the fields of a resumable upload
//! ([`upload`]).
//!
//! Never contains: files, sockets, a clock, figures for a report.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod checksum;
pub mod content_range;
pub mod extents;
mod fields;
pub mod journal;
pub mod parts;
pub mod sizes;
pub mod sums;
pub mod upload;

pub use checksum::{Algorithm, Checksum, ChecksumError, Digest};
pub use extents::Extents;
pub use journal::{Changed, Journal, JournalError, Validator};
pub use parts::Parts;
pub use sizes::Sizes;
pub use sums::Sums;
