//! The engine's interface to QUIC.

use super::support::*;
use crate::connection::{Request, Response};
use crate::h3::frame::kind;
use crate::h3::stream::QuicStreamId;
use crate::h3::transport::Action;
use crate::testing::Seen;
use crate::{Config, ErrorCode, Field, FlowControl, Initiator, Limits, Priority, Role, StreamId};

#[test]
fn a_connection_begins_with_its_control_stream_and_no_other() {
    // RFC 9114 §6.2.1; RFC 9204 §4.2 lets those of QPACK be left out.
    for (role, stream) in [(Role::Client, CLIENT_CONTROL), (Role::Server, SERVER_CONTROL)] {
        let mut scripted = Scripted::silent(Config::new(role));
        let [(sent_on, bytes, false)] = &scripted.sent()[..] else { panic!("one stream") };
        assert_eq!((*sent_on, &bytes[..2]), (stream, &[0, 4][..]), "the type, and SETTINGS");
    }
}

#[test]
fn requests_take_what_quic_grants() {
    let mut client = Scripted::new(Config::new(Role::Client));
    assert_eq!(client.engine.available_streams(), 100);
    for _ in 0..100 {
        client.request(&get("/"));
    }
    assert!(client.engine.send_request(client.now, &get("/")).is_none());
    client.quic().handle_streams_granted(101);
    assert_eq!(client.engine.available_streams(), 1);
    assert_eq!(client.request(&get("/")), StreamId(201));
}

#[test]
fn a_stream_that_is_blocked_is_not_offered_until_it_is_writable() {
    let mut client = Scripted::new(Config::new(Role::Client));
    let now = client.now;
    for _ in 0..2 {
        client.engine.send_request(now, &get("/")).unwrap();
    }
    let quic = client.quic();
    let first = quic.poll_stream().unwrap();
    assert_eq!((first.stream, first.fin), (QuicStreamId(0), true));
    let (length, start) = (first.data.len(), first.data[3..].to_vec());
    quic.handle_stream_sent(now, QuicStreamId(0), 3);
    assert_eq!(quic.poll_stream().unwrap().stream, QuicStreamId(4), "the others go on");
    quic.handle_stream_sent(now, QuicStreamId(4), length);
    assert_eq!(quic.poll_stream(), None);
    quic.handle_stream_writable(QuicStreamId(0));
    let rest = quic.poll_stream().unwrap();
    assert_eq!((rest.stream, rest.data, rest.fin), (QuicStreamId(0), &start[..], true));
}

#[test]
fn an_end_alone_is_offered_too() {
    let mut client = Scripted::new(Config::new(Role::Client));
    let stream = client.request(&post(None));
    assert_eq!(client.engine.send_data(client.now, stream, b"", true), 0);
    assert_eq!(client.sent(), [(0, vec![], true)]);
    assert_eq!(client.sent(), [], "once");
}

#[test]
fn bodies_wait_for_room_and_go_on_when_half_of_it_is_free() {
    let config = Config { send_buffer: 40_000, ..Config::new(Role::Client) };
    let mut client = Scripted::new(config);
    let (now, stream) = (client.now, client.request(&post(None)));
    assert_eq!(client.engine.send_data(now, stream, &vec![7; 100_000], true), 40_000);
    assert_eq!(client.events(), []);
    let waiting = client.quic().poll_stream().unwrap().data.len();
    client.quic().handle_stream_sent(now, QuicStreamId(0), waiting - 20_001);
    assert_eq!(client.events(), [], "more than half is still there");
    client.quic().handle_stream_writable(QuicStreamId(0));
    client.quic().handle_stream_sent(now, QuicStreamId(0), 1);
    assert_eq!(client.events(), [Seen::Writable { stream: stream.0 }]);
    assert_eq!(client.events(), [], "once");
    assert_eq!(client.engine.send_data(now, stream, &vec![7; 60_000], true), 20_000);
}

#[test]
fn a_static_body_is_lent_and_the_stream_ends_with_the_last_of_it() {
    static BODY: [u8; 20_000] = [7; 20_000];
    let mut client = Scripted::new(Config::new(Role::Client));
    let (now, stream) = (client.now, client.request(&post(None)));
    assert_eq!(client.engine.send_static(now, stream, &BODY, true), BODY.len());
    let quic = client.quic();
    let head = quic.poll_stream().unwrap();
    assert_eq!((head.lent, head.fin), (None, false));
    let length = head.data.len();
    assert!(length < 10, "the frame's type and length");
    quic.handle_stream_sent(now, QuicStreamId(0), length);
    let body = quic.poll_stream().unwrap();
    assert!(body.lent.is_some_and(|bytes| std::ptr::eq(bytes, &raw const BODY[..])) && body.fin);
    quic.handle_stream_sent(now, QuicStreamId(0), 5);
    assert_eq!(quic.poll_stream(), None, "the transport did not take all that it was shown");
    quic.handle_stream_writable(QuicStreamId(0));
    let rest = quic.poll_stream().unwrap();
    assert!(rest.lent.is_some_and(|bytes| std::ptr::eq(bytes, &raw const BODY[5..])) && rest.fin);
    quic.handle_stream_sent(now, QuicStreamId(0), BODY.len() - 5);
    assert_eq!(quic.poll_stream(), None);
    assert_eq!(client.engine.unsent(), 0);
}

