//! The built-in server: h1 and h2c (by prior knowledge, and by upgrade if wanted) on one port in clear, h1s and h2 on one
//! TLS port, h3 on the UDP port of the same number if wanted, httpbin's paths.
//!
//! One thread, the same engines as the generator. It answers at once and costs little, so that the protocol is what is measured;
//! [`handler`] has the paths.

mod begin;
mod bulk;
mod config;
pub mod counts;
mod digests;
mod early;
mod exchange;
mod exchanges;
mod expiry;
mod finish;
mod folder;
mod handler;
mod listeners;
mod log;
mod plan;
mod preconditions;
mod put_content;
pub mod quic_samples;
mod quota;
mod range;
mod receipt;
mod refusal;
mod reply;
mod session;
mod token;
mod uploads;

use h2lab_base::counters::TcpSummary;
use h2lab_base::counts::noun_of;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_wire::WindowBudget;

use crate::bulk::SHORTEST_PAUSE;
use crate::heartbeat::Heartbeat;
pub use bulk::{Bulk, OriginContent};
pub use config::{GoAwayMode, Listening, MAX_CONCURRENT_STREAMS, OriginConfig, OriginError, UPGRADE_BODY};
use counts::Counter;
use h2lab_net::clock::{Clock, RunnableTime};
use h2lab_net::quic::{ConnectionEvent, Incoming, QuicEndpoint, RoutedDatagram};
use h2lab_net::reactor::{Completion, Reactor, Token};
use h2lab_net::tcp::StreamSocket;
use h2lab_net::tcp_info::TcpInfo;
use h2lab_net::transport::Transport;
use listeners::Listeners;
use quic_samples::QuicSamples;
pub use quota::UploadLimits;
use session::ServerSession;
pub use token::BearerToken;

/// What the origin has done, reported when it ends: a count of requests independent of the client's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Served {
    /// Requests whose heads arrived.
    pub requests: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// Of these, the connections without a single request.
    pub useless: u64,
    /// Of `connections`, those of HTTP/2 and HTTP/3.
    pub multiplexed: u64,
    /// Frames that were sent on these.
    pub frames: u64,
    /// System calls that wrote to TCP sockets.
    pub writes: u64,
    /// Bytes of HTTP that were sent: bodies, heads and frames, before they were encrypted.
    pub sent: u64,
    /// Segments that the kernel sent again, of all TCP connections; `None` if it reports none.
    pub retransmits: Option<u64>,
    /// Congestion control of the first TCP connection; of the others it is the same.
    pub congestion: Option<String>,
    /// Of the TCP connection over which most was acknowledged, what the kernel counted.
    pub busiest: Option<TcpSummary>,
    /// In sum, for how long it did not run although it had to, each time 100 ms or more.
    pub paused: Duration,
}

impl Served {
    /// Counts what a connection has carried so far.
    fn count(&mut self, session: &ServerSession) {
        let requests = session.requests;
        self.requests += u64::from(requests);
        self.connections += 1;
        self.useless += u64::from(requests == 0);
        self.multiplexed += u64::from(session.is_multiplexed());
        self.frames += session.frames_sent();
        self.writes += session.tcp().map_or(0, StreamSocket::writes);
        self.sent += session.sent;
    }

    /// The same, with what the kernel counted of it.
    fn add(&mut self, session: &ServerSession) {
        self.count(session);
        let Some(tcp) = session.tcp() else { return };
        if let Ok(info) = TcpInfo::of(tcp) {
            *self.retransmits.get_or_insert(0) += u64::from(info.retransmits);
            if self.busiest.as_ref().is_none_or(|busiest| info.bytes_acked > busiest.bytes_acked) {
                self.busiest = Some(info.summary(tcp.congestion().unwrap_or_default()));
            }
        }
        if self.congestion.is_none() {
            self.congestion = tcp.congestion().ok();
        }
    }
}

impl fmt::Display for Served {
    /// `served 1000 requests on 3 connections (1 without any)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, connections, useless, .. } = self;
        let (of, on) = (noun_of(*requests, "request"), noun_of(*connections, "connection"));
        write!(f, "served {requests} {of} on {connections} {on} ({useless} without any)")
    }
}

