//! What each slow request waited for.
//!
//! The link records each packet that it dropped; the bytes of the packets show which stream they belong to. Together
//! they show for every request whether it waited for a lost segment of its own, for one of another stream (head-of-line
//! blocking), for a window, for a slot, for the server, or for the link's queue. No client and no server can determine
//! that: neither sees the other half, and neither has a record of the drops.
//!
//! ```text
//! packets as they enter the link, before the loss draw                                       segment
//!  → each TCP connection: history of every byte (flow), its bytes in order (assembly), windows of the senders (sending)
//!  → TLS, with a key log: bytes in clear and where they lie in the TCP stream                 tls
//!  → HTTP: which stream's frames lie at which bytes, fields by HPACK, windows of HTTP/2       streams
//!  → requests, joined by the `x-h2lab-id` field, or by connection and stream                  explain
//!  → the time of each, interval by interval                                                   causes → latency breakdown → split
//! datagrams of QUIC: the same by stream, with a key log, or why there is no cause              quic
//! without bytes: the windows of the senders, by the packet log alone                           held
//! ```
//!
//! [`CapturedConnections`] takes the packets one by one, so that a capture need not be in memory, and then explains a
//! repetition. Everything is deterministic, and no input makes it panic: without readable bytes streams stay unknown,
//! and a [`Doubt`] reports it.
//!
//! # How an interval gets its cause
//!
//! A request's life has five parts: before its first byte entered the link, on its way up, at the far end, on its way
//! down, and after its last byte could be read. TCP delivers bytes in order, so in transit a request waits at any time
//! for the first of these that applies: its own bytes that are missing because of a drop; its own bytes that the sender
//! still holds, because of the flow-control window, the congestion window, or because they did not exist yet; its own
//! bytes in flight; or, when all of its bytes have arrived, earlier bytes of others that have not.
//!
//! In QUIC every stream is ordered separately, so that the last of these does not exist (`quic/life.rs`).
//!
//! A request that never entered the link has none of these parts. If all packets are known, it is certain that it was
//! not sent, and that it waited for what blocked every connection meanwhile (`causes/unsent.rs`).

pub(super) mod assembly;
mod capture;
mod causes;
mod connection;
mod explain;
pub(super) mod flow;
pub(super) mod held;
mod latency_breakdown;
mod quic;
pub(super) mod segment;
mod sending;
mod split;
pub(super) mod streams;
#[cfg(test)]
mod tests;
pub(super) mod tls;

pub use capture::CapturedConnections;
pub use explain::{Doubt, Waits};
pub use latency_breakdown::{
    Cause, CauseKind, Drop, Interval, LatencyBreakdown, LinkStream, Repair, Whose, dominant,
};
pub use split::{CauseShare, Split};
