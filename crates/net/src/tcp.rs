//! Non-blocking TCP with the results that an edge-triggered role needs; clients may use a Unix socket instead.

use std::cell::Cell;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, getpeername, getsockname, listen, recv, send, sendmsg, socket_with, sockopt,
};

use super::privileges::{self, CapabilitySet};
use super::socket_option::set_option;

/// Where a server can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A Unix socket of type `SOCK_STREAM`, by its path.
    Unix(Arc<Path>),
}

impl Endpoint {
    /// The port; 0 of a Unix socket, which has none.
    pub const fn port(&self) -> u16 {
        match self {
            Self::Tcp(address) => address.port(),
            Self::Unix(_) => 0,
        }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for Endpoint {
    /// `127.0.0.1:80`, `[::1]:80` or `unix:/run/web.sock`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// `SO_BUF_LOCK` of `asm-generic/socket.h`, Linux 5.14: which buffers keep the size that they were given. Not in `libc`.
const SO_BUF_LOCK: libc::c_int = 72;

/// What a read gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// The number of bytes, at least one.
    Bytes(usize),
    /// Nothing now; a completion says when there is more.
    WouldBlock,
    /// The peer has finished sending.
    Eof,
    /// The peer has finished sending without the `close_notify` of TLS: bytes may be missing. Never over TCP alone.
    Truncated,
}

/// What a write gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The number of bytes that were taken, at least one; perhaps fewer than offered.
    Bytes(usize),
    /// The socket's buffer is full; a completion says when there is room.
    WouldBlock,
}

/// How a connection is dialled.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConnectOptions<'a> {
    /// Congestion control to ask for, such as `bbr`; `None` leaves the namespace's default. What the kernel really
    /// uses is read back with [`StreamSocket::congestion`].
    pub congestion: Option<&'a str>,
    /// The mark of its packets, `SO_MARK`.
    pub mark: Option<u32>,
    /// Whether what is read is acknowledged at once (`TCP_QUICKACK`), where the kernel would delay that by 40 ms or more.
    pub quick_acks: bool,
}

/// A non-blocking TCP or Unix socket, connected or connecting. `TCP_NODELAY` is set on TCP unless a listener is asked for the
/// opposite: the engines write whole batches, and Nagle's algorithm would delay the last segment of each by a round trip.
#[derive(Debug)]
pub struct StreamSocket {
    fd: OwnedFd,
    /// Calls of [`StreamSocket::read`] and [`StreamSocket::write`].
    calls: Cell<(u64, u64)>,
    /// Bytes that the kernel took, and in how many calls.
    written: Cell<(u64, u64)>,
    /// Of [`ConnectOptions::quick_acks`].
    quick_acks: bool,
}

impl StreamSocket {
    /// Buffers that [`StreamSocket::write_scattered`] takes: everything that an engine has to send (256 KiB) in frames of
    /// 16 KiB, each with its header apart from its payload. With 16 of them only half of that went by one system call,
    /// which cost a sixth of the rate on loopback (`results/2026-11-22-2-cpus/bulk.md`).
    pub const PLACES: usize = 64;

    /// Begins to connect to `endpoint`. Give the result to [`super::reactor::Reactor::submit_connect`], which reports the result;
    /// until then nothing may be read or written. A Unix socket whose queue is full fails at once with
    /// [`io::ErrorKind::WouldBlock`] (connect(2)).
    pub fn connect(endpoint: &Endpoint, options: &ConnectOptions<'_>) -> io::Result<Self> {
        let (stream, result) = match endpoint {
            Endpoint::Tcp(address) => {
                let stream = Self { quick_acks: options.quick_acks, ..Self::from_fd(socket(*address)?)? };
                if let Some(name) = options.congestion {
                    sockopt::set_tcp_congestion(&stream.fd, name)?;
                }
                if let Some(mark) = options.mark {
                    super::intercept::mark(&stream.fd, mark)?;
                }
                let result = rustix::net::connect(&stream.fd, address);
                (stream, result)
            }
            Endpoint::Unix(path) => {
                let stream = Self {
                    fd: socket_of(AddressFamily::UNIX)?,
                    calls: Cell::default(),
                    written: Cell::default(),
                    quick_acks: false,
                };
                let result = rustix::net::connect(&stream.fd, &SocketAddrUnix::new(path.as_ref())?);
                (stream, result)
            }
        };
        match result {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(stream),
            Err(error) => Err(error.into()),
        }
    }

    fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        Self::accepted(fd, true)
    }

    fn accepted(fd: OwnedFd, nodelay: bool) -> io::Result<Self> {
        sockopt::set_tcp_nodelay(&fd, nodelay)?;
        Ok(Self { fd, calls: Cell::default(), written: Cell::default(), quick_acks: false })
    }

    /// A TCP connection that another process, or this one, had before, and on which `written` bytes were written.
    pub fn given(fd: OwnedFd, written: u64) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        let stream = Self::from_fd(fd)?;
        stream.written.set((written, 0));
        stream.set_rcvlowat(1);
        Ok(stream)
    }

    /// Has the kernel end the connection, with [`io::ErrorKind::TimedOut`], where the peer's host is gone. After
    /// `silence` without a segment the kernel sends keepalives (`SO_KEEPALIVE`). Data or keepalives without an
    /// acknowledgement for `unacknowledged` end the connection (`TCP_USER_TIMEOUT`, RFC 5482); `None` leaves that to
    /// the system's own limits (`tcp_retries2`, `tcp_keepalive_probes`). Both times are one second at least. No effect
    /// on a Unix socket, whose peer is a process of this host.
    pub fn watch_peer(&self, silence: Duration, unacknowledged: Option<Duration>) {
        let silence = Duration::from_secs(silence.as_secs().clamp(1, 32_767));
        let unacknowledged = unacknowledged.map_or(0, |time| {
            let time = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
            time.clamp(1_000, i32::MAX as u32) // an int: negative values are refused
        });
        let set = || {
            sockopt::set_tcp_keepidle(&self.fd, silence)?;
            sockopt::set_tcp_keepintvl(&self.fd, silence)?;
            sockopt::set_socket_keepalive(&self.fd, true)?;
            sockopt::set_tcp_user_timeout(&self.fd, unacknowledged)
        };
        let _ = set(); // on an old kernel it is detected later
    }

    /// Makes its close reset the connection (RST), so that the peer does not take what it got for complete. What it has
    /// not acknowledged yet may never arrive.
    pub fn abort_at_close(&self) {
        let _ = sockopt::set_socket_linger(&self.fd, Some(Duration::ZERO)); // else it ends as if it were complete
    }

    /// Its descriptor, which is non-blocking.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// How often it was read from and written to: system calls.
    pub const fn calls(&self) -> (u64, u64) {
        self.calls.get()
    }

    /// How many bytes the kernel has taken from us: with TLS those of its records.
    pub const fn written(&self) -> u64 {
        self.written.get().0
    }

    /// In how many system calls the kernel has taken them: those that found the socket's buffer full do not count.
    pub const fn writes(&self) -> u64 {
        self.written.get().1
    }

    fn note_written(&self, bytes: usize) {
        let (before, calls) = self.written.get();
        self.written.set((before + bytes as u64, calls + 1));
    }

    /// Reads what is there, up to `space`.
    ///
    /// Fewer bytes than `space` mean that the socket is drained: a second read, which would only return [`Read::WouldBlock`], is
    /// not needed unless the completion reported a hangup.
    #[inline]
    pub fn read(&self, space: &mut [u8]) -> io::Result<Read> {
        let (reads, writes) = self.calls.get();
        self.calls.set((reads + 1, writes));
        match retry_on_intr(|| recv(&self.fd, &mut *space, RecvFlags::empty())) {
            Ok((0, _)) => Ok(Read::Eof),
            Ok((n, _)) => {
                if self.quick_acks {
                    // The kernel forgets it again (tcp(7)). If it cannot be set, nothing is lost but time.
                    let _ = sockopt::set_tcp_quickack(&self.fd, true);
                }
                Ok(Read::Bytes(n))
            }
            Err(Errno::AGAIN) => Ok(Read::WouldBlock),
            Err(error) => Err(error.into()),
        }
    }

    /// Looks at what is there, up to `space`, and leaves it there.
    pub fn peek(&self, space: &mut [u8]) -> io::Result<Read> {
        match retry_on_intr(|| recv(&self.fd, &mut *space, RecvFlags::PEEK)) {
            Ok((0, _)) => Ok(Read::Eof),
            Ok((n, _)) => Ok(Read::Bytes(n)),
            Err(Errno::AGAIN) => Ok(Read::WouldBlock),
            Err(error) => Err(error.into()),
        }
    }

    /// From now on completions report bytes only when `bytes` of them have come, or the stream has ended. The kernel
    /// uses a lower mark if the buffer holds less; on a Unix socket it is always 1. If it cannot be set, nothing is
    /// lost: it only saves time.
    pub fn set_rcvlowat(&self, bytes: u32) {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        let _ = set_option(&self.fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, &bytes);
    }

    /// Fixes the receive buffer at `bytes`, which the kernel doubles, instead of autotuning. Nothing is changed where
    /// `net.core.rmem_max` allows less, and before Linux 5.14, where that could not be undone.
    pub fn bound_receive_buffer(&self, bytes: u32) {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX / 2);
        let autotune = || set_option(&self.fd, libc::SOL_SOCKET, SO_BUF_LOCK, &0);
        if autotune().is_err() || set_option(&self.fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &bytes).is_err() {
            return;
        }
        let window = 2 * bytes;
        if sockopt::socket_recv_buffer_size(&self.fd).is_ok_and(|size| size >= window as usize) {
            // The window follows the buffer only while the kernel autotunes it.
            let _ = set_option(&self.fd, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, &window);
        } else {
            let _ = autotune();
        }
    }

    /// The socket takes no more while `bytes` that it has not sent yet wait in it (`TCP_NOTSENT_LOWAT`). Otherwise it
    /// takes megabytes that a peer does not read. No effect on a Unix socket.
    pub fn limit_unsent(&self, bytes: u32) {
        let _ = set_option(&self.fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &bytes);
    }

    /// Throws away what has come, up to 64 KiB. Closing a socket that holds unread bytes sends a reset, which may make the peer
    /// drop our last bytes before it has read them (RFC 9112 §9.6).
    pub fn discard(&self) {
        let mut space = [0; 4096];
        for _ in 0..16 {
            if !matches!(self.read(&mut space), Ok(Read::Bytes(_))) {
                return;
            }
        }
    }

    /// Writes as much of `bytes` as the socket's buffer takes. A closed connection is an error, never SIGPIPE.
    pub fn write(&self, bytes: &[u8]) -> io::Result<Written> {
        let (reads, writes) = self.calls.get();
        self.calls.set((reads, writes + 1));
        match retry_on_intr(|| send(&self.fd, bytes, SendFlags::NOSIGNAL)) {
            Ok(n) => {
                self.note_written(n);
                Ok(Written::Bytes(n))
            }
            Err(Errno::AGAIN) => Ok(Written::WouldBlock),
            Err(error) => Err(error.into()),
        }
    }

    /// As [`StreamSocket::write`], for several buffers, of which the first [`StreamSocket::PLACES`] are taken.
    pub fn write_scattered(&self, places: &[&[u8]]) -> io::Result<Written> {
        let mut buffers = [IoSlice::new(&[]); Self::PLACES];
        let count = places.len().min(buffers.len());
        for (buffer, place) in buffers.iter_mut().zip(places) {
            *buffer = IoSlice::new(place);
        }
        match io::Write::write_vectored(&mut &*self, &buffers[..count]) {
            Ok(n) => Ok(Written::Bytes(n)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Written::WouldBlock),
            Err(error) => Err(error),
        }
    }

    /// Ends our sending direction: the peer reads an end of stream.
    pub fn shutdown_write(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Write)?)
    }

    /// The error that the kernel holds for this socket, for example why connecting failed; reading clears it.
    pub fn take_error(&self) -> io::Result<()> {
        Ok(sockopt::socket_error(&self.fd)??)
    }

    /// Our address and port; an error on a Unix socket, which has none.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::try_from(getsockname(&self.fd)?)?)
    }

    /// The peer's address and port.
    pub fn peer_address(&self) -> io::Result<SocketAddr> {
        let address = getpeername(&self.fd)?.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
        Ok(SocketAddr::try_from(address)?)
    }

    /// Whether it is both ends of its own connection. A socket that connects to a port of its own machine on which nobody listens
    /// may get that port as its source port, and then connects to itself (simultaneous open, RFC 9293 §3.5): possible on
    /// ephemeral ports.
    pub fn meets_itself(&self) -> bool {
        matches!((self.local_address(), self.peer_address()), (Ok(ours), Ok(theirs)) if ours == theirs)
    }

    /// Whether a socket of this process may have the congestion control `name`: tried on an unconnected socket, since what the
    /// kernel has loaded, can load, and allows to whom are three lists (tcp(7), `TCP_CONGESTION`).
    pub fn may_have_congestion(name: &str) -> io::Result<()> {
        let fd = socket_of(AddressFamily::INET)?;
        Ok(sockopt::set_tcp_congestion(&fd, name)?)
    }

    /// The capability that this thread must keep so that its sockets may have `name`: `CAP_NET_ADMIN` if that is
    /// restricted (`net.ipv4.tcp_allowed_congestion_control`), else none.
    pub fn rights_for_congestion(name: &str) -> CapabilitySet {
        privileges::needed(&[CapabilitySet::NET_ADMIN], || Self::may_have_congestion(name).is_ok())
    }

    /// The congestion control that the kernel uses on this socket.
    pub fn congestion(&self) -> io::Result<String> {
        Ok(sockopt::tcp_congestion(&self.fd)?)
    }
}

