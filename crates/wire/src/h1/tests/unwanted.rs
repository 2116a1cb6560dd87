//! Requests that are answered before they are complete (RFC 9112 §9.3).

use std::time::Duration;

use super::*;
use crate::ErrorCode;

const REFUSED: Response<'_> = Response { status: 429, fields: &[], body_length: Some(0), end_stream: true };

/// A server that has received this head and this piece of a body, has sent this response, and does not need the rest;
/// and what it has sent.
fn answered(head: &str, piece: &[u8], response: &Response<'_>) -> (Connection, String) {
    let (mut server, mut seen) = (server(), Vec::new());
    feed(&mut server, head.as_bytes(), &mut seen);
    feed(&mut server, piece, &mut seen);
    if response.status >= 400 && server.is_much_to_come() {
        server.announce_end();
    }
    server.send_response(NOW, FIRST, response);
    if !server.forgo(NOW, FIRST) {
        server.reset(NOW, FIRST, ErrorCode::NO_ERROR);
    }
    let answer = text(&sent(&mut server));
    (server, answer)
}

#[test]
fn the_rest_of_a_request_is_thrown_away_and_the_next_one_is_read() {
    let length = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n";
    let chunked = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    for (head, rest, response) in [
        (length, &b"3456789"[..], &REFUSED),
        (length, b"3456789", &OK),
        (chunked, b"\r\n3\r\nabc\r\n0\r\nx: y\r\n\r\n", &OK),
        (chunked, b"\r\n0\r\n\r\n", &OK),
    ] {
        let begun: &[u8] = if head == length { b"12" } else { b"2\r\nab" };
        let (mut server, answer) = answered(head, begun, response);
        assert!(!answer.contains("connection"), "{answer}");
        let mut seen = Vec::new();
        feed(&mut server, rest, &mut seen);
        feed(&mut server, b"GET /next HTTP/1.1\r\nhost: a\r\n\r\n", &mut seen);
        assert!(
            matches!(&seen[..], [Seen::Request { path, .. }, Seen::End(_)] if path == "/next"),
            "{seen:?}"
        );
        server.send_response(NOW, StreamId::of_request(1), &OK);
        assert!(text(&sent(&mut server)).starts_with("HTTP/1.1 200"));
        assert_eq!(server.unwanted_until(), Time::NEVER);
    }
}

#[test]
fn an_error_before_much_of_a_body_or_nobody_knows_how_much_announces_the_close() {
    for (field, response, announces) in [
        ("content-length: 1048576", &REFUSED, false),
        ("content-length: 1048577", &REFUSED, true),
        ("transfer-encoding: chunked", &REFUSED, true),
        // It may still be read: some services answer while they read.
        ("content-length: 1048577", &OK, false),
        ("transfer-encoding: chunked", &OK, false),
    ] {
        let (mut server, answer) =
            answered(&format!("POST / HTTP/1.1\r\nhost: a\r\n{field}\r\n\r\n"), b"", response);
        assert_eq!(answer.contains("connection: close\r\n"), announces, "{field}: {answer}");
        let mut seen = Vec::new();
        drain(&mut server, &mut seen);
        assert_eq!(seen == [Seen::Closed(None)], announces, "{field}");
    }
}

#[test]
fn the_rest_is_waited_for_five_seconds_and_no_longer() {
    let (mut server, _) = answered("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n", b"1", &OK);
    let due = NOW + Duration::from_secs(5);
    assert_eq!(server.poll_timeout(), due);
    server.handle_timeout(due);
    let mut seen = Vec::new();
    drain(&mut server, &mut seen);
    assert_eq!((seen, server.poll_timeout()), (vec![Seen::Closed(None)], Time::NEVER));
}

#[test]
fn a_request_that_is_reset_for_an_error_ends_its_connection() {
    let (mut server, mut seen) = (server(), Vec::new());
    feed(&mut server, b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n", &mut seen);
    server.send_response(NOW, FIRST, &OK);
    server.reset(NOW, FIRST, ErrorCode::INTERNAL_ERROR);
    sent(&mut server);
    seen.clear();
    drain(&mut server, &mut seen);
    assert_eq!(seen, [Seen::Closed(None)]);
}
