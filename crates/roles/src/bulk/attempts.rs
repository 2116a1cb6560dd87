//! How often in a row dials and connections failed, counted for each slot: when the next dial is due, and when to give
//! up.

use std::time::Duration;

/// After so many failures in a row of every slot the server is given up.
const MOST: u32 = 6;

/// The pause after the second failure in a row; each further pause is twice as long. After the first failure there is
/// none: a connection that breaks is replaced at once.
const PAUSE: Duration = Duration::from_millis(100);

/// The longest pause is `PAUSE * 2^LONGEST`, 6.4 s.
const LONGEST: u32 = 6;

/// The failures in a row of each slot. Connections that break together do not add up: each counts for its own slot, and
/// for its own pause.
#[derive(Debug)]
pub struct Attempts {
    in_a_row: Vec<u32>,
}

impl Attempts {
    /// For `slots` slots that were never dialled.
    pub fn new(slots: usize) -> Self {
        Self { in_a_row: vec![0; slots] }
    }

    /// The dial or connection of a slot has ended; `was_of_use`: it carried bytes of a file. Returns the pause before
    /// the next dial.
    pub fn ended(&mut self, slot: usize, was_of_use: bool) -> Duration {
        let count = &mut self.in_a_row[slot];
        if was_of_use {
            *count = 0;
        }
        *count += 1;
        match *count {
            1 => Duration::ZERO,
            n => PAUSE * (1 << (n - 2).min(LONGEST)),
        }
    }

    /// Whether every slot has failed too often.
    pub fn are_hopeless(&self) -> bool {
        self.in_a_row.iter().all(|count| *count >= MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_break_together_are_each_dialled_again() {
        let mut attempts = Attempts::new(8);
        for round in 0..MOST {
            assert!(!attempts.are_hopeless(), "round {round}");
            for slot in 0..8 {
                let pause = attempts.ended(slot, false);
                assert_eq!(pause.is_zero(), round == 0, "slot {slot}, round {round}");
            }
        }
        assert!(attempts.are_hopeless());
    }

    #[test]
    fn a_slot_that_brings_nothing_waits_longer_and_longer_whatever_the_others_bring() {
        let mut attempts = Attempts::new(2);
        let mut last = Duration::ZERO;
        for n in 0..20 {
            assert_eq!(attempts.ended(0, true), Duration::ZERO, "it brought something, and broke");
            let pause = attempts.ended(1, false);
            assert!(n == 0 || pause > last || pause == PAUSE * 64, "{pause:?} after {last:?}");
            last = pause;
        }
        assert!(!attempts.are_hopeless());
        assert_eq!(attempts.ended(1, true), Duration::ZERO);
    }
}
