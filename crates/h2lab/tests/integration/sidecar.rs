//! The sidecar between clients and servers that are not ours, and between peers that misbehave.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use h2lab_model::workload::Protocol;
use h2lab_net::process::Child;
use rustix::process::Signal;
use serde_json::Value;

use crate::curl::Curl;
use crate::origin::Origin;
use crate::support::{DEADLINE, Finished, binary, folder, h2lab};

/// A running `h2lab sidecar`.
pub struct Sidecar {
    pub child: Child,
    pub clear: SocketAddr,
}

impl Sidecar {
    /// One that listens in clear, for the service at these URLs.
    pub fn to(urls: &[String], more: &[&str]) -> Self {
        let mut command = Command::new(binary());
        command.args(["sidecar", "--listen", "127.0.0.1:0"]).args(more);
        for url in urls {
            command.args(["--to", url]);
        }
        Self::run(command)
    }

    pub fn with(config: &std::path::Path) -> Self {
        let mut command = Command::new(binary());
        command.arg("sidecar").arg("--config").arg(config);
        Self::run(command)
    }

    pub fn run(command: Command) -> Self {
        let child = Child::spawn(command, None).expect("the binary starts");
        let clear = child
            .wait_for_line(DEADLINE, |line| line.strip_prefix("listening http://")?.parse().ok())
            .unwrap_or_else(|error| panic!("{error}: {}", child.log()));
        Self { child, clear }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.clear).expect("it accepts");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero");
        stream
    }

    /// All that arrives on a connection of its own until its end. The request says that it is the last.
    pub fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response); // some tests cut the connection on purpose
        String::from_utf8_lossy(&response).into_owned()
    }

    /// Stops it in good order; returns its last line.
    pub fn stop(mut self) -> String {
        let exit = self.child.stop(Signal::TERM, DEADLINE).expect("it ends");
        assert_eq!(exit.status.code(), Some(0), "{}", self.child.log());
        self.child.log().lines().last().unwrap_or_default().to_owned()
    }
}

/// POSTs over HTTP/1.1, as many and as fast as these flags say: requests that no proxy may send twice.
pub fn post(url: &str, how_many: &[&str]) -> Finished {
    let request = ["load", url, "--proto=h1", "-X", "POST", "-d", "x", "--json"];
    h2lab(&[&request, how_many].concat())
}

/// Fails unless every request of a load has succeeded.
#[track_caller]
pub fn assert_none_lost(finished: &Finished) {
    let requests = &finished.json()["requests"];
    assert_eq!((&requests["failed"], &requests["succeeded"]), (&0.into(), &requests["sent"]), "{requests}");
}

/// An HTTP/1.1 server that calls `play` for each connection, and the first bytes of each.
pub fn scripted(play: fn(TcpStream)) -> (String, mpsc::Receiver<String>) {
    scripted_by_head(move |stream, _| play(stream))
}

/// The same where `play` depends on these bytes.
pub fn scripted_by_head(play: impl Fn(TcpStream, &str) + Send + 'static) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (seen, heads) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut head = vec![0; 64 * 1024];
            let n = stream.read(&mut head).unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..n]).into_owned();
            if seen.send(head.clone()).is_err() {
                return;
            }
            play(stream, &head);
        }
    });
    (url, heads)
}

