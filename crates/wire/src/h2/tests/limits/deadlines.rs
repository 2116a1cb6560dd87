//! A peer that is slow to send or to read, on both sides of each bound.

use super::*;
use crate::limits::accounts::FAIR_PIECE;

#[test]
fn a_stream_whose_window_stays_closed_is_ended_after_30_seconds_and_its_connection_goes_on() {
    // The stream's window, and the connection's.
    for window in [10_000, 1 << 20] {
        let mut peer = responding(window, 1_000);
        while peer.engine.send_data(peer.now, StreamId(1), &body(5_000, 1), false) > 0 {}
        peer.sent();
        assert_eq!(peer.wait(just_below(30)), [], "{window}");
        assert_eq!(peer.wait(MS), [evicted(1)]);
        assert_eq!((peer.hits(Limit::Stall), peer.codes()), (1, (None, vec![(1, CALM.0)])));
        assert_eq!(peer.receive(&headers(3, END)).len(), 1);
    }
}

#[test]
fn a_fair_piece_restarts_the_timeout_and_a_small_frame_does_not() {
    for (piece, restarts) in [(1_024, true), (1_023, false)] {
        let mut peer = responding(10_000, 1_000);
        while peer.engine.send_data(peer.now, StreamId(1), &body(5_000, 1), false) > 0 {}
        peer.sent();
        peer.wait(seconds(29));
        assert_eq!(peer.receive(&window_update(1, piece)), [Seen::Writable { stream: 1 }]);
        assert_eq!(peer.engine.send_data(peer.now, StreamId(1), &body(5_000, 1), false), piece as usize);
        peer.sent();
        assert_eq!(peer.wait(seconds(1)).is_empty(), restarts, "{piece}");
        if restarts {
            assert_eq!(peer.wait(just_below(29)), []);
            assert_eq!(peer.wait(MS), [evicted(1)]);
        }
    }
}

#[test]
fn small_pieces_that_come_to_a_fair_one_are_progress() {
    // A client that reads 100 bytes a second and returns credit each time.
    let mut peer = responding(10_000, 1_000);
    while peer.engine.send_data(peer.now, StreamId(1), &body(5_000, 1), false) > 0 {}
    for _ in 0..100 {
        assert_eq!(peer.wait(seconds(1)), []);
        assert_eq!(peer.receive(&window_update(1, 100)), [Seen::Writable { stream: 1 }]);
        assert_eq!(peer.engine.send_data(peer.now, StreamId(1), &body(5_000, 1), false), 100);
        peer.sent();
    }
    assert_eq!(peer.wait(seconds(30)), [evicted(1)]);
}

#[test]
fn who_opens_its_window_while_our_output_is_full_gains_no_more_than_thirty_seconds_by_it() {
    let mut peer = responding(10_000, 1_000);
    let send = |peer: &mut Scripted, stream| {
        peer.engine.send_data(peer.now, StreamId(stream), &body(65_536, 1), false)
    };
    peer.receive(&[window_update(0, 1 << 30), headers(3, END), window_update(3, 1 << 20)].concat());
    while send(&mut peer, 1) > 0 {}
    peer.sent();
    assert_eq!(peer.wait(just_below(30)), []);
    // Another body fills the output, so that the first one waits for that when its deadline is checked.
    peer.engine.send_response(peer.now, StreamId(3), &OK);
    while send(&mut peer, 3) > 0 {}
    assert_eq!(peer.receive(&window_update(1, 1)), []);
    assert_eq!(peer.wait(MS), []);
    peer.sent();
    peer.receive(&reset(3));
    assert_eq!(send(&mut peer, 1), 1);
    peer.sent();
    assert_eq!(peer.wait(seconds(30)), [evicted(1)]);
}

#[test]
fn a_head_that_we_do_not_read_is_not_slow() {
    let mut config = server_config();
    config.limits.unread_output = 17 * 100;
    let mut peer = Scripted::new(config);
    peer.engine.poll_transmit(peer.now);
    let half = &headers(1, END)[..10];
    peer.receive(&[ping().repeat(200), half.to_vec()].concat());
    for _ in 0..20 {
        assert!(!peer.engine.wants_input());
        peer.engine.poll_transmit(peer.now);
        peer.engine.handle_transmitted(peer.now, 17);
        assert_eq!(peer.wait(seconds(1)), []);
        peer.receive(&[]);
    }
    peer.sent();
    peer.receive(&[]);
    assert_eq!(peer.wait(just_below(10)), []);
    let seen = peer.wait(MS);
    peer.assert_exceeded(&seen, Limit::SlowHead, 10_000);
}

#[test]
fn a_transport_that_takes_nothing_for_30_seconds_is_given_up() {
    let mut peer = Scripted::new(server_config());
    peer.receive(&ping());
    assert!(!peer.engine.poll_transmit(peer.now).is_empty());
    assert_eq!(peer.wait(just_below(30)), []);
    let seen = peer.wait(MS);
    peer.assert_exceeded(&seen, Limit::Stall, 30_000);
}

