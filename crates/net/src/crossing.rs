//! The results of using a transport of either kind, and why one fails.

use std::io;

use h2lab_wire::StreamId;

use super::tls::TlsError;

/// Why a transport failed.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// TCP or UDP failed; or QUIC, in one of the ways that TCP has, too.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// TLS failed.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The peer supports no version of QUIC that we support.
    #[error("it speaks another version of QUIC")]
    QuicVersion,
    /// One side broke the rules of QUIC, or aborted the connection.
    #[error("QUIC: {0}")]
    Quic(String),
}

/// The result of receiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// This many bytes were taken, not all of them necessarily for the engine, which may have other events as well.
    Bytes(usize),
    /// Nothing now; a completion says when there is more.
    WouldBlock,
    /// The peer has finished, and the engine has recorded it.
    Eof,
}

/// The result of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// This many bytes were taken, possibly none of this stream but some of others.
    Bytes {
        /// The request whose stream it was, or [`StreamId::CONNECTION`] for what concerns all; `None` if there is only one.
        stream: Option<StreamId>,
        /// How many.
        bytes: usize,
    },
    /// The engine has nothing to send that could be taken now.
    Nothing,
    /// The socket is full.
    WouldBlock,
}
