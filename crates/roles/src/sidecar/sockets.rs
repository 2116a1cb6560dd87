//! Listening sockets that outlive a process. Those that it was given are used before new ones are made, and all of them
//! can be handed on.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use h2lab_net::intercept;
use h2lab_net::quic::QuicEndpoint;
use h2lab_net::tcp::Listener;
use h2lab_net::udp::Socket;
use rustix::net::{SocketType, sockopt};

use super::handover::Passing;

/// How long the loop may take to leave the UDP sockets.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Listening sockets. Clones are of the same ones.
#[derive(Debug, Clone, Default)]
pub struct Sockets(Arc<(Mutex<Held>, Condvar)>, Passing);

/// Who reads the UDP sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Datagrams {
    /// The loop.
    #[default]
    Read,
    /// The loop is to stop reading them, and before that to give each connection a socket of its own.
    Asked,
    /// The loop has done so.
    Left,
}

#[derive(Debug, Default)]
struct Held {
    /// From another process, and not in use yet.
    given: Vec<Listener>,
    /// The same over UDP.
    given_datagrams: Vec<Socket>,
    /// Copies of those in use.
    used: Vec<(SocketAddr, OwnedFd)>,
    /// The same over UDP.
    used_datagrams: Vec<(SocketAddr, OwnedFd)>,
    /// UDP sockets of this process, also of listeners that are gone and whose clients are still served.
    served: Vec<(SocketAddr, Weak<QuicEndpoint>)>,
    /// The progress of handing on what is read from those.
    datagrams: Datagrams,
    /// Another process uses them, too.
    is_handed_on: bool,
    /// The stream that other listening threads of this process wait on: when it is closed, they see its end.
    kept: Option<UnixStream>,
    /// Connections that this process has made. One local address may have several, to different peers.
    dialled: HashMap<Dialled, u32>,
}

/// The two ends of a connection that this process has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dialled {
    pub from: SocketAddr,
    pub to: SocketAddr,
}

impl Sockets {
    /// These were given to the process.
    pub fn given(fds: Vec<OwnedFd>) -> io::Result<Self> {
        let mut held = Held::default();
        for fd in fds {
            if sockopt::socket_type(&fd)? == SocketType::DGRAM {
                held.given_datagrams.push(Socket::given(UdpSocket::from(fd))?);
            } else {
                held.given.push(Listener::given(fd)?);
            }
        }
        Ok(Self(Arc::new((Mutex::new(held), Condvar::new())), Passing::default()))
    }

    /// Connections of clients that are handed on, too.
    pub const fn passing(&self) -> &Passing {
        &self.1
    }

    /// Listens on `address`: with a socket that was given or reserved, if one is for it, else with a new one.
    pub fn listener(&self, address: SocketAddr) -> io::Result<Listener> {
        let mut held = self.held();
        let is_it = |listener: &Listener| listener.local_address().is_ok_and(|local| local == address);
        let listener = match held.given.iter().position(is_it) {
            Some(at) => held.given.swap_remove(at),
            None => {
                // Addresses that overlap belong to no listener: no configuration has both, and sockets that nobody asks
                // for are closed.
                let given = held.given.iter();
                let given = given.filter_map(|other| Some((other.local_address().ok()?, other.as_fd())));
                bind(address, given)?
            }
        };
        held.used.push((listener.local_address()?, listener.try_clone_fd()?));
        Ok(listener)
    }

    /// A socket that listens on `address`, before those that listen on `leaving` are closed. It has no use until it is
    /// [reserved](Self::reserve).
    pub fn bind(&self, address: SocketAddr, leaving: &[SocketAddr]) -> io::Result<Listener> {
        let held = self.held();
        let used = held.used.iter().filter(|(local, _)| leaving.contains(local));
        bind(address, used.map(|(local, fd)| (*local, fd.as_fd())))
    }

    /// Reserves these for the listeners on their addresses.
    pub fn reserve(&self, listeners: Vec<Listener>) {
        self.held().given.extend(listeners);
    }

    /// There is no listener on this address: nobody would accept the connections to a socket that was given or reserved
    /// for it.
    pub fn release(&self, address: SocketAddr) {
        self.held().given.retain(|listener| listener.local_address().ok() != Some(address));
    }

    /// Makes TPROXY bring connections to other addresses to the listener on this local address.
    pub fn take_foreign(&self, local: SocketAddr) -> io::Result<()> {
        let held = self.held();
        let mut its = held.used.iter().filter(|(address, _)| *address == local);
        its.try_for_each(|(_, fd)| intercept::take_foreign(fd))
    }

