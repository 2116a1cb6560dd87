//! CONNECT that names a protocol (RFC 8441), and tunnels (RFC 9113 §8.5).

use super::support::*;
use crate::connection::{Request, Response};
use crate::h2::frame::{flag, kind};
use crate::testing::{Pair, Seen};
use crate::{Config, ErrorCode, Event, Initiator, Role, StreamId};

const END: u8 = flag::END_STREAM | flag::END_HEADERS;

fn websocket() -> Request<'static> {
    Request { method: "CONNECT", end_stream: false, ..get("/chat") }
}

fn extending() -> Config {
    Config { connect_protocol: true, ..server_config() }
}

/// `SETTINGS_ENABLE_CONNECT_PROTOCOL`.
fn enable(value: u32) -> Vec<u8> {
    frame(kind::SETTINGS, 0, 0, &[&8_u16.to_be_bytes()[..], &value.to_be_bytes()].concat())
}

fn connect(stream: u32, more: &[(&str, &str)]) -> Vec<u8> {
    let fields = [&[(":method", "CONNECT"), (":authority", "a")][..], more].concat();
    frame(kind::HEADERS, flag::END_HEADERS, stream, &block(&fields))
}

const TARGET: [(&str, &str); 3] = [(":scheme", "http"), (":path", "/chat"), (":protocol", "websocket")];

fn malformed(stream: u32) -> Seen {
    Seen::Reset { stream, code: ErrorCode::PROTOCOL_ERROR, initiator: Initiator::Engine }
}

#[test]
fn a_tunnel_carries_data_both_ways_until_each_side_ends_it() {
    let mut pair: Pair = pair_of(client_config(), extending(), 4);
    assert!(!pair.client.connection.takes_connect_protocol(), "the server has not spoken yet");
    assert!(pair.client.connection.send_connect(pair.now, "websocket", &websocket()).is_none());
    pair.settle();
    assert!(pair.client.connection.takes_connect_protocol());
    let stream = pair.client.connection.send_connect(pair.now, "websocket", &websocket()).unwrap();
    pair.client.connection.send_data(pair.now, stream, b"early", false);
    pair.settle_with(&mut |role, connection, seen, now| match seen {
        Seen::Request { stream, method, path, end_stream: false, .. } => {
            assert_eq!((method.as_str(), path.as_str()), ("CONNECT", "/chat"));
            connection.send_response(now, StreamId(*stream), &OK);
        }
        Seen::Data { stream, data, end_stream } if role == Role::Server => {
            connection.send_data(now, StreamId(*stream), data, *end_stream);
        }
        Seen::Response { stream, .. } => {
            connection.send_data(now, StreamId(*stream), b" and late", true);
        }
        _ => {}
    });
    let mut echoed = Vec::new();
    let mut ended = false;
    for seen in pair.client.take() {
        if let Seen::Data { data, end_stream, .. } = seen {
            echoed.extend(data);
            ended |= end_stream;
        }
    }
    assert_eq!((String::from_utf8(echoed).unwrap().as_str(), ended), ("early and late", true));
    assert_eq!((pair.client.connection.open_streams(), pair.server.connection.open_streams()), (0, 0));
}

