//! Bulk transfer: files of any size, whole or in parts, over several streams and connections; resumable, checked end to end.
//!
//! [`run()`] moves them, in either direction. [`driver`] owns the connections, and [`transfers`] the files and their
//! requests in flight. [`fetch`] decides what one file needs, and [`h2lab_net::storage`] stores its bytes. The result
//! is a [`h2lab_model::bulk::BulkRecord`]. Serving is done by the origin ([`crate::origin::Bulk`]).

mod attempts;
mod byte_count;
mod driver;
pub mod fetch;
pub mod job;
pub mod raw;
mod record;
pub mod run;
mod source;
mod transfers;

pub(crate) use driver::SHORTEST_PAUSE;
pub use driver::{BulkProgress, RunError};
pub use fetch::{FetchError, TransferOptions};
pub use job::{FRAME, Job, WINDOW, engine};
pub use record::credit_after;
pub use run::{JobError, Moved, run};
pub use source::FileLocation;
pub use transfers::{RequestedFile, Transfers};