#[test]
fn what_the_role_holds_keeps_the_stream_unread() {
    let flow = FlowControl { manual_release: true, stream_window: 10, ..FlowControl::default() };
    let mut server = Scripted::new(Config { flow, ..Config::new(Role::Server) });
    server.receive(0, &[get_with(&[]), data(b"0123456789")].concat(), false);
    assert!(!server.quic().wants_stream(QuicStreamId(0)));
    assert!(server.quic().wants_stream(QuicStreamId(4)), "others may come");
    server.engine.release(NOW, StreamId(1), 1);
    assert!(server.quic().wants_stream(QuicStreamId(0)));
}

#[test]
fn a_reset_gives_up_what_is_open_and_reports_nothing_to_the_role() {
    let mut client = Scripted::new(Config::new(Role::Client));
    let stream = client.request(&post(None));
    client.engine.reset(NOW, stream, ErrorCode::CANCEL);
    let (stream, code) = (QuicStreamId(0), ErrorCode::H3_REQUEST_CANCELLED);
    assert_eq!(client.actions(), [Action::Reset { stream, code }, Action::Stop { stream, code }]);
    assert_eq!(client.events(), []);
    let whole = client.request(&get("/"));
    client.engine.reset(NOW, whole, ErrorCode::CANCEL);
    let stream = QuicStreamId(4);
    assert_eq!(client.actions(), [Action::Stop { stream, code }], "the request had ended");
    assert_eq!(client.receive(4, &answer("200", &[]), true), [], "what is late is ignored");
    assert_eq!(client.engine.counters().frames_sent[3], 2, "each counts as one RST_STREAM");
}

#[test]
fn a_server_that_reads_no_more_of_a_request_still_sends_its_whole_response() {
    let mut server = Scripted::new(Config::new(Role::Server));
    server.receive(0, &get_with(&[]), false);
    server.engine.send_response(NOW, StreamId(1), &OK);
    server.engine.send_data(NOW, StreamId(1), b"whole", true);
    server.engine.reset(NOW, StreamId(1), ErrorCode::NO_ERROR);
    let (stream, code) = (QuicStreamId(0), ErrorCode::H3_NO_ERROR);
    assert_eq!(server.actions(), [Action::Stop { stream, code }]);
    assert_eq!(server.receive(0, &data(b"late"), false), []);
    assert_eq!(server.receive_reset(0, code), [], "the answer to STOP_SENDING (RFC 9000 §3.5)");
    assert!(matches!(&server.sent()[..], [(0, bytes, true)] if bytes.ends_with(b"whole")));
    assert_eq!((server.engine.open_streams(), server.engine.unsent()), (0, 0));
}

#[test]
fn a_peer_that_gives_up_is_reported_once() {
    // RFC 9114 §4.1.1: a client cancels by both, in any order.
    for reset_first in [true, false] {
        let mut server = Scripted::new(Config::new(Role::Server));
        server.receive(0, &get_with(&[]), false);
        let code = ErrorCode::H3_REQUEST_CANCELLED;
        let (first, second) = if reset_first {
            (server.receive_reset(0, code), server.receive_stop(0, code))
        } else {
            (server.receive_stop(0, code), server.receive_reset(0, code))
        };
        assert_eq!(first, [Seen::Reset { stream: 1, code, initiator: Initiator::Remote }]);
        assert_eq!(second, []);
        let resets = |action: &Action| matches!(action, Action::Reset { .. });
        assert_eq!(server.actions().into_iter().filter(resets).count(), 1);
    }
}

#[test]
fn a_server_that_wants_no_more_of_a_request_may_still_answer_it() {
    // RFC 9114 §4.1: STOP_SENDING, which should have H3_NO_ERROR, but whatever it has, the response must not be
    // discarded.
    for code in [ErrorCode::H3_NO_ERROR, ErrorCode::H3_REQUEST_CANCELLED, ErrorCode(0x21)] {
        let mut client = Scripted::new(Config::new(Role::Client));
        let stream = client.request(&post(Some(1_000_000)));
        assert_eq!(client.receive_stop(0, code), []);
        assert!(matches!(client.actions()[..], [Action::Reset { code: ErrorCode::H3_NO_ERROR, .. }]));
        assert_eq!(client.engine.send_data(NOW, stream, b"more", false), 0);
        let seen = client.receive(0, &answer("413", &[]), true);
        assert!(matches!(seen[..], [Seen::Response { status: 413, end_stream: true, .. }]), "{seen:?}");
        assert_eq!(client.engine.open_streams(), 0);
    }
}

