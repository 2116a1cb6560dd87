//! Builds the [`Facts`] of a repetition from its record.

mod cut;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_link::LinkSpec;
use h2lab_model::record::{
    CellRecord, CloseReason, ConnectionRecord, GoAwayRecord, Level, PacketRecord, Sample,
};
use h2lab_wire::trace::facts::stalls;
use h2lab_wire::trace::{
    Direction, Facts, Flight, FrameEvent, FrameKind, Hole, Retransmission, ServerEnd, Stall,
};
use h2lab_wire::{ErrorCode, StreamId};

/// The `last_stream` of the first of two GOAWAYs of a server that shuts down gracefully: it announces the second (RFC
/// 9113 §6.8).
pub(super) const ANNOUNCEMENT: u32 = 0x7fff_ffff;

/// A server that closes because of a request closes this soon after it, or within a round trip. An idle timeout comes
/// seconds later.
const SOON: Duration = Duration::from_millis(50);

/// Requests that are sent within this time may arrive at the server together.
const TOGETHER: Duration = Duration::from_millis(1);

/// Bytes of a body: if this many arrived in a period, assuming an even rate, the body is taken to have been read in
/// that period.
const READ: u64 = 256 << 10;

/// The facts of a repetition.
pub fn of(record: &CellRecord) -> Facts {
    let rtt = round_trip(record);
    let quickest = quickest_answer(record).max(rtt);
    let mut facts = Facts {
        rtt,
        quickest,
        has_packet_log: packet_log(record).is_some(),
        holes: holes(record, quickest),
        retransmissions: retransmissions(record),
        ..Facts::default()
    };
    facts.flights = flights(record, quickest, &disturbed(record, &facts));
    let arrivals = arrivals(record, &facts.flights);
    let carried = carried(record, &facts.flights);
    let cut = cut::cut_in_a_burst(record);
    for connection in &record.connections {
        let flights = facts.flights_of(connection.index);
        let mut stalls = arrivals.as_ref().map_or_else(Vec::new, |arrivals| {
            let arrivals = arrivals.get(&connection.index).map_or(&[][..], Vec::as_slice);
            stalls(connection.index, arrivals, flights, facts.least_stall())
        });
        if record.frames.is_empty() && !stalls.is_empty() {
            retain_unread(&mut stalls, record);
        }
        let requests = Requests::of(connection, carried.as_ref());
        let mut end = server_end(connection, requests, flights, (rtt, quickest));
        if let Some(end) = end.as_mut().filter(|end| cut.contains(&end.connection)) {
            end.answered = end.answered.max(end.requests.saturating_sub(1));
        }
        facts.stalls.extend(stalls);
        facts.ends.extend(end);
    }
    facts
}

/// The path's round trip without queueing; zero if unknown.
fn round_trip(record: &CellRecord) -> Duration {
    if let Some(link) = &record.cell.link {
        return link.rtt();
    }
    let ends = record.connections.iter().filter_map(ConnectionRecord::min_rtt_us);
    let lowest = ends.chain(record.tcp.iter().map(|tick| tick.rtt_us));
    Duration::from_micros(lowest.filter(|&rtt| rtt > 0).min().unwrap_or(0).into())
}

/// The shortest time from a request to the first byte of its answer.
pub(super) fn quickest_answer(record: &CellRecord) -> Duration {
    record.samples.iter().filter_map(|sample| sample.time_to_first_byte()).min().unwrap_or_default()
}

/// The connections on which a segment was missing, or that the server may have ended.
fn disturbed(record: &CellRecord, facts: &Facts) -> BTreeSet<u32> {
    let holes = facts.holes.iter().map(|hole| hole.connection);
    let retransmissions = facts.retransmissions.iter().map(|step| step.connection);
    let may_be_ended = |c: &&ConnectionRecord| !c.goaways.is_empty() || c.closed == CloseReason::Server;
    let ended = record.connections.iter().filter(may_be_ended).map(|connection| connection.index);
    holes.chain(retransmissions).chain(ended).collect()
}

