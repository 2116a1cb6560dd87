//! The two byte buffers of a connection.

use super::frame::{FrameHeader, HEADER_LENGTH};
use crate::queue::{Payload, SendQueue};

/// The initial size of the input. A connection that carries little stays small: for a client with ten thousand of them
/// their buffers are the largest expense. One that carries more grows its buffer within a few reads.
const INITIAL_SIZE: usize = 4 * 1024;
/// Full reads double the buffer up to here: large bodies then cost few system calls.
const GROWN_SIZE: usize = 256 * 1024;

/// Bytes received and not yet parsed, in one contiguous piece.
#[derive(Debug)]
pub(super) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// The size that the last read suggested.
    wanted: usize,
}

impl Input {
    pub(super) const fn new() -> Self {
        Self { bytes: Vec::new(), start: 0, end: 0, wanted: INITIAL_SIZE }
    }

    /// Space to read into: at least half of the size that reads have suggested so far, and enough to complete a frame
    /// of `frame` bytes at the front.
    pub(super) fn space(&mut self, frame: usize) -> &mut [u8] {
        let held = self.end - self.start;
        let least = (self.wanted / 2).max(frame.saturating_sub(held));
        if held == 0 {
            (self.start, self.end) = (0, 0);
        } else if self.bytes.len() - self.end < least {
            // What is held is less than a frame, or input that the role did not poll for.
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, held);
        }
        let size = self.wanted.max(self.end + least);
        if self.bytes.len() < size {
            self.bytes.resize(size, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// `n` bytes were read; more than there was space for count as the space.
    pub(super) fn filled(&mut self, n: usize) {
        self.end = self.bytes.len().min(self.end + n);
        if self.end == self.bytes.len() && self.wanted < GROWN_SIZE {
            self.wanted *= 2;
        }
    }

    /// Frees its memory, if nothing is unread.
    pub(super) fn release_memory(&mut self) {
        if self.unread().is_empty() {
            *self = Self::new();
        }
    }

    /// The memory that it takes, in bytes.
    pub(super) const fn held(&self) -> usize {
        self.bytes.capacity()
    }

    /// What is not yet parsed.
    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The position of the first unread byte, for [`Input::slice`].
    pub(super) const fn position(&self) -> usize {
        self.start
    }

    /// Marks `n` bytes as parsed. They stay readable until the next [`Input::space`].
    pub(super) const fn advance(&mut self, n: usize) {
        self.start += n;
    }

    /// Bytes by position, parsed or not.
    pub(super) fn slice(&self, start: usize, end: usize) -> &[u8] {
        &self.bytes[start..end]
    }

    /// Drops everything unread.
    pub(super) const fn discard(&mut self) {
        self.start = self.end;
    }
}

/// Frames to send.
#[derive(Debug, Default)]
pub(super) struct Output {
    queue: SendQueue,
    /// How much is left of the frame that is being sent, or of what precedes the first one. Kept only if frames are
    /// sent one by one.
    frame_left: usize,
}

impl Output {
    /// Frees memory that the waiting bytes do not need.
    pub(super) fn shrink(&mut self) {
        self.queue.shrink();
    }

    /// Frees its memory, if nothing waits.
    pub(super) fn release_memory(&mut self) {
        self.queue.release_memory();
    }

    /// The memory that it takes, in bytes.
    pub(super) fn held(&self) -> usize {
        self.queue.held()
    }

    /// What is not yet sent, see [`SendQueue::pending`].
    pub(super) fn pending(&self) -> &[u8] {
        self.queue.pending()
    }

    /// See [`SendQueue::is_scattered`].
    pub(super) fn is_scattered(&self) -> bool {
        self.queue.is_scattered()
    }

    /// See [`SendQueue::slices`].
    pub(super) fn slices<'a>(&'a self, into: &mut [&'a [u8]]) -> usize {
        self.queue.slices(into)
    }

    /// What is not yet sent of the first frame, of which some may have been sent before; its head alone if its payload
    /// lies elsewhere.
    pub(super) fn pending_frame(&mut self) -> &[u8] {
        if self.frame_left == 0
            && let Some(header) = self.pending().first_chunk().map(FrameHeader::parse)
        {
            self.frame_left = HEADER_LENGTH + header.length as usize;
        }
        let pending = self.queue.pending();
        &pending[..self.frame_left.min(pending.len())]
    }

    /// From now on only frames are appended; what is pending precedes them as one piece.
    pub(super) const fn frames_follow(&mut self) {
        self.frame_left = self.len();
    }

    /// How much is not yet sent.
    pub(super) const fn len(&self) -> usize {
        self.queue.len()
    }

    /// The first `n` pending bytes were sent.
    pub(super) fn consume(&mut self, n: usize) {
        self.queue.consume(n);
        self.frame_left = self.frame_left.saturating_sub(n);
    }

    /// Appends a piece of a body, after the header of its frame.
    pub(super) fn push(&mut self, piece: Payload<'_>) {
        self.queue.push(piece);
    }

    /// Where frames are appended.
    pub(super) const fn tail(&mut self) -> &mut Vec<u8> {
        self.queue.tail()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(input: &mut Input, bytes: &[u8]) {
        input.space(0)[..bytes.len()].copy_from_slice(bytes);
        input.filled(bytes.len());
    }

    #[test]
    fn there_is_always_room_for_half_the_size_and_for_the_frame_begun() {
        let mut input = Input::new();
        fill(&mut input, &[7; 9]);
        assert!(input.space(0).len() >= INITIAL_SIZE / 2);
        assert!(input.space(1 << 20).len() >= (1 << 20) - 9);
        assert_eq!(input.unread(), [7; 9]);
    }

    #[test]
    fn unread_bytes_survive_compaction() {
        let mut input = Input::new();
        for round in 0..100_u8 {
            let bytes = vec![round; 1_000];
            fill(&mut input, &bytes);
            assert_eq!(&input.unread()[input.unread().len() - 1_000..], bytes);
            input.advance(990);
        }
        assert_eq!(input.unread(), [99; 1_000]);
    }

    #[test]
    fn a_connection_that_carries_little_stays_small() {
        let mut input = Input::new();
        for _ in 0..1_000 {
            fill(&mut input, &[7; 1_000]);
            input.advance(1_000);
        }
        assert_eq!(input.held(), INITIAL_SIZE);
    }

    #[test]
    fn full_reads_make_the_buffer_grow_to_its_limit() {
        let mut input = Input::new();
        for _ in 0..10 {
            let n = input.space(0).len();
            input.filled(n);
            input.advance(n);
        }
        assert_eq!(input.space(0).len(), GROWN_SIZE);
    }
}
