//! Both sides of every threshold.

use std::cell::Cell;

use crate::diagnose::testing::{self, Scene, says};
use crate::diagnose::{Confidence, Finding};
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, Outcome};
use h2lab_model::workload::Protocol;

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("LIMIT105", record)
}

/// A server that answers each request after 25 ms, one every `every` ms; those for which `is_served` is false get this
/// status.
fn answered(
    requests: u32,
    every: impl Fn(u32) -> u64,
    status: u16,
    is_served: impl Fn(u32, u64) -> bool,
) -> CellRecord {
    let due = (0..requests).scan(100, |next, n| Some((n, std::mem::replace(next, *next + every(n)))));
    let due: Vec<(u32, u64)> = due.collect();
    let sent = |scene: Scene, &(n, at): &(u32, u64)| scene.request(0, 2 * n + 1, at, at + 25, at + 25);
    let mut record = due.iter().fold(Scene::new(Protocol::H2), sent).record();
    for (sample, (n, at)) in record.samples.edit().iter_mut().zip(due) {
        if !is_served(n, at) {
            (sample.status, sample.outcome) = (status, Outcome::Status);
        }
    }
    record
}

/// 100 requests per second, of which a limit of 40 per second lets two in five pass.
fn limited(status: u16) -> CellRecord {
    answered(500, |_| 10, status, |n, _| matches!(n % 5, 0 | 2))
}

/// A number from a hash, in place of chance.
fn chance(n: u32) -> u32 {
    let mut x = n.wrapping_add(1).wrapping_mul(0x9e37_79b9);
    x = (x ^ (x >> 15)).wrapping_mul(0x85eb_ca6b);
    x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
    (x ^ (x >> 16)) % 100
}

#[test]
fn what_a_server_refuses_above_a_rate_is_found_with_what_it_served() {
    let found = finding(limited(429)).expect("a finding");
    assert_eq!(
        found.symptom,
        "the server answered 429 Too Many Requests to 300 of 500 requests, no later than it served the others, 40 per second"
    );
    assert_eq!(found.cost, "300 of 500 requests (60 %) were refused");
    assert!((found.cost_share - 0.6).abs() < 1e-9 && found.of_failures);
    assert_eq!(found.confidence, Confidence::Observed, "it says so itself");
    let found = finding(limited(503)).expect("a finding");
    assert_eq!(found.confidence, Confidence::Inferred);
    assert!(found.confirm.contains("-q 19") || found.confirm.contains("-q 20"), "{}", found.confirm);
}

#[test]
fn ten_refusals_and_ten_successes_are_enough_and_2_percent_of_each() {
    let with = |requests: u32, refused: u32| finding(answered(requests, |_| 10, 429, |n, _| n >= refused));
    assert!(with(500, 10).is_some() && with(100, 10).is_some());
    assert_eq!([with(501, 10), with(100, 9)], [None, None]);
    assert!(with(100, 90).is_some() && with(500, 490).is_some());
    assert_eq!([with(100, 91), with(501, 491), with(100, 100)], [None, None, None], "it serves nearly none");
}

#[test]
fn a_server_with_too_much_to_do_refuses_later_than_it_serves() {
    let after = |refusal_us: u64, status: u16| {
        let mut record = limited(status);
        for sample in record.samples.edit().iter_mut().filter(|sample| sample.status == status) {
            sample.first_byte_at = Time::from_nanos(sample.sent_at.as_nanos() + refusal_us * 1_000);
            sample.completed_at = sample.first_byte_at;
        }
        finding(record).is_some()
    };
    assert!(after(1_000, 429) && after(1_000, 503), "at once");
    assert!(after(28_000, 429) && after(28_000, 503));
    assert!(!after(28_001, 429) && !after(28_001, 503));
}

#[test]
fn other_statuses_resets_and_what_has_no_answer_are_no_limit_of_the_rate() {
    for status in [200, 403, 500, 502, 504] {
        assert_eq!(finding(limited(status)), None, "{status}");
    }
    for outcome in [Outcome::Reset, Outcome::Refused, Outcome::GoAway, Outcome::Timeout] {
        let mut record = limited(429);
        for sample in record.samples.edit().iter_mut().filter(|sample| sample.status == 429) {
            (sample.outcome, sample.status, sample.code) = (outcome, 0, 7);
        }
        assert_eq!(finding(record), None, "{outcome:?}");
    }
}

#[test]
fn refusals_with_503_by_chance_are_none_and_429_is_believed() {
    let by_chance = |status| answered(500, |_| 10, status, |n, _| n == 0 || chance(n) < 40);
    assert_eq!(finding(by_chance(503)), None, "a server of which something is broken now and then");
    assert!(finding(by_chance(429)).is_some());
    let began = |is_served: bool| finding(answered(500, |_| 10, 503, |n, _| (n % 5 == 0) == is_served));
    assert!(began(true).is_some());
    assert_eq!(began(false), None, "its first request after a pause");
}

#[test]
fn successes_that_stay_at_one_number_while_more_is_sent_are_a_limit_with_a_burst() {
    // 50 to 250 per second, of which 100 pass, and one or two more at first.
    let gap = |n: u32| u64::from(20 - (n / 40).min(16));
    let next = Cell::new(0);
    let limit = |_: u32, at: u64| {
        let passes = next.get() <= at + 10;
        if passes {
            next.set(next.get().max(at) + 10);
        }
        passes
    };
    let found = finding(answered(900, gap, 503, limit)).expect("a finding");
    says(&found.symptom, "…503 Service Unavailable…");
    let by_chance = answered(900, gap, 503, |n, _| n < 400 || chance(n) < 60);
    assert_eq!(finding(by_chance), None);
}

#[test]
fn of_few_parts_of_the_time_nothing_is_said() {
    // With chance, the variance is 0.24 per request: a part has 8.3 requests, and ten parts have 84.
    let with = |requests: u32| finding(answered(requests, |_| 10, 503, |n, _| matches!(n % 5, 0 | 2)));
    assert!(with(88).is_some());
    assert_eq!(with(80), None);
}
