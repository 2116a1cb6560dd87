//! A span of time whose parts are claimed by causes: each part belongs to the first cause that claims it.

use crate::diagnose::waits::latency_breakdown::{Cause, Interval};
use h2lab_base::units::Time;

/// The span.
#[derive(Debug)]
pub(in super::super) struct Timeline {
    /// The unclaimed parts, in order.
    free: Vec<(Time, Time)>,
    claimed: Vec<Interval>,
}

impl Timeline {
    /// A span without claims.
    pub fn new(from: Time, until: Time) -> Self {
        let free = if from < until { vec![(from, until)] } else { Vec::new() };
        Self { free, claimed: Vec::new() }
    }

    /// Assigns the unclaimed parts between the two times to a cause.
    pub fn claim(&mut self, from: Time, until: Time, cause: Cause) {
        let first = self.free.partition_point(|(_, end)| *end <= from);
        let behind = self.free.partition_point(|(begin, _)| *begin < until);
        if from >= until || first >= behind {
            return;
        }
        let mut rest = Vec::new();
        for &(begin, end) in &self.free[first..behind] {
            let (taken, left) = (begin.max(from), end.min(until));
            self.claimed.push(Interval { from: taken, until: left, cause });
            rest.extend([(begin, taken), (left, end)].into_iter().filter(|(begin, end)| begin < end));
        }
        self.free.splice(first..behind, rest);
    }

    /// All parts in order; unclaimed ones are unknown.
    pub fn finish(mut self) -> Vec<Interval> {
        let unknown = |(from, until)| Interval { from, until, cause: Cause::Unknown };
        self.claimed.extend(self.free.into_iter().map(unknown));
        self.claimed.sort_by_key(|interval| interval.from);
        self.claimed.dedup_by(|next, last| {
            let is_same = next.cause == last.cause && next.from == last.until;
            if is_same {
                last.until = next.until;
            }
            is_same
        });
        self.claimed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn rendered(timeline: Timeline) -> Vec<(u64, u64, Cause)> {
        let millis = |at: Time| at.as_nanos() / 1_000_000;
        timeline.finish().iter().map(|part| (millis(part.from), millis(part.until), part.cause)).collect()
    }

    #[test]
    fn the_first_to_claim_a_time_has_it_and_the_rest_is_unknown() {
        let mut timeline = Timeline::new(ms(10), ms(100));
        timeline.claim(ms(20), ms(40), Cause::Server);
        timeline.claim(ms(0), ms(50), Cause::Queue);
        timeline.claim(ms(90), ms(200), Cause::Client);
        timeline.claim(ms(30), ms(30), Cause::Client);
        let expected = [
            (10, 20, Cause::Queue),
            (20, 40, Cause::Server),
            (40, 50, Cause::Queue),
            (50, 90, Cause::Unknown),
            (90, 100, Cause::Client),
        ];
        assert_eq!(rendered(timeline), expected);
    }

    #[test]
    fn neighbours_of_one_cause_are_one() {
        let mut timeline = Timeline::new(ms(0), ms(30));
        timeline.claim(ms(10), ms(20), Cause::Server);
        timeline.claim(ms(0), ms(30), Cause::Server);
        assert_eq!(rendered(timeline), [(0, 30, Cause::Server)]);
        assert_eq!(rendered(Timeline::new(ms(5), ms(5))), []);
    }
}
