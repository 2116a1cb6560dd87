//! The link emulator's logic: which packet is lost, when the others come out. No devices, no clock.
//!
//! Start at [`Pipe`], one direction: [`Pipe::push`] a packet, [`Pipe::poll`] what is due, sleep until [`Pipe::next_at`].
//! Devices hand over super-packets: [`Frame`] cuts them before, [`may_follow`] and [`write_header`] merge the survivors after.

pub mod impairment;
pub mod loss;
pub mod merge;
pub mod packet;
pub mod pipe;
pub mod segment;
pub mod shaper;
#[cfg(test)]
mod testing;

pub use impairment::{DEFAULT_QUEUE_BYTES, Impairment, LinkSpec, LossModel, LossShape};
pub use merge::may_follow;
pub use packet::{Checksum, Endpoint, Flow, Offload, Packet};
pub use pipe::{DirectionTotals, Pipe, Verdict};
pub use segment::{Frame, FrameError, Segment, write_header};
