//! Health checks of instances whose connections are all in use.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use h2lab_wire::ErrorCode;
use h2lab_wire::h2::frame::{PREFACE, flag, kind};
use h2lab_wire::h2::inspect::FieldBlocks;

use crate::hostile::attacker::{Frames, frame};
use crate::hostile::server::served;
use crate::sidecar::Sidecar;
use crate::sidecar_guard::{get, response};
use crate::sidecar_reload::until;
use crate::support::folder;

/// The connections and requests of an instance.
#[derive(Default)]
struct Seen {
    /// Connections that are open.
    open: AtomicUsize,
    checks: AtomicUsize,
    /// Other requests, which are never answered.
    others: AtomicUsize,
}

impl Seen {
    /// Whether a request for this path is answered.
    fn is_check(&self, path: &[u8]) -> bool {
        let is_check = path == b"/healthz";
        let count = if is_check { &self.checks } else { &self.others };
        count.fetch_add(1, Ordering::SeqCst);
        is_check
    }
}

/// An instance with this behaviour on each connection.
fn instance(scheme: &str, serve: fn(TcpStream, &Seen)) -> (String, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("{scheme}://{}", listener.local_addr().expect("an address"));
    let seen = Arc::new(Seen::default());
    let all = Arc::clone(&seen);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, seen) = (stream.expect("a connection"), Arc::clone(&all));
            thread::spawn(move || {
                seen.open.fetch_add(1, Ordering::SeqCst);
                serve(stream, &seen);
                seen.open.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    (url, seen)
}

fn http1(mut stream: TcpStream, seen: &Seen) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while let Ok(1) = stream.read(&mut byte) {
        head.push(byte[0]);
        if head.ends_with(b"\r\n\r\n") {
            let path = head.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
            if seen.is_check(path) && stream.write_all(response(200, "ok").as_bytes()).is_err() {
                return;
            }
            head.clear();
        }
    }
}

/// It takes one request at a time on a connection.
fn http2(stream: TcpStream, seen: &Seen) {
    serve_http2(stream, seen, |_| true);
}

/// It does not process every second check.
fn refusing(stream: TcpStream, seen: &Seen) {
    serve_http2(stream, seen, |n| n % 2 == 0);
}

/// `serves`: whether the n-th check is processed.
fn serve_http2(mut stream: TcpStream, seen: &Seen, serves: fn(usize) -> bool) {
    let mut answers = stream.try_clone().expect("a descriptor");
    let one_stream = [0, 3, 0, 0, 0, 1];
    let greeting = [frame(kind::SETTINGS, 0, 0, &one_stream), frame(kind::SETTINGS, flag::ACK, 0, &[])];
    if stream.read_exact(&mut [0; PREFACE.len()]).is_err() || answers.write_all(&greeting.concat()).is_err() {
        return;
    }
    let mut blocks = FieldBlocks::default();
    for (header, payload) in Frames(stream).filter(|(header, _)| header.kind == kind::HEADERS) {
        let (fields, _) = blocks.decode(&payload).expect("a field block");
        let path = fields.iter().find(|field| field.name == b":path");
        if !seen.is_check(path.map(|field| field.value).unwrap_or_default()) {
            continue;
        }
        let refused = ErrorCode::REFUSED_STREAM.0.to_be_bytes();
        let _ = answers.write_all(&if serves(seen.checks.load(Ordering::SeqCst)) {
            served(header.stream)
        } else {
            frame(kind::RST_STREAM, 0, header.stream, &refused)
        });
    }
}

/// A check that fails, or is an hour late, puts the instance out of use. Clients have one connection.
fn sidecar(url: &str) -> Sidecar {
    let folder = folder();
    let file = folder.path().join("sidecar.toml");
    let text = format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n[service.a]\ninstances = ['{url}']\n\
         health = {{ path = '/healthz', interval = '100ms', timeout = '1h', unhealthy = 1 }}\n\
         limits = {{ connections = 1, wait = '1h' }}\ntimeouts = {{ response = '1h' }}\n"
    );
    fs::write(&file, text).expect("a file");
    Sidecar::with(&file) // it has read it once it listens
}

/// As in Envoy and `HAProxy`: long requests on all connections that clients may have do not show that the instance
/// fails.
#[test]
fn a_check_has_a_connection_of_its_own_where_clients_use_all_of_them() {
    for (scheme, serve) in [("http", http1 as fn(TcpStream, &Seen)), ("h2c", http2)] {
        let (url, seen) = instance(scheme, serve);
        let sidecar = sidecar(&url);
        let ask = || {
            let mut client = sidecar.connect();
            client.write_all(get("/long", "").as_bytes()).expect("it reads");
            client
        };
        let told = || {
            let [open, checks, others] =
                [&seen.open, &seen.checks, &seen.others].map(|count| count.load(Ordering::SeqCst));
            format!("{scheme}: {open} connections, {checks} checks, {others} others: {}", sidecar.child.log())
        };
        // How many streams an instance accepts is known when the first check has been answered.
        until(|| seen.checks.load(Ordering::SeqCst) >= 2, told);
        let clients = [ask(), ask()];
        until(|| seen.others.load(Ordering::SeqCst) == 1, told);
        let before = seen.checks.load(Ordering::SeqCst);
        until(|| seen.checks.load(Ordering::SeqCst) >= before + 4, told);
        assert_eq!(seen.others.load(Ordering::SeqCst), 1, "no connection is for the second one: {}", told());
        until(|| seen.open.load(Ordering::SeqCst) == 1, told); // between two checks
        assert!(!sidecar.child.log().contains("out of use"), "{}", told());
        drop(clients);
    }
}

#[test]
fn a_check_that_an_instance_has_not_processed_says_nothing_of_it() {
    let (url, seen) = instance("h2c", refusing);
    let sidecar = sidecar(&url);
    let told = || sidecar.child.log();
    until(|| seen.checks.load(Ordering::SeqCst) >= 8, told);
    assert!(!told().contains("out of use"), "{}", told());
}
