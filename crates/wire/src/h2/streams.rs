//! The streams of a connection: a slab, an index by id, and a record of those that closed.

use std::ops::{Index, IndexMut};

use super::stream::Stream;

/// Where a stream lies in the slab; valid until that stream is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key(u32);

/// How a stream ended, as far as it is recorded (RFC 9113 §5.1, "closed").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Both sides sent END_STREAM.
    Complete,
    /// We sent RST_STREAM: what the peer had under way is ignored.
    ResetByUs,
    /// The peer sent RST_STREAM: it must not send more.
    ResetByPeer,
    /// Ended too long ago, or never opened because a higher id came first.
    Forgotten,
}

/// How many closed streams are recorded.
const REMEMBERED: usize = 256;
/// An index slot without a stream. Stream 0 is never in the store.
const VACANT: (u32, u32) = (0, 0);

/// All live streams of one connection; every operation on one stream is O(1).
#[derive(Debug)]
pub(super) struct Streams {
    slab: Vec<Stream>,
    free: Vec<u32>,
    /// Open addressing, id → place in the slab; a power of two of slots, at most half of them used.
    index: Vec<(u32, u32)>,
    live: [u32; 2],
    closed: Vec<(u32, Ending)>,
    next_closed: usize,
}

impl Streams {
    pub(super) fn new() -> Self {
        Self {
            slab: Vec::new(),
            free: Vec::new(),
            index: vec![VACANT; 16],
            live: [0; 2],
            closed: Vec::new(),
            next_closed: 0,
        }
    }

    /// The memory that it takes, in bytes.
    pub(super) fn held(&self) -> usize {
        let slots = self.free.capacity() * size_of::<u32>() + self.index.capacity() * size_of_val(&VACANT);
        let closed = self.closed.capacity() * size_of::<(u32, Ending)>();
        self.slab.capacity() * size_of::<Stream>() + slots + closed
    }

    /// How many are live.
    pub(super) const fn len(&self) -> u32 {
        self.live[0] + self.live[1]
    }

    /// How many that the client began are live.
    pub(super) const fn requested(&self) -> u32 {
        self.live[1]
    }

    /// How many that the server promised are live.
    pub(super) const fn promised(&self) -> u32 {
        self.live[0]
    }

    /// The live stream with this id.
    pub(super) fn find(&self, id: u32) -> Option<Key> {
        let slot = self.index[self.slot_of(id)?];
        Some(Key(slot.1))
    }

    /// Adds a stream whose id is not in the store.
    pub(super) fn insert(&mut self, stream: Stream) -> Key {
        let id = stream.id;
        if (self.len() as usize + 1) * 2 > self.index.len() {
            self.grow();
        }
        let place = match self.free.pop() {
            Some(place) => {
                self.slab[place as usize] = stream;
                place
            }
            None => {
                self.slab.push(stream);
                self.slab.len() as u32 - 1
            }
        };
        self.occupy(id, place);
        self.live[id as usize % 2] += 1;
        Key(place)
    }

    /// Removes a live stream and records how it ended.
    pub(super) fn remove(&mut self, key: Key, ending: Ending) {
        let id = self[key].id;
        if let Some(slot) = self.slot_of(id) {
            self.vacate(slot);
            self.live[id as usize % 2] -= 1;
            self.slab[key.0 as usize].id = 0;
            self.free.push(key.0);
        }
        self.remember(id, ending);
    }

    /// Records how a stream ended that was never in the store.
    pub(super) fn remember(&mut self, id: u32, ending: Ending) {
        if self.closed.len() < REMEMBERED {
            self.closed.push((id, ending));
        } else {
            self.closed[self.next_closed] = (id, ending);
            self.next_closed = (self.next_closed + 1) % REMEMBERED;
        }
    }

    /// How a stream ended that is neither live nor idle.
    pub(super) fn ending(&self, id: u32) -> Ending {
        // The latest entry counts: a stream that the peer reset may have been reset by us afterwards.
        let (newer, older) = self.closed.split_at(self.next_closed);
        let mut latest_first = newer.iter().rev().chain(older.iter().rev());
        latest_first.find(|(closed, _)| *closed == id).map_or(Ending::Forgotten, |&(_, ending)| ending)
    }

