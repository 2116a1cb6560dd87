//! Health checks of an instance: the answers to requests that the proxy makes itself, one after the other.

use std::time::Duration;

use h2lab_base::random::Counter;
use h2lab_base::units::Time;

/// How much the time between two checks varies at most, in each direction, as a part of the interval. So checks that
/// have become synchronised get out of step again, those of one instance and those of several proxies.
const JITTER: f64 = 0.1;

/// A first check comes within this, however long the interval is: until then nothing is known of the instance.
const FIRST: Duration = Duration::from_secs(5);

/// When an instance is checked first: anywhere within the interval, or [`FIRST`], so that the checks of many instances, which all began at
/// the same time, are spread over it.
pub fn first_check(now: Time, interval: Duration, random: &mut Counter) -> Time {
    now + interval.min(FIRST).mul_f64(random.next_f64())
}

/// When an instance is checked next: after the interval, give or take a tenth.
pub fn next_check(now: Time, interval: Duration, random: &mut Counter) -> Time {
    now + interval.mul_f64(1.0 - JITTER + 2.0 * JITTER * random.next_f64())
}

/// What is known of an instance. It counts as healthy until it has failed often enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    is_well: bool,
    /// How many checks in a row had the opposite result.
    against: u32,
}

impl Default for Health {
    fn default() -> Self {
        Self { is_well: true, against: 0 }
    }
}

impl Health {
    /// Whether it is healthy.
    pub const fn is_well(&self) -> bool {
        self.is_well
    }

    /// A check has ended. After `unhealthy` failures in a row the instance is unhealthy, after `healthy` successes it
    /// is healthy again. Returns whether that changed.
    #[must_use]
    pub fn checked(&mut self, succeeded: bool, healthy: u32, unhealthy: u32) -> bool {
        if succeeded == self.is_well {
            self.against = 0;
            return false;
        }
        self.against += 1;
        let needed = if succeeded { healthy } else { unhealthy };
        if self.against < needed {
            return false;
        }
        *self = Self { is_well: succeeded, against: 0 };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_of_many_instances_are_spread_over_the_interval() {
        let (now, interval) = (Time::from_millis(50), Duration::from_secs(5));
        let mut random = Counter::new(1, "checks");
        let mut due: Vec<Time> = (0..100).map(|_| first_check(now, interval, &mut random)).collect();
        for round in 0..4 {
            let mut tenths = [0_usize; 10];
            for at in &due {
                tenths[(at.since(now).as_millis() / 500 % 10) as usize] += 1;
            }
            assert!(tenths.iter().all(|n| (1..30).contains(n)), "round {round}: {tenths:?}");
            for at in &mut due {
                let next = next_check(*at, interval, &mut random);
                assert!((4_500..=5_500).contains(&next.since(*at).as_millis()));
                *at = next;
            }
        }
        let hour = Duration::from_secs(3_600);
        assert!((0..100).all(|_| first_check(now, hour, &mut random).since(now) <= FIRST));
        let apart: std::collections::BTreeSet<u128> =
            (0..100).map(|_| next_check(now, interval, &mut random).since(now).as_millis()).collect();
        assert!(apart.len() > 50, "those that were in step are no longer");
    }

    #[test]
    fn several_checks_in_a_row_are_needed_to_change_it() {
        let mut health = Health::default();
        let mut check = |succeeded| {
            let changed = health.checked(succeeded, 2, 3);
            (changed, health.is_well())
        };
        assert_eq!([check(false), check(false), check(true)], [(false, true); 3]);
        assert_eq!([check(false), check(false), check(false)], [(false, true), (false, true), (true, false)]);
        assert_eq!([check(true), check(false), check(true)], [(false, false); 3]);
        assert_eq!(check(true), (true, true));
    }
}
