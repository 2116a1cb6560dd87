//! A client of HTTP/3 that is driven by hand. No tests.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use h2lab_net::clock::Clock;
use h2lab_net::quic::{Congestion, QuicEndpoint};
use h2lab_net::tls::{ClientTls, TlsOptions};
use h2lab_net::transport::{Received, Sent, Transport, TransportError};
use h2lab_wire::connection::Request;
use h2lab_wire::{Config, Connection, ErrorCode, Event, FlowControl, Role, StreamId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::support::DEADLINE;

/// What happened on its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Interim(u16),
    Response(u16),
    /// So many bytes of a body, and whether they are its last.
    Data(usize, bool),
    Reset(ErrorCode),
    GoAway,
    Closed,
}

pub struct Client {
    clock: Clock,
    transport: Transport,
    engine: Connection,
    pub seen: Vec<(StreamId, Seen)>,
    pub is_over: bool,
}

impl Client {
    /// A connection to `address`, whose certificate is not looked at. It reads what comes; with `is_slow` no body beyond the first windows.
    pub fn connect(address: SocketAddr, is_slow: bool) -> Self {
        let clock = Clock::start();
        let trust = TlsOptions { insecure: true, ..TlsOptions::default() };
        let tls = ClientTls::new("127.0.0.1", "h3", &trust).expect("TLS");
        let mut config = Config::new(Role::Client);
        config.flow = FlowControl { manual_release: is_slow, ..config.flow };
        let quic = QuicEndpoint::dial(address, &tls, &config, Congestion::default(), clock, clock.now());
        let mut transport = Transport::Quic(Box::new(quic.expect("a socket")));
        let until = Instant::now() + DEADLINE;
        while !transport.handshake(clock.now()).expect("it answers") {
            assert!(Instant::now() < until, "the handshake does not end");
            wait(&transport, clock);
            transport.handle_timeout(clock.now());
        }
        transport.quic_mut().expect("QUIC").expect_streams(100);
        let engine = Connection::h3(config, clock.now());
        let mut client = Self { clock, transport, engine, seen: Vec::new(), is_over: false };
        while client.engine.available_streams() == 0 {
            assert!(!client.is_over && Instant::now() < until, "it grants no stream: {:?}", client.seen);
            client.turn();
        }
        client
    }

    /// Begins a request with a body, perhaps not all of it; `None` if the connection takes no more.
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

    /// Whether further requests may begin, now or soon.
    pub fn takes_more(&self) -> bool {
        !self.is_over && !self.engine.is_draining()
    }

    pub fn reset(&mut self, stream: StreamId) {
        self.engine.reset(self.clock.now(), stream, ErrorCode::CANCEL);
    }

    /// Sends what is to be sent, waits a little for something to come, and takes it.
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
                    Event::Response { stream, head, .. } => (stream, Seen::Response(head.status)),
                    Event::Data { stream, data, end_stream } => (stream, Seen::Data(data.len(), end_stream)),
                    Event::Reset { stream, code, .. } => (stream, Seen::Reset(code)),
                    Event::GoAway { .. } => (StreamId::CONNECTION, Seen::GoAway),
                    Event::Closed { .. } => {
                        self.is_over = true;
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

    /// Goes on until `is_enough`.
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
        let is_whole = own().any(|seen| matches!(seen, Seen::Data(_, true)));
        let bytes = own().map(|seen| if let Seen::Data(bytes, _) = seen { *bytes } else { 0 }).sum();
        is_whole.then_some((status, bytes))
    }
}

/// Waits until something comes or is due.
fn wait(transport: &Transport, clock: Clock) {
    let socket = transport.quic().expect("QUIC").socket();
    let left =
        Duration::from_nanos(transport.timeout().nanos_since(clock.now())).min(Duration::from_millis(20));
    let timeout = Timespec { tv_sec: 0, tv_nsec: left.as_nanos() as i64 };
    poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&timeout)).expect("it is a socket");
}
