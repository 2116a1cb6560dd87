//! The bytes of one direction of a TCP connection, in their order.

use std::collections::BTreeMap;

/// The most bytes held while earlier ones are missing. Packets are seen as their sender sent them, and it sends
/// new bytes in order, so that bytes are held only if a packet is missing from the capture.
const HELD: usize = 1 << 20;

/// Puts the payloads of a direction in order.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    /// Bytes that have been passed on.
    next: u64,
    /// Payloads that came too early, by first byte.
    early: BTreeMap<u64, Vec<u8>>,
    early_bytes: usize,
    /// Bytes are missing for good.
    is_broken: bool,
}

impl Assembly {
    /// Adds the payload whose first byte has this place. `sink` is given the bytes that are next in order, with
    /// its place.
    pub fn add(&mut self, start: u64, payload: &[u8], sink: &mut impl FnMut(u64, &[u8])) {
        if self.is_broken || payload.is_empty() {
            return;
        }
        if start > self.next {
            self.early_bytes += payload.len();
            self.early.entry(start).or_insert_with(|| payload.to_vec());
            self.is_broken = self.early_bytes > HELD;
            return;
        }
        self.pass(start, payload, sink);
        while let Some(entry) = self.early.first_entry() {
            if *entry.key() > self.next {
                break;
            }
            let (start, payload) = entry.remove_entry();
            self.early_bytes = self.early_bytes.saturating_sub(payload.len());
            self.pass(start, &payload, sink);
        }
    }

    /// The payload was not kept.
    pub const fn lose(&mut self) {
        self.is_broken = true;
    }

    /// Whether bytes are missing.
    pub fn is_broken(&self) -> bool {
        self.is_broken || !self.early.is_empty()
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

    fn assembled(assembly: &mut Assembly, packets: &[(u64, &str)]) -> String {
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
        let mut assembly = Assembly::default();
        let packets = [(0, "ab"), (4, "efg"), (0, "ab"), (1, "bcd"), (3, "defgh"), (9, "j"), (8, "ij")];
        assert_eq!(assembled(&mut assembly, &packets), "abcdefghij");
        assert!(!assembly.is_broken());
    }

    #[test]
    fn a_gap_that_is_never_filled_is_reported() {
        let mut assembly = Assembly::default();
        assert_eq!(assembled(&mut assembly, &[(0, "ab"), (3, "d")]), "ab");
        assert!(assembly.is_broken());
    }

    #[test]
    fn no_more_is_held_than_the_limit() {
        let mut assembly = Assembly::default();
        let large = "x".repeat(HELD);
        assert_eq!(assembled(&mut assembly, &[(1, &large)]), "");
        assert!(!assembly.is_broken, "it is just the limit");
        assert_eq!(assembled(&mut assembly, &[(1 + HELD as u64, "x")]), "");
        assert!(assembly.is_broken);
    }
}
