//! The violations of RFC 9114.

use crate::ErrorCode;
pub(super) use crate::fault::Fault;

/// An error of the whole connection.
pub(super) const fn connection(code: ErrorCode, reason: &'static str) -> Fault {
    Fault::Connection { code, reason }
}

/// A frame where or when it must not be (RFC 9114 §7.2).
pub(super) const fn unexpected(reason: &'static str) -> Fault {
    connection(ErrorCode::H3_FRAME_UNEXPECTED, reason)
}

/// A frame with the wrong layout (RFC 9114 §7.1).
pub(super) const fn layout(reason: &'static str) -> Fault {
    connection(ErrorCode::H3_FRAME_ERROR, reason)
}

/// An invalid stream or push id (RFC 9114 §8.1).
pub(super) const fn id(reason: &'static str) -> Fault {
    connection(ErrorCode::H3_ID_ERROR, reason)
}

/// A malformed message (RFC 9114 §4.1.2).
pub(super) const fn message(stream: u32, reason: &'static str) -> Fault {
    Fault::Stream { stream, code: ErrorCode::H3_MESSAGE_ERROR, reason }
}
