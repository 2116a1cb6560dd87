//! Bytes that QUIC keeps until the peer has acknowledged them.

use quinn_proto::{Connection, StreamId, WriteError};

use super::session::QuicSession;
use super::settings::SEND_WINDOW;

/// It is not found out more exactly than to so many bytes.
const GRAIN: u64 = 16 * 1024;

/// What is known of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unacknowledged {
    /// As many as it can be: what was found out last, and all that was written since.
    most: u64,
    /// How often the peer had acknowledged anything then.
    as_of: u64,
    /// A stream was reset since: what it had is no longer kept.
    is_less: bool,
    /// How many it may be.
    window: u64,
}

impl Default for Unacknowledged {
    fn default() -> Self {
        Self { most: 0, as_of: 0, is_less: false, window: SEND_WINDOW }
    }
}

impl Unacknowledged {
    /// So many bytes were written.
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

    /// Bytes that were written and are kept, since the peer has not acknowledged them: as many, or up to 16 KiB more. While the peer grants
    /// no further byte it may be more than there are, and never less.
    pub fn unacknowledged(&mut self) -> u64 {
        let as_of = self.acknowledgements();
        let known = self.unacknowledged;
        if known.most <= GRAIN || !self.greeted || (known.as_of == as_of && !known.is_less) {
            return known.most;
        }
        let control = self.control();
        let most = held(&mut self.proto, control, known.most);
        self.proto.set_send_window(known.window);
        // Without an answer the next acknowledgement may bring one.
        self.unacknowledged =
            Unacknowledged { most: most.unwrap_or(known.most), as_of, is_less: false, ..known };
        self.unacknowledged.most
    }
}

/// `quinn-proto` tells nobody how much it keeps, but takes no byte on any stream where that is its window or more: of the windows up to
/// `most` the one is looked for. `None` where the peer grants no byte, so that none is taken with any window. The window is another one
/// after that.
fn held(proto: &mut Connection, control: StreamId, most: u64) -> Option<u64> {
    let mut takes = |window: u64| {
        proto.set_send_window(window);
        !matches!(proto.send_stream(control).write(&[]), Err(WriteError::Blocked))
    };
    if !takes(u64::MAX) {
        return None;
    }
    let (mut least, mut most) = (0, most);
    while most - least > GRAIN {
        let middle = least.midpoint(most);
        *(if takes(middle) { &mut most } else { &mut least }) = middle;
    }
    Some(most)
}
