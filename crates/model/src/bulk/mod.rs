//! Bulk transfers as records: what was requested, what arrived, what both ends counted, and which limit was found.
//!
//! A role counts with a [`ByteMeter`] and leaves a [`BulkRecord`]; a report is made from that record alone.

mod binding;
pub mod figures;
mod overflow;
pub mod record;
mod repetition;
mod tally;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod transfer;

pub use binding::{Binding, BindingKind};
pub use figures::{ConnectionFigures, ReceiverFigures, SenderFigures};
pub use overflow::{Overflow, Share};
pub use record::{BulkParameters, BulkRecord};
pub use repetition::duration;
pub use tally::TransferTally;
pub use transfer::{
    DigestRecord, DigestVerdict, PartRecord, TIME_WAS_OVER, TransferDirection, TransferOutcome,
    TransferRecord,
};

pub use crate::record::{ByteMeter, FrameFigures, IoFigures, RateSpread, meter as rate};
