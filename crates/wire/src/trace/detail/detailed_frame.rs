//! The details reported of a frame.

use h2lab_base::JsonSchema;
use serde::Serialize;

use crate::trace::FrameEvent;
use h2lab_base::units::Time;

/// A frame with what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetailedFrame {
    /// The frame as the [`Tap`](crate::trace::Tap) reports it.
    pub event: FrameEvent,
    /// What is in it.
    pub detail: Detail,
    /// When the first byte of its payload was seen; the time of its header if it has none.
    pub payload_at: Time,
    /// Whether all of it was seen; if not, the connection ended within it.
    pub is_complete: bool,
    /// Bytes of its direction up to its end, or as many of them as were seen. Meaningless in HTTP/3, where each stream
    /// has its own bytes.
    pub ends_at: u64,
}

/// One header or trailer field, printable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PrintableField {
    /// Its name; lower case in HTTP/2, as sent in HTTP/1.1.
    pub name: String,
    /// Its value, as far as it is kept.
    pub value: String,
    /// Bytes of the value, as sent.
    pub value_bytes: u32,
}

/// A setting (RFC 9113 §6.5.2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Setting {
    /// Its name in its RFC, without `SETTINGS_`; a number in hexadecimal if it has none.
    pub name: String,
    /// Its number.
    pub id: u16,
    /// Its value.
    pub value: u32,
}

/// Header fields, and what comes with them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Head {
    /// HTTP/1.1: request line or status line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_line: Option<String>,
    /// The fields in their order, pseudo-header fields included. If a block spans several frames, the last one has them
    /// all.
    pub fields: Vec<PrintableField>,
    /// PUSH_PROMISE: the stream that is promised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promised_stream: Option<u32>,
    /// HEADERS with PRIORITY: what it depends on, and its weight from 1 to 256 (RFC 9113 §6.3, deprecated).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Dependency>,
    /// Octets of padding; `None` without PADDED.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub padding: Option<u8>,
    /// The field block continues in a CONTINUATION.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub continues: bool,
    /// There were more fields than are kept here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
    /// Why the fields could not be decoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undecoded: Option<String>,
}

/// The priority of RFC 7540, which RFC 9113 §5.3 deprecates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Dependency {
    /// The stream it depends on.
    pub depends_on: u32,
    /// 1 to 256.
    pub weight: u16,
    /// Whether it takes over that stream's other dependants.
    pub exclusive: bool,
}

/// What is in a frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Detail {
    /// DATA, or a piece of body in HTTP/1.1.
    Data {
        /// Bytes of body.
        data_bytes: u32,
        /// Octets of padding; `None` without PADDED.
        #[serde(skip_serializing_if = "Option::is_none")]
        padding: Option<u8>,
        /// HTTP/1.1: the size lines of the chunks that begin here, in hexadecimal as sent.
        #[serde(skip_serializing_if = "Option::is_none")]
        chunk: Option<String>,
    },
    /// HEADERS, PUSH_PROMISE, CONTINUATION; a head or a trailer section of HTTP/1.1.
    Head(Head),
    /// SETTINGS; none in an acknowledgement.
    Settings {
        /// In their order.
        settings: Vec<Setting>,
        /// There were more than are kept.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_cut: bool,
    },
    /// WINDOW_UPDATE.
    WindowUpdate {
        /// The increment in bytes.
        increment: u32,
    },
    /// RST_STREAM; `RESET_STREAM` and `STOP_SENDING` of QUIC.
    Reset {
        /// The code's name in RFC 9113 §7 or RFC 9114 §8.1, or its number.
        error_code: String,
    },
    /// GOAWAY of HTTP/2.
    GoAway {
        /// The highest stream that was or might be processed.
        last_stream_id: u32,
        /// The code's name in RFC 9113 §7, or its number.
        error_code: String,
        /// Debug data, printable, as far as it is kept.
        debug: String,
    },
    /// GOAWAY of HTTP/3, which has no code.
    GoAwayFrom {
        /// A server's: the first of QUIC's streams that it does not process. A client's: the first push.
        id: u64,
    },
    /// PING.
    Ping {
        /// The eight octets, in hexadecimal.
        opaque: String,
    },
    /// PRIORITY.
    Priority(Dependency),
    /// `PRIORITY_UPDATE` (RFC 9218 §7.1).
    PriorityUpdate {
        /// The stream whose priority it is.
        prioritized_stream: u32,
        /// As sent, printable: `u=1, i`.
        priority_field_value: String,
    },
    /// A frame type that this reader does not know.
    Unknown {
        /// Its first octets, in hexadecimal.
        payload: String,
    },
    /// A frame too short for the contents of its type.
    Malformed {
        /// What is wrong.
        malformed: String,
    },
    /// The connection ended before the frame did.
    CutOff {
        /// Payload bytes that were seen.
        received: u64,
    },
}