#[test]
fn a_server_that_stops_reading_and_sending_has_rejected_the_request() {
    let mut client = Scripted::new(Config::new(Role::Client));
    client.request(&post(Some(1_000_000)));
    let code = ErrorCode::H3_REQUEST_REJECTED;
    assert_eq!(client.receive_stop(0, code), []);
    let rejected = Seen::Reset { stream: 1, code, initiator: Initiator::Remote };
    assert_eq!(client.receive_reset(0, code), [rejected]);
    assert_eq!(client.engine.open_streams(), 0);
}

#[test]
fn the_numbers_of_http_2_mean_nothing_in_http_3() {
    // RFC 9114 §8.1: as much as H3_NO_ERROR; 7 refuses a request in HTTP/2.
    for number in 0..=0xd {
        let mut client = Scripted::new(Config::new(Role::Client));
        client.request(&get("/"));
        let seen = client.receive_reset(0, ErrorCode(number));
        let code = ErrorCode::H3_NO_ERROR;
        assert_eq!(seen, [Seen::Reset { stream: 1, code, initiator: Initiator::Remote }], "{number}");
        assert!(!code.is_refusal());
    }
}

/// Begins a body of 100,000 bytes on each of these streams, while the transport takes nothing.
fn hold_up(peer: &mut Scripted, requests: std::ops::Range<u32>) {
    for request in requests {
        let (now, stream) = (peer.now, StreamId::of_request(request));
        peer.engine.send_data(now, stream, &vec![7; 100_000], true);
        let offered = peer.quic().poll_stream().map(|transmit| transmit.stream);
        assert_eq!(offered, Some(QuicStreamId::of_request(stream)));
        peer.quic().handle_stream_sent(now, QuicStreamId::of_request(stream), 0);
    }
}

/// What 100 bodies may queue: 1 MiB and the turn that reaches it, and 1 KiB each, with frame headers.
const BODIES_OF_100: usize = (1 << 20) + 16_384 + 100 * (1_024 + 16);

#[test]
fn uploads_that_are_held_up_keep_no_answer_and_no_request_back() {
    let mut client = Scripted::new(Config::new(Role::Client));
    client.quic().handle_streams_granted(200);
    for _ in 0..100 {
        client.request(&post(None));
    }
    hold_up(&mut client, 0..100);
    assert!(client.engine.unsent() <= BODIES_OF_100, "{}", client.engine.unsent());
    assert!(client.engine.wants_input() && client.engine.available_streams() == 100);
    assert!((0..100).all(|n| client.quic().wants_stream(QuicStreamId(4 * n))));
    let seen = client.receive(4 * 99, &answer("200", &[]), true);
    assert!(matches!(seen[..], [Seen::Response { stream: 199, .. }]), "{seen:?}");
    for n in 0..100 {
        client.quic().handle_stream_writable(QuicStreamId(4 * n));
    }
    client.sent();
    assert_eq!(client.engine.unsent(), 0);
    let goes_on = |seen: &Seen| matches!(seen, Seen::Writable { .. });
    assert_eq!(client.events().into_iter().filter(goes_on).count(), 100, "each has more of its body");
}

#[test]
fn downloads_that_are_held_up_keep_no_request_unread() {
    let mut server = Scripted::new(Config::new(Role::Server));
    for n in 0..100 {
        server.receive(4 * n, &get_with(&[]), true);
        server.engine.send_response(NOW, StreamId::of_request(n as u32), &OK);
    }
    server.sent();
    hold_up(&mut server, 0..100);
    assert!(server.engine.unsent() <= BODIES_OF_100, "{}", server.engine.unsent());
    assert!(server.quic().wants_stream(QuicStreamId(400)));
    assert_eq!(server.receive(400, &get_with(&[]), true).len(), 1);
}

#[test]
fn answers_that_are_not_taken_keep_requests_unread_and_a_client_reads_on() {
    let limits = |role| Limits { unread_output: 100, ..Limits::new(role) };
    let mut server = Scripted::new(Config { limits: limits(Role::Server), ..Config::new(Role::Server) });
    let long = "y".repeat(200);
    let fields = [Field::new("x", &long)];
    server.receive(0, &get_with(&[]), true);
    let response = Response { fields: &fields, ..OK };
    server.engine.send_response(NOW, StreamId(1), &response);
    assert!(!server.quic().wants_stream(QuicStreamId(4)));
    server.sent();
    assert!(server.quic().wants_stream(QuicStreamId(4)));
    let mut client = Scripted::new(Config { limits: limits(Role::Client), ..Config::new(Role::Client) });
    client.engine.send_request(NOW, &Request { fields: &fields, ..get("/") }).expect("a stream");
    assert!(!client.engine.wants_input(), "no more requests for now");
    assert!(client.quic().wants_stream(QuicStreamId(0)), "answers are what makes room");
}

