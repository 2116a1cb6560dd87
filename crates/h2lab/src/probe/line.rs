//! A connection over which a probe says whatever it likes.

use std::io;

use h2lab_core::record::ConnectionRecord;
use h2lab_core::trace::Direction;
use h2lab_core::units::Time;
use h2lab_core::workload::Protocol;

use super::tape::Tape;
use super::{ProbeError, Prober};
use crate::client::connect::{Established, Step};
use crate::client::{ConnectError, Dial};
use crate::io::byte_stream::ByteStream;
use crate::io::reactor::{Completion, Reactor, Token};
use crate::io::tcp::{Read, Written};
use crate::io::transport::{Transport, TransportError};

/// The one token of a line's own reactor.
const TOKEN: Token = Token(0);
/// Bytes read at once.
const SPACE: usize = 64 * 1024;

/// What listening came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// More bytes are in [`Line::incoming`].
    Bytes,
    /// The host has finished sending.
    Eof,
    /// The connection broke.
    Broken,
    /// Nothing came in time.
    Silence,
}

/// What saying something came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// All of it was taken.
    All,
    /// The host has closed or reset the connection.
    Closed,
    /// The host takes no more: it has stopped reading.
    Full,
}

/// A connection of TCP or TLS in clear. Bytes that were read and not used yet are [`Line::incoming`].
#[derive(Debug)]
pub struct Line {
    reactor: Reactor,
    stream: ByteStream,
    /// What has been received and not taken away by whoever reads it.
    pub incoming: Vec<u8>,
    /// What crossed it.
    pub tape: Tape,
    /// Nothing is read while something is sent, as by a client that does not read. What is sent, a flood of whole frames, is
    /// counted on the tape and not told.
    pub deaf: bool,
    /// What is known of its making.
    pub record: Box<ConnectionRecord>,
    over: Option<Heard>,
    /// When something last came, or it was dialled.
    received_at: Time,
    space: Vec<u8>,
}

impl Line {
    /// Dials the host for `protocol`, one over TCP. It says nothing by itself once TLS is established.
    pub fn dial(prober: &mut Prober, protocol: Protocol) -> Result<Self, ProbeError> {
        prober.take_connection()?;
        let target = prober.target(protocol)?;
        let mut reactor = Reactor::new(prober.clock())?;
        let began = prober.now();
        let mut step = Dial::begin(&mut reactor, TOKEN, 0, &target, u32::MAX, began);
        loop {
            let dial = match step {
                Step::Pending(dial) => dial,
                Step::Failed(_, error) => return Err(error.into()),
                Step::Established(Established { transport: Transport::Stream(stream), record }) => {
                    let (tape, space) = (Tape::new(began), vec![0; SPACE]);
                    return Ok(Self {
                        reactor,
                        stream,
                        incoming: Vec::new(),
                        tape,
                        deaf: false,
                        record,
                        over: None,
                        received_at: began,
                        space,
                    });
                }
                Step::Established(_) => {
                    let error = io::Error::new(io::ErrorKind::Unsupported, "a line runs over TCP");
                    return Err(ConnectError::Io(error).into());
                }
            };
            prober.check_stop()?;
            let now = reactor.wait(dial.deadline())?;
            step = match reactor.next_completion() {
                Some(Completion::Connected { result, .. }) => dial.connected(result, &target, now),
                Some(_) => dial.proceed(now),
                None if now >= dial.deadline() => dial.expire(now),
                None => Step::Pending(dial),
            };
        }
    }

    /// The protocol that ALPN chose, if any.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.stream.alpn()
    }

    /// Our address and port.
    pub fn local_address(&self) -> io::Result<std::net::SocketAddr> {
        self.stream.stream().local_address()
    }

    /// When something last came from the host.
    pub const fn received_at(&self) -> Time {
        self.received_at
    }

    /// How the host ended it, if it has.
    pub const fn over(&self) -> Option<Heard> {
        self.over
    }

    /// Sends `bytes`, waiting for room until `until`. What comes meanwhile is kept.
    pub fn send(&mut self, prober: &mut Prober, bytes: &[u8], until: Time) -> Result<Put, ProbeError> {
        prober.take_bytes(bytes.len())?;
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(Written::Bytes(n)) => {
                    if self.deaf {
                        self.tape.count(prober.now(), n);
                    } else {
                        self.tape.record(prober.now(), Direction::Up, &rest[..n]);
                    }
                    rest = &rest[n..];
                }
                Ok(Written::WouldBlock) => {
                    // A host that waits until we have read what it said must not wait for ever.
                    if !self.deaf {
                        self.pull(prober)?;
                    }
                    if prober.now() >= until {
                        return Ok(Put::Full);
                    }
                    self.wait(prober, until)?;
                }
                Err(_) => {
                    self.pull(prober)?;
                    self.over.get_or_insert(Heard::Broken);
                    return Ok(Put::Closed);
                }
            }
        }
        while !self.flush()? {
            if prober.now() >= until {
                return Ok(Put::Full);
            }
            self.wait(prober, until)?;
        }
        Ok(Put::All)
    }

    /// Hands over what TLS holds; `true` if nothing is left, as it is of a broken connection.
    fn flush(&mut self) -> Result<bool, ProbeError> {
        match self.stream.flush() {
            Ok(done) => Ok(done),
            Err(TransportError::Io(_) | TransportError::Tls(_)) => {
                self.over.get_or_insert(Heard::Broken);
                Ok(true)
            }
            Err(error) => Err(ConnectError::from(error).into()),
        }
    }

    /// Waits for more of what the host says, until `until`. What has come already is told at once.
    pub fn listen(&mut self, prober: &Prober, until: Time) -> Result<Heard, ProbeError> {
        loop {
            let before = self.incoming.len();
            self.pull(prober)?;
            if self.incoming.len() > before {
                return Ok(Heard::Bytes);
            }
            if let Some(over) = self.over {
                return Ok(over);
            }
            if prober.now() >= until {
                return Ok(Heard::Silence);
            }
            self.wait(prober, until)?;
        }
    }

    /// Takes what the socket has.
    fn pull(&mut self, prober: &Prober) -> Result<(), ProbeError> {
        while self.over.is_none() {
            match self.stream.read(&mut self.space) {
                Ok(Read::Bytes(n)) => {
                    self.received_at = prober.now();
                    self.tape.record(self.received_at, Direction::Down, &self.space[..n]);
                    self.incoming.extend_from_slice(&self.space[..n]);
                    if self.incoming.len() > MOST_UNREAD {
                        break; // it is there when this has been used
                    }
                }
                Ok(Read::WouldBlock) => break,
                Ok(Read::Eof) => self.over = Some(Heard::Eof),
                Err(_) => self.over = Some(Heard::Broken),
            }
        }
        self.flush()?; // TLS may have something to say to it
        Ok(())
    }

    fn wait(&mut self, prober: &Prober, until: Time) -> Result<(), ProbeError> {
        prober.check_stop()?;
        self.reactor.wait(until)?;
        while self.reactor.next_completion().is_some() {}
        prober.check_stop()
    }

    /// Ends our direction: the host reads an end of stream.
    pub fn finish(&mut self) {
        // Who has gone will not miss it.
        let _ = self.stream.shutdown();
    }
}

/// Bytes that are held for whoever reads them.
const MOST_UNREAD: usize = 1 << 20;
