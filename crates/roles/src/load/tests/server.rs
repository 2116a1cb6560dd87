//! A small server for the generator's tests: our own engine behind blocking sockets, a thread per connection; over QUIC in
//! a file of its own.

mod quic;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::Instant;

use super::DEADLINE;
use h2lab_model::workload::Protocol;
use h2lab_wire::connection::{Request, Response};
use h2lab_wire::{Config, Connection, ErrorCode, Event, Field, Role, StreamId};

use h2lab_net::clock::Clock;
use h2lab_net::quic::QuicEndpoint;
use h2lab_net::tcp;
use h2lab_net::tls::{ServerTls, TlsSession};

/// How it misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Answers every request with 200 and five bytes.
    Serves,
    /// Ends each connection in the orderly way of its protocol after so many requests.
    EndsAfter(u32),
    /// The same after `quota` requests, of which it answers `round` at a time, or those that are left, and none before.
    EndsInRounds { quota: u32, round: u32 },
    /// Serves two connections, of which neither is answered more often than the other is asked, up to so many times.
    InStep(u32),
    /// Closes each connection without a word with the last of so many responses.
    ClosesAfter(u32),
    /// Answers so many requests on each connection, reads the next one, and closes it without a word.
    AbortsAfter(u32),
    /// Reads requests and never answers them.
    IsSilent,
    /// Answers nothing on a connection before it has so many complete requests, and then all of them.
    WaitsFor(u32),
    /// Takes what its first windows allow of a body, and no more (HTTP/2).
    KeepsCredit,
    /// Asks by PINGs as fast as it can, and reads nothing (HTTP/2).
    AsksWithoutEnd,
    /// Resets the first stream of each connection as refused (HTTP/2).
    RefusesFirst,
    /// Ends its first connection after one request, by a GOAWAY that names its stream as the last (HTTP/2); serves later ones.
    LeavesAfterFirst,
    /// Closes its first connection without a word when it has a request; serves later ones.
    HangsUpOnce,
    /// Begins to answer the first stream of each connection, and resets it as refused then (HTTP/2).
    RefusesTooLate,
    /// Serves, and takes so many streams at a time (HTTP/2).
    Takes(u32),
    /// Closes each connection as soon as it is accepted.
    ClosesAtOnce,
    /// Answers with bytes of no protocol.
    TalksNonsense,
    /// Serves, with a body as long as the request's path.
    MeasuresPaths,
    /// Serves, and says 103 before each response.
    HintsEarly,
    /// Serves, and pushes another response with each if it may (HTTP/2).
    Pushes,
    /// Serves one connection, and stops listening once it has answered so many requests on it.
    DiesAfter(u32),
}

impl Behaviour {
    /// Its behaviour on its `n`-th connection, counted from 0.
    const fn on_connection(self, n: u32) -> Self {
        match self {
            Self::LeavesAfterFirst if n == 0 => Self::EndsAfter(1),
            Self::LeavesAfterFirst => Self::Serves,
            Self::HangsUpOnce if n > 0 => Self::Serves,
            same => same,
        }
    }
}

/// A server on a free port of the loopback interface; ends when dropped.
pub struct Server {
    pub address: SocketAddr,
    pub accepted: Arc<AtomicU32>,
    /// What a client must trust, for the protocols over TLS.
    pub certificate_pem: Option<Vec<u8>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Waits until so many connections were made.
    pub fn until_accepted(&self, connections: u32) {
        let until = Instant::now() + DEADLINE;
        while self.accepted.load(Ordering::SeqCst) < connections {
            assert!(Instant::now() < until, "no {connections} connections are made: {:?}", self.accepted);
            std::thread::yield_now();
        }
    }

