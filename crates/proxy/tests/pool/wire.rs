//! A connection of TCP, and messages on it.

use std::collections::VecDeque;

use h2lab_base::units::Time;
use h2lab_link::tcp::{Config, Congestion, Socket};
use h2lab_proxy::pool::path::PathReading;
use h2lab_proxy::pool::probe::Probe;

/// Numbers of messages that belong to no request.
pub const GOAWAY: u32 = u32::MAX - 2;
pub const PONG: u32 = u32::MAX - 1;
pub const PING: u32 = u32::MAX;
/// Bytes of a request of 1 KiB in HTTP/2, of its response, and of other frames.
pub const REQUEST: usize = 1_200;
pub const RESPONSE: usize = 1_100;
pub const SMALL: usize = 17;
/// Number, length and value, four bytes each; filler follows.
const HEAD: usize = 12;

/// One end of a connection.
pub struct End {
    pub socket: Socket,
    received: Vec<u8>,
    unsent: VecDeque<u8>,
    /// Bytes that came in order.
    pub came: u64,
    pub timer: Time,
    pub probe: Probe,
    /// When its event is due.
    pub probe_at: Time,
    /// PINGs that it sent since a message came, and those without an answer.
    pub pings: u32,
    pub unanswered: u32,
}

impl End {
    fn new(socket: Socket) -> Self {
        Self {
            socket,
            received: Vec::new(),
            unsent: VecDeque::new(),
            came: 0,
            timer: Time::NEVER,
            probe: Probe::default(),
            probe_at: Time::NEVER,
            pings: 0,
            unanswered: 0,
        }
    }

    /// Writes a message, as far as the socket takes it.
    pub fn write(&mut self, number: u32, value: u32, length: usize) {
        let mut message = [0; REQUEST];
        for (place, word) in message.chunks_exact_mut(4).zip([number, length as u32, value]) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        let message = &message[..length];
        let taken = if self.unsent.is_empty() { self.socket.write(message) } else { 0 };
        self.unsent.extend(&message[taken..]);
    }

    /// Hands what is left to the socket.
    pub fn flush(&mut self) {
        while !self.unsent.is_empty() {
            let n = self.socket.write(self.unsent.as_slices().0);
            self.unsent.drain(..n);
            if n == 0 {
                return;
            }
        }
    }

    pub fn unsent(&self) -> u32 {
        self.unsent.len() as u32
    }

    /// Bytes that the peer has acknowledged, and those that were written.
    pub fn progress(&self) -> (u64, u64) {
        let (acknowledged, written) = self.socket.progress();
        (acknowledged, written + self.unsent.len() as u64)
    }

    /// Numbers and values of the messages that have come whole.
    pub fn messages(&mut self, now: Time, space: &mut [u8]) -> Vec<(u32, u32)> {
        loop {
            let n = self.socket.read(now, space);
            self.received.extend_from_slice(&space[..n]);
            self.came += n as u64;
            if n == 0 {
                break;
            }
        }
        let (mut messages, mut taken) = (Vec::new(), 0);
        while let Some(head) = self.received.get(taken..taken + HEAD) {
            let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four"));
            if self.received.len() < taken + word(4) as usize {
                break;
            }
            messages.push((word(0), word(8)));
            taken += word(4) as usize;
        }
        self.received.drain(..taken);
        messages
    }
}

/// A connection: the client's end and the server's.
pub struct Connection {
    pub instance: usize,
    /// Its number among those of its instance.
    pub number: u32,
    pub ends: [End; 2],
    /// The client has found it established.
    pub is_open: bool,
    /// The client sends no more requests on it.
    pub is_ending: bool,
    /// Nothing happens on it any more.
    pub is_gone: bool,
    /// Requests without an answer, and requests so far.
    pub open: u32,
    pub requests: u32,
    /// Requests that have reached the server, and the last one that it answers, once it has said so.
    pub arrived: u32,
    pub last: Option<u32>,
    /// At the last look, and the last reading.
    pub before: PathReading,
    pub path: PathReading,
    /// Requests that were placed since.
    pub added: u32,
}

impl Connection {
    pub fn new(instance: usize, number: u32, now: Time) -> Self {
        let config = Config { congestion: Congestion::Cubic, ..Config::default() };
        Self {
            instance,
            number,
            ends: [End::new(Socket::dial(config, now)), End::new(Socket::listen(config))],
            is_open: false,
            is_ending: false,
            is_gone: false,
            open: 0,
            requests: 0,
            arrived: 0,
            last: None,
            before: PathReading::default(),
            path: PathReading::default(),
            added: 0,
        }
    }

    /// Reads its path again.
    pub fn read_path(&mut self) {
        let end = &self.ends[0];
        let figures = end.socket.figures();
        let (in_flight, known, unsent) = end.socket.flight();
        self.path = PathReading {
            rtt: figures.rtt,
            min_rtt: figures.min_rtt,
            window: figures.cwnd,
            in_flight,
            unsent: unsent + end.unsent(),
            is_repairing: known > 0 || end.socket.has_hole(),
            sent: figures.segments_out.into(),
            lost: figures.retransmits.into(),
            received: figures.segments_in.into(),
            requests: self.requests.into(),
            bytes_sent: end.socket.progress().0,
            bytes_received: end.came,
            is_by_stream: false,
        };
        self.added = 0;
    }
}
