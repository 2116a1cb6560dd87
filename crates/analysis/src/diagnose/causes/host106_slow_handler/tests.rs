//! Both sides of every threshold.

use crate::diagnose::testing::{Scene, says};
use crate::diagnose::{Finding, findings, run};
use crate::stats::{CellSummary, CellVerdict, Conclusion, verdict_on};
use h2lab_model::record::CellRecord;
use h2lab_model::scenario::Target;
use h2lab_model::workload::Protocol;

/// Over a round trip of 25 ms the server takes `one` ms for one response and `other` ms for another.
fn scene(protocol: Protocol, one: u64, other: u64) -> CellRecord {
    let scene = Scene::new(protocol).request(0, 1, 100, 125 + one, 125 + one);
    scene.request(0, 3, 100, 125 + other, 125 + other).record()
}

fn alone(one: u64, other: u64) -> Option<Finding> {
    run(&[scene(Protocol::H2c, one, other)]).into_iter().find(|finding| finding.rule == "HOST106")
}

#[test]
fn a_handler_that_takes_most_of_the_time_is_an_observation_and_explains_nothing() {
    let found = alone(75, 80).expect("a finding");
    assert_eq!(
        found.symptom,
        "the server takes 75 ms or more before each response, of a median response time of 105 ms"
    );
    assert!(found.is_observation());
    says(&found.cost, "…an observation of where the time goes: no protocol changes it");
}

#[test]
fn of_a_request_that_was_cancelled_no_more_counts_than_it_took() {
    let cancelled = |after: u64| {
        let record = Scene::new(Protocol::H2c).request(0, 1, 100, 200, 200).request(0, 3, 100, 205, 205);
        let mut record = record.request(0, 5, 100, 100 + after, 100 + after).record();
        let mut samples = record.samples.edit();
        let last = samples.iter_mut().last().unwrap();
        last.outcome = h2lab_model::record::Outcome::Cancelled;
        last.first_byte_at = h2lab_base::units::Time::NEVER;
        drop(samples);
        run(&[record]).into_iter().find(|finding| finding.rule == "HOST106").map(|finding| finding.cost)
    };
    says(&cancelled(20).expect("a finding"), "170 ms of all 225 ms…");
    says(&cancelled(90).expect("a finding"), "225 ms of all 295 ms…");
}

#[test]
fn a_quick_handler_and_one_that_is_not_the_bulk_are_none() {
    assert!(alone(25, 25).is_some(), "half of 50 ms");
    assert_eq!(alone(24, 24), None);
    assert_eq!(alone(5, 80), None, "one that is quick shows that the server can be");
    let near = |work: u64| {
        let mut record = scene(Protocol::H2c, work, work);
        record.cell.link.as_mut().unwrap().uplink.delay = std::time::Duration::from_micros(500);
        record.cell.link.as_mut().unwrap().downlink.delay = std::time::Duration::from_micros(500);
        for sample in record.samples.edit().iter_mut() {
            sample.first_byte_at = sample.sent_at + std::time::Duration::from_millis(work + 1);
            sample.completed_at = sample.first_byte_at;
        }
        run(&[record]).into_iter().any(|finding| finding.rule == "HOST106")
    };
    assert!(near(5) && !near(4), "any server takes a few milliseconds on a busy machine");
}

#[test]
fn long_requests_http1_alone_and_an_unknown_round_trip_are_none() {
    let none = |change: fn(&mut CellRecord)| {
        let mut record = scene(Protocol::H2c, 75, 75);
        change(&mut record);
        run(&[record]).iter().all(|finding| finding.rule != "HOST106")
    };
    assert!(!none(|_| ()));
    assert!(!none(|record| record.cell.work.body_bytes = 10_000));
    assert!(none(|record| record.cell.work.body_bytes = 10_001));
    assert!(none(|record| record.cell.protocol = Protocol::H1));
    assert!(none(|record| (record.cell.link, record.link) = (None, None)));
}

#[test]
fn a_record_of_tls_that_spans_the_first_window_is_read_a_round_trip_later() {
    let found = |protocol, work, bytes, is_ours: bool| {
        let mut record = scene(protocol, work, work);
        record.generator.wall_ns = u64::from(is_ours);
        record.samples.edit().iter_mut().for_each(|sample| sample.body_bytes = bytes);
        run(&[record]).into_iter().any(|finding| finding.rule == "HOST106")
    };
    assert!(!found(Protocol::H2, 27, 14_480, true));
    assert!(found(Protocol::H2, 27, 14_479, true), "it fits");
    assert!(found(Protocol::H2, 27, 14_480, false), "in a capture the packets tell");
    assert!(found(Protocol::H2c, 27, 14_480, true), "in clear");
    assert!(
        found(Protocol::H2, 38, 14_480, true) && !found(Protocol::H2, 37, 14_480, true),
        "1.5 round trips"
    );
}

#[test]
fn it_must_be_alike_over_both_protocols() {
    let at = |work: u64, target: Target| {
        let mut quick = scene(Protocol::H1, work, work);
        (quick.cell.index, quick.cell.target) = (1, target);
        let slow = scene(Protocol::H2c, 75, 75);
        let [first, second] = [&quick, &slow].map(|record| CellSummary::of(&[record]));
        let verdict = CellVerdict { conclusion: Conclusion::Slower, ..verdict_on(&first, &second, 1) };
        let found = findings(&[slow, quick], &[verdict]);
        found.into_iter().find(|finding| finding.rule == "HOST106")
    };
    let against = |work: u64| at(work, Target::Origin);
    let found = against(60).expect("a finding");
    assert!(found.symptom.contains("over both protocols") && found.is_observation(), "{}", found.symptom);
    assert!(against(90).is_some());
    assert_eq!(against(59), None, "the protocol makes a difference");
    assert_eq!(against(91), None);
    let behind = at(60, Target::Url { url: "http://direct.example/".to_owned() }).expect("a finding");
    assert!(!behind.symptom.contains("both protocols"), "one of each was measured: {}", behind.symptom);
}
