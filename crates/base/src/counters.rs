//! What the kernel's TCP and our QUIC count for a connection.

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Time;

/// Segments that a connection may have in flight initially, and in Linux again after it was idle (RFC 6928 §2, RFC 5681
/// §4.1).
pub const INITIAL_SEGMENTS: u32 = 10;
/// The same in bytes, for segments with timestamps in packets of 1,500 bytes.
pub const INITIAL_WINDOW: u32 = INITIAL_SEGMENTS * 1_448;

/// How long TCP was limited, by cause (`tcpi_busy_time` and the fields after it, Linux 4.10 or later). In microseconds,
/// since the connection began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TcpLimits {
    /// Data was in flight or waiting in the socket.
    pub busy_us: u64,
    /// Of that: limited by the window that the other end offers.
    pub rwnd_limited_us: u64,
    /// Of that: the send buffer was full, and all of it was in flight.
    pub sndbuf_limited_us: u64,
}

/// What `TCP_INFO` reported for one end of a connection when the cell ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TcpSummary {
    /// Segments that this end sent again, in total. The other end's are not visible here.
    pub retransmits: u32,
    /// Smoothed round-trip time, in microseconds.
    pub rtt_us: u32,
    /// Lowest round-trip time seen, in microseconds.
    pub min_rtt_us: u32,
    /// Congestion window, in segments.
    pub cwnd: u32,
    /// Data segments sent.
    pub segments_out: u32,
    /// Data segments received.
    pub segments_in: u32,
    /// The congestion control that the kernel actually used, read back.
    pub congestion_control: String,
    /// Bytes of a segment that this end sends; 0 in older records, as in the fields below.
    #[serde(default)]
    pub segment_bytes: u32,
    /// Retransmitted segments that the other end had already received, as its DSACKs report (RFC 2883, RFC 3708): its acknowledgement
    /// was late or lost. 0 in records without the field.
    #[serde(default)]
    pub spurious: u32,
    /// Bytes that the other end has acknowledged.
    #[serde(default)]
    pub bytes_acked: u64,
    /// What limited sending; `None` if the kernel does not report it, and in older records.
    #[serde(default)]
    pub limits: Option<TcpLimits>,
}

impl TcpSummary {
    /// Segments of this end that the path lost, as far as TCP can detect: retransmissions that were not spurious.
    pub const fn lost(&self) -> u32 {
        self.retransmits.saturating_sub(self.spurious)
    }
}

/// The TLS records with application data that arrived on a connection. Those of the first mebibyte are counted
/// separately: until then a server may send small ones on purpose, so that the first bytes can be used sooner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TlsRecords {
    /// How many arrived in the first mebibyte.
    pub early_records: u64,
    /// Bytes of these, with their headers and protection (RFC 8446 §5.2).
    pub early_bytes: u64,
    /// How many arrived after them.
    pub records: u64,
    /// Bytes of these.
    pub bytes: u64,
}

impl TlsRecords {
    /// The most that a server may send in small records: the largest default of any product (`H2TLSWarmUpSize` of
    /// Apache, nghttpx).
    const EARLY: u64 = 1 << 20;

    /// Counts the next record, which has this many bytes including its header.
    pub const fn add(&mut self, bytes: u64) {
        if self.early_bytes < Self::EARLY {
            self.early_records += 1;
            self.early_bytes += bytes;
        } else {
            self.records += 1;
            self.bytes += bytes;
        }
    }
}

/// What our end of a QUIC connection had counted when the cell ended. The server's end is not visible here: its packets
/// are encrypted, and no kernel has its counters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct QuicSummary {
    /// Packets that this end sent, including acknowledgements and path MTU probes.
    pub packets_sent: u64,
    /// Those of them that it declared lost (RFC 9002 §6); their contents were sent again in other packets.
    pub packets_lost: u64,
    /// How often its congestion window was reduced.
    pub congestion_events: u64,
    /// UDP datagrams sent; one may hold several packets.
    pub datagrams_sent: u64,
    /// UDP datagrams received.
    pub datagrams_received: u64,
    /// Bytes in the datagrams sent.
    pub datagram_bytes_sent: u64,
    /// Bytes in the datagrams received.
    pub datagram_bytes_received: u64,
    /// Smoothed round-trip time, in microseconds.
    pub rtt_us: u32,
    /// Lowest round-trip time seen, in microseconds.
    pub min_rtt_us: u32,
    /// Congestion window, in bytes.
    pub cwnd_bytes: u64,
    /// The longest datagram that the path can carry, as discovered, in bytes of UDP payload.
    pub mtu: u16,
    /// The congestion control of this end.
    pub congestion_control: String,
}

/// `TCP_INFO` of a socket at one time, or the same of QUIC's path; sampled every 10 ms while a cell runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpTick {
    /// When it was read.
    pub at: Time,
    /// The connection's index.
    pub connection: u32,
    /// Retransmitted segments so far; in QUIC packets declared lost, whose contents are sent again.
    pub retransmits: u32,
    /// Congestion window in segments; in QUIC in datagrams of the path's MTU.
    pub cwnd: u32,
    /// Smoothed round-trip time in microseconds.
    pub rtt_us: u32,
    /// Segments sent and not acknowledged; in QUIC bytes in flight, in datagrams of the path's MTU.
    pub unacked: u32,
    /// Whether this is the server's end of the connection.
    pub server: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted_behind_the_first_mebibyte() {
        let mut counted = TlsRecords::default();
        (0..64).for_each(|_| counted.add(1 << 14));
        assert_eq!(counted, TlsRecords { early_records: 64, early_bytes: 1 << 20, records: 0, bytes: 0 });
        (0..3).for_each(|_| counted.add(400));
        assert_eq!(counted, TlsRecords { early_records: 64, early_bytes: 1 << 20, records: 3, bytes: 1_200 });
    }
}
