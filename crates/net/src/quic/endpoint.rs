//! A UDP socket and the connections behind it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use h2lab_base::units::Time;
use quinn_proto::{
    ConnectionEvent, ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint, EndpointConfig, EndpointEvent,
    Incoming, ServerConfig, Transmit,
};

use crate::clock::{Clock, Instants};
use crate::tls::ServerTls;
use crate::udp::{Datagram, Sent, Socket};

/// What a datagram turned out to be.
#[derive(Debug)]
pub enum Arrival {
    /// Something for the connection with this number, see [`super::QuicSession::number`].
    Known(usize, ConnectionEvent),
    /// Somebody wants a connection: [`QuicEndpoint::accept`] it.
    New(Incoming),
}

/// A UDP socket with what tells its datagrams apart. A client has one for each connection, so that each has a port of its
/// own, as with TCP: the link and its packet log tell flows by that. A server has one for all.
pub struct QuicEndpoint {
    socket: Socket,
    /// Shared with the sessions, and for that only: none of them holds it for longer than a datagram.
    proto: Mutex<Endpoint>,
    /// What all connections that are accepted have in common.
    pub(super) server: Option<Arc<ServerConfig>>,
    instants: Instants,
}

impl QuicEndpoint {
    /// Listens on `address`; port 0 takes a free one.
    pub fn listen(address: SocketAddr, tls: &ServerTls, clock: Clock) -> io::Result<Arc<Self>> {
        let mut config = ServerConfig::with_crypto(tls.quic().map_err(io::Error::other)?);
        // A client whose address changes is a connection that the link's packet log loses sight of.
        config.migration(false);
        Ok(Arc::new(Self::new(Socket::bind(address)?, Some(Arc::new(config)), clock)))
    }

    pub(super) fn new(socket: Socket, server: Option<Arc<ServerConfig>>, clock: Clock) -> Self {
        let may_search = !socket.may_fragment();
        let proto = Endpoint::new(Arc::new(EndpointConfig::default()), server.clone(), may_search, None);
        Self { socket, proto: Mutex::new(proto), server, instants: Instants::of(clock) }
    }

    pub(super) fn proto(&self) -> MutexGuard<'_, Endpoint> {
        self.proto.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address and port that it is bound to.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_address()
    }

    /// Takes what one system call gives, and says what of it is anybody's; returns how many bytes were read, 0 if there was
    /// nothing.
    pub fn receive(&self, now: Time, take: &mut dyn FnMut(Arrival)) -> io::Result<usize> {
        let mut answer = Vec::new();
        self.socket.receive(&mut |datagram| {
            if let Some(arrival) = self.sort(now, datagram, &mut answer) {
                take(arrival);
            }
        })
    }

    /// Finds out whose a datagram is; answers what is nobody's, if it is to be answered.
    fn sort(&self, now: Time, datagram: Datagram<'_>, answer: &mut Vec<u8>) -> Option<Arrival> {
        let Datagram { from, to, ecn, bytes } = datagram;
        let ecn = ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8));
        answer.clear();
        let (now, bytes) = (self.instants.at(now), BytesMut::from(bytes));
        let event = self.proto().handle(now, from, to, ecn, bytes, answer)?;
        match event {
            DatagramEvent::ConnectionEvent(handle, event) => Some(Arrival::Known(handle.0, event)),
            DatagramEvent::NewConnection(incoming) => Some(Arrival::New(incoming)),
            DatagramEvent::Response(transmit) => {
                self.answer(&transmit, answer);
                None
            }
        }
    }

    /// Says a last word to whoever has no connection. If it is lost, it is said again when asked again.
    pub(super) fn answer(&self, transmit: &Transmit, bytes: &[u8]) {
        let _ = self.send(transmit, bytes);
    }

    /// Has a client show that it receives what is sent to its address (RFC 9000 §8.1.2) before anything is kept of it.
    pub fn ask_for_proof(&self, incoming: Incoming) {
        let mut answer = Vec::new();
        let asked = self.proto().retry(incoming, &mut answer);
        // Whoever comes by a Retry has shown it already.
        let transmit = asked.unwrap_or_else(|error| self.proto().refuse(error.into_incoming(), &mut answer));
        self.answer(&transmit, &answer);
    }

    /// From now on nobody is taken in any more; connections go on.
    pub fn refuse(&self) {
        self.proto().set_server_config(None);
    }

    /// How many connections it tells datagrams apart for.
    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        self.proto().open_connections()
    }

    pub(super) fn instants(&self) -> Instants {
        self.instants
    }

    /// How many datagrams of one size may be sent at once.
    pub(super) fn longest_batch(&self) -> usize {
        self.socket.longest_batch()
    }

    /// Sends the datagrams in `bytes`.
    pub(super) fn send(&self, transmit: &Transmit, bytes: &[u8]) -> io::Result<Sent> {
        self.socket.send(&quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
            contents: &bytes[..transmit.size],
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        })
    }

    /// Reports what a connection has for all of them, such as a name that it gives up; returns the answer.
    pub(super) fn hear(&self, handle: ConnectionHandle, event: EndpointEvent) -> Option<ConnectionEvent> {
        self.proto().handle_event(handle, event)
    }
}

impl AsFd for QuicEndpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl fmt::Debug for QuicEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicEndpoint").field("socket", &self.socket).finish_non_exhaustive()
    }
}
