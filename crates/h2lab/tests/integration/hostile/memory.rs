use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use super::GROWTH;
use crate::origin::Origin;
use crate::support::DEADLINE;

const MIB: usize = 1 << 20;
/// Clients whose bodies need twice the memory that there is.
const MANY: usize = 32;

/// A request with a body of 2 MiB that the origin is to echo; half of the body has been sent.
fn half_a_body(origin: &Origin) -> TcpStream {
    let mut stream = origin.connect();
    write!(stream, "POST /echo HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n", 2 * MIB)
        .expect("it reads");
    // A server that has no room answers, and may end the connection.
    let _ = stream.write_all(&vec![b'x'; MIB]);
    stream
}

/// What the origin says to it, if it is answered without the rest of its body.
fn early_status(stream: &mut TcpStream) -> Option<String> {
    stream.set_nonblocking(true).expect("a socket");
    let mut answer = [0; 12];
    match stream.read(&mut answer) {
        Ok(length) => Some(String::from_utf8_lossy(&answer[..length]).into_owned()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        // A connection for which there is no memory is closed.
        Err(_) => Some(String::new()),
    }
}

#[test]
fn bodies_of_many_connections_are_held_up_to_one_bound_and_what_is_more_is_refused() {
    let origin = Origin::start(&["--max-memory=16M"]);
    origin.assert_serves();
    let before = origin.child.resident_bytes();
    let mut clients = Vec::new();
    let until = Instant::now() + DEADLINE;
    // More than there is room for. The kernel takes the bytes whether the origin has read them or not.
    let refusal = loop {
        if clients.len() < MANY {
            clients.push(half_a_body(&origin));
        }
        if let Some(status) = clients.iter_mut().find_map(early_status) {
            break status;
        }
        assert!(Instant::now() < until, "{} bodies are held", clients.len());
        std::thread::yield_now();
    };
    assert!(refusal == "HTTP/1.1 503" || refusal.is_empty(), "{refusal}");
    let grown = origin.child.resident_bytes().saturating_sub(before);
    assert!(grown < (16 << 20) + GROWTH, "{grown} bytes for {} bodies", clients.len());
    assert!(clients.len() > 8, "{} bodies", clients.len());
    drop(clients);
    // Their ends arrive one by one.
    while !origin.is_served() {
        assert!(Instant::now() < until, "{}", origin.child.log());
    }
}
