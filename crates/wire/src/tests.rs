//! Behaviour shared by HTTP/1.1 and HTTP/2.

use super::connection::{Request, Response};
use super::testing::{Pair, Seen};
use super::{Config, Connection, FlowControl, Role, StreamId};
use h2lab_base::units::Time;

/// A static body.
static BODY: [u8; 300_000] = {
    let mut bytes = [0; 300_000];
    let mut k = 0;
    while k < bytes.len() {
        bytes[k] = (k % 253) as u8;
        k += 1;
    }
    bytes
};

/// A pair of them: HTTP/2 with windows that are smaller than the body, or HTTP/1.1.
fn pair(is_h2: bool, server: Config, seed: u64) -> Pair {
    let flow = FlowControl { stream_window: 70_000, ..FlowControl::default() };
    let client = Config { flow, ..Config::new(Role::Client) };
    if is_h2 {
        Pair::new(Connection::h2(client, Time::ZERO), Connection::h2(server, Time::ZERO), seed)
    } else {
        Pair::new(Connection::h1(client), Connection::h1(server), seed)
    }
}

/// A GET that is answered with [`BODY`]. Returns the body that arrived, and whether the server's output was scattered.
fn answered(pair: &mut Pair, length: Option<u64>) -> (Vec<u8>, bool) {
    let request = Request {
        method: "GET",
        authority: "a",
        path: "/",
        fields: &[],
        body_length: None,
        end_stream: true,
    };
    pair.settle();
    pair.client.connection.send_request(pair.now, &request).unwrap();
    let (mut at, mut was_scattered) = (0, false);
    pair.settle_with(&mut |role, engine, seen, now| {
        let stream = match seen {
            Seen::Request { stream, .. } if role == Role::Server => {
                let response = Response { status: 200, fields: &[], body_length: length, end_stream: false };
                engine.send_response(now, StreamId(*stream), &response);
                *stream
            }
            Seen::Writable { stream } if role == Role::Server => *stream,
            _ => return,
        };
        // Some of it lent and some copied, as roles mix them.
        while at < BODY.len() {
            let piece: &'static [u8] = &BODY[at..BODY.len().min(at + 40_000)];
            let is_last = at + piece.len() == BODY.len();
            let taken = if (at / 40_000) % 3 == 2 {
                engine.send_data(now, StreamId(stream), piece, is_last)
            } else {
                engine.send_static(now, StreamId(stream), piece, is_last)
            };
            was_scattered |= engine.is_scattered();
            at += taken;
            if taken < piece.len() {
                break;
            }
        }
    });
    let mut body = Vec::new();
    for seen in pair.client.take() {
        if let Seen::Data { data, .. } = seen {
            body.extend_from_slice(&data);
        }
    }
    (body, was_scattered)
}

#[test]
fn a_body_that_lies_elsewhere_arrives_as_any_other() {
    for seed in 0..8 {
        for is_h2 in [false, true] {
            for length in [None, Some(BODY.len() as u64)] {
                let mut pair = pair(is_h2, Config::new(Role::Server), seed);
                let (body, was_scattered) = answered(&mut pair, length);
                assert!(was_scattered && body == BODY, "{is_h2} {length:?}: {} bytes", body.len());
                assert_eq!(pair.server.connection.unsent(), 0);
            }
        }
    }
}

#[test]
fn it_is_copied_where_it_is_encrypted_or_frames_go_one_by_one() {
    for (is_h2, tls, coalesce) in [(false, true, true), (true, true, true), (true, false, false)] {
        let mut pair = pair(is_h2, Config { tls, coalesce, ..Config::new(Role::Server) }, 1);
        let (body, was_scattered) = answered(&mut pair, None);
        assert!(!was_scattered && body == BODY, "{is_h2}");
    }
}
