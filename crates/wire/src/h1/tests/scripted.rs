//! One engine against a script: keep-alive, endings, pipelining, and the bytes on the wire.

use super::*;
use crate::{ErrorCode, Exceeded, Field, Limit};

/// A client with one GET under way.
fn asking() -> (Connection, Vec<Seen>) {
    let mut client = client();
    assert_eq!(client.send_request(NOW, &GET), Some(FIRST));
    sent(&mut client);
    (client, Vec::new())
}

fn closed(error: Option<Error>) -> Seen {
    Seen::Closed(error)
}

#[test]
fn head_and_first_body_bytes_lie_side_by_side_in_one_buffer() {
    let mut client = client();
    let request = Request { fields: &[Field::new("x-a", "1")], body_length: Some(4), ..POST };
    let stream = client.send_request(NOW, &request).unwrap();
    client.send_data(NOW, stream, b"body", true);
    let wire = "POST / HTTP/1.1\r\nhost: a.test\r\nx-a: 1\r\ncontent-length: 4\r\n\r\nbody";
    assert_eq!(text(&sent(&mut client)), wire);
    let counters = client.counters();
    assert_eq!((counters.headers_sent, counters.headers_plain), (wire.len() as u64 - 4, 41));
    assert_eq!((counters.frames_sent[0], counters.frames_sent[1]), (1, 1));
}

#[test]
fn only_methods_that_expect_content_say_that_there_is_none() {
    let wire = |method| {
        let mut client = client();
        client.send_request(NOW, &Request { method, ..GET }).unwrap();
        text(&sent(&mut client))
    };
    assert_eq!(wire("GET"), "GET / HTTP/1.1\r\nhost: a.test\r\n\r\n");
    assert_eq!(wire("POST"), "POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 0\r\n\r\n");
}

