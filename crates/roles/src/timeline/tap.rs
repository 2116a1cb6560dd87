//! A listener that forwards bytes to a server and reads them on the way: what crosses in front of that server.
//!
//! Each direction of a connection has a thread of its own, which blocks. There are only a few connections, of a few
//! exchanges.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::timeline::{Recorder, Waterfall};
use h2lab_model::workload::Protocol;
use h2lab_wire::trace::detail::Reader;
use h2lab_wire::trace::{Dialect, Direction};
use socket2::SockRef;

use h2lab_net::clock::Clock;
use h2lab_net::lock::lock;

/// How long a server that listens may take to accept.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait before the next connection is accepted, if one could not be accepted.
const PAUSE: Duration = Duration::from_millis(10);

/// A listener in front of one server. Dropping it ends all of its connections.
#[derive(Debug)]
pub(super) struct Tap {
    address: SocketAddr,
    inner: Arc<Inner>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    clock: Clock,
    protocol: Protocol,
    behind: SocketAddr,
    is_over: AtomicBool,
    connections: AtomicU32,
    seen: Mutex<Seen>,
    /// Notified when something has crossed.
    news: Condvar,
    /// The open connections, to end them.
    open: Mutex<BTreeMap<u32, Arc<Passing>>>,
}

/// A connection that passes through.
#[derive(Debug)]
struct Passing {
    client: TcpStream,
    server: TcpStream,
    /// Either side reset it.
    is_aborted: AtomicBool,
    /// Directions that have ended.
    ended: AtomicU32,
}

impl Passing {
    /// Where bytes of this direction come from, and where they go.
    const fn ends(&self, direction: Direction) -> (&TcpStream, &TcpStream) {
        match direction {
            Direction::Up => (&self.client, &self.server),
            Direction::Down => (&self.server, &self.client),
        }
    }

    /// One end reset it, and so do we: both are closed with RST, once the threads have dropped them. A reader is woken
    /// without sending anything.
    fn abort(&self) {
        self.is_aborted.store(true, Ordering::Relaxed);
        for end in [&self.client, &self.server] {
            give_up(end);
            let _ = end.shutdown(Shutdown::Read); // it may be closed already
        }
    }
}

/// Makes the close of a connection a reset.
fn give_up(end: &TcpStream) {
    // A connection that is gone has no options, and needs none.
    let _ = SockRef::from(end).set_linger(Some(Duration::ZERO));
}

#[derive(Debug)]
struct Seen {
    recorder: Recorder,
    readers: BTreeMap<u32, Reader>,
}

impl Tap {
    /// Listens on loopback in front of the server at `behind`, in `protocol`, in clear.
    pub fn start(behind: SocketAddr, protocol: Protocol, clock: Clock) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let mut recorder = Recorder::new(Time::ZERO, false);
        if !protocol.is_multiplexed() {
            recorder.refuse_push();
        }
        let inner = Arc::new(Inner {
            clock,
            protocol,
            behind,
            is_over: AtomicBool::new(false),
            connections: AtomicU32::new(0),
            seen: Mutex::new(Seen { recorder, readers: BTreeMap::new() }),
            news: Condvar::new(),
            open: Mutex::default(),
        });
        let acceptor = {
            let inner = Arc::clone(&inner);
            thread::Builder::new().name("tap".to_owned()).spawn(move || inner.accept(&listener))?
        };
        Ok(Self { address, inner, acceptor: Some(acceptor) })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Begins an exchange whose client began to connect at `origin`.
    pub fn begin(&self, origin: Time) {
        self.inner.seen().recorder.restart(origin);
    }

