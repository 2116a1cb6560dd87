//! The built-in server: h1 and h2c (by prior knowledge, and by upgrade if wanted) on one port in clear, h1s and h2 on one
//! TLS port, httpbin's paths.
//!
//! One thread, the same engines as the generator. It answers at once and costs little, so that what is measured is the
//! protocol; [`handler`] says what each path does.

mod body;
mod exchange;
mod exchanges;
mod handler;
mod push;
mod session;

use std::fmt;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use h2lab_core::units::Time;
use h2lab_core::wire::budget::DEFAULT_WINDOW_BUDGET;
use h2lab_core::wire::{Config, Exceeded, Role, WindowBudget};

use crate::io::clock::Clock;
use crate::io::reactor::{Completion, Reactor, Token};
use crate::io::tcp::{Listener, Stream};
use crate::io::tls::{ServerTls, ServerTlsOptions, TlsError};
use crate::io::transport::Transport;
use session::Session;

/// How the origin behaves.
#[derive(Debug, Clone)]
pub struct OriginConfig {
    /// Where it listens in clear; port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// Where it listens with TLS.
    pub tls_listen: Vec<SocketAddr>,
    /// What it shows and asks for in TLS; by default a certificate that is made at start and signed by itself.
    pub tls: ServerTlsOptions,
    /// Settings of the engines: windows, frame size, streams, requests per connection.
    pub engine: Config,
    /// Memory for the receive windows of all connections, in bytes.
    pub window_budget: u64,
    /// How a connection ends after [`Config::max_requests`] requests.
    pub goaway: GoAway,
    /// Time added to every answer.
    pub handler_delay: Duration,
    /// How long requests under way may take once it is stopped.
    pub drain_timeout: Duration,
    /// Told when a connection ends because its client went beyond a bound, and how many bytes were held for it.
    pub on_exceeded: Option<fn(&Exceeded, usize)>,
}

/// How long requests under way may take when the server is stopped, if nobody says otherwise.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Streams that a client may have open on a connection. An open one costs 600 bytes before it is answered, whoever asks: a
/// thousand are less than the buffers of their connection, while the 100,000 that were the default let a client hold 60 MB
/// for nothing. nginx takes 128, nghttpd 100, Envoy 1,024; fewer than a thousand would limit load generators, which is what
/// this server is for. The lab asks for more, since one connection must stay one there, however many requests a stall
/// piles up.
pub const MAX_CONCURRENT_STREAMS: u32 = 1_000;

/// The longest body of a request that upgrades to HTTP/2: until its end nothing else can be said on the connection.
pub const UPGRADE_BODY: u32 = 64 * 1024;

/// How a connection ends after its last request. HTTP/1.1 has one way only: the answer says `Connection: close`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GoAway {
    /// One GOAWAY, at once, with the last request's stream: what the client has sent meanwhile is lost. nginx's way.
    #[default]
    Abrupt,
    /// First a GOAWAY that takes whatever is on its way, and the last stream one round trip later (RFC 9113 §6.8).
    Graceful,
}

impl OriginConfig {
    /// A server on these addresses, for everyday use: what a comparison could run into is set where it is started for one.
    pub fn new(listen: Vec<SocketAddr>, tls_listen: Vec<SocketAddr>) -> Self {
        let mut engine = Config::new(Role::Server);
        engine.max_concurrent_streams = Some(MAX_CONCURRENT_STREAMS);
        // nginx's windows. With RFC 9113's 65,535 bytes for the whole connection, an upload over one lossy connection is
        // held back by the window before TCP is, and the wrong cause is measured.
        engine.flow.stream_window = 65_536;
        engine.flow.connection_window = i32::MAX as u32;
        // A tunnel to itself does no harm to who does not ask for one.
        engine.connect_protocol = true;
        // Node's burst: a client of ours whose requests run into their timeouts together resets them together.
        engine.limits.resets.burst = 1_000;
        Self {
            listen,
            tls_listen,
            tls: ServerTlsOptions::default(),
            engine,
            window_budget: DEFAULT_WINDOW_BUDGET,
            goaway: GoAway::default(),
            handler_delay: Duration::ZERO,
            drain_timeout: DRAIN_TIMEOUT,
            on_exceeded: None,
        }
    }
}

