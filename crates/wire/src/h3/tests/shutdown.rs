//! GOAWAY in both roles, and the end of the transport (RFC 9114 §5.2, §5.3, §8).

use std::time::Duration;

use super::support::*;
use crate::h3::frame::kind;
use crate::h3::transport::Action;
use crate::testing::Seen;
use crate::{Config, Error, ErrorCode, Initiator, Role, StreamId};

fn goaway(id: u64) -> Vec<u8> {
    frame(kind::GOAWAY, &integer(id))
}

fn closed() -> Seen {
    Seen::Closed { error: None }
}

/// What an engine wrote on its control stream.
fn on_control(scripted: &mut Scripted) -> Vec<u8> {
    let control = |stream: &u64| [CLIENT_CONTROL, SERVER_CONTROL].contains(stream);
    scripted
        .sent()
        .into_iter()
        .filter(|(stream, ..)| control(stream))
        .flat_map(|(_, bytes, _)| bytes)
        .collect()
}

fn close_of(scripted: &mut Scripted) -> Option<(ErrorCode, String)> {
    scripted.actions().into_iter().find_map(|action| match action {
        Action::Close { code, reason } => Some((code, reason)),
        _ => None,
    })
}

#[test]
fn requests_from_the_goaway_on_were_not_processed_and_may_be_sent_again() {
    let mut client = Scripted::new(Config::new(Role::Client));
    for _ in 0..3 {
        client.request(&get("/"));
    }
    let (code, initiator) = (ErrorCode::H3_REQUEST_REJECTED, Initiator::Remote);
    let reported = client.receive(SERVER_CONTROL, &goaway(4), false);
    let last_stream = 1;
    let goaway = Seen::GoAway { last_stream, code: ErrorCode::H3_NO_ERROR, debug: String::new() };
    let refused = |stream| Seen::Reset { stream, code, initiator };
    assert_eq!(reported, [goaway, refused(3), refused(5)]);
    assert!(code.is_refusal(), "roles send these again");
    assert!(client.engine.is_draining() && client.engine.available_streams() == 0);
    assert!(client.engine.send_request(NOW, &get("/")).is_none());
    let seen = client.receive(0, &answer("200", &[]), true);
    assert!(matches!(seen[..], [Seen::Response { stream: 1, .. }, Seen::Closed { error: None }]), "{seen:?}");
    assert_eq!(close_of(&mut client), Some((ErrorCode::H3_NO_ERROR, String::new())));
}

#[test]
fn a_goaway_may_come_down_and_not_rise_and_is_of_a_request() {
    // RFC 9114 §5.2, §7.2.6
    let after = |ids: &[u64]| {
        let mut client = Scripted::new(Config::new(Role::Client));
        client.request(&get("/"));
        let mut seen = Vec::new();
        for id in ids {
            seen = client.receive(SERVER_CONTROL, &goaway(*id), false);
        }
        cost(&mut client, &seen)
    };
    let id_error = Cost::Connection(ErrorCode::H3_ID_ERROR);
    assert_eq!(after(&[(1 << 62) - 4, 8, 8, 4]), Cost::Nothing);
    assert_eq!(after(&[8, 12]), id_error);
    for id in [1, 2, 3, (1 << 62) - 1] {
        assert_eq!(after(&[id]), id_error, "{id}");
    }
    let mut server = Scripted::new(Config::new(Role::Server));
    let seen = server.receive(CLIENT_CONTROL, &[goaway(5), goaway(6)].concat(), false);
    assert_eq!(cost(&mut server, &seen), id_error, "a push id that rises");
}

#[test]
fn the_highest_goaway_is_reported_as_in_http_2() {
    let mut client = Scripted::new(Config::new(Role::Client));
    client.request(&get("/"));
    let seen = client.receive(SERVER_CONTROL, &goaway((1 << 62) - 4), false);
    assert!(matches!(seen[..], [Seen::GoAway { last_stream: 0x7fff_ffff, .. }]), "{seen:?}");
    let seen = client.receive(SERVER_CONTROL, &goaway(0), false);
    assert!(matches!(
        seen[..],
        [Seen::GoAway { last_stream: 0, .. }, Seen::Reset { stream: 1, .. }, Seen::Closed { error: None }]
    ));
}

#[test]
fn a_server_leaves_in_two_steps_and_loses_no_request_on_its_way() {
    let mut server = Scripted::new(Config::new(Role::Server));
    server.receive(0, &get_with(&[]), true);
    server.engine.goaway(NOW, ErrorCode::NO_ERROR, b"bye");
    assert_eq!(on_control(&mut server), goaway((1 << 62) - 4));
    server.engine.goaway(NOW, ErrorCode::NO_ERROR, b"bye");
    assert!(on_control(&mut server).is_empty(), "once");
    assert_eq!(server.receive(4, &get_with(&[]), true).len(), 1, "it was on its way");
    assert_eq!(server.engine.poll_timeout(), NOW + Duration::from_secs(1));
    assert_eq!(server.wait(Duration::from_secs(1)), []);
    assert_eq!(on_control(&mut server), goaway(8));
    assert_eq!(server.receive(8, &get_with(&[]), true), [], "too late");
    let rejected =
        |action: &Action| matches!(action, Action::Reset { code: ErrorCode::H3_REQUEST_REJECTED, .. });
    assert!(server.actions().iter().any(rejected));
    for stream in [1, 3] {
        assert_eq!(server.events(), [], "not before all is answered and written");
        server.engine.send_response(
            server.now,
            StreamId(stream),
            &crate::connection::Response { end_stream: true, ..OK },
        );
    }
    assert_eq!(server.events(), []);
    server.sent();
    assert_eq!(server.events(), [closed()]);
    assert_eq!(close_of(&mut server), Some((ErrorCode::H3_NO_ERROR, "bye".to_owned())));
}

