//! Both sides of every threshold.

use crate::diagnose::testing::{self, Scene};
use crate::diagnose::{Confidence, Finding};
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, Outcome};
use h2lab_model::workload::Protocol;
use h2lab_wire::StreamId;
use h2lab_wire::h2::setting;
use h2lab_wire::trace::{Direction, FrameEvent, FrameKind};

const MOST: u32 = i32::MAX as u32;

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("FLOW111", record)
}

/// Ten requests, of which `failed` end with this outcome and code; no frames.
fn scene(failed: usize, outcome: Outcome, code: u32, body_bytes: u64) -> CellRecord {
    let mut record = Scene::requests(Protocol::H2c, 10).failing(failed, outcome, 0, code).record();
    record.frames.clear();
    record.cell.work.body_bytes = body_bytes;
    record
}

/// The same with frames: on `stream` credit of `more` bytes after DATA of 1,000, of which the windows were `initial`.
fn with_credit(mut record: CellRecord, data: Direction, stream: u32, initial: u32, more: u32) -> CellRecord {
    let frame = |at: u64, kind: FrameKind, direction: Direction, stream: u32, bytes: u32| FrameEvent {
        at: Time::from_millis(at),
        connection: 0,
        stream: StreamId(stream),
        length: if kind == FrameKind::DATA { bytes } else { 4 },
        value: if kind == FrameKind::DATA { 0 } else { bytes },
        kind,
        flags: 0,
        direction,
    };
    let http = &mut record.connections[0].http;
    let settings = match data {
        Direction::Up => &mut http.settings_remote,
        Direction::Down => &mut http.settings_local,
    };
    *settings = vec![(setting::INITIAL_WINDOW_SIZE, initial)];
    record.frames = vec![
        frame(100, FrameKind::DATA, data, 1, 1_000),
        frame(101, FrameKind::WINDOW_UPDATE, data.opposite(), stream, more),
    ];
    record
}

#[test]
fn credit_of_the_client_beyond_the_bound_is_seen_in_the_frames() {
    let with = |more: u32| with_credit(scene(2, Outcome::Reset, 3, 1_024), Direction::Down, 1, MOST, more);
    let found = finding(with(1_001)).expect("a finding");
    assert_eq!(
        found.symptom,
        "the server ended 2 of 10 requests with FLOW_CONTROL_ERROR, since the credit of the client took the window of \
         stream 1 to 2,147,483,648 bytes, above 2^31 - 1"
    );
    assert_eq!((found.confidence, found.evidence.len()), (Confidence::Observed, 2));
    assert_eq!(found.fixes[0].product, "client");
    assert!(found.of_failures);
    assert_eq!(finding(with(1_000)), None, "exactly the bound, and requests with bodies");
}

#[test]
fn the_connection_window_begins_with_the_default() {
    let with = |more: u32| with_credit(scene(2, Outcome::Reset, 3, 1_024), Direction::Down, 0, MOST, more);
    let bound = MOST - 65_535 + 1_000;
    assert!(finding(with(bound + 1)).is_some_and(|found| found.symptom.contains("the connection window")));
    assert_eq!(finding(with(bound)), None);
}

#[test]
fn credit_of_the_server_is_what_our_own_engine_refuses() {
    let with = |outcome: Outcome, more: u32| {
        finding(with_credit(scene(2, outcome, 3, 1_024), Direction::Up, 1, 65_535, more))
    };
    let found = with(Outcome::Protocol, MOST).expect("a finding");
    assert!(found.symptom.starts_with("the client ended 2 of 10 requests"), "{}", found.symptom);
    assert_eq!(found.fixes[0].product, "server");
    assert!(with(Outcome::Cancelled, MOST).is_some(), "a client of a capture");
    assert_eq!(with(Outcome::Protocol, 65_535), None, "DATA beyond a window has the same code");
}

#[test]
fn without_frames_it_is_inferred_where_the_client_has_sent_no_data() {
    let found = finding(scene(2, Outcome::Reset, 3, 0)).expect("a finding");
    assert_eq!(found.confidence, Confidence::Inferred);
    assert!(found.symptom.contains("though no request has a body"), "{}", found.symptom);
    assert_eq!(finding(scene(2, Outcome::Reset, 3, 1)), None);
    assert_eq!(finding(scene(1, Outcome::Reset, 3, 0)), None, "a single one");
    assert_eq!(finding(scene(2, Outcome::Reset, 8, 0)), None, "CANCEL");
    assert_eq!(finding(scene(2, Outcome::Protocol, 3, 0)), None, "DATA of the server beyond our window");
}
