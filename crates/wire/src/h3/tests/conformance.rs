//! The reaction to each violation: the code, and whether the stream or the connection ends.

use Cost::{Connection, Nothing, Stream};

use super::support::*;
use crate::h3::frame::kind;
use crate::h3::stream::QuicStreamId;
use crate::testing::Seen;
use crate::{Config, ErrorCode, Event, Initiator, Role};

/// Bytes of a stream, and whether it ends after them.
type Sent = (u64, Vec<u8>, bool);

fn cost_of(mut peer: Scripted, sent: &[Sent]) -> Cost {
    let mut seen = Vec::new();
    for (stream, bytes, fin) in sent {
        seen = peer.receive(*stream, bytes, *fin);
    }
    cost(&mut peer, &seen)
}

/// The reaction when a client sends this to our server.
fn to_server(sent: &[Sent]) -> Cost {
    cost_of(Scripted::new(Config::new(Role::Server)), sent)
}

/// The reaction when a server sends this to our client, which has begun streams 0 and 4.
fn to_client(sent: &[Sent]) -> Cost {
    let mut client = Scripted::new(Config::new(Role::Client));
    client.request(&get("/"));
    client.request(&get("/"));
    cost_of(client, sent)
}

/// The reaction to a client's frame on its control stream.
fn client_control(kind: u64, payload: &[u8]) -> Cost {
    to_server(&[(CLIENT_CONTROL, frame(kind, payload), false)])
}

/// The reaction to a server's frame on its control stream.
fn server_control(kind: u64, payload: &[u8]) -> Cost {
    to_client(&[(SERVER_CONTROL, frame(kind, payload), false)])
}

const UNEXPECTED: Cost = Connection(ErrorCode::H3_FRAME_UNEXPECTED);
const LAYOUT: Cost = Connection(ErrorCode::H3_FRAME_ERROR);
const ID: Cost = Connection(ErrorCode::H3_ID_ERROR);
const MESSAGE: Cost = Stream(ErrorCode::H3_MESSAGE_ERROR);
const CREATION: Cost = Connection(ErrorCode::H3_STREAM_CREATION_ERROR);
const CLOSED: Cost = Connection(ErrorCode::H3_CLOSED_CRITICAL_STREAM);

#[test]
fn frames_out_of_sequence_on_a_request_end_the_connection() {
    // RFC 9114 §4.1
    assert_eq!(to_server(&[(0, data(b"x"), false)]), UNEXPECTED, "DATA first");
    assert_eq!(to_client(&[(0, data(b"x"), false)]), UNEXPECTED, "DATA first");
    let after_trailers = |more: Vec<u8>| {
        let bytes = [get_with(&[]), data(b"x"), headers(&[("x-sum", "1")]), more].concat();
        to_server(&[(0, bytes, false)])
    };
    assert_eq!(after_trailers(data(b"x")), UNEXPECTED);
    assert_eq!(after_trailers(headers(&[("x", "1")])), UNEXPECTED);
    assert_eq!(after_trailers(frame(0x21, b"grease")), Nothing, "unknown frames may come anywhere (§9)");
    let interim = [answer("103", &[]), data(b"x")].concat();
    assert_eq!(to_client(&[(0, interim, false)]), UNEXPECTED, "DATA before the final response");
}

#[test]
fn frames_of_the_control_stream_end_the_connection_elsewhere() {
    // RFC 9114 §7.2.3, §7.2.4, §7.2.6, §7.2.7; RFC 9218 §7.2
    for kind in [
        kind::CANCEL_PUSH,
        kind::SETTINGS,
        kind::GOAWAY,
        kind::MAX_PUSH_ID,
        kind::PRIORITY_UPDATE,
        kind::PRIORITY_UPDATE_PUSH,
    ] {
        assert_eq!(to_server(&[(0, frame(kind, &[0]), false)]), UNEXPECTED, "{kind:#x}");
        assert_eq!(to_client(&[(0, frame(kind, &[0]), false)]), UNEXPECTED, "{kind:#x}");
    }
}

