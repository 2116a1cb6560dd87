//! Where the backend that the tool brings listens, behind the proxy.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use h2lab_model::probe::smuggling::backend::Backend;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use h2lab_net::clock::Clock;
use h2lab_net::lock::lock;

/// Connections that are recorded; a probe makes some hundred at most, and a proxy's health checks come every second or so.
const MOST: usize = 10_000;
/// How long bytes that follow the last answer are recorded.
const LINGER: Duration = Duration::from_millis(500);
/// Reads of a connection in a row: one that never pauses must not keep the others.
const READS: usize = 16;
/// After how long we check again whether there is a descriptor for a further connection.
const LATER: Duration = Duration::from_millis(100);
/// How long a connection may be silent.
const IDLE: Duration = Duration::from_secs(30);

/// A backend that listens, on a thread of its own. Dropping it ends all of its connections.
#[derive(Debug)]
pub struct BackendListener {
    address: SocketAddr,
    records: Arc<Records>,
    /// Its end is what stops the thread.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Records {
    connections: Mutex<Vec<Backend>>,
    changed: Condvar,
}

impl Records {
    fn lock(&self) -> MutexGuard<'_, Vec<Backend>> {
        lock(&self.connections)
    }
}

impl BackendListener {
    /// Listens on `address`; port 0 picks a free one.
    pub fn open(address: SocketAddr, clock: Clock) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let records = Arc::<Records>::default();
        let (ended, stop) = io::pipe()?;
        let service =
            Service { listener, clock, records: Arc::clone(&records), open: Vec::new(), is_full: false };
        let thread =
            std::thread::Builder::new().name("backend".to_owned()).spawn(move || service.run(&ended))?;
        Ok(Self { address, records, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Calls `look` with the connections so far, and again whenever something has come, until it finds what it looks for, or
    /// `deadline` has passed.
    pub fn wait<T>(&self, deadline: Instant, mut look: impl FnMut(&[Backend]) -> Option<T>) -> Option<T> {
        let mut connections = self.records.lock();
        loop {
            if let Some(found) = look(&connections) {
                return Some(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            connections = self
                .records
                .changed
                .wait_timeout(connections, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(guard, _)| guard);
        }
    }
}

impl Drop for BackendListener {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed on stderr.
            let _ = thread.join();
        }
    }
}

/// A connection from the proxy.
#[derive(Debug)]
struct Open {
    stream: TcpStream,
    /// Among the records.
    index: usize,
    /// When it is closed.
    until: Instant,
    is_over: bool,
}

#[derive(Debug)]
struct Service {
    listener: TcpListener,
    clock: Clock,
    records: Arc<Records>,
    open: Vec<Open>,
    /// There is no descriptor left: connections wait until there may be.
    is_full: bool,
}

impl Service {
    fn run(mut self, ended: &PipeReader) {
        while self.wait(ended) {
            self.accept();
            let (records, clock) = (&self.records, self.clock);
            self.open.retain_mut(|open| open.serve(records, clock));
        }
    }

    fn accept(&mut self) {
        self.is_full = false;
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => self.greet(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if is_of_a_peer(&error) => {}
                Err(_) => {
                    self.is_full = true;
                    return;
                }
            }
        }
    }

    /// Waits until something happens; `false` when it is to end.
    fn wait(&self, ended: &PipeReader) -> bool {
        let later = self.is_full.then(|| Instant::now() + LATER);
        let next = self.open.iter().map(|open| open.until).chain(later).min();
        let timeout = next.map(|next| {
            let left = next.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) }
        });
        let mut fds = vec![PollFd::new(ended, PollFlags::IN)];
        if !self.is_full {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        fds.extend(self.open.iter().map(|open| PollFd::new(&open.stream, PollFlags::IN)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => fds[0].revents().is_empty(),
            Err(error) => error == rustix::io::Errno::INTR,
        }
    }

    fn greet(&mut self, stream: TcpStream) {
        let mut connections = self.records.lock();
        if connections.len() >= MOST || stream.set_nonblocking(true).is_err() {
            return;
        }
        // It would only be slower without.
        let _ = stream.set_nodelay(true);
        connections.push(Backend::default());
        let index = connections.len() - 1;
        self.open.push(Open { stream, index, until: Instant::now() + IDLE, is_over: false });
    }
}

/// Whether `accept` failed only because a connection has already gone.
fn is_of_a_peer(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted)
}

impl Open {
    /// Takes what has come and answers it; `false` once the connection is to be closed.
    fn serve(&mut self, records: &Records, clock: Clock) -> bool {
        let mut space = [0; 16 * 1024];
        for _ in 0..READS {
            let n = match self.stream.read(&mut space) {
                Ok(0) => return false,
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return false,
            };
            let (output, is_over) = {
                let mut connections = records.lock();
                let backend = &mut connections[self.index];
                backend.receive(clock.now(), &space[..n]);
                (backend.transmit(clock.now()), backend.is_over())
            };
            records.changed.notify_all();
            // Answers are small; a peer that has no room for them has gone.
            if self.stream.write_all(&output).is_err() {
                return false;
            }
            self.note(is_over);
        }
        Instant::now() < self.until
    }

    fn note(&mut self, is_over: bool) {
        if !is_over {
            self.until = Instant::now() + IDLE;
        } else if !std::mem::replace(&mut self.is_over, true) {
            self.until = Instant::now() + LINGER;
            // What still comes is recorded, and not answered.
            let _ = self.stream.shutdown(Shutdown::Write);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn open() -> BackendListener {
        BackendListener::open((Ipv4Addr::LOCALHOST, 0).into(), Clock::start()).unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn what_comes_is_recorded_and_answered_and_the_connection_ends() {
        let backend_listener = open();
        let mut stream = TcpStream::connect(backend_listener.address()).unwrap();
        stream.write_all(b"GET /a HTTP/1.1\r\nx-h2lab-attempt: 7-lax\r\n\r\nrest").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\nx-h2lab-attempt: 7-lax\r\n"), "{answer}");
        let rest = backend_listener.wait(soon(), |backends| {
            let rest = backends[0].backend_request().rest();
            (!rest.is_empty()).then(|| rest.to_vec())
        });
        assert_eq!(rest.as_deref(), Some(&b"rest"[..]));
    }

    #[test]
    fn it_ends_with_its_value_though_a_connection_is_open() {
        let backend_listener = open();
        let mut stream = TcpStream::connect(backend_listener.address()).unwrap();
        stream.write_all(b"GET /a").unwrap();
        backend_listener.wait(soon(), |backends| (!backends.is_empty()).then_some(())).expect("it is there");
        drop(backend_listener);
        // It is a reset if what arrived had not been read.
        let is_reset = |error: io::Error| error.kind() == io::ErrorKind::ConnectionReset;
        assert!(stream.read(&mut [0; 8]).map_or_else(is_reset, |n| n == 0));
    }
}
