//! The built-in server, met by clients that are not ours: curl, nghttp, and peers that misbehave.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use h2lab_model::workload::Protocol;
use h2lab_net::process;
use h2lab_net::process::Child;
use h2lab_roles::origin::counts;
use h2lab_wire::h2::frame::{PREFACE, flag, kind};
use rustix::process::Signal;

use crate::curl::{self, Curl};
use crate::hostile::attacker;
use crate::support::{DEADLINE, binary, folder, need, run_program};

/// A running `h2lab origin`.
pub struct Origin {
    pub child: Child,
    pub clear: SocketAddr,
    pub tls: SocketAddr,
}

impl Origin {
    pub fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(binary());
        command
            .arg("origin")
            .args(["--listen", "127.0.0.1:0", "--tls-listen", "127.0.0.1:0"])
            .args(arguments);
        Self::run(command)
    }

    #[track_caller]
    pub fn run(command: Command) -> Self {
        let child = Child::spawn(command, None).expect("the binary starts");
        let listening = |scheme: &str| {
            let prefix = format!("listening {scheme}://");
            child
                .wait_for_line(DEADLINE, |line| line.strip_prefix(&prefix)?.parse().ok())
                .unwrap_or_else(|error| panic!("{error}: {}", child.log()))
        };
        let (clear, tls) = (listening("http"), listening("https"));
        Self { child, clear, tls }
    }

    pub fn address(&self, protocol: Protocol) -> SocketAddr {
        if protocol.is_tls() { self.tls } else { self.clear }
    }

    /// A connection in clear whose reads fail rather than hang.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.clear).expect("the origin accepts");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero");
        stream.set_nodelay(true).expect("TCP");
        stream
    }

    /// A well-behaved client: its whole answer, or how the connection broke.
    fn ask(&self) -> io::Result<String> {
        let mut stream = self.connect();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Whether a well-behaved client is served.
    pub fn is_served(&self) -> bool {
        self.ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 "))
    }

    /// Fails unless a well-behaved client is served.
    #[track_caller]
    pub fn assert_serves(&self) {
        let answer = self.ask().unwrap_or_else(|error| panic!("{error}: {}", self.child.log()));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

/// Calls `body` with a curl for each protocol and a fresh folder; does nothing without curl.
pub fn over_all_protocols(origin: &Origin, body: impl Fn(&Curl<'_>, Protocol)) {
    for protocol in Protocol::OVER_TCP {
        let folder = folder();
        let Some(curl) = Curl::new(folder.path(), protocol, origin.address(protocol)) else { return };
        body(&curl, protocol);
    }
}

#[test]
fn a_server_of_http1_alone_gives_it_to_a_client_that_offers_both() {
    let (Some(curl), origin, folder) = (need("curl"), Origin::start(&["--http1.1"]), folder()) else {
        return;
    };
    let url = format!("https://{}/", origin.tls);
    let quiet = ["-sS", "-k", "-q", "--noproxy", "*", "-o", "body", "-w", "%{http_version}"];
    let done = run_program(&curl, folder.path(), &[&quiet[..], &["--http2", url.as_str()]].concat());
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "1.1"), "{}", done.transcript());
}

#[test]
fn every_path_is_served_over_all_four_protocols() {
    let origin = Origin::start(&[]);
    over_all_protocols(&origin, |curl, protocol| {
        for (path, status, length) in [
            ("/", 200, 1024),
            ("/?any=query", 200, 1024),
            ("/bytes/0", 200, 0),
            ("/bytes/100k", 200, 102_400),
            ("/bytes/3M", 200, 3 << 20),
            ("/delay/20", 200, 0),
            ("/drip?bytes=1000&ms=20", 200, 1000),
            ("/status/204", 204, 0),
            ("/status/304", 304, 0),
            ("/status/503", 503, 0),
            ("/stall?every=20&ms=10", 200, 1024),
        ] {
            let answer = curl.get(path, &[]);
            assert_eq!((answer.status, answer.body.len()), (status, length), "{protocol} {path}");
            assert!(answer.heads.contains("server: h2lab\r\n"), "{protocol} {path}: {}", answer.heads);
        }
        assert_eq!(curl.get("/stream/3", &[]).body, b"{\"id\": 0}\n{\"id\": 1}\n{\"id\": 2}\n");
        assert_eq!(curl.get("/nowhere", &[]).status, 404);
        assert_eq!(curl.get("/bytes/many", &[]).status, 400);
    });
}

#[test]
fn requests_connections_and_how_long_they_were_busy_are_counted_for_the_lab() {
    let origin = Origin::start(&["--counts", "--handler-delay", "20ms"]);
    assert!(origin.is_served() && origin.is_served());
    let line = |line: &str| Some(counts::read(line, 0)?.1).filter(|counts| counts.requests == 2);
    let counts = origin.child.wait_for_line(DEADLINE, line).expect("a line ten times a second");
    assert_eq!((counts.connections, counts.multiplexed, counts.most_busy), (2, 0, 1), "{counts:?}");
    assert!(counts.busy_ns >= 15_000_000 && counts.writes >= 1, "{counts:?}");
}

#[test]
fn the_head_of_a_request_comes_back_as_it_was_understood() {
    let origin = Origin::start(&[]);
    over_all_protocols(&origin, |curl, protocol| {
        let answer = curl.get("/headers?a=b", &["-H", "X-Custom: one, two"]);
        let document: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(document["method"], "GET");
        assert_eq!(document["path"], "/headers?a=b");
        assert_eq!(document["authority"], origin.address(protocol).to_string());
        let has = |name: &str, value: &str| {
            document["headers"].as_array().unwrap().contains(&serde_json::json!([name, value]))
        };
        assert!(has("x-custom", "one, two"), "{protocol}: {document}");
    });
}

#[test]
fn the_answer_to_head_has_a_length_and_no_body() {
    let origin = Origin::start(&[]);
    over_all_protocols(&origin, |curl, protocol| {
        let answer = curl.get("/bytes/5000", &["-I"]);
        assert_eq!(answer.status, 200, "{protocol}");
        assert!(answer.heads.contains("content-length: 5000\r\n"), "{protocol}: {}", answer.heads);
    });
}

#[test]
fn bodies_larger_than_any_window_are_taken_and_echoed_intact() {
    let origin = Origin::start(&[]);
    over_all_protocols(&origin, |curl, protocol| {
        let folder = folder();
        let file = folder.path().join("payload");
        let payload: Vec<u8> = (0..3_000_000_u32).map(|k| (k % 251) as u8).collect();
        std::fs::write(&file, &payload).unwrap();
        let data = format!("@{}", file.display());
        // For bodies above 1 MiB curl waits for the server's 100 over HTTP/1.1; without one it continues after a
        // second.
        for expect in ["Expect: 100-continue", "Expect:"] {
            let upload = ["--data-binary", &data, "-H", expect];
            let answer = curl.get("/", &upload);
            assert_eq!((answer.status, answer.body.len()), (200, 1024), "{protocol} {expect}");
            let answer = curl.get("/echo", &upload);
            assert_eq!(answer.status, 200, "{protocol} {expect}");
            assert!(answer.body == payload, "{protocol} {expect}: {} bytes", answer.body.len());
        }
    });
}

#[test]
fn what_is_sent_back_is_bounded_and_what_is_thrown_away_is_not() {
    const BOUND: usize = 16 << 20;
    let origin = Origin::start(&[]);
    over_all_protocols(&origin, |curl, protocol| {
        let folder = folder();
        let file = folder.path().join("payload");
        let data = format!("@{}", file.display());
        for (length, path, status) in
            [(BOUND, "/echo", 200), (BOUND + 1, "/echo", 413), (BOUND + 1, "/", 200)]
        {
            std::fs::write(&file, vec![b'x'; length]).unwrap();
            assert_eq!(
                curl.get(path, &["--data-binary", &data]).status,
                status,
                "{protocol} {path} {length}"
            );
        }
    });
}

#[test]
fn one_connection_cannot_make_the_server_hold_more_than_its_share() {
    let Some(nghttp) = need("nghttp") else { return };
    let origin = Origin::start(&[]);
    let mut command = Command::new(&nghttp);
    // Twenty bodies of more than 1 MiB each are requested at once, of which only a part can be sent at a time. Not
    // more: the server writes them all before it acknowledges SETTINGS, and nghttp closes the connection if that takes
    // 10 s.
    command
        .args(["-n", "-s", "-m", "20", "-w", "16", "-W", "16", "--timeout=60s"])
        .arg(format!("http://{}/stream/100000", origin.clear));
    let (_, said) = process::run(command, DEADLINE).unwrap();
    let count = |status: &str| said.lines().filter(|line| line.contains(status)).count();
    assert!(count(" 200 ") >= 1 && count(" 503 ") >= 1, "{said}");
    assert_eq!(count(" 200 ") + count(" 503 "), 20, "{said}");
}

#[test]
fn the_whole_request_comes_back_described() {
    let origin = Origin::start(&[]);
    over_all_protocols(&origin, |curl, protocol| {
        let answer = curl.get("/anything?a=b", &["-X", "PATCH", "-d", "some body"]);
        let document: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(document["method"], "PATCH", "{protocol}");
        assert_eq!((&document["bytes"], &document["data"]), (&9.into(), &"some body".into()), "{protocol}");
    });
}

#[test]
fn early_hints_come_before_the_answer() {
    let origin = Origin::start(&[]);
    over_all_protocols(&origin, |curl, protocol| {
        let answer = curl.get("/early?ms=10", &[]);
        let statuses: Vec<&str> = answer
            .heads
            .lines()
            .filter(|line| line.starts_with("HTTP/"))
            .filter_map(|line| line.split(' ').nth(1))
            .collect();
        assert_eq!(statuses, ["103", "200"], "{protocol}");
    });
}

#[test]
fn a_connection_ends_after_the_requests_that_it_was_given_and_not_before() {
    let origin = Origin::start(&["--max-requests-per-connection", "3"]);
    for protocol in curl::REUSES_CONNECTIONS {
        let folder = folder();
        let Some(curl) = Curl::new(folder.path(), protocol, origin.address(protocol)) else { return };
        let connects: Vec<u32> = curl.get_all(&["/"; 4], &[]).iter().map(|answer| answer.connects).collect();
        assert_eq!(connects, [1, 0, 0, 1], "{protocol}");
    }
}

#[test]
fn of_four_requests_at_once_those_beyond_the_limit_are_left_unprocessed_and_said_so() {
    let Some(nghttp) = need("nghttp") else { return };
    let origin = Origin::start(&["--max-requests-per-connection", "3"]);
    let mut command = Command::new(&nghttp);
    command.args(["-n", "-v", "--timeout=60s"]);
    command.args((0..4).map(|k| format!("http://{}/?{k}", origin.clear)));
    let (_, said) = process::run(command, DEADLINE).unwrap();
    assert_eq!(said.matches(":status: 200").count(), 3, "{said}");
    // nghttp's first request is stream 13: the ones before only carry priorities.
    assert!(
        said.contains("recv GOAWAY") && said.contains("(last_stream_id=17, error_code=NO_ERROR"),
        "{said}"
    );
}

#[test]
fn a_graceful_end_warns_first_and_loses_nothing_that_was_on_its_way() {
    let Some(nghttp) = need("nghttp") else { return };
    let origin = Origin::start(&["--max-requests-per-connection", "3", "--goaway", "graceful"]);
    let mut command = Command::new(&nghttp);
    command.args(["-n", "-v", "--timeout=60s"]);
    command.args((0..4).map(|k| format!("http://{}/?{k}", origin.clear)));
    let (_, said) = process::run(command, DEADLINE).unwrap();
    assert_eq!(said.matches(":status: 200").count(), 4, "{said}");
    assert!(said.contains("(last_stream_id=2147483647, error_code=NO_ERROR"), "{said}");
}

#[test]
fn a_handler_delay_is_added_to_every_answer() {
    let origin = Origin::start(&["--handler-delay", "300ms"]);
    over_all_protocols(&origin, |curl, protocol| {
        let begun = Instant::now();
        assert_eq!(curl.get("/", &[]).status, 200, "{protocol}");
        assert!(begun.elapsed() >= Duration::from_millis(300), "{protocol}");
    });
}

#[test]
fn nghttp_gets_a_hundred_streams_of_one_connection() {
    let Some(nghttp) = need("nghttp") else { return };
    let origin = Origin::start(&[]);
    for url in [format!("http://{}/bytes/100k", origin.clear), format!("https://{}/bytes/100k", origin.tls)] {
        let mut command = Command::new(&nghttp);
        command.args(["-n", "-s", "-m", "100", "--no-verify-peer", "--timeout=60s", &url]);
        let (status, said) = process::run(command, DEADLINE).unwrap();
        // A row of its statistics: times, status, size, path. It calls 102,400 bytes 100K.
        let complete = said.lines().filter(|line| line.contains(" 200 ") && line.contains("100K")).count();
        assert!(status.success() && complete == 100, "{complete} of 100\n{said}");
    }
}

#[test]
fn a_preface_that_comes_byte_by_byte_is_http2_and_a_post_is_not() {
    let origin = Origin::start(&[]);
    let mut stream = origin.connect();
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0" {
        stream.write_all(&[*byte]).unwrap();
    }
    let mut header = [0; 9];
    stream.read_exact(&mut header).unwrap();
    assert_eq!(header[3], 4, "the first frame is no SETTINGS: {header:?}");

    let mut stream = origin.connect();
    for byte in b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc" {
        stream.write_all(&[*byte]).unwrap();
    }
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[test]
fn a_client_that_has_finished_sending_still_gets_its_whole_answer() {
    let origin = Origin::start(&[]);
    for (path, length) in [("/", 1024), ("/bytes/3M", 3 << 20), ("/delay/100", 0)] {
        let mut stream = origin.connect();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n").as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{path}: {} bytes", answer.len());
        let body = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        assert_eq!(answer.len() - body, length, "{path}");
    }
}