#[test]
fn a_body_of_unknown_length_is_chunked_for_1_1_and_ends_with_the_connection_for_1_0() {
    for (version, wire, alive) in [
        ("1.1", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", true),
        ("1.0", "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nabc", false),
    ] {
        let (mut server, mut seen) = (server(), Vec::new());
        let request = format!("GET / HTTP/{version}\r\nhost: a\r\nconnection: keep-alive\r\n\r\n");
        feed(&mut server, request.as_bytes(), &mut seen);
        server.send_response(NOW, FIRST, &Response { body_length: None, end_stream: false, ..OK });
        server.send_data(NOW, FIRST, b"abc", true);
        assert_eq!(text(&sent(&mut server)), wire);
        drain(&mut server, &mut seen);
        assert_eq!(!seen.contains(&closed(None)), alive);
    }
}

#[test]
fn a_1_0_client_stays_only_when_it_asks_and_gets_no_interim() {
    for (field, alive) in [("", false), ("connection: Keep-Alive\r\n", true)] {
        let (mut server, mut seen) = (server(), Vec::new());
        feed(&mut server, format!("GET / HTTP/1.0\r\n{field}\r\n").as_bytes(), &mut seen);
        server.send_interim(NOW, FIRST, 103, &[]);
        server.send_response(NOW, FIRST, &OK);
        let wire = text(&sent(&mut server));
        assert!(!wire.contains("103"), "{wire}");
        assert!(wire.contains(if alive { "connection: keep-alive" } else { "connection: close" }), "{wire}");
        drain(&mut server, &mut seen);
        assert_eq!(!seen.contains(&closed(None)), alive);
    }
}

#[test]
fn a_client_uses_a_connection_again_unless_the_response_ends_it() {
    for (head, alive) in [
        ("HTTP/1.1 200 OK\r\n", true),
        ("HTTP/1.1 200 OK\r\nconnection: x, Close\r\n", false),
        ("HTTP/1.0 200 OK\r\n", false),
        ("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\n", true),
    ] {
        let (mut client, mut seen) = asking();
        assert_eq!((client.available_streams(), client.open_streams()), (0, 1));
        feed(&mut client, format!("{head}content-length: 0\r\n\r\n").as_bytes(), &mut seen);
        assert_eq!((client.available_streams(), client.open_streams()), (u32::from(alive), 0), "{head}");
        assert_eq!(client.is_draining(), !alive);
        assert_eq!(seen.contains(&closed(None)), !alive);
    }
}

#[test]
fn a_body_without_framing_lasts_until_the_server_closes() {
    let (mut client, mut seen) = asking();
    feed(&mut client, b"HTTP/1.1 200 OK\r\n\r\nall of ", &mut seen);
    feed(&mut client, b"it", &mut seen);
    assert!(!seen.contains(&Seen::End(FIRST)));
    client.handle_eof(NOW);
    drain(&mut client, &mut seen);
    assert_eq!(seen[1..], [Seen::Body(b"all of it".to_vec()), Seen::End(FIRST), closed(None)]);
}

#[test]
fn a_body_without_framing_is_incomplete_if_tls_was_truncated() {
    let (mut client, mut seen) = asking();
    feed(&mut client, b"HTTP/1.1 200 OK\r\n\r\nnot all", &mut seen);
    client.handle_truncation();
    drain(&mut client, &mut seen);
    assert!(!seen.contains(&Seen::End(FIRST)), "{seen:?}");
    let is_cut = |seen: &Seen| matches!(seen, Seen::Closed(Some(Error::UnexpectedEof(_))));
    assert!(seen.last().is_some_and(is_cut), "{seen:?}");
    // A body with a length is complete even if the transport was truncated.
    let (mut client, mut seen) = asking();
    feed(&mut client, b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nall", &mut seen);
    client.handle_truncation();
    drain(&mut client, &mut seen);
    assert!(seen.contains(&Seen::End(FIRST)) && seen.last() == Some(&closed(None)), "{seen:?}");
}

#[test]
fn interim_responses_precede_the_final_one_in_any_number() {
    let (mut client, mut seen) = asking();
    let interims = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(3);
    feed(&mut client, (interims + "HTTP/1.1 204 No Content\r\n\r\n").as_bytes(), &mut seen);
    let statuses: Vec<u16> = seen
        .iter()
        .filter_map(|seen| if let Seen::Interim(status) = seen { Some(*status) } else { None })
        .collect();
    assert_eq!(statuses, [100, 103, 100, 103, 100, 103]);
    assert_eq!(seen.last(), Some(&Seen::End(FIRST)));
}

#[test]
fn a_response_before_the_request_is_sent_leaves_the_exchange_open_until_it_is() {
    let mut client = client();
    client.send_request(NOW, &Request { body_length: Some(4), ..POST }).unwrap();
    let mut seen = Vec::new();
    feed(&mut client, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", &mut seen);
    assert_eq!((client.available_streams(), client.open_streams()), (0, 1));
    assert_eq!(client.send_data(NOW, FIRST, b"body", true), 4);
    assert_eq!((client.available_streams(), client.open_streams()), (1, 0));
}

#[test]
fn a_response_that_ends_the_connection_also_ends_a_request_under_way() {
    let mut client = client();
    client.send_request(NOW, &Request { body_length: Some(4), ..POST }).unwrap();
    let mut seen = Vec::new();
    feed(&mut client, b"HTTP/1.1 413 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", &mut seen);
    assert_eq!(seen[1..], [Seen::End(FIRST), closed(None)]);
    assert_eq!(client.send_data(NOW, FIRST, b"body", true), 0);
}

#[test]
fn the_end_of_an_idle_connection_is_orderly_even_after_a_408() {
    for farewell in ["", "HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n"] {
        let (mut client, mut seen) = (client(), Vec::new());
        feed(&mut client, farewell.as_bytes(), &mut seen);
        client.handle_eof(NOW);
        assert_eq!(client.available_streams(), 0);
        drain(&mut client, &mut seen);
        assert_eq!(seen, [closed(None)]);
    }
}

#[test]
fn an_answer_to_nothing_is_an_error() {
    let (mut client, mut seen) = (client(), Vec::new());
    feed(&mut client, b"HTTP/1.1 200 OK\r\n\r\n", &mut seen);
    assert_eq!(seen, [closed(Some(Error::BadHttp1("unsolicited response")))]);
}

#[test]
fn a_server_of_another_protocol_is_named_by_what_it_sends() {
    for (banner, word) in [("SSH-2.0-OpenSSH_9.2\r\n", "SSH"), ("220 mail.test ESMTP\r\n", "mail")] {
        let (mut client, mut seen) = asking();
        feed(&mut client, banner.as_bytes(), &mut seen);
        let Some(Seen::Closed(Some(Error::WrongProtocol { hint, .. }))) = seen.last() else {
            panic!("{banner}: {seen:?}")
        };
        assert!(hint.contains(word), "{hint}");
    }
}

#[test]
fn a_pipelined_request_is_read_when_the_response_before_it_is_finished() {
    let (mut server, mut seen) = (server(), Vec::new());
    feed(&mut server, &b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".repeat(3), &mut seen);
    for n in 0..3 {
        let stream = StreamId::of_request(n);
        assert_eq!(seen.last(), Some(&Seen::End(stream)));
        server.send_response(NOW, stream, &Response { body_length: Some(1), end_stream: false, ..OK });
        drain(&mut server, &mut seen);
        assert_eq!(seen.len(), 2 * (n as usize + 1), "the next request waits for the end of the body");
        server.send_data(NOW, stream, b"x", true);
        drain(&mut server, &mut seen);
    }
    assert_eq!(server.open_streams(), 0);
}

#[test]
fn no_more_is_wanted_while_64_kib_wait_behind_a_request_that_is_not_answered() {
    let (mut server, mut seen) = (server(), Vec::new());
    let request = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    feed(&mut server, &request.repeat(1 + 65_536 / request.len()), &mut seen);
    assert!(server.wants_input(), "64 KiB less than a request wait");
    feed(&mut server, request, &mut seen);
    assert!(!server.wants_input());
    server.send_response(NOW, StreamId::of_request(0), &OK);
    drain(&mut server, &mut seen);
    assert!(server.wants_input(), "it is answered, and the next one read");
    assert_eq!(server.counters().requests, 2);
}

#[test]
fn a_long_body_is_wanted_however_much_of_it_has_come() {
    let (mut server, mut seen) = (server(), Vec::new());
    feed(&mut server, b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n", &mut seen);
    for _ in 0..10 {
        feed(&mut server, &vec![b'x'; 99_999], &mut seen);
        assert!(server.wants_input());
    }
}

#[test]
fn a_role_that_piles_up_requests_beyond_a_mebibyte_ends_the_connection() {
    let (mut server, mut seen) = (server(), Vec::new());
    let request = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    feed(&mut server, &request.repeat((1 << 20) / request.len() + 1), &mut seen);
    assert_eq!(server.open_streams(), 1, "up to 1 MiB waits");
    feed(&mut server, request, &mut seen);
    sent(&mut server);
    drain(&mut server, &mut seen);
    assert_eq!(
        seen.last(),
        Some(&closed(Some(Error::BadHttp1("more than 1 MiB was sent ahead of the response"))))
    );
}

#[test]
fn all_that_came_before_the_end_of_input_is_answered_and_only_the_last_with_close() {
    let (mut server, mut seen) = (server(), Vec::new());
    feed(&mut server, &b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".repeat(2), &mut seen);
    server.handle_eof(NOW);
    for (n, close) in [(0, false), (1, true)] {
        server.send_response(NOW, StreamId::of_request(n), &OK);
        let head = String::from_utf8(sent(&mut server)).unwrap();
        assert_eq!(head.contains("connection: close"), close, "response {n}");
        drain(&mut server, &mut seen);
    }
    assert_eq!((server.counters().requests, seen.last()), (2, Some(&closed(None))));
}

#[test]
fn the_last_request_of_a_quota_is_answered_with_close() {
    let mut server = Connection::new(Config { max_requests: Some(2), ..Config::new(Role::Server) });
    let mut seen = Vec::new();
    feed(&mut server, &b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".repeat(3), &mut seen);
    for n in 0..2 {
        server.send_response(NOW, StreamId::of_request(n), &OK);
        let wire = text(&sent(&mut server));
        assert_eq!(wire.contains("connection: close"), n == 1, "{wire}");
        drain(&mut server, &mut seen);
    }
    assert_eq!(seen.last(), Some(&closed(None)));
    assert_eq!(server.counters().requests, 2, "the third is never read");
}

#[test]
fn a_server_that_goes_away_finishes_its_response_and_says_close() {
    let (mut server, mut seen) = (server(), Vec::new());
    feed(&mut server, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", &mut seen);
    server.goaway(NOW, ErrorCode::NO_ERROR, b"");
    assert!(server.is_draining());
    server.send_response(NOW, FIRST, &OK);
    drain(&mut server, &mut seen);
    assert_eq!(seen.last(), Some(&Seen::End(FIRST)), "not closed before the response is out");
    assert!(text(&sent(&mut server)).contains("connection: close"));
    drain(&mut server, &mut seen);
    assert_eq!(seen.last(), Some(&closed(None)));
}

#[test]
fn an_idle_server_goes_away_at_once() {
    let (mut server, mut seen) = (server(), Vec::new());
    server.goaway(NOW, ErrorCode::NO_ERROR, b"");
    drain(&mut server, &mut seen);
    assert_eq!(seen, [closed(None)]);
}

#[test]
fn a_refused_expectation_ends_the_connection_because_the_body_may_or_may_not_come() {
    let request = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\nexpect: 100-continue\r\n\r\n";
    for (invited, body, close) in [(false, &b""[..], true), (true, b"body", false), (false, b"body", false)] {
        let (mut server, mut seen) = (server(), Vec::new());
        feed(&mut server, request, &mut seen);
        assert!(
            matches!(&seen[0], Seen::Request { fields, .. } if fields.contains(&("expect".into(), "100-continue".into())))
        );
        if invited {
            server.send_interim(NOW, FIRST, 100, &[]);
        }
        feed(&mut server, body, &mut seen);
        server.send_response(NOW, FIRST, &OK);
        let wire = text(&sent(&mut server));
        assert_eq!(wire.starts_with("HTTP/1.1 100 Continue\r\n\r\n"), invited);
        assert_eq!(wire.contains("connection: close"), close, "{wire}");
    }
}

#[test]
fn a_client_that_half_closes_still_gets_its_response() {
    let (mut server, mut seen) = (server(), Vec::new());
    feed(&mut server, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", &mut seen);
    server.handle_eof(NOW);
    drain(&mut server, &mut seen);
    assert_eq!(seen.len(), 2, "{seen:?}");
    server.send_response(NOW, FIRST, &OK);
    assert!(text(&sent(&mut server)).starts_with("HTTP/1.1 200 OK\r\n"));
    drain(&mut server, &mut seen);
    assert_eq!(seen.last(), Some(&closed(None)));
}

#[test]
fn a_reset_ends_the_connection_and_forgets_what_was_queued() {
    let mut client = client();
    let stream = client.send_request(NOW, &GET).unwrap();
    client.reset(NOW, StreamId::of_request(7), ErrorCode::CANCEL);
    assert!(!client.is_draining(), "another stream is not ours to end");
    client.reset(NOW, stream, ErrorCode::CANCEL);
    let mut seen = Vec::new();
    drain(&mut client, &mut seen);
    assert_eq!((seen, sent(&mut client)), (vec![closed(None)], Vec::new()));
}

#[test]
fn absolute_targets_override_the_host_field() {
    let (mut server, mut seen) = (server(), Vec::new());
    feed(&mut server, b"GET http://b:80/c?d HTTP/1.1\r\nhost: a\r\n\r\n", &mut seen);
    let Seen::Request { authority, path, fields, .. } = &seen[0] else { panic!("{seen:?}") };
    assert_eq!((authority.as_str(), path.as_str(), fields.len()), ("b:80", "/c?d", 0));
}

#[test]
fn names_come_in_lower_case_and_values_without_white_space() {
    let (mut client, mut seen) = asking();
    feed(&mut client, b"HTTP/1.1 200 OK\r\nX-Mixed:  \t A b \t\r\nContent-Length: 0\r\n\r\n", &mut seen);
    let Seen::Response { fields, .. } = &seen[0] else { panic!("{seen:?}") };
    assert_eq!(fields[0], ("x-mixed".to_owned(), "A b".to_owned()));
}

#[test]
fn our_own_mistakes_are_named_as_such_and_never_reach_the_wire() {
    let broken: [(&str, Request<'_>); 3] = [
        ("a line break in a header field", Request { fields: &[Field::new("x", "a\r\nhost: evil")], ..GET }),
        ("white space or a control character in a request line", Request { path: "/a b", ..GET }),
        ("a body shorter than its content-length", Request { body_length: Some(1), ..GET }),
    ];
    for (what, request) in broken {
        let (mut client, mut seen) = (client(), Vec::new());
        assert_eq!(client.send_request(NOW, &request), None);
        assert_eq!(sent(&mut client), b"");
        drain(&mut client, &mut seen);
        assert_eq!(seen, [closed(Some(Error::Misuse(what)))]);
    }
}

#[test]
fn a_full_send_buffer_takes_no_more_until_half_of_it_is_free() {
    let mut client = Connection::new(Config { send_buffer: 1_000, ..Config::new(Role::Client) });
    client.send_request(NOW, &Request { body_length: Some(5_000), ..POST }).unwrap();
    let head = client.poll_transmit(NOW).len();
    assert_eq!(client.send_data(NOW, FIRST, &[0; 5_000], true), 1_000 - head);
    let mut seen = Vec::new();
    client.handle_transmitted(NOW, 499);
    drain(&mut client, &mut seen);
    assert_eq!(seen, []);
    client.handle_transmitted(NOW, 1);
    drain(&mut client, &mut seen);
    assert_eq!(seen, [Seen::Writable]);
    assert_eq!(client.send_data(NOW, FIRST, &[0; 4_000], true), 500);
}

#[test]
fn interim_responses_end_the_connection_after_a_hundred() {
    let (mut client, mut seen) = (client(), Vec::new());
    client.send_request(NOW, &GET).unwrap();
    sent(&mut client);
    feed(&mut client, &b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(100), &mut seen);
    assert_eq!(seen, vec![Seen::Interim(103); 100]);
    seen.clear();
    feed(&mut client, b"HTTP/1.1 103 Early Hints\r\n\r\n", &mut seen);
    let exceeded = Exceeded { limit: Limit::Interims, allowed: 100 };
    assert_eq!(seen, [Seen::Closed(Some(Error::Exceeded(exceeded)))]);
}
