//! Long DATA frames, which the role gets in pieces.

use super::support::*;
use crate::h2::connection::PIECE;
use crate::h2::frame::{flag, kind};
use crate::testing::Seen;
use crate::{Config, Error, ErrorCode, FlowControl};

const LONG: usize = 100_000;

/// A client whose peer may send frames of 1 MiB, with a GET that is answered with `LONG` bytes to come.
fn asked(window: u32) -> (Scripted, u32) {
    let flow = FlowControl { stream_window: window, connection_window: 1 << 21, ..FlowControl::default() };
    let mut client = Scripted::new(Config { max_frame_size: 1 << 20, flow, ..client_config() });
    let stream = client.request();
    let head = block(&[(":status", "200"), ("content-length", &LONG.to_string())]);
    client.receive(&frame(kind::HEADERS, flag::END_HEADERS, stream, &head));
    (client, stream)
}

/// The pieces that were seen, and whether the last one ended the stream.
fn pieces(seen: &[Seen]) -> Vec<(Vec<u8>, bool)> {
    let piece = |seen: &Seen| match seen {
        Seen::Data { data, end_stream, .. } => Some((data.clone(), *end_stream)),
        _ => None,
    };
    seen.iter().filter_map(piece).collect()
}

#[test]
fn the_role_gets_a_long_frame_as_it_comes() {
    for step in [1, 1_000, PIECE, 40_000, LONG + 9] {
        let (mut client, stream) = asked(1 << 20);
        let bytes = body(LONG, stream);
        let sent = frame(kind::DATA, flag::END_STREAM, stream, &bytes);
        let mut got: Vec<(Vec<u8>, bool)> = Vec::new();
        for part in sent.chunks(step) {
            got.extend(pieces(&client.receive(part)));
        }
        let whole: Vec<u8> = got.iter().flat_map(|(data, _)| data.clone()).collect();
        assert!(whole == bytes, "{step}");
        let (last, before) = got.split_last().unwrap();
        assert!(last.1 && before.iter().all(|(_, end_stream)| !end_stream), "{step}");
        assert!(got.iter().all(|(data, _)| data.len() >= PIECE), "{step}");
        assert_eq!(got.len() > 1, step < LONG, "{step}");
        assert_eq!(client.engine.counters().frames_received[usize::from(kind::DATA)], 1);
        assert_eq!(client.engine.open_streams(), 0);
    }
}

#[test]
fn what_is_left_of_a_long_frame_is_known() {
    let (mut client, stream) = asked(1 << 20);
    let sent = [frame(kind::DATA, 0, stream, &body(LONG, stream)), frame(kind::PING, 0, 0, &[0; 8])].concat();
    let end = LONG + 9;
    let mut from = 0;
    for (upto, left) in [(8, 0), (20_009, 80_000), (end - 1, 1), (end, 0), (end + 17, 0)] {
        client.receive(&sent[from..upto]);
        assert_eq!(client.engine.expected(), left as u64, "of {upto} bytes");
        from = upto;
    }
}

#[test]
fn what_is_announced_is_what_the_windows_let_come() {
    let long = LONG as u64;
    // More than half of the small window is used up then, and credit is returned; of the next one a quarter is left to
    // be sent.
    for (window, before, behind) in
        [(65_536, 16_384, 16_384), (1 << 18, 65_536, 55_536), (1 << 30, long, long - 40_000)]
    {
        let (mut client, stream) = asked(window);
        assert_eq!(client.engine.announced(), before, "a stream's window of {window}");
        client.receive(&frame(kind::DATA, 0, stream, &vec![0; 40_000]));
        assert_eq!(client.engine.announced(), behind, "a stream's window of {window}, behind a frame");
    }
    let (mut client, first) = asked(1 << 30);
    let second = client.request();
    assert_eq!(client.engine.announced(), long, "of the second nothing is known");
    client.receive(&frame(kind::HEADERS, flag::END_HEADERS, second, &block(&[(":status", "200")])));
    assert_eq!(client.engine.announced(), long, "nor is it without a content-length");
    client.receive(&frame(kind::RST_STREAM, 0, first, &[0; 4]));
    assert_eq!(client.engine.announced(), 0);
}

#[test]
fn what_is_held_of_a_long_frame_stays_small() {
    let (mut client, stream) = asked(1 << 30);
    let long = frame(kind::DATA, 0, stream, &vec![7; 1 << 20]);
    let before = client.engine.held_bytes();
    for part in long.chunks(1_000) {
        client.receive(part);
    }
    assert!(client.engine.held_bytes() < before + 4 * PIECE, "{}", client.engine.held_bytes());
}

#[test]
fn a_frame_that_is_cut_short_by_the_end_is_reported() {
    for missing in [1, LONG - PIECE] {
        let (mut client, stream) = asked(1 << 20);
        let sent = frame(kind::DATA, flag::END_STREAM, stream, &body(LONG, 1));
        client.receive(&sent[..sent.len() - missing]);
        client.engine.handle_eof(NOW);
        let seen = client.receive(&[]);
        let error = Some(Error::UnexpectedEof("a frame"));
        assert!(seen.contains(&Seen::Closed { error }), "{seen:?}");
    }
}

#[test]
fn each_piece_is_held_to_content_length_and_window() {
    let (mut client, stream) = asked(1 << 20);
    let seen = client.receive(&frame(kind::DATA, 0, stream, &body(LONG + 1, 1)));
    assert!(pieces(&seen).is_empty(), "it was there as a whole");
    assert_eq!(client.codes(), (None, vec![(stream, ErrorCode::PROTOCOL_ERROR.0)]));

    // The window holds less than the frame, and what has arrived of it so far is not enough for credit.
    let (mut client, stream) = asked(70_000);
    let long = frame(kind::DATA, 0, stream, &body(LONG, 1));
    let (first, rest) = long.split_at(20_000);
    assert_eq!(pieces(&client.receive(first)).len(), 1);
    assert!(pieces(&client.receive(rest)).is_empty());
    assert_eq!(client.codes(), (None, vec![(stream, ErrorCode::FLOW_CONTROL_ERROR.0)]));
}

#[test]
fn a_stream_that_we_reset_within_a_frame_costs_no_credit() {
    let (mut client, stream) = asked(1 << 20);
    let long = frame(kind::DATA, 0, stream, &body(LONG, 1));
    let (first, rest) = long.split_at(50_000);
    client.receive(first);
    client.engine.reset(NOW, crate::StreamId(stream), ErrorCode::CANCEL);
    assert!(pieces(&client.receive(rest)).is_empty());
    // The connection stays usable: a request gets its answer without an error.
    let next = client.request();
    let seen = client.receive(&frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, next, &ok_block()));
    assert!(matches!(seen[..], [Seen::Response { .. }]), "{seen:?}");
}

#[test]
fn padded_frames_stay_whole() {
    let (mut client, stream) = asked(1 << 20);
    let payload = [&[3][..], &body(LONG, 1), &[0; 3]].concat();
    let long = frame(kind::DATA, flag::END_STREAM | flag::PADDED, stream, &payload);
    let (first, rest) = long.split_at(90_000);
    assert!(client.receive(first).is_empty());
    assert!(pieces(&client.receive(rest)) == [(body(LONG, 1), true)]);
}