    /// All live streams, in slab order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.slab.iter().filter(|stream| stream.id != 0)
    }

    /// The same, mutable.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.slab.iter_mut().filter(|stream| stream.id != 0)
    }

    /// The places of all live streams.
    pub(super) fn keys(&self) -> Vec<Key> {
        let places = (0..).zip(&self.slab);
        places.filter(|(_, stream)| stream.id != 0).map(|(place, _)| Key(place)).collect()
    }

    /// The first live stream at or after place `from` with an id above `last` that the client began, and its place.
    pub(super) fn next_above(&self, from: usize, last: u32) -> Option<(Key, usize)> {
        let wanted = |stream: &Stream| stream.id > last && stream.id % 2 == 1;
        let place = from + self.slab.get(from..)?.iter().position(wanted)?;
        Some((Key(place as u32), place))
    }

    fn grow(&mut self) {
        let slots = self.index.len() * 2;
        let old = std::mem::replace(&mut self.index, vec![VACANT; slots]);
        for (id, place) in old.into_iter().filter(|slot| *slot != VACANT) {
            self.occupy(id, place);
        }
    }

    /// Fibonacci hashing: consecutive ids, and ids in steps, spread over the slots.
    fn home(&self, id: u32) -> usize {
        let bits = self.index.len().trailing_zeros();
        (id.wrapping_mul(0x9e37_79b1) >> (32 - bits)) as usize
    }

    fn slot_of(&self, id: u32) -> Option<usize> {
        let mask = self.index.len() - 1;
        let mut slot = self.home(id);
        loop {
            match self.index[slot].0 {
                0 => return None,
                found if found == id => return Some(slot),
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    fn occupy(&mut self, id: u32, place: u32) {
        let mask = self.index.len() - 1;
        let mut slot = self.home(id);
        while self.index[slot] != VACANT {
            slot = (slot + 1) & mask;
        }
        self.index[slot] = (id, place);
    }

    /// Empties a slot and moves up those behind it that would no longer be found (backward-shift deletion).
    fn vacate(&mut self, mut hole: usize) {
        let mask = self.index.len() - 1;
        let mut slot = hole;
        loop {
            slot = (slot + 1) & mask;
            let entry = self.index[slot];
            if entry == VACANT {
                break;
            }
            let displacement = slot.wrapping_sub(self.home(entry.0)) & mask;
            let to_hole = slot.wrapping_sub(hole) & mask;
            if displacement >= to_hole {
                self.index[hole] = entry;
                hole = slot;
            }
        }
        self.index[hole] = VACANT;
    }
}

impl Index<Key> for Streams {
    type Output = Stream;

    fn index(&self, key: Key) -> &Stream {
        &self.slab[key.0 as usize]
    }
}

impl IndexMut<Key> for Streams {
    fn index_mut(&mut self, key: Key) -> &mut Stream {
        &mut self.slab[key.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::h2::flow::ReceiveWindow;
    use crate::h2::stream::Side;

    fn stream(id: u32) -> Stream {
        Stream::new(id, Side::Head, Side::Head, 0, ReceiveWindow::new(0))
    }

    #[test]
    fn endings_are_remembered_for_a_while() {
        let mut streams = Streams::new();
        for id in (1..=2 * REMEMBERED as u32 + 1).step_by(2) {
            streams.remember(id, Ending::Complete);
        }
        assert_eq!(streams.ending(1), Ending::Forgotten, "one more than fit");
        assert_eq!(streams.ending(3), Ending::Complete);
        streams.remember(3, Ending::ResetByUs);
        assert_eq!(streams.ending(3), Ending::ResetByUs, "the latest counts");
    }

    #[test]
    fn streams_above_a_last_one_are_found_place_by_place() {
        let mut streams = Streams::new();
        for id in [1, 3, 2, 5, 7] {
            streams.insert(stream(id));
        }
        let (mut from, mut found) = (0, Vec::new());
        while let Some((key, place)) = streams.next_above(from, 3) {
            found.push(streams[key].id);
            from = place + 1;
        }
        assert_eq!(found, [5, 7]);
        assert_eq!((streams.requested(), streams.promised(), streams.len()), (4, 1, 5));
    }

    proptest! {
        #[test]
        fn the_store_agrees_with_a_map(steps in prop::collection::vec((1_u32..60, any::<bool>()), 0..300)) {
            let (mut streams, mut model) = (Streams::new(), BTreeMap::new());
            for (id, add) in steps {
                // Spread the ids over the range, so that probes wrap around.
                let id = id.wrapping_mul(0x00ab_cdef) & 0x7fff_ffff | 1;
                if add {
                    model.entry(id).or_insert_with(|| streams.insert(stream(id)));
                } else if let Some(key) = model.remove(&id) {
                    prop_assert_eq!(streams[key].id, id);
                    streams.remove(key, Ending::Complete);
                }
                prop_assert_eq!(streams.len() as usize, model.len());
                for (id, key) in &model {
                    prop_assert_eq!(streams.find(*id), Some(*key));
                    prop_assert_eq!(streams[*key].id, *id);
                }
                prop_assert_eq!(streams.find(id).is_some(), model.contains_key(&id));
            }
        }
    }
}
