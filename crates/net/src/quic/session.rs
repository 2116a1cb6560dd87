//! One QUIC connection: how it begins and ends, and its datagrams. Its streams are in `streams.rs`.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2lab_base::counters::{QuicSummary, TcpTick};
use h2lab_base::text::printable;
use h2lab_base::units::Time;
use h2lab_wire::ErrorCode;
use quinn_proto::{
    Connection, ConnectionError, ConnectionEvent, ConnectionHandle, EndpointEvent, Event, StreamId, Transmit,
    VarInt,
};

use super::endpoint::{QuicEndpoint, RoutedDatagram, send_by};
use super::error::{explain, explain_client};
use super::in_flight::bytes_in_flight;
use super::settings::Congestion;
use super::traffic::{Burst, Intake};
use super::unacknowledged::Unacknowledged;
use crate::crossing::TransportError;
use crate::tls::{ClientTls, TlsFacts};
use crate::udp::{DatagramSent, LONGEST_SENT, Socket};

/// Requests that may be begun before the server's grant is checked again.
const MOST_AHEAD: u32 = 10_000;
/// Datagrams sent by one system call, if the kernel supports that, and accepts so many bytes at once.
const BATCH: usize = 32;
/// If a server owes us an answer and is silent for this long, a PING checks that it is alive. It also keeps the server
/// from closing the connection because we are silent, which quic-go does after 30 seconds.
const ASK_AFTER: Duration = Duration::from_secs(15);

/// What each end does that the other does not.
#[derive(Debug)]
pub(super) enum End {
    /// It opens the streams of requests.
    Client {
        alpn: &'static str,
        has_certificate: bool,
        /// How many it has opened, used or not.
        opened: u64,
        /// How many unused ones it keeps.
        ahead: u32,
    },
    /// It must not end before its answers have arrived.
    Server {
        /// Streams written to their end that the client has not yet acknowledged.
        unacknowledged: BTreeSet<StreamId>,
    },
}

/// One QUIC connection. [`QuicSession::receive`] takes what its datagrams bring (a client's session reads its own socket, a
/// server's gets them by [`QuicSession::handle`]); [`QuicSession::send`] takes what an engine has for its streams; datagrams
/// leave with [`QuicSession::flush`], which must follow every other call.
#[allow(
    clippy::struct_excessive_bools,
    reason = "how far its beginning and its end have come is independent"
)]
pub struct QuicSession {
    endpoint: Arc<QuicEndpoint>,
    /// Server: the session's own socket, if it has one: see [`QuicSession::separate`].
    own_socket: Option<Socket>,
    handle: ConnectionHandle,
    pub(super) proto: Connection,
    pub(super) end: End,
    congestion: Congestion,
    /// The handshake was found to be complete.
    is_handshake_done: bool,
    /// Whether our control stream is open.
    pub(super) greeted: bool,
    /// Streams that may have something to read.
    pub(super) readable: BTreeSet<StreamId>,
    /// The stream with which the last turn ended, if others were still waiting.
    pub(super) turn_after: Option<StreamId>,
    /// What the connection is to be closed with, once what was written has arrived.
    pub(super) closing: Option<(ErrorCode, Bytes)>,
    /// Whether we closed it, rather than the peer.
    has_closed: bool,
    /// Bytes that it keeps until the peer has acknowledged them.
    pub(super) unacknowledged: Unacknowledged,
    /// Why it ended, and whether that was reported to the engine.
    pub(super) lost: Option<ConnectionError>,
    pub(super) is_reported: bool,
    /// Datagrams that the socket did not take.
    outgoing: Vec<u8>,
    waiting: Option<Transmit>,
    /// When [`QuicSession::handle_timeout`] is due.
    timeout: Time,
    /// Client: when something was last received, and when to check that the server is alive.
    received_at: Time,
    ask_at: Time,
    /// The datagrams that were sent last.
    pub(super) burst: Burst,
    /// What has arrived, and what was handed over.
    pub(super) intake: Intake,
}

impl QuicSession {
    pub(super) fn client(
        endpoint: Arc<QuicEndpoint>,
        handle: ConnectionHandle,
        proto: Connection,
        tls: &ClientTls,
        congestion: Congestion,
    ) -> Self {
        let (alpn, has_certificate) = (tls.alpn(), tls.has_certificate());
        let end = End::Client { alpn, has_certificate, opened: 0, ahead: 1 };
        Self::new(endpoint, handle, proto, end, congestion)
    }

