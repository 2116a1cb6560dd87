//! Responses in TLS records that span round trips.

use super::*;
use crate::diagnose::waits::tls::testing::{APPLICATION, CLIENT as RANDOM, Ends, SERVER as ANSWER, hello_of};

/// 24 requests at 150 ms over TLS. Their responses of 600 bytes are in one record, of which an initial congestion
/// window arrives `after` milliseconds after the requests, and the rest one round trip of 20 ms later.
fn cut_by_the_window(after: u64) -> CellRecord {
    let mut ends = Ends::new(0x1301);
    let mut scene = Scene { capture: Capture::new(&ends.key_log()), ..Scene::new(0) };
    scene.packet(Direction::Up, 100, 0, SYN, &[2, 4, 5, 180], &[]);
    scene.packet(Direction::Down, 120, 0, SYN | ACK, &[2, 4, 5, 180], &[]);
    scene.say(Direction::Up, 120, &hello_of(1, RANDOM, 0, false));
    scene.say(Direction::Down, 140, &hello_of(2, ANSWER, 0x1301, true));
    let preface = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[])].concat();
    let streams = (0..24_u32).map(|n| 2 * n + 1);
    let requests = streams.clone().flat_map(|stream| frame(HEADERS, END, stream, &[0x82, 0x84, 0x86]));
    let asked: Vec<u8> = preface.into_iter().chain(requests).collect();
    scene.say(Direction::Up, 150, &ends.seal(Direction::Up, APPLICATION, &asked));
    let body = [0; 600];
    let answer = |stream| [frame(HEADERS, 4, stream, &[0x88]), frame(DATA, 1, stream, &body)].concat();
    let sealed = ends.seal(Direction::Down, APPLICATION, &streams.flat_map(answer).collect::<Vec<u8>>());
    let (first, rest) = sealed.split_at(10 * 1_448);
    for (at, part) in [(150 + after, first), (170 + after, rest)] {
        part.chunks(1_448).for_each(|segment| scene.say(Direction::Down, at, segment));
    }
    scene.finish().records.remove(0)
}

#[test]
fn a_record_that_is_whole_a_round_trip_later_is_no_time_of_the_server() {
    let slow = |record: &CellRecord| {
        diagnose::run(std::slice::from_ref(record)).iter().any(|finding| finding.rule == "HOST106")
    };
    let record = cut_by_the_window(20);
    let times: Vec<(u128, u128)> = record
        .samples
        .iter()
        .map(|sample| {
            (sample.time_to_first_byte().unwrap_or_default().as_millis(), sample.service_time().as_millis())
        })
        .collect();
    assert_eq!(times.len(), 24);
    assert_eq!((times[0], times[22]), ((20, 40), (20, 40)), "{times:?}");
    assert!(!slow(&record), "it has answered within the round trip");
    assert!(slow(&cut_by_the_window(60)), "40 ms are its own");
}
