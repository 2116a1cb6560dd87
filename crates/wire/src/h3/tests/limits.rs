//! Limits on what a peer may do; both sides of each bound.

use std::time::Duration;

use super::support::*;
use crate::h3::frame::kind;
use crate::h3::stream::QuicStreamId;
use crate::limits::Rate;
use crate::testing::Seen;
use crate::{Config, Error, ErrorCode, Field, FlowControl, Initiator, Limit, Limits, Role};

fn server(limits: Limits) -> Scripted {
    Scripted::new(Config { limits, ..Config::new(Role::Server) })
}

fn limits() -> Limits {
    Limits::new(Role::Server)
}

/// Which bound ended the connection, if one did.
fn exceeded(seen: &[Seen]) -> Option<Limit> {
    match seen.last() {
        Some(Seen::Closed { error: Some(Error::Exceeded(exceeded)) }) => Some(exceeded.limit),
        _ => None,
    }
}

fn reset(stream: u32) -> Seen {
    Seen::Reset { stream, code: ErrorCode::H3_EXCESSIVE_LOAD, initiator: Initiator::Engine }
}

#[test]
fn empty_data_frames_in_a_row_are_bounded() {
    let mut server = server(Limits { empty_data: 3, ..limits() });
    server.receive(0, &get_with(&[]), false);
    assert_eq!(exceeded(&server.receive(0, &[data(b""), data(b""), data(b"")].concat(), false)), None);
    server.receive(0, &data(b"x"), false);
    assert_eq!(exceeded(&server.receive(0, &[data(b""), data(b""), data(b"")].concat(), false)), None);
    assert_eq!(exceeded(&server.receive(0, &data(b""), false)), Some(Limit::EmptyData));
    let close = server.actions().pop();
    assert_eq!(
        close,
        Some(crate::h3::transport::Action::Close {
            code: ErrorCode::H3_EXCESSIVE_LOAD,
            reason: "empty-data: more than 3 DATA frames in a row without data".to_owned(),
        }),
        "the peer gets the bound and its number"
    );
}

#[test]
fn frames_and_streams_that_change_nothing_are_bounded() {
    // One for each stream that was begun and ten more.
    let grease = frame(0x21, b"");
    for stream in [0, CLIENT_CONTROL] {
        let mut server = server(Limits { noise: 1, ..limits() });
        let streams = if stream == 0 { 11 } else { 10 };
        assert_eq!(exceeded(&server.receive(stream, &grease.repeat(streams), false)), None, "{stream}");
        assert_eq!(exceeded(&server.receive(stream, &grease, false)), Some(Limit::Noise), "{stream}");
    }
    let mut server = server(Limits { noise: 1, ..limits() });
    for n in 0..10 {
        assert_eq!(exceeded(&server.receive(6 + 4 * n, &[0x21], false)), None);
    }
    assert_eq!(exceeded(&server.receive(6 + 4 * 10, &[0x21], false)), Some(Limit::Noise));
}

#[test]
fn streams_of_unknown_types_are_forgotten_when_they_are_stopped() {
    let mut server = server(Limits { noise: u32::MAX, ..limits() });
    let mut grease = |streams: std::ops::Range<u64>| {
        for n in streams {
            assert_eq!(server.receive(6 + 4 * n, &[0x21, 1, 2], false), []);
            assert_eq!(server.actions().len(), 1, "stopped, after which QUIC may be silent on it");
        }
        server.engine.held_bytes()
    };
    let held = grease(0..10);
    assert_eq!(grease(10..5_000), held);
}

#[test]
fn what_comes_late_of_a_stopped_stream_begins_none() {
    let mut server = server(limits());
    server.receive(10, &[0x21], false);
    server.actions();
    for late in [&[0x00][..], &[0x02], &[0x01]] {
        let seen = server.receive(10, late, false);
        assert_eq!(cost(&mut server, &seen), Cost::Nothing, "{late:?} would be a type");
    }
    server.receive_reset(10, ErrorCode::H3_NO_ERROR);
    let seen = server.receive(6, &[0x02], false);
    assert_eq!(cost(&mut server, &seen), Cost::Nothing, "a lower one may come later, and is new");
    assert_eq!(server.receive_reset(6, ErrorCode::H3_NO_ERROR).len(), 1, "QPACK's must not end");
}

