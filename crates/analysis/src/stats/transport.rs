//! Totals of TCP, the link and the generator in a cell, its repetitions pooled.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Latency;
use super::tallied::{self, Tallies};
use h2lab_base::JsonSchema;
use h2lab_base::counters::{QuicSummary, TcpSummary};
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, ConnectionRecord, PacketRecord, Sample};
use h2lab_model::workload::Arrival;
use h2lab_wire::trace::Direction;
use serde::{Deserialize, Serialize};

/// One end of the cell's connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TcpEnd {
    /// Segments that this end sent again.
    pub retransmits: u64,
    /// Median smoothed round-trip time.
    pub rtt_us_p50: u32,
    /// Median congestion window, in segments.
    pub cwnd_p50: u32,
    /// Congestion control as reported by the kernel.
    pub congestion_control: String,
}

impl TcpEnd {
    /// The client's or the server's end; `None` if no connection has data on it.
    pub(super) fn of(repetitions: &[&CellRecord], server: bool) -> Option<Self> {
        let ends: Vec<&TcpSummary> = repetitions
            .iter()
            .flat_map(|repetition| &repetition.connections)
            .filter_map(|c| if server { c.tcp_server.as_ref() } else { c.tcp_client.as_ref() })
            .collect();
        let ticks: Vec<(u32, u32)> = repetitions
            .iter()
            .flat_map(|repetition| &repetition.tcp)
            .filter(|tick| tick.server == server)
            .map(|tick| (tick.rtt_us, tick.cwnd))
            .collect();
        // Final values are used if nothing was sampled while the cell ran.
        let seen =
            if ticks.is_empty() { ends.iter().map(|end| (end.rtt_us, end.cwnd)).collect() } else { ticks };
        let names: std::collections::BTreeSet<&str> =
            ends.iter().map(|end| end.congestion_control.as_str()).collect();
        (!ends.is_empty()).then(|| Self {
            retransmits: ends.iter().map(|end| u64::from(end.retransmits)).sum(),
            rtt_us_p50: median(seen.iter().map(|&(rtt, _)| rtt)),
            cwnd_p50: median(seen.iter().map(|&(_, cwnd)| cwnd)),
            congestion_control: names.into_iter().collect::<Vec<_>>().join("+"),
        })
    }
}

/// Our end of the cell's QUIC connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuicEnd {
    /// Packets that it sent, including acknowledgements.
    pub packets_sent: u64,
    /// Those of them that it declared lost; their contents were sent again in other packets.
    pub packets_lost: u64,
    /// UDP datagrams sent.
    pub datagrams_sent: u64,
    /// UDP datagrams received.
    pub datagrams_received: u64,
    /// Median over connections of the smoothed round-trip time when they ended.
    pub rtt_us_p50: u32,
    /// Median over connections of the congestion window when they ended, in bytes.
    pub cwnd_bytes_p50: u64,
    /// The longest datagram that the path can carry, as discovered, in bytes of UDP payload.
    pub mtu: u16,
    /// Congestion control of this end.
    pub congestion_control: String,
}

impl QuicEnd {
    /// Our end; `None` if no connection was QUIC.
    pub(super) fn of(repetitions: &[&CellRecord]) -> Option<Self> {
        let ends: Vec<&QuicSummary> = repetitions
            .iter()
            .flat_map(|repetition| &repetition.connections)
            .filter_map(|connection| connection.quic_client.as_ref())
            .collect();
        let sum = |count: fn(&QuicSummary) -> u64| ends.iter().map(|end| count(end)).sum();
        let names: std::collections::BTreeSet<&str> =
            ends.iter().map(|end| end.congestion_control.as_str()).collect();
        (!ends.is_empty()).then(|| Self {
            packets_sent: sum(|end| end.packets_sent),
            packets_lost: sum(|end| end.packets_lost),
            datagrams_sent: sum(|end| end.datagrams_sent),
            datagrams_received: sum(|end| end.datagrams_received),
            rtt_us_p50: median(ends.iter().map(|end| end.rtt_us)),
            cwnd_bytes_p50: median(ends.iter().map(|end| end.cwnd_bytes)),
            mtu: ends.iter().map(|end| end.mtu).max().unwrap_or(0),
            congestion_control: names.into_iter().collect::<Vec<_>>().join("+"),
        })
    }
}

