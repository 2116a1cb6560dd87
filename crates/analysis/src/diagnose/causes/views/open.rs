//! How many of a set of spans of time cover each of a series of periods, in one pass over both.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use h2lab_base::units::Time;

/// Spans that may overlap, for queries in the order of time.
#[derive(Debug)]
pub(in crate::diagnose::causes) struct Open {
    /// Spans that have not begun, the next one last.
    to_come: Vec<(Time, Time)>,
    /// The ends of the spans that have begun.
    ends: BinaryHeap<Reverse<Time>>,
}

impl Open {
    /// From these spans, in any order.
    pub fn of(mut spans: Vec<(Time, Time)>) -> Self {
        spans.sort_unstable_by_key(|span| Reverse(*span));
        Self { to_come: spans, ends: BinaryHeap::new() }
    }

    /// How many spans have begun at `from` or before, and do not end before `until`. Neither time is earlier than in
    /// the query before.
    pub fn throughout(&mut self, from: Time, until: Time) -> usize {
        while let Some((_, end)) = self.to_come.pop_if(|(begin, _)| *begin <= from) {
            self.ends.push(Reverse(end));
        }
        while self.ends.peek().is_some_and(|Reverse(end)| *end < until) {
            self.ends.pop();
        }
        self.ends.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_span_counts_from_its_begin_to_its_end_and_not_after() {
        let at = Time::from_millis;
        let mut open = Open::of(vec![(at(10), at(30)), (at(15), Time::NEVER), (at(16), at(17))]);
        let counts = [(9, 10), (10, 15), (15, 30), (15, 31), (20, 40)]
            .map(|(from, until)| open.throughout(at(from), at(until)));
        assert_eq!(counts, [0, 1, 2, 1, 1]);
    }

    proptest! {
        #[test]
        fn each_time_has_as_many_as_a_look_at_each_span_finds(
            spans in prop::collection::vec((0_u64..50, 0_u64..20), 0..30),
            mut times in prop::collection::vec(0_u64..70, 0..20),
        ) {
            times.sort_unstable();
            let at = Time::from_millis;
            let spans: Vec<_> = spans.iter().map(|(begin, length)| (at(*begin), at(begin + length))).collect();
            let mut open = Open::of(spans.clone());
            for pair in times.windows(2) {
                let [from, until] = [pair[0], pair[1]].map(at);
                let counted = spans.iter().filter(|(begin, end)| *begin <= from && *end >= until).count();
                prop_assert_eq!(open.throughout(from, until), counted);
            }
        }
    }
}