    /// What was seen of the exchange, once everything requested is answered, or `timeout` is over.
    pub fn waterfall(&self, timeout: Duration) -> Waterfall {
        let waits = |seen: &mut Seen| !seen.recorder.is_over();
        let (seen, _) = self
            .inner
            .news
            .wait_timeout_while(self.inner.seen(), timeout, waits)
            .unwrap_or_else(PoisonError::into_inner);
        seen.recorder.waterfall()
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.inner.is_over.store(true, Ordering::Relaxed);
        // This connection wakes the acceptor, which waits for one. If it cannot be made, there is no acceptor to wait
        // for.
        if TcpStream::connect_timeout(&self.address, TIMEOUT).is_ok()
            && let Some(acceptor) = self.acceptor.take()
        {
            // It returns nothing.
            let _ = acceptor.join();
        }
        for passing in std::mem::take(&mut *lock(&self.inner.open)).into_values() {
            for end in [&passing.client, &passing.server] {
                // Fails only if it is already closed.
                let _ = end.shutdown(Shutdown::Both);
            }
        }
    }
}

impl Inner {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            match client {
                Ok(client) => {
                    // If the client or the server is gone, the other one sees the close.
                    let _ = self.pass_on(client);
                }
                // For example, no descriptor is left: an immediate retry would fail, too.
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }

    /// Connects to the server and starts to pass on what either side sends.
    fn pass_on(self: &Arc<Self>, client: TcpStream) -> io::Result<()> {
        let server = TcpStream::connect_timeout(&self.behind, TIMEOUT).inspect_err(|_| give_up(&client))?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let connection = self.connections.fetch_add(1, Ordering::Relaxed);
        let dialect = Dialect::of(self.protocol.is_multiplexed(), false);
        let passing = Arc::new(Passing {
            client,
            server,
            is_aborted: AtomicBool::new(false),
            ended: AtomicU32::new(0),
        });
        {
            let mut seen = self.seen();
            seen.readers.insert(connection, Reader::new(dialect, connection));
            seen.recorder.connected(self.clock.now());
        }
        lock(&self.open).insert(connection, Arc::clone(&passing));
        for direction in [Direction::Up, Direction::Down] {
            let (inner, its) = (Arc::clone(self), Arc::clone(&passing));
            thread::Builder::new()
                .name("tap".to_owned())
                .spawn(move || inner.carry(connection, direction, &its))
                .inspect_err(|_| {
                    passing.abort();
                    self.forget(connection);
                })?;
        }
        Ok(())
    }

    /// Carries bytes in one direction until there are no more. The tap reads them before it forwards them, which takes
    /// some microseconds: it has seen whatever a server in front has seen.
    fn carry(&self, connection: u32, direction: Direction, passing: &Passing) {
        if self.carry_all(connection, direction, passing).is_err() {
            passing.abort();
        }
        if passing.ended.fetch_add(1, Ordering::AcqRel) == 1 {
            self.forget(connection);
        }
    }

    /// Carries bytes to the end of this direction, and forwards the end; an error if the direction does not end
    /// cleanly.
    fn carry_all(&self, connection: u32, direction: Direction, passing: &Passing) -> io::Result<()> {
        let (mut from, mut to) = passing.ends(direction);
        let mut space = vec![0; 64 << 10];
        loop {
            let n = match from.read(&mut space) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if passing.is_aborted.load(Ordering::Relaxed) {
                return Ok(()); // the other direction has reset both ends
            }
            if n == 0 {
                break;
            }
            self.read(connection, direction, &space[..n]);
            to.write_all(&space[..n])?;
        }
        if direction == Direction::Down {
            // Before any server in front can notice it.
            self.seen().recorder.closed(connection);
            self.news.notify_all();
        }
        let _ = to.shutdown(Shutdown::Write); // it may be closed already
        Ok(())
    }

    /// Drops a connection that has ended: the last holder closes it.
    fn forget(&self, connection: u32) {
        lock(&self.open).remove(&connection);
        self.seen().readers.remove(&connection);
    }

