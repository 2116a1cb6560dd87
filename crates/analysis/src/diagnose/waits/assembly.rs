//! The bytes of one direction of a TCP connection, in their order.

use std::collections::BTreeMap;
use std::ops::Range;

/// Puts the payloads of a direction in order. At most `HELD` bytes are held while earlier ones are missing; after that,
/// nothing more is passed on.
#[derive(Debug, Default)]
pub(in crate::diagnose) struct Assembly<const HELD: usize> {
    /// Bytes that have been passed on.
    next: u64,
    /// Payloads that arrived too early, by first byte.
    early: BTreeMap<u64, Vec<u8>>,
    early_bytes: usize,
    /// Bytes are missing permanently.
    is_broken: bool,
}

impl<const HELD: usize> Assembly<HELD> {
    /// Adds the payload whose first byte is at this place. `sink` gets the bytes that are next in order, with their
    /// place.
    pub fn add(&mut self, start: u64, payload: &[u8], sink: &mut impl FnMut(u64, &[u8])) {
        if self.is_broken || payload.is_empty() {
            return;
        }
        if start > self.next {
            self.hold(start, payload);
            return;
        }
        self.pass(start, payload, sink);
        while let Some(entry) = self.early.first_entry().filter(|entry| *entry.key() <= self.next) {
            let (start, payload) = entry.remove_entry();
            self.early_bytes -= payload.len();
            self.pass(start, &payload, sink);
        }
    }

    /// Stops passing on: bytes are missing permanently.
    pub fn lose(&mut self) {
        self.is_broken = true;
        self.early.clear();
        self.early_bytes = 0;
    }

    /// The place of the next byte to be passed on.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Bytes that are held, since earlier ones are missing.
    pub const fn held(&self) -> usize {
        self.early_bytes
    }

    /// Whether one payload that is held has all of these bytes.
    pub fn holds(&self, bytes: &Range<u64>) -> bool {
        let before = self.early.range(..=bytes.start).next_back();
        before.is_some_and(|(start, held)| start + held.len() as u64 >= bytes.end)
    }

    /// Whether bytes are missing permanently.
    pub const fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Of several payloads with the same first byte, the longest is held.
    fn hold(&mut self, start: u64, payload: &[u8]) {
        if self.early.get(&start).is_none_or(|held| held.len() < payload.len()) {
            let before = self.early.insert(start, payload.to_vec());
            self.early_bytes += payload.len() - before.map_or(0, |before| before.len());
        }
        if self.early_bytes > HELD {
            self.lose();
        }
    }

    /// Passes on the new part of a payload that begins at or before the next byte.
    fn pass(&mut self, start: u64, payload: &[u8], sink: &mut impl FnMut(u64, &[u8])) {
        let known = usize::try_from(self.next - start).unwrap_or(usize::MAX);
        if let Some(fresh) = payload.get(known..).filter(|fresh| !fresh.is_empty()) {
            let at = self.next;
            self.next += fresh.len() as u64;
            sink(at, fresh);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: usize = 64;

    fn assembled(assembly: &mut Assembly<HELD>, packets: &[(u64, &str)]) -> String {
        let mut all = Vec::new();
        for (start, payload) in packets {
            assembly.add(*start, payload.as_bytes(), &mut |at, bytes| {
                assert_eq!(at, all.len() as u64);
                all.extend_from_slice(bytes);
            });
        }
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn bytes_come_out_once_and_in_order_however_they_were_sent() {
        let mut assembly = Assembly::<HELD>::default();
        let packets = [(0, "ab"), (4, "efg"), (0, "ab"), (1, "bcd"), (3, "defgh"), (9, "j"), (8, "ij")];
        assert_eq!(assembled(&mut assembly, &packets), "abcdefghij");
        assert!(!assembly.is_broken());
    }

    #[test]
    fn what_follows_a_gap_is_held() {
        let mut assembly = Assembly::<HELD>::default();
        assert_eq!(assembled(&mut assembly, &[(0, "ab"), (3, "d")]), "ab");
        assert!(!assembly.is_broken() && assembly.held() == 1 && assembly.next() == 2);
    }

    #[test]
    fn of_payloads_that_begin_at_one_byte_the_longest_is_held() {
        let mut assembly = Assembly::<HELD>::default();
        assert_eq!(assembled(&mut assembly, &[(2, "c"), (2, "cde"), (2, "cd")]), "");
        assert!(assembly.held() == 3 && assembly.holds(&(3..5)) && !assembly.holds(&(3..6)));
        assert_eq!(assembled(&mut assembly, &[(0, "ab")]), "abcde");
    }

    #[test]
    fn no_more_is_held_than_the_limit() {
        let mut assembly = Assembly::<HELD>::default();
        let large = "x".repeat(HELD);
        assert_eq!(assembled(&mut assembly, &[(1, &large)]), "");
        assert!(!assembly.is_broken(), "it is just the limit");
        assert_eq!(assembled(&mut assembly, &[(1 + HELD as u64, "x")]), "");
        assert!(assembly.is_broken() && assembly.held() == 0);
        assert_eq!(assembled(&mut assembly, &[(0, "x")]), "");
    }
}
