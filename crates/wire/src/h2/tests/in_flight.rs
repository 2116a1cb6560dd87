//! SETTINGS that change while streams are open (RFC 9113 §6.5, §6.9.2), in either role.

use super::support::*;
use crate::h2::frame::{flag, kind};
use crate::testing::{Seen, drain_events};
use crate::{Config, Connection, ErrorCode, FlowControl, Role, StreamId};

const INITIAL_WINDOW: u16 = 4;

fn settings(entries: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> = entries
        .iter()
        .flat_map(|(setting, value)| [&setting.to_be_bytes()[..], &value.to_be_bytes()].concat())
        .collect();
    frame(kind::SETTINGS, 0, 0, &payload)
}

fn update(stream: u32, increment: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

/// An engine of this role with a body to send on stream 1.
fn sending(role: Role) -> Scripted {
    let mut peer = Scripted::new(Config::new(role));
    match role {
        Role::Client => drop(peer.upload()),
        Role::Server => {
            peer.receive(&frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &get_block()));
            peer.engine.send_response(peer.now, StreamId(1), &OK);
            peer.sent();
        }
    }
    peer
}

#[test]
fn a_window_below_zero_is_paid_back_before_anything_is_sent_in_either_role() {
    for role in [Role::Client, Role::Server] {
        let mut peer = sending(role);
        let stream = StreamId(1);
        assert_eq!(peer.engine.send_data(peer.now, stream, &body(60_000, 0), false), 60_000);
        peer.receive(&[settings(&[(INITIAL_WINDOW, 10_000)]), update(0, 1_000_000)].concat());
        peer.sent();
        assert_eq!(peer.engine.send_data(peer.now, stream, b"x", false), 0, "{role:?}: at -50,000");
        assert_eq!(peer.receive(&update(1, 50_000)), [], "{role:?}: at 0");
        assert_eq!(peer.receive(&update(1, 1)), [Seen::Writable { stream: 1 }]);
        assert_eq!(peer.engine.send_data(peer.now, stream, b"xy", true), 1);
        // Up and down again in one frame: the last value counts.
        peer.receive(&settings(&[(INITIAL_WINDOW, 1 << 20), (INITIAL_WINDOW, 10_001)]));
        assert_eq!(peer.engine.send_data(peer.now, stream, b"yz", true), 1, "{role:?}");
    }
}

#[test]
fn a_stream_that_begins_after_the_change_has_the_new_window() {
    let mut peer = sending(Role::Client);
    peer.receive(&settings(&[(INITIAL_WINDOW, 7)]));
    let second = peer.upload();
    assert_eq!(peer.engine.send_data(peer.now, second, &body(100, 0), true), 7);
}