#[test]
fn frames_of_requests_end_the_connection_on_the_control_stream() {
    // RFC 9114 §7.2.1, §7.2.2, §7.2.5
    for kind in [kind::DATA, kind::HEADERS, kind::PUSH_PROMISE] {
        assert_eq!(client_control(kind, &[0]), UNEXPECTED, "{kind:#x}");
        assert_eq!(server_control(kind, &[0]), UNEXPECTED, "{kind:#x}");
    }
}

#[test]
fn frames_of_http_2_end_the_connection_and_unknown_ones_do_not() {
    // RFC 9114 §7.2.8, §9
    for kind in [0x2, 0x6, 0x8, 0x9] {
        assert_eq!(to_server(&[(0, frame(kind, &[0]), false)]), UNEXPECTED, "{kind:#x}");
        assert_eq!(client_control(kind, &[0]), UNEXPECTED, "{kind:#x}");
    }
    for kind in [0x21, 0x1f * 5 + 0x21, 0xa, 0xf_ffff, (1 << 62) - 1] {
        assert_eq!(to_server(&[(0, [frame(kind, b"abc"), get_with(&[])].concat(), true)]), Nothing);
        assert_eq!(client_control(kind, b"abc"), Nothing, "{kind:#x}");
    }
}

#[test]
fn push_is_refused_in_every_form() {
    // RFC 9114 §4.6, §6.2.2, §7.2.3, §7.2.5, §7.2.7: we never send MAX_PUSH_ID.
    assert_eq!(to_client(&[(0, frame(kind::PUSH_PROMISE, &[0, 0, 0]), false)]), ID);
    assert_eq!(to_server(&[(0, frame(kind::PUSH_PROMISE, &[0, 0, 0]), false)]), UNEXPECTED);
    assert_eq!(to_client(&[(7, vec![1, 0], false)]), ID, "a push stream");
    assert_eq!(to_server(&[(6, vec![1, 0], false)]), CREATION, "a push stream of a client");
    assert_eq!(client_control(kind::CANCEL_PUSH, &[0]), ID);
    assert_eq!(server_control(kind::CANCEL_PUSH, &[0]), ID);
    assert_eq!(server_control(kind::MAX_PUSH_ID, &[0]), UNEXPECTED);
    assert_eq!(client_control(kind::PRIORITY_UPDATE_PUSH, &[0]), ID, "RFC 9218 §7.2");
}

#[test]
fn a_push_id_may_rise_and_not_fall() {
    // RFC 9114 §7.2.7
    let ids = |ids: &[u64]| {
        let frames = ids.iter().map(|id| frame(kind::MAX_PUSH_ID, &integer(*id)));
        to_server(&[(CLIENT_CONTROL, frames.collect::<Vec<_>>().concat(), false)])
    };
    assert_eq!(ids(&[3, 3, 9]), Nothing);
    assert_eq!(ids(&[3, 2]), ID);
}

#[test]
fn the_control_stream_begins_with_settings_and_has_them_once() {
    // RFC 9114 §6.2.1, §7.2.4
    let first = |bytes: &[u8]| {
        cost_of(
            Scripted::silent(Config::new(Role::Server)),
            &[(CLIENT_CONTROL, [&[0][..], bytes].concat(), false)],
        )
    };
    assert_eq!(first(&frame(kind::SETTINGS, &[])), Nothing);
    for kind in [kind::GOAWAY, kind::DATA, 0x21] {
        assert_eq!(first(&frame(kind, &[0])), Connection(ErrorCode::H3_MISSING_SETTINGS), "{kind:#x}");
    }
    assert_eq!(client_control(kind::SETTINGS, &[]), UNEXPECTED, "twice");
    let wrong = frame(kind::SETTINGS, &[2, 0]);
    assert_eq!(first(&wrong), Connection(ErrorCode::H3_SETTINGS_ERROR), "ENABLE_PUSH of HTTP/2 (§7.2.4.1)");
}

