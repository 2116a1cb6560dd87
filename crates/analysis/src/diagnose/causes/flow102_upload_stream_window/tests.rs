//! When a server's stream window is too small, and when something else is.

use std::collections::BTreeMap;

use crate::diagnose::causes::views::transfer::{Transfer, with_other_work};
use crate::diagnose::{Confidence, Finding, run};
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, Outcome, Sample};
use h2lab_wire::StreamId;
use h2lab_wire::trace::{Direction, FrameEvent, FrameKind};

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

/// Uploads of 512 KiB that begin at these ms, each through a window of four frames, over a round trip of 40 ms. The
/// link needs `link` ms for a frame, and the server returns the credit of `piece` frames at a time.
fn at_once(begins: &[u64], link: u64, piece: u64) -> CellRecord {
    const FRAME: u64 = 16 << 10;
    let mut record = Transfer { count: 0, ..upload().with_stream_window(4 * FRAME) }.record();
    // Credit by the time of its arrival and in the order in which it was given: the stream, and how many frames.
    let mut credit: BTreeMap<(u64, u64), (u32, u64)> = BTreeMap::new();
    let mut left: BTreeMap<u32, u64> = BTreeMap::new();
    for (stream, begin) in (1_u32..).step_by(2).zip(begins) {
        credit.insert((100 + *begin, u64::from(stream)), (stream, 4));
        left.insert(stream, 32);
    }
    let mut frame = |at: u64, direction, stream: u32, kind, length: u64, value: u64, flags| {
        record.frames.push(FrameEvent {
            at: Time::from_millis(at),
            connection: 0,
            stream: StreamId(stream),
            length: length as u32,
            value: value as u32,
            kind,
            flags,
            direction,
        });
    };
    let (mut free, mut given, mut read) = (0, 100, BTreeMap::<u32, u64>::new());
    let mut ended: Vec<(u32, u64, u64)> = Vec::new();
    while let Some(((at, _), (stream, frames))) = credit.pop_first() {
        let left = left.entry(stream).or_default();
        if *left == 32 {
            frame(at, Direction::Up, stream, FrameKind::HEADERS, 20, 0, 4);
        } else {
            frame(at, Direction::Down, stream, FrameKind::WINDOW_UPDATE, 4, frames * FRAME, 0);
        }
        for _ in 0..frames.min(*left) {
            *left -= 1;
            frame(at, Direction::Up, stream, FrameKind::DATA, FRAME, 0, u8::from(*left == 0));
            free = at.max(free) + link;
            let whole: &mut u64 = read.entry(stream).or_insert(0);
            *whole += 1;
            if whole.is_multiple_of(piece) {
                given += 1;
                credit.insert((free + 40, given), (stream, piece));
            }
            if *left == 0 {
                frame(free + 40, Direction::Down, stream, FrameKind::HEADERS, 20, 0, 5);
                ended.push((stream, begins[stream as usize / 2] + 100, free + 40));
            }
        }
    }
    record.frames.sort_by_key(|frame| frame.at);
    for (stream, begin, end) in ended {
        let [begin, end] = [begin, end].map(Time::from_millis);
        record.samples.push(&Sample {
            connection: 0,
            stream: StreamId(stream),
            sent_at: begin,
            first_byte_at: end,
            completed_at: end,
            outcome: Outcome::Succeeded,
            status: 200,
            ..Sample::due(begin, true)
        });
        record.connections[0].requests += 1;
    }
    record
}

#[test]
fn uploads_that_fill_the_link_together_do_not_wait_for_their_windows() {
    let cases: [(&[u64], u64, u64, bool, &str); 9] = [
        (&[0], 0, 1, true, "one waits a round trip"),
        (&[0, 0], 0, 1, true, "both wait at the same time, and nothing is on the way"),
        (&[0, 13], 0, 1, true, "one after the other, each as long as the path"),
        (&[0, 10, 20, 30], 0, 1, true, "one of four sends every 10 ms, and all credit comes in time"),
        // The credit of a frame is back 40 ms after the link has carried it.
        (&[0, 0], 5, 1, true, "two windows are 40 of 45 ms of the link"),
        (&[0, 0], 6, 1, false, "they are more than 46 ms: each waits for the other's data"),
        (&[0, 0], 5, 2, true, "40 of 50 ms, and none sends for a half of a round trip"),
        (&[0, 0, 0], 4, 1, false, "three windows are more than 44 ms"),
        (&[0, 0], 20, 1, false, "a link that is much too narrow"),
    ];
    for (begins, link, piece, is_found, why) in cases {
        let found = run(&[at_once(begins, link, piece)]);
        assert_eq!(found.iter().any(|finding| finding.rule == "FLOW102"), is_found, "{why}: {found:?}");
    }
}
