//! What crosses a transport of either kind, and why one breaks.

use std::io;

use h2lab_wire::StreamId;
use h2lab_wire::h3::stream::QuicStreamId;

use super::tls::TlsError;

/// Why a transport broke.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// TCP or UDP broke; or QUIC, in one of the ways that TCP knows, too.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// TLS broke.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The peer knows no version of QUIC that we know.
    #[error("it speaks another version of QUIC")]
    QuicVersion,
    /// One side broke the rules of QUIC, or gave the connection up.
    #[error("QUIC: {0}")]
    Quic(String),
}

/// What crosses, as whoever looks at a connection sees it, one way or the other.
#[derive(Debug, Clone, Copy)]
pub enum Crossing<'a> {
    /// Bytes in clear.
    Bytes {
        /// The stream that they are on; `None` if there is only one.
        stream: Option<QuicStreamId>,
        /// The bytes; QUIC may end a stream without any.
        bytes: &'a [u8],
        /// The stream ends behind them; never of the one stream of TCP.
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

/// What receiving came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// So many bytes were taken, of which not all need be for the engine, which may have other news as well.
    Bytes(usize),
    /// Nothing now; a completion says when there is more.
    WouldBlock,
    /// The peer has finished, and the engine knows.
    Eof,
}

/// What sending came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// So many bytes were taken, which may be none of this stream but some of others.
    Bytes {
        /// The request whose stream it was, or [`StreamId::CONNECTION`] for what concerns all; `None` if there is only one.
        stream: Option<StreamId>,
        /// How many.
        bytes: usize,
    },
    /// The engine has nothing to say that could be taken now.
    Nothing,
    /// The socket is full.
    WouldBlock,
}
