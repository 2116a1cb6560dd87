//! The flags that every command has which makes requests: one spelling, one meaning.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::origin::Origin;
use crate::support::{folder, h2lab};

/// Commands that ask a URL once, without it.
const COMMANDS: [&[&str]; 4] = [
    &["load", "--json", "-n1", "--no-store", "--quiet"],
    &["bulk", "get", "--json", "--discard"],
    &["timeline", "--json"],
    &["trace", "--json"],
];

#[test]
fn a_protocol_has_the_same_names_in_every_command() {
    let origin = Origin::start(&["--h3", "--h2c-upgrade"]);
    let urls = [format!("http://{}/bytes/10", origin.clear), format!("https://{}/bytes/10", origin.tls)];
    for (flag, spoken) in [
        ("--http1.1", [Some("h1"), Some("h1s")]),
        ("--http2", [Some("h2c"), Some("h2")]),
        ("--http2-prior-knowledge", [Some("h2c"), Some("h2")]),
        ("--h2c", [Some("h2c"), None]),
        ("--http3", [None, Some("h3")]),
        ("--proto=h2c", [Some("h2c"), None]),
        ("--h2c-mode=upgrade", [Some("h2c"), None]),
    ] {
        for (url, protocol) in urls.iter().zip(spoken) {
            for command in COMMANDS {
                let finished = h2lab(&[command, &["-k", flag, url]].concat());
                let Some(protocol) = protocol else {
                    assert_eq!(finished.code, Some(2), "{}", finished.transcript());
                    continue;
                };
                assert_eq!(finished.json()["protocol"], protocol, "{}", finished.transcript());
            }
        }
    }
}

/// Sends the heads of requests to `tell` and answers each with a byte.
fn answer(mut stream: impl Read + Write, tell: &Sender<String>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer) {
            Ok(n) if n > 0 => head.extend_from_slice(&buffer[..n]),
            _ => return, // a probe that only checks whether somebody listens
        }
    }
    // The test may have enough, and the client may have gone.
    let _ = tell.send(String::from_utf8_lossy(&head).to_ascii_lowercase());
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\nconnection: close\r\n\r\nx");
}

fn next_head(heads: &Receiver<String>) -> String {
    let head = heads.recv().expect("a request");
    while heads.try_recv().is_ok() {} // for commands that request more than once
    head
}

#[test]
fn header_fields_go_with_the_requests_of_every_command() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, heads) = channel();
    std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| answer(stream, &tell)));
    let servers = format!("--servers=http://{address}/x");
    let drive = ["bulk", "drive", "--clients=local", &servers, "--concurrency=1", "-z3s", "--json"];
    let url = format!("http://{address}/x");
    let one: Vec<Vec<&str>> = COMMANDS.iter().map(|command| [*command, &[url.as_str()]].concat()).collect();
    for command in one.into_iter().chain([drive.to_vec()]) {
        let flags =
            ["--http1.1", "-HX-Tenant: a", "-HHost: b.test", "-HUser-Agent: c", "-ume:secret", "-bk=v"];
        let finished = h2lab(&[command.as_slice(), &flags].concat());
        let head = next_head(&heads);
        for line in [
            "get /x http/1.1",
            "x-tenant: a",
            "host: b.test",
            "user-agent: c",
            "authorization: basic bwu6c2vjcmv0",
            "cookie: k=v",
        ] {
            let count = head.lines().filter(|its| *its == line).count();
            assert_eq!(count, 1, "{line} in {head}{}", finished.transcript());
        }
        assert_eq!(head.matches("\r\nhost:").count(), 1, "{head}");
        assert_eq!(head.matches("\r\nuser-agent:").count(), 1, "{head}");
    }
}

#[test]
fn a_unix_socket_takes_the_place_of_the_network_in_every_command() {
    let folder = folder();
    let path = folder.path().join("web.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let (tell, heads) = channel();
    std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| answer(stream, &tell)));
    for command in COMMANDS {
        let flags = ["--http1.1", "--unix-socket", path.to_str().unwrap(), "http://service.example/x"];
        let finished = h2lab(&[command, &flags].concat());
        finished.assert_measured();
        assert!(next_head(&heads).contains("host: service.example"));
    }
}
