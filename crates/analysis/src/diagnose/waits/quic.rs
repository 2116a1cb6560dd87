//! HTTP/3: the packets of QUIC are decrypted with the secrets of our own end, and each request gets its causes as over
//! TCP.
//!
//! QUIC encrypts its frames, and with them the stream whose bytes a datagram carries, what it acknowledges and what it
//! sends again (RFC 9001 §5; a sender repairs frames, not packets: RFC 9000 §13.3). Without secrets a drop cannot be
//! joined with the request that waited for it. Streams do not wait for each other's bytes, so "something of its
//! connection was lost meanwhile" is not a cause, unlike over TCP. It is then reported as a fact beside the reason; no
//! time is attributed, so that none is `unknown`.
//!
//! ```text
//! datagrams as they enter the link → packets, opened              packet
//!  → frames                                                       frame; windows of the handshake: parameters
//!  → by stream: history of every byte; how each end sent          connection; a direction: half
//!  → requests, joined by connection and stream, and their time    life
//! ```
//!
//! Field sections are not read: neither of our ends has a dynamic table (RFC 9204 §3.2), for which a request could wait.

mod connection;
mod frame;
mod half;
mod life;
mod packet;
mod parameters;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use super::causes::Delays;
use super::connection::Flaw;
use super::explain::{Doubt, Waits, flaws, slow};
use super::latency_breakdown::{Cause, Interval, LatencyBreakdown, LinkStream};
use super::sending::Timers;
use super::tls::KeyLog;
use connection::{Connection, Traced};
use h2lab_base::units::{Time, nanos};
use h2lab_link::{Offload, Packet};
use h2lab_model::record::{CellRecord, PacketRecord, Sample};
use h2lab_wire::h3::stream::QuicStreamId;
use h2lab_wire::trace::Direction;

/// IP protocol number of UDP.
const UDP: u8 = 17;
/// QUIC has no retransmission timeout, only probes (RFC 9002 §6.2): longer than any repetition.
const NO_TIMEOUT: Duration = Duration::from_secs(1 << 20);

/// All QUIC connections of a link.
#[derive(Debug, Default)]
pub(super) struct Connections {
    /// In the order of their first packets.
    all: Vec<Connection>,
    /// The latest connection between two ports.
    latest: BTreeMap<(u16, u16), usize>,
}

impl Connections {
    /// Adds the next packet that entered the link, from its IP header on; empty or truncated if its bytes were not
    /// kept.
    pub fn packet(&mut self, record: &PacketRecord, bytes: &[u8], log: &KeyLog) {
        let datagram = datagram(bytes).filter(|datagram| datagram.len() == record.payload as usize);
        let ports = (record.client_port, record.server_port);
        let known = self.latest.get(&ports).copied();
        let begun = datagram.filter(|_| record.direction == Direction::Up).and_then(packet::initial_to);
        let is_known = |id| known.is_some_and(|index| self.all[index].has(id));
        if let Some(id) = begun.filter(|id| !is_known(id)) {
            self.latest.insert(ports, self.all.len());
            self.all.push(Connection::new(record, id));
        }
        if let Some(index) = self.latest.get(&ports) {
            self.all[*index].datagram(record, datagram, log);
        }
    }

    /// What the slow requests of a repetition waited for. `is_whole`: every packet of it was recorded.
    pub fn explain(
        self,
        is_whole: bool,
        delays: &Delays,
        repetition: &CellRecord,
        slower_than: Duration,
    ) -> Waits {
        let timers = Timers { rtt: delays.round_trip(), rto_min: NO_TIMEOUT };
        let traced: Vec<Traced> = self.all.into_iter().map(|connection| connection.finish(timers)).collect();
        let has_keys = |connection: &Traced| connection.flaw != Some(Flaw::NoKeys);
        if !traced.iter().any(has_keys) {
            return undeclared(repetition, slower_than);
        }
        let is_read = is_whole && traced.iter().all(|connection| connection.flaw.is_none());
        let join = Join { traced: &traced, is_read, delays, repetition };
        let breakdowns: Vec<LatencyBreakdown> =
            slow(repetition, slower_than).map(|(index, sample)| join.breakdown(index, &sample)).collect();
        let is_lost = |breakdown: &&LatencyBreakdown| breakdown.place.is_none() && !is_read;
        let not_found = breakdowns.iter().filter(is_lost).count() as u32;
        let mut doubts = flaws(traced.iter().filter_map(|connection| connection.flaw));
        doubts.extend((not_found > 0).then_some(Doubt::NotFound { requests: not_found }));
        Waits { slower_than_ns: nanos(slower_than), split: breakdowns.iter().collect(), breakdowns, doubts }
    }
}