fn flights(record: &CellRecord, quickest: Duration, connections: &BTreeSet<u32>) -> Vec<Flight> {
    if connections.is_empty() {
        return Vec::new();
    }
    let is_needed = |sample: &Sample| sample.sent_at.happened() && connections.contains(&sample.connection);
    let heads = heads_of_replayed(record);
    let sent = record.samples.iter().filter(is_needed);
    let mut flights: Vec<Flight> = sent
        .map(|sample| {
            let last = heads.get(&(sample.connection, sample.stream)).copied();
            let sent_at = last.unwrap_or(sample.sent_at).max(sample.sent_at);
            Flight {
                connection: sample.connection,
                stream: sample.stream,
                sent_at,
                due_at: sent_at + quickest,
                ended_at: sample.completed_at,
            }
        })
        .collect();
    flights.sort_by_key(|flight| (flight.connection, flight.sent_at));
    flights
}

/// When requests that were sent again were sent on the connection that they are recorded with: their own record has the
/// time at which they were first sent on any connection. If no frames were recorded, the time is when that connection
/// was ready.
fn heads_of_replayed(record: &CellRecord) -> BTreeMap<(u32, StreamId), Time> {
    let replayed = record.samples.iter().filter(|sample| sample.replays > 0);
    let mut heads: BTreeMap<(u32, StreamId), Time> = replayed
        .filter_map(|sample| {
            let ready_at = record.connection(sample.connection)?.ready_at;
            ready_at.happened().then_some(((sample.connection, sample.stream), ready_at))
        })
        .collect();
    let is_head = |frame: &&FrameEvent| frame.direction == Direction::Up && frame.kind == FrameKind::HEADERS;
    // The first HEADERS is the head; others are trailers.
    for frame in record.frames.iter().rev().filter(is_head) {
        if let Some(at) = heads.get_mut(&(frame.connection, frame.stream)) {
            *at = frame.at;
        }
    }
    heads
}

/// When anything arrived from the server on each connection, in order: its frames if they were recorded, else the first
/// and last bytes of the answers (`load` records no frames). `None` if only some of the requests were recorded, or for
/// bulk work: something may have arrived in between.
fn arrivals(record: &CellRecord, flights: &[Flight]) -> Option<BTreeMap<u32, Vec<Time>>> {
    let mut arrivals: BTreeMap<u32, Vec<Time>> = BTreeMap::new();
    if !record.frames.is_empty() {
        for frame in record.frames.iter().filter(|frame| frame.direction == Direction::Down) {
            arrivals.entry(frame.connection).or_default().push(frame.at);
        }
        return Some(arrivals);
    }
    let connections: BTreeSet<u32> = flights.iter().map(|flight| flight.connection).collect();
    for sample in record.samples.iter().filter(|sample| connections.contains(&sample.connection)) {
        let seen = [sample.first_byte_at, sample.completed_at].into_iter().filter(|at| at.happened());
        arrivals.entry(sample.connection).or_default().extend(seen);
    }
    for times in arrivals.values_mut() {
        times.sort_unstable();
    }
    // Bodies of bulk work do not end: no response waits, and the arrival times of their bytes are not recorded.
    (record.generator.level == Level::Full && !record.cell.work.bulk).then_some(arrivals)
}

/// Leaves out the times in which bodies were read, as far as that is known without frames: what arrived between the
/// first and the last byte of a response was not recorded, and for a long response that is much.
fn retain_unread(stalls: &mut Vec<Stall>, record: &CellRecord) {
    let connection = stalls[0].connection;
    let is_long = |sample: &Sample| {
        sample.connection == connection && sample.first_byte_at.happened() && sample.body_bytes >= READ
    };
    let long: Vec<Sample> = record.samples.iter().filter(is_long).collect();
    stalls.retain(|stall| {
        let length = stall.end.since(stall.begin).as_secs_f64();
        let is_read = |sample: &Sample| {
            let took = sample.completed_at.since(sample.first_byte_at).as_secs_f64();
            let spans = sample.first_byte_at <= stall.begin && sample.completed_at >= stall.end;
            spans && sample.body_bytes as f64 * length >= READ as f64 * took
        };
        !long.iter().any(is_read)
    });
}

