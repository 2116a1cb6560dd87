//! Bytes that wait for the transport.

/// What was sent is cut off the front when there is this much of it.
const COMPACT_AT: usize = 16 * 1024;

/// Bytes to send, in one contiguous piece.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    bytes: Vec<u8>,
    sent: usize,
}

impl SendQueue {
    /// What it takes of memory, in bytes.
    pub(super) const fn held(&self) -> usize {
        self.bytes.capacity()
    }

    /// What is not yet sent.
    pub(super) fn pending(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// How much is not yet sent.
    pub(super) const fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// The first `n` pending bytes were sent.
    pub(super) fn consume(&mut self, n: usize) {
        self.sent = self.bytes.len().min(self.sent + n);
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        } else if self.sent >= COMPACT_AT && self.sent * 2 >= self.bytes.len() {
            // At least as much was sent as is moved: each byte moves once on average.
            self.bytes.copy_within(self.sent.., 0);
            self.bytes.truncate(self.bytes.len() - self.sent);
            self.sent = 0;
        }
    }

    /// Where bytes are appended.
    pub(super) const fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_taken_in_any_pieces() {
        let mut queue = SendQueue::default();
        let bytes: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
        queue.tail().extend_from_slice(&bytes);
        let mut taken = Vec::new();
        while queue.len() > 0 {
            let n = queue.len().min(7_001);
            taken.extend_from_slice(&queue.pending()[..n]);
            queue.consume(n);
        }
        assert_eq!(taken, bytes);
    }
}
