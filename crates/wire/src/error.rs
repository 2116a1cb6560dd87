//! What can go wrong on a connection, and whose fault it was.

use h2lab_base::JsonSchema;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::limits::Exceeded;

/// Who ended a stream or a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Initiator {
    /// The role that drives the engine asked for it.
    Local,
    /// The engine, answering an error of the peer.
    Engine,
    /// The peer.
    Remote,
}

/// An error code of HTTP/2 (RFC 9113 §7) or of HTTP/3 (RFC 9114 §8.1, RFC 9204 §6), whose numbers do not overlap.
/// Unknown codes are kept, and print in hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ErrorCode(pub u32);

macro_rules! error_codes {
    ($($name:ident = $value:literal, $doc:literal;)*) => {
        impl ErrorCode {
            $(#[doc = $doc] pub const $name: Self = Self($value);)*

            /// The name in its RFC, if it has one.
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
    H3_NO_ERROR = 0x100, "HTTP/3: the connection or stream is closed without an error.";
    H3_GENERAL_PROTOCOL_ERROR = 0x101, "HTTP/3: an unspecific protocol error.";
    H3_INTERNAL_ERROR = 0x102, "HTTP/3: an unexpected internal error.";
    H3_STREAM_CREATION_ERROR = 0x103, "HTTP/3: the peer opened a stream that we do not accept.";
    H3_CLOSED_CRITICAL_STREAM = 0x104, "HTTP/3: a stream that the connection needs was closed.";
    H3_FRAME_UNEXPECTED = 0x105, "HTTP/3: a frame was received where or when it is not permitted.";
    H3_FRAME_ERROR = 0x106, "HTTP/3: a frame has the wrong layout or size.";
    H3_EXCESSIVE_LOAD = 0x107, "HTTP/3: the peer causes excessive load.";
    H3_ID_ERROR = 0x108, "HTTP/3: a stream or push id was used wrongly.";
    H3_SETTINGS_ERROR = 0x109, "HTTP/3: an error in SETTINGS.";
    H3_MISSING_SETTINGS = 0x10a, "HTTP/3: the control stream does not begin with SETTINGS.";
    H3_REQUEST_REJECTED = 0x10b, "HTTP/3: the request was not processed at all and may be sent again.";
    H3_REQUEST_CANCELLED = 0x10c, "HTTP/3: the request or its response is no longer needed.";
    H3_REQUEST_INCOMPLETE = 0x10d, "HTTP/3: the client's stream ended without a whole request.";
    H3_MESSAGE_ERROR = 0x10e, "HTTP/3: a message is malformed.";
    H3_CONNECT_ERROR = 0x10f, "HTTP/3: the connection of a CONNECT request was reset.";
    H3_VERSION_FALLBACK = 0x110, "HTTP/3: the request must be sent over HTTP/1.1.";
    QPACK_DECOMPRESSION_FAILED = 0x200, "HTTP/3: a field section cannot be decoded.";
    QPACK_ENCODER_STREAM_ERROR = 0x201, "HTTP/3: an instruction of the peer's encoder is wrong.";
    QPACK_DECODER_STREAM_ERROR = 0x202, "HTTP/3: an instruction of the peer's decoder is wrong.";
}

impl ErrorCode {
    /// The HTTP/3 code for a code that a role gives in HTTP/2's numbers, so that roles need not distinguish the two. A
    /// code of HTTP/3 stays as it is.
    #[must_use]
    pub const fn in_http3(self) -> Self {
        match self {
            Self::NO_ERROR => Self::H3_NO_ERROR,
            Self::PROTOCOL_ERROR | Self::STREAM_CLOSED => Self::H3_GENERAL_PROTOCOL_ERROR,
            Self::FRAME_SIZE_ERROR => Self::H3_FRAME_ERROR,
            Self::SETTINGS_TIMEOUT => Self::H3_MISSING_SETTINGS,
            Self::REFUSED_STREAM => Self::H3_REQUEST_REJECTED,
            Self::CANCEL => Self::H3_REQUEST_CANCELLED,
            Self::COMPRESSION_ERROR => Self::QPACK_DECOMPRESSION_FAILED,
            Self::CONNECT_ERROR => Self::H3_CONNECT_ERROR,
            Self::ENHANCE_YOUR_CALM => Self::H3_EXCESSIVE_LOAD,
            Self::HTTP_1_1_REQUIRED => Self::H3_VERSION_FALLBACK,
            Self(0x2 | 0x3 | 0xc) => Self::H3_INTERNAL_ERROR,
            other => other,
        }
    }

    /// A code as QUIC carries it, up to 2^62 − 1. A number of HTTP/2 is unknown to HTTP/3 and so equivalent to
    /// [`ErrorCode::H3_NO_ERROR`] (RFC 9114 §8.1), which replaces it: kept, it would be read with its HTTP/2 meaning, 7
    /// as a refusal. Values above 2^32 − 1, which no RFC names, are replaced too.
    pub const fn of_quic(code: u64) -> Self {
        let code = Self(if code > u32::MAX as u64 { u32::MAX } else { code as u32 });
        if code.name().is_some() && !code.is_http3() { Self::H3_NO_ERROR } else { code }
    }

    /// Whether it says that the request was not processed at all, so that it may be sent again (RFC 9113 §8.7, RFC 9114
    /// §4.1.1).
    pub const fn is_refusal(self) -> bool {
        matches!(self, Self::REFUSED_STREAM | Self::H3_REQUEST_REJECTED)
    }

    /// Whether it belongs to HTTP/3.
    const fn is_http3(self) -> bool {
        matches!(self.0, 0x100..=0x110 | 0x200..=0x202)
    }

    const fn protocol(self) -> &'static str {
        if self.is_http3() { "HTTP/3" } else { "HTTP/2" }
    }

    /// The frame that conveys it when it ends a connection.
    const fn frame_name(self) -> &'static str {
        if self.is_http3() { "CONNECTION_CLOSE" } else { "GOAWAY" }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

/// Why a connection cannot continue. The variant says whose fault it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The peer broke HTTP/2 or HTTP/3; the engine answered with this code, in a GOAWAY or by closing the transport.
    #[error("invalid {} from the peer: {reason} ({code})", code.protocol())]
    PeerMisbehaved {
        /// The code that was sent to the peer.
        code: ErrorCode,
        /// What it did, with the RFC section where one names it.
        reason: &'static str,
    },
    /// The peer broke HTTP/1.1.
    #[error("invalid HTTP/1.1 from the peer: {0}")]
    BadHttp1(&'static str),
    /// The first bytes are of another protocol: an HTTP/1.1 answer on an HTTP/2 connection, TLS on a cleartext port …
    #[error("the peer does not speak {expected}: {hint}")]
    WrongProtocol {
        /// The protocol that we speak here.
        expected: &'static str,
        /// What the bytes look like instead, and so what to try.
        hint: &'static str,
    },
    /// The peer ended the connection with an error code: in a GOAWAY, or over HTTP/3 by closing the transport.
    #[error("the peer ended the connection with {frame} {0}", frame = .0.frame_name())]
    GoAway(ErrorCode),
    /// The peer went beyond one of our [`super::Limits`]; over HTTP/2 and HTTP/3 the engine sent the matching error
    /// code.
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
