//! When credit is late, and when the window is too small.

use crate::diagnose::causes::views::transfer::Transfer;
use crate::diagnose::{Finding, run};
use h2lab_model::record::CellRecord;
use h2lab_wire::trace::Direction;

fn found(record: CellRecord) -> Vec<Finding> {
    run(&[record])
}

/// A path that holds 64 KiB, and a window four times as large that is returned as a whole.
fn late(direction: Direction) -> Transfer {
    Transfer {
        rate: 1_638,
        body: 2 << 20,
        stream_window: 256 << 10,
        credit_after: 256 << 10,
        ..Transfer::new(direction)
    }
}

#[test]
fn credit_for_whole_windows_stops_responses_and_the_window_is_not_blamed() {
    let found = found(late(Direction::Down).record());
    assert_eq!(found.iter().map(|finding| finding.rule.as_str()).collect::<Vec<_>>(), ["FLOW106"]);
    assert!(found[0].symptom.contains("the client returns credit when its window of 256 KiB is used up"));
    assert!(found[0].fixes[0].setting.contains("--window-update-threshold 50"));
    // 160 ms of data, then a stop of a round trip of 40 ms.
    assert!((0.12..0.25).contains(&found[0].cost_share), "{}", found[0].cost);
}

#[test]
fn credit_at_half_of_the_window_is_in_time() {
    assert_eq!(found(Transfer { credit_after: 128 << 10, ..late(Direction::Down) }.record()), []);
    // For an upload the flow of data is not visible.
    assert_eq!(found(late(Direction::Up).record()), []);
}

#[test]
fn a_window_below_the_need_is_too_small_whenever_its_credit_comes() {
    let small = Transfer { stream_window: 48 << 10, credit_after: 48 << 10, ..late(Direction::Down) };
    let found = found(small.record());
    assert_eq!(found.iter().map(|finding| finding.rule.as_str()).collect::<Vec<_>>(), ["FLOW101"]);
}

#[test]
fn a_full_link_and_a_slow_server_are_silent() {
    let full = Transfer { credit_after: 16 << 10, ..late(Direction::Down) };
    assert_eq!(found(full.record()), []);
    assert_eq!(
        found(Transfer { pause: 20, ..late(Direction::Down) }.record()),
        [],
        "less than the window is under way"
    );
}
