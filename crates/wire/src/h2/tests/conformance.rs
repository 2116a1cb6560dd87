//! The reaction to each violation of RFC 9113: the code, and whether the stream or the connection ends.

use super::support::*;
use crate::h2::frame::{FrameHeader, flag, kind};
use crate::own_answers::OwnAnswers;
use crate::testing::Seen;
use crate::{Config, Error, ErrorCode, Initiator, StreamId};

const END: u8 = flag::END_STREAM | flag::END_HEADERS;
const OPEN: u8 = flag::END_HEADERS;

/// The scope and code of the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cost {
    Nothing,
    Stream(u32, ErrorCode),
    Connection(ErrorCode),
}

fn cost_of(config: Config, requests: u32, bytes: &[u8]) -> Cost {
    let mut peer = Scripted::new(config);
    for _ in 0..requests {
        peer.request();
    }
    let seen = peer.receive(bytes);
    match (peer.codes(), seen.last()) {
        (
            (Some(code), _),
            Some(Seen::Closed { error: Some(Error::PeerMisbehaved { code: reported, .. }) }),
        ) => {
            assert_eq!(ErrorCode(code), *reported, "the role gets the code that the peer gets");
            Cost::Connection(*reported)
        }
        ((None, resets), _) => match resets[..] {
            [] => Cost::Nothing,
            [(stream, code)] => Cost::Stream(stream, ErrorCode(code)),
            _ => panic!("several resets: {resets:?}"),
        },
        (codes, seen) => panic!("{codes:?} but {seen:?}"),
    }
}

/// The reaction to `frames` when a client sends them to our server.
fn to_server(frames: &[Vec<u8>]) -> Cost {
    cost_of(server_config(), 0, &frames.concat())
}

/// The reaction to `frames` when a server sends them to our client, which has begun streams 1 and 3.
fn to_client(frames: &[Vec<u8>]) -> Cost {
    cost_of(client_config(), 2, &frames.concat())
}

fn get_with(more: &[(&str, &str)]) -> Vec<u8> {
    let get = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    frame(kind::HEADERS, END, 1, &block(&[&get[..], more].concat()))
}

fn ok_with(more: &[(&str, &str)], flags: u8) -> Vec<u8> {
    frame(kind::HEADERS, flags, 1, &block(&[&[(":status", "200")], more].concat()))
}

fn opened() -> Vec<u8> {
    frame(kind::HEADERS, OPEN, 1, &get_block())
}

fn ended() -> Vec<u8> {
    frame(kind::HEADERS, END, 1, &get_block())
}

fn data(flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    frame(kind::DATA, flags, stream, payload)
}

fn settings(setting: u16, value: u32) -> Vec<u8> {
    frame(kind::SETTINGS, 0, 0, &[&setting.to_be_bytes()[..], &value.to_be_bytes()].concat())
}

use Cost::{Connection, Nothing, Stream};

#[test]
fn frames_on_idle_streams_end_the_connection() {
    let idle = Connection(ErrorCode::PROTOCOL_ERROR);
    assert_eq!(to_server(&[data(0, 1, b"x")]), idle);
    assert_eq!(to_server(&[frame(kind::RST_STREAM, 0, 1, &[0; 4])]), idle);
    assert_eq!(to_server(&[frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])]), idle);
    assert_eq!(to_server(&[frame(kind::CONTINUATION, OPEN, 1, &[])]), idle);
    assert_eq!(to_server(&[frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 3, 1])]), Nothing);
    assert_eq!(to_client(&[frame(kind::HEADERS, END, 5, &ok_block())]), idle);
    assert_eq!(to_client(&[frame(kind::HEADERS, END, 2, &ok_block())]), idle);
}

#[test]
fn frames_after_end_stream_are_stream_closed() {
    let half_closed = Stream(1, ErrorCode::STREAM_CLOSED);
    assert_eq!(to_server(&[ended(), data(0, 1, b"x")]), half_closed);
    assert_eq!(to_server(&[ended(), ended()]), half_closed);
    assert_eq!(to_server(&[ended(), frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])]), Nothing);
    let closed = Connection(ErrorCode::STREAM_CLOSED);
    assert_eq!(to_client(&[ok_with(&[], END), data(0, 1, b"x")]), closed);
    assert_eq!(to_client(&[ok_with(&[], END), ok_with(&[], END)]), closed);
    assert_eq!(to_client(&[ok_with(&[], END), frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])]), Nothing);
    assert_eq!(to_client(&[ok_with(&[], END), frame(kind::RST_STREAM, 0, 1, &[0; 4])]), Nothing);
}

