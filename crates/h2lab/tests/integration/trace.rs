//! `h2lab trace`, as people and scripts read it.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};

use h2lab_lab::sut;
use h2lab_lab::sut::StartOptions;
use h2lab_model::workload::Protocol;
use h2lab_net::process::Child;
use rustix::process::Signal;
use serde_json::Value;

use crate::origin::Origin;
use crate::support::{DEADLINE, binary, folder, h2lab, need};
use crate::terminal::Pty;

/// What must be seen of 1,001 requests when the server ends a connection after 1,000: the last stream, the GOAWAY, and the
/// first request on another connection. The GOAWAY says `last_stream`.
fn assert_shows_the_end(url: &str, last_stream: u32) {
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
    let expected = format!(
        "1,001 requests, 2 connections, GOAWAY NO_ERROR last_stream_id {last_stream} after 1,000 requests"
    );
    // On a busy machine the summary also has the time for which we did not run.
    assert!(
        summary == expected || summary.starts_with(&format!("{expected}, h2lab did not run for ")),
        "{summary}"
    );
    if url.starts_with("https") {
        assert!(finished.stdout.contains("#0 * TLSv1.") && finished.stdout.contains(", TLS_"));
        assert!(finished.stdout.contains("ALPN h2, resumed\n"), "the second handshake is a short one");
    }

    let elided = h2lab(&[&flags[..], &["--elide"]].concat());
    assert!(elided.stdout.contains(" frames on streams "), "{}", elided.stdout);
    assert!(elided.stdout.contains("HEADERS[1999] ") && elided.stdout.lines().count() < 120);
}

#[test]
fn a_connection_that_our_origin_ends_after_1000_requests_is_seen_to_end() {
    // RFC 9113 §6.8: a graceful server begins with the highest stream there can be.
    for (goaway, last_stream) in [("abrupt", 1999), ("graceful", (1 << 31) - 1)] {
        let origin = Origin::start(&["--max-requests-per-connection", "1000", "--goaway", goaway]);
        assert_shows_the_end(&format!("http://{}/", origin.clear), last_stream);
        assert_shows_the_end(&format!("https://{}/", origin.tls), last_stream);
    }
}

#[test]
fn a_connection_that_nginx_ends_after_1000_requests_is_seen_to_end() {
    let (Some(_), folder) = (need("nginx"), folder()) else { return };
    let options = StartOptions {
        max_requests_per_connection: Some(1000),
        ..StartOptions::new(IpAddr::V4(Ipv4Addr::LOCALHOST), folder.path().to_owned())
    };
    let server = sut::start("nginx", &options, &|program: &std::path::Path| Command::new(program))
        .expect("nginx starts");
    for (scheme, protocol) in [("https", Protocol::H2), ("http", Protocol::H2c)] {
        let address = server.endpoint(protocol).expect("nginx speaks it");
        assert_shows_the_end(&format!("{scheme}://{address}/"), 1999);
    }
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
        for answer in
            ["HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n"]
        {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut request = [0; 4096];
            assert!(stream.read(&mut request).expect("it can be read") > 0);
            stream.write_all(answer.as_bytes()).expect("it can be written");
            // Until the client has closed: closing first would race with its reading.
            while matches!(stream.read(&mut request), Ok(1..)) {}
        }
    });
    let finished = h2lab(&["trace", &url]);
    server.join().expect("it met what it expected");
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    assert!(finished.stdout.contains("HTTP/1.1 204 No Content"), "{}", finished.transcript());
    assert!(finished.stderr.contains("trying h1"), "{}", finished.transcript());
}

#[test]
fn what_a_server_said_before_it_fell_silent_is_shown() {
    let origin = Origin::start(&[]);
    let finished = h2lab(&["trace", "--timeout=5s", &format!("http://{}/delay/60000", origin.clear)]);
    assert_eq!(finished.code, Some(3), "{}", finished.transcript());
    for part in ["← SETTINGS[0]", "→ HEADERS[1]", "→ RST_STREAM[1]", "CANCEL", "1 ended as `timeout`"] {
        assert!(finished.stdout.contains(part), "{part}: {}", finished.transcript());
    }
}

#[test]
fn requests_that_a_goaway_left_unprocessed_are_sent_again_unless_they_may_not_be() {
    let origin = Origin::start(&["--max-requests-per-connection", "15", "--goaway", "abrupt"]);
    let url = format!("http://{}/", origin.clear);
    let flags = ["trace", "-n=20", "-m=10", "--only=GOAWAY", &url];
    for (more, end, code) in [(&[][..], ", 5 sent again", 0), (&["--no-replay"], ", 5 ended as `refused`", 3)]
    {
        let finished = h2lab(&[&flags[..], more].concat());
        assert_eq!(finished.code, Some(code), "{}", finished.transcript());
        assert!(finished.stdout.trim_end().ends_with(end), "{}", finished.transcript());
    }
}

#[test]
fn the_heads_of_an_upgrade_are_shown_before_the_frames() {
    let origin = Origin::start(&["--h2c-upgrade"]);
    let finished = h2lab(&["trace", "--h2c-mode=upgrade", &format!("http://{}/", origin.clear)]);
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    let at = |part: &str| finished.stdout.find(part).unwrap_or_else(|| panic!("{part}: {}", finished.stdout));
    let order = [
        at("GET / HTTP/1.1"),
        at("HTTP/1.1 101 Switching Protocols"),
        at("← SETTINGS[0]"),
        at(":status 200"),
    ];
    assert!(order.is_sorted(), "{}", finished.stdout);
}

