//! What `--json` and `--jsonl` print.

use h2lab_base::JsonSchema;
use h2lab_base::units::Time;
use h2lab_model::record::{CloseReason, ConnectionRecord, GoAwayRecord};
use h2lab_model::workload::Protocol;
use h2lab_wire::h3::stream::QuicStreamId;
use h2lab_wire::trace::detail::{Detail, DetailedFrame, flag_names};
use h2lab_wire::trace::{Direction, FrameEvent};
use h2lab_wire::{ErrorCode, StreamId};
use serde::Serialize;

use h2lab_net::tls::TlsFacts;

/// `h2lab trace --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TraceDocument {
    /// Of h2lab.
    pub version: String,
    /// The URL as given; without the values of its query unless they were asked for.
    pub url: String,
    /// The protocol that was spoken.
    pub protocol: Protocol,
    /// Requests that were made.
    pub requests: u64,
    /// Requests that were answered completely, with any status.
    pub answered: u64,
    /// Whether a signal ended it.
    pub interrupted: bool,
    /// For how long h2lab did not run although it had to, in milliseconds: what came meanwhile came earlier than it says.
    pub paused_ms: f64,
    /// Connections, in the order in which they were dialled.
    pub connections: Vec<TracedConnection>,
    /// Frames, in the order in which they crossed the socket.
    pub frames: Vec<FrameDocument>,
    /// Frames that --head, --tail or --elide left out, and those above the 100,000 that a document holds.
    pub frames_left_out: u64,
}

/// A connection. Times are in milliseconds since the beginning.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct TracedConnection {
    /// Its number, from 0.
    #[serde(rename = "connection")]
    pub number: u32,
    /// The server's address.
    pub address: String,
    /// Our port, 0 before TCP was established: with the address it names the connection in a capture.
    pub local_port: u16,
    /// When it was dialled.
    pub dialled_ms: f64,
    /// When TCP was established, or QUIC.
    pub connected_ms: Option<f64>,
    /// When it could carry requests.
    pub ready_ms: Option<f64>,
    /// What TLS agreed on; `null` in clear.
    pub tls: Option<Tls>,
    /// When it ended; `null` if it was open when all was done.
    pub closed_ms: Option<f64>,
    /// Why it ended.
    pub closed: CloseReason,
    /// Requests that were begun on it.
    pub requests: u32,
    /// The highest stream of a request that we opened, as it is numbered on the wire.
    pub last_stream: u32,
    /// GOAWAYs that the server sent.
    pub goaways: Vec<GoAway>,
}

/// What TLS agreed on.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Tls {
    /// `TLSv1.3`
    pub version: String,
    /// `TLS_AES_256_GCM_SHA384`; `null` in QUIC, which does not report it.
    pub cipher: Option<String>,
    /// The protocol that ALPN chose.
    pub alpn: Option<String>,
    /// Whether an earlier session was resumed; `null` in QUIC, which does not report it.
    pub resumed: Option<bool>,
}

/// A GOAWAY that the server sent.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct GoAway {
    /// When it arrived.
    pub at_ms: f64,
    /// The code's name in RFC 9113 §7, or its number.
    pub error_code: String,
    /// The highest stream that was or might be processed.
    pub last_stream_id: u32,
}

/// A frame; what is in it depends on its type.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct FrameDocument {
    /// When it crossed the socket, in milliseconds since the beginning: sent, when its header did; received, when its last
    /// byte did.
    pub at_ms: f64,
    /// The number of its connection.
    pub connection: u32,
    /// `up` is from client to server.
    pub direction: Direction,
    /// The type by its name in RFC 9113 §6 or RFC 9114 §7.2; a number in hexadecimal, or `other`, if it has none.
    #[serde(rename = "type")]
    pub kind: String,
    /// The stream as it is numbered on the wire: in HTTP/2 0 is the connection, in HTTP/3 0 is the first request's and the
    /// control streams are 2 and 3.
    pub stream: u32,
    /// The flags by name.
    pub flags: Vec<String>,
    /// Bytes of payload.
    pub length: u32,
    /// Whether the connection ended within it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut_off: bool,
    /// What is in it.
    #[serde(flatten)]
    pub detail: Detail,
}

/// Milliseconds since the beginning, `None` for what never happened.
pub fn millis(at: Time) -> Option<f64> {
    at.happened().then(|| at.as_nanos() as f64 / 1e6)
}

impl TracedConnection {
    /// A connection that is dialled.
    pub fn dialled(number: u32, address: String, at: Time) -> Self {
        Self {
            number,
            address,
            local_port: 0,
            dialled_ms: millis(at).unwrap_or_default(),
            connected_ms: None,
            ready_ms: None,
            tls: None,
            closed_ms: None,
            closed: CloseReason::Cell,
            requests: 0,
            last_stream: 0,
            goaways: Vec::new(),
        }
    }

    /// Updates it with what is recorded by now.
    pub fn update(&mut self, record: &ConnectionRecord, protocol: Protocol) {
        self.local_port = record.local_port;
        self.connected_ms = millis(record.connected_at);
        self.ready_ms = millis(record.ready_at);
        self.closed_ms = millis(record.closed_at);
        self.closed = record.closed.clone();
        self.requests = record.requests;
        self.last_stream = on_the_wire(record.highest_stream, protocol);
        self.goaways = record.goaways.iter().map(|goaway| GoAway::of(goaway, protocol)).collect();
    }
}

impl GoAway {
    fn of(record: &GoAwayRecord, protocol: Protocol) -> Self {
        Self {
            at_ms: millis(record.at).unwrap_or_default(),
            error_code: ErrorCode(record.code).to_string(),
            last_stream_id: on_the_wire(StreamId(record.last_stream), protocol),
        }
    }
}

/// The number of a request's stream as Wireshark shows it: the HTTP/2 stream number, which all other output uses, or
/// that of QUIC (RFC 9000 §2.1).
pub fn on_the_wire(stream: StreamId, protocol: Protocol) -> u32 {
    if protocol.is_quic() {
        u32::try_from(QuicStreamId::of_request(stream).0).unwrap_or(u32::MAX)
    } else {
        stream.0
    }
}

/// The same of the stream that a frame was on: of a control stream, that of the side that sent it.
fn stream_of(event: &FrameEvent, protocol: Protocol) -> u32 {
    match (event.stream, event.direction) {
        (StreamId::CONNECTION, Direction::Up) if protocol.is_quic() => 2,
        (StreamId::CONNECTION, Direction::Down) if protocol.is_quic() => 3,
        (stream, _) => on_the_wire(stream, protocol),
    }
}

impl From<TlsFacts> for Tls {
    fn from(facts: TlsFacts) -> Self {
        Self { version: facts.version, cipher: facts.cipher, alpn: facts.alpn, resumed: facts.resumed }
    }
}

impl FrameDocument {
    /// A frame of a connection in `protocol`.
    pub fn of(DetailedFrame { event, detail, is_complete, .. }: DetailedFrame, protocol: Protocol) -> Self {
        Self {
            at_ms: millis(event.at).unwrap_or_default(),
            connection: event.connection,
            direction: event.direction,
            kind: event.kind.to_string(),
            stream: stream_of(&event, protocol),
            flags: flag_names(event.kind, event.flags),
            length: event.length,
            cut_off: !is_complete,
            detail,
        }
    }
}
