//! The logic of bulk transfers: what is here and what is still to be fetched, whether it is the right bytes, how fast
//! they came and what kept them from coming faster.
//!
//! The shell moves the bytes. It deals [`Parts`] of a file to connections and streams, books what is safely stored in
//! [`Extents`], keeps both across a break in a [`Journal`], feeds a [`Digest`], counts with a [`Meter`], and leaves
//! a [`BulkRecord`]; what a report says follows from that record alone, by [`Summary`].

pub mod checksum;
pub mod content_range;
pub mod extents;
mod fields;
pub mod figures;
pub mod fleet;
mod further;
pub mod journal;
pub mod limits;
pub mod parts;
mod pooled;
pub mod sizes;
pub mod summary;
pub mod sums;
#[cfg(test)]
pub(crate) mod testing;
pub mod transfer;
pub mod upload;
mod visit;

pub use checksum::{Algorithm, Checksum, ChecksumError, Digest};
pub use extents::Extents;
pub use figures::{Figures, ReceiverFigures, SenderFigures};
pub use further::{Further, Share};
pub use journal::{Changed, Journal, JournalError, Validator};
pub use limits::{Binding, BindingKind, Certainty};
pub use parts::Parts;
pub use pooled::Pooled;
pub use sizes::Sizes;
pub use summary::{BoundConnection, Stalls, Summary, Tally};
pub use sums::Sums;
pub use transfer::{
    Asked, BulkRecord, DigestRecord, DigestVerdict, PartRecord, TransferDirection, TransferOutcome,
    TransferRecord,
};
pub use visit::duration;

pub use crate::record::{FrameFigures, IoFigures, Meter, Spread, meter as rate};