#[test]
fn repeated_frames_on_the_control_stream_are_noise() {
    for frame in
        [frame(kind::GOAWAY, &[0]), frame(kind::MAX_PUSH_ID, &[9]), frame(kind::PRIORITY_UPDATE, b"\0u=1")]
    {
        let mut server = server(Limits { noise: 1, ..limits() });
        assert_eq!(exceeded(&server.receive(CLIENT_CONTROL, &frame.repeat(10), false)), None);
        assert_eq!(exceeded(&server.receive(CLIENT_CONTROL, &frame, false)), Some(Limit::Noise));
    }
}

#[test]
fn requests_that_are_reset_at_once_are_bounded() {
    // CVE-2023-44487
    let mut server = server(Limits { resets: Rate { burst: 3, per_second: 1 }, ..limits() });
    let mut rapid = |n: u64| {
        server.receive(4 * n, &get_with(&[]), true);
        exceeded(&server.receive_stop(4 * n, ErrorCode::H3_REQUEST_CANCELLED))
    };
    assert_eq!([rapid(0), rapid(1), rapid(2)], [None; 3]);
    assert_eq!(rapid(3), Some(Limit::Resets));
}

#[test]
fn stream_errors_are_bounded() {
    let mut server = server(Limits { stream_errors: 2, ..limits() });
    let mut malformed = |n: u64| exceeded(&server.receive(4 * n, &get_with(&[("te", "gzip")]), true));
    assert_eq!([malformed(0), malformed(1)], [None; 2]);
    assert_eq!(malformed(2), Some(Limit::StreamErrors));
}

#[test]
fn interim_responses_are_bounded() {
    let limits = Limits { interims: 2, ..Limits::new(Role::Client) };
    let mut client = Scripted::new(Config { limits, ..Config::new(Role::Client) });
    client.request(&get("/"));
    let two = client.receive(0, &answer("103", &[]).repeat(2), false);
    assert_eq!(two.len(), 2);
    assert_eq!(client.receive(0, &answer("103", &[]), false), [reset(1)]);
    assert_eq!(client.engine.counters().limits_hit[Limit::Interims as usize], 1);
}

#[test]
fn a_section_larger_than_we_announced_costs_its_stream_and_a_bomb_the_connection() {
    // RFC 9114 §4.2.2: 4 × 34 bytes and more of pseudo-header fields.
    let size: usize = GET.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
    let config = |max_header_list_size| Config { max_header_list_size, ..Config::new(Role::Server) };
    let mut fits = Scripted::new(config(size as u32));
    assert_eq!(fits.receive(0, &get_with(&[]), true).len(), 1);
    let mut small = Scripted::new(config(size as u32 - 1));
    let seen = small.receive(0, &get_with(&[]), true);
    assert_eq!(cost(&mut small, &seen), Cost::Stream(ErrorCode::H3_EXCESSIVE_LOAD));
    assert_eq!(small.engine.counters().limits_hit[Limit::FieldList as usize], 1);
    let bomb = frame(kind::HEADERS, &[&[0, 0][..], &[0xc0 + 17; 4_000]].concat());
    assert_eq!(exceeded(&small.receive(4, &bomb, true)), Some(Limit::FieldList));
}

#[test]
fn a_section_is_refused_by_its_length_before_it_is_kept() {
    let mut server = Scripted::new(Config { max_header_list_size: 20_000, ..Config::new(Role::Server) });
    let begin = |length: u64| [&[1][..], &integer(length)].concat();
    assert_eq!(server.receive(0, &begin(20_000), false), []);
    assert_eq!(server.actions(), []);
    assert_eq!(server.receive(4, &begin(20_001), false), []);
    assert_eq!(server.actions().len(), 2, "reset and stopped");
    assert_eq!(server.engine.counters().limits_hit[Limit::FieldBlock as usize], 1);
    let seen = server.receive(CLIENT_CONTROL, &[&[0x07][..], &integer(4_097)].concat(), false);
    assert_eq!(
        cost(&mut server, &seen),
        Cost::Connection(ErrorCode::H3_EXCESSIVE_LOAD),
        "nor on the control stream"
    );
}