    pub fn start(protocol: Protocol, behaviour: Behaviour) -> Self {
        if protocol.is_quic() {
            return Self::over_quic(behaviour);
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, accepted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&accepted));
        let tls = protocol.alpn().map(|alpn| ServerTls::self_signed(&["localhost"], &[alpn]).unwrap());
        let certificate_pem = tls.as_ref().map(|tls| tls.certificate_pem().as_bytes().to_vec());
        let pair = Arc::new(Barrier::new(2));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let behaviour = behaviour.on_connection(count.fetch_add(1, Ordering::SeqCst));
                let tls = tls.as_ref().map(|tls| tls.session().unwrap());
                let stream = Pipe { stream: stream.unwrap(), tls, rest: Vec::new() };
                if let Behaviour::DiesAfter(_) = behaviour {
                    drop(listener); // before it answers: nobody can connect from here on
                    serve(stream, protocol, behaviour, &pair);
                    return;
                }
                let pair = Arc::clone(&pair);
                std::thread::spawn(move || serve(stream, protocol, behaviour, &pair));
            }
        });
        Self { address, accepted, certificate_pem, stop, thread: Some(thread) }
    }

    fn over_quic(behaviour: Behaviour) -> Self {
        let clock = Clock::start();
        let tls = ServerTls::self_signed(&["localhost"], &[]).unwrap();
        let any = (Ipv4Addr::LOCALHOST, 0).into();
        let endpoint = QuicEndpoint::listen(any, &tls, clock).unwrap();
        let address = endpoint.local_address().unwrap();
        let (stop, accepted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&accepted));
        let thread = std::thread::spawn(move || quic::serve(&endpoint, clock, behaviour, &stopped, &count));
        let certificate_pem = Some(tls.certificate_pem().as_bytes().to_vec());
        Self { address, accepted, certificate_pem, stop, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address); // wakes the accepting thread
        if let Some(thread) = self.thread.take() {
            let result = thread.join();
            assert!(std::thread::panicking() || result.is_ok(), "the test server has failed");
        }
    }
}

/// A blocking socket, in clear or with TLS.
struct Pipe {
    stream: TcpStream,
    tls: Option<TlsSession>,
    /// Ciphertext that the session had no room for.
    rest: Vec<u8>,
}

impl Pipe {
    /// Reads at least a byte; `None` when the connection has ended.
    fn read(&mut self, space: &mut [u8]) -> Option<usize> {
        let Some(tls) = &mut self.tls else {
            return self.stream.read(space).ok().filter(|&n| n > 0);
        };
        let mut cipher = [0; 4096];
        loop {
            match tls.read(space).ok()? {
                tcp::Read::Bytes(n) => return Some(n),
                tcp::Read::Eof | tcp::Read::Truncated => return None,
                tcp::Read::WouldBlock => {}
            }
            if self.rest.is_empty() {
                let n = self.stream.read(&mut cipher).ok().filter(|&n| n > 0)?;
                self.rest.extend_from_slice(&cipher[..n]);
            }
            let taken = tls.receive(&self.rest);
            send(&mut self.stream, tls)?; // also the alert that says what is wrong
            self.rest.drain(..taken.ok()?);
        }
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> Option<()> {
        let Some(tls) = &mut self.tls else { return self.stream.write_all(bytes).ok() };
        while !bytes.is_empty() && !tls.is_handshaking() {
            bytes = &bytes[tls.write(bytes).ok()?..];
        }
        send(&mut self.stream, tls)
    }

    /// Whether what is written now arrives: not before the handshake is over.
    fn is_open(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| !tls.is_handshaking())
    }
}

/// Sends the ciphertext that a session holds.
fn send(stream: &mut TcpStream, tls: &mut TlsSession) -> Option<()> {
    while tls.wants_send() {
        tls.send(stream).ok()?;
    }
    Some(())
}

/// Serves one connection until it ends; `pair` is where two of them meet.
fn serve(mut stream: Pipe, protocol: Protocol, behaviour: Behaviour, pair: &Barrier) {
    match behaviour {
        Behaviour::ClosesAtOnce => return,
        Behaviour::TalksNonsense => {
            stream.write_all(b"220 mail.example ESMTP ready\r\n");
            stream.read(&mut [0; 1024]);
            return;
        }
        Behaviour::AsksWithoutEnd => {
            let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
            let pings = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8].repeat(10_000);
            let mut begun = stream.write_all(&settings);
            while begun.is_some() {
                begun = stream.write_all(&pings);
            }
            return;
        }
        _ => {}
    }
    let clock = Clock::start();
    let config = config(behaviour);
    let mut engine =
        if protocol.is_multiplexed() { Connection::h2(config, clock.now()) } else { Connection::h1(config) };
    let (mut answered, mut waiting) = (0, Vec::new());
    loop {
        let is_last =
            matches!(behaviour, Behaviour::ClosesAfter(n) | Behaviour::DiesAfter(n) if answered >= n);
        if is_last {
            // The FIN leaves with the response: no request arrives in between, which would make it a reset.
            rustix::net::sockopt::set_tcp_cork(&stream.stream, true).unwrap();
        }
        if write_all(&mut stream, &mut engine, clock).is_none() || is_last {
            return;
        }
        match stream.read(engine.recv_space()) {
            None => return,
            Some(n) => engine.handle_received(clock.now(), n),
        }
        let (complete, closed) = complete_requests(&mut engine, clock);
        let hangs_up = match behaviour {
            Behaviour::AbortsAfter(n) => answered >= n,
            other => other == Behaviour::HangsUpOnce,
        };
        if hangs_up && !complete.is_empty() {
            return;
        }
        waiting.extend(complete);
        let round = match behaviour {
            Behaviour::WaitsFor(requests) => requests,
            Behaviour::EndsInRounds { quota, round } => round.min(quota - answered),
            _ => 0,
        };
        if waiting.len() < round as usize {
            continue;
        }
        for (stream, path) in waiting.drain(..) {
            if matches!(behaviour, Behaviour::InStep(requests) if answered < requests) {
                pair.wait();
            }
            answered += u32::from(answer(&mut engine, clock, stream, path, behaviour));
        }
        if closed {
            write_all(&mut stream, &mut engine, clock);
            return;
        }
    }
}

