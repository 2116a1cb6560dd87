//! What can go wrong on a connection, and whose fault it was.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::limits::Exceeded;

/// Who ended a stream or a connection.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Initiator {
    /// The role that drives the engine asked for it.
    Local,
    /// The engine, answering an error of the peer.
    Engine,
    /// The peer.
    Remote,
}

/// An HTTP/2 error code (RFC 9113 §7). Unknown codes survive and print in hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ErrorCode(pub u32);

macro_rules! error_codes {
    ($($name:ident = $value:literal, $doc:literal;)*) => {
        impl ErrorCode {
            $(#[doc = $doc] pub const $name: Self = Self($value);)*

            /// The name in RFC 9113, if it has one.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

error_codes! {
    NO_ERROR = 0x0, "Graceful shutdown.";
    PROTOCOL_ERROR = 0x1, "An unspecific protocol error.";
    INTERNAL_ERROR = 0x2, "An unexpected internal error.";
    FLOW_CONTROL_ERROR = 0x3, "The peer violated flow control.";
    SETTINGS_TIMEOUT = 0x4, "A SETTINGS frame was not acknowledged in time.";
    STREAM_CLOSED = 0x5, "A frame arrived on a half-closed stream.";
    FRAME_SIZE_ERROR = 0x6, "A frame had an invalid size.";
    REFUSED_STREAM = 0x7, "The stream was refused before any processing; the request may be sent again.";
    CANCEL = 0x8, "The stream is no longer needed.";
    COMPRESSION_ERROR = 0x9, "The header compression state cannot be maintained.";
    CONNECT_ERROR = 0xa, "The connection of a CONNECT request was reset.";
    ENHANCE_YOUR_CALM = 0xb, "The peer causes excessive load.";
    INADEQUATE_SECURITY = 0xc, "The transport is not secure enough.";
    HTTP_1_1_REQUIRED = 0xd, "HTTP/1.1 is required.";
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

/// Why a connection cannot go on. The variant says whose fault it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer broke HTTP/2; the engine answered with GOAWAY and this code.
    #[error("the peer broke HTTP/2: {reason} ({code})")]
    PeerMisbehaved {
        /// The code in our GOAWAY.
        code: ErrorCode,
        /// What it did, with the RFC section where one names it.
        reason: &'static str,
    },
    /// The peer broke HTTP/1.1.
    #[error("the peer broke HTTP/1.1: {0}")]
    BadHttp1(&'static str),
    /// The first bytes are of another protocol: an HTTP/1.1 answer on an HTTP/2 connection, TLS on a cleartext port …
    #[error("the peer does not speak {expected}: {hint}")]
    WrongProtocol {
        /// The protocol that we speak here.
        expected: &'static str,
        /// What the bytes look like instead, and so what to try.
        hint: &'static str,
    },
    /// The peer ended the HTTP/2 connection with a GOAWAY that carries an error code.
    #[error("the peer ended the connection with GOAWAY {0}")]
    GoAway(ErrorCode),
    /// The peer went beyond one of our [`super::Limits`]; over HTTP/2 the engine answered with a GOAWAY that says so.
    #[error("{0}")]
    Exceeded(Exceeded),
    /// The transport ended in the middle of a message.
    #[error("the connection ended in the middle of {0}")]
    UnexpectedEof(&'static str),
    /// A deadline of the engine passed: the peer's preface, a PING or SETTINGS acknowledgement.
    #[error("the peer did not send {0} in time")]
    Timeout(&'static str),
    /// The role used the engine wrongly (our own defect, never the peer's).
    #[error("misuse of the engine: {0}")]
    Misuse(&'static str),
}