/// As [`StreamSocket::write`], with several buffers at once; a full socket is [`io::ErrorKind::WouldBlock`].
impl io::Write for &StreamSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let (reads, writes) = self.calls.get();
        self.calls.set((reads, writes + 1));
        let send = || {
            let control = &mut SendAncillaryBuffer::default();
            sendmsg(&self.fd, buffers, control, SendFlags::NOSIGNAL)
        };
        let n = retry_on_intr(send)?;
        self.note_written(n);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for StreamSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether anything listens at `address`: connects to it and closes at once. It blocks.
pub fn probe_port(address: SocketAddr) -> io::Result<()> {
    probe_port_with(&probe_socket(address)?, address)
}

/// A socket for [`probe_port`].
fn probe_socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let fd = socket_with(family_of(address), SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // A self-connection leaves its port in TIME-WAIT, and the awaited server could not bind it.
    sockopt::set_socket_reuseaddr(&fd, true)?;
    Ok(fd)
}

fn probe_port_with(socket: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    match retry_on_intr(|| connect(socket, &address)) {
        // The interrupted connect has completed.
        Ok(()) | Err(Errno::ISCONN) => {}
        Err(error) => return Err(error.into()),
    }
    // See `StreamSocket::meets_itself`: it is rare, but waiting for a server to listen takes a hundred attempts.
    let ours = SocketAddr::try_from(getsockname(socket)?)?;
    if ours == address { Err(io::ErrorKind::ConnectionRefused.into()) } else { Ok(()) }
}

