//! A UDP socket and the connections behind it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use h2lab_base::units::Time;
use quinn_proto::{
    ConnectionEvent, ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint, EndpointConfig, EndpointEvent,
    Incoming, ServerConfig, Transmit,
};

use crate::clock::{Clock, Instants};
use crate::tls::ServerTls;
use crate::udp::{Datagram, DatagramSent, Socket};

/// The `max_udp_payload_size` that we announce, in bytes: the largest that there is (RFC 9000 §18.2).
const LONGEST_PAYLOAD: u16 = 65_527;

/// What a datagram turned out to be.
#[derive(Debug)]
pub enum RoutedDatagram {
    /// Something for the connection with this number, see [`super::QuicSession::number`].
    Known(usize, ConnectionEvent),
    /// A client wants a connection: [`QuicEndpoint::accept`] it.
    New(Incoming),
}

/// A UDP socket, and what assigns its datagrams to connections. A client has one endpoint for each connection, so that
/// each has a port of its own, as with TCP: the link and its packet log distinguish flows by that. A server has one for
/// all.
pub struct QuicEndpoint {
    pub(super) socket: Socket,
    /// Shared with the sessions: none of them holds the lock for longer than a datagram.
    proto: Mutex<Endpoint>,
    /// What all accepted connections have in common.
    server: Mutex<Option<Arc<ServerConfig>>>,
    instants: Instants,
    /// Datagrams that arrived on sockets of sessions and belong to other connections.
    strays: Mutex<Vec<RoutedDatagram>>,
}

impl QuicEndpoint {
    /// Listens on `address`; port 0 picks a free one.
    pub fn listen(address: SocketAddr, tls: &ServerTls, clock: Clock) -> io::Result<Arc<Self>> {
        Self::listen_on(Socket::bind(address)?, tls, clock)
    }

