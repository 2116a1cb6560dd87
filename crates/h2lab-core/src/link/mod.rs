//! The link emulator's logic: which packet is lost, when the others come out. No devices, no clock.

pub mod impairment;

pub use impairment::{DEFAULT_QUEUE_BYTES, Impairment, LinkSpec, LossModel, LossShape};
