//! A client and a server of ours over a model of QUIC: streams in any order, cut anywhere.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::support::*;
use crate::connection::{Request, Response};
use crate::testing::Seen;
use crate::{Config, Connection, Field, Role, StreamId};

fn pair(seed: u64) -> Pair {
    Pair::new(Config::new(Role::Client), Config::new(Role::Server), seed)
}

#[test]
fn a_request_is_answered_with_interim_response_body_and_trailers() {
    for seed in 0..20 {
        let mut pair = pair(seed);
        let fields = [Field::new("x-a", "one"), Field::new("accept", "*/*")];
        let request = Request { fields: &fields, ..get("/path?query") };
        let stream = pair.client.send_request(pair.now, &request).unwrap();
        pair.settle(&mut |role, engine, seen, now| {
            if let (Role::Server, Seen::Request { stream, .. }) = (role, seen) {
                let stream = StreamId(*stream);
                engine.send_interim(now, stream, 103, &[Field::new("link", "</a.css>")]);
                engine.send_response(now, stream, &OK);
                assert_eq!(engine.send_data(now, stream, b"hello", false), 5);
                engine.send_trailers(now, stream, &[Field::new("x-sum", "7")]);
            }
        });
        let owned = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        let [Seen::Request { stream: 1, method, authority, path, fields, .. }] = &pair.take(Role::Server)[..]
        else {
            panic!("one request");
        };
        assert_eq!((&method[..], &authority[..], &path[..]), ("GET", "a", "/path?query"));
        assert_eq!(*fields, [owned("x-a", "one"), owned("accept", "*/*")].concat());
        let seen = pair.take(Role::Client);
        let body: Vec<u8> = seen
            .iter()
            .flat_map(|seen| match seen {
                Seen::Data { data, .. } => data.clone(),
                _ => Vec::new(),
            })
            .collect();
        assert_eq!(body, b"hello");
        let stream = stream.0;
        assert_eq!(seen[0], Seen::Interim { stream, status: 103, fields: owned("link", "</a.css>") });
        assert_eq!(seen[1], Seen::Response { stream, status: 200, fields: vec![], end_stream: false });
        assert_eq!(seen.last(), Some(&Seen::Trailers { stream, fields: owned("x-sum", "7") }));
        assert_eq!((pair.client.open_streams(), pair.server.open_streams()), (0, 0));
        assert_eq!((pair.client.unsent(), pair.server.unsent()), (0, 0));
    }
}

/// The byte at `place` of the body on `stream`.
const fn pattern(stream: u32, place: usize) -> u8 {
    ((place as u32).wrapping_mul(31).wrapping_add(stream * 7) >> 2) as u8
}

fn body(stream: u32, from: usize, length: usize) -> Vec<u8> {
    (from..from + length).map(|place| pattern(stream, place)).collect()
}

/// Bodies on their way, and what of them has arrived.
#[derive(Default)]
struct Bodies {
    /// By stream: bytes sent and bytes to send.
    sending: BTreeMap<u32, (usize, usize)>,
    received: BTreeMap<u32, usize>,
    ended: u32,
}

impl Bodies {
    /// Sends as much as the engine takes.
    fn push(&mut self, engine: &mut Connection, stream: u32, now: h2lab_base::units::Time) {
        let Some((sent, length)) = self.sending.get_mut(&stream) else { return };
        loop {
            let piece = body(stream, *sent, (*length - *sent).min(3_000));
            let is_last = *sent + piece.len() == *length;
            let taken = engine.send_data(now, StreamId(stream), &piece, is_last);
            *sent += taken;
            if taken < piece.len() {
                return;
            }
            if is_last {
                self.sending.remove(&stream);
                return;
            }
        }
    }

