//! When the connection window is the one that is too small.

use crate::diagnose::causes::views::transfer::Transfer;
use crate::diagnose::{Finding, run};
use h2lab_base::units::Time;
use h2lab_model::record::CellRecord;
use h2lab_wire::trace::{Direction, FrameEvent, FrameKind};

fn found(record: CellRecord) -> Vec<Finding> {
    run(&[record])
}

fn small(direction: Direction) -> Transfer {
    Transfer { connection_window: 65_535, ..Transfer::new(direction) }
}

#[test]
fn a_connection_window_that_was_not_raised_is_named_and_the_stream_window_is_not() {
    let mut record = small(Direction::Down).record();
    let found = found(record.clone());
    assert_eq!(found.iter().map(|finding| finding.rule.as_str()).collect::<Vec<_>>(), ["FLOW103"]);
    assert!(
        found[0].symptom.ends_with(
            "although its stream had credit: the client's connection window lets all streams together have 64 KiB per round \
             trip of 40 ms (13.1 Mbit/s at most)"
        ),
        "{}",
        found[0].symptom
    );
    assert_eq!(found[0].fixes[0].setting, "-W 4194304");
    assert!(found[0].cost_share > 0.7);
    record.frames.clear();
    assert_eq!(run(&[record]), [], "nothing recorded");
}

#[test]
fn for_uploads_it_is_the_servers() {
    let mut record = small(Direction::Up).record();
    record.connections[0].server_software = Some("h2lab/0.1.0".into());
    let found = found(record);
    assert_eq!(found[0].rule, "FLOW103");
    assert!(found[0].symptom.contains("the server's connection window"), "{}", found[0].symptom);
    assert_eq!(found[0].fixes[0].setting, "-W 4194304");
}

#[test]
fn credit_that_comes_with_the_servers_settings_belongs_to_its_window_although_data_was_sent_before() {
    let symptom = |flags: Option<u8>| {
        let mut record = Transfer { connection_window: 70 << 10, ..Transfer::new(Direction::Up) }.record();
        let is_credit = |frame: &&mut FrameEvent| frame.kind == FrameKind::WINDOW_UPDATE;
        let growth = record.frames.iter_mut().find(is_credit).expect("credit");
        assert_eq!((growth.stream.0, growth.value), (0, (70 << 10) - 65_535));
        growth.at = Time::from_millis(139);
        let settings =
            FrameEvent { at: Time::from_millis(138), kind: FrameKind::SETTINGS, value: 0, ..*growth };
        record.frames.extend(flags.map(|flags| FrameEvent { flags, ..settings }));
        record.frames.sort_by_key(|frame| frame.at);
        found(record).remove(0).symptom
    };
    let announced = symptom(Some(0));
    assert!(announced.ends_with("have 70 KiB per round trip of 40 ms (14.3 Mbit/s at most)"), "{announced}");
    for other in [Some(1), None] {
        assert!(symptom(other).contains(" 64 KiB per round trip"), "credit for what was sent: {other:?}");
    }
}

#[test]
fn where_both_windows_are_small_the_stream_window_is_the_one_to_raise_first() {
    for (direction, rule) in [(Direction::Down, "FLOW101"), (Direction::Up, "FLOW102")] {
        let both = small(direction).with_stream_window(64 << 10);
        let found = found(Transfer { connection_window: 1 << 20, ..both }.record());
        assert_eq!(found.iter().map(|finding| finding.rule.as_str()).collect::<Vec<_>>(), [rule]);
    }
}

#[test]
fn what_looks_alike_is_silent() {
    for direction in [Direction::Up, Direction::Down] {
        assert_eq!(found(Transfer::new(direction).record()), [], "large windows");
        assert_eq!(found(Transfer { rate: 640, ..small(direction) }.record()), [], "a full link");
        assert_eq!(found(Transfer { body: 65_535, ..small(direction) }.record()), [], "what fits");
    }
    assert_eq!(found(Transfer { read_rate: 300, ..small(Direction::Up) }.record()), [], "a slow reader");
}