    pub(super) fn server(
        endpoint: Arc<QuicEndpoint>,
        handle: ConnectionHandle,
        proto: Connection,
        congestion: Congestion,
    ) -> Self {
        Self::new(endpoint, handle, proto, End::Server { unacknowledged: BTreeSet::new() }, congestion)
    }

    fn new(
        endpoint: Arc<QuicEndpoint>,
        handle: ConnectionHandle,
        proto: Connection,
        end: End,
        congestion: Congestion,
    ) -> Self {
        Self {
            endpoint,
            own_socket: None,
            handle,
            proto,
            end,
            congestion,
            is_handshake_done: false,
            greeted: false,
            readable: BTreeSet::new(),
            turn_after: None,
            closing: None,
            has_closed: false,
            unacknowledged: Unacknowledged::default(),
            lost: None,
            is_reported: false,
            outgoing: Vec::new(),
            waiting: None,
            timeout: Time::NEVER,
            received_at: Time::ZERO,
            ask_at: Time::NEVER,
            burst: Burst::default(),
            intake: Intake::default(),
        }
    }

    /// The number by which its endpoint distinguishes it from others.
    pub const fn number(&self) -> usize {
        self.handle.0
    }

    /// Its socket, to be watched; a server's sessions share theirs, unless they are separated.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.own_socket.as_ref().map_or_else(|| self.endpoint.as_fd(), Socket::as_fd)
    }

    /// Server: gives the session a socket of its own on the same port, so that the shared socket can go to another
    /// process. The new socket gets everything that comes from the session's client from now on. Read the shared socket
    /// to its end after that: earlier datagrams are there. Datagrams of other clients that arrive in between may be in
    /// the new socket: [`QuicEndpoint::take_strays`] returns them. Where the kernel does not allow it, nothing is
    /// changed. Returns whether the socket is new: `false` if the session had one already.
    pub fn separate(&mut self) -> io::Result<bool> {
        if self.own_socket.is_some() || matches!(self.end, End::Client { .. }) {
            return Ok(false);
        }
        let socket = self.endpoint.socket.beside(self.proto.local_ip(), self.proto.remote_address())?;
        self.own_socket = Some(socket);
        Ok(true)
    }

    /// Our address and port: the one that the peer sends to, as far as the kernel has reported it.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        let bound = self.endpoint.local_address()?;
        Ok(self.proto.local_ip().map_or(bound, |ip| SocketAddr::new(ip, bound.port())))
    }

    /// Client: requests in flight at a time, as far as the server grants them.
    pub fn expect_streams(&mut self, at_a_time: u32) {
        if let End::Client { ahead, .. } = &mut self.end {
            *ahead = at_a_time.clamp(1, MOST_AHEAD);
        }
    }

    /// From now on the connection's window is `bytes` at most. What was granted before may still arrive.
    pub fn limit_window(&mut self, bytes: u32) {
        self.proto.set_receive_window(bytes.into());
    }

    /// Whether [`QuicSession::handshake`] has not yet reported how the handshake ended.
    pub const fn is_handshaking(&self) -> bool {
        !self.is_handshake_done
    }

    /// Whether it is to be closed, and waits for what was written to arrive.
    pub const fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// How often the peer has acknowledged anything. A peer that receives nothing acknowledges nothing.
    pub fn acknowledgements(&self) -> u64 {
        self.proto.stats().frame_rx.acks
    }

    /// Whether nothing is left to be sent or received.
    pub fn is_drained(&self) -> bool {
        self.proto.is_drained()
    }

    /// What was negotiated; `None` while that is open.
    pub fn facts(&self) -> Option<TlsFacts> {
        let data = self.proto.crypto_session().handshake_data()?;
        let data = data.downcast::<quinn_proto::crypto::rustls::HandshakeData>().ok()?;
        Some(TlsFacts {
            version: "TLSv1.3".to_owned(), // there is no other in QUIC (RFC 9001 §4.2)
            cipher: None,
            alpn: data.protocol.map(|alpn| printable(&alpn)),
            resumed: None,
        })
    }

    /// When [`QuicSession::handle_timeout`] must be called.
    pub const fn timeout(&self) -> Time {
        self.timeout
    }

    /// Does what is due by now; returns whether anything was.
    pub fn handle_timeout(&mut self, now: Time) -> bool {
        let is_due = self.timeout <= now;
        if is_due {
            if self.ask_at <= now {
                self.proto.ping();
                self.ask_at = now + ASK_AFTER;
            }
            self.proto.handle_timeout(self.endpoint.instants().at(now));
            self.timeout = Time::NEVER;
        }
        is_due
    }

    /// Sends a PING (RFC 9000 §19.2): whatever the peer sends then shows that it is alive.
    pub fn ping(&mut self) {
        self.proto.ping();
    }

    /// Server: an event of a datagram, as [`QuicEndpoint::receive`] returned it.
    pub fn handle(&mut self, event: ConnectionEvent) {
        self.proto.handle_event(event);
    }

    /// Drives the handshake; returns whether it is complete. Takes no stream data.
    pub fn handshake(&mut self, now: Time) -> Result<bool, TransportError> {
        loop {
            let read = self.read_datagrams(now);
            while let Some(event) = self.proto.poll() {
                match event {
                    Event::Connected => {
                        self.is_handshake_done = true;
                        return self.flush(now).map(|_| true);
                    }
                    Event::ConnectionLost { reason } => {
                        self.is_reported = true;
                        self.lost = Some(reason.clone());
                        // The peer is notified of the error, too.
                        self.flush(now)?;
                        return Err(self.explain(reason));
                    }
                    _ => {}
                }
            }
            self.flush(now)?;
            if read? == 0 {
                return Ok(self.is_handshake_done);
            }
        }
    }

    pub(super) fn explain(&self, reason: ConnectionError) -> TransportError {
        match &self.end {
            End::Client { alpn, has_certificate, .. } => explain(reason, alpn, *has_certificate),
            End::Server { .. } => explain_client(reason),
        }
    }

    /// Reads the socket, if it is its own; returns how many bytes there were.
    pub(super) fn read_datagrams(&mut self, now: Time) -> io::Result<usize> {
        if matches!(self.end, End::Server { .. }) {
            return Ok(self.read_own_socket(now));
        }
        let (proto, has_closed) = (&mut self.proto, self.has_closed);
        let read = self.endpoint.receive(now, &mut |arrival| {
            // After a server's CONNECTION_CLOSE nothing else counts: a stateless reset in the same batch, sent because the server
            // has already dropped the connection, would replace its reason.
            if let RoutedDatagram::Known(_, event) = arrival
                && (has_closed || !proto.is_closed())
            {
                proto.handle_event(event);
            }
        });
        if matches!(read, Ok(1..)) {
            self.received_at = now;
        }
        read
    }

    /// Server: the same. Datagrams for other connections go to the endpoint.
    fn read_own_socket(&mut self, now: Time) -> usize {
        let Some(socket) = &self.own_socket else { return 0 };
        let (proto, number) = (&mut self.proto, self.handle.0);
        let mut strays = Vec::new();
        let read = self.endpoint.receive_on(socket, now, &mut |arrival| match arrival {
            RoutedDatagram::Known(its, event) if its == number => proto.handle_event(event),
            stray => strays.push(stray),
        });
        self.endpoint.strays().append(&mut strays);
        // What a client's host reports about the client, such as that it is gone, is detected by silence, too.
        read.unwrap_or(1)
    }

    /// Client: `any` says whether the server owes us an answer. If so, PINGs check from time to time that the server is
    /// alive: a request may take longer than either side's idle timeout. Connections without a request may end by that
    /// timeout.
    pub(super) fn expect_answers(&mut self, any: bool) {
        let asks = any && matches!(self.end, End::Client { .. });
        // Data received before a check that is already due does not cause another one.
        self.ask_at = match (asks, self.ask_at.happened()) {
            (false, _) => Time::NEVER,
            (true, false) => self.received_at + ASK_AFTER,
            (true, true) => self.ask_at.max(self.received_at + ASK_AFTER),
        };
    }

    /// Sends what is due: stream data, acknowledgements, retransmissions. `false` if the socket is full.
    pub fn flush(&mut self, now: Time) -> Result<bool, TransportError> {
        let sent = self.send_datagrams(now);
        while let Some(event) = self.proto.poll_endpoint_events() {
            if let Some(answer) = self.endpoint.handle_event(self.handle, event) {
                self.proto.handle_event(answer);
            }
        }
        let due = self.proto.poll_timeout().map_or(Time::NEVER, |at| self.endpoint.instants().time(at));
        self.timeout = due.min(self.ask_at);
        sent
    }

    /// Sends datagrams until there are no more, or the socket is full; `false` if it is.
    fn send_datagrams(&mut self, now: Time) -> Result<bool, TransportError> {
        let at = self.endpoint.instants().at(now);
        loop {
            if let Some(transmit) = &self.waiting {
                let socket = self.own_socket.as_ref().unwrap_or(&self.endpoint.socket);
                match send_by(socket, transmit, &self.outgoing) {
                    Ok(DatagramSent::Gone) => {
                        let count = transmit.segment_size.map_or(1, |size| transmit.size.div_ceil(size));
                        self.burst.sent(count, now);
                    }
                    Ok(DatagramSent::WouldBlock) => return Ok(false),
                    // An error in reaching one client does not concern the others on a server's socket.
                    Err(_) if matches!(self.end, End::Server { .. }) => {}
                    Err(error) => {
                        self.waiting = None;
                        return Err(error.into());
                    }
                }
            }
            self.outgoing.clear();
            let at_once = BATCH.min(LONGEST_SENT / usize::from(self.proto.current_mtu()));
            let most = self.endpoint.longest_batch().min(at_once).max(1);
            self.waiting = self.proto.poll_transmit(at, most, &mut self.outgoing);
            if self.waiting.is_none() {
                return Ok(true);
            }
        }
    }

    /// Closes the connection with `code`, at once; [`QuicSession::flush`] sends that.
    pub fn close(&mut self, now: Time, code: ErrorCode, reason: Bytes) {
        self.closing = None;
        self.has_closed = true;
        self.proto.close(self.endpoint.instants().at(now), VarInt::from_u32(code.0), reason);
    }

    /// The peer's address.
    pub fn remote_address(&self) -> SocketAddr {
        self.proto.remote_address()
    }

    /// What this end of the connection has counted.
    pub fn summary(&self) -> QuicSummary {
        let stats = self.proto.stats();
        let micros = |time: std::time::Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        QuicSummary {
            packets_sent: stats.path.sent_packets,
            packets_lost: stats.path.lost_packets,
            congestion_events: stats.path.congestion_events,
            datagrams_sent: stats.udp_tx.datagrams,
            datagrams_received: stats.udp_rx.datagrams,
            datagram_bytes_sent: stats.udp_tx.bytes,
            datagram_bytes_received: stats.udp_rx.bytes,
            rtt_us: micros(stats.path.rtt),
            min_rtt_us: micros(stats.path.min_rtt),
            cwnd_bytes: stats.path.cwnd,
            mtu: stats.path.current_mtu,
            congestion_control: self.congestion.name().to_owned(),
        }
    }

    /// The state of the path, as a point of the record's time series: what TCP counts in segments is counted in datagrams of the
    /// path's MTU.
    pub fn tick(&self, at: Time, connection: u32) -> TcpTick {
        let path = self.proto.stats().path;
        let mtu = u64::from(path.current_mtu.max(1));
        let datagrams = |bytes: u64| u32::try_from(bytes.div_ceil(mtu)).unwrap_or(u32::MAX);
        let in_flight = bytes_in_flight(self.proto.congestion_state()).unwrap_or(0);
        TcpTick {
            at,
            connection,
            retransmits: u32::try_from(path.lost_packets).unwrap_or(u32::MAX),
            cwnd: datagrams(path.cwnd),
            rtt_us: u32::try_from(path.rtt.as_micros()).unwrap_or(u32::MAX),
            unacked: datagrams(in_flight),
            server: matches!(self.end, End::Server { .. }),
        }
    }
}

impl Drop for QuicSession {
    /// Removes the connection from the endpoint: by its own event, which may not have been passed on yet, or by ours.
    fn drop(&mut self) {
        while let Some(event) = self.proto.poll_endpoint_events() {
            let _ = self.endpoint.handle_event(self.handle, event);
        }
        if !self.proto.is_drained() {
            self.endpoint.handle_event(self.handle, EndpointEvent::drained());
        }
    }
}

impl fmt::Debug for QuicSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicSession")
            .field("handle", &self.handle)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}
