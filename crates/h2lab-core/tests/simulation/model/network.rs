//! The link between all clients and all servers, and its ledger.

use h2lab_core::link::{DirectionTotals, Endpoint, LinkSpec, Offload, Packet, Pipe, Verdict};
use h2lab_core::record::{PacketFate, PacketRecord};
use h2lab_core::trace::Direction;
use h2lab_core::units::Time;

use crate::tcp::Segment;

/// The port that all servers listen on.
pub const SERVER_PORT: u16 = 8080;
/// The port of the first connection; the others follow.
pub const FIRST_PORT: u16 = 32_768;

/// A segment on its way.
#[derive(Debug)]
struct Carried {
    connection: usize,
    segment: Segment,
    /// Its place in the ledger.
    place: usize,
}

/// Both directions, shared by all connections, as in the lab.
#[derive(Debug)]
pub struct Network {
    up: Pipe<Carried>,
    down: Pipe<Carried>,
    ledger: Vec<PacketRecord>,
}

impl Network {
    /// A link that loses what `seed` says.
    pub fn new(link: &LinkSpec, seed: u64) -> Self {
        let (up, down) = link.pipes(seed);
        Self { up, down, ledger: Vec::new() }
    }

    /// A segment enters.
    pub fn push(&mut self, now: Time, direction: Direction, connection: usize, segment: Segment) {
        let client_port = FIRST_PORT.wrapping_add(connection as u16);
        let packet = packet(direction, client_port, &segment);
        let place = self.ledger.len();
        let pipe = match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        };
        let index = pipe.totals().packets_in;
        let fate = match pipe.push(now, &packet, Carried { connection, segment, place }) {
            Verdict::Queued => PacketFate::InFlight,
            Verdict::Lost => PacketFate::Lost,
            Verdict::TailDropped => PacketFate::TailDropped,
        };
        self.ledger.push(PacketRecord {
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
        });
    }

    /// When the next segment comes out.
    pub fn next_at(&self) -> Time {
        self.up.next_at().min(self.down.next_at())
    }

    /// Takes out a segment that is due at `now`: where it was bound, and for which connection.
    pub fn poll(&mut self, now: Time) -> Option<(Direction, usize, Segment)> {
        let (direction, (due, carried)) = match self.up.poll(now) {
            Some(out) => (Direction::Up, out),
            None => (Direction::Down, self.down.poll(now)?),
        };
        let entry = &mut self.ledger[carried.place];
        (entry.out_at, entry.fate) = (due, PacketFate::Delivered);
        Some((direction, carried.connection, carried.segment))
    }

    /// The totals of both directions, up and down, and the ledger.
    pub fn into_parts(self) -> (DirectionTotals, DirectionTotals, Vec<PacketRecord>) {
        (self.up.totals(), self.down.totals(), self.ledger)
    }
}

/// A segment as the link sees it. The addresses are those of documentation (RFC 5737); nothing depends on them.
fn packet(direction: Direction, client_port: u16, segment: &Segment) -> Packet {
    let end = |host, port| Endpoint { address: [192, 0, 2, host].into(), port };
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
        offload: Offload::default(),
    }
}
