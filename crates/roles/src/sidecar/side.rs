//! One connection of the sidecar, towards a client or towards an instance: transport, engine, and what its streams carry.

use std::net::SocketAddr;
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::record::CloseReason;
use h2lab_net::quic::QuicSession;
use h2lab_net::tcp_info::TcpInfo;
use h2lab_net::transport::{Received, Transport, TransportError};
use h2lab_proxy::fields::Version;
use h2lab_proxy::pool::liveness::Liveness;
use h2lab_proxy::pool::silence::Silence;
use h2lab_wire::trace::{Crossing, Direction};
use h2lab_wire::{Config, Connection, ErrorCode, StreamId};

use super::observe::{Watched, streams_allowed};
use super::path::Path;
use super::streams::Streams;
use super::threads::Assignment;
use super::transparent::Intercepted;
use crate::accepted::{LINGER, Lingering, TURN, flush_seen};

/// How many requests of a connection to an instance may be cancelled before another one takes its place. The lowest
/// number after which a known server may end it is 100.
const MOST_CANCELLED: u32 = 90;

/// Bytes that a socket takes beyond what its peer's window and the path let it send. When these are used up, the peer
/// is slow. The sender of what follows then gets no larger window, since windows follow what the socket takes.
const UNSENT: u32 = 256 * 1024;

/// Bytes of a window, and of what a socket takes, while memory is short. A window is one frame at least.
pub const LITTLE: u32 = 16 * 1024;
/// Bytes that wait in the engine then.
const LITTLE_UNSENT: usize = 8 * 1024;

/// After so long without a request, a client's connection gives the memory of its buffers back: there may be thousands
/// of them.
const IDLE: Duration = Duration::from_secs(1);

/// A peer that acknowledges nothing for so long is no longer there: see [`Side::close_timeout`].
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(1);

/// Whose connection it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// A client's, accepted on the listener with this number.
    Client {
        /// The listener.
        listener: u32,
        /// The client's address, as text.
        address: Box<str>,
    },
    /// Our own, to the instance with this number.
    Instance(u32),
}

/// One connection.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "what socket and engine are ready for is independent")]
pub struct Side {
    /// What carries its bytes.
    pub transport: Transport,
    /// Its engine.
    pub engine: Connection,
    /// What it speaks.
    pub version: Version,
    /// Whose it is.
    pub peer: Peer,
    /// Which exchange each stream carries.
    pub streams: Streams,
    /// It has something to send, or may have.
    pub is_dirty: bool,
    /// Distinguishes it from others that are in its place before and after it.
    pub serial: u32,
    /// Its number among those to its instance, and the requests that it was given.
    pub number: u32,
    /// See [`Side::number`].
    pub requests: u32,
    /// When a request last came or ended. Other things that an instance sends, such as PINGs, do not count.
    pub used_at: Time,
    /// When it gave the memory of its buffers back.
    released_at: Time,
    /// Requests on it that were cancelled.
    cancelled: u32,
    /// Bytes that had been written when the last of them was placed.
    pub written_before: u64,
    /// What is known of its path, see [`Side::path_of`].
    pub path: Option<Box<Path>>,
    /// Its client's address.
    pub client: Option<SocketAddr>,
    /// Where the client has connected to, if a header of the PROXY protocol says it.
    pub named: Option<Box<SocketAddr>>,
    /// Its place among the clients of all loops.
    pub assignment: Option<Assignment>,
    /// Where it was to go, if it was brought to a listener of ours.
    pub intercepted: Option<Box<Intercepted>>,
    /// Hashes of the paths that were pushed on it: few, and none on most connections.
    pub pushed: Vec<u64>,
    /// Whether its peer is there.
    pub liveness: Liveness,
    /// Whether its instance acknowledges what is sent, over QUIC.
    pub silence: Option<Box<Silence>>,
    /// What is recorded of it, if anything.
    pub watched: Option<Box<Watched>>,
    /// Segments sent, received and sent again, when they were last read.
    pub counted: [u32; 3],
    /// Its instance has ended it because it had too much of something other than PINGs.
    pub was_too_much: bool,
    /// It announced small windows when it began.
    pub announced_little: bool,
    /// The socket is full.
    blocked: bool,
    /// The socket may have more to read.
    unread: bool,
    /// The peer has finished sending; what it sent may not have been read yet.
    hangup: bool,
    /// All that it sent was read, to the end.
    eof: bool,
    /// The engine has queued its last bytes, which may still have to be sent.
    pub is_closed: bool,
    /// Our direction is closed, and the other one is not.
    is_shut: bool,
    /// What it carried broke off, and only a reset shows that to the peer.
    is_aborted: bool,
    /// When the rest of what is to be sent on a connection that has ended is given up.
    close_by: Option<Time>,
    /// What the peer had acknowledged then, or when the socket became full: bytes, or over QUIC the number of
    /// acknowledgements.
    acknowledged: u64,
    /// Our direction is closed, and what still arrives is discarded.
    lingering: Option<Lingering>,
}

