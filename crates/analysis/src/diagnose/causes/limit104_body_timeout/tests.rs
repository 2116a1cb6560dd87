//! Both sides of every threshold.

use crate::diagnose::testing::{self, Scene};
use crate::diagnose::{Confidence, Finding, run};
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, GoAwayRecord, Outcome};
use h2lab_model::workload::Protocol;
use h2lab_wire::StreamId;
use h2lab_wire::trace::{Direction, FrameEvent, FrameKind};

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("LIMIT104", record)
}

/// 1,000 bytes of a body.
fn data(connection: u32, stream: u32, at: u64, flags: u8) -> FrameEvent {
    FrameEvent {
        at: Time::from_millis(at),
        connection,
        stream: StreamId(stream),
        length: 1_000,
        value: 0,
        kind: FrameKind::DATA,
        flags,
        direction: Direction::Up,
    }
}

/// Uploads that begin at these times and that the server resets at these ages, in ms. They send 1,000 bytes every 100 ms,
/// and none in the last `still` ms. Each has a connection of its own if they are `apart`.
fn scene(uploads: &[(u64, u64)], still: u64, apart: bool) -> CellRecord {
    let mut scene = Scene::new(Protocol::H2c);
    let mut frames = Vec::new();
    for (n, &(begin, age)) in (0..).zip(uploads) {
        let (connection, end) = (if apart { n } else { 0 }, begin + age);
        scene = scene.request(connection, 2 * n + 1, begin, end, end);
        let times = (begin..=end - still).step_by(100);
        frames.extend(times.map(|at| data(connection, 2 * n + 1, at, 0)));
    }
    let mut record = scene.record();
    frames.sort_by_key(|frame| frame.at);
    record.frames = frames;
    ended(record, Outcome::Reset, 0)
}

/// The same, ended in this way.
fn ended(mut record: CellRecord, outcome: Outcome, status: u16) -> CellRecord {
    for sample in record.samples.edit().iter_mut() {
        (sample.outcome, sample.status) = (outcome, status);
        sample.first_byte_at = if status == 0 { Time::NEVER } else { sample.completed_at };
    }
    record
}

/// Three, one after the other, that are ended at these ages.
fn aged(ages: [u64; 3]) -> CellRecord {
    let uploads = [(100, ages[0]), (10_000, ages[1]), (20_000, ages[2])];
    scene(&uploads, 0, false)
}

#[test]
fn uploads_that_end_at_one_age_meet_a_timeout() {
    let found = finding(aged([2_000, 2_010, 2_020])).expect("a finding");
    assert!(
        found.symptom.starts_with("the server ended 3 of 3 requests at an age of 2 s to 2.02 s, with "),
        "{}",
        found.symptom
    );
    assert_eq!((found.confidence, found.fixes.len()), (Confidence::Inferred, 1));
    assert!((found.cost_share - 1.0).abs() < 1e-9 && found.of_failures);
    assert!(found.confirm.contains("--body-bytes 10500: "), "half of 21 frames: {}", found.confirm);
}

#[test]
fn two_uploads_short_ones_and_other_ages_are_none() {
    assert_eq!(finding(scene(&[(100, 2_000), (10_000, 2_000)], 0, false)), None);
    assert!(finding(aged([1_000; 3])).is_some());
    assert_eq!(finding(aged([999; 3])), None);
    assert!(finding(aged([2_000, 2_000, 2_200])).is_some());
    assert_eq!(finding(aged([2_000, 2_000, 2_201])), None);
}

#[test]
fn an_upload_that_had_stopped_is_none() {
    let uploads = [(100, 2_000), (10_000, 2_000), (20_000, 2_000)];
    assert!(finding(scene(&uploads, 200, false)).is_some());
    assert_eq!(finding(scene(&uploads, 201, false)), None);
    let mut unseen = scene(&uploads, 0, false);
    unseen.frames.clear();
    assert_eq!(finding(unseen), None, "frames were not recorded");
}

#[test]
fn ends_at_one_moment_are_one_event() {
    assert!(finding(scene(&[(100, 2_000), (130, 2_000), (151, 2_000)], 0, false)).is_some());
    assert_eq!(finding(scene(&[(100, 2_000), (130, 2_000), (150, 2_000)], 0, false)), None);
    let together = [100, 130, 150].map(|begin| (begin, 2_000));
    let first = scene(&together, 0, false);
    let mut second = first.clone();
    second.cell.repetition = 1;
    let found = run(&[first, second]);
    assert!(found.iter().any(|finding| finding.rule == "LIMIT104"), "in two repetitions");
}

