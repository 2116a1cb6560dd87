//! A frame as the Tap saw it.

use h2lab_base::JsonSchema;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::StreamId;
use h2lab_base::units::Time;

/// The direction of bytes, as the client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Client to server.
    Up,
    /// Server to client.
    Down,
}

impl Direction {
    /// The other one.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }
}

/// A frame type of RFC 9113 §6, by its number; unknown types are kept. HTTP/1.1 heads count as HEADERS, pieces of body
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
    /// `PRIORITY_UPDATE` (RFC 9218 §7.1, §7.2).
    pub const PRIORITY_UPDATE: Self = Self(0x10);
    /// `MAX_PUSH_ID` of HTTP/3 (RFC 9114 §7.2.7), where HTTP/2 has nothing.
    pub const MAX_PUSH_ID: Self = Self(0x0d);
    /// `CANCEL_PUSH` of HTTP/3 (RFC 9114 §7.2.3), whose number HTTP/2 uses otherwise. The numbers from here on are
    /// ours.
    pub const CANCEL_PUSH: Self = Self(0xf3);
    /// QUIC's reset of a stream by its sender (`RESET_STREAM`, RFC 9000 §19.4): with the next the equivalent of
    /// HTTP/2's RST_STREAM.
    pub const RESET_STREAM: Self = Self(0xf4);
    /// A receiver stopped reading a stream (`STOP_SENDING`, RFC 9000 §19.5).
    pub const STOP_SENDING: Self = Self(0xf5);
    /// A frame of HTTP/3 that we do not know; its types have 62 bits.
    pub const OTHER: Self = Self(0xff);
}

impl fmt::Display for FrameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match crate::connection::FRAME_TYPES.get(usize::from(self.0)) {
            Some(name) if self.0 < 10 => f.pad(name),
            _ if *self == Self::PRIORITY_UPDATE => f.pad("PRIORITY_UPDATE"),
            _ if *self == Self::MAX_PUSH_ID => f.pad("MAX_PUSH_ID"),
            _ if *self == Self::CANCEL_PUSH => f.pad("CANCEL_PUSH"),
            _ if *self == Self::RESET_STREAM => f.pad("RESET_STREAM"),
            _ if *self == Self::STOP_SENDING => f.pad("STOP_SENDING"),
            _ if *self == Self::OTHER => f.pad("other"),
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
    /// Payload bytes, without the frame header.
    pub length: u32,
    /// WINDOW_UPDATE: the increment. RST_STREAM, GOAWAY of HTTP/2, `RESET_STREAM`, `STOP_SENDING`: the error code. Else
    /// 0.
    pub value: u32,
    /// The type.
    pub kind: FrameKind,
    /// The flags as they stand in the header. HTTP/3 has none: there END_STREAM says that the stream ended with this
    /// frame, as far as that was seen in one piece with it.
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

/// A receiver of frames from the readers of bytes, and optionally of their payloads.
///
/// The [`Tap`](super::Tap) uses no payloads and does not pay for them: the empty default methods compile to nothing.
pub(super) trait Sink {
    /// Whether frames are wanted only when all of their payload was seen, whichever way they go.
    const WHOLE: bool = false;

    /// A frame.
    fn frame(&mut self, frame: BareFrame);

    /// HTTP/2, HTTP/3: the header of the next frame is there. Only with `WHOLE`.
    fn begin(&mut self, _frame: BareFrame) {}

    /// Bytes of the next frame's payload: of an HTTP/1.1 head or trailer section, of an HTTP/2 payload. Of an HTTP/1.1
    /// body only the length is reported.
    fn payload(&mut self, _bytes: &[u8]) {}

    /// HTTP/2: bytes of an HTTP/1.1 head that comes before the frames of a connection that upgrades (RFC 7540 §3.2),
    /// and whether it ends with them.
    fn head_before(&mut self, _bytes: &[u8], _ends: bool) {}

    /// HTTP/1.1: bytes of the body's framing.
    fn framing(&mut self, _bytes: &[u8]) {}
}

impl<F: FnMut(BareFrame)> Sink for F {
    fn frame(&mut self, frame: BareFrame) {
        self(frame);
    }
}

/// A frame without time, connection and direction.
#[derive(Debug, Clone, Copy)]
pub(super) struct BareFrame {
    pub(super) stream: StreamId,
    pub(super) length: u32,
    pub(super) value: u32,
    pub(super) kind: FrameKind,
    pub(super) flags: u8,
}

impl BareFrame {
    /// The frame with them.
    pub(super) const fn event(self, at: Time, connection: u32, direction: Direction) -> FrameEvent {
        let Self { stream, length, value, kind, flags } = self;
        FrameEvent { at, connection, stream, length, value, kind, flags, direction }
    }
}
