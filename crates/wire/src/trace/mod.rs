//! What was seen on the wire: frames with their times, and the facts for rules.
//!
//! [`Tap`] turns the bytes of a connection into [`FrameEvent`]s while a cell runs; [`Facts`] are derived from a
//! repetition afterwards. [`detail::Reader`] decodes the contents of each frame, for people who inspect a few
//! connections. Building the facts takes a whole record, which is above this layer: `diagnose::facts` does it.

pub mod detail;
pub mod facts;
pub mod frame;
mod http1;
mod http2;
mod http3;
pub mod tap;

pub use facts::{Facts, Flight, Hole, Retransmission, ServerEnd, Stall};
pub use frame::{Direction, FrameEvent, FrameKind};
pub use tap::{Crossing, Dialect, Tap};
