//! Bulk transfers as records: what was asked for, what came, what both ends counted, and which limit was found.
//!
//! A role counts with a [`Meter`] and leaves a [`BulkRecord`]; what a report says follows from that record alone.

mod binding;
pub mod figures;
mod further;
pub mod record;
mod tally;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod transfer;
mod visit;

pub use binding::{Binding, BindingKind, Certainty};
pub use figures::{Figures, ReceiverFigures, SenderFigures};
pub use further::{Further, Share};
pub use record::{Asked, BulkRecord};
pub use tally::Tally;
pub use transfer::{
    DigestRecord, DigestVerdict, PartRecord, TransferDirection, TransferOutcome, TransferRecord,
};
pub use visit::duration;

pub use crate::record::{FrameFigures, IoFigures, Meter, Spread, meter as rate};
