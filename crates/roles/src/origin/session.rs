//! One connection of a client: transport, engine, and the exchanges on it.

use h2lab_base::units::Time;
use h2lab_wire::{Connection, Error, ErrorCode, Event};

use super::config::{GoAwayMode, OriginConfig};
use super::exchange::{Exchange, Room};
use super::exchanges::Exchanges;
use super::handler;
use crate::accepted::{LINGER, Lingering, Spoken, TURN, flush, spoken};
use h2lab_net::clock::Clock;
use h2lab_net::quic::QuicSession;
use h2lab_net::tcp::StreamSocket;
use h2lab_net::transport::{Received, Transport, TransportError};

/// How far a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Requests are read and answered.
    Serving,
    /// Everything was sent and our direction is closed.
    Lingering(Lingering),
    /// Nothing is left to do.
    Over,
}

/// One connection.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "what socket, client and engine are ready for is independent"
)]
pub struct ServerSession {
    transport: Transport,
    /// `None` until its first bytes, or ALPN, say which protocol it is.
    engine: Option<Connection>,
    /// First bytes of a connection in clear.
    first_bytes: Vec<u8>,
    exchanges: Exchanges,
    /// Requests whose heads have arrived.
    pub requests: u32,
    /// Bytes of HTTP that the transport took: bodies, heads and frames, before they are encrypted.
    pub sent: u64,
    /// By when the client must have shown which protocol it speaks, or, once the engine has ended, have taken our last
    /// bytes.
    timeout_at: Time,
    /// QUIC: the client's count of acknowledgements when the final data was last seen to make progress.
    acknowledgements: u64,
    /// When something next continues by itself.
    next_due: Time,
    /// How large windows may be, in bytes.
    window_limit: u32,
    /// The UDP port of HTTP/3, if it is to be announced to the client.
    alt_svc: Option<u16>,
    /// Bytes of bodies that may be held for it now; `None` if all memory is used.
    room: Option<usize>,
    /// Its part in the memory that the server has counted.
    pub counted: u64,
    /// Something waits for room in the socket.
    pub blocked: bool,
    /// The socket may have more to read: it was the others' turn, or too much of ours waits for the client to read it.
    unread: bool,
    /// The client has finished sending; what it sent may not have been read yet. The socket reports it only once.
    hangup: bool,
    /// All that it sent was read, to the end.
    eof: bool,
    /// The engine has produced its last output, which may still have to be sent.
    closed: bool,
    phase: Phase,
}

impl ServerSession {
    /// A connection that was just accepted, whose windows may have so many bytes.
    ///
    /// `alt_svc` is the port of HTTP/3, if it is to be announced to the client.
    pub fn new(
        transport: Transport,
        config: &OriginConfig,
        window_limit: u32,
        alt_svc: Option<u16>,
        now: Time,
    ) -> Self {
        Self {
            transport,
            engine: None,
            first_bytes: Vec::new(),
            exchanges: Exchanges::default(),
            requests: 0,
            sent: 0,
            timeout_at: config.engine.limits.head.map_or(Time::NEVER, |head| now + head),
            acknowledgements: 0,
            next_due: Time::NEVER,
            window_limit,
            alt_svc,
            room: Some(config.held),
            counted: 0,
            blocked: false,
            unread: false,
            hangup: false,
            eof: false,
            closed: false,
            phase: Phase::Serving,
        }
    }

    /// The QUIC connection below, if it is one, to be given what arrives for it.
    pub const fn quic(&mut self) -> Option<&mut QuicSession> {
        self.transport.quic_mut()
    }

    /// The TCP socket below, if it is one.
    pub const fn tcp(&self) -> Option<&StreamSocket> {
        self.transport.tcp()
    }

    /// Whether it can carry several requests at a time.
    pub const fn is_multiplexed(&self) -> bool {
        matches!(self.engine, Some(Connection::H2(_) | Connection::H3(_)))
    }

    /// Frames that it has sent.
    pub fn frames_sent(&self) -> u64 {
        self.engine.as_ref().map_or(0, |engine| engine.counters().frames_sent.iter().sum())
    }