/// Serves until `stop` is set, which is checked ten times per second, and then answers what was requested before.
/// Returns what was served. `ready` is called with every socket once it listens.
pub fn run(
    config: &OriginConfig,
    stop: &AtomicBool,
    ready: &mut dyn FnMut(&[Listening]),
) -> Result<Served, OriginError> {
    let mut server = Server::new(config)?;
    ready(server.listeners.listening());
    server.serve(stop)?;
    Ok(server.served())
}

/// The event loop.
struct Server<'a> {
    config: &'a OriginConfig,
    reactor: Reactor,
    clock: Clock,
    listeners: Listeners,
    /// By token, after those of the listeners.
    sessions: Vec<Option<Box<ServerSession>>>,
    free: Vec<usize>,
    /// Sessions over QUIC: by listener and the number that it has there.
    quic: BTreeMap<(usize, usize), usize>,
    /// Those whose handshake is in progress.
    handshaking: BTreeSet<usize>,
    /// Those that wait for room in their listener's socket, which reports it only once.
    blocked: BTreeSet<usize>,
    /// Listeners over UDP that may have more: it was the others' turn.
    unread: Vec<usize>,
    budget: WindowBudget,
    /// The memory of all sessions, each as of the last time that it was handled, in bytes.
    memory: u64,
    /// `None` unless somebody takes them.
    samples: Option<QuicSamples>,
    /// Likewise.
    counter: Option<Counter>,
    /// Of the connections that are over.
    served: Served,
}

/// How often `stop` is checked.
const STOP_PERIOD: Duration = Duration::from_millis(100);

/// Pending QUIC handshakes above which a client must first prove that it receives what is sent to its address: until then one
/// datagram with a spoofed address makes us keep a connection for ten seconds. Linux does the same by SYN cookies for TCP
/// handshakes. Always requiring the proof was rejected: it costs a round trip.
const MOST_UNPROVEN: usize = 1_000;

/// System calls that read from one UDP socket before it is the others' turn.
const READS_PER_TURN: usize = 32;

impl<'a> Server<'a> {
    fn new(config: &'a OriginConfig) -> Result<Self, OriginError> {
        let clock = Clock::start();
        let mut reactor = Reactor::new(clock)?;
        Ok(Self {
            config,
            listeners: Listeners::open(config, &mut reactor)?,
            reactor,
            clock,
            sessions: Vec::new(),
            free: Vec::new(),
            quic: BTreeMap::new(),
            handshaking: BTreeSet::new(),
            blocked: BTreeSet::new(),
            unread: Vec::new(),
            budget: WindowBudget::new(config.window_budget),
            memory: 0,
            samples: config.on_quic_sample.map(|_| QuicSamples::default()),
            counter: config.on_counts.map(|_| Counter::default()),
            served: Served::default(),
        })
    }

    /// Serves until `stop` is set, and then until all that was asked before is answered, within [`OriginConfig::drain_timeout`].
    /// No connection is accepted any more; HTTP/2 and HTTP/3 are notified by the two steps of a GOAWAY, HTTP/1.1 by `Connection:
    /// close`.
    fn serve(&mut self, stop: &AtomicBool) -> Result<(), OriginError> {
        let runnable = RunnableTime::of_this_thread();
        let mut heartbeat = Heartbeat::new(SHORTEST_PAUSE, runnable.ns());
        let mut beat_at = self.clock.now() + STOP_PERIOD;
        while !stop.load(Ordering::Relaxed) {
            self.turn(beat_at)?;
            let now = self.clock.now();
            if now >= beat_at {
                heartbeat.beat(beat_at, now, runnable.ns());
                beat_at = now + STOP_PERIOD;
                self.tell_counts();
            }
        }
        self.served.paused = heartbeat.paused;
        self.listeners.close(&mut self.reactor);
        for slot in 0..self.sessions.len() {
            let token = self.token(slot);
            self.with_session(token, |session, clock, config| session.drain(clock.now(), config));
        }
        let until = self.clock.now() + self.config.drain_timeout;
        while self.sessions.iter().flatten().any(|session| session.is_serving()) && self.clock.now() < until {
            self.turn(until)?;
        }
        Ok(())
    }

