//! One transport connection and its TCP or QUIC counters.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use h2lab_base::counters::{QuicSummary, TcpSummary, TlsRecords};
use h2lab_base::text::PeerText;
use h2lab_base::units::Time;
use h2lab_wire::{Counters, Priority, StreamId};

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "reason")]
pub enum CloseReason {
    /// It was open when the cell ended; we closed it.
    #[default]
    Cell,
    /// We ended it: a timeout, a cancellation, an error of the peer that the engine answered.
    Local {
        /// Why.
        why: String,
    },
    /// The server ended it in an orderly way: GOAWAY, `Connection: close`, or a clean end between exchanges.
    Server,
    /// The server or the network broke it.
    Broken {
        /// The error.
        why: String,
    },
    /// A TCP reset broke it: the server, or something between, forgot it or threw it out.
    Reset {
        /// The error.
        why: String,
    },
    /// It fell silent: TCP gave it up, or an acknowledgement of HTTP/2 did not come in time.
    TimedOut {
        /// What did not come.
        why: String,
    },
    /// It was never established.
    NotEstablished {
        /// The error.
        why: String,
    },
}

impl CloseReason {
    /// The cause as text, if there is one.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Cell | Self::Server => None,
            Self::Local { why }
            | Self::Broken { why }
            | Self::Reset { why }
            | Self::TimedOut { why }
            | Self::NotEstablished { why } => Some(why),
        }
    }
}

/// A GOAWAY that the server sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GoAwayRecord {
    /// When it arrived.
    pub at: Time,
    /// Its error code.
    pub code: u32,
    /// The highest stream that was or might be processed.
    pub last_stream: u32,
    /// Debug data.
    pub debug: PeerText,
}

/// One transport connection of the generator.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ConnectionRecord {
    /// Its index in the cell.
    pub index: u32,
    /// Our port: with the server's it identifies the flow in the link's packet log.
    pub local_port: u16,
    /// The server's port.
    pub remote_port: u16,
    /// When we dialled.
    pub dialled_at: Time,
    /// When TCP was established; in QUIC, which sets up transport and TLS at once, the same as `ready_at`.
    pub connected_at: Time,
    /// When it could carry requests: after TCP, TLS, and for HTTP/2 our preface.
    pub ready_at: Time,
    /// Whether its TLS handshake resumed the session of an earlier connection, which saves the certificate and its
    /// signature (RFC 8446 §2.2); `None` in clear, and when the handshake did not end.
    #[serde(default)]
    pub tls_resumed: Option<bool>,
    /// The TLS records that came on it; none in clear, in QUIC, and in records of before the field.
    #[serde(default)]
    pub tls_records: TlsRecords,
    /// When it ended; [`Time::NEVER`] if it was open at the end of the cell.
    pub closed_at: Time,
    /// Why it ended.
    pub closed: CloseReason,
    /// GOAWAYs that the server sent, in order (an orderly server sends two).
    pub goaways: Vec<GoAwayRecord>,
    /// RST_STREAMs received, by code.
    pub resets_received: Vec<(u32, u32)>,
    /// The highest stream that we opened.
    pub highest_stream: StreamId,
    /// Requests that we began on it.
    pub requests: u32,
    /// Bytes handed to the transport, in clear.
    pub bytes_sent: u64,
    /// Bytes taken from the transport, in clear.
    pub bytes_received: u64,
    /// Frames and header bytes.
    pub counters: Counters,
    /// `server` field of the first response, to name the product in advice.
    pub server_software: Option<PeerText>,
    /// Our end, when the cell ended.
    pub tcp_client: Option<TcpSummary>,
    /// The server's end, where we can see it.
    pub tcp_server: Option<TcpSummary>,
    /// Our end, if it is QUIC instead of TCP.
    #[serde(default)]
    pub quic_client: Option<QuicSummary>,
    /// The other HTTP events on it, besides requests and responses.
    #[serde(default)]
    pub http: HttpRecord,
}

impl ConnectionRecord {
    /// Whether it was dialled in vain: it was ready and never carried a request.
    pub const fn is_useless_dial(&self) -> bool {
        self.ready_at.happened() && self.requests == 0
    }

    /// The lowest round-trip time that our end has seen, in microseconds; `None` if it is not known.
    pub fn min_rtt_us(&self) -> Option<u32> {
        let tcp = self.tcp_client.as_ref().map(|end| end.min_rtt_us);
        let quic = self.quic_client.as_ref().map(|end| end.min_rtt_us);
        tcp.or(quic).filter(|&us| us > 0)
    }

    /// Until when it could accept requests: a GOAWAY ends that before the connection ends.
    pub fn usable_until(&self) -> Time {
        self.goaways.first().map_or(self.closed_at, |goaway| goaway.at.min(self.closed_at))
    }
}

/// HTTP events on a connection besides requests and responses, as our client saw them. HTTP/1.1 has only interim
/// responses and the socket.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpRecord {
    /// `RST_STREAM`s that we sent, by code: timeouts and cancellations (CANCEL), pushes that we refused (`REFUSED_STREAM`),
    /// stream errors.
    pub resets_sent: Vec<(u32, u32)>,
    /// Pushes that were accepted.
    pub pushes_accepted: u32,
    /// Pushes that we refused with `RST_STREAM`.
    pub pushes_refused: u32,
    /// Interim responses (RFC 9110 §15.2), by status.
    pub interim: Vec<(u16, u32)>,
    /// The urgency (RFC 9218 §4.1) that the `priority` field of a request stated, by stream; none of those without the field.
    pub priorities: Vec<(u32, u8)>,
    /// `location` field of the first redirect (RFC 9110 §15.4), without what may be a secret.
    pub location: Option<PeerText>,
    /// Our settings in effect: identifier and value.
    pub settings_local: Vec<(u16, u32)>,
    /// The server's settings in effect; empty if it never announced any.
    pub settings_remote: Vec<(u16, u32)>,
    /// Time in which the socket was full while there was something to write, in nanoseconds.
    pub socket_full_ns: u64,
}

/// Requests of a connection whose urgencies are kept.
const MOST_PRIORITIES: usize = 100_000;

impl HttpRecord {
    /// Notes what the `priority` field of the request on `stream` says.
    pub fn note_priority(&mut self, stream: StreamId, value: &[u8]) {
        if self.priorities.len() < MOST_PRIORITIES {
            self.priorities.push((stream.0, Priority::default().updated_by(value).urgency));
        }
    }
}

/// Counts one more of `key` in a list of (key, count).
pub fn count_one<K: PartialEq>(counts: &mut Vec<(K, u32)>, key: K) {
    match counts.iter_mut().find(|(known, _)| *known == key) {
        Some((_, count)) => *count += 1,
        None => counts.push((key, 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_urgencies_of_so_many_requests_are_kept_and_no_more() {
        let mut record = HttpRecord::default();
        record.note_priority(StreamId(1), b"u=0, i");
        record.note_priority(StreamId(3), b"i");
        assert_eq!(record.priorities, [(1, 0), (3, Priority::DEFAULT_URGENCY)]);
        (0..MOST_PRIORITIES as u32).for_each(|_| record.note_priority(StreamId(5), b"u=7"));
        assert_eq!(record.priorities.len(), MOST_PRIORITIES);
    }
}
