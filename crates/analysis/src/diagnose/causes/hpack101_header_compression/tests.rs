//! Both sides of every threshold.

use crate::diagnose::testing::{self, Scene};
use crate::diagnose::{Confidence, Finding};
use h2lab_base::units::Time;
use h2lab_model::record::CellRecord;
use h2lab_model::workload::Protocol;
use h2lab_wire::StreamId;
use h2lab_wire::trace::{Direction, FrameEvent, FrameKind};

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("HPACK101", record)
}

/// `requests` requests, one every 100 ms, with fields of 2,000 bytes in field blocks of `sent` bytes, to a server with
/// this table, over an uplink of 2 Mbit/s: 250 bytes per millisecond.
fn scene(requests: u32, sent: u32, table: Option<u32>) -> CellRecord {
    scene_of(Protocol::H2c, requests, sent, table)
}

fn scene_of(protocol: Protocol, requests: u32, sent: u32, table: Option<u32>) -> CellRecord {
    let scene = (0..requests).fold(Scene::new(protocol), |scene, n| {
        let at = 100 * u64::from(n + 1);
        scene.request(0, 2 * n + 1, at, at + 40, at + 40)
    });
    let mut record = scene.record();
    record.cell.link.as_mut().expect("a link").uplink.bandwidth = Some("2mbit".parse().expect("a rate"));
    record.frames.clear();
    record.generator.wall_ns = 1;
    for n in 0..requests {
        record.frames.push(FrameEvent {
            at: Time::from_millis(100 * u64::from(n + 1)),
            connection: 0,
            stream: StreamId(2 * n + 1),
            length: sent,
            value: 0,
            kind: FrameKind::HEADERS,
            flags: 5,
            direction: Direction::Up,
        });
    }
    let connection = &mut record.connections[0];
    connection.http.settings_remote = table.map(|bytes| (1, bytes)).into_iter().collect();
    let counters = &mut connection.counters;
    (counters.requests, counters.headers_plain) = (requests.into(), 2_000 * u64::from(requests));
    counters.headers_sent = u64::from(sent * requests);
    record
}

#[test]
fn fields_that_are_sent_in_full_cost_their_time_on_the_link() {
    let found = finding(scene(20, 1_450, Some(0))).expect("a finding");
    // 1,250 bytes more than the usual 200, in a response time of 40 ms.
    assert!((found.cost_share - 0.125).abs() < 1e-3, "{}", found.cost_share);
    assert_eq!(found.confidence, Confidence::Observed);
    assert_eq!(
        found.symptom,
        "every request sends 1.416 KiB for 1.953 KiB of fields, 5 ms on the uplink on average: the server's table of 0 B does not \
         hold them"
    );
    assert_eq!(found.fixes.len(), 2);
}

#[test]
fn requests_behind_others_wait_for_the_fields_of_all() {
    let mut record = scene(20, 1_450, Some(0));
    record.frames.iter_mut().for_each(|frame| frame.at = Time::from_millis(100));
    let share = finding(record).expect("a finding").cost_share;
    assert!(share > 0.9 && share <= 1.0, "{share}");
}

#[test]
fn a_table_that_holds_the_fields_is_not_to_blame() {
    let found = finding(scene(20, 1_450, None)).expect("a finding");
    assert_eq!((found.confidence, found.fixes.len()), (Confidence::Inferred, 1));
    assert!(found.symptom.contains("so they change"), "{}", found.symptom);
    let smaller = finding(scene(20, 1_450, Some(2_511))).expect("a finding");
    assert_eq!(smaller.confidence, Confidence::Observed);
    assert_eq!(finding(scene(20, 1_450, Some(2_512))).expect("a finding").confidence, Confidence::Inferred);
}

#[test]
fn a_client_that_is_not_ours_may_leave_the_table_unused() {
    let of = |wall_ns| {
        let mut record = scene(20, 1_450, None);
        record.generator.wall_ns = wall_ns;
        finding(record).expect("a finding")
    };
    assert!(of(1).symptom.ends_with("would hold them, so they change"), "{}", of(1).symptom);
    let other = of(0);
    assert!(other.symptom.ends_with("they change, or the client does not use it"), "{}", other.symptom);
    assert!(other.fixes[0].setting.starts_with("an encoder that uses"), "{:?}", other.fixes);
}

#[test]
fn our_client_leaves_the_table_unused_if_it_was_told_to() {
    let mut record = scene(20, 1_450, None);
    record.cell.client.encoder_header_table_size = Some(0);
    let found = finding(record).expect("a finding");
    assert!(found.symptom.ends_with("they change, or the client does not use it"), "{}", found.symptom);
}

#[test]
fn compressed_fields_few_requests_and_other_protocols_are_not_meant() {
    assert!(finding(scene(20, 1_001, Some(0))).is_some());
    assert_eq!(finding(scene(20, 1_000, Some(0))), None, "half is saved");
    assert!(finding(scene(10, 1_450, Some(0))).is_some());
    assert_eq!(finding(scene(9, 1_450, Some(0))), None, "the first request is too large a part");
    assert_eq!(finding(scene_of(Protocol::H1, 20, 1_450, None)), None);
    assert_eq!(finding(scene_of(Protocol::H3, 20, 1_450, None)), None);
}

#[test]
fn what_takes_no_time_on_the_link_costs_nothing() {
    let over = |rate: Option<&str>| {
        let mut record = scene(20, 1_450, Some(0));
        let link = record.cell.link.as_mut().expect("a link");
        link.uplink.bandwidth = rate.map(|rate| rate.parse().expect("a rate"));
        finding(record)
    };
    // 10 kbit: 2 ms, 5 % of the response time, are 5 Mbit/s.
    assert!(over(Some("4900kbit")).is_some());
    assert_eq!(over(Some("5100kbit")), None);
    assert_eq!(over(None), None);
    assert_eq!(finding(Scene::with_shared_stall().record()), None);
}