    fn note(&mut self, seen: &Seen) {
        if let Seen::Data { stream, data, end_stream } = seen {
            let received = self.received.entry(*stream).or_default();
            assert_eq!(*data, body(*stream, *received, data.len()), "stream {stream} after {received}");
            *received += data.len();
            self.ended += u32::from(*end_stream);
        }
        // The end of a body without bytes may come with the head.
        if let Seen::Request { end_stream, .. } | Seen::Response { end_stream, .. } = seen {
            self.ended += u32::from(*end_stream);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn bodies_arrive_as_they_were_sent_both_ways(
        seed: u64,
        lengths in prop::collection::vec((0_usize..20_000, 0_usize..40_000), 1..8),
        send_buffer in 100_usize..100_000,
    ) {
        let config = |role| Config { send_buffer, ..Config::new(role) };
        let mut pair = Pair::new(config(Role::Client), config(Role::Server), seed);
        let (mut up, mut down) = (Bodies::default(), Bodies::default());
        for (length, _) in &lengths {
            let request = post(Some(*length as u64));
            let stream = pair.client.send_request(pair.now, &request).unwrap();
            up.sending.insert(stream.0, (0, *length));
            up.push(&mut pair.client, stream.0, pair.now);
        }
        let answers = lengths.iter().map(|(_, length)| *length).collect::<Vec<_>>();
        let (mut from_client, mut from_server) = (Bodies::default(), Bodies::default());
        pair.settle(&mut |role, engine, seen, now| match (role, seen) {
            (Role::Server, Seen::Request { stream, .. }) => {
                from_client.note(seen);
                let length = answers[*stream as usize / 2];
                let body_length = Some(length as u64);
                engine.send_response(now, StreamId(*stream), &Response { body_length, ..OK });
                down.sending.insert(*stream, (0, length));
                down.push(engine, *stream, now);
            }
            (Role::Client, Seen::Writable { stream }) => up.push(engine, *stream, now),
            (Role::Server, Seen::Writable { stream }) => down.push(engine, *stream, now),
            (Role::Server, seen) => from_client.note(seen),
            (Role::Client, seen) => from_server.note(seen),
        });
        for (n, (length, answer)) in lengths.iter().enumerate() {
            let stream = 2 * n as u32 + 1;
            prop_assert_eq!(from_client.received.get(&stream).copied().unwrap_or(0), *length);
            prop_assert_eq!(from_server.received.get(&stream).copied().unwrap_or(0), *answer);
        }
        prop_assert_eq!((from_client.ended, from_server.ended), (lengths.len() as u32, lengths.len() as u32));
        for engine in [&pair.client, &pair.server] {
            prop_assert_eq!((engine.open_streams(), engine.unsent()), (0, 0));
        }
        prop_assert_eq!(pair.client.counters().headers_plain > 0, true);
        prop_assert_eq!(pair.client.counters().headers_sent, pair.server.counters().headers_received);
    }

    #[test]
    fn streams_that_are_given_up_disturb_no_others(seed: u64, given_up in 0_u32..8, by_server: bool) {
        let mut pair = pair(seed);
        for _ in 0..8 {
            pair.client.send_request(pair.now, &get("/")).unwrap();
        }
        let chosen = 2 * given_up + 1;
        pair.settle(&mut |role, engine, seen, now| {
            let (Seen::Request { stream, .. } | Seen::Response { stream, .. }) = seen else { return };
            let id = StreamId(*stream);
            if *stream == chosen && by_server == (role == Role::Server) {
                return engine.reset(now, id, crate::ErrorCode::CANCEL);
            }
            if role == Role::Server {
                engine.send_response(now, id, &OK);
                engine.send_data(now, id, &body(*stream, 0, 9_000), true);
            }
        });
        let seen = pair.take(Role::Client);
        let ends = |seen: &&Seen| matches!(seen, Seen::Data { end_stream: true, .. });
        prop_assert_eq!(seen.iter().filter(ends).count(), 7);
        let code = crate::ErrorCode::H3_REQUEST_CANCELLED;
        let initiator = crate::Initiator::Remote;
        let reported = Seen::Reset { stream: chosen, code, initiator };
        prop_assert_eq!(seen.contains(&reported), by_server, "whoever did it gets no event");
        let is_end = |seen: &Seen| matches!(seen, Seen::Closed { .. });
        prop_assert!(!seen.iter().any(is_end));
        prop_assert_eq!((pair.client.open_streams(), pair.server.open_streams()), (0, 0));
    }
}

#[test]
fn the_same_request_again_has_the_same_bytes() {
    let mut client = Scripted::new(Config::new(Role::Client));
    let fields = [Field::new("x-a", "some value"), Field::new("user-agent", "h2lab")];
    let request = Request { fields: &fields, ..get("/") };
    let mut send = |again: bool| {
        let now = client.now;
        let stream = if again {
            client.engine.send_request_again(now, &request)
        } else {
            client.engine.send_request(now, &request)
        };
        let plain = client.engine.counters().headers_plain;
        let [(quic, bytes, true)] = &client.sent()[..] else { panic!("one stream, which ends") };
        (stream.unwrap().0, *quic, bytes.clone(), plain)
    };
    let (first, again) = (send(false), send(true));
    assert_eq!((first.0, first.1, again.0, again.1), (1, 0, 3, 4));
    assert_eq!(first.2, again.2);
    assert_eq!(again.3, 2 * first.3, "both count");
}

#[test]
fn settings_of_both_sides_are_reported() {
    let mut pair = Pair::new(
        Config { max_header_list_size: 1_000, ..Config::new(Role::Client) },
        Config { connect_protocol: true, ..Config::new(Role::Server) },
        1,
    );
    assert!(!pair.client.is_established() && pair.client.settings_in_effect().1.is_empty());
    pair.settle(&mut |_, _, _, _| {});
    assert!(pair.client.is_established() && pair.client.takes_connect_protocol());
    let (ours, theirs) = pair.client.settings_in_effect();
    assert_eq!(ours, [(1, 0), (6, 1_000), (7, 0), (8, 0)]);
    assert_eq!(theirs, [(1, 0), (6, 65_536), (7, 0), (8, 1)]);
}

#[test]
fn a_tunnel_with_a_protocol_goes_both_ways() {
    let server = Config { connect_protocol: true, ..Config::new(Role::Server) };
    let mut pair = Pair::new(Config::new(Role::Client), server, 3);
    let connect = Request { method: "CONNECT", end_stream: false, ..get("/chat") };
    assert_eq!(pair.client.send_connect(pair.now, "websocket", &connect), None, "not before it is announced");
    pair.settle(&mut |_, _, _, _| {});
    let stream = pair.client.send_connect(pair.now, "websocket", &connect).unwrap();
    pair.client.send_data(pair.now, stream, b"ping", false);
    pair.settle(&mut |role, engine, seen, now| match (role, seen) {
        (Role::Server, Seen::Request { stream, .. }) => engine.send_response(now, StreamId(*stream), &OK),
        (Role::Server, Seen::Data { stream, data, .. }) => {
            engine.send_data(now, StreamId(*stream), data, false);
        }
        _ => {}
    });
    let echoed: Vec<u8> = pair
        .take(Role::Client)
        .into_iter()
        .flat_map(|seen| match seen {
            Seen::Data { data, .. } => data,
            _ => Vec::new(),
        })
        .collect();
    assert_eq!(echoed, b"ping");
    assert_eq!((pair.client.open_streams(), pair.server.open_streams()), (1, 1));
}
