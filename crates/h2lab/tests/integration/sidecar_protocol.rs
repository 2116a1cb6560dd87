//! How the sidecar handles features that differ between versions: CONNECT, limits of heads, responses without a body,
//! the order of 1xx.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use h2lab_base::units::Time;
use h2lab_wire::connection::Response;
use h2lab_wire::{Config, Connection, Event, Role};

use crate::sidecar::Sidecar;
use crate::support::{DEADLINE, folder};

const NOW: Time = Time::from_millis(1);

/// A sidecar with this file.
fn sidecar(text: &str) -> Sidecar {
    let folder = folder();
    let path = folder.path().join("sidecar.toml");
    fs::write(&path, text).expect("a file");
    Sidecar::with(&path)
}

/// A server that does not speak HTTP: it sends first, and sends back what it gets until its client has ended.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            thread::spawn(move || {
                let _ = stream.write_all(b"220 hello\n");
                let mut said = Vec::new();
                let _ = stream.read_to_end(&mut said);
                let _ = stream.write_all(&said);
            });
        }
    });
    address
}

/// An HTTP/2 server that accepts at most this many bytes of fields, and answers all requests with 200.
fn narrow(most: u32) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("h2c://{}", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let config = Config { max_header_list_size: most, ..Config::new(Role::Server) };
            let mut engine = Connection::h2(config, NOW);
            let mut space = [0; 16 * 1024];
            thread::spawn(move || {
                loop {
                    if stream.write_all(&engine.take_transmit(NOW)).is_err() {
                        return;
                    }
                    let n = stream.read(&mut space).unwrap_or(0);
                    if n == 0 {
                        return;
                    }
                    engine.handle_input(NOW, &space[..n]);
                    let mut asked = Vec::new();
                    while let Some(event) = engine.poll_event(NOW) {
                        if let Event::Request { stream, .. } = event {
                            asked.push(stream);
                        }
                    }
                    for stream in asked {
                        let response =
                            Response { status: 200, fields: &[], body_length: Some(0), end_stream: true };
                        engine.send_response(NOW, stream, &response);
                    }
                }
            });
        }
    });
    url
}

/// Sends a CONNECT; returns the answer up to the empty line.
fn connect(proxy: &Sidecar, target: &str) -> (TcpStream, String) {
    let mut stream = proxy.connect();
    write!(stream, "CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n").expect("it reads");
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).expect("in time") == 1 {
        head.push(byte[0]);
    }
    (stream, String::from_utf8_lossy(&head).into_owned())
}

#[test]
fn connect_leads_where_it_is_allowed_over_every_version() {
    let target = echo();
    let direct = sidecar(&format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\nconnect = ['{target}']\n[service.a]\ninstances = ['http://127.0.0.1:9']\n"
    ));
    let through = |scheme: &str| {
        sidecar(&format!(
            "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\nconnect = ['{target}']\nconnect-service = 'a'\n\
             [service.a]\ninstances = ['{scheme}://{}']\n",
            direct.clear
        ))
    };
    let [h1, h2] = [through("http"), through("h2c")];
    let long: Vec<u8> = (0..700_000_u32).map(|n| (n % 251) as u8).collect();
    for (name, proxy) in [("direct", &direct), ("h1", &h1), ("h2c", &h2)] {
        let (mut stream, head) = connect(proxy, &target.to_string());
        assert!(head.starts_with("HTTP/1.1 200 "), "{name}: {head}");
        let lower = head.to_lowercase();
        assert!(!lower.contains("content-length") && !lower.contains("transfer-encoding"), "{name}: {head}");
        let mut greeting = [0; 10];
        stream.read_exact(&mut greeting).expect("it speaks first");
        assert_eq!(&greeting, b"220 hello\n", "{name}");
        stream.write_all(&long).expect("it reads");
        stream.shutdown(Shutdown::Write).expect("it is connected");
        let mut said = Vec::new();
        stream.read_to_end(&mut said).expect("all of it");
        assert!(said == long, "{name}: {} bytes of {}", said.len(), long.len());
        let (_, head) = connect(proxy, "127.0.0.1:9");
        assert!(head.starts_with("HTTP/1.1 403 ") && head.contains("connection: close"), "{name}: {head}");
    }
    let none = sidecar(
        "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n[service.a]\ninstances = ['http://127.0.0.1:9']\n",
    );
    assert!(connect(&none, "127.0.0.1:9").1.starts_with("HTTP/1.1 501 "));
}

#[test]
fn a_target_of_connect_that_is_not_there_is_answered_502() {
    let (_socket, closed) = crate::support::closed_port();
    let proxy = sidecar(&format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\nconnect = ['{closed}']\n[service.a]\ninstances = ['http://127.0.0.1:9']\n"
    ));
    let (_, head) = connect(&proxy, &closed.to_string());
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
}

