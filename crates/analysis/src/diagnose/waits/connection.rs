//! One TCP connection: from its packets to the history of its bytes, and their HTTP frames.

use super::assembly::Assembly;
use super::flow::{Flow, History, Numbers, Transmission, Transmissions};
use super::segment::{Segment, flag};
use super::sending::{Ack, Before, Send, Sending, Timers};
use super::streams::{Exchange, Frames, Placed, Protocol, Streams};
use super::tls::{KeyLog, Opaque, Tls};
use h2lab_base::units::Time;
use h2lab_model::record::PacketRecord;
use h2lab_wire::trace::{Direction, FrameKind};

/// The most bytes of a direction held while earlier ones are missing. Packets are recorded as their sender sent them,
/// and it sends new bytes in order, so that bytes are held only if a packet is missing from the capture.
const HELD: usize = 1 << 20;

/// A connection while its packets are processed.
#[derive(Debug)]
pub(super) struct Connection {
    /// The client's port and the server's.
    ports: (u16, u16),
    /// When its first packet entered.
    begins_at: Time,
    /// When the first packet that ends it entered the link, from either side.
    ends_at: Time,
    opening: Transmissions,
    answer: Transmissions,
    up: Half,
    down: Half,
    reading: Reading,
}

/// One direction.
#[derive(Debug, Default)]
struct Half {
    numbers: Option<Numbers>,
    flow: Flow,
    assembly: Assembly<HELD>,
    /// The largest segment that its receiver accepts; `None` if unknown.
    mss: Option<u16>,
    sends: Vec<Send>,
    /// Acknowledgements of the bytes of this direction.
    acks: Vec<Ack>,
}

/// The state of reading its bytes.
#[derive(Debug)]
enum Reading {
    /// No byte has arrived.
    Open,
    Clear(Streams),
    Tls(Box<Tls>, Streams),
}

impl Connection {
    /// The connection to which this packet, the first one, belongs.
    pub fn new(record: &PacketRecord) -> Self {
        Self {
            ports: (record.client_port, record.server_port),
            begins_at: record.at,
            ends_at: Time::NEVER,
            opening: Transmissions::default(),
            answer: Transmissions::default(),
            up: Half::default(),
            down: Half::default(),
            reading: Reading::Open,
        }
    }

    /// Whether a packet with this segment begins another connection between the same ports.
    pub fn is_followed_by(&self, segment: &Segment<'_>) -> bool {
        segment.is_opening() && !self.up.numbers.is_some_and(|numbers| numbers.has_syn(segment.seq))
    }

    /// Processes the next packet; `segment` is `None` if its bytes were not kept.
    pub fn packet(&mut self, record: &PacketRecord, segment: Option<&Segment<'_>>, log: &KeyLog) {
        let sent = Transmission::of(record);
        let is_up = record.direction == Direction::Up;
        if let Some(segment) = segment {
            if segment.flags & flag::SYN != 0 {
                if is_up { &mut self.opening } else { &mut self.answer }.push(sent);
            }
            if segment.flags & (flag::FIN | flag::RST) != 0 {
                self.ends_at = self.ends_at.min(record.at);
            }
            let other = if is_up { &mut self.down } else { &mut self.up };
            other.mss = segment.mss.or(other.mss);
            other.acknowledge(segment, sent.out_at);
        }
        let half = if is_up { &mut self.up } else { &mut self.down };
        // A connection cannot be read without its first bytes.
        let is_from_begin = !self.opening.all().is_empty();
        let reading = &mut self.reading;
        half.take(record, segment, sent, &mut |start, bytes| {
            if is_from_begin {
                reading.feed(record.direction, start, bytes, log);
            }
        });
    }

    /// The result, after the last of its packets.
    pub fn finish(self, timers: Timers) -> Traced {
        let is_from_begin = !self.opening.all().is_empty();
        let is_broken =
            [&self.up, &self.down].iter().any(|half| half.assembly.is_broken() || half.assembly.held() > 0);
        let (streams, reading_flaw) = self.reading.finish();
        let flaw = if is_from_begin {
            reading_flaw.or_else(|| is_broken.then_some(Flaw::BytesMissing))
        } else {
            Some(Flaw::BeganMidFlow)
        };
        let half_connection = |half: Half, direction| {
            let sending = Sending::follow(direction, &half.sends, half.acks, timers);
            HalfConnection { direction, history: half.flow.finish(), sending }
        };
        Traced {
            ports: self.ports,
            begins_at: self.begins_at,
            ends_at: self.ends_at,
            opening: self.opening,
            answer: self.answer,
            up: half_connection(self.up, Direction::Up),
            down: half_connection(self.down, Direction::Down),
            busy: Busy::default(),
            streams,
            flaw,
        }
        .with_busy()
    }
}