/// What to do with a connection after it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing, until this time at the latest.
    Wait(Time),
    /// It is over.
    Drop,
}

impl Side {
    /// A connection that is established.
    pub fn new(transport: Transport, engine: Connection, version: Version, peer: Peer) -> Self {
        Self {
            transport,
            engine,
            version,
            path: Self::path_of(version, &peer),
            peer,
            streams: Streams::default(),
            is_dirty: false,
            serial: 0,
            number: 0,
            requests: 0,
            used_at: Time::ZERO,
            released_at: Time::ZERO,
            cancelled: 0,
            written_before: 0,
            client: None,
            named: None,
            assignment: None,
            intercepted: None,
            pushed: Vec::new(),
            liveness: Liveness::new(Time::ZERO),
            silence: None,
            watched: None,
            counted: [0; 3],
            was_too_much: false,
            announced_little: false,
            blocked: false,
            unread: false,
            hangup: false,
            eof: false,
            is_closed: false,
            is_shut: false,
            is_aborted: false,
            close_by: None,
            acknowledged: 0,
            lingering: None,
        }
    }

    /// Streams that an HTTP/2 peer has allowed on this connection; none if it sets no bound, or has announced none yet.
    pub fn streams_allowed(&self) -> Option<u32> {
        if self.version == Version::H2 { streams_allowed(&self.engine.settings_in_effect().1) } else { None }
    }