/// The engine configuration of such a server.
fn config(behaviour: Behaviour) -> Config {
    let mut config = Config::new(Role::Server);
    if let Behaviour::EndsAfter(requests) | Behaviour::EndsInRounds { quota: requests, .. } = behaviour {
        config.max_requests = Some(requests);
    }
    config.flow.manual_release = behaviour == Behaviour::KeepsCredit;
    if let Behaviour::Takes(streams) = behaviour {
        config.max_concurrent_streams = Some(streams);
    }
    config
}

/// Streams whose requests are complete, with the lengths of the paths of those without a body, and whether the connection
/// is over.
fn complete_requests(engine: &mut Connection, clock: Clock) -> (Vec<(StreamId, usize)>, bool) {
    let mut complete = Vec::new();
    while let Some(event) = engine.poll_event(clock.now()) {
        match event {
            Event::Request { stream, head, end_stream: true } => complete.push((stream, head.path.len())),
            Event::Data { stream, end_stream: true, .. } => complete.push((stream, 0)),
            Event::Closed { .. } => return (complete, true),
            _ => {}
        }
    }
    (complete, false)
}

/// Answers as the behaviour has it; `true` if with a response.
fn answer(
    engine: &mut Connection,
    clock: Clock,
    stream: StreamId,
    path: usize,
    behaviour: Behaviour,
) -> bool {
    let now = clock.now();
    match behaviour {
        Behaviour::IsSilent => false,
        Behaviour::RefusesFirst if stream == StreamId(1) => {
            engine.reset(now, stream, ErrorCode::REFUSED_STREAM);
            false
        }
        Behaviour::RefusesTooLate if stream == StreamId(1) => {
            let response = Response { status: 200, fields: &[], body_length: None, end_stream: false };
            engine.send_response(now, stream, &response);
            engine.reset(now, stream, ErrorCode::REFUSED_STREAM);
            false
        }
        _ => {
            if behaviour == Behaviour::HintsEarly {
                engine.send_interim(now, stream, 103, &[Field::new("link", "</style.css>")]);
            }
            if behaviour == Behaviour::Pushes {
                push(engine, clock, stream);
            }
            let body =
                if behaviour == Behaviour::MeasuresPaths { vec![b'x'; path] } else { b"hello".to_vec() };
            say(engine, clock, stream, &body);
            true
        }
    }
}

fn say(engine: &mut Connection, clock: Clock, stream: StreamId, body: &[u8]) {
    let fields = [Field::new("server", "test/1")];
    let length = Some(body.len() as u64);
    let response = Response { status: 200, fields: &fields, body_length: length, end_stream: false };
    engine.send_response(clock.now(), stream, &response);
    engine.send_data(clock.now(), stream, body, true);
}

/// Promises and sends a response, if the client takes promises.
fn push(engine: &mut Connection, clock: Clock, stream: StreamId) {
    let request = Request {
        method: "GET",
        authority: "localhost",
        path: "/pushed",
        fields: &[],
        body_length: None,
        end_stream: true,
    };
    if let Some(promised) = engine.send_push(clock.now(), stream, &request) {
        say(engine, clock, promised, b"pushed");
    }
}

fn write_all(stream: &mut Pipe, engine: &mut Connection, clock: Clock) -> Option<()> {
    while stream.is_open() {
        let bytes = engine.poll_transmit(clock.now());
        if bytes.is_empty() {
            return Some(());
        }
        let n = bytes.len();
        stream.write_all(bytes)?;
        engine.handle_transmitted(clock.now(), n);
    }
    Some(())
}
