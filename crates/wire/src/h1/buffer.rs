//! The input and the output buffer of a connection. Both keep their allocation from message to message, unless it was
//! lent ([`Buffers`]).

use super::head::Scratch;
use crate::queue::{Payload, SendQueue};

/// Bytes of spare room that [`Input::space`] always offers.
const MIN_SPACE: usize = 1024;
/// The first allocation: one small message and the promised room. Of ten thousand connections most never need more.
const FIRST_SIZE: usize = 2 * MIN_SPACE;
/// Larger bodies fill the buffer with every read; it then doubles, up to this size, to save system calls.
pub(super) const MAX_READ: u32 = 256 * 1024;
/// The smallest limit that may replace `MAX_READ`.
pub(super) const LEAST_READ: u32 = 8 * 1024;

/// A byte range of the input buffer. It stays valid until [`Input::space`] is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Span {
    start: usize,
    end: usize,
}

impl Span {
    /// The byte range of `length` bytes from `start`.
    pub(super) const fn new(start: usize, length: usize) -> Self {
        Self { start, end: start + length }
    }

    /// This byte range, whose positions count from the start of `outer`, in the positions of the buffer.
    pub(super) const fn within(self, outer: Self) -> Self {
        Self { start: outer.start + self.start, end: outer.start + self.end }
    }
}

/// Received bytes that nothing has consumed yet, followed by room for more.
#[derive(Debug, Default)]
pub(super) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    /// Whether it has no memory.
    pub(super) const fn is_bare(&self) -> bool {
        self.bytes.capacity() == 0
    }

    /// Room to read into, at least 1 KiB. Invalidates every [`Span`].
    pub(super) fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.bytes.len() - self.end < MIN_SPACE {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.bytes.len() - self.end < MIN_SPACE {
            self.bytes.resize((self.bytes.len() * 2).max(FIRST_SIZE), 0);
        }
        &mut self.bytes[self.end..]
    }

    /// `n` bytes were read into [`Input::space`], which grows up to `most`.
    pub(super) fn fill(&mut self, n: usize, most: usize) {
        debug_assert!(n <= self.bytes.len() - self.end, "the transport read more than there was room for");
        self.end = self.bytes.len().min(self.end + n);
        let filled_at_once = self.start == 0 && self.end == self.bytes.len();
        if filled_at_once && self.bytes.len() < most {
            self.bytes.resize(self.bytes.len() * 2, 0);
        }
    }

    /// Frees memory beyond `most`, if nothing is unread.
    pub(super) fn shrink(&mut self, most: usize) {
        if self.is_empty() && self.bytes.len() > most {
            (self.start, self.end) = (0, 0);
            self.bytes.truncate(most);
            self.bytes.shrink_to_fit();
        }
    }

    /// Frees its memory, if nothing is unread.
    pub(super) fn release_memory(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }

    /// The memory that it takes, in bytes.
    pub(super) const fn held(&self) -> usize {
        self.bytes.capacity()
    }

    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Takes `n` bytes off the front; the span that is returned shows them.
    pub(super) fn consume(&mut self, n: usize) -> Span {
        let n = n.min(self.end - self.start);
        let span = Span::new(self.start, n);
        self.start += n;
        span
    }

    pub(super) fn get(&self, span: Span) -> &[u8] {
        &self.bytes[span.start..span.end]
    }

    pub(super) const fn clear(&mut self) {
        self.start = self.end;
    }
}

/// The memory that a server's connection works in, while it is empty. A role with thousands of connections has only as
/// many buffers as there are connections at work. See [`crate::Connection::lend_buffers`].
#[derive(Debug, Default)]
pub struct Buffers {
    input: Vec<u8>,
    output: Vec<u8>,
    scratch: Scratch,
}

impl Buffers {
    /// The memory that they take, in bytes.
    pub fn held(&self) -> usize {
        self.input.capacity() + self.output.capacity() + self.scratch.held()
    }

    /// Takes the memory of these buffers, which are empty.
    pub(super) fn taken(input: &mut Input, output: &mut Output, scratch: &mut Scratch) -> Self {
        (input.start, input.end) = (0, 0);
        Self {
            input: std::mem::take(&mut input.bytes),
            output: output.queue.take_memory(),
            scratch: std::mem::take(scratch),
        }
    }

    /// Gives the memory to these buffers, if they have none.
    pub(super) fn give(self, input: &mut Input, output: &mut Output, scratch: &mut Scratch) {
        if input.is_bare() {
            input.bytes = self.input;
        }
        output.queue.give_memory(self.output);
        if scratch.held() == 0 {
            *scratch = self.scratch;
        }
    }
}

/// Bytes that wait for the transport.
#[derive(Debug, Default)]
pub(super) struct Output {
    queue: SendQueue,
}

