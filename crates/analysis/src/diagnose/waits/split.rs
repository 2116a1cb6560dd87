//! The time of a cell's tail, split by cause.

use std::collections::BTreeMap;
use std::time::Duration;

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::latency_breakdown::{Cause, CauseKind, LatencyBreakdown, Repair};
use h2lab_base::units::nanos;

/// What one kind of cause took of a tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CauseShare {
    /// Time that was spent on it, over all requests of the tail, in nanoseconds.
    pub time_ns: u64,
    /// Requests whose dominant cause it is.
    pub requests: u64,
}

/// The time of all requests of a tail, by cause.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Split {
    /// What each kind took; kinds that took nothing are not here.
    pub parts: BTreeMap<CauseKind, CauseShare>,
    /// The time spent waiting for lost segments, whether their owner is known or not, by the way of repair, in
    /// nanoseconds.
    pub repairs_ns: BTreeMap<Repair, u64>,
    /// The total time, in nanoseconds: the sum of the parts.
    pub total_ns: u64,
    /// Requests in the tail.
    pub requests: u64,
}

impl Split {
    /// Adds a request.
    pub fn add(&mut self, breakdown: &LatencyBreakdown) {
        self.requests += 1;
        self.parts.entry(breakdown.dominant).or_default().requests += 1;
        for interval in &breakdown.intervals {
            let time = nanos(interval.length());
            self.total_ns += time;
            self.parts.entry(interval.cause.kind()).or_default().time_ns += time;
            if let Cause::Loss { repair, .. } = interval.cause {
                *self.repairs_ns.entry(repair).or_default() += time;
            }
        }
    }

    /// Adds the tail of another repetition of the same cell.
    pub fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.total_ns += other.total_ns;
        for (kind, part) in &other.parts {
            let sum = self.parts.entry(*kind).or_default();
            sum.time_ns += part.time_ns;
            sum.requests += part.requests;
        }
        for (repair, time) in &other.repairs_ns {
            *self.repairs_ns.entry(*repair).or_default() += time;
        }
    }

    /// The share of the tail's time that a kind took; 0 for an empty tail.
    pub fn share(&self, kind: CauseKind) -> f64 {
        let time = self.parts.get(&kind).map_or(0, |part| part.time_ns);
        if self.total_ns == 0 { 0.0 } else { time as f64 / self.total_ns as f64 }
    }

    /// The time of one kind.
    pub fn time(&self, kind: CauseKind) -> Duration {
        Duration::from_nanos(self.parts.get(&kind).map_or(0, |part| part.time_ns))
    }
}

impl<'a> FromIterator<&'a LatencyBreakdown> for Split {
    fn from_iter<I: IntoIterator<Item = &'a LatencyBreakdown>>(breakdowns: I) -> Self {
        let mut split = Self::default();
        breakdowns.into_iter().for_each(|breakdown| split.add(breakdown));
        split
    }
}

#[cfg(test)]
mod tests {
    use super::super::latency_breakdown::{Drop, Interval, Whose, dominant};
    use super::*;
    use h2lab_base::units::Time;
    use h2lab_wire::trace::Direction;

    fn loss(repair: Repair) -> Cause {
        let drop = Drop { direction: Direction::Up, index: 7, at: Time::ZERO };
        Cause::Loss { whose: Whose::Own, drop, repair }
    }

    /// A latency breakdown whose parts have these lengths in milliseconds.
    fn breakdown(parts: &[(u64, Cause)]) -> LatencyBreakdown {
        let mut at = Time::ZERO;
        let interval = |(millis, cause): &(u64, Cause)| {
            let from = at;
            at += Duration::from_millis(*millis);
            Interval { from, until: at, cause: *cause }
        };
        let intervals: Vec<Interval> = parts.iter().map(interval).collect();
        LatencyBreakdown {
            sample: 0,
            scheduled_at: Time::ZERO,
            completed_at: at,
            place: None,
            dominant: dominant(&intervals),
            intervals,
        }
    }

    #[test]
    fn the_dominant_cause_is_the_longest_that_could_be_avoided() {
        let kind = |parts: &[(u64, Cause)]| breakdown(parts).dominant;
        assert_eq!(
            kind(&[(90, Cause::Propagation), (10, Cause::Server)]),
            CauseKind::Server,
            "a tenth is enough"
        );
        assert_eq!(kind(&[(91, Cause::Propagation), (9, Cause::Server)]), CauseKind::Propagation);
        let twice = [(20, Cause::Server), (15, loss(Repair::Fast)), (6, loss(Repair::Timeout))];
        assert_eq!(kind(&twice), CauseKind::OwnLoss, "parts of a kind count together");
        assert_eq!(kind(&[]), CauseKind::Propagation);
    }

    #[test]
    fn a_split_adds_up_over_latency_breakdowns_and_repetitions() {
        let breakdowns = [
            breakdown(&[(25, Cause::Propagation), (200, loss(Repair::Timeout)), (25, Cause::Server)]),
            breakdown(&[(25, Cause::Propagation), (25, loss(Repair::Fast))]),
        ];
        let mut all = Split::from_iter([&breakdowns[0]]);
        all.merge(&Split::from_iter([&breakdowns[1]]));
        assert_eq!(all, Split::from_iter(&breakdowns));
        assert_eq!((all.requests, all.total_ns), (2, 300_000_000));
        assert_eq!(all.parts[&CauseKind::OwnLoss], CauseShare { time_ns: 225_000_000, requests: 2 });
        assert_eq!(all.repairs_ns[&Repair::Timeout], 200_000_000);
        assert!((all.share(CauseKind::OwnLoss) - 0.75).abs() < 1e-12);
        assert_eq!(all.time(CauseKind::Server), Duration::from_millis(25));
        assert!(all.share(CauseKind::Unknown) == 0.0 && Split::default().share(CauseKind::Server) == 0.0);
    }

    #[test]
    fn what_is_reported_reads_back_from_json() {
        let breakdowns = vec![breakdown(&[(5, Cause::Client), (9, loss(Repair::Probe))])];
        let json = serde_json::to_string(&breakdowns).unwrap();
        assert_eq!(serde_json::from_str::<Vec<LatencyBreakdown>>(&json).unwrap(), breakdowns, "{json}");
        let split = Split::from_iter(&breakdowns);
        let json = serde_json::to_string(&split).unwrap();
        assert_eq!(serde_json::from_str::<Split>(&json).unwrap(), split, "{json}");
    }
}