/// A data packet of a flow.
#[derive(Clone, Copy)]
pub(super) struct Segment<'a> {
    pub packet: &'a PacketRecord,
    /// When it left the link, or would have if it had not been dropped: after its delay, and never before the packet
    /// in front of it.
    pub left: Time,
    /// No earlier packet carried these bytes.
    is_new: bool,
}

impl Segment<'_> {
    fn is_dropped(&self) -> bool {
        self.packet.fate.is_drop() || self.packet.marks.corrupt.is_some()
    }

    /// Whether all of its bytes are before this sequence number, which wraps around.
    const fn ends_before(&self, seq: u32) -> bool {
        self.packet.seq.wrapping_add(self.packet.payload).wrapping_sub(seq).cast_signed() <= 0
    }

    /// Whether it delivered the byte with this sequence number.
    fn brought(&self, seq: u32) -> bool {
        self.packet.arrived_intact() && seq.wrapping_sub(self.packet.seq) < self.packet.payload
    }
}

/// The data packets of each connection and direction, in the order in which they entered the link.
pub(super) type Flows<'a> = BTreeMap<(u32, Direction), Vec<Segment<'a>>>;

/// The link whose packet log has the packets of the repetition's connections. Behind a sidecar the log has the
/// sidecar's own packets, and a port that is equal on both hops is equal by chance.
fn packet_log(record: &CellRecord) -> Option<&LinkSpec> {
    record.link.as_ref().filter(|_| record.cell.sidecar.is_none())?;
    record.cell.link.as_ref()
}

/// Finds what each dropped segment held up.
fn holes(record: &CellRecord, quickest: Duration) -> Vec<Hole> {
    let Some(link) = packet_log(record) else { return Vec::new() };
    // A lost QUIC datagram blocks no other, and its contents are retransmitted in one that cannot be identified.
    if record.cell.protocol.is_quic() {
        return Vec::new();
    }
    let mut holes = Vec::new();
    let flows = flows(record, link.uplink.delay, link.downlink.delay, connection_of(record));
    for ((connection, direction), flow) in &flows {
        // A drop on the uplink affects the client when the answer arrives, or fails to arrive.
        let felt = match direction {
            Direction::Up => quickest.saturating_sub(link.uplink.delay),
            Direction::Down => Duration::ZERO,
        };
        holes.extend(flow_holes(flow).map(|(packet, begin, end)| Hole {
            connection: *connection,
            direction: *direction,
            dropped_at: packet.at,
            begin: begin + felt,
            end: end + felt,
        }));
    }
    holes.sort_by_key(|hole| (hole.connection, hole.begin));
    holes
}

/// The generator's connection that a packet belongs to.
fn connection_of(record: &CellRecord) -> impl Fn(&PacketRecord) -> Option<u32> {
    let mut by_port: BTreeMap<u16, Vec<&ConnectionRecord>> = BTreeMap::new();
    for connection in &record.connections {
        by_port.entry(connection.local_port).or_default().push(connection);
    }
    // A port may be reused: take the connection that was dialled last before the packet.
    move |packet: &PacketRecord| {
        let dialled = by_port.get(&packet.client_port)?.iter().filter(|c| c.dialled_at <= packet.at);
        dialled.max_by_key(|connection| connection.dialled_at).map(|connection| connection.index)
    }
}

