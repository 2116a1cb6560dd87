//! Both sides of every threshold.

use crate::diagnose::testing::Scene;
use crate::diagnose::{Finding, run};
use h2lab_model::record::CellRecord;
use h2lab_model::workload::Protocol;

fn finding(record: CellRecord) -> Option<Finding> {
    run(&[record]).into_iter().find(|finding| finding.rule == "FRAME102")
}

/// So many DATA frames of `length` bytes with their headers that came in a second for `requests` requests; the client was busy.
fn record(frames: u64, length: u64, requests: u32) -> CellRecord {
    let mut record = Scene::new(Protocol::H2c).server_software("nginx/1.22.1").record();
    (record.generator.busiest_ns, record.generator.wall_ns) = (700_000_000, 1_000_000_000);
    let connection = &mut record.connections[0];
    (connection.requests, connection.bytes_received) = (requests, frames * length);
    connection.counters.frames_received[0] = frames;
    record
}

#[test]
fn many_short_frames_are_observed_and_explain_no_time() {
    let found = finding(record(20_000, 1_033, 200)).expect("a finding");
    assert!(found.is_observation() && found.cost_share < 1e-9);
    assert!(
        found.symptom.starts_with("the server sent 20,000 DATA frames of 1033 bytes, 20000 per second"),
        "{}",
        found.symptom
    );
    assert!(found.fixes[0].setting.contains("http2_chunk_size"), "{:?}", found.fixes);
}

#[test]
fn frames_that_reach_the_bound_of_the_client_are_its_matter() {
    let found = finding(record(20_000, 16_393, 200)).expect("a finding");
    assert!(found.fixes[0].setting.contains("-f 64k"), "{:?}", found.fixes);
    assert!(finding(record(20_000, 16_400, 200)).is_some());
    assert_eq!(finding(record(20_000, 16_401, 200)), None, "longer ones");
}

#[test]
fn ten_thousand_per_second_and_four_for_each_response_are_wanted() {
    assert!(finding(record(10_000, 1_033, 200)).is_some());
    assert_eq!(finding(record(9_999, 1_033, 200)), None);
    assert!(finding(record(20_000, 1_033, 5_000)).is_some());
    assert_eq!(finding(record(20_000, 1_033, 5_001)), None, "short responses");
}

#[test]
fn ends_that_have_cpu_time_left_are_silent() {
    let mut idle = record(20_000, 1_033, 200);
    idle.generator.busiest_ns = 499_000_000;
    assert_eq!(finding(idle), None);
}
