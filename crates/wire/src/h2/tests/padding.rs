//! Padding that we send (RFC 9113 §6.1, §6.2, §6.6): where it is added, and how much window it takes.

use super::support::*;
use crate::Config;
use crate::h2::frame::{FrameHeader, flag, kind};
use crate::testing::Seen;

fn padding_client(padding: u8) -> Scripted {
    Scripted::new(Config { padding, ..client_config() })
}

fn initial_window(size: u32) -> Vec<u8> {
    frame(kind::SETTINGS, 0, 0, &[&4_u16.to_be_bytes()[..], &size.to_be_bytes()].concat())
}

/// Payload length, and pad length if there is padding.
fn shape((header, payload): &(FrameHeader, Vec<u8>)) -> (u32, Option<u8>) {
    (header.length, header.has(flag::PADDED).then(|| payload[0]))
}

#[test]
fn heads_and_bodies_are_padded_with_zeros_and_nothing_else_changes() {
    for padding in [1, 255] {
        let (mut plain, mut padded) = (padding_client(0), padding_client(padding));
        for client in [&mut plain, &mut padded] {
            let stream = client.engine.send_request(NOW, &post("/", 5)).unwrap();
            assert_eq!(client.engine.send_data(NOW, stream, b"hello", true), 5);
            client.engine.ping(NOW);
        }
        let (plain, padded) = (plain.sent(), padded.sent());
        assert_eq!(plain.len(), padded.len());
        for (plain, padded) in plain.iter().zip(&padded) {
            if plain.0.kind == kind::PING {
                assert_eq!(plain, padded);
                continue;
            }
            let expected = [&[padding][..], &plain.1, &vec![0; usize::from(padding)]].concat();
            assert_eq!((&padded.1, padded.0.flags), (&expected, plain.0.flags | flag::PADDED));
        }
    }
}

#[test]
fn padding_is_paid_for_from_the_windows_and_left_out_where_they_are_too_small() {
    // 20 bytes of window: 5 of body with 1 + 9 of padding leave 5, which go without.
    let mut client = padding_client(9);
    client.receive(&initial_window(20));
    let stream = client.upload();
    assert_eq!(client.engine.send_data(NOW, stream, b"12345", false), 5);
    assert_eq!(client.engine.send_data(NOW, stream, b"67890more", false), 5);
    let sent = client.sent();
    assert_eq!(sent.iter().map(shape).collect::<Vec<_>>(), [(15, Some(9)), (5, None)]);
    let update = frame(kind::WINDOW_UPDATE, 0, 1, &14_u32.to_be_bytes());
    assert_eq!(client.receive(&update), [Seen::Writable { stream: 1 }]);
    assert_eq!(client.engine.send_data(NOW, stream, b"more", true), 4);
    assert_eq!(client.sent().iter().map(shape).collect::<Vec<_>>(), [(14, Some(9))], "just enough");
}

#[test]
fn padded_frames_keep_to_the_frame_size_of_the_peer() {
    let mut client = padding_client(255);
    let stream = client.upload();
    assert_eq!(client.engine.send_data(NOW, stream, &vec![7; 20_000], true), 20_000);
    let shapes: Vec<_> = client.sent().iter().map(shape).collect();
    assert_eq!(shapes, [(16_384, Some(255)), (20_000 - 16_128 + 256, Some(255))]);
}

#[test]
fn an_empty_end_is_padded_too() {
    let mut client = padding_client(3);
    let stream = client.upload();
    client.engine.send_data(NOW, stream, b"", true);
    assert_eq!(client.sent().iter().map(shape).collect::<Vec<_>>(), [(4, Some(3))]);
}

#[test]
fn a_head_without_room_for_its_padding_goes_without() {
    let value = "v".repeat(30_000);
    let fields = [field("x-long", &value)];
    let mut client = padding_client(255);
    let request = crate::connection::Request { fields: &fields, ..get("/") };
    client.engine.send_request(NOW, &request).unwrap();
    let sent = client.sent();
    assert_eq!(sent[0].0.length, 16_384);
    assert!(sent.len() == 2 && sent.iter().all(|(header, _)| !header.has(flag::PADDED)));
}
