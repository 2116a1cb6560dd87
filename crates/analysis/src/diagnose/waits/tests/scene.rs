//! A repetition, packet by packet.

use std::ops::Range;
use std::time::Duration;

use crate::diagnose::waits::{CapturedConnections, Cause, CauseKind, Interval, LatencyBreakdown, Waits};
use h2lab_base::units::Time;
use h2lab_link::{Impairment, LinkSpec};
use h2lab_model::record::testing::{Model, cell, one_repetition};
use h2lab_model::record::{CellRecord, Marks, Outcome, PacketFate, PacketRecord, Sample};
use h2lab_model::workload::Protocol;
use h2lab_wire::StreamId;
use h2lab_wire::trace::Direction;
use h2lab_wire::trace::Direction::{Down, Up};

/// The link's delay, each way.
pub const DELAY: u64 = 10;
const SERVER: u16 = 8080;
/// The maximum segment size of both ends.
pub const MAX_SEGMENT: u16 = 1460;
/// Sequence numbers of the SYNs: near the end of the range, so that they wrap.
const FIRST: [u32; 2] = [u32::MAX - 100, 7];

pub fn ms(ms: u64) -> Time {
    Time::from_millis(ms)
}

/// A packet of a scene, for retransmission.
#[derive(Debug, Clone)]
pub struct Sent {
    port: u16,
    direction: Direction,
    bytes: Range<u32>,
    payload: Vec<u8>,
    /// Its index in the packet log.
    pub index: u64,
}

/// Builds a repetition.
pub struct Scene {
    /// Its samples are `samples`.
    pub record: CellRecord,
    pub samples: Vec<Sample>,
    packets: Vec<(PacketRecord, Vec<u8>)>,
    /// The client's port of the connection that packets belong to.
    port: u16,
    indices: [u64; 2],
    ids: Vec<u64>,
    /// Packets that are in the log but not in the capture.
    pub unkept: Vec<PacketRecord>,
    /// How many packets are in neither.
    pub unrecorded: u64,
    pub key_log: String,
}

impl Scene {
    /// A repetition without packets: connection n of the generator has port 40000 + n.
    pub fn new() -> Self {
        let mut cell = cell(0, 0, Protocol::H2c, 2, 0.0);
        let delay = Duration::from_millis(DELAY);
        cell.link = Some(LinkSpec::symmetric(Impairment { delay, ..Impairment::default() }));
        let mut record = one_repetition(&cell, 0, &Model::CLEAN);
        record.samples.clear();
        record.packets.clear();
        for connection in &mut record.connections {
            (connection.dialled_at, connection.ready_at) = (Time::ZERO, ms(20));
        }
        Self {
            record,
            samples: Vec::new(),
            packets: Vec::new(),
            port: 40_000,
            indices: [0, 0],
            ids: Vec::new(),
            unkept: Vec::new(),
            unrecorded: 0,
            key_log: String::new(),
        }
    }

    /// Behind a sidecar, to which the connections of the link belong.
    pub fn with_sidecar() -> Self {
        let mut scene = Self::new();
        scene.record.cell.sidecar = Some(h2lab_model::scenario::Sidecar {
            name: "haproxy".to_owned(),
            warm_pool: 1,
            max_connections: 1,
        });
        scene.record.connections.clear();
        scene
    }

    /// A connection that is established at 20 ms.
    pub fn connected() -> Self {
        let mut scene = Self::new();
        scene.connect(0, 0);
        scene
    }

    /// The packets that follow belong to the generator's connection n.
    pub fn on(&mut self, connection: u16) -> &mut Self {
        self.port = 40_000 + connection;
        self
    }

    /// Connection n: SYN, answer, acknowledgement.
    pub fn connect(&mut self, connection: u16, at: u64) {
        self.on(connection);
        self.syn(Up, at, true);
        self.syn(Down, at + DELAY, true);
        self.ack(Up, at + 2 * DELAY, true);
    }

    /// A SYN or its answer.
    pub fn syn(&mut self, direction: Direction, at: u64, arrives: bool) -> u64 {
        let flags = if direction == Up { 0x02 } else { 0x12 };
        let out = arrives.then_some(at + DELAY);
        self.packet(direction, (at, out), FIRST[direction as usize], flags, &[])
    }

    /// A side ends the connection.
    pub fn fin(&mut self, direction: Direction, at: u64) {
        let seq = FIRST[direction as usize].wrapping_add(1).wrapping_add(self.sent(direction));
        self.packet(direction, (at, Some(at + DELAY)), seq, 0x11, &[]);
    }

    /// New bytes, in one packet, which arrives after the link's delay.
    pub fn send(&mut self, direction: Direction, at: u64, payload: &[u8]) -> Sent {
        self.send_until(direction, at, Some(at + DELAY), payload)
    }

    /// New bytes, in one packet that the link drops.
    pub fn lose(&mut self, direction: Direction, at: u64, payload: &[u8]) -> Sent {
        self.send_until(direction, at, None, payload)
    }

