//! Both sides of every threshold.

use crate::diagnose::testing::Scene;
use crate::diagnose::{Finding, run};
use h2lab_base::counters::TcpSummary;
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, OriginCounts, ServerSummary};
use h2lab_model::scenario::Target;
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

/// Our origin sent `frames` frames of 16 KiB for 100 requests in `writes` writes; how they fill segments shows nothing.
fn written(frames: u64, writes: u64) -> CellRecord {
    let mut record = record(frames, 100, 12 * frames as u32);
    record.samples.edit()[0].completed_at = Time::from_millis(400);
    record.connections[0].bytes_received = frames * 16_384;
    let origin = Some(OriginCounts { frames, writes, ..OriginCounts::default() });
    record.server = Some(ServerSummary { origin, ..ServerSummary::default() });
    record
}

#[test]
fn a_write_for_each_full_frame_of_our_origin_is_observed() {
    let found = findings(written(2_000, 2_000)).remove(0);
    assert!(found.is_observation(), "{found:?}");
    assert!(found.symptom.starts_with("our origin sent 2,000 frames in 2,000 writes"), "{}", found.symptom);
    assert_eq!(findings(written(2_000, 1_800)).len(), 1);
    assert_eq!(findings(written(2_000, 1_799)), [], "some were joined");
    assert_eq!(findings(written(1_000, 1_000)).len(), 1);
    assert_eq!(findings(written(999, 999)), [], "few");
}

#[test]
fn credit_and_settings_of_the_origin_and_frames_that_wait_for_credit_are_no_writes_of_a_message() {
    // 1,800 of 2,000 frames: 100 HEADERS and 1,700 DATA.
    let of_messages = |data: u64| {
        let mut upload = written(2_000, 2_000);
        let received = &mut upload.connections[0].counters.frames_received;
        (received[0], received[8]) = (data, 1_900 - data);
        findings(upload).len()
    };
    assert_eq!([1_700, 1_699].map(of_messages), [1, 0]);
    let credited = |credits: u64| {
        let mut record = written(2_000, 2_000);
        record.connections[0].counters.frames_sent[8] = credits;
        findings(record).len()
    };
    assert_eq!([2_999, 3_000].map(credited), [1, 0]);
}

#[test]
fn short_frames_of_a_body_that_comes_bit_by_bit_and_servers_that_are_not_ours_are_silent() {
    let mut short = written(2_000, 2_000);
    short.connections[0].bytes_received = 2_000 * 14_700;
    assert_eq!(findings(short.clone()), [], "nothing was ready behind them");
    short.samples.edit()[0].completed_at = Time::from_millis(126);
    assert_eq!(findings(short).len(), 1, "it was ready as a whole");
    let mut behind = written(2_000, 2_000);
    behind.cell.target = Target::Sut { name: "nginx".to_owned() };
    assert_eq!(findings(behind), [], "the writes are those of its upstream");
    let mut idle = written(2_000, 2_000);
    idle.generator.busiest_ns = 499_000_000;
    assert_eq!(findings(idle), [], "there is CPU time for it");
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