    /// Whether a request is to be answered.
    pub fn is_busy(&self) -> bool {
        !self.exchanges.is_empty()
    }

    /// Whether it has ended and can be dropped.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Whether an answer may still be due.
    pub fn is_serving(&self) -> bool {
        self.phase == Phase::Serving
    }

    /// Bytes of memory that it takes, without TLS, QUIC and the kernel's.
    pub fn memory(&self) -> u64 {
        let engine = self.engine.as_ref().map_or(0, Connection::held_bytes);
        (size_of::<Self>() + engine + self.first_bytes.capacity() + self.exchanges.held()) as u64
    }

    /// So much memory is left for all sessions.
    pub fn limit_memory(&mut self, config: &OriginConfig, left: u64) {
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        self.room = (left > 0).then(|| config.held.min(self.exchanges.held().saturating_add(left)));
    }

    /// When [`ServerSession::tick`] must be called.
    pub fn deadline(&self) -> Time {
        match self.phase {
            Phase::Serving => {
                let engine = self.engine.as_ref().map_or(Time::NEVER, Connection::poll_timeout);
                engine.min(self.timeout_at).min(self.next_due).min(self.transport.timeout())
            }
            // A client that keeps sending is read on after the others' turn.
            Phase::Lingering(..) if self.unread => Time::ZERO,
            Phase::Lingering(Lingering { until, .. }) => until.min(self.transport.timeout()),
            Phase::Over => Time::NEVER,
        }
    }

    /// The socket reports bytes, or the end, or, if `writable`, room.
    pub fn ready(&mut self, clock: Clock, config: &OriginConfig, writable: bool, hangup: bool) {
        if writable {
            self.blocked = false;
        }
        let result = match self.phase {
            Phase::Serving => self.read_and_proceed(clock, config, hangup),
            Phase::Lingering(..) => self.discard(clock.now()),
            Phase::Over => Ok(()),
        };
        self.conclude(&result);
    }

    /// A deadline has passed.
    pub fn tick(&mut self, clock: Clock, config: &OriginConfig) {
        let now = clock.now();
        // What it finds is processed as received data is.
        self.unread |= self.transport.handle_timeout(now);
        match self.phase {
            Phase::Serving => {}
            Phase::Lingering(Lingering { until, .. }) if now < until => {
                let result = self.discard(now);
                return self.conclude(&result);
            }
            Phase::Lingering(..) | Phase::Over => return self.phase = Phase::Over,
        }
        if let Some(engine) = &mut self.engine
            && engine.poll_timeout() <= now
        {
            engine.handle_timeout(now);
            self.take_events(now, config);
        }
        if now >= self.timeout_at {
            if self.quic().is_some() {
                // TCP's close itself notifies the client.
                let _ = self.transport.shutdown(now);
            }
            return self.phase = Phase::Over;
        }
        let result = if self.unread && !self.blocked {
            self.read_and_proceed(clock, config, false)
        } else {
            self.proceed(now, config)
        };
        self.conclude(&result);
    }

    fn read_and_proceed(
        &mut self,
        clock: Clock,
        config: &OriginConfig,
        hangup: bool,
    ) -> Result<(), TransportError> {
        self.receive(clock, config, hangup)?;
        let now = clock.now();
        self.note_progress(now);
        self.proceed(now, config)
    }

    /// The final data over QUIC may be megabytes, on a slow path: as long as a client keeps acknowledging them, we
    /// wait. With TCP the kernel does so.
    fn note_progress(&mut self, now: Time) {
        let Some(quic) = self.transport.quic().filter(|quic| self.closed && quic.is_closing()) else {
            return;
        };
        let acknowledgements = quic.acknowledgements();
        if acknowledgements > self.acknowledgements {
            (self.acknowledgements, self.timeout_at) = (acknowledgements, now + LINGER);
        }
    }

    /// From now on windows may have `bytes` bytes. The credit that this gives the client is sent with the next write,
    /// at once.
    pub fn limit_windows(&mut self, now: Time, config: &OriginConfig, bytes: u32) {
        self.window_limit = bytes;
        if let Some(engine) = &mut self.engine {
            self.transport.limit_windows(engine, &config.engine, bytes);
            // QUIC keeps its window updates itself: the engine does not count them as unsent.
            if (engine.unsent() > 0 || self.transport.quic().is_some()) && !self.blocked {
                self.next_due = now;
            }
        }
    }

