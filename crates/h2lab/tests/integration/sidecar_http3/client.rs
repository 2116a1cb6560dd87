//! A client of HTTP/3 that is driven by hand. No tests.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use h2lab_net::clock::Clock;
use h2lab_net::quic::{Congestion, QuicEndpoint};
use h2lab_net::tls::{ClientTls, TlsOptions};
use h2lab_net::transport::{Received, Sent, Transport, TransportError};
use h2lab_wire::connection::Request;
use h2lab_wire::{Config, Connection, ErrorCode, Event, Fields, FlowControl, Role, StreamId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::support::DEADLINE;

/// What happened on its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Interim(u16),
    Response(u16),
    /// This many bytes of a body, and whether they are its last.
    Data(usize, bool),
    /// Its message has ended without a last byte: by trailers, or with its head.
    End,
    Reset(ErrorCode),
    GoAway,
    Closed,
}

pub struct Client {
    clock: Clock,
    transport: Transport,
    engine: Connection,
    pub seen: Vec<(StreamId, Seen)>,
    /// Fields of heads and trailers.
    fields: Vec<(StreamId, String, String)>,
    /// Bodies, as far as they have arrived.
    bodies: BTreeMap<StreamId, Vec<u8>>,
    pub is_over: bool,
    /// The last streams that GOAWAYs accept.
    pub accepted: Vec<StreamId>,
    /// Why it has ended, if not in good order.
    pub error: Option<String>,
}

impl Client {
    /// A connection to `address`, whose certificate is not verified. It reads what arrives; with `is_slow`, no body
    /// beyond the first windows.
    pub fn connect(address: SocketAddr, is_slow: bool) -> Self {
        let flow = FlowControl { manual_release: is_slow, ..Config::new(Role::Client).flow };
        Self::try_connect(address, flow).expect("it is accepted")
    }

    /// The same with these windows; `None` if the connection is refused.
    pub fn try_connect(address: SocketAddr, flow: FlowControl) -> Option<Self> {
        let clock = Clock::start();
        let trust = TlsOptions { insecure: true, ..TlsOptions::default() };
        let tls = ClientTls::new("127.0.0.1", "h3", &trust).expect("TLS");
        let mut config = Config::new(Role::Client);
        config.flow = flow;
        let quic = QuicEndpoint::dial(address, &tls, &config, Congestion::default(), clock, clock.now());
        let mut transport = Transport::Quic(Box::new(quic.expect("a socket")));
        let until = Instant::now() + DEADLINE;
        while !transport.handshake(clock.now()).ok()? {
            assert!(Instant::now() < until, "the handshake does not end");
            wait(&transport, clock);
            transport.handle_timeout(clock.now());
        }
        transport.quic_mut().expect("QUIC").expect_streams(100);
        let engine = Connection::h3(config, clock.now());
        let (fields, bodies) = (Vec::new(), BTreeMap::new());
        let mut client = Self {
            clock,
            transport,
            engine,
            seen: Vec::new(),
            fields,
            bodies,
            is_over: false,
            accepted: Vec::new(),
            error: None,
        };
        while client.engine.available_streams() == 0 {
            assert!(!client.is_over && Instant::now() < until, "it grants no stream: {:?}", client.seen);
            client.turn();
        }
        Some(client)
    }

    /// Sends what is pending, with retransmissions that are due, and reads nothing.
    pub fn flush(&mut self) {
        let now = self.clock.now();
        self.transport.handle_timeout(now);
        while let Ok(Sent::Bytes { .. }) = self.transport.send(&mut self.engine, now, &mut |_| ()) {}
        self.transport.flush(now).expect("there is room");
    }

    /// Closes the connection, which may be closed already.
    pub fn leave(&mut self) {
        let now = self.clock.now();
        self.engine.goaway(now, ErrorCode::INTERNAL_ERROR, b"");
        while let Ok(Sent::Bytes { .. }) = self.transport.send(&mut self.engine, now, &mut |_| ()) {}
        let _ = self.transport.flush(now);
    }

    /// Begins a request with a body, which need not be complete; `None` if the connection takes no more.
    pub fn begin(&mut self, method: &str, path: &str, body: &[u8], is_whole: bool) -> Option<StreamId> {
        let now = self.clock.now();
        let is_bare = is_whole && body.is_empty();
        let request =
            Request { method, authority: "a", path, fields: &[], body_length: None, end_stream: is_bare };
        let stream = self.engine.send_request(now, &request)?;
        if !is_bare {
            assert_eq!(self.engine.send_data(now, stream, body, is_whole), body.len(), "it is short");
        }
        Some(stream)
    }

    /// Waits until the server has said that it takes extended CONNECT.
    pub fn until_it_takes_websockets(&mut self) {
        let until = Instant::now() + DEADLINE;
        while !self.engine.takes_connect_protocol() {
            assert!(!self.is_over && Instant::now() < until, "{:?}", self.seen);
            self.turn();
        }
    }

    /// Begins a request of any kind; `protocol`, of an extended CONNECT (RFC 9220).
    pub fn ask(&mut self, request: &Request<'_>, protocol: Option<&str>) -> StreamId {
        let now = self.clock.now();
        let stream = match protocol {
            Some(protocol) => self.engine.send_connect(now, protocol, request),
            None => self.engine.send_request(now, request),
        };
        stream.expect("there is room")
    }

