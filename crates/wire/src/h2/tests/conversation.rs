//! Our client against our server: requests and responses of every form.

use std::collections::BTreeMap;
use std::time::Duration;

use super::support::*;
use crate::connection::{Request, Response};
use crate::testing::Seen;
use crate::{Config, Connection, ErrorCode, Initiator, Role, StreamId};

#[test]
fn a_get_is_answered() {
    let mut pair = pair_of(client_config(), server_config(), 1);
    let fields = [field("accept", "*/*"), field("x-request-id", "42")];
    let stream =
        pair.client.connection.send_request(pair.now, &Request { fields: &fields, ..get("/a?b=c") }).unwrap();
    pair.settle();
    let expected_fields =
        vec![("accept".to_owned(), "*/*".to_owned()), ("x-request-id".to_owned(), "42".to_owned())];
    let expected = Seen::Request {
        stream: 1,
        method: "GET".to_owned(),
        authority: "example.com".to_owned(),
        path: "/a?b=c".to_owned(),
        fields: expected_fields,
        end_stream: true,
    };
    assert_eq!(pair.server.take(), [expected]);
    pair.server.connection.send_response(pair.now, stream, &Response { body_length: Some(5), ..OK });
    assert_eq!(pair.server.connection.send_data(pair.now, stream, b"hello", true), 5);
    pair.settle();
    let length = vec![("content-length".to_owned(), "5".to_owned())];
    let expected = [
        Seen::Response { stream: 1, status: 200, fields: length, end_stream: false },
        Seen::Data { stream: 1, data: b"hello".to_vec(), end_stream: true },
    ];
    assert_eq!(pair.client.take(), expected);
    assert_eq!((pair.client.connection.open_streams(), pair.server.connection.open_streams()), (0, 0));
}

/// Sends as much of the body of each stream as the engine takes, and more whenever the stream is writable.
#[derive(Default)]
struct Bodies {
    left: BTreeMap<u32, Vec<u8>>,
}

impl Bodies {
    fn send(&mut self, connection: &mut Connection, stream: u32, now: h2lab_base::units::Time) {
        let Some(rest) = self.left.get_mut(&stream) else { return };
        let n = connection.send_data(now, StreamId(stream), rest, true);
        rest.drain(..n);
        if rest.is_empty() {
            self.left.remove(&stream);
        }
    }
}

/// What arrived of each stream, and whether it ended.
fn received(seen: &[Seen]) -> BTreeMap<u32, (Vec<u8>, bool)> {
    let mut bodies: BTreeMap<u32, (Vec<u8>, bool)> = BTreeMap::new();
    for seen in seen {
        if let Seen::Data { stream, data, end_stream } = seen {
            let body = bodies.entry(*stream).or_default();
            body.0.extend_from_slice(data);
            body.1 |= end_stream;
        }
    }
    bodies
}

/// Uploads a body on each of several streams and has it echoed; all of it must come back.
fn echo(seed: u64, streams: u32, length: usize, tune: impl Fn(&mut crate::Config)) {
    let (mut client, mut server) = (client_config(), server_config());
    tune(&mut client);
    tune(&mut server);
    let mut pair = pair_of(client, server, seed);
    let (mut up, mut down) = (Bodies::default(), Bodies::default());
    let mut expected = BTreeMap::new();
    for n in 0..streams {
        let body = body(length + n as usize, n);
        let stream =
            pair.client.connection.send_request(pair.now, &post("/echo", body.len() as u64)).unwrap().0;
        up.left.insert(stream, body.clone());
        up.send(&mut pair.client.connection, stream, pair.now);
        expected.insert(stream, (body, true));
    }
    let mut echoed: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    pair.settle_with(&mut |role, connection, seen, now| match (role, seen) {
        (Role::Client, Seen::Writable { stream }) => up.send(connection, *stream, now),
        (Role::Server, Seen::Writable { stream }) => down.send(connection, *stream, now),
        (Role::Server, Seen::Data { stream, data, end_stream }) => {
            echoed.entry(*stream).or_default().extend_from_slice(data);
            if *end_stream {
                connection.send_response(now, StreamId(*stream), &OK);
                down.left.insert(*stream, echoed.remove(stream).unwrap());
                down.send(connection, *stream, now);
            }
        }
        _ => {}
    });
    assert_eq!(received(&pair.server.seen), expected, "upload, seed {seed}");
    assert_eq!(received(&pair.client.seen), expected, "download, seed {seed}");
    assert_eq!((pair.client.connection.open_streams(), pair.server.connection.open_streams()), (0, 0));
}

