//! Windows that change during a connection, and frames that are sent one by one.

use std::time::Duration;

use super::support::*;
use crate::h2::frame::{FrameHeader, HEADER_LENGTH, PREFACE, flag, kind};
use crate::testing::Seen;
use crate::{Config, Connection, FlowControl, StreamId};
use h2lab_base::units::Time;

const RTT: Duration = Duration::from_millis(100);

fn data(stream: u32, length: usize) -> Vec<u8> {
    frame(kind::DATA, 0, stream, &vec![0; length])
}

/// The credit that the WINDOW_UPDATEs among the frames give to a stream.
fn credit(sent: &[(FrameHeader, Vec<u8>)], stream: u32) -> u32 {
    let updates = sent.iter().filter(|(h, _)| h.kind == kind::WINDOW_UPDATE && h.stream == stream);
    updates.map(|(_, payload)| u32::from_be_bytes(payload[..].try_into().unwrap())).sum()
}

/// A server that is receiving uploads on streams 1 and 3, after one round trip of 100 ms.
fn receiving(flow: FlowControl) -> Scripted {
    let engine = Connection::h2(Config { flow, ..server_config() }, Time::ZERO);
    let mut peer = Scripted { engine, now: Time::ZERO + RTT };
    let greeting = [frame(kind::SETTINGS, 0, 0, &[]), frame(kind::SETTINGS, flag::ACK, 0, &[])].concat();
    peer.receive(&[PREFACE, &greeting[..]].concat());
    let post = block(&[(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")]);
    for stream in [1, 3] {
        peer.receive(&frame(kind::HEADERS, flag::END_HEADERS, stream, &post));
    }
    peer.sent();
    peer
}

fn tuned() -> FlowControl {
    FlowControl { auto_limit: Some(1 << 20), ..FlowControl::default() }
}

/// Sends all that the windows allow on stream 1 once per round trip, in two halves, and answers PINGs a round trip
/// later. Returns how many PINGs there were, and the window at the end.
fn upload(peer: &mut Scripted, trips: u32) -> (usize, u32) {
    let (mut window, mut pings) = (65_535, 0);
    let mut unanswered: Vec<Vec<u8>> = Vec::new();
    for _ in 0..trips {
        peer.now += RTT;
        for payload in unanswered.drain(..) {
            assert_eq!(peer.receive(&frame(kind::PING, flag::ACK, 0, &payload)), [], "not the role's");
        }
        let mut piece = window;
        while piece > 0 {
            let length = piece.min(16_384);
            assert_eq!(peer.receive(&data(1, length as usize)).len(), 1);
            piece -= length;
        }
        let sent = peer.sent();
        window = credit(&sent, 1);
        assert_eq!(window, credit(&sent, 0), "all is released at once");
        let asked = sent.into_iter().filter(|(header, _)| header.kind == kind::PING);
        unanswered.extend(asked.map(|(_, payload)| payload));
        pings += unanswered.len();
    }
    (pings, window)
}

#[test]
fn windows_grow_only_where_that_was_asked_for() {
    let mut fixed = receiving(FlowControl::default());
    assert_eq!(upload(&mut fixed, 8), (0, 65_535));
    let mut growing = receiving(tuned());
    let (pings, window) = upload(&mut growing, 8);
    assert!((2..8).contains(&pings), "{pings} PINGs");
    assert!((1 << 19..=1 << 20).contains(&window), "{window} bytes");
}

#[test]
fn the_role_s_own_pings_are_reported_as_before() {
    let mut peer = receiving(tuned());
    peer.receive(&data(1, 1_000));
    let ours: Vec<_> = peer.sent().into_iter().filter(|(header, _)| header.kind == kind::PING).collect();
    assert_eq!(ours.len(), 1);
    peer.engine.ping(peer.now);
    let (_, payload) = peer.sent().pop().expect("the role's PING");
    assert_ne!(payload, ours[0].1);
    let seen = peer.receive(&frame(kind::PING, flag::ACK, 0, &payload));
    assert!(matches!(seen[..], [Seen::Pong { .. }]));
    assert_eq!(peer.receive(&frame(kind::PING, flag::ACK, 0, &ours[0].1)), []);
}

#[test]
fn a_window_that_memory_does_not_allow_gets_no_credit_until_it_has_come_down() {
    let flow = FlowControl { stream_window: 100_000, connection_window: 100_000, ..FlowControl::default() };
    let mut peer = receiving(flow);
    peer.engine.set_window_limit(40_000);
    assert_eq!(peer.sent(), []);
    peer.receive(&data(1, 15_000).repeat(4));
    assert_eq!(peer.sent(), [], "40,000 are out");
    peer.receive(&data(1, 10_000).repeat(2));
    let sent = peer.sent();
    assert_eq!((credit(&sent, 1), credit(&sent, 0)), (20_000, 20_000), "half of what it is now");
    peer.engine.set_window_limit(u32::MAX);
    let sent = peer.sent();
    assert_eq!((credit(&sent, 1), credit(&sent, 0), credit(&sent, 3)), (60_000, 60_000, 0));
}

#[test]
fn a_stream_that_begins_when_memory_is_short_is_held_to_it_too() {
    let mut peer = receiving(FlowControl { connection_window: 1 << 20, ..FlowControl::default() });
    peer.engine.set_window_limit(0);
    let post = block(&[(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")]);
    peer.receive(&frame(kind::HEADERS, flag::END_HEADERS, 5, &post));
    peer.receive(&data(5, 16_384).repeat(3));
    assert_eq!(credit(&peer.sent(), 5), 0);
    peer.receive(&data(5, 16_383));
    assert_eq!(credit(&peer.sent(), 5), 16_384, "one frame at a time");
}

#[test]
fn a_slow_role_keeps_its_window_whatever_arrives() {
    let mut peer = receiving(FlowControl { manual_release: true, ..tuned() });
    peer.receive(&data(1, 16_384).repeat(3));
    for _ in 0..30 {
        peer.now += Duration::from_millis(100);
        peer.engine.release(peer.now, StreamId(1), 1_000);
    }
    let sent = peer.sent();
    assert!((1..=30_000).contains(&credit(&sent, 1)), "no more than was released");
    assert!((1..=30_000).contains(&credit(&sent, 0)));
}

/// What a client offers write by write.
fn writes(coalesce: bool, take: usize) -> Vec<Vec<u8>> {
    let mut client = Connection::h2(Config { coalesce, ..client_config() }, Time::ZERO);
    let stream = client.send_request(Time::ZERO, &post("/", 20_000)).expect("a stream");
    client.send_data(Time::ZERO, stream, &vec![7; 20_000], true);
    let mut writes = Vec::new();
    while client.unsent() > 0 {
        let bytes = client.poll_transmit(Time::ZERO);
        let n = bytes.len().min(take);
        writes.push(bytes[..n].to_vec());
        client.handle_transmitted(Time::ZERO, n);
    }
    assert!(client.poll_transmit(Time::ZERO).is_empty());
    writes
}

#[test]
fn without_coalescing_every_frame_is_a_write_of_its_own() {
    let whole = writes(true, usize::MAX);
    assert_eq!(whole.len(), 1);
    let pieces = writes(false, usize::MAX);
    assert_eq!(pieces.concat(), whole[0]);
    assert_eq!(pieces[0], PREFACE);
    for piece in &pieces[1..] {
        let header = FrameHeader::parse(piece.first_chunk().unwrap());
        assert_eq!(piece.len(), HEADER_LENGTH + header.length as usize);
    }
    assert_eq!(pieces.len(), 5, "preface, SETTINGS, HEADERS, twice DATA");
}

#[test]
fn a_frame_that_is_taken_in_parts_is_finished_before_the_next() {
    let pieces = writes(false, 10_000);
    assert_eq!(pieces.concat(), writes(true, 7)[..].concat());
    let lengths: Vec<_> = pieces[3..].iter().map(Vec::len).collect();
    assert_eq!(lengths, [10_000, 16_384 + 9 - 10_000, 20_000 - 16_384 + 9]);
}