    /// A connection is being made.
    pub fn dialled(&self, ends: Dialled) {
        let mut held = self.held();
        *held.dialled.entry(ends).or_default() += 1;
    }

    /// One of these connections has ended.
    pub fn hung_up(&self, ends: Dialled) {
        let mut held = self.held();
        if let Some(count) = held.dialled.get_mut(&ends) {
            *count -= 1;
            if *count == 0 {
                held.dialled.remove(&ends);
            }
        }
    }

    /// Whether this process has made this connection.
    pub fn have_dialled(&self, ends: Dialled) -> bool {
        self.held().dialled.contains_key(&ends)
    }

    /// Addresses of sockets that were given and that nobody has asked for, whose connections would wait for ever. They are closed.
    pub fn close_unused(&self) -> Vec<SocketAddr> {
        let mut held = self.held();
        let (given, datagrams) = (std::mem::take(&mut held.given), std::mem::take(&mut held.given_datagrams));
        let streams = given.iter().map(Listener::local_address);
        streams.chain(datagrams.iter().map(Socket::local_address)).filter_map(Result::ok).collect()
    }

    /// The sidecar does not listen on this local address any more.
    pub fn close(&self, local: SocketAddr) {
        let mut held = self.held();
        held.used.retain(|(address, _)| *address != local);
        held.used_datagrams.retain(|(address, _)| *address != local);
    }

    /// The same of UDP alone.
    pub fn close_datagrams(&self, local: SocketAddr) {
        self.held().used_datagrams.retain(|(address, _)| *address != local);
    }

    /// A UDP socket at `address`: one that was given, if one is for it, else a new one.
    pub fn datagrams(&self, address: SocketAddr) -> io::Result<Socket> {
        let mut held = self.held();
        let is_it = |socket: &Socket| socket.local_address().is_ok_and(|local| local == address);
        match held.given_datagrams.iter().position(is_it) {
            Some(at) => Ok(held.given_datagrams.swap_remove(at)),
            None => Socket::bind(address),
        }
    }

    /// This UDP socket is in use.
    pub fn uses(&self, local: SocketAddr, endpoint: &Arc<QuicEndpoint>) -> io::Result<()> {
        let mut held = self.held();
        held.used_datagrams.push((local, endpoint.try_clone_fd()?));
        held.served.retain(|(address, endpoint)| *address != local && endpoint.strong_count() > 0);
        held.served.push((local, Arc::downgrade(endpoint)));
        Ok(())
    }

    /// Whether a listener has, or had, this UDP port, which is not given back yet: another one at the same address
    /// continues with it.
    pub fn serves(&self, local: SocketAddr) -> bool {
        let held = self.held();
        held.served.iter().any(|(address, endpoint)| *address == local && endpoint.strong_count() > 0)
    }

    /// Makes the loop leave the UDP sockets to another process, and waits until it has. If both processes could read a
    /// datagram, the wrong one might. Returns copies of all sockets in use.
    pub fn leave(&self) -> io::Result<Vec<OwnedFd>> {
        let mut held = self.held();
        if !held.used_datagrams.is_empty() && held.datagrams == Datagrams::Read {
            held.datagrams = Datagrams::Asked;
            let (_, signal) = &*self.0;
            let is_asked = |held: &mut Held| held.datagrams == Datagrams::Asked;
            let waited = signal.wait_timeout_while(held, LEAVE_TIMEOUT, is_asked);
            let (after, result) = waited.unwrap_or_else(PoisonError::into_inner);
            if result.timed_out() {
                return Err(io::Error::from(io::ErrorKind::TimedOut));
            }
            held = after;
        }
        held.used.iter().chain(&held.used_datagrams).map(|(_, fd)| fd.try_clone()).collect()
    }

    /// Nobody else has taken the UDP sockets: the loop reads them again.
    pub fn keep(&self) {
        self.held().datagrams = Datagrams::Read;
    }

    /// Who reads the UDP sockets.
    pub fn who_reads(&self) -> Datagrams {
        self.held().datagrams
    }

