//! One deadline for each of many numbered things, most of which end long before it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use h2lab_base::units::Time;

/// The deadlines. Putting one off costs nothing: its old entry comes up, and its owner is asked again. So there is
/// about one entry for each number that has been in use, however many requests have had that number.
#[derive(Debug, Default)]
pub struct Deadlines {
    entries: BinaryHeap<Reverse<(Time, u32)>>,
    /// The earliest entry of each number; [`Time::NEVER`] without one.
    queued: Vec<Time>,
}

impl Deadlines {
    /// The owner of this number is asked at `at`, or before.
    pub fn set(&mut self, id: u32, at: Time) {
        let index = id as usize;
        if self.queued.len() <= index {
            self.queued.resize(index + 1, Time::NEVER);
        }
        if at < self.queued[index] {
            self.queued[index] = at;
            self.entries.push(Reverse((at, id)));
        }
    }

    /// When the next one comes up.
    pub fn next(&self) -> Time {
        self.entries.peek().map_or(Time::NEVER, |Reverse((at, _))| *at)
    }

    /// The number of a deadline that has come up. Its owner says what is due, and sets the next one.
    pub fn expired(&mut self, now: Time) -> Option<u32> {
        while self.next() <= now {
            let Reverse((at, id)) = self.entries.pop()?;
            let queued = &mut self.queued[id as usize];
            if *queued == at {
                *queued = Time::NEVER;
                return Some(id);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn the_earliest_comes_up_and_each_once() {
        let mut deadlines = Deadlines::default();
        deadlines.set(3, at(30));
        deadlines.set(1, at(10));
        deadlines.set(3, at(20));
        assert_eq!((deadlines.next(), deadlines.expired(at(9))), (at(10), None));
        assert_eq!([deadlines.expired(at(40)), deadlines.expired(at(40))], [Some(1), Some(3)]);
        assert_eq!((deadlines.expired(at(40)), deadlines.next()), (None, Time::NEVER), "that of 30 is stale");
        deadlines.set(3, at(50));
        assert_eq!(deadlines.expired(at(50)), Some(3));
    }

    #[test]
    fn what_is_put_off_again_and_again_has_one_entry() {
        let mut deadlines = Deadlines::default();
        for n in 0..100_000 {
            deadlines.set(0, at(60_000 + n));
        }
        assert_eq!(deadlines.entries.len(), 1);
        assert_eq!(deadlines.expired(at(60_000)), Some(0), "its owner sets it anew");
    }
}
