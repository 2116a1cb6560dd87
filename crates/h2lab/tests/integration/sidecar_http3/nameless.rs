//! Requests that name no host, over each version. HTTP/1.0 and HTTP/2 need not name one, and `Host` may be empty; HTTP/1.1 (RFC 9112 §3.2)
//! and HTTP/3 (RFC 9114 §4.3.1) must.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use h2lab_base::units::Time;
use h2lab_wire::connection::Request;
use h2lab_wire::{Config, Connection, ErrorCode, Event, Role};

use super::Both;
use super::client::{Client, Seen};
use crate::sidecar::{Sidecar, scripted};
use crate::support::DEADLINE;

const NOW: Time = Time::from_millis(1);
const NAMELESS: Request<'_> =
    Request { method: "GET", authority: "", path: "/", fields: &[], body_length: None, end_stream: true };

/// The result of a request: the status of its response, or `None` if its stream is reset as malformed.
type Ask = fn(&Both) -> Option<u16>;

fn over_http1(both: &Both, head: &str) -> Option<u16> {
    let told = both.sidecar.ask(&format!("{head}connection: close\r\n\r\n"));
    told.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

fn over_http2(both: &Both) -> Option<u16> {
    let mut stream = both.sidecar.connect();
    let mut engine = Connection::h2(Config::new(Role::Client), NOW);
    engine.send_request(NOW, &NAMELESS).expect("there is room");
    loop {
        stream.write_all(&engine.take_transmit(NOW)).expect("it reads");
        let n = read(&mut stream, &mut engine);
        while let Some(event) = engine.poll_event(NOW) {
            match event {
                Event::Response { head, .. } => return Some(head.status),
                Event::Reset { code: ErrorCode::PROTOCOL_ERROR, .. } => return None,
                _ => {}
            }
        }
        assert!(n > 0, "it ended");
    }
}

fn read(stream: &mut TcpStream, engine: &mut Connection) -> usize {
    let mut space = [0; 4_096];
    let n = stream.read(&mut space).expect("in time");
    engine.handle_input(NOW, &space[..n]);
    n
}

fn over_http3(both: &Both) -> Option<u16> {
    let mut client = Client::connect(both.tls, false);
    let stream = client.ask(&NAMELESS, None);
    let outcome = |seen: &[_]| {
        seen.iter().filter(|(its, _)| *its == stream).find_map(|(_, seen)| match seen {
            Seen::Response(status) => Some(Some(*status)),
            Seen::Reset(ErrorCode::H3_MESSAGE_ERROR) => Some(None),
            _ => None,
        })
    };
    client.until(|seen| outcome(seen).is_some());
    client.leave();
    outcome(&client.seen).flatten()
}

#[test]
fn a_request_that_names_no_host_gets_the_one_of_its_instance_where_that_is_legal() {
    let (url, heads) = scripted(|mut stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"));
    });
    let host = format!("\r\nhost: {}\r\n", url.trim_start_matches("http://"));
    let both = Both::start(&format!("instances = ['{url}']"), "");
    let asks: [(&str, Ask, Option<u16>); 5] = [
        ("HTTP/1.0", |both| over_http1(both, "GET / HTTP/1.0\r\n"), Some(200)),
        ("HTTP/1.1, an empty Host", |both| over_http1(both, "GET / HTTP/1.1\r\nhost:\r\n"), Some(200)),
        ("HTTP/1.1", |both| over_http1(both, "GET / HTTP/1.1\r\n"), Some(400)),
        ("HTTP/2", over_http2, Some(200)),
        ("HTTP/3", over_http3, None),
    ];
    for (name, ask, expected) in asks {
        assert_eq!(ask(&both), expected, "{name}");
        if expected == Some(200) {
            let head = heads.recv_timeout(DEADLINE).expect(name).to_lowercase();
            assert!(head.contains(&host) && !head.contains("x-forwarded-host"), "{name}: {head}");
        } else {
            assert!(heads.try_recv().is_err(), "{name}: nobody is asked");
        }
    }
}

#[test]
fn a_websocket_that_names_no_host_gets_the_one_of_its_instance() {
    let (url, heads) = scripted(|mut stream| {
        drop(stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"));
    });
    let own = url.trim_start_matches("http://").to_owned();
    let direct = Sidecar::to(&[url], &[]);
    let over_http2 = Sidecar::to(&[format!("h2c://{}", direct.clear)], &[]);
    for (sidecar, host) in [(&direct, own), (&over_http2, direct.clear.to_string())] {
        let told = sidecar.ask(
            "GET / HTTP/1.1\r\nhost:\r\nconnection: upgrade, close\r\nupgrade: websocket\r\nsec-websocket-key: x\r\n\r\n",
        );
        assert!(told.starts_with("HTTP/1.1 403 "), "{told}");
        let head = heads.recv_timeout(DEADLINE).expect("a request").to_lowercase();
        assert!(head.contains(&format!("\r\nhost: {host}\r\n")), "{head}");
    }
}