#[test]
fn bodies_larger_than_every_window_come_back_whole() {
    for seed in 0..4 {
        echo(seed, 1, 300_000, |_| {});
        echo(seed, 7, 100_000, |_| {});
    }
}

#[test]
fn bodies_come_back_whole_whatever_the_windows_and_buffers() {
    for (seed, window) in [(1, 1_000), (2, 65_535), (3, 1 << 20)] {
        echo(seed, 5, 40_000, |config| config.flow.stream_window = window);
    }
    echo(4, 5, 400_000, |config| config.flow.connection_window = 1 << 20);
    echo(5, 5, 40_000, |config| config.send_buffer = 1_000);
    echo(6, 5, 40_000, |config| config.flow.update_threshold_percent = 100);
    echo(7, 2, 400_000, |config| {
        config.flow.stream_window = 1 << 20;
        config.max_frame_size = 100_000;
    });
    echo(8, 5, 100_000, |config| config.padding = 255);
    echo(9, 5, 10_000, |config| (config.padding, config.flow.stream_window) = (255, 300));
}

#[test]
fn interim_responses_and_trailers_arrive_in_order() {
    let mut pair = pair_of(client_config(), server_config(), 3);
    let stream =
        pair.client.connection.send_request(pair.now, &Request { end_stream: false, ..get("/") }).unwrap();
    pair.client.connection.send_data(pair.now, stream, b"up", false);
    pair.client.connection.send_trailers(pair.now, stream, &[field("x-sum", "1")]);
    pair.settle();
    let trailers = |name: &str| vec![(name.to_owned(), "1".to_owned())];
    assert_eq!(
        pair.server.take()[1..],
        [
            Seen::Data { stream: 1, data: b"up".to_vec(), end_stream: false },
            Seen::Trailers { stream: 1, fields: trailers("x-sum") },
        ]
    );
    let server = &mut pair.server.connection;
    server.send_interim(pair.now, stream, 100, &[]);
    server.send_interim(pair.now, stream, 103, &[field("link", "1")]);
    server.send_response(pair.now, stream, &OK);
    server.send_data(pair.now, stream, b"down", false);
    server.send_trailers(pair.now, stream, &[field("grpc-status", "1")]);
    pair.settle();
    assert_eq!(
        pair.client.take(),
        [
            Seen::Interim { stream: 1, status: 100, fields: vec![] },
            Seen::Interim { stream: 1, status: 103, fields: trailers("link") },
            Seen::Response { stream: 1, status: 200, fields: vec![], end_stream: false },
            Seen::Data { stream: 1, data: b"down".to_vec(), end_stream: false },
            Seen::Trailers { stream: 1, fields: trailers("grpc-status") },
        ]
    );
}

#[test]
fn head_and_304_may_announce_a_length_and_carry_nothing() {
    for (method, status) in [("HEAD", 200), ("GET", 304)] {
        let mut pair = pair_of(client_config(), server_config(), 5);
        let stream = pair.client.connection.send_request(pair.now, &Request { method, ..get("/") }).unwrap();
        pair.settle();
        let response = Response { status, fields: &[], body_length: Some(1000), end_stream: true };
        pair.server.connection.send_response(pair.now, stream, &response);
        pair.settle();
        assert!(
            matches!(pair.client.take()[..], [Seen::Response { end_stream: true, .. }]),
            "{method} answered by {status}"
        );
    }
}

#[test]
fn a_reset_reaches_the_other_side_with_its_code() {
    let mut pair = pair_of(client_config(), server_config(), 6);
    let stream = pair.client.connection.send_request(pair.now, &get("/")).unwrap();
    pair.settle();
    pair.client.connection.reset(pair.now, stream, ErrorCode::CANCEL);
    pair.server.connection.send_response(pair.now, stream, &OK);
    pair.server.take();
    pair.settle();
    let expected = Seen::Reset { stream: 1, code: ErrorCode::CANCEL, initiator: Initiator::Remote };
    assert_eq!(pair.server.take(), [expected]);
    assert_eq!(pair.client.take(), [], "the late response is ignored");
    assert!(!pair.client.connection.is_draining());
}

#[test]
fn header_blocks_larger_than_a_frame_travel_in_continuations() {
    let mut pair = pair_of(client_config(), server_config(), 7);
    let value: String = body(30_000, 1).into_iter().map(|byte| char::from(b'!' + byte % 90)).collect();
    let fields = [field("x-large", &value), field("x-after", "1")];
    pair.client.connection.send_request(pair.now, &Request { fields: &fields, ..get("/") }).unwrap();
    pair.settle();
    let seen = pair.server.take();
    let [Seen::Request { fields, .. }] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(fields[0].1, value);
    assert!(pair.client.connection.counters().frames_sent[9] >= 1);
    assert_eq!(
        pair.client.connection.counters().frames_sent,
        pair.server.connection.counters().frames_received
    );
}

