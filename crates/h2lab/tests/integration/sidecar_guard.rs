//! What the sidecar does about instances that fail or are slow, too many callers, and its own memory.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use h2lab_wire::h2::frame::{PREFACE, flag, kind};

use crate::hostile::attacker::{Frames, frame};
use crate::origin::Origin;
use crate::sidecar::Sidecar;
use crate::support::{DEADLINE, allocated_bytes, closed_port, folder};

/// The code of a release that is resident, in bytes.
pub const CODE_OF_RELEASE: u64 = 12 << 20;

/// A response with this status and body.
pub fn response(status: u16, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// An HTTP/1.1 server; `answer` gets each head, and if it returns `None` the server sends nothing until the client has
/// closed.
pub fn server(answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answer) = (stream.expect("a connection"), Arc::clone(&answer));
            thread::spawn(move || {
                let mut head = Vec::new();
                let mut byte = [0];
                while let Ok(1) = stream.read(&mut byte) {
                    head.push(byte[0]);
                    if head.ends_with(b"\r\n\r\n") {
                        let text = String::from_utf8_lossy(&std::mem::take(&mut head)).into_owned();
                        if let Some(answer) = answer(&text)
                            && stream.write_all(answer.as_bytes()).is_err()
                        {
                            return;
                        }
                    }
                }
            });
        }
    });
    url
}

/// A sidecar for the service `users` with these instances; `more` follows `[service.users]`, and `top` is before all tables.
fn sidecar(top: &str, instances: &[&str], more: &str) -> Sidecar {
    let folder = folder();
    let config = folder.path().join("sidecar.toml");
    let text = format!(
        "{top}\n[[listen]]\naddress = \"127.0.0.1:0\"\nservice = \"users\"\n[service.users]\ninstances = {instances:?}\n{more}\n"
    );
    fs::write(&config, text).expect("a file");
    Sidecar::with(&config) // it has read it once it listens
}

/// A request that is the last one of its connection.
pub fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{fields}\r\n")
}

#[test]
fn the_client_learns_what_failed_and_the_operator_where() {
    let (_socket, closed) = closed_port();
    let sidecar = sidecar("", &[&format!("http://{closed}")], "");
    let told = sidecar.ask(&get("/", ""));
    let status = "proxy-status: h2lab; error=connection_refused; details=\"service users is unreachable: connection refused\"";
    assert!(told.starts_with("HTTP/1.1 502 ") && told.to_lowercase().contains(status), "{told}");
    assert!(!told.contains("127.0.0.1"), "an address: {told}");
    let line = sidecar.child.wait_for_line(DEADLINE, |line| {
        line.strip_prefix("service users: cannot connect to ").map(str::to_owned)
    });
    assert!(line.expect("the operator is told").starts_with(&format!("http://{closed}: ")));
    let told = sidecar.ask(&get("/", "content-type: application/grpc+proto\r\n")).to_lowercase();
    assert!(told.starts_with("http/1.1 200 ") && told.contains("\r\ngrpc-status: 14\r\n"), "{told}");
    assert!(told.contains("grpc-message: service users is unreachable"), "{told}");
}

#[test]
fn a_grpc_deadline_bounds_the_wait_here_too() {
    let url = server(|_| None);
    let told = sidecar("", &[&url], "")
        .ask(&get("/a.B/C", "content-type: application/grpc\r\ngrpc-timeout: 300m\r\n"));
    let lower = told.to_lowercase();
    assert!(lower.starts_with("http/1.1 200 ") && lower.contains("\r\ngrpc-status: 4\r\n"), "{told}");
    assert!(lower.contains("content-type: application/grpc\r\n"), "{told}");
}

#[test]
fn times_of_a_service_go_before_the_general_ones() {
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf";
    let url = server(move |head| head.starts_with("GET /half ").then(|| half.to_owned()));
    let times =
        "[service.users.timeouts]\nresponse = \"200ms\"\nstream = \"300ms\"\n[timeouts]\nresponse = \"1h\"";
    let sidecar = sidecar("", &[&url], times);
    let late = sidecar.ask(&get("/", ""));
    assert!(
        late.starts_with("HTTP/1.1 504 ")
            && late.contains("service users: no response from an instance within 200ms"),
        "{late}"
    );
    assert!(late.contains("error=http_response_timeout"), "{late}");
    let cut = sidecar.ask(&get("/half", ""));
    assert!(cut.starts_with("HTTP/1.1 200 ") && cut.ends_with("half"), "the connection has ended: {cut}");
    let silent = sidecar.ask("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhalf");
    assert!(silent.starts_with("HTTP/1.1 408 "), "{silent}");
    assert!(sidecar.stop().contains("2 answered with an error by the sidecar, 1 aborted"));
}

