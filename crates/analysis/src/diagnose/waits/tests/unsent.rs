//! Requests that never entered the link: what their near end waited for, and when that is unknown.

use super::*;
use crate::diagnose::waits::{CauseKind, Doubt};
use h2lab_model::record::Sample;
use h2lab_model::workload::Protocol;
use h2lab_wire::h2::setting;
use h2lab_wire::trace::Direction::{Down, Up};

/// DATA that fills a segment.
fn full(stream: u32) -> Vec<u8> {
    data(stream, usize::from(scene::MAX_SEGMENT) - 9, false)
}

/// A sidecar whose one connection has begun a request at 100 ms.
fn begun() -> Scene {
    let mut scene = Scene::with_sidecar();
    scene.connect(0, 0);
    scene.send(Up, 20, &hello());
    scene.send(Down, 30, &settings(setting::MAX_CONCURRENT_STREAMS, 100));
    scene.send(Up, 100, &headers(1, Some(0), false));
    scene.request(77, 100, 400);
    scene
}

#[test]
fn behind_a_loss_that_is_not_repaired_it_waits_for_the_congestion_window() {
    let mut scene = begun();
    let lost = scene.lose(Up, 100, &full(1));
    scene.send(Up, 100, &full(1));
    scene.ack(Down, 110, true);
    scene.request(0, 110, 400);
    assert_eq!(
        scene.rendered(1),
        [format!("110..400 the congestion window, after a loss (up {})", lost.index)]
    );
    assert!(scene.waits().breakdowns[1].never_went() && !scene.waits().breakdowns[0].never_went());
    assert_eq!(scene.waits().breakdowns[1].place, None);
    assert_eq!(scene.waits().doubts, [], "all is known");
}

#[test]
fn the_window_holds_until_what_was_sent_is_acknowledged() {
    let mut scene = begun();
    scene.send(Up, 100, &full(1));
    scene.ack(Down, 140, true);
    scene.request(0, 110, 400);
    assert_eq!(scene.rendered(1), ["110..150 the congestion window", "150..400 the client"]);
}

#[test]
fn behind_a_connection_that_had_sent_all_the_near_end_had_it() {
    let mut scene = begun();
    scene.send(Up, 100, &data(1, 100, false));
    scene.ack(Down, 140, true);
    scene.request(0, 110, 400);
    assert_eq!(scene.rendered(1), ["110..400 the client"]);
}

#[test]
fn while_others_go_the_near_end_had_it_and_while_they_are_held_it_was_held_with_them() {
    let mut scene = begun();
    let mut last = scene.lose(Up, 100, &full(1));
    scene.send(Up, 100, &full(1));
    scene.ack(Down, 110, true);
    // A timeout, whose retransmission is lost too.
    for (at, arrives) in [(300, false), (700, true)] {
        last.index = scene.again(&last, at, arrives);
    }
    scene.ack(Down, 710, true);
    scene.send(Up, 720, &[data(1, 10, true), headers(3, Some(2), true)].concat());
    scene.ack(Down, 730, true);
    scene.send(Up, 800, &headers(5, Some(3), true));
    scene.request(0, 50, 900);
    scene.request(78, 105, 900);
    assert_eq!(
        scene.rendered(1),
        [
            "50..100 the client".to_owned(),
            format!("100..720 the congestion window, after a loss (up {})", last.index - 1),
            "720..900 the client".to_owned(),
        ]
    );
    let late = &scene.rendered(2)[0];
    assert!(late.starts_with("105..720 the congestion window"), "over a timeout of 400 ms, too: {late}");
}

#[test]
fn a_connection_that_is_open_lets_it_go_until_it_ends() {
    let mut scene = begun();
    scene.lose(Up, 100, &full(1));
    scene.connect(1, 60);
    scene.send(Up, 80, &hello());
    scene.send(Up, 100, &headers(1, Some(9), true));
    scene.ack(Down, 110, true);
    scene.fin(Up, 200);
    scene.request(0, 110, 400);
    let rendered = scene.rendered(1);
    assert_eq!(rendered[0], "110..200 the client");
    assert!(rendered[1].starts_with("200..400 the congestion window, after a loss"), "{rendered:?}");
}