impl Output {
    /// Frees its memory, if nothing waits.
    pub(super) fn release_memory(&mut self) {
        self.queue.release_memory();
    }

    /// Frees memory that the waiting bytes do not need.
    pub(super) fn shrink(&mut self) {
        self.queue.shrink();
    }

    /// The memory that it takes, in bytes.
    pub(super) fn held(&self) -> usize {
        self.queue.held()
    }

    /// What is not yet sent, see [`SendQueue::pending`].
    pub(super) fn pending(&self) -> &[u8] {
        self.queue.pending()
    }

    /// How much is not yet sent.
    pub(super) const fn unsent(&self) -> usize {
        self.queue.len()
    }

    /// All of it, in one piece.
    pub(super) fn gathered(&mut self) -> Vec<u8> {
        let mut gathered = Vec::with_capacity(self.unsent());
        while !self.is_empty() {
            gathered.extend_from_slice(self.pending());
            self.consume(self.pending().len());
        }
        gathered
    }

    /// See [`SendQueue::is_scattered`].
    pub(super) fn is_scattered(&self) -> bool {
        self.queue.is_scattered()
    }

    /// See [`SendQueue::slices`].
    pub(super) fn slices<'a>(&'a self, into: &mut [&'a [u8]]) -> usize {
        self.queue.slices(into)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.unsent() == 0
    }

    /// The transport took `n` bytes.
    pub(super) fn consume(&mut self, n: usize) {
        debug_assert!(n <= self.unsent(), "the transport took more than there was");
        self.queue.consume(n);
    }

    /// A mark to cut back to with [`Output::truncate`]; valid until something is sent or a body is queued.
    pub(super) fn len(&self) -> usize {
        self.queue.bytes().len()
    }

    /// What was queued since the mark was taken.
    pub(super) fn since(&self, mark: usize) -> &[u8] {
        &self.queue.bytes()[mark..]
    }

    /// What is allocated, for the test that messages allocate nothing.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.queue.held()
    }

    /// Removes what was queued since the mark was taken.
    pub(super) fn truncate(&mut self, mark: usize) {
        self.queue.tail().truncate(mark);
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.queue.tail().extend_from_slice(bytes);
    }

    /// Appends a piece of a body.
    pub(super) fn push_payload(&mut self, piece: Payload<'_>) {
        self.queue.push(piece);
    }

    pub(super) fn push_decimal(&mut self, value: u64) {
        self.push_digits(value, 10);
    }

    pub(super) fn push_hex(&mut self, value: u64) {
        self.push_digits(value, 16);
    }

    /// Without `format!`, which costs an allocation or several times what the digits cost.
    fn push_digits(&mut self, mut value: u64, base: u64) {
        let mut digits = [0; 20]; // u64::MAX has 20 decimal digits
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b"0123456789abcdef"[(value % base) as usize];
            value /= base;
            if value == 0 {
                break;
            }
        }
        self.push(&digits[at..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(input: &mut Input, bytes: &[u8]) {
        input.space()[..bytes.len()].copy_from_slice(bytes);
        input.fill(bytes.len(), MAX_READ as usize);
    }

    #[test]
    fn room_never_falls_below_1_kib_and_unread_bytes_survive_growth() {
        let mut input = Input::default();
        let mut expected = Vec::new();
        for round in 0..20_u8 {
            let chunk = vec![round; 900];
            fill(&mut input, &chunk);
            expected.extend_from_slice(&chunk);
            if round % 3 == 0 {
                input.consume(600);
                expected.drain(..600);
            }
            assert!(input.space().len() >= MIN_SPACE);
            assert_eq!(input.unread(), expected);
        }
    }

    #[test]
    fn a_buffer_that_reads_fill_doubles_up_to_its_bound() {
        let mut input = Input::default();
        for _ in 0..10 {
            let n = input.space().len();
            input.fill(n, MAX_READ as usize);
            input.consume(n);
        }
        assert_eq!(input.space().len(), MAX_READ as usize);
    }

    #[test]
    fn sent_bytes_leave_and_the_rest_stays() {
        let mut output = Output::default();
        output.push(&vec![1; 100_000]);
        output.push(b"tail");
        output.consume(100_000);
        assert_eq!((output.pending(), output.unsent()), (&b"tail"[..], 4));
        output.consume(4);
        assert!(output.is_empty());
    }

    #[test]
    fn numbers_print_as_the_wire_has_them() {
        let mut output = Output::default();
        for value in [0, 9, 10, u64::MAX] {
            output.push_decimal(value);
            output.push(b" ");
            output.push_hex(value);
            output.push(b"\n");
        }
        let expected = b"0 0\n9 9\n10 a\n18446744073709551615 ffffffffffffffff\n";
        assert_eq!(output.pending(), expected);
    }
}
