//! How much waits for a thread of sessions: bounded, since whoever may publish decides how much comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most bytes that wait in one room.
pub(in crate::fleet) const MOST_BYTES: usize = 16 << 20;

/// The most orders that wait in one room.
pub(super) const MOST_ORDERS: usize = 1024;

/// The least that a packet counts, in bytes: even an empty one takes memory.
const LEAST_PACKET: usize = 256;

/// Room for what waits. Its clones are the same room.
#[derive(Debug, Clone)]
pub(in crate::fleet) struct Room {
    taken: Arc<AtomicUsize>,
    /// The least that anything counts, in bytes.
    least: usize,
}

/// The part of a room that something takes while it waits, until this is dropped.
#[derive(Debug)]
pub(in crate::fleet) struct Place {
    taken: Arc<AtomicUsize>,
    bytes: usize,
}

impl Room {
    /// For packets. A session sends again what does not fit.
    pub fn of_packets() -> Self {
        Self::new(LEAST_PACKET)
    }

    /// For orders, of which [`MOST_ORDERS`] fit at most.
    pub fn of_orders() -> Self {
        Self::new(MOST_BYTES / MOST_ORDERS)
    }

    fn new(least: usize) -> Self {
        Self { taken: Arc::default(), least }
    }

    /// A place for something of so many bytes; `None` if it does not fit.
    pub fn take(&self, bytes: usize) -> Option<Place> {
        let bytes = bytes.max(self.least);
        let fits = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= MOST_BYTES);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Place { taken: Arc::clone(&self.taken), bytes })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_takes_so_many_bytes_and_not_one_more_until_a_place_is_free_again() {
        let room = Room::of_packets();
        let whole = room.take(MOST_BYTES).unwrap();
        assert!(room.clone().take(LEAST_PACKET).is_none(), "a clone is the same room");
        drop(whole);
        let _most = room.take(MOST_BYTES - LEAST_PACKET).unwrap();
        assert!(room.take(LEAST_PACKET + 1).is_none());
        let last = room.take(LEAST_PACKET).unwrap();
        assert!(room.take(0).is_none(), "an empty packet counts, too");
        drop(last);
        assert!(room.take(0).is_some());
        assert!(room.take(usize::MAX).is_none());
    }

    #[test]
    fn orders_are_bounded_by_their_number_and_large_ones_by_their_bytes() {
        let room = Room::of_orders();
        let small: Vec<Option<Place>> = (0..=MOST_ORDERS).map(|_| room.take(30)).collect();
        assert_eq!(small.iter().flatten().count(), MOST_ORDERS);
        drop(small);
        let large: Vec<Option<Place>> = (0..5).map(|_| room.take(MOST_BYTES / 4)).collect();
        assert_eq!(large.iter().flatten().count(), 4);
    }
}
