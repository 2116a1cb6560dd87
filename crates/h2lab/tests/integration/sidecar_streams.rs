//! How many streams the sidecar begins on a connection before its instance has announced how many it accepts.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Sender};
use std::thread;

use crate::sidecar::Sidecar;
use crate::support::DEADLINE;

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const ACK: u8 = 1;
/// `SETTINGS_MAX_CONCURRENT_STREAMS` 1, and the acknowledgement of what the client has announced.
const ONE_STREAM: [u8; 24] =
    [0, 0, 6, SETTINGS, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0];

/// What an instance receives on the connection with this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Headers(usize),
    /// The sidecar has read how many streams are allowed.
    Acknowledged(usize),
}

/// Kind and flags of the next frame.
fn frame(stream: &mut TcpStream) -> io::Result<(u8, u8)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head)?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    io::copy(&mut stream.take(length.into()), &mut io::sink())?;
    Ok((head[3], head[4]))
}

/// An instance that allows one stream at a time and answers none. On its first connection it announces that limit at
/// once, on others when the first request has arrived.
fn play(mut stream: TcpStream, number: usize, seen: &Sender<Seen>) -> io::Result<()> {
    stream.read_exact(&mut [0; 24])?; // the preface
    if number == 0 {
        stream.write_all(&ONE_STREAM)?;
    }
    loop {
        let told = match frame(&mut stream)? {
            (HEADERS, _) => Seen::Headers(number),
            (SETTINGS, ACK) => Seen::Acknowledged(number),
            _ => continue,
        };
        if seen.send(told).is_err() {
            return Ok(());
        }
        if number > 0 && told == Seen::Headers(number) {
            stream.write_all(&ONE_STREAM)?;
        }
    }
}

#[test]
fn a_new_connection_begins_with_as_many_streams_as_the_instance_allowed_before() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("h2c://{}", listener.local_addr().expect("an address"));
    let (seen, events) = mpsc::channel();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (stream, seen) = (stream.expect("a connection"), seen.clone());
            // It ends with the sidecar.
            thread::spawn(move || play(stream, number, &seen));
        }
    });
    let sidecar = Sidecar::to(&[url], &["--policy", "fixed:8"]);
    let ask = || {
        let mut client = sidecar.connect();
        client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").expect("it reads");
        client
    };
    let mut clients = vec![ask()];
    let mut requests = Vec::new();
    while requests.is_empty() || !requests.contains(&Seen::Acknowledged(0)) {
        requests.push(events.recv_timeout(DEADLINE).expect("a request, and that the bound is known"));
    }
    clients.extend((0..3).map(|_| ask()));
    let headers = |seen: &[Seen]| seen.iter().filter(|one| matches!(one, Seen::Headers(_))).count();
    while headers(&requests) < 4 {
        requests.push(events.recv_timeout(DEADLINE).expect("each request comes"));
    }
    for number in 0..4 {
        let on = requests.iter().filter(|one| **one == Seen::Headers(number)).count();
        assert_eq!(on, 1, "connection {number}: {requests:?}");
    }
}