#[test]
fn a_connection_lets_nothing_go_once_the_client_has_read_a_goaway() {
    let mut scene = begun();
    scene.lose(Up, 100, &full(1));
    scene.connect(1, 60);
    scene.send(Up, 80, &hello());
    scene.send(Up, 100, &headers(1, Some(9), true));
    scene.ack(Down, 110, true);
    // Without an error, and with the last stream still open.
    scene.send(Down, 190, &scene::frame(7, 0, 0, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]));
    scene.request(0, 110, 400);
    let rendered = scene.rendered(1);
    assert_eq!(rendered[0], "110..200 the client");
    assert!(rendered[1].starts_with("200..400 the congestion window, after a loss"), "{rendered:?}");
}

#[test]
fn a_server_that_takes_no_more_streams_keeps_it() {
    let mut scene = Scene::with_sidecar();
    scene.connect(0, 0);
    scene.send(Up, 20, &hello());
    scene.send(Down, 30, &settings(setting::MAX_CONCURRENT_STREAMS, 1));
    scene.send(Up, 100, &headers(1, Some(0), true));
    scene.send(Down, 290, &headers(1, None, true));
    scene.request(77, 100, 300);
    scene.request(0, 110, 400);
    assert_eq!(scene.rendered(1), ["110..300 the stream slot", "300..400 the client"]);
}

#[test]
fn a_limit_of_streams_holds_from_when_the_client_knows_it_to_the_next() {
    // One stream at a time; a hundred from 150 on, which the client receives at 160; one again from 190.
    let mut scene = Scene::with_sidecar();
    scene.connect(0, 0);
    scene.send(Up, 20, &hello());
    scene.send(Down, 30, &settings(setting::MAX_CONCURRENT_STREAMS, 1));
    scene.send(Up, 100, &headers(1, Some(0), true));
    scene.send(Down, 150, &settings(setting::MAX_CONCURRENT_STREAMS, 100));
    scene.send(Down, 190, &settings(setting::MAX_CONCURRENT_STREAMS, 1));
    scene.send(Down, 290, &headers(1, None, true));
    scene.request(77, 100, 300);
    scene.request(0, 110, 400);
    assert_eq!(
        scene.rendered(1),
        [
            "110..160 the stream slot",
            "160..200 the client",
            "200..300 the stream slot",
            "300..400 the client"
        ]
    );
}

#[test]
fn a_stream_that_either_side_cancelled_makes_room_for_another() {
    let cancel = scene::frame(3, 0, 1, &8_u32.to_be_bytes());
    // The stream is closed when the client sends its RST_STREAM, even if parts of the response arrive later, or when it
    // has read the server's.
    for (direction, free) in [(Up, 200), (Down, 210)] {
        let mut scene = Scene::with_sidecar();
        scene.connect(0, 0);
        scene.send(Up, 20, &hello());
        scene.send(Down, 30, &settings(setting::MAX_CONCURRENT_STREAMS, 1));
        scene.send(Up, 100, &headers(1, Some(0), true));
        scene.send(Down, 130, &headers(1, None, false));
        scene.send(direction, 200, &cancel);
        scene.send(Down, 205, &data(1, 100, false));
        scene.request(77, 100, 300);
        scene.request(0, 110, 400);
        assert_eq!(
            scene.rendered(1),
            [format!("110..{free} the stream slot"), format!("{free}..400 the client")]
        );
    }
}