#[test]
fn requests_that_quic_has_opened_before_the_last_goaway_are_served() {
    let mut server = Scripted::new(Config::new(Role::Server));
    server.receive(8, &get_with(&[]), true);
    server.engine.goaway(NOW, ErrorCode::INTERNAL_ERROR, b"");
    assert_eq!(on_control(&mut server), goaway(12));
    assert_eq!(server.receive(4, &get_with(&[]), true).len(), 1, "below the id, and late");
    assert_eq!(server.receive(12, &get_with(&[]), true), []);
}

#[test]
fn a_server_takes_so_many_requests_and_no_more() {
    let config = Config { max_requests: Some(2), ..Config::new(Role::Server) };
    let mut server = Scripted::new(config);
    server.receive(0, &get_with(&[]), true);
    assert!(on_control(&mut server).is_empty());
    server.receive(4, &get_with(&[]), true);
    assert_eq!(on_control(&mut server), goaway(8));
    assert_eq!(server.receive(8, &get_with(&[]), true), []);
}

/// A server that accepts two requests and has answered the first and the third, while the second is still on its way.
fn without_the_second() -> Scripted {
    let config = Config { max_requests: Some(2), ..Config::new(Role::Server) };
    let mut server = Scripted::new(config);
    for stream in [0, 8] {
        server.receive(stream, &get_with(&[]), true);
    }
    assert_eq!(on_control(&mut server), goaway(12), "it promises to take the second as well");
    for stream in [1, 5] {
        answer_whole(&mut server, stream);
    }
    assert_eq!((server.events(), close_of(&mut server)), (vec![], None));
    server
}

fn answer_whole(server: &mut Scripted, stream: u32) {
    let whole = crate::connection::Response { end_stream: true, ..OK };
    server.engine.send_response(server.now, StreamId(stream), &whole);
    server.sent();
}

#[test]
fn a_server_waits_for_a_request_that_its_goaway_accepts_and_that_was_lost_on_its_way() {
    let mut server = without_the_second();
    assert_eq!(server.receive(4, &get_with(&[]), true).len(), 1);
    answer_whole(&mut server, 3);
    assert_eq!(server.events(), [closed()]);
}

#[test]
fn a_request_that_never_comes_is_waited_for_as_long_as_for_a_head() {
    let mut server = without_the_second();
    server.now += Duration::from_secs(9);
    server.engine.handle_timeout(server.now);
    assert_eq!(server.events(), []);
    assert_eq!(server.wait(Duration::from_secs(1)), [closed()]);
}

#[test]
fn a_client_leaves_when_its_requests_are_over() {
    let mut client = Scripted::new(Config::new(Role::Client));
    client.request(&get("/"));
    client.engine.goaway(NOW, ErrorCode::NO_ERROR, b"done");
    assert_eq!(on_control(&mut client), goaway(0), "a push id: none is accepted");
    assert_eq!(client.events(), []);
    let seen = client.receive(0, &answer("200", &[]), true);
    assert_eq!(seen.last(), Some(&closed()));
    assert_eq!(close_of(&mut client), Some((ErrorCode::H3_NO_ERROR, "done".to_owned())));
}

#[test]
fn an_error_of_the_peer_is_reported_and_a_code_that_nobody_knows_is_none() {
    // RFC 9114 §8.1
    let after = |code: Option<u64>| {
        let mut client = Scripted::new(Config::new(Role::Client));
        let now = client.now;
        client.quic().handle_close(now, code);
        client.events()
    };
    let error = ErrorCode::H3_FRAME_ERROR;
    let reported = Error::GoAway(error);
    assert_eq!(reported.to_string(), "the peer ended the connection with CONNECTION_CLOSE H3_FRAME_ERROR");
    assert_eq!(after(Some(u64::from(error.0))), [Seen::Closed { error: Some(reported) }]);
    for code in [None, Some(0), Some(1), Some(0xb), Some(0x100), Some(0x1f * 9 + 0x21), Some(1 << 61)] {
        assert_eq!(after(code), [closed()], "{code:?}");
    }
}

#[test]
fn an_end_amid_requests_is_one_without_notice() {
    let mut client = Scripted::new(Config::new(Role::Client));
    client.request(&get("/"));
    client.engine.handle_eof(NOW);
    assert_eq!(client.events(), [Seen::Closed { error: Some(Error::UnexpectedEof("a response")) }]);
    assert_eq!(client.engine.poll_timeout(), h2lab_base::units::Time::NEVER);
    assert_eq!(client.events(), [], "nothing follows");
}

#[test]
fn what_arrived_before_the_end_is_reported_before_it() {
    let mut client = Scripted::new(Config::new(Role::Client));
    client.request(&get("/"));
    let now = client.now;
    client.quic().handle_stream(now, crate::h3::stream::QuicStreamId(0), &answer("200", &[]), true);
    client.quic().handle_close(now, Some(0x100));
    let seen = client.events();
    assert!(matches!(seen[..], [Seen::Response { .. }, Seen::Closed { error: None }]), "{seen:?}");
}

#[test]
fn violations_are_reported_as_of_http_3() {
    let mut server = Scripted::new(Config::new(Role::Server));
    let seen = server.receive(0, &data(b"x"), false);
    let Some(Seen::Closed { error: Some(error) }) = seen.last() else { panic!("{seen:?}") };
    let reported = "invalid HTTP/3 from the peer: DATA before the head of a message (RFC 9114 §4.1) (H3_FRAME_UNEXPECTED)";
    assert_eq!(error.to_string(), reported);
}