/// The data packets of connections; `connection_of` returns the connection of a packet.
pub(super) fn flows(
    record: &CellRecord,
    up_delay: Duration,
    down_delay: Duration,
    connection_of: impl Fn(&PacketRecord) -> Option<u32>,
) -> Flows<'_> {
    let mut flows = Flows::new();
    let mut last_left: BTreeMap<Direction, Time> = BTreeMap::new();
    for packet in &record.packets {
        let delay = if packet.direction == Direction::Up { up_delay } else { down_delay };
        let in_front = last_left.entry(packet.direction).or_default();
        let left = if packet.out_at.happened() { packet.out_at } else { (packet.at + delay).max(*in_front) };
        *in_front = left.max(*in_front);
        let Some(connection) = connection_of(packet).filter(|_| packet.payload > 0) else { continue };
        let flow = flows.entry((connection, packet.direction)).or_default();
        // Sequence numbers wrap around, so "beyond" is a signed difference (RFC 9293 §3.4).
        let beyond = |last: &Segment<'_>| packet.seq.wrapping_sub(last.packet.seq).cast_signed() > 0;
        let is_new = flow.iter().rfind(|segment| segment.is_new).is_none_or(beyond);
        flow.push(Segment { packet, left, is_new });
    }
    flows
}

/// The drops of a flow, each with the time at which it would have arrived and the time at which all of its bytes had
/// arrived. Bytes that had been delivered before, by a transmission that this one needlessly repeated, leave no hole.
pub(super) fn flow_holes<'a>(flow: &[Segment<'a>]) -> impl Iterator<Item = (&'a PacketRecord, Time, Time)> {
    flow.iter().enumerate().filter(|(_, segment)| segment.is_dropped()).filter_map(|(n, segment)| {
        let first = segment.packet.seq;
        let last = first.wrapping_add(segment.packet.payload - 1);
        // A packet sent before new data that ends before `seq` has only older bytes.
        let is_newer = |other: &&Segment<'_>, seq: u32| !(other.is_new && other.ends_before(seq));
        let came_before = |seq| {
            flow[..n].iter().rev().take_while(|other| is_newer(other, seq)).any(|other| other.brought(seq))
        };
        if !segment.is_new && came_before(first) && came_before(last) {
            return None;
        }
        let repair = |seq| {
            flow[n + 1..].iter().find(|other| other.brought(seq)).map_or(Time::NEVER, |other| other.left)
        };
        Some((segment.packet, segment.left, repair(first).max(repair(last))))
    })
}

fn retransmissions(record: &CellRecord) -> Vec<Retransmission> {
    let mut last: BTreeMap<(u32, bool), (Time, u32)> = BTreeMap::new();
    let mut steps = Vec::new();
    for tick in &record.tcp {
        let opened = || record.connection(tick.connection).map_or(tick.at, |it| it.connected_at);
        let (after, before) = last.entry((tick.connection, tick.server)).or_insert_with(|| (opened(), 0));
        if tick.retransmits > *before {
            steps.push(Retransmission {
                connection: tick.connection,
                after: *after,
                until: tick.at,
                segments: tick.retransmits - *before,
                server: tick.server,
            });
        }
        (*after, *before) = (tick.at, tick.retransmits);
    }
    steps.sort_by_key(|step| (step.connection, step.server, step.until));
    steps
}

/// The retransmissions of one end of a connection, in order.
pub(super) fn retransmissions_of(facts: &Facts, connection: u32, server: bool) -> &[Retransmission] {
    let of = |step: &Retransmission| (step.connection, step.server);
    let from = facts.retransmissions.partition_point(|step| of(step) < (connection, server));
    let until = facts.retransmissions.partition_point(|step| of(step) <= (connection, server));
    &facts.retransmissions[from..until]
}

/// How many requests a connection had: those that were sent again on another connection are not counted.
#[derive(Debug, Clone, Copy, Default)]
struct Requests {
    sent: u32,
    answered: u32,
}

impl Requests {
    /// The counter of the connection includes requests that were sent again: it is used if not every request was
    /// recorded.
    fn of(connection: &ConnectionRecord, carried: Option<&BTreeMap<u32, Self>>) -> Self {
        let most = connection.requests;
        let Some(carried) = carried else { return Self { sent: most, answered: most } };
        let Self { sent, answered } = carried.get(&connection.index).copied().unwrap_or_default();
        Self { sent: sent.min(most), answered: answered.min(most) }
    }
}

