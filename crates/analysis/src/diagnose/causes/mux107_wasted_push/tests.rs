//! Both sides of every threshold.

use crate::diagnose::Finding;
use crate::diagnose::testing::{self, Scene, frame};
use h2lab_base::units::Time;
use h2lab_model::record::CellRecord;
use h2lab_model::workload::Protocol;
use h2lab_wire::trace::{FrameEvent, FrameKind};

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("MUX107", record)
}

fn data(stream: u32, at: u64, length: u32) -> FrameEvent {
    frame(FrameKind::DATA, stream, length, at)
}

/// A quick request, and one whose response of 20 kB arrives 100 ms after it. Before the response, from the 30th to the
/// 90th millisecond, six frames of `bytes` each arrive on this stream, over a downlink of 8 Mbit/s: 1,000 bytes per
/// millisecond.
fn scene(stream: u32, bytes: u32) -> CellRecord {
    scene_of(Protocol::H2c, stream, bytes)
}

fn scene_of(protocol: Protocol, stream: u32, bytes: u32) -> CellRecord {
    let scene = Scene::new(protocol).request(0, 1, 0, 25, 25).request(0, 3, 100, 200, 200);
    let mut record = scene.frame(0, 3, 130).record();
    record.cell.link.as_mut().expect("a link").downlink.bandwidth = Some("8mbit".parse().expect("a rate"));
    record.frames.extend((1..=6).map(|n| data(stream, 130 + 10 * n, bytes)));
    record.frames.push(data(3, 200, 20_000));
    record.frames.sort_by_key(|frame| frame.at);
    record.connections[0].counters.frames_received[5] = 1;
    record
}

#[test]
fn pushed_bytes_that_come_before_a_response_delay_it() {
    let found = finding(scene(2, 10_000)).expect("a finding");
    assert!((found.cost_share - 60.0 / 125.0).abs() < 1e-6, "{}", found.cost_share);
    assert_eq!(
        found.symptom,
        "75 % of all bytes of bodies were pushed (58.59 KiB in 1 response) and no request asked for them; 1 of 2 requests waited \
         meanwhile"
    );
    assert_eq!(found.fixes.len(), 2);
}

#[test]
fn a_server_that_is_slow_with_what_it_pushes_delays_by_what_the_link_takes() {
    let found = finding(scene(2, 2_000)).expect("a finding");
    assert!((found.cost_share - 12.0 / 125.0).abs() < 1e-6, "{}", found.cost_share);
}

#[test]
fn what_was_asked_for_is_no_push_nor_are_streams_of_other_protocols() {
    assert_eq!(finding(scene(5, 10_000)), None);
    assert_eq!(finding(scene_of(Protocol::H3, 4, 10_000)), None);
    assert_eq!(finding(scene_of(Protocol::H1, 2, 10_000)), None);
}

#[test]
fn few_pushed_bytes_and_those_that_nobody_waited_for_cost_nothing() {
    assert!(finding(scene(2, 1_200)).is_some(), "7 of 125 ms, 26 % of the bytes");
    assert_eq!(finding(scene(2, 1_000)), None, "4.8 % of the time");
    let mut among_many = scene(2, 1_200);
    among_many.frames.push(data(3, 200, 10_000));
    assert_eq!(finding(among_many), None, "19 % of the bytes");
    let mut later = scene(2, 10_000);
    for frame in later.frames.iter_mut().filter(|frame| frame.stream.0 == 2) {
        frame.at += std::time::Duration::from_millis(200);
    }
    later.frames.sort_by_key(|frame| frame.at);
    assert_eq!(finding(later), None);
}

#[test]
fn over_a_network_of_unknown_capacity_the_most_that_came_in_a_round_trip_is_its_own() {
    let mut record = scene(2, 10_000);
    record.cell.link.as_mut().expect("a link").downlink.bandwidth = None;
    // 25 ms carry at most 40 kB, two pushed frames and the response: a frame takes 6.25 ms.
    let share = finding(record.clone()).expect("a finding").cost_share;
    assert!((share - 37.5 / 125.0).abs() < 1e-3, "{share}");
    record
        .frames
        .iter_mut()
        .filter(|frame| frame.stream.0 == 2)
        .for_each(|frame| frame.at = Time::from_millis(190));
    assert_eq!(finding(record), None, "what comes at once takes no time");
}
