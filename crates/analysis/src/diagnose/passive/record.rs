//! Connections of a capture as repetitions: one of each server and protocol.

use std::collections::BTreeMap;
use std::time::Duration;

use super::connection::{Finished, Handshake, Read, Unused};
use super::exchanges::End;
use h2lab_base::counters::{TcpSummary, TcpTick};
use h2lab_base::spans::most_at_once;
use h2lab_base::units::Time;
use h2lab_link::{FlowEndpoint, LinkSpec};
use h2lab_model::record::{CellRecord, CloseReason, ConnectionRecord, Sample};
use h2lab_model::scenario::{Axis, Cell, LiveTarget, Scenario};
use h2lab_model::workload::{Arrival, Protocol};
use h2lab_wire::trace::{Dialect, FrameEvent};

/// A request that is sent this soon after its connection was ready is taken to have waited for it.
const SOON: Duration = Duration::from_millis(5);
/// By how much the delay to the client, taken from its handshake, may be too long in each direction: a kernel takes
/// some time to acknowledge.
const INEXACT: Duration = Duration::from_micros(100);
/// The congestion window of an end that is not visible, in segments: nothing is concluded from it.
const UNKNOWN_WINDOW: u32 = u32::MAX;

/// The repetitions, the one with most requests first. `link` is this run's own, if the capture is of that link: then it
/// has everything that the client did.
pub(super) fn of(connections: Vec<Finished>, is_full: bool, link: Option<&LinkSpec>) -> Vec<CellRecord> {
    let mut groups: BTreeMap<(FlowEndpoint, Protocol), Vec<Finished>> = BTreeMap::new();
    let mut unused: BTreeMap<(FlowEndpoint, bool), Vec<Unused>> = BTreeMap::new();
    for mut connection in connections {
        if let Some(one) = connection.unused.take() {
            unused.entry((one.server, one.is_tls)).or_default().push(*one);
        }
        if let Some(read) = &connection.read {
            groups.entry((read.server, protocol(read))).or_default().push(connection);
        }
    }
    let requests = |group: &[Finished]| {
        group
            .iter()
            .filter_map(|one| one.read.as_ref())
            // In a whole run at least one request is lost if all were refused.
            .map(|read| read.exchanges.samples.len() + link.map_or(0, |_| read.exchanges.refused.len()))
            .sum::<usize>()
    };
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(requests(group)));
    let groups = groups.into_iter().filter(|(_, group)| requests(group) > 0);
    groups
        .enumerate()
        .filter_map(|(index, ((server, protocol), group))| {
            let cell = Cell { link: link.cloned(), ..cell(index as u32, &server, protocol)? };
            let mut record = record(cell, group, is_full);
            // Elsewhere they may be of other programs than HTTP clients: checks of whether a port is open.
            if link.is_some() && protocol.is_multiplexed() {
                let unused = unused.remove(&(server, protocol.is_tls())).unwrap_or_default();
                for (index, one) in (record.connections.len() as u32..).zip(unused) {
                    record.connections.push(ConnectionRecord { index, ..one.record });
                }
            }
            Some(record)
        })
        .collect()
}

const fn protocol(read: &Read) -> Protocol {
    match (read.dialect, read.is_tls) {
        (Dialect::Http1, false) => Protocol::H1,
        (Dialect::Http1, true) => Protocol::H1s,
        (_, false) => Protocol::H2c,
        (_, true) => Protocol::H2,
    }
}

/// The cell of a server that a client other than ours talked to: a live server.
fn cell(index: u32, server: &FlowEndpoint, protocol: Protocol) -> Option<Cell> {
    let scheme = if protocol.is_tls() { "https" } else { "http" };
    let address = std::net::SocketAddr::new(server.address, server.port);
    let url = format!("{scheme}://{address}");
    let live = LiveTarget { url, path: "/".to_owned(), protocols: Axis::one(protocol) };
    let mut scenario = Scenario { repetitions: 1, ..Scenario::default() };
    scenario.matrix.live = vec![live];
    scenario.matrix.protocols = Axis::one(protocol);
    scenario.matrix.connections = Axis::one(1.into());
    let mut cell = scenario.plan().into_iter().next()?;
    (cell.index, cell.group) = (index, index);
    Some(cell)
}

