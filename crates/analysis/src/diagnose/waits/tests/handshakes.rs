//! Connections that are not yet established.

use super::*;
use crate::diagnose::waits::CauseKind;
use h2lab_wire::trace::Direction::{Down, Up};

/// A request that was due when its connection was dialled, at 0; the client could send at `ready`.
fn first_request(scene: &mut Scene, ready: u64) {
    scene.ack(Up, ready, true);
    scene.send(Up, ready, &[hello(), headers(1, Some(0), true)].concat());
    scene.send(Down, ready + 10, &headers(1, None, true));
    let sample = scene.request(1, 0, ready + 20);
    (sample.sent_at, sample.stall_open_ns) = (ms(ready), ready * 1_000_000);
}

#[test]
fn a_handshake_without_loss_is_two_ways_of_the_link() {
    let mut scene = Scene::connected();
    first_request(&mut scene, 20);
    assert_eq!(scene.rendered(0), ["0..20 the handshake", "20..40 the propagation"]);
    assert_eq!(scene.dominant(0), CauseKind::Handshake);
}

#[test]
fn a_lost_syn_is_distinguished_from_the_handshake() {
    let mut scene = Scene::new();
    scene.syn(Up, 0, false);
    scene.syn(Up, 1000, true);
    scene.syn(Down, 1010, true);
    first_request(&mut scene, 1020);
    let expected = [
        "0..10 the handshake",
        "10..1010 a lost packet of the handshake (up 0)",
        "1010..1020 the handshake",
        "1020..1040 the propagation",
    ];
    assert_eq!(scene.rendered(0), expected);
    assert_eq!(scene.dominant(0), CauseKind::HandshakeLoss);
}

#[test]
fn a_syn_that_is_lost_twice_names_both() {
    let mut scene = Scene::new();
    scene.syn(Up, 0, false);
    scene.syn(Up, 1000, false);
    scene.syn(Up, 3000, true);
    scene.syn(Down, 3010, true);
    first_request(&mut scene, 3020);
    let rendered = scene.rendered(0);
    assert_eq!(rendered[1], "10..1010 a lost packet of the handshake (up 0)");
    assert_eq!(rendered[2], "1010..3010 a lost packet of the handshake (up 1)");
}

#[test]
fn the_answer_to_a_syn_may_be_lost_as_well() {
    let mut scene = Scene::new();
    scene.syn(Up, 0, true);
    scene.syn(Down, 10, false);
    scene.syn(Down, 1012, true);
    first_request(&mut scene, 1022);
    let expected = [
        "0..20 the handshake",
        "20..1022 a lost packet of the handshake (down 0)",
        "1022..1042 the propagation",
    ];
    assert_eq!(scene.rendered(0), expected);
}

#[test]
fn a_handshake_that_was_over_before_is_nobodys_cause() {
    let mut scene = Scene::new();
    scene.syn(Up, 0, false);
    scene.syn(Up, 1000, true);
    scene.syn(Down, 1010, true);
    scene.send(Up, 1020, &hello());
    scene.send(Up, 1500, &headers(1, Some(0), true));
    scene.send(Down, 1510, &headers(1, None, true));
    scene.request(1, 1500, 1520);
    assert_eq!(scene.rendered(0), ["1500..1520 the propagation"]);
}

#[test]
fn a_port_that_is_used_again_is_another_connection() {
    let mut scene = Scene::connected();
    first_request(&mut scene, 20);
    // The number of the new SYN differs from the first one's.
    let mut second = Scene::new();
    second.syn(Up, 5000, false);
    second.syn(Up, 6000, true);
    second.syn(Down, 6010, true);
    second.ack(Up, 6020, true);
    second.send(Up, 6020, &[hello(), headers(1, Some(0), true)].concat());
    second.send(Down, 6030, &headers(1, None, true));
    for (record, bytes) in second.packets() {
        let moved = record.seq.wrapping_add(1_000_000);
        (record.seq, record.index) = (moved, record.index + 100);
        bytes[24..28].copy_from_slice(&moved.to_be_bytes());
    }
    let more = std::mem::take(second.packets());
    scene.packets().extend(more);
    let sample = scene.request(1, 5000, 6040);
    (sample.sent_at, sample.stall_open_ns) = (ms(6020), 1_020_000_000);
    let mut again = scene.record.connections[0].clone();
    (again.index, again.dialled_at, again.ready_at) = (2, ms(5000), ms(6020));
    scene.samples[1].connection = 2;
    scene.record.connections.push(again);
    assert_eq!(scene.rendered(1)[1], "5010..6010 a lost packet of the handshake (up 100)");
    assert_eq!(scene.rendered(0), ["0..20 the handshake", "20..40 the propagation"]);
}
