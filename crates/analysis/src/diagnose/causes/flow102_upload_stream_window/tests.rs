//! When a server's stream window is too small, and when something else is.

use crate::diagnose::causes::views::transfer::{Transfer, with_other_work};
use crate::diagnose::{Confidence, Finding, run};
use h2lab_model::record::CellRecord;
use h2lab_wire::trace::Direction;

fn finding(record: CellRecord) -> Option<Finding> {
    run(&[record]).into_iter().find(|finding| finding.rule.starts_with("FLOW"))
}

fn upload() -> Transfer {
    Transfer::new(Direction::Up)
}

#[test]
fn bodies_that_wait_for_the_servers_credit_name_its_stream_window_and_setting() {
    let mut record = upload().with_stream_window(64 << 10).record();
    record.connections[0].server_software = Some("nginx/1.27.0".into());
    let found = finding(record).expect("a finding");
    assert_eq!(found.rule, "FLOW102");
    assert_eq!(
        found.symptom,
        "28 times a request body stopped for 40.0 ms on average, until the server gave its stream credit: the server's stream \
         window lets 64 KiB per round trip of 40 ms (13.1 Mbit/s measured) through"
    );
    assert_eq!(found.confidence, Confidence::Observed);
    assert_eq!(found.fixes[0].product, "nginx");
    assert!(found.fixes[0].setting.starts_with("http2_body_preread_size"), "{:?}", found.fixes[0]);
    // Eight round trips with seven stops, and half a round trip each for the first bytes and the answer.
    assert!((found.cost_share - 7.0 / 8.0).abs() < 0.01, "{}", found.cost);
}

#[test]
fn where_both_windows_are_used_up_and_come_back_together_it_is_the_streams() {
    let both = Transfer { connection_window: 65_535, ..upload().with_stream_window(65_535) };
    assert_eq!(finding(both.record()).map(|found| found.rule).as_deref(), Some("FLOW102"));
    let late = Transfer { connection_window: 65_535, ..upload().with_stream_window(128 << 10) };
    assert_eq!(finding(late.record()).map(|found| found.rule).as_deref(), Some("FLOW103"));
}

#[test]
fn two_stops_are_chance_and_three_are_not() {
    let stops = |count: u64| {
        let transfer = Transfer { body: (count + 1) << 16, count: 1, ..upload() };
        finding(transfer.with_stream_window(64 << 10).record())
    };
    assert_eq!(stops(2), None);
    assert!(stops(3).is_some());
}

#[test]
fn what_costs_less_than_a_twentieth_is_not_worth_a_finding() {
    let beside = |millis| finding(with_other_work(upload().with_stream_window(64 << 10).record(), millis));
    assert!(beside(1_120 * 19 - 1_280).is_some());
    assert_eq!(beside(1_120 * 20 - 1_280 + 20), None);
}

#[test]
fn what_looks_alike_is_silent() {
    let small = upload().with_stream_window(64 << 10);
    assert_eq!(finding(upload().record()), None, "a large window");
    assert_eq!(finding(Transfer { rate: 640, ..small }.record()), None, "a full link");
    assert_eq!(finding(Transfer { read_rate: 300, ..small }.record()), None, "a handler that reads slowly");
    assert_eq!(finding(Transfer { body: 64 << 10, ..small }.record()), None, "what fits into the window");
    let short = Transfer { body: 100 << 10, slow_start: true, credit_after: 1, ..small };
    assert_eq!(finding(short.record()), None, "the first flights of TCP");
}

#[test]
fn a_long_body_is_found_although_its_first_flights_are_those_of_tcp() {
    let long = Transfer { slow_start: true, ..upload().with_stream_window(64 << 10) };
    let found = finding(long.record()).expect("a finding");
    assert_eq!(found.rule, "FLOW102");
    assert!((0.4..0.8).contains(&found.cost_share), "{}", found.cost);
}