/// A server may end a response early and then reset the request (RFC 9113 §8.1); a generator that counts both opens
/// more streams than the server admits.
#[test]
fn a_reset_after_the_end_frees_no_second_slot() {
    let mut peer = Scripted::new(client_config());
    peer.receive(&settings(3, 2)); // MAX_CONCURRENT_STREAMS
    let available = |peer: &Scripted| peer.engine.available_streams();
    let no_error = |stream| frame(kind::RST_STREAM, 0, stream, &ErrorCode::NO_ERROR.0.to_be_bytes());
    assert_eq!((peer.request(), peer.upload(), available(&peer)), (1, StreamId(3), 0));
    peer.receive(&ok_with(&[], END));
    assert_eq!(available(&peer), 1);
    peer.receive(&no_error(1));
    assert_eq!(available(&peer), 1, "it was free already");
    peer.receive(&frame(kind::HEADERS, END, 3, &ok_block()));
    assert_eq!(available(&peer), 1, "we still send");
    peer.receive(&no_error(3));
    assert_eq!(available(&peer), 2);
    peer.receive(&no_error(3));
    assert_eq!(available(&peer), 2);
}

#[test]
fn a_response_that_is_ended_twice_costs_nothing_unless_the_second_end_brings_something() {
    let empty = |flags| to_client(&[ok_with(&[], END), data(flags, 1, b"")]);
    assert_eq!(empty(flag::END_STREAM), Nothing);
    let closed = Connection(ErrorCode::STREAM_CLOSED);
    assert_eq!(empty(0), closed);
    assert_eq!(to_client(&[ok_with(&[], END), data(flag::END_STREAM, 1, b"x")]), closed);
    let padding = data(flag::END_STREAM | flag::PADDED, 1, &[3, 0, 0, 0]);
    assert_eq!(to_client(&[ok_with(&[], END), padding]), closed);
}

#[test]
fn a_request_that_is_ended_twice_is_a_violation() {
    assert_eq!(to_server(&[ended(), data(flag::END_STREAM, 1, b"")]), Stream(1, ErrorCode::STREAM_CLOSED));
}

#[test]
fn frames_after_the_peers_own_reset_are_stream_closed() {
    let reset = frame(kind::RST_STREAM, 0, 1, &ErrorCode::CANCEL.0.to_be_bytes());
    assert_eq!(to_server(&[opened(), reset.clone(), data(0, 1, b"x")]), Stream(1, ErrorCode::STREAM_CLOSED));
    assert_eq!(to_server(&[opened(), reset.clone(), ended()]), Stream(1, ErrorCode::STREAM_CLOSED));
    assert_eq!(to_server(&[opened(), reset.clone(), reset]), Nothing);
}

#[test]
fn frames_after_our_reset_are_ignored_and_their_credit_returned() {
    let mut peer = Scripted::new(client_config());
    let stream = peer.upload();
    peer.engine.reset(peer.now, stream, ErrorCode::CANCEL);
    peer.sent();
    let mut frames = frame(kind::HEADERS, OPEN, 1, &ok_block());
    for _ in 0..3 {
        frames.extend(data(0, 1, &[0; 16_000]));
    }
    assert_eq!(peer.receive(&frames), []);
    let sent: Vec<_> = peer.sent().into_iter().map(|(header, _)| (header.kind, header.stream)).collect();
    assert_eq!(sent, [(kind::WINDOW_UPDATE, 0)], "credit of the connection, and nothing for the stream");
}

/// More than the streams that an engine records (`streams::REMEMBERED`).
const LONG: u32 = 300;

#[test]
fn trailers_of_a_request_that_we_reset_long_ago_are_ignored_and_a_new_head_is_not() {
    let after_long = |late: &[(&str, &str)]| {
        let mut peer = Scripted::new(server_config());
        peer.receive(&opened());
        peer.engine.reset(peer.now, StreamId(1), ErrorCode::CANCEL);
        for stream in (1..=LONG).map(|n| 2 * n + 1) {
            peer.receive(&frame(kind::HEADERS, END, stream, &get_block()));
            peer.engine.send_response(peer.now, StreamId(stream), &EMPTY);
        }
        peer.sent();
        peer.receive(&frame(kind::HEADERS, END, 1, &block(late)));
        peer.codes()
    };
    assert_eq!(after_long(&[("x-checksum", "1")]), (None, vec![]));
    let head = [(":method", "GET"), (":scheme", "http"), (":path", "/")];
    assert_eq!(after_long(&head), (Some(ErrorCode::PROTOCOL_ERROR.0), vec![]));
}

