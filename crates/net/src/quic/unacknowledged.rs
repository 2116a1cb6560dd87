//! Bytes that QUIC keeps until the peer has acknowledged them.

use quinn_proto::{Connection, StreamId, WriteError};

use super::session::QuicSession;
use super::settings::SEND_WINDOW;

/// The precision, in bytes, with which their number is determined.
const PRECISION_BYTES: u64 = 16 * 1024;

/// What is known of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unacknowledged {
    /// An upper bound of their number: what was determined last, plus all that was written since.
    most: u64,
    /// How often the peer had acknowledged anything at that time.
    as_of: u64,
    /// A stream was reset since: its bytes are no longer kept.
    is_less: bool,
    /// How many there may be.
    window: u64,
}

impl Default for Unacknowledged {
    fn default() -> Self {
        Self { most: 0, as_of: 0, is_less: false, window: SEND_WINDOW }
    }
}

impl Unacknowledged {
    /// `bytes` bytes were written.
    pub(super) const fn wrote(&mut self, bytes: usize) {
        self.most = self.most.saturating_add(bytes as u64);
    }

    /// A stream was reset.
    pub(super) const fn was_reset(&mut self) {
        self.is_less = true;
    }
}

impl QuicSession {
    /// How many bytes the peer may leave unacknowledged, in all.
    pub fn limit_unacknowledged(&mut self, bytes: u64) {
        self.unacknowledged.window = bytes;
        self.proto.set_send_window(bytes);
    }

    /// Bytes that were written and are kept, since the peer has not acknowledged them: exact, or up to 16 KiB too many.
    /// While the peer grants no credit it may be more than that, but it is never too few.
    pub fn unacknowledged(&mut self) -> u64 {
        let as_of = self.acknowledgements();
        let known = self.unacknowledged;
        if known.most <= PRECISION_BYTES || !self.greeted || (known.as_of == as_of && !known.is_less) {
            return known.most;
        }
        let control = self.control();
        let most = held(&mut self.proto, control, known.most);
        self.proto.set_send_window(known.window);
        // If it could not be determined now, the next acknowledgement may make it possible.
        self.unacknowledged =
            Unacknowledged { most: most.unwrap_or(known.most), as_of, is_less: false, ..known };
        self.unacknowledged.most
    }
}

/// `quinn-proto` does not report how many bytes it keeps. But it accepts no byte on any stream where that number
/// reaches its send window: this searches the windows up to `most` for that number. `None` where the peer grants no
/// credit, so that no byte is accepted with any window. The send window is changed afterwards.
fn held(proto: &mut Connection, control: StreamId, most: u64) -> Option<u64> {
    let mut takes = |window: u64| {
        proto.set_send_window(window);
        !matches!(proto.send_stream(control).write(&[]), Err(WriteError::Blocked))
    };
    if !takes(u64::MAX) {
        return None;
    }
    let (mut least, mut most) = (0, most);
    while most - least > PRECISION_BYTES {
        let middle = least.midpoint(most);
        *(if takes(middle) { &mut most } else { &mut least }) = middle;
    }
    Some(most)
}