    /// Takes no further requests, and ends when those in progress are answered.
    pub fn drain(&mut self, now: Time, config: &OriginConfig) {
        match &mut self.engine {
            Some(engine) => engine.goaway(now, ErrorCode::NO_ERROR, b"the server is being stopped"),
            None => self.phase = Phase::Over,
        }
        if self.phase == Phase::Serving {
            let result = self.proceed(now, config);
            self.conclude(&result);
        }
    }

    fn conclude(&mut self, result: &Result<(), TransportError>) {
        // A client that breaks its connection is no error here: the generator at the other end records it.
        if result.is_err() {
            self.phase = Phase::Over;
        }
    }

    /// Reads what the socket has, up to [`TURN`].
    fn receive(&mut self, clock: Clock, config: &OriginConfig, hangup: bool) -> Result<(), TransportError> {
        if self.transport.is_handshaking() && !self.transport.handshake(clock.now())? {
            return Ok(());
        }
        let mut turn = 0;
        self.hangup |= hangup;
        self.unread = false;
        while self.phase == Phase::Serving && !self.eof && !self.has_received_enough() {
            let may_receive = |engine: &Connection| self.transport.may_receive(engine);
            if turn > TURN || !self.engine.as_ref().is_none_or(may_receive) {
                self.unread = true;
                return Ok(());
            }
            let now = clock.now();
            let Some(engine) = &mut self.engine else {
                if self.choose_engine(now, config)? {
                    continue;
                }
                return Ok(());
            };
            match self.transport.receive(engine, || now, &mut |_, _| ())? {
                Received::Bytes(n) => {
                    turn += n;
                    self.take_events(now, config);
                    if self.transport.is_drained() && !self.hangup {
                        self.rest(now);
                        return Ok(());
                    }
                }
                Received::WouldBlock => {
                    self.rest(now);
                    return Ok(());
                }
                Received::Eof => {
                    // Over HTTP/1.1 the client may still wait for its answer: the engine decides whether anything is
                    // left to do.
                    self.eof = true;
                    self.take_events(now, config);
                }
            }
        }
        Ok(())
    }

    /// Nothing more is to be read.
    fn rest(&mut self, now: Time) {
        if let Some(engine) = &self.engine {
            self.transport.rest(engine, false, now);
        }
    }

    /// Whether everything was sent and nothing that may arrive matters. Over QUIC it matters until the client has
    /// everything.
    fn has_received_enough(&self) -> bool {
        self.closed && !self.transport.quic().is_some_and(QuicSession::is_closing)
    }

    /// Finds out which protocol it is; `false` if more bytes are needed.
    fn choose_engine(&mut self, now: Time, config: &OriginConfig) -> Result<bool, TransportError> {
        let limit = self.window_limit;
        let mut settings = config.engine_of(self.transport.is_tls());
        settings.flow = settings.flow.within(limit);
        let stream = match &mut self.transport {
            Transport::Stream(stream) => stream,
            Transport::Quic(quic) => {
                if quic.is_handshaking() {
                    return Ok(false);
                }
                quic.limit_window(settings.flow.connection_window);
                self.engine = Some(Connection::h3(settings, now));
                self.timeout_at = Time::NEVER;
                return Ok(true);
            }
        };
        let engine = |is_h2| {
            let mut engine = if is_h2 { Connection::h2(settings, now) } else { Connection::h1(settings) };
            engine.set_window_limit(limit);
            engine
        };
        let mut engine = match spoken(stream, &mut self.first_bytes)? {
            Spoken::Unknown => return Ok(false),
            Spoken::Nothing => {
                self.phase = Phase::Over;
                return Ok(true);
            }
            version => engine(version == Spoken::H2),
        };
        engine.handle_input(now, &std::mem::take(&mut self.first_bytes));
        self.engine = Some(engine);
        self.timeout_at = Time::NEVER;
        self.take_events(now, config);
        Ok(true)
    }