#[test]
fn a_promise_on_a_request_that_we_reset_long_ago_is_refused_and_costs_nothing_else() {
    let mut peer = Scripted::new(Config { enable_push: true, ..client_config() });
    let first = peer.upload();
    peer.engine.reset(peer.now, first, ErrorCode::CANCEL);
    for _ in 0..LONG {
        let stream = peer.request();
        peer.receive(&frame(kind::HEADERS, END, stream, &ok_block()));
    }
    peer.sent();
    let promise = [&2_u32.to_be_bytes()[..], &get_block()].concat();
    peer.receive(&frame(kind::PUSH_PROMISE, OPEN, first.0, &promise));
    assert_eq!(peer.codes(), (None, vec![(2, ErrorCode::REFUSED_STREAM.0)]));
    let idle = [&4_u32.to_be_bytes()[..], &get_block()].concat();
    peer.receive(&frame(kind::PUSH_PROMISE, OPEN, 2 * LONG + 101, &idle));
    assert_eq!(peer.codes().0, Some(ErrorCode::PROTOCOL_ERROR.0), "its request was never sent");
}

#[test]
fn stream_ids_must_rise_and_be_odd() {
    let lower = [frame(kind::HEADERS, END, 5, &get_block()), frame(kind::HEADERS, END, 3, &get_block())];
    assert_eq!(to_server(&lower), Connection(ErrorCode::PROTOCOL_ERROR));
    assert_eq!(
        to_server(&[frame(kind::HEADERS, END, 2, &get_block())]),
        Connection(ErrorCode::PROTOCOL_ERROR)
    );
}

#[test]
fn malformed_requests_cost_their_stream() {
    let malformed = Stream(1, ErrorCode::PROTOCOL_ERROR);
    for field in [("X-Upper", "1"), ("connection", "close"), ("te", "gzip"), (":path", "/"), (":late", "1")] {
        assert_eq!(to_server(&[get_with(&[field])]), malformed, "{field:?}");
    }
    assert_eq!(to_server(&[get_with(&[("content-length", "1")])]), malformed, "a body that is missing");
    let post = |length| {
        let get = [(":method", "POST"), (":scheme", "http"), (":path", "/"), ("content-length", length)];
        frame(kind::HEADERS, OPEN, 1, &block(&get))
    };
    assert_eq!(to_server(&[post("2"), data(0, 1, b"a"), data(flag::END_STREAM, 1, b"b")]), Nothing);
    assert_eq!(to_server(&[post("1"), data(flag::END_STREAM, 1, b"ab")]), malformed);
    assert_eq!(to_server(&[post("3"), data(flag::END_STREAM, 1, b"ab")]), malformed);
    assert_eq!(to_server(&[opened(), opened()]), malformed, "a second head");
    let trailers = |fields: &[(&str, &str)], flags| frame(kind::HEADERS, flags, 1, &block(fields));
    assert_eq!(to_server(&[opened(), trailers(&[("x", "1")], END)]), Nothing);
    assert_eq!(to_server(&[opened(), trailers(&[(":path", "/")], END)]), malformed);
    assert_eq!(to_server(&[opened(), trailers(&[("x", "1")], OPEN)]), malformed);
}

#[test]
fn malformed_responses_cost_their_stream() {
    let malformed = Stream(1, ErrorCode::PROTOCOL_ERROR);
    let head = |fields: &[(&str, &str)], flags| frame(kind::HEADERS, flags, 1, &block(fields));
    assert_eq!(to_client(&[head(&[("x", "1")], END)]), malformed);
    assert_eq!(to_client(&[head(&[(":status", "101")], OPEN)]), malformed);
    assert_eq!(to_client(&[head(&[(":status", "103")], END)]), malformed, "an interim response that ends");
    assert_eq!(to_client(&[data(0, 1, b"x")]), malformed, "DATA before the response");
    assert_eq!(to_client(&[ok_with(&[("content-length", "2")], OPEN), data(1, 1, b"x")]), malformed);
    assert_eq!(to_client(&[head(&[(":status", "204")], OPEN), data(1, 1, b"x")]), malformed);
    assert_eq!(to_client(&[head(&[(":status", "204")], OPEN), data(1, 1, b"")]), Nothing);
}

