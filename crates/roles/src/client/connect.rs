//! From an address to a transport that carries plaintext: TCP, then TLS where the protocol asks for it; or QUIC.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use h2lab_base::units::{Time, format_bytes, format_duration};
use h2lab_model::record::{CloseReason, ConnectionRecord, Outcome};
use h2lab_model::workload::Protocol;
use h2lab_wire::{Config, ErrorCode};

use super::defaults;
use super::watch::{Watch, WatchEvent};
use h2lab_net::byte_stream::ByteStream;
use h2lab_net::quic::{Congestion, QuicEndpoint, QuicSession};
use h2lab_net::reactor::{Reactor, Token};
use h2lab_net::tcp::{ConnectOptions, Endpoint, StreamSocket};
use h2lab_net::tls::{ClientTls, TlsError, TlsOptions};
use h2lab_net::transport::{Transport, TransportError};

/// Why there is no usable connection. The text says what to try where that is known.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nothing listens there.
    #[error("connection refused: nothing listens there")]
    Refused,
    /// More connections wait to be accepted than a Unix socket has room for.
    #[error("the server's queue of new connections is full")]
    Full,
    /// Neither accepted nor refused in time.
    #[error("no response to the connection attempt within {}", format_duration(*.0))]
    Timeout(Duration),
    /// TCP was accepted, but TLS was not finished in time.
    #[error(
        "TLS was not established within {}: the server accepts connections but does not respond",
        format_duration(*.0)
    )]
    TlsTimeout(Duration),
    /// TLS or its negotiation failed.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The server closed the connection before it answered anything.
    #[error("the server closes the connection before it responds: {0}")]
    Closed(String),
    /// What answers is another protocol.
    #[error("the server does not speak {expected}: {hint}")]
    WrongProtocol {
        /// What we speak.
        expected: &'static str,
        /// What its bytes resemble, and so what to try.
        hint: &'static str,
    },
    /// It accepts connections and sends nothing.
    #[error(
        "the server accepts the connection but does not respond within {}",
        format_duration(*.0)
    )]
    NoAnswer(Duration),
    /// Its response began and was not complete in time.
    #[error(
        "its response began, but {} of body and not the end of it arrived within {}: give it more time (--timeout), \
         or a smaller response",
        format_bytes(*bytes),
        format_duration(*within)
    )]
    Incomplete {
        /// Body bytes that arrived.
        bytes: u64,
        /// For how long we waited.
        within: Duration,
    },
    /// Its answer is not legal in the protocol that we asked for.
    #[error("the server's response violates the protocol: {0}")]
    Protocol(String),
    /// It reset the stream of the request: it speaks the protocol, but rejects this request.
    #[error("the server reset the stream of the request ({0})")]
    Reset(ErrorCode),
    /// Nothing listens on the UDP port.
    #[error(
        "nothing listens on this UDP port: the server does not speak HTTP/3 there (QUIC uses UDP; a TCP port of the \
         same number does not imply it)"
    )]
    NoUdp,
    /// Nothing was received over UDP.
    #[error(
        "no response over UDP within {}: the server does not speak HTTP/3, or the path drops UDP",
        format_duration(*.0)
    )]
    QuicTimeout(Duration),
    /// The kernel refuses it: no route, no free port, too many open files …
    #[error("cannot connect: {0}")]
    Io(io::Error),
}

impl ConnectError {
    /// The outcome of a request that found no connection because of this.
    pub const fn outcome(&self) -> Outcome {
        match self {
            Self::Tls(_) | Self::TlsTimeout(_) => Outcome::Tls,
            // These connections were established.
            Self::Closed(_) => Outcome::Closed,
            Self::Protocol(_) | Self::WrongProtocol { .. } => Outcome::Protocol,
            Self::Reset(_) => Outcome::Reset,
            _ => Outcome::Connect,
        }
    }

    /// Whether a server speaks TLS but not the protocol that was offered to it.
    pub const fn is_not_spoken(&self) -> bool {
        matches!(self, Self::Tls(TlsError::Alpn { .. }))
    }