fn record(cell: Cell, group: Vec<Finished>, is_full: bool) -> CellRecord {
    let is_all = cell.link.is_some();
    let mut record = CellRecord::empty(cell);
    let mut samples: Vec<Sample> = Vec::new();
    let (mut refused, mut uploaded): (Vec<Sample>, u64) = (Vec::new(), 0);
    let mut under_way: Vec<(Time, Time)> = Vec::new();
    for Finished { read, up, down, handshake, .. } in group {
        let Some(read) = read else { continue };
        let index = record.connections.len() as u32;
        let mut connection = read.exchanges.record;
        connection.index = index;
        connection.closed = closed(read.end);
        let rtt_us = handshake.map_or(0, |handshake| micros(handshake.round_trip()));
        connection.tcp_client = Some(summary(rtt_us, up.again, up.segments, down.segments));
        record.tcp.extend(ticks(index, rtt_us, &connection, &read.repeats));
        let rtt = handshake.as_ref().map_or(Duration::ZERO, Handshake::round_trip);
        // A client that sends its next request when a response ends must not seem to have both in flight.
        let inexact = handshake.map_or(Duration::ZERO, |handshake| handshake.to_client.min(INEXACT));
        let spans = read.exchanges.samples.iter();
        under_way
            .extend(spans.map(|sample| (sample.sent_at, sample.sent_at.max(sample.completed_at - inexact))));
        // The kernel may hold a request until the end of the TLS handshake is acknowledged (RFC 896, Nagle), which a
        // server delays that has nothing to send.
        let soon = (connection.ready_at + SOON.max(rtt)).max(read.acked_at + SOON);
        samples.extend(samples_of(&connection, read.exchanges.samples, soon));
        if !is_full {
            let own = |frame| FrameEvent { connection: index, ..frame };
            record.frames.extend(read.exchanges.frames.into_iter().map(own));
        }
        let of_connection = |sample| Sample { connection: index, ..sample };
        refused.extend(read.exchanges.refused.into_iter().map(of_connection));
        uploaded += read.exchanges.uploaded;
        record.connections.push(connection);
    }
    if is_all {
        samples.extend(lost(&samples, refused));
    }
    samples.sort_by_key(|sample| sample.scheduled_at);
    record.frames.sort_by_key(|frame| frame.at);
    record.tcp.sort_by_key(|tick| tick.at);
    record.started_at = samples.first().map_or(Time::ZERO, |first| first.scheduled_at);
    record.cell.connections = at_a_time(&record.connections);
    record.cell.max_connections = record.cell.connections;
    record.cell.work.body_bytes = uploaded / (samples.len() as u64).max(1);
    record.cell.work.body = None;
    let last = samples.iter().map(|sample| sample.completed_at).max().unwrap_or(Time::ZERO);
    record.cell.work.phases.warmup = Duration::ZERO;
    record.cell.work.phases.measure = last.since(record.started_at);
    // It is unknown when requests were due: they are treated as a closed loop with the concurrency that occurred.
    record.cell.work.arrival = Arrival::Closed { concurrency: most_at_once(under_way.into_iter()) };
    for (number, sample) in samples.into_iter().enumerate() {
        record.samples.push(&Sample { number: number as u32, ..sample });
    }
    record
}

/// Refused requests that were certainly not sent again: the number by which they exceed the requests that were sent
/// later. It is unknown which ones these are; the last ones are taken.
fn lost(samples: &[Sample], mut refused: Vec<Sample>) -> Vec<Sample> {
    refused.sort_by_key(|sample| sample.completed_at);
    let Some(first) = refused.first().map(|sample| sample.completed_at) else { return refused };
    let later = samples.iter().chain(&refused).filter(|sample| sample.sent_at > first).count();
    refused.split_off(later.min(refused.len()))
}

