//! How the origin behaves, where it listens, and why it cannot listen.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use h2lab_wire::budget::DEFAULT_WINDOW_BUDGET;
use h2lab_wire::{Config, Exceeded, Role};

use super::bulk::OriginContent;
use h2lab_net::quic::Congestion;
use h2lab_net::resources;
use h2lab_net::tls::{ServerTlsOptions, TlsError};

/// How the origin behaves.
#[derive(Debug, Clone)]
pub struct OriginConfig {
    /// What it serves.
    pub site: OriginContent,
    /// Where it listens in clear; port 0 picks a free one.
    pub listen: Vec<SocketAddr>,
    /// Where it listens with TLS.
    pub tls_listen: Vec<SocketAddr>,
    /// Whether it speaks HTTP/3, over UDP on the ports on which it listens with TLS, and with which congestion control. It is
    /// announced to clients over TLS (RFC 7838).
    pub h3: Option<Congestion>,
    /// Congestion control of TCP; `None` leaves the system's.
    pub congestion: Option<String>,
    /// Whether its TCP sockets keep Nagle's algorithm.
    pub nagle: bool,
    /// What it presents and requires in TLS; by default a self-signed certificate made at start.
    pub tls: ServerTlsOptions,
    /// Whether it accepts HTTP/1.1 alone over TLS, whatever a client offers.
    pub http1: bool,
    /// Settings of the engines: windows, frame size, streams, requests per connection.
    pub engine: Config,
    /// Memory for the receive windows of all connections, in bytes.
    pub window_budget: u64,
    /// Memory of all connections together, in bytes: engines, their buffers, and bodies that are held. When it is used up requests
    /// are answered 503 and new connections are closed. Not counted: TLS, QUIC, the kernel's buffers.
    pub memory: u64,
    /// How a connection ends after [`Config::max_requests`] requests.
    pub goaway: GoAwayMode,
    /// Bytes of bodies, received or made, that are held for one connection; beyond it the answer is an error.
    pub held: usize,
    /// Time added to every answer.
    pub handler_delay: Duration,
    /// How long requests in progress may take once it is stopped.
    pub drain_timeout: Duration,
    /// Called when a connection ends because its client exceeded a bound, with the bytes that were held for it.
    pub on_exceeded: Option<fn(&Exceeded, usize)>,
    /// Called with a line of [`quic_samples`](super::quic_samples) about a QUIC connection, every 10 ms at most.
    pub on_quic_sample: Option<fn(&str)>,
    /// Called with a line of [`counts`](super::counts), every 100 ms while requests come.
    pub on_counts: Option<fn(&str)>,
}

/// The default of how long requests in progress may take when the server is stopped.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Streams that a client may have open on a connection. An open stream costs 600 bytes before it is answered. A
/// thousand of them are less than the buffers of their connection; the former default of 100,000 let a client hold 60
/// MB for nothing. nginx takes 128, nghttpd 100, Envoy 1,024. Fewer than a thousand would limit load generators, which
/// this server is for. The lab asks for more, since one connection must stay one there, however many requests a stall
/// piles up.
pub const MAX_CONCURRENT_STREAMS: u32 = 1_000;

/// The longest body of a request that upgrades to HTTP/2: until its end nothing else can be sent on the connection.
pub const UPGRADE_BODY: u32 = 64 * 1024;

/// Bytes of bodies that are held for one connection, by default.
const MAX_HELD: usize = 16 << 20;

/// How a connection ends after its last request. HTTP/1.1 has one way only: the answer says `Connection: close`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GoAwayMode {
    /// One GOAWAY, at once, with the last request's stream: what the client has sent meanwhile is lost. nginx's way.
    #[default]
    Abrupt,
    /// First a GOAWAY that still admits requests in flight, and the last stream one round trip later (RFC 9113 §6.8).
    Graceful,
}

impl OriginConfig {
    /// A server on these addresses, for everyday use. Limits that a comparison could run into are set where it is
    /// started for one.
    pub fn new(listen: Vec<SocketAddr>, tls_listen: Vec<SocketAddr>) -> Self {
        let mut engine = Config::new(Role::Server);
        engine.max_concurrent_streams = Some(MAX_CONCURRENT_STREAMS);
        // nginx's windows. With RFC 9113's 65,535 bytes for the whole connection, an upload over one lossy connection is
        // held back by the window before TCP is, and the wrong cause is measured.
        engine.flow.stream_window = 65_536;
        engine.flow.connection_window = i32::MAX as u32;
        // A tunnel to itself does not affect other clients.
        engine.connect_protocol = true;
        // Node's burst. If requests of a client of ours time out together, it resets them together.
        engine.limits.resets.burst = 1_000;
        Self {
            site: OriginContent::default(),
            listen,
            tls_listen,
            h3: None,
            congestion: None,
            nagle: false,
            tls: ServerTlsOptions::default(),
            http1: false,
            engine,
            window_budget: DEFAULT_WINDOW_BUDGET,
            memory: resources::memory() / 4,
            goaway: GoAwayMode::default(),
            held: MAX_HELD,
            handler_delay: Duration::ZERO,
            drain_timeout: DRAIN_TIMEOUT,
            on_exceeded: None,
            on_quic_sample: None,
            on_counts: None,
        }
    }

    /// The engine configuration of a connection. The engine must not begin a graceful end: it ends a connection as
    /// nginx does.
    pub(super) fn engine_of(&self, tls: bool) -> Config {
        let max_requests = self.engine.max_requests.filter(|_| self.goaway == GoAwayMode::Abrupt);
        Config { tls, max_requests, ..self.engine }
    }
}

/// A socket that the origin listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listening {
    /// Whether what is spoken there is encrypted.
    pub tls: bool,
    /// Whether it is HTTP/3, over UDP.
    pub h3: bool,
    /// The address, with the port that was really taken.
    pub address: SocketAddr,
}

impl fmt::Display for Listening {
    /// `http://127.0.0.1:8080`, `https://127.0.0.1:8443`, `https://127.0.0.1:8443 h3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, h3) = (if self.tls { "https" } else { "http" }, if self.h3 { " h3" } else { "" });
        write!(f, "{scheme}://{}{h3}", self.address)
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
    /// A UDP port cannot be listened on.
    #[error("cannot listen on {address} over UDP, for HTTP/3: {source}")]
    ListenUdp {
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
