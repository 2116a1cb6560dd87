//! What bulk transfers come to: rates, what data waited for, and which limit held them back.

pub mod limits;
mod pooled;
pub mod summary;

pub use pooled::Pooled;
pub use summary::{BoundConnection, Stalls, Summary};
