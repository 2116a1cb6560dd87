//! One end of a connection: the handshake, both halves, the end.

use std::time::Duration;

use h2lab_base::random::Counter;
use h2lab_base::units::Time;

use super::receiver::Receiver;
use super::sender::Sender;
use super::trips::FIRST_RTO;
use super::{Config, EndFigures, Segment};

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Waits for a SYN.
    Listening,
    /// Our SYN, or SYN with ACK, is to be repeated at this time, after which the pause is doubled.
    Opening { began: Time, again_at: Time, pause: Duration },
    /// Bytes may flow.
    Open,
    /// Ended by RST, of either end.
    Reset,
}

/// One end of a TCP connection, without I/O and without a clock.
///
/// [`Socket::handle_segment`] and [`Socket::handle_timeout`] are its inputs; after each of them, and after reading and
/// writing, send what [`Socket::poll_transmit`] has until there is nothing, and arm a timer for [`Socket::poll_timeout`].
#[derive(Debug)]
pub struct Socket {
    config: Config,
    state: State,
    is_client: bool,
    /// A handshake segment is to leave.
    greet: bool,
    /// RST is to leave.
    refuse: bool,
    sender: Sender,
    receiver: Receiver,
    reads: Counter,
    segments_in: u32,
}

impl Socket {
    /// An end that dials at `now`.
    pub fn dial(config: Config, now: Time) -> Self {
        let opening = State::Opening { began: now, again_at: now + FIRST_RTO, pause: FIRST_RTO };
        Self { state: opening, is_client: true, greet: true, ..Self::listen(config) }
    }

    /// An end that waits to be dialled.
    pub fn listen(config: Config) -> Self {
        Self {
            state: State::Listening,
            is_client: false,
            greet: false,
            refuse: false,
            sender: Sender::new(config),
            receiver: Receiver::new(config),
            reads: Counter::new(config.shred.unwrap_or(0), "reads"),
            segments_in: 0,
            config,
        }
    }

    /// Whether bytes may flow.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Whether the connection was ended by RST.
    pub fn is_reset(&self) -> bool {
        self.state == State::Reset
    }

    /// Whether everything up to the peer's FIN has been read.
    pub fn is_at_end(&self) -> bool {
        self.is_open() && self.receiver.is_at_end()
    }

    /// Reads up to `space.len()` bytes; 0 if there is nothing now.
    pub fn read(&mut self, now: Time, space: &mut [u8]) -> usize {
        if !self.is_open() || self.receiver.readable() == 0 {
            return 0;
        }
        let limit = match self.config.shred {
            Some(_) if self.reads.below(4) > 0 => 1 + self.reads.below(16) as usize,
            Some(_) => 1 + self.reads.below(4096) as usize,
            None => space.len(),
        };
        let n = space.len().min(limit);
        self.receiver.read(now, &mut space[..n])
    }

    /// Takes as much of `bytes` as the send buffer has room for; 0 before the connection is open.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        if self.is_open() { self.sender.write(bytes) } else { 0 }
    }

    /// Sends FIN after all that was written.
    pub fn close(&mut self) {
        self.sender.close();
    }

    /// Ends the connection at once; what is under way is lost.
    pub fn abort(&mut self) {
        self.refuse = self.state != State::Reset;
        self.state = State::Reset;
    }

    /// A segment has arrived.
    pub fn handle_segment(&mut self, now: Time, segment: Segment) {
        if segment.rst {
            self.state = State::Reset;
            self.refuse = false;
            return;
        }
        match self.state {
            State::Reset => self.refuse = true,
            State::Listening if segment.syn => {
                self.state = State::Opening { began: now, again_at: now + FIRST_RTO, pause: FIRST_RTO };
                self.greet = true;
            }
            State::Listening => {}
            // The peer's SYN again: our SYN-ACK, or the end of the handshake, was lost.
            State::Opening { .. } if segment.syn && !self.is_client => self.greet = true,
            State::Opening { began, pause, .. } => {
                if pause == FIRST_RTO {
                    self.sender.measured(now.since(began));
                }
                self.state = State::Open;
                self.greet = self.is_client;
                self.take(now, segment);
            }
            State::Open if segment.syn => self.greet = self.is_client,
            State::Open => self.take(now, segment),
        }
    }

    fn take(&mut self, now: Time, segment: Segment) {
        self.sender.take_ack(now, &segment);
        self.segments_in += u32::from(!segment.payload.is_empty());
        self.receiver.take(now, segment);
    }

    /// A deadline of [`Socket::poll_timeout`] may have passed.
    pub fn handle_timeout(&mut self, now: Time) {
        match &mut self.state {
            State::Opening { again_at, pause, .. } if *again_at <= now => {
                *pause *= 2;
                *again_at = now + *pause;
                self.greet = true;
            }
            State::Open if self.sender.timeout_at() <= now => self.sender.handle_timeout(now),
            _ => {}
        }
    }

    /// When [`Socket::handle_timeout`] and [`Socket::poll_transmit`] must be called.
    pub fn poll_timeout(&self) -> Time {
        match self.state {
            State::Opening { again_at, .. } => again_at,
            State::Open => self.sender.timeout_at().min(self.receiver.ack_at()),
            State::Listening | State::Reset => Time::NEVER,
        }
    }

    /// The next segment to send.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Segment> {
        if std::mem::take(&mut self.refuse) {
            return Some(Segment { rst: true, ..Segment::default() });
        }
        let mut segment = match self.state {
            State::Listening | State::Reset => return None,
            State::Opening { .. } => {
                let syn = std::mem::take(&mut self.greet);
                syn.then(|| Segment { syn: true, ..Segment::default() })?
            }
            State::Open => {
                let greet = std::mem::take(&mut self.greet);
                match self.sender.poll_transmit(now) {
                    Some(segment) => segment,
                    None if greet || self.receiver.ack_at() <= now => Segment::default(),
                    None => return None,
                }
            }
        };
        self.receiver.acknowledge(&mut segment);
        Some(segment)
    }

    /// Segments in flight, how many of them are known to be lost or beyond a lost one, and bytes that were never sent.
    pub fn flight(&self) -> (u32, u32, u32) {
        self.sender.flight()
    }

    /// Bytes that were written and acknowledged, and bytes that were written, so far.
    pub fn progress(&self) -> (u64, u64) {
        self.sender.progress()
    }

    /// Whether bytes have come that wait for others before them.
    pub fn has_hole(&self) -> bool {
        self.receiver.has_hole()
    }

    /// What this end has done so far.
    pub fn figures(&self) -> EndFigures {
        EndFigures { segments_in: self.segments_in, ..self.sender.figures() }
    }
}