/// The lower median; 0 if there are no values.
fn median<T: Copy + Ord + Default>(values: impl Iterator<Item = T>) -> T {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

/// Totals of the emulated link.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinkTotals {
    /// Packets dropped on the uplink, for any cause.
    pub dropped_up: u64,
    /// The same, downlink.
    pub dropped_down: u64,
    /// Those of both directions that were dropped because the queue was full.
    pub tail_dropped: u64,
    /// Packets that entered, both directions.
    pub packets: u64,
    /// How late packets left, relative to their due time: the worst repetition's 99th percentile.
    pub late_p99: Duration,
}

impl LinkTotals {
    /// The sum over repetitions; `None` over a real network.
    pub(super) fn of(repetitions: &[&CellRecord]) -> Option<Self> {
        let links: Vec<_> = repetitions.iter().filter_map(|repetition| repetition.link.as_ref()).collect();
        (!links.is_empty()).then(|| Self {
            dropped_up: links.iter().map(|link| link.up.dropped()).sum(),
            dropped_down: links.iter().map(|link| link.down.dropped()).sum(),
            tail_dropped: links.iter().map(|link| link.up.tail_dropped + link.down.tail_dropped).sum(),
            packets: links.iter().map(|link| link.up.packets_in + link.down.packets_in).sum(),
            late_p99: Duration::from_nanos(links.iter().map(|link| link.late_p99_ns).max().unwrap_or(0)),
        })
    }
}

/// The figures of the generator.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GeneratorTotals {
    /// CPU time per request begun, in microseconds.
    pub cpu_us_per_request: f64,
    /// Of that, time in which it busy-waited for the request to be due.
    pub awake_us_per_request: f64,
    /// By how much the generator itself delayed requests, without the wait for a connection or a slot.
    pub lateness: Latency,
    /// Threads that generated load.
    pub threads: u32,
    /// Its peak memory, in bytes; 0 if unknown.
    pub peak_bytes: u64,
    /// Of that, bytes for each connection before the first request, and for each request in flight of a closed loop;
    /// only if there are so many that the rest of the process does not matter.
    pub bytes_each: (Option<u64>, Option<u64>),
}

/// The number of connections from which on their memory can be distinguished from everything else, such as threads and
/// tables.
const MANY_CONNECTIONS: u32 = 100;
/// The same for requests in flight.
const MANY_REQUESTS: u32 = 1_000;

/// See [`GeneratorTotals::bytes_each`].
fn bytes_each(repetition: &CellRecord) -> (Option<u64>, Option<u64>) {
    let memory = &repetition.generator.memory;
    let connections = repetition.cell.as_generated().connections;
    let in_flight = match repetition.cell.work.arrival {
        Arrival::Closed { concurrency } => concurrency,
        _ => 0,
    };
    let each = |more: u64, less: u64, n: u32, least: u32| {
        (n >= least && less > 0).then(|| more.saturating_sub(less) / u64::from(n))
    };
    (
        each(memory.connected, memory.before, connections, MANY_CONNECTIONS),
        each(memory.peak, memory.connected, in_flight, MANY_REQUESTS),
    )
}

impl GeneratorTotals {
    /// The generator over all repetitions.
    pub(super) fn of(repetitions: &[&CellRecord], tallies: &Tallies<'_>) -> Self {
        let cpu_ns: u64 = repetitions.iter().map(|repetition| repetition.generator.cpu_ns).sum();
        let awake_ns: u64 = repetitions.iter().map(|repetition| repetition.generator.awake_ns).sum();
        let sent: u64 = tallies.all().map(|tally| tally.counts.sent).sum();
        Self {
            cpu_us_per_request: cpu_ns as f64 / 1e3 / sent.max(1) as f64,
            awake_us_per_request: awake_ns as f64 / 1e3 / sent.max(1) as f64,
            lateness: tallied::LATENESS.of(repetitions),
            threads: repetitions.iter().map(|repetition| repetition.generator.threads).max().unwrap_or(0),
            peak_bytes: repetitions
                .iter()
                .map(|repetition| repetition.generator.memory.peak)
                .max()
                .unwrap_or(0),
            bytes_each: repetitions.first().map(|repetition| bytes_each(repetition)).unwrap_or_default(),
        }
    }
}

