//! Both sides of every threshold.

use crate::diagnose::testing::{self, Scene};
use crate::diagnose::{Confidence, Finding};
use h2lab_base::text::PeerText;
use h2lab_model::record::{CellRecord, Outcome};
use h2lab_model::workload::Protocol;

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("LIMIT101", record)
}

/// A connection that lasts for 10 s, on which the client sends `pings` PINGs. It ends with this code and text, and so
/// does the one request on it.
fn scene(pings: u64, code: u32, debug: &str) -> CellRecord {
    let mut record =
        Scene::new(Protocol::H2).request(0, 1, 9_990, 10_000, 10_000).goaway(0, 10_000, 1, code).record();
    record.connections[0].goaways[0].debug = PeerText::from(debug);
    record.connections[0].counters.frames_sent[6] = pings;
    record.samples.edit()[0].outcome = Outcome::GoAway;
    record
}

#[test]
fn a_server_that_says_too_many_pings_is_believed() {
    let found = finding(scene(20, 11, "too_many_pings")).expect("a finding");
    assert_eq!(
        found.symptom,
        "the server ended 1 connection with ENHANCE_YOUR_CALM (\"too_many_pings\") after 20 PINGs of the client, one in 500 ms on \
         average"
    );
    assert_eq!(found.confidence, Confidence::Observed);
    assert!((found.cost_share - 1.0).abs() < 1e-9, "its only request is lost");
}

#[test]
fn a_server_that_says_nothing_must_have_had_three_pings_and_fewer_resets() {
    assert!(finding(scene(3, 11, "")).is_some_and(|found| found.confidence == Confidence::Inferred));
    assert_eq!(finding(scene(2, 11, "")), None);
    let mut record = scene(3, 11, "");
    record.connections[0].http.resets_sent = vec![(8, 2)];
    assert!(finding(record.clone()).is_some());
    record.connections[0].http.resets_sent = vec![(8, 3)];
    assert_eq!(finding(record), None);
}

#[test]
fn tomcat_names_the_sum_of_what_it_counts_so_that_numbers_decide() {
    const TOTAL: &str = "Connection [1fb], Too much overhead so the connection will be closed";
    let found = finding(scene(10, 11, TOTAL)).expect("a finding");
    assert_eq!(found.confidence, Confidence::Inferred);
    assert!(found.fixes.iter().any(|fix| fix.product == "Tomcat" && fix.setting == "overheadCountFactor"));
    assert_eq!(finding(scene(2, 11, TOTAL)), None);
    let mut record = scene(10, 11, TOTAL);
    record.connections[0].http.resets_sent = vec![(8, 10)];
    assert_eq!(finding(record), None, "LIMIT102");
}

#[test]
fn other_reasons_and_other_codes_are_none() {
    assert_eq!(finding(scene(20, 11, "too_many_resets")), None);
    assert_eq!(finding(scene(20, 0, "too_many_pings")), None, "an orderly end");
    let mut record = scene(20, 11, "too_many_pings");
    record.connections[0].goaways.clear();
    assert_eq!(finding(record), None);
}
