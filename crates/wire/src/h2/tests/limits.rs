//! Reactions to a hostile peer, on both sides of each bound and in both roles, in virtual time: a timeout of half a
//! minute takes no time.
#![allow(clippy::print_stdout, reason = "how much memory an attack makes us hold is for people to read")]

mod deadlines;

use std::time::Duration;

use super::support::*;
use crate::h2::frame::{flag, kind};
use crate::limits::Rate;
use crate::testing::{Seen, drain_events};
use crate::{Config, Error, ErrorCode, Exceeded, Initiator, Limit, Role, StreamId};
use h2lab_base::units::Time;

const OPEN: u8 = flag::END_HEADERS;
const END: u8 = flag::END_HEADERS | flag::END_STREAM;
const CALM: ErrorCode = ErrorCode::ENHANCE_YOUR_CALM;
const BOTH: [Role; 2] = [Role::Client, Role::Server];

fn headers(stream: u32, flags: u8) -> Vec<u8> {
    frame(kind::HEADERS, flags, stream, &get_block())
}

fn reset(stream: u32) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, &ErrorCode::CANCEL.0.to_be_bytes())
}

fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

fn initial_window(bytes: u32) -> Vec<u8> {
    frame(kind::SETTINGS, 0, 0, &[&[0, 4][..], &bytes.to_be_bytes()].concat())
}

fn data(stream: u32, length: usize) -> Vec<u8> {
    frame(kind::DATA, 0, stream, &body(length, 1))
}

fn ping() -> Vec<u8> {
    frame(kind::PING, 0, 0, &[7; 8])
}

/// The n-th stream of a client.
fn nth(n: u32) -> u32 {
    2 * n + 1
}

/// An engine in this role, with one stream on which the peer has begun a message and may send more.
fn scripted(role: Role, change: impl FnOnce(&mut Config)) -> Scripted {
    let mut config = Config::new(role);
    change(&mut config);
    let mut peer = Scripted::new(config);
    match role {
        Role::Server => drop(peer.receive(&headers(1, OPEN))),
        Role::Client => {
            peer.request();
            peer.receive(&frame(kind::HEADERS, OPEN, 1, &ok_block()));
        }
    }
    peer.sent();
    peer
}

impl Scripted {
    /// Fails unless the connection has just ended because of this bound, reported it to the peer, and counted it.
    #[track_caller]
    fn assert_exceeded(&mut self, seen: &[Seen], limit: Limit, allowed: u64) {
        let exceeded = Exceeded { limit, allowed };
        assert_eq!(seen.last(), Some(&Seen::Closed { error: Some(Error::Exceeded(exceeded)) }));
        let sent = self.sent();
        let (header, payload) = sent.last().expect("a GOAWAY");
        assert_eq!((header.kind, &payload[4..8]), (kind::GOAWAY, &CALM.0.to_be_bytes()[..]));
        assert_eq!(String::from_utf8_lossy(&payload[8..]), exceeded.to_string());
        assert_eq!(self.hits(limit), 1);
        println!("{limit:?}: {} bytes held at the end", self.engine.held_bytes());
    }

    fn hits(&self, limit: Limit) -> u32 {
        self.engine.counters().limits_hit[limit as usize]
    }

    /// Lets time pass, firing every deadline of the engine.
    fn wait(&mut self, time: Duration) -> Vec<Seen> {
        let (until, mut seen) = (self.now + time, Vec::new());
        while self.engine.poll_timeout() <= until {
            self.now = self.now.max(self.engine.poll_timeout());
            self.engine.handle_timeout(self.now);
            seen.extend(drain_events(&mut self.engine, self.now));
        }
        self.now = until;
        seen.extend(drain_events(&mut self.engine, self.now));
        seen
    }
}

/// The event of a stream that the engine ended for a bound.
fn evicted(stream: u32) -> Seen {
    Seen::Reset { stream, code: CALM, initiator: Initiator::Engine }
}

const MS: Duration = Duration::from_millis(1);