#[test]
fn the_whole_of_a_request_is_bounded_however_much_of_it_moves() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
            while stream.write_all(b"1\r\nx\r\n").is_ok() {
                thread::sleep(Duration::from_millis(5));
            }
        }
    });
    let told = sidecar("", &[&url], "timeouts = { request = \"400ms\" }").ask(&get("/", ""));
    assert!(!told.ends_with("0\r\n\r\n"), "it broke off: {told}");
}

#[test]
fn an_idle_client_is_sent_away_over_http2_in_two_steps() {
    let url = server(|_| Some(response(200, "ok")));
    let sidecar = sidecar("", &[&url], "[timeouts]\nclient-idle = \"300ms\"");
    let mut stream = sidecar.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").expect("it reads");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).expect("the response, and then the end");
    assert!(rest.ends_with("ok"), "{rest}");
    // The end is announced first, and then carried out.
    let mut stream = sidecar.connect();
    assert_eq!(last_streams_of_one_that_is_idle(&mut stream), [i32::MAX as u32, 0]);
    // A connection that begins as HTTP/1.1 is treated the same.
    let mut stream = sidecar.connect();
    let offer = "GET / HTTP/1.1\r\nhost: a\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n\
                 http2-settings: AAMAAABkAAQAAP__\r\n\r\n";
    stream.write_all(offer.as_bytes()).expect("it reads");
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    assert_eq!(last_streams_of_one_that_is_idle(&mut stream), [i32::MAX as u32, 1]);
}

/// Begins HTTP/2 on this connection, and sends nothing more: returns the last streams of the GOAWAY frames until the
/// connection ends.
fn last_streams_of_one_that_is_idle(stream: &mut TcpStream) -> Vec<u32> {
    let greeting =
        [&PREFACE[..], &frame(kind::SETTINGS, 0, 0, &[]), &frame(kind::SETTINGS, flag::ACK, 0, &[])];
    stream.write_all(&greeting.concat()).expect("it reads");
    Frames(stream.try_clone().expect("a file"))
        .filter(|(header, _)| header.kind == kind::GOAWAY)
        .map(|(_, payload)| u32::from_be_bytes(payload[..4].try_into().expect("four bytes")))
        .collect()
}

#[test]
fn a_status_is_retried_where_that_is_asked_for_and_within_the_budget() {
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let url = server(move |_| {
        let n = count.fetch_add(1, Ordering::SeqCst);
        if n % 3 < 2 { Some(response(503, "no")) } else { Some(response(200, "yes")) }
    });
    let patient = sidecar("", &[&url], "retry = { on = [\"503\"], per-second = 100 }");
    let told = patient.ask(&get("/", ""));
    assert!(told.starts_with("HTTP/1.1 200 ") && seen.load(Ordering::SeqCst) == 3, "{told}");
    let post = "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let told = patient.ask(post);
    assert!(told.starts_with("HTTP/1.1 503 ") && seen.load(Ordering::SeqCst) == 4, "a POST is not: {told}");
    drop(patient);
    seen.store(0, Ordering::SeqCst);
    let poor = sidecar("", &[&url], "retry = { on = [\"503\"], budget = 0, per-second = 0 }");
    let told = poor.ask(&get("/", ""));
    assert!(told.starts_with("HTTP/1.1 503 ") && seen.load(Ordering::SeqCst) == 1, "{told}");
}

#[test]
fn more_than_a_service_may_have_under_way_is_refused_at_once() {
    let url = server(|head| if head.starts_with("GET /hang ") { None } else { Some(response(200, "ok")) });
    let sidecar = sidecar("", &[&url], "limits = { open = 2 }");
    let hanging: Vec<TcpStream> = (0..2)
        .map(|_| {
            let mut stream = sidecar.connect();
            stream.write_all(get("/hang", "").as_bytes()).expect("it reads");
            stream
        })
        .collect();
    let until = Instant::now() + DEADLINE;
    let told = loop {
        // Until both are under way.
        let told = sidecar.ask(&get("/", ""));
        if told.starts_with("HTTP/1.1 503 ") || Instant::now() > until {
            break told;
        }
    };
    assert!(told.contains("retry-after: 1\r\n") && told.contains("error=connection_limit_reached"), "{told}");
    drop(hanging);
    while !sidecar.ask(&get("/", "")).starts_with("HTTP/1.1 200 ") {
        assert!(Instant::now() < until, "they are over, and still count");
    }
}

