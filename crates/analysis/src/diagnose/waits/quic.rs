//! HTTP/3: why no causes are reported.
//!
//! QUIC encrypts its frames and, with them, which stream's bytes a datagram carries, what it acknowledges and what it sends again
//! (RFC 9001 §5; that a sender repairs frames, not packets, is RFC 9000 §13.3). So a drop cannot be joined with the request that
//! waited for
//! it, and since streams do not wait for each other's bytes, "something of its connection was lost meanwhile" is no cause, as it
//! is over TCP. It is reported as a fact beside the reason; no time is attributed, so that none is `unknown`.
//! It would take opening the packets with a key log, which our own ends could write.

use std::collections::BTreeMap;
use std::time::Duration;

use super::explain::{Doubt, Waits, slow};
use h2lab_base::units::{Time, nanos};
use h2lab_model::record::{CellRecord, PacketRecord};

/// The report for a repetition of a cell with HTTP/3.
pub(super) fn undeclared(repetition: &CellRecord, slower_than: Duration) -> Waits {
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