impl Half {
    /// An acknowledgement of bytes of this direction, which its sender receives at `at`.
    fn acknowledge(&mut self, segment: &Segment<'_>, at: Time) {
        let (Some(numbers), true) = (&self.numbers, at.happened()) else { return };
        let Some(end) = segment.ack.and_then(|ack| numbers.place(ack)) else { return };
        let block = |(left, right): &(u32, u32)| Some(numbers.place(*left)?..numbers.place(*right)?);
        let sacks = segment.sacks().iter().filter_map(block).collect();
        self.acks.push(Ack { at, end, sacks });
    }

    fn take(
        &mut self,
        record: &PacketRecord,
        segment: Option<&Segment<'_>>,
        sent: Transmission,
        sink: &mut impl FnMut(u64, &[u8]),
    ) {
        let is_syn = segment.is_some_and(|segment| segment.flags & flag::SYN != 0);
        let numbers = self.numbers.get_or_insert_with(|| {
            if is_syn { Numbers::behind(record.seq) } else { Numbers::from_first(record.seq) }
        });
        if record.payload == 0 || is_syn {
            return;
        }
        let Some(start) = numbers.place(record.seq) else { return };
        let end = start + u64::from(record.payload);
        let before = self.flow.last_sent(start..end).map(|last| Before { at: last.at, start });
        numbers.advance(end);
        self.flow.add(start..end, sent);
        // A copy is made by the link, not by the sender.
        if !record.marks.is_copy {
            let is_full = segment.zip(self.mss).is_some_and(|(segment, most)| segment.is_full(most));
            self.sends.push(Send { bytes: start..end, sent, before, is_full });
        }
        match segment.map(|segment| segment.payload) {
            Some(payload) if payload.len() == record.payload as usize => {
                self.assembly.add(start, payload, sink);
            }
            _ => self.assembly.lose(),
        }
    }
}

impl Reading {
    fn feed(&mut self, direction: Direction, start: u64, bytes: &[u8], log: &KeyLog) {
        if matches!(self, Self::Open) {
            *self = if direction == Direction::Up && Tls::begins_with(bytes) {
                Self::Tls(Box::default(), Streams::new(true))
            } else {
                Self::Clear(Streams::new(false))
            };
        }
        match self {
            Self::Open => {}
            Self::Clear(streams) => streams.feed(direction, start..start + bytes.len() as u64, bytes),
            Self::Tls(tls, streams) => tls.feed(direction, start, bytes, log, &mut |places, bytes| {
                streams.feed(direction, places, bytes);
            }),
        }
    }

    fn finish(self) -> (Streams, Option<Flaw>) {
        let (streams, opaque) = match self {
            Self::Open => return (Streams::default(), None),
            Self::Clear(streams) => (streams, None),
            Self::Tls(tls, streams) => (streams, tls.opaque()),
        };
        let flaw = match opaque {
            Some(Opaque::NoKeys) => Some(Flaw::NoKeys),
            Some(Opaque::Garbled) => Some(Flaw::BytesMissing),
            None => (streams.protocol == Protocol::Other).then_some(Flaw::NotHttp),
        };
        (streams, flaw)
    }
}

/// Why a connection could not be read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Flaw {
    NoKeys,
    BeganMidFlow,
    BytesMissing,
    NotHttp,
}

/// A completely analysed connection.
#[derive(Debug)]
pub(super) struct Traced {
    /// The client's port and the server's.
    pub ports: (u16, u16),
    /// When its first packet entered the link.
    pub begins_at: Time,
    /// When the first packet that ends it entered the link, from either side; [`Time::NEVER`] if none did.
    pub ends_at: Time,
    /// Its SYNs.
    pub opening: Transmissions,
    /// The SYN-ACKs.
    pub answer: Transmissions,
    /// What the client sent.
    pub up: HalfConnection,
    /// What the server sent.
    pub down: HalfConnection,
    /// Its HTTP streams.
    pub streams: Streams,
    /// Why not all of its streams are known.
    pub flaw: Option<Flaw>,
    busy: Busy,
}

/// When streams opened and closed, as the client saw it.
#[derive(Debug, Default)]
struct Busy {
    /// In order.
    opened: Vec<Time>,
    /// In order.
    closed: Vec<Time>,
}

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct HalfConnection {
    /// Which.
    pub direction: Direction,
    /// The history of its bytes.
    pub history: History,
    /// How its sender sent.
    pub sending: Sending,
}

