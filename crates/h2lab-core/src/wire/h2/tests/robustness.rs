//! Whatever a peer sends, nothing panics and the engine stays consistent.

use proptest::prelude::*;

use super::support::*;
use crate::random::Counter;
use crate::units::Time;
use crate::wire::connection::{Request, Response};
use crate::wire::h2::frame::{PREFACE, flag, kind};
use crate::wire::testing::{Seen, drain_output};
use crate::wire::{Config, Connection, ErrorCode, Role, StreamId};

/// Feeds `bytes` in pieces to an engine whose role answers all it can, and checks what always holds.
fn converse(connection: &mut Connection, role: Role, bytes: &[u8], pieces: u64) {
    let pieces = Counter::new(pieces, "pieces");
    let (mut rest, mut now, mut closed) = (bytes, NOW, false);
    for n in 0.. {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at(rest.len().min(1 + (pieces.at(n) % 300) as usize));
        assert!(connection.recv_space().len() >= 16 * 1024);
        connection.handle_input(now, piece);
        while let Some(event) = connection.poll_event(now) {
            assert!(!closed, "nothing follows the end");
            let seen = Seen::from(event);
            closed |= matches!(seen, Seen::Closed { .. });
            react(connection, role, &seen, now);
        }
        if n % 3 == 0 {
            frames(&[&PREFACE[..], &drain_output(connection, now)].concat()[..]);
        }
        now += std::time::Duration::from_micros(100);
        rest = after;
    }
    connection.handle_eof(now);
    while let Some(event) = connection.poll_event(now) {
        closed |= matches!(Seen::from(event), Seen::Closed { .. });
    }
    assert!(closed, "the end of the transport ends the connection");
    assert_eq!(connection.poll_timeout(), Time::NEVER);
}

fn react(connection: &mut Connection, role: Role, seen: &Seen, now: Time) {
    match (role, seen) {
        (Role::Server, Seen::Request { stream, .. }) => {
            connection.send_response(now, StreamId(*stream), &OK);
            connection.send_data(now, StreamId(*stream), &body(50_000, *stream), true);
        }
        (_, Seen::Writable { stream }) => {
            assert!(
                connection.send_data(now, StreamId(*stream), &body(20_000, 7), false) > 0,
                "writable means it"
            );
        }
        (Role::Client, Seen::Data { stream, data, .. }) => {
            connection.release(now, StreamId(*stream), data.len() as u32);
        }
        (Role::Client, Seen::Interim { stream, .. }) => {
            connection.reset(now, StreamId(*stream), ErrorCode::CANCEL);
        }
        _ => {}
    }
}

fn engine(role: Role) -> Connection {
    let mut config = Config { enable_push: true, ..Config::new(role) };
    config.flow.manual_release = role == Role::Client;
    let mut connection = Connection::h2(config, Time::ZERO);
    if role == Role::Client {
        for n in 0..4 {
            let request = Request { end_stream: n % 2 == 0, ..get("/") };
            let stream = connection.send_request(NOW, &request).expect("a stream is available");
            if n % 2 == 1 {
                connection.send_data(NOW, stream, &body(40_000, n), false);
            }
        }
    }
    drain_output(&mut connection, NOW);
    connection
}