#[test]
fn streams_may_begin_to_arrive_in_any_order() {
    let mut server = Scripted::new(Config::new(Role::Server));
    for stream in [8, 0, 4] {
        let seen = server.receive(stream, &get_with(&[]), true);
        assert!(matches!(seen[..], [Seen::Request { .. }]), "{stream}: {seen:?}");
    }
    server.engine.reset(NOW, StreamId(3), ErrorCode::CANCEL);
    assert_eq!(server.receive(4, &get_with(&[]), true), [], "and each only once");
    let far = server.receive(4 * 20_000, &get_with(&[]), true);
    assert_eq!(cost(&mut server, &far), Cost::Connection(ErrorCode::H3_ID_ERROR));
}

#[test]
fn priorities_reach_quic_from_field_and_frame_in_any_order() {
    // RFC 9218 §4, §7.2
    let mut server = Scripted::new(Config::new(Role::Server));
    let update = |stream: u64, value: &str| {
        frame(kind::PRIORITY_UPDATE, &[&integer(stream)[..], value.as_bytes()].concat())
    };
    let priority = |stream, urgency, incremental| {
        let priority = Priority { urgency, incremental };
        [Action::Prioritise { stream: QuicStreamId(stream), priority }]
    };
    server.receive(0, &get_with(&[("priority", "u=1")]), false);
    assert_eq!(server.actions(), priority(0, 1, false));
    server.receive(CLIENT_CONTROL, &update(0, "i"), false);
    assert_eq!(server.actions(), priority(0, 3, true), "what it leaves out has its default");
    server.receive(CLIENT_CONTROL, &update(4, "u=6"), false);
    assert_eq!(server.actions(), [], "the request is still to come");
    server.receive(4, &get_with(&[("priority", "u=1")]), false);
    assert_eq!(server.actions(), priority(4, 6, false), "the update is the later word");
    server.receive(8, &get_with(&[]), false);
    assert_eq!(server.actions(), [], "nothing is said of it");
}

#[test]
fn a_client_sends_its_priorities_on_the_control_stream() {
    let mut client = Scripted::new(Config::new(Role::Client));
    client.request(&get("/"));
    let stream = client.request(&get("/"));
    client.engine.send_priority_update(NOW, stream, Priority { urgency: 0, incremental: true });
    let expected = frame(kind::PRIORITY_UPDATE, b"\x04u=0, i");
    assert_eq!(client.sent(), [(CLIENT_CONTROL, expected, false)]);
    client.engine.send_priority_update(NOW, StreamId(99), Priority::default());
    assert_eq!(client.sent(), [], "there is no such stream");
}

#[test]
fn codes_of_http_2_leave_as_those_of_http_3() {
    let mut server = Scripted::new(Config::new(Role::Server));
    for (n, (said, meant)) in [
        (ErrorCode::REFUSED_STREAM, ErrorCode::H3_REQUEST_REJECTED),
        (ErrorCode::ENHANCE_YOUR_CALM, ErrorCode::H3_EXCESSIVE_LOAD),
        (ErrorCode::INTERNAL_ERROR, ErrorCode::H3_INTERNAL_ERROR),
        (ErrorCode::H3_CONNECT_ERROR, ErrorCode::H3_CONNECT_ERROR),
    ]
    .into_iter()
    .enumerate()
    {
        server.receive(4 * n as u64, &get_with(&[]), true);
        server.engine.reset(NOW, StreamId::of_request(n as u32), said);
        assert!(matches!(server.actions()[..], [Action::Reset { code, .. }] if code == meant), "{said}");
    }
    assert!(ErrorCode::H3_REQUEST_REJECTED.is_refusal() && ErrorCode::REFUSED_STREAM.is_refusal());
    assert!(!ErrorCode::H3_REQUEST_CANCELLED.is_refusal());
}

#[test]
fn a_command_out_of_order_is_the_roles_own_fault() {
    let mut server = Scripted::new(Config::new(Role::Server));
    server.receive(0, &get_with(&[]), true);
    server.engine.send_trailers(NOW, StreamId(1), &[]);
    let seen = server.events();
    assert!(matches!(seen[..], [Seen::Closed { error: Some(crate::Error::Misuse(_)) }]), "{seen:?}");
}
