//! WebSocket (RFC 9220) and CONNECT (RFC 9114 §4.4) over HTTP/3, on either side.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use h2lab_wire::connection::Request;
use h2lab_wire::{Field, StreamId};

use super::Both;
use super::client::{Client, Seen};
use crate::origin::Origin;
use crate::sidecar::{scripted, websocket_echo};

/// A request for a tunnel.
fn request<'a>(authority: &'a str, path: &'a str, fields: &'a [Field<'a>]) -> Request<'a> {
    Request { method: "CONNECT", authority, path, fields, body_length: None, end_stream: false }
}

/// Requests a WebSocket, and waits for the answer.
fn handshake(client: &mut Client, path: &str) -> (StreamId, u16) {
    let fields = [Field::new("sec-websocket-version", "13"), Field::new("sec-websocket-protocol", "chat")];
    client.until_it_takes_websockets();
    let stream = client.ask(&request("a", path, &fields), Some("websocket"));
    (stream, status(client, stream))
}

/// The status that comes on a stream.
#[track_caller]
fn status(client: &mut Client, stream: StreamId) -> u16 {
    let of = |(its, seen): &(StreamId, Seen)| match seen {
        Seen::Response(status) if *its == stream => Some(*status),
        _ => None,
    };
    client.until(|seen| seen.iter().any(|one| of(one).is_some()));
    client.seen.iter().find_map(of).expect("it has come")
}

/// Sends these bytes, and waits until as many have arrived in addition to `before`, which were there already.
#[track_caller]
fn exchange(client: &mut Client, stream: StreamId, sent: &[u8], before: usize) {
    client.send(stream, sent, false);
    let count = |seen: &[(StreamId, Seen)]| -> usize {
        let own = seen.iter().filter(|(its, _)| *its == stream);
        own.map(|(_, seen)| if let Seen::Data(bytes, _) = seen { *bytes } else { 0 }).sum()
    };
    client.until(|seen| count(seen) >= before + sent.len());
    assert!(client.body(stream)[before..] == *sent, "{} bytes came back", client.body(stream).len());
}

#[test]
fn a_websocket_passes_from_and_to_http3() {
    let server = websocket_echo();
    let last = Both::start(&format!("instances = ['{server}']"), "");
    let first = Both::start(&format!("instances = ['h3://{}']", last.tls), "");
    // More than all windows on the path hold, of bytes that look like a request.
    let sent = b"GET / HTTP/1.1\r\nhost: b\r\n\r\n".repeat(100_000);
    for both in [&last, &first] {
        let mut client = Client::connect(both.tls, false);
        let (stream, status) = handshake(&mut client, "/chat");
        assert_eq!((status, client.field(stream, "sec-websocket-protocol")), (200, Some("chat")));
        assert_eq!(client.field(stream, "sec-websocket-accept"), None, "there is no key to answer");
        exchange(&mut client, stream, &sent, 0);
        // Another WebSocket on the same connection, and requests beside it.
        let (other, _) = handshake(&mut client, "/chat");
        exchange(&mut client, other, b"hello", 0);
        exchange(&mut client, stream, b"goodbye", sent.len());
        client.send(stream, b"", true);
        assert_eq!(client.whole(stream), (200, sent.len() + 7), "its end is an end");
        exchange(&mut client, other, b"there", 5);
    }
    // Also over HTTP/1.1, with HTTP/3 in between.
    let mut stream = first.sidecar.connect();
    stream
        .write_all(
            b"GET /chat HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
              sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nhello",
        )
        .expect("it reads");
    let mut told = Vec::new();
    let mut byte = [0];
    while !told.ends_with(b"\r\n\r\nhello") {
        assert_eq!(stream.read(&mut byte).expect("in time"), 1, "{}", String::from_utf8_lossy(&told));
        told.push(byte[0]);
    }
    let told = String::from_utf8_lossy(&told).to_lowercase();
    assert!(told.starts_with("http/1.1 101 ") && told.contains("s3pplmbitxaq9kygzzhzrbk+xoo="), "{told}");
}

#[test]
fn a_websocket_that_is_not_taken_over_http3_is_answered() {
    let (url, heads) = scripted(|mut stream| {
        drop(stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno"));
    });
    thread::spawn(move || heads.iter().for_each(drop));
    let last = Both::start(&format!("instances = ['{url}']"), "");
    let first = Both::start(&format!("instances = ['h3://{}']", last.tls), "");
    for both in [&last, &first] {
        let mut client = Client::connect(both.tls, false);
        let (stream, status) = handshake(&mut client, "/");
        assert_eq!((status, client.whole(stream)), (403, (403, 2)));
    }
    // An instance of HTTP/3 that supports no WebSocket, and a protocol that is never forwarded.
    let origin = Origin::start(&["--h3"]);
    let both = Both::start(&format!("instances = ['h3://{}']", origin.tls), "");
    let mut client = Client::connect(both.tls, false);
    let (stream, refused) = handshake(&mut client, "/");
    assert!(matches!(refused, 404 | 502), "{refused}");
    client.whole(stream);
    let stream = client.ask(&request("a", "/", &[]), Some("connect-udp"));
    assert_eq!(status(&mut client, stream), 501);
    let stream = client.begin("GET", "/status/204", b"", true).expect("the connection goes on");
    assert_eq!(client.whole(stream).0, 204);
}

/// A server that does not speak HTTP: it sends first, and then sends back what it gets until its client has ended.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            thread::spawn(move || {
                let _ = stream.write_all(b"220 hello\n");
                let mut piece = [0; 16 * 1024];
                while let Ok(n @ 1..) = stream.read(&mut piece) {
                    if stream.write_all(&piece[..n]).is_err() {
                        return;
                    }
                }
                let _ = stream.write_all(b"bye\n");
            });
        }
    });
    address
}

#[test]
fn connect_leads_where_it_is_allowed_over_http3() {
    let target = echo();
    let name = target.to_string();
    let to = |instance: &str, more: &str| {
        Both::start(&format!("instances = ['{instance}']"), &format!("connect = ['{target}']\n{more}"))
    };
    let direct = to("http://127.0.0.1:9", "");
    let through = to(&format!("h3://{}", direct.tls), "connect-service = 'a'");
    let long: Vec<u8> = (0..700_000_u32).map(|n| (n % 251) as u8).collect();
    for both in [&direct, &through] {
        let mut client = Client::connect(both.tls, false);
        let stream = client.ask(&request(&name, "", &[]), None);
        assert_eq!(status(&mut client, stream), 200);
        assert_eq!(client.field(stream, "content-length"), None);
        client.until(|seen| seen.iter().any(|(_, seen)| matches!(seen, Seen::Data(..))));
        client.send(stream, &long, false);
        client.send(stream, b"", true);
        assert_eq!(client.whole(stream), (200, 10 + long.len() + 4));
        let body = client.body(stream);
        assert!(body.starts_with(b"220 hello\n") && body.ends_with(b"bye\n") && body[10..700_010] == long);
        let other = client.ask(&request("127.0.0.1:9", "", &[]), None);
        assert_eq!(client.whole(other).0, 403);
        let reset = client.ask(&request(&name, "", &[]), None);
        assert_eq!(status(&mut client, reset), 200);
        client.reset(reset);
        let stream = client.ask(&request(&name, "", &[]), None);
        assert_eq!(status(&mut client, stream), 200, "the connection goes on");
    }
    let none = Both::start("instances = ['http://127.0.0.1:9']", "");
    let mut client = Client::connect(none.tls, false);
    let stream = client.ask(&request(&name, "", &[]), None);
    assert_eq!(client.whole(stream).0, 501);
}
