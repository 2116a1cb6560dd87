//! A listener that passes bytes on to a server, and reads them on their way: what crosses in front of that server.
//!
//! Both directions of a connection are a thread each, which block. There are a handful of connections, of a few exchanges.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use h2lab_core::timeline::{Recorder, Waterfall};
use h2lab_core::trace::detail::Reader;
use h2lab_core::trace::{Dialect, Direction};
use h2lab_core::units::Time;
use h2lab_core::workload::Protocol;

use crate::io::clock::Clock;

/// How long a server that listens may take to accept.
const PATIENCE: Duration = Duration::from_secs(5);

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
    /// Something has crossed.
    news: Condvar,
    /// Both ends of each connection, to end them.
    ends: Mutex<Vec<TcpStream>>,
}

#[derive(Debug)]
struct Seen {
    recorder: Recorder,
    readers: BTreeMap<u32, Reader>,
}

impl Tap {
    /// Listens on loopback for whoever asks the server at `behind`, in `protocol`, in clear.
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
            ends: Mutex::default(),
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

    /// An exchange begins, whose client began to connect at `origin`.
    pub fn begin(&self, origin: Time) {
        self.inner.seen().recorder.restart(origin);
    }

    /// What was seen of the exchange, when all that was asked for is answered, or `patience` is over.
    pub fn waterfall(&self, patience: Duration) -> Waterfall {
        let waits = |seen: &mut Seen| !seen.recorder.is_over();
        let (seen, _) = self
            .inner
            .news
            .wait_timeout_while(self.inner.seen(), patience, waits)
            .unwrap_or_else(PoisonError::into_inner);
        seen.recorder.waterfall(true)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.inner.is_over.store(true, Ordering::Relaxed);
        // The acceptor waits for a connection: this is one. If it cannot be made, there is none to wait for.
        if TcpStream::connect_timeout(&self.address, PATIENCE).is_ok()
            && let Some(acceptor) = self.acceptor.take()
        {
            // It has nothing to tell.
            let _ = acceptor.join();
        }
        for end in lock(&self.inner.ends).drain(..) {
            // Whoever has closed it already has done our work.
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
            // A client that has gone again, or a server that has: its other side learns it by the close.
            let _ = client.and_then(|client| self.pass_on(client));
        }
    }

    /// Connects to the server and starts to pass on what either side sends.
    fn pass_on(self: &Arc<Self>, client: TcpStream) -> io::Result<()> {
        let server = TcpStream::connect_timeout(&self.behind, PATIENCE)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let connection = self.connections.fetch_add(1, Ordering::Relaxed);
        let dialect = Dialect::of(self.protocol.is_multiplexed(), false);
        self.seen().readers.insert(connection, Reader::new(dialect, connection));
        lock(&self.ends).extend([client.try_clone()?, server.try_clone()?]);
        let (from_client, to_server) = (client.try_clone()?, server.try_clone()?);
        for (from, to, direction) in
            [(from_client, to_server, Direction::Up), (server, client, Direction::Down)]
        {
            let inner = Arc::clone(self);
            thread::Builder::new()
                .name("tap".to_owned())
                .spawn(move || inner.carry(connection, direction, from, to))?;
        }
        Ok(())
    }

    /// Carries bytes one way until there are no more. They are read by us before they go on, which takes some microseconds:
    /// what anybody in front has seen, we have seen.
    fn carry(&self, connection: u32, direction: Direction, mut from: TcpStream, mut to: TcpStream) {
        let mut space = vec![0; 64 << 10];
        while let Ok(n @ 1..) = from.read(&mut space) {
            self.read(connection, direction, &space[..n]);
            if to.write_all(&space[..n]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write); // it may have gone before
    }

    fn read(&self, connection: u32, direction: Direction, bytes: &[u8]) {
        let at = self.clock.now();
        let mut seen = self.seen();
        let Seen { recorder, readers } = &mut *seen;
        if let Some(reader) = readers.get_mut(&connection) {
            reader.feed(at, direction, bytes, &mut |told| recorder.tell(&told));
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
}
