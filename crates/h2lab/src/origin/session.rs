//! One connection of a client: transport, engine, and the exchanges on it.

use std::time::Duration;

use h2lab_core::units::Time;
use h2lab_core::wire::{Config, Connection, ErrorCode, Event};

use super::exchange::{Exchange, Standing};
use super::{OriginConfig, handler};
use crate::io::clock::Clock;
use crate::io::tcp::{Read, Written};
use crate::io::transport::{Transport, TransportError};

/// The beginning of an HTTP/2 connection by prior knowledge (RFC 9113 §3.4). Four bytes tell it from any HTTP/1.1
/// request that anybody sends; the engine checks the rest.
const PREFACE_START: &[u8] = b"PRI ";
/// A connection on which nothing is under way and nothing has come for so long is closed.
const IDLE: Duration = Duration::from_secs(75);
/// With so much waiting for a socket that takes nothing, no more requests are read.
const MAX_PENDING: usize = 1 << 20;

/// One connection.
#[derive(Debug)]
pub struct Session {
    transport: Transport,
    /// `None` until its first bytes, or ALPN, tell which protocol it is.
    engine: Option<Connection>,
    /// First bytes of a connection in clear.
    first_bytes: Vec<u8>,
    exchanges: Vec<Exchange>,
    last_heard: Time,
    /// The next moment at which an exchange goes on by itself.
    next_due: Time,
    /// The socket did not take all.
    blocked: bool,
    over: bool,
}

impl Session {
    /// A connection that was just accepted.
    pub fn new(transport: Transport, now: Time) -> Self {
        Self {
            transport,
            engine: None,
            first_bytes: Vec::new(),
            exchanges: Vec::new(),
            last_heard: now,
            next_due: Time::NEVER,
            blocked: false,
            over: false,
        }
    }

    /// The transport, to be watched.
    pub const fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Whether it has ended and can be dropped.
    pub const fn is_over(&self) -> bool {
        self.over
    }

    /// When [`Session::tick`] must be called.
    pub fn deadline(&self) -> Time {
        let engine = self.engine.as_ref().map_or(Time::NEVER, Connection::poll_timeout);
        let idle = if self.exchanges.is_empty() { self.last_heard + IDLE } else { Time::NEVER };
        engine.min(idle).min(self.next_due)
    }

    /// The socket has something to say: `readable` bytes or the end, `writable` room.
    pub fn ready(&mut self, clock: Clock, config: &OriginConfig, writable: bool, hangup: bool) {
        if writable {
            self.blocked = false;
        }
        let result = self.receive(clock, config, hangup);
        let result = result.and_then(|()| self.go_on(clock.now(), config));
        self.conclude(result);
    }

    /// A deadline has passed.
    pub fn tick(&mut self, now: Time, config: &OriginConfig) {
        if let Some(engine) = &mut self.engine
            && engine.poll_timeout() <= now
        {
            engine.handle_timeout(now);
            self.take_events(now);
        }
        if self.exchanges.is_empty() && now >= self.last_heard + IDLE {
            match &mut self.engine {
                Some(engine) if !engine.is_draining() => engine.goaway(now, ErrorCode::NO_ERROR, b"idle"),
                _ => self.over = true,
            }
            self.last_heard = now; // a peer that does not go within another idle time is dropped
        }
        let result = self.go_on(now, config);
        self.conclude(result);
    }

    fn conclude(&mut self, result: Result<(), TransportError>) {
        // A client that breaks its connection is its own affair: the generator at the other end books it.
        self.over |= result.is_err();
    }

    fn receive(&mut self, clock: Clock, config: &OriginConfig, hangup: bool) -> Result<(), TransportError> {
        if self.transport.is_handshaking() && !self.transport.handshake()? {
            return Ok(());
        }
        while !self.over {
            if self.pending() > MAX_PENDING && self.blocked {
                return Ok(());
            }
            let now = clock.now();
            let Some(engine) = &mut self.engine else {
                if self.choose_engine(now, config)? { continue } else { return Ok(()) }
            };
            match self.transport.read(engine.recv_space())? {
                Read::Bytes(n) => {
                    engine.handle_received(now, n);
                    self.last_heard = now;
                    self.take_events(now);
                    if self.transport.is_drained() && !hangup {
                        return Ok(());
                    }
                }
                Read::WouldBlock => return Ok(()),
                Read::Eof => {
                    engine.handle_eof(now);
                    self.take_events(now);
                    self.over = true;
                }
            }
        }
        Ok(())
    }

