//! One direction of a QUIC connection: the history of each stream's bytes, and how its sender sent.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::packet::{Keys, Level};
use super::parameters::Windows;
use crate::diagnose::waits::assembly::Assembly;
use crate::diagnose::waits::flow::{Flow, History, Transmission};
use crate::diagnose::waits::sending::{Ack, Before, Send, Sending, Timers};
use h2lab_base::units::Time;
use h2lab_wire::trace::Direction;

/// The most bytes of handshake messages that are kept or held, by direction and level.
const HELLO: usize = 1 << 16;
/// A packet counts as lost if one that was acknowledged is this many packets later (RFC 9002 §6.1.1).
const REORDERED: u64 = 3;
/// A datagram that is at most this many bytes shorter than the longest has no room for more of a stream: headers and
/// acknowledgements differ.
const SLACK: usize = 48;
/// The payload that every path carries, in bytes (RFC 9000 §14).
const LEAST_DATAGRAM: usize = 1200;

/// One direction.
#[derive(Debug, Default)]
pub(super) struct Half {
    /// Bytes of the connection id in its packets.
    pub id_length: usize,
    pub keys: BTreeMap<Level, Keys>,
    /// The highest packet number.
    pub largest: BTreeMap<Level, u64>,
    pub crypto: BTreeMap<Level, Crypto>,
    streams: BTreeMap<u64, Stream>,
    /// Bytes of the connection's window that were used.
    taken: u64,
    /// Granted by the sender of this direction.
    pub windows: Option<Windows>,
    pub credits: BTreeMap<Option<u64>, Vec<Credit>>,
    sends: Vec<Send>,
    acks: Vec<Ack>,
    /// For each packet with bytes of a stream: its number, and the index of its datagram. Both ascend.
    packets: Vec<(u64, u64)>,
    /// Bytes of the longest datagram, without padding.
    longest: usize,
}

/// Handshake messages of one level.
#[derive(Debug, Default)]
pub(super) struct Crypto {
    flow: Flow,
    assembly: Assembly<HELLO>,
    pub messages: Vec<u8>,
}

/// One direction of a stream.
#[derive(Debug, Default)]
struct Stream {
    flow: Flow,
    /// One past its highest byte.
    highest: u64,
    ends: bool,
    /// From which byte on how much of the connection's window was used before that byte.
    taken: Vec<(u64, u64)>,
}

/// Credit for the other side.
#[derive(Debug, Clone, Copy)]
pub(super) struct Credit {
    pub limit: u64,
    pub sent: Transmission,
}

/// What a packet carried of streams.
#[derive(Debug, Default)]
pub(super) struct Carried {
    pub padding: usize,
    is_new: bool,
    /// The packet that had carried some of these bytes before.
    before: Option<Transmission>,
}

impl Half {
    /// The packet `sent` carries these bytes of a stream, or only its end.
    pub fn carry(
        &mut self,
        id: u64,
        (offset, length): (u64, u64),
        ends: bool,
        sent: Transmission,
        carried: &mut Carried,
    ) {
        let stream = self.streams.entry(id).or_default();
        let end = offset.saturating_add(length);
        let bytes = offset..end.saturating_add(u64::from(ends));
        if bytes.is_empty() {
            return;
        }
        carried.before = stream.flow.last_sent(bytes.clone()).copied().or(carried.before);
        carried.is_new |= end > stream.highest || (ends && !stream.ends);
        stream.ends |= ends;
        if end > stream.highest {
            stream.taken.push((stream.highest, self.taken));
            self.taken = self.taken.saturating_add(end - stream.highest);
            stream.highest = end;
        }
        stream.flow.add(bytes, sent);
    }

    /// A packet with this number was sent; its datagram has `filled` bytes without padding.
    pub fn sent(&mut self, number: u64, sent: Transmission, carried: &Carried, filled: usize) {
        let is_next = self.packets.last().is_none_or(|last| last.0 < number && last.1 < sent.index);
        if !is_next || !(carried.is_new || carried.before.is_some()) {
            return;
        }
        let place = self.packets.len() as u64;
        self.packets.push((number, sent.index));
        self.longest = self.longest.max(filled);
        let is_full = filled + SLACK >= self.longest.max(LEAST_DATAGRAM);
        let bytes = place..place + 1;
        if let Some(before) = carried.before {
            let start = self.packets.partition_point(|packet| packet.1 < before.index) as u64;
            let before = Some(Before { at: before.at, start });
            self.sends.push(Send { bytes: bytes.clone(), sent, before, is_full: false });
        }
        if carried.is_new {
            self.sends.push(Send { bytes, sent, before: None, is_full });
        }
    }