/// The bytes of a lively conversation in one direction.
fn recorded(from: Role) -> Vec<u8> {
    let trailers = [field("x-sum", "1")];
    let mut bytes = Vec::new();
    match from {
        Role::Client => {
            let mut client = Connection::h2(client_config(), Time::ZERO);
            for n in 0..4 {
                let fields = [field("x-n", "value"), field("cookie", "a=b")];
                let request = Request { fields: &fields, end_stream: n % 2 == 0, ..get("/path") };
                let stream = client.send_request(NOW, &request).expect("a stream is available");
                if n % 2 == 1 {
                    client.send_data(NOW, stream, &body(3_000, n), false);
                    client.send_trailers(NOW, stream, &trailers);
                }
            }
            client.ping(NOW);
            bytes.extend(drain_output(&mut client, NOW));
            bytes.extend(frame(kind::SETTINGS, flag::ACK, 0, &[]));
            bytes.extend(frame(kind::RST_STREAM, 0, 5, &[0, 0, 0, 8]));
            bytes.extend(frame(kind::GOAWAY, 0, 0, &[0; 8]));
        }
        Role::Server => {
            bytes.extend(frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]));
            bytes.extend(frame(
                kind::PUSH_PROMISE,
                flag::END_HEADERS,
                3,
                &[&[0, 0, 0, 2][..], &get_block()].concat(),
            ));
            let mut server = Connection::h2(server_config(), Time::ZERO);
            server.handle_input(NOW, &recorded(Role::Client));
            while let Some(event) = server.poll_event(NOW) {
                if let Seen::Request { stream, .. } = Seen::from(event) {
                    let stream = StreamId(stream);
                    server.send_interim(NOW, stream, 103, &trailers);
                    server.send_response(NOW, stream, &Response { body_length: Some(9_000), ..OK });
                    server.send_data(NOW, stream, &body(9_000, stream.0), stream.0 % 4 == 1);
                    if stream.0 % 4 == 3 {
                        server.send_trailers(NOW, stream, &trailers);
                    }
                }
            }
            bytes.extend(drain_output(&mut server, NOW));
            bytes.extend(frame(kind::WINDOW_UPDATE, 0, 3, &[0, 1, 0, 0]));
            bytes.extend(frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 5, 0, 0, 0, 0]));
        }
    }
    bytes
}

/// Replaces, removes or repeats some bytes.
fn mutated(mut bytes: Vec<u8>, mutations: &[(usize, u8, u8)]) -> Vec<u8> {
    for &(place, how, value) in mutations {
        if bytes.is_empty() {
            break;
        }
        let place = place % bytes.len();
        match how % 4 {
            0 => bytes[place] = value,
            1 => bytes[place] ^= 1 << (value % 8),
            2 => drop(bytes.drain(place..(place + 1 + usize::from(value) % 16).min(bytes.len()))),
            _ => bytes.insert(place, value),
        }
    }
    bytes
}

fn any_role() -> impl Strategy<Value = Role> {
    prop::sample::select(vec![Role::Client, Role::Server])
}

fn peer_of(role: Role) -> Role {
    if role == Role::Client { Role::Server } else { Role::Client }
}

#[test]
fn the_recorded_conversations_are_valid() {
    for role in [Role::Client, Role::Server] {
        let mut peer = engine(role);
        peer.handle_input(NOW, &recorded(peer_of(role)));
        let mut events = 0;
        while let Some(event) = peer.poll_event(NOW) {
            let seen = Seen::from(event);
            assert!(!matches!(seen, Seen::Closed { error: Some(_) }), "{role:?}: {seen:?}");
            events += 1;
        }
        assert!(events > 10, "{role:?}: {events}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_bytes_never_panic(role in any_role(), bytes in prop::collection::vec(any::<u8>(), 0..2_000), pieces: u64) {
        converse(&mut engine(role), role, &bytes, pieces);
    }

    #[test]
    fn random_bytes_after_a_valid_beginning_never_panic(
        role in any_role(),
        bytes in prop::collection::vec(any::<u8>(), 0..2_000),
        pieces: u64,
    ) {
        let begin = if role == Role::Server { &PREFACE[..] } else { &[] };
        let bytes = [begin, &frame(kind::SETTINGS, 0, 0, &[]), &bytes].concat();
        converse(&mut engine(role), role, &bytes, pieces);
    }

    #[test]
    fn random_frames_never_panic(
        role in any_role(),
        random in prop::collection::vec((0_u8..11, any::<u8>(), 0_u32..12, prop::collection::vec(any::<u8>(), 0..40)), 0..60),
        pieces: u64,
    ) {
        let begin = if role == Role::Server { &PREFACE[..] } else { &[] };
        let frames = random.iter().flat_map(|(kind, flags, stream, payload)| frame(*kind, *flags, *stream, payload));
        let bytes = [begin, &frame(kind::SETTINGS, 0, 0, &[]), &frames.collect::<Vec<u8>>()].concat();
        converse(&mut engine(role), role, &bytes, pieces);
    }

    #[test]
    fn mutated_conversations_never_panic(
        role in any_role(),
        mutations in prop::collection::vec((any::<usize>(), any::<u8>(), any::<u8>()), 0..6),
        pieces: u64,
    ) {
        let bytes = mutated(recorded(peer_of(role)), &mutations);
        converse(&mut engine(role), role, &bytes, pieces);
    }
}
