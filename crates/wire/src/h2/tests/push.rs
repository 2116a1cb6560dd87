//! Server push (RFC 9113 §8.4): which promises are allowed, and how they end.

use super::support::*;
use crate::connection::Request;
use crate::h2::frame::{flag, kind};
use crate::testing::{Pair, Seen};
use crate::{Config, Error, ErrorCode, Initiator, StreamId};

const OPEN: u8 = flag::END_HEADERS;

fn pushing_pair(seed: u64) -> Pair {
    pair_of(Config { enable_push: true, ..client_config() }, server_config(), seed)
}

/// A server that has been asked for stream 1 by a client with these settings.
fn asked(settings: &[(u16, u32)]) -> Scripted {
    let mut peer = Scripted::new(server_config());
    let entry = |&(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    let payload: Vec<u8> = settings.iter().flat_map(entry).collect();
    peer.receive(&frame(kind::SETTINGS, 0, 0, &payload));
    peer.receive(&frame(kind::HEADERS, OPEN | flag::END_STREAM, 1, &get_block()));
    peer.sent();
    peer
}

#[test]
fn a_promise_and_its_response_reach_the_client_beside_the_one_that_was_asked_for() {
    for seed in 0..8 {
        let mut pair = pushing_pair(seed);
        pair.client.connection.send_request(pair.now, &get("/push")).unwrap();
        pair.settle();
        let server = &mut pair.server.connection;
        let fields = [field("accept", "text/css")];
        let promised =
            server.send_push(pair.now, StreamId(1), &Request { fields: &fields, ..get("/style.css") });
        assert_eq!(promised, Some(StreamId(2)));
        server.send_response(pair.now, StreamId(1), &EMPTY);
        server.send_response(pair.now, StreamId(2), &OK);
        assert_eq!(server.send_data(pair.now, StreamId(2), b"pushed", true), 6);
        pair.settle();
        let response = |stream, length: Option<&str>| Seen::Response {
            stream,
            status: 200,
            fields: length
                .map(|length| ("content-length".to_owned(), length.to_owned()))
                .into_iter()
                .collect(),
            end_stream: length.is_some(),
        };
        assert_eq!(
            pair.client.take(),
            [
                Seen::PushPromise { stream: 1, promised: 2, path: "/style.css".to_owned() },
                response(1, Some("0")),
                response(2, None),
                Seen::Data { stream: 2, data: b"pushed".to_vec(), end_stream: true },
            ]
        );
        assert_eq!((pair.client.connection.open_streams(), pair.server.connection.open_streams()), (0, 0));
        let counters = pair.server.connection.counters();
        assert_eq!(counters.frames_sent[usize::from(kind::PUSH_PROMISE)], 1);
        assert_eq!(counters.requests, 1, "a promise is no request");
    }
}

#[test]
fn a_client_that_does_not_want_a_promise_cancels_it_and_hears_no_more_of_it() {
    let mut pair = pushing_pair(3);
    pair.client.connection.send_request(pair.now, &get("/push")).unwrap();
    pair.settle();
    let promised = pair.server.connection.send_push(pair.now, StreamId(1), &get("/unwanted")).unwrap();
    pair.server.connection.send_response(pair.now, promised, &OK);
    pair.server.connection.send_data(pair.now, promised, &body(1_000, 1), false);
    pair.settle_with(&mut |_, connection, seen, now| {
        if let Seen::PushPromise { promised, .. } = seen {
            connection.reset(now, StreamId(*promised), ErrorCode::CANCEL);
        }
    });
    assert!(matches!(pair.client.take()[..], [Seen::PushPromise { promised: 2, .. }]));
    let reset = Seen::Reset { stream: 2, code: ErrorCode::CANCEL, initiator: Initiator::Remote };
    assert_eq!(pair.server.take().last(), Some(&reset));
    assert_eq!(pair.client.connection.open_streams(), 1, "what was asked for goes on");
}

#[test]
fn a_server_promises_nothing_to_a_client_that_takes_no_promises() {
    assert_eq!(asked(&[(2, 0)]).engine.send_push(NOW, StreamId(1), &get("/")), None);
    assert_eq!(asked(&[(2, 1)]).engine.send_push(NOW, StreamId(1), &get("/")), Some(StreamId(2)));
    assert_eq!(asked(&[]).engine.send_push(NOW, StreamId(1), &get("/")), Some(StreamId(2)));
}

#[test]
fn promises_stay_within_what_the_client_takes_at_a_time() {
    let mut peer = asked(&[(3, 2)]);
    let push = |peer: &mut Scripted| peer.engine.send_push(NOW, StreamId(1), &get("/"));
    let ids = [push(&mut peer), push(&mut peer), push(&mut peer)];
    assert_eq!(ids, [Some(StreamId(2)), Some(StreamId(4)), None]);
    peer.engine.send_response(NOW, StreamId(2), &EMPTY);
    assert_eq!(push(&mut peer), Some(StreamId(6)), "one has ended");
}

#[test]
fn a_promise_needs_a_request_that_is_not_yet_answered_and_a_client_that_stays() {
    let mut peer = asked(&[]);
    assert_eq!(peer.engine.send_push(NOW, StreamId(3), &get("/")), None, "never asked");
    let promised = peer.engine.send_push(NOW, StreamId(1), &get("/")).unwrap();
    assert_eq!(peer.engine.send_push(NOW, promised, &get("/")), None, "a promise because of a promise");
    peer.engine.send_response(NOW, StreamId(1), &EMPTY);
    assert_eq!(peer.engine.send_push(NOW, StreamId(1), &get("/")), None, "answered");
    let mut leaving = asked(&[]);
    leaving.receive(&frame(kind::GOAWAY, 0, 0, &[0; 8]));
    assert_eq!(leaving.engine.send_push(NOW, StreamId(1), &get("/")), None);
    let mut client = Scripted::new(client_config());
    let stream = StreamId(client.request());
    assert_eq!(client.engine.send_push(NOW, stream, &get("/")), None, "clients do not push");
}

#[test]
fn a_promise_of_anything_but_a_bodiless_get_or_head_is_our_own_defect() {
    for request in [post("/", 3), Request { method: "DELETE", ..get("/") }] {
        let mut peer = asked(&[]);
        assert_eq!(peer.engine.send_push(NOW, StreamId(1), &request), None);
        assert!(matches!(peer.receive(&[])[..], [Seen::Closed { error: Some(Error::Misuse(_)) }]));
    }
    assert!(asked(&[]).engine.send_push(NOW, StreamId(1), &Request { method: "HEAD", ..get("/") }).is_some());
}

#[test]
fn a_promise_larger_than_a_frame_travels_in_continuations() {
    let value = "v".repeat(20_000);
    let fields = [field("x-long", &value)];
    for padding in [0, 100] {
        let mut pair = pair_of(
            Config { enable_push: true, ..client_config() },
            Config { padding, ..server_config() },
            5,
        );
        pair.client.connection.send_request(pair.now, &get("/")).unwrap();
        pair.settle();
        let request = Request { fields: &fields, ..get("/long") };
        pair.server.connection.send_push(pair.now, StreamId(1), &request).unwrap();
        let sent = frames(pair.server.connection.poll_transmit(pair.now));
        let kinds: Vec<_> = sent.iter().map(|(header, _)| header.kind).collect();
        assert_eq!(kinds, [kind::PUSH_PROMISE, kind::CONTINUATION]);
        pair.settle();
        assert!(matches!(pair.client.take()[..], [Seen::PushPromise { promised: 2, .. }]));
    }
}

#[test]
fn a_promised_response_arrives_on_its_own_stream() {
    let mut peer = Scripted::new(Config { enable_push: true, ..client_config() });
    peer.request();
    let promise = frame(kind::PUSH_PROMISE, OPEN, 1, &[&[0, 0, 0, 2][..], &get_block()].concat());
    let data = frame(kind::DATA, flag::END_STREAM, 2, b"pushed");
    let pushed = [frame(kind::HEADERS, OPEN, 2, &ok_block()), data].concat();
    assert_eq!(
        peer.receive(&[promise, pushed].concat()),
        [
            Seen::PushPromise { stream: 1, promised: 2, path: "/".to_owned() },
            Seen::Response { stream: 2, status: 200, fields: vec![], end_stream: false },
            Seen::Data { stream: 2, data: b"pushed".to_vec(), end_stream: true },
        ]
    );
    assert_eq!(peer.engine.open_streams(), 1);
}

#[test]
fn the_two_hundred_and_fifty_seventh_promise_is_refused_and_the_ones_before_stand() {
    let mut peer = Scripted::new(Config { enable_push: true, ..client_config() });
    peer.request();
    let promise = |promised: u32| {
        frame(kind::PUSH_PROMISE, OPEN, 1, &[&promised.to_be_bytes()[..], &get_block()].concat())
    };
    let promises: Vec<u8> = (1..=256).flat_map(|n| promise(2 * n)).collect();
    assert_eq!(peer.receive(&promises).len(), 256);
    assert_eq!(peer.codes(), (None, vec![]));
    assert_eq!(peer.receive(&promise(514)), []);
    assert_eq!(peer.codes(), (None, vec![(514, ErrorCode::REFUSED_STREAM.0)]));
}