/// A port that is reserved for a program which cannot be handed a listener.
///
/// A socket that is bound and does not listen: the kernel assigns its port to no other socket as an ephemeral one, while a
/// program that binds that very port with `SO_REUSEADDR`, as servers do, gets it. Without it another program could get a server's
/// port before the server runs, and be taken for it.
#[derive(Debug)]
pub struct ReservedPort {
    fd: OwnedFd,
}

impl ReservedPort {
    /// An unused port of `ip`, free on every address or on this one.
    pub fn of(ip: IpAddr) -> io::Result<Self> {
        let address = SocketAddr::new(ip, 0);
        let fd = socket(address)?;
        // Without it the port could not be shared with the server's socket.
        sockopt::set_socket_reuseaddr(&fd, true)?;
        bind(&fd, &address)?;
        Ok(Self { fd })
    }

    /// Its number.
    pub fn number(&self) -> io::Result<u16> {
        Ok(SocketAddr::try_from(getsockname(&self.fd)?)?.port())
    }
}

/// The most that the kernel lets the receive and the send buffers of sockets grow to, in bytes, in the network
/// namespace of the calling thread: the third values of `net.ipv4.tcp_rmem` and `net.ipv4.tcp_wmem`, which apply to
/// IPv6, too.
pub fn largest_buffers() -> (Option<u64>, Option<u64>) {
    let third = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?;
        text.split_whitespace().nth(2)?.parse().ok()
    };
    (third("tcp_rmem"), third("tcp_wmem"))
}