#[test]
fn a_stream_error_is_reported_to_the_role_and_the_connection_goes_on() {
    let mut peer = Scripted::new(client_config());
    peer.request();
    peer.request();
    let seen = peer.receive(&[data(0, 1, b"x"), frame(kind::HEADERS, END, 3, &ok_block())].concat());
    let reset = Seen::Reset { stream: 1, code: ErrorCode::PROTOCOL_ERROR, initiator: Initiator::Engine };
    let response = Seen::Response { stream: 3, status: 200, fields: vec![], end_stream: true };
    assert_eq!(seen, [reset, response]);
}

#[test]
fn broken_frames_end_the_connection() {
    let protocol = Connection(ErrorCode::PROTOCOL_ERROR);
    let size = Connection(ErrorCode::FRAME_SIZE_ERROR);
    assert_eq!(to_server(&[data(0, 0, b"x")]), protocol);
    assert_eq!(to_server(&[opened(), data(flag::PADDED, 1, &[2, 0])]), protocol);
    assert_eq!(to_server(&[opened(), data(flag::PADDED, 1, &[1, 0])]), Nothing);
    assert_eq!(to_server(&[frame(kind::PING, 0, 0, &[0; 7])]), size);
    assert_eq!(to_server(&[opened(), data(0, 1, &[0; 16_384])]), Nothing);
    let header = FrameHeader { length: 16_385, kind: kind::DATA, flags: 0, stream: 1 };
    assert_eq!(to_server(&[opened(), header.encode().to_vec()]), size, "before its payload arrives");
    let header = FrameHeader { length: 16_385, kind: 0xee, flags: 0, stream: 0 };
    assert_eq!(to_server(&[header.encode().to_vec()]), size, "unknown types have a size too");
    assert_eq!(to_server(&[frame(0xee, 0xff, 7, &[0; 100])]), Nothing);
}

#[test]
fn a_stream_that_depends_on_itself_is_reset() {
    let priority = |on: u32| [&on.to_be_bytes()[..], &[16]].concat();
    let headers = |on| frame(kind::HEADERS, END | flag::PRIORITY, 1, &[priority(on), get_block()].concat());
    assert_eq!(to_server(&[headers(1)]), Stream(1, ErrorCode::PROTOCOL_ERROR));
    assert_eq!(to_server(&[headers(3)]), Nothing);
    let late = frame(kind::PRIORITY, 0, 1, &priority(1));
    assert_eq!(to_server(&[opened(), late.clone()]), Stream(1, ErrorCode::PROTOCOL_ERROR));
    assert_eq!(to_server(&[late]), Connection(ErrorCode::PROTOCOL_ERROR), "an idle stream cannot be reset");
}

#[test]
fn field_blocks_must_not_be_interrupted() {
    let begun = frame(kind::HEADERS, flag::END_STREAM, 1, &get_block()[..2]);
    let rest = frame(kind::CONTINUATION, OPEN, 1, &get_block()[2..]);
    assert_eq!(to_server(&[begun.clone(), rest.clone()]), Nothing);
    let protocol = Connection(ErrorCode::PROTOCOL_ERROR);
    for other in [
        frame(kind::PING, 0, 0, &[0; 8]),
        frame(kind::CONTINUATION, OPEN, 3, &[]),
        frame(0xee, 0, 1, &[]),
        opened(),
    ] {
        assert_eq!(to_server(&[begun.clone(), other]), protocol);
    }
    assert_eq!(to_server(&[ended(), rest]), protocol, "no block is open");
}

#[test]
fn a_field_list_that_is_too_large_costs_its_stream_only() {
    let mut config = server_config();
    // The four fields of `get_block` take 4 × 32 + 43 bytes as RFC 9113 §6.5.2 counts.
    let size: u32 = [":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/"]
        .iter()
        .map(|s| s.len() as u32)
        .sum();
    config.max_header_list_size = size + 4 * 32;
    assert_eq!(cost_of(config, 0, &ended()), Nothing);
    config.max_header_list_size -= 1;
    for (request, kinds) in [
        (ended(), &[kind::HEADERS][..]),
        (frame(kind::HEADERS, OPEN, 1, &get_block()), &[kind::HEADERS, kind::RST_STREAM]),
    ] {
        let mut peer = Scripted::new(config);
        let proxy_status = Some("a; error=http_request_error".to_owned());
        peer.engine.set_own_answers(OwnAnswers { proxy_status, unix_s: Some(|| 784_111_777) }.into());
        assert_eq!(peer.receive(&request), [], "it is answered 431");
        let sent = peer.sent();
        let answer: Vec<u8> = sent.iter().filter(|sent| sent.0.stream == 1).map(|sent| sent.0.kind).collect();
        assert_eq!(answer, kinds);
        let block = sent.iter().find(|sent| sent.0.kind == kind::HEADERS).map(|sent| &sent.1[..]);
        let mut client = Scripted::new(client_config());
        client.request();
        let seen = client.receive(&frame(kind::HEADERS, END, 1, block.expect("an answer")));
        for words in ["a; error=http_request_error; details=", "Sun, 06 Nov 1994 08:49:37 GMT"] {
            assert!(format!("{seen:?}").contains(words), "{seen:?}");
        }
        assert_eq!(peer.receive(&frame(kind::PING, 0, 0, &[0; 8])), [], "the connection goes on");
    }
}