#[test]
fn every_version_is_passed_on_as_every_other() {
    let origin = Origin::start(&[]);
    let folder = folder();
    for url in [format!("http://{}", origin.clear), format!("h2c://{}", origin.clear)] {
        let sidecar = Sidecar::to(std::slice::from_ref(&url), &[]);
        for protocol in [Protocol::H1, Protocol::H2c] {
            let Some(curl) = Curl::new(folder.path(), protocol, sidecar.clear) else { return };
            let long = curl.get("/bytes/3M", &[]);
            assert_eq!((long.status, long.body.len()), (200, 3 << 20), "{url} {protocol}");
            let head = curl.get("/bytes/5000", &["--head"]);
            assert!(head.heads.to_lowercase().contains("content-length: 5000"), "{}", head.heads);
            for status in ["204", "304"] {
                let answer = curl.get(&format!("/status/{status}"), &[]);
                assert_eq!((answer.status.to_string(), answer.body.len()), (status.to_owned(), 0));
            }
            let body: Vec<u8> = (0..2_000_000_u32).map(|n| (n % 251) as u8).collect();
            fs::write(folder.path().join("payload"), &body).expect("a file");
            for framing in [&[][..], &["-H", "transfer-encoding: chunked"], &["-H", "expect: 100-continue"]] {
                let arguments = [&["--data-binary", "@payload"], framing].concat();
                let echo = curl.get("/echo", &arguments);
                assert!(echo.status == 200 && echo.body == body, "{url} {protocol} {framing:?}");
            }
            let early = curl.get("/early?ms=1", &[]);
            let lower = early.heads.to_lowercase();
            assert!(lower.contains(" 103") && lower.contains("\nlink: "), "{lower}");
        }
        assert!(sidecar.stop().contains("; none failed"));
    }
}

#[test]
fn what_is_of_one_connection_does_not_pass_and_the_way_is_told() {
    let origin = Origin::start(&[]);
    let folder = folder();
    let sidecar = Sidecar::to(&[format!("http://{}", origin.clear)], &[]);
    let Some(curl) = Curl::new(folder.path(), Protocol::H1, sidecar.clear) else { return };
    let sent = [
        "connection: keep-alive, x-hop, upgrade",
        "x-hop: 1",
        "x-end: 2",
        "upgrade: foo, h2c",
        "http2-settings: AAMAAABkAAQAAP__",
        "proxy-connection: x",
        "te: trailers",
        "x-forwarded-for: 192.0.2.99",
    ];
    let flags: Vec<&str> = sent.iter().flat_map(|line| ["-H", line]).collect();
    let told = curl.get("/headers", &flags);
    let document: Value = serde_json::from_slice(&told.body).expect("JSON");
    let lines: Vec<(&str, &str)> = document["headers"]
        .as_array()
        .expect("fields")
        .iter()
        .map(|line| (line[0].as_str().expect("a name"), line[1].as_str().expect("a value")))
        .collect();
    let names: Vec<&str> = lines.iter().map(|line| line.0).collect();
    for gone in ["x-hop", "upgrade", "http2-settings", "proxy-connection"] {
        assert!(!names.contains(&gone), "{gone}: {lines:?}");
    }
    for there in [("x-end", "2"), ("x-forwarded-for", "127.0.0.1"), ("te", "trailers"), ("via", "1.1 h2lab")]
    {
        assert!(lines.contains(&there), "{there:?}: {lines:?}");
    }
    assert!(told.heads.to_lowercase().contains("via: 1.1 h2lab"), "{}", told.heads);
}

#[test]
fn no_request_is_lost_where_connections_end_after_a_quota() {
    for quota in ["7", "137"] {
        let origin = Origin::start(&["--max-requests-per-connection", quota]);
        for policy in ["fixed:1", "fixed:3"] {
            let sidecar = Sidecar::to(&[format!("h2c://{}", origin.clear)], &["--policy", policy]);
            let url = format!("http://{}/anything", sidecar.clear);
            let finished = post(&url, &["-c", "24", "-n", "3000"]);
            finished.assert_code_unless_busy(0);
            assert_none_lost(&finished);
            let last = sidecar.stop();
            assert!(last.contains("; none failed"), "{last}");
            let dialled =
                last.split_once(" connections to instances").and_then(|(rest, _)| rest.rsplit(' ').next());
            let dialled: u32 = dialled.and_then(|n| n.parse().ok()).unwrap_or_default();
            let wanted = 3_000 / quota.parse::<u32>().expect("a number");
            assert!(dialled >= wanted, "the quota was not met: {last}");
        }
    }
}