/// The payload of a UDP datagram.
fn datagram(bytes: &[u8]) -> Option<&[u8]> {
    let packet = Packet::parse(bytes, Offload::default()).filter(|packet| packet.protocol == UDP)?;
    let end = packet.bytes as usize;
    bytes.get(end.checked_sub(packet.payload as usize)?..end)
}

/// Requests and the streams on which they were sent.
struct Join<'a> {
    traced: &'a [Traced],
    /// All packets are known and were read.
    is_read: bool,
    delays: &'a Delays,
    repetition: &'a CellRecord,
}

impl Join<'_> {
    fn breakdown(&self, index: usize, sample: &Sample) -> LatencyBreakdown {
        let (place, intervals) = self.life(sample);
        LatencyBreakdown::new(index, sample, place, intervals)
    }

    fn life(&self, sample: &Sample) -> (Option<LinkStream>, Vec<Interval>) {
        let own = self.own_connection(sample);
        let place = |stream| {
            let (client_port, server_port) = own?.ports;
            Some(LinkStream { client_port, server_port, stream })
        };
        let stream = QuicStreamId::of_request(sample.stream).0;
        if let Some(life) = own.and_then(|traced| life::life(traced, stream, sample, self.delays)) {
            return (place(Some(sample.stream.0)), life);
        }
        if let Some(traced) = own.or(self.traced.first()).filter(|_| self.is_read) {
            return (place(None), life::unsent(traced, sample, own.is_some(), self.delays));
        }
        let (from, until) = (sample.scheduled_at, sample.completed_at);
        (place(None), vec![Interval { from, until, cause: Cause::Unknown }])
    }

    /// The connection on which a request was sent. Ports may be reused.
    fn own_connection(&self, sample: &Sample) -> Option<&Traced> {
        let known = self.repetition.connections.iter().find(|known| known.index == sample.connection)?;
        let ports = (known.local_port, known.remote_port);
        let is_own = |traced: &&Traced| traced.ports == ports && traced.begins_at <= sample.completed_at;
        self.traced.iter().rev().find(is_own)
    }
}

/// The report for a repetition whose packets cannot be opened.
fn undeclared(repetition: &CellRecord, slower_than: Duration) -> Waits {
    let is_lost = |packet: &&PacketRecord| packet.fate.is_drop() || packet.marks.corrupt.is_some();
    let mut drops: BTreeMap<(u16, u16), Vec<Time>> = BTreeMap::new();
    for packet in repetition.packets.iter().filter(is_lost) {
        drops.entry((packet.client_port, packet.server_port)).or_default().push(packet.at);
    }
    let ports: BTreeMap<u32, (u16, u16)> = repetition
        .connections
        .iter()
        .map(|known| (known.index, (known.local_port, known.remote_port)))
        .collect();
    let (mut requests, mut beside_drops) = (0, 0);
    for (_, sample) in slow(repetition, slower_than) {
        let of_connection = ports.get(&sample.connection).and_then(|ports| drops.get(ports));
        let meanwhile = |at: &Time| (sample.scheduled_at..=sample.completed_at).contains(at);
        requests += 1;
        beside_drops += u32::from(of_connection.is_some_and(|drops| drops.iter().any(meanwhile)));
    }
    let doubts = if requests > 0 { vec![Doubt::Quic { requests, beside_drops }] } else { Vec::new() };
    Waits { slower_than_ns: nanos(slower_than), doubts, ..Waits::default() }
}
