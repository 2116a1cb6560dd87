//! Packets of QUIC and their expected explanations, worked out by hand: see [`crate::diagnose::waits::tests`].

mod ends;

use proptest::prelude::*;

use super::packet::Keys;
use crate::diagnose::waits::Doubt;
use ends::{Ends, WINDOW, ack, credit, stream, stream_credit};
use h2lab_wire::trace::Direction::{Down, Up};

/// The intervals of the request on its way up, and of the server, which answers at 115 ms.
const ASKED: [&str; 2] = ["100..110 the propagation", "110..115 the server"];

/// Asserts the intervals of the first request: [`ASKED`], and then `rest`, which may replace the second interval of
/// [`ASKED`] by a longer one.
#[track_caller]
fn assert_rendered(ends: &Ends, rest: &[&str]) {
    let goes_on = rest[0].starts_with("110..");
    assert_eq!(ends.scene.rendered(0), [&ASKED[..if goes_on { 1 } else { 2 }], rest].concat());
    assert_eq!(ends.scene.waits().doubts, []);
}

#[test]
fn a_loss_on_a_stream_delays_that_one_alone() {
    let mut ends = Ends::connected();
    ends.ask(0);
    ends.ask(4);
    let lost = ends.lose(Down, 115, &stream(0, 0, b"response", true));
    ends.send(Down, 115, &stream(4, 0, b"response", true));
    ends.send(Up, 125, &ack(1, 1));
    ends.send(Down, 136, &stream(0, 0, b"response", true));
    ends.scene.request(1, 100, 146);
    ends.scene.request(3, 100, 125);
    let own = format!("125..146 its own lost segment (down {lost}), fast retransmit");
    assert_rendered(&ends, &["115..125 the propagation", &own]);
    assert_eq!(ends.scene.rendered(1), [&ASKED[..], &["115..125 the propagation"]].concat());
}

#[test]
fn a_loss_that_nothing_reveals_is_found_by_a_probe_and_may_be_lost_again() {
    let mut ends = Ends::connected();
    ends.ask(0);
    let bytes = stream(0, 0, b"response", true);
    let first = ends.lose(Down, 115, &bytes);
    // The second half again, then the first.
    let second = ends.lose(Down, 170, &stream(0, 4, b"onse", true));
    ends.send(Down, 175, &stream(0, 0, b"resp", false));
    ends.send(Down, 290, &stream(0, 4, b"onse", true));
    ends.scene.request(1, 100, 300);
    let expected = [
        "115..125 the propagation".to_owned(),
        format!("125..180 its own lost segment (down {first}), tail-loss probe"),
        format!("180..300 its own lost segment (down {second}), tail-loss probe"),
    ];
    assert_rendered(&ends, &expected.each_ref().map(String::as_str));
}

#[test]
fn the_end_of_a_stream_is_waited_for_as_well() {
    let mut ends = Ends::connected();
    ends.ask(0);
    ends.send(Down, 115, &stream(0, 0, b"response", false));
    ends.send(Down, 165, &stream(0, 8, b"", true));
    ends.scene.request(1, 100, 180);
    assert_rendered(&ends, &["110..165 the server", "165..175 the propagation", "175..180 the client"]);
}

#[test]
fn a_request_that_is_lost_waits_for_its_own() {
    let mut ends = Ends::connected();
    let lost = ends.lose(Up, 100, &stream(0, 0, &[1, 1, 0], true));
    ends.send(Up, 150, &stream(0, 0, &[1, 1, 0], true));
    ends.send(Down, 160, &stream(0, 0, b"response", true));
    ends.scene.request(1, 95, 170);
    assert_eq!(
        ends.scene.rendered(0),
        [
            "95..100 the client",
            "100..110 the propagation",
            &format!("110..160 its own lost segment (up {lost}), tail-loss probe"),
            "160..170 the propagation",
        ]
    );
}

