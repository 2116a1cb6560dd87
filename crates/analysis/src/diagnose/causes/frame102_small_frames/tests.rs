//! Both sides of every threshold.

use crate::diagnose::Finding;
use crate::diagnose::testing::{self, Scene, says};
use h2lab_model::record::CellRecord;
use h2lab_model::workload::Protocol;

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("FRAME102", record)
}

/// `frames` DATA frames of `length` bytes including their headers, received within one second for `requests` requests;
/// the client was busy.
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
    says(&found.symptom, "the server sent 20,000 DATA frames of 1,033 bytes, 20,000 per second…");
    assert!(found.fixes[0].setting.contains("http2_chunk_size"), "{:?}", found.fixes);
}

#[test]
fn a_fast_transfer_in_the_usual_frames_is_healthy() {
    assert!(finding(record(20_000, 14_745, 200)).is_some());
    assert_eq!(finding(record(20_000, 14_746, 200)), None, "nine tenths of 16 KiB");
    // A megabyte in frames of 16 KiB, the last of which is shorter.
    assert_eq!(finding(record(20_000, 16_393, 300)), None);
    assert_eq!(finding(record(20_000, 16_100, 300)), None);
}

#[test]
fn short_frames_of_uploads_are_the_matter_of_the_client() {
    let mut upload = record(0, 0, 200);
    let connection = &mut upload.connections[0];
    (connection.counters.frames_sent[0], connection.bytes_sent) = (20_000, 20_000 * 1_033);
    let found = finding(upload).expect("a finding");
    assert!(found.symptom.starts_with("our client sent") && found.fixes[0].product == "client", "{found:?}");
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