/// How many requests were last sent, and how many answered, on each connection that has `flights`; `None` if only some requests
/// were recorded.
fn carried(record: &CellRecord, flights: &[Flight]) -> Option<BTreeMap<u32, Requests>> {
    let mut carried: BTreeMap<u32, Requests> =
        flights.iter().map(|flight| (flight.connection, Requests::default())).collect();
    if record.generator.level != Level::Full || carried.is_empty() {
        return None;
    }
    for sample in record.samples.iter().filter(|sample| sample.sent_at.happened()) {
        if let Some(requests) = carried.get_mut(&sample.connection) {
            requests.sent += 1;
            requests.answered += u32::from(sample.first_byte_at.happened());
        }
    }
    Some(carried)
}

/// How the server ended a connection with these requests, if it did so gracefully.
fn server_end(
    connection: &ConnectionRecord,
    requests: Requests,
    flights: &[Flight],
    (rtt, quickest): (Duration, Duration),
) -> Option<ServerEnd> {
    let orderly = |goaway: &&GoAwayRecord| ErrorCode(goaway.code) == ErrorCode::NO_ERROR;
    let goaways = || connection.goaways.iter().filter(orderly);
    if let Some(last) = goaways().rfind(|goaway| goaway.last_stream != ANNOUNCEMENT) {
        return Some(end_by_goaway(connection, last, flights, quickest.saturating_sub(rtt)));
    }
    if let Some(announcement) = goaways().next() {
        return end_by_announcement(connection, announcement, requests.sent, flights, rtt);
    }
    if connection.closed != CloseReason::Server {
        return None;
    }
    let last = flights.iter().map(|flight| flight.ended_at).filter(|at| *at <= connection.closed_at).max()?;
    let idle = connection.closed_at.since(last);
    let end = || server_end_at(connection, connection.closed_at, requests.answered, idle, false);
    (idle <= SOON.max(rtt)).then(end)
}

fn server_end_at(
    connection: &ConnectionRecord,
    at: Time,
    requests: u32,
    idle: Duration,
    goaway: bool,
) -> ServerEnd {
    let age = at.since(connection.connected_at);
    let (least, answered) = (requests, requests);
    ServerEnd { connection: connection.index, at, requests, least, answered, idle, age, goaway }
}

/// The end by a GOAWAY that names the last request; the server takes `work` for one request.
fn end_by_goaway(
    connection: &ConnectionRecord,
    goaway: &GoAwayRecord,
    flights: &[Flight],
    work: Duration,
) -> ServerEnd {
    let last = flights.iter().find(|flight| flight.stream.0 == goaway.last_stream);
    let idle = last.map_or(Duration::ZERO, |flight| goaway.at.since(flight.ended_at));
    // Refused streams were sent again as others, and no server counts them.
    let is_refusal = |(code, _): &&(u32, u32)| ErrorCode(*code) == ErrorCode::REFUSED_STREAM;
    let refused: u32 = connection.resets_received.iter().filter(is_refusal).map(|(_, count)| *count).sum();
    let requests = nth(goaway.last_stream).saturating_sub(refused);
    let end = server_end_at(connection, goaway.at, requests, idle, true);
    let answered = match last {
        Some(last) => Some(nth(first_with(last, flights, work)) - 1),
        None => {
            let before = flights.iter().filter(|flight| flight.ended_at <= goaway.at);
            before.map(|flight| flight.stream.0).filter(|stream| *stream <= goaway.last_stream).max().map(nth)
        }
    };
    let answered = answered.map_or(end.answered, |answered| answered.saturating_sub(refused));
    ServerEnd { answered, ..end }
}