#[test]
fn a_window_that_is_used_up_is_waited_for_until_its_credit_can_be_read() {
    let body = [7; 1500];
    // Credit for the stream; for the connection, whose window another response has partly used; and for neither.
    let cases = [
        (Ends::connected_with(WINDOW, 1000), 1000, stream_credit(0, 2000), "stream"),
        (Ends::connected_with(1000, WINDOW), 600, credit(2000), "connection"),
    ];
    for (mut ends, first, granted, whose) in cases {
        ends.ask(0);
        ends.ask(4);
        ends.send(Down, 115, &stream(4, 0, &body[..400], true));
        ends.send(Down, 115, &stream(0, 0, &body[..first], false));
        ends.send(Up, 130, &granted);
        ends.send(Down, 140, &stream(0, first as u32, &body[first..], true));
        ends.scene.request(1, 100, 150);
        assert_rendered(
            &ends,
            &[&format!("115..140 the {whose}'s flow-control window"), "140..150 the propagation"],
        );
    }
    let mut ends = Ends::connected_with(1000, 1000);
    ends.ask(0);
    ends.send(Down, 115, &stream(0, 0, &body[..999], false));
    ends.send(Down, 140, &stream(0, 999, &body[..1], true));
    ends.scene.request(1, 100, 150);
    assert_rendered(&ends, &["110..140 the server", "140..150 the propagation"]);
}

#[test]
fn credit_that_was_lost_is_named() {
    let mut ends = Ends::connected_with(WINDOW, 1000);
    ends.ask(0);
    ends.send(Down, 115, &stream(0, 0, &[7; 1000], false));
    let lost = ends.lose(Up, 130, &stream_credit(0, 2000));
    ends.send(Up, 160, &stream_credit(0, 2000));
    ends.send(Down, 170, &stream(0, 1000, &[7; 500], true));
    ends.scene.request(1, 100, 180);
    assert_rendered(
        &ends,
        &[
            "115..140 the stream's flow-control window",
            &format!("140..170 the stream's flow-control window, whose update was lost (up {lost})"),
            "170..180 the propagation",
        ],
    );
}

#[test]
fn a_response_that_never_gets_its_credit_waits_for_the_window_to_the_end() {
    let mut ends = Ends::connected_with(WINDOW, 1000);
    ends.ask(0);
    ends.send(Down, 115, &stream(0, 0, &[7; 1000], false));
    ends.scene.request(1, 100, 300);
    assert_rendered(&ends, &["115..125 the propagation", "125..300 the stream's flow-control window"]);
}

#[test]
fn a_server_that_pauses_is_the_server() {
    let mut ends = Ends::connected();
    ends.ask(0);
    ends.send(Down, 115, &stream(0, 0, &[7; 100], false));
    ends.send(Up, 125, &ack(0, 0));
    ends.send(Down, 165, &stream(0, 100, &[7; 100], true));
    ends.scene.request(1, 100, 175);
    assert_rendered(&ends, &["110..165 the server", "165..175 the propagation"]);
}

#[test]
fn a_sender_that_goes_on_when_an_acknowledgement_comes_was_held_by_its_congestion_window() {
    let mut ends = Ends::connected();
    ends.ask(0);
    for offset in [0, 1200] {
        ends.send(Down, 115, &stream(0, offset, &[7; 1200], false));
    }
    ends.send(Up, 125, &ack(0, 0));
    ends.send(Down, 135, &stream(0, 2400, &[7; 1200], true));
    ends.scene.request(1, 100, 145);
    assert_rendered(&ends, &["115..135 the congestion window", "135..145 the propagation"]);
}

