//! The facts of the hop that crosses the link, in a cell with a sidecar: the generator's connections end at the
//! sidecar, and the packets on the link belong to other connections.

use std::collections::BTreeMap;
use std::time::Duration;

use super::facts::{Flows, flow_holes, flows, quickest_answer};
use super::waits::held::{Held, held};
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, Sample};
use h2lab_wire::StreamId;
use h2lab_wire::trace::facts::stalls;
use h2lab_wire::trace::{Direction, Facts, Flight, Hole};

/// One of this many data packets may be sent out of turn: a connection that carried only its handshake, and the last
/// answers of a connection that another one follows.
const OUT_OF_TURN: usize = 20;

/// Holes and stalls of the sidecar's connections over the link, with all requests on them. `None` without a sidecar,
/// and if several of them carried data at the same time: it is not recorded which request was sent on which.
pub(super) fn of(record: &CellRecord) -> Option<Facts> {
    let link = record.link.as_ref().and(record.cell.link.as_ref())?;
    let protocol = record.cell.protocol;
    if record.cell.sidecar.is_none() || protocol.is_quic() || !protocol.is_multiplexed() {
        return None;
    }
    let turns = Turns::of(record)?;
    let rtt = link.rtt();
    let quickest = quickest_answer(record).max(rtt);
    let (up, down) = (link.uplink.delay, link.downlink.delay);
    let flows = flows(record, up, down, |packet| turns.of_port(packet.client_port));
    let mut facts = Facts { rtt, quickest, has_packet_log: true, ..Facts::default() };
    for ((connection, direction), flow) in &flows {
        let felt = if *direction == Direction::Up { quickest.saturating_sub(up) } else { Duration::ZERO };
        facts.holes.extend(flow_holes(flow).map(|(packet, begin, end)| Hole {
            connection: *connection,
            direction: *direction,
            dropped_at: packet.at,
            begin: begin + felt,
            end: end + felt,
        }));
    }
    facts.holes.sort_by_key(|hole| (hole.connection, hole.begin));
    let sent = record.samples.iter().filter(|sample| sample.sent_at.happened());
    let flight = |(n, sample): (u32, Sample)| Flight {
        connection: turns.at(sample.sent_at),
        // The sidecar's own stream numbers are not known; any distinct numbers will do.
        stream: StreamId::of_request(n),
        sent_at: sample.sent_at,
        due_at: sample.sent_at + quickest,
        ended_at: sample.completed_at,
    };
    facts.flights = (0..).zip(sent).map(flight).collect();
    facts.flights.sort_by_key(|flight| (flight.connection, flight.sent_at));
    for (connection, _) in turns.ports() {
        let readable = readable(&flows, connection);
        let its = stalls(connection, &readable, facts.flights_of(connection), facts.least_stall());
        facts.stalls.extend(its);
    }
    Some(facts)
}

/// When the congestion window of either end of these connections held back data after a loss, in the order in which
/// the times begin. `rtt` is the path's round trip without queueing.
pub(super) fn held_back(record: &CellRecord, rtt: Duration) -> Vec<Held> {
    let Some(turns) = Turns::of(record) else { return Vec::new() };
    let mut all: Vec<Held> = Vec::new();
    for its in turns.ports() {
        all.extend(held(record, its, Direction::Up, rtt));
        all.extend(held(record, its, Direction::Down, rtt));
    }
    all.sort_by_key(|held| held.from);
    all
}

/// The sidecar's connections over the link that took turns: each request was sent on the one that began last.
#[derive(Debug)]
struct Turns {
    /// When each first sent data, and its port; in order.
    begun: Vec<(Time, u16)>,
}

