//! Both sides of every threshold.

use crate::diagnose::testing::{self, Scene};
use crate::diagnose::{Confidence, Finding};
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, GoAwayRecord, Outcome};
use h2lab_model::workload::Protocol;
use h2lab_wire::h2::setting;

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("LIMIT103", record)
}

/// `requests` requests with fields of `bytes`, of which `failed` end with this status, outcome and code.
fn scene(requests: u32, failed: usize, bytes: u64, status: u16, outcome: Outcome, code: u32) -> CellRecord {
    let scene = Scene::requests(Protocol::H2, requests).failing(failed, outcome, status, code);
    let mut record = scene.record();
    let counters = &mut record.connections[0].counters;
    (counters.requests, counters.headers_plain) = (requests.into(), bytes * u64::from(requests));
    record
}

#[test]
fn requests_answered_with_431_are_found_whatever_their_size() {
    let found = finding(scene(10, 10, 300, 431, Outcome::Status, 0)).expect("a finding");
    assert_eq!(found.symptom, "the server ended 10 requests with 431: their fields have 300 B");
    assert_eq!(found.confidence, Confidence::Observed);
    assert!((found.cost_share - 1.0).abs() < 1e-9 && found.of_failures);
    assert!(finding(scene(10, 2, 300, 431, Outcome::Status, 0)).is_some());
    assert_eq!(finding(scene(10, 1, 300, 431, Outcome::Status, 0)), None);
    assert!(finding(scene(2_000, 2, 300, 431, Outcome::Status, 0)).is_some());
    assert_eq!(finding(scene(2_001, 2, 300, 431, Outcome::Status, 0)), None);
    assert_eq!(finding(scene(10, 10, 300, 400, Outcome::Status, 0)), None);
}

#[test]
fn resets_are_inferred_to_be_of_large_fields_only_if_these_are_large() {
    let reset = |bytes| finding(scene(10, 10, bytes, 0, Outcome::Reset, 11));
    let found = reset(7 * 1024).expect("a finding");
    assert_eq!(found.confidence, Confidence::Inferred);
    assert!(found.symptom.contains("with RST_STREAM or GOAWAY"), "{}", found.symptom);
    assert_eq!(reset(7 * 1024 - 1), None);
    assert_eq!(finding(scene(10, 10, 9_000, 0, Outcome::Reset, 8)), None, "CANCEL");
    assert_eq!(finding(scene(10, 10, 9_000, 0, Outcome::Timeout, 11)), None);
    assert_eq!(finding(scene(10, 10, 9_000, 200, Outcome::Reset, 11)), None, "the answer had begun");
}

#[test]
fn an_announced_bound_is_named() {
    let with = |bound: u32| {
        let mut record = scene(10, 10, 2_000, 0, Outcome::Reset, 11);
        record.connections[0].http.settings_remote = vec![(setting::MAX_HEADER_LIST_SIZE, bound)];
        finding(record)
    };
    assert!(with(1_999).is_some_and(|found| found.symptom.contains("that it announced")));
    assert_eq!(with(2_000), None);
}

#[test]
fn a_close_after_a_goaway_is_one_by_that_goaway() {
    let closed = |code: u32, at: u64, bytes: u64| {
        let mut record = scene(10, 10, bytes, 0, Outcome::Closed, 0);
        let goaway = GoAwayRecord { at: Time::from_millis(at), code, last_stream: 99, debug: "".into() };
        record.connections[0].goaways = vec![goaway];
        finding(record)
    };
    let found = closed(11, 109, 9_000).expect("a finding");
    assert!(found.symptom.starts_with("the server ended 10 requests with RST_STREAM or GOAWAY"), "{found:?}");
    assert_eq!(found.confidence, Confidence::Inferred);
    assert_eq!(closed(0, 109, 9_000), None, "NO_ERROR: the server wants no more requests");
    assert_eq!(closed(11, 109, 7 * 1024 - 1), None);
    assert!(
        closed(11, 101, 9_000).is_some_and(|found| found.symptom.contains("2 requests")),
        "sent before it"
    );
    assert_eq!(closed(11, 100, 9_000), None);
    assert_eq!(finding(scene(10, 10, 9_000, 0, Outcome::Closed, 0)), None, "without a GOAWAY");
}
