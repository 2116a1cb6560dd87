//! What was seen on the wire: frames with their times, and the facts that rules read.
//!
//! [`Tap`] turns the bytes of a connection into [`FrameEvent`]s while a cell runs.

pub mod frame;
mod http1;
mod http2;
pub mod tap;

pub use frame::{Direction, FrameEvent, FrameKind};
pub use tap::{Dialect, Tap};
