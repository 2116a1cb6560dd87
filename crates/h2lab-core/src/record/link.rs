//! What the emulated link did: the ledger of packets.

use serde::{Deserialize, Serialize};

pub use crate::link::DirectionTotals;
use crate::trace::Direction;
use crate::units::Time;

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PacketFate {
    /// It came out.
    Delivered,
    /// The loss model took it.
    Lost,
    /// The queue was full.
    TailDropped,
    /// It was still inside when the cell ended.
    InFlight,
}

/// One packet of the ledger, in the order in which packets entered their direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketRecord {
    /// When it entered the link.
    pub at: Time,
    /// When it left; [`Time::NEVER`] if it did not.
    pub out_at: Time,
    /// Its index among all packets of its direction: the loss model's draw depends on this and the seed alone.
    pub index: u64,
    /// The client's TCP or UDP port, 0 for other packets.
    pub client_port: u16,
    /// The server's port.
    pub server_port: u16,
    /// Bytes at the network layer (IP header and all).
    pub bytes: u32,
    /// TCP payload bytes: 0 for a bare acknowledgement.
    pub payload: u32,
    /// TCP sequence number of its first payload byte.
    pub seq: u32,
    /// Which way it went.
    pub direction: Direction,
    /// What became of it.
    pub fate: PacketFate,
}

/// What the link did in one visit, and how late it was itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LinkSummary {
    /// Client to server.
    pub up: DirectionTotals,
    /// Server to client.
    pub down: DirectionTotals,
    /// How late packets left against their due time: median, in nanoseconds.
    pub late_p50_ns: u64,
    /// The 99th percentile.
    pub late_p99_ns: u64,
    /// The worst.
    pub late_max_ns: u64,
    /// CPU time of the pump, in nanoseconds.
    pub cpu_ns: u64,
    /// Wall-clock time for which the pump ran, in nanoseconds.
    pub wall_ns: u64,
    /// Packets that the kernel dropped at our devices or rings; anything above 0 makes the cell invalid.
    pub device_drops: u64,
    /// How packets are moved: `veth+af_packet` or `tun`.
    pub mechanism: String,
    /// Why packets are not moved by `veth+af_packet`, the mechanism of choice; `None` if they are.
    #[serde(default)]
    pub fallback_reason: Option<String>,
    /// Whether the pump ran under SCHED_FIFO.
    pub realtime: bool,
}