    fn read(&self, connection: u32, direction: Direction, bytes: &[u8]) {
        let at = self.clock.now();
        let mut seen = self.seen();
        let Seen { recorder, readers } = &mut *seen;
        if let Some(reader) = readers.get_mut(&connection) {
            reader.feed(at, direction, bytes, &mut |frame| recorder.record(&frame));
        }
        drop(seen);
        self.news.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_crosses_is_passed_on_unchanged_and_read_on_its_way() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let behind = server.local_addr().unwrap();
        let answering = thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut asked = Vec::new();
            let mut space = [0; 1024];
            while !asked.ends_with(b"\r\n\r\n") {
                let n = stream.read(&mut space).unwrap();
                asked.extend_from_slice(&space[..n]);
            }
            stream.write_all(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n").unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
            asked
        });
        let clock = Clock::start();
        let tap = Tap::start(behind, Protocol::H1, clock).unwrap();
        tap.begin(clock.now());
        let mut client = TcpStream::connect(tap.address()).unwrap();
        client.write_all(b"GET /page HTTP/1.1\r\nhost: h\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answering.join().unwrap(), b"GET /page HTTP/1.1\r\nhost: h\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 103 ") && answer.ends_with("\r\n\r\nok"), "{answer}");
        let waterfall = tap.waterfall(Duration::ZERO);
        let main = waterfall.asked(Some("/page")).unwrap();
        assert_eq!((main.interim.len(), main.interim[0].links, main.status), (1, 1, Some(200)));
        assert!(waterfall.refuses_push);
    }

    /// A server that runs `serve` on its only connection, and a tap in front of it that has forwarded a request for
    /// `/`.
    fn behind(serve: impl FnOnce(TcpStream) + Send + 'static) -> (Tap, TcpStream) {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = server.local_addr().unwrap();
        thread::spawn(move || serve(server.accept().unwrap().0));
        let clock = Clock::start();
        let tap = Tap::start(address, Protocol::H1, clock).unwrap();
        tap.begin(clock.now());
        let mut client = TcpStream::connect(tap.address()).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").unwrap();
        (tap, client)
    }

    /// Sends the beginning of a response of ten bytes.
    fn begin_response(stream: &mut TcpStream, fields: &str) {
        let mut space = [0; 1024];
        assert!(stream.read(&mut space).unwrap() > 0);
        stream.write_all(format!("HTTP/1.1 200 OK\r\n{fields}\r\nabc").as_bytes()).unwrap();
    }

    /// Waits until the tap holds no connection any more.
    fn wait_until_idle(tap: &Tap) {
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while !lock(&tap.inner.open).is_empty() || !tap.inner.seen().readers.is_empty() {
            assert!(std::time::Instant::now() < until, "the connection stays");
            thread::yield_now();
        }
    }

    #[test]
    fn a_response_is_answered_when_all_of_it_has_come_and_not_before() {
        let (go_on, frame) = std::sync::mpsc::channel::<()>();
        let (tap, mut client) = behind(move |mut stream| {
            begin_response(&mut stream, "content-length: 10\r\n");
            frame.recv().unwrap();
            stream.write_all(b"defghij").unwrap();
        });
        let (mut answer, mut space) = (Vec::new(), [0; 1024]);
        while !answer.ends_with(b"abc") {
            let n = client.read(&mut space).unwrap();
            assert!(n > 0, "{answer:?}");
            answer.extend_from_slice(&space[..n]);
        }
        let under_way = tap.waterfall(Duration::ZERO);
        assert_eq!((under_way.streams[0].status, under_way.streams[0].end_ms), (Some(200), None));
        assert!(under_way.connect.connected_ms.is_some());
        go_on.send(()).unwrap();
        client.read_to_end(&mut Vec::new()).unwrap();
        assert!(tap.waterfall(Duration::ZERO).streams[0].end_ms.is_some());
        drop(client);
        wait_until_idle(&tap);
    }

    #[test]
    fn a_response_without_a_length_ends_with_its_connection() {
        let (tap, mut client) = behind(|mut stream| begin_response(&mut stream, "connection: close\r\n"));
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("abc"), "{answer}");
        assert!(tap.waterfall(Duration::ZERO).streams[0].end_ms.is_some());
    }

    #[test]
    fn who_gives_a_connection_up_behind_gives_it_up_in_front() {
        let (tap, mut client) = behind(|mut stream| {
            begin_response(&mut stream, "connection: close\r\n");
            give_up(&stream);
        });
        let error = client.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(tap.waterfall(Duration::ZERO).streams[0].end_ms, None, "it was cut");
        wait_until_idle(&tap);
    }
}