    /// What has been served until now, on the connections that are still open too.
    fn served(&self) -> Served {
        let mut served = self.served.clone();
        self.sessions.iter().flatten().for_each(|session| served.add(session));
        served
    }

    /// Tells what was counted so far, if there is something new.
    fn tell_counts(&mut self) {
        let (Some(counter), Some(tell)) = (&mut self.counter, self.config.on_counts) else { return };
        let mut served = self.served.clone();
        self.sessions.iter().flatten().for_each(|session| served.count(session));
        if let Some(line) = counter.line(self.clock, &served) {
            tell(&line);
        }
    }

    /// Waits until something happens, or `until`, and deals with it.
    fn turn(&mut self, until: Time) -> Result<(), OriginError> {
        self.reactor.wait(if self.unread.is_empty() { until } else { Time::ZERO })?;
        for listener in std::mem::take(&mut self.unread) {
            self.receive(listener);
        }
        while let Some(completion) = self.reactor.next_completion() {
            match completion {
                Completion::Accepted { token, result: Ok(stream) } => self.accept(token, stream),
                // File descriptors have run out: it waits until there are some.
                Completion::Accepted { result: Err(_), .. } => {}
                Completion::Ready { token, writable, .. } if self.listeners.is_one(token) => {
                    if writable {
                        self.unblock();
                    }
                    self.receive(token.0 as usize);
                }
                Completion::Ready { token, writable, hangup, .. } => {
                    self.with_session(token, |session, clock, config| {
                        session.ready(clock, config, writable, hangup);
                    });
                }
                Completion::Timer { token } => {
                    self.with_session(token, session::ServerSession::tick);
                }
                Completion::Connected { .. } => unreachable!("the origin dials nobody"),
            }
        }
        Ok(())
    }

    /// Takes a connection in.
    fn accept(&mut self, listener: Token, stream: StreamSocket) {
        if self.memory >= self.config.memory {
            return; // the client notices when its connection ends
        }
        let Some(transport) = self.listeners.transport(listener, stream) else { return };
        let slot = self.free_slot();
        if let Some(tcp) = transport.tcp()
            && self.reactor.submit_stream(self.token(slot), tcp).is_ok()
        {
            let alt_svc = self.listeners.alt_svc(listener);
            self.occupy(slot, transport, alt_svc);
        } else {
            self.free.push(slot);
        }
    }

