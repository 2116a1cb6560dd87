//! The server of one act, and the command that it is played to.

use std::cell::Cell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use h2lab_core::probe::client::{Act, Performance};
use h2lab_core::units::Time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::ClientError;
use super::session::{Cue, Session};
use super::sockets;
use crate::io::byte_stream::ByteStream;
use crate::io::clock::Clock;
use crate::io::process::Child;
use crate::io::tcp::Listener;
use crate::io::tls::ServerTls;

/// How often is looked whether the command has ended.
const GLANCE: Duration = Duration::from_millis(10);
/// Connections of an act whose sockets are looked at.
const LOOKED_AT: usize = 4;
/// Connections of an act that are served; a client that dials more is told by these.
const MOST: usize = 5_000;

/// A server that behaves as an act has it.
#[derive(Debug)]
pub struct Theatre {
    act: Act,
    expected: usize,
    tls: Option<ServerTls>,
    clock: Clock,
    listener: Listener,
    sessions: Vec<Session>,
    cue: Rc<Cell<Cue>>,
}

impl Theatre {
    /// Listens on loopback. `expected` is how many requests the command makes, as far as that is known.
    pub fn open(act: Act, expected: usize, tls: Option<ServerTls>, clock: Clock) -> io::Result<Self> {
        let listener = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        Ok(Self { act, expected, tls, clock, listener, sessions: Vec::new(), cue: Rc::default() })
    }

    /// Where it listens.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_address()?.port())
    }

    /// Runs the command, for `limit` at most, and serves it.
    pub fn perform(
        &mut self,
        command: Command,
        limit: Duration,
        stop: &Arc<AtomicBool>,
    ) -> Result<Performance, ClientError> {
        let began = self.clock.now();
        let mut child = Child::spawn(command, None)?;
        let ended = loop {
            if stop.load(Ordering::Relaxed) {
                return Err(ClientError::Interrupted);
            }
            if let Some(ended) = child.wait(Duration::ZERO)? {
                break Some(ended);
            }
            if self.clock.now() >= began + limit {
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
        Ok(Performance {
            act: self.act,
            began,
            exit: ended.status.code().filter(|_| !ran_out),
            ran_out,
            took,
            connections: self.sessions.drain(..).map(Session::finish).collect(),
            said: child.log(),
        })
    }

    /// Waits until a socket has something, something is due, or the command may have ended.
    fn wait(&self) -> io::Result<()> {
        let next = self.sessions.iter().map(Session::deadline).min().unwrap_or(Time::NEVER);
        let left = next.since(self.clock.now()).min(GLANCE);
        let timeout =
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) };
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        for session in self.sessions.iter().filter(|session| session.is_live()) {
            let room = if session.blocked { PollFlags::OUT } else { PollFlags::empty() };
            fds.push(PollFd::new(session.stream().stream(), PollFlags::IN | room));
        }
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn serve(&mut self, child: &Child) -> Result<(), ClientError> {
        while let Some(stream) = self.listener.accept()? {
            if self.sessions.len() >= MOST {
                break;
            }
            let stream = match &self.tls {
                Some(tls) => ByteStream::tls(stream, tls.session()?),
                None => ByteStream::clear(stream),
            };
            let index = self.sessions.len();
            let cue = Rc::clone(&self.cue);
            let now = self.clock.now();
            self.sessions.push(Session::new(stream, self.act, index, cue, self.expected, now));
        }
        for (index, session) in self.sessions.iter_mut().enumerate() {
            if !session.is_live() {
                continue;
            }
            session.receive(self.clock.now());
            let is_due = index < LOOKED_AT && !session.seen.requests.is_empty() && !session.was_looked_at;
            if is_due && let Ok(peer) = session.stream().stream().peer_address() {
                session.was_looked_at = true;
                session.seen.no_delay = sockets::no_delay(child.pid(), peer);
            }
        }
        Ok(())
    }
}
