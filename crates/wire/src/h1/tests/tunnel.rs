//! `Upgrade` to another protocol than HTTP/2: bytes both ways after 101 (RFC 9110 §7.8).

use super::*;
use crate::{Config, Connection, ErrorCode, Event, Field, Role};

const ASKING: Request<'_> = Request {
    method: "CONNECT",
    authority: "h",
    path: "/chat",
    fields: &[Field::new("sec-websocket-version", "13")],
    body_length: None,
    end_stream: false,
};

/// What `to` reports about the bytes that `from` has sent, in short.
fn pass(from: &mut Connection, to: &mut Connection) -> Vec<String> {
    to.handle_input(NOW, &from.take_transmit(NOW));
    let mut seen = Vec::new();
    while let Some(event) = to.poll_event(NOW) {
        seen.push(match event {
            Event::Request { head, end_stream, .. } => format!(
                "{} {} upgrade={} {end_stream}",
                String::from_utf8_lossy(head.method),
                String::from_utf8_lossy(head.path),
                String::from_utf8_lossy(head.fields.get("upgrade").unwrap_or_default()),
            ),
            Event::Response { head, end_stream, .. } => format!("{} {end_stream}", head.status),
            Event::Data { data, end_stream, .. } => format!("{} {end_stream}", String::from_utf8_lossy(data)),
            other => format!("{other:?}"),
        });
    }
    seen
}

fn asked() -> (Connection, Connection, crate::StreamId) {
    let (mut client, mut server) =
        (Connection::h1(Config::new(Role::Client)), Connection::h1(Config::new(Role::Server)));
    let stream = client.send_connect(NOW, "websocket", &ASKING).expect("it is idle");
    assert_eq!(client.send_data(NOW, stream, b"early", false), 0, "nothing before the answer");
    assert_eq!(pass(&mut client, &mut server), ["GET /chat upgrade=websocket true"]);
    (client, server, stream)
}

fn answer(server: &mut Connection, stream: crate::StreamId, status: u16, upgrade: &str) {
    let fields = [Field::new("upgrade", upgrade)];
    let response = Response { status, fields: &fields, body_length: None, end_stream: false };
    server.send_response(NOW, stream, &response);
}

#[test]
fn after_101_all_bytes_are_data_until_one_side_ends() {
    let (mut client, mut server, stream) = asked();
    answer(&mut server, stream, 101, "websocket");
    assert_eq!(pass(&mut server, &mut client), ["101 false"]);
    assert_eq!(client.send_data(NOW, stream, b"GET / HTTP/1.1\r\n\r\n", false), 18);
    assert_eq!(pass(&mut client, &mut server), ["GET / HTTP/1.1\r\n\r\n false"]);
    assert_eq!(server.send_data(NOW, stream, b"0\r\n\r\n", false), 5);
    assert_eq!(pass(&mut server, &mut client), ["0\r\n\r\n false"]);
    assert!(!client.has_ended_its_direction());
    client.send_data(NOW, stream, b"bye", true);
    assert!(!client.has_ended_its_direction(), "it is not sent");
    assert_eq!(pass(&mut client, &mut server), ["bye false"]);
    assert!(client.has_ended_its_direction());
    client.handle_eof(NOW);
    let seen = pass(&mut server, &mut client);
    assert_eq!(seen.first().map(String::as_str), Some(" true"), "{seen:?}");
    server.handle_eof(NOW);
    assert_eq!(pass(&mut client, &mut server), [" true"], "what the client still takes is the role's to say");
    server.send_data(NOW, stream, b"", true);
    assert!(pass(&mut client, &mut server).iter().any(|event| event.contains("Closed")));
}

#[test]
fn another_answer_is_a_response_as_any() {
    let (mut client, mut server, stream) = asked();
    let response = Response { status: 403, fields: &[], body_length: Some(0), end_stream: true };
    server.send_response(NOW, stream, &response);
    assert_eq!(pass(&mut server, &mut client), ["403 true"]);
    assert_eq!(client.available_streams(), 1, "the connection goes on");
}

#[test]
fn a_switch_to_what_was_not_asked_for_is_refused() {
    let (mut client, mut server, stream) = asked();
    answer(&mut server, stream, 101, "other");
    let seen = pass(&mut server, &mut client);
    assert!(seen[0].contains("it switches to a protocol that we did not ask for"), "{seen:?}");
}

#[test]
fn no_switch_in_the_middle_of_a_request() {
    let mut server = Connection::h1(Config::new(Role::Server));
    server.handle_input(NOW, b"POST / HTTP/1.1\r\nhost: h\r\nupgrade: x\r\ncontent-length: 5\r\n\r\n");
    let Some(Event::Request { stream, .. }) = server.poll_event(NOW) else { panic!("a request") };
    answer(&mut server, stream, 101, "x");
    while let Some(event) = server.poll_event(NOW) {
        if let Event::Closed { error } = event {
            assert!(format!("{error:?}").contains("Misuse"), "{error:?}");
            return;
        }
    }
    panic!("the connection goes on");
}

const CONNECT: Request<'_> = Request {
    method: "CONNECT",
    authority: "db.test:5432",
    path: "",
    fields: &[],
    body_length: None,
    end_stream: false,
};

