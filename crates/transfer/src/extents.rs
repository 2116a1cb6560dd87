//! Which bytes of a file are stored.

use h2lab_base::JsonSchema;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Byte ranges of a file, sorted, disjoint and never adjacent: what is stored safely. In JSON `[[from, to], …]`, each
/// `to` one past the last byte.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
#[schemars(with = "Vec<(u64, u64)>")]
pub struct Extents {
    ranges: Vec<Range<u64>>,
}

/// A range that has no bytes, or ends before it begins: a journal was edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the range from byte {from} to byte {to} has no bytes")]
pub struct EmptyRange {
    from: u64,
    to: u64,
}

impl Extents {
    /// No bytes.
    pub const fn new() -> Self {
        Self { ranges: Vec::new() }
    }

    /// All of a file of `total` bytes.
    pub fn all(total: u64) -> Self {
        std::iter::once(0..total).collect()
    }

    /// Adds `range` and says how many of its bytes are new. An empty range changes nothing.
    pub fn insert(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        // Those from `first` up to `last` touch the new one and merge with it.
        let first = self.ranges.partition_point(|known| known.end < range.start);
        let last = self.ranges.partition_point(|known| known.start <= range.end);
        let touched = &self.ranges[first..last];
        let known: u64 = touched.iter().map(|known| overlap(known, &range)).sum();
        let start = touched.first().map_or(range.start, |known| known.start.min(range.start));
        let end = touched.last().map_or(range.end, |known| known.end.max(range.end));
        self.ranges.splice(first..last, std::iter::once(start..end));
        range.end - range.start - known
    }

    /// Removes `range`.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.ranges.partition_point(|known| known.end <= range.start);
        let last = self.ranges.partition_point(|known| known.start < range.end);
        if first == last {
            return;
        }
        let before = self.ranges[first].start..range.start;
        let after = range.end..self.ranges[last - 1].end;
        self.ranges.splice(first..last, [before, after].into_iter().filter(|rest| !rest.is_empty()));
    }

    /// How many bytes it holds.
    pub fn held(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// How many bytes of `range` it holds.
    pub fn held_in(&self, range: Range<u64>) -> u64 {
        let first = self.ranges.partition_point(|known| known.end <= range.start);
        self.ranges[first..]
            .iter()
            .take_while(|known| known.start < range.end)
            .map(|known| overlap(known, &range))
            .sum()
    }

    /// Whether it is empty.
    pub const fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many ranges there are, with gaps between them.
    pub fn ranges(&self) -> usize {
        self.iter().count()
    }

    /// Whether `range` overlaps or adjoins a stored range, so that inserting it adds no further range.
    pub fn touches(&self, range: Range<u64>) -> bool {
        self.iter().any(|known| known.start <= range.end && range.start <= known.end)
    }

    /// Whether all of a file of `total` bytes is there; always so for an empty file.
    pub fn is_complete(&self, total: u64) -> bool {
        self.missing(total).next().is_none()
    }

    /// How many bytes from the first on are there without a gap.
    pub fn contiguous(&self) -> u64 {
        self.ranges.first().filter(|range| range.start == 0).map_or(0, |range| range.end)
    }

    /// One past the last byte that is there; 0 if there is none.
    pub fn end(&self) -> u64 {
        self.ranges.last().map_or(0, |range| range.end)
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().cloned()
    }

    /// The missing ranges of a file of `total` bytes, in order; none is empty.
    pub fn missing(&self, total: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        let ends = std::iter::once(0).chain(self.ranges.iter().map(|range| range.end));
        let starts = self.ranges.iter().map(|range| range.start).chain(std::iter::once(u64::MAX));
        ends.zip(starts).map(move |(from, to)| from..to.min(total)).filter(|gap| !gap.is_empty())
    }
}

/// How many bytes `a` and `b` have in common.
fn overlap(a: &Range<u64>, b: &Range<u64>) -> u64 {
    a.end.min(b.end).saturating_sub(a.start.max(b.start))
}

impl FromIterator<Range<u64>> for Extents {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut extents = Self::new();
        for range in ranges {
            extents.insert(range);
        }
        extents
    }
}

impl TryFrom<Vec<(u64, u64)>> for Extents {
    type Error = EmptyRange;