    /// The loop has left the UDP sockets.
    pub fn left(&self) {
        let mut held = self.held();
        if held.datagrams == Datagrams::Asked {
            held.datagrams = Datagrams::Left;
            self.0.1.notify_all();
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another process has taken them over. Other listening threads of this process are
    /// [notified](Self::until_released).
    pub fn handed_on(&self) {
        let mut held = self.held();
        held.is_handed_on = true;
        held.kept = None;
    }

    /// A stream that ends when another process has taken them over, or at [`Sockets::release_listener`]. A thread that
    /// listens with one of them must close it then, so that a third process can have the address once the other one has
    /// ended.
    pub fn until_released(&self) -> io::Result<UnixStream> {
        let (kept, told) = UnixStream::pair()?;
        let mut held = self.held();
        held.kept = Some(kept).filter(|_| !held.is_handed_on);
        Ok(told)
    }

    /// Ends that stream.
    pub fn release_listener(&self) {
        self.held().kept = None;
    }

    /// Whether another process has taken them over.
    pub fn are_handed_on(&self) -> bool {
        self.held().is_handed_on
    }

    /// Drops the copies, so that what is closed elsewhere is really closed.
    pub fn forget(&self) {
        let mut held = self.held();
        held.used.clear();
        held.used_datagrams.clear();
    }
}

/// Listens on `address`. Others in `others` that listen on the same port are no obstacle: they are about to be closed.
fn bind<'a>(
    address: SocketAddr,
    others: impl Iterator<Item = (SocketAddr, BorrowedFd<'a>)>,
) -> io::Result<Listener> {
    match Listener::bind(address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let is_beside = |other: &SocketAddr| other.port() == address.port() && *other != address;
            let beside: Vec<_> = others.filter(|(at, _)| is_beside(at)).map(|(_, fd)| fd).collect();
            if beside.is_empty() { Err(error) } else { Listener::bind_beside(address, &beside) }
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wider_and_a_narrower_socket_listen_before_the_one_that_they_replace_is_closed() {
        use std::net::TcpStream;

        let sockets = Sockets::default();
        let on = |ip: [u8; 4], port| SocketAddr::from((ip, port));
        let first = sockets.listener(on([127, 0, 0, 1], 0)).expect("a port");
        let (narrow, wide) = (first.local_address().expect("it is bound"), [0, 0, 0, 0]);
        let wide = on(wide, narrow.port());
        assert_eq!(
            sockets.bind(wide, &[]).map(drop).map_err(|error| error.kind()),
            Err(io::ErrorKind::AddrInUse)
        );
        let mut before = (first, narrow);
        for next in [wide, narrow] {
            let reserved = sockets.bind(next, &[before.1]).expect("they are of one user");
            sockets.reserve(vec![reserved]);
            let _waits = TcpStream::connect(narrow).expect("one of them listens");
            sockets.close(before.1);
            let listener = sockets.listener(next).expect("it is reserved");
            drop(before.0);
            let _client = TcpStream::connect(narrow).expect("it listens");
            before = (listener, next);
        }
        sockets.close(narrow);
        drop(before);
        let reserved = sockets.bind(narrow, &[]).expect("it is free");
        sockets.reserve(vec![reserved]);
        sockets.release(narrow);
        assert!(sockets.bind(narrow, &[]).is_ok(), "nobody would accept what comes to it");
    }

    #[test]
    fn who_listens_is_told_when_another_process_does_or_it_is_to_end() {
        use std::io::Read as _;

        for release in [Sockets::handed_on, Sockets::release_listener] {
            let sockets = Sockets::default();
            let mut told = sockets.until_released().expect("a pair");
            told.set_nonblocking(true).expect("it is open");
            let mut read = || told.read(&mut [0]).map_err(|error| error.kind());
            assert_eq!(read(), Err(io::ErrorKind::WouldBlock));
            release(&sockets);
            assert_eq!(read(), Ok(0));
        }
        let sockets = Sockets::default();
        sockets.handed_on();
        assert_eq!(sockets.until_released().expect("a pair").read(&mut [0]).expect("it has ended"), 0);
    }

    #[test]
    fn a_callers_connection_from_the_port_of_one_of_ours_to_another_peer_is_not_ours() {
        let sockets = Sockets::default();
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let ends = Dialled { from: at("10.0.0.1:40000"), to: at("10.0.0.2:80") };
        sockets.dialled(ends);
        sockets.dialled(ends);
        assert!(!sockets.have_dialled(Dialled { to: at("10.0.0.3:80"), ..ends }));
        sockets.hung_up(ends);
        assert!(sockets.have_dialled(ends), "there are two");
        sockets.hung_up(ends);
        assert!(!sockets.have_dialled(ends));
    }
}