#[test]
fn a_loss_that_shrank_the_congestion_window_is_named() {
    let mut ends = Ends::connected();
    ends.ask(0);
    let lost = ends.lose(Down, 115, &stream(0, 0, &[7; 1200], false));
    for offset in [1200, 2400, 3600, 4800] {
        ends.send(Down, 115, &stream(0, offset, &[7; 1200], false));
    }
    ends.send(Up, 125, &ack(1, 3));
    ends.send(Down, 135, &stream(0, 0, &[7; 1200], false));
    ends.send(Up, 145, &ack(1, 5));
    ends.send(Down, 155, &stream(0, 6000, &[7; 100], true));
    ends.scene.request(1, 100, 165);
    assert_rendered(
        &ends,
        &[
            &format!("115..125 the congestion window, after a loss (down {lost})"),
            &format!("125..145 its own lost segment (down {lost}), fast retransmit"),
            &format!("145..155 the congestion window, after a loss (down {lost})"),
            "155..165 the propagation",
        ],
    );
}

#[test]
fn the_handshake_and_its_losses_are_waited_for_before_the_first_stream() {
    let mut ends = Ends::new();
    let lost = ends.hello(0, false, WINDOW, WINDOW);
    ends.hello(40, true, WINDOW, WINDOW);
    ends.server_hello(50, true);
    ends.finish(60);
    ends.ask(0);
    ends.send(Down, 115, &stream(0, 0, b"response", true));
    let sample = ends.scene.request(1, 0, 125);
    sample.sent_at = h2lab_base::units::Time::from_millis(60);
    sample.stall_open_ns = 90_000_000;
    assert_eq!(
        ends.scene.rendered(0),
        [
            "0..10 the handshake",
            &format!("10..50 a lost packet of the handshake (up {lost})"),
            "50..60 the handshake",
            "60..90 the stream slot",
            "90..100 the client",
            "100..110 the propagation",
            "110..115 the server",
            "115..125 the propagation",
        ]
    );
}

#[test]
fn a_server_that_never_answers_leaves_the_handshake() {
    let mut ends = Ends::new();
    ends.hello(0, true, WINDOW, WINDOW);
    ends.scene.request(1, 5, 100);
    assert_eq!(ends.scene.rendered(0), ["5..100 the handshake"]);
}

#[test]
fn a_queue_and_a_request_that_was_not_sent_are_told_apart() {
    let mut ends = Ends::connected();
    ends.ask(0);
    let index = ends.send(Down, 115, &stream(0, 0, b"response", true));
    let late =
        ends.scene.packets().iter_mut().find(|(record, _)| record.direction == Down && record.index == index);
    late.unwrap().0.out_at = h2lab_base::units::Time::from_millis(145);
    ends.scene.request(1, 100, 145);
    ends.scene.request(3, 100, 120).stall_open_ns = 5_000_000;
    ends.scene.request(5, 100, 120).connection = 7;
    assert_rendered(&ends, &["115..125 the propagation", "125..145 the link queue"]);
    assert_eq!(ends.scene.rendered(1), ["100..105 the stream slot", "105..120 the client"]);
    assert_eq!(ends.scene.rendered(2), ["100..120 the stream slot"]);
    ends.scene.unrecorded = 1;
    assert_eq!(ends.scene.rendered(1), ["100..120 the unknown"]);
    assert_eq!(ends.scene.waits().doubts, [Doubt::NotFound { requests: 1 }]);
}

#[test]
fn keys_that_are_updated_a_retry_and_ports_that_are_used_again_are_followed() {
    let updated = || {
        let mut ends = Ends::connected();
        ends.keys.iter_mut().for_each(Keys::update);
        ends
    };
    let retried = || {
        let mut ends = Ends::new();
        ends.hello(0, true, WINDOW, WINDOW);
        ends.retry(10);
        ends.hello(20, true, WINDOW, WINDOW);
        ends.server_hello(30, true);
        ends.finish(40);
        ends
    };
    let again = || {
        let mut ends = Ends::connected();
        ends.send(Up, 30, &stream(0, 0, &[1, 1, 0], true));
        ends.connect_again(40);
        ends
    };
    for mut ends in [updated(), retried(), again()] {
        ends.ask(0);
        ends.send(Down, 115, &stream(0, 0, b"response", true));
        ends.scene.request(1, 100, 125);
        assert_rendered(&ends, &["115..125 the propagation"]);
    }
}