/// A millisecond less than `n` seconds.
const fn just_below(n: u64) -> Duration {
    Duration::from_millis(n * 1_000 - 1)
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_hundred_requests_may_be_reset_at_once_and_33_each_second() {
    let mut peer = Scripted::new(server_config());
    let mut next = 0;
    let mut reset_one = |peer: &mut Scripted| {
        let seen = peer.receive(&[headers(nth(next), END), reset(nth(next))].concat());
        next += 1;
        peer.sent();
        seen
    };
    for _ in 0..100 {
        assert_eq!(reset_one(&mut peer).len(), 2);
    }
    peer.now += seconds(1);
    for _ in 0..33 {
        assert_eq!(reset_one(&mut peer).len(), 2);
    }
    let seen = peer.receive(&[headers(nth(133), END), reset(nth(133))].concat());
    peer.assert_exceeded(&seen, Limit::Resets, 100);
}

#[test]
fn promises_that_are_taken_back_at_once_are_resets_too() {
    let mut peer = scripted(Role::Client, |config| {
        config.enable_push = true;
        config.limits.resets = Rate { burst: 3, per_second: 0 };
    });
    let mut promise = |n: u32| {
        let promised = (2 * n).to_be_bytes();
        let frame = frame(kind::PUSH_PROMISE, OPEN, 1, &[&promised[..], &get_block()].concat());
        peer.receive(&[frame, reset(2 * n)].concat())
    };
    for n in 1..=3 {
        assert!(matches!(promise(n)[..], [Seen::PushPromise { .. }, Seen::Reset { .. }]));
    }
    let seen = promise(4);
    peer.assert_exceeded(&seen, Limit::Resets, 3);
}

#[test]
fn resets_that_the_peer_makes_us_send_are_bounded_too() {
    let mut peer = Scripted::new(server_config());
    let provoke =
        |peer: &mut Scripted, n| peer.receive(&[headers(nth(n), END), window_update(nth(n), 0)].concat());
    for n in 0..1_024 {
        assert!(matches!(provoke(&mut peer, n)[..], [Seen::Request { .. }, Seen::Reset { .. }]), "{n}");
        assert_eq!(peer.codes(), (None, vec![(nth(n), ErrorCode::PROTOCOL_ERROR.0)]));
    }
    let seen = provoke(&mut peer, 1_024);
    peer.assert_exceeded(&seen, Limit::StreamErrors, 1_024);
}

#[test]
fn streams_beyond_the_limit_are_refused_and_too_many_of_them_end_the_connection() {
    let limit = 5;
    let mut peer = Scripted::new(Config { max_concurrent_streams: Some(limit), ..server_config() });
    for n in 0..limit {
        assert_eq!(peer.receive(&headers(nth(n), END)).len(), 1);
    }
    let before = peer.engine.held_bytes();
    for n in limit..limit + 1_024 {
        assert_eq!(peer.receive(&headers(nth(n), END)), []);
        assert_eq!(peer.codes(), (None, vec![(nth(n), ErrorCode::REFUSED_STREAM.0)]));
    }
    assert!(
        peer.engine.held_bytes() < before + 16 * 1024,
        "refused streams leave nothing but a memory of 256"
    );
    assert_eq!(peer.hits(Limit::Streams), 1_024);
    let seen = peer.receive(&headers(nth(limit + 1_024), END));
    peer.assert_exceeded(&seen, Limit::StreamErrors, 1_024);
}

#[test]
fn a_field_block_may_come_in_nine_frames_whether_they_hold_anything_or_not() {
    for role in BOTH {
        for fragment in [&b""[..], &get_block()[..1]] {
            let mut peer = scripted(role, |_| {});
            let id = if role == Role::Server { 3 } else { 1 };
            let continuation = |flags| frame(kind::CONTINUATION, flags, id, fragment);
            let eight = [frame(kind::HEADERS, 0, id, b""), continuation(0).repeat(8)].concat();
            assert_eq!(peer.receive(&eight), [], "{role:?}");
            let seen = peer.receive(&continuation(OPEN));
            peer.assert_exceeded(&seen, Limit::Continuations, 8);
        }
    }
}

#[test]
fn a_large_list_may_come_in_as_many_frames_as_it_needs_and_a_quarter_more() {
    let mut peer = scripted(Role::Server, |config| config.max_header_list_size = 1 << 20);
    let continuation = frame(kind::CONTINUATION, 0, 3, b"");
    assert_eq!(peer.receive(&[frame(kind::HEADERS, 0, 3, b""), continuation.repeat(80)].concat()), []);
    let seen = peer.receive(&continuation);
    peer.assert_exceeded(&seen, Limit::Continuations, 80);
}

#[test]
fn a_field_block_in_pieces_ends_at_four_times_the_size_of_the_list() {
    let mut peer = scripted(Role::Server, |_| {});
    let piece = |kind, length| frame(kind, 0, 3, &vec![0x82; length]);
    assert_eq!(peer.receive(&piece(kind::HEADERS, 16_384)), []);
    assert_eq!(peer.receive(&piece(kind::CONTINUATION, 16_384).repeat(15)), []);
    let seen = peer.receive(&piece(kind::CONTINUATION, 1));
    peer.assert_exceeded(&seen, Limit::FieldBlock, 262_144);
}

#[test]
fn a_block_in_pieces_that_is_larger_than_the_list_ends_its_stream_and_the_tables_stay_in_step() {
    for role in BOTH {
        let mut peer = scripted(role, |_| {});
        let (first, second) = if role == Role::Server { (3, 5) } else { (1, 3) };
        let head = if role == Role::Server { get_block() } else { ok_block() };
        // It enters the dynamic table behind 100,000 bytes of others.
        let kept = [&[0x40, 4][..], b"kept", &[3], b"yes"].concat();
        let large = [&head[..], &large_entry(1_000).repeat(100), &kept].concat();
        let mut pieces = large.chunks(16_384).peekable();
        let mut bytes = Vec::new();
        while let Some(piece) = pieces.next() {
            let end = if pieces.peek().is_none() { flag::END_HEADERS } else { 0 };
            let piece = if bytes.is_empty() {
                frame(kind::HEADERS, end | flag::END_STREAM, first, piece)
            } else {
                frame(kind::CONTINUATION, end, first, piece)
            };
            bytes.extend(piece);
        }
        let seen = peer.receive(&bytes);
        assert!(matches!(seen[..], [] | [Seen::Reset { .. }]), "{role:?}: {seen:?}");
        // A request is answered 431; a response is reset, which has no status.
        let (goaway, resets) = peer.codes();
        assert_eq!((goaway, resets.len()), (None, usize::from(role == Role::Client)), "{role:?}");
        assert_eq!(peer.hits(Limit::FieldList), 1);
        let refused = peer.engine.take_refused().map(|refused| (refused.status, refused.times));
        assert_eq!(refused, Some((if role == Role::Server { 431 } else { 0 }, 1)));
        if role == Role::Client {
            assert_eq!(peer.request(), second);
        }
        let seen = peer.receive(&frame(kind::HEADERS, END, second, &[&head[..], &[0xbe]].concat()));
        let has_kept = |seen: &Seen| format!("{seen:?}").contains("kept");
        assert!(seen.iter().any(has_kept), "{role:?}: {seen:?}");
    }
}

/// A literal field that enters the dynamic table, with a value of `length` bytes.
fn large_entry(length: usize) -> Vec<u8> {
    let mut block = vec![0x40, 1, b'x', 0x7f];
    let mut rest = length - 127;
    while rest >= 128 {
        block.push((rest % 128) as u8 | 0x80);
        rest /= 128;
    }
    block.push(rest as u8);
    block.extend(vec![b'v'; length]);
    block
}

#[test]
fn fields_beyond_the_list_cost_the_stream_and_four_times_that_the_connection() {
    // An entry counts 32 bytes beyond its name and value: 16 references make 64 KiB.
    let entry = large_entry(4_096 - 32 - 1);
    for role in BOTH {
        let mut peer = scripted(role, |_| {});
        let mut next = 1;
        let mut bomb = |peer: &mut Scripted, references| {
            let id = if role == Role::Server { next + 2 } else { next };
            next += 2;
            let block = [&get_block()[..], &entry, &vec![0xbe; references]].concat();
            let block = if role == Role::Server { block } else { [ok_block(), block].concat() };
            peer.receive(&frame(kind::HEADERS, END, id, &block))
        };
        // One literal and 62 references stay below 4 × 64 KiB, with what a request has besides.
        let seen = bomb(&mut peer, 62);
        assert!(matches!(seen[..], [] | [Seen::Reset { .. }]), "{seen:?}");
        // A request is answered 431; a response is reset, which has no status.
        assert_eq!(peer.codes().1.len(), usize::from(role == Role::Client), "{role:?}");
        assert_eq!(peer.hits(Limit::FieldList), 1);
        if role == Role::Client {
            peer.request();
        }
        let begun = peer.engine.held_bytes();
        let id = if role == Role::Server { 5 } else { 3 };
        let seen = peer.receive(&frame(kind::HEADERS, END, id, &[&entry[..], &vec![0xbe; 12_000]].concat()));
        assert!(peer.engine.held_bytes() < begun + 64 * 1024);
        assert_eq!(
            seen.last(),
            Some(&Seen::Closed {
                error: Some(Error::Exceeded(Exceeded { limit: Limit::FieldList, allowed: 262_144 }))
            })
        );
        assert_eq!(peer.codes().0, Some(CALM.0));
    }
}

#[test]
fn names_without_a_letter_end_their_stream_and_nothing_else() {
    for role in BOTH {
        let mut peer = scripted(role, |config| config.limits.stream_errors = 2);
        let nameless = [0x40, 0, 1, b'v'];
        let mut ended = 0;
        for n in 1..=2 {
            let id = if role == Role::Server {
                nth(n)
            } else if n == 1 {
                1
            } else {
                peer.request()
            };
            let block = if role == Role::Server { get_block() } else { ok_block() };
            peer.receive(&frame(kind::HEADERS, END, id, &[&block[..], &nameless.repeat(100)].concat()));
            let (goaway, resets) = peer.codes();
            assert_eq!((goaway, &resets[..]), (None, &[(id, ErrorCode::PROTOCOL_ERROR.0)][..]), "{role:?}");
            ended += 1;
        }
        assert_eq!(ended, 2);
        assert!(peer.engine.held_bytes() < 128 * 1024);
    }
}

#[test]
fn a_hundred_data_frames_may_be_empty_in_a_row() {
    for role in BOTH {
        let mut peer = scripted(role, |_| {});
        let padded = frame(kind::DATA, flag::PADDED, 1, &[3, 0, 0, 0]);
        assert_eq!(peer.receive(&[data(1, 0).repeat(99), padded].concat()), []);
        assert_eq!(peer.receive(&data(1, 1)).len(), 1, "a byte of data begins a new row");
        assert_eq!(peer.receive(&data(1, 0).repeat(100)), [], "{role:?}");
        let seen = peer.receive(&data(1, 0));
        peer.assert_exceeded(&seen, Limit::EmptyData, 100);
    }
}

#[test]
fn small_data_is_bounded_while_the_role_holds_it_and_only_then() {
    for role in BOTH {
        // Ten frames of one byte have an overhead of 2,550 bytes.
        let mut peer = scripted(role, |config| {
            config.flow.manual_release = true;
            config.limits.small_data = Some(2_550);
        });
        assert_eq!(peer.receive(&data(1, 1).repeat(10)).len(), 10);
        peer.engine.release(peer.now, StreamId(1), 5);
        assert_eq!(peer.receive(&data(1, 1).repeat(5)).len(), 5);
        assert_eq!(peer.receive(&data(1, 256).repeat(100)).len(), 100, "frames of a fair size cost nothing");
        let seen = peer.receive(&data(1, 1));
        peer.assert_exceeded(&seen, Limit::SmallData, 2_550);

        let mut peer = scripted(role, |config| config.limits.small_data = Some(2_550));
        let before = peer.engine.held_bytes();
        assert_eq!(peer.receive(&data(1, 1).repeat(20_000)).len(), 20_000, "{role:?}: consumed at once");
        assert!(peer.engine.held_bytes() <= before + 256 * 1024);
    }
}

#[test]
fn a_role_that_holds_half_a_window_of_tiny_frames_is_not_attacked_by_default() {
    let mut peer = scripted(Role::Server, |config| {
        config.flow.manual_release = true;
        config.flow.connection_window = 1 << 20;
    });
    assert_eq!(peer.receive(&data(1, 1).repeat((1 << 19) / 255)).len(), (1 << 19) / 255);
    let seen = peer.receive(&data(1, 1));
    peer.assert_exceeded(&seen, Limit::SmallData, 1 << 19);
}

#[test]
fn frames_that_change_nothing_are_taken_a_hundred_for_each_stream() {
    let priority = frame(kind::PRIORITY, 0, 9, &[0, 0, 0, 0, 16]);
    let unknown = frame(0xbe, 0xff, 7, b"grease");
    let settings_ack = frame(kind::SETTINGS, flag::ACK, 0, &[]);
    let ping_ack = frame(kind::PING, flag::ACK, 0, &[1; 8]);
    let update = frame(kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1");
    for role in BOTH {
        let mut kinds = vec![&priority, &unknown, &settings_ack, &ping_ack];
        // It changes the order of the answers, but no client reprioritises so often.
        kinds.extend((role == Role::Server).then_some(&update));
        for noise in kinds {
            let mut peer = scripted(role, |_| {}); // one stream, and ten are granted
            assert_eq!(peer.receive(&noise.repeat(1_100)), []);
            let seen = peer.receive(noise);
            peer.assert_exceeded(&seen, Limit::Noise, 1_100);
        }
    }
}

#[test]
fn resets_and_updates_of_streams_that_are_over_are_noise() {
    for noise in [reset(1), window_update(1, 1)] {
        let mut peer = scripted(Role::Server, |_| {});
        peer.receive(&reset(1));
        assert_eq!(peer.receive(&noise.repeat(1_100)), []);
        let seen = peer.receive(&noise);
        peer.assert_exceeded(&seen, Limit::Noise, 1_100);
    }
}

#[test]
fn responses_that_end_again_and_again_are_noise() {
    let mut peer = scripted(Role::Client, |_| {});
    let end = frame(kind::DATA, flag::END_STREAM, 1, &[]);
    assert!(matches!(peer.receive(&end)[..], [Seen::Data { end_stream: true, .. }]));
    assert_eq!(peer.receive(&end.repeat(1_100)), []);
    let seen = peer.receive(&end);
    peer.assert_exceeded(&seen, Limit::Noise, 1_100);
}

#[test]
fn credit_that_comes_back_when_the_response_is_behind_us_is_no_noise() {
    // Go's client returns credit for every 4 KiB read from its 4 MiB buffer, which holds a whole response.
    const BODY: usize = 4 << 20;
    let mut peer = Scripted::new(server_config());
    peer.receive(&[initial_window(BODY as u32), window_update(0, 1 << 30)].concat());
    let whole = vec![7; BODY];
    for n in 0..12 {
        peer.receive(&headers(nth(n), END));
        peer.engine.send_response(peer.now, StreamId(nth(n)), &OK);
        let mut sent = 0;
        while sent < BODY {
            sent += peer.engine.send_data(peer.now, StreamId(nth(n)), &whole[sent..], true);
            let bytes = peer.engine.poll_transmit(peer.now).len();
            peer.engine.handle_transmitted(peer.now, bytes);
            peer.receive(&[]);
        }
        assert_eq!(peer.receive(&window_update(nth(n), 4_096).repeat(BODY / 4_096)), [], "response {n}");
    }
    // Credit for more than was ever sent is noise again, and so are unrealistically small pieces.
    let mut peer = responding(1 << 20, 1_000);
    assert_eq!(peer.engine.send_data(peer.now, StreamId(1), &body(10 * 1_024, 1), true), 10 * 1_024);
    assert_eq!(peer.receive(&window_update(1, 1).repeat(10 + 1_100)), []);
    let seen = peer.receive(&window_update(1, 1));
    peer.sent();
    let exceeded = Exceeded { limit: Limit::Noise, allowed: 1_100 };
    assert_eq!(seen, [Seen::Closed { error: Some(Error::Exceeded(exceeded)) }]);
}

#[test]
fn settings_may_change_a_hundred_times_at_once_and_ten_times_a_second() {
    for role in BOTH {
        let mut peer = scripted(role, |_| {}); // the greeting was the first
        for _ in 0..99 {
            assert_eq!(peer.receive(&initial_window(65_535)), [Seen::Settings]);
        }
        peer.sent();
        peer.now += seconds(1);
        assert_eq!(peer.receive(&initial_window(65_535).repeat(10)).len(), 10);
        peer.sent();
        let seen = peer.receive(&initial_window(65_535));
        peer.assert_exceeded(&seen, Limit::Settings, 100);
    }
}

#[test]
fn a_thousand_answers_may_be_unread_and_as_many_as_one_likes_may_be_read() {
    for role in BOTH {
        let mut peer = scripted(role, |_| {});
        for _ in 0..20 {
            assert_eq!(peer.receive(&ping().repeat(1_000)), []);
            assert_eq!(peer.sent().len(), 1_000);
        }
        assert_eq!(peer.receive(&ping().repeat(1_000)), []);
        println!("{} bytes held with 1,000 answers unread", peer.engine.held_bytes());
        assert!(peer.engine.held_bytes() < 512 * 1024);
        assert!(!peer.engine.poll_transmit(peer.now).is_empty());
        // Answers that were never offered to the transport are not the peer's fault.
        assert_eq!(peer.receive(&ping().repeat(5_000)), []);
        assert!(!peer.engine.poll_transmit(peer.now).is_empty());
        let seen = peer.receive(&ping());
        peer.assert_exceeded(&seen, Limit::UnreadAnswers, 1_000);
    }
}

#[test]
fn whose_answers_fill_the_output_is_judged_although_nothing_more_is_read() {
    for answers in [1_000, 1_001] {
        let mut peer = scripted(Role::Client, |config| config.limits.unread_output = 17 * 1_000 - 1);
        assert_eq!(peer.receive(&ping().repeat(answers)), []);
        assert!(!peer.engine.wants_input() && !peer.engine.poll_transmit(peer.now).is_empty());
        let seen = drain_events(&mut peer.engine, peer.now);
        if answers == 1_000 {
            assert_eq!(seen, []);
        } else {
            peer.assert_exceeded(&seen, Limit::UnreadAnswers, 1_000);
        }
    }
}

#[test]
fn no_more_input_is_wanted_while_too_much_output_waits() {
    let mut peer = scripted(Role::Server, |config| config.limits.unread_output = 17 * 100);
    peer.receive(&ping().repeat(100));
    assert!(peer.engine.wants_input());
    peer.receive(&ping());
    assert!(!peer.engine.wants_input());
    peer.engine.handle_transmitted(peer.now, 17);
    assert!(peer.engine.wants_input());
}

#[test]
fn interim_responses_end_their_request_after_a_hundred() {
    let mut peer = Scripted::new(client_config());
    let stream = peer.request();
    let hint = frame(kind::HEADERS, OPEN, stream, &block(&[(":status", "103")]));
    assert_eq!(peer.receive(&hint.repeat(100)).len(), 100);
    assert_eq!(peer.receive(&hint), [evicted(stream)]);
    assert_eq!((peer.hits(Limit::Interims), peer.codes()), (1, (None, vec![(stream, CALM.0)])));
}

/// A server with a response of `length` bytes on stream 1, to a client whose windows are `window` bytes.
fn responding(window: u32, small_data_frames: u32) -> Scripted {
    let mut peer = Scripted::new(Config {
        limits: crate::Limits { small_data_frames, ..crate::Limits::new(Role::Server) },
        ..server_config()
    });
    peer.receive(&[initial_window(window), headers(1, END)].concat());
    peer.engine.send_response(peer.now, StreamId(1), &OK);
    peer.sent();
    peer
}

#[test]
fn a_body_trickles_away_until_the_budget_is_used_up_and_then_waits_for_fair_windows() {
    let mut peer = responding(1, 3);
    let send =
        |peer: &mut Scripted, length| peer.engine.send_data(peer.now, StreamId(1), &body(length, 1), false);
    assert_eq!(send(&mut peer, 5_000), 1);
    for _ in 0..2 {
        assert_eq!(peer.receive(&window_update(1, 1)), [Seen::Writable { stream: 1 }]);
        assert_eq!(send(&mut peer, 5_000), 1);
    }
    assert_eq!(peer.receive(&window_update(1, 1_023)), [], "one byte less than 1 KiB");
    assert_eq!(send(&mut peer, 5_000), 0);
    assert_eq!(peer.receive(&window_update(1, 1)), [Seen::Writable { stream: 1 }]);
    assert_eq!(send(&mut peer, 5_000), 1_024);
    assert_eq!(
        peer.receive(&window_update(1, 1)),
        [Seen::Writable { stream: 1 }],
        "a fair piece gave one back"
    );
    assert_eq!(send(&mut peer, 5_000), 1);
    assert_eq!(peer.receive(&window_update(1, 99)), []);
    assert_eq!(send(&mut peer, 99), 99, "all that is left is never too short");
}

#[test]
fn an_upload_through_tiny_windows_never_stops() {
    let mut peer = Scripted::new(client_config());
    peer.receive(&initial_window(512));
    let stream = peer.upload();
    for _ in 0..4_000 {
        assert_eq!(peer.engine.send_data(peer.now, stream, &body(5_000, 1), false), 512);
        peer.receive(&[window_update(0, 512), window_update(stream.0, 512)].concat());
        peer.sent();
    }
}

#[test]
fn the_connections_window_trickles_no_better_than_the_streams() {
    // One is spent on the rest of the initial window, 535 bytes after thirteen pieces.
    let mut peer = responding(1 << 20, 2);
    let send = |peer: &mut Scripted| peer.engine.send_data(peer.now, StreamId(1), &body(5_000, 1), false);
    let mut left = 65_535;
    while left > 0 {
        left -= send(&mut peer);
    }
    assert_eq!(send(&mut peer), 0);
    assert_eq!(peer.receive(&window_update(0, 1)), [Seen::Writable { stream: 1 }]);
    assert_eq!(send(&mut peer), 1);
    assert_eq!(peer.receive(&window_update(0, 1_023)), []);
    assert_eq!(peer.receive(&window_update(0, 1)), [Seen::Writable { stream: 1 }]);
    assert_eq!(send(&mut peer), 1_024);
}

#[test]
fn settings_that_change_the_table_thousands_of_times_in_a_frame_are_one_change() {
    let mut peer = Scripted::new(server_config());
    let size = |bytes: u32| [&[0, 1][..], &bytes.to_be_bytes()].concat();
    let payload = [size(0), size(65_536)].concat().repeat(1_300);
    peer.receive(&frame(kind::SETTINGS, 0, 0, &payload));
    peer.receive(&headers(1, END));
    peer.sent();
    peer.engine.send_response(peer.now, StreamId(1), &EMPTY);
    let (_, block) = peer.sent().pop().unwrap();
    assert_eq!(block[..5], [0x20, 0x3f, 0xe1, 0xff, 0x03], "to nothing, and to 65,536 bytes");
}

#[test]
fn a_malformed_request_is_told_of_once_and_a_refused_stream_is_not() {
    let malformed = |stream| {
        let fields = [(":method", "GET"), (":scheme", "http"), (":path", "/"), ("connection", "close")];
        frame(kind::HEADERS, END, stream, &block(&fields))
    };
    let mut peer = Scripted::new(Config { max_concurrent_streams: Some(1), ..Config::new(Role::Server) });
    assert_eq!(peer.receive(&malformed(1)), []);
    peer.receive(&malformed(3));
    let refused = peer.engine.take_refused().expect("it was seen");
    assert_eq!((refused.status, refused.times), (0, 2));
    peer.receive(&headers(5, OPEN));
    peer.receive(&headers(7, OPEN));
    assert_eq!(peer.engine.take_refused(), None);
}
