//! The [`Tap`]: bytes of a connection in, frames with their times out.

use serde::{Deserialize, Serialize};

use super::frame::{BareFrame, Direction, FrameEvent};
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

/// Watches the bytes of one connection, in clear, and reports each frame once.
///
/// It is on in every cell, on the generator's hot path: it looks at frame headers (HTTP/2, HTTP/3) or line ends (HTTP/1.1)
/// alone, and takes the bytes in pieces of any size. In HTTP/1.1 and HTTP/2 it allocates for its first heads at most, in
/// HTTP/3 for a stream whose bytes come in more than one piece. It validates nothing: bytes that break the protocol are the
/// engine's business, and here at worst misread.
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

impl Tap {
    /// A tap for the connection with this index.
    pub fn new(dialect: Dialect, connection: u32) -> Self {
        let parser = match dialect {
            Dialect::Http1 => Parser::Http1(http1::Exchanges::default()),
            Dialect::Http2 => Parser::Http2(http2::Frames::default()),
            Dialect::Http3 => Parser::Http3(http3::Frames::default()),
        };
        Self { connection, parser }
    }

    /// These bytes crossed the socket at `now`. Each frame that they complete is given to `sink`. Does nothing in
    /// HTTP/3, see [`Tap::feed_stream`].
    pub fn feed(&mut self, now: Time, direction: Direction, bytes: &[u8], sink: &mut impl FnMut(FrameEvent)) {
        let connection = self.connection;
        let mut emit = |frame: BareFrame| sink(frame.event(now, connection, direction));
        match &mut self.parser {
            Parser::Http1(exchanges) => exchanges.feed(direction, bytes, &mut emit),
            Parser::Http2(frames) => frames.feed(direction, bytes, &mut emit),
            Parser::Http3(_) => {}
        }
    }

    /// HTTP/3: these bytes crossed on a stream of QUIC, which ends after them if `fin`.
    pub fn feed_stream(
        &mut self,
        now: Time,
        direction: Direction,
        stream: QuicStreamId,
        bytes: &[u8],
        fin: bool,
        sink: &mut impl FnMut(FrameEvent),
    ) {
        let connection = self.connection;
        let Parser::Http3(frames) = &mut self.parser else { return };
        let mut emit = |frame: BareFrame| sink(frame.event(now, connection, direction));
        frames.feed(direction, stream, bytes, fin, &mut emit);
    }

    /// HTTP/3: the sender in `direction` aborted a stream with this code: its reading (`stops`) or its sending.
    pub fn abort(
        &mut self,
        now: Time,
        direction: Direction,
        stream: QuicStreamId,
        stops: bool,
        code: u64,
        sink: &mut impl FnMut(FrameEvent),
    ) {
        let Parser::Http3(frames) = &mut self.parser else { return };
        sink(frames.abort(direction, stream, stops, code).event(now, self.connection, direction));
    }
}
