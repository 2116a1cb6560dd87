//! Requests that a server must refuse or that have only one valid reading, and what instances are told about their
//! connection.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

use h2lab_model::workload::Protocol;

use crate::curl::Curl;
use crate::sidecar::{Sidecar, websocket_echo};
use crate::support::{DEADLINE, folder};

/// An HTTP/1.1 server that answers each request with 200 and ends its connection. What arrived of each request is sent
/// to the receiver: up to the end of the head, and the body that the head announces.
pub fn told_whole() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (seen, messages) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, seen) = (stream.expect("a connection"), seen.clone());
            thread::spawn(move || {
                let told = whole(&mut stream);
                let _ = seen.send(told);
                let _ =
                    stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            });
        }
    });
    (url, messages)
}

fn whole(stream: &mut TcpStream) -> String {
    let (mut told, mut byte) = (Vec::new(), [0]);
    let mut read = |told: &mut Vec<u8>, until: &dyn Fn(&[u8]) -> bool| {
        while !until(told.as_slice()) && stream.read(&mut byte).is_ok_and(|n| n == 1) {
            told.push(byte[0]);
        }
    };
    read(&mut told, &|told| told.ends_with(b"\r\n\r\n"));
    let head = String::from_utf8_lossy(&told).to_lowercase();
    let length = |line: &str| line.strip_prefix("content-length: ")?.parse::<usize>().ok();
    let all = told.len() + head.lines().find_map(length).unwrap_or(0);
    let is_chunked = head.contains("\r\ntransfer-encoding: chunked\r\n");
    read(&mut told, &|told| if is_chunked { told.ends_with(b"\r\n0\r\n\r\n") } else { told.len() == all });
    String::from_utf8_lossy(&told).into_owned()
}

const UPGRADE: &str = "host: a\r\nconnection: Upgrade, close\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                       sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

#[test]
fn a_handshake_with_content_is_an_ordinary_request_whose_body_passes() {
    let (url, messages) = told_whole();
    let sidecar = Sidecar::to(&[url], &[]);
    for (framing, body) in
        [("content-length: 3\r\n", "abc"), ("transfer-encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n")]
    {
        let answer = sidecar.ask(&format!("GET /chat HTTP/1.1\r\n{UPGRADE}{framing}\r\n{body}"));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let told = messages.recv_timeout(DEADLINE).expect("a request");
        assert!(told.starts_with("GET /chat HTTP/1.1\r\n") && told.contains("\r\nabc"), "{told}");
        assert!(!told.to_lowercase().contains("\r\nupgrade: "), "{told}");
    }
    // An instance that accepts every offer is not sent one.
    let accepting = Sidecar::to(&[websocket_echo()], &[]);
    let answer = accepting.ask(&format!("GET /chat HTTP/1.1\r\n{UPGRADE}content-length: 3\r\n\r\nabc"));
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[test]
fn an_upgrade_that_is_offered_in_http10_is_ignored() {
    let (url, messages) = told_whole();
    let sidecar = Sidecar::to(&[url], &[]);
    let answer = sidecar.ask(&format!("GET /chat HTTP/1.0\r\n{UPGRADE}\r\n"));
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let told = messages.recv_timeout(DEADLINE).expect("a request").to_lowercase();
    assert!(!told.contains("\r\nupgrade: ") && told.contains("\r\nsec-websocket-version: 13\r\n"), "{told}");
}

#[test]
fn a_host_that_is_none_is_answered_400_over_every_version() {
    let (url, messages) = told_whole();
    let (sidecar, folder) = (Sidecar::to(&[url], &[]), folder());
    let curl = Curl::new(folder.path(), Protocol::H2c, sidecar.clear);
    for host in ["[::1", "a:99999", "a:b", ":80", "a%4"] {
        let answer = sidecar.ask(&format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{host}: {answer}");
        let answer =
            sidecar.ask(&format!("GET http://{host}/ HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{host}: {answer}");
        if let Some(curl) = &curl {
            assert_eq!(curl.get("/", &["-H", &format!("host: {host}")]).status, 400, "{host}");
        }
    }
    let answer = sidecar.ask("GET / HTTP/1.1\r\nhost: a_b%41:8080\r\nconnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(messages.recv_timeout(DEADLINE).is_ok_and(|told| told.contains("\r\nhost: a_b%41:8080\r\n")));
    assert!(messages.try_recv().is_err(), "nothing else came to the instance");
}

#[test]
fn instances_are_told_where_a_client_has_connected_to() {
    const REQUEST: &str = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let (url, messages) = told_whole();
    let folder = folder();
    let path = folder.path().join("sidecar.toml");
    let sidecar = |more: &str| {
        let text = format!(
            "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n{more}\n[service.a]\ninstances = ['{url}']\nproxy-protocol = 'v1'\n"
        );
        fs::write(&path, text).expect("a file");
        Sidecar::with(&path)
    };
    let first_line = || {
        let told = messages.recv_timeout(DEADLINE).expect("a request");
        told.lines().next().unwrap_or_default().to_owned()
    };
    let direct = sidecar("");
    let mut stream = direct.connect();
    stream.write_all(REQUEST.as_bytes()).expect("it reads");
    stream.read_to_end(&mut Vec::new()).expect("it is answered");
    let own = stream.local_addr().expect("an address").port();
    assert_eq!(first_line(), format!("PROXY TCP4 127.0.0.1 127.0.0.1 {own} {}", direct.clear.port()));
    // The header of a proxy in front is kept; a header about that proxy's own connection (UNKNOWN) is not about its
    // client.
    let behind = sidecar("proxy-protocol = true");
    for line in ["PROXY TCP4 192.0.2.7 192.0.2.1 1234 80", "PROXY TCP6 2001:db8::1 2001:db8::2 11 22"] {
        behind.ask(&format!("{line}\r\n{REQUEST}"));
        assert_eq!(first_line(), line);
    }
    behind.ask(&format!("PROXY UNKNOWN\r\n{REQUEST}"));
    let told = first_line();
    assert!(told.starts_with("PROXY TCP4 127.0.0.1 127.0.0.1 "), "{told}");
    assert!(told.ends_with(&format!(" {}", behind.clear.port())), "{told}");
}