#[test]
fn a_head_that_is_wrong_or_too_large_is_answered_and_the_instance_keeps_its_connection() {
    let proxy = Sidecar::to(&[narrow(600)], &[]);
    let status = |target: &str, more: &str| {
        let told = proxy.ask(&format!("GET {target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{more}\r\n"));
        told.split(' ').nth(1).unwrap_or("closed").to_owned()
    };
    let large = format!("x-large: {}\r\n", "x".repeat(600));
    let many = "x-many: 1\r\n".repeat(300);
    // With the first request the sidecar learns what the instance accepts.
    assert_eq!(status("/", ""), "200");
    assert_eq!(status("/", &large), "431");
    assert_eq!(status("/", &many), "431");
    assert_eq!(status("/a b", ""), "400");
    assert_eq!(status(&format!("/{}", "x".repeat(70_000)), ""), "414");
    assert_eq!(status("/", &format!("x: {}\r\n", "x".repeat(70_000))), "431");
    assert_eq!(status("/", ""), "200");
    let last = proxy.stop();
    assert!(last.contains(" over 1 connection to instances"), "{last}");
}

#[test]
fn a_response_with_too_many_fields_is_answered_502_with_the_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let _ = stream.read(&mut [0; 4096]);
            let fields = "x-many: 1\r\n".repeat(300);
            let _ = write!(stream, "HTTP/1.1 200 OK\r\n{fields}content-length: 0\r\n\r\n");
            let _ = stream.read(&mut [0; 1]);
        }
    });
    let told = Sidecar::to(&[url], &[]).ask("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert!(told.starts_with("HTTP/1.1 502 ") && told.contains("error=http_protocol_error"), "{told}");
}

/// Answers each request of a connection with the next of these texts.
fn scripted(answers: &'static [&'static str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            stream.set_read_timeout(Some(DEADLINE)).expect("above zero");
            for answer in answers {
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") {
                    if stream.read(&mut byte).unwrap_or(0) == 0 {
                        return;
                    }
                    head.push(byte[0]);
                }
                let _ = stream.write_all(answer.as_bytes());
            }
        }
    });
    url
}

#[test]
fn responses_without_a_body_leave_the_connection_in_step() {
    let url = scripted(&[
        "HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\netag: \"a\"\r\n\r\n",
        "HTTP/1.1 205 Reset Content\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n\
         HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\n\r\nuntil the end",
    ]);
    let proxy = Sidecar::to(&[url], &[]);
    let mut stream = proxy.connect();
    let mut ask = |method: &str, last: &str| {
        write!(stream, "{method} / HTTP/1.1\r\nhost: a\r\n\r\n").expect("it reads");
        let mut told = Vec::new();
        let mut byte = [0];
        while !told.ends_with(last.as_bytes()) {
            assert_eq!(stream.read(&mut byte).expect("in time"), 1, "{}", String::from_utf8_lossy(&told));
            told.push(byte[0]);
        }
        String::from_utf8(told).expect("text").to_lowercase()
    };
    let told = ask("GET", "\r\n\r\n");
    assert!(told.starts_with("http/1.1 304 ") && told.contains("etag: \"a\""), "{told}");
    let told = ask("GET", "\r\n\r\n");
    assert!(told.starts_with("http/1.1 205 ") && told.contains("content-length: 0"), "{told}");
    let told = ask("HEAD", "\r\n\r\n");
    assert!(told.starts_with("http/1.1 200 ") && told.contains("content-length: 7"), "{told}");
    let told = ask("GET", "\r\n\r\nok");
    let order: Vec<Option<usize>> =
        [" 100 ", " 103 ", " 102 ", " 200 "].iter().map(|status| told.find(status)).collect();
    assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{told}");
    let told = ask("GET", "0\r\n\r\n");
    assert!(told.contains("transfer-encoding: chunked") && told.contains("until the end"), "{told}");
}

/// Sends these bytes; returns everything that is answered.
fn answer(proxy: &Sidecar, bytes: &[u8]) -> String {
    let mut stream = proxy.connect();
    let _ = stream.write_all(bytes); // it may be closed already
    let mut told = Vec::new();
    let _ = stream.read_to_end(&mut told);
    String::from_utf8_lossy(&told).into_owned()
}