/// The size of one request on the wire, on average.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PerRequest {
    /// Bytes of a request, head and body, as passed to the transport; `None` if too many were cut to know.
    pub bytes_up: Option<f64>,
    /// TCP data segments, or UDP datagrams, per request, client to server: from the packet log, else from the client's
    /// `TCP_INFO` or QUIC. Retransmissions are included, and with QUIC also acknowledgements, which cannot be
    /// distinguished. `None` if neither source is available.
    pub segments_up: Option<f64>,
}

impl PerRequest {
    /// The average over the requests of these repetitions, including the warm-up. If more than a hundredth of them was
    /// cut, such as uploads that a server does not read, only connections without cut requests count.
    pub(super) fn of(repetitions: &[&CellRecord]) -> Self {
        let mut sums = Sums::default();
        for repetition in repetitions {
            let cut =
                |sample: &Sample| !sample.outcome.is_complete() && sample.connection != Sample::NO_CONNECTION;
            let all: u64 = repetition.connections.iter().map(|c| u64::from(c.requests)).sum();
            let cut: Vec<u32> =
                repetition.samples.iter().filter(cut).map(|sample| sample.connection).collect();
            let is_exact = cut.len() as u64 * 100 <= all;
            let cut: BTreeSet<u32> = cut.into_iter().collect();
            let is_whole = |c: &&ConnectionRecord| is_exact || !cut.contains(&c.index);
            sums.add(repetition, &repetition.connections.iter().filter(is_whole).collect::<Vec<_>>());
        }
        let each = |total: u64| (sums.requests > 0).then(|| total as f64 / sums.requests as f64);
        Self {
            bytes_up: each(sums.bytes),
            segments_up: each(sums.segments).filter(|segments| *segments > 0.0),
        }
    }
}

/// What some connections carried.
#[derive(Debug, Default)]
struct Sums {
    requests: u64,
    bytes: u64,
    segments: u64,
}

impl Sums {
    fn add(&mut self, repetition: &CellRecord, connections: &[&ConnectionRecord]) {
        self.requests += connections.iter().map(|c| u64::from(c.requests)).sum::<u64>();
        self.bytes += connections.iter().map(|c| c.bytes_sent).sum::<u64>();
        let is_data = |p: &&PacketRecord| p.direction == Direction::Up && p.payload > 0;
        if repetition.packets.iter().any(|packet| is_data(&packet)) {
            // Without ports, as behind a sidecar, a packet may belong to any connection.
            let all = connections.len() == repetition.connections.len();
            let ports: BTreeSet<u16> = connections.iter().map(|c| c.local_port).collect();
            let of_these = |p: &&PacketRecord| is_data(p) && (all || ports.contains(&p.client_port));
            self.segments += repetition.packets.iter().filter(of_these).count() as u64;
            return;
        }
        let in_tcp =
            |c: &ConnectionRecord| c.tcp_client.as_ref().map_or(0, |tcp| u64::from(tcp.segments_out));
        let in_quic = |c: &ConnectionRecord| c.quic_client.as_ref().map_or(0, |quic| quic.datagrams_sent);
        self.segments += connections.iter().map(|c| in_tcp(c) + in_quic(c)).sum::<u64>();
    }
}

