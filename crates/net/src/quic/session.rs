//! One QUIC connection: how it begins and ends, and its datagrams. Its streams are in `streams.rs`.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2lab_base::counters::QuicSummary;
use h2lab_base::units::Time;
use h2lab_wire::ErrorCode;
use quinn_proto::{
    Connection, ConnectionError, ConnectionEvent, ConnectionHandle, EndpointEvent, Event, StreamId, Transmit,
    VarInt,
};

use super::endpoint::{Arrival, QuicEndpoint};
use super::error::explain;
use super::settings::Congestion;
use crate::crossing::TransportError;
use crate::tls::{ClientTls, TlsFacts};
use crate::udp::Sent;

/// Requests that may be begun before the next look at what the server grants.
const MOST_AHEAD: u32 = 10_000;
/// Datagrams that leave by one system call, if the kernel can: less than the 64 KiB that it takes at once.
const BATCH: usize = 32;
/// Of a server that owes us an answer and is silent for so long we ask whether it is there: before it gives the connection
/// up because we are silent, too, which quic-go does after 30 seconds.
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
        /// Streams that are written to their end, which the client has not yet acknowledged.
        unacknowledged: BTreeSet<StreamId>,
    },
}

/// One QUIC connection. What its datagrams bring is taken by [`QuicSession::receive`] (a client's reads its own socket, a
/// server's is given them with [`QuicSession::handle`]); what an engine has for its streams by [`QuicSession::send`], and
/// datagrams leave with [`QuicSession::flush`], which must follow every other call.
pub struct QuicSession {
    endpoint: Arc<QuicEndpoint>,
    handle: ConnectionHandle,
    pub(super) proto: Connection,
    pub(super) end: End,
    congestion: Congestion,
    /// Whether our control stream is open.
    pub(super) greeted: bool,
    /// Streams that may have something to read.
    pub(super) readable: BTreeSet<StreamId>,
    /// The stream with which the last turn ended, if others were still to come.
    pub(super) turn_after: Option<StreamId>,
    /// What the connection is to be closed with, once what was written has arrived.
    pub(super) closing: Option<(ErrorCode, Bytes)>,
    /// Whether we have closed it, and not the peer.
    has_closed: bool,
    /// Why it ended, and whether the engine knows.
    pub(super) lost: Option<ConnectionError>,
    pub(super) is_reported: bool,
    /// Datagrams that the socket did not take.
    outgoing: Vec<u8>,
    waiting: Option<Transmit>,
    /// When [`QuicSession::handle_timeout`] is due.
    timeout: Time,
    /// Client: when something was last heard, and when the server is to be asked whether it is still there.
    received_at: Time,
    ask_at: Time,
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
            handle,
            proto,
            end,
            congestion,
            greeted: false,
            readable: BTreeSet::new(),
            turn_after: None,
            closing: None,
            has_closed: false,
            lost: None,
            is_reported: false,
            outgoing: Vec::new(),
            waiting: None,
            timeout: Time::NEVER,
            received_at: Time::ZERO,
            ask_at: Time::NEVER,
        }
    }

    /// By which number its endpoint tells it from others.
    pub const fn number(&self) -> usize {
        self.handle.0
    }

    /// Its socket, to be watched; a server's sessions share theirs.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.endpoint.as_fd()
    }

    /// Our address and port.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.endpoint.local_address()
    }

    /// Client: requests that may be begun at a time, as far as the server grants them.
    pub fn expect_streams(&mut self, at_a_time: u32) {
        if let End::Client { ahead, .. } = &mut self.end {
            *ahead = at_a_time.clamp(1, MOST_AHEAD);
        }
    }

    /// From now on the connection's window has `bytes` at most. What the peer has been granted it may still send.
    pub fn limit_window(&mut self, bytes: u32) {
        self.proto.set_receive_window(bytes.into());
    }

    /// Whether the handshake is still under way.
    pub fn is_handshaking(&self) -> bool {
        self.proto.is_handshaking()
    }

    /// Whether it is to be closed, and waits for what was written to arrive.
    pub const fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// How often the peer has acknowledged anything. Whoever does not receive what is sent has nothing to acknowledge.
    pub fn acknowledgements(&self) -> u64 {
        self.proto.stats().frame_rx.acks
    }

    /// Whether nothing is left to be said or heard.
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
            alpn: data.protocol.map(|alpn| String::from_utf8_lossy(&alpn).into_owned()),
            resumed: None,
        })
    }

    /// When [`QuicSession::handle_timeout`] must be called.
    pub const fn timeout(&self) -> Time {
        self.timeout
    }

    /// Does what is due by now; whether anything was.
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

    /// Server: something of a datagram, as [`QuicEndpoint::receive`] told.
    pub fn handle(&mut self, event: ConnectionEvent) {
        self.proto.handle_event(event);
    }

    /// Goes on with the handshake; whether it is over. Takes nothing of what streams bring.
    pub fn handshake(&mut self, now: Time) -> Result<bool, TransportError> {
        loop {
            let read = self.read_datagrams(now);
            while let Some(event) = self.proto.poll() {
                match event {
                    Event::Connected => return self.flush(now).map(|_| true),
                    Event::ConnectionLost { reason } => {
                        self.is_reported = true;
                        self.lost = Some(reason.clone());
                        // What is wrong the peer is told, too.
                        self.flush(now)?;
                        return Err(self.explain(reason));
                    }
                    _ => {}
                }
            }
            self.flush(now)?;
            if read? == 0 {
                return Ok(!self.is_handshaking());
            }
        }
    }

    pub(super) fn explain(&self, reason: ConnectionError) -> TransportError {
        match &self.end {
            End::Client { alpn, has_certificate, .. } => explain(reason, alpn, *has_certificate),
            End::Server { .. } => explain(reason, "", false),
        }
    }

    /// Client: reads the socket; how many bytes there were.
    pub(super) fn read_datagrams(&mut self, now: Time) -> io::Result<usize> {
        if matches!(self.end, End::Server { .. }) {
            return Ok(0);
        }
        let (proto, has_closed) = (&mut self.proto, self.has_closed);
        let read = self.endpoint.receive(now, &mut |arrival| {
            // Behind its CONNECTION_CLOSE nothing matters that a server sends: a stateless reset in the same batch, because it
            // has forgotten us by then, would take the place of its reason.
            if let Arrival::Known(_, event) = arrival
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

    /// Client: whether the server owes us anything, in which case it is asked now and then whether it is still there: a
    /// request may take longer than either side listens to silence. Connections without a request may end by it.
    pub(super) fn expect_answers(&mut self, any: bool) {
        let asks = any && matches!(self.end, End::Client { .. });
        // What was asked already is not asked again for what was heard before.
        self.ask_at = match (asks, self.ask_at.happened()) {
            (false, _) => Time::NEVER,
            (true, false) => self.received_at + ASK_AFTER,
            (true, true) => self.ask_at.max(self.received_at + ASK_AFTER),
        };
    }

    /// Sends what is due: what was written to streams, acknowledgements, what was lost. `false` if the socket is full.
    pub fn flush(&mut self, now: Time) -> Result<bool, TransportError> {
        let sent = self.send_datagrams(now);
        while let Some(event) = self.proto.poll_endpoint_events() {
            if let Some(answer) = self.endpoint.hear(self.handle, event) {
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
        let most = self.endpoint.longest_batch().clamp(1, BATCH);
        loop {
            if let Some(transmit) = &self.waiting {
                match self.endpoint.send(transmit, &self.outgoing) {
                    Ok(Sent::Gone) => {}
                    Ok(Sent::WouldBlock) => return Ok(false),
                    // What keeps a server from reaching one client says nothing of the others on its socket.
                    Err(_) if matches!(self.end, End::Server { .. }) => {}
                    Err(error) => {
                        self.waiting = None;
                        return Err(error.into());
                    }
                }
            }
            self.outgoing.clear();
            self.waiting = self.proto.poll_transmit(at, most, &mut self.outgoing);
            if self.waiting.is_none() {
                return Ok(true);
            }
        }
    }

    /// Closes the connection for `code`, at once; [`QuicSession::flush`] says so.
    pub fn close(&mut self, now: Time, code: ErrorCode, reason: Bytes) {
        self.closing = None;
        self.has_closed = true;
        self.proto.close(self.endpoint.instants().at(now), VarInt::from_u32(code.0), reason);
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
}

impl Drop for QuicSession {
    /// The endpoint forgets it: at its own word, which may not have been passed on yet, or at ours.
    fn drop(&mut self) {
        while let Some(event) = self.proto.poll_endpoint_events() {
            let _ = self.endpoint.hear(self.handle, event);
        }
        if !self.proto.is_drained() {
            self.endpoint.hear(self.handle, EndpointEvent::drained());
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
