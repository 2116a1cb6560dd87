//! The instructions on the peer's encoder and decoder streams (RFC 9204 §4.3, §4.4). Without a dynamic table few are
//! legal.

use super::super::fault::{Fault, connection};
use crate::ErrorCode;

/// Set Dynamic Table Capacity to 0 (§4.3.1), in its only form.
const CAPACITY_ZERO: u8 = 0x20;

/// Checks bytes of the peer's encoder stream; each of them is a whole instruction, or an error.
pub(in super::super) fn check_encoder_stream(bytes: &[u8]) -> Result<(), Fault> {
    if bytes.iter().all(|byte| *byte == CAPACITY_ZERO) {
        return Ok(());
    }
    let reason = "an instruction for a dynamic table, whose capacity is 0 (RFC 9204 §3.2.3, §4.3)";
    Err(connection(ErrorCode::QPACK_ENCODER_STREAM_ERROR, reason))
}

/// Reads the peer's decoder stream.
#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct DecoderStream {
    /// Bytes of the integer under way, beyond its first; 0 between instructions.
    continued: u8,
}

/// Bytes of the longest integer that QPACK allows, 62 bits after a prefix of 6 (§4.1.1), without the first.
const LONGEST_REST: u8 = 9;

impl DecoderStream {
    /// Checks more bytes. A peer with a dynamic table of its own may cancel streams (§4.4.2); it has nothing to
    /// acknowledge (§4.4.1) and no insertions to count (§4.4.3).
    pub(in super::super) fn check(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let wrong = |reason| Err(connection(ErrorCode::QPACK_DECODER_STREAM_ERROR, reason));
        for &byte in bytes {
            let goes_on = match (self.continued, byte) {
                (0, 0x80..) => {
                    return wrong("an acknowledgment of a section that needs none (RFC 9204 §4.4.1)");
                }
                (0, ..0x40) => return wrong("an increment, although nothing was inserted (RFC 9204 §4.4.3)"),
                (0, _) => byte == 0x7f,
                _ => byte & 0x80 != 0,
            };
            self.continued = if goes_on { self.continued + 1 } else { 0 };
            if self.continued > LONGEST_REST {
                return wrong("a stream id of more than 62 bits (RFC 9204 §4.1.1)");
            }
        }
        Ok(())
    }
}
