//! The CRC-32C of a file whose parts come in any order.

use std::collections::BTreeMap;
use std::ops::Range;

use super::checksum::combine;

/// The sums of the parts of a file that have arrived, each computed by the worker that received it. Neighbours are
/// combined at once, so there are never more than there are gaps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sums {
    /// By first byte: one past the last, and the sum.
    parts: BTreeMap<u64, (u64, u32)>,
}

impl Sums {
    /// Adds the sum of the bytes in `range`. Returns `false`, and changes nothing, if it overlaps a range that is
    /// already there: a sum cannot be taken out of another.
    pub fn add(&mut self, range: Range<u64>, crc: u32) -> bool {
        if range.is_empty() {
            return true;
        }
        let before = self.parts.range(..range.end).next_back().map(|(&start, &(end, _))| start..end);
        if before.as_ref().is_some_and(|before| before.end > range.start) {
            return false;
        }
        let (mut start, mut end, mut sum) = (range.start, range.end, crc);
        if let Some(before) = before.filter(|before| before.end == range.start)
            && let Some((_, of_it)) = self.parts.remove(&before.start)
        {
            sum = combine(of_it, sum, end - start);
            start = before.start;
        }
        if let Some((after_end, of_it)) = self.parts.remove(&end) {
            sum = combine(sum, of_it, after_end - end);
            end = after_end;
        }
        self.parts.insert(start, (end, sum));
        true
    }

    /// The sum of a file of `total` bytes, if all of it is here.
    pub fn whole(&self, total: u64) -> Option<u32> {
        if total == 0 {
            return Some(0);
        }
        self.parts.get(&0).filter(|(end, _)| *end == total).map(|&(_, sum)| sum)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::checksum::crc32c;
    use super::*;

    #[test]
    fn a_file_is_summed_when_its_last_part_is_there() {
        let data = b"123456789";
        let mut sums = Sums::default();
        assert!(sums.add(4..9, crc32c(&data[4..])));
        assert_eq!(sums.whole(9), None);
        assert!(sums.add(0..4, crc32c(&data[..4])));
        assert_eq!(sums.whole(9), Some(0xe306_9283));
        assert_eq!((sums.whole(8), sums.whole(10)), (None, None));
        assert_eq!(Sums::default().whole(0), Some(0));
    }

    #[test]
    fn no_byte_is_summed_twice() {
        let mut sums = Sums::default();
        assert!(sums.add(10..20, 1));
        for range in [10..20, 0..11, 19..30, 12..13, 0..30] {
            assert!(!sums.add(range.clone(), 1), "{range:?}");
        }
        assert!(sums.add(20..30, 1) && sums.add(0..10, 1) && sums.add(5..5, 0));
    }

    proptest! {
        #[test]
        fn the_order_of_arrival_does_not_matter(
            data in prop::collection::vec(any::<u8>(), 1..500),
            cuts in prop::collection::btree_set(1_usize..500, 0..12),
            order in any::<u64>(),
        ) {
            let inner = cuts.into_iter().filter(|&cut| cut < data.len());
            let ends: Vec<usize> = inner.chain([data.len()]).collect();
            let mut ranges: Vec<_> =
                std::iter::once(0).chain(ends.iter().copied()).zip(ends.iter().copied()).collect();
            let mut random = h2lab_base::random::Counter::new(order, "order");
            let mut sums = Sums::default();
            while !ranges.is_empty() {
                prop_assert_eq!(sums.whole(data.len() as u64), None);
                let (from, to) = ranges.swap_remove(random.below(ranges.len() as u64) as usize);
                prop_assert!(sums.add(from as u64..to as u64, crc32c(&data[from..to])));
            }
            prop_assert_eq!(sums.whole(data.len() as u64), Some(crc32c(&data)));
        }
    }
}
