//! Both sides of every threshold.

use crate::diagnose::testing::{self, Scene};
use crate::diagnose::{Confidence, Finding};
use h2lab_base::text::PeerText;
use h2lab_model::record::{CellRecord, Outcome};
use h2lab_model::workload::Protocol;

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("LIMIT102", record)
}

/// A connection with `requests` requests, of which the client has reset `resets`, and that ends with this code and
/// text; the one request that was recorded on it fails.
fn scene(requests: u32, resets: u32, code: u32, debug: &str) -> CellRecord {
    let scene = Scene::new(Protocol::H2).request(0, 1, 990, 1_000, 1_000);
    let mut record = scene.goaway(0, 1_000, 2 * requests - 1, code).record();
    let connection = &mut record.connections[0];
    connection.goaways[0].debug = PeerText::from(debug);
    connection.requests = requests;
    connection.http.resets_sent = vec![(8, resets)];
    record.samples.edit()[0].outcome = Outcome::GoAway;
    record
}

#[test]
fn a_server_that_names_its_limit_is_believed() {
    let found = finding(scene(500, 120, 11, "resets: more than 100 streams were begun and reset"))
        .expect("a finding");
    assert_eq!(
        found.symptom,
        "the server ended 1 connection with ENHANCE_YOUR_CALM (\"resets: more than 100 streams were begun and reset\"); the client \
         had reset 120 of 500 streams on them"
    );
    assert_eq!(found.confidence, Confidence::Observed);
    assert_eq!(found.fixes.len(), 2);
}

#[test]
fn of_a_server_that_says_nothing_the_resets_decide() {
    assert!(finding(scene(500, 51, 11, "")).is_some_and(|found| found.confidence == Confidence::Inferred));
    assert_eq!(finding(scene(500, 50, 11, "")), None, "a tenth");
    assert!(finding(scene(20_000, 1_000, 11, "")).is_some());
    assert_eq!(finding(scene(20_000, 999, 11, "")), None);
}

#[test]
fn tomcat_names_the_sum_of_what_it_counts_so_that_numbers_decide() {
    const TOTAL: &str = "Connection [1fb], Too much overhead so the connection will be closed";
    let found = finding(scene(7, 5, 11, TOTAL)).expect("a finding");
    assert_eq!(found.confidence, Confidence::Inferred);
    assert_eq!((&*found.fixes[0].product, &*found.fixes[0].setting), ("Tomcat", "overheadCountFactor"));
    assert_eq!(finding(scene(500, 50, 11, TOTAL)), None);
    let mut record = scene(7, 5, 11, TOTAL);
    record.connections[0].counters.frames_sent[6] = 6;
    assert_eq!(finding(record), None, "LIMIT101");
}

#[test]
fn other_reasons_and_other_codes_are_none() {
    assert_eq!(finding(scene(500, 120, 11, "too_many_pings")), None);
    assert_eq!(finding(scene(500, 120, 0, "")), None, "an orderly end");
    let mut record = scene(500, 120, 11, "");
    record.connections[0].counters.frames_sent[6] = 121;
    assert_eq!(finding(record), None, "more PINGs than resets: that is LIMIT101");
}
