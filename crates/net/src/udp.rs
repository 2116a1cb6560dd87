//! Non-blocking UDP in batches: segmentation offload both ways, ECN marks, source and destination addresses.
//!
//! `quinn-udp` detects which of these the kernel supports; this module adds what a role needs: whether a call would
//! block, and whether the other host has reported that nobody listens.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// The receive buffer to ask for, in bytes: what TCP's grows to by itself. The kernel grants at most `net.core.rmem_max`.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Datagrams, or batches of datagrams, that are received by one system call.
const BATCH: usize = 8;

/// The longest batch that the kernel makes of datagrams of one size (GRO), in bytes.
const LONGEST_BATCH: usize = 1 << 16;

/// The longest batch that the kernel sends (GSO): an IPv4 packet's length has 16 bits.
pub const LONGEST_SENT: usize = (1 << 16) - 1 - 20 - 8;

thread_local! {
    /// The buffer of what was received last: one for all sockets of a thread, since its content is passed on at once, while half
    /// a megabyte for each would be most of a connection's memory.
    static INBOX: RefCell<Vec<u8>> = RefCell::new(vec![0; BATCH * LONGEST_BATCH]);
}

/// A datagram that has arrived.
#[derive(Debug, Clone, Copy)]
pub struct Datagram<'a> {
    /// Who sent it.
    pub from: SocketAddr,
    /// The address of ours that it was sent to.
    pub to: Option<IpAddr>,
    /// Its ECN codepoint, which a router on the path may have set (RFC 3168).
    pub ecn: Option<EcnCodepoint>,
    /// Its payload.
    pub bytes: &'a [u8],
}

/// What became of a datagram that was to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatagramSent {
    /// The kernel took it, or lost it as a network may.
    Gone,
    /// The socket's buffer is full; a completion says when there is room.
    WouldBlock,
}

/// A socket on a free port, connected to `remote`.
fn connected(remote: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match remote {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(remote)?;
    Ok(socket)
}

/// A non-blocking socket that is bound to nothing.
fn unbound(is_ipv4: bool) -> io::Result<OwnedFd> {
    let family = if is_ipv4 { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?)
}

/// The largest payload of a datagram to `remote`, in bytes: the MTU of the route without the headers of IPv6, which are longer
/// than those of IPv4, and of UDP. What the routers behind it take may be less.
pub fn largest_payload(remote: SocketAddr) -> io::Result<u16> {
    const HEADERS: u32 = 40 + 8;
    let socket = connected(remote)?;
    let mtu = match remote {
        SocketAddr::V4(_) => sockopt::ip_mtu(&socket)?,
        SocketAddr::V6(_) => sockopt::ipv6_mtu(&socket)?,
    };
    Ok(u16::try_from(mtu.saturating_sub(HEADERS)).unwrap_or(u16::MAX))
}

/// A non-blocking UDP socket.
pub struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
}

impl Socket {
    /// A socket on a free port that receives only from `remote`, so that the kernel can report that nobody listens there.
    pub fn connect(remote: SocketAddr) -> io::Result<Self> {
        Self::new(connected(remote)?)
    }

