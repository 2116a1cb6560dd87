//! The violations of RFC 9113.

pub(super) use crate::fault::Fault;

use crate::ErrorCode;

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
