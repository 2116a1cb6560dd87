//! One test case: its server, and the command that is run against it.

use std::cell::Cell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::probe::client::{CaseRun, ConnectionSeen, TestCase};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::session::{TestCaseProgress, TestCaseSession};
use super::sockets;
use h2lab_net::byte_stream::ByteStream;
use h2lab_net::clock::Clock;
use h2lab_net::process::{Child, SubreaperGuard};
use h2lab_net::tcp::Listener;
use h2lab_net::tls::{ServerTls, TlsError};

/// How often to check whether the command has ended.
const CHECK_PERIOD: Duration = Duration::from_millis(10);
/// Connections of a test case whose sockets are examined.
const LOOKED_AT: usize = 4;
/// Connections of a test case that are served; a client that dials more is recognised by these.
const MOST: usize = 5_000;

/// Why no test case could be run.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The kernel refused us something.
    #[error("cannot serve the client: {0}")]
    Io(#[from] io::Error),
    /// Stopped by the user.
    #[error("interrupted")]
    Interrupted,
}

/// A server that behaves as a test case requires.
#[derive(Debug)]
pub struct ClientTestServer {
    test_case: TestCase,
    expected: usize,
    tls: Option<ServerTls>,
    clock: Clock,
    listener: Listener,
    /// Connections that are open, with their places among all.
    sessions: Vec<(usize, TestCaseSession)>,
    /// Those that have ended, which hold no descriptor any more.
    over: Vec<(usize, ConnectionSeen)>,
    /// No more connections are accepted.
    is_full: bool,
    step: Rc<Cell<TestCaseProgress>>,
}

impl ClientTestServer {
    /// Listens on loopback. `expected` is how many requests the command makes, as far as that is known.
    pub fn open(
        test_case: TestCase,
        expected: usize,
        tls: Option<ServerTls>,
        clock: Clock,
    ) -> io::Result<Self> {
        let listener = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let (sessions, over, step) = (Vec::new(), Vec::new(), Rc::default());
        Ok(Self { test_case, expected, tls, clock, listener, sessions, over, is_full: false, step })
    }

    /// Where it listens.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_address()?.port())
    }

    /// Runs the command, for `limit` at most and for `idle_timeout` after the server has become idle, and serves it.
    pub fn run_case(
        &mut self,
        command: Command,
        (idle_timeout, limit): (Duration, Duration),
        stop: &Arc<AtomicBool>,
    ) -> Result<CaseRun, ClientError> {
        let began = self.clock.now();
        // Daemons that the command leaves behind would be clients of the next test case's server, or stay for ever.
        let _subreaper = SubreaperGuard::open()?;
        let mut child = Child::spawn(command, None)?;
        let ended = loop {
            if stop.load(Ordering::Relaxed) {
                return Err(ClientError::Interrupted);
            }
            if let Some(ended) = child.wait(Duration::ZERO)? {
                break Some(ended);
            }
            let quiet = self.sessions.iter().find_map(|(_, session)| session.quiet_since());
            let quiet = quiet.or_else(|| self.over.iter().find_map(|(_, seen)| seen.quiet_since()));
            if self.clock.now()
                >= quiet.map_or(began + limit, |since| (since + idle_timeout).min(began + limit))
            {
                break None;
            }
            self.wait()?;
            self.serve(&child)?;
        };
        let took = self.clock.now().since(began);
        // What it sent before it ended is in the sockets.
        self.serve(&child)?;
        let ran_out = ended.is_none();
        let ended = match ended {
            Some(ended) => ended,
            None => child.kill()?,
        };
        Ok(CaseRun {
            test_case: self.test_case,
            began,
            exit: ended.status.code().filter(|_| !ran_out),
            ran_out,
            took,
            connections: self.connections(),
            by_line: false,
            said: child.log(),
        })
    }

    /// What was seen of all connections, in the order in which they came.
    fn connections(&mut self) -> Vec<ConnectionSeen> {
        self.over.extend(self.sessions.drain(..).map(|(n, session)| (n, session.finish())));
        self.over.sort_by_key(|(n, _)| *n);
        self.over.drain(..).map(|(_, seen)| seen).collect()
    }

    /// Waits until a socket has something, something is due, or the command may have ended.
    fn wait(&self) -> io::Result<()> {
        let next = self.sessions.iter().map(|(_, session)| session.deadline()).min().unwrap_or(Time::NEVER);
        let left = next.since(self.clock.now()).min(CHECK_PERIOD);
        let timeout =
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) };
        let mut fds = Vec::with_capacity(self.sessions.len() + 1);
        if !self.is_full {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        for (_, session) in &self.sessions {
            let room = if session.blocked { PollFlags::OUT } else { PollFlags::empty() };
            fds.push(PollFd::new(session.stream().stream(), PollFlags::IN | room));
        }
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn serve(&mut self, child: &Child) -> Result<(), ClientError> {
        while !self.is_full {
            let stream = match self.listener.accept() {
                Ok(Some(stream)) => stream,
                Ok(None) => break,
                Err(error) => {
                    // By now a stampede shows in the connections that there was room for.
                    self.is_full = is_out_of_files(&error);
                    if self.is_full {
                        break;
                    }
                    return Err(error.into());
                }
            };
            let stream = match &self.tls {
                Some(tls) => ByteStream::tls(stream, tls.session()?),
                None => ByteStream::clear(stream),
            };
            let index = self.sessions.len() + self.over.len();
            self.is_full = index + 1 >= MOST;
            let step = Rc::clone(&self.step);
            let now = self.clock.now();
            self.sessions
                .push((index, TestCaseSession::new(stream, self.test_case, index, step, self.expected, now)));
        }
        for (index, session) in &mut self.sessions {
            session.receive(self.clock.now());
            let is_due = *index < LOOKED_AT && !session.seen.requests.is_empty() && !session.was_looked_at;
            if is_due && let Ok(peer) = session.stream().stream().peer_address() {
                session.was_looked_at = true;
                session.seen.no_delay = sockets::no_delay(child.pid(), peer);
            }
        }
        let ended = self.sessions.extract_if(.., |(_, session)| !session.is_live());
        self.over.extend(ended.map(|(n, session)| (n, session.finish())));
        Ok(())
    }
}

/// Whether there is no descriptor left for a further connection, here or in the whole system.
fn is_out_of_files(error: &io::Error) -> bool {
    [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
