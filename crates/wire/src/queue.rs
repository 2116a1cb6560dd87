//! Bytes that wait for the transport.

use std::collections::VecDeque;

/// Sent bytes are removed from the front when there are this many.
const COMPACT_AT: usize = 16 * 1024;

/// A shorter slice is copied: another buffer in a system call costs more.
const LEND_AT: usize = 4 * 1024;

/// Bytes of a body on their way to the peer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Payload<'a> {
    /// They are copied.
    Copied(&'a [u8]),
    /// They are static and may be sent from where they are.
    Lent(&'static [u8]),
}

impl Payload<'_> {
    pub(super) const fn len(self) -> usize {
        match self {
            Self::Copied(bytes) | Self::Lent(bytes) => bytes.len(),
        }
    }

    pub(super) const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Its first `n` bytes, which must exist, and the rest.
    pub(super) const fn split_at(self, n: usize) -> (Self, Self) {
        match self {
            Self::Copied(bytes) => {
                let (first, rest) = bytes.split_at(n);
                (Self::Copied(first), Self::Copied(rest))
            }
            Self::Lent(bytes) => {
                let (first, rest) = bytes.split_at(n);
                (Self::Lent(first), Self::Lent(rest))
            }
        }
    }
}

/// Bytes to send: owned ones in one contiguous buffer, with lent slices between them.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    bytes: Vec<u8>,
    sent: usize,
    /// In sending order.
    lent: VecDeque<Lent>,
    /// Bytes of them that are not yet sent.
    lent_bytes: usize,
}

/// A lent slice.
#[derive(Debug)]
struct Lent {
    /// It goes before the owned byte with this index.
    at: usize,
    /// Its unsent rest.
    data: &'static [u8],
}

impl SendQueue {
    /// The memory that it takes, in bytes.
    pub(super) fn held(&self) -> usize {
        self.bytes.capacity() + self.lent.capacity() * size_of::<Lent>()
    }

    /// Frees its memory, if nothing waits.
    pub(super) fn release_memory(&mut self) {
        if self.len() == 0 {
            *self = Self::default();
        }
    }

    /// Takes its memory, which must be empty.
    pub(super) fn take_memory(&mut self) -> Vec<u8> {
        debug_assert!(self.len() == 0, "something waits");
        self.sent = 0;
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        bytes
    }

    /// Gives it memory, if it has none.
    pub(super) fn give_memory(&mut self, bytes: Vec<u8>) {
        if self.bytes.capacity() == 0 {
            self.bytes = bytes;
        }
    }

    /// Frees the memory of sent bytes, and spare memory if that is as large again and some kilobytes.
    pub(super) fn shrink(&mut self) {
        let needed = self.bytes.len() - self.sent;
        if self.lent.is_empty() && self.bytes.capacity() > 2 * needed + LEND_AT {
            self.bytes.drain(..self.sent);
            self.sent = 0;
            self.bytes.shrink_to_fit();
        }
    }

    /// The unsent bytes up to the next lent slice: all of them if nothing is lent.
    pub(super) fn pending(&self) -> &[u8] {
        match self.lent.front() {
            None => &self.bytes[self.sent..],
            Some(lent) if lent.at == self.sent => lent.data,
            Some(lent) => &self.bytes[self.sent..lent.at],
        }
    }