    /// Takes the engine's events; whether there were any.
    fn take_events(&mut self, now: Time, config: &OriginConfig) -> bool {
        let Some(engine) = &mut self.engine else { return false };
        let (mut stirred, mut continues) = (false, Vec::new());
        let mut exceeded = None;
        while let Some(event) = engine.poll_event(now) {
            stirred = true;
            match event {
                Event::Request { stream, head, end_stream } => {
                    self.requests += 1;
                    let expects = head.fields.get("expect");
                    let expects = expects.is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"));
                    let mut plan = config.site.route(now, &head);
                    if self.room.is_none_or(|room| self.exchanges.held() + plan.held() > room) {
                        plan = handler::too_much(now);
                    }
                    plan.alt_svc = self.alt_svc;
                    if expects && !plan.is_final {
                        continues.push(stream);
                    }
                    let exchange = Exchange::new(stream, plan, head.method == b"HEAD", end_stream);
                    if exchange.is_tunnel() {
                        engine.release_by_hand(stream);
                    }
                    self.exchanges.insert(exchange);
                }
                Event::Data { stream, data, end_stream } => {
                    let room = Room {
                        bytes: self.room.unwrap_or(0).saturating_sub(self.exchanges.held()),
                        is_shared: self.room.is_none_or(|room| room < config.held),
                    };
                    self.exchanges.change(stream, |exchange| exchange.take_body(now, data, room, end_stream));
                }
                Event::Trailers { stream, fields } => {
                    self.exchanges.change(stream, |exchange| exchange.take_trailers(fields));
                }
                Event::Writable { stream } => self.exchanges.unblock(stream),
                Event::Reset { stream, .. } => {
                    self.exchanges.remove(stream, |exchange| exchange.abandon(now, engine));
                }
                Event::Closed { error } => {
                    self.exchanges.clear();
                    self.closed = true;
                    self.timeout_at = now + LINGER;
                    exceeded = error.and_then(|error| match error {
                        Error::Exceeded(exceeded) => Some(exceeded),
                        _ => None,
                    });
                }
                // Exchanges are advanced after every batch of events; nothing else concerns a server.
                _ => {}
            }
        }
        if let (Some(notify), Some(exceeded)) = (config.on_exceeded, exceeded) {
            notify(&exceeded, engine.held_bytes());
        }
        for stream in continues {
            engine.send_interim(now, stream, 100, &[]);
        }
        if config.goaway == GoAwayMode::Graceful
            && config.engine.max_requests.is_some_and(|max| self.requests >= max)
        {
            engine.goaway(now, ErrorCode::NO_ERROR, b"");
        }
        stirred
    }

    /// Continues the exchanges that can continue, and sends. What the socket still has is read at once, if it is wanted
    /// by then: the socket reports it only once.
    fn proceed(&mut self, now: Time, config: &OriginConfig) -> Result<(), TransportError> {
        self.advance(now, config)?;
        let transport = &self.transport;
        self.unread |= self.engine.as_mut().is_some_and(|engine| transport.has_unread(engine));
        let wants_input = self.engine.as_ref().is_none_or(|engine| transport.may_receive(engine));
        if self.unread && !self.blocked && wants_input {
            self.next_due = now;
        }
        Ok(())
    }

    /// Continues the exchanges until they wait, the socket is full, or it is the others' turn.
    fn advance(&mut self, now: Time, config: &OriginConfig) -> Result<(), TransportError> {
        let mut turn = 0_u64;
        loop {
            let Some(engine) = &mut self.engine else {
                self.blocked = !self.transport.flush(now)?;
                return Ok(());
            };
            self.exchanges.advance(now, engine, config.handler_delay);
            self.next_due = self.exchanges.next_due();
            let before = self.sent;
            self.blocked = !flush(&mut self.transport, engine, now, &mut self.sent)?;
            turn += self.sent - before;
            // What was sent made room: for more of a body, for the next pipelined request, for the engine's end.
            let stirred = self.take_events(now, config);
            // After the end that just arrived, QUIC must still be closed, which happens when everything has arrived.
            let is_silent = self.engine.as_mut().is_none_or(|engine| !engine.has_output(now));
            if !self.blocked && is_silent && self.has_received_enough() {
                return self.linger(now);
            }
            let more = stirred || !is_silent;
            if self.blocked || !more {
                return Ok(());
            }
            if turn > TURN as u64 {
                self.next_due = now;
                return Ok(());
            }
        }
    }