#[test]
fn the_last_answer_arrives_although_the_client_goes_on_sending() {
    let origin = Origin::start(&[]);
    let mut stream = origin.connect();
    let mut request = b"GET /bytes/300k HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n".to_vec();
    request.resize(400_000, b'x'); // never read by the server, whose close would reset the connection
    stream.write_all(&request).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 ") && answer.len() > 300 * 1024, "{} bytes", answer.len());
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let origin = Origin::start(&[]);
    let mut stream = origin.connect();
    let requests = b"GET /delay/50 HTTP/1.1\r\nhost: h\r\n\r\nGET /status/404 HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
    stream.write_all(requests).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let statuses: Vec<&str> =
        answer.lines().filter_map(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)).collect();
    assert_eq!(statuses, ["200", "404"], "{answer}");
}

/// Sends this many requests, the first of which is for `first`, without waiting for an answer, and then no more;
/// returns the statuses of the answers.
fn pipeline(origin: &Origin, first: &str, count: usize) -> Vec<u16> {
    let mut stream = origin.connect();
    let mut reader = stream.try_clone().expect("a second handle");
    let request = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n");
    let requests = [request(first), request("/status/204").repeat(count - 1)].concat();
    // Writes and reads at the same time: a client that only writes would wait for a server that waits for its answers
    // to be read.
    let answers = std::thread::scope(|scope| {
        scope.spawn(move || {
            stream.write_all(requests.as_bytes()).expect("all is taken in the end");
            stream.shutdown(Shutdown::Write).expect("it is connected");
        });
        let mut answers = String::new();
        reader.read_to_string(&mut answers).expect("an orderly end");
        answers
    });
    let status = |line: &str| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok();
    answers.lines().filter_map(status).collect()
}

