//! Encoding of field blocks (RFC 7541 §6).
//!
//! Which fields enter the dynamic table decides how many bytes a request takes. Lists of names ("never index `:path`")
//! fit one traffic and miss another; we decide by the traffic:
//!
//! - a field whose name is not in the dynamic table is indexed at once, so that the next one can refer to its name;
//! - a field whose name is there with another value is indexed when the same value occurs a second time.
//!
//! So constant fields cost one byte from the second request on, and ids that never repeat push nothing out. Nothing is
//! sent never-indexed: `authorization` repeats on every request of a service, and encoding it in full each time, as
//! nghttp2 does against guessing attacks (RFC 7541 §7.1), would change the very sizes that h2lab compares. A role that
//! mixes the secrets of several parties on one connection must not let one of them choose fields freely.

use super::dynamic_table::DynamicTable;
use super::static_table;
use crate::compression;
use crate::compression::table::Found;
use crate::compression::{ENTRY_OVERHEAD, FieldEncoder, FieldKind, integer};

/// The peer's limit before its SETTINGS arrive.
const INITIAL_CAPACITY: u32 = 4_096;
/// The largest table that we use, whatever the peer allows; larger ones cost memory and gain nothing.
const LARGEST_CAPACITY: u32 = 65_536;
/// How many values seen once are stored.
const SEEN_ONCE: usize = 64;

/// A field of the previous block, by its place in that block: requests of a service resemble each other.
#[derive(Debug, Clone, Copy)]
enum Guess {
    Nothing,
    Static(u32),
    /// By serial number in the dynamic table.
    Dynamic(u32),
}

/// The encoding half of a connection's header compression.
#[derive(Debug)]
pub(in super::super) struct Encoder {
    table: DynamicTable,
    index: SerialIndex,
    seen_once: [u32; SEEN_ONCE],
    guesses: Vec<Guess>,
    place: usize,
    /// The smallest and the last capacity chosen since the last block (RFC 7541 §4.2).
    update: Option<(u32, u32)>,
    /// The block under way consists of indexes alone.
    is_indexed: bool,
    /// The largest table that it uses, whatever the peer allows.
    most: u32,
    /// Whether strings have the Huffman code where it is shorter.
    huffman: bool,
}

impl Encoder {
    pub(in super::super) fn new() -> Self {
        Self {
            table: DynamicTable::new(INITIAL_CAPACITY),
            index: SerialIndex::new(INITIAL_CAPACITY),
            seen_once: [0; SEEN_ONCE],
            guesses: Vec::new(),
            place: 0,
            update: None,
            is_indexed: false,
            most: LARGEST_CAPACITY,
            huffman: true,
        }
    }

    /// One whose table has at most `most` bytes, and whose strings have the Huffman code only if `huffman` says so: to
    /// show what either saves.
    pub(in super::super) fn with(most: u32, huffman: bool) -> Self {
        let most = most.min(LARGEST_CAPACITY);
        let mut encoder = Self { most, huffman, ..Self::new() };
        encoder.set_limit(INITIAL_CAPACITY);
        encoder
    }

    /// The memory that it takes, in bytes.
    pub(in super::super) fn held(&self) -> usize {
        self.table.held() + self.index.held() + self.guesses.capacity() * size_of::<Guess>()
    }

    /// A version of the table's state: as long as it stays the same, a block of indexes alone keeps its meaning.
    pub(in super::super) const fn version(&self) -> u64 {
        self.table.version()
    }

    /// Whether the last block may be sent again unchanged while [`Encoder::version`] stays: it has no literals, so that
    /// encoding the same fields once more would give the same bytes.
    pub(in super::super) const fn is_repeatable(&self) -> bool {
        self.is_indexed
    }

    /// The peer announced `SETTINGS_HEADER_TABLE_SIZE`; the next block begins with the size update.
    pub(in super::super) fn set_limit(&mut self, announced: u32) {
        let capacity = announced.min(self.most);
        let current = self.update.map_or(self.table.capacity() as u32, |(_, last)| last);
        if capacity == current {
            return;
        }
        let smallest = self.update.map_or(capacity, |(smallest, _)| smallest.min(capacity));
        self.update = Some((smallest, capacity));
        self.table.set_capacity(capacity);
        self.index = SerialIndex::new(capacity);
        self.guesses.clear();
    }

    /// Begins a block.
    pub(in super::super) fn begin(&mut self, out: &mut Vec<u8>) {
        self.place = 0;
        self.is_indexed = self.update.is_none();
        if let Some((smallest, last)) = self.update.take() {
            if smallest < last {
                integer::encode(smallest, 5, 0x20, out);
            }
            integer::encode(last, 5, 0x20, out);
        }
    }

    /// The index of this field if the previous block had the same one in this place.
    fn guessed(&self, place: usize, name: &[u8], value: &[u8]) -> Option<u32> {
        match *self.guesses.get(place)? {
            Guess::Nothing => None,
            Guess::Static(index) => {
                let entry = static_table::get(index)?;
                (entry.1 == value && entry.0 == name).then_some(index)
            }
            Guess::Dynamic(serial) => {
                let index = self.table.index_of(serial)?;
                let entry = self.table.get(index as usize)?;
                (entry.1 == value && entry.0 == name).then_some(index + static_table::LENGTH + 1)
            }
        }
    }

