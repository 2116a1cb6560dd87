//! When the client reads slowly, and when its window is too small.

use crate::diagnose::causes::views::transfer::Transfer;
use crate::diagnose::{Finding, run};
use h2lab_wire::trace::Direction;

/// Through a window of 64 KiB whose credit returns as a whole, over 40 ms.
fn lumps() -> Transfer {
    Transfer { credit_after: 64 << 10, ..Transfer::new(Direction::Down).with_stream_window(64 << 10) }
}

/// The same where the client takes this many milliseconds to read 64 KiB.
fn read_in(millis: u64) -> Transfer {
    Transfer { read_rate: (64 << 10) / millis, ..lumps() }
}

fn rules(transfer: Transfer) -> Vec<Finding> {
    run(&[transfer.record()]).into_iter().filter(|finding| finding.rule.starts_with("FLOW")).collect()
}

fn names(transfer: Transfer) -> Vec<String> {
    rules(transfer).into_iter().map(|finding| finding.rule).collect()
}

#[test]
fn a_client_that_reads_slowly_is_named_and_its_window_is_not() {
    let found = rules(read_in(80));
    assert_eq!(found.iter().map(|finding| finding.rule.as_str()).collect::<Vec<_>>(), ["FLOW112"]);
    assert!(found[0].symptom.contains("28 times a response stopped"), "{}", found[0].symptom);
    assert!(found[0].symptom.contains("reads slowly"), "{}", found[0].symptom);
    assert!(found[0].symptom.contains("the round trip is 40 ms"), "{}", found[0].symptom);
    assert!(!found[0].fixes[0].setting.contains("-w"), "{:?}", found[0].fixes);
    // At least 60 ms of each cycle of 120 ms.
    assert!((0.4..0.75).contains(&found[0].cost_share), "{}", found[0].cost);
}

#[test]
fn reading_that_takes_less_than_a_round_trip_leaves_the_stop_to_the_window() {
    assert_eq!(names(read_in(30)), ["FLOW101"]);
    // A client that returns credit for half of its window holds it until the other half has come.
    assert_eq!(names(read_in(44)), ["FLOW101"]);
    assert_eq!(names(lumps()), ["FLOW101"]);
    // The reading time does not count as cost of the window.
    assert!(rules(read_in(30))[0].cost_share < rules(lumps())[0].cost_share - 0.1);
}

#[test]
fn two_stops_are_chance_and_three_are_not() {
    let stops = |count: u64| names(Transfer { body: (count + 1) << 16, count: 1, ..read_in(80) });
    assert_eq!(stops(2), Vec::<String>::new());
    assert_eq!(stops(3), ["FLOW112"]);
}

#[test]
fn a_window_that_nothing_fills_and_a_slow_server_are_silent() {
    let large = Transfer { stream_window: 16 << 20, credit_after: 8 << 20, ..read_in(80) };
    assert_eq!(names(large), Vec::<String>::new());
    assert_eq!(names(Transfer { pause: 100, ..read_in(80) }), Vec::<String>::new());
}