#[test]
fn streams_that_there_is_one_of_cannot_begin_twice() {
    // RFC 9114 §6.2.1, RFC 9204 §4.2
    assert_eq!(to_server(&[(6, vec![0], false)]), CREATION, "a second control stream");
    for stream_type in [2, 3] {
        assert_eq!(to_server(&[(6, vec![stream_type], false)]), Nothing);
        let twice = [(6, vec![stream_type], false), (10, vec![stream_type], false)];
        assert_eq!(to_server(&twice), CREATION, "{stream_type}");
    }
}

#[test]
fn streams_that_the_connection_needs_must_not_end() {
    // RFC 9114 §6.2.1, RFC 9204 §4.2
    assert_eq!(to_server(&[(CLIENT_CONTROL, vec![], true)]), CLOSED);
    assert_eq!(to_client(&[(SERVER_CONTROL, vec![], true)]), CLOSED);
    for stream_type in [2, 3] {
        assert_eq!(to_server(&[(6, vec![stream_type], true)]), CLOSED, "{stream_type}");
    }
    let mut server = Scripted::new(Config::new(Role::Server));
    let seen = server.receive_reset(CLIENT_CONTROL, ErrorCode::H3_NO_ERROR);
    assert_eq!(cost(&mut server, &seen), CLOSED, "reset");
    let mut server = Scripted::new(Config::new(Role::Server));
    let seen = server.receive_stop(SERVER_CONTROL, ErrorCode::H3_NO_ERROR);
    assert_eq!(cost(&mut server, &seen), CLOSED, "ours is not read");
}

#[test]
fn unknown_streams_are_stopped_and_may_end_before_their_type_is_complete() {
    // RFC 9114 §6.2, §6.2.3
    let unknown = [&integer(0x21)[..], b"whatever"].concat();
    assert_eq!(to_server(&[(6, unknown, true)]), Stream(ErrorCode::H3_STREAM_CREATION_ERROR));
    assert_eq!(to_server(&[(6, vec![0x40], true)]), Nothing);
    assert_eq!(to_server(&[(6, vec![], true)]), Nothing);
    assert_eq!(
        to_server(&[(6, vec![0x40], false), (6, vec![0x02], false), (6, vec![0x21], false)]),
        { Connection(ErrorCode::QPACK_ENCODER_STREAM_ERROR) },
        "a type of two bytes that are cut: the encoder stream, and an instruction that fills a table"
    );
}

#[test]
fn servers_begin_no_streams_that_go_both_ways() {
    // RFC 9114 §6.1
    assert_eq!(to_client(&[(1, vec![], false)]), CREATION);
}

#[test]
fn qpack_streams_carry_nothing_about_a_dynamic_table() {
    // RFC 9204 §3.2.3, §4.3, §4.4
    let encoder = |bytes: &[u8]| to_server(&[(6, [&[2][..], bytes].concat(), false)]);
    assert_eq!(encoder(&[0x20]), Nothing, "Set Dynamic Table Capacity 0");
    assert_eq!(encoder(&[0x21]), Connection(ErrorCode::QPACK_ENCODER_STREAM_ERROR));
    let decoder = |bytes: &[u8]| to_server(&[(6, [&[3][..], bytes].concat(), false)]);
    assert_eq!(decoder(&[0x44]), Nothing, "Stream Cancellation");
    assert_eq!(decoder(&[0x84]), Connection(ErrorCode::QPACK_DECODER_STREAM_ERROR));
}

#[test]
fn sections_that_cannot_be_decoded_end_the_connection() {
    // RFC 9204 §2.2, §6
    let failed = Connection(ErrorCode::QPACK_DECOMPRESSION_FAILED);
    assert_eq!(to_server(&[(0, frame(kind::HEADERS, &[2, 0, 0x80]), false)]), failed, "a dynamic table");
    assert_eq!(to_server(&[(0, frame(kind::HEADERS, &[0, 0, 0xff, 36]), false)]), failed, "static index 99");
    assert_eq!(to_server(&[(0, frame(kind::HEADERS, &[]), true)]), failed, "without a prefix");
}

#[test]
fn a_stream_must_not_end_within_a_frame() {
    // RFC 9114 §7.1
    let whole = [get_with(&[]), data(b"abc")].concat();
    for length in 1..whole.len() {
        let is_boundary = length == get_with(&[]).len();
        let expected = if is_boundary { Nothing } else { LAYOUT };
        assert_eq!(to_server(&[(0, whole[..length].to_vec(), true)]), expected, "{length}");
    }
}