    /// Encodes a field that was not guessed; returns how to guess it the next time.
    fn look_up(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) -> Guess {
        let known = static_table::find(name, value);
        if let Some(Found::Field(index)) = known {
            integer::encode(index, 7, 0x80, out);
            return Guess::Static(index);
        }
        let name_hash = hash(name, 0);
        let field_hash = hash(value, name_hash);
        if let Some(serial) = self.find(field_hash, |entry| entry.1 == value && entry.0 == name) {
            let index = self.table.index_of(serial).expect("found entries live");
            integer::encode(index + static_table::LENGTH + 1, 7, 0x80, out);
            return Guess::Dynamic(serial);
        }
        self.is_indexed = false;
        let same_name = self.find(name_hash, |entry| entry.0 == name);
        let name_index = match (known, same_name.and_then(|serial| self.table.index_of(serial))) {
            (Some(Found::Name(index)), _) => index,
            (_, Some(index)) => index + static_table::LENGTH + 1,
            _ => 0,
        };
        let keep = self.fits(name, value) && (same_name.is_none() || self.is_second_time(field_hash));
        let (bits, pattern) = if keep { (6, 0x40) } else { (4, 0x00) };
        integer::encode(name_index, bits, pattern, out);
        if name_index == 0 {
            self.put_string(name, out);
        }
        self.put_string(value, out);
        if !keep {
            return Guess::Nothing;
        }
        let serial = self.table.inserted();
        self.table.insert(name, value, FieldKind::Regular);
        self.index.insert(name_hash, serial, &self.table);
        self.index.insert(field_hash, serial, &self.table);
        Guess::Dynamic(serial)
    }

    fn put_string(&self, text: &[u8], out: &mut Vec<u8>) {
        let put = if self.huffman { compression::put_string } else { compression::put_plain_string };
        put(text, 7, 0, out);
    }

    fn find(&self, hash: u32, same: impl Fn((&[u8], &[u8], FieldKind)) -> bool) -> Option<u32> {
        self.index.candidates(hash).find(|&serial| {
            let index = self.table.index_of(serial);
            index.and_then(|index| self.table.get(index as usize)).is_some_and(&same)
        })
    }

    /// A field that would evict more than three quarters of the table costs more than it saves.
    const fn fits(&self, name: &[u8], value: &[u8]) -> bool {
        name.len() + value.len() + ENTRY_OVERHEAD <= self.table.capacity() / 4 * 3
    }

    fn is_second_time(&mut self, field_hash: u32) -> bool {
        let slot = &mut self.seen_once[field_hash as usize % SEEN_ONCE];
        std::mem::replace(slot, field_hash) == field_hash
    }
}

impl FieldEncoder for Encoder {
    fn field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let place = self.place;
        self.place += 1;
        if let Some(index) = self.guessed(place, name, value) {
            return integer::encode(index, 7, 0x80, out);
        }
        let guess = self.look_up(name, value, out);
        if place == self.guesses.len() {
            self.guesses.push(guess);
        } else if let Some(slot) = self.guesses.get_mut(place) {
            *slot = guess;
        }
    }
}

/// A hash of `bytes`, eight at a time: FNV's single bytes take longer than all the rest of the encoder.
fn hash(bytes: &[u8], seed: u32) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut state = u64::from(seed) ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let word = u64::from_le_bytes(word.try_into().expect("chunks of 8"));
        state = (state ^ word).wrapping_mul(FACTOR);
        state ^= state >> 32;
    }
    for &byte in words.remainder() {
        state = (state ^ u64::from(byte)).wrapping_mul(FACTOR);
    }
    (state ^ state >> 29) as u32 ^ (state >> 32) as u32
}

/// Hash → serial number. Nothing is ever deleted: a slot whose entry was evicted is free. In a full probe range the
/// oldest entry is replaced, so that a search looks at four slots at most; the lost entry costs some bytes, no error.
#[derive(Debug)]
struct SerialIndex {
    /// Hash and serial number; a power of two of them.
    slots: Vec<(u32, u32)>,
}

/// How far from its home slot an entry may lie.
const NEIGHBOURHOOD: usize = 4;

impl SerialIndex {
    /// An index for a table of `capacity` bytes: four slots for each entry that could live in it with its two hashes.
    fn new(capacity: u32) -> Self {
        let entries = (capacity as usize / ENTRY_OVERHEAD).max(4);
        // The serial u32::MAX is dead until 2^32 − 1 entries have been inserted.
        Self { slots: vec![(0, u32::MAX); (entries * 4).next_power_of_two()] }
    }

    fn held(&self) -> usize {
        self.slots.capacity() * size_of::<(u32, u32)>()
    }

    fn places(&self, hash: u32) -> impl Iterator<Item = usize> + use<> {
        let mask = self.slots.len() - 1;
        (0..NEIGHBOURHOOD).map(move |n| (hash as usize + n) & mask)
    }

    fn candidates(&self, hash: u32) -> impl Iterator<Item = u32> + '_ {
        self.places(hash).map(|place| self.slots[place]).filter(move |slot| slot.0 == hash).map(|slot| slot.1)
    }

    fn insert(&mut self, hash: u32, serial: u32, table: &DynamicTable) {
        // Dead slots count as infinitely old; a slot with the same hash is replaced by the newer entry.
        let age = |(known, serial): (u32, u32)| {
            if known == hash { u32::MAX } else { table.index_of(serial).unwrap_or(u32::MAX) }
        };
        let place = self
            .places(hash)
            .max_by_key(|&place| age(self.slots[place]))
            .expect("a neighbourhood is not empty");
        self.slots[place] = (hash, serial);
    }
}
