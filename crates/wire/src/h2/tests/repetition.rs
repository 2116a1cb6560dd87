//! Caches from one message to the next must not be visible except in cost.

use proptest::prelude::*;

use super::support::*;
use crate::compression::{FieldEncoder, FieldList};
use crate::connection::Request;
use crate::h2::frame::kind;
use crate::h2::hpack::{Decoder, Encoder};
use crate::testing::Seen;

/// `SETTINGS_HEADER_TABLE_SIZE`.
fn table_size(bytes: u32) -> Vec<u8> {
    let mut payload = vec![0, 1];
    payload.extend(bytes.to_be_bytes());
    frame(kind::SETTINGS, 0, 0, &payload)
}

#[test]
fn a_request_sent_again_is_the_same_request_in_fewer_bytes() {
    let mut pair = pair_of(client_config(), server_config(), 7);
    let fields = [field("x-tenant", "blue"), field("accept", "*/*")];
    let request = Request { fields: &fields, ..get("/again") };
    let first = pair.client.connection.send_request(pair.now, &request).unwrap();
    for _ in 0..5 {
        pair.client.connection.send_request_again(pair.now, &request).unwrap();
    }
    pair.settle();
    let seen = pair.server.take();
    assert_eq!((first.0, seen.len()), (1, 6));
    let Seen::Request { fields: sent, .. } = &seen[0] else { panic!("{seen:?}") };
    for (n, one) in seen.iter().enumerate() {
        let expected = Seen::Request {
            stream: 2 * n as u32 + 1,
            method: "GET".to_owned(),
            authority: "example.com".to_owned(),
            path: "/again".to_owned(),
            fields: sent.clone(),
            end_stream: true,
        };
        assert_eq!(*one, expected);
    }
    let counters = pair.client.connection.counters();
    assert_eq!(counters.requests, 6);
    assert_eq!(counters.frames_sent[usize::from(kind::HEADERS)], 6);
    assert!(counters.headers_sent < counters.headers_plain / 3, "{counters:?}");
}

#[test]
fn a_request_sent_again_is_counted_like_one_that_is_encoded_anew() {
    let request = get("/");
    let (mut again, mut anew) = (Scripted::new(client_config()), Scripted::new(client_config()));
    for engine in [&mut again, &mut anew] {
        engine.engine.send_request(NOW, &request).unwrap();
    }
    for _ in 0..4 {
        again.engine.send_request_again(NOW, &request).unwrap();
        anew.engine.send_request(NOW, &request).unwrap();
    }
    assert_eq!(again.sent(), anew.sent());
    assert_eq!(again.engine.counters(), anew.engine.counters());
}

#[test]
fn a_smaller_table_voids_what_was_remembered_of_a_request() {
    let fields = [field("x-tenant", "blue")];
    let request = Request { fields: &fields, ..get("/") };
    let mut client = Scripted::new(client_config());
    client.engine.send_request(NOW, &request).unwrap();
    client.engine.send_request_again(NOW, &request).unwrap();
    client.sent();
    client.receive(&table_size(0));
    client.sent();
    client.engine.send_request_again(NOW, &request).unwrap();
    let (_, block) = client.sent().pop().unwrap();
    let mut list = FieldList::new(65_536);
    // A decoder whose table is as empty as the encoder's must be: an index from before would be beyond it.
    Decoder::new(4_096).decode(&block, &mut list).unwrap();
    assert_eq!(list.starting_at(0).get("x-tenant"), Some(&b"blue"[..]));
}

#[test]
fn trailers_that_look_like_the_response_before_them_are_not_taken_for_it() {
    let mut client = Scripted::new(client_config());
    let stream = client.request();
    let response = frame(kind::HEADERS, 4, stream, &ok_block());
    let trailers = frame(kind::HEADERS, 5, stream, &ok_block()); // END_STREAM
    assert!(matches!(client.receive(&response)[..], [Seen::Response { status: 200, .. }]));
    assert!(
        matches!(client.receive(&trailers)[..], [Seen::Reset { .. }]),
        "trailers with :status are malformed"
    );
}

#[test]
fn a_response_that_looks_like_the_trailers_before_it_is_refused() {
    let mut client = Scripted::new(client_config());
    let (first, second) = (client.request(), client.request());
    let odd = block(&[("grpc-status", "0")]);
    client.receive(&frame(kind::HEADERS, 4, first, &ok_block()));
    assert!(matches!(client.receive(&frame(kind::HEADERS, 5, first, &odd))[..], [Seen::Trailers { .. }]));
    assert!(matches!(client.receive(&frame(kind::HEADERS, 5, second, &odd))[..], [Seen::Reset { .. }]));
}

#[test]
fn an_entry_too_large_for_the_table_empties_it_also_when_its_block_comes_again() {
    let mut decoder = Decoder::new(4_096);
    let mut list = FieldList::new(65_536);
    let (mut out, mut encoder) = (Vec::new(), Encoder::new());
    encoder.field(b"x-small", b"1", &mut out);
    decoder.decode(&out, &mut list).unwrap();
    // Index 62, then a literal with indexing (name `b`) that is larger than the table.
    let value = vec![b'v'; 5_000];
    let mut hostile = vec![0xbe, 0x40, 1, b'b', 0x7f];
    let mut rest = value.len() as u32 - 127;
    while rest >= 128 {
        hostile.push((rest % 128 + 128) as u8);
        rest /= 128;
    }
    hostile.push(rest as u8);
    hostile.extend(&value);
    assert!(decoder.decode(&hostile, &mut list).is_ok());
    assert!(decoder.decode(&hostile, &mut list).is_err(), "index 62 went with the rest of the table");
}

proptest! {
    #[test]
    fn a_list_that_is_used_again_reads_every_block_as_a_fresh_one_does(
        messages in prop::collection::vec(prop::collection::vec((0..4_u8, 0..4_u8), 0..6), 1..60),
    ) {
        let (mut encoder, mut used, mut fresh) = (Encoder::new(), Decoder::new(4_096), Decoder::new(4_096));
        let mut list = FieldList::new(65_536);
        for message in messages {
            let mut block = Vec::new();
            encoder.begin(&mut block);
            for (name, value) in &message {
                let (name, value) = (format!("x-{name}"), format!("value-{value}"));
                encoder.field(name.as_bytes(), value.as_bytes(), &mut block);
            }
            used.decode(&block, &mut list).unwrap();
            let mut new = FieldList::new(65_536);
            fresh.decode(&block, &mut new).unwrap();
            let read = |list: &FieldList| -> Vec<(Vec<u8>, Vec<u8>)> {
                list.starting_at(0).iter().map(|f| (f.name.to_vec(), f.value.to_vec())).collect()
            };
            prop_assert_eq!(read(&list), read(&new));
            prop_assert_eq!(list.kinds(), new.kinds());
        }
    }
}