/// A server's control stream that announces how large a section it accepts.
fn settings(limit: u64) -> Vec<u8> {
    let payload = [&[6][..], &integer(limit)].concat();
    [&[0][..], &frame(kind::SETTINGS, &payload)].concat()
}

/// The size of a request's section with the field `x: 1`, as RFC 9114 §4.2.2 counts.
fn size_with_x() -> u64 {
    let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/"), ("x", "1")];
    fields.iter().map(|(name, value)| (name.len() + value.len() + 32) as u64).sum()
}

#[test]
fn what_the_peer_does_not_take_is_not_sent() {
    // RFC 9114 §4.2.2
    let fields = [Field::new("x", "1")];
    let request = crate::connection::Request { fields: &fields, ..get("/") };
    let size = size_with_x();
    let mut client = Scripted::silent(Config::new(Role::Client));
    client.receive(SERVER_CONTROL, &settings(size), false);
    client.request(&request);
    assert_eq!(client.events(), []);
    let mut client = Scripted::silent(Config::new(Role::Client));
    client.receive(SERVER_CONTROL, &settings(size - 1), false);
    client.request(&request);
    assert_eq!(client.events(), [reset(1)]);
    assert_eq!(client.engine.open_streams(), 0);
}

#[test]
fn what_was_sent_before_the_peer_said_what_it_takes_is_not_sent_again_if_it_is_more() {
    let fields = [Field::new("x", "1")];
    let request = crate::connection::Request { fields: &fields, ..get("/") };
    for (limit, expected) in [(size_with_x(), vec![]), (size_with_x() - 1, vec![reset(3)])] {
        let mut client = Scripted::silent(Config::new(Role::Client));
        client.request(&request);
        assert_eq!(client.receive(SERVER_CONTROL, &settings(limit), false), [Seen::Settings]);
        assert!(client.engine.send_request_again(client.now, &request).is_some());
        assert_eq!(client.events(), expected, "limit {limit}");
    }
}

#[test]
fn a_slow_head_costs_its_stream_ten_seconds_after_it_began() {
    let mut server = server(limits());
    server.receive(0, &get_with(&[])[..5], false);
    server.now += Duration::from_secs(4);
    server.receive(4, &get_with(&[])[..5], false);
    server.receive(8, &get_with(&[]), true);
    assert_eq!(server.engine.poll_timeout(), NOW + Duration::from_secs(10));
    assert_eq!(server.wait(Duration::from_secs(6)), [], "a server gets no event of what it never saw");
    assert_eq!(server.actions().len(), 2, "reset and stopped");
    assert_eq!(server.engine.counters().limits_hit[Limit::SlowHead as usize], 1);
    assert_eq!(server.engine.open_streams(), 2, "the other has four seconds left");
    server.wait(Duration::from_secs(4));
    assert_eq!(server.engine.open_streams(), 1, "and the whole request stays");
}

#[test]
fn a_slow_body_costs_its_stream() {
    for (bytes, expected) in [(2_500, vec![]), (100, vec![reset(1)])] {
        let mut server = server(limits());
        server.receive(0, &get_with(&[]), false);
        let mut body = vec![0; 3];
        body.resize(bytes, 0);
        server.receive(0, &data(&body), false);
        let base = server.engine.counters().limits_hit[Limit::SlowBody as usize];
        assert_eq!(base, 0);
        assert_eq!(server.wait(Duration::from_secs(10)), expected, "{bytes}");
    }
}

#[test]
fn a_body_that_waited_for_us_is_judged_by_the_time_when_it_does_not() {
    let flow = FlowControl { manual_release: true, stream_window: 10, ..FlowControl::default() };
    let mut server = Scripted::new(Config { flow, limits: limits(), ..Config::new(Role::Server) });
    server.receive(0, &[get_with(&[]), data(b"0123456789")].concat(), false);
    assert_eq!(server.wait(Duration::from_secs(10)), [], "the role holds all that the window takes");
    server.engine.release(server.now, crate::StreamId(1), 10);
    assert_eq!(server.wait(Duration::from_secs(10)), [], "it did so for a part of this period, too");
    assert_eq!(server.wait(Duration::from_secs(10)), [reset(1)]);
}

