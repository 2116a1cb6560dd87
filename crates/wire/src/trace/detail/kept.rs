//! The part of a payload that is examined.

/// Payload bytes of one frame, or of one field block over several frames, that are examined; what exceeds it is counted
/// and not kept. It is four times what our engine accepts as a header list, and far above what servers accept.
pub const KEPT: usize = 1 << 18;

/// Octets of unknown frames that are kept.
pub(super) const UNKNOWN_KEPT: usize = 64;

/// The first [`KEPT`] bytes of something, and how many there were.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub bytes: Vec<u8>,
    pub length: usize,
}

impl Kept {
    pub fn push(&mut self, bytes: &[u8], limit: usize) {
        let room = limit.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.length = self.length.saturating_add(bytes.len());
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.length = 0;
    }

    pub const fn is_cut(&self) -> bool {
        self.length > self.bytes.len()
    }
}
