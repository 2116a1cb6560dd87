//! Both sides of every threshold.

use crate::diagnose::Finding;
use crate::diagnose::testing::{self, Scene};
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, Outcome};
use h2lab_model::workload::Protocol;
use h2lab_wire::StreamId;
use h2lab_wire::h2::setting;
use h2lab_wire::trace::{Direction, FrameEvent, FrameKind};

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("CONN102", record)
}

fn frame(at: u64, stream: u32, kind: FrameKind, direction: Direction) -> FrameEvent {
    let at = Time::from_millis(at);
    FrameEvent { at, connection: 0, stream: StreamId(stream), length: 0, value: 0, kind, flags: 0, direction }
}

/// HEADERS of four streams at 100 ms; the server's SETTINGS at `settings` ms allow two streams; it refuses `refused` of them at
/// 130 ms with this code, and they are answered 25 ms later than the others.
fn scene(settings: u64, refused: u32, code: u32) -> CellRecord {
    let mut scene = Scene::new(Protocol::H2c);
    for n in 0..4 {
        let answered = if n < refused { 150 } else { 125 };
        scene = scene.request(0, 2 * n + 1, 100, answered, answered);
    }
    let mut record = scene.record();
    for sample in record.samples.edit().iter_mut() {
        sample.replays = u8::from(sample.completed_at > Time::from_millis(130));
    }
    let headers = (0..4).map(|n| frame(100, 2 * n + 1, FrameKind::HEADERS, Direction::Up));
    let resets = (0..refused)
        .map(|n| FrameEvent { value: code, ..frame(130, 2 * n + 1, FrameKind::RST_STREAM, Direction::Down) });
    let settings = frame(settings, 0, FrameKind::SETTINGS, Direction::Down);
    record.frames.extend(headers.chain([settings]).chain(resets));
    record.frames.sort_by_key(|frame| frame.at);
    record.connections[0].http.settings_remote = vec![(setting::MAX_CONCURRENT_STREAMS, 2)];
    record
}

#[test]
fn streams_that_were_opened_before_settings_and_refused_are_found() {
    let found = finding(scene(125, 2, 7)).expect("a finding");
    assert_eq!(
        found.symptom,
        "2 streams opened before the server's SETTINGS arrived were refused (REFUSED_STREAM) on 1 of 1 new connection; the server \
         allows 2 at a time"
    );
    // Two of four took 50 ms rather than 25 ms.
    assert!((found.cost_share - 50.0 / 150.0).abs() < 1e-9, "{}", found.cost);
    assert_eq!(found.fixes.len(), 2);
    assert!(!found.of_failures, "it costs time");
}

#[test]
fn one_refusal_streams_after_settings_and_other_codes_are_none() {
    assert_eq!(finding(scene(125, 1, 7)), None, "one");
    assert_eq!(finding(scene(99, 2, 7)), None, "the client knew the limit");
    assert_eq!(finding(scene(125, 2, 8)), None, "CANCEL");
    let mut without = scene(125, 2, 7);
    without.frames.clear();
    assert_eq!(finding(without), None, "nothing is known of the order");
}

/// What is found of two refusals of a client of which no request is known to be another one sent again; `others` requests, of which
/// the last `failed` were refused, are its requests beside them.
fn unfollowed(others: u32, failed: usize) -> Option<Finding> {
    let mut record = scene(125, 2, 7);
    let sample = record.samples.get(0).expect("four");
    (4..others).for_each(|_| record.samples.push(&sample));
    for sample in record.samples.edit().iter_mut() {
        (sample.replays, sample.completed_at) = (0, Time::from_millis(125));
    }
    for sample in record.samples.edit().iter_mut().take(failed) {
        sample.outcome = Outcome::Refused;
    }
    finding(record)
}

#[test]
fn refusals_of_a_client_that_cannot_be_followed_may_be_failures() {
    let cost = |others, failed| unfollowed(others, failed).expect("a finding").cost;
    assert_eq!(cost(4, 0), "2 of 6 requests refused: whether the client sent them again is not known");
    let one = "2 of 5 requests refused: 1 request failed, and whether the client sent the other 1 again is not known";
    assert_eq!(cost(4, 1), one);
    assert!(cost(4, 2).ends_with("; 2 requests failed"), "all are known");
    let is_of_failures = |others, failed| unfollowed(others, failed).map(|found| found.of_failures);
    assert_eq!(is_of_failures(400, 0), Some(true), "few are told as well");
    assert_eq!(is_of_failures(400, 2), Some(true), "and so are failures");
}

#[test]
fn refusals_that_cost_nothing_are_none() {
    let mut record = scene(125, 2, 7);
    record.samples.edit().iter_mut().for_each(|sample| sample.completed_at = Time::from_millis(125));
    assert_eq!(finding(record.clone()), None);
    // One of them that failed may be chance, and is less than a twentieth of the requests.
    let sample = record.samples.get(3).expect("four");
    (4..40).for_each(|_| record.samples.push(&sample));
    let failed = |mut record: CellRecord, count: usize| {
        for sample in record.samples.edit().iter_mut().take(count) {
            sample.outcome = Outcome::Refused;
        }
        finding(record)
    };
    assert_eq!(failed(record.clone(), 1), None);
    assert!(failed(record, 2).is_some());
}