#[test]
fn without_secrets_or_with_packets_that_they_do_not_open_it_is_a_doubt() {
    let asked = || {
        let mut ends = Ends::connected();
        ends.ask(0);
        ends.send(Down, 115, &stream(0, 0, b"response", true));
        ends.scene.request(1, 100, 125);
        ends
    };
    let mut ends = asked();
    ends.scene.key_log.clear();
    assert_eq!(ends.scene.waits().doubts, [Doubt::Quic { requests: 1, beside_drops: 0 }]);
    assert_eq!(ends.scene.waits().breakdowns, []);

    let mut ends = asked();
    ends.scene.datagram(Down, (120, Some(130)), &[0x40; 60]);
    let waits = ends.scene.waits();
    assert_eq!(waits.doubts, [Doubt::BytesMissing { connections: 1 }]);
    assert_eq!(waits.breakdowns.len(), 1, "what was read stays");
}

/// What an end does next.
#[derive(Debug, Clone)]
enum Step {
    Stream { is_up: bool, id: u8, offset: u16, length: u8, ends: bool },
    Ack { is_up: bool, last: u8 },
    Frames { is_up: bool, bytes: Vec<u8> },
    Datagram { is_up: bool, bytes: Vec<u8> },
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..60);
    prop_oneof![
        4 => (any::<bool>(), 0_u8..4, 0_u16..2000, any::<u8>(), any::<bool>()).prop_map(
            |(is_up, id, offset, length, ends)| Step::Stream { is_up, id: id * 4, offset, length, ends }
        ),
        2 => (any::<bool>(), any::<u8>()).prop_map(|(is_up, last)| Step::Ack { is_up, last }),
        1 => (any::<bool>(), bytes()).prop_map(|(is_up, bytes)| Step::Frames { is_up, bytes }),
        1 => (any::<bool>(), bytes()).prop_map(|(is_up, bytes)| Step::Datagram { is_up, bytes }),
    ]
}

proptest! {
    #[test]
    fn whatever_the_ends_send_every_breakdown_is_a_partition(
        steps in prop::collection::vec((step(), 0_u64..20, any::<bool>()), 0..40),
        window in prop_oneof![Just(500), Just(WINDOW)],
    ) {
        let mut ends = Ends::connected_with(window, window);
        let mut at = 30;
        for (step, pause, arrives) in steps {
            at += pause;
            let way = |is_up| if is_up { Up } else { Down };
            let (direction, frames) = match step {
                Step::Stream { is_up, id, offset, length, ends } => {
                    (way(is_up), stream(id.into(), offset.into(), &vec![7; length.into()], ends))
                }
                Step::Ack { is_up, last } => (way(is_up), ack(0, last.into())),
                Step::Frames { is_up, bytes } => (way(is_up), bytes),
                Step::Datagram { is_up, bytes } => {
                    ends.scene.datagram(way(is_up), (at, arrives.then_some(at + 10)), &bytes);
                    continue;
                }
            };
            if arrives { ends.send(direction, at, &frames) } else { ends.lose(direction, at, &frames) };
        }
        for n in 0..4 {
            ends.scene.request(2 * n + 1, 25 + u64::from(n) * 10, at + 50);
        }
        let waits = ends.scene.waits();
        prop_assert_eq!(waits.breakdowns.len(), 4);
        for breakdown in &waits.breakdowns {
            let parts = &breakdown.intervals;
            prop_assert_eq!(parts.first().map(|part| part.from), Some(breakdown.scheduled_at));
            prop_assert_eq!(parts.last().map(|part| part.until), Some(breakdown.completed_at));
            prop_assert!(parts.is_sorted_by(|a, b| a.until == b.from && a.from < a.until));
        }
    }
}
