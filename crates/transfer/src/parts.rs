//! The ranges still to be fetched, dealt out in parts.

use std::ops::Range;

use super::Extents;

/// Parts made smaller so that every worker gets one are no smaller than this, in bytes: what a stream may send at once
/// in HTTP/2's initial window (RFC 9113 §6.9.2), so that a request is worth its round trip.
pub const LEAST_PART: u64 = 64 << 10;

/// The ranges of a file not requested yet. A worker is one request at a time on one connection.
///
/// Lower offsets go first, also those that were given back: a file fills up from its beginning, and a digest over it
/// can follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    waiting: Extents,
    part_bytes: u64,
}

impl Parts {
    /// Divides the ranges `missing` into parts of at most `part_bytes` (at least 1). Parts are smaller where each of
    /// `workers` would not get one otherwise, but not smaller than [`LEAST_PART`] for that reason.
    ///
    /// `u64::MAX` and one worker fetch each missing range by one request: for servers without range support.
    pub fn new(missing: impl IntoIterator<Item = Range<u64>>, part_bytes: u64, workers: u32) -> Self {
        let waiting: Extents = missing.into_iter().collect();
        let share = waiting.held().div_ceil(u64::from(workers.max(1))).max(LEAST_PART);
        let part_bytes = if workers > 1 { part_bytes.min(share) } else { part_bytes };
        Self { waiting, part_bytes: part_bytes.max(1) }
    }

    /// The bytes of a part; the last one of a range may have fewer.
    pub const fn part_bytes(&self) -> u64 {
        self.part_bytes
    }

    /// Whether no part is left to request. Dealt parts may still be given back.
    pub const fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes back the rest of a part whose connection broke or whose server failed: from the first byte that is not
    /// safely stored to the part's end. It may be dealt again at once.
    pub fn give_back(&mut self, rest: Range<u64>) {
        self.waiting.insert(rest);
    }
}

impl Iterator for Parts {
    type Item = Range<u64>;

    /// The next part to ask for; `None` if none is left now, which [`Parts::give_back`] may change.
    fn next(&mut self) -> Option<Range<u64>> {
        let first = self.waiting.iter().next()?;
        let part = first.start..first.end.min(first.start.saturating_add(self.part_bytes));
        self.waiting.remove(part.clone());
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::iter::once;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_file_is_dealt_from_its_beginning() {
        let parts: Vec<_> = Parts::new(once(0..250_000), 100_000, 2).collect();
        assert_eq!(parts, [0..100_000, 100_000..200_000, 200_000..250_000]);
        assert!(Parts::new(once(0..1 << 40), u64::MAX, 1).eq(once(0..1 << 40)));
    }

    #[test]
    fn a_small_file_is_shared_by_all_workers_but_not_crumbled() {
        let dealt = |total, workers| Parts::new(once(0..total), 16 << 20, workers).count();
        assert_eq!(dealt(8 << 20, 4), 4);
        assert_eq!(dealt(LEAST_PART * 4, 4), 4);
        assert_eq!(dealt(LEAST_PART * 4 - 4, 4), 4);
        assert_eq!(dealt(LEAST_PART, 4), 1);
        assert_eq!(dealt(1, 1000), 1);
        assert_eq!(dealt(0, 4), 0);
    }

    #[test]
    fn a_size_that_was_asked_for_holds_even_if_it_is_small() {
        assert_eq!(Parts::new(once(0..10), 4, 8).collect::<Vec<_>>(), [0..4, 4..8, 8..10]);
        assert_eq!(Parts::new(once(0..2), 0, 8).collect::<Vec<_>>(), [0..1, 1..2]);
    }

    #[test]
    fn what_comes_back_goes_out_before_what_lies_behind_it() {
        let mut parts = Parts::new(once(0..300), 100, 1);
        assert_eq!((parts.next(), parts.next()), (Some(0..100), Some(100..200)));
        parts.give_back(40..100);
        assert_eq!((parts.waiting.held(), parts.next()), (160, Some(40..100)));
        assert_eq!((parts.next(), parts.next()), (Some(200..300), None));
        parts.give_back(250..300);
        assert_eq!((parts.next(), parts.next()), (Some(250..300), None));
    }

    proptest! {
        /// Workers fetch parts; some break in the middle, keeping what had arrived.
        #[test]
        fn nothing_is_dealt_twice_and_nothing_is_lost(
            held in prop::collection::vec((0_u64..2000, 1_u64..200), 0..8),
            total in 0_u64..2000,
            part in 1_u64..400,
            workers in 1_u32..9,
            breaks in prop::collection::vec(prop::option::weighted(0.4, 0_u64..400), 0..200),
        ) {
            let mut extents: Extents = held.into_iter().map(|(from, length)| from..from + length).collect();
            let mut parts = Parts::new(extents.missing(total), part, workers);
            let (mut under_way, mut breaks) = (VecDeque::new(), breaks.into_iter());
            loop {
                while under_way.len() < workers as usize {
                    let Some(part) = parts.next() else { break };
                    under_way.push_back(part);
                }
                let Some(part) = under_way.pop_front() else { break };
                let arrived = match breaks.next().flatten() {
                    Some(after) => part.start..part.end.min(part.start + after),
                    None => part.clone(),
                };
                let length = arrived.end - arrived.start;
                prop_assert_eq!(extents.insert(arrived.clone()), length, "dealt twice");
                parts.give_back(arrived.end..part.end);
            }
            prop_assert!(extents.is_complete(total) && parts.is_empty());
        }
    }
}
