//! Disjoint spans of time: how much of any period they cover, without a pass over all of them.

use std::time::Duration;

use h2lab_base::units::Time;

/// Spans of time, in order and disjoint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::diagnose::causes) struct Spans {
    spans: Vec<(Time, Time)>,
    /// For each span, the total length of it and all before it.
    totals: Vec<Duration>,
}

impl Spans {
    /// From these spans, in any order; those that overlap are joined.
    pub fn of(spans: impl IntoIterator<Item = (Time, Time)>) -> Self {
        let mut all: Vec<(Time, Time)> = spans.into_iter().collect();
        all.sort_unstable();
        let mut spans: Vec<(Time, Time)> = Vec::new();
        for (begin, end) in all {
            match spans.last_mut().filter(|last| last.1 >= begin) {
                Some(last) => last.1 = last.1.max(end),
                None => spans.push((begin, end)),
            }
        }
        let mut total = Duration::ZERO;
        let totals = spans.iter().map(|(begin, end)| {
            total += end.since(*begin);
            total
        });
        Self { totals: totals.collect(), spans }
    }

    /// How much of the period between these times the spans cover.
    pub fn within(&self, from: Time, until: Time) -> Duration {
        if from >= until { Duration::ZERO } else { self.before(until).saturating_sub(self.before(from)) }
    }

    /// Whether any span overlaps the period between these times; the second is the later one.
    pub fn meet(&self, from: Time, until: Time) -> bool {
        let begun = self.spans.partition_point(|(begin, _)| *begin < until);
        from < until && begun.checked_sub(1).is_some_and(|last| self.spans[last].1 > from)
    }

    /// The total length of the spans before this time.
    fn before(&self, at: Time) -> Duration {
        let begun = self.spans.partition_point(|(begin, _)| *begin < at);
        let Some(last) = begun.checked_sub(1) else { return Duration::ZERO };
        self.totals[last].saturating_sub(self.spans[last].1.since(at))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spans(of: &[(u64, u64)]) -> Spans {
        Spans::of(of.iter().map(|&(begin, end)| (Time::from_millis(begin), Time::from_millis(end))))
    }

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn spans_that_overlap_are_joined_and_a_part_counts_as_such() {
        let spans = spans(&[(30, 40), (10, 15), (14, 20)]);
        let within = |from, until| spans.within(at(from), at(until)).as_millis();
        assert_eq!([within(0, 100), within(12, 35), within(20, 30), within(35, 12)], [20, 13, 0, 0]);
        let meet = |from, until| spans.meet(at(from), at(until));
        assert!(meet(19, 25) && meet(25, 31) && meet(0, 100));
        assert!(!meet(20, 30) && !meet(40, 50) && !meet(0, 10));
        assert!(!Spans::default().meet(at(0), at(9)));
    }

    #[test]
    fn a_span_may_have_no_end() {
        let open = Spans::of([(at(10), Time::NEVER)]);
        assert_eq!(open.within(at(5), at(25)).as_millis(), 15);
        assert!(open.meet(at(25), at(26)) && !open.meet(at(5), at(10)));
    }

    proptest! {
        #[test]
        fn any_time_has_as_much_of_them_as_a_look_at_each_millisecond_finds(
            each in prop::collection::vec((0_u64..60, 0_u64..9), 0..12),
            (from, until) in (0_u64..70, 0_u64..70),
        ) {
            let each: Vec<(u64, u64)> = each.iter().map(|(begin, length)| (*begin, begin + length)).collect();
            let is_in = |n: &u64| each.iter().any(|(begin, end)| (*begin..*end).contains(n));
            let found = spans(&each);
            let counted = (from..until).filter(is_in).count();
            prop_assert_eq!(found.within(at(from), at(until)).as_millis(), counted as u128);
            let is_met = from < until && each.iter().any(|(begin, end)| *begin < until && *end > from);
            prop_assert_eq!(found.meet(at(from), at(until)), is_met);
        }
    }
}
