//! How connections end: GOAWAY, deadlines, foreign protocols, the end of the transport.

use std::time::Duration;

use super::support::*;
use crate::h2::frame::{PREFACE, flag, kind};
use crate::testing::{Seen, drain_events, drain_output};
use crate::{Config, Connection, Error, ErrorCode, Initiator, StreamId};
use h2lab_base::units::Time;

fn goaway(last_stream: u32, code: ErrorCode) -> Vec<u8> {
    frame(kind::GOAWAY, 0, 0, &[&last_stream.to_be_bytes()[..], &code.0.to_be_bytes(), b"why"].concat())
}

fn refused(stream: u32) -> Seen {
    Seen::Reset { stream, code: ErrorCode::REFUSED_STREAM, initiator: Initiator::Remote }
}

const CLEAN: Seen = Seen::Closed { error: None };

#[test]
fn streams_above_the_last_one_come_back_for_replay_and_the_others_finish() {
    let mut peer = Scripted::new(client_config());
    for _ in 0..4 {
        peer.request();
    }
    let reported = Seen::GoAway { last_stream: 3, code: ErrorCode::NO_ERROR, debug: "why".to_owned() };
    assert_eq!(peer.receive(&goaway(3, ErrorCode::NO_ERROR)), [reported, refused(5), refused(7)]);
    assert_eq!(peer.engine.available_streams(), 0);
    assert!(peer.engine.send_request(peer.now, &get("/")).is_none());
    let end = flag::END_STREAM | flag::END_HEADERS;
    assert_eq!(peer.receive(&frame(kind::HEADERS, end, 1, &ok_block())).len(), 1);
    let seen = peer.receive(&frame(kind::HEADERS, end, 3, &ok_block()));
    assert!(matches!(seen[..], [Seen::Response { stream: 3, .. }, CLEAN]), "{seen:?}");
    assert!(peer.sent().is_empty(), "no RST_STREAM for what the peer ignores");
}

#[test]
fn a_goaway_with_an_error_is_the_cause_of_the_end() {
    let mut peer = Scripted::new(client_config());
    peer.request();
    peer.receive(&goaway(1, ErrorCode::ENHANCE_YOUR_CALM));
    peer.engine.handle_eof(peer.now);
    let error = Some(Error::GoAway(ErrorCode::ENHANCE_YOUR_CALM));
    assert_eq!(peer.receive(&[]), [Seen::Closed { error }]);
}

#[test]
fn the_last_stream_of_a_goaway_may_fall_and_not_rise() {
    let mut peer = Scripted::new(client_config());
    let first = [peer.request(), peer.request()];
    assert_eq!(first, [1, 3]);
    assert_eq!(peer.receive(&goaway(0x7fff_ffff, ErrorCode::NO_ERROR)).len(), 1);
    assert!(peer.receive(&goaway(1, ErrorCode::NO_ERROR)).contains(&refused(3)));
    peer.receive(&goaway(3, ErrorCode::NO_ERROR));
    assert_eq!(peer.codes().0, Some(ErrorCode::PROTOCOL_ERROR.0));
}

#[test]
fn a_server_that_ends_gracefully_loses_no_request_under_way() {
    let mut pair = pair_of(client_config(), server_config(), 1);
    let before = pair.client.connection.send_request(pair.now, &get("/before")).unwrap();
    pair.settle();
    pair.server.connection.goaway(pair.now, ErrorCode::NO_ERROR, b"bye");
    // The client has not received it yet.
    let crossing = pair.client.connection.send_request(pair.now, &get("/crossing")).unwrap();
    pair.settle_with(&mut |_, connection, seen, now| {
        if let Seen::Request { stream: 3, .. } = seen {
            connection.send_response(now, StreamId(3), &EMPTY);
        }
    });
    let seen = pair.client.take();
    let goaways: Vec<_> = seen
        .iter()
        .filter_map(
            |seen| if let Seen::GoAway { last_stream, .. } = seen { Some(*last_stream) } else { None },
        )
        .collect();
    assert_eq!(goaways, [0x7fff_ffff, crossing.0]);
    assert!(seen.iter().any(|seen| matches!(seen, Seen::Response { stream: 3, .. })), "{seen:?}");
    assert!(!pair.server.take().contains(&CLEAN), "stream 1 is open");
    pair.server.connection.send_response(pair.now, before, &EMPTY);
    pair.settle();
    assert_eq!(pair.client.take().last(), Some(&CLEAN));
    assert_eq!(pair.server.take(), [CLEAN]);
}

#[test]
fn a_graceful_end_waits_for_the_answer_to_its_ping_and_then_goes_on_without_it() {
    // The PING may queue behind a body on a slow path: that is no reason to cut off the request that it belongs to.
    let mut peer = Scripted::new(server_config());
    peer.receive(&frame(kind::HEADERS, 5, 1, &get_block()));
    peer.engine.goaway(peer.now, ErrorCode::NO_ERROR, b"");
    peer.sent();
    assert_eq!(peer.engine.poll_timeout(), NOW + Duration::from_secs(10));
    peer.now = NOW + Duration::from_secs(10);
    peer.engine.handle_timeout(peer.now);
    assert_eq!(peer.receive(&[]), []);
    let sent = peer.sent();
    assert_eq!((sent.len(), &sent[0].1[..8]), (1, &[0, 0, 0, 1, 0, 0, 0, 0][..]), "the last stream");
    assert!(peer.engine.poll_timeout() > peer.now);
    peer.engine.send_response(peer.now, StreamId(1), &EMPTY);
    assert_eq!(peer.receive(&[]), [CLEAN]);
}

