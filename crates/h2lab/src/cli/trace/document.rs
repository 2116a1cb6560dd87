//! What `--json` and `--jsonl` print.

use h2lab_core::record::{CloseReason, ConnectionRecord, GoAwayRecord};
use h2lab_core::trace::Direction;
use h2lab_core::trace::detail::{Detail, Told, flag_names};
use h2lab_core::units::Time;
use h2lab_core::wire::ErrorCode;
use h2lab_core::workload::Protocol;
use schemars::JsonSchema;
use serde::Serialize;

use crate::io::tls::TlsFacts;

/// `h2lab trace --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TraceDocument {
    /// Of h2lab.
    pub version: String,
    /// The URL as given.
    pub url: String,
    /// The protocol that was spoken.
    pub protocol: Protocol,
    /// Requests that were made.
    pub requests: u64,
    /// Requests that were answered completely, with any status.
    pub answered: u64,
    /// Whether a signal ended it.
    pub interrupted: bool,
    /// Connections, in the order in which they were dialled.
    pub connections: Vec<Connection>,
    /// Frames, in the order in which they crossed the socket.
    pub frames: Vec<Frame>,
    /// Frames that --head, --tail or --elide left out, and those above the 100,000 that a document holds.
    pub frames_left_out: u64,
}

/// A connection. Times are in milliseconds since the beginning.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Connection {
    /// Its number, from 0.
    #[serde(rename = "connection")]
    pub number: u32,
    /// The server's address.
    pub address: String,
    /// Our port, 0 before TCP was established: with the address it names the connection in a capture.
    pub local_port: u16,
    /// When it was dialled.
    pub dialled_ms: f64,
    /// When TCP was established.
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
    /// The highest stream that we opened.
    pub last_stream: u32,
    /// GOAWAYs that the server sent.
    pub goaways: Vec<GoAway>,
}

/// What TLS agreed on.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Tls {
    /// `TLSv1.3`
    pub version: String,
    /// `TLS_AES_256_GCM_SHA384`
    pub cipher: String,
    /// The protocol that ALPN chose.
    pub alpn: Option<String>,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
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
pub struct Frame {
    /// When it crossed the socket, in milliseconds since the beginning: sent, when its header did; received, when its last
    /// byte did.
    pub at_ms: f64,
    /// The number of its connection.
    pub connection: u32,
    /// `up` is from client to server.
    pub direction: Direction,
    /// The type by its name in RFC 9113 §6; a number in hexadecimal if it has none.
    #[serde(rename = "type")]
    pub kind: String,
    /// The stream; 0 is the connection.
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

impl Connection {
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

    /// Takes over what is known by now.
    pub fn update(&mut self, record: &ConnectionRecord) {
        self.local_port = record.local_port;
        self.connected_ms = millis(record.connected_at);
        self.ready_ms = millis(record.ready_at);
        self.closed_ms = millis(record.closed_at);
        self.closed = record.closed.clone();
        self.requests = record.requests;
        self.last_stream = record.highest_stream.0;
        self.goaways = record.goaways.iter().map(GoAway::from).collect();
    }
}

impl From<&GoAwayRecord> for GoAway {
    fn from(record: &GoAwayRecord) -> Self {
        Self {
            at_ms: millis(record.at).unwrap_or_default(),
            error_code: ErrorCode(record.code).to_string(),
            last_stream_id: record.last_stream,
        }
    }
}

impl From<TlsFacts> for Tls {
    fn from(facts: TlsFacts) -> Self {
        Self { version: facts.version, cipher: facts.cipher, alpn: facts.alpn, resumed: facts.resumed }
    }
}

impl From<Told> for Frame {
    fn from(Told { event, detail, is_complete, .. }: Told) -> Self {
        Self {
            at_ms: millis(event.at).unwrap_or_default(),
            connection: event.connection,
            direction: event.direction,
            kind: event.kind.to_string(),
            stream: event.stream.0,
            flags: flag_names(event.kind, event.flags),
            length: event.length,
            cut_off: !is_complete,
            detail,
        }
    }
}
