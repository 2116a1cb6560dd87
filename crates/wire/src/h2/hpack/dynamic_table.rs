//! The dynamic table (RFC 7541 §2.3.2, §4): entries over one byte arena.
//!
//! New entries are appended to the arena, evicted ones leave dead bytes at its front; when the arena has grown to twice
//! the table's capacity, the live bytes slide to the front. So every entry stays contiguous, which a ring that wraps
//! would not give, and a byte moves at most once per capacity's worth of insertions.

use std::collections::VecDeque;

use crate::compression::{ENTRY_OVERHEAD, FieldKind};

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Bytes ever inserted before this entry.
    start: u64,
    name: u32,
    value: u32,
    kind: FieldKind,
}

/// Name, value and kind of one entry.
pub(super) type EntryRef<'a> = (&'a [u8], &'a [u8], FieldKind);

/// One side's dynamic table.
#[derive(Debug, Default)]
pub(super) struct DynamicTable {
    arena: Vec<u8>,
    /// The position, in bytes ever inserted, of the arena's first byte.
    base: u64,
    /// Oldest first.
    entries: VecDeque<Entry>,
    /// As RFC 7541 §4.1 counts it.
    size: usize,
    capacity: usize,
    inserted: u32,
    version: u64,
}

impl DynamicTable {
    pub(super) fn new(capacity: u32) -> Self {
        Self { capacity: capacity as usize, ..Self::default() }
    }

    /// The memory that it takes, in bytes.
    pub(super) fn held(&self) -> usize {
        self.arena.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    pub(super) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes the capacity, evicting what no longer fits (§4.3).
    pub(super) fn set_capacity(&mut self, capacity: u32) {
        self.version += 1;
        self.capacity = capacity as usize;
        self.evict_to(self.capacity);
    }

    /// Inserts an entry, evicting the oldest as needed (§4.4). An entry larger than the table empties it and is not
    /// stored; then the result is `false`.
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8], kind: FieldKind) -> bool {
        self.version += 1;
        let size = name.len() + value.len() + ENTRY_OVERHEAD;
        self.evict_to(self.capacity.saturating_sub(size));
        if size > self.capacity {
            return false;
        }
        self.slide_if_full(name.len() + value.len());
        let start = self.base + self.arena.len() as u64;
        self.arena.extend_from_slice(name);
        self.arena.extend_from_slice(value);
        self.entries.push_back(Entry { start, name: name.len() as u32, value: value.len() as u32, kind });
        self.size += size;
        self.inserted = self.inserted.wrapping_add(1);
        true
    }

    /// The entry with this index, 0 being the newest.
    pub(super) fn get(&self, index: usize) -> Option<EntryRef<'_>> {
        let place = self.entries.len().checked_sub(index + 1)?;
        let entry = self.entries.get(place)?;
        let start = (entry.start - self.base) as usize;
        let middle = start + entry.name as usize;
        let end = middle + entry.value as usize;
        Some((&self.arena[start..middle], &self.arena[middle..end], entry.kind))
    }

    /// A version of the table's state: as long as it stays the same, every index keeps its meaning.
    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    /// How many entries were ever inserted (wrapping): the serial number of the next.
    pub(super) const fn inserted(&self) -> u32 {
        self.inserted
    }

    /// The index of the entry with this serial number, if it is still in the table.
    pub(super) fn index_of(&self, serial: u32) -> Option<u32> {
        let age = self.inserted.wrapping_sub(serial).wrapping_sub(1);
        ((age as usize) < self.entries.len()).then_some(age)
    }

    fn evict_to(&mut self, size: usize) {
        while self.size > size {
            let Some(entry) = self.entries.pop_front() else { break };
            self.size -= entry.name as usize + entry.value as usize + ENTRY_OVERHEAD;
        }
        if self.entries.is_empty() {
            self.base += self.arena.len() as u64;
            self.arena.clear();
        }
    }

    fn slide_if_full(&mut self, more: usize) {
        if self.arena.len() + more <= 2 * self.capacity {
            return;
        }
        let Some(oldest) = self.entries.front() else { return };
        let dead = (oldest.start - self.base) as usize;
        self.arena.copy_within(dead.., 0);
        self.arena.truncate(self.arena.len() - dead);
        self.base += dead as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(table: &mut DynamicTable, name: &str, value: &str) -> bool {
        table.insert(name.as_bytes(), value.as_bytes(), FieldKind::Regular)
    }

    #[test]
    fn an_entry_that_just_fits_stays_and_one_byte_more_empties_the_table() {
        let mut table = DynamicTable::new(32 + 6);
        assert!(insert(&mut table, "abc", "123"));
        assert_eq!(table.get(0).unwrap().1, b"123");
        assert!(!insert(&mut table, "abc", "1234"));
        assert!(table.get(0).is_none());
    }

    #[test]
    fn the_newest_is_index_0_and_the_oldest_goes_first() {
        let mut table = DynamicTable::new(2 * (32 + 2));
        for value in ["1", "2", "3"] {
            insert(&mut table, "n", value);
        }
        assert_eq!(table.get(0).unwrap().1, b"3");
        assert_eq!(table.get(1).unwrap().1, b"2");
        assert!(table.get(2).is_none());
        assert_eq!((table.index_of(0), table.index_of(1), table.index_of(2)), (None, Some(1), Some(0)));
        assert_eq!(table.index_of(3), None, "not inserted yet");
    }

    #[test]
    fn entries_survive_the_sliding_of_the_arena() {
        let mut table = DynamicTable::new(200);
        for n in 0..1000 {
            let value = format!("value-{n}");
            insert(&mut table, "name", &value);
            assert_eq!(table.get(0).unwrap().1, value.as_bytes());
            if n > 0 {
                assert_eq!(
                    table.get(1).unwrap(),
                    (&b"name"[..], format!("value-{}", n - 1).as_bytes(), FieldKind::Regular)
                );
            }
            assert!(table.arena.len() <= 400);
        }
    }

    #[test]
    fn a_smaller_capacity_evicts_and_zero_keeps_nothing() {
        let mut table = DynamicTable::new(4096);
        insert(&mut table, "a", "1");
        insert(&mut table, "b", "2");
        table.set_capacity(34);
        assert_eq!(table.get(0).unwrap().0, b"b");
        assert!(table.get(1).is_none());
        table.set_capacity(0);
        assert!(!insert(&mut table, "c", "3"));
        assert!(table.get(0).is_none());
    }
}
