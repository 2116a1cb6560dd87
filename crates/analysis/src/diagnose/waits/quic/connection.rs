//! One QUIC connection: from its datagrams to the history of the bytes of each stream.
//!
//! A sender repairs frames and not packets (RFC 9000 §13.3), so the history is by stream and offset, as TCP's is by
//! sequence number. Each stream has its own history, since none waits for another's bytes (RFC 9000 §2.2). The end of a
//! stream counts as one more byte, which arrives like the others.

use super::frame::{self, Frame};
use super::half::{Carried, Credit, Half, TracedHalf};
use super::packet::{self, Keys, Level, Packet, Protected};
use super::parameters::Windows;
use crate::diagnose::waits::connection::Flaw;
use crate::diagnose::waits::flow::Transmission;
use crate::diagnose::waits::sending::Timers;
use crate::diagnose::waits::tls::keys::{KeyLog, Random, Secrets};
use crate::diagnose::waits::tls::{random_of, server_hello};
use h2lab_base::units::Time;
use h2lab_model::record::PacketRecord;
use h2lab_wire::trace::Direction;

/// A connection while its packets are processed.
#[derive(Debug)]
pub(super) struct Connection {
    /// The client's port and the server's.
    ports: (u16, u16),
    begins_at: Time,
    /// The ids to which its client sends Initial packets.
    server_ids: Vec<Vec<u8>>,
    client_random: Option<Random>,
    suite: Option<u16>,
    up: Half,
    down: Half,
    flaw: Option<Flaw>,
}

impl Connection {
    /// The connection that begins with this packet, an Initial to the connection id that its client chose.
    pub fn new(record: &PacketRecord, chosen: &[u8]) -> Self {
        let mut connection = Self {
            ports: (record.client_port, record.server_port),
            begins_at: record.at,
            server_ids: Vec::new(),
            client_random: None,
            suite: None,
            up: Half::default(),
            down: Half::default(),
            flaw: None,
        };
        connection.begin(chosen);
        connection
    }

    /// The client begins, or begins again after a Retry, with Initial packets to this id.
    fn begin(&mut self, id: &[u8]) {
        self.server_ids.push(id.to_vec());
        for direction in [Direction::Up, Direction::Down] {
            let keys = Keys::initial(id, direction).map(|keys| (Level::Initial, keys));
            self.half(direction).keys.extend(keys);
        }
    }

    /// Whether an Initial packet of the client to this id is one of this connection.
    pub fn has(&self, server_id: &[u8]) -> bool {
        self.server_ids.iter().any(|known| known == server_id)
    }

    const fn half(&mut self, direction: Direction) -> &mut Half {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }

    /// Processes the next datagram; `None` if its bytes were not kept.
    pub fn datagram(&mut self, record: &PacketRecord, bytes: Option<&[u8]>, log: &KeyLog) {
        let Some(mut bytes) = bytes else {
            self.flaw.get_or_insert(Flaw::BytesMissing);
            return;
        };
        let id_length = self.half(record.direction).id_length;
        while let Some(packet) = packet::next(&mut bytes, id_length) {
            match packet {
                Packet::Protected(packet) => {
                    if let Err(flaw) = self.packet(record, &packet, log) {
                        self.flaw.get_or_insert(flaw);
                    }
                }
                Packet::Retry { server_id } => self.begin(server_id),
                Packet::Other => {}
            }
        }
    }

    fn packet(&mut self, record: &PacketRecord, packet: &Protected<'_>, log: &KeyLog) -> Result<(), Flaw> {
        let (level, direction) = (packet.level, record.direction);
        if !self.half(direction).keys.contains_key(&level) {
            let keys = self.keys(level, direction, log)?;
            self.half(direction).keys.insert(level, keys);
        }
        let half = self.half(direction);
        let largest = half.largest.get(&level).copied();
        let keys = half.keys.get_mut(&level).ok_or(Flaw::NoKeys)?;
        let (number, opened) = keys.open(packet, largest).ok_or(Flaw::BytesMissing)?;
        half.largest.insert(level, largest.map_or(number, |largest| largest.max(number)));
        if level != Level::Application {
            self.half(direction.opposite()).id_length = packet.from.len();
            if direction == Direction::Down && !self.has(packet.from) {
                self.server_ids.push(packet.from.to_vec());
            }
        }
        self.frames(record, level, number, &opened)
    }