#[test]
fn connect_names_an_authority_and_what_follows_a_2xx_is_the_tunnels() {
    let (mut client, mut server) =
        (Connection::h1(Config::new(Role::Client)), Connection::h1(Config::new(Role::Server)));
    let stream = client.send_request(NOW, &CONNECT).expect("it is idle");
    assert_eq!(client.send_data(NOW, stream, b"early", false), 0, "nothing before the answer");
    let head = client.take_transmit(NOW);
    assert_eq!(head, b"CONNECT db.test:5432 HTTP/1.1\r\nhost: db.test:5432\r\n\r\n");
    server.handle_input(NOW, &head);
    let Some(Event::Request { head, end_stream: true, .. }) = server.poll_event(NOW) else { panic!("none") };
    assert_eq!((head.method, head.authority, head.path), (&b"CONNECT"[..], &b"db.test:5432"[..], &b""[..]));
    let response = Response { status: 200, fields: &[], body_length: None, end_stream: false };
    server.send_response(NOW, stream, &response);
    server.send_data(NOW, stream, b"hello", false);
    assert_eq!(pass(&mut server, &mut client), ["200 false", "hello false"]);
    client.send_data(NOW, stream, b"GET / HTTP/1.1\r\n\r\n", true);
    assert_eq!(pass(&mut client, &mut server), ["GET / HTTP/1.1\r\n\r\n false"]);
    assert!(client.has_ended_its_direction());
    server.handle_eof(NOW);
    assert_eq!(pass(&mut client, &mut server), [" true"]);
    server.send_data(NOW, stream, b"last", true);
    assert_eq!(pass(&mut server, &mut client), ["last false"], "the other direction goes on");
}

#[test]
fn after_a_refused_connect_nothing_is_read_as_a_request() {
    let mut server = Connection::h1(Config::new(Role::Server));
    server.handle_input(NOW, b"CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n");
    let Some(Event::Request { stream, .. }) = server.poll_event(NOW) else { panic!("a request") };
    let response = Response { status: 403, fields: &[], body_length: Some(0), end_stream: true };
    server.send_response(NOW, stream, &response);
    assert!(String::from_utf8_lossy(&server.take_transmit(NOW)).contains("connection: close"));
    assert!(matches!(server.poll_event(NOW), Some(Event::Closed { error: None })));
    let mut server = Connection::h1(Config::new(Role::Server));
    server.handle_input(NOW, b"CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\ncontent-length: 1\r\n\r\nx");
    let told = "CONNECT with content (RFC 9110 §9.3.6)";
    assert!(server.poll_event(NOW).is_none());
    let answer = String::from_utf8(server.take_transmit(NOW)).expect("text");
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains(told), "{answer}");
}

#[test]
fn a_connection_that_is_no_http_carries_one_tunnel_and_keeps_what_came_before_it() {
    let mut raw = Connection::tunnel(Config::new(Role::Client));
    raw.handle_input(NOW, b"SSH-2.0\r\n");
    assert!(raw.poll_event(NOW).is_none() && raw.available_streams() == 1);
    let stream = raw.send_request(NOW, &CONNECT).expect("it is free");
    assert_eq!((raw.available_streams(), raw.is_draining()), (0, true));
    assert_eq!(raw.send_data(NOW, stream, b"\x16\x03", false), 2);
    assert_eq!(raw.take_transmit(NOW), b"\x16\x03");
    let Some(Event::Data { data, end_stream: false, .. }) = raw.poll_event(NOW) else {
        panic!("its greeting")
    };
    assert_eq!(data, b"SSH-2.0\r\n");
    raw.handle_eof(NOW);
    assert!(matches!(raw.poll_event(NOW), Some(Event::Data { data: b"", end_stream: true, .. })));
    assert_eq!(raw.send_data(NOW, stream, b"bye", true), 3);
    raw.reset(NOW, stream, ErrorCode::NO_ERROR);
    assert_eq!(raw.take_transmit(NOW), b"bye", "what is complete is sent, whoever ends it");
}

#[test]
fn an_announced_end_waits_for_a_request_and_is_told_with_its_response() {
    let mut server = Connection::h1(Config::new(Role::Server));
    server.announce_end(NOW, b"");
    assert!(server.poll_event(NOW).is_none(), "it stays open");
    server.handle_input(NOW, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    let Some(Event::Request { stream, .. }) = server.poll_event(NOW) else { panic!("a request") };
    let response = Response { status: 204, fields: &[], body_length: None, end_stream: true };
    server.send_response(NOW, stream, &response);
    assert!(String::from_utf8_lossy(&server.take_transmit(NOW)).contains("connection: close"));
    assert!(matches!(server.poll_event(NOW), Some(Event::Closed { error: None })));
}

#[test]
fn an_end_announced_behind_a_responses_head_is_told_with_the_next_response() {
    let mut server = Connection::h1(Config::new(Role::Server));
    let ask = |server: &mut Connection| {
        server.handle_input(NOW, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        let Some(Event::Request { stream, .. }) = server.poll_event(NOW) else { panic!("a request") };
        stream
    };
    let stream = ask(&mut server);
    let response = Response { status: 200, fields: &[], body_length: Some(1), end_stream: false };
    server.send_response(NOW, stream, &response);
    server.announce_end(NOW, b"");
    server.send_data(NOW, stream, b"x", true);
    assert!(!String::from_utf8_lossy(&server.take_transmit(NOW)).contains("close"), "its head had gone");
    assert!(server.poll_event(NOW).is_none(), "its client was told nothing, and may ask again");
    let stream = ask(&mut server);
    let response = Response { status: 204, fields: &[], body_length: None, end_stream: true };
    server.send_response(NOW, stream, &response);
    assert!(String::from_utf8_lossy(&server.take_transmit(NOW)).contains("connection: close"));
    assert!(matches!(server.poll_event(NOW), Some(Event::Closed { error: None })));
}
