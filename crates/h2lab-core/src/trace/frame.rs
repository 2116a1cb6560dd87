//! One frame as the Tap saw it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::Time;
use crate::wire::StreamId;

/// The direction of bytes, as the client sees it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Client to server.
    Up,
    /// Server to client.
    Down,
}

/// A frame type of RFC 9113 §6, by its number; unknown types survive. HTTP/1.1 heads count as HEADERS, pieces of body
/// as DATA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FrameKind(pub u8);

impl FrameKind {
    /// DATA.
    pub const DATA: Self = Self(0);
    /// HEADERS.
    pub const HEADERS: Self = Self(1);
    /// PRIORITY.
    pub const PRIORITY: Self = Self(2);
    /// RST_STREAM.
    pub const RST_STREAM: Self = Self(3);
    /// SETTINGS.
    pub const SETTINGS: Self = Self(4);
    /// PUSH_PROMISE.
    pub const PUSH_PROMISE: Self = Self(5);
    /// PING.
    pub const PING: Self = Self(6);
    /// GOAWAY.
    pub const GOAWAY: Self = Self(7);
    /// WINDOW_UPDATE.
    pub const WINDOW_UPDATE: Self = Self(8);
    /// CONTINUATION.
    pub const CONTINUATION: Self = Self(9);
    /// `PRIORITY_UPDATE` (RFC 9218 §7.1).
    pub const PRIORITY_UPDATE: Self = Self(0x10);
}

impl fmt::Display for FrameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match crate::wire::connection::FRAME_TYPES.get(usize::from(self.0)) {
            Some(name) if self.0 < 10 => f.pad(name),
            _ if *self == Self::PRIORITY_UPDATE => f.pad("PRIORITY_UPDATE"),
            _ => write!(f, "{:#04x}", self.0),
        }
    }
}

/// One frame, 32 bytes, as it crossed the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameEvent {
    /// Client to server: when its frame header had been handed to the socket. Server to client: when its last byte had
    /// been read. GOAWAY, RST_STREAM and WINDOW_UPDATE: their last byte, either way.
    pub at: Time,
    /// The connection's index in the cell.
    pub connection: u32,
    /// The stream, 0 for the connection.
    pub stream: StreamId,
    /// Payload bytes, without the 9-byte frame header.
    pub length: u32,
    /// WINDOW_UPDATE: the increment. RST_STREAM, GOAWAY: the error code. HEADERS of a response: 0. Else 0.
    pub value: u32,
    /// The type.
    pub kind: FrameKind,
    /// The flags as they stand in the header.
    pub flags: u8,
    /// Which way it went.
    pub direction: Direction,
}

impl FrameEvent {
    /// END_STREAM on DATA and HEADERS (RFC 9113 §6.1).
    pub const END_STREAM: u8 = 0x1;

    /// Whether this frame ends its stream in its direction.
    pub fn ends_stream(&self) -> bool {
        matches!(self.kind, FrameKind::DATA | FrameKind::HEADERS) && self.flags & Self::END_STREAM != 0
    }
}

impl fmt::Display for FrameEvent {
    /// Wireshark's spelling: `HEADERS[1]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.kind, self.stream)
    }
}
