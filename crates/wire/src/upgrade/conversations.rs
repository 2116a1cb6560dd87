//! The switch in whole conversations, of both roles.

use std::time::Duration;

use crate::connection::{Request, Response};
use crate::h2::frame::{FrameHeader, PREFACE, kind};
use crate::testing::{Pair, Seen, drain_events, drain_output};
use crate::{Config, Connection, Error, Role, StreamId};
use h2lab_base::units::Time;

const NOW: Time = Time::from_millis(5);
const LIMIT: u32 = 10;
const EMPTY: Response<'_> = Response { status: 200, fields: &[], body_length: Some(0), end_stream: true };
const GET: Request<'_> = Request {
    method: "GET",
    authority: "a.test",
    path: "/x",
    fields: &[],
    body_length: None,
    end_stream: true,
};
/// `SETTINGS_INITIAL_WINDOW_SIZE` = 7, in base64url.
const WINDOW_OF_7: &str = "AAQAAAAH";

fn server() -> Connection {
    Connection::h1(Config { h2c_upgrade: Some(LIMIT), ..Config::new(Role::Server) })
}

fn offer(more: &str) -> String {
    format!(
        "GET /first HTTP/1.1\r\nhost: a\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n\
         http2-settings: {WINDOW_OF_7}\r\n{more}\r\n"
    )
}

/// A server's events for `request`, and what it sends.
fn received(server: &mut Connection, request: &str) -> (Vec<Seen>, String) {
    server.handle_input(NOW, request.as_bytes());
    let seen = drain_events(server, NOW);
    (seen, String::from_utf8_lossy(&drain_output(server, NOW)).into_owned())
}

fn is_h2(connection: &Connection) -> bool {
    matches!(connection, Connection::H2(_))
}

#[test]
fn both_sides_switch_and_go_on_with_stream_3_however_the_bytes_are_cut() {
    for seed in 0..20 {
        let client = Connection::h2c_upgrade(Config::new(Role::Client), "a.test:80", Time::ZERO);
        let mut pair = Pair::new(client, server(), seed);
        assert!(!pair.client.connection.is_established());
        assert_eq!(pair.client.connection.available_streams(), 0);
        pair.settle();
        assert!(pair.client.connection.is_established() && pair.server.connection.is_established());
        let Seen::Request { stream: 1, method, authority, path, end_stream: true, .. } =
            &pair.server.take()[0]
        else {
            panic!("stream 1 was not reported")
        };
        assert_eq!((&method[..], &authority[..], &path[..]), ("OPTIONS", "a.test:80", "*"));
        assert_eq!(pair.client.connection.send_request(pair.now, &GET), Some(StreamId(3)));
        pair.settle();
        for stream in [1, 3] {
            pair.server.connection.send_response(pair.now, StreamId(stream), &EMPTY);
        }
        pair.settle();
        let answered: Vec<u32> = pair
            .client
            .take()
            .iter()
            .filter_map(|seen| match seen {
                Seen::Response { stream, status: 200, end_stream: true, .. } => Some(*stream),
                _ => None,
            })
            .collect();
        assert_eq!(answered, [1, 3]);
        assert_eq!((pair.client.connection.open_streams(), pair.server.connection.open_streams()), (0, 0));
    }
}