#[test]
fn no_more_wait_than_may_and_none_longer_than_it_may() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let url = server(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        None
    });
    let until = Instant::now() + DEADLINE;
    let hang = |sidecar: &Sidecar| {
        let mut stream = sidecar.connect();
        stream.write_all(get("/", "").as_bytes()).expect("it reads");
        stream
    };
    // One request hangs on the only connection, so that all others wait.
    let hang_on_the_only_connection = |sidecar: &Sidecar| {
        let before = asked.load(Ordering::SeqCst);
        let stream = hang(sidecar);
        while asked.load(Ordering::SeqCst) == before {
            assert!(Instant::now() < until, "the instance gets it");
            thread::yield_now();
        }
        stream
    };
    let call = |time: &str| get("/", &format!("content-type: application/grpc\r\ngrpc-timeout: {time}\r\n"));
    let long = sidecar("", &[&url], "limits = { connections = 1, waiting = 1, wait = \"1h\" }");
    let mut hanging = vec![hang_on_the_only_connection(&long)];
    // If a call comes before the hanging request waits, the call waits in its place for 100 ms, and the hanging request
    // is refused. Then another one takes the place.
    while {
        hanging.push(hang(&long));
        !long.ask(&call("100m")).contains("1 waiting for a connection (limits.waiting)")
    } {
        assert!(Instant::now() < until, "one waits, and another one may");
    }
    let short = sidecar("", &[&url], "limits = { connections = 1, wait = \"300ms\" }");
    let _hanging = hang_on_the_only_connection(&short);
    let late = "service users: no connection to an instance was available within 300ms";
    while !short.ask(&call("1H")).contains(late) {
        assert!(Instant::now() < until, "it waits for ever");
    }
}

#[test]
fn requests_that_come_too_fast_are_told_when_to_come_again() {
    let url = server(|_| Some(response(200, "ok")));
    for rate in ["rate = { per-second = 1 }", "rate = { per-second = 1, key = \"client\" }"] {
        let sidecar = sidecar("", &[&url], rate);
        let mut stream = sidecar.connect();
        let requests = "GET / HTTP/1.1\r\nhost: a\r\n\r\n".repeat(49) + &get("/", "");
        stream.write_all(requests.as_bytes()).expect("it reads");
        let mut told = String::new();
        stream.read_to_string(&mut told).expect("all responses");
        assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
        assert!(told.contains("HTTP/1.1 429 ") && told.contains("retry-after: 1\r\n"), "{told}");
        assert!(told.contains("error=http_request_denied"), "{told}");
    }
}

#[test]
fn what_no_service_takes_counts_for_the_rate_of_the_listener() {
    let folder = folder();
    let config = folder.path().join("sidecar.toml");
    let text = "[[listen]]\naddress = '127.0.0.1:0'\nroute = [{ path = '/users', service = 'users' }]\nrate = { per-second = 1 }\n\
                [service.users]\ninstances = ['http://127.0.0.1:9']\n";
    fs::write(&config, text).expect("a file");
    let sidecar = Sidecar::with(&config);
    let mut stream = sidecar.connect();
    let requests = "GET / HTTP/1.1\r\nhost: a\r\n\r\n".repeat(49) + &get("/", "");
    stream.write_all(requests.as_bytes()).expect("it reads");
    let mut told = String::new();
    stream.read_to_string(&mut told).expect("all responses");
    assert!(told.starts_with("HTTP/1.1 404 "), "{told}");
    assert!(
        told.contains("HTTP/1.1 429 ") && told.contains("rate limit of this listener exceeded"),
        "{told}"
    );
}

