//! What the kernel knows of the path of a connection.

use std::time::Duration;

/// A reading of `TCP_INFO`, or what QUIC knows of the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathReading {
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Congestion window, in segments.
    pub window: u32,
    /// Segments sent and not acknowledged in order.
    pub in_flight: u32,
    /// Bytes in the socket that were never sent.
    pub unsent: u32,
    /// Whether it is repairing a loss: it knows of a segment that is missing.
    pub is_repairing: bool,
    /// Segments with data that were sent so far, repetitions included.
    pub sent: u64,
    /// Segments that were sent again so far.
    pub retransmitted: u64,
    /// Segments with data that were received so far.
    pub received: u64,
}