/// The requests of a connection. The first one is taken to have waited for the connection, if it was sent as soon as
/// possible: not later than `soon`.
fn samples_of(connection: &ConnectionRecord, samples: Vec<Sample>, soon: Time) -> Vec<Sample> {
    let first = samples.iter().map(|sample| sample.stream).min();
    let begins = connection.dialled_at;
    let own = |sample: Sample| {
        let mut sample = Sample { connection: connection.index, ..sample };
        if Some(sample.stream) == first && sample.sent_at <= soon && begins.happened() {
            sample.scheduled_at = begins.min(sample.sent_at);
            sample.stall_open_ns = sample.sent_at.nanos_since(sample.scheduled_at);
        }
        sample
    };
    samples.into_iter().map(own).collect()
}

pub(super) fn closed(end: End) -> CloseReason {
    match end {
        End::Client => CloseReason::Local { why: "the client closed it".to_owned() },
        End::Server => CloseReason::Server,
        End::Reset => CloseReason::Reset { why: "a reset of TCP".to_owned() },
        End::Capture => CloseReason::Cell,
    }
}

fn summary(rtt_us: u32, retransmits: u32, segments_out: u32, segments_in: u32) -> TcpSummary {
    TcpSummary { retransmits, rtt_us, min_rtt_us: rtt_us, segments_out, segments_in, ..TcpSummary::default() }
}

/// Retransmissions as the counters of the ends would show them: a reading just before each, and one after it.
fn ticks(
    index: u32,
    rtt_us: u32,
    connection: &ConnectionRecord,
    repeats: &[(Time, bool)],
) -> impl Iterator<Item = TcpTick> {
    let mut counts = [0_u32; 2];
    let mut ticks = Vec::with_capacity(2 * repeats.len());
    let begin = connection.connected_at;
    for &(at, server) in repeats {
        let count = &mut counts[usize::from(server)];
        let at = at.max(begin);
        let tick = |at: Time, retransmits: u32| TcpTick {
            at,
            connection: index,
            retransmits,
            cwnd: UNKNOWN_WINDOW,
            rtt_us,
            unacked: 0,
            server,
        };
        ticks.push(tick(at - Duration::from_micros(1), *count));
        *count += 1;
        ticks.push(tick(at, *count));
    }
    ticks.into_iter()
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX).max(1)
}

/// The most connections with requests that were open at a time; at least 1.
fn at_a_time(connections: &[ConnectionRecord]) -> u32 {
    let used = connections.iter().filter(|connection| connection.requests > 0);
    most_at_once(used.map(|connection| (connection.connected_at, connection.closed_at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(sent: u64, completed: u64) -> Sample {
        let mut sample = Sample::due(Time::from_millis(sent), true);
        (sample.sent_at, sample.completed_at) = (Time::from_millis(sent), Time::from_millis(completed));
        sample
    }

    #[test]
    fn what_was_refused_is_lost_unless_as_much_was_sent_later() {
        let refused = || vec![sample(100, 140), sample(110, 140)];
        let lost = |others: &[Sample], refused| lost(others, refused).len();
        assert_eq!(lost(&[sample(90, 130)], refused()), 2);
        assert_eq!(lost(&[sample(140, 150)], refused()), 2, "sent before the client knew");
        assert_eq!(lost(&[sample(141, 150)], refused()), 1);
        assert_eq!(lost(&[sample(141, 150), sample(142, 150), sample(143, 150)], refused()), 0);
        let again = refused().into_iter().chain([sample(150, 160)]).collect();
        assert_eq!(lost(&[], again), 2, "one was sent again, and refused again");
        assert_eq!(lost(&[], Vec::new()), 0);
    }
}
