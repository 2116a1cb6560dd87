//! Bounds of the sidecar: memory with many slow readers, the rest of requests that were answered early, requests that
//! are too much for an instance.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use h2lab_wire::ErrorCode;
use h2lab_wire::h2::frame::{flag, kind};

use crate::hostile::attacker::{Attacker, frame, read_frame, request};
use crate::origin::Origin;
use crate::sidecar::{Sidecar, scripted};
use crate::sidecar_guard::{CODE_OF_RELEASE, get, response, server};
use crate::support::{DEADLINE, allocated_bytes, binary, folder};

/// A sidecar for the service `a`, with these additions to its file.
fn sidecar(top: &str, instance: &str, more: &str) -> Sidecar {
    let folder = folder();
    let path = folder.path().join("sidecar.toml");
    let text = format!(
        "{top}\n[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n[service.a]\ninstances = ['{instance}']\n{more}\n"
    );
    fs::write(&path, text).expect("a file");
    let mut command = Command::new(binary());
    command.arg("sidecar").arg("--config").arg(path);
    Sidecar::run(command)
}

/// The head of a response, and its body as far as content-length says.
fn read_response(stream: &mut TcpStream) -> String {
    let (mut told, mut byte) = (Vec::new(), [0]);
    while !told.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        told.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&told).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    let _ = stream.read_exact(&mut body);
    head + &String::from_utf8_lossy(&body)
}

#[test]
fn hundreds_who_do_not_read_hold_little_and_others_are_served() {
    let origin = Origin::start(&[]);
    let log = folder();
    let file = log.path().join("log");
    let more = format!("[log]\nfile = '{}'", file.display());
    for scheme in ["h2c", "http"] {
        let sidecar = sidecar("threads = 2\nmemory = '80M'", &format!("{scheme}://{}", origin.clear), &more);
        let (mut readers, mut largest, mut served) = (Vec::new(), 0, 0);
        for _ in 0..600 {
            let mut reader = sidecar.connect();
            if reader.write_all(b"GET /bytes/300000000 HTTP/1.1\r\nhost: a\r\n\r\n").is_ok() {
                readers.push(reader);
            }
            largest = allocated_bytes(&sidecar.child).max(largest);
            served += u32::from(sidecar.ask(&get("/status/200", "")).starts_with("HTTP/1.1 200 "));
        }
        println!("{scheme}: {served} of 600 served, {largest} bytes at most");
        assert!(largest + CODE_OF_RELEASE < 80 << 20, "{scheme}: {largest} bytes");
        // All of them connect within a second, in which no client counts as slow yet. With a window of 256 KiB for each
        // there was room for 150.
        assert!(served > 300, "{scheme}: {served} of 600");
        // Nobody waits long once the clients that take nothing are gone, however many connected.
        let until = Instant::now() + DEADLINE;
        while !sidecar.ask(&get("/status/200", "")).starts_with("HTTP/1.1 200 ") {
            assert!(Instant::now() < until, "{scheme}: nobody is served");
        }
        drop(readers);
        sidecar.stop();
        let text = fs::read_to_string(&file).expect("a log");
        let shed = text.lines().filter(|line| line.contains("memory is short")).count();
        println!("{scheme}: {shed} were ended");
    }
}

#[test]
fn the_next_request_of_a_client_is_answered_although_the_one_before_was_refused_early() {
    let url =
        server(|head| head.starts_with("POST").then(|| response(413, "no")).or(Some(response(200, "yes"))));
    let sidecar = sidecar("", &url, "");
    let mut client = sidecar.connect();
    for _ in 0..3 {
        client.write_all(b"POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n").expect("it reads");
        let told = read_response(&mut client);
        assert!(told.starts_with("http/1.1 413 ") && !told.contains("connection: close"), "{told}");
        client.write_all(&vec![b'x'; 100_000]).expect("it reads the rest");
        client.write_all(b"GET /b HTTP/1.1\r\nhost: a\r\n\r\n").expect("it reads");
        assert!(read_response(&mut client).starts_with("http/1.1 200 "));
    }
    client.write_all(b"POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 9000000\r\n\r\n").expect("it reads");
    let told = read_response(&mut client);
    assert!(told.starts_with("http/1.1 413 ") && told.contains("connection: close\r\n"), "{told}");
}