#[test]
fn a_body_that_took_longer_shows_that_there_is_no_timeout() {
    let beside = |longer: u64| {
        let mut record = aged([2_000; 3]);
        let mut whole = record.samples.get(0).expect("there are three");
        (whole.stream, whole.outcome, whole.status) = (StreamId(99), Outcome::Succeeded, 200);
        whole.scheduled_at = Time::from_millis(30_000);
        whole.sent_at = whole.scheduled_at;
        whole.completed_at = Time::from_millis(30_000 + longer + 25);
        record.samples.push(&whole);
        record.frames.push(data(0, 99, 30_000 + longer, FrameEvent::END_STREAM));
        finding(record)
    };
    assert!(beside(2_000).is_some());
    assert_eq!(beside(2_001), None);
}

#[test]
fn a_connection_that_ends_at_its_own_age_is_none() {
    let older = |lead: u64| {
        let uploads = [(1_000, 2_000), (10_000, 2_000), (20_000, 2_000)];
        let mut record = ended(scene(&uploads, 0, true), Outcome::GoAway, 0);
        for (connection, &(begin, age)) in record.connections.iter_mut().zip(&uploads) {
            connection.connected_at = Time::from_millis(begin - lead);
            connection.goaways = vec![GoAwayRecord {
                at: Time::from_millis(begin + age),
                code: 0,
                last_stream: 99,
                debug: "".into(),
            }];
        }
        finding(record)
    };
    assert_eq!(older(200), None, "that is CONN105");
    assert!(older(201).is_some());
}

#[test]
fn an_error_in_place_of_reading_on_is_an_end_and_one_about_the_size_and_our_own_timeout_are_none() {
    let with = |outcome: Outcome, status: u16| finding(ended(aged([2_000; 3]), outcome, status));
    assert!(with(Outcome::Status, 408).is_some() && with(Outcome::Closed, 0).is_some());
    assert_eq!(with(Outcome::Status, 413), None);
    assert_eq!(with(Outcome::Timeout, 0), None);
    assert_eq!(with(Outcome::Refused, 0), None);
}

/// Three uploads of HTTP/1.1, each on a connection of its own, that are answered with this status at these ages.
fn over_http1(ages: [u64; 3], status: u16) -> CellRecord {
    let begin = [100, 10_000, 20_000];
    let uploads: Vec<(u64, u64)> = begin.into_iter().zip(ages).collect();
    let mut record = ended(scene(&uploads, 0, true), Outcome::Status, status);
    record.cell.protocol = Protocol::H1;
    record.frames.clear();
    record
}

#[test]
fn without_frames_the_status_says_that_a_body_came_too_late() {
    let found = finding(over_http1([1_060, 1_100, 1_140], 408)).expect("a finding");
    assert_eq!(
        found.symptom,
        "the server ended 3 of 3 requests at an age of 1.06 s to 1.14 s, with 408 Request Timeout"
    );
    assert!(found.confirm.contains("--proto h1 --body-bytes 512: "), "half of 1,024: {}", found.confirm);
    assert_eq!(finding(over_http1([1_060, 1_100, 1_140], 500)), None, "another error");
    assert_eq!(finding(over_http1([1_000, 1_100, 1_101], 408)), None, "no one age");
    assert_eq!(finding(over_http1([999, 999, 999], 408)), None, "nobody sets so short a timeout");
    let mut bodiless = over_http1([1_060, 1_100, 1_140], 408);
    bodiless.cell.work.body_bytes = 0;
    assert_eq!(finding(bodiless), None, "an idle connection may have ended");
}

#[test]
fn without_frames_a_success_that_took_longer_shows_that_there_is_no_timeout() {
    let beside = |longer: u64| {
        let mut record = over_http1([1_100; 3], 408);
        let mut whole = record.samples.get(0).expect("there are three");
        (whole.outcome, whole.status) = (Outcome::Succeeded, 200);
        whole.scheduled_at = Time::from_millis(30_000);
        whole.sent_at = whole.scheduled_at;
        whole.first_byte_at = Time::from_millis(30_000 + longer);
        whole.completed_at = whole.first_byte_at;
        record.samples.push(&whole);
        finding(record)
    };
    assert!(beside(1_100).is_some());
    assert_eq!(beside(1_101), None);
}