/// Two requests of HTTP/1.1 on a sidecar's only connection; the second one begins at 200 ms and is never answered.
fn http1() -> Scene {
    let mut scene = Scene::with_sidecar();
    let request = |id| format!("GET / HTTP/1.1\r\nhost: a\r\nx-h2lab-id: {id}\r\n\r\n").into_bytes();
    scene.connect(0, 0);
    scene.send(Up, 100, &request(0));
    scene.send(Down, 130, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    scene.send(Up, 200, &request(7));
    scene.request(0, 100, 140);
    scene
}

#[test]
fn a_connection_of_http1_has_room_for_one() {
    let mut scene = http1();
    scene.request(0, 105, 400);
    let expected = ["105..140 the stream slot", "140..200 the client", "200..400 the stream slot"];
    assert_eq!(scene.rendered(1), expected);
}

#[test]
fn a_connection_that_is_set_up_is_waited_for_when_there_is_no_other() {
    let mut scene = http1();
    scene.fin(Up, 240);
    scene.request(0, 245, 400);
    assert_eq!(scene.rendered(1), ["245..400 the client"]);
    scene.connect(1, 250);
    assert_eq!(scene.rendered(1), ["245..250 the client", "250..270 the handshake", "270..400 the client"]);
}

#[test]
fn a_syn_that_is_lost_is_waited_for_to_the_end() {
    let mut scene = http1();
    scene.fin(Up, 240);
    scene.on(1).syn(Up, 250, false);
    scene.request(0, 245, 400);
    let rendered = scene.rendered(1);
    assert_eq!(rendered[..2], ["245..250 the client", "250..260 the handshake"]);
    assert!(rendered[2].starts_with("260..400 a lost packet of the handshake (up "), "{rendered:?}");
}

#[test]
fn a_syn_that_nobody_answers_is_waited_for_until_the_next_one() {
    let mut scene = http1();
    scene.fin(Up, 240);
    scene.on(1).syn(Up, 250, false);
    // A retransmission on the same connection is not a new one.
    scene.syn(Up, 260, false);
    scene.connect(2, 280);
    scene.fin(Up, 320);
    scene.request(0, 245, 400);
    let rendered = scene.rendered(1);
    assert_eq!(rendered[..2], ["245..250 the client", "250..260 the handshake"]);
    let [.., lost, again, setting_up, client] = &rendered[..] else { panic!("{rendered:?}") };
    assert!(lost.starts_with("260..270 a lost packet of the handshake (up "), "{rendered:?}");
    assert!(again.starts_with("270..280 a lost packet of the handshake (up "), "{rendered:?}");
    assert_eq!([setting_up, client], ["280..300 the handshake", "300..400 the client"], "{rendered:?}");
}

#[test]
fn a_handshake_that_a_side_gives_up_is_over() {
    let mut scene = http1();
    scene.fin(Up, 240);
    scene.record.cell.protocol = Protocol::H1s;
    scene.connect(1, 250);
    // The beginning of a TLS record, never completed.
    scene.send(Up, 270, &[22, 3, 1]);
    scene.request(0, 245, 400);
    assert_eq!(scene.rendered(1), ["245..250 the client", "250..400 the handshake"]);
    scene.fin(Down, 330);
    assert_eq!(scene.rendered(1), ["245..250 the client", "250..330 the handshake", "330..400 the client"]);
}

#[test]
fn a_connection_that_nobody_has_used_yet_lets_it_go_in_clear_once_its_syn_is_answered() {
    for (protocol, at_once) in [(Protocol::H1, true), (Protocol::H1s, false)] {
        let mut scene = http1();
        scene.record.cell.protocol = protocol;
        scene.connect(1, 250);
        scene.request(0, 245, 400);
        let held = ["245..400 the stream slot"];
        let open = ["245..270 the stream slot", "270..400 the client"];
        assert_eq!(scene.rendered(1), if at_once { &open[..] } else { &held[..] });
    }
}

#[test]
fn a_connection_in_clear_is_set_up_no_longer_once_it_could_be_used() {
    let mut scene = Scene::with_sidecar();
    scene.record.cell.protocol = Protocol::H1;
    scene.connect(0, 0);
    scene.send(Up, 300, b"GET / HTTP/1.1\r\nhost: a\r\nx-h2lab-id: 7\r\n\r\n");
    scene.request(0, 5, 300);
    assert_eq!(scene.rendered(0), ["5..20 the handshake", "20..300 the client"]);
}

#[test]
fn what_the_generator_could_not_hand_over_waited_for_its_connection() {
    for (is_direct, expected) in [
        (false, vec!["110..150 the congestion window", "150..310 the stream slot", "310..400 the client"]),
        (true, vec!["110..310 the stream slot", "310..400 the client"]),
    ] {
        let mut scene = begun();
        if is_direct {
            scene.record.cell.sidecar = None;
        }
        scene.send(Up, 100, &full(1));
        scene.ack(Down, 140, true);
        scene.request(0, 110, 400).stall_open_ns = 200_000_000;
        assert_eq!(scene.rendered(1), expected);
    }
}

/// The generator's own connection 0, held by a loss from 100 to 720 ms, and connection 1, which blocks nothing.
fn held_beside_an_open_one() -> Scene {
    let mut scene = Scene::new();
    for connection in [0, 1] {
        scene.connect(connection, 0);
        scene.send(Up, 20, &hello());
        scene.send(Down, 30, &settings(setting::MAX_CONCURRENT_STREAMS, 100));
    }
    scene.send(Up, 90, &headers(1, Some(90), true));
    scene.on(0).send(Up, 100, &headers(1, Some(91), false));
    let lost = scene.lose(Up, 100, &full(1));
    scene.send(Up, 100, &full(1));
    scene.ack(Down, 110, true);
    scene.again(&lost, 700, true);
    scene.ack(Down, 710, true);
    scene.send(Up, 720, &data(1, 10, true));
    scene
}

#[test]
fn what_the_generator_gave_to_a_connection_waits_for_that_one_whatever_others_do() {
    let mut scene = held_beside_an_open_one();
    // Both were assigned to a connection at 110 ms; an unassigned request has neither stream nor connection.
    scene.on(0).request(3, 110, 400);
    scene.on(1).request(3, 110, 400);
    scene.request(0, 110, 400).connection = Sample::NO_CONNECTION;
    let rendered = scene.rendered(0);
    assert!(
        rendered.len() == 1 && rendered[0].starts_with("110..400 the congestion window, after a loss"),
        "{rendered:?}"
    );
    assert_eq!(scene.waits().breakdowns[0].place.unwrap().client_port, 40_000);
    assert_eq!([scene.rendered(1), scene.rendered(2)], [["110..400 the client"], ["110..400 the client"]]);
    assert_eq!(scene.waits().doubts, []);
}

#[test]
fn what_the_generator_gave_to_a_connection_has_its_stream() {
    let mut scene = held_beside_an_open_one();
    // The limit is now 1, which the request on stream 1 uses up: the other one was sent before.
    scene.on(0).send(Down, 105, &settings(setting::MAX_CONCURRENT_STREAMS, 1));
    scene.request(3, 110, 900).stall_open_ns = 10_000_000;
    let rendered = scene.rendered(0);
    assert_eq!(rendered[0], "110..120 the stream slot");
    assert!(rendered[1].starts_with("120..720 the congestion window"), "{rendered:?}");
    assert_eq!(rendered[2..], ["720..900 the client"]);
}

/// A response of which no bytes have arrived when the repetition is cut at 400 ms, beside one whose segments are sent
/// from 120 ms on.
fn unanswered(end: &[u8]) -> Vec<String> {
    let mut repetition = begun();
    repetition.send(Up, 100, &headers(3, Some(1), true));
    repetition.request(0, 100, 400);
    repetition.send(Down, 120, &headers(1, None, false));
    let lost = repetition.lose(Down, 120, &full(1));
    assert_eq!(lost.index, 3);
    repetition.send(Down, 120, end);
    repetition.ack(Up, 130, true);
    repetition.again(&lost, 140, true);
    repetition.ack(Up, 150, true);
    repetition.rendered(1)
}

#[test]
fn a_response_that_never_entered_the_link_waits_for_its_senders_window_and_else_for_its_program() {
    let expected = [
        "100..110 the propagation",
        "110..120 the server",
        "120..160 the congestion window, after a loss (down 3)",
        "160..400 the server",
    ];
    assert_eq!(unanswered(&full(1)), expected);
    let rendered = unanswered(&data(1, 100, true));
    assert_eq!(rendered, ["100..110 the propagation", "110..400 the server"], "it had sent all that it had");
}

#[test]
fn where_a_packet_was_not_kept_nobody_knows_whether_it_went() {
    let mut scene = begun();
    scene.send(Up, 100, &full(1));
    let record = scene.packets()[0].0;
    scene.unkept.push(record);
    scene.request(0, 110, 400);
    assert_eq!(scene.dominant(1), CauseKind::Unknown);
    assert!(!scene.waits().breakdowns[1].never_went());
    assert_eq!(scene.waits().doubts, [Doubt::NotFound { requests: 1 }]);
}

#[test]
fn where_a_packet_was_not_written_down_nobody_knows_whether_it_went() {
    let mut scene = begun();
    scene.send(Up, 100, &full(1));
    scene.request(0, 110, 400);
    assert!(scene.waits().breakdowns[1].never_went(), "all is known");
    scene.unrecorded = 1;
    assert_eq!(scene.dominant(1), CauseKind::Unknown);
    assert_eq!(scene.waits().doubts, [Doubt::NotFound { requests: 1 }]);
}

#[test]
fn where_no_program_hands_ids_on_nobody_knows_whether_it_went() {
    let mut scene = Scene::with_sidecar();
    scene.connect(0, 0);
    scene.send(Up, 20, &hello());
    scene.send(Up, 100, &scene::frame(1, 5, 1, &[0x82]));
    scene.request(0, 110, 400);
    assert_eq!(scene.dominant(0), CauseKind::Unknown);
    assert_eq!(scene.waits().doubts, [Doubt::NotFound { requests: 1 }]);
}
