//! The offset between an agent's clock and ours.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use h2lab_base::units::Time;

/// A ping and its answer: the agent's clock at some time between two of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTrip {
    /// When we asked.
    pub sent: Time,
    /// The agent's clock when it answered.
    pub theirs: Time,
    /// When its answer arrived.
    pub received: Time,
}

/// The offset of our clock from an agent's, and its uncertainty. Both are monotonic clocks with origins of their own; their
/// difference in rate (some 10⁻⁵) is neglected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    nanos: i64,
    /// The largest possible error, however asymmetric the round trips were.
    pub uncertainty: Duration,
}

impl ClockOffset {
    /// From these round trips; `None` without one. Each bounds the offset on both sides; their intersection is narrower than half
    /// of the shortest round trip, which NTP uses.
    pub fn of(round_trips: &[RoundTrip]) -> Option<Self> {
        let least = round_trips.iter().map(|trip| difference(trip.sent, trip.theirs)).max()?;
        let most = round_trips.iter().map(|trip| difference(trip.received, trip.theirs)).min()?;
        // Bounds that contradict each other, as after a clock's step, bound the error instead.
        let (least, most) = (least.min(most), least.max(most));
        let middle = i128::midpoint(least, most);
        let nanos = i64::try_from(middle).ok()?;
        let uncertainty = u64::try_from((most - least + 1) / 2).ok()?;
        Some(Self { nanos, uncertainty: Duration::from_nanos(uncertainty) })
    }

    /// Our clock less the agent's, in nanoseconds.
    pub const fn nanos(self) -> i64 {
        self.nanos
    }

    /// A time of ours as the agent's clock shows it; the beginning of its clock if that was later.
    pub fn to_agent(self, ours: Time) -> Time {
        shifted(ours, -i128::from(self.nanos))
    }

    /// A time of the agent's as our clock shows it; the beginning of our clock if that was later.
    pub fn to_us(self, theirs: Time) -> Time {
        shifted(theirs, i128::from(self.nanos))
    }
}

fn difference(ours: Time, theirs: Time) -> i128 {
    i128::from(ours.as_nanos()) - i128::from(theirs.as_nanos())
}

/// [`Time::NEVER`] stays.
fn shifted(time: Time, by: i128) -> Time {
    if !time.happened() {
        return time;
    }
    let nanos = (i128::from(time.as_nanos()) + by).clamp(0, i128::from(u64::MAX - 1));
    Time::from_nanos(nanos as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn trip(sent: u64, theirs: u64, received: u64) -> RoundTrip {
        let of = Time::from_nanos;
        RoundTrip { sent: of(sent), theirs: of(theirs), received: of(received) }
    }

    #[test]
    fn the_offset_is_known_to_what_all_round_trips_leave() {
        // Our clock is 1000 ahead. The ping took 10 and the answer 90, then 90 and 10: together they leave 20.
        let trips = [trip(5000, 4010, 5100), trip(6000, 5090, 6100)];
        let offset = ClockOffset::of(&trips).unwrap();
        assert_eq!(offset.uncertainty, Duration::from_nanos(10));
        assert_eq!(offset.to_us(Time::from_nanos(100)), Time::from_nanos(1100));
        assert_eq!(ClockOffset::of(&trips[..1]).unwrap().uncertainty, Duration::from_nanos(50));
        assert_eq!(ClockOffset::of(&[]), None);
    }

    #[test]
    fn a_clock_may_be_ahead_of_ours_or_behind() {
        for theirs in [0, 1 << 60] {
            let offset = ClockOffset::of(&[trip(1 << 50, theirs, 1 << 50)]).unwrap();
            assert_eq!(offset.to_agent(Time::from_nanos(1 << 50)), Time::from_nanos(theirs));
            assert_eq!(offset.to_us(Time::from_nanos(theirs)), Time::from_nanos(1 << 50));
        }
        // A clock that began after ours has no earlier times; [`Time::NEVER`] stays.
        let behind = ClockOffset::of(&[trip(1000, 10, 1000)]).unwrap();
        assert_eq!(behind.to_agent(Time::from_nanos(500)), Time::ZERO);
        assert_eq!(behind.to_us(Time::NEVER), Time::NEVER);
    }

    #[test]
    fn an_answer_whose_clock_lies_beyond_all_bounds_is_no_offset() {
        assert_eq!(ClockOffset::of(&[trip(0, u64::MAX, 1)]), None);
    }

    proptest! {
        #[test]
        fn the_truth_is_within_the_uncertainty(
            truth in -1_000_000_000_i64..1_000_000_000,
            ways in prop::collection::vec((0_u64..1_000_000, 0_u64..1_000_000), 1..10),
        ) {
            let base = 10_000_000_000_u64;
            let trips: Vec<RoundTrip> = ways.iter().map(|&(there, back)| {
                let theirs = base + there;
                trip(base, theirs.checked_add_signed(-truth).unwrap(), theirs + back)
            }).collect();
            let offset = ClockOffset::of(&trips).unwrap();
            let off_by = (offset.nanos - truth).unsigned_abs();
            prop_assert!(u128::from(off_by) <= offset.uncertainty.as_nanos());
        }
    }
}