#[test]
fn the_proxy_protocol_names_the_client_where_it_is_expected_and_from_whom_it_is_trusted() {
    let origin = crate::origin::Origin::start(&[]);
    let listen = |more: &str| {
        sidecar(&format!(
            "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n{more}\n[service.a]\ninstances = ['http://{}']\n",
            origin.clear
        ))
    };
    let expects = listen("proxy-protocol = true\nproxy-protocol-from = ['127.0.0.0/8']");
    let request = b"GET /headers HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let first = [b"PROXY TCP4 192.0.2.7 192.0.2.1 1234 80\r\n", &request[..]].concat();
    let addresses = b"\xc0\x00\x02\x08\xc0\x00\x02\x01\x04\xd2\x00\x50";
    let second = [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c", &addresses[..], request].concat();
    for (header, client) in [(&first, "192.0.2.7"), (&second, "192.0.2.8")] {
        let told = answer(&expects, header);
        assert!(told.starts_with("HTTP/1.1 200 ") && told.contains(client), "{told}");
    }
    // In pieces, too.
    let mut stream = expects.connect();
    for byte in &first {
        stream.write_all(&[*byte]).expect("it reads");
    }
    let mut told = String::new();
    stream.read_to_string(&mut told).expect("it is answered");
    assert!(told.contains("192.0.2.7"), "{told}");
    assert_eq!(answer(&expects, request), "", "without a header it is closed");
    let others = listen("proxy-protocol = true\nproxy-protocol-from = ['192.0.2.0/24']");
    assert_eq!(answer(&others, &first), "", "not from here");
    assert_eq!(answer(&listen(""), &first), "", "where it is not expected it is no HTTP");
}

#[test]
fn instances_are_told_of_the_client_by_the_proxy_protocol() {
    let origin = crate::origin::Origin::start(&[]);
    let inner = sidecar(&format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\nproxy-protocol = true\n[service.a]\ninstances = ['http://{}']\n",
        origin.clear
    ));
    for version in ["v1", "v2"] {
        let outer = sidecar(&format!(
            "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\nproxy-protocol = true\n[fields]\nclient = 'none'\n[service.a]\n\
             instances = ['http://{}']\nproxy-protocol = '{version}'\n",
            inner.clear
        ));
        for client in ["192.0.2.7", "192.0.2.9"] {
            let request = format!(
                "PROXY TCP4 {client} 192.0.2.1 1234 80\r\nGET /headers HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
            );
            let told = answer(&outer, request.as_bytes());
            assert!(told.starts_with("HTTP/1.1 200 ") && told.contains(client), "{version}: {told}");
        }
        let last = outer.stop();
        assert!(last.contains(" over 2 connections to instances"), "{last}");
    }
}

#[test]
fn a_health_check_says_that_it_is_of_no_client() {
    let (url, heads) = crate::sidecar::scripted(|mut stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"));
    });
    for (version, begins) in [("v1", "PROXY UNKNOWN\r\n"), ("v2", "\r\n\r\n\0\r\nQUIT\n \0\0\0")] {
        let sidecar = sidecar(&format!(
            "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n[service.a]\ninstances = ['{url}']\nproxy-protocol = '{version}'\n\
             health = {{ path = '/', interval = '100ms' }}\n"
        ));
        let found = (0..100).find_map(|_| {
            let head = heads.recv_timeout(DEADLINE).expect("it is asked");
            head.starts_with(begins).then_some(())
        });
        assert!(found.is_some(), "{version}: none of a hundred checks begins so");
        sidecar.stop();
    }
}

#[test]
fn a_target_with_a_scheme_is_the_same_as_its_host_and_path_whatever_the_host_field_says() {
    let (url, heads) = crate::sidecar::scripted(|mut stream| {
        drop(stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"));
    });
    let direct = Sidecar::to(&[url], &[]);
    let over_http2 = Sidecar::to(&[format!("h2c://{}", direct.clear)], &[]);
    for proxy in [&direct, &over_http2] {
        // Also a later request, on a connection whose first request had another form.
        let mut stream = proxy.connect();
        for (target, first) in [
            ("GET /a", "GET /a HTTP/1.1\r\nhost: other\r\n"),
            ("GET http://b.test:81/a?b", "GET /a?b HTTP/1.1\r\nhost: b.test:81\r\n"),
            ("GET http://b.test", "GET / HTTP/1.1\r\nhost: b.test\r\n"),
            ("GET http://b.test?q", "GET /?q HTTP/1.1\r\nhost: b.test\r\n"),
            ("OPTIONS http://b.test", "OPTIONS * HTTP/1.1\r\nhost: b.test\r\n"),
        ] {
            write!(stream, "{target} HTTP/1.1\r\nhost: other\r\n\r\n").expect("it reads");
            let head = heads.recv_timeout(DEADLINE).expect("a request");
            assert!(head.to_lowercase().starts_with(&first.to_lowercase()), "{target}: {head}");
            let mut answer = Vec::new();
            let mut byte = [0];
            while !answer.ends_with(b"\r\n\r\n") {
                assert_eq!(stream.read(&mut byte).expect("in time"), 1, "{target}");
                answer.push(byte[0]);
            }
            assert!(answer.starts_with(b"HTTP/1.1 204 "), "{target}: {}", String::from_utf8_lossy(&answer));
        }
    }
}

#[test]
fn via_says_which_messages_came_in_http10() {
    let (url, heads) = crate::sidecar::scripted(|mut stream| {
        drop(stream.write_all(b"HTTP/1.0 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"));
    });
    let sidecar = Sidecar::to(&[url], &[]);
    for (version, via) in [("1.0", "via: 1.0 h2lab\r\n"), ("1.1", "via: 1.1 h2lab\r\n")] {
        let answer = sidecar.ask(&format!("GET / HTTP/{version}\r\nhost: a\r\nconnection: close\r\n\r\n"));
        let head = heads.recv_timeout(DEADLINE).expect("a request");
        assert!(head.contains(via), "{head}");
        assert!(answer.contains("via: 1.0 h2lab\r\n"), "{answer}");
    }
}
