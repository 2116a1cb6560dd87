//! From bytes to streams: HTTP/1.1, several connections, sidecars, TLS, and what is reported without stream names.

use super::*;
use crate::diagnose::waits::{CauseKind, Doubt};
use h2lab_wire::trace::Direction::{Down, Up};

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

#[test]
fn requests_of_http1_are_named_by_their_number_on_the_connection() {
    let mut scene = Scene::connected();
    scene.send(Up, 20, GET);
    scene.send(Down, 30, OK);
    scene.request(1, 20, 40);
    scene.send(Up, 50, GET);
    let (head, body) = OK.split_at(20);
    scene.send(Down, 60, head);
    let lost = scene.lose(Down, 60, body);
    scene.again(&lost, 290, true);
    scene.request(3, 50, 300);
    assert_eq!(scene.rendered(0), ["20..40 the propagation"]);
    assert_eq!(scene.rendered(1)[1], "70..300 its own lost segment (down 3), retransmission timeout");
}

#[test]
fn a_drop_holds_up_no_other_connection() {
    let mut scene = Scene::connected();
    scene.connect(1, 0);
    scene.on(0);
    let lost = scene.lose(Up, 50, GET);
    scene.request(1, 50, 300);
    scene.on(1).send(Up, 51, GET);
    scene.send(Down, 61, OK);
    scene.request(1, 51, 71);
    scene.again(&lost, 280, true);
    scene.send(Down, 290, OK);
    assert_eq!(scene.dominant(0), CauseKind::OwnLoss);
    assert_eq!(scene.rendered(1), ["51..71 the propagation"]);
}

#[test]
fn requests_behind_a_sidecar_are_known_by_their_ids() {
    let mut scene = Scene::with_sidecar();
    scene.connect(5, 0);
    scene.send(Up, 20, &hello());
    // The sidecar may choose any stream.
    let lost = scene.lose(Up, 103, &headers(1, Some(1), true));
    scene.send(Up, 104, &headers(3, Some(0), true));
    scene.ack(Down, 114, true);
    scene.again(&lost, 124, true);
    scene.send(Down, 134, &[headers(1, None, true), headers(3, None, true)].concat());
    scene.request(1, 100, 145);
    scene.request(1, 101, 146);
    let expected = [
        "100..104 the client",
        "104..114 the propagation",
        "114..134 stream 1's lost segment (up 3), fast retransmit",
        "134..144 the propagation",
        "144..145 the client",
    ];
    assert_eq!(scene.rendered(0), expected);
    assert_eq!(scene.rendered(1)[2], "113..134 its own lost segment (up 3), fast retransmit");
    assert_eq!(scene.waits().doubts, []);
}

#[test]
fn of_a_request_that_was_sent_again_the_last_time_counts() {
    let mut scene = Scene::with_sidecar();
    scene.connect(5, 0);
    scene.send(Up, 20, &hello());
    scene.send(Up, 100, &headers(1, Some(0), true));
    scene.send(Down, 110, &scene::frame(3, 0, 1, &7_u32.to_be_bytes()));
    scene.send(Up, 120, &headers(3, Some(0), true));
    scene.send(Down, 130, &headers(3, None, true));
    scene.request(1, 100, 140);
    let waits = scene.waits();
    assert_eq!(waits.breakdowns[0].place.unwrap().stream, Some(3));
    assert_eq!(text(&waits.breakdowns[0]), ["100..120 the client", "120..140 the propagation"]);
}

#[test]
fn a_capture_that_begins_mid_flow_reports_the_loss_without_the_stream() {
    let mut scene = Scene::new();
    let lost = scene.lose(Up, 100, &headers(1, Some(0), true));
    scene.again(&lost, 325, true);
    scene.send(Down, 335, &headers(1, None, true));
    scene.request(1, 100, 345);
    let expected = ["100..110 the propagation", "110..335 a lost segment (up 0), retransmission timeout"];
    assert_eq!(scene.rendered(0)[..2], expected);
    let waits = scene.waits();
    assert_eq!(waits.breakdowns[0].dominant, CauseKind::UnnamedLoss);
    assert_eq!(waits.breakdowns[0].place.unwrap().stream, None);
    assert_eq!(waits.doubts, [Doubt::BeganMidFlow { connections: 1 }]);
}

#[test]
fn packets_without_their_bytes_cost_the_names_and_not_the_drops() {
    let mut scene = Scene::connected();
    scene.send(Up, 20, &hello());
    let lost = scene.lose(Up, 100, &headers(1, Some(0), true));
    scene.again(&lost, 325, true);
    scene.send(Down, 335, &headers(1, None, true));
    scene.request(1, 100, 345);
    for (packet, bytes) in scene.packets() {
        if packet.at >= ms(100) {
            bytes.clear();
        }
    }
    assert_eq!(scene.rendered(0)[1], "110..335 a lost segment (up 3), retransmission timeout");
    assert_eq!(scene.waits().doubts, [Doubt::BytesMissing { connections: 1 }]);
}

#[test]
fn what_is_no_http_is_said_to_be_none() {
    let mut scene = Scene::connected();
    scene.send(Up, 20, b"EHLO\x00\x01\x02");
    scene.request(1, 20, 40);
    assert_eq!(scene.waits().doubts, [Doubt::NotHttp { connections: 1 }]);
}