#[test]
fn what_an_instance_may_have_done_is_not_asked_twice_unless_that_is_the_same() {
    // It reads the request, and closes.
    let (url, heads) = scripted(drop);
    let sidecar = Sidecar::to(&[url], &[]);
    let request = |method: &str| {
        format!("{method} / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
    };
    let told = sidecar.ask(&request("POST"));
    assert!(
        told.starts_with("HTTP/1.1 502 ") && told.contains("the connection to the instance ended"),
        "{told}"
    );
    let seen = |heads: &mpsc::Receiver<String>| heads.try_iter().filter(|head| !head.is_empty()).count();
    assert_eq!(seen(&heads), 1);
    let told = sidecar.ask(&request("PUT"));
    assert!(told.starts_with("HTTP/1.1 502 "), "{told}");
    assert_eq!(seen(&heads), 1 + usize::from(h2lab_proxy::retry::MOST));
}

#[test]
fn a_response_that_breaks_off_is_not_passed_on_as_a_whole_one() {
    let (url, _heads) = scripted(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf");
        thread::sleep(Duration::from_secs(1)); // otherwise nothing of it has been passed on, and the answer is 502
    });
    let sidecar = Sidecar::to(&[url], &[]);
    let folder = folder();
    let Some(program) = crate::support::need("curl") else { return };
    for (flag, code) in [("--http1.1", 18), ("--http2-prior-knowledge", 92)] {
        let url = format!("http://{}/", sidecar.clear);
        let arguments = ["-sS", "-q", "--noproxy", "*", "--max-time", "60", flag, "-o", "body", &url];
        let finished = crate::support::run_program(&program, folder.path(), &arguments);
        assert_eq!(finished.code, Some(code), "{}", finished.transcript());
    }
    let last = sidecar.stop();
    assert!(last.contains("2 aborted"), "{last}");
}

#[test]
fn an_instance_that_is_not_there_is_told_and_another_one_is_asked() {
    let (_socket, closed) = crate::support::closed_port();
    let gone = format!("http://{closed}");
    let ask = |sidecar: &Sidecar| {
        sidecar.ask("POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx")
    };
    let alone = ask(&Sidecar::to(std::slice::from_ref(&gone), &[]));
    assert!(alone.starts_with("HTTP/1.1 502 ") && alone.contains("connection refused"), "{alone}");
    let origin = Origin::start(&[]);
    let both = Sidecar::to(&[gone, format!("h2c://{}", origin.clear)], &[]);
    for _ in 0..8 {
        let told = ask(&both);
        assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    }
}

#[test]
fn an_instance_that_is_killed_and_started_again_leaves_no_request_without_an_answer() {
    let port = crate::support::free_ports(1);
    let start = || {
        let mut command = Command::new(binary());
        let address = format!("127.0.0.1:{port}");
        command.args(["origin", "--listen", &address, "--tls-listen", "127.0.0.1:0"]);
        Origin::run(command)
    };
    for policy in ["adaptive", "fixed:3", "per-request"] {
        let sidecar = Sidecar::to(&[format!("h2c://127.0.0.1:{port}")], &["--policy", policy]);
        let ask = || {
            sidecar
                .ask("POST /delay/5 HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx")
        };
        for _ in 0..3 {
            let mut origin = start();
            thread::scope(|scope| {
                let callers: Vec<_> =
                    (0..8).map(|_| scope.spawn(|| (0..25).map(|_| ask()).collect::<Vec<String>>())).collect();
                thread::sleep(Duration::from_millis(30)); // some are under way
                origin.child.kill().expect("it runs");
                origin = start();
                for told in callers.into_iter().flat_map(|caller| caller.join().expect("it asked")) {
                    let is_answer = told.starts_with("HTTP/1.1 200 ") || told.starts_with("HTTP/1.1 502 ");
                    assert!(is_answer, "{policy}: {told:?}");
                }
            });
            let told = ask();
            assert!(told.starts_with("HTTP/1.1 200 "), "{policy}: {told}");
        }
    }
}