    /// The other side has received these packets, as the sender learns at `at`. Packets are numbered here by their
    /// order. Packets that are thereby known to be lost count as acknowledged, since they are no longer in flight.
    pub fn acknowledge(&mut self, ranges: &[RangeInclusive<u64>], at: Time) {
        let Some(largest) = ranges.first().map(|range| *range.end()).filter(|_| at.happened()) else {
            return;
        };
        let below = |number: u64| self.packets.partition_point(|packet| packet.0 < number) as u64;
        let mut end = below(largest.saturating_sub(REORDERED - 1));
        let mut sacks = Vec::new();
        for range in ranges.iter().rev() {
            let places = below(*range.start())..below(range.end() + 1);
            if places.start <= end {
                end = end.max(places.end);
            } else if !places.is_empty() {
                sacks.push(places);
            }
        }
        self.acks.push(Ack { at, end, sacks });
    }

    /// The result, after the last packet.
    pub fn finish(self, direction: Direction, timers: Timers) -> TracedHalf {
        let stream = |(id, stream): (u64, Stream)| {
            let Stream { flow, highest, ends, taken } = stream;
            let end = highest + u64::from(ends);
            (id, StreamHistory { history: flow.finish(), end, is_whole: ends, taken })
        };
        TracedHalf {
            direction,
            begins_at: self.sends.first().map_or(Time::NEVER, |send| send.sent.at),
            handshake: self.crypto.into_values().map(|crypto| crypto.flow.finish()).collect(),
            streams: self.streams.into_iter().map(stream).collect(),
            sending: Sending::follow(direction, &self.sends, self.acks, timers),
            packets: self.packets,
            windows: self.windows,
            credits: self.credits,
        }
    }
}

impl Crypto {
    /// The packet `sent` carries these bytes of the messages.
    pub fn add(&mut self, offset: u64, bytes: &[u8], sent: Transmission) {
        self.flow.add(offset..offset.saturating_add(bytes.len() as u64), sent);
        let messages = &mut self.messages;
        self.assembly.add(offset, bytes, &mut |_, bytes| {
            messages.extend_from_slice(&bytes[..bytes.len().min(HELLO.saturating_sub(messages.len()))]);
        });
    }
}

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct TracedHalf {
    pub direction: Direction,
    /// When the first packet with bytes of a stream entered the link.
    pub begins_at: Time,
    /// Its handshake messages, by level.
    pub handshake: Vec<History>,
    pub streams: BTreeMap<u64, StreamHistory>,
    /// How its sender sent: a "byte" there is a packet with bytes of streams, in the order of the packets.
    pub sending: Sending,
    packets: Vec<(u64, u64)>,
    /// Granted by its sender initially.
    pub windows: Option<Windows>,
    credits: BTreeMap<Option<u64>, Vec<Credit>>,
}

impl TracedHalf {
    /// The place of a datagram in `sending`.
    pub fn place(&self, index: u64) -> Option<u64> {
        self.packets.binary_search_by_key(&index, |packet| packet.1).ok().map(|place| place as u64)
    }

    /// What its sender granted of a stream's window, or of the connection's (`None`).
    pub fn credits(&self, stream: Option<u64>) -> &[Credit] {
        self.credits.get(&stream).map_or(&[], Vec::as_slice)
    }
}

/// One direction of a stream.
#[derive(Debug)]
pub(super) struct StreamHistory {
    pub history: History,
    /// One past the last byte that was sent, its end included.
    pub end: u64,
    /// Its end was sent.
    pub is_whole: bool,
    taken: Vec<(u64, u64)>,
}

impl StreamHistory {
    /// How much of the connection's window had to be granted for this byte.
    pub fn needed(&self, byte: u64) -> Option<u64> {
        let before = self.taken.partition_point(|(start, _)| *start <= byte).checked_sub(1)?;
        let (start, taken) = self.taken[before];
        // The lengths of streams are claims of a peer.
        Some(taken.saturating_add(byte - start).saturating_add(1))
    }
}
