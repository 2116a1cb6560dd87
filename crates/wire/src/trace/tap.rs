//! The [`Tap`]: bytes of a connection in, frames with their times out.

use serde::{Deserialize, Serialize};

use super::frame::{BareFrame, Direction, FrameEvent, Sink};
use super::{http1, http2, http3};
use crate::h3::stream::QuicStreamId;
use h2lab_base::units::Time;

/// How to read the bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// HTTP/1.1: heads count as HEADERS, pieces of body as DATA.
    Http1,
    /// HTTP/2 by prior knowledge or ALPN.
    Http2,
    /// HTTP/3, whose bytes are in many streams.
    Http3,
}

impl Dialect {
    /// The dialect of a protocol, by whether it has streams, and whether those are QUIC's.
    pub const fn of(is_multiplexed: bool, is_quic: bool) -> Self {
        match (is_multiplexed, is_quic) {
            (false, _) => Self::Http1,
            (true, false) => Self::Http2,
            (true, true) => Self::Http3,
        }
    }
}

/// What crosses a transport, in one direction or the other, as an observer of the connection sees it.
#[derive(Debug, Clone, Copy)]
pub enum Crossing<'a> {
    /// Bytes in clear.
    Bytes {
        /// The stream that they are on; `None` if there is only one.
        stream: Option<QuicStreamId>,
        /// The bytes; QUIC may end a stream without any.
        bytes: &'a [u8],
        /// The stream ends behind them; never set for TCP's one stream.
        fin: bool,
    },
    /// `RESET_STREAM` (RFC 9000 §19.4).
    Reset {
        /// The stream.
        stream: QuicStreamId,
        /// Why.
        code: u64,
    },
    /// `STOP_SENDING` (RFC 9000 §19.5).
    Stop {
        /// The stream.
        stream: QuicStreamId,
        /// Why.
        code: u64,
    },
}

impl<'a> Crossing<'a> {
    /// Bytes of TCP's one stream.
    pub const fn tcp(bytes: &'a [u8]) -> Self {
        Self::Bytes { stream: None, bytes, fin: false }
    }
}

/// Watches the bytes of one connection, in clear, and reports each frame once.
///
/// It is on in every cell, on the generator's hot path: it looks at frame headers (HTTP/2, HTTP/3) or line ends
/// (HTTP/1.1) alone, and takes the bytes in pieces of any size. In HTTP/1.1 and HTTP/2 it allocates for its first heads
/// at most, in HTTP/3 for a stream whose bytes come in more than one piece. It validates nothing: bytes that break the
/// protocol are left to the engine, and are here at worst misread.
///
/// Events come in the order of their times.
#[derive(Debug)]
pub struct Tap {
    connection: u32,
    pub(super) parser: Parser,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one per connection, and it stays where it is")]
pub(super) enum Parser {
    Http1(http1::Exchanges),
    Http2(http2::Frames),
    Http3(http3::Frames),
}

impl Parser {
    pub(super) fn new(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Http1 => Self::Http1(http1::Exchanges::default()),
            Dialect::Http2 => Self::Http2(http2::Frames::default()),
            Dialect::Http3 => Self::Http3(http3::Frames::default()),
        }
    }

    #[inline]
    pub(super) fn feed(&mut self, direction: Direction, crossing: Crossing<'_>, sink: &mut impl Sink) {
        match (self, crossing) {
            (Self::Http1(exchanges), Crossing::Bytes { bytes, .. }) => exchanges.feed(direction, bytes, sink),
            (Self::Http2(frames), Crossing::Bytes { bytes, .. }) => frames.feed(direction, bytes, sink),
            (Self::Http3(frames), Crossing::Bytes { stream: Some(stream), bytes, fin }) => {
                frames.feed(direction, stream, bytes, fin, sink);
            }
            (Self::Http3(frames), Crossing::Reset { stream, code }) => {
                sink.frame(frames.abort(direction, stream, false, code));
            }
            (Self::Http3(frames), Crossing::Stop { stream, code }) => {
                sink.frame(frames.abort(direction, stream, true, code));
            }
            _ => {} // TCP aborts no stream, and all bytes of QUIC are on one
        }
    }
}

impl Tap {
    /// A tap for the connection with this index.
    pub fn new(dialect: Dialect, connection: u32) -> Self {
        Self { connection, parser: Parser::new(dialect) }
    }

    /// These bytes crossed TCP at `now`. Each frame that they complete is given to `sink`.
    pub fn feed(&mut self, now: Time, direction: Direction, bytes: &[u8], sink: &mut impl FnMut(FrameEvent)) {
        self.cross(now, direction, Crossing::tcp(bytes), sink);
    }

    /// The same for what crossed any transport.
    #[inline]
    pub fn cross(
        &mut self,
        now: Time,
        direction: Direction,
        crossing: Crossing<'_>,
        sink: &mut impl FnMut(FrameEvent),
    ) {
        let connection = self.connection;
        let mut emit = |frame: BareFrame| sink(frame.event(now, connection, direction));
        self.parser.feed(direction, crossing, &mut emit);
    }
}
