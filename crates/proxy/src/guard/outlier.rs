//! Instances that fail are left out for a while, as in Envoy's passive outlier detection.
//!
//! What counts as a failure: no connection, a connection or stream that ended before a response, no response in time, a response that is
//! malformed, and what the instance itself calls a failure ([`is_failure`], [`crate::grpc::is_failure`]).

use std::time::Duration;

use h2lab_base::units::Time;

/// Requests that an instance must have had in an interval before its failures are compared with those of others.
const ENOUGH: u32 = 20;
/// An instance is left out if its share of failures is this many times that of the others.
const TIMES_WORSE: u64 = 3;
/// How long an interval is.
pub const INTERVAL: Duration = Duration::from_secs(10);

/// When an instance is left out. Serves all instances of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Failures in a row; 0 never.
    pub consecutive: u32,
    /// Percent of an interval's requests that failed, if that is three times the share of the others, too; 0 never.
    pub percent: u32,
    /// For how long at the first time; n times as long at the n-th.
    pub base: Duration,
    /// The longest.
    pub most: Duration,
    /// Percent of the instances that are left out at most, but one may be; 0 none.
    pub share: u32,
    /// When less than this percentage of the instances are fit, all are used ([`super::panic`]): the few that are left
    /// would break, too.
    pub panic: u32,
}

/// Whether a status says that the instance has failed: 5xx, as Envoy counts them (`consecutive_5xx`), except those that
/// only the request decides (501, a method that the instance does not know; 505, a version). With them a caller could
/// have every instance left out.
pub const fn is_failure(status: u16) -> bool {
    matches!(status, 500..=599) && !matches!(status, 501 | 505)
}

/// What is known of an instance.
#[derive(Debug, Clone, Default)]
pub struct Record {
    in_a_row: u32,
    /// In this interval.
    requests: u32,
    failures: u32,
    /// How often it was left out, minus one for each interval without.
    ejections: u32,
    until: Time,
}

impl Record {
    /// Whether it is left out now.
    pub fn is_out(&self, now: Time) -> bool {
        now < self.until
    }

    /// Until when it is left out.
    pub const fn until(&self) -> Time {
        self.until
    }

    /// Adds requests that succeeded and were counted together. When each did is not known, so that they end no series of failures.
    pub fn count(&mut self, n: u32) {
        self.requests = self.requests.saturating_add(n);
    }

    /// Whether the last request has failed.
    pub const fn is_failing(&self) -> bool {
        self.in_a_row > 0
    }

