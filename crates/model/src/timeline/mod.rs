//! The waterfall of one exchange: when the connection was established, and on each stream the promise, every interim response,
//! the response, its first and its last DATA.
//!
//! A [`Recorder`] makes a [`Waterfall`] of the frames that the detailed reader reports ([`h2lab_wire::trace::detail`]);
//! several of the same exchange are summed up by [`TimelineSummary`]. [`hops`] puts waterfalls of the same exchange, seen
//! in front of each of several servers, side by side, and says what each server did with interim responses and promises.
//! [`study`] is a scenario file for many exchanges.

pub mod hops;
mod recorder;
pub mod study;
mod summary;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod waterfall;

pub use recorder::Recorder;
pub use summary::{StatusRuns, TimeSpread, TimelineStream, TimelineSummary, spread_of};
pub use waterfall::{Connecting, InterimResponse, Reset, ResetSender, Waterfall, WaterfallStream};