impl Turns {
    fn of(record: &CellRecord) -> Option<Self> {
        let data = || record.packets.iter().filter(|packet| packet.payload > 0);
        let mut ports: BTreeMap<u16, (usize, Time)> = BTreeMap::new();
        for packet in data() {
            let (count, first) = ports.entry(packet.client_port).or_insert((0, packet.at));
            *count += 1;
            *first = packet.at.min(*first);
        }
        let all = data().count();
        let mut spare = all / OUT_OF_TURN;
        let mut by_size: Vec<(usize, Time, u16)> =
            ports.into_iter().map(|(port, (count, first))| (count, first, port)).collect();
        by_size.sort_unstable();
        // Those with the fewest packets come first.
        by_size.retain(|(count, ..)| {
            let is_left_out = *count <= spare;
            spare -= if is_left_out { *count } else { 0 };
            !is_left_out
        });
        let mut begun: Vec<(Time, u16)> = by_size.into_iter().map(|(_, first, port)| (first, port)).collect();
        begun.sort_unstable();
        let turns = Self { begun };
        let is_out_of_turn = |port: u16, at: Time| turns.of_port(port) != Some(turns.at(at));
        let others = data().filter(|packet| is_out_of_turn(packet.client_port, packet.at)).count();
        (all > 0 && others <= all / OUT_OF_TURN).then_some(turns)
    }

    /// The connection whose turn it was at a time, by its place.
    fn at(&self, at: Time) -> u32 {
        self.begun.partition_point(|(first, _)| *first <= at).saturating_sub(1) as u32
    }

    /// The connection from this port; `None` if it was left out.
    fn of_port(&self, port: u16) -> Option<u32> {
        self.ports().find(|(_, its)| *its == port).map(|(connection, _)| connection)
    }

    /// Each connection and its port.
    fn ports(&self) -> impl Iterator<Item = (u32, u16)> {
        (0..).zip(self.begun.iter().map(|(_, port)| *port))
    }
}

/// When the sidecar could read something from the server on a connection, in order: data behind a hole waits for the
/// repair of the hole.
fn readable(flows: &Flows<'_>, connection: u32) -> Vec<Time> {
    let Some(flow) = flows.get(&(connection, Direction::Down)) else { return Vec::new() };
    let holes: Vec<(Time, Time)> = flow_holes(flow).map(|(_, begin, end)| (begin, end)).collect();
    let arrived = flow.iter().filter(|segment| segment.packet.arrived_intact()).map(|segment| segment.left);
    let at_reader = |left: Time| {
        holes
            .iter()
            .filter(|(begin, end)| *begin <= left && left < *end)
            .map(|(_, end)| *end)
            .fold(left, Time::max)
    };
    let mut readable: Vec<Time> = arrived.map(at_reader).filter(|at| at.happened()).collect();
    readable.sort_unstable();
    readable
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::testing::Scene;
    use h2lab_model::scenario::Sidecar;
    use h2lab_model::workload::Protocol;

    /// Data from the server on connections to the link at these milliseconds: how many of them carried the requests.
    fn connections(data: &[(u32, u64)]) -> Option<usize> {
        let scene = Scene::new(Protocol::H2c).connections(9).request(0, 1, 100, 125, 125);
        let numbered = (0..).zip(data);
        let scene = numbered.fold(scene, |scene, (n, &(connection, at))| {
            scene.deliver(Direction::Down, connection, at, 1_400 * n)
        });
        let mut record = scene.record();
        record.cell.sidecar = Some(Sidecar { name: "haproxy".to_owned(), warm_pool: 3, max_connections: 3 });
        of(&record)?;
        Turns::of(&record).map(|turns| turns.begun.len())
    }

    #[test]
    fn requests_are_assigned_to_connections_that_took_turns_and_not_to_several_at_a_time() {
        let (one, three) = ([(5, 110), (5, 120)], [(5, 110), (6, 120), (6, 130), (7, 140)]);
        assert_eq!([connections(&one), connections(&three)], [Some(1), Some(3)]);
        assert_eq!(connections(&[(5, 110), (6, 120), (5, 130)]), None);
        assert_eq!(connections(&[]), None);
    }

    #[test]
    fn a_connection_with_one_of_twenty_packets_carried_no_requests() {
        let beside = |others: u64| {
            let most = (0..others).map(|n| (5, 110 + 2 * n));
            connections(&most.chain([(6, 111)]).collect::<Vec<_>>())
        };
        assert_eq!([beside(19), beside(18)], [Some(1), None]);
    }
}
