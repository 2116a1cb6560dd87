//! One TCP connection of a capture, from its packets to its requests.

use std::time::Duration;

use super::arrivals::Arrivals;
use super::exchanges::{End, Exchanges};
use super::half::{Half, Kind};
use super::http::Http;
use super::record::closed;
use crate::diagnose::waits::segment::{Segment, flag};
use crate::diagnose::waits::streams::dialect;
use crate::diagnose::waits::tls::{KeyLog, Opaque, Tls};
use h2lab_base::units::Time;
use h2lab_link::FlowEndpoint;
use h2lab_model::record::ConnectionRecord;
use h2lab_wire::trace::{Dialect, Direction};

/// Retransmissions of a connection whose times are kept.
const MOST_REPEATS: usize = 1 << 20;

/// Why the bytes of a connection cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Flaw {
    /// It began before the capture, so that its first bytes are unknown.
    BeganBefore,
    /// It is encrypted, and there are no secrets for it.
    NoKeys,
    /// It is encrypted, and the secrets for it do not decrypt it.
    WrongKeys,
    /// Its records do not decrypt.
    Garbled,
    /// It carries neither HTTP/1.1 nor HTTP/2.
    NotHttp,
}

/// The state of reading its bytes.
#[derive(Debug)]
enum Reading {
    /// The client has sent nothing.
    Open,
    Clear(Http),
    Tls(Box<Tls>, Http, Arrivals),
    Blind(Flaw),
}

/// A connection while its packets are processed.
#[derive(Debug)]
pub(super) struct Connection {
    pub client: FlowEndpoint,
    pub server: FlowEndpoint,
    /// Whether packets are known to be captured at the client: otherwise its distance follows from the handshake.
    pub is_at_client: bool,
    syn_at: Time,
    /// A SYN or its answer was sent again, so that it is unknown which answers which.
    is_repeated: bool,
    answer_at: Time,
    ack_at: Time,
    first_at: Time,
    last_at: Time,
    /// The interface of each direction's packets; packets at other interfaces are duplicates of these.
    interfaces: [Option<u32>; 2],
    pub up: Half,
    pub down: Half,
    reading: Reading,
    /// When the client answered the first bytes of the server: with TLS, its handshake was complete then (RFC 8446 §2).
    shaken_at: Time,
    /// See [`Read::acked_at`].
    acked_at: Time,
    /// Retransmissions: when they were sent, and whether by the server.
    pub repeats: Vec<(Time, bool)>,
    /// Who ended it, and when.
    end: Option<(Time, End)>,
}

impl Connection {
    /// The connection of a packet between these endpoints.
    pub fn new(client: FlowEndpoint, server: FlowEndpoint, now: Time) -> Self {
        Self {
            client,
            server,
            is_at_client: false,
            syn_at: Time::NEVER,
            is_repeated: false,
            answer_at: Time::NEVER,
            ack_at: Time::NEVER,
            first_at: now,
            last_at: now,
            interfaces: [None; 2],
            up: Half::default(),
            down: Half::default(),
            reading: Reading::Open,
            shaken_at: Time::NEVER,
            acked_at: Time::ZERO,
            repeats: Vec::new(),
            end: None,
        }
    }

    /// Whether a segment begins another connection between the same ends.
    pub fn is_followed_by(&self, segment: &Segment<'_>) -> bool {
        let is_used = self.up.segments + self.down.segments > 0 || self.end.is_some();
        segment.is_opening() && is_used
    }

    /// Whether the packet was captured at another interface than those before it.
    pub fn is_elsewhere(&mut self, direction: Direction, interface: u32) -> bool {
        *self.interfaces[usize::from(direction == Direction::Down)].get_or_insert(interface) != interface
    }

    /// Processes the next segment; `length` is that of its payload on the wire. `room` is how many more frames may be
    /// kept.
    pub fn segment(
        &mut self,
        now: Time,
        direction: Direction,
        segment: &Segment<'_>,
        length: u64,
        log: &KeyLog,
        room: &mut usize,
    ) {
        self.last_at = now;
        self.shake(now, direction, segment);
        let rtt = self.handshake().map_or(Duration::ZERO, |handshake| handshake.round_trip());
        let shown = self.at_client(now, direction);
        let is_from_begin = self.syn_at.happened() || self.answer_at.happened();
        if direction == Direction::Up && length > 0 && self.down.segments > 0 {
            self.shaken_at = self.shaken_at.min(shown);
        }
        let (half, other) = match direction {
            Direction::Up => (&mut self.up, &mut self.down),
            Direction::Down => (&mut self.down, &mut self.up),
        };
        other.mss = segment.mss.or(other.mss);
        let reading = &mut self.reading;
        if let Some(number) = segment.ack {
            let was_waiting = !other.is_acknowledged();
            other.acknowledge(number);
            let is_free = was_waiting && other.is_acknowledged();
            if direction == Direction::Down && is_free && !reading.has_request() {
                self.acked_at = shown;
            }
        }
        let kind = half.take(now, segment, length, rtt, &mut |place, bytes| {
            reading.feed(shown, direction, (place, bytes), is_from_begin, log, room);
        });
        if kind == Kind::Again && self.repeats.len() < MOST_REPEATS {
            let way = self.handshake().map_or(Duration::ZERO, |handshake| handshake.way_from(direction));
            self.repeats.push((now - way, direction == Direction::Down));
        }
        self.close(shown, direction, segment);
    }