#[test]
fn the_first_request_makes_the_offer_and_is_answered_on_stream_1() {
    for seed in 0..20 {
        let client = Connection::h2c_upgrade_by_request(Config::new(Role::Client));
        let mut pair = Pair::new(client, server(), seed);
        let client = &mut pair.client.connection;
        assert!(client.is_usable() && !client.is_established());
        assert_eq!((client.available_streams(), client.send_request(pair.now, &GET)), (1, Some(StreamId(1))));
        assert!(!client.is_usable());
        assert_eq!(client.available_streams(), 0, "none before the server has switched");
        pair.settle();
        let client = &mut pair.client.connection;
        assert!(client.is_established() && is_h2(client));
        assert_eq!(client.send_request(pair.now, &GET), Some(StreamId(3)));
        pair.settle();
        let asked: Vec<u32> = pair
            .server
            .take()
            .iter()
            .filter_map(|seen| match seen {
                Seen::Request { stream, path, .. } if path == "/x" => Some(*stream),
                _ => None,
            })
            .collect();
        assert_eq!(asked, [1, 3]);
        for stream in [3, 1] {
            pair.server.connection.send_response(pair.now, StreamId(stream), &EMPTY);
        }
        pair.settle();
        let answered = pair.client.take();
        let answered = answered.iter().filter(|seen| matches!(seen, Seen::Response { status: 200, .. }));
        assert_eq!(answered.count(), 2);
        assert_eq!((pair.client.connection.open_streams(), pair.server.connection.open_streams()), (0, 0));
    }
}

#[test]
fn the_response_to_a_head_that_made_the_offer_announces_a_length_and_has_no_content() {
    let mut pair = Pair::new(Connection::h2c_upgrade_by_request(Config::new(Role::Client)), server(), 1);
    let head = Request { method: "HEAD", ..GET };
    pair.client.connection.send_request(pair.now, &head).unwrap();
    pair.settle();
    let response = Response { body_length: Some(1_024), ..EMPTY };
    pair.server.connection.send_response(pair.now, StreamId(1), &response);
    pair.settle();
    let seen = pair.client.take();
    let is_answer =
        |seen: &Seen| matches!(seen, Seen::Response { stream: 1, status: 200, end_stream: true, .. });
    assert!(seen.iter().any(is_answer), "{seen:?}");
    assert!(!seen.iter().any(|seen| matches!(seen, Seen::Reset { .. } | Seen::Closed { .. })), "{seen:?}");
}

