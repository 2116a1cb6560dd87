//! What keeps a sender from sending: windows, slots, and a lack of data.

use super::*;
use crate::diagnose::waits::CauseKind;
use h2lab_wire::h2::setting;
use h2lab_wire::trace::Direction::{Down, Up};

/// Bytes of a full segment's DATA.
const FULL: usize = 1439;

/// HTTP/2's prefaces, with SETTINGS of both.
fn http2(client: &[u8], server: &[u8]) -> Scene {
    let mut scene = Scene::connected();
    scene.send(Up, 20, &[scene::PREFACE, client].concat());
    scene.send(Down, 30, server);
    scene.ack(Up, 40, true);
    scene
}

#[test]
fn what_comes_a_round_trip_after_ten_segments_waited_for_the_congestion_window() {
    let mut scene = http2(
        &settings(setting::INITIAL_WINDOW_SIZE, 1 << 20),
        &settings(setting::MAX_CONCURRENT_STREAMS, 100),
    );
    scene.send(Up, 100, &headers(1, Some(0), true));
    for _ in 0..10 {
        scene.send(Down, 110, &data(1, FULL, false));
    }
    scene.ack(Up, 120, true);
    scene.send(Down, 130, &data(1, FULL, true));
    scene.request(1, 100, 140);
    let expected = ["100..110 the propagation", "110..130 the congestion window", "130..140 the propagation"];
    assert_eq!(scene.rendered(0), expected);
    assert_eq!(scene.dominant(0), CauseKind::CongestionWindow);
}

#[test]
fn with_less_in_flight_than_it_has_dared_a_sender_waits_for_its_program() {
    let mut scene = http2(
        &settings(setting::INITIAL_WINDOW_SIZE, 1 << 20),
        &settings(setting::MAX_CONCURRENT_STREAMS, 100),
    );
    scene.send(Up, 100, &headers(1, Some(0), true));
    for _ in 0..9 {
        scene.send(Down, 110, &data(1, FULL, false));
    }
    scene.ack(Up, 120, true);
    scene.send(Down, 130, &data(1, FULL, true));
    scene.request(1, 100, 140);
    let expected =
        ["100..120 the propagation", "120..130 the server", "130..140 the propagation"].map(str::to_owned);
    let rendered = scene.rendered(0);
    assert!(rendered.contains(&"110..130 the server".to_owned()) || rendered == expected, "{rendered:?}");
    assert!(!rendered.iter().any(|line| line.contains("congestion")), "{rendered:?}");
}

#[test]
fn a_window_that_a_loss_has_shrunk_names_the_loss() {
    let mut scene = http2(
        &settings(setting::INITIAL_WINDOW_SIZE, 1 << 20),
        &settings(setting::MAX_CONCURRENT_STREAMS, 100),
    );
    scene.send(Up, 100, &headers(1, Some(0), true));
    let lost = scene.lose(Down, 110, &data(1, FULL, false));
    for _ in 0..3 {
        scene.send(Down, 110, &data(1, FULL, false));
    }
    scene.send(Up, 118, &headers(3, Some(1), true));
    scene.ack(Up, 120, true);
    scene.again(&lost, 130, true);
    scene.ack(Up, 140, true);
    // Two segments at a time: those of stream 3 are sent when those of stream 1 are acknowledged.
    scene.send(Down, 150, &[headers(3, None, false), data(3, 100, true)].concat());
    scene.request(3, 118, 160);
    let expected = [
        "118..128 the propagation",
        "128..150 the congestion window, after a loss (down 2)",
        "150..160 the propagation",
    ];
    assert_eq!(scene.rendered(0), expected);
}

#[test]
fn data_waits_for_the_streams_window_until_the_update_has_come() {
    let mut scene =
        http2(&settings(setting::INITIAL_WINDOW_SIZE, 1000), &settings(setting::MAX_CONCURRENT_STREAMS, 100));
    scene.send(Up, 100, &headers(1, Some(0), true));
    scene.send(Down, 110, &[headers(1, None, false), data(1, 1000, false)].concat());
    scene.send(Up, 150, &window_update(1, 1000));
    scene.send(Down, 160, &data(1, 1000, true));
    scene.request(1, 100, 170);
    let expected =
        ["100..110 the propagation", "110..160 the stream's flow-control window", "160..170 the propagation"];
    assert_eq!(scene.rendered(0), expected);
    assert_eq!(scene.dominant(0), CauseKind::FlowWindow);
}