    /// Sends all of these bytes on a stream, and meanwhile reads what arrives.
    #[track_caller]
    pub fn send(&mut self, stream: StreamId, mut bytes: &[u8], is_last: bool) {
        let until = Instant::now() + DEADLINE;
        loop {
            let taken = self.engine.send_data(self.clock.now(), stream, bytes, is_last);
            bytes = &bytes[taken..];
            self.turn();
            if bytes.is_empty() {
                return;
            }
            assert!(
                !self.is_over && Instant::now() < until,
                "{} bytes are left: {:?}",
                bytes.len(),
                self.seen
            );
        }
    }

    /// The body of a stream, as far as it has arrived.
    pub fn body(&self, stream: StreamId) -> &[u8] {
        self.bodies.get(&stream).map_or(&[], Vec::as_slice)
    }

    /// The first field of this name on a stream, in the heads or the trailers.
    pub fn field(&self, stream: StreamId, name: &str) -> Option<&str> {
        let mut own = self.fields.iter().filter(|(its, field, _)| *its == stream && field == name);
        own.next().map(|(.., value)| value.as_str())
    }

    /// Runs until the message on a stream has ended; returns its status and the bytes of its body.
    #[track_caller]
    pub fn whole(&mut self, stream: StreamId) -> (u16, usize) {
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(response) = self.response(stream) {
                return response;
            }
            assert!(!self.is_over && Instant::now() < until, "{:?}", self.seen);
            self.turn();
        }
    }

    /// Whether further requests may begin, now or soon.
    pub fn takes_more(&self) -> bool {
        !self.is_over && !self.engine.is_draining()
    }

    pub fn reset(&mut self, stream: StreamId) {
        self.engine.reset(self.clock.now(), stream, ErrorCode::CANCEL);
    }

    /// Sends what is pending, waits a short time for input, and reads it.
    pub fn turn(&mut self) {
        self.proceed().unwrap_or_else(|error| panic!("{error}: {:?}", self.seen));
        if !self.is_over {
            wait(&self.transport, self.clock);
            self.proceed().unwrap_or_else(|error| panic!("{error}: {:?}", self.seen));
        }
    }

    fn proceed(&mut self) -> Result<(), TransportError> {
        let now = self.clock.now();
        self.transport.handle_timeout(now);
        if self.engine.poll_timeout() <= now {
            self.engine.handle_timeout(now);
        }
        loop {
            let received = self.transport.receive(&mut self.engine, || now, &mut |_, _| ())?;
            while let Some(event) = self.engine.poll_event(now) {
                let (stream, seen) = match event {
                    Event::Interim { stream, head } => (stream, Seen::Interim(head.status)),
                    Event::Response { stream, head, end_stream } => {
                        self.fields.extend(texts(stream, head.fields));
                        self.seen.push((stream, Seen::Response(head.status)));
                        if !end_stream {
                            continue;
                        }
                        (stream, Seen::End)
                    }
                    Event::Trailers { stream, fields } => {
                        self.fields.extend(texts(stream, fields));
                        (stream, Seen::End)
                    }
                    Event::Data { stream, data, end_stream } => {
                        self.bodies.entry(stream).or_default().extend_from_slice(data);
                        (stream, Seen::Data(data.len(), end_stream))
                    }
                    Event::Reset { stream, code, .. } => (stream, Seen::Reset(code)),
                    Event::GoAway { last_stream, .. } => {
                        self.accepted.push(last_stream);
                        (StreamId::CONNECTION, Seen::GoAway)
                    }
                    Event::Closed { error } => {
                        self.is_over = true;
                        self.error = error.map(|error| error.to_string());
                        (StreamId::CONNECTION, Seen::Closed)
                    }
                    _ => continue,
                };
                self.seen.push((stream, seen));
            }
            if !matches!(received, Received::Bytes(_)) {
                break;
            }
        }
        while let Sent::Bytes { .. } = self.transport.send(&mut self.engine, now, &mut |_| ())? {}
        self.transport.flush(now).map(drop)
    }

    /// Runs until `is_enough`.
    #[track_caller]
    pub fn until(&mut self, is_enough: impl Fn(&[(StreamId, Seen)]) -> bool) {
        let until = Instant::now() + DEADLINE;
        while !is_enough(&self.seen) {
            assert!(!self.is_over && Instant::now() < until, "{:?}", self.seen);
            self.turn();
        }
    }

    /// The response to a request that is complete: its status and the bytes of its body.
    pub fn response(&self, stream: StreamId) -> Option<(u16, usize)> {
        let own = || self.seen.iter().filter(|(its, _)| *its == stream).map(|(_, seen)| seen);
        let status =
            own().find_map(|seen| if let Seen::Response(status) = seen { Some(*status) } else { None })?;
        let is_whole = own().any(|seen| matches!(seen, Seen::Data(_, true) | Seen::End));
        let bytes = own().map(|seen| if let Seen::Data(bytes, _) = seen { *bytes } else { 0 }).sum();
        is_whole.then_some((status, bytes))
    }
}

/// Fields as text.
fn texts(stream: StreamId, fields: Fields<'_>) -> impl Iterator<Item = (StreamId, String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    fields.iter().map(move |field| (stream, text(field.name), text(field.value)))
}

/// Waits until something arrives or a timer is due.
fn wait(transport: &Transport, clock: Clock) {
    let socket = transport.quic().expect("QUIC").socket();
    let left =
        Duration::from_nanos(transport.timeout().nanos_since(clock.now())).min(Duration::from_millis(20));
    let timeout = Timespec { tv_sec: 0, tv_nsec: left.as_nanos() as i64 };
    poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&timeout)).expect("it is a socket");
}
