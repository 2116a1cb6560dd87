//! The entry point: takes the packets of a link one by one, then explains a repetition.

use std::collections::BTreeMap;
use std::time::Duration;

use super::causes::Delays;
use super::connection::{Connection, Traced};
use super::explain::{Waits, explain};
use super::quic;
use super::segment::Segment;
use super::sending::Timers;
use super::tls::KeyLog;
use crate::stats::response_quantile;
use h2lab_model::record::{CellRecord, PacketRecord};
use h2lab_model::scenario::Sysctls;
use h2lab_model::workload::Protocol;
use h2lab_wire::trace::Direction;

/// By how much the least retransmission timeout exceeds the round trip, by default (Linux's `TCP_RTO_MIN`).
const RTO_MIN: Duration = Duration::from_millis(200);
/// The sysctl that sets it, in microseconds.
const RTO_MIN_SYSCTL: &str = "net.ipv4.tcp_rto_min_us";
/// The share of requests that are not slow.
const NOT_SLOW: f64 = 0.95;

/// All TCP and QUIC connections of a link, reconstructed from its packets.
///
/// Add every packet in the order in which packets entered the link, both directions together, and with the packet log's
/// record *as it is at the end* of the repetition, when the packet's fate is known.
#[derive(Debug, Default)]
pub struct CapturedConnections {
    log: KeyLog,
    /// In the order of their first packets.
    connections: Vec<Connection>,
    /// The latest connection between two ports.
    latest: BTreeMap<(u16, u16), usize>,
    quic: quic::Connections,
    /// Packets so far.
    packets: usize,
    /// Packets that are missing from the capture.
    missed: u64,
    /// The least time that a packet took, by direction.
    least: BTreeMap<Direction, Duration>,
}

impl CapturedConnections {
    /// A capture without packets. `key_log` is the text of a key log (`SSLKEYLOGFILE`, RFC 9850), or of several one after
    /// the other; empty where there is none. Invalid lines are skipped.
    pub fn new(key_log: &str) -> Self {
        Self { log: KeyLog::parse(key_log), ..Self::default() }
    }

    /// Adds the next packet that entered the link. `bytes` begin with its IP header; they are empty or truncated if
    /// they were not kept; after that the connection's streams are unknown.
    pub fn packet(&mut self, record: &PacketRecord, bytes: &[u8]) {
        self.packets += 1;
        let segment = Segment::parse(bytes);
        let ports = (record.client_port, record.server_port);
        if segment.is_none() {
            self.quic.packet(record, bytes, &self.log);
        }
        // Other traffic on the link: packets with bytes that are not TCP, and packets without ports.
        if ports.0 == 0 || (segment.is_none() && (!bytes.is_empty() || record.payload == 0)) {
            return;
        }
        if record.arrived_intact() {
            let transit = record.out_at.since(record.at);
            let least = self.least.entry(record.direction).or_insert(transit);
            *least = transit.min(*least);
        }
        let known = self.latest.get(&ports).copied();
        let is_over = |index: usize| {
            let follows = |segment| self.connections[index].is_followed_by(segment);
            record.direction == Direction::Up && segment.as_ref().is_some_and(follows)
        };
        let index = known.filter(|&index| !is_over(index)).unwrap_or_else(|| {
            self.connections.push(Connection::new(record));
            self.connections.len() - 1
        });
        self.latest.insert(ports, index);
        self.connections[index].packet(record, segment.as_ref(), &self.log);
    }

    /// This many further packets entered that are in no record of the repetition: any packet missing from the others
    /// may be one of these.
    pub const fn miss(&mut self, packets: u64) {
        self.missed += packets;
    }

    /// What the slow requests of the repetition waited for. `ids` has the value of
    /// [`ID_FIELD`](h2lab_model::workload::ID_FIELD) of each of its samples, in their order; it is empty if requests
    /// had none. In a cell without sidecars, connection and stream identify where a request was sent that entered the
    /// link; a request that did not enter it is identified by the ids there, too.
    pub fn explain(self, repetition: &CellRecord, ids: &[u64]) -> Waits {
        let slower_than = response_quantile(repetition, NOT_SLOW);
        self.explain_above(repetition, ids, slower_than)
    }

    /// The same for every measured request that took longer than `slower_than`, for example longer than the 95th
    /// percentile of all repetitions of the cell, rather than of this one.
    pub fn explain_above(self, repetition: &CellRecord, ids: &[u64], slower_than: Duration) -> Waits {
        let observed = |direction| self.least.get(&direction).copied().unwrap_or_default();
        let delays = match &repetition.cell.link {
            Some(link) => Delays::of(link),
            None => Delays::observed(observed(Direction::Up), observed(Direction::Down)),
        };
        let is_whole = self.missed == 0 && self.packets == repetition.packets.len();
        if repetition.cell.protocol == Protocol::H3 {
            return self.quic.explain(is_whole, &delays, repetition, slower_than);
        }
        let timers = Timers { rtt: delays.round_trip(), rto_min: rto_min(&repetition.cell.sysctls) };
        let finish = |connection: Connection| connection.finish(timers);
        let traced: Vec<Traced> = self.connections.into_iter().map(finish).collect();
        explain(&traced, is_whole, &delays, repetition, ids, slower_than)
    }
}

/// The smaller value of both sides: it is not distinguished which side's timer runs.
pub(super) fn rto_min(sysctls: &Sysctls) -> Duration {
    let side =
        |names: &BTreeMap<String, String>| names.get(RTO_MIN_SYSCTL)?.parse().ok().map(Duration::from_micros);
    [&sysctls.client, &sysctls.server].into_iter().filter_map(side).min().unwrap_or(RTO_MIN)
}