impl HalfConnection {
    /// When a byte entered the link for the first time.
    pub fn first_sent(&self, place: u64) -> Time {
        self.history
            .of(place..place + 1)
            .first()
            .map_or(Time::NEVER, |byte_range| byte_range.sent.first_sent())
    }
}

impl Traced {
    fn with_busy(mut self) -> Self {
        let mut busy = Busy::default();
        for (_, exchange) in self.streams.exchanges() {
            let Some(first) = self.frames_of(exchange, Direction::Up).next() else { continue };
            busy.opened.push(self.up.first_sent(first.bytes.start));
            busy.closed.push(self.closed_at(exchange));
        }
        busy.opened.sort_unstable();
        busy.closed.sort_unstable();
        self.busy = busy;
        self
    }

    /// When a stream closed, as the client saw it: with the first RST_STREAM that it sent or read, otherwise with the
    /// end of the response. Parts of the response after the client's RST_STREAM were already in flight.
    fn closed_at(&self, exchange: &Exchange) -> Time {
        let frame = |direction| self.frames(direction).all().get(exchange.reset(direction)? as usize);
        let sent = frame(Direction::Up).map(|frame| self.up.first_sent(frame.bytes.start));
        let read = frame(Direction::Down).map(|frame| self.down.history.readable(frame.bytes.end));
        let last = self.frames_of(exchange, Direction::Down).last();
        let ended = || last.map_or(Time::NEVER, |frame| self.down.history.readable(frame.bytes.end));
        sent.into_iter().chain(read).min().unwrap_or_else(ended)
    }

    /// When the client had received the server's first GOAWAY, after which it may open no streams (RFC 9113 §6.8);
    /// [`Time::NEVER`] if none arrived.
    pub fn leaves_at(&self) -> Time {
        let first = self.frames(Direction::Down).all().iter().find(|frame| frame.kind == FrameKind::GOAWAY);
        first.map_or(Time::NEVER, |frame| self.down.history.readable(frame.bytes.end))
    }

    /// How many streams the client had open at `at`.
    pub fn open_at(&self, at: Time) -> usize {
        let before = |times: &[Time]| times.partition_point(|time| *time <= at);
        before(&self.busy.opened).saturating_sub(before(&self.busy.closed))
    }

    /// How many streams the client may have open, and since when it has this limit: the server may change it at any
    /// time.
    fn stream_limits(&self) -> Vec<(Time, usize)> {
        if !self.streams.is_http2() {
            return vec![(Time::ZERO, 1)];
        }
        let said = self.frames(Direction::Down).stream_limits();
        let known = said.map(|(place, limit)| (self.down.history.readable(place), limit as usize));
        known.filter(|(at, _)| at.happened()).collect()
    }

    /// The limit of open streams that the client had received by `at`; `None` if the server had not announced one, and
    /// in HTTP/1.1.
    pub fn stream_limit_at(&self, at: Time) -> Option<usize> {
        let limits = if self.streams.is_http2() { self.stream_limits() } else { Vec::new() };
        limits.into_iter().rev().find(|(since, _)| *since <= at).map(|(_, limit)| limit)
    }

    /// The times in which all its stream slots were in use, in order: HTTP/1.1 has one slot.
    pub fn full(&self) -> Vec<(Time, Time)> {
        let Busy { opened, closed } = &self.busy;
        let limits = self.stream_limits();
        let mut full = Vec::new();
        for (k, &(since, limit)) in limits.iter().enumerate() {
            let until = limits.get(k + 1).map_or(Time::NEVER, |(at, _)| *at);
            // The slots are full from each opening that takes the last one, up to the closing that frees one.
            let taken = |(n, at): (usize, &Time)| {
                let free = *closed.get((n + 1).checked_sub(limit)?)?;
                let (from, until) = (since.max(*at), until.min(free));
                (from < until).then_some((from, until))
            };
            full.extend(opened.iter().enumerate().filter(|_| limit > 0).filter_map(taken));
        }
        full
    }

    /// One direction.
    pub const fn half_connection(&self, direction: Direction) -> &HalfConnection {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    /// The frames of one direction.
    pub const fn frames(&self, direction: Direction) -> &Frames {
        self.streams.frames(direction)
    }

    /// The frames of an exchange in one direction, in the order of their bytes.
    pub fn frames_of<'a>(
        &'a self,
        exchange: &'a Exchange,
        direction: Direction,
    ) -> impl Iterator<Item = &'a Placed> {
        let frames = self.frames(direction).all();
        exchange.frames(direction).iter().filter_map(|index| frames.get(*index as usize))
    }
}
