//! `h2lab trace`, as people and scripts read it.

use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::process::Command;

use h2lab::sut::{self, StartOptions};
use h2lab_core::workload::Protocol;
use serde_json::Value;

use crate::origin::Origin;
use crate::support::{folder, h2lab, need};

/// What must be seen of 1,001 requests when the server ends a connection after 1,000: the last stream, the GOAWAY, and the
/// first request on another connection.
fn assert_shows_the_end(url: &str) {
    let flags = ["trace", "-k", "-n=1001", "-c=1", url];
    let finished = h2lab(&flags);
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    let at = |parts: [&str; 3]| {
        let is_it = |line: &&str| parts.iter().all(|part| line.contains(part));
        finished
            .stdout
            .lines()
            .position(|line| is_it(&line))
            .unwrap_or_else(|| panic!("no line has {parts:?}"))
    };
    let order = [
        at(["#0 →", "HEADERS[1] ", ":method GET"]),
        at(["#0 →", "HEADERS[1999] ", ":method GET"]),
        at(["#0 ←", "GOAWAY[0] ", "NO_ERROR last_stream_id"]),
        at(["#1 * TCP established", "", ""]),
        at(["#1 →", "HEADERS[1] ", ":method GET"]),
    ];
    assert!(order.is_sorted(), "{order:?}");
    assert!(!finished.stdout.contains("HEADERS[2001]"), "{}", finished.stdout);
    let summary = finished.stdout.lines().last().expect("a summary");
    assert!(
        summary.starts_with("1001 requests, 2 connections, GOAWAY NO_ERROR last_stream_id "),
        "{summary}"
    );
    assert!(summary.ends_with(" after 1000 requests"), "{summary}");

    let elided = h2lab(&[&flags[..], &["--elide"]].concat());
    assert!(elided.stdout.contains(" frames on streams "), "{}", elided.stdout);
    assert!(elided.stdout.contains("HEADERS[1999] ") && elided.stdout.lines().count() < 120);
}

#[test]
fn a_connection_that_our_origin_ends_after_1000_requests_is_seen_to_end() {
    let origin = Origin::start(&["--max-requests-per-connection", "1000", "--goaway", "graceful"]);
    assert_shows_the_end(&format!("http://{}/", origin.clear));
}

#[test]
fn a_connection_that_nginx_ends_after_1000_requests_is_seen_to_end() {
    let (Some(_), folder) = (need("nginx"), folder()) else { return };
    let options = StartOptions {
        ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
        logs: folder.path().to_owned(),
        max_requests_per_connection: Some(1000),
    };
    let server = sut::start("nginx", &options, &|program| Command::new(program)).expect("nginx starts");
    assert_shows_the_end(&format!("https://{}/", server.endpoint(Protocol::H2).expect("it speaks h2")));
}

#[test]
fn secrets_are_shown_by_their_length_unless_they_are_asked_for() {
    let origin = Origin::start(&[]);
    let url = format!("http://{}/", origin.clear);
    for protocol in ["--proto=h1", "--proto=h2c"] {
        let flags = ["trace", protocol, "-H", "Authorization: Bearer abc", &url];
        let hidden = h2lab(&flags).stdout;
        assert!(hidden.contains("(10 bytes)") && !hidden.contains("Bearer"), "{hidden}");
        let shown = h2lab(&[&flags[..], &["--secrets"]].concat()).stdout;
        assert!(shown.contains("Bearer abc"), "{shown}");
    }
}

#[test]
fn filters_choose_types_and_ends() {
    let origin = Origin::start(&[]);
    let url = format!("http://{}/", origin.clear);
    let finished = h2lab(&["trace", "--json", "-n=10", "--only=HEADERS", "--head=1", "--tail=2", &url]);
    let document = finished.json();
    let frames = document["frames"].as_array().expect("frames");
    let seen: Vec<_> =
        frames.iter().map(|frame| (frame["type"].as_str(), frame["stream"].as_u64())).collect();
    let headers = Some("HEADERS");
    assert_eq!(seen, [(headers, Some(1)), (headers, Some(19)), (headers, Some(19))]);
    assert_eq!(document["frames_left_out"], 17);
    let lines = h2lab(&["trace", "--jsonl", "--only=DATA", &url]).stdout;
    let line: Value = serde_json::from_str(lines.trim()).expect("one line");
    assert_eq!(line["data_bytes"], 1024);
    assert_eq!(h2lab(&["trace", "--only=HEADER", &url]).code, Some(2));
}

#[test]
fn a_server_that_speaks_only_http_1_1_is_traced_in_it() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
    let server = std::thread::spawn(move || {
        use std::io::Write as _;
        for answer in
            ["HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n"]
        {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut request = [0; 4096];
            assert!(stream.read(&mut request).expect("it can be read") > 0);
            stream.write_all(answer.as_bytes()).expect("it can be written");
            // Until the client has gone: a close would race with its reading.
            while matches!(stream.read(&mut request), Ok(1..)) {}
        }
    });
    let finished = h2lab(&["trace", &url]);
    server.join().expect("it met what it expected");
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    assert!(finished.stdout.contains("HTTP/1.1 204 No Content"), "{}", finished.transcript());
    assert!(finished.stderr.contains("going on with h1"), "{}", finished.transcript());
}

#[test]
fn what_a_server_said_before_it_fell_silent_is_shown() {
    let origin = Origin::start(&[]);
    let finished = h2lab(&["trace", "--timeout=100ms", &format!("http://{}/delay/60000", origin.clear)]);
    assert_eq!(finished.code, Some(3), "{}", finished.transcript());
    for part in ["← SETTINGS[0]", "→ HEADERS[1]", "→ RST_STREAM[1]", "CANCEL", "1 ended as `timeout`"] {
        assert!(finished.stdout.contains(part), "{part}: {}", finished.transcript());
    }
}
