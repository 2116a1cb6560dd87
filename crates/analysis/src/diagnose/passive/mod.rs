//! Passive reading of a capture: from the packets of one vantage point to the records that rules read.
//!
//! ```text
//! packets of a file (h2lab_link::capture_file)
//!  → each TCP connection: who is the client, handshake, bytes in order, what was sent again     connection, half
//!  → TLS, with the secrets of a key log                                                         waits::tls
//!  → frames of HTTP/1.1 and HTTP/2 with their fields                                            wire::trace::detail
//!  → requests and their responses                                                               exchanges
//!  → a repetition of each server and protocol                                                   record
//!  → what cannot be known from this capture                                                     notes
//! ```
//!
//! All times are those at the client. What the client sent is assumed to have left it earlier by half the round trip
//! between capture point and client, and what it received to have arrived later by as much; the handshake of each
//! connection gives that round trip. Near the client it is negligible.
//!
//! Memory: 4 MiB of bytes behind a hole in each direction of a connection, 32 bytes per frame up to [`MOST_FRAMES`],
//! 130 bytes per request. No input makes it panic.

mod arrivals;
mod connection;
mod exchanges;
mod half;
mod http;
mod notes;
mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use self::connection::{Connection, Finished};
pub use self::notes::Note;
use self::notes::{Keys, Source, Unseen};
use super::waits::segment::{Segment, flag};
use super::waits::tls::KeyLog;
use h2lab_base::units::Time;
use h2lab_link::capture_file::CapturedPacket;
use h2lab_link::{Flow, FlowEndpoint, LinkSpec, Offload, Packet};
use h2lab_model::record::CellRecord;
use h2lab_wire::trace::Direction;

/// IP protocol numbers.
const TCP: u8 = 6;
const UDP: u8 = 17;
/// The port of QUIC, as far as HTTP is concerned.
const HTTPS: u16 = 443;
/// Frames that are kept: 128 MiB of them.
pub const MOST_FRAMES: usize = 4 << 20;
/// Connections that are followed: a port scan has more.
const MOST_CONNECTIONS: usize = 1 << 18;
/// Interfaces of a file that h2lab wrote of its link, where packets are not captured at the client.
const NOT_CLIENTS: [&str; 2] = ["uplink out", "downlink in"];
/// The other interfaces, where they are.
const CLIENTS: [&str; 2] = ["uplink in", "downlink out"];

/// A capture while its packets are read.
#[derive(Debug)]
pub struct Capture {
    log: KeyLog,
    connections: Vec<Connection>,
    /// The latest connection between two endpoints.
    latest: BTreeMap<Flow, usize>,
    /// When its first packet was seen, in nanoseconds since 1970.
    begins_at: Option<u64>,
    /// The time of the last packet.
    now: Time,
    /// Frames that may still be kept.
    room: usize,
    unseen: Unseen,
    /// The emulated link that was captured, if it is this run's.
    link: Option<LinkSpec>,
}

/// What a capture contains.
#[derive(Debug)]
pub struct Captured {
    /// A repetition of each server and protocol, the one with most requests first; none if no HTTP could be read.
    pub records: Vec<CellRecord>,
    /// What cannot be known, or was assumed.
    pub notes: Vec<Note>,
    /// TCP connections in the capture, whatever they carried.
    pub connections: usize,
    /// When its first packet was seen, in nanoseconds since 1970.
    pub began_nanos: u64,
}

impl Capture {
    /// A capture without packets. `key_log` is the text of a key log (`SSLKEYLOGFILE`, RFC 9850); empty where there is none.
    pub fn new(key_log: &str) -> Self {
        let mut unseen = Unseen::default();
        if !key_log.is_empty() {
            unseen.keys = Keys::Unreadable;
        }
        Self {
            log: KeyLog::parse(key_log),
            connections: Vec::new(),
            latest: BTreeMap::new(),
            begins_at: None,
            now: Time::ZERO,
            room: MOST_FRAMES,
            unseen,
            link: None,
        }
    }

    /// A capture of this run's link: it has everything that a client did, from its beginning, at the client's end.
    pub fn of_run(link: LinkSpec) -> Self {
        let mut capture = Self { link: Some(link), ..Self::new("") };
        capture.unseen.source = Source::Run;
        capture
    }

    /// Lines of a key log in the capture itself.
    pub fn secrets(&mut self, lines: &[u8]) {
        self.log.add(&String::from_utf8_lossy(lines));
    }

    /// A packet without a time, which cannot be used.
    pub const fn untimed(&mut self) {
        self.unseen.untimed += 1;
    }