#[test]
fn a_head_has_ten_seconds_however_its_bytes_come() {
    let block = frame(kind::HEADERS, 0, 1, &get_block()[..3]);
    let frame_begun = &headers(1, END)[..10];
    let header_begun = &headers(1, END)[..2];
    for begun in [&block[..], frame_begun, header_begun] {
        let mut peer = Scripted::new(server_config());
        assert_eq!(peer.receive(begun), []);
        assert_eq!(peer.wait(just_below(10)), []);
        let seen = peer.wait(MS);
        peer.assert_exceeded(&seen, Limit::SlowHead, 10_000);
    }
    let mut peer = Scripted::new(server_config());
    peer.receive(&block);
    peer.wait(seconds(5));
    peer.receive(&frame(kind::CONTINUATION, 0, 1, b""));
    peer.wait(seconds(4));
    assert_eq!(peer.receive(&frame(kind::CONTINUATION, OPEN, 1, &get_block()[3..])).len(), 1, "in time");
}

#[test]
fn frames_one_after_the_other_are_not_one_slow_head() {
    let mut peer = Scripted::new(server_config());
    let (first, rest) = (ping()[..4].to_vec(), [&ping()[4..], &ping()[..4]].concat());
    peer.receive(&first);
    for _ in 0..20 {
        peer.now += seconds(2);
        assert_eq!(peer.wait(Duration::ZERO), []);
        peer.receive(&rest);
        peer.sent();
    }
}

#[test]
fn bodies_that_come_too_slowly_end_and_other_streams_go_on() {
    let mut peer = Scripted::new(server_config());
    peer.receive(&[headers(1, OPEN), headers(3, END)].concat());
    peer.wait(seconds(5));
    peer.receive(&headers(5, OPEN)); // not due for the whole period
    let overhead = headers(5, OPEN).len();
    peer.receive(&data(1, 2_399 - overhead - 9));
    assert_eq!(peer.wait(just_below(5)), []);
    assert_eq!(peer.wait(MS), [evicted(1)]);
    assert_eq!((peer.hits(Limit::SlowBody), peer.codes()), (1, (None, vec![(1, CALM.0)])));
    assert_eq!(peer.wait(seconds(10)), [evicted(5)]);
    assert_eq!(peer.engine.open_streams(), 1);
}

#[test]
fn a_body_that_keeps_to_the_rate_may_take_its_time() {
    let mut peer = Scripted::new(server_config());
    peer.receive(&headers(1, OPEN));
    for _ in 0..20 {
        assert_eq!(peer.receive(&data(1, 2_400 - 9)).len(), 1);
        assert_eq!(peer.wait(seconds(10)), []);
    }
}

#[test]
fn who_is_answered_already_or_has_no_credit_is_not_slow() {
    let mut peer = Scripted::new(server_config());
    peer.receive(&headers(1, OPEN));
    peer.engine.send_response(peer.now, StreamId(1), &OK);
    peer.sent();
    assert_eq!(peer.wait(seconds(60)), []);

    let mut config = server_config();
    config.flow.manual_release = true;
    let mut peer = Scripted::new(config);
    peer.receive(&headers(1, OPEN));
    peer.receive(&[data(1, 16_384).repeat(3), data(1, 16_383)].concat());
    assert_eq!(peer.wait(seconds(60)), [], "the window is closed by our role");
}

#[test]
fn who_waited_for_our_role_has_a_period_from_then_on_and_no_more() {
    // The rest of the window when the role is slow: nothing, or less than a useful frame. And the connection's.
    for (left, stream_window) in [(0, 65_535), (FAIR_PIECE - 1, 65_535), (0, 1 << 20)] {
        let mut config = server_config();
        (config.flow.manual_release, config.flow.stream_window) = (true, stream_window);
        let mut peer = Scripted::new(config);
        peer.receive(&headers(1, OPEN));
        peer.receive(&[data(1, 16_384).repeat(3), data(1, 16_383 - left)].concat());
        peer.sent();
        assert_eq!(peer.wait(seconds(69)), [], "{left}");
        peer.engine.release(peer.now, StreamId(1), 40_000);
        assert!(!peer.sent().is_empty(), "credit");
        // Eleven seconds; the first ended a period in which the peer could not send.
        assert_eq!(peer.wait(seconds(1)), [], "{left}");
        assert_eq!(peer.wait(just_below(10)), [], "{left}");
        assert_eq!(peer.wait(MS), [evicted(1)], "{left}");
    }
}

