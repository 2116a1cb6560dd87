//! A small model of TCP (RFC 9293) in virtual time: one [`Socket`] per end, [`Segment`]s between them.
//!
//! It has what decides the shape of latencies on a lossy path: a three-way handshake, in-order delivery (and so
//! head-of-line blocking), acknowledgements at once or delayed, selective acknowledgements, slow start, Reno (RFC 5681) or
//! CUBIC (RFC 9438), fast retransmission and the timer of RACK and the tail loss probe (RFC 8985), the retransmission timeout
//! of RFC 6298 with Linux's floor and back-off, receive windows with probes, and orderly and abrupt ends.
//!
//! It leaves out: duplicate SACK, F-RTO and every other way to undo a reduction, the reduction for a loss that a tail
//! loss probe repairs, proportional rate reduction, `HyStart`, pacing, ECN, slow start after idling, auto-tuned
//! buffers, corking and segmentation offload, TIME-WAIT, keep-alive, SYN cookies, wrap-around of sequence numbers,
//! giving up after many timeouts, and all processing time. A figure that comes from it is a figure of the model: it is
//! never shown beside a measured one without saying so.
//!
//! | file | what it decides |
//! |---|---|
//! | `socket` | handshake, ends, what leaves next |
//! | `sender`, `trips` | what is in flight, what is lost, when to send again |
//! | `congestion` | how much may be in flight |
//! | `receiver` | order, what is acknowledged and when |

mod congestion;
mod receiver;
mod sender;
mod socket;
#[cfg(test)]
mod tests;
mod trips;

use std::time::Duration;

pub use congestion::Congestion;
pub use socket::Socket;

/// How one end of a connection behaves. The default is Linux's, as far as the model goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// The congestion control of what this end sends.
    pub congestion: Congestion,
    /// Payload bytes of a full segment: 1500 less IP, TCP and its timestamps.
    pub segment: usize,
    /// Segments that may be in flight before anything was acknowledged (RFC 6928).
    pub initial_window: u32,
    /// Bytes that the application may leave with the socket, unacknowledged ones included. It is not auto-tuned: bulk
    /// data needs more than the bandwidth-delay product.
    pub send_buffer: usize,
    /// Bytes that may wait for the application: the largest window that this end announces.
    pub receive_buffer: usize,
    /// The floor of the variation in the retransmission timeout, which is the smoothed round trip plus this (Linux's
    /// `TCP_RTO_MIN`; RFC 6298 has a whole second).
    pub min_rto: Duration,
    /// How long the acknowledgement of a single segment waits for another one; zero: never.
    pub delayed_ack: Duration,
    /// With a seed, the stream is split at random, mostly into small pieces: segments of 1 byte to a full one, reads of
    /// 1 byte upwards. This is what an engine must survive, not what networks do.
    pub shred: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            congestion: Congestion::Cubic,
            segment: 1448,
            initial_window: 10,
            send_buffer: 64 << 10,
            receive_buffer: 4 << 20,
            min_rto: Duration::from_millis(200),
            delayed_ack: Duration::from_millis(40),
            shred: None,
        }
    }
}

/// What crosses the link. Sequence numbers count from the connection's beginning: the first payload byte is 1.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(clippy::struct_excessive_bools, reason = "the flags of a TCP header are independent of each other")]
pub struct Segment {
    /// Number of the first payload byte, or of FIN if there is none.
    pub seq: u64,
    /// What is carried.
    pub payload: Vec<u8>,
    /// Every byte before this one has arrived at the sender of the segment.
    pub ack: u64,
    /// Bytes from `ack` on that the sender of the segment has room for.
    pub window: u64,
    /// Ranges beyond `ack` that have arrived too, from the first byte to one past the last; at most three.
    pub sack: Vec<(u64, u64)>,
    /// SYN: a beginning.
    pub syn: bool,
    /// FIN: nothing follows the payload.
    pub fin: bool,
    /// RST: the connection is over and data in flight is lost.
    pub rst: bool,
    /// A window probe: to be acknowledged at once although it carries nothing.
    pub probe: bool,
}

impl Segment {
    /// IPv4, TCP, and the timestamps that every segment carries.
    const HEADERS: u32 = 52;

    /// Bytes at the network layer.
    pub fn bytes(&self) -> u32 {
        Self::HEADERS + 8 * self.sack.len() as u32 + self.payload.len() as u32
    }
}

/// What an end has done, as `TCP_INFO` would report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EndFigures {
    /// Segments with payload sent, repeated ones included.
    pub segments_out: u32,
    /// Segments with payload received.
    pub segments_in: u32,
    /// Segments retransmitted.
    pub retransmits: u32,
    /// Retransmission timeouts that expired.
    pub timeouts: u32,
    /// Congestion window in segments.
    pub cwnd: u32,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Shortest round trip.
    pub min_rtt: Duration,
}
