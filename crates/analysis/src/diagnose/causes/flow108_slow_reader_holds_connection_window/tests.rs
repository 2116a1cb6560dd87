//! Both sides of every threshold.

use crate::diagnose::testing::{self, Scene, frame, says};
use crate::diagnose::{Finding, run};
use h2lab_base::units::Time;
use h2lab_model::record::CellRecord;
use h2lab_model::workload::Protocol;
use h2lab_wire::trace::FrameKind;

/// Bytes of a connection window that was never raised.
const WINDOW: u32 = 65_535;

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("FLOW108", record)
}

/// A response on stream 1 that takes `held` of the window, and another one that takes the rest at 200 ms; nothing is
/// read until `read`.
fn record(held: u32, read: u64) -> CellRecord {
    let scene = Scene::new(Protocol::H2c).request(0, 1, 100, 125, read + 50);
    let mut record = scene.request(0, 3, 100, 125, read + 25).record();
    record.frames = vec![
        frame(FrameKind::DATA, 1, held, 199),
        frame(FrameKind::DATA, 3, WINDOW - held, 200),
        frame(FrameKind::WINDOW_UPDATE, 1, held, read),
        frame(FrameKind::WINDOW_UPDATE, 0, held, read),
    ];
    record
}

/// The same with this change, where one stream holds most of the window for 500 ms.
fn with(change: impl FnOnce(&mut CellRecord)) -> CellRecord {
    let mut record = record(60_000, 700);
    change(&mut record);
    record.frames.sort_by_key(|frame| frame.at);
    record
}

/// The same where the client returns 1 MiB of credit more.
fn raised(stream: u32, at: u64) -> CellRecord {
    with(|record| record.frames.push(frame(FrameKind::WINDOW_UPDATE, stream, 1 << 20, at)))
}

/// The same where the other request is on this connection, and is sent and answered then.
fn with_other(on: u32, sent: u64, completed: u64) -> CellRecord {
    with(|record| {
        let other = &mut record.samples.edit()[1];
        other.connection = on;
        (other.scheduled_at, other.sent_at) = (Time::from_millis(sent), Time::from_millis(sent));
        other.first_byte_at = Time::from_millis(completed);
        other.completed_at = Time::from_millis(completed);
    })
}

#[test]
fn a_response_that_nobody_reads_costs_the_others_the_time_without_credit() {
    let found = finding(record(60_000, 700)).expect("a finding");
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
fn it_explains_what_the_windows_alone_would_not() {
    let all: Vec<String> = run(&[record(60_000, 700)]).into_iter().map(|finding| finding.rule).collect();
    assert_eq!(all, ["FLOW108"]);
}

#[test]
fn one_stream_holds_most_of_the_window_for_long_and_others_wait_for_credit() {
    let fifths = WINDOW / 5 * 4;
    let mut without_link = record(60_000, 249);
    without_link.cell.link = None;
    for (record, is_found, why) in [
        (record(fifths, 700), true, "four fifths of the window"),
        (record(fifths - 1, 700), false, "several share it"),
        (record(60_000, 250), true, "two round trips of 25 ms"),
        (record(60_000, 249), false, "a client that reads sooner is no slow one"),
        (without_link, false, "50 ms, whatever the path"),
        (with_other(0, 100, 725), true, "another request waits"),
        (with_other(0, 100, 200), false, "it was answered before"),
        (with_other(0, 690, 725), false, "it had only begun"),
        (with_other(1, 100, 725), false, "on a connection of its own"),
        (with(|record| record.frames[1].length -= 1_023), true, "too little is left for anything"),
        (with(|record| record.frames[1].length -= 1_024), false, "something is left of the window"),
        (raised(0, 90), false, "a raised connection window keeps the others going"),
        (raised(0, 210), false, "it was raised in time"),
        (raised(1, 90), true, "a stream window that was raised before is no credit for what came"),
        // END_STREAM (RFC 9113 §6.1)
        (
            with(|record| record.frames[0].flags = 0x1),
            false,
            "its credit may come with the connection's alone",
        ),
    ] {
        assert_eq!(finding(record).is_some(), is_found, "{why}");
    }
}

#[test]
fn credit_that_never_comes_holds_until_the_end_of_the_record() {
    let never = with(|record| {
        record.frames.truncate(2);
        record.frames.push(frame(FrameKind::PING, 0, 8, 650));
    });
    says(&finding(never).expect("a finding").symptom, "…for 450 ms…");
}
