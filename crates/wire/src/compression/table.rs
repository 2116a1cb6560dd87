//! How the static tables of HPACK and QPACK are searched.

use super::FieldKind;

/// Name, value and kind.
pub(crate) type Entry = (&'static [u8], &'static [u8], FieldKind);

/// What a static table has of a field, with places counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Name and value.
    Field(u32),
    /// The name alone: its first entry.
    Name(u32),
}

/// Slots of the index over the names: a power of two, more than twice the names of either table.
const SLOTS: usize = 128;

/// A static table of `N` entries, at most 255, and an index over their names.
pub(crate) struct StaticTable<const N: usize> {
    entries: [Entry; N],
    /// Open addressing over the names: the place plus one of the first entry of a name, 0 for an empty slot.
    first: [u8; SLOTS],
    /// By place: the place plus one of the next entry of the same name, 0 for none.
    next: [u8; N],
}

impl<const N: usize> StaticTable<N> {
    /// How many entries there are.
    pub(crate) const LENGTH: u32 = N as u32;

    /// The index is made when the crate is compiled.
    pub(crate) const fn new(entries: [Entry; N]) -> Self {
        assert!(N < 256);
        let (mut first, mut next) = ([0; SLOTS], [0; N]);
        let mut place = N;
        // From the last to the first, so that each entry is put in front of those of its name.
        while place > 0 {
            place -= 1;
            let mut slot = name_hash(entries[place].0) as usize % SLOTS;
            while first[slot] != 0 && !same(entries[first[slot] as usize - 1].0, entries[place].0) {
                slot = (slot + 1) % SLOTS;
            }
            next[place] = first[slot];
            first[slot] = place as u8 + 1;
        }
        Self { entries, first, next }
    }

    /// The entry at this place.
    pub(crate) fn get(&self, place: u32) -> Option<&Entry> {
        self.entries.get(place as usize)
    }

    /// Looks up a field. An entry with an empty value stands for its name alone.
    pub(crate) fn find(&self, name: &[u8], value: &[u8]) -> Option<Found> {
        let mut slot = name_hash(name) as usize % SLOTS;
        loop {
            let first = usize::from(self.first[slot]).checked_sub(1)?;
            if self.entries[first].0 == name {
                return Some(self.find_value(first, value));
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    /// The entry with this value among those of the name whose first is `first`.
    fn find_value(&self, first: usize, value: &[u8]) -> Found {
        let mut place = if value.is_empty() { None } else { Some(first) };
        while let Some(at) = place {
            if self.entries[at].1 == value {
                return Found::Field(at as u32);
            }
            place = usize::from(self.next[at]).checked_sub(1);
        }
        Found::Name(first as u32)
    }
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// A hash of names: length, first, middle and last bytes. Names are short and known; hashing all their
/// bytes would cost more than the rare comparison that it saves.
const fn name_hash(name: &[u8]) -> u32 {
    if name.is_empty() {
        return 0;
    }
    let (first, middle, last) = (name[0], name[name.len() / 2], name[name.len() - 1]);
    let key = name.len() as u32 | (first as u32) << 8 | (middle as u32) << 16 | (last as u32) << 24;
    let mixed = key.wrapping_mul(0x9e37_79b1);
    mixed ^ mixed >> 15
}
