//! When a stream window of ours is too small, and when something else is.

use crate::diagnose::causes::views::transfer::{Transfer, with_other_work};
use crate::diagnose::{Confidence, Finding, run};
use h2lab_model::record::CellRecord;
use h2lab_wire::trace::Direction;

fn finding(record: CellRecord) -> Option<Finding> {
    run(&[record]).into_iter().find(|finding| finding.rule.starts_with("FLOW"))
}

fn download() -> Transfer {
    Transfer::new(Direction::Down)
}

#[test]
fn responses_through_a_small_stream_window_name_it_and_what_it_lets_through() {
    let found = finding(download().with_stream_window(64 << 10).record()).expect("a finding");
    assert_eq!(found.rule, "FLOW101");
    assert_eq!(
        found.symptom,
        "28 times a response stopped for 40.0 ms on average, until credit for its stream had reached the server: the client's \
         stream window lets 64 KiB per round trip of 40 ms (13.1 Mbit/s measured) through"
    );
    // Eight windows take eight round trips, of which seven are stops.
    assert!((found.cost_share - 7.0 / 8.0).abs() < 0.01, "{}", found.cost);
    assert_eq!(found.confidence, Confidence::Inferred);
    assert_eq!(found.fixes[0].setting, "-w 4194304");
    assert!(
        found.fixes[0].why.contains("curl") || found.fixes[0].why.contains("Go"),
        "{}",
        found.fixes[0].why
    );
    assert!(found.confirm.contains("-w 4194304"), "{}", found.confirm);
}

#[test]
fn the_window_that_is_advised_is_eight_times_as_large_at_least() {
    let large = Transfer { body: 8 << 20, ..download() }.with_stream_window(1 << 20);
    assert_eq!(finding(large.record()).expect("a finding").fixes[0].setting, "-w 8388608");
}

#[test]
fn a_connection_window_as_small_belongs_into_the_fix() {
    let fixes = |connection_window| {
        let transfer = Transfer { connection_window, ..download().with_stream_window(64 << 10) };
        let found = finding(transfer.record()).expect("a finding");
        assert_eq!(found.rule, "FLOW101");
        found.fixes.into_iter().map(|fix| fix.setting).collect::<Vec<_>>()
    };
    assert_eq!(fixes((128 << 10) - 1), ["-w 4194304", "-W 4194304"]);
    assert_eq!(fixes(128 << 10), ["-w 4194304"], "twice as much passes with a larger stream window alone");
}

#[test]
fn two_stops_are_chance_and_three_are_not() {
    let stops = |count: u64| {
        let transfer = Transfer { body: (count + 1) << 16, count: 1, ..download() };
        finding(transfer.with_stream_window(64 << 10).record())
    };
    assert_eq!(stops(2), None);
    assert!(stops(3).is_some());
}

#[test]
fn what_costs_less_than_a_twentieth_is_not_worth_a_finding() {
    // The stops take 28 × 40 ms; the responses take 4 × 320 ms.
    let beside = |millis| finding(with_other_work(download().with_stream_window(64 << 10).record(), millis));
    assert!(beside(1_120 * 19 - 1_280).is_some());
    assert_eq!(beside(1_120 * 20 - 1_280 + 20), None);
}

#[test]
fn what_looks_alike_is_silent() {
    let small = download().with_stream_window(64 << 10);
    assert_eq!(finding(download().record()), None, "a large window");
    assert_eq!(finding(Transfer { slow_start: true, ..download() }.record()), None, "the congestion window");
    assert_eq!(finding(Transfer { rate: 640, ..small }.record()), None, "a full link");
    assert_eq!(finding(Transfer { pause: 20, ..small }.record()), None, "a slow server");
    assert_eq!(finding(Transfer { body: 64 << 10, ..small }.record()), None, "what fits into the window");
    let mut unseen = small.record();
    unseen.frames.clear();
    assert_eq!(finding(unseen), None, "nothing recorded");
}