#[test]
fn a_quota_of_requests_is_served_and_what_exceeds_it_comes_back() {
    let mut pair = pair_of(client_config(), Config { max_requests: Some(3), ..server_config() }, 2);
    let streams: Vec<_> =
        (0..5).map(|_| pair.client.connection.send_request(pair.now, &post("/", 2)).unwrap()).collect();
    for stream in &streams {
        pair.client.connection.send_data(pair.now, *stream, b"ab", true);
    }
    pair.settle_with(&mut |_, connection, seen, now| {
        if let Seen::Data { stream, end_stream: true, .. } = seen {
            connection.send_response(now, StreamId(*stream), &EMPTY);
        }
    });
    let seen = pair.client.take();
    let goaway = Seen::GoAway { last_stream: 5, code: ErrorCode::NO_ERROR, debug: String::new() };
    assert!(seen.contains(&goaway));
    assert!(seen.contains(&refused(7)) && seen.contains(&refused(9)), "{seen:?}");
    let answered = seen.iter().filter(|seen| matches!(seen, Seen::Response { .. })).count();
    assert_eq!((answered, seen.last()), (3, Some(&CLEAN)));
    let served = pair.server.take();
    assert_eq!(served.iter().filter(|seen| matches!(seen, Seen::Request { .. })).count(), 3);
    assert_eq!(served.last(), Some(&CLEAN));
}

#[test]
fn a_client_that_ends_lets_its_streams_finish() {
    let mut pair = pair_of(client_config(), server_config(), 3);
    let stream = pair.client.connection.send_request(pair.now, &get("/")).unwrap();
    pair.settle();
    pair.client.connection.goaway(pair.now, ErrorCode::NO_ERROR, b"");
    assert!(pair.client.connection.is_draining());
    pair.settle();
    pair.server.connection.send_response(pair.now, stream, &EMPTY);
    pair.settle();
    assert!(matches!(pair.client.take()[..], [Seen::Response { .. }, CLEAN]));
}

#[test]
fn the_end_is_reported_once_and_commands_after_it_do_nothing() {
    let mut peer = Scripted::new(client_config());
    let stream = StreamId(peer.request());
    assert!(matches!(peer.receive(&frame(kind::PING, 0, 1, &[0; 8]))[..], [Seen::Closed { error: Some(_) }]));
    peer.sent();
    let (engine, now) = (&mut peer.engine, peer.now);
    engine.ping(now);
    engine.goaway(now, ErrorCode::NO_ERROR, b"");
    engine.reset(now, stream, ErrorCode::CANCEL);
    engine.release(now, stream, 1);
    engine.send_trailers(now, stream, &[]);
    engine.handle_timeout(Time::NEVER);
    engine.handle_eof(now);
    assert_eq!(engine.send_data(now, stream, b"x", true), 0);
    assert!(engine.send_request(now, &get("/")).is_none());
    assert_eq!(engine.poll_timeout(), Time::NEVER);
    assert_eq!(peer.receive(b"anything"), []);
    assert!(peer.sent().is_empty());
}

#[test]
fn the_end_of_the_transport_says_what_was_lost() {
    let end_after = |config: Config, requests: u32, bytes: &[u8]| {
        let mut peer = Scripted::new(config);
        (0..requests).for_each(|_| assert!(peer.request() > 0));
        peer.engine.handle_input(peer.now, bytes);
        peer.engine.handle_eof(peer.now);
        let mut seen = peer.receive(&[]);
        let Some(Seen::Closed { error }) = seen.pop() else { panic!("no end: {seen:?}") };
        error
    };
    assert_eq!(end_after(client_config(), 0, &[]), None);
    assert_eq!(end_after(client_config(), 1, &[]), Some(Error::UnexpectedEof("a response")));
    assert_eq!(end_after(client_config(), 0, &[0, 0]), Some(Error::UnexpectedEof("a frame")));
    let open = frame(kind::HEADERS, flag::END_HEADERS, 1, &get_block());
    assert_eq!(end_after(server_config(), 0, &open), Some(Error::UnexpectedEof("an exchange")));
    let end = frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &ok_block());
    assert_eq!(end_after(client_config(), 1, &end), None, "what was delivered before the end counts");
}

/// What a fresh connection makes of `bytes` followed by the end of the transport.
fn fresh(config: Config, bytes: &[u8]) -> Vec<Seen> {
    let mut connection = Connection::h2(config, Time::ZERO);
    for byte in bytes.chunks(3) {
        connection.handle_input(NOW, byte);
        let seen = drain_events(&mut connection, NOW);
        if !seen.is_empty() {
            return seen;
        }
    }
    connection.handle_eof(NOW);
    drain_events(&mut connection, NOW)
}