    /// Everything has been sent.
    fn linger(&mut self, now: Time) -> Result<(), TransportError> {
        self.transport.shutdown(now)?;
        self.phase = if self.eof { Phase::Over } else { Phase::Lingering(Lingering::new(now)) };
        self.discard(now)
    }

    /// Throws away what still comes, up to [`TURN`].
    fn discard(&mut self, now: Time) -> Result<(), TransportError> {
        self.unread = false;
        match &mut self.transport {
            Transport::Stream(stream) => {
                let Phase::Lingering(lingering) = &mut self.phase else { return Ok(()) };
                match lingering.discard(stream)? {
                    Some(more) => self.unread = more,
                    None => self.phase = Phase::Over,
                }
            }
            // QUIC must still answer a client that has not noticed the end.
            Transport::Quic(quic) => {
                self.blocked = !quic.flush(now)?;
                if quic.is_drained() {
                    self.phase = Phase::Over;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Write as _};
    use std::net::{Ipv4Addr, TcpStream};
    use std::time::Duration;

    use h2lab_net::byte_stream::ByteStream;
    use h2lab_net::tcp::Listener;

    use super::*;
    use crate::accepted::LINGER_BYTES;

    /// A session over a socket, and its client.
    fn connected(config: &OriginConfig, clock: Clock) -> (ServerSession, TcpStream) {
        let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let client = TcpStream::connect(listener.local_address().unwrap()).unwrap();
        client.set_nonblocking(true).unwrap();
        let stream = listener.accept().unwrap().expect("it is connected");
        let transport = Transport::Stream(ByteStream::clear(stream));
        (ServerSession::new(transport, config, u32::MAX, None, clock.now()), client)
    }

    /// Reading without end from a client that ignores our end would cost as much as serving it.
    #[test]
    fn what_comes_after_the_last_word_is_read_up_to_a_bound() {
        let double_space = b"GET  / HTTP/1.1\r\nhost: h\r\n\r\n".to_vec();
        let odd_settings =
            [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &[0, 0, 1, 4, 0, 0, 0, 0, 0, 0]].concat();
        for wrong in [double_space, odd_settings] {
            let (config, clock) = (OriginConfig::new(Vec::new(), Vec::new()), Clock::start());
            let (mut session, mut client) = connected(&config, clock);
            client.write_all(&wrong).unwrap();
            let (piece, mut taken) = (vec![b'x'; 1 << 18], 0);
            while !session.is_over() {
                match client.write(&piece) {
                    Ok(n) => taken += n,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => panic!("{error}"),
                }
                session.ready(clock, &config, false, false);
                assert!(taken < 4 * LINGER_BYTES, "it reads on and on");
            }
            assert!(!session.is_serving());
        }
    }

    /// Polling for whether it may read would keep a CPU busy for as long as the first request takes.
    #[test]
    fn pipelined_requests_beyond_the_read_ahead_wait_until_the_first_one_is_due() {
        const DELAY: Duration = Duration::from_secs(300);
        let mut config = OriginConfig::new(Vec::new(), Vec::new());
        config.engine.limits.idle = None;
        let clock = Clock::start();
        let start = clock.now();
        let (mut session, mut client) = connected(&config, clock);

        let request = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n");
        let requests = [request("/delay/300000"), request("/status/204").repeat(6_000)].concat();
        let mut rest = requests.as_bytes();
        while !rest.is_empty() && !session.unread {
            match client.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
            session.ready(clock, &config, false, false);
        }
        // As often as the socket or the timer could ask for it.
        for _ in 0..3 {
            session.ready(clock, &config, false, false);
            session.tick(clock, &config);
        }
        assert!(session.unread, "the socket has more than is read ahead");
        assert_eq!((session.requests, session.is_serving()), (1, true));
        assert!(session.deadline() >= start + DELAY, "{:?}", session.deadline());
    }
}