    /// Whether the server answers in the protocol that was asked for. A reset is such an answer, too, unless it asks
    /// for HTTP/1.1.
    pub fn is_answer(&self) -> bool {
        matches!(self, Self::Reset(code) if *code != ErrorCode::HTTP_1_1_REQUIRED)
    }

    /// Whether nothing answers at an address, so that another one of the same name is worth trying.
    pub const fn is_not_there(&self) -> bool {
        matches!(self, Self::Refused | Self::Timeout(_) | Self::Io(_))
    }
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::WouldBlock => Self::Full,
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::Closed(error.to_string()),
            _ => Self::Io(error),
        }
    }
}

impl From<TransportError> for ConnectError {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Io(error) => error.into(),
            TransportError::Tls(error) => error.into(),
            TransportError::QuicVersion => {
                Self::WrongProtocol { expected: "HTTP/3", hint: "it speaks another version of QUIC than 1" }
            }
            error @ TransportError::Quic(_) => Self::Protocol(error.to_string()),
        }
    }
}

/// How a connection asks for HTTP/2 in clear (RFC 7540 §3.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpgradeOffer {
    /// With the first request, as curl does. It must have no body.
    ByRequest,
    /// With an `OPTIONS *` before the first request, if requests have bodies. Servers that upgrade in the handler of a
    /// path, such as Go's x/net, ignore it.
    ByOptions {
        /// Its `Host`.
        authority: String,
    },
}

impl UpgradeOffer {
    /// For requests to `authority`, of which any may be the first.
    pub fn of(authority: &str, have_bodies: bool) -> Self {
        if have_bodies { Self::ByOptions { authority: authority.to_owned() } } else { Self::ByRequest }
    }
}

/// Where to connect to and how: the same for all connections of a cell.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct DialTarget {
    /// Where the server is.
    pub address: Endpoint,
    /// What to speak.
    pub protocol: Protocol,
    /// What our engines announce.
    pub engine: Config,
    /// Congestion control to ask for; `None` leaves the system's, and in QUIC, which is not the system's, CUBIC.
    pub congestion: Option<String>,
    /// The mark of its packets over TCP (`SO_MARK`).
    pub mark: Option<u32>,
    /// Whether what is read over TCP is acknowledged at once (`TCP_QUICKACK`).
    pub quick_acks: bool,
    /// How `h2c` by upgrade is asked for. `None` begins with HTTP/2 at once.
    pub upgrade: Option<UpgradeOffer>,
    /// Whether a server that has acknowledged a whole request and sends nothing until the timeout is to blame for that.
    /// Behind a link that loses packets, its answer may have been lost.
    pub blames_silence: bool,
    /// Whether the number of bytes matters, and not when each of them arrived: then completions are reported for many
    /// bytes at a time, sockets with a short round trip buffer little, and [`super::session::ClientSession::look`] is
    /// called at least ten times a second.
    pub gathers: bool,
    /// How long the server may take until TCP and TLS are established. [`defaults::CONNECT_TIMEOUT`] unless set.
    pub connect_timeout: Duration,
    /// Bytes that are read from one connection before other connections and timers get their turn: a server that never
    /// stops sending must not starve the rest of a run.
    pub turn: usize,
    /// Whether sessions report each frame that crosses the socket.
    pub tap: bool,
    /// The observer of every step and byte, if there is one.
    pub watch: Option<Arc<dyn Watch>>,
    tls: Option<ClientTls>,
}

impl DialTarget {
    /// A server at `address` whose name in TLS is `server_name`. Fails only when TLS cannot be set up.
    pub fn new(
        address: Endpoint,
        protocol: Protocol,
        server_name: &str,
        options: &TlsOptions,
        congestion: Option<String>,
    ) -> Result<Self, TlsError> {
        let tls = protocol.alpn().map(|alpn| ClientTls::new(server_name, alpn, options)).transpose()?;
        Ok(Self {
            address,
            protocol,
            engine: defaults::engine(tls.is_some()),
            congestion,
            mark: None,
            quick_acks: false,
            upgrade: None,
            blames_silence: false,
            gathers: false,
            connect_timeout: defaults::CONNECT_TIMEOUT,
            turn: 1 << 20,
            tap: true,
            watch: None,
            tls,
        })
    }