#[test]
fn a_client_that_leaves_before_its_response_is_not_waited_for() {
    let (url, heads) = scripted(std::mem::forget);
    let sidecar = Sidecar::to(&[url], &[]);
    let mut stream = sidecar.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").expect("it reads");
    heads.recv_timeout(DEADLINE).expect("the request has come");
    stream.shutdown(std::net::Shutdown::Write).expect("it is connected");
    assert_eq!(stream.read(&mut [0; 1]).expect("the end"), 0, "nothing else would come");
    assert!(!sidecar.stop().contains("aborted"), "and nothing is under way");
}

#[test]
fn a_loop_of_sidecars_is_noticed() {
    let port = crate::support::free_ports(1);
    let mut command = Command::new(binary());
    let address = format!("127.0.0.1:{port}");
    command.args(["sidecar", "--listen", &address, "--to", &format!("http://{address}")]);
    let told = Sidecar::run(command).ask("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert!(told.starts_with("HTTP/1.1 508 ") && told.contains("forwarding loop"), "{told}");
}

#[test]
fn what_is_no_http_is_not_asked_for_again() {
    let (url, heads) = scripted(|mut stream| drop(stream.write_all(b"HTTP/1.1 099 No\r\n\r\n")));
    let told = Sidecar::to(&[url], &[]).ask("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert!(told.starts_with("HTTP/1.1 502 "), "{told}");
    assert_eq!(heads.try_iter().filter(|head| !head.is_empty()).count(), 1);
}

#[test]
fn routes_lead_by_host_and_path_and_what_none_takes_is_not_found() {
    let [(one, _one), (two, _two)] = [
        scripted(|mut stream| drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\none"))),
        scripted(|mut stream| drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\ntwo"))),
    ];
    let folder = folder();
    let config = folder.path().join("sidecar.toml");
    let text = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\nroute = [\n{{ host = \"a.test\", service = \"one\" }},\n\
         {{ path = \"/two\", service = \"two\" }}]\n[service.one]\ninstances = [\"{one}\"]\n[service.two]\n\
         instances = [\"{two}\"]\n"
    );
    fs::write(&config, text).expect("a file");
    let sidecar = Sidecar::with(&config);
    let ask = |host: &str, path: &str| {
        sidecar.ask(&format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"))
    };
    for (host, path, body) in [("a.test", "/two", "one"), ("b.test:80", "/two/x", "two")] {
        let told = ask(host, path);
        assert!(told.starts_with("HTTP/1.1 200 ") && told.ends_with(body), "{told}");
    }
    let none = ask("b.test", "/");
    assert!(none.starts_with("HTTP/1.1 404 ") && none.contains("no route"), "{none}");
    let check = h2lab(&["sidecar", "--config", config.to_str().expect("a name"), "--check"]);
    assert_eq!(
        (check.code, &check.stdout[..]),
        (Some(0), &*format!("{} is valid: 1 listener, 2 services, 2 instances\n", config.display()))
    );
}

#[test]
fn one_who_does_not_read_holds_little_memory_and_nobody_else() {
    let origin = Origin::start(&[]);
    for scheme in ["http", "h2c"] {
        let sidecar = Sidecar::to(&[format!("{scheme}://{}", origin.clear)], &[]);
        let before = sidecar.child.resident_bytes();
        let _readers: Vec<TcpStream> = (0..4)
            .map(|_| {
                let mut reader = sidecar.connect();
                let request = b"GET /bytes/300000000 HTTP/1.1\r\nhost: a\r\n\r\n";
                reader.write_all(request).expect("it reads");
                reader
            })
            .collect();
        for _ in 0..20 {
            let told = sidecar.ask("GET /bytes/100000 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
            assert!(
                told.len() > 100_000 && told.starts_with("HTTP/1.1 200 "),
                "{scheme}: {} bytes",
                told.len()
            );
            thread::sleep(Duration::from_millis(20)); // the readers' responses continue until nobody takes more
        }
        let held = sidecar.child.resident_bytes().saturating_sub(before);
        assert!(held < 32 << 20, "{scheme}: {held} bytes for four who do not read");
    }
}

#[test]
fn a_connection_that_takes_no_more_requests_is_replaced_however_long_its_last_one_takes() {
    let origin = Origin::start(&["--max-requests-per-connection", "3"]);
    let sidecar = Sidecar::to(&[format!("h2c://{}", origin.clear)], &["--policy", "fixed:1"]);
    // Nobody reads the first response, so that the first connection never ends.
    let mut reader = sidecar.connect();
    reader.write_all(b"GET /bytes/300000000 HTTP/1.1\r\nhost: a\r\n\r\n").expect("it reads");
    for n in 0..10 {
        let told = sidecar
            .ask("POST /anything HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx");
        assert!(told.starts_with("HTTP/1.1 200 "), "{n}: {told}");
    }
}

#[test]
fn trailers_pass_and_are_no_header_fields() {
    let (url, heads) = scripted(|mut stream| {
        let _ = stream.write_all(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\ngrpc-status: 0\r\nset-cookie: a\r\n\r\n",
        );
    });
    let last = Sidecar::to(&[url], &[]);
    let first = Sidecar::to(&[format!("h2c://{}", last.clear)], &[]);
    let told = first.ask(
        "POST /a?b HTTP/1.1\r\nhost: a\r\nte: trailers\r\nconnection: te, close\r\ntransfer-encoding: chunked\r\n\r\n\
         1\r\nx\r\n0\r\nx-sum: 9\r\n\r\n",
    );
    assert!(told.ends_with("2\r\nhi\r\n0\r\ngrpc-status: 0\r\n\r\n"), "{told}");
    let head = heads.recv_timeout(DEADLINE).expect("a request");
    assert!(head.starts_with("POST /a?b HTTP/1.1\r\n") && head.contains("te: trailers\r\n"), "{head}");
    assert!(head.contains("connection: te\r\n") && head.contains("transfer-encoding: chunked\r\n"), "{head}");
}

#[test]
fn a_response_that_does_not_come_is_not_waited_for_longer_than_was_said() {
    let (url, _heads) = scripted(std::mem::forget);
    let folder = folder();
    let config = folder.path().join("sidecar.toml");
    let text = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\nservice = \"a\"\n[service.a]\ninstances = [\"{url}\"]\n[timeouts]\nresponse = \"200ms\"\n"
    );
    fs::write(&config, text).expect("a file");
    let told = Sidecar::with(&config).ask("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert!(told.starts_with("HTTP/1.1 504 ") && told.contains("within 200ms"), "{told}");
}

#[test]
fn it_passes_on_what_it_has_begun_before_it_ends() {
    let (url, heads) = scripted(|mut stream| {
        thread::sleep(Duration::from_millis(700)); // until it has been told to end
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\none"));
    });
    let sidecar = Sidecar::to(&[url], &[]);
    let mut stream = sidecar.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").expect("it reads");
    heads.recv_timeout(DEADLINE).expect("the request is under way");
    let last = sidecar.stop();
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("the whole response, and the end");
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("one"), "{response}");
    assert!(last.starts_with("1 request from 1 client connection "), "{last}");
}

#[test]
fn a_wrong_configuration_is_refused_with_what_to_write() {
    let folder = folder();
    let config = folder.path().join("sidecar.toml");
    for (text, words) in [
        ("", "add [[listen]]"),
        ("[[listen]]\naddress = \"127.0.0.1:0\"\nservice = \"a\"\n", "add [service.a]"),
        ("[service.a]\ninstances = [\"ftp://a\"]\n", "expected http://HOST:PORT"),
    ] {
        fs::write(&config, text).expect("a file");
        let refused = h2lab(&["sidecar", "--config", config.to_str().expect("a name")]);
        assert!(refused.code == Some(2) && refused.stderr.contains(words), "{}", refused.transcript());
    }
    for (arguments, words) in [
        (&["sidecar"][..], "--config"),
        (&["sidecar", "--listen", "127.0.0.1:0"], "for example --to h2c://127.0.0.1:8080"),
        (&["sidecar", "--to", "http://a"], "for example --listen 127.0.0.1:15001"),
        (
            &["sidecar", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:80"],
            "expected http://HOST:PORT (HTTP/1.1)",
        ),
        (
            &["sidecar", "--listen", "127.0.0.1:0", "--to", "http://a", "--policy", "fixed:0"],
            "invalid policy",
        ),
    ] {
        let refused = h2lab(arguments);
        assert!(refused.code == Some(2) && refused.stderr.contains(words), "{}", refused.transcript());
    }
}

/// A server of WebSocket over HTTP/1.1 that sends back every byte.
pub fn websocket_echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            thread::spawn(move || {
                let head = head_of(&mut stream);
                let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: "));
                let accept = h2lab_proxy::websocket::accept(key.unwrap_or_default().as_bytes());
                let answer = format!(
                    "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: WebSocket\r\n\
                     sec-websocket-accept: {accept}\r\nsec-websocket-protocol: chat\r\n\r\n"
                );
                let is_asked =
                    head.starts_with("GET /chat HTTP/1.1\r\n") && head.contains("upgrade: websocket\r\n");
                let refusal = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                let _ = stream.write_all(if is_asked { answer.as_bytes() } else { refusal.as_bytes() });
                let mut piece = [0; 16 * 1024];
                while let Ok(n @ 1..) = stream.read(&mut piece) {
                    if stream.write_all(&piece[..n]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    url
}

/// The next head on a connection.
fn head_of(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => break,
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

#[test]
fn a_websocket_passes_over_either_version_and_its_bytes_are_nobodys_requests() {
    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
    let server = websocket_echo();
    let direct = Sidecar::to(&[server], &[]);
    let over_http2 = Sidecar::to(&[format!("h2c://{}", direct.clear)], &[]);
    for sidecar in [&direct, &over_http2] {
        let mut stream = sidecar.connect();
        let request = format!(
            "GET /chat HTTP/1.1\r\nhost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let head = head_of(&mut stream).to_lowercase();
        assert!(head.starts_with("http/1.1 101 ") && head.contains("\r\nupgrade: websocket\r\n"), "{head}");
        assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{head}");
        assert!(head.contains("sec-websocket-protocol: chat\r\n"), "{head}");
        // More than all buffers on the path hold, of bytes that look like a request.
        let sent = b"GET / HTTP/1.1\r\nhost: b\r\n\r\n".repeat(100_000);
        let mut writer = stream.try_clone().expect("a descriptor");
        let copy = sent.clone();
        let writing = thread::spawn(move || writer.write_all(&copy).expect("it takes all"));
        let mut echo = vec![0; sent.len()];
        stream.read_exact(&mut echo).expect("all of it");
        writing.join().expect("it wrote");
        assert!(echo == sent);
        stream.shutdown(std::net::Shutdown::Write).expect("it is connected");
        assert_eq!(stream.read(&mut [0; 1]).expect("the end"), 0);
    }
    assert!(over_http2.stop().starts_with("1 request from 1 client connection "));
}

#[test]
fn a_websocket_that_is_not_taken_is_answered_as_any_request() {
    let (url, _heads) = scripted(|mut stream| {
        drop(stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno"));
    });
    let direct = Sidecar::to(&[url], &[]);
    let over_http2 = Sidecar::to(&[format!("h2c://{}", direct.clear)], &[]);
    for sidecar in [&direct, &over_http2] {
        let told = sidecar.ask(
            "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade, close\r\nupgrade: websocket\r\nsec-websocket-key: x\r\n\r\n",
        );
        assert!(told.starts_with("HTTP/1.1 403 ") && told.ends_with("no"), "{told}");
    }
}
