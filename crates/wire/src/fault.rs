//! The consequence of a violation by the peer, in any protocol that has streams (RFC 9113 §5.4, RFC 9114 §8).

use super::ErrorCode;
use super::limits::Exceeded;

/// A violation. One of the whole connection is answered by GOAWAY or the end of the transport, one of a single stream
/// by RST_STREAM or its equivalent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The connection cannot continue.
    Connection {
        /// The code that is sent to the peer.
        code: ErrorCode,
        /// What the peer did; sent to the peer as debug data.
        reason: &'static str,
    },
    /// A bound was exceeded: the connection ends with `ENHANCE_YOUR_CALM` or `H3_EXCESSIVE_LOAD`.
    Excess(Exceeded),
    /// The stream ends, the connection continues.
    Stream {
        /// The stream.
        stream: u32,
        /// The code that is sent to the peer.
        code: ErrorCode,
        /// What the peer did; used when no RST_STREAM is possible, because the stream is idle.
        reason: &'static str,
    },
}
