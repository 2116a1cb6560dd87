//! Results of bulk transfers: rates, what data waited for, and which limit applied.

pub mod fleet;
pub mod limits;
mod pooled;
pub mod summary;

pub use pooled::Pooled;
pub use summary::{BoundConnection, BulkSummary, TransferStalls};