    fn shake(&mut self, now: Time, direction: Direction, segment: &Segment<'_>) {
        let is_syn = segment.flags & flag::SYN != 0;
        match direction {
            Direction::Up if is_syn => {
                self.is_repeated |= self.syn_at.happened();
                self.syn_at = self.syn_at.min(now);
            }
            Direction::Down if is_syn => {
                self.is_repeated |= self.answer_at.happened();
                self.answer_at = self.answer_at.min(now);
            }
            Direction::Up if self.answer_at.happened() && !is_syn => self.ack_at = self.ack_at.min(now),
            _ => {}
        }
    }

    fn close(&mut self, shown: Time, direction: Direction, segment: &Segment<'_>) {
        let how = match direction {
            _ if segment.flags & flag::RST != 0 => End::Reset,
            _ if segment.flags & flag::FIN == 0 => return,
            Direction::Up => End::Client,
            Direction::Down => End::Server,
        };
        self.end.get_or_insert((shown, how));
        let reading = &mut self.reading;
        if let (Direction::Up, Reading::Clear(http) | Reading::Tls(_, http, _)) = (direction, reading) {
            http.exchanges.is_closed_by_client = true;
        }
    }

    /// The times of its handshake, if it is complete and nothing of it was repeated.
    pub fn handshake(&self) -> Option<Handshake> {
        let is_whole = self.ack_at.happened() && self.syn_at.happened() && self.answer_at.happened();
        (is_whole && !self.is_repeated).then(|| Handshake {
            to_server: self.answer_at.since(self.syn_at),
            // This includes the time that the client's kernel takes.
            to_client: if self.is_at_client { Duration::ZERO } else { self.ack_at.since(self.answer_at) },
        })
    }

    /// When the client sent or received what was captured at `now`.
    fn at_client(&self, now: Time, direction: Direction) -> Time {
        let way = self.handshake().map_or(Duration::ZERO, |handshake| handshake.to_client / 2);
        if direction == Direction::Up { now - way } else { now + way }
    }

    /// The result, after the last packet; `at` is when the capture ended.
    pub fn finish(mut self, at: Time) -> Finished {
        let handshake = self.handshake();
        let (closed_at, end) = self.end.unwrap_or((Time::NEVER, End::Capture));
        let dialled_at = self.at_client(self.syn_at.min(self.first_at), Direction::Up);
        let connected_at = if self.answer_at.happened() {
            self.at_client(self.answer_at, Direction::Down)
        } else {
            dialled_at
        };
        let (http, tls) = match self.reading {
            Reading::Open => (None, None),
            Reading::Blind(flaw) => return Finished::blind(self.up, self.down, handshake, Some(flaw)),
            Reading::Clear(http) => (Some(http), None),
            Reading::Tls(tls, http, _) => (Some(http), Some(tls)),
        };
        let opaque = tls.as_ref().and_then(|tls| match tls.opaque() {
            _ if tls.has_wrong_secrets() => Some(Flaw::WrongKeys),
            Some(Opaque::NoKeys) => Some(Flaw::NoKeys),
            Some(Opaque::Garbled) => Some(Flaw::Garbled),
            None => None,
        });
        let known = http.and_then(Http::settled);
        // With TLS 1.2, for which it is unknown whether a session was resumed, the handshake may take one more round
        // trip (RFC 5246 §7.3).
        let is_tls12 = tls.as_ref().is_some_and(|tls| tls.is_resumed().is_none());
        let more = handshake.filter(|_| is_tls12).map_or(Duration::ZERO, |handshake| handshake.round_trip());
        let usable_at = if tls.is_some() { self.shaken_at + more } else { connected_at };
        let Some((dialect, mut http)) = known else {
            let is_open = self.answer_at.happened() && usable_at.happened();
            let is_unused = is_open && opaque.is_none() && end != End::Server;
            let record = ConnectionRecord {
                local_port: self.client.port,
                remote_port: self.server.port,
                dialled_at,
                connected_at,
                ready_at: usable_at,
                closed_at,
                closed: closed(end),
                tls_resumed: tls.as_ref().and_then(|tls| tls.is_resumed()),
                ..ConnectionRecord::default()
            };
            let unused =
                is_unused.then(|| Box::new(Unused { server: self.server, is_tls: tls.is_some(), record }));
            return Finished { unused, ..Finished::blind(self.up, self.down, handshake, opaque) };
        };
        // The bytes that the capture lacks may include the ends of these requests.
        let is_known = !self.up.has_missing() && !self.down.has_missing();
        let ended_by = if is_known { end } else { End::Capture };
        http.exchanges.close(closed_at.min(at), ended_by, dialect == Dialect::Http1);
        if !is_known {
            http.exchanges.leave_out_unfinished();
        }
        let record = &mut http.exchanges.record;
        (record.local_port, record.remote_port) = (self.client.port, self.server.port);
        (record.dialled_at, record.connected_at, record.closed_at) = (dialled_at, connected_at, closed_at);
        // A client of HTTP/2 shows with its preface that it is ready. One of HTTP/1.1 shows nothing until its first
        // request.
        let first_at = http.ready_at.unwrap_or(Time::NEVER);
        record.ready_at = if dialect == Dialect::Http1 { usable_at.min(first_at) } else { first_at };
        record.tls_resumed = tls.as_ref().and_then(|tls| tls.is_resumed());
        Finished {
            read: Some(Read {
                server: self.server,
                dialect,
                is_tls: tls.is_some(),
                is_declined: http.is_offered && dialect == Dialect::Http1,
                acked_at: self.acked_at,
                exchanges: http.exchanges,
                repeats: std::mem::take(&mut self.repeats),
                end,
            }),
            up: self.up,
            down: self.down,
            handshake,
            flaw: opaque,
            unused: None,
        }
    }
}