#[test]
fn the_sidecars_own_answer_to_a_request_whose_body_is_to_come_loses_no_other() {
    let url = server(|_| Some(response(200, "yes")));
    let sidecar = sidecar("", &url, "[service.a.rate]\nper-second = 1\nburst = 1");
    let mut client = sidecar.connect();
    client.write_all(b"GET /a HTTP/1.1\r\nhost: a\r\n\r\n").expect("it reads");
    read_response(&mut client);
    let until = Instant::now() + DEADLINE;
    // On a busy machine a second may pass between two requests.
    loop {
        client.write_all(b"POST /b HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\n\r\n").expect("it reads");
        let told = read_response(&mut client);
        client.write_all(b"abcdefGET /c HTTP/1.1\r\nhost: a\r\n\r\n").expect("it reads");
        let next = read_response(&mut client);
        assert!(next.starts_with("http/1.1 "), "lost behind {told}");
        if told.starts_with("http/1.1 429 ") {
            return;
        }
        assert!(Instant::now() < until, "it is never refused");
    }
}

/// An HTTP/2 instance that ends the connection of each request with `ENHANCE_YOUR_CALM`, and reports when it got one.
fn calming() -> (String, mpsc::Receiver<()>) {
    let (seen, requests) = mpsc::channel();
    let seen = std::sync::Mutex::new(seen);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("h2c://{}", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut preface = [0; 24];
            if stream.read_exact(&mut preface).is_err() {
                continue;
            }
            let _ = stream.write_all(&frame(kind::SETTINGS, 0, 0, &[]));
            while let Ok((header, _)) = read_frame(&mut stream) {
                if header.kind == kind::HEADERS {
                    let _ = seen.lock().expect("no panic").send(());
                    let code = ErrorCode::ENHANCE_YOUR_CALM.0;
                    let last = [header.stream.to_be_bytes(), code.to_be_bytes()].concat();
                    let _ = stream.write_all(&frame(kind::GOAWAY, 0, 0, &last));
                    break;
                }
            }
        }
    });
    (url, requests)
}

#[test]
fn a_request_that_is_too_much_for_an_instance_ends_one_connection_and_is_not_sent_again() {
    let (url, requests) = calming();
    let sidecar = sidecar("", &url, "");
    let told = sidecar.ask(&get("/", ""));
    assert!(told.starts_with("HTTP/1.1 502 ") && told.contains("because of excessive load"), "{told}");
    assert_eq!(requests.try_iter().count(), 1);
}

#[test]
fn a_malformed_request_and_a_missing_proxy_header_are_logged() {
    let origin = Origin::start(&[]);
    let instance = format!("http://{}", origin.clear);
    let sidecar = sidecar("", &instance, "[log]\nfile = '-'");
    let mut client = Attacker::new(sidecar.clear);
    let block =
        [crate::hostile::attacker::block("GET", "/"), b"\x00\x0aconnection\x05close".to_vec()].concat();
    client.send(&frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &block));
    client.send(&request(3, flag::END_STREAM, "GET", "/status/200"));
    client.finish(1);
    let line =
        sidecar.child.wait_for_line(DEADLINE, |line| line.contains("connection").then(|| line.to_owned()));
    assert!(line.is_ok_and(|line| line.contains("127.0.0.1")), "{}", sidecar.child.log());

    let text = format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\nproxy-protocol = true\n[service.a]\ninstances = ['{instance}']\n\
         [log]\nfile = '-'\n"
    );
    let folder = folder();
    let path = folder.path().join("sidecar.toml");
    fs::write(&path, text).expect("a file");
    let proxied = Sidecar::with(&path);
    proxied.ask(&get("/", ""));
    let line = proxied
        .child
        .wait_for_line(DEADLINE, |line| line.contains("invalid PROXY protocol header").then_some(()));
    assert!(line.is_ok(), "{}", proxied.child.log());
}

#[test]
fn an_instance_that_ignores_an_upgrade_is_no_open_websocket() {
    let url = server(|_| Some(response(200, "a page")));
    let sidecar = sidecar("", &url, "");
    // An HTTP/1.1 client gets the page.
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAA\r\n";
    let mut client = sidecar.connect();
    client.write_all(format!("GET / HTTP/1.1\r\nhost: a\r\n{upgrade}\r\n").as_bytes()).expect("it reads");
    assert!(read_response(&mut client).starts_with("http/1.1 200 "));
    // An instance that accepts the upgrade without `Sec-WebSocket-Accept` is not a WebSocket either.
    let (url, _heads) = scripted(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 101 X\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
    });
    let sidecar = Sidecar::to(&[url], &[]);
    let mut client = sidecar.connect();
    client.write_all(format!("GET / HTTP/1.1\r\nhost: a\r\n{upgrade}\r\n").as_bytes()).expect("it reads");
    let told = read_response(&mut client);
    assert!(told.starts_with("http/1.1 502 ") && told.contains("http_upgrade_failed"), "{told}");
}