/// The first stream for which the server may have ended the connection. When it sent the GOAWAY, it had received the
/// last stream; it may have decided while it processed one that arrived together with that, even if it answered some of
/// them before the GOAWAY.
fn first_with(last: &Flight, flights: &[Flight], work: Duration) -> u32 {
    let is_with = |flight: &&Flight| {
        flight.stream <= last.stream
            && flight.ended_at > last.sent_at
            && flight.sent_at + work + TOGETHER >= last.sent_at
    };
    flights.iter().filter(is_with).map(|flight| flight.stream.0).min().unwrap_or(last.stream.0)
}

/// The end by a GOAWAY with the highest stream id that no other followed: the server accepted requests until the client
/// received it, and left it to the client to close the connection (Envoy does so). It was sent before the server could
/// have received the last requests, and after the last that it had answered.
fn end_by_announcement(
    connection: &ConnectionRecord,
    goaway: &GoAwayRecord,
    requests: u32,
    flights: &[Flight],
    rtt: Duration,
) -> Option<ServerEnd> {
    let begun = flights.iter().filter(|flight| flight.sent_at <= goaway.at);
    let newest = begun.clone().map(|flight| flight.sent_at).max()?;
    let answered = begun.filter(|flight| flight.ended_at <= goaway.at).map(|flight| flight.stream.0).max()?;
    let idle = goaway.at.since(newest + rtt);
    // After the GOAWAY we sent no request.
    let end = server_end_at(connection, goaway.at, requests, idle, true);
    let least = nth(answered).min(end.requests);
    Some(ServerEnd { least, answered: least, ..end })
}

