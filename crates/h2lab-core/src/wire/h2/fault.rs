//! What a violation by the peer costs (RFC 9113 §5.4).

use crate::wire::ErrorCode;
use crate::wire::limits::Exceeded;

/// A violation: of the whole connection, answered by GOAWAY, or of one stream, answered by RST_STREAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The connection cannot go on.
    Connection {
        /// The code in the GOAWAY.
        code: ErrorCode,
        /// What the peer did; becomes the GOAWAY's debug data.
        reason: &'static str,
    },
    /// A bound was exceeded: the connection ends with `ENHANCE_YOUR_CALM`.
    Excess(Exceeded),
    /// The stream ends, the connection goes on.
    Stream {
        /// The stream.
        stream: u32,
        /// The code in the RST_STREAM.
        code: ErrorCode,
        /// What the peer did; used when no RST_STREAM is possible, because the stream is idle.
        reason: &'static str,
    },
}

impl Fault {
    pub(super) const fn protocol(reason: &'static str) -> Self {
        Self::Connection { code: ErrorCode::PROTOCOL_ERROR, reason }
    }

    pub(super) const fn frame_size(reason: &'static str) -> Self {
        Self::Connection { code: ErrorCode::FRAME_SIZE_ERROR, reason }
    }

    pub(super) const fn flow_control(reason: &'static str) -> Self {
        Self::Connection { code: ErrorCode::FLOW_CONTROL_ERROR, reason }
    }

    /// A malformed message (§8.1.1).
    pub(super) const fn malformed(stream: u32, reason: &'static str) -> Self {
        Self::Stream { stream, code: ErrorCode::PROTOCOL_ERROR, reason }
    }
}
