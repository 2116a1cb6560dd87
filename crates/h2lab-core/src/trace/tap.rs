//! The [`Tap`]: bytes of a connection in, frames with their times out.

use serde::{Deserialize, Serialize};

use super::frame::{Direction, FrameEvent};
use super::{http1, http2};
use crate::units::Time;

/// How the bytes of a connection are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// HTTP/1.1: heads count as HEADERS, pieces of body as DATA.
    Http1,
    /// HTTP/2 by prior knowledge or ALPN.
    Http2,
}

/// Watches the bytes of one connection, in clear, and tells each frame once.
///
/// It is on in every cell, on the generator's hot path: it looks at frame headers (HTTP/2) or line ends (HTTP/1.1)
/// alone, takes the bytes in pieces of any size, and allocates for its first heads at most. It judges nothing: bytes that break the protocol
/// are the engine's business, and here at worst misread.
///
/// Events come in the order of their times.
#[derive(Debug)]
pub struct Tap {
    connection: u32,
    parser: Parser,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one per connection, and it stays where it is")]
enum Parser {
    Http1(http1::Exchanges),
    Http2(http2::Frames),
}

impl Tap {
    /// A tap for the connection with this index.
    pub fn new(dialect: Dialect, connection: u32) -> Self {
        let parser = match dialect {
            Dialect::Http1 => Parser::Http1(http1::Exchanges::default()),
            Dialect::Http2 => Parser::Http2(http2::Frames::default()),
        };
        Self { connection, parser }
    }

    /// These bytes crossed the socket at `now`. Each frame that they complete is given to `sink`.
    pub fn feed(&mut self, now: Time, direction: Direction, bytes: &[u8], sink: &mut impl FnMut(FrameEvent)) {
        let connection = self.connection;
        let mut emit = |frame: Frame| {
            let Frame { stream, length, value, kind, flags } = frame;
            sink(FrameEvent { at: now, connection, stream, length, value, kind, flags, direction });
        };
        match &mut self.parser {
            Parser::Http1(exchanges) => exchanges.feed(direction, bytes, &mut emit),
            Parser::Http2(frames) => frames.feed(direction, bytes, &mut emit),
        }
    }
}

/// Who is told of frames by the readers of bytes, and, if it wants to know what is in them, of their payloads.
///
/// The [`Tap`] wants neither and pays for neither: what it leaves empty here compiles to nothing.
pub(super) trait Sink {
    /// Whether frames are wanted only when all of their payload was seen, whichever way they go.
    const WHOLE: bool = false;

    /// A frame.
    fn frame(&mut self, frame: Frame);

    /// HTTP/2: the header of the next frame is there. Only with `WHOLE`.
    fn begin(&mut self, _frame: Frame) {}

    /// Bytes of the next frame's payload: of an HTTP/1.1 head or trailer section, of an HTTP/2 payload. In HTTP/1.1 what
    /// is in a body is told by its length alone.
    fn payload(&mut self, _bytes: &[u8]) {}

    /// HTTP/2: bytes of an HTTP/1.1 head that comes before the frames of a connection that upgrades (RFC 7540 §3.2), and
    /// whether it ends with them.
    fn head_before(&mut self, _bytes: &[u8], _ends: bool) {}

    /// HTTP/1.1: bytes that frame the body and are no part of it.
    fn framing(&mut self, _bytes: &[u8]) {}
}

impl<F: FnMut(Frame)> Sink for F {
    fn frame(&mut self, frame: Frame) {
        self(frame);
    }
}

/// A frame without its circumstances.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) stream: crate::wire::StreamId,
    pub(super) length: u32,
    pub(super) value: u32,
    pub(super) kind: super::frame::FrameKind,
    pub(super) flags: u8,
}