#[test]
fn a_signal_ends_it_with_the_summary_and_no_further_request() {
    // One server never answers a request, the other never sends anything.
    let origin = Origin::start(&[]);
    let mute = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mute = mute.local_addr().expect("it is bound");
    for (url, line, summary) in [
        (
            format!("http://{}/delay/60000", origin.clear),
            "→ HEADERS[1]",
            "1 request, 1 connection, 1 ended as",
        ),
        (format!("http://{mute}/"), "→ SETTINGS[0]", "0 requests, 1 connection, interrupted"),
        (format!("https://{mute}/"), "TCP established", "0 requests, 1 connection, interrupted"),
    ] {
        let mut command = Command::new(binary());
        command.args(["trace", &url]);
        let mut child = Child::spawn(command, None).expect("the binary starts");
        let seen = child.wait_for_line(DEADLINE, |seen| seen.contains(line).then_some(()));
        seen.unwrap_or_else(|error| panic!("{error}: {}", child.log()));
        let ended = child.stop(Signal::INT, DEADLINE).expect("it was running");
        assert_eq!(ended.status.code(), Some(130), "{}", child.log());
        // Its last output may still be in the pipe when it has ended.
        let last = child.wait_for_line(DEADLINE, |line| line.starts_with(summary).then(|| line.to_owned()));
        let last = last.unwrap_or_else(|error| panic!("{error}: {}", child.log()));
        assert!(last.ends_with("interrupted"), "{}", child.log());
    }
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let origin = Origin::start(&[]);
    let mut command = Command::new(binary());
    command.args(["trace", "-n=1000000", &format!("http://{}/", origin.clear)]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let mut first = [0; 1];
    child.stdout.take().expect("it is piped").read_exact(&mut first).expect("it prints");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

/// What `h2lab trace` shows of one request on a terminal with this many columns.
fn on_a_terminal(url: &str, columns: u16, environment: &[(&str, &str)]) -> String {
    Pty::open(columns).run(&["trace", url], environment)
}

#[test]
fn a_terminal_gets_colours_arrows_and_lines_that_fit_as_far_as_it_can_take_them() {
    let origin = Origin::start(&[]);
    let url = format!("http://{}/", origin.clear);
    let utf8 = ("LC_ALL", "C.UTF-8");
    let plenty = on_a_terminal(&url, 200, &[utf8, ("TERM", "xterm")]);
    assert!(plenty.contains("→ \x1b[") && plenty.contains("accept */*"), "{plenty}");
    for environment in [&[utf8, ("NO_COLOR", "1")][..], &[utf8, ("TERM", "dumb")]] {
        let plain = on_a_terminal(&url, 100, environment);
        assert!(plain.contains("→ HEADERS[1]") && !plain.contains('\x1b'), "{plain}");
        let heads = plain.lines().filter(|line| line.contains("HEADERS"));
        assert!(heads.clone().count() == 2 && plain.contains('…'), "{plain}");
        assert!(heads.clone().all(|line| line.trim_end().chars().count() <= 100), "{plain}");
    }
    let ascii = on_a_terminal(&url, 80, &[("LC_ALL", "C"), ("NO_COLOR", "1")]);
    assert!(ascii.is_ascii() && ascii.contains("> HEADERS[1]") && ascii.contains(" ..."), "{ascii}");
}

#[test]
fn a_server_that_speaks_http_2_and_gives_up_is_not_asked_in_http_1_1() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let goaway = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11];
        stream.write_all(&[&settings[..], &goaway].concat()).expect("it can be written");
        // Until the client has closed: closing first would race with its reading.
        while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {}
    });
    let finished = h2lab(&["trace", &url]);
    server.join().expect("it met what it expected");
    assert_eq!(finished.code, Some(3), "{}", finished.transcript());
    assert!(finished.stdout.contains("GOAWAY[0]") && !finished.stderr.contains("going on"));
    assert!(finished.stderr.contains("ENHANCE_YOUR_CALM"), "{}", finished.transcript());
}

#[test]
fn a_server_that_never_speaks_is_given_up_after_the_timeout_and_not_dialled_again() {
    // The test does not accept: the kernel completes the handshakes and queues the connections.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("it can be asked without waiting");
    let address = listener.local_addr().expect("it is bound");
    // The time in the message is the timeout that applied: without --timeout it is 10 s.
    for (url, words) in [
        (format!("http://{address}/"), "accepts the connection but does not respond within 3s"),
        (format!("https://{address}/"), "TLS was not established within 3s"),
    ] {
        let finished = h2lab(&["trace", "-k", "--timeout=3s", &url]);
        assert_eq!(finished.code, Some(3), "{}", finished.transcript());
        assert!(finished.stderr.contains(words), "{words}: {}", finished.transcript());
        assert_eq!(finished.stdout.matches("dialling").count(), 1, "{}", finished.transcript());
        listener.accept().expect("it was dialled");
        assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "and once only");
    }
}