/// A socket that the origin listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listening {
    /// Whether it is TLS.
    pub tls: bool,
    /// The address, with the port that was really taken.
    pub address: SocketAddr,
}

impl fmt::Display for Listening {
    /// `http://127.0.0.1:8080`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "https" } else { "http" }, self.address)
    }
}

/// What the origin has done, told when it ends: a count of requests that does not depend on what their client believes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Served {
    /// Requests whose heads arrived.
    pub requests: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// Of these, those that ended, or stand, without a single request.
    pub useless: u64,
}

impl Served {
    /// Counts a connection that carried so many requests.
    fn add(&mut self, requests: u32) {
        self.requests += u64::from(requests);
        self.connections += 1;
        self.useless += u64::from(requests == 0);
    }
}

impl fmt::Display for Served {
    /// `served 1000 requests on 3 connections (1 without any)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, connections, useless } = self;
        write!(f, "served {requests} requests on {connections} connections ({useless} without any)")
    }
}

/// Why the origin cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum OriginError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The event loop broke.
    #[error("the origin's event loop failed: {0}")]
    Io(#[from] io::Error),
}

/// Serves until `stop` is set, which is looked at ten times per second, and what was asked until then; tells what that was.
/// `ready` is told every socket once it listens.
pub fn run(
    config: &OriginConfig,
    stop: &AtomicBool,
    ready: &mut dyn FnMut(&[Listening]),
) -> Result<Served, OriginError> {
    let mut server = Server::new(config)?;
    ready(&server.listening);
    server.serve(stop)?;
    Ok(server.served())
}

/// The event loop.
struct Server<'a> {
    config: &'a OriginConfig,
    reactor: Reactor,
    clock: Clock,
    listening: Vec<Listening>,
    tls: Option<ServerTls>,
    /// By token, after those of the listeners.
    sessions: Vec<Option<Box<Session>>>,
    free: Vec<usize>,
    budget: WindowBudget,
    /// Of the connections that are over.
    served: Served,
    /// Given up when file descriptors run out, so that the waiting connection can be taken and closed rather than be
    /// reported for ever.
    spare: Option<File>,
}

/// How often `stop` is looked at.
const STOP_PERIOD: Duration = Duration::from_millis(100);

impl<'a> Server<'a> {
    fn new(config: &'a OriginConfig) -> Result<Self, OriginError> {
        let clock = Clock::start();
        let mut reactor = Reactor::new(clock)?;
        let mut listening = Vec::new();
        let clear = config.listen.iter().map(|address| (false, *address));
        for (tls, address) in clear.chain(config.tls_listen.iter().map(|address| (true, *address))) {
            let listener =
                Listener::bind(address).map_err(|source| OriginError::Listen { address, source })?;
            let taken = listener.local_address()?;
            reactor.submit_accept(Token(listening.len() as u32), listener)?;
            listening.push(Listening { tls, address: taken });
        }
        let names = ["localhost", "server", "127.0.0.1", "::1"];
        let tls = match config.tls_listen.as_slice() {
            [] => None,
            _ => Some(ServerTls::new(&config.tls, &names, &["h2", "http/1.1"])?),
        };
        Ok(Self {
            config,
            reactor,
            clock,
            listening,
            tls,
            sessions: Vec::new(),
            free: Vec::new(),
            budget: WindowBudget::new(config.window_budget),
            served: Served::default(),
            spare: File::open("/dev/null").ok(),
        })
    }

