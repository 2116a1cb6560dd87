//! Both sides of every threshold.

use crate::diagnose::Finding;
use crate::diagnose::testing::{self, Scene};
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, GoAwayRecord, Outcome};
use h2lab_model::workload::{MixEntry, Protocol};

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("SEC102", record)
}

/// `requests` requests, of which `failed` end with this outcome and code.
fn scene(requests: u32, failed: usize, outcome: Outcome, code: u32) -> CellRecord {
    Scene::requests(Protocol::H2, requests).failing(failed, outcome, 0, code).record()
}

#[test]
fn a_server_that_demands_http1_is_believed() {
    let found = finding(scene(10, 2, Outcome::Reset, 13)).expect("a finding");
    assert_eq!(
        found.symptom,
        "the server ended 2 of 10 requests with HTTP_1_1_REQUIRED: it answers them over HTTP/1.1 only"
    );
    assert!((found.cost_share - 0.2).abs() < 1e-9 && found.of_failures);
    assert!(found.confirm.contains("--proto h1,h2: over HTTP/1.1"), "{}", found.confirm);
}

#[test]
fn one_failure_or_fewer_than_one_in_a_thousand_are_none() {
    assert_eq!(finding(scene(10, 1, Outcome::Reset, 13)), None);
    assert!(finding(scene(2_000, 2, Outcome::Reset, 13)).is_some());
    assert_eq!(finding(scene(2_001, 2, Outcome::Reset, 13)), None);
}

#[test]
fn other_codes_and_what_the_client_ended_are_none() {
    assert_eq!(finding(scene(10, 10, Outcome::Reset, 12)), None);
    assert_eq!(finding(scene(10, 10, Outcome::Protocol, 13)), None);
    assert_eq!(finding(scene(10, 10, Outcome::Closed, 0)), None);
}

#[test]
fn a_goaway_with_the_code_ends_its_requests() {
    let closed = |code: u32| {
        let mut record = scene(10, 10, Outcome::GoAway, 0);
        let goaway = GoAwayRecord { at: Time::from_millis(109), code, last_stream: 0, debug: "".into() };
        record.connections[0].goaways = vec![goaway];
        finding(record)
    };
    assert!(closed(13).is_some_and(|found| found.symptom.contains("10 of 10 requests")));
    assert_eq!(closed(2), None);
}

#[test]
fn the_paths_of_a_mix_that_it_comes_for_are_named() {
    let named = |kinds: u16| {
        let mut record = scene(10, 5, Outcome::Reset, 13);
        let entry = |n: u16| MixEntry {
            weight: 1,
            method: None,
            path: format!("/{n}"),
            headers: Vec::new(),
            body: None,
        };
        record.cell.work.mix = (0..6).map(entry).collect();
        for (n, sample) in (0..).zip(record.samples.edit().iter_mut()) {
            sample.kind = n % kinds;
        }
        finding(record).expect("a finding").symptom
    };
    assert!(named(1).contains("requests for /0 with"), "{}", named(1));
    assert!(named(3).contains("requests for /0, /1, /2 with"), "{}", named(3));
    assert!(named(4).contains("requests for /0, /1, /2 and others with"), "{}", named(4));
}
