//! Both sides of every threshold.

use crate::diagnose::testing::Scene;
use crate::diagnose::{Finding, run};
use h2lab_base::counters::TcpSummary;
use h2lab_base::units::Time;
use h2lab_model::record::CellRecord;
use h2lab_model::workload::Protocol;

fn findings(record: CellRecord) -> Vec<Finding> {
    run(&[record]).into_iter().filter(|finding| finding.rule == "FRAME103").collect()
}

/// A connection whose server sent `frames` frames for `requests` requests in `segments` segments of 500 bytes; the
/// client was busy.
fn record(frames: u64, requests: u32, segments: u32) -> CellRecord {
    let mut record = Scene::new(Protocol::H2c).request(0, 1, 100, 125, 126).record();
    record.cell.work.body_bytes = 0;
    (record.generator.busiest_ns, record.generator.wall_ns) = (700_000_000, 1_000_000_000);
    let connection = &mut record.connections[0];
    connection.requests = requests;
    connection.counters.frames_received[0] = frames;
    connection.bytes_received = u64::from(segments) * 500;
    connection.tcp_client = Some(TcpSummary { segments_in: segments, ..TcpSummary::default() });
    record
}

#[test]
fn a_segment_for_each_frame_is_observed_and_explains_no_time() {
    let found = findings(record(2_000, 1_000, 2_000)).remove(0);
    assert!(found.is_observation() && found.cost_share < 1e-9);
    assert!(
        found.symptom.starts_with("the server sent 2,000 frames in 2,000 segments of 500 bytes"),
        "{}",
        found.symptom
    );
    assert!(found.cost.contains("1,000 segments and writes more"), "{}", found.cost);
}

#[test]
fn our_own_client_is_named_for_what_it_sends() {
    let mut up = record(2_000, 1_000, 2_000);
    let connection = &mut up.connections[0];
    (connection.counters.frames_sent, connection.counters.frames_received) =
        (connection.counters.frames_received, [0; 11]);
    connection.bytes_sent = 1_000_000;
    connection.tcp_client = Some(TcpSummary { segments_out: 2_000, ..TcpSummary::default() });
    assert_eq!(findings(up.clone()), [], "without a body there is nothing to join");
    up.cell.work.body_bytes = 100;
    assert!(findings(up).remove(0).fixes[0].setting.contains("--no-coalesce"));
}

#[test]
fn frames_that_were_joined_are_silent() {
    assert_eq!(findings(record(2_000, 1_000, 1_800)).len(), 1);
    assert_eq!(findings(record(2_000, 1_000, 1_799)), []);
    assert_eq!(findings(record(2_000, 1_000, 1_000)), [], "a segment for each response");
}

#[test]
fn a_thousand_frames_and_two_for_each_message_are_wanted() {
    assert_eq!(findings(record(1_000, 500, 1_000)).len(), 1);
    assert_eq!(findings(record(999, 499, 999)), []);
    assert_eq!(findings(record(1_800, 1_000, 1_800)).len(), 1);
    assert_eq!(findings(record(1_799, 1_000, 1_799)), [], "a frame is the whole response");
}

#[test]
fn what_looks_alike_is_silent() {
    let own = record(2_000, 1_000, 2_000);
    let mut full = own.clone();
    full.connections[0].bytes_received = 2_000 * 724;
    assert_eq!(findings(full.clone()).len(), 1);
    full.connections[0].bytes_received = 2_000 * 725;
    assert_eq!(findings(full), [], "more than half a segment");
    let mut streamed = own.clone();
    streamed.samples.edit()[0].completed_at = Time::from_millis(127);
    assert_eq!(findings(streamed), [], "the body came later");
    let mut idle = own.clone();
    idle.generator.busiest_ns = 499_000_000;
    assert_eq!(findings(idle), [], "there is CPU time for it");
    let mut unknown = own;
    unknown.connections[0].tcp_client = None;
    assert_eq!(findings(unknown), [], "segments are not known");
}