#[test]
fn other_protocols_are_recognised_and_named() {
    let hint = |seen: Vec<Seen>| match &seen[..] {
        [Seen::Closed { error: Some(Error::WrongProtocol { expected: "HTTP/2", hint }) }] => *hint,
        _ => panic!("{seen:?}"),
    };
    assert!(hint(fresh(client_config(), b"HTTP/1.1 400 Bad Request\r\n\r\n")).contains("HTTP/1.1"));
    assert!(hint(fresh(client_config(), &[0x15, 3, 3, 0, 2, 2, 22])).contains("TLS"));
    assert!(hint(fresh(server_config(), b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")).contains("HTTP/1.1"));
    assert!(hint(fresh(server_config(), &[0x16, 3, 1, 0, 200, 1, 0])).contains("TLS"));
}

#[test]
fn a_peer_that_closes_before_it_speaks_is_distinguished_from_one_that_only_looked_in() {
    let error = Some(Error::UnexpectedEof("the connection preface"));
    assert_eq!(fresh(client_config(), &[]), [Seen::Closed { error }]);
    assert_eq!(fresh(server_config(), &[]), [CLEAN], "a port check is no error");
    let error = Some(Error::UnexpectedEof("a frame"));
    assert_eq!(fresh(server_config(), &PREFACE[..10]), [Seen::Closed { error }]);
}

#[test]
fn the_first_frame_must_be_settings() {
    let misbehaved = |seen: Vec<Seen>| {
        matches!(
            seen[..],
            [Seen::Closed { error: Some(Error::PeerMisbehaved { code: ErrorCode::PROTOCOL_ERROR, .. }) }]
        )
    };
    assert!(misbehaved(fresh(client_config(), &frame(kind::PING, 0, 0, &[0; 8]))));
    let ping_first = [&PREFACE[..], &frame(kind::PING, 0, 0, &[0; 8])].concat();
    assert!(misbehaved(fresh(server_config(), &ping_first)));
    assert!(misbehaved(fresh(server_config(), b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n")));
}

#[test]
fn settings_that_are_not_acknowledged_time_out_and_not_a_nanosecond_early() {
    let config = Config { peer_timeout: Duration::from_millis(100), ..client_config() };
    let mut client = Connection::h2(config, Time::ZERO);
    drain_output(&mut client, NOW);
    client.handle_input(NOW, &frame(kind::SETTINGS, 0, 0, &[]));
    drain_events(&mut client, NOW);
    let deadline = client.poll_timeout();
    assert_eq!(deadline, Time::from_millis(100));
    client.handle_timeout(deadline - Duration::from_nanos(1));
    assert_eq!(drain_events(&mut client, NOW), []);
    client.handle_timeout(deadline);
    let error = Some(Error::Timeout("the acknowledgement of our SETTINGS"));
    assert_eq!(drain_events(&mut client, NOW), [Seen::Closed { error }]);
    let sent = frames(&drain_output(&mut client, NOW));
    assert_eq!(sent.last().unwrap().1[4..8], ErrorCode::SETTINGS_TIMEOUT.0.to_be_bytes());
}

#[test]
fn a_silent_peer_times_out_and_an_answered_greeting_stops_the_clock() {
    let mut silent = Connection::h2(server_config(), Time::ZERO);
    silent.handle_timeout(Time::from_millis(10_000));
    let error = Some(Error::Timeout("its SETTINGS"));
    assert_eq!(drain_events(&mut silent, NOW), [Seen::Closed { error }]);
    assert_eq!(Scripted::new(client_config()).engine.poll_timeout(), Time::NEVER);
}

#[test]
fn a_ping_that_is_not_acknowledged_times_out() {
    let mut peer = Scripted::new(client_config());
    peer.engine.ping(peer.now);
    assert_eq!(peer.engine.poll_timeout(), NOW + Duration::from_secs(10));
    let sent = peer.sent();
    assert_eq!(
        peer.receive(&frame(kind::PING, flag::ACK, 0, &sent[0].1)),
        [Seen::Pong { rtt: Duration::ZERO }]
    );
    assert_eq!(peer.engine.poll_timeout(), Time::NEVER);
    peer.engine.ping(peer.now);
    peer.engine.handle_timeout(NOW + Duration::from_secs(10));
    let error = Some(Error::Timeout("the acknowledgement of our PING"));
    assert_eq!(peer.receive(&[]), [Seen::Closed { error }]);
}

#[test]
fn commands_out_of_order_are_our_own_defect() {
    let mut peer = Scripted::new(client_config());
    let stream = StreamId(peer.request());
    assert_eq!(peer.engine.send_data(peer.now, stream, b"after the end", true), 0);
    assert!(matches!(peer.receive(&[])[..], [Seen::Closed { error: Some(Error::Misuse(_)) }]));
    assert_eq!(peer.codes().0, Some(ErrorCode::INTERNAL_ERROR.0));
}
