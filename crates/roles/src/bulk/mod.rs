//! Bulk transfer: files of any size, whole or in parts, over several streams and connections; resumable, checked end to end.
//!
//! [`run()`] moves them, in either direction. [`driver`] owns the connections, [`work`] the files and their requests in flight,
//! [`fetch`] knows what one file needs, [`h2lab_net::storage`] where its bytes lie. The result is a
//! [`h2lab_model::bulk::BulkRecord`]. Serving is done by the origin ([`crate::origin::Bulk`]).

mod attempts;
mod driver;
pub mod fetch;
pub mod raw;
mod record;
pub mod run;
mod source;
mod work;

pub use driver::{Progress, RunError};
pub use fetch::{FetchError, Manner, Place};
pub use record::credit_after;
pub use run::{Job, JobError, Moved, run};
pub use work::{Wanted, Work};

use h2lab_wire::{Config, FlowControl};

use crate::client::defaults;

/// The windows of stream and connection that we offer: 1 GiB, half of which covers 10 Gbit/s over a round trip of 430 ms, even
/// just before credit is returned. They commit no memory: what has come is stored before more is read, so TCP's own window, at
/// most 1 GiB (RFC 7323 §2.3), limits a server first.
pub const WINDOW: u32 = 1 << 30;

/// The longest frame that we accept: beyond 64 KiB longer ones gain nothing (docs/bulk.md).
pub const FRAME: u32 = 64 << 10;

/// What our end of a bulk transfer announces by default.
pub fn engine(tls: bool) -> Config {
    let config = defaults::engine(tls);
    let flow = FlowControl { stream_window: WINDOW, connection_window: WINDOW, ..config.flow };
    Config { flow, max_frame_size: FRAME, ..config }
}
