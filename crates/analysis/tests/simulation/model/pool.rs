//! Which connection a request is assigned to, and when another one is dialled: the generator's policy, without its
//! pauses after failures and without its optimisations for speed.

/// The inputs of the choice.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// Requests that the connection carries.
    open: u32,
    /// Whether it accepts another one.
    usable: bool,
    /// When its load changed last, as a count of changes.
    changed: u64,
}

/// The connections as the policy sees them, numbered from 0.
#[derive(Debug)]
pub struct Pool {
    warm: usize,
    max: usize,
    places: Vec<Place>,
    changes: u64,
}

impl Pool {
    /// A pool of `warm` connections that may grow to `max`.
    pub fn new(warm: u32, max: u32) -> Self {
        let warm = warm.max(1) as usize;
        Self { warm, max: (max as usize).max(warm), places: Vec::new(), changes: 0 }
    }

    /// A connection now carries `open` requests and accepts `available` more.
    pub fn update(&mut self, connection: usize, open: u32, available: u32) {
        if connection >= self.places.len() {
            self.places.resize(connection + 1, Place::default());
        }
        let place = &mut self.places[connection];
        let now = Place { open, usable: available > 0, changed: place.changed };
        if (now.open, now.usable) != (place.open, place.usable) {
            self.changes += 1;
            *place = Place { changed: self.changes, ..now };
        }
    }

    /// The usable connection with the fewest open streams; if there are several, the one that changed longest ago.
    pub fn pick(&self) -> Option<usize> {
        let usable = self.places.iter().enumerate().filter(|(_, place)| place.usable);
        usable.min_by_key(|(_, place)| (place.open, place.changed)).map(|(connection, _)| connection)
    }

    /// How many dials to start with this many connections live and being dialled, and requests that found none.
    pub fn dials_wanted(&self, live: usize, dialling: usize, waiting: usize) -> usize {
        let planned = live + dialling;
        let demanded = waiting.saturating_sub(dialling).min(self.max.saturating_sub(planned));
        self.warm.saturating_sub(planned).max(demanded)
    }

    /// The number of connections that are kept open.
    pub const fn warm(&self) -> usize {
        self.warm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_loaded_connection_is_picked_and_equals_take_turns() {
        let mut pool = Pool::new(3, 3);
        assert_eq!(pool.pick(), None);
        (0..3).for_each(|connection| pool.update(connection, 0, 10));
        let mut picked = Vec::new();
        for _ in 0..6 {
            let connection = pool.pick().unwrap();
            picked.push(connection);
            pool.update(connection, 1, 9);
            pool.update(connection, 0, 10);
        }
        assert_eq!(picked, [0, 1, 2, 0, 1, 2]);
        pool.update(0, 5, 5);
        pool.update(1, 0, 0);
        assert_eq!(pool.pick(), Some(2));
    }

    #[test]
    fn the_pool_is_kept_warm_and_grows_by_what_waits_up_to_its_limit() {
        let pool = Pool::new(2, 5);
        assert_eq!(pool.dials_wanted(0, 0, 0), 2);
        assert_eq!(pool.dials_wanted(2, 0, 0), 0);
        assert_eq!(pool.dials_wanted(2, 1, 1), 0, "that dial is for it");
        assert_eq!(pool.dials_wanted(2, 1, 9), 2);
    }
}