    /// The keys of a level and direction, if the handshake so far has shown what is needed to derive them.
    fn keys(&self, level: Level, direction: Direction, log: &KeyLog) -> Result<Keys, Flaw> {
        let (random, suite) = self.client_random.zip(self.suite).ok_or(Flaw::BytesMissing)?;
        // Without the handshake secrets, the windows that are granted in the handshake are unknown.
        let handshake = Secrets::find_handshake(log, &random);
        let application = Secrets::find(log, &random, true);
        let (handshake, application) = handshake.zip(application).ok_or(Flaw::NoKeys)?;
        let secrets = if level == Level::Handshake { handshake } else { application };
        secrets.traffic(direction).and_then(|secret| Keys::new(suite, secret)).ok_or(Flaw::NoKeys)
    }

    fn frames(
        &mut self,
        record: &PacketRecord,
        level: Level,
        number: u64,
        mut rest: &[u8],
    ) -> Result<(), Flaw> {
        let (direction, sent) = (record.direction, Transmission::of(record));
        let mut carried = Carried::default();
        while !rest.is_empty() {
            let half = self.half(direction);
            match frame::next(&mut rest).ok_or(Flaw::BytesMissing)? {
                Frame::Padding(zeros) => carried.padding += zeros,
                Frame::Crypto { offset, bytes } if level != Level::Application => {
                    half.crypto.entry(level).or_default().add(offset, bytes, sent);
                    self.handshake(direction, level);
                }
                Frame::Stream { stream, offset, length, ends } => {
                    half.carry(stream, (offset, length), ends, sent, &mut carried);
                }
                Frame::Reset { stream, length } => half.carry(stream, (length, 0), true, sent, &mut carried),
                Frame::Credit { stream, limit } => {
                    half.credits.entry(stream).or_default().push(Credit { limit, sent });
                }
                Frame::Ack(ranges) if level == Level::Application => {
                    self.half(direction.opposite()).acknowledge(&ranges, sent.out_at);
                }
                _ => {}
            }
        }
        // A copy is made by the link, not by the sender.
        if !record.marks.is_copy {
            let filled = (record.payload as usize).saturating_sub(carried.padding);
            self.half(direction).sent(number, sent, &carried, filled);
        }
        Ok(())
    }

    /// Reads the handshake messages received so far.
    fn handshake(&mut self, direction: Direction, level: Level) {
        let Some(crypto) = self.half(direction).crypto.get(&level) else { return };
        let (mut random, mut suite, mut windows) = (None, None, None);
        for message in messages(&crypto.messages) {
            windows = Windows::of(message).or(windows);
            match (direction, level) {
                (Direction::Up, Level::Initial) => random = random_of(message).or(random),
                (Direction::Down, Level::Initial) => {
                    suite = server_hello(message).map(|hello| hello.suite).or(suite);
                }
                _ => {}
            }
        }
        self.client_random = random.or(self.client_random);
        self.suite = suite.or(self.suite);
        let half = self.half(direction);
        half.windows = windows.or(half.windows);
    }

    /// The result, after the last of its packets.
    pub fn finish(self, timers: Timers) -> Traced {
        Traced {
            ports: self.ports,
            begins_at: self.begins_at,
            up: self.up.finish(Direction::Up, timers),
            down: self.down.finish(Direction::Down, timers),
            flaw: self.flaw,
        }
    }
}

/// The whole handshake messages at the front of these bytes (RFC 8446 §4).
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = u32::from_be_bytes([0, *bytes.get(1)?, *bytes.get(2)?, *bytes.get(3)?]);
        let (message, rest) = bytes.split_at_checked(4 + length as usize)?;
        bytes = rest;
        Some(message)
    })
}

/// A completely analysed connection.
#[derive(Debug)]
pub(super) struct Traced {
    /// The client's port and the server's.
    pub ports: (u16, u16),
    /// When its first packet entered the link.
    pub begins_at: Time,
    pub up: TracedHalf,
    pub down: TracedHalf,
    /// Why not all of its packets could be read.
    pub flaw: Option<Flaw>,
}

impl Traced {
    /// One direction.
    pub const fn half(&self, direction: Direction) -> &TracedHalf {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }
}