    /// Shows something to the observer.
    pub fn show(&self, at: Time, event: WatchEvent<'_>) {
        if let Some(watch) = &self.watch {
            watch.see(at, event);
        }
    }
}

/// A connection being established: TCP, then TLS; or QUIC, which is both at once.
#[derive(Debug)]
pub struct Dial {
    /// Boxed: it is passed on from step to step.
    record: Box<ConnectionRecord>,
    /// Of [`DialTarget::connect_timeout`].
    connect_timeout: Duration,
    deadline: Time,
    /// `None` until TCP is established.
    transport: Option<Transport>,
}

/// A connection that can carry requests, before it has an engine.
#[derive(Debug)]
pub struct Established {
    /// Its transport; with TLS the first bytes of the server may already be inside.
    pub transport: Transport,
    /// What is known of it so far.
    pub record: Box<ConnectionRecord>,
}

/// The state of a [`Dial`].
#[derive(Debug)]
pub enum DialState {
    /// It waits for the next completion, or its deadline.
    Pending(Dial),
    /// It is established.
    Established(Established),
    /// It has failed.
    Failed(Box<ConnectionRecord>, ConnectError),
}

impl Dial {
    /// Dials `target` under `token`, as the connection with number `index` of the cell, whose windows may have
    /// `window_limit` bytes: QUIC grants them at once.
    pub fn begin(
        reactor: &mut Reactor,
        token: Token,
        index: u32,
        target: &DialTarget,
        window_limit: u32,
        now: Time,
    ) -> DialState {
        target.show(now, WatchEvent::Dialling { connection: index, address: &target.address });
        let record = Box::new(record(index, target.address.port(), now));
        let connect_timeout = target.connect_timeout;
        let mut dial = Self { record, connect_timeout, deadline: now + connect_timeout, transport: None };
        if target.protocol.is_quic() {
            return match dial_quic(reactor, token, target, window_limit, now) {
                Ok(quic) => {
                    dial.record.local_port = quic.local_address().map_or(0, |address| address.port());
                    dial.transport = Some(Transport::Quic(Box::new(quic)));
                    dial.proceed(now)
                }
                Err(error) => dial.fail(now, ConnectError::Io(error)),
            };
        }
        let options = ConnectOptions {
            congestion: target.congestion.as_deref(),
            mark: target.mark,
            quick_acks: target.quick_acks,
        };
        match StreamSocket::connect(&target.address, &options)
            .and_then(|stream| reactor.submit_connect(token, stream))
        {
            Ok(()) => DialState::Pending(dial),
            Err(error) => dial.fail(now, error.into()),
        }
    }

    /// When [`Dial::expire`] must be called.
    pub fn deadline(&self) -> Time {
        self.transport.as_ref().map_or(Time::NEVER, Transport::timeout).min(self.deadline)
    }

    /// The TCP connect has completed.
    pub fn connected(
        mut self,
        result: io::Result<StreamSocket>,
        target: &DialTarget,
        now: Time,
    ) -> DialState {
        let transport = result.map_err(ConnectError::from).and_then(|stream| {
            self.record.connected_at = now;
            // A Unix socket has no address of its own.
            self.record.local_port = stream.local_address().map_or(0, |address| address.port());
            if self.record.local_port == target.address.port() && stream.meets_itself() {
                return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
            }
            target.show(now, WatchEvent::Connected { record: &self.record });
            Ok(match &target.tls {
                Some(tls) => Transport::Stream(ByteStream::tls(stream, tls.session()?)),
                None => Transport::Stream(ByteStream::clear(stream)),
            })
        });
        match transport {
            Ok(transport) => {
                self.transport = Some(transport);
                self.proceed(now)
            }
            Err(error) => self.fail(now, error),
        }
    }