#[test]
fn who_has_room_is_slow_although_our_role_holds_some_of_its_body() {
    let mut config = server_config();
    config.flow.manual_release = true;
    let mut peer = Scripted::new(config);
    peer.receive(&headers(1, OPEN));
    peer.receive(&[data(1, 16_384).repeat(3), data(1, 16_383 - FAIR_PIECE)].concat());
    assert_eq!(peer.wait(seconds(10)), [], "it was fast enough");
    assert_eq!(peer.wait(just_below(10)), []);
    peer.engine.release(peer.now, StreamId(1), 40_000);
    assert_eq!(peer.wait(MS), [evicted(1)], "what it got last it did not need");
}

/// A proxy's server, whose clients keep gRPC streams open: 300 bytes of anything in five minutes.
fn patient() -> Scripted {
    let mut config = server_config();
    (config.limits.body_period, config.limits.body_rate) = (Some(seconds(300)), 1);
    Scripted::new(config)
}

#[test]
fn a_stream_of_grpc_may_pause_for_five_minutes_before_its_response_begins() {
    let mut peer = patient();
    peer.receive(&headers(1, OPEN));
    peer.receive(&data(1, 300 - 9));
    assert_eq!(peer.wait(seconds(300)), [], "enough came in the first five minutes");
    assert_eq!(peer.wait(just_below(300)), [], "and nothing in the next");
    assert_eq!(peer.wait(MS), [evicted(1)]);
}

#[test]
fn one_whose_client_sends_pings_may_pause_for_ever_and_so_may_one_that_is_answered() {
    let mut peer = patient();
    peer.receive(&headers(1, OPEN));
    for _ in 0..240 {
        // Every fifteen seconds, as gRPC keep-alive: 17 bytes.
        assert!(peer.receive(&ping()).is_empty());
        peer.sent();
        assert_eq!(peer.wait(seconds(15)), []);
    }
    peer.engine.send_response(peer.now, StreamId(1), &OK);
    peer.sent();
    assert_eq!(peer.wait(seconds(3_600)), []);
    assert_eq!(peer.engine.open_streams(), 1);
}

#[test]
fn a_body_that_we_do_not_read_is_not_slow() {
    let mut config = server_config();
    config.limits.unread_output = 17 * 100;
    let mut peer = Scripted::new(config);
    peer.engine.poll_transmit(peer.now);
    peer.receive(&[headers(1, OPEN), ping().repeat(200)].concat());
    for _ in 0..20 {
        assert!(!peer.engine.wants_input());
        peer.engine.poll_transmit(peer.now);
        peer.engine.handle_transmitted(peer.now, 17);
        assert_eq!(peer.wait(seconds(1)), []);
    }
    peer.sent();
    assert_eq!(peer.wait(seconds(10)), [], "the period in which we began to read");
    assert_eq!(peer.wait(just_below(10)), []);
    assert_eq!(peer.wait(MS), [evicted(1)]);
}

#[test]
fn a_connection_without_requests_ends_after_75_seconds_in_good_order() {
    let mut peer = Scripted::new(server_config());
    peer.wait(seconds(70));
    peer.receive(&ping());
    peer.sent();
    assert_eq!(peer.wait(just_below(75)), []);
    assert_eq!(peer.wait(MS), [Seen::Closed { error: None }]);
    let (header, payload) = peer.sent().pop().unwrap();
    assert_eq!((header.kind, &payload[4..8]), (kind::GOAWAY, &[0; 4][..]));
    assert_eq!(&payload[8..], b"idle: nothing happened for 75000 ms");
    assert_eq!((peer.hits(Limit::Idle), peer.engine.poll_timeout()), (1, Time::NEVER));
}

#[test]
fn a_request_under_way_keeps_a_silent_connection_open() {
    let mut peer = Scripted::new(server_config());
    peer.receive(&headers(1, END));
    assert_eq!(peer.wait(seconds(300)), []);
    peer.engine.send_response(peer.now, StreamId(1), &EMPTY);
    peer.sent();
    assert_eq!(peer.wait(just_below(75)), []);
    assert_eq!(peer.wait(MS), [Seen::Closed { error: None }]);
}

#[test]
fn a_client_leaves_it_to_its_role_how_long_it_waits() {
    let mut peer = Scripted::new(client_config());
    let stream = peer.upload();
    while peer.engine.send_data(peer.now, stream, &body(5_000, 1), false) > 0 {}
    peer.receive(&frame(kind::HEADERS, 0, stream.0, b""));
    assert_eq!(peer.engine.poll_timeout(), Time::NEVER);
    assert_eq!(peer.wait(seconds(3_600)), []);
}

#[test]
fn a_stream_waits_for_its_window_no_longer_while_what_it_has_sent_is_on_its_way() {
    let mut peer = responding(10_000, 1_000);
    while peer.engine.send_data(peer.now, StreamId(1), &body(5_000, 1), false) > 0 {}
    peer.sent();
    peer.wait(seconds(29));
    peer.engine.handle_acknowledged(peer.now);
    assert_eq!(peer.wait(just_below(30)), []);
    assert_eq!(peer.wait(MS), [evicted(1)]);
}