#[test]
fn streams_are_available_up_to_the_limit_and_again_when_one_ends() {
    let mut server = server_config();
    server.max_concurrent_streams = Some(3);
    let mut pair = pair_of(client_config(), server, 8);
    assert_eq!(pair.client.connection.available_streams(), 100, "before SETTINGS");
    pair.settle();
    assert_eq!(pair.client.connection.available_streams(), 3);
    let streams: Vec<_> =
        (0..3).filter_map(|_| pair.client.connection.send_request(pair.now, &get("/"))).collect();
    assert_eq!(streams.len(), 3);
    assert_eq!(pair.client.connection.send_request(pair.now, &get("/")), None);
    pair.settle();
    pair.server.connection.send_response(pair.now, streams[1], &EMPTY);
    pair.settle();
    assert_eq!(pair.client.connection.available_streams(), 1);
}

#[test]
fn a_client_that_waits_for_settings_begins_no_request_before_them() {
    let client = Config { await_settings: true, ..client_config() };
    let mut pair = pair_of(client, server_config(), 8);
    assert_eq!(pair.client.connection.send_request(pair.now, &get("/")), None);
    pair.settle();
    assert!(pair.client.connection.send_request(pair.now, &get("/")).is_some());
}

#[test]
fn streams_above_the_limit_are_refused_and_the_connection_goes_on() {
    let mut server = server_config();
    server.max_concurrent_streams = Some(2);
    let mut pair = pair_of(client_config(), server, 9);
    for _ in 0..3 {
        pair.client.connection.send_request(pair.now, &post("/", 3)).unwrap();
    }
    pair.client.connection.send_data(pair.now, StreamId(5), b"abc", true);
    pair.settle();
    let refused = Seen::Reset { stream: 5, code: ErrorCode::REFUSED_STREAM, initiator: Initiator::Remote };
    assert_eq!(pair.client.take(), [refused]);
    assert_eq!(pair.server.connection.open_streams(), 2);
    assert!(!pair.server.connection.is_draining());
}

#[test]
fn a_pong_measures_the_round_trip() {
    let mut pair = pair_of(client_config(), server_config(), 10);
    pair.settle();
    pair.latency = Duration::from_millis(20);
    pair.client.connection.ping(pair.now);
    pair.settle();
    let seen = pair.client.take();
    let [Seen::Pong { rtt }] = seen[..] else { panic!("{seen:?}") };
    assert!(rtt >= Duration::from_millis(40), "{rtt:?}");
}

#[test]
fn pings_are_counted_until_a_part_of_a_message_comes() {
    let mut pair = pair_of(client_config(), server_config(), 12);
    let stream = pair.client.connection.send_request(pair.now, &get("/")).unwrap();
    pair.settle();
    for n in 1..=3 {
        pair.client.connection.ping(pair.now);
        pair.settle();
        assert_eq!(pair.client.connection.pings_since_message(), n, "answers are no messages");
    }
    pair.server.connection.send_response(pair.now, stream, &Response { end_stream: false, ..EMPTY });
    // One PING crosses the response: the server receives it afterwards.
    pair.client.connection.ping(pair.now);
    pair.settle();
    assert_eq!(pair.client.connection.pings_since_message(), 1);
    pair.server.connection.send_data(pair.now, stream, b"x", true);
    pair.settle();
    assert_eq!(pair.client.connection.pings_since_message(), 0);
}

#[test]
fn repeated_requests_cost_a_byte_per_field() {
    let mut pair = pair_of(client_config(), server_config(), 11);
    let fields =
        [field("user-agent", "h2lab"), field("x-tenant", "blue"), field("authorization", "Bearer abcdef")];
    let mut sizes = Vec::new();
    for _ in 0..3 {
        let before = pair.client.connection.counters();
        let request = Request { fields: &fields, ..get("/api/v1/things") };
        let stream = pair.client.connection.send_request(pair.now, &request).unwrap();
        pair.settle();
        pair.server.connection.send_response(pair.now, stream, &EMPTY);
        pair.settle();
        let after = pair.client.connection.counters();
        sizes.push(after.headers_sent - before.headers_sent);
        assert!(after.headers_plain - before.headers_plain > 100);
    }
    assert!(sizes[0] > 40, "{sizes:?}");
    assert_eq!(sizes[1..], [7, 7]);
}