    /// Serves until `stop` is set, and then until all that was asked before is answered, within
    /// [`OriginConfig::drain_timeout`]. No connection is taken any more, HTTP/2 is told by the two steps of a GOAWAY, HTTP/1.1
    /// by `Connection: close`.
    fn serve(&mut self, stop: &AtomicBool) -> Result<(), OriginError> {
        while !stop.load(Ordering::Relaxed) {
            self.turn(self.clock.now() + STOP_PERIOD)?;
        }
        for listener in 0..self.listening.len() {
            self.reactor.forget(Token(listener as u32));
        }
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
        let mut served = self.served;
        self.sessions.iter().flatten().for_each(|session| served.add(session.requests()));
        served
    }

    /// Waits until something happens, or `until`, and deals with it.
    fn turn(&mut self, until: Time) -> Result<(), OriginError> {
        self.reactor.wait(until)?;
        while let Some(completion) = self.reactor.next_completion() {
            match completion {
                Completion::Accepted { token, result: Ok(stream) } => self.accept(token, stream),
                Completion::Accepted { result: Err(_), .. } => self.spare = None,
                Completion::Ready { token, writable, hangup, .. } => {
                    self.with_session(token, |session, clock, config| {
                        session.ready(clock, config, writable, hangup);
                    });
                }
                Completion::Timer { token } => {
                    self.with_session(token, session::Session::tick);
                }
                Completion::Connected { .. } => unreachable!("the origin dials nobody"),
            }
        }
        Ok(())
    }

    /// Takes a connection in.
    fn accept(&mut self, listener: Token, stream: Stream) {
        if self.spare.is_none() {
            // File descriptors had run out: this one is closed, and the reserve taken again if there is room.
            drop(stream);
            self.spare = File::open("/dev/null").ok();
            return;
        }
        let is_tls = self.listening[listener.0 as usize].tls;
        let transport = match (&self.tls, is_tls) {
            (Some(tls), true) => match tls.session() {
                Ok(session) => Transport::tls(stream, session),
                Err(_) => return, // out of memory for a session: the client sees a closed connection
            },
            _ => Transport::clear(stream),
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.sessions.push(None);
            self.sessions.len() - 1
        });
        let session = Session::new(transport, self.config, self.budget.share(), self.clock.now());
        if self.reactor.submit_stream(self.token(slot), session.transport().stream()).is_ok() {
            self.sessions[slot] = Some(Box::new(session));
            // The share of all, this one's as well: it has said nothing yet.
            let share = self.budget.opened();
            self.share_out(share);
            // What the client has sent already is reported at once; a client that sends nothing is dropped in time.
            self.with_session(self.token(slot), |_, _, _| {});
        } else {
            self.free.push(slot);
        }
    }

    fn token(&self, slot: usize) -> Token {
        Token((self.listening.len() + slot) as u32)
    }

    /// Tells all connections how large their windows may be from now on, if that has changed.
    fn share_out(&mut self, share: Option<u32>) {
        let Some(share) = share else { return };
        let now = self.clock.now();
        for (slot, session) in self.sessions.iter_mut().enumerate() {
            if let Some(session) = session {
                session.limit_windows(now, share);
                self.reactor.set_timer(Token((self.listening.len() + slot) as u32), session.deadline());
            }
        }
    }

    fn with_session(&mut self, token: Token, work: impl FnOnce(&mut Session, Clock, &OriginConfig)) {
        let slot = token.0 as usize - self.listening.len();
        let Some(session) = self.sessions.get_mut(slot).and_then(Option::as_mut) else { return };
        work(session, self.clock, self.config);
        let (is_over, deadline) = (session.is_over(), session.deadline());
        if is_over {
            self.served.add(session.requests());
            self.reactor.forget(token);
            self.sessions[slot] = None;
            self.free.push(slot);
            let share = self.budget.closed();
            self.share_out(share);
        } else {
            self.reactor.set_timer(token, deadline);
        }
    }
}