#[test]
fn frames_of_one_integer_have_nothing_else_in_them() {
    // RFC 9114 §7.1
    for kind in [kind::GOAWAY, kind::CANCEL_PUSH, kind::MAX_PUSH_ID] {
        for payload in [&[][..], &[0x40], &[0, 0]] {
            assert_eq!(client_control(kind, payload), LAYOUT, "{kind:#x} {payload:?}");
        }
    }
    assert_eq!(client_control(kind::PRIORITY_UPDATE, &[0x40]), LAYOUT, "RFC 9218 §7.2");
}

#[test]
fn a_priority_update_is_of_a_request() {
    // RFC 9218 §7.2
    for (id, expected) in [(0, Nothing), (400, Nothing), (1, ID), (2, ID), (3, ID), (1 << 60, ID)] {
        let payload = [&integer(id)[..], b"u=1"].concat();
        assert_eq!(client_control(kind::PRIORITY_UPDATE, &payload), expected, "{id}");
    }
    assert_eq!(server_control(kind::PRIORITY_UPDATE, b"\0u=1"), UNEXPECTED, "from a server");
}

#[test]
fn malformed_requests_cost_their_stream() {
    // RFC 9114 §4.1.2, §4.2, §4.3
    let request = |bytes: Vec<u8>| to_server(&[(0, bytes, true)]);
    assert_eq!(request(get_with(&[("x", "1")])), Nothing);
    for (name, value) in [
        ("connection", "close"),
        ("te", "gzip"),
        ("transfer-encoding", "chunked"),
        ("X-Upper", "1"),
        ("x", "a\nb"),
        (":path", "/"),
        (":test", "1"),
        (":status", "200"),
        ("content-length", "1"),
        ("content-length", "x"),
    ] {
        assert_eq!(request(get_with(&[(name, value)])), MESSAGE, "{name}: {value}");
    }
    for (missing, field) in GET.iter().enumerate() {
        let rest: Vec<_> = GET.iter().enumerate().filter(|(n, _)| *n != missing).map(|(_, f)| *f).collect();
        assert_eq!(request(headers(&rest)), MESSAGE, "without {}", field.0);
    }
    let empty = [GET[0], GET[1], (":authority", ""), GET[3]];
    assert_eq!(request(headers(&empty)), MESSAGE, "an empty authority (§4.3.1)");
    let host = [GET[0], GET[1], GET[3], ("host", "a")];
    assert_eq!(request(headers(&host)), Nothing, "host stands in for it");
}

#[test]
fn a_body_is_as_long_as_its_content_length() {
    // RFC 9114 §4.1.2
    let with = |length: &str, body: &[u8]| {
        to_server(&[(0, [get_with(&[("content-length", length)]), data(body)].concat(), true)])
    };
    assert_eq!(with("3", b"abc"), Nothing);
    assert_eq!(with("3", b"abcd"), MESSAGE);
    assert_eq!(with("3", b"ab"), MESSAGE);
    let trailers = [get_with(&[("content-length", "3")]), data(b"ab"), headers(&[("x", "1")])].concat();
    assert_eq!(to_server(&[(0, trailers, true)]), MESSAGE, "before trailers");
    let status = |status: &str, body: &[u8]| {
        to_client(&[(0, [answer(status, &[("content-length", "3")]), data(body)].concat(), true)])
    };
    assert_eq!((status("200", b"abc"), status("200", b"ab")), (Nothing, MESSAGE));
    assert_eq!(
        (status("304", b""), status("304", b"abc"), status("204", b"abc")),
        (Nothing, MESSAGE, MESSAGE)
    );
}

#[test]
fn a_response_to_head_has_a_length_and_no_content() {
    // RFC 9110 §6.4.1
    let to_head = |body: &[u8]| {
        let mut client = Scripted::new(Config::new(Role::Client));
        client.request(&crate::connection::Request { method: "HEAD", ..get("/") });
        let bytes = [answer("200", &[("content-length", "3")]), body.to_vec()].concat();
        cost_of(client, &[(0, bytes, true)])
    };
    assert_eq!(to_head(&[]), Nothing);
    assert_eq!(to_head(&data(b"abc")), MESSAGE);
}