#[test]
fn two_mebibytes_of_pipelined_requests_are_all_answered() {
    const COUNT: usize = 60_000; // of 37 bytes
    let origin = Origin::start(&[]);
    for (path, status) in [("/status/204", 204), ("/delay/300", 200)] {
        let statuses = pipeline(&origin, path, COUNT);
        let (first, others) = statuses.split_first().expect("an answer");
        assert_eq!((*first, others.len()), (status, COUNT - 1), "{path}");
        assert!(others.iter().all(|status| *status == 204), "{path}");
    }
}

#[test]
fn clients_that_misbehave_never_take_the_server_down() {
    let origin = Origin::start(&[]);
    let h2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let mut frame_too_large = h2.to_vec();
    frame_too_large.extend_from_slice(&[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]);
    let mut bad_hpack = h2.to_vec();
    bad_hpack.extend_from_slice(b"\0\0\0\x04\0\0\0\0\0\0\0\x02\x01\x05\0\0\0\x01\xff\xff");
    let cases: [&[u8]; 8] = [
        b"",
        b"P",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", // TLS on the cleartext port
        b"\x00\xff\xfe garbage\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: h\r\ncontent-length: 99999999999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\nabc",
        &frame_too_large,
        &bad_hpack,
    ];
    for bytes in cases {
        let mut stream = origin.connect();
        stream.write_all(bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // It may answer or not, and close in order or by a reset; in any case the connection must end.
        let _ = stream.read_to_end(&mut Vec::new());
        origin.assert_serves();
    }
    let mut tls = TcpStream::connect(origin.tls).unwrap();
    tls.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").unwrap();
    let _ = tls.read_to_end(&mut Vec::new());
    // One client that requests much and never reads, and one that closes before its answer.
    let mut idle = origin.connect();
    idle.write_all(b"GET /bytes/1G HTTP/1.1\r\nhost: h\r\n\r\n").unwrap();
    let mut gone = origin.connect();
    gone.write_all(b"GET /bytes/1G HTTP/1.1\r\nhost: h\r\n\r\n").unwrap();
    drop(gone);
    origin.assert_serves();
}

#[test]
fn when_file_descriptors_run_out_it_goes_on_once_there_are_some() {
    let mut command = Command::new("/bin/sh");
    let script = "ulimit -n 24; exec \"$0\" origin --listen 127.0.0.1:0 --tls-listen 127.0.0.1:0";
    command.args(["-c", script]).arg(binary());
    let origin = Origin::run(command);
    // More connections than it may have open. Those that get no descriptor wait, as does the next one, and none is
    // refused.
    let many: Vec<TcpStream> = (0..40).map(|_| origin.connect()).collect();
    drop(many);
    origin.assert_serves();
}

#[test]
fn a_polite_signal_ends_it_in_good_order() {
    let mut origin = Origin::start(&[]);
    origin.assert_serves();
    let ended = origin.child.stop(Signal::TERM, DEADLINE).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", origin.child.log());
}

#[test]
fn a_polite_signal_lets_it_finish_what_it_has_begun() {
    let mut origin = Origin::start(&[]);
    let mut stream = origin.connect();
    stream.write_all(b"GET /drip?bytes=1000&ms=4000 HTTP/1.1\r\nhost: h\r\n\r\n").unwrap();
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).unwrap(); // it has begun
    assert_eq!(answer, b"HTTP/1.1 200");
    let end = std::thread::spawn(move || {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).map(|_| rest)
    });
    assert_eq!(origin.child.stop(Signal::TERM, DEADLINE).unwrap().status.code(), Some(0));
    let rest = end.join().unwrap().unwrap();
    let body = rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(rest.len() - body, 1000);
}