    /// What [`SendQueue::pending`] shows, if it is lent.
    pub(super) fn pending_lent(&self) -> Option<&'static [u8]> {
        self.lent.front().filter(|lent| lent.at == self.sent).map(|lent| lent.data)
    }

    /// Whether the unsent bytes are in several slices.
    pub(super) fn is_scattered(&self) -> bool {
        !self.lent.is_empty()
    }

    /// The unsent bytes as slices, as far as there is room in `into`; returns how many.
    pub(super) fn slices<'a>(&'a self, into: &mut [&'a [u8]]) -> usize {
        let mut from = self.sent;
        let ours_and_lent = self.lent.iter().flat_map(|lent| {
            let ours = &self.bytes[from..lent.at];
            from = lent.at;
            [ours, lent.data]
        });
        let last = &self.bytes[self.lent.back().map_or(self.sent, |lent| lent.at)..];
        let all = ours_and_lent.chain([last]).filter(|slice| !slice.is_empty());
        into.iter_mut().zip(all).map(|(place, slice)| *place = slice).count()
    }

    /// How much is not yet sent.
    pub(super) const fn len(&self) -> usize {
        self.bytes.len() - self.sent + self.lent_bytes
    }

    /// The first `n` pending bytes were sent.
    pub(super) fn consume(&mut self, n: usize) {
        let n = self.consume_lent(n);
        self.sent = self.bytes.len().min(self.sent + n);
        if self.sent == self.bytes.len() && self.lent.is_empty() {
            self.bytes.clear();
            self.sent = 0;
        } else if self.sent >= COMPACT_AT && self.sent * 2 >= self.bytes.len() {
            // At least as much was sent as is moved: each byte moves once on average.
            self.bytes.copy_within(self.sent.., 0);
            self.bytes.truncate(self.bytes.len() - self.sent);
            self.lent.iter_mut().for_each(|lent| lent.at -= self.sent);
            self.sent = 0;
        }
    }

    /// Removes what was sent of the lent slices, and the owned bytes before them; returns how many bytes were sent
    /// after that.
    fn consume_lent(&mut self, mut n: usize) -> usize {
        while n > 0
            && let Some(lent) = self.lent.front_mut()
            && lent.at - self.sent <= n
        {
            n -= lent.at - self.sent;
            self.sent = lent.at;
            let taken = n.min(lent.data.len());
            n -= taken;
            self.lent_bytes -= taken;
            lent.data = &lent.data[taken..];
            if lent.data.is_empty() {
                self.lent.pop_front();
            }
        }
        n
    }

    /// The owned bytes, without those removed from the front.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where bytes are appended.
    pub(super) const fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Appends a piece of a body.
    pub(super) fn push(&mut self, piece: Payload<'_>) {
        match piece {
            Payload::Lent(data) if data.len() >= LEND_AT => {
                self.lent.push_back(Lent { at: self.bytes.len(), data });
                self.lent_bytes += data.len();
            }
            Payload::Lent(bytes) | Payload::Copied(bytes) => self.bytes.extend_from_slice(bytes),
        }
    }

    /// Drops all of it.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.lent.clear();
        (self.sent, self.lent_bytes) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lent slice.
    static ELSEWHERE: [u8; 3 * LEND_AT] = {
        let mut bytes = [0; 3 * LEND_AT];
        let mut k = 0;
        while k < bytes.len() {
            bytes[k] = (k % 251) as u8;
            k += 1;
        }
        bytes
    };

    /// A queue of `rounds` heads, each followed by a body, and its bytes.
    fn queue(rounds: usize) -> (SendQueue, Vec<u8>) {
        let (mut queue, mut bytes) = (SendQueue::default(), Vec::new());
        for round in 0..rounds {
            let head = [round as u8; 9];
            queue.tail().extend_from_slice(&head);
            bytes.extend_from_slice(&head);
            let body: &'static [u8] = &ELSEWHERE[round..][..LEND_AT - 2 + round * 700];
            let piece = if round % 3 == 0 { Payload::Copied(body) } else { Payload::Lent(body) };
            queue.push(piece);
            bytes.extend_from_slice(body);
        }
        (queue, bytes)
    }

    #[test]
    fn output_is_taken_in_any_pieces() {
        for step in [1, 8, 9, 10, 7_001, 100_000] {
            let (mut queue, bytes) = queue(10);
            assert!(queue.is_scattered());
            let mut taken = Vec::new();
            while queue.len() > 0 {
                let first = queue.pending();
                assert!(!first.is_empty());
                let n = first.len().min(step);
                taken.extend_from_slice(&first[..n]);
                queue.consume(n);
                assert_eq!(queue.len(), bytes.len() - taken.len());
            }
            assert!(taken == bytes, "{step}");
            assert!(!queue.is_scattered() && queue.pending().is_empty());
        }
    }

    #[test]
    fn what_lies_in_several_places_is_shown_at_once_and_taken_across_them() {
        for step in [1, 4_096, 9_999, 100_000] {
            let (mut queue, bytes) = queue(10);
            let mut taken = Vec::new();
            while queue.len() > 0 {
                let mut places = [&[][..]; 4];
                let count = queue.slices(&mut places);
                let shown = places[..count].concat();
                assert!(places[..count].iter().all(|place| !place.is_empty()));
                assert_eq!(places[0], queue.pending());
                let n = shown.len().min(step);
                taken.extend_from_slice(&shown[..n]);
                queue.consume(n);
                // What is appended meanwhile goes after all of it.
                assert_eq!(queue.len(), bytes.len() - taken.len());
            }
            assert!(taken == bytes, "{step}");
        }
    }

    #[test]
    fn what_lies_elsewhere_takes_no_memory() {
        let mut queue = SendQueue::default();
        queue.push(Payload::Lent(&ELSEWHERE));
        assert!(queue.held() < 1_024);
        assert_eq!(queue.len(), ELSEWHERE.len());
        queue.clear();
        assert_eq!((queue.len(), queue.pending()), (0, &[][..]));
    }
}