    /// The next packet.
    pub fn packet(&mut self, packet: &CapturedPacket<'_>) {
        self.unseen.packets += 1;
        if NOT_CLIENTS.contains(&packet.name) {
            if self.unseen.source == Source::Unknown {
                self.unseen.source = Source::Link;
            }
            return;
        }
        let now = self.clock(packet.at_nanos);
        let whole = widened(packet.bytes);
        let bytes = whole.as_deref().unwrap_or(packet.bytes);
        let Some(outline) = Packet::parse(bytes, Offload::default()) else {
            self.unseen.other += 1;
            return;
        };
        match outline.protocol {
            TCP => {}
            UDP if outline.source.port == HTTPS || outline.destination.port == HTTPS => {
                self.unseen.quic += 1;
                return;
            }
            _ => {
                self.unseen.other += 1;
                return;
            }
        }
        let Some(segment) = Segment::parse(bytes) else {
            self.unseen.fragments += 1;
            return;
        };
        let Some((index, direction)) = self.connection(now, &outline, &segment) else { return };
        let connection = &mut self.connections[index];
        if connection.is_elsewhere(direction, packet.interface) {
            self.unseen.elsewhere += 1;
            return;
        }
        connection.is_at_client |= self.unseen.source == Source::Run || CLIENTS.contains(&packet.name);
        let length = segment.payload.len() as u64 + cut_off(bytes, packet.length);
        connection.segment(now, direction, &segment, length, &self.log, &mut self.room);
    }

    /// The time of a packet, relative to the first one. If the clock is set back, this time stands still.
    fn clock(&mut self, at_nanos: u64) -> Time {
        let began = *self.begins_at.get_or_insert(at_nanos);
        let now = LEAD + std::time::Duration::from_nanos(at_nanos.saturating_sub(began));
        // Packets of several CPUs are slightly out of order.
        self.unseen.backwards += u64::from(now + BACKWARDS < self.now);
        self.now = self.now.max(now);
        self.now
    }

    /// The connection of a segment, and its direction; `None` if there are too many connections.
    fn connection(
        &mut self,
        now: Time,
        packet: &Packet,
        segment: &Segment<'_>,
    ) -> Option<(usize, Direction)> {
        let flow = packet.flow();
        let known = self.latest.get(&flow).copied();
        let index = known.filter(|&index| !self.connections[index].is_followed_by(segment));
        let index = match index {
            Some(index) => index,
            None if self.connections.len() >= MOST_CONNECTIONS => {
                self.unseen.unfollowed += 1;
                return None;
            }
            None => {
                let (client, server) = ends(packet, segment);
                self.connections.push(Connection::new(client, server, now));
                self.connections.len() - 1
            }
        };
        self.latest.insert(flow, index);
        let is_up = packet.source == self.connections[index].client;
        Some((index, if is_up { Direction::Up } else { Direction::Down }))
    }

    /// The result, after the last packet. `is_whole`: the file ends with a whole packet.
    pub fn finish(mut self, is_whole: bool) -> Captured {
        self.unseen.is_cut = !is_whole;
        self.unseen.is_full = self.room == 0;
        if !self.log.is_empty() {
            self.unseen.keys = Keys::Given;
        }
        let at = self.now;
        let finished: Vec<Finished> =
            self.connections.into_iter().map(|connection| connection.finish(at)).collect();
        let mut notes = self.unseen.notes(&finished);
        let connections = finished.len();
        let reads = finished.iter().filter_map(|connection| connection.read.as_ref());
        let refused: usize = reads.map(|read| read.exchanges.refused.len()).sum();
        let records = record::of(finished, self.unseen.is_full, self.link.as_ref());
        notes.extend(notes::left_out(refused, &records));
        Captured { records, notes, connections, began_nanos: self.begins_at.unwrap_or(0) }
    }
}

/// The time assigned to the first packet, so that earlier actions of the client have times, too.
const LEAD: Time = Time::from_millis(1_000);
/// A clock that goes back by no more than this was not set.
const BACKWARDS: std::time::Duration = std::time::Duration::from_millis(10);

/// Client and server of a connection, from its first packet: the sender of a SYN is the client; without one, the lower
/// port is the server's.
fn ends(packet: &Packet, segment: &Segment<'_>) -> (FlowEndpoint, FlowEndpoint) {
    let (source, destination) = (packet.source, packet.destination);
    let is_up = match segment.flags & (flag::SYN | flag::ACK) {
        flag::SYN => true,
        both if both & flag::SYN != 0 => false,
        _ => destination.port <= source.port,
    };
    if is_up { (source, destination) } else { (destination, source) }
}

/// The packet with its actual length, if its header has 0: it was captured before a device split it into segments.
fn widened(bytes: &[u8]) -> Option<Vec<u8>> {
    let is_open = match bytes.first()? >> 4 {
        4 => bytes.get(2..4)? == [0, 0],
        6 => bytes.get(4..6)? == [0, 0] && bytes.get(6) == Some(&TCP),
        _ => false,
    };
    if !is_open {
        return None;
    }
    let mut whole = bytes.to_vec();
    let (place, fixed) = if bytes[0] >> 4 == 4 { (2, 0) } else { (4, 40) };
    let length = u16::try_from(bytes.len().saturating_sub(fixed)).unwrap_or(u16::MAX);
    whole[place..place + 2].copy_from_slice(&length.to_be_bytes());
    Some(whole)
}

/// How many bytes of an IP packet were not kept, according to its header; `length` is the length in the file.
fn cut_off(bytes: &[u8], length: u32) -> u64 {
    let be16 = |at: usize| bytes.get(at..at + 2).map(|two| usize::from(u16::from_be_bytes([two[0], two[1]])));
    let said = match bytes.first().map(|first| first >> 4) {
        Some(4) => be16(2),
        Some(6) => be16(4).map(|payload| payload + 40),
        _ => None,
    };
    let said = said.unwrap_or(0).min(length as usize);
    said.saturating_sub(bytes.len()) as u64
}