    /// Accepts ranges in any order, overlapping or not: they are a set. Refuses only a range without bytes.
    fn try_from(pairs: Vec<(u64, u64)>) -> Result<Self, EmptyRange> {
        match pairs.iter().find(|(from, to)| from >= to) {
            Some(&(from, to)) => Err(EmptyRange { from, to }),
            None => Ok(pairs.into_iter().map(|(from, to)| from..to).collect()),
        }
    }
}

impl From<Extents> for Vec<(u64, u64)> {
    fn from(extents: Extents) -> Self {
        extents.ranges.into_iter().map(|range| (range.start, range.end)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn extents(pairs: &[(u64, u64)]) -> Extents {
        pairs.iter().map(|&(from, to)| from..to).collect()
    }

    #[test]
    fn ranges_that_touch_become_one() {
        assert_eq!(extents(&[(0, 4), (8, 12), (4, 8)]), extents(&[(0, 12)]));
        assert_eq!(extents(&[(0, 4), (5, 8)]).iter().count(), 2);
        assert_eq!(extents(&[(2, 3), (6, 7), (0, 9)]), extents(&[(0, 9)]));
    }

    #[test]
    fn what_was_known_is_not_counted_again() {
        let mut extents = extents(&[(10, 20), (30, 40)]);
        assert_eq!(extents.insert(10..20), 0);
        assert_eq!(extents.insert(5..35), 5 + 10);
        assert_eq!(extents.insert(7..7), 0);
        assert_eq!((extents.held(), extents.end(), extents.contiguous()), (35, 40, 0));
        assert_eq!(extents.insert(0..5), 5);
        assert_eq!(extents.contiguous(), 40);
    }

    #[test]
    fn a_file_is_complete_with_its_last_byte_and_an_empty_one_at_once() {
        assert!(Extents::new().is_complete(0));
        assert!(!Extents::new().is_complete(1));
        assert!(!extents(&[(0, 9)]).is_complete(10));
        assert!(extents(&[(0, 10)]).is_complete(10));
        assert!(extents(&[(0, 11)]).is_complete(10));
        assert_eq!(Extents::all(u64::MAX).held(), u64::MAX);
    }

    #[test]
    fn json_is_a_list_of_pairs_and_is_not_trusted() {
        let text = serde_json::to_string(&extents(&[(0, 4), (8, 12)])).unwrap();
        assert_eq!(text, "[[0,4],[8,12]]");
        let read = |text: &str| serde_json::from_str::<Extents>(text);
        assert_eq!(read("[[8,12],[0,4],[2,3]]").unwrap(), extents(&[(0, 4), (8, 12)]));
        for bad in ["[[4,4]]", "[[5,4]]", "[[-1,4]]", "[[1]]"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    /// Inserts (true) and removals of ranges within 64 bytes.
    fn changes() -> impl Strategy<Value = Vec<(bool, u64, u64)>> {
        prop::collection::vec((prop::bool::weighted(0.7), 0_u64..64, 0_u64..64), 0..40)
    }

    proptest! {
        #[test]
        fn they_are_the_set_of_bytes_that_was_put_in(changes in changes(), total in 0_u64..64) {
            let (mut extents, mut bytes) = (Extents::new(), BTreeSet::new());
            for (is_insert, a, b) in changes {
                let range = a.min(b)..a.max(b);
                if is_insert {
                    let new = range.clone().filter(|&byte| bytes.insert(byte)).count() as u64;
                    prop_assert_eq!(extents.insert(range), new);
                } else {
                    bytes.retain(|byte| !range.contains(byte));
                    extents.remove(range);
                }
                let gaps = extents.iter().zip(extents.iter().skip(1)).all(|(a, b)| a.end < b.start);
                prop_assert!(gaps && extents.iter().all(|range| !range.is_empty()));
            }
            prop_assert_eq!(extents.iter().flatten().collect::<BTreeSet<_>>(), bytes.clone());
            prop_assert_eq!(extents.held(), bytes.len() as u64);
            let first = bytes.iter().filter(|&&byte| byte < total).count() as u64;
            prop_assert_eq!((extents.held_in(0..total), extents.held_in(total..64)), (first, extents.held() - first));
            let missing: Vec<u64> = extents.missing(total).flatten().collect();
            prop_assert_eq!(missing, (0..total).filter(|byte| !bytes.contains(byte)).collect::<Vec<_>>());
            prop_assert_eq!(extents.is_complete(total), (0..total).all(|byte| bytes.contains(&byte)));
        }
    }
}
