//! What each slow request waited for.
//!
//! A link knows each packet that it dropped; the bytes of the packets say which stream they belong to. Joined, they tell of
//! every request whether it waited for a lost segment of its own, for one of another stream (head-of-line blocking), for a
//! window, for a slot, for the server, or for the link's queue. No client and no server can tell that: neither sees the other
//! half, and neither knows the drops.
//!
//! ```text
//! packets as they enter the link, before the loss draw                                       segment
//!  → each TCP connection: history of every byte (flow), its bytes in order (assembly), windows of the senders (sending)
//!  → TLS, with a key log: bytes in clear and where they lie in the TCP stream                 tls
//!  → HTTP: which stream's frames lie at which bytes, fields by HPACK, windows of HTTP/2       streams
//!  → requests, joined by the `x-h2lab-id` field, or by connection and stream                  explain
//!  → the time of each, interval by interval                                                   causes → latency breakdown → split
//! datagrams of QUIC                                                                           quic: why nothing is told
//! ```
//!
//! [`Capture`] takes the packets one by one, so that a capture need not lie in memory, and then explains a repetition. Everything
//! is deterministic, and no bytes make it panic: what cannot be read costs the names of streams, and a [`Doubt`] says so.
//!
//! # How an interval gets its cause
//!
//! A request's life has five parts: before its first byte entered the link, on its way up, at the far end, on its way down,
//! and after its last byte could be read. TCP hands bytes over in their order, so on its way a request waits at any time for
//! its own bytes that are missing because of a drop; else for its own bytes that the sender still holds, because of the
//! flow-control window, the congestion window, or since they did not exist yet; else for its own bytes on their way; and
//! else, when all of its bytes have come, for earlier bytes of others that have not.
//!
//! A request that never entered the link has none of them. If all packets are known, that it did not go is known as well, and
//! what it waited for is what kept every connection meanwhile (`causes/unsent.rs`).

mod assembly;
mod capture;
mod causes;
mod connection;
mod explain;
mod flow;
mod latency_breakdown;
mod quic;
mod segment;
mod sending;
mod split;
mod streams;
#[cfg(test)]
mod tests;
mod tls;

pub use capture::Capture;
pub use explain::{Doubt, Waits};
pub use latency_breakdown::{Cause, Drop, Interval, Kind, LatencyBreakdown, Place, Repair, Whose, dominant};
pub use split::{Part, Split};