#[test]
fn a_head_whose_rest_we_do_not_read_is_not_slow() {
    let mut server = server(Limits { unread_output: 100, ..limits() });
    server.receive(0, &get_with(&[]), true);
    server.receive(4, &get_with(&[])[..5], false);
    let long = "y".repeat(200);
    let fields = [Field::new("x", &long)];
    let response = crate::connection::Response { fields: &fields, ..OK };
    server.engine.send_response(NOW, crate::StreamId(1), &response);
    assert!(!server.engine.wants_input());
    server.wait(Duration::from_secs(10));
    assert_eq!(server.actions(), []);
    server.now += Duration::from_secs(5);
    server.sent();
    server.wait(Duration::from_secs(5));
    assert_eq!(server.actions(), [], "it is read since five seconds ago");
    server.wait(Duration::from_secs(5));
    assert_eq!(server.actions().len(), 2, "reset and stopped");
}

#[test]
fn a_stream_that_is_not_read_is_given_up_and_the_others_go_on() {
    let mut server = server(limits());
    for stream in [0, 4] {
        server.receive(stream, &get_with(&[]), true);
        let id = crate::StreamId(stream as u32 / 2 + 1);
        server.engine.send_response(NOW, id, &OK);
        server.engine.send_data(NOW, id, &vec![7; 10_000], false);
    }
    let quic = server.quic();
    quic.handle_stream_sent(NOW, QuicStreamId(0), 5_000);
    quic.handle_stream_sent(NOW, QuicStreamId(4), usize::MAX);
    assert_eq!(server.wait(Duration::from_secs(30)), [reset(1)]);
    assert_eq!(server.engine.counters().limits_hit[Limit::Stall as usize], 1);
    assert_eq!(server.engine.open_streams(), 1);
}

#[test]
fn a_control_stream_that_is_not_read_costs_the_connection() {
    let mut server = Scripted::silent(Config::new(Role::Server));
    server.receive(CLIENT_CONTROL, &control(&[]), false);
    server.quic().handle_stream_sent(NOW, QuicStreamId(SERVER_CONTROL), 1);
    assert_eq!(exceeded(&server.wait(Duration::from_secs(30))), Some(Limit::Stall));
}

#[test]
fn a_stream_that_is_read_byte_by_byte_makes_no_progress() {
    for (piece, evicted) in [(1, true), (1_024, false)] {
        let mut server = server(limits());
        server.receive(0, &get_with(&[]), true);
        server.engine.send_response(NOW, crate::StreamId(1), &OK);
        server.engine.send_data(NOW, crate::StreamId(1), &vec![7; 100_000], false);
        for _ in 0..8 {
            let now = server.now;
            server.quic().handle_stream_writable(QuicStreamId(0));
            server.quic().handle_stream_sent(now, QuicStreamId(0), piece);
            server.now += Duration::from_secs(5);
            server.engine.handle_timeout(server.now);
        }
        assert_eq!(server.events().contains(&reset(1)), evicted, "{piece}");
    }
}

#[test]
fn a_connection_without_a_request_ends_in_an_orderly_way() {
    let mut server = server(limits());
    let seen = server.wait(Duration::from_secs(75));
    assert_eq!(seen, [Seen::Closed { error: None }]);
    assert!(server.sent().iter().any(|(stream, bytes, _)| *stream == SERVER_CONTROL && bytes[0] == 7));
    let close = server.actions().pop();
    let Some(crate::h3::transport::Action::Close { code, reason }) = close else { panic!("{close:?}") };
    assert_eq!((code, &reason[..]), (ErrorCode::H3_NO_ERROR, "idle: nothing happened for 75000 ms"));
}

#[test]
fn settings_that_do_not_come_end_the_connection() {
    let mut client = Scripted::silent(Config::new(Role::Client));
    assert_eq!(client.engine.poll_timeout(), h2lab_base::units::Time::ZERO + Duration::from_secs(10));
    let seen = client.wait(Duration::from_secs(10));
    assert_eq!(seen, [Seen::Closed { error: Some(Error::Timeout("its SETTINGS")) }]);
}