/// A listening, non-blocking TCP socket.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    nodelay: bool,
}

impl Listener {
    /// Connections that may wait to be accepted; the kernel lowers it to `net.core.somaxconn`.
    const BACKLOG: i32 = 4096;

    /// Listens on `address`; port 0 picks a free one, see [`Listener::local_address`]. `SO_REUSEADDR` is set, so that a
    /// restart does not wait for old connections in TIME-WAIT.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        Self::bind_with(address, None)
    }

    /// The same with this congestion control, which accepted connections have from it (tcp(7)).
    pub fn bind_with(address: SocketAddr, congestion: Option<&str>) -> io::Result<Self> {
        let fd = socket(address)?;
        if let Some(name) = congestion {
            sockopt::set_tcp_congestion(&fd, name)?;
        }
        Self::bind_to(fd, address)
    }

    /// The same where `others`, which will soon be closed, listen on a part of this address or on more than it: `127.0.0.1:80` and
    /// `0.0.0.0:80`. Until then a connection goes to the socket whose address is the narrower one. They must be of this user
    /// (`SO_REUSEPORT`, socket(7)); sockets of other users cannot be bound beside them either way.
    pub fn bind_beside(address: SocketAddr, others: &[BorrowedFd<'_>]) -> io::Result<Self> {
        let fd = socket(address)?;
        sockopt::set_socket_reuseport(&fd, true)?;
        let share =
            |is_shared| others.iter().try_for_each(|other| sockopt::set_socket_reuseport(other, is_shared));
        share(true)?;
        let result = Self::bind_to(fd, address);
        share(false)?; // nobody else is to bind beside them
        let listener = result?;
        sockopt::set_socket_reuseport(&listener.fd, false)?;
        Ok(listener)
    }

    fn bind_to(fd: OwnedFd, address: SocketAddr) -> io::Result<Self> {
        sockopt::set_socket_reuseaddr(&fd, true)?;
        bind(&fd, &address)?;
        listen(&fd, Self::BACKLOG)?;
        Ok(Self { fd, nodelay: true })
    }

    /// A socket that another process has made to listen. Fails if it is something else.
    pub fn given(fd: OwnedFd) -> io::Result<Self> {
        if !sockopt::socket_acceptconn(&fd)? {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no listening socket"));
        }
        rustix::io::ioctl_fionbio(&fd, true)?;
        let listener = Self { fd, nodelay: true };
        listener.local_address()?; // of TCP
        Ok(listener)
    }

    /// Another descriptor of the same socket.
    pub fn try_clone_fd(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// The same, whose connections keep Nagle's algorithm (RFC 9293 §3.7.4): to show what it costs.
    #[must_use]
    pub fn with_nagle(self) -> Self {
        Self { nodelay: false, ..self }
    }

    /// Takes the next connection; `None` when none waits.
    pub fn accept(&self) -> io::Result<Option<StreamSocket>> {
        loop {
            return match accept_with(&self.fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                // A connection that cannot be set up was reset meanwhile; that does not concern the others.
                Ok(fd) => match StreamSocket::accepted(fd, self.nodelay) {
                    Ok(stream) => Ok(Some(stream)),
                    Err(_) => continue,
                },
                Err(Errno::AGAIN) => Ok(None),
                // That peer has closed before we accepted; others may wait behind it.
                Err(Errno::CONNABORTED | Errno::INTR) => continue,
                Err(error) => Err(error.into()),
            };
        }
    }

    /// The address and port that it listens on.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::try_from(getsockname(&self.fd)?)?)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A non-blocking socket of the family of `address`.
fn socket(address: SocketAddr) -> io::Result<OwnedFd> {
    socket_of(family_of(address))
}

fn family_of(address: SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

/// A non-blocking stream socket of this family.
fn socket_of(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(socket_with(family, SocketType::STREAM, flags, None)?)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn who_dials_his_own_port_has_met_nobody() {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&any.into()).unwrap();
        let own = socket.local_addr().unwrap();
        socket.connect(&own).unwrap();
        assert!(StreamSocket::from_fd(socket.into()).unwrap().meets_itself());
        let listener = std::net::TcpListener::bind(any).unwrap();
        let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(!StreamSocket::from_fd(other.into()).unwrap().meets_itself());
        assert!(probe_port(listener.local_addr().unwrap()).is_ok());
    }

    #[test]
    fn a_call_that_finds_the_buffer_full_writes_nothing() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nonblocking(true).unwrap();
        let stream = StreamSocket::from_fd(client.into()).unwrap();
        let mut taken = 0;
        while let Written::Bytes(_) = stream.write(&[0; 4_096]).unwrap() {
            taken += 1;
        }
        assert_eq!((stream.writes(), stream.calls().1), (taken, taken + 1));
    }

    #[test]
    fn a_receive_buffer_is_bounded_where_the_kernel_allows_so_much_and_otherwise_left_alone() {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let largest = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap();
        let largest: u32 = largest.trim().parse().unwrap();
        for (bytes, is_bound) in [(largest / 2, true), (largest, true), (largest + 4096, false)] {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let stream = StreamSocket::from_fd(client.into()).unwrap();
            stream.bound_receive_buffer(bytes);
            let size = sockopt::socket_recv_buffer_size(&stream.fd).unwrap();
            assert_eq!(size == 2 * bytes as usize, is_bound, "{bytes}: {size}");
        }
    }

    #[test]
    fn a_server_gets_its_port_when_who_waits_for_it_has_met_himself_there() {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let socket = probe_socket(any).unwrap();
        bind(&socket, &any).unwrap();
        let address = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
        assert_eq!(probe_port_with(&socket, address).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        drop(socket);
        assert!(Listener::bind(address).is_ok(), "TIME-WAIT holds the port");
    }

    #[test]
    fn a_reserved_port_is_dealt_to_nobody_and_had_by_who_asks_for_it() {
        let reserved = ReservedPort::of(Ipv4Addr::LOCALHOST.into()).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, reserved.number().unwrap()));
        // A socket that can get only this ephemeral port: `IP_LOCAL_PORT_RANGE` of ip(7), Linux 6.3.
        let picky = || {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            socket.set_reuse_address(true).unwrap();
            let range = u32::from(address.port()) << 16 | u32::from(address.port());
            set_option(&socket, libc::IPPROTO_IP, 51, &range).unwrap();
            socket
        };
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        assert_eq!(picky().bind(&any.into()).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let elsewhere = std::net::TcpListener::bind(any).unwrap().local_addr().unwrap();
        assert_eq!(picky().connect(&elsewhere.into()).unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
        assert_eq!(probe_port(address).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let server = Listener::bind(address).unwrap();
        drop(reserved);
        assert!(probe_port(address).is_ok() && server.accept().unwrap().is_some());
    }

    #[test]
    fn a_listener_decides_whether_its_connections_have_nagles_algorithm() {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let accepted = |listener: Listener| {
            let _client = std::net::TcpStream::connect(listener.local_address().unwrap()).unwrap();
            let stream = (0..1_000_000).find_map(|_| listener.accept().unwrap()).expect("it was connected");
            sockopt::tcp_nodelay(&stream.fd).unwrap()
        };
        assert!(accepted(Listener::bind(any).unwrap()));
        assert!(!accepted(Listener::bind(any).unwrap().with_nagle()));
    }

    #[test]
    fn acknowledgements_are_quick_only_where_that_is_asked_for() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = Endpoint::from(server.local_addr().unwrap());
        for quick_acks in [false, true] {
            let options = ConnectOptions { quick_acks, ..ConnectOptions::default() };
            let client = StreamSocket::connect(&address, &options).unwrap();
            let (mut peer, _) = server.accept().unwrap();
            // Requests and responses in turn: the kernel now delays acknowledgements, to send them with data.
            for _ in 0..8 {
                client.write(b"request").unwrap();
                io::Read::read_exact(&mut peer, &mut [0; 7]).unwrap();
                io::Write::write_all(&mut peer, b"response").unwrap();
                let mut space = [0; 8];
                while !matches!(client.read(&mut space).unwrap(), Read::Bytes(8)) {}
            }
            assert_eq!(sockopt::tcp_quickack(&client.fd).unwrap(), quick_acks);
        }
    }
}