    /// The socket has events: continues the handshake.
    pub fn proceed(mut self, now: Time) -> DialState {
        let Some(mut transport) = self.transport.take() else { return DialState::Pending(self) };
        match transport.handshake(now) {
            Ok(true) => {
                if transport.quic().is_some() {
                    self.record.connected_at = now;
                }
                self.record.ready_at = now;
                self.record.tls_resumed = transport.is_resumed();
                DialState::Established(Established { transport, record: self.record })
            }
            Ok(false) => {
                self.transport = Some(transport);
                DialState::Pending(self)
            }
            Err(TransportError::Io(error))
                if transport.quic().is_some() && error.kind() == io::ErrorKind::ConnectionRefused =>
            {
                self.fail(now, ConnectError::NoUdp)
            }
            Err(error) => self.fail(now, error.into()),
        }
    }

    /// Its deadline has passed: it has timed out, or lost handshake data must be retransmitted.
    pub fn expire(mut self, now: Time) -> DialState {
        if now < self.deadline {
            if let Some(transport) = &mut self.transport {
                transport.handle_timeout(now);
            }
            return self.proceed(now);
        }
        let error = match &self.transport {
            Some(Transport::Stream(_)) => ConnectError::TlsTimeout,
            Some(Transport::Quic(_)) => ConnectError::QuicTimeout,
            None => ConnectError::Timeout,
        };
        let error = error(self.connect_timeout);
        self.fail(now, error)
    }

    /// What it waits for.
    const fn step(&self) -> &'static str {
        match &self.transport {
            Some(Transport::Stream(_)) => "TLS",
            Some(Transport::Quic(_)) => "QUIC",
            None => "TCP",
        }
    }

    /// The cell has ended before it was established.
    pub fn abandon(self, now: Time) -> ConnectionRecord {
        let why = format!("the work ended before {} was established", self.step());
        let mut record = *self.record;
        record.closed_at = now;
        record.closed = CloseReason::NotEstablished { why };
        record
    }

    fn fail(mut self, now: Time, error: ConnectError) -> DialState {
        self.record.closed_at = now;
        self.record.closed = CloseReason::NotEstablished { why: error.to_string() };
        DialState::Failed(self.record, error)
    }
}

/// Sends the first datagrams of a QUIC connection, and registers its socket with the reactor.
fn dial_quic(
    reactor: &mut Reactor,
    token: Token,
    target: &DialTarget,
    window_limit: u32,
    now: Time,
) -> io::Result<QuicSession> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
    let (Endpoint::Tcp(address), Some(tls)) = (&target.address, &target.tls) else {
        return Err(invalid(format!(
            "HTTP/3 needs an address, and {} is not one; omit --unix-socket",
            target.address
        )));
    };
    let congestion = match &target.congestion {
        None => Congestion::default(),
        Some(name) => Congestion::named(name).ok_or_else(|| {
            invalid(format!("QUIC has no congestion control `{name}`; it has reno, cubic and bbr"))
        })?,
    };
    let engine = Config { flow: target.engine.flow.within(window_limit), ..target.engine };
    let quic = QuicEndpoint::dial(*address, tls, &engine, congestion, reactor.clock(), now)?;
    reactor.submit_datagrams(token, &quic.socket())?;
    Ok(quic)
}

/// The record of a connection that is dialled now, otherwise still empty.
pub fn record(index: u32, remote_port: u16, now: Time) -> ConnectionRecord {
    let [connected_at, ready_at, closed_at] = [Time::NEVER; 3];
    ConnectionRecord {
        index,
        remote_port,
        dialled_at: now,
        connected_at,
        ready_at,
        closed_at,
        ..ConnectionRecord::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_was_established_and_then_closed_is_not_one_that_could_not_be_made() {
        assert_eq!(ConnectError::Refused.outcome(), Outcome::Connect);
        assert_eq!(ConnectError::Closed("reset".to_owned()).outcome(), Outcome::Closed);
        assert_eq!(ConnectError::Protocol("no HTTP".to_owned()).outcome(), Outcome::Protocol);
        assert_eq!(ConnectError::TlsTimeout(Duration::ZERO).outcome(), Outcome::Tls);
    }
}
