//! What was seen on the wire: frames with their times, and the facts that rules read.

pub mod frame;

pub use frame::{Direction, FrameEvent, FrameKind};
