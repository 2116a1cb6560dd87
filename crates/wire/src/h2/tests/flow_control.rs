//! Windows in both directions (RFC 9113 §5.2, §6.9), and the streams that wait for them.

use std::time::Duration;

use super::support::*;
use crate::h2::frame::{FrameHeader, flag, kind};
use crate::testing::{Seen, drain_events};
use crate::{Config, Connection, ErrorCode, FlowControl, Initiator, StreamId};
use h2lab_base::units::Time;

fn data(stream: u32, length: usize) -> Vec<u8> {
    frame(kind::DATA, 0, stream, &vec![0; length])
}

fn update(stream: u32, increment: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

fn initial_window(size: u32) -> Vec<u8> {
    frame(kind::SETTINGS, 0, 0, &[&4_u16.to_be_bytes()[..], &size.to_be_bytes()].concat())
}

/// The WINDOW_UPDATEs among the frames: stream and increment.
fn updates(sent: &[(FrameHeader, Vec<u8>)]) -> Vec<(u32, u32)> {
    let updates = sent.iter().filter(|(header, _)| header.kind == kind::WINDOW_UPDATE);
    updates
        .map(|(header, payload)| (header.stream, u32::from_be_bytes(payload[..].try_into().unwrap())))
        .collect()
}

fn with_flow(config: Config, flow: FlowControl) -> Config {
    Config { flow, ..config }
}

/// A server with these windows that is receiving an upload on stream 1.
fn receiving(flow: FlowControl) -> Scripted {
    let mut peer = Scripted::new(with_flow(server_config(), flow));
    let post = block(&[(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")]);
    peer.receive(&frame(kind::HEADERS, flag::END_HEADERS, 1, &post));
    peer
}

#[test]
fn the_connection_window_is_opened_right_after_settings() {
    let flow = FlowControl { connection_window: 1 << 20, ..FlowControl::default() };
    let mut client = Connection::h2(with_flow(client_config(), flow), Time::ZERO);
    let sent = frames(client.poll_transmit(Time::ZERO));
    assert_eq!(sent[0].0.kind, kind::SETTINGS);
    assert_eq!(updates(&sent), [(0, (1 << 20) - 65_535)]);
    client.handle_transmitted(Time::ZERO, 10_000);
    let default = Connection::h2(client_config(), Time::ZERO).poll_transmit(Time::ZERO).to_vec();
    assert_eq!(updates(&frames(&default)), []);
}

#[test]
fn credit_returns_at_the_threshold_for_stream_and_connection() {
    let flow = FlowControl { stream_window: 80_000, connection_window: 100_000, ..FlowControl::default() };
    let mut peer = receiving(flow);
    peer.receive(&[data(1, 16_000), data(1, 16_000), data(1, 7_999)].concat());
    assert_eq!(updates(&peer.sent()), []);
    peer.receive(&data(1, 1));
    assert_eq!(updates(&peer.sent()), [(1, 40_000)]);
    peer.receive(&data(1, 9_999));
    assert_eq!(updates(&peer.sent()), []);
    peer.receive(&data(1, 1));
    assert_eq!(updates(&peer.sent()), [(0, 50_000)]);
}

#[test]
fn a_stream_that_has_ended_gets_no_more_credit() {
    let mut peer = receiving(FlowControl { connection_window: 100_000, ..FlowControl::default() });
    peer.receive(&[data(1, 16_000), data(1, 16_000)].concat());
    peer.receive(&frame(kind::DATA, flag::END_STREAM, 1, &[0; 16_000]));
    assert_eq!(updates(&peer.sent()), []);
    peer.receive(&frame(kind::HEADERS, flag::END_HEADERS, 3, &get_block()));
    peer.receive(&data(3, 2_000));
    assert_eq!(updates(&peer.sent()), [(0, 50_000)]);
}

#[test]
fn a_peer_may_fill_the_stream_window_and_not_more() {
    let flow = FlowControl {
        stream_window: 20_000,
        connection_window: 100_000,
        update_threshold_percent: 100,
        manual_release: true,
        ..FlowControl::default()
    };
    let mut peer = receiving(flow);
    assert_eq!(peer.receive(&[data(1, 16_000), data(1, 4_000)].concat()).len(), 2);
    let seen = peer.receive(&data(1, 1));
    let reset = Seen::Reset { stream: 1, code: ErrorCode::FLOW_CONTROL_ERROR, initiator: Initiator::Engine };
    assert_eq!(seen, [reset]);
}

#[test]
fn a_peer_may_fill_the_connection_window_and_not_more() {
    let flow = FlowControl { stream_window: 1 << 20, manual_release: true, ..FlowControl::default() };
    let mut peer = receiving(flow);
    assert_eq!(peer.receive(&[data(1, 16_384).repeat(3), data(1, 16_383)].concat()).len(), 4);
    peer.receive(&data(1, 1));
    assert_eq!(peer.codes().0, Some(ErrorCode::FLOW_CONTROL_ERROR.0));
}

#[test]
fn a_small_window_binds_the_peer_only_once_it_has_acknowledged_it() {
    let flow = FlowControl { stream_window: 1_000, ..FlowControl::default() };
    let mut server = Connection::h2(with_flow(server_config(), flow), Time::ZERO);
    let post = block(&[(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")]);
    let begin = [
        &crate::h2::frame::PREFACE[..],
        &frame(kind::SETTINGS, 0, 0, &[]),
        &frame(kind::HEADERS, flag::END_HEADERS, 1, &post),
        &data(1, 16_384),
        &frame(kind::SETTINGS, flag::ACK, 0, &[]),
    ];
    server.handle_input(NOW, &begin.concat());
    assert_eq!(drain_events(&mut server, NOW).len(), 3, "SETTINGS, request and data");
    // All credit was returned, so the acknowledged window of 1,000 bytes is whole.
    server.handle_input(NOW, &[data(1, 1_000), data(1, 16_384)].concat());
    let seen = drain_events(&mut server, NOW);
    assert!(
        matches!(seen[..], [Seen::Data { .. }, Seen::Reset { code: ErrorCode::FLOW_CONTROL_ERROR, .. }]),
        "{seen:?}"
    );
}

#[test]
fn held_bytes_are_returned_when_the_role_releases_them() {
    let flow = FlowControl { manual_release: true, connection_window: 65_535, ..FlowControl::default() };
    let mut peer = receiving(flow);
    peer.receive(&data(1, 16_384).repeat(3));
    assert_eq!(updates(&peer.sent()), []);
    peer.engine.release(peer.now, StreamId(1), 32_766);
    assert_eq!(updates(&peer.sent()), []);
    peer.engine.release(peer.now, StreamId(1), 1);
    assert_eq!(updates(&peer.sent()), [(0, 32_767), (1, 32_767)]);
    peer.engine.reset(peer.now, StreamId(1), ErrorCode::CANCEL);
    peer.sent();
    peer.engine.release(peer.now, StreamId(1), u32::MAX);
    peer.receive(&data(1, 16_384));
    assert_eq!(updates(&peer.sent()), [(0, 32_769)], "what a dead stream held, and what came too late");
}

#[test]
fn padding_counts_and_its_credit_returns_at_once() {
    let flow = FlowControl { manual_release: true, update_threshold_percent: 0, ..FlowControl::default() };
    let mut peer = receiving(flow);
    let seen = peer.receive(&frame(kind::DATA, flag::PADDED, 1, &[3, b'o', b'k', 0, 0, 0]));
    assert_eq!(seen, [Seen::Data { stream: 1, data: b"ok".to_vec(), end_stream: false }]);
    assert_eq!(updates(&peer.sent()), [(1, 4), (0, 4)]);
}

#[test]
fn sending_stops_at_the_stream_window_and_goes_on_when_it_opens() {
    let mut peer = Scripted::new(client_config());
    peer.receive(&[initial_window(10_000), update(0, 100_000)].concat());
    let stream = peer.upload();
    assert_eq!(peer.engine.send_data(peer.now, stream, &body(20_000, 0), true), 10_000);
    assert_eq!(peer.receive(&update(0, 1)), [], "the wrong window");
    peer.now += Duration::from_millis(30);
    assert_eq!(peer.receive(&update(1, 1)), [Seen::Writable { stream: 1 }]);
    assert_eq!(peer.engine.send_data(peer.now, stream, &[0; 10_000], true), 1);
    let counters = peer.engine.counters();
    assert_eq!(counters.stalled_stream_window, Duration::from_millis(30));
    assert_eq!(counters.stalled_connection_window, Duration::ZERO);
}

#[test]
fn sending_stops_at_the_connection_window_and_the_stall_is_recorded_once() {
    let mut peer = Scripted::new(client_config());
    peer.receive(&initial_window(1 << 20));
    let streams = [peer.upload(), peer.upload()];
    assert_eq!(peer.engine.send_data(peer.now, streams[0], &body(70_000, 0), true), 65_535);
    assert_eq!(peer.engine.send_data(peer.now, streams[1], b"x", true), 0);
    peer.sent();
    peer.now += Duration::from_millis(30);
    assert_eq!(peer.receive(&update(1, 1_000)), []);
    // The first stream's turn takes all the room.
    assert_eq!(peer.receive(&update(0, 1)), [Seen::Writable { stream: 1 }]);
    let counters = peer.engine.counters();
    assert_eq!(counters.stalled_connection_window, Duration::from_millis(30), "two waited at the same time");
    assert_eq!(counters.stalled_stream_window, Duration::ZERO);
}

#[test]
fn a_running_stall_is_recorded_whenever_events_are_polled() {
    let mut peer = Scripted::new(client_config());
    let stream = peer.upload();
    peer.engine.send_data(peer.now, stream, &body(70_000, 0), true);
    for _ in 0..3 {
        peer.now += Duration::from_millis(10);
        peer.receive(&[]);
    }
    assert_eq!(peer.engine.counters().stalled_stream_window, Duration::from_millis(30));
}

#[test]
fn an_empty_end_needs_no_window() {
    let mut peer = Scripted::new(client_config());
    peer.receive(&initial_window(0));
    let stream = peer.upload();
    assert_eq!(peer.engine.send_data(peer.now, stream, &[], true), 0);
    let sent = peer.sent();
    assert_eq!((sent.len(), sent[0].0.flags), (1, flag::END_STREAM));
}

#[test]
fn a_window_that_shrinks_below_zero_must_be_paid_back_first() {
    let mut peer = Scripted::new(client_config());
    let stream = peer.upload();
    assert_eq!(peer.engine.send_data(peer.now, stream, &body(60_000, 0), false), 60_000);
    peer.receive(&[initial_window(20_000), update(0, 1_000_000)].concat());
    assert_eq!(peer.engine.send_data(peer.now, stream, b"x", false), 0);
    assert_eq!(peer.receive(&update(1, 40_000)), [], "the window is exactly zero");
    assert_eq!(peer.receive(&update(1, 1)), [Seen::Writable { stream: 1 }]);
    assert_eq!(peer.receive(&initial_window(30_000)), [Seen::Settings]);
    assert_eq!(peer.engine.send_data(peer.now, stream, &body(60_000, 0), false), 10_001);
}

#[test]
fn larger_initial_windows_wake_streams_that_waited() {
    let mut peer = Scripted::new(client_config());
    peer.receive(&[initial_window(0), update(0, 1_000)].concat());
    let stream = peer.upload();
    assert_eq!(peer.engine.send_data(peer.now, stream, b"abc", false), 0);
    assert_eq!(peer.receive(&initial_window(1)), [Seen::Settings, Seen::Writable { stream: 1 }]);
}

#[test]
fn windows_end_at_2_to_the_31_minus_1() {
    let largest = 0x7fff_ffff - 65_535;
    let mut peer = Scripted::new(client_config());
    peer.upload();
    assert_eq!(peer.receive(&[update(0, largest), update(1, largest)].concat()), []);
    let seen = peer.receive(&update(1, 1));
    assert!(matches!(seen[..], [Seen::Reset { stream: 1, code: ErrorCode::FLOW_CONTROL_ERROR, .. }]));
    peer.receive(&update(0, 1));
    assert_eq!(peer.codes().0, Some(ErrorCode::FLOW_CONTROL_ERROR.0));
    let mut peer = Scripted::new(client_config());
    peer.upload();
    peer.receive(&[update(1, largest), initial_window(65_536)].concat());
    assert_eq!(peer.codes().0, Some(ErrorCode::FLOW_CONTROL_ERROR.0), "by SETTINGS");
}

#[test]
fn the_send_buffer_bounds_what_is_accepted_until_half_of_it_has_left() {
    let mut peer = Scripted::new(Config { send_buffer: 10_000, ..client_config() });
    let stream = peer.upload();
    assert_eq!(peer.engine.send_data(peer.now, stream, &body(20_000, 0), true), 10_000);
    assert_eq!(peer.receive(&[]), []);
    let pending = peer.engine.poll_transmit(peer.now).len();
    peer.engine.handle_transmitted(peer.now, pending - 5_001);
    assert_eq!(peer.receive(&[]), []);
    peer.engine.handle_transmitted(peer.now, 1);
    assert_eq!(peer.receive(&[]), [Seen::Writable { stream: 1 }]);
    assert_eq!(peer.engine.send_data(peer.now, stream, &body(20_000, 0), true), 5_000);
    let counters = peer.engine.counters();
    assert_eq!(counters.stalled_stream_window + counters.stalled_connection_window, Duration::ZERO);
}

#[test]
fn waiting_streams_take_turns_of_one_frame() {
    let mut peer = Scripted::new(client_config());
    peer.receive(&initial_window(1 << 20));
    let streams: Vec<_> = (0..3).map(|_| peer.upload()).collect();
    peer.engine.send_data(peer.now, streams[0], &body(65_535, 0), false);
    for stream in &streams {
        assert_eq!(peer.engine.send_data(peer.now, *stream, b"more", false), 0);
    }
    peer.sent();
    peer.engine.handle_input(peer.now, &update(0, 5 * 16_384));
    let mut order = Vec::new();
    while let Some(event) = peer.engine.poll_event(peer.now) {
        let Seen::Writable { stream } = Seen::from(event) else { panic!("only turns are expected") };
        order.push((stream, peer.engine.send_data(peer.now, StreamId(stream), &body(100_000, 0), false)));
    }
    assert_eq!(order, [(1, 16_384), (3, 16_384), (5, 16_384), (1, 16_384), (3, 16_384)]);
}

#[test]
fn a_stream_that_ended_before_its_turn_is_not_offered_one() {
    let mut peer = Scripted::new(client_config());
    peer.receive(&initial_window(1 << 20));
    let stream = peer.upload();
    assert_eq!(peer.engine.send_data(peer.now, stream, &body(70_000, 0), true), 65_535);
    peer.engine.handle_input(peer.now, &update(0, 10_000));
    // The role does not poll, but ends the stream.
    peer.engine.send_trailers(peer.now, stream, &[]);
    assert_eq!(peer.receive(&[]), []);
    let waiting = peer.upload();
    peer.receive(&initial_window(0));
    assert_eq!(peer.engine.send_data(peer.now, waiting, b"x", true), 0);
    peer.engine.send_trailers(peer.now, waiting, &[]);
    peer.now += Duration::from_millis(10);
    assert_eq!(peer.receive(&initial_window(1 << 20)), [Seen::Settings]);
}

#[test]
fn a_stream_that_is_reset_while_it_waits_is_forgotten() {
    let mut peer = Scripted::new(client_config());
    let stream = peer.upload();
    peer.engine.send_data(peer.now, stream, &body(70_000, 0), false);
    peer.engine.reset(peer.now, stream, ErrorCode::CANCEL);
    peer.now += Duration::from_millis(10);
    assert_eq!(peer.receive(&update(0, 100_000)), []);
    peer.now += Duration::from_millis(10);
    peer.receive(&[]);
    let recorded = peer.engine.counters().stalled_stream_window;
    assert_eq!(recorded, Duration::from_millis(10), "until it was seen to be gone");
}

#[test]
fn a_peer_that_used_its_window_up_is_seen_to_wait_and_the_other_window_is_not_blamed() {
    let flow = FlowControl { stream_window: 80_000, connection_window: 1 << 20, ..FlowControl::default() };
    let mut peer = receiving(flow);
    assert_eq!(peer.engine.counters().peer_waited_stream_window, None, "no DATA");
    peer.receive(&data(1, 16_000).repeat(5));
    assert_eq!(updates(&peer.sent()), [(1, 48_000)], "32,000 were left");
    peer.now += Duration::from_millis(100);
    peer.receive(&data(1, 16_000));
    let counters = peer.engine.counters();
    assert_eq!(counters.peer_waited_stream_window, Some(Duration::from_millis(100)));
    assert_eq!(counters.peer_waited_connection_window, Some(Duration::ZERO));
    // The second limit, of 128,000 bytes, is not passed yet.
    peer.now += Duration::from_millis(100);
    peer.receive(&data(1, 16_000));
    assert_eq!(peer.engine.counters().peer_waited_stream_window, Some(Duration::from_millis(100)));
}
