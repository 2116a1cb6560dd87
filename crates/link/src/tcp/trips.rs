//! The round-trip time, and the timers derived from it.

use std::time::Duration;

/// The timeout before a round trip was measured (RFC 6298 §2.1).
pub(super) const FIRST_RTO: Duration = Duration::from_secs(1);

/// The estimate of the round trip.
#[derive(Debug, Default)]
pub(super) struct RoundTrips {
    smoothed: Option<Duration>,
    variation: Duration,
    shortest: Option<Duration>,
}

impl RoundTrips {
    /// Adds a measurement (RFC 6298 §2).
    pub fn measured(&mut self, rtt: Duration) {
        self.shortest = Some(self.shortest.map_or(rtt, |shortest| shortest.min(rtt)));
        match self.smoothed {
            None => (self.smoothed, self.variation) = (Some(rtt), rtt / 2),
            Some(smoothed) => {
                self.variation = self.variation * 3 / 4 + smoothed.abs_diff(rtt) / 4;
                self.smoothed = Some(smoothed * 7 / 8 + rtt / 8);
            }
        }
    }

    /// The smoothed round trip, once one was measured.
    pub fn known(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The smoothed round trip; zero before one was measured.
    pub fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or_default()
    }

    /// The shortest round trip; zero before one was measured.
    pub fn shortest(&self) -> Duration {
        self.shortest.unwrap_or_default()
    }

    /// The retransmission timeout: RFC 6298 §2.3 with Linux's floor, which applies to the variation and not to the sum.
    pub fn timeout(&self, floor: Duration) -> Duration {
        self.smoothed.map_or(FIRST_RTO, |smoothed| smoothed + (self.variation * 4).max(floor))
    }

    /// How long after its transmission a segment that later ones have overtaken is not yet considered lost, since
    /// packets may be reordered: a round trip and a quarter.
    pub fn reordering_window(&self) -> Duration {
        self.smoothed() + self.shortest() / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOOR: Duration = Duration::from_millis(200);

    #[test]
    fn the_timeout_is_a_second_first_and_then_the_round_trip_and_its_variation() {
        let mut trips = RoundTrips::default();
        assert_eq!(trips.timeout(FLOOR), FIRST_RTO);
        trips.measured(Duration::from_millis(400));
        assert_eq!(trips.timeout(FLOOR), Duration::from_millis(400 + 4 * 200));
        (0..100).for_each(|_| trips.measured(Duration::from_millis(400)));
        let steady = trips.timeout(FLOOR).as_millis();
        assert!((599..=600).contains(&steady), "the floor is under the variation: {steady}");
    }

    #[test]
    fn reordering_window_is_a_quarter_of_the_shortest_trip() {
        let mut trips = RoundTrips::default();
        trips.measured(Duration::from_millis(100));
        assert_eq!(trips.reordering_window(), Duration::from_millis(125));
    }
}
