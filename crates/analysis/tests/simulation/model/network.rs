//! The link between all clients and all servers, and its packet log.

use h2lab_base::units::Time;
use h2lab_link::{Admission, DirectionTotals, FlowEndpoint, Flows, LinkSpec, Offload, Packet, Passage, Pipe};
use h2lab_model::record::{Marks, PacketFate, PacketRecord};
use h2lab_wire::trace::Direction;

use h2lab_link::tcp::Segment;

/// The port that all servers listen on.
pub const SERVER_PORT: u16 = 8080;
/// The port of the first connection; the others follow.
pub const FIRST_PORT: u16 = 32_768;

/// A segment in flight.
#[derive(Debug)]
struct Carried {
    connection: usize,
    segment: Segment,
    /// Its place in the packet log.
    place: usize,
}

/// Both directions, shared by all connections, as in the lab.
#[derive(Debug)]
pub struct Network {
    up: Pipe<Carried>,
    down: Pipe<Carried>,
    flows: Flows,
    packet_log: Vec<PacketRecord>,
}

impl Network {
    /// A link whose losses are determined by `seed`.
    pub fn new(link: &LinkSpec, seed: u64) -> Self {
        let (up, down) = link.pipes(seed, Time::ZERO);
        Self { up, down, flows: Flows::of(link), packet_log: Vec::new() }
    }

    /// A segment enters.
    pub fn push(&mut self, now: Time, direction: Direction, connection: usize, segment: &Segment) {
        let client_port = FIRST_PORT.wrapping_add(connection as u16);
        let packet = packet(direction, client_port, segment);
        let Self { up, down, flows, packet_log } = self;
        let pipe = match direction {
            Direction::Up => up,
            Direction::Down => down,
        };
        let record = |index, marks, fate| PacketRecord {
            at: now,
            out_at: Time::NEVER,
            index,
            client_port,
            server_port: SERVER_PORT,
            bytes: packet.bytes,
            payload: packet.payload,
            seq: packet.seq,
            direction,
            fate,
            marks,
        };
        match pipe.admit(now, &packet, flows.number(&packet)) {
            Admission::Dropped { index, cause } => {
                packet_log.push(record(index, Marks::default(), cause.into()));
            }
            Admission::Passes { original, copy } => {
                for passage in std::iter::once(original).chain(copy) {
                    let Passage { index, marks, .. } = passage;
                    let (place, segment) = (packet_log.len(), segment.clone());
                    packet_log.push(record(index, marks, PacketFate::InFlight));
                    if let Err(cause) = pipe.enqueue(passage, Carried { connection, segment, place }) {
                        packet_log[place].fate = cause.into();
                    }
                }
            }
        }
    }

    /// When the next segment leaves the link.
    pub fn next_at(&self) -> Time {
        self.up.next_at().min(self.down.next_at())
    }

    /// Takes out a segment that is due at `now`: its direction and connection.
    pub fn poll(&mut self, now: Time) -> Option<(Direction, usize, Segment)> {
        loop {
            let (direction, (due, carried)) = match self.up.poll(now) {
                Some(out) => (Direction::Up, out),
                None => (Direction::Down, self.down.poll(now)?),
            };
            for pipe in [&mut self.up, &mut self.down] {
                while let Some((_, cause, carried)) = pipe.poll_dropped() {
                    self.packet_log[carried.place].fate = cause.into();
                }
            }
            let entry = &mut self.packet_log[carried.place];
            (entry.out_at, entry.fate) = (due, PacketFate::Delivered);
            // A wrong checksum: the receiver drops it.
            if entry.arrived_intact() {
                return Some((direction, carried.connection, carried.segment));
            }
        }
    }

    /// The totals of both directions, up and down, and the packet log.
    pub fn into_parts(self) -> (DirectionTotals, DirectionTotals, Vec<PacketRecord>) {
        (self.up.totals(), self.down.totals(), self.packet_log)
    }
}

/// A segment as a packet of the link. The addresses are reserved for documentation (RFC 5737); nothing depends on them.
fn packet(direction: Direction, client_port: u16, segment: &Segment) -> Packet {
    let end = |host, port| FlowEndpoint { address: [192, 0, 2, host].into(), port };
    let (client, server) = (end(1, client_port), end(2, SERVER_PORT));
    let (source, destination) = match direction {
        Direction::Up => (client, server),
        Direction::Down => (server, client),
    };
    Packet {
        source,
        destination,
        protocol: 6,
        bytes: segment.bytes(),
        payload: segment.payload.len() as u32,
        seq: segment.seq as u32, // as on the wire: modulo 2^32
        flags: flags(segment),
        offload: Offload::default(),
    }
}

/// The TCP flags of a segment (RFC 9293 §3.1): all segments but the first have ACK.
fn flags(segment: &Segment) -> u8 {
    let [fin, syn, rst, ack] = [0x01, 0x02, 0x04, 0x10];
    let is_first = segment.syn && segment.ack == 0;
    [(segment.fin, fin), (segment.syn, syn), (segment.rst, rst), (!is_first, ack)]
        .into_iter()
        .filter(|(is_set, _)| *is_set)
        .fold(0, |flags, (_, flag)| flags | flag)
}