/// The n-th stream of a client has the id 2n - 1 (RFC 9113 §5.1.1).
const fn nth(stream: u32) -> u32 {
    stream.div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Scene;
    use super::*;
    use h2lab_model::scenario::Sidecar;
    use h2lab_model::workload::Protocol;

    const UP: Direction = Direction::Up;
    const DOWN: Direction = Direction::Down;

    fn scene() -> Scene {
        Scene::new(Protocol::H2c)
    }

    fn micros(at: Time) -> u64 {
        at.as_nanos() / 1_000
    }

    /// The holes of a scene as begin and end in microseconds.
    fn holes_of(scene: Scene) -> Vec<(u64, u64)> {
        of(&scene.record()).holes.iter().map(|hole| (micros(hole.begin), micros(hole.end))).collect()
    }

    #[test]
    fn a_hole_lasts_from_when_the_packet_would_have_come_to_when_its_bytes_did() {
        let scene = scene().drop(DOWN, 0, 100, 1_000).deliver(DOWN, 0, 130, 1_000);
        assert_eq!(holes_of(scene), [(112_500, 142_500)]);
    }

    #[test]
    fn an_uplink_hole_is_felt_when_the_answer_would_have_come() {
        let scene = scene().drop(UP, 0, 100, 1_000).deliver(UP, 0, 130, 1_000);
        assert_eq!(holes_of(scene), [(125_000, 155_000)]);
    }

    #[test]
    fn a_packet_behind_a_queue_would_have_come_after_it() {
        let mut record = scene().deliver(DOWN, 0, 99, 0).drop(DOWN, 0, 100, 1_000).record();
        record.packets[0].out_at = Time::from_millis(150);
        assert_eq!(micros(of(&record).holes[0].begin), 150_000);
    }

    #[test]
    fn a_retransmission_that_is_lost_too_leaves_the_hole_open() {
        let lost_twice = scene().drop(DOWN, 0, 100, 1_000).drop(DOWN, 0, 130, 1_000);
        assert_eq!(holes_of(lost_twice.clone())[0].0, 112_500);
        assert_eq!(of(&lost_twice.clone().record()).holes[0].end, Time::NEVER);
        let repaired = lost_twice.deliver(DOWN, 0, 330, 1_000);
        assert_eq!(holes_of(repaired), [(112_500, 342_500), (142_500, 342_500)]);
    }

    #[test]
    fn a_needless_retransmission_or_a_bare_acknowledgement_leaves_no_hole() {
        let needless = scene().deliver(DOWN, 0, 90, 1_000).drop(DOWN, 0, 100, 1_000);
        assert_eq!(holes_of(needless), []);
        let mut bare = scene().drop(DOWN, 0, 100, 1_000).record();
        bare.packets[0].payload = 0;
        assert_eq!(of(&bare).holes, []);
    }

    #[test]
    fn sequence_numbers_wrap_around() {
        let mut record =
            scene().drop(DOWN, 0, 100, u32::MAX - 10).deliver(DOWN, 0, 130, u32::MAX - 10).record();
        assert!(record.packets[0].payload > 11, "it crosses the boundary");
        assert_eq!(micros(of(&record).holes[0].end), 142_500);
        // Repaired in two parts: the later one ends the hole.
        record.packets[1].payload = 11;
        let mut rest = record.packets[1];
        (rest.seq, rest.payload, rest.out_at) = (0, 1_400, Time::from_millis(150));
        record.packets.push(rest);
        assert_eq!(micros(of(&record).holes[0].end), 150_000);
    }

    #[test]
    fn a_port_that_is_used_again_names_the_later_connection() {
        let mut record = Scene::new(Protocol::H1).connections(2).drop(DOWN, 0, 500, 1).record();
        record.connections[1].local_port = record.connections[0].local_port;
        record.connections[1].dialled_at = Time::from_millis(400);
        assert_eq!(of(&record).holes[0].connection, 1);
        record.connections[1].dialled_at = Time::from_millis(501);
        assert_eq!(of(&record).holes[0].connection, 0);
    }

    #[test]
    fn behind_a_sidecar_the_packet_log_has_connections_of_others_whatever_their_ports() {
        let mut record = Scene::with_shared_stall().record();
        assert!(of(&record).has_packet_log && !of(&record).holes.is_empty());
        let name = "envoy".to_owned();
        record.cell.sidecar = Some(Sidecar { name, warm_pool: 1, max_connections: 1 });
        assert!(!of(&record).has_packet_log && of(&record).holes.is_empty());
    }

    #[test]
    fn retransmissions_are_steps_of_either_end() {
        let scene = scene().no_link().tick(0, 10, 0, false).tick(0, 20, 2, false).tick(0, 30, 2, false);
        let steps = of(&scene.tick(0, 30, 1, true).record()).retransmissions;
        let seen: Vec<_> =
            steps.iter().map(|s| (micros(s.after), micros(s.until), s.segments, s.server)).collect();
        assert_eq!(seen, [(10_000, 20_000, 2, false), (0, 30_000, 1, true)]);
    }

    #[test]
    fn requests_are_gathered_of_connections_that_lost_a_segment_or_that_the_server_ended() {
        let answered = || scene().connections(2).request(0, 1, 100, 125, 125).request(1, 1, 100, 125, 125);
        let gathered = |scene: Scene| {
            let flights = of(&scene.record()).flights;
            flights.into_iter().map(|flight| flight.connection).collect::<Vec<_>>()
        };
        assert_eq!(gathered(answered()), [0; 0]);
        assert_eq!(gathered(answered().drop(DOWN, 1, 110, 1_000)), [1]);
        assert_eq!(gathered(answered().no_link().tick(0, 10, 0, false).tick(0, 20, 2, false)), [0]);
        assert_eq!(gathered(answered().goaway(1, 200, 1, 0)), [1]);
        assert_eq!(gathered(answered().closed_by_server(0, 175)), [0]);
    }

    #[test]
    fn a_server_ends_a_connection_by_goaway_or_by_closing_right_after_a_response() {
        let answered = || scene().request(0, 1, 100, 125, 125);
        let ends = |scene: Scene| {
            of(&scene.record()).ends.iter().map(|end| (end.requests, end.goaway)).collect::<Vec<_>>()
        };
        assert_eq!(ends(answered()), []);
        assert_eq!(ends(answered().goaway(0, 200, 1_999, 0)), [(1_000, true)]);
        assert_eq!(
            ends(answered().goaway(0, 200, ANNOUNCEMENT, 0).goaway(0, 230, 1_999, 0)),
            [(1_000, true)]
        );
        assert_eq!(ends(scene().goaway(0, 200, ANNOUNCEMENT, 0)), [], "of no request is anything known");
        assert_eq!(ends(answered().goaway(0, 200, 1_999, 11)), [], "ENHANCE_YOUR_CALM is no orderly end");
        assert_eq!(ends(answered().closed_by_server(0, 175)), [(1, false)]);
        assert_eq!(ends(answered().closed_by_server(0, 176)), [], "an idle timeout, later than 50 ms");
    }

    #[test]
    fn a_request_that_was_sent_again_elsewhere_is_none_of_the_connection_that_ended() {
        let answered = scene().request(0, 1, 100, 125, 125).request(0, 3, 130, 155, 155);
        let requests = |scene: Scene, level: Level| {
            let mut record = scene.record();
            record.connections[0].requests = 3;
            record.generator.level = level;
            of(&record).ends[0].requests
        };
        let closed = || answered.clone().closed_by_server(0, 160);
        assert_eq!(requests(closed(), Level::Full), 2);
        assert_eq!(requests(closed(), Level::Tail), 3, "not every request was recorded");
        assert_eq!(requests(answered.clone().goaway(0, 200, ANNOUNCEMENT, 0), Level::Full), 2);
    }

    #[test]
    fn refused_streams_are_no_requests_of_a_connection() {
        let requests = |resets: &[(u32, u32)]| {
            let mut record = scene().request(0, 1, 100, 125, 125).goaway(0, 200, 1_999, 0).record();
            record.connections[0].resets_received = resets.to_vec();
            of(&record).ends[0].requests
        };
        assert_eq!(requests(&[]), 1_000);
        assert_eq!(requests(&[(7, 3), (8, 5)]), 997, "but those that were reset otherwise are");
    }

    #[test]
    fn an_announced_end_is_after_what_was_answered_and_not_after_what_was_begun() {
        let scene =
            scene().request(0, 1, 100, 125, 125).request(0, 3, 110, 140, 140).request(0, 5, 130, 155, 155);
        let end = |at: u64| {
            let mut record = scene.clone().goaway(0, at, ANNOUNCEMENT, 0).record();
            record.connections[0].requests = if at < 130 { 2 } else { 3 };
            let end = of(&record).ends.remove(0);
            (end.least, end.requests, end.idle.as_millis())
        };
        assert_eq!(end(125), (1, 2, 0));
        assert_eq!(end(140), (2, 3, 0));
        assert_eq!(end(200), (3, 3, 45), "a round trip of 25 ms after the last");
    }

    #[test]
    fn an_end_knows_for_how_long_its_last_request_had_been_answered() {
        let idle = |scene: Scene| of(&scene.record()).ends[0].idle.as_millis();
        let answered = || scene().request(0, 1, 100, 125, 130).request(0, 3, 110, 135, 180);
        assert_eq!(idle(answered().goaway(0, 150, 1, 0)), 20);
        assert_eq!(idle(answered().goaway(0, 150, 3, 0)), 0, "it is still under way");
        assert_eq!(idle(answered().goaway(0, 150, 1_999, 0)), 0, "not known");
        assert_eq!(idle(answered().closed_by_server(0, 200)), 20);
    }

    #[test]
    fn without_a_link_the_round_trip_is_the_lowest_that_tcp_saw() {
        let mut record = scene().no_link().tick(0, 10, 0, false).record();
        record.tcp[0].rtt_us = 31_000;
        assert_eq!(of(&record).rtt, Duration::from_millis(31));
        assert!(!of(&record).has_packet_log);
        assert_eq!(of(&scene().record()).rtt, Duration::from_millis(25));
    }
}