#[test]
fn the_connections_window_is_distinguished_from_the_streams() {
    let mut scene = http2(
        &settings(setting::INITIAL_WINDOW_SIZE, 1 << 20),
        &settings(setting::MAX_CONCURRENT_STREAMS, 100),
    );
    scene.send(Up, 100, &headers(1, Some(0), true));
    for _ in 0..5 {
        scene.send(Down, 110, &data(1, 13_107, false));
    }
    scene.send(Up, 150, &window_update(0, 100));
    scene.send(Down, 160, &data(1, 100, true));
    scene.request(1, 100, 170);
    assert_eq!(scene.rendered(0)[1], "110..160 the connection's flow-control window");
}

#[test]
fn a_window_update_that_is_lost_names_its_packet() {
    let mut scene =
        http2(&settings(setting::INITIAL_WINDOW_SIZE, 1000), &settings(setting::MAX_CONCURRENT_STREAMS, 100));
    scene.send(Up, 100, &headers(1, Some(0), true));
    scene.send(Down, 110, &[headers(1, None, false), data(1, 1000, false)].concat());
    let lost = scene.lose(Up, 120, &window_update(1, 1000));
    scene.again(&lost, 345, true);
    scene.send(Down, 355, &data(1, 1000, true));
    scene.request(1, 100, 365);
    let expected = [
        "100..110 the propagation",
        "110..130 the stream's flow-control window",
        "130..355 the stream's flow-control window, whose update was lost (up 5)",
        "355..365 the propagation",
    ];
    assert_eq!(scene.rendered(0), expected);
    let rendered = scene.waits().breakdowns[0].main().and_then(|main| main.cause.drop());
    assert_eq!(rendered.map(|drop| drop.index), Some(lost.index));
}

#[test]
fn no_window_is_opened_for_what_cannot_be_read() {
    let mut scene =
        http2(&settings(setting::INITIAL_WINDOW_SIZE, 2000), &settings(setting::MAX_CONCURRENT_STREAMS, 100));
    scene.send(Up, 100, &headers(1, Some(0), true));
    let lost = scene.lose(Down, 110, &[headers(1, None, false), data(1, 1000, false)].concat());
    scene.send(Down, 110, &data(1, 1000, false));
    scene.ack(Up, 120, true);
    scene.again(&lost, 130, true);
    scene.send(Up, 140, &window_update(1, 2000));
    scene.send(Down, 150, &data(1, 1000, true));
    scene.request(1, 100, 160);
    let rendered = scene.rendered(0);
    assert_eq!(rendered[2], "120..140 its own lost segment (down 2), fast retransmit");
    assert_eq!(rendered[3], "140..150 the stream's flow-control window");
}

#[test]
fn the_generator_says_itself_how_long_it_waited_for_a_stream() {
    let mut scene =
        http2(&settings(setting::INITIAL_WINDOW_SIZE, 1000), &settings(setting::MAX_CONCURRENT_STREAMS, 1));
    scene.send(Up, 150, &headers(1, Some(0), true));
    scene.send(Down, 160, &headers(1, None, true));
    let sample = scene.request(1, 100, 170);
    (sample.sent_at, sample.stall_open_ns) = (ms(150), 50_000_000);
    assert_eq!(scene.rendered(0), ["100..150 the stream slot", "150..170 the propagation"]);
    assert_eq!(scene.dominant(0), CauseKind::StreamSlot);
}

#[test]
fn what_lay_in_the_socket_waited_for_the_congestion_window() {
    let mut scene =
        http2(&settings(setting::INITIAL_WINDOW_SIZE, 1000), &settings(setting::MAX_CONCURRENT_STREAMS, 100));
    scene.send(Up, 130, &headers(1, Some(0), true));
    scene.send(Down, 140, &headers(1, None, true));
    let sample = scene.request(1, 90, 150);
    (sample.sent_at, sample.stall_socket_ns) = (ms(110), 10_000_000);
    let expected = ["90..100 the client", "100..130 the congestion window", "130..150 the propagation"];
    assert_eq!(scene.rendered(0), expected);
}