    /// Its client's address, and the address that the client has connected to: those before any proxies that have sent
    /// them in a header, and before the kernel redirected the connection to this one.
    pub fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        let intercepted = || Some(self.intercepted.as_ref()?.original.address());
        let own = || match self.transport.quic() {
            Some(quic) => quic.local_address().ok(),
            None => self.transport.tcp()?.local_address().ok(),
        };
        let named = self.named.as_deref().copied();
        Some((self.client?, named.or_else(intercepted).or_else(own)?))
    }

    /// Bounds how much its socket takes that a peer does not read.
    pub fn limit_unsent(&self) {
        if let Some(tcp) = self.transport.tcp() {
            tcp.limit_unsent(UNSENT);
        }
    }

    /// Uses little memory while that `is_tight`; otherwise what `config` allows.
    pub fn use_little(&mut self, is_tight: bool, config: &Config) {
        let buffer = if is_tight { LITTLE_UNSENT } else { config.send_buffer };
        let window = match self.version {
            _ if is_tight => LITTLE,
            Version::H1 => config.flow.stream_window,
            Version::H2 | Version::H3 => u32::MAX,
        };
        self.engine.set_window_limit(window);
        self.engine.set_send_buffer(buffer);
        self.limit_quic(is_tight, config);
        if let Some(tcp) = self.transport.tcp() {
            tcp.limit_unsent(if is_tight { LITTLE } else { UNSENT });
        }
    }

    /// While memory is short: moves what waits for a peer that takes nothing into as little memory as it needs.
    pub fn shrink(&mut self) {
        if self.blocked {
            self.engine.set_send_buffer(LITTLE_UNSENT);
        }
    }

    /// What the peer has acknowledged so far: bytes, or over QUIC the number of acknowledgements. And whether more is
    /// still to be acknowledged.
    fn acknowledged(&self) -> (u64, bool) {
        if let Some(quic) = self.transport.quic() {
            return (quic.acknowledgements(), true);
        }
        let tcp = self.transport.tcp().and_then(|tcp| Some((tcp, TcpInfo::of(tcp).ok()?)));
        tcp.map_or((0, false), |(tcp, info)| (info.bytes_acked, info.bytes_acked < tcp.written()))
    }

    /// Whether its peer has taken anything since the last call, or since the socket became full, and more is on its
    /// way: then the peer is slow, and may not be given up. Writing shows this only when the socket has room again,
    /// hundreds of kilobytes later.
    pub fn takes_some(&mut self) -> bool {
        let (acknowledged, has_more) = self.acknowledged();
        std::mem::replace(&mut self.acknowledged, acknowledged) != acknowledged && has_more
    }

    /// The socket has something to read, or room.
    pub const fn note(&mut self, writable: bool, hangup: bool) {
        if writable {
            self.blocked = false;
        }
        self.hangup |= hangup;
    }

    /// Whether something is left in the socket, which does not report it again.
    pub fn has_unread(&mut self) -> bool {
        // In QUIC: what was left in its streams while it was not wanted.
        self.unread |= self.transport.has_unread(&mut self.engine);
        self.unread && !self.eof
    }

    /// Whether the socket is full.
    pub const fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Reads once. Returns `true` if the engine may have events and there may be more to read. `is_held`: bytes of
    /// HTTP/1.1 wait for the other side, so nothing is read.
    pub fn receive(&mut self, now: Time, turn: &mut usize, is_held: bool) -> Result<bool, TransportError> {
        if let Some(lingering) = &mut self.lingering {
            if let Transport::Stream(stream) = &mut self.transport {
                match lingering.discard(stream)? {
                    Some(more) => self.unread = more,
                    None => self.eof = true,
                }
            } else {
                self.unread = false;
                self.eof = self.is_quic_over(now)?;
            }
            return Ok(false); // the caller marks it, and it is closed when that was all
        }
        self.unread = false;
        if self.eof || (self.is_closed && !self.transport.is_closing()) {
            return Ok(false);
        }
        if is_held || *turn > TURN || !self.may_receive() {
            self.unread = true;
            return Ok(false);
        }
        let Self { transport, engine, watched, .. } = self;
        let mut see = |now: Time, crossing: Crossing<'_>| {
            if let Some(watched) = watched {
                watched.see(now, Direction::Down, crossing);
            }
        };
        match transport.receive(engine, || now, &mut see)? {
            Received::Bytes(n) => {
                *turn += n;
                // Over QUIC anyone can send datagrams that do not come from the peer: see `Sidecar::check_silence`.
                if self.silence.is_none() {
                    self.liveness.heard(now);
                }
                Ok(true)
            }
            Received::WouldBlock => Ok(false),
            Received::Eof => {
                self.eof = true;
                Ok(true)
            }
        }
    }

    /// Cancels a request at an instance. A connection on which many were cancelled takes no more: instances end a
    /// connection on which a peer resets many streams (RFC 9113 §10.5), and clients that cancel here must not end the
    /// requests of others there.
    pub fn cancel(&mut self, stream: StreamId, now: Time) {
        self.engine.reset(now, stream, ErrorCode::CANCEL);
        self.cancelled += 1;
        if self.cancelled == MOST_CANCELLED && self.version != Version::H1 {
            self.engine.goaway(now, ErrorCode::NO_ERROR, b"many requests were cancelled");
        }
    }

    /// Gives the memory of its buffers back if it is a client's and has been idle for long.
    pub fn release_if_idle(&mut self, now: Time) {
        let is_idle = self.streams.len() == 0 && self.used_at + IDLE <= now;
        if is_idle && self.released_at <= self.used_at {
            self.released_at = now;
            self.engine.release_memory();
        }
    }

    /// It takes no more requests, since fewer connections are enough.
    pub fn retire(&mut self) {
        if let Some(watched) = &mut self.watched {
            watched.record.closed = CloseReason::Local { why: "fewer connections are enough".to_owned() };
        }
    }

    /// Whether all that the peer sends has been read, to its end.
    pub const fn has_ended(&self) -> bool {
        self.eof
    }

    /// Whether everything was sent a while ago, and the client has had the time to read it.
    pub fn has_lingered(&self, now: Time) -> bool {
        self.lingering.is_some_and(|lingering| lingering.until <= now + LINGER / 5 * 4)
    }

    /// Whether to read now. After the peer has finished, always: there is no more to come.
    pub fn may_receive(&self) -> bool {
        self.lingering.is_some() || self.hangup || self.transport.may_receive(&self.engine)
    }

    /// Whether the last read emptied the socket, so that another one is of no use.
    pub const fn is_drained(&self) -> bool {
        self.transport.is_drained() && !self.hangup
    }

    /// Writes what the engine has to send.
    pub fn write(&mut self, now: Time) -> Result<Next, TransportError> {
        self.is_dirty = false;
        if let Some(lingering) = self.lingering {
            let is_over = self.eof || now >= lingering.until;
            return Ok(if is_over {
                Next::Drop
            } else {
                Next::Wait(lingering.until.min(self.transport.timeout()))
            });
        }
        if !self.blocked {
            let mut sent = 0;
            let Self { transport, engine, watched, .. } = self;
            let mut see = |crossing: Crossing<'_>| {
                if let Some(watched) = watched {
                    watched.see(now, Direction::Up, crossing);
                }
            };
            self.blocked = !flush_seen(transport, engine, now, &mut sent, &mut see)?;
            if self.blocked {
                self.acknowledged = self.acknowledged().0;
            }
            if sent > 0
                && let Some(path) = &mut self.path
            {
                path.sent(now);
            }
        }
        if self.is_aborted {
            return Ok(Next::Drop);
        }
        if !self.is_shut && !self.blocked && self.engine.has_ended_its_direction() {
            self.is_shut = true;
            self.transport.shutdown(now)?;
        }
        if self.is_closed {
            let has_arrived = self.eof || !self.transport.is_closing();
            if !self.blocked && !self.engine.has_output(now) && has_arrived {
                return self.close(now);
            }
            // The engine has closed and has no timer left, and its last frames cannot be written: a peer that does not read is dropped.
            if self.takes_some() {
                self.close_by = None; // it reads
            }
            let until = *self.close_by.get_or_insert(now + self.close_timeout());
            return Ok(if now >= until {
                if self.transport.quic().is_some() {
                    let _ = self.transport.shutdown(now); // it may be there, and only slow
                }
                Next::Drop
            } else {
                Next::Wait(until.min(self.transport.timeout()))
            });
        }
        Ok(Next::Wait(self.due()))
    }

    /// When something of a connection that is open is due.
    pub fn due(&self) -> Time {
        let probe_at = self.path.as_ref().map_or(Time::NEVER, |path| path.probe_at());
        self.engine.poll_timeout().min(self.transport.timeout()).min(probe_at)
    }

    /// For how long a peer that reads nothing may keep its connection open after the engine's last bytes.
    fn close_timeout(&self) -> Duration {
        // Over QUIC the last bytes are sent again and again meanwhile, and a peer that is still there acknowledges them
        // by itself.
        let owes_nothing = self.transport.quic().is_some_and(QuicSession::owes_only_the_end);
        if owes_nothing { UNACKNOWLEDGED_TIMEOUT } else { LINGER }
    }

    /// Ends with a reset: what a tunnel carries has no end of its own, and would seem complete.
    pub fn abort(&mut self) {
        if let Some(tcp) = self.transport.tcp() {
            tcp.abort_at_close();
            self.is_aborted = true;
        }
    }

    /// Closes our direction. A client may still be reading.
    fn close(&mut self, now: Time) -> Result<Next, TransportError> {
        if !self.is_shut {
            self.transport.shutdown(now)?;
        }
        if let (Peer::Instance(_), Some(tcp)) = (&self.peer, self.transport.tcp()) {
            tcp.discard(); // the kernel answers unread bytes with a reset, which may overtake our GOAWAY
        }
        if self.eof || matches!(self.peer, Peer::Instance(_)) {
            return Ok(Next::Drop);
        }
        let lingering = Lingering::new(now);
        self.lingering = Some(lingering);
        self.unread = true;
        Ok(Next::Wait(lingering.until))
    }

    /// Whether it is about to be closed because its client has been idle for long, which HTTP/1.1 cannot announce.
    pub fn is_ending_idle(&self, now: Time) -> bool {
        self.version == Version::H1
            && matches!(self.peer, Peer::Client { .. })
            && self.streams.len() == 0
            && self.engine.poll_timeout() <= now
    }

    /// Whether it is a client's connection that another process can continue while it carries nothing: HTTP/1.1 in
    /// clear.
    pub fn may_be_handed_over(&self) -> bool {
        let is_clear_http1 =
            self.version == Version::H1 && !self.transport.is_tls() && !self.engine.is_tunnel();
        is_clear_http1 && matches!(self.peer, Peer::Client { .. })
    }

    /// What was read of the next request, if it carries nothing and can be handed over.
    pub fn idle_input(&self) -> Option<&[u8]> {
        let has_ended = self.eof || self.hangup || self.is_closed || self.is_shut || self.is_aborted;
        let is_idle = !has_ended && !self.blocked && self.lingering.is_none() && self.streams.len() == 0;
        self.engine.idle_input().filter(|_| is_idle && self.may_be_handed_over())
    }

    /// A deadline has passed; returns whether the engine may have events.
    pub fn expire(&mut self, now: Time) -> bool {
        self.is_dirty = true;
        // Reading finds out what has come of it.
        self.unread |= self.transport.handle_timeout(now);
        if self.lingering.is_some() {
            return false;
        }
        if self.is_probe_due(now) {
            self.engine.ping(now);
        }
        let is_due = self.engine.poll_timeout() <= now;
        if is_due {
            if self.version != Version::H3 && self.takes_some() {
                self.engine.handle_acknowledged(now);
            }
            self.engine.handle_timeout(now);
        }
        is_due
    }
}
