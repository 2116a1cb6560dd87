//! What the kernel measures of the path of a connection.

use std::time::Duration;

/// A reading of `TCP_INFO`, or the same figures of QUIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathReading {
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Shortest round trip of the last minutes.
    pub min_rtt: Duration,
    /// Congestion window, in segments.
    pub window: u32,
    /// Segments sent and not acknowledged in order.
    pub in_flight: u32,
    /// Bytes in the socket that were never sent.
    pub unsent: u32,
    /// Whether loss recovery is under way in either direction: a segment is known to be missing.
    pub is_repairing: bool,
    /// Segments with data that were sent so far, repetitions included.
    pub sent: u64,
    /// Segments that the path lost so far: retransmissions, less those that the peer reports as duplicates (DSACK). It can decrease.
    pub lost: u64,
    /// Segments with data that were received so far, those that wait for a missing one included.
    pub received: u64,
    /// Requests that it was given so far.
    pub requests: u64,
    /// Bytes that were sent and acknowledged so far.
    pub bytes_sent: u64,
    /// Bytes that were received in order so far.
    pub bytes_received: u64,
    /// A lost packet stops only the requests whose bytes it had: QUIC.
    pub is_by_stream: bool,
}

impl PathReading {
    /// Segments that the path lost since the reading `before`; negative if the peer has reported earlier retransmissions as duplicates.
    pub const fn lost_since(&self, before: &Self) -> i64 {
        self.lost.cast_signed().saturating_sub(before.lost.cast_signed())
    }

    /// Whether responses wait for a segment that is missing: segments have come since the reading `before`, and no byte
    /// in order. An unnecessary retransmission looks the same.
    pub const fn has_gap_since(&self, before: &Self) -> bool {
        self.received > before.received && self.bytes_received == before.bytes_received
    }
}