#[test]
fn a_polite_signal_warns_http2_clients_and_lets_their_streams_finish() {
    let mut origin = Origin::start(&[]);
    let mut stream = origin.connect();
    let settings = attacker::frame(kind::SETTINGS, 0, 0, &[]);
    let first = attacker::request(1, flag::END_STREAM, "GET", "/drip?bytes=1000&ms=4000");
    stream.write_all(&[&PREFACE[..], &settings, &first].concat()).unwrap();
    let mut frames = attacker::Frames(stream);
    frames.find(|(header, _)| header.kind == kind::HEADERS).expect("it has begun");
    let ended = std::thread::spawn(move || origin.child.stop(Signal::TERM, DEADLINE).unwrap().status.code());
    let (mut last, mut bytes, mut is_warned) = (0, [0, 0], false);
    // Data of the first may come before the warning.
    while let Some((header, payload)) = frames.next() {
        match header.kind {
            // The warning names no stream yet (RFC 9113 §6.8): what is on its way is still taken.
            kind::GOAWAY if !is_warned => {
                is_warned = true;
                assert_eq!(payload[..8], [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
                frames.0.write_all(&attacker::request(3, flag::END_STREAM, "GET", "/bytes/10")).unwrap();
            }
            kind::GOAWAY => last = u32::from_be_bytes(payload[..4].try_into().unwrap()),
            kind::DATA => bytes[header.stream as usize / 2] += payload.len(),
            _ => {}
        }
    }
    // The second request came before the final GOAWAY or after it: served or left unprocessed, never half.
    assert!(last == 1 || last == 3, "{last}");
    assert_eq!(bytes, [1000, if last == 3 { 10 } else { 0 }]);
    assert_eq!(ended.join().unwrap(), Some(0));
}

#[test]
fn what_does_not_finish_within_the_drain_timeout_is_cut_and_the_exit_is_still_in_order() {
    let mut origin = Origin::start(&["--drain-timeout", "200ms"]);
    let mut stream = origin.connect();
    stream.write_all(b"GET /drip?bytes=1000&ms=300000 HTTP/1.1\r\nhost: h\r\n\r\n").unwrap();
    let mut begun = [0; 12];
    stream.read_exact(&mut begun).unwrap();
    assert_eq!(origin.child.stop(Signal::TERM, DEADLINE).unwrap().status.code(), Some(0));
}