    /// Finds out which protocol it is; `false` if more bytes are needed.
    fn choose_engine(&mut self, now: Time, config: &OriginConfig) -> Result<bool, TransportError> {
        let settings = Config { tls: self.transport.alpn().is_some(), ..config.engine };
        if let Some(alpn) = self.transport.alpn() {
            let is_h2 = alpn == b"h2";
            self.engine = Some(if is_h2 { Connection::h2(settings, now) } else { Connection::h1(settings) });
            return Ok(true);
        }
        let mut space = [0; 16 * 1024];
        match self.transport.read(&mut space)? {
            Read::WouldBlock => return Ok(false),
            Read::Eof => {
                self.over = true;
                return Ok(true);
            }
            Read::Bytes(n) => self.first_bytes.extend_from_slice(&space[..n]),
        }
        self.last_heard = now;
        let known = self.first_bytes.len().min(PREFACE_START.len());
        let is_h2 = self.first_bytes[..known] == PREFACE_START[..known];
        if is_h2 && known < PREFACE_START.len() {
            return Ok(true); // read again; a client that sends "PR" and no more runs into the idle time
        }
        let mut engine = if is_h2 { Connection::h2(settings, now) } else { Connection::h1(settings) };
        engine.handle_input(now, &std::mem::take(&mut self.first_bytes));
        self.engine = Some(engine);
        self.take_events(now);
        Ok(true)
    }

    fn take_events(&mut self, now: Time) {
        let Some(engine) = &mut self.engine else { return };
        let mut continues = Vec::new();
        while let Some(event) = engine.poll_event(now) {
            match event {
                Event::Request { stream, head, end_stream } => {
                    if head.fields.get("expect").is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue")) {
                        continues.push(stream);
                    }
                    let plan = handler::route(now, &head);
                    self.exchanges.push(Exchange::new(stream, plan, head.method == b"HEAD", end_stream));
                }
                Event::Data { stream, data, end_stream } => {
                    if let Some(exchange) = self.exchanges.iter_mut().find(|exchange| exchange.stream == stream) {
                        exchange.take_body(data, end_stream);
                    }
                }
                Event::Trailers { stream, .. } => {
                    if let Some(exchange) = self.exchanges.iter_mut().find(|exchange| exchange.stream == stream) {
                        exchange.take_body(&[], true);
                    }
                }
                Event::Reset { stream, .. } => self.exchanges.retain(|exchange| exchange.stream != stream),
                Event::Closed { .. } => {
                    self.exchanges.clear();
                    self.over = true;
                }
                // Exchanges go on after every batch of events; nothing else concerns a server.
                _ => {}
            }
        }
        for stream in continues {
            engine.send_interim(now, stream, 100, &[]);
        }
    }

    /// Goes on with every exchange, and sends.
    fn go_on(&mut self, now: Time, config: &OriginConfig) -> Result<(), TransportError> {
        let Some(engine) = &mut self.engine else {
            self.transport.flush()?;
            return Ok(());
        };
        loop {
            let mut next_due = Time::NEVER;
            self.exchanges.retain_mut(|exchange| match exchange.advance(now, engine, config.handler_delay) {
                Standing::Done => false,
                Standing::WaitsForPeer => true,
                Standing::WaitsUntil(at) => {
                    next_due = next_due.min(at);
                    true
                }
            });
            self.next_due = next_due;
            let sent = flush(&mut self.transport, engine, now)?;
            self.blocked = !sent.all;
            // With room in the buffer again a long body goes on at once, as long as the socket takes it.
            if !sent.all || sent.bytes == 0 || self.exchanges.is_empty() {
                break;
            }
        }
        // An engine whose last word has been sent says so now.
        self.take_events(now);
        Ok(())
    }

    fn pending(&mut self) -> usize {
        self.engine.as_mut().map_or(0, |engine| engine.poll_transmit(Time::ZERO).len())
    }
}

/// What a flush achieved.
struct Sent {
    bytes: usize,
    /// The socket took everything.
    all: bool,
}

/// Writes what the engine has until it is empty or the socket is full.
fn flush(transport: &mut Transport, engine: &mut Connection, now: Time) -> Result<Sent, TransportError> {
    let mut bytes = 0;
    loop {
        let pending = engine.poll_transmit(now);
        if pending.is_empty() {
            let all = transport.flush()?;
            return Ok(Sent { bytes, all });
        }
        match transport.write(pending)? {
            Written::Bytes(n) => {
                engine.handle_transmitted(now, n);
                bytes += n;
            }
            Written::WouldBlock => return Ok(Sent { bytes, all: false }),
        }
    }
}