#[test]
fn a_server_that_answers_the_first_request_in_http_1_1_is_named_and_a_body_makes_no_offer() {
    let mut client = Connection::h2c_upgrade_by_request(Config::new(Role::Client));
    client.send_request(NOW, &GET).unwrap();
    let sent = String::from_utf8(drain_output(&mut client, NOW)).unwrap();
    assert!(sent.starts_with("GET /x HTTP/1.1\r\nhost: a.test\r\n"), "{sent}");
    let fields = "\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: ";
    assert!(sent.contains(fields), "{sent}");
    client.handle_input(NOW, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi");
    let seen = drain_events(&mut client, NOW);
    assert!(
        matches!(&seen[..], [Seen::Closed { error: Some(Error::WrongProtocol { expected: "HTTP/2", .. }) }]),
        "{seen:?}"
    );
    let mut client = Connection::h2c_upgrade_by_request(Config::new(Role::Client));
    let put = Request { method: "PUT", body_length: Some(3), end_stream: false, ..GET };
    assert_eq!(client.send_request(NOW, &put), None);
}

#[test]
fn the_answer_is_a_101_the_servers_settings_and_the_response_on_stream_1() {
    let mut server = server();
    let (seen, sent) = received(&mut server, &offer(""));
    assert!(
        matches!(&seen[..], [Seen::Request { stream: 1, path, end_stream: true, .. }] if path == "/first")
    );
    let head = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n";
    let first = sent.strip_prefix(head).expect("it switches").as_bytes();
    assert_eq!(first[3], kind::SETTINGS);
    // The client's settings apply at once: 7 bytes of window.
    server.send_response(NOW, StreamId(1), &Response { body_length: None, end_stream: false, ..EMPTY });
    assert_eq!(server.send_data(NOW, StreamId(1), b"12345678", true), 7);
    let bytes = drain_output(&mut server, NOW);
    let first = FrameHeader::parse(bytes.first_chunk().unwrap());
    assert_eq!((first.kind, first.stream), (kind::HEADERS, 1));
    // Settings that came in HTTP/1.1 are not acknowledged; those of the preface are.
    server.handle_input(NOW, &[&PREFACE[..], &[0, 0, 0, kind::SETTINGS, 0, 0, 0, 0, 0]].concat());
    assert_eq!(drain_events(&mut server, NOW), [Seen::Settings]);
    assert_eq!(drain_output(&mut server, NOW), [0, 0, 0, kind::SETTINGS, 1, 0, 0, 0, 0]);
}

#[test]
fn no_more_than_16_kib_of_body_follow_the_101_before_the_clients_preface() {
    let mut server = server();
    received(&mut server, &offer("").replace(WINDOW_OF_7, ""));
    server.send_response(NOW, StreamId(1), &Response { body_length: None, end_stream: false, ..EMPTY });
    assert_eq!(server.send_data(NOW, StreamId(1), &vec![7; 50_000], true), 16_384);
    drain_output(&mut server, NOW);
    assert_eq!(drain_events(&mut server, NOW), []);
    server.handle_input(NOW, PREFACE);
    assert_eq!(drain_events(&mut server, NOW), [Seen::Writable { stream: 1 }]);
    assert_eq!(server.send_data(NOW, StreamId(1), &vec![7; 50_000 - 16_384], true), 50_000 - 16_384);
}

#[test]
fn a_client_that_does_not_wait_for_the_101_loses_nothing() {
    let mut server = server();
    let eager = [offer("").as_bytes(), PREFACE, &[0, 0, 0, kind::SETTINGS, 0, 0, 0, 0, 0]].concat();
    server.handle_input(NOW, &eager);
    assert!(matches!(drain_events(&mut server, NOW)[..], [Seen::Request { .. }, Seen::Settings]));
}

#[test]
fn a_body_comes_before_the_switch_and_up_to_its_bound() {
    let chunked = |size: usize| {
        offer("transfer-encoding: chunked\r\n") + &format!("{size:x}\r\n{}\r\n0\r\n\r\n", "b".repeat(size))
    };
    let sized = |size: usize| offer(&format!("content-length: {size}\r\n")) + &"b".repeat(size);
    for request in [sized(10), chunked(10)] {
        let mut server = server();
        let (seen, sent) = received(&mut server, &request);
        let data = seen.iter().filter_map(|seen| match seen {
            Seen::Data { data, .. } => Some(data.as_slice()),
            _ => None,
        });
        assert_eq!(data.collect::<Vec<_>>().concat(), b"bbbbbbbbbb");
        assert!(sent.starts_with("HTTP/1.1 101 ") && is_h2(&server));
    }
    // An offer with a longer body is ignored (RFC 9110 §7.8).
    for request in [sized(11), chunked(11)] {
        let mut server = server();
        let (seen, sent) = received(&mut server, &request);
        let data = seen.iter().filter_map(|seen| match seen {
            Seen::Data { data, .. } => Some(data.as_slice()),
            _ => None,
        });
        assert_eq!(data.collect::<Vec<_>>().concat(), b"bbbbbbbbbbb");
        assert!(sent.is_empty() && !is_h2(&server), "{seen:?}");
    }
}

#[test]
fn a_body_that_waits_for_100_continue_gets_it_before_the_101() {
    let mut server = server();
    let head = offer("expect: 100-continue\r\ncontent-length: 2\r\n");
    assert!(matches!(received(&mut server, &head), (seen, sent) if seen.len() == 1 && sent.is_empty()));
    server.send_interim(NOW, StreamId(1), 100, &[]);
    let (_, sent) = received(&mut server, "ok");
    assert!(sent.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 "), "{sent}");
}

#[test]
fn settings_that_are_not_legal_are_refused() {
    for bad in ["A", "AAQAAAA", "AAQAAAAH=", "AAQAAA", "AASAAAAA", "AAIAAAAC", "!!!!"] {
        let mut server = server();
        let (_, sent) = received(&mut server, &offer("").replace(WINDOW_OF_7, bad));
        assert!(sent.starts_with("HTTP/1.1 400 "), "{bad}: {sent}");
    }
    let (_, sent) = received(&mut server(), &offer("").replace(WINDOW_OF_7, ""));
    assert!(sent.starts_with("HTTP/1.1 101 "), "no settings at all are legal");
}

#[test]
fn what_is_no_complete_offer_is_a_request_of_http_1_1() {
    let complete = offer("");
    for (request, why) in [
        (complete.replace("Upgrade, HTTP2-Settings", "Upgrade"), "http2-settings is not named"),
        (complete.replace("Upgrade, HTTP2-Settings", "HTTP2-Settings"), "upgrade is not named"),
        (complete.replace("upgrade: h2c", "upgrade: websocket"), "another protocol"),
        (complete.replace("upgrade: h2c", "upgrade: h2"), "h2 means TLS"),
        (offer("http2-settings: \r\n"), "two settings"),
        (complete.replace("http2-settings:", "x-settings:"), "no settings"),
        (complete.replace("HTTP/1.1", "HTTP/1.0"), "HTTP/1.0 knows no upgrade"),
        (complete.replace("Upgrade,", "close, Upgrade,"), "the connection ends with it"),
    ] {
        let mut server = server();
        let (seen, _) = received(&mut server, &request);
        assert!(matches!(seen[..], [Seen::Request { .. }]), "{why}");
        server.send_response(NOW, StreamId(1), &EMPTY);
        assert!(drain_output(&mut server, NOW).starts_with(b"HTTP/1.1 200 "), "{why}");
        assert!(!is_h2(&server), "{why}");
    }
}

#[test]
fn an_offer_counts_only_where_it_is_wanted() {
    let config = Config { h2c_upgrade: Some(LIMIT), ..Config::new(Role::Server) };
    for (config, why) in [
        (Config { h2c_upgrade: None, ..config }, "off by default"),
        (Config { tls: true, ..config }, "over TLS ALPN decides"),
    ] {
        let mut server = Connection::h1(config);
        received(&mut server, &offer(""));
        server.send_response(NOW, StreamId(1), &EMPTY);
        assert!(drain_output(&mut server, NOW).starts_with(b"HTTP/1.1 200 "), "{why}");
    }
    let mut server = server();
    received(&mut server, "GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    server.send_response(NOW, StreamId(1), &EMPTY);
    let (seen, _) = received(&mut server, &offer(""));
    assert!(matches!(seen[..], [Seen::Request { stream: 3, .. }]), "not the first request");
    server.send_response(NOW, StreamId(3), &EMPTY);
    assert!(drain_output(&mut server, NOW).starts_with(b"HTTP/1.1 200 "));
}

#[test]
fn a_role_that_answers_before_the_end_of_the_request_stays_with_http_1_1() {
    let mut server = server();
    received(&mut server, &offer("content-length: 2\r\n"));
    server.send_response(NOW, StreamId(1), &Response { status: 403, ..EMPTY });
    let (_, sent) = received(&mut server, "ok");
    assert!(sent.starts_with("HTTP/1.1 403 ") && !is_h2(&server), "{sent}");
}

#[test]
fn a_quota_and_a_farewell_survive_the_switch() {
    let config = Config { h2c_upgrade: Some(LIMIT), max_requests: Some(1), ..Config::new(Role::Server) };
    let goaways = |mut server: Connection| {
        server.handle_input(NOW, PREFACE);
        let (_, mut bytes) = (drain_events(&mut server, NOW), drain_output(&mut server, NOW));
        bytes.drain(..bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4);
        let mut rest = &bytes[..];
        let mut goaways = 0;
        while let Some(header) = rest.first_chunk().map(FrameHeader::parse) {
            goaways += u32::from(header.kind == kind::GOAWAY);
            rest = &rest[9 + header.length as usize..];
        }
        goaways
    };
    let mut with_quota = Connection::h1(config);
    with_quota.handle_input(NOW, offer("").as_bytes());
    assert_eq!(goaways(with_quota), 1);
    let mut leaving = server();
    leaving.handle_input(NOW, offer("content-length: 1\r\n").as_bytes());
    drain_events(&mut leaving, NOW);
    leaving.goaway(NOW, crate::ErrorCode::NO_ERROR, b"");
    leaving.handle_input(NOW, b"x");
    assert_eq!(goaways(leaving), 1);
}

/// The events of a client that asks for h2c and receives `answer` and the end of the connection.
fn answered(answer: &str) -> Vec<Seen> {
    let mut client = Connection::h2c_upgrade(Config::new(Role::Client), "a", NOW);
    drain_output(&mut client, NOW);
    client.handle_input(NOW, answer.as_bytes());
    let mut seen = drain_events(&mut client, NOW);
    client.handle_eof(NOW);
    seen.extend(drain_events(&mut client, NOW));
    seen
}

#[test]
fn a_server_that_does_not_switch_is_distinguished_from_one_that_breaks() {
    let wrong = answered("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    assert!(
        matches!(&wrong[..], [Seen::Closed { error: Some(Error::WrongProtocol { expected: "HTTP/2", hint }) }] if hint.contains("prior knowledge"))
    );
    let other = answered("HTTP/1.1 101 x\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n");
    assert!(matches!(other[..], [Seen::Closed { error: Some(Error::BadHttp1(_)) }]), "{other:?}");
    assert!(matches!(
        answered("HTTP/1.1 1x1\r\n\r\n")[..],
        [Seen::Closed { error: Some(Error::BadHttp1(_)) }]
    ));
    assert!(matches!(
        answered("\x15\x03\x01\0\x02\x02\x28")[..],
        [Seen::Closed { error: Some(Error::WrongProtocol { .. }) }]
    ));
    for cut in ["", "HTTP/1.1 101 Swi"] {
        assert!(
            matches!(answered(cut)[..], [Seen::Closed { error: Some(Error::UnexpectedEof(_)) }]),
            "{cut}"
        );
    }
}

#[test]
fn a_server_that_does_not_answer_the_offer_times_out_and_not_a_nanosecond_early() {
    let mut client = Connection::h2c_upgrade(Config::new(Role::Client), "a", Time::ZERO);
    let deadline = Time::ZERO + Duration::from_secs(10);
    assert_eq!(client.poll_timeout(), deadline);
    client.handle_timeout(deadline - Duration::from_nanos(1));
    assert_eq!(drain_events(&mut client, deadline), []);
    client.handle_timeout(deadline);
    assert!(matches!(
        drain_events(&mut client, deadline)[..],
        [Seen::Closed { error: Some(Error::Timeout(_)) }]
    ));
}

#[test]
fn the_offer_is_one_request_whose_settings_are_those_that_the_preface_repeats() {
    let mut config = Config::new(Role::Client);
    config.flow.stream_window = 1 << 20;
    let mut client = Connection::h2c_upgrade(config, "a.test:81", NOW);
    let sent = String::from_utf8(drain_output(&mut client, NOW)).unwrap();
    let settings = super::encode(&crate::h2::announced_settings(&config));
    let expected = format!(
        "OPTIONS * HTTP/1.1\r\nhost: a.test:81\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\n\
         http2-settings: {settings}\r\n\r\n"
    );
    assert_eq!(sent, expected);
    client.handle_input(NOW, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 x\r\nUpgrade: H2C\r\n\r\n");
    assert_eq!(drain_events(&mut client, NOW), []);
    let sent = drain_output(&mut client, NOW);
    let rest = sent.strip_prefix(&PREFACE[..]).expect("the preface follows the 101");
    assert_eq!(super::decode(settings.as_bytes()).unwrap(), rest[9..9 + rest[2] as usize]);
}
