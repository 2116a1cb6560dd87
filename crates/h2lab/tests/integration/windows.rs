//! Windows that return no credit: because a tunnel's client does not read, and because of the memory limit for all
//! connections.

use std::io::{Read, Write};
use std::net::TcpStream;

use h2lab_net::clock::Clock;
use h2lab_wire::connection::Request;
use h2lab_wire::h2::frame::{FrameHeader, HEADER_LENGTH, PREFACE, flag, kind};
use h2lab_wire::{Config, Connection, Event, Role, StreamId};

use crate::origin::Origin;
use crate::support::{DEADLINE, read_once};

/// Our own engine on a socket, with a tunnel from which it may refuse to read.
struct Tunnel {
    engine: Connection,
    socket: TcpStream,
    clock: Clock,
    stream: StreamId,
    /// The bytes that have come back.
    echoed: Vec<u8>,
    /// How many of these were returned as credit.
    released: usize,
    ended: bool,
}

impl Tunnel {
    fn open(origin: &Origin) -> Self {
        let clock = Clock::start();
        let mut config = Config::new(Role::Client);
        config.flow.manual_release = true;
        let engine = Connection::h2(config, clock.now());
        let socket = origin.connect();
        let stream = StreamId(1);
        let mut tunnel =
            Self { engine, socket, clock, stream, echoed: Vec::new(), released: 0, ended: false };
        while !tunnel.engine.takes_connect_protocol() {
            tunnel.flush();
            tunnel.read();
        }
        let request = Request {
            method: "CONNECT",
            authority: "h",
            path: "/echo",
            fields: &[],
            body_length: None,
            end_stream: false,
        };
        let stream = tunnel.engine.send_connect(tunnel.clock.now(), "websocket", &request);
        tunnel.stream = stream.expect("it was announced");
        tunnel
    }

    fn flush(&mut self) {
        let now = self.clock.now();
        let bytes = self.engine.poll_transmit(now).to_vec();
        self.socket.write_all(&bytes).expect("the origin reads");
        self.engine.handle_transmitted(now, bytes.len());
    }

    /// Reads once.
    fn read(&mut self) {
        let n = read_once(&mut self.socket, self.engine.recv_space()).expect("the origin answers in time");
        assert!(n > 0, "it closed");
        let now = self.clock.now();
        self.engine.handle_received(now, n);
        while let Some(event) = self.engine.poll_event(now) {
            match event {
                Event::Data { data, end_stream, .. } => {
                    self.echoed.extend_from_slice(data);
                    self.ended = end_stream;
                }
                Event::Reset { code, .. } => panic!("the tunnel was reset: {code}"),
                Event::Closed { error } => panic!("{error:?}"),
                _ => {}
            }
        }
    }

    /// Sends as much of `bytes` as the windows allow, and waits until the origin has read it. Returns how much that
    /// was.
    fn send(&mut self, bytes: &[u8]) -> usize {
        let mut sent = 0;
        loop {
            let taken = self.engine.send_data(self.clock.now(), self.stream, &bytes[sent..], true);
            sent += taken;
            if taken == 0 {
                return sent;
            }
            self.flush();
            self.settle();
            if sent == bytes.len() {
                return sent;
            }
        }
    }

    /// Waits until the origin has sent everything that is pending. The answer to a first PING is written together with
    /// the effects of the bytes before it, and may come before those; the answer to a second one comes after them.
    fn settle(&mut self) {
        for _ in 0..2 {
            let answered = self.engine.counters().frames_received[usize::from(kind::PING)];
            self.engine.ping(self.clock.now());
            self.flush();
            while self.engine.counters().frames_received[usize::from(kind::PING)] == answered {
                self.read();
            }
        }
    }

    /// Gives the credit back for all that has come.
    fn release(&mut self) {
        let n = self.echoed.len() - self.released;
        assert!(n > 0, "it does not go on");
        self.released += n;
        self.engine.release(self.clock.now(), self.stream, n as u32);
        self.flush();
        self.settle();
    }
}

#[test]
fn who_does_not_read_from_a_tunnel_is_stopped_and_loses_nothing() {
    let origin = Origin::start(&[]);
    origin.assert_serves();
    let letters: Vec<u8> = (0..20_000_000_u32).map(|k| (k % 251) as u8).collect();
    let mut tunnel = Tunnel::open(&origin);
    let before = origin.child.resident_bytes();
    let mut sent = tunnel.send(&letters);
    // Our window for the echo is exhausted, and more than half of the origin's window is filled with bytes that it
    // cannot send back: it returns no credit while it owes less than half of the window.
    assert_eq!(tunnel.echoed.len(), 65_535);
    assert!((32_768..=65_536).contains(&(sent - 65_535)), "{sent} bytes were taken");
    while !tunnel.ended {
        tunnel.release();
        sent += tunnel.send(&letters[sent..]);
    }
    assert!(tunnel.echoed == letters, "{} bytes came back", tunnel.echoed.len());
    let grown = origin.child.resident_bytes().saturating_sub(before);
    println!("the origin grew by {} KiB", grown / 1024);
    assert!(grown < 4 << 20, "the origin grew by {grown} bytes");
}

/// A connection on which an upload of 40,000 bytes has begun, with a stream window of 65,536.
fn upload(origin: &Origin) -> TcpStream {
    let frame = |kind, flags, stream, payload: &[u8]| {
        let header = FrameHeader { length: payload.len() as u32, kind, flags, stream };
        [&header.encode()[..], payload].concat()
    };
    let head = [0x83, 0x84, 0x86, 1, 1, b'a']; // POST, /, http, and `:authority: a`
    let mut stream = origin.connect();
    stream.write_all(PREFACE).unwrap();
    stream.write_all(&frame(kind::SETTINGS, 0, 0, &[])).unwrap();
    stream.write_all(&frame(kind::HEADERS, flag::END_HEADERS, 1, &head)).unwrap();
    for _ in 0..4 {
        stream.write_all(&frame(kind::DATA, 0, 1, &[b'x'; 10_000])).unwrap();
    }
    stream.write_all(&frame(kind::PING, 0, 0, b"the last")).unwrap();
    stream
}

/// Reads until the origin gives credit to stream 1 (`true`), or acknowledges the PING.
fn has_credit(stream: &mut TcpStream) -> bool {
    loop {
        let mut header = [0; HEADER_LENGTH];
        stream.read_exact(&mut header).expect("the origin answers in time");
        let header = FrameHeader::parse(&header);
        stream.read_exact(&mut vec![0; header.length as usize]).expect("a whole frame");
        match (header.kind, header.stream, header.flags & flag::ACK) {
            (kind::WINDOW_UPDATE, 1, _) => return true,
            (kind::PING, _, flag::ACK) => return false,
            _ => {}
        }
    }
}

#[test]
fn windows_give_way_to_further_connections_and_grow_again() {
    // Shares of 64 KiB up to four connections, of 32 KiB from the fifth on, of 16 KiB from the ninth on.
    let origin = Origin::start(&["--window-budget=256k"]);
    let others: Vec<TcpStream> = (0..3).map(|_| origin.connect()).collect();
    assert!(has_credit(&mut upload(&origin)), "a fourth connection has a whole window");
    let more: Vec<TcpStream> = (0..6).map(|_| origin.connect()).collect();
    let mut stream = upload(&origin);
    assert!(!has_credit(&mut stream), "25,536 bytes are left, and 16,384 is all that it may have");
    drop((others, more));
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    assert!(has_credit(&mut stream), "without a word of the client");
}
