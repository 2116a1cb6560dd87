//! A connection over which a probe sends arbitrary bytes.

use h2lab_base::units::Time;
use h2lab_model::workload::Protocol;
use h2lab_wire::trace::Direction;

use super::dial::dial;
use super::prober::{Prober, Result};
use super::transcript::Transcript;
use crate::client::ConnectError;
use crate::client::connect::Established;
use h2lab_net::byte_stream::ByteStream;
use h2lab_net::reactor::Reactor;
use h2lab_net::tcp::{Read, Written};
use h2lab_net::transport::{Transport, TransportError};

/// Bytes read at once.
const SPACE: usize = 64 * 1024;
/// Bytes that are read before the reader gets its turn.
const ENOUGH: usize = 1 << 20;
/// Bytes that are held for the reader: the longest possible frame (RFC 9113 §4.2), and what was read with it.
const MOST_UNREAD: usize = (1 << 24) + SPACE;

/// The result of listening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOutcome {
    /// More bytes are in [`RawConnection::incoming`].
    Bytes,
    /// The host has finished sending.
    Eof,
    /// The connection broke.
    Broken,
    /// The time is over. What arrived at its end is in [`RawConnection::incoming`].
    Silence,
}

/// The result of sending something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// All of it was taken.
    All,
    /// The host has closed or reset the connection.
    Closed,
    /// The host takes no more: it has stopped reading.
    Full,
}

/// The receive buffer of a client that reads nothing, in bytes.
const UNREAD_BUFFER: u32 = 64 << 10;

/// A connection of TCP or TLS in clear. Bytes that were read and not used yet are [`RawConnection::incoming`].
#[derive(Debug)]
pub struct RawConnection {
    reactor: Reactor,
    stream: ByteStream,
    /// What has been received and not taken by the reader.
    pub incoming: Vec<u8>,
    /// What crossed it.
    pub transcript: Transcript,
    /// Nothing is read while something is sent, as by a client that does not read. What is sent is then a flood of
    /// whole frames: it is counted in the transcript, not written out.
    not_reading: bool,
    /// How the host ended it, if it has.
    pub over: Option<ReadOutcome>,
    /// When something last came, or it was dialled.
    pub received_at: Time,
    space: Vec<u8>,
}

impl RawConnection {
    /// Dials the host for `protocol`, which must use TCP. Nothing is sent by itself once TLS is established.
    pub fn dial(prober: &mut Prober, protocol: Protocol) -> Result<Self> {
        let target = prober.target(protocol)?;
        let began = prober.now();
        let (reactor, established) = dial(prober, &target)?;
        let Established { transport: Transport::Stream(stream), .. } = established else {
            let error = std::io::Error::new(std::io::ErrorKind::Unsupported, "a line runs over TCP");
            return Err(ConnectError::Io(error).into());
        };
        Ok(Self {
            reactor,
            stream,
            incoming: Vec::new(),
            transcript: Transcript::new(began, prober.host.hidden.clone()),
            not_reading: false,
            over: None,
            received_at: began,
            space: vec![0; SPACE],
        })
    }

    /// From now on reads nothing while it sends, or reads again. What the host answers meanwhile stays in its own buffers: ours would
    /// otherwise grow, up to `tcp_rmem`, and hold 25 MB of answers for which the host then needs no bound.
    pub fn set_not_reading(&mut self, not_reading: bool) {
        self.not_reading = not_reading;
        if not_reading {
            self.stream.stream().bound_receive_buffer(UNREAD_BUFFER);
        }
    }

    /// The protocol that ALPN chose, if any.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.stream.alpn()
    }

    /// Sends `bytes`, waiting for room until `until`. What comes meanwhile is kept.
    pub fn send(&mut self, bytes: &[u8], until: Time, prober: &mut Prober) -> Result<Put> {
        prober.take_bytes(bytes.len())?;
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(Written::Bytes(n)) => {
                    if self.not_reading {
                        self.transcript.count(prober.now(), n);
                    } else {
                        self.transcript.record(prober.now(), Direction::Up, &rest[..n]);
                    }
                    rest = &rest[n..];
                }
                Ok(Written::WouldBlock) => {
                    // A host that waits until we have read its output must not wait for ever.
                    if !self.not_reading {
                        self.pull(prober)?;
                    }
                    if prober.is_over(until) {
                        return Ok(Put::Full);
                    }
                    self.wait(prober, until)?;
                }
                Err(_) => {
                    self.pull(prober)?;
                    self.over.get_or_insert(ReadOutcome::Broken);
                    return Ok(Put::Closed);
                }
            }
        }
        while !self.flush()? {
            if prober.is_over(until) {
                return Ok(Put::Full);
            }
            self.wait(prober, until)?;
        }
        Ok(Put::All)
    }

    /// Hands over what TLS holds; `true` if nothing is left, as it is of a broken connection.
    fn flush(&mut self) -> Result<bool> {
        match self.stream.flush() {
            Ok(done) => Ok(done),
            Err(TransportError::Io(_) | TransportError::Tls(_)) => {
                self.over.get_or_insert(ReadOutcome::Broken);
                Ok(true)
            }
            Err(error) => Err(ConnectError::from(error).into()),
        }
    }

    /// Waits until `until` for more bytes from the host. Bytes that have arrived already are reported at once; once
    /// `until` is over, they are taken and reported as [`ReadOutcome::Silence`], so that a host that never stops is not
    /// read for ever.
    pub fn listen(&mut self, until: Time, prober: &mut Prober) -> Result<ReadOutcome> {
        prober.check_stop()?;
        let before = self.incoming.len();
        loop {
            let is_late = prober.is_over(until);
            self.pull(prober)?;
            if self.incoming.len() > before {
                return Ok(if is_late { ReadOutcome::Silence } else { ReadOutcome::Bytes });
            }
            if let Some(over) = self.over {
                return Ok(over);
            }
            if is_late || before >= MOST_UNREAD {
                return Ok(ReadOutcome::Silence);
            }
            self.wait(prober, until)?;
        }
    }

    /// Takes what the socket has, as far as there is room and the budget allows it.
    fn pull(&mut self, prober: &mut Prober) -> Result<()> {
        let enough = self.incoming.len() + ENOUGH;
        while self.over.is_none() && self.incoming.len() < enough.min(MOST_UNREAD) {
            let room = prober.may_receive(SPACE)?;
            match self.stream.read(&mut self.space[..room]) {
                Ok(Read::Bytes(n)) => {
                    prober.received(n);
                    self.received_at = prober.now();
                    self.transcript.record(self.received_at, Direction::Down, &self.space[..n]);
                    self.incoming.extend_from_slice(&self.space[..n]);
                }
                Ok(Read::WouldBlock) => break,
                Ok(Read::Eof | Read::Truncated) => self.over = Some(ReadOutcome::Eof),
                Err(_) => self.over = Some(ReadOutcome::Broken),
            }
        }
        self.flush()?; // TLS may have to answer
        Ok(())
    }

    fn wait(&mut self, prober: &Prober, until: Time) -> Result<()> {
        prober.check_stop()?;
        self.reactor.wait(prober.next_check(until)?)?;
        while self.reactor.next_completion().is_some() {}
        prober.check_stop()
    }

    /// Ends our direction: the host reads an end of stream.
    pub fn finish(&mut self) {
        // A peer that has gone does not need it.
        let _ = self.stream.shutdown();
    }
}