    /// Listens on a socket that is bound.
    pub fn listen_on(socket: Socket, tls: &ServerTls, clock: Clock) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self::new(socket, Some(server_config(tls)?), clock)))
    }

    /// Another descriptor of its socket.
    pub fn try_clone_fd(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone_fd()
    }

    /// From now on connections are accepted with this certificate, also after [`QuicEndpoint::refuse`]; existing ones continue.
    pub fn accept_with(&self, tls: &ServerTls) -> io::Result<()> {
        let config = server_config(tls)?;
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&config));
        self.proto().set_server_config(Some(config));
        Ok(())
    }

    /// What all accepted connections have in common.
    pub(super) fn server(&self) -> Option<Arc<ServerConfig>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn new(socket: Socket, server: Option<Arc<ServerConfig>>, clock: Clock) -> Self {
        let may_search = !socket.may_fragment();
        let mut config = EndpointConfig::default();
        // The receive buffer has room for the longest datagrams; the sender finds out what the path carries.
        let _ = config.max_udp_payload_size(LONGEST_PAYLOAD);
        let proto = Endpoint::new(Arc::new(config), server.clone(), may_search, None);
        let strays = Mutex::default();
        let (proto, server) = (Mutex::new(proto), Mutex::new(server));
        Self { socket, proto, server, instants: Instants::of(clock), strays }
    }

    pub(super) fn proto(&self) -> MutexGuard<'_, Endpoint> {
        self.proto.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address and port that it is bound to.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_address()
    }

    /// Reads with one system call, and passes on each datagram of a connection, known or new. Returns how many bytes
    /// were read, 0 if there was nothing.
    pub fn receive(&self, now: Time, take: &mut dyn FnMut(RoutedDatagram)) -> io::Result<usize> {
        self.receive_on(&self.socket, now, take)
    }

    /// The same for another socket on this port.
    pub(super) fn receive_on(
        &self,
        socket: &Socket,
        now: Time,
        take: &mut dyn FnMut(RoutedDatagram),
    ) -> io::Result<usize> {
        let mut answer = Vec::new();
        socket.receive(&mut |datagram| {
            if let Some(arrival) = self.sort(now, datagram, &mut answer) {
                take(arrival);
            }
        })
    }

    pub(super) fn strays(&self) -> MutexGuard<'_, Vec<RoutedDatagram>> {
        self.strays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Datagrams that arrived on sockets of sessions and belong to other connections.
    pub fn take_strays(&self) -> Vec<RoutedDatagram> {
        std::mem::take(&mut *self.strays())
    }

    /// Assigns a datagram to its connection. Answers a datagram without a connection, if an answer is due.
    fn sort(&self, now: Time, datagram: Datagram<'_>, answer: &mut Vec<u8>) -> Option<RoutedDatagram> {
        let Datagram { from, to, ecn, bytes } = datagram;
        let ecn = ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8));
        answer.clear();
        let (now, bytes) = (self.instants.at(now), BytesMut::from(bytes));
        let event = self.proto().handle(now, from, to, ecn, bytes, answer)?;
        match event {
            DatagramEvent::ConnectionEvent(handle, event) => Some(RoutedDatagram::Known(handle.0, event)),
            DatagramEvent::NewConnection(incoming) => Some(RoutedDatagram::New(incoming)),
            DatagramEvent::Response(transmit) => {
                self.answer(&transmit, answer);
                None
            }
        }
    }

    /// Answers a peer that has no connection. If the answer is lost, the peer asks again.
    pub(super) fn answer(&self, transmit: &Transmit, bytes: &[u8]) {
        let _ = self.send(transmit, bytes);
    }

    /// Makes a client prove that it receives what is sent to its address (RFC 9000 §8.1.2) before any state is kept for it.
    pub fn ask_for_proof(&self, incoming: Incoming) {
        let mut answer = Vec::new();
        let asked = self.proto().retry(incoming, &mut answer);
        match asked {
            Ok(transmit) => self.answer(&transmit, &answer),
            // A client that returns the token of a Retry has already proved it.
            Err(error) => self.turn_away(error.into_incoming()),
        }
    }

    /// Refuses a connection (`CONNECTION_REFUSED`, RFC 9000 §20.1).
    pub fn turn_away(&self, incoming: Incoming) {
        let mut answer = Vec::new();
        let transmit = self.proto().refuse(incoming, &mut answer);
        self.answer(&transmit, &answer);
    }

    /// From now on no new connection is accepted; existing ones continue.
    pub fn refuse(&self) {
        self.proto().set_server_config(None);
    }

    /// Gives up its port, which another process also has. Only connections that were
    /// [separated](super::QuicSession::separate) continue. Withdraw the endpoint from the reactor first.
    pub fn give_up_port(&self) -> io::Result<()> {
        self.socket.give_up()
    }

    /// How many connections it assigns datagrams to.
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
    pub(super) fn send(&self, transmit: &Transmit, bytes: &[u8]) -> io::Result<DatagramSent> {
        send_by(&self.socket, transmit, bytes)
    }

    /// Passes on a connection's event for the endpoint, such as a connection ID that it retires; returns the answer.
    pub(super) fn handle_event(
        &self,
        handle: ConnectionHandle,
        event: EndpointEvent,
    ) -> Option<ConnectionEvent> {
        self.proto().handle_event(handle, event)
    }
}

/// Sends the datagrams in `bytes`.
pub(super) fn send_by(socket: &Socket, transmit: &Transmit, bytes: &[u8]) -> io::Result<DatagramSent> {
    socket.send(&quinn_udp::Transmit {
        destination: transmit.destination,
        ecn: transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
        contents: &bytes[..transmit.size],
        segment_size: transmit.segment_size,
        src_ip: transmit.src_ip,
    })
}

fn server_config(tls: &ServerTls) -> io::Result<Arc<ServerConfig>> {
    let mut config = ServerConfig::with_crypto(tls.quic().map_err(io::Error::other)?);
    // The link's packet log would lose track of a client that changes its address.
    config.migration(false);
    Ok(Arc::new(config))
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