    /// A request has ended. Returns whether the instance should be left out.
    #[must_use]
    pub fn ended(&mut self, failed: bool, rules: &Rules, now: Time) -> bool {
        if self.is_out(now) {
            return false; // it was sent before
        }
        self.requests = self.requests.saturating_add(1);
        if !failed {
            self.in_a_row = 0;
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        self.in_a_row = self.in_a_row.saturating_add(1);
        rules.consecutive > 0 && self.in_a_row >= rules.consecutive
    }

    /// Leaves it out.
    pub fn eject(&mut self, rules: &Rules, now: Time) {
        self.ejections = self.ejections.saturating_add(1);
        self.until = now + (rules.base.saturating_mul(self.ejections)).min(rules.most);
        // Its counts begin anew when it comes back.
        (self.in_a_row, self.requests, self.failures) = (0, 0, 0);
    }
}

/// Whether one more of `all` instances may be left out where `out` are. At least one stays, and at most the share is
/// out (but one may be, unless the share is 0).
pub fn may_eject(out: usize, all: usize, rules: &Rules) -> bool {
    let most = (all * rules.share as usize / 100).max(1);
    rules.share > 0 && out < most && out + 1 < all
}

/// Ends an interval: returns which instances failed far more than the others did. Counts begin anew.
pub fn compare(records: &mut [&mut Record], rules: &Rules, now: Time) -> Vec<usize> {
    let sum = |records: &[&mut Record], of: fn(&Record) -> u32| {
        records.iter().map(|record| u64::from(of(record))).sum::<u64>()
    };
    let requests = sum(records, |record| record.requests);
    let failures = sum(records, |record| record.failures);
    let mut worse = Vec::new();
    for (index, record) in records.iter_mut().enumerate() {
        let (own, failed) = (u64::from(record.requests), u64::from(record.failures));
        let (others, others_failed) = (requests - own, failures - failed);
        let is_bad = record.requests >= ENOUGH && failed * 100 >= own * u64::from(rules.percent);
        // Without requests of others nothing is known of them.
        let is_worse = others > 0 && failed * others >= TIMES_WORSE * others_failed * own;
        if rules.percent > 0 && is_bad && is_worse && !record.is_out(now) {
            worse.push(index);
        } else if !record.is_out(now) && record.failures == 0 {
            record.ejections = record.ejections.saturating_sub(1);
        }
        (record.requests, record.failures) = (0, 0);
    }
    worse
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules {
        consecutive: 5,
        percent: 50,
        base: Duration::from_secs(10),
        most: Duration::from_secs(25),
        share: 50,
        panic: 50,
    };

    const fn at(seconds: u64) -> Time {
        Time::from_millis(seconds * 1_000)
    }

    #[test]
    fn failures_in_a_row_leave_an_instance_out_longer_each_time_and_it_comes_back() {
        let mut record = Record::default();
        let fail = |record: &mut Record, now| (1..20).find(|_| record.ended(true, &RULES, now));
        assert_eq!(fail(&mut record, at(0)), Some(5));
        record.eject(&RULES, at(0));
        assert_eq!([record.is_out(at(9)), record.is_out(at(10))], [true, false]);
        assert_eq!(fail(&mut record, at(5)), None, "it is out already");
        let mut record = Record { ejections: 1, ..Record::default() };
        for _ in 0..4 {
            assert!(!record.ended(true, &RULES, at(0)));
        }
        assert!(!record.ended(false, &RULES, at(0)));
        assert_eq!(fail(&mut record, at(0)), Some(5), "a success begins a new row");
        record.eject(&RULES, at(0));
        assert_eq!(record.until(), at(20));
        record.eject(&RULES, at(20));
        assert_eq!(record.until(), at(45), "never longer than the longest");
    }

    #[test]
    fn one_instance_stays_and_a_share_of_them_at_least() {
        assert!(!may_eject(0, 1, &RULES));
        assert_eq!([may_eject(0, 2, &RULES), may_eject(1, 2, &RULES)], [true, false]);
        assert_eq!([4, 5].map(|out| may_eject(out, 10, &RULES)), [true, false]);
        let all = Rules { share: 100, ..RULES };
        assert_eq!([may_eject(8, 10, &all), may_eject(9, 10, &all)], [true, false]);
        assert!(may_eject(0, 3, &Rules { share: 10, ..RULES }), "one may, of several");
        assert!(!may_eject(0, 3, &Rules { share: 0, ..RULES }), "none");
    }

    #[test]
    fn every_5xx_is_a_failure_but_those_of_the_request() {
        assert!([500, 502, 503, 504, 507, 599].into_iter().all(is_failure));
        assert!(![101, 200, 404, 429, 499, 501, 505, 600].into_iter().any(is_failure));
    }

    #[test]
    fn one_that_fails_far_more_than_the_others_is_found_and_all_alike_are_not() {
        let record = |requests, failures| Record { requests, failures, ..Record::default() };
        let of = |given: &[(u32, u32)]| {
            let mut records: Vec<Record> = given.iter().map(|given| record(given.0, given.1)).collect();
            let mut borrowed: Vec<&mut Record> = records.iter_mut().collect();
            compare(&mut borrowed, &RULES, at(10))
        };
        assert_eq!(of(&[(100, 60), (100, 10), (100, 0)]), [0]);
        assert!(of(&[(100, 60), (100, 60)]).is_empty(), "it is not the instance");
        assert!(of(&[(100, 49), (100, 0)]).is_empty());
        assert!(of(&[(10, 10), (100, 0)]).is_empty(), "too few to know");
        assert!(of(&[(100, 90)]).is_empty(), "there is nothing to compare it with");
    }

    #[test]
    fn intervals_without_a_failure_are_forgiving() {
        let mut record = Record { ejections: 3, ..Record::default() };
        for left in [2, 1, 0, 0] {
            assert!(compare(&mut [&mut record], &RULES, at(10)).is_empty());
            assert_eq!(record.ejections, left);
        }
    }
}