    /// A socket on `address` that receives from everybody; port 0 picks a free one, see [`Socket::local_address`]. A
    /// port is free, too, if another process has only sockets [beside](Self::beside) one that it has given up.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let fd = unbound(address.is_ipv4())?;
        // Two sockets share a port where both have this option while the later one is bound (socket(7)): those beside another one have it.
        sockopt::set_socket_reuseaddr(&fd, address.port() != 0)?;
        rustix::net::bind(&fd, &address)?;
        sockopt::set_socket_reuseaddr(&fd, false)?; // with this one nobody shares it
        Self::new(fd.into())
    }

    /// A socket that was made elsewhere.
    pub fn given(socket: UdpSocket) -> io::Result<Self> {
        Self::new(socket)
    }

    /// Another descriptor of the same socket.
    pub fn try_clone_fd(&self) -> io::Result<OwnedFd> {
        self.socket.as_fd().try_clone_to_owned()
    }

    /// Another socket on this one's port, of the same user. From now on it gets what comes from `remote` to `local`,
    /// since the kernel prefers connected sockets. Datagrams of others that arrive meanwhile may be in either socket.
    pub fn beside(&self, local: Option<IpAddr>, remote: SocketAddr) -> io::Result<Self> {
        let own = self.local_address()?;
        let ip = local.filter(|_| own.ip().is_unspecified()).unwrap_or_else(|| own.ip());
        sockopt::set_socket_reuseport(&self.socket, true)?;
        let fd = unbound(own.is_ipv4())?;
        sockopt::set_socket_reuseport(&fd, true)?;
        sockopt::set_socket_reuseaddr(&fd, true)?; // see `bind`
        rustix::net::bind(&fd, &SocketAddr::new(ip, own.port()))?;
        rustix::net::connect(&fd, &remote)?;
        Self::new(fd.into())
    }

    /// Gives up the port, which another process also has: from now on the descriptor refers to a new socket that is not
    /// bound. Stop watching it. Sockets [beside](Self::beside) it keep the port.
    pub fn give_up(&self) -> io::Result<()> {
        let new = unbound(self.local_address()?.is_ipv4())?;
        // SAFETY: it takes only numbers. Both are open sockets. Our number also refers to an open socket afterwards,
        // and stays ours.
        if unsafe { libc::dup3(new.as_raw_fd(), self.socket.as_raw_fd(), libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    fn new(socket: UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?; // sets it non-blocking, too
        state.set_recv_buffer_size((&socket).into(), RECEIVE_BUFFER)?;
        Ok(Self { socket, state })
    }

    /// The address and port that it is bound to.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Whether the kernel may fragment a datagram, so that its size does not probe the path.
    pub fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }

    /// How many datagrams of one size one [`Socket::send`] may take; 1 without segmentation offload.
    pub fn longest_batch(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Sends a datagram, or a batch of them. Loss in the network is no error. Reported are only that nobody listens,
    /// and errors that keep every datagram from leaving.
    pub fn send(&self, transmit: &Transmit<'_>) -> io::Result<DatagramSent> {
        match self.state.try_send((&self.socket).into(), transmit) {
            Ok(()) => Ok(DatagramSent::Gone),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(DatagramSent::WouldBlock),
            // A path MTU probe that the device does not take; an offload that it does not have, which `quinn-udp` does without
            // from now on; a queue of the device that is full.
            Err(error)
                if [libc::EMSGSIZE, libc::EIO, libc::EINVAL, libc::ENOBUFS]
                    .contains(&error.raw_os_error().unwrap_or(0)) =>
            {
                Ok(DatagramSent::Gone)
            }
            Err(error) => Err(error),
        }
    }

    /// Receives with one system call and passes on each datagram; returns how many bytes that were. An empty datagram
    /// is not passed on, but counts as one byte: 0 means that there was no datagram, after which the socket reports the
    /// next.
    pub fn receive(&self, take: &mut dyn FnMut(Datagram<'_>)) -> io::Result<usize> {
        INBOX.with_borrow_mut(|inbox| {
            let mut batches = [RecvMeta::default(); BATCH];
            let mut rest = inbox.chunks_exact_mut(LONGEST_BATCH);
            let mut spaces: [IoSliceMut<'_>; BATCH] =
                std::array::from_fn(|_| IoSliceMut::new(rest.next().unwrap_or_default()));
            let count = match self.state.recv((&self.socket).into(), &mut spaces, &mut batches) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                Err(error) => return Err(error),
            };
            let mut total = 0;
            for (batch, space) in batches[..count].iter().zip(&spaces) {
                total += batch.len.max(1);
                for bytes in space[..batch.len].chunks(batch.stride.max(1)) {
                    take(Datagram { from: batch.addr, to: batch.dst_ip, ecn: batch.ecn, bytes });
                }
            }
            Ok(total)
        })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("socket", &self.socket).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Socket, Socket, SocketAddr) {
        let server = Socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = server.local_address().unwrap();
        (Socket::connect(address).unwrap(), server, address)
    }

    fn to(destination: SocketAddr, contents: &[u8], segment_size: Option<usize>) -> Transmit<'_> {
        Transmit { destination, ecn: Some(EcnCodepoint::Ect0), contents, segment_size, src_ip: None }
    }

    #[test]
    fn a_batch_arrives_as_the_datagrams_that_it_was_made_of() {
        let (client, server, address) = pair();
        let contents: Vec<u8> = (0..=250).collect();
        let size = if client.longest_batch() > 2 { 100 } else { contents.len() };
        assert_eq!(client.send(&to(address, &contents, Some(size))).unwrap(), DatagramSent::Gone);
        let mut seen = Vec::new();
        while seen.len() < contents.len().div_ceil(size) {
            server
                .receive(&mut |datagram| {
                    assert_eq!(datagram.from.port(), client.local_address().unwrap().port());
                    assert_eq!(datagram.to, Some(Ipv4Addr::LOCALHOST.into()));
                    assert_eq!(datagram.ecn, Some(EcnCodepoint::Ect0));
                    seen.push(datagram.bytes.to_vec());
                })
                .unwrap();
        }
        assert!(seen.iter().map(Vec::as_slice).eq(contents.chunks(size)));
        assert_eq!(server.receive(&mut |_| panic!("there is no more")).unwrap(), 0);
    }

    /// All that has come, as text.
    fn read(socket: &Socket) -> String {
        let mut all = Vec::new();
        while socket.receive(&mut |datagram| all.extend_from_slice(datagram.bytes)).unwrap() > 0 {}
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn a_socket_beside_another_gets_what_comes_from_its_peer_and_the_other_the_rest() {
        let (client, server, address) = pair();
        let other = Socket::connect(address).unwrap();
        let own = server.beside(Some(Ipv4Addr::LOCALHOST.into()), client.local_address().unwrap()).unwrap();
        for (from, text) in [(&client, b"mine"), (&other, b"rest"), (&client, b"mine")] {
            from.send(&to(address, text, None)).unwrap();
        }
        assert_eq!([read(&own), read(&server)], ["minemine", "rest"]);
        own.send(&to(client.local_address().unwrap(), b"back", None)).unwrap();
        assert_eq!(read(&client), "back");
    }

    #[test]
    fn a_port_that_was_given_up_is_free_while_sockets_beside_it_go_on() {
        let (client, server, address) = pair();
        let other = Socket::connect(address).unwrap();
        let own = server.beside(Some(Ipv4Addr::LOCALHOST.into()), client.local_address().unwrap()).unwrap();
        // Another process has it, too.
        let successor = Socket::given(server.try_clone_fd().unwrap().into()).unwrap();
        let bind = || Socket::bind(address).map_err(|error| error.kind());
        assert_eq!(bind().map(drop), Err(io::ErrorKind::AddrInUse));
        server.give_up().unwrap();
        assert_eq!(bind().map(drop), Err(io::ErrorKind::AddrInUse), "the successor has it");
        assert_eq!(successor.local_address().unwrap(), address);
        drop(successor);
        let third = bind().unwrap();
        assert_eq!(bind().map(drop), Err(io::ErrorKind::AddrInUse), "nobody shares it with that one");
        for (from, text) in [(&client, b"mine"), (&other, b"rest"), (&client, b"mine")] {
            from.send(&to(address, text, None)).unwrap();
        }
        assert_eq!([read(&own), read(&third)], ["minemine", "rest"]);
        own.send(&to(client.local_address().unwrap(), b"back", None)).unwrap();
        assert_eq!(read(&client), "back");
    }

    #[test]
    fn datagrams_with_nothing_in_them_are_not_taken_for_silence() {
        let (client, server, address) = pair();
        for contents in [&b""[..]; BATCH].into_iter().chain([&b"and then"[..]]) {
            client.send(&to(address, contents, None)).unwrap();
        }
        let mut heard = Vec::new();
        while server.receive(&mut |datagram| heard.extend_from_slice(datagram.bytes)).unwrap() > 0 {}
        assert_eq!(heard, b"and then");
    }

    #[test]
    fn a_port_where_nobody_listens_is_reported_by_the_next_call() {
        let (client, server, address) = pair();
        drop(server);
        client.send(&to(address, b"is there anybody?", None)).unwrap();
        let error = client.receive(&mut |_| panic!("nobody can answer")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