/// A sidecar's request that was due at 100 and was sent at 150, when the limit of streams may have been reached.
fn behind_a_sidecar(limit: u32) -> Scene {
    let mut scene = Scene::with_sidecar();
    scene.connect(0, 0);
    scene.send(Up, 20, &hello());
    scene.send(Down, 30, &settings(setting::MAX_CONCURRENT_STREAMS, limit));
    scene.send(Up, 90, &headers(1, Some(0), true));
    scene.send(Down, 140, &headers(1, None, true));
    scene.send(Up, 150, &headers(3, Some(1), true));
    scene.send(Down, 160, &headers(3, None, true));
    scene.request(77, 90, 150);
    scene.request(78, 100, 170);
    scene
}

#[test]
fn a_sidecar_with_as_many_streams_as_the_server_takes_waits_for_one() {
    assert_eq!(behind_a_sidecar(1).rendered(1), ["100..150 the stream slot", "150..170 the propagation"]);
    assert_eq!(behind_a_sidecar(2).rendered(1), ["100..150 the client", "150..170 the propagation"]);
}

#[test]
fn a_generators_wait_for_a_connection_to_the_sidecar_is_distinguished_from_the_sidecars() {
    let mut scene = behind_a_sidecar(2);
    scene.samples[1].stall_open_ns = 30_000_000;
    let expected = ["100..130 the stream slot", "130..150 the client", "150..170 the propagation"];
    assert_eq!(scene.rendered(1), expected);
}

/// DATA that fills a segment: its sender has more data.
fn filling() -> Vec<u8> {
    data(1, usize::from(scene::MAX_SEGMENT) - 9, false)
}

/// A response whose parts are sent at 110 ms and at 130 ms, when everything before is acknowledged.
fn in_two_parts(first: &[u8], second: &[u8]) -> Vec<String> {
    let mut scene = http2(
        &settings(setting::INITIAL_WINDOW_SIZE, 1 << 20),
        &settings(setting::MAX_CONCURRENT_STREAMS, 100),
    );
    scene.send(Up, 100, &headers(1, Some(0), true));
    scene.send(Down, 110, first);
    scene.ack(Up, 120, true);
    scene.send(Down, 130, second);
    scene.request(1, 100, 140);
    scene.rendered(0)
}

#[test]
fn a_sender_that_filled_its_segment_had_more_to_say() {
    let rendered = in_two_parts(&filling(), &filling());
    assert!(rendered.contains(&"110..130 the congestion window".to_owned()), "{rendered:?}");
}

#[test]
fn a_sender_whose_segment_is_short_had_said_it_all() {
    let short = data(1, usize::from(scene::MAX_SEGMENT) - 10, false);
    let rendered = in_two_parts(&short, &filling());
    assert!(!rendered.iter().any(|line| line.contains("congestion")), "{rendered:?}");
}

#[test]
fn a_short_rest_that_goes_when_all_is_acknowledged_may_be_nagles_or_the_programs() {
    let rendered = in_two_parts(&filling(), &data(1, 100, true));
    assert!(!rendered.iter().any(|line| line.contains("congestion")), "{rendered:?}");
}

#[test]
fn a_short_rest_that_goes_when_some_is_acknowledged_waited_for_the_window() {
    let mut scene = http2(
        &settings(setting::INITIAL_WINDOW_SIZE, 1 << 20),
        &settings(setting::MAX_CONCURRENT_STREAMS, 100),
    );
    scene.send(Up, 100, &headers(1, Some(0), true));
    scene.send(Down, 110, &filling());
    scene.send_until(Down, 110, Some(125), &filling());
    scene.ack(Up, 120, true);
    scene.send(Down, 130, &data(1, 100, true));
    scene.request(1, 100, 140);
    let rendered = scene.rendered(0);
    assert!(rendered.iter().any(|line| line.ends_with("..130 the congestion window")), "{rendered:?}");
}

#[test]
fn a_full_segment_long_after_all_was_acknowledged_waited_for_its_program() {
    let mut scene = http2(
        &settings(setting::INITIAL_WINDOW_SIZE, 1 << 20),
        &settings(setting::MAX_CONCURRENT_STREAMS, 100),
    );
    scene.send(Up, 100, &headers(1, Some(0), true));
    scene.send(Down, 110, &filling());
    scene.ack(Up, 120, true);
    scene.send(Down, 135, &filling());
    scene.request(1, 100, 145);
    let rendered = scene.rendered(0);
    assert!(!rendered.iter().any(|line| line.contains("congestion")), "{rendered:?}");
}
