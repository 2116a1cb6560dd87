//! TLS: offsets go through the records, and without the secrets only the identity of the stream is missing.

use super::*;
use crate::diagnose::waits::tls::testing::{APPLICATION, CLIENT, Ends, HANDSHAKE, SERVER, hello_of, record};
use crate::diagnose::waits::{CauseKind, Doubt};
use h2lab_wire::h2::setting;
use h2lab_wire::trace::Direction::{Down, Up};

/// A connection on which stream 1's request is lost at 100 ms, followed by the requests of two further streams.
fn with_loss(suite: u16) -> Scene {
    let mut ends = Ends::new(suite);
    let mut scene = Scene::connected();
    scene.key_log = ends.key_log();
    scene.send(Up, 20, &hello_of(1, CLIENT, 0, false));
    let mut answer = hello_of(2, SERVER, suite, ends.is_tls13);
    let change = record(20, &[1]);
    if ends.is_tls13 {
        // The rest of the handshake is encrypted with other keys.
        answer.extend(record(APPLICATION, &[0xee; 700]));
        scene.send(Down, 30, &answer);
        scene.send(Up, 40, &[change, record(APPLICATION, &[0xee; 53])].concat());
    } else {
        scene.send(Down, 30, &answer);
        let finished = ends.seal(Up, HANDSHAKE, &[20; 16]);
        scene.send(Up, 40, &[change.clone(), finished].concat());
        let finished = ends.seal(Down, HANDSHAKE, &[20; 16]);
        scene.send(Down, 50, &[change, finished].concat());
    }
    let first = ends.seal(Up, APPLICATION, &hello());
    scene.send(Up, 60, &first);
    if ends.is_tls13 {
        // A KeyUpdate: what follows is encrypted with the next keys.
        let update = ends.seal(Down, HANDSHAKE, &[24, 0, 0, 1, 0]);
        scene.send(Down, 70, &update);
        ends.update();
    }
    let server = ends.seal(Down, APPLICATION, &settings(setting::MAX_CONCURRENT_STREAMS, 100));
    scene.send(Down, 70, &server);
    let request = ends.seal(Up, APPLICATION, &headers(1, Some(0), true));
    let lost = scene.lose(Up, 100, &request);
    let others =
        ends.seal(Up, APPLICATION, &[headers(3, Some(1), true), headers(5, Some(2), false)].concat());
    // A record that is split between two segments.
    let rest = ends.seal(Up, APPLICATION, &data(5, 50, true));
    let cut = rest.len() / 2;
    scene.send(Up, 101, &[others, rest[..cut].to_vec()].concat());
    scene.send(Up, 104, &rest[cut..]);
    scene.ack(Down, 111, true);
    scene.again(&lost, 121, true);
    let response =
        [headers(1, None, true), headers(3, None, true), headers(5, None, false), data(5, 10, true)].concat();
    let sealed = ends.seal(Down, APPLICATION, &response);
    scene.send(Down, 131, &sealed);
    scene.request(1, 100, 141);
    scene.request(3, 101, 141);
    scene.request(5, 101, 141);
    scene
}

#[test]
fn offsets_are_mapped_through_the_records_of_every_suite() {
    for suite in [0x1301, 0x1302, 0x1303, 0xc02f, 0xc030, 0xcca8] {
        let scene = with_loss(suite);
        let own = format!("110..131 its own lost segment (up {}), fast retransmit", 5);
        assert_eq!(
            scene.rendered(0),
            ["100..110 the propagation", &own, "131..141 the propagation"],
            "{suite:#x}"
        );
        let other = "111..131 stream 1's lost segment (up 5), fast retransmit";
        assert_eq!(scene.rendered(1)[1], other, "{suite:#x}");
        let rendered = scene.rendered(2);
        assert!(
            rendered.contains(&"114..131 stream 1's lost segment (up 5), fast retransmit".to_owned()),
            "{rendered:?}"
        );
        assert_eq!(scene.waits().doubts, [], "{suite:#x}");
    }
}

#[test]
fn without_the_secrets_the_drop_is_reported_and_not_whose() {
    for suite in [0x1301, 0xc02f] {
        let mut scene = with_loss(suite);
        scene.key_log.clear();
        let waits = scene.waits();
        assert_eq!(waits.doubts, [Doubt::NoKeys { connections: 1 }]);
        assert_eq!(waits.breakdowns[1].dominant, CauseKind::UnnamedLoss);
        assert_eq!(scene.rendered(1)[1], "110..131 a lost segment (up 5), fast retransmit");
        assert!(waits.doubts[0].to_string().contains("no key log"));
    }
}

#[test]
fn behind_a_sidecar_without_secrets_a_repair_just_before_the_end_decides() {
    let mut scene = with_loss(0x1301);
    scene.key_log.clear();
    let mut proxied = Scene::with_sidecar();
    proxied.packets().append(scene.packets());
    proxied.request(1, 98, 142);
    let late = proxied.request(1, 90, 400);
    late.sent_at = ms(90);
    let waits = proxied.waits();
    assert_eq!(waits.breakdowns[0].place, None);
    assert_eq!(waits.breakdowns[0].dominant, CauseKind::UnnamedLoss);
    assert_eq!(
        waits.breakdowns[1].dominant,
        CauseKind::Unknown,
        "nothing was repaired shortly before its end"
    );
    assert!(waits.doubts.contains(&Doubt::NotFound { requests: 2 }));
}

#[test]
fn the_handshake_of_tls_counts_as_one_to_the_first_frame() {
    let mut scene = with_loss(0x1302);
    let sample = scene.request(1, 0, 141);
    (sample.sent_at, sample.stall_open_ns) = (ms(100), 60_000_000);
    scene.record.connections[0].ready_at = ms(60);
    assert_eq!(scene.rendered(3)[0], "0..60 the handshake");
}

#[test]
fn a_record_that_does_not_decrypt_ends_the_reading_and_not_the_program() {
    let mut scene = with_loss(0x1301);
    let broken = scene.packets().iter().position(|(packet, _)| packet.at == ms(101)).unwrap();
    let bytes = &mut scene.packets()[broken].1;
    let last = bytes.len() - 80;
    bytes[last] ^= 1;
    let waits = scene.waits();
    assert_eq!(waits.doubts, [Doubt::BytesMissing { connections: 1 }]);
    assert_eq!(waits.breakdowns[0].dominant, CauseKind::OwnLoss, "what came before could be read");
}