    /// New bytes, in a packet that leaves the link at `out`.
    pub fn send_until(&mut self, direction: Direction, at: u64, out: Option<u64>, payload: &[u8]) -> Sent {
        let start = self.sent(direction);
        self.transmit(direction, (at, out), start, payload)
    }

    /// A packet's bytes once more; a drop if `arrives` is false.
    pub fn again(&mut self, sent: &Sent, at: u64, arrives: bool) -> u64 {
        self.port = sent.port;
        let out = arrives.then_some(at + DELAY);
        self.transmit(sent.direction, (at, out), sent.bytes.start, &sent.payload).index
    }

    /// A pure acknowledgement.
    pub fn ack(&mut self, direction: Direction, at: u64, arrives: bool) -> u64 {
        let place = self.sent(direction);
        let seq = FIRST[direction as usize].wrapping_add(1).wrapping_add(place);
        self.packet(direction, (at, arrives.then_some(at + DELAY)), seq, 0x10, &[])
    }

    fn transmit(
        &mut self,
        direction: Direction,
        time: (u64, Option<u64>),
        start: u32,
        payload: &[u8],
    ) -> Sent {
        let seq = FIRST[direction as usize].wrapping_add(1).wrapping_add(start);
        let index = self.packet(direction, time, seq, 0x18, payload);
        let bytes = start..start + payload.len() as u32;
        Sent { port: self.port, direction, bytes, payload: payload.to_vec(), index }
    }

    fn of_connection(&self, direction: Direction) -> impl Iterator<Item = (Range<u32>, &PacketRecord)> {
        let mine = move |packet: &&PacketRecord| {
            packet.client_port == self.port && packet.direction == direction && packet.payload > 0
        };
        self.packets.iter().map(|(packet, _)| packet).filter(mine).map(move |packet| {
            let start = packet.seq.wrapping_sub(FIRST[direction as usize].wrapping_add(1));
            (start..start + packet.payload, packet)
        })
    }

    /// Bytes that were sent so far.
    fn sent(&self, direction: Direction) -> u32 {
        self.of_connection(direction).map(|(bytes, _)| bytes.end).max().unwrap_or(0)
    }

    /// What has arrived by `at`: the number of bytes before the first gap, and ranges after it.
    fn come(&self, direction: Direction, at: Time) -> (u32, Vec<Range<u32>>) {
        let arrived = self.of_connection(direction).filter(|(_, packet)| packet.out_at <= at);
        let mut pieces: Vec<Range<u32>> = arrived.map(|(bytes, _)| bytes).collect();
        pieces.sort_by_key(|bytes| bytes.start);
        let (mut end, mut behind): (u32, Vec<Range<u32>>) = (0, Vec::new());
        for piece in pieces {
            match behind.last_mut() {
                _ if piece.start <= end => end = end.max(piece.end),
                Some(last) if last.end == piece.start => last.end = piece.end,
                _ => behind.push(piece),
            }
        }
        (end, behind)
    }

    fn packet(
        &mut self,
        direction: Direction,
        (at, out): (u64, Option<u64>),
        seq: u32,
        flags: u8,
        payload: &[u8],
    ) -> u64 {
        let other = if direction == Up { Down } else { Up };
        let (end, behind) = self.come(other, ms(at));
        let number = |place: u32| FIRST[other as usize].wrapping_add(1).wrapping_add(place);
        let sacks: Vec<(u32, u32)> =
            behind.iter().take(3).map(|block| (number(block.start), number(block.end))).collect();
        let ports = if direction == Up { (self.port, SERVER) } else { (SERVER, self.port) };
        let bytes = tcp_packet(ports, (seq, number(end)), flags, &sacks, payload);
        self.record(direction, (at, out), (seq, payload.len() as u32), bytes)
    }

    /// Adds a packet with this sequence number and payload length; returns its index.
    fn record(
        &mut self,
        direction: Direction,
        (at, out): (u64, Option<u64>),
        (seq, payload): (u32, u32),
        bytes: Vec<u8>,
    ) -> u64 {
        let index = self.indices[direction as usize];
        self.indices[direction as usize] += 1;
        let record = PacketRecord {
            at: ms(at),
            out_at: out.map_or(Time::NEVER, ms),
            index,
            client_port: self.port,
            server_port: SERVER,
            bytes: bytes.len() as u32,
            payload,
            seq,
            direction,
            fate: if out.is_some() { PacketFate::Delivered } else { PacketFate::Scripted },
            marks: Marks::default(),
        };
        self.packets.push((record, bytes));
        index
    }

    /// A UDP datagram, a drop if it does not leave the link; returns its index.
    pub fn datagram(&mut self, direction: Direction, (at, out): (u64, Option<u64>), payload: &[u8]) -> u64 {
        let ports = if direction == Up { (self.port, SERVER) } else { (SERVER, self.port) };
        let length = 8 + payload.len() as u16;
        let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
        bytes[2..4].copy_from_slice(&(20 + length).to_be_bytes());
        for field in [ports.0, ports.1, length, 0] {
            bytes.extend(field.to_be_bytes());
        }
        bytes.extend(payload);
        self.record(direction, (at, out), (0, payload.len() as u32), bytes)
    }