/// How long the handshake took from the capture point to each end and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handshake {
    /// From SYN to SYN-ACK.
    pub to_server: Duration,
    /// From SYN-ACK to ACK.
    pub to_client: Duration,
}

impl Handshake {
    /// The path's round trip.
    pub fn round_trip(&self) -> Duration {
        self.to_server + self.to_client
    }

    /// From the sender of a direction to the capture point.
    fn way_from(&self, direction: Direction) -> Duration {
        if direction == Direction::Up { self.to_client / 2 } else { self.to_server / 2 }
    }
}

/// A connection, after the last of its packets.
#[derive(Debug)]
pub(super) struct Finished {
    /// `None` if none of its bytes could be read.
    pub read: Option<Read>,
    pub up: Half,
    pub down: Half,
    pub handshake: Option<Handshake>,
    pub flaw: Option<Flaw>,
    /// If it could have carried requests, and the client sent none.
    pub unused: Option<Box<Unused>>,
}

/// A connection that was established, and on which the client sent no byte of HTTP.
#[derive(Debug)]
pub(super) struct Unused {
    pub server: FlowEndpoint,
    pub is_tls: bool,
    pub record: ConnectionRecord,
}

/// What was read of a connection.
#[derive(Debug)]
pub(super) struct Read {
    pub server: FlowEndpoint,
    pub dialect: Dialect,
    pub is_tls: bool,
    /// The client requested HTTP/2 by an upgrade (RFC 7540 §3.2), and the server continued with HTTP/1.1.
    pub is_declined: bool,
    /// When the server had acknowledged all that the client sent before its first byte of HTTP; [`Time::ZERO`] if that was
    /// nothing.
    pub acked_at: Time,
    pub exchanges: Exchanges,
    pub repeats: Vec<(Time, bool)>,
    pub end: End,
}

impl Finished {
    const fn blind(up: Half, down: Half, handshake: Option<Handshake>, flaw: Option<Flaw>) -> Self {
        Self { read: None, up, down, handshake, flaw, unused: None }
    }
}

impl Reading {
    /// Whether a byte of HTTP of the client has been read.
    const fn has_request(&self) -> bool {
        match self {
            Self::Clear(http) | Self::Tls(_, http, _) => http.ready_at.is_some(),
            Self::Open | Self::Blind(_) => false,
        }
    }

    /// Processes the next bytes of a direction, the first of them at this place.
    fn feed(
        &mut self,
        now: Time,
        direction: Direction,
        (place, bytes): (u64, &[u8]),
        is_from_begin: bool,
        log: &KeyLog,
        room: &mut usize,
    ) {
        if matches!(self, Self::Open) {
            *self = match direction {
                Direction::Up if Tls::begins_with(bytes) => {
                    Self::Tls(Box::default(), Http::default(), Arrivals::default())
                }
                Direction::Up if dialect(bytes).is_some() || is_from_begin => Self::Clear(Http::default()),
                Direction::Down if is_from_begin => Self::Clear(Http::default()),
                _ => Self::Blind(Flaw::BeganBefore),
            };
        }
        match self {
            Self::Clear(http) => {
                if http.feed(now, direction, bytes, room).is_none() {
                    *self = Self::Blind(Flaw::NotHttp);
                }
            }
            Self::Tls(tls, http, arrivals) => {
                let is_down = direction == Direction::Down;
                if is_down {
                    arrivals.add(place + bytes.len() as u64, now);
                }
                tls.feed(direction, place, bytes, log, &mut |places, bytes| {
                    // Bytes that are not HTTP within TLS end the reading: the dialect stays unknown.
                    if !is_down {
                        let _ = http.feed(now, direction, bytes, room);
                        return;
                    }
                    http.exchanges.record.tls_records.add(places.end - places.start);
                    arrivals.pieces(places.start, bytes, |at, piece| {
                        http.exchanges.came_at = at;
                        let _ = http.feed(now, direction, piece, room);
                    });
                });
            }
            Self::Open | Self::Blind(_) => {}
        }
    }
}
