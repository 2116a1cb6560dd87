//! Packet traces and their expected explanations, worked out by hand.
//!
//! A trace is written as a [`Scene`]: the link takes 10 ms each way, unless a packet says otherwise, and every packet
//! acknowledges what its sender has received by then. Latency breakdowns are compared as text: `10..20 the propagation`, times in
//! milliseconds.

mod encrypted;
mod handshakes;
mod losses;
mod quic;
mod reading;
mod robustness;
pub(super) mod scene;
mod senders;
mod unsent;

use scene::{Scene, data, headers, hello, ms, settings, text, window_update};
