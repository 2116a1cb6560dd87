//! The timer of each end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use h2lab_base::units::Time;

/// One timer per key; keys are small numbers.
#[derive(Debug, Default)]
pub struct Timers {
    /// Entries whose time is no longer that of their key are stale.
    queue: BinaryHeap<Reverse<(Time, usize)>>,
    set: Vec<Time>,
}

impl Timers {
    /// Sets the timer of `key`; [`Time::NEVER`] for none.
    pub fn set(&mut self, key: usize, at: Time) {
        if key >= self.set.len() {
            self.set.resize(key + 1, Time::NEVER);
        }
        if self.set[key] != at {
            self.set[key] = at;
            if at.happened() {
                self.queue.push(Reverse((at, key)));
            }
        }
    }

    /// When the next timer fires.
    pub fn next_at(&mut self) -> Time {
        while let Some(Reverse((at, key))) = self.queue.peek() {
            if self.set[*key] == *at {
                return *at;
            }
            self.queue.pop();
        }
        Time::NEVER
    }

    /// A key whose timer fires at `now` or earlier; the timer is then off.
    pub fn pop(&mut self, now: Time) -> Option<usize> {
        if self.next_at() > now {
            return None;
        }
        let Reverse((_, key)) = self.queue.pop()?;
        self.set[key] = Time::NEVER;
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_that_was_moved_fires_once_at_its_last_time() {
        let mut timers = Timers::default();
        let at = Time::from_millis;
        timers.set(3, at(10));
        timers.set(1, at(20));
        timers.set(3, at(30));
        assert_eq!((timers.pop(at(19)), timers.next_at()), (None, at(20)));
        assert_eq!((timers.pop(at(99)), timers.pop(at(99)), timers.pop(at(99))), (Some(1), Some(3), None));
    }

    #[test]
    fn a_timer_can_be_taken_back_and_set_again() {
        let mut timers = Timers::default();
        timers.set(0, Time::from_millis(5));
        timers.set(0, Time::NEVER);
        assert_eq!(timers.next_at(), Time::NEVER);
        timers.set(0, Time::from_millis(5));
        assert_eq!(timers.pop(Time::from_millis(5)), Some(0));
        assert_eq!(timers.pop(Time::from_millis(5)), None);
    }
}
