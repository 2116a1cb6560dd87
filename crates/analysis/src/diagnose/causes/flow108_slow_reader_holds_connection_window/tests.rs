//! Both sides of every threshold.

use crate::diagnose::testing::Scene;
use crate::diagnose::{Finding, run};
use h2lab_base::units::Time;
use h2lab_model::record::CellRecord;
use h2lab_model::workload::Protocol;
use h2lab_wire::StreamId;
use h2lab_wire::trace::{Direction, FrameEvent, FrameKind};

/// Bytes of a connection window that was never raised.
const WINDOW: u32 = 65_535;

fn findings(record: CellRecord) -> Vec<Finding> {
    run(&[record]).into_iter().filter(|finding| finding.rule == "FLOW108").collect()
}

/// DATA that arrives, or credit that the client returns.
fn frame(record: &mut CellRecord, kind: FrameKind, stream: u32, bytes: u32, at: u64) {
    let is_data = kind == FrameKind::DATA;
    record.frames.push(FrameEvent {
        at: Time::from_millis(at),
        connection: 0,
        stream: StreamId(stream),
        length: if is_data { bytes } else { 4 },
        value: if is_data { 0 } else { bytes },
        kind,
        flags: 0,
        direction: if is_data { Direction::Down } else { Direction::Up },
    });
    record.frames.sort_by_key(|frame| frame.at);
}

/// A response on stream 1 that takes `held` of the window, and another one that takes the rest at 200 ms; nothing is
/// read until `read`.
fn record(held: u32, read: u64) -> CellRecord {
    let scene = Scene::new(Protocol::H2c).request(0, 1, 100, 125, read + 50);
    let mut record = scene.request(0, 3, 100, 125, read + 25).record();
    record.frames.clear();
    frame(&mut record, FrameKind::DATA, 1, held, 199);
    frame(&mut record, FrameKind::DATA, 3, WINDOW - held, 200);
    frame(&mut record, FrameKind::WINDOW_UPDATE, 1, held, read);
    frame(&mut record, FrameKind::WINDOW_UPDATE, 0, held, read);
    record
}

#[test]
fn a_response_that_nobody_reads_costs_the_others_the_time_without_credit() {
    let found = findings(record(60_000, 700)).remove(0);
    // Stream 3 waited from 200 to 700 ms, of 650 and 625 ms together.
    assert!((found.cost_share - 500.0 / 1_275.0).abs() < 1e-6, "{}", found.cost_share);
    assert_eq!(
        found.symptom,
        "the client did not read a response (stream 1) for 500 ms, which held 58.59 KiB of the connection window of 64 KiB: 1 other \
         request waited"
    );
    assert_eq!(found.fixes[1].setting, "-W 16777216");
}

#[test]
fn a_response_that_has_ended_holds_nothing() {
    let mut record = record(60_000, 700);
    assert_eq!(findings(record.clone()).len(), 1);
    let ended = record.frames.iter_mut().find(|frame| frame.kind == FrameKind::DATA).unwrap();
    assert_eq!(ended.stream, StreamId(1));
    ended.flags = 0x1; // END_STREAM (RFC 9113 §6.1)
    assert!(findings(record).is_empty(), "its credit may have come back with the connection's alone");
}

#[test]
fn it_explains_what_the_windows_alone_would_not() {
    let all: Vec<String> = run(&[record(60_000, 700)]).into_iter().map(|finding| finding.rule).collect();
    assert_eq!(all, ["FLOW108"]);
}

#[test]
fn four_fifths_of_the_window_are_wanted() {
    let fifths = WINDOW / 5 * 4;
    assert_eq!(findings(record(fifths, 700)).len(), 1);
    assert_eq!(findings(record(fifths - 1, 700)), [], "several share it");
}

#[test]
fn a_client_that_reads_within_two_round_trips_or_50_ms_is_no_slow_one() {
    assert_eq!(findings(record(60_000, 250)).len(), 1, "two of 25 ms");
    assert_eq!(findings(record(60_000, 249)), []);
    let mut short = record(60_000, 249);
    short.cell.link = None;
    assert_eq!(findings(short), [], "whatever the path");
}

#[test]
fn another_request_must_wait() {
    let with_other = |connection: u32, sent: u64, completed: u64| {
        let mut record = record(60_000, 700);
        {
            let other = &mut record.samples.edit()[1];
            other.connection = connection;
            (other.scheduled_at, other.sent_at) = (Time::from_millis(sent), Time::from_millis(sent));
            other.first_byte_at = Time::from_millis(completed);
            other.completed_at = Time::from_millis(completed);
        }
        findings(record)
    };
    assert_eq!(with_other(0, 100, 725).len(), 1);
    assert_eq!(with_other(0, 100, 200), [], "it was answered before");
    assert_eq!(with_other(0, 690, 725), [], "it had only begun");
    assert_eq!(with_other(1, 100, 725), [], "on a connection of its own");
}

#[test]
fn what_is_left_of_the_window_is_no_hold() {
    let with_rest = |rest: u32| {
        let mut record = record(60_000, 700);
        record.frames[1].length -= rest;
        findings(record)
    };
    assert_eq!(with_rest(1_023).len(), 1);
    assert_eq!(with_rest(1_024), []);
}

#[test]
fn a_raised_connection_window_keeps_the_others_going() {
    let mut raised = record(60_000, 700);
    frame(&mut raised, FrameKind::WINDOW_UPDATE, 0, 1 << 20, 90);
    assert_eq!(findings(raised), []);
    let mut recovered = record(60_000, 700);
    frame(&mut recovered, FrameKind::WINDOW_UPDATE, 0, 1 << 20, 210);
    assert_eq!(findings(recovered), [], "it was raised in time");
}

#[test]
fn a_stream_window_that_was_raised_before_is_no_credit_for_what_came() {
    let mut raised = record(60_000, 700);
    frame(&mut raised, FrameKind::WINDOW_UPDATE, 1, 1 << 20, 90);
    assert_eq!(findings(raised).len(), 1);
}

#[test]
fn credit_that_never_comes_holds_until_the_end_of_the_record() {
    let mut never = record(60_000, 700);
    never.frames.truncate(2);
    frame(&mut never, FrameKind::PING, 0, 8, 650);
    let found = findings(never).remove(0);
    assert!(found.symptom.contains("for 450 ms"), "{}", found.symptom);
}
