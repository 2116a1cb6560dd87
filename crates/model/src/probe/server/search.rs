//! The search for a boundary between what is accepted and what is not.

use crate::probe::Bound;

/// The first value that is tried.
pub const FIRST: u64 = 1 << 10;

/// The result of trying one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// It was accepted like a plain request.
    Yes,
    /// It was refused like this.
    Refused(String),
    /// It was left unprocessed for another reason, or without an answer: that does not depend on its length.
    Unknown(String),
}

/// Searches the boundary from [`FIRST`] to `most`.
#[derive(Debug)]
pub struct Search {
    taken: Option<u64>,
    refused: Option<u64>,
    most: u64,
}

impl Search {
    /// Nothing has been tried.
    pub const fn new(most: u64) -> Self {
        Self { taken: None, refused: None, most }
    }

    /// `taken` is known to be accepted and `refused` not to be.
    pub const fn between(taken: u64, refused: u64) -> Self {
        Self { taken: Some(taken), refused: Some(refused), most: refused }
    }

    /// What to try next: doubled until something is refused, then one more than a round number, then the middle. `None` once
    /// the boundary is known or `most` is taken.
    pub fn next(&self) -> Option<u64> {
        match (self.taken, self.refused) {
            (None, None) => Some(FIRST.min(self.most)),
            (None, Some(refused)) => (refused > 1).then_some(refused / 2),
            (Some(taken), None) => (taken < self.most).then_some((taken * 2).min(self.most)),
            // Far apart, as when the longest was tried first: the smaller one is doubled.
            (Some(taken), Some(refused)) if refused / 4 > taken.max(FIRST) => Some((taken * 2).max(FIRST)),
            (Some(taken), Some(refused)) if refused - taken > 1 => {
                // Limits are round numbers: the value just above one decides at once.
                if taken.is_power_of_two() { Some(taken + 1) } else { Some(taken + (refused - taken) / 2) }
            }
            _ => None,
        }
    }

    /// `value` was accepted or not.
    pub fn note(&mut self, value: u64, taken: bool) {
        if taken {
            self.taken = self.taken.max(Some(value));
        } else {
            self.refused = Some(self.refused.map_or(value, |refused| refused.min(value)));
        }
    }

    /// Whether one value was accepted and one refused, or the largest was accepted.
    pub fn is_decided(&self) -> bool {
        self.next().is_none()
    }

    /// The bound as far as it is known, with `how`, or why it is not known better.
    pub fn bound(&self, how: String) -> Bound {
        match (self.taken, self.refused) {
            (Some(taken), Some(refused)) if refused == taken + 1 => Bound::exact(taken, "bytes", how),
            (taken, refused) => Bound::between(taken, refused.map(|n| n - 1), "bytes", how),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of a search with a server that accepts up to `limit`, and how many tries it takes.
    fn search(mut search: Search, limit: u64) -> (Bound, usize) {
        let mut tries = 0;
        while let Some(n) = search.next() {
            assert!(!search.is_decided());
            search.note(n, n <= limit);
            tries += 1;
            assert!(tries < 100);
        }
        assert!(search.is_decided());
        (search.bound(String::new()), tries)
    }

    #[test]
    fn every_limit_is_found_exactly() {
        for limit in [1, 2, 1_023, 1_024, 1_025, 8_192, 16_000, 16_384, 65_535, 1_000_000] {
            assert_eq!(search(Search::new(1 << 20), limit).0.value, Some(limit), "{limit}");
            assert_eq!(search(Search::between(0, 1 << 40), limit).0.value, Some(limit), "{limit}");
        }
        let (bound, _) = search(Search::new(1 << 20), u64::MAX);
        assert_eq!((bound.value, bound.at_least), (None, Some(1 << 20)));
    }

    #[test]
    fn round_numbers_are_found_quickly() {
        assert!(search(Search::new(1 << 40), 1 << 20).1 <= 13);
        assert!(search(Search::between(0, 1 << 40), 1 << 20).1 <= 14);
        assert!(search(Search::new(1 << 20), 8_192).1 <= 7);
    }
}
