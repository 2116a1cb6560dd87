//! The pump's records: each packet's fate, and its own lateness.

use h2lab_base::units::{Time, nanos};
use h2lab_link::Packet;
use h2lab_model::record::{Marks, PacketFate, PacketRecord};
use h2lab_wire::trace::Direction;
use hdrhistogram::Histogram;

/// Packets of one chunk. Chunks never move: growing one vector would copy up to 100 MB while packets wait.
const CHUNK: usize = 16 * 1024;
/// Packets that are recorded individually. Beyond this number only drops are; the totals count all packets.
pub(super) const CAPACITY: usize = 2_000_000;
/// Lateness above this is counted as this: an hour, in nanoseconds.
const LATEST: u64 = 3_600_000_000_000;

/// The place of a packet in the packet log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry(Option<usize>);

/// The record of a packet that entered at `at`, without its index and without what was decided about it.
pub(super) fn record_of(packet: &Packet, at: Time, direction: Direction) -> PacketRecord {
    let (client, server) = match direction {
        Direction::Up => (packet.source, packet.destination),
        Direction::Down => (packet.destination, packet.source),
    };
    PacketRecord {
        at,
        out_at: Time::NEVER,
        index: 0,
        client_port: client.port,
        server_port: server.port,
        bytes: packet.bytes,
        payload: packet.payload,
        seq: packet.seq,
        direction,
        fate: PacketFate::InFlight,
        marks: Marks::default(),
    }
}

/// The packet log.
#[derive(Debug)]
pub(super) struct PacketLog {
    chunks: Vec<Vec<PacketRecord>>,
    length: usize,
    capacity: usize,
    unrecorded: u64,
}

impl PacketLog {
    /// An empty packet log for `capacity` packets and all drops.
    pub fn new(capacity: usize) -> Self {
        Self { chunks: Vec::new(), length: 0, capacity, unrecorded: 0 }
    }

    /// Records a packet that entered.
    pub fn enter(&mut self, record: PacketRecord) -> Entry {
        if self.length >= self.capacity {
            self.unrecorded += 1;
            return Entry(None);
        }
        self.append(record)
    }

    /// Records that a packet was dropped; `record` and `entry` are those of [`PacketLog::enter`].
    pub fn drop(&mut self, entry: Entry, record: PacketRecord, fate: PacketFate) {
        if let Entry(Some(at)) = entry {
            self.chunks[at / CHUNK][at % CHUNK].fate = fate;
        } else {
            self.unrecorded -= 1;
            self.append(PacketRecord { fate, ..record });
        }
    }

    fn append(&mut self, record: PacketRecord) -> Entry {
        if self.length.is_multiple_of(CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        self.chunks[self.length / CHUNK].push(record);
        self.length += 1;
        Entry(Some(self.length - 1))
    }

    /// Records that a packet left.
    pub fn leave(&mut self, entry: Entry, out_at: Time) {
        if let Entry(Some(at)) = entry {
            let record = &mut self.chunks[at / CHUNK][at % CHUNK];
            record.out_at = out_at;
            record.fate = PacketFate::Delivered;
        }
    }

    /// Returns the packets, and how many are not among them.
    pub fn finish(self) -> (Vec<PacketRecord>, u64) {
        (self.chunks.concat(), self.unrecorded)
    }
}

/// How late packets left against their due time.
#[derive(Debug)]
pub(super) struct Lateness {
    histogram: Histogram<u64>,
}

impl Lateness {
    /// No packet yet. Values are kept to three digits.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATEST, 3).expect("bounds and digits are valid");
        Self { histogram }
    }

    /// A packet left at `left` that was due at `due`.
    pub fn record(&mut self, due: Time, left: Time) {
        self.histogram.saturating_record(nanos(left.since(due)));
    }

    /// The lateness that this share of packets did not exceed, in nanoseconds; 0 without packets.
    pub fn quantile(&self, share: f64) -> u64 {
        self.histogram.value_at_quantile(share)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use h2lab_link::{FlowEndpoint, Offload};

    use super::*;

    fn packet() -> Packet {
        let end = |octet, port| FlowEndpoint { address: IpAddr::V4(Ipv4Addr::new(10, 9, 0, octet)), port };
        let (source, destination) = (end(1, 40_000), end(2, 80));
        Packet {
            source,
            destination,
            protocol: 6,
            bytes: 52,
            payload: 0,
            seq: 1,
            flags: 0x10,
            offload: Offload::default(),
        }
    }

    fn record(index: u64) -> PacketRecord {
        PacketRecord { index, ..record_of(&packet(), Time::from_millis(index), Direction::Up) }
    }

    #[test]
    fn a_packet_is_in_flight_until_it_leaves() {
        let mut packet_log = PacketLog::new(10);
        let entries: Vec<Entry> = (0..3).map(|k| packet_log.enter(record(k))).collect();
        packet_log.leave(entries[1], Time::from_millis(9));
        let (packets, unrecorded) = packet_log.finish();
        let fates: Vec<PacketFate> = packets.iter().map(|packet| packet.fate).collect();
        assert_eq!(fates, [PacketFate::InFlight, PacketFate::Delivered, PacketFate::InFlight]);
        assert_eq!((packets[1].out_at, unrecorded), (Time::from_millis(9), 0));
    }

    #[test]
    fn ports_are_the_clients_and_the_servers_in_both_directions() {
        let back = Packet { source: packet().destination, destination: packet().source, ..packet() };
        for (packet, direction) in [(packet(), Direction::Up), (back, Direction::Down)] {
            let record = record_of(&packet, Time::ZERO, direction);
            assert_eq!((record.client_port, record.server_port), (40_000, 80));
        }
    }

    #[test]
    fn a_full_packet_log_still_takes_drops_and_counts_the_rest() {
        let mut packet_log = PacketLog::new(CHUNK + 1);
        let total = CHUNK as u64 + 5;
        for k in 0..total {
            let entry = packet_log.enter(record(k));
            packet_log.leave(entry, Time::ZERO);
        }
        let entry = packet_log.enter(record(total));
        packet_log.drop(entry, record(total), PacketFate::TailDropped);
        let (packets, unrecorded) = packet_log.finish();
        assert_eq!((packets.len(), unrecorded), (CHUNK + 2, 4));
        assert_eq!(packets.last().unwrap().fate, PacketFate::TailDropped);
    }

    #[test]
    fn a_drop_is_written_down_once() {
        let mut packet_log = PacketLog::new(10);
        let entry = packet_log.enter(record(0));
        packet_log.drop(entry, record(0), PacketFate::Lost);
        let (packets, unrecorded) = packet_log.finish();
        assert_eq!((packets.len(), packets[0].fate, unrecorded), (1, PacketFate::Lost, 0));
    }

    #[test]
    fn early_is_not_late() {
        let mut lateness = Lateness::new();
        assert_eq!(lateness.quantile(0.99), 0);
        lateness.record(Time::from_millis(2), Time::from_millis(1));
        assert_eq!(lateness.quantile(1.0), 0);
        lateness.record(Time::ZERO, Time::ZERO + Duration::from_nanos(700));
        assert_eq!(lateness.quantile(1.0), 700);
    }
}