#[test]
fn our_window_below_zero_takes_nothing_until_it_is_released() {
    // The role returns credit, so that what arrived before the acknowledgement counts against the new window.
    let flow = FlowControl { stream_window: 1_000, manual_release: true, ..FlowControl::default() };
    let begin = |config: Config| {
        let mut server = Connection::h2(config, NOW);
        server.handle_input(NOW, crate::h2::frame::PREFACE);
        server.handle_input(NOW, &settings(&[]));
        let post = block(&[(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")]);
        server.handle_input(NOW, &frame(kind::HEADERS, flag::END_HEADERS, 1, &post));
        server.handle_input(NOW, &frame(kind::DATA, 0, 1, &[0; 5_000]));
        server.handle_input(NOW, &frame(kind::SETTINGS, flag::ACK, 0, &[]));
        assert_eq!(drain_events(&mut server, NOW).len(), 3);
        server
    };
    let one = frame(kind::DATA, 0, 1, &[0; 1]);
    let mut strict = begin(Config { flow, ..server_config() });
    strict.handle_input(NOW, &one);
    let seen = drain_events(&mut strict, NOW);
    assert!(matches!(seen[..], [Seen::Reset { code: ErrorCode::FLOW_CONTROL_ERROR, .. }]), "{seen:?}");
    let mut released = begin(Config { flow, ..server_config() });
    released.release(NOW, StreamId(1), 5_000);
    released.handle_input(NOW, &frame(kind::DATA, 0, 1, &[0; 1_000]));
    assert!(matches!(drain_events(&mut released, NOW)[..], [Seen::Data { .. }]), "the window is whole");
    released.handle_input(NOW, &one);
    assert!(matches!(drain_events(&mut released, NOW)[..], [Seen::Reset { .. }]), "and not larger");
}

#[test]
fn frames_keep_to_the_size_that_was_acknowledged_before_them() {
    const MAX_FRAME_SIZE: u16 = 5;
    let mut peer = sending(Role::Client);
    peer.receive(&settings(&[(INITIAL_WINDOW, 1 << 20), (MAX_FRAME_SIZE, 40_000)]));
    peer.sent();
    peer.engine.send_data(peer.now, StreamId(1), &body(40_000, 0), false);
    // The larger frame is queued already; what follows our acknowledgement is not larger than it allows.
    peer.receive(&[settings(&[(MAX_FRAME_SIZE, 16_384)]), update(0, 1 << 20)].concat());
    peer.engine.send_data(peer.now, StreamId(1), &body(20_000, 0), true);
    let reported: Vec<_> = peer.sent().iter().map(|(header, _)| (header.kind, header.length)).collect();
    assert_eq!(
        reported,
        [(kind::DATA, 40_000), (kind::SETTINGS, 0), (kind::DATA, 16_384), (kind::DATA, 3_616)]
    );
}

#[test]
fn fewer_streams_than_are_open_end_none_and_let_none_begin() {
    const MAX_CONCURRENT_STREAMS: u16 = 3;
    let mut peer = Scripted::new(client_config());
    let streams = [peer.request(), peer.request(), peer.request()];
    peer.receive(&settings(&[(MAX_CONCURRENT_STREAMS, 2)]));
    assert_eq!((peer.engine.open_streams(), peer.engine.available_streams()), (3, 0));
    let end = |stream| frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &ok_block());
    for (stream, available) in streams.into_iter().zip([0, 1, 2]) {
        assert!(matches!(peer.receive(&end(stream))[..], [Seen::Response { .. }]));
        assert_eq!(peer.engine.available_streams(), available);
    }
    peer.receive(&settings(&[(MAX_CONCURRENT_STREAMS, 0)]));
    assert!(peer.engine.send_request(peer.now, &get("/")).is_none());
    peer.receive(&settings(&[(MAX_CONCURRENT_STREAMS, 1)]));
    assert!(peer.engine.send_request(peer.now, &get("/")).is_some());
}

#[test]
fn a_header_table_that_shrinks_and_grows_stays_in_step_under_traffic() {
    const HEADER_TABLE_SIZE: u16 = 1;
    let mut pair = pair_of(client_config(), server_config(), 6);
    pair.settle();
    for (round, sizes) in [&[0][..], &[4_096], &[1, 4_095], &[0, 4_096], &[100, 0]].iter().enumerate() {
        // The peer's SETTINGS go into the stream of a real server.
        let entries: Vec<_> = sizes.iter().map(|size| (HEADER_TABLE_SIZE, *size)).collect();
        pair.client.connection.handle_input(pair.now, &settings(&entries));
        for request in 0..3 {
            let path = format!("/{round}/{request}");
            let fields = [field("x-round", path.as_str()), field("x-same", "always")];
            let request = crate::connection::Request { fields: &fields, ..get(&path) };
            pair.client.connection.send_request(pair.now, &request).unwrap();
        }
        pair.settle_with(&mut |_, connection, seen, now| {
            if let Seen::Request { stream, path, fields, .. } = seen {
                assert!(fields.contains(&("x-round".to_owned(), path.clone())), "{fields:?}");
                connection.send_response(now, StreamId(*stream), &EMPTY);
            }
        });
        let seen = pair.client.take();
        assert!(seen.iter().all(|seen| matches!(seen, Seen::Response { status: 200, .. })), "{seen:?}");
    }
}