    fn free_slot(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.sessions.push(None);
            self.sessions.len() - 1
        })
    }

    /// A new connection.
    fn occupy(&mut self, slot: usize, transport: Transport, alt_svc: Option<u16>) {
        let now = self.clock.now();
        let session = ServerSession::new(transport, self.config, self.budget.share(), alt_svc, now);
        self.sessions[slot] = Some(Box::new(session));
        // The new share applies to all sessions, and to this one as well: nothing has been sent on it yet.
        let share = self.budget.opened();
        self.share_out(share);
        // What the client has sent already is reported at once; a client that sends nothing is dropped in time.
        self.with_session(self.token(slot), |_, _, _| {});
    }

    /// Receives from a UDP socket, and advances the connections concerned.
    fn receive(&mut self, listener: usize) {
        let Some(endpoint) = self.listeners.endpoint(listener) else { return };
        for _ in 0..READS_PER_TURN {
            let (now, mut arrivals) = (self.clock.now(), Vec::new());
            // Errors that a client's host reports, such as that the client is gone, are ignored: silence shows the
            // same.
            let read = endpoint.receive(now, &mut |arrival| arrivals.push(arrival)).unwrap_or(1);
            let mut stirred = BTreeSet::new();
            for arrival in arrivals {
                stirred.extend(match arrival {
                    RoutedDatagram::Known(number, event) => self.pass_on((listener, number), event),
                    RoutedDatagram::New(incoming) => self.take_in(listener, &endpoint, incoming, now),
                });
            }
            for slot in stirred {
                self.with_session(self.token(slot), |session, clock, config| {
                    session.ready(clock, config, false, false);
                });
            }
            if read == 0 {
                return;
            }
        }
        self.unread.push(listener);
    }

    /// Passes an event to its session; returns the slot of the session.
    fn pass_on(&mut self, name: (usize, usize), event: ConnectionEvent) -> Option<usize> {
        let slot = *self.quic.get(&name)?;
        self.sessions[slot].as_mut()?.quic()?.handle(event);
        Some(slot)
    }

    /// Accepts a QUIC connection; returns its slot.
    fn take_in(
        &mut self,
        listener: usize,
        endpoint: &Arc<QuicEndpoint>,
        incoming: Incoming,
        now: Time,
    ) -> Option<usize> {
        if self.memory >= self.config.memory {
            endpoint.turn_away(incoming);
            return None;
        }
        if self.handshaking.len() >= MOST_UNPROVEN && !incoming.remote_address_validated() {
            endpoint.ask_for_proof(incoming);
            return None;
        }
        let mut engine = self.config.engine;
        engine.flow = engine.flow.within(self.budget.share_with(1));
        let quic = endpoint.accept(incoming, &engine, self.config.h3.unwrap_or_default(), now).ok()?;
        let slot = self.free_slot();
        self.quic.insert((listener, quic.number()), slot);
        self.occupy(slot, Transport::Quic(Box::new(quic)), None);
        Some(slot)
    }

    /// A UDP socket has room again.
    fn unblock(&mut self) {
        for slot in std::mem::take(&mut self.blocked) {
            self.with_session(self.token(slot), |session, clock, config| {
                session.ready(clock, config, true, false);
            });
        }
    }

    fn token(&self, slot: usize) -> Token {
        Token((self.listeners.count() + slot) as u32)
    }

    /// Sets how large the windows of all connections may be from now on, if that has changed.
    fn share_out(&mut self, share: Option<u32>) {
        let Some(share) = share else { return };
        let now = self.clock.now();
        for (slot, session) in self.sessions.iter_mut().enumerate() {
            if let Some(session) = session {
                session.limit_windows(now, self.config, share);
                self.reactor.set_timer(Token((self.listeners.count() + slot) as u32), session.deadline());
            }
        }
    }

    fn with_session(&mut self, token: Token, work: impl FnOnce(&mut ServerSession, Clock, &OriginConfig)) {
        let slot = token.0 as usize - self.listeners.count();
        let Some(session) = self.sessions.get_mut(slot).and_then(Option::as_mut) else { return };
        session.limit_memory(self.config, self.config.memory.saturating_sub(self.memory));
        let was_busy = session.is_busy();
        work(session, self.clock, self.config);
        self.memory = self.memory + session.memory() - session.counted;
        session.counted = session.memory();
        let (is_over, deadline) = (session.is_over(), session.deadline());
        let is_busy = session.is_busy() && !is_over;
        if let Some(counter) = self.counter.as_mut().filter(|_| is_busy != was_busy) {
            counter.turned(self.clock.now(), is_busy);
        }
        if let (Some(samples), Some(take), Some(quic)) =
            (&mut self.samples, self.config.on_quic_sample, session.quic())
            && let Some(line) = samples.line(self.clock, quic)
        {
            take(&line);
        }
        if session.blocked && session.quic().is_some() {
            self.blocked.insert(slot);
        }
        if !is_over && session.quic().is_some_and(|quic| quic.is_handshaking()) {
            self.handshaking.insert(slot);
        } else {
            self.handshaking.remove(&slot);
        }
        if is_over {
            self.memory -= session.counted;
            self.served.add(session);
            self.reactor.forget(token);
            if session.quic().is_some() {
                self.quic.retain(|_, its_slot| *its_slot != slot);
            }
            self.sessions[slot] = None;
            self.free.push(slot);
            let share = self.budget.closed();
            self.share_out(share);
        } else {
            self.reactor.set_timer(token, deadline);
        }
    }
}
