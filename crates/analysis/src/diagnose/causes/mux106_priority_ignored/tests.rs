//! Both sides of every threshold.

use crate::diagnose::testing::{Scene, frame};
use crate::diagnose::{Finding, run};
use h2lab_base::units::Time;
use h2lab_model::record::CellRecord;
use h2lab_model::workload::Protocol;
use h2lab_wire::StreamId;
use h2lab_wire::trace::{Direction, FrameEvent, FrameKind};

fn findings(record: CellRecord) -> Vec<Finding> {
    run(&[record]).into_iter().filter(|finding| finding.rule == "MUX106").collect()
}

/// DATA with these streams and lengths, one frame every 10 ms; a frame with a length of 1 is the last of its stream.
fn data(record: &mut CellRecord, frames: &[(u32, u32)]) {
    let mut at = record.frames.last().map_or(Time::from_millis(100), |frame| frame.at);
    for &(stream, length) in frames {
        at += std::time::Duration::from_millis(10);
        let flags = u8::from(length == 1);
        record.frames.push(FrameEvent { at, flags, ..frame(FrameKind::DATA, stream, length, 0) });
    }
}

/// `pairs` pairs of responses, the first with this urgency and the other with 5, whose DATA alternates.
fn record(pairs: u32, urgency: u8) -> CellRecord {
    let mut record = Scene::new(Protocol::H2c).record();
    for pair in 0..pairs {
        let (urgent, lazy) = (4 * pair + 1, 4 * pair + 3);
        record.connections[0].http.priorities.extend([(urgent, urgency), (lazy, 5)]);
        let turns = [(urgent, 1_000), (lazy, 1_000), (urgent, 1_000), (lazy, 1_000), (urgent, 1), (lazy, 1)];
        data(&mut record, &turns);
    }
    answered(record)
}

/// The same with requests that took 50 ms each.
fn answered(mut record: CellRecord) -> CellRecord {
    let streams: std::collections::BTreeSet<u32> = record.frames.iter().map(|frame| frame.stream.0).collect();
    let scene = streams
        .iter()
        .fold(Scene::new(Protocol::H2c), |scene, stream| scene.request(0, *stream, 100, 101, 150));
    record.samples = scene.record().samples;
    record
}

#[test]
fn urgent_responses_that_share_the_link_with_others_cost_the_time_of_these() {
    let found = findings(record(3, 1)).remove(0);
    // 2,000 of 3,001 bytes in 40 ms, three times, of six requests of 50 ms.
    assert!((found.cost_share - 0.12 * 2_000.0 / 3_001.0 / 0.3).abs() < 1e-6, "{}", found.cost_share);
    assert_eq!(
        found.symptom,
        "3 responses of urgency 1 came mixed with less urgent ones: 5.859 KiB of those came between their DATA, although the \
         `priority` field of each request said which goes first"
    );
}

#[test]
fn it_must_be_a_twentieth_of_the_time_of_urgent_requests_however_many_others_there_are() {
    // 80 ms of 150 ms, and another request of this urgency.
    let beside = |urgency: u8, ms: u64| {
        let mut record = record(3, 1);
        let other = Scene::new(Protocol::H2c).request(0, 101, 100, 101, 100 + ms).record();
        record.connections[0].http.priorities.push((101, urgency));
        record.samples.extend(other.samples.iter());
        findings(record)
    };
    assert_eq!(beside(1, 1_400).len(), 1);
    assert_eq!(beside(1, 1_500), []);
    let diluted = beside(5, 10_000).remove(0);
    assert!(diluted.cost_share < 0.05, "{}", diluted.cost_share);
    assert!(diluted.cost.ends_with(": 53 % of the time of the urgent requests"), "{}", diluted.cost);
}

#[test]
fn three_responses_are_wanted() {
    assert_eq!(findings(record(3, 1)).len(), 1);
    assert_eq!(findings(record(2, 1)), []);
}

#[test]
fn priorities_must_have_been_sent_and_differ() {
    assert_eq!(findings(record(3, 4)).len(), 1);
    assert_eq!(findings(record(3, 5)), [], "all are alike");
    let mut unsaid = record(3, 1);
    unsaid.connections[0].http.priorities.clear();
    assert_eq!(findings(unsaid), []);
    let mut usual = record(3, 1);
    usual.connections[0].http.priorities.retain(|(_, urgency)| *urgency == 1);
    assert_eq!(findings(usual).len(), 1, "what says nothing is of urgency 3");
    let mut same = record(3, 3);
    same.connections[0].http.priorities.retain(|(_, urgency)| *urgency == 3);
    assert_eq!(findings(same), []);
}

/// Three urgent responses, with this DATA of theirs (stream 1) and of others.
fn three(frames: &[(u32, u32)]) -> Vec<Finding> {
    let mut record = Scene::new(Protocol::H2c).record();
    for n in 0..3 {
        let own = |stream: u32| stream + 10 * n;
        let streams: std::collections::BTreeSet<u32> =
            frames.iter().map(|(stream, _)| own(*stream)).collect();
        let stated = streams.iter().map(|stream| (*stream, if *stream == own(1) { 0 } else { 7 }));
        record.connections[0].http.priorities.extend(stated);
        let frames: Vec<(u32, u32)> = frames.iter().map(|(stream, length)| (own(*stream), *length)).collect();
        data(&mut record, &frames);
    }
    findings(answered(record))
}

#[test]
fn what_comes_whole_is_in_order_whatever_came_before_and_after() {
    assert_eq!(three(&[(3, 900), (1, 900), (1, 1), (3, 900), (3, 1)]), [], "it was in the buffers");
    assert_eq!(three(&[(1, 900), (1, 900), (1, 1), (3, 900), (3, 1)]), []);
    assert_eq!(three(&[(1, 900), (3, 900), (1, 900), (1, 1), (3, 1)]).len(), 1);
}

#[test]
fn a_response_that_trickles_lets_others_fill_the_link() {
    let trickle = |length: u32| three(&[(1, length - 1), (3, 4_000), (1, 1), (3, 1)]);
    assert_eq!(trickle(2_000).len(), 1);
    assert_eq!(trickle(1_999), [], "less than half of an equal share");
    let of_two = |length: u32| three(&[(1, length - 1), (3, 2_000), (5, 2_000), (1, 1), (3, 1), (5, 1)]);
    assert_eq!(of_two(1_000).len(), 1, "a third would be equal");
    assert_eq!(of_two(999), []);
}

#[test]
fn a_response_without_credit_is_none_of_it() {
    use crate::diagnose::causes::views::transfer::Transfer;
    let mut record = Transfer::new(Direction::Down).with_stream_window(65_536).record();
    let streams: Vec<u32> = record.samples.iter().map(|sample| sample.stream.0).collect();
    record.connections[0].http.priorities = streams.iter().map(|stream| (*stream, 0)).collect();
    // Another response fills each stop.
    let fillers: Vec<FrameEvent> = record
        .frames
        .iter()
        .filter(|frame| frame.kind == FrameKind::DATA)
        .map(|frame| FrameEvent { stream: StreamId(1_001), flags: 0, length: 10, ..*frame })
        .collect();
    record.frames.extend(fillers);
    record.frames.sort_by_key(|frame| frame.at);
    assert_eq!(findings(record), []);
}