#[test]
fn an_instance_that_fails_again_and_again_is_left_out() {
    let bad = server(|_| Some(response(503, "bad")));
    let good = server(|_| Some(response(200, "good")));
    let sidecar = sidecar("", &[&bad, &good], "outlier = { consecutive = 3, base = \"1h\", most = \"1h\" }");
    let left_out = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !left_out.load(Ordering::SeqCst) {
                sidecar.ask(&get("/", ""));
            }
        });
        let line = sidecar
            .child
            .wait_for_line(DEADLINE, |line| line.contains("ejected for").then(|| line.to_owned()));
        left_out.store(true, Ordering::SeqCst);
        let line = line.expect("the operator is told");
        assert!(line.contains(&bad) && line.contains("after 3 consecutive failures"), "{line}");
    });
    for _ in 0..20 {
        let told = sidecar.ask(&get("/", ""));
        assert!(told.ends_with("good"), "{told}");
    }
}

#[test]
fn an_instance_that_is_not_well_is_not_asked_until_it_is() {
    let is_well = Arc::new(AtomicBool::new(false));
    let says = Arc::clone(&is_well);
    let sick = server(move |head| {
        let is_check = head.starts_with("GET /healthz ");
        Some(response(if is_check && !says.load(Ordering::SeqCst) { 500 } else { 200 }, "sick"))
    });
    let other = server(|_| Some(response(200, "other")));
    let health = "health = { path = \"/healthz\", interval = \"100ms\", timeout = \"1h\", unhealthy = 2 }";
    let sidecar = sidecar("", &[&sick, &other], health);
    let wait = |words: &str| {
        let line =
            sidecar.child.wait_for_line(DEADLINE, |line| line.contains(words).then(|| line.to_owned()));
        assert!(line.expect("the operator is told").contains(&sick));
    };
    wait("health check failed");
    for _ in 0..20 {
        let told = sidecar.ask(&get("/", ""));
        assert!(told.ends_with("other"), "{told}");
    }
    is_well.store(true, Ordering::SeqCst);
    wait("health check passed");
    let until = Instant::now() + DEADLINE;
    while !sidecar.ask(&get("/", "")).ends_with("sick") {
        assert!(Instant::now() < until, "it is never asked again");
    }
}

#[test]
fn memory_is_bounded_however_many_read_nothing() {
    let origin = Origin::start(&[]);
    let top = "memory = \"80M\"";
    let sidecar = sidecar(top, &[&format!("h2c://{}", origin.clear)], "");
    let mut readers: Vec<TcpStream> = Vec::new();
    let (mut largest, mut refused) = (0, None);
    for _ in 0..400 {
        let mut reader = sidecar.connect();
        let sent = reader.write_all(b"GET /bytes/300000000 HTTP/1.1\r\nhost: a\r\n\r\n");
        if sent.is_ok() {
            readers.push(reader);
        }
        largest = allocated_bytes(&sidecar.child).max(largest);
        let told = sidecar.ask(&get("/status/200", ""));
        if told.starts_with("HTTP/1.1 503 ") {
            refused = Some(told);
        }
    }
    if let Some(told) = refused {
        assert!(told.contains("retry-after: 1\r\n") && told.contains("memory limit reached"), "{told}");
    }
    assert!(largest + CODE_OF_RELEASE < 80 << 20, "{largest} bytes");
    drop(readers);
    let until = Instant::now() + DEADLINE;
    while !sidecar.ask(&get("/status/200", "")).starts_with("HTTP/1.1 200 ") {
        assert!(Instant::now() < until, "memory is free again");
    }
}

/// Bodies that are kept so that they can be sent again cannot be dropped: no client is slow, and no connection is
/// closed for them.
#[test]
fn requests_are_refused_while_what_is_under_way_takes_the_memory() {
    let origin = Origin::start(&[]);
    let sidecar = sidecar("memory = \"64M\"", &[&format!("h2c://{}", origin.clear)], "");
    let mut waiting: Vec<TcpStream> = Vec::new();
    let told = loop {
        assert!(waiting.len() < 800, "they are more than it has memory for, and none is refused");
        let mut client = sidecar.connect();
        client
            .write_all(b"POST /delay/600000 HTTP/1.1\r\nhost: a\r\ncontent-length: 60000\r\n\r\n")
            .expect("it reads");
        client.write_all(&vec![b'x'; 60_000]).expect("it reads");
        waiting.push(client);
        let told = sidecar.ask(&get("/status/200", ""));
        if !told.starts_with("HTTP/1.1 200 ") {
            break told;
        }
    };
    assert!(told.starts_with("HTTP/1.1 503 "), "{told}");
    assert!(told.contains("retry-after: 1\r\n") && told.contains("memory limit reached"), "{told}");
}
