//! The facts of the hop that crosses the link, in a cell with a sidecar: the generator's connections end at the
//! sidecar, and the packets on the link belong to another connection.

use std::collections::BTreeSet;
use std::time::Duration;

use super::facts::{Flows, flow_holes, flows, quickest_answer};
use h2lab_base::units::Time;
use h2lab_model::record::CellRecord;
use h2lab_wire::StreamId;
use h2lab_wire::trace::facts::stalls;
use h2lab_wire::trace::{Direction, Facts, Flight, Hole};

/// The index of the sidecar's connection in these facts.
const HOP: u32 = 0;

/// Holes and stalls of the sidecar's connection over the link, with all requests on it. `None` without a sidecar, and
/// if the sidecar used several connections: it is not recorded which request was sent on which of them.
pub(super) fn of(record: &CellRecord) -> Option<Facts> {
    let link = record.link.as_ref().and(record.cell.link.as_ref())?;
    let protocol = record.cell.protocol;
    if record.cell.sidecar.is_none() || protocol.is_quic() || !protocol.is_multiplexed() {
        return None;
    }
    let data = record.packets.iter().filter(|packet| packet.payload > 0);
    let ports: BTreeSet<u16> = data.map(|packet| packet.client_port).collect();
    let [port] = ports.into_iter().collect::<Vec<u16>>()[..] else { return None };
    let rtt = link.rtt();
    let quickest = quickest_answer(record).max(rtt);
    let (up, down) = (link.uplink.delay, link.downlink.delay);
    let flows = flows(record, up, down, |packet| (packet.client_port == port).then_some(HOP));
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
    facts.holes.sort_by_key(|hole| hole.begin);
    let sent = record.samples.iter().filter(|sample| sample.sent_at.happened());
    let flight = |(n, sample): (u32, h2lab_model::record::Sample)| Flight {
        connection: HOP,
        // The sidecar's own stream numbers are not known; any distinct numbers will do.
        stream: StreamId::of_request(n),
        sent_at: sample.sent_at,
        due_at: sample.sent_at + quickest,
        ended_at: sample.completed_at,
    };
    facts.flights = (0..).zip(sent).map(flight).collect();
    facts.flights.sort_by_key(|flight| flight.sent_at);
    let readable = readable(&flows);
    facts.stalls = stalls(HOP, &readable, &facts.flights, facts.least_stall());
    Some(facts)
}

/// When the sidecar could read something from the server, in order: data behind a hole waits for the repair of the
/// hole.
fn readable(flows: &Flows<'_>) -> Vec<Time> {
    let Some(flow) = flows.get(&(HOP, Direction::Down)) else { return Vec::new() };
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
