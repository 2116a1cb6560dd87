//! The link emulator's logic: which packet is lost, when the others come out. No devices, no clock.
//!
//! Start at [`Pipe`], one direction: [`Pipe::push`] a packet, [`Pipe::poll`] what is due, sleep until [`Pipe::next_at`].

pub mod impairment;
pub mod loss;
pub mod packet;
pub mod pipe;
pub mod shaper;

pub use impairment::{DEFAULT_QUEUE_BYTES, Impairment, LinkSpec, LossModel, LossShape};
pub use packet::{Checksum, Endpoint, Flow, Offload, Packet};
pub use pipe::{DirectionTotals, Pipe, Verdict};