    /// A request on a stream of the current connection: due, and written, at `due`; at `done` its client had received
    /// the whole response.
    pub fn request(&mut self, stream: u32, due: u64, done: u64) -> &mut Sample {
        let id = self.ids.len() as u64;
        self.ids.push(id);
        self.samples.push(Sample {
            connection: u32::from(self.port - 40_000),
            stream: StreamId(stream),
            sent_at: ms(due),
            first_byte_at: ms(done),
            completed_at: ms(done),
            outcome: Outcome::Succeeded,
            status: 200,
            ..Sample::due(ms(due), true)
        });
        self.samples.last_mut().expect("it was just added")
    }

    /// The trace, mutable.
    pub fn packets(&mut self) -> &mut Vec<(PacketRecord, Vec<u8>)> {
        &mut self.packets
    }

    /// The explanations of all requests.
    pub fn waits(&self) -> Waits {
        let mut packets: Vec<&(PacketRecord, Vec<u8>)> = self.packets.iter().collect();
        packets.sort_by_key(|(packet, _)| packet.at);
        let mut record = self.record.clone();
        record.samples = self.samples.iter().copied().collect();
        record.packets = packets.iter().map(|(packet, _)| *packet).collect();
        record.packets.extend(&self.unkept);
        let mut capture = CapturedConnections::new(&self.key_log);
        for (packet, bytes) in packets {
            capture.packet(packet, bytes);
        }
        capture.miss(self.unrecorded);
        capture.explain_above(&record, &self.ids, Duration::ZERO)
    }

    /// The latency breakdown of the request with this index, as text.
    pub fn rendered(&self, request: usize) -> Vec<String> {
        text(&self.waits().breakdowns[request])
    }

    /// What most of a request's time was spent on.
    pub fn dominant(&self, request: usize) -> CauseKind {
        self.waits().breakdowns[request].dominant
    }
}

/// A latency breakdown as text, without parts shorter than a millisecond.
pub fn text(breakdown: &LatencyBreakdown) -> Vec<String> {
    assert!(breakdown.intervals.is_sorted_by(|a, b| a.until == b.from), "there are gaps: {breakdown:?}");
    let millis = |at: Time| at.as_nanos() / 1_000_000;
    let line = |part: &Interval| {
        format!("{}..{} {}", millis(part.from), millis(part.until), Cause::to_string(&part.cause))
    };
    breakdown.intervals.iter().map(line).collect()
}

/// An IPv4 packet with TCP.
fn tcp_packet(
    ports: (u16, u16),
    (seq, ack): (u32, u32),
    flags: u8,
    sacks: &[(u32, u32)],
    payload: &[u8],
) -> Vec<u8> {
    let mut options = Vec::new();
    if flags & 0x02 != 0 {
        options.extend([&[2, 4], &MAX_SEGMENT.to_be_bytes()[..]].concat());
    }
    if !sacks.is_empty() {
        options.extend([1, 1, 5, 2 + 8 * sacks.len() as u8]);
        for (left, right) in sacks {
            options.extend(left.to_be_bytes());
            options.extend(right.to_be_bytes());
        }
    }
    let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
    bytes.extend(ports.0.to_be_bytes());
    bytes.extend(ports.1.to_be_bytes());
    bytes.extend(seq.to_be_bytes());
    bytes.extend(ack.to_be_bytes());
    bytes.extend([((20 + options.len()) * 4) as u8, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.extend(&options);
    bytes.extend(payload);
    let total = (bytes.len() as u16).to_be_bytes();
    bytes[2..4].copy_from_slice(&total);
    bytes
}

/// The client's preface.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame of HTTP/2.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// SETTINGS with one value.
pub fn settings(id: u16, value: u32) -> Vec<u8> {
    frame(4, 0, 0, &[&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
}

/// WINDOW_UPDATE.
pub fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(8, 0, stream, &increment.to_be_bytes())
}

/// HEADERS of a request, `:method: GET` and its id, or of a response, `:status: 200`.
pub fn headers(stream: u32, id: Option<u64>, ends: bool) -> Vec<u8> {
    let mut block = vec![if id.is_some() { 0x82 } else { 0x88 }];
    if let Some(id) = id.map(|id| id.to_string()) {
        block.extend(b"\x00\x0ax-h2lab-id");
        block.push(id.len() as u8);
        block.extend(id.as_bytes());
    }
    frame(1, 0x4 | u8::from(ends), stream, &block)
}

/// DATA.
pub fn data(stream: u32, bytes: usize, ends: bool) -> Vec<u8> {
    frame(0, u8::from(ends), stream, &vec![b'x'; bytes])
}

/// The first flight of a client of HTTP/2.
pub fn hello() -> Vec<u8> {
    [PREFACE, &frame(4, 0, 0, &[])].concat()
}