#[test]
fn malformed_responses_cost_their_stream() {
    // RFC 9114 §4.1, §4.1.2, §4.3.2, §4.5
    let response = |bytes: Vec<u8>, fin| to_client(&[(0, bytes, fin)]);
    assert_eq!(response(answer("200", &[]), true), Nothing);
    assert_eq!(response(headers(&[("x", "1")]), true), MESSAGE, "without :status");
    assert_eq!(response(answer("101", &[]), false), MESSAGE, "101 (§4.5)");
    assert_eq!(response(answer("200", &[(":path", "/")]), true), MESSAGE);
    assert_eq!(response(answer("103", &[]), true), MESSAGE, "an interim response ends the stream");
    assert_eq!(response(vec![], true), MESSAGE, "no response");
    let trailers = [answer("200", &[]), headers(&[(":status", "200")])].concat();
    assert_eq!(response(trailers, true), MESSAGE, "a pseudo-header field in trailers");
}

#[test]
fn each_of_two_malformed_responses_that_come_at_once_has_its_reason() {
    let mut client = Scripted::new(Config::new(Role::Client));
    let now = client.now;
    for (stream, response) in [(0, headers(&[("x", "1")])), (4, answer("101", &[]))] {
        client.request(&get("/"));
        client.quic().handle_stream(now, QuicStreamId(stream), &response, true);
    }
    let mut told = Vec::new();
    while let Some(event) = client.engine.poll_event(now) {
        let stream = match event {
            Event::Reset { stream, initiator: Initiator::Engine, .. } => stream,
            other => panic!("{other:?}"),
        };
        told.push((stream.0, client.engine.take_refused().map(|refused| refused.reason)));
    }
    let [first, second] =
        ["a response without :status (RFC 9113 §8.3.2)", "status 101 (RFC 9113 §8.6)"].map(Some);
    assert_eq!(told, [(1, first), (3, second)]);
}

#[test]
fn a_request_that_is_not_whole_is_incomplete() {
    // RFC 9114 §4.1
    let incomplete = Stream(ErrorCode::H3_REQUEST_INCOMPLETE);
    assert_eq!(to_server(&[(0, vec![], true)]), incomplete);
    assert_eq!(to_server(&[(0, frame(0x21, b"x"), true)]), incomplete);
}

#[test]
fn a_tunnel_carries_data_and_nothing_else() {
    // RFC 9114 §4.4
    let connect = headers(&[(":method", "CONNECT"), (":authority", "a:1")]);
    assert_eq!(to_server(&[(0, [&connect[..], &data(b"x")].concat(), false)]), Nothing);
    assert_eq!(to_server(&[(0, [connect, headers(&[("x", "1")])].concat(), false)]), UNEXPECTED);
}

#[test]
fn a_protocol_is_named_only_where_we_said_so() {
    // RFC 9220 §3
    let connect = headers(&[(":method", "CONNECT"), GET[1], GET[2], GET[3], (":protocol", "websocket")]);
    assert_eq!(to_server(&[(0, connect.clone(), false)]), MESSAGE);
    let config = Config { connect_protocol: true, ..Config::new(Role::Server) };
    assert_eq!(cost_of(Scripted::new(config), &[(0, connect, false)]), Nothing);
}

#[test]
fn what_is_malformed_is_never_shown_to_a_server() {
    let mut server = Scripted::new(Config::new(Role::Server));
    assert_eq!(server.receive(0, &get_with(&[("te", "gzip")]), true), []);
    assert_eq!(server.receive(4, &get_with(&[("content-length", "9")]), true), []);
    let seen = server.receive(8, &[get_with(&[("content-length", "9")]), data(b"x")].concat(), true);
    assert!(matches!(seen[..], [Seen::Request { .. }, Seen::Reset { .. }]), "{seen:?}");
    assert_eq!(server.engine.open_streams(), 0);
}