/// The round-trip time of the path: the link's, else the smallest that any of our sockets measured; zero if unknown.
pub(super) fn round_trip(repetitions: &[&CellRecord]) -> Duration {
    if let Some(link) = repetitions.iter().find_map(|repetition| repetition.cell.link.as_ref()) {
        return link.rtt();
    }
    let connections = repetitions.iter().flat_map(|repetition| &repetition.connections);
    let smallest = connections.filter_map(ConnectionRecord::min_rtt_us).min().unwrap_or(0);
    Time::from_micros(u64::from(smallest)).since(Time::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_base::counters::TcpTick;
    use h2lab_model::record::testing::{Model, cell, one_repetition};
    use h2lab_model::record::{GeneratorMemory, Outcome};
    use h2lab_model::workload::Protocol;

    fn lossy(packets: bool) -> CellRecord {
        one_repetition(&cell(0, 0, Protocol::H2c, 4, 0.03), 0, &Model { packets, ..Model::LOSSY })
    }

    #[test]
    fn memory_is_reported_of_each_where_there_are_many() {
        let mut record = lossy(false);
        record.generator.memory = GeneratorMemory { before: 10_000, connected: 1_010_000, peak: 5_010_000 };
        let reported = |connections, concurrency| {
            let mut record = record.clone();
            record.cell.connections = connections;
            record.cell.work.arrival = Arrival::Closed { concurrency };
            GeneratorTotals::of(&[&record], &Tallies::of(&[&record])).bytes_each
        };
        assert_eq!(reported(100, 1_000), (Some(10_000), Some(4_000)));
        assert_eq!(reported(99, 999), (None, None));
        record.generator.memory = GeneratorMemory::default();
        assert_eq!(GeneratorTotals::of(&[&record], &Tallies::of(&[&record])).bytes_each, (None, None));
    }

    #[test]
    fn segments_per_request_come_from_the_packet_log_and_else_from_tcp() {
        let (with, without) = (lossy(true), lossy(false));
        assert_eq!(PerRequest::of(&[&with]).segments_up, Some(2.0));
        assert_eq!(PerRequest::of(&[&without]).segments_up, Some(2.0));
        let mut blind = without;
        blind.connections.iter_mut().for_each(|c| c.tcp_client = None);
        assert_eq!(PerRequest::of(&[&blind]).segments_up, None);
    }

    #[test]
    fn requests_that_were_cut_do_not_make_the_others_smaller() {
        let record = lossy(true);
        let usual = PerRequest::of(&[&record]);
        let size = usual.bytes_up.unwrap();
        // The uploads of one connection are begun and not read.
        let stuck = |share: usize, connections: std::ops::Range<u32>| {
            let mut record = record.clone();
            let of_these = |sample: &&mut Sample| connections.contains(&sample.connection);
            for sample in record.samples.edit().iter_mut().filter(of_these).step_by(share) {
                sample.outcome = Outcome::Timeout;
            }
            for connection in record.connections.iter_mut().filter(|c| connections.contains(&c.index)) {
                connection.bytes_sent /= 100;
            }
            PerRequest::of(&[&record])
        };
        assert_eq!(stuck(1, 0..1), usual, "the others");
        assert_eq!(stuck(1, 0..1_000), PerRequest { bytes_up: None, segments_up: None }, "none is whole");
        assert!(stuck(1_000, 0..1_000).bytes_up.unwrap() < size / 50.0, "few were cut: all count");
    }

    #[test]
    fn an_end_that_was_never_seen_is_absent_and_ticks_win_over_last_words() {
        let mut record = lossy(false);
        record.connections.iter_mut().for_each(|c| c.tcp_server = None);
        let tick = |cwnd| TcpTick {
            at: Time::ZERO,
            connection: 0,
            retransmits: 0,
            cwnd,
            rtt_us: 26_000,
            unacked: 0,
            server: false,
        };
        record.tcp = vec![tick(4), tick(6), tick(30)];
        assert_eq!(TcpEnd::of(&[&record], true), None);
        let client = TcpEnd::of(&[&record], false).unwrap();
        assert_eq!((client.cwnd_p50, client.rtt_us_p50), (6, 26_000));
        assert_eq!(client.congestion_control, "cubic");
    }

    #[test]
    fn quic_is_distinguished_from_tcp() {
        let mut record = lossy(false);
        assert_eq!(QuicEnd::of(&[&record]), None);
        for (n, connection) in (0..).zip(&mut record.connections) {
            connection.tcp_client = None;
            connection.quic_client = Some(QuicSummary {
                packets_sent: 10,
                packets_lost: n,
                datagrams_sent: 9,
                cwnd_bytes: 1_000 * n,
                min_rtt_us: 24_800,
                congestion_control: "bbr".to_owned(),
                ..QuicSummary::default()
            });
        }
        let end = QuicEnd::of(&[&record]).unwrap();
        assert_eq!((end.packets_sent, end.packets_lost, end.cwnd_bytes_p50), (40, 6, 1_000));
        assert_eq!(end.congestion_control, "bbr");
        assert_eq!(TcpEnd::of(&[&record], false), None);
        record.cell.link = None;
        assert_eq!(round_trip(&[&record]), Duration::from_micros(24_800));
        assert!(PerRequest::of(&[&record]).segments_up.is_some());
    }

    #[test]
    fn the_round_trip_is_the_links_or_the_smallest_that_a_socket_saw() {
        let mut record = lossy(false);
        record.connections[2].tcp_client.as_mut().unwrap().min_rtt_us = 24_900;
        assert_eq!(round_trip(&[&record]), Duration::from_millis(25));
        record.cell.link = None;
        assert_eq!(round_trip(&[&record]), Duration::from_micros(24_900));
        record.connections.clear();
        assert_eq!(round_trip(&[&record]), Duration::ZERO);
    }
}