#[test]
fn undecodable_blocks_end_the_connection() {
    assert_eq!(to_server(&[frame(kind::HEADERS, END, 1, &[0xbe])]), Connection(ErrorCode::COMPRESSION_ERROR));
    let late = frame(kind::HEADERS, END, 1, &[0xbe]);
    assert_eq!(
        to_server(&[ended(), late]),
        Connection(ErrorCode::COMPRESSION_ERROR),
        "also on a closed stream"
    );
}

#[test]
fn settings_are_checked_and_acknowledged() {
    assert_eq!(to_server(&[settings(2, 2)]), Connection(ErrorCode::PROTOCOL_ERROR));
    assert_eq!(to_server(&[settings(4, 1 << 31)]), Connection(ErrorCode::FLOW_CONTROL_ERROR));
    assert_eq!(to_server(&[settings(5, 16_383)]), Connection(ErrorCode::PROTOCOL_ERROR));
    assert_eq!(to_client(&[settings(2, 1)]), Connection(ErrorCode::PROTOCOL_ERROR));
    let mut peer = Scripted::new(server_config());
    assert_eq!(peer.receive(&settings(0xabcd, 1)), [Seen::Settings]);
    let sent = peer.sent();
    assert!(matches!(sent[..], [(FrameHeader { kind: kind::SETTINGS, flags: flag::ACK, length: 0, .. }, _)]));
}

#[test]
fn pings_are_answered_with_their_payload() {
    let mut peer = Scripted::new(server_config());
    peer.receive(&frame(kind::PING, 0, 0, b"h2lab-ok"));
    let sent = peer.sent();
    assert_eq!((sent[0].0.kind, sent[0].0.flags, &sent[0].1[..]), (kind::PING, flag::ACK, &b"h2lab-ok"[..]));
    assert_eq!(peer.receive(&frame(kind::PING, flag::ACK, 0, b"unasked.")), []);
}

#[test]
fn promises_are_refused_unless_push_is_enabled() {
    let promise = |promised: u32, block: Vec<u8>| {
        frame(kind::PUSH_PROMISE, OPEN, 1, &[&promised.to_be_bytes()[..], &block].concat())
    };
    assert_eq!(to_client(&[promise(2, get_block())]), Connection(ErrorCode::PROTOCOL_ERROR));
    assert_eq!(to_server(&[opened(), promise(2, get_block())]), Connection(ErrorCode::PROTOCOL_ERROR));
    let config = Config { enable_push: true, ..client_config() };
    let cost = |frames: &[Vec<u8>]| cost_of(config, 1, &frames.concat());
    assert_eq!(cost(&[promise(2, get_block())]), Nothing);
    assert_eq!(cost(&[promise(3, get_block())]), Connection(ErrorCode::PROTOCOL_ERROR), "an odd stream");
    assert_eq!(
        cost(&[promise(4, get_block()), promise(2, get_block())]),
        Connection(ErrorCode::PROTOCOL_ERROR)
    );
    let post = block(&[(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")]);
    assert_eq!(cost(&[promise(2, post)]), Stream(2, ErrorCode::PROTOCOL_ERROR));
    assert_eq!(cost(&[ok_with(&[], END), promise(2, get_block())]), Connection(ErrorCode::PROTOCOL_ERROR));
}

#[test]
fn a_goaway_names_the_reason_and_the_last_stream() {
    let mut peer = Scripted::new(server_config());
    peer.receive(&[frame(kind::HEADERS, END, 7, &get_block()), frame(kind::PING, 0, 1, &[0; 8])].concat());
    let sent = peer.sent();
    let (_, payload) = sent.iter().find(|(header, _)| header.kind == kind::GOAWAY).expect("a GOAWAY");
    assert_eq!(payload[..4], 7_u32.to_be_bytes());
    assert!(String::from_utf8_lossy(&payload[8..]).contains("RFC 9113"));
}