#[test]
fn the_role_learns_which_protocol_is_asked_for() {
    let mut peer = Scripted::new(extending());
    peer.engine.handle_input(peer.now, &connect(1, &TARGET));
    match peer.engine.poll_event(peer.now) {
        Some(Event::Request { head, .. }) => assert_eq!(head.protocol, b"websocket"),
        other => panic!("{other:?}"),
    }
    let mut plain = Scripted::new(server_config());
    plain.engine.handle_input(plain.now, &connect(1, &[]));
    match plain.engine.poll_event(plain.now) {
        Some(Event::Request { head, .. }) => assert_eq!(head.protocol, b""),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_protocol_is_malformed_unless_we_announced_the_setting() {
    let mut off = Scripted::new(server_config());
    assert_eq!(off.receive(&connect(1, &TARGET)), []);
    assert_eq!(off.codes(), (None, vec![(1, ErrorCode::PROTOCOL_ERROR.0)]));
    let mut on = Scripted::new(extending());
    assert!(matches!(on.receive(&connect(1, &TARGET))[..], [Seen::Request { stream: 1, .. }]));
    on.receive(&connect(3, &[(":path", "/"), (":scheme", "http")]));
    assert_eq!(on.codes(), (None, vec![(3, ErrorCode::PROTOCOL_ERROR.0)]), "a target without a protocol");
}

#[test]
fn a_client_asks_only_a_server_that_said_it_takes_it_and_that_may_not_take_it_back() {
    let mut peer = Scripted::new(client_config());
    assert!(peer.engine.send_connect(peer.now, "websocket", &websocket()).is_none());
    peer.receive(&enable(0));
    assert!(peer.engine.send_connect(peer.now, "websocket", &websocket()).is_none());
    peer.receive(&enable(1));
    assert!(peer.engine.send_connect(peer.now, "websocket", &websocket()).is_some());
    peer.sent();
    assert!(matches!(peer.receive(&enable(0))[..], [Seen::Closed { error: Some(_) }]));
    assert_eq!(peer.codes().0, Some(ErrorCode::PROTOCOL_ERROR.0));
    let mut server = Scripted::new(extending());
    assert_eq!(server.receive(&[enable(1), enable(0)].concat()), [Seen::Settings, Seen::Settings]);
    assert!(!server.engine.takes_connect_protocol(), "clients take none");
}

#[test]
fn a_tunnel_has_no_trailers_and_a_refusal_of_one_may() {
    let mut peer = Scripted::new(client_config());
    peer.receive(&enable(1));
    let trailers = block(&[("x", "1")]);
    for (stream, status, expected) in [
        (1, "200", malformed(1)),
        (3, "403", Seen::Trailers { stream: 3, fields: vec![("x".to_owned(), "1".to_owned())] }),
    ] {
        peer.engine.send_connect(peer.now, "websocket", &websocket()).unwrap();
        let head = frame(kind::HEADERS, flag::END_HEADERS, stream, &block(&[(":status", status)]));
        assert_eq!(peer.receive(&head).len(), 1);
        assert_eq!(peer.receive(&frame(kind::HEADERS, END, stream, &trailers)), [expected]);
    }
    let mut server = Scripted::new(extending());
    server.receive(&connect(1, &TARGET));
    server.engine.send_response(server.now, StreamId(1), &OK);
    assert_eq!(server.receive(&frame(kind::HEADERS, END, 1, &trailers)), [malformed(1)]);
}

#[test]
fn only_an_answer_that_opens_the_tunnel_is_free_of_content_length() {
    for (status, expected) in [("200", true), ("403", false)] {
        let mut peer = Scripted::new(client_config());
        peer.receive(&enable(1));
        peer.engine.send_connect(peer.now, "websocket", &websocket()).unwrap();
        let head = block(&[(":status", status), ("content-length", "1")]);
        peer.receive(&frame(kind::HEADERS, flag::END_HEADERS, 1, &head));
        let seen = peer.receive(&frame(kind::DATA, 0, 1, b"more"));
        assert_eq!(matches!(seen[..], [Seen::Data { .. }]), expected, "{status}: {seen:?}");
    }
}

#[test]
fn a_role_that_refuses_a_tunnel_answers_like_any_other() {
    let mut pair = pair_of(client_config(), extending(), 5);
    pair.settle();
    pair.client.connection.send_connect(pair.now, "telepathy", &websocket()).unwrap();
    let refusal = Response { status: 501, ..EMPTY };
    pair.settle_with(&mut |_, connection, seen, now| {
        if let Seen::Request { stream, .. } = seen {
            connection.send_response(now, StreamId(*stream), &refusal);
        }
    });
    let seen = pair.client.take();
    assert!(matches!(seen[..], [Seen::Response { status: 501, end_stream: true, .. }]), "{seen:?}");
}
