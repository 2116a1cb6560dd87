//! The packet log of the emulated link.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::VariantArray;

use h2lab_base::units::Time;
pub use h2lab_link::{DirectionTotals, DropCause, Marks};
use h2lab_wire::trace::Direction;

/// The fate of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum PacketFate {
    /// It was delivered.
    Delivered,
    /// The loss model dropped it.
    Lost,
    /// The queue was full.
    TailDropped,
    /// CoDel dropped it at the head of the queue.
    CodelDropped,
    /// A line of the script named it.
    Scripted,
    /// It entered during a black-out.
    BlackOut,
    /// It was still inside when the cell ended.
    InFlight,
}

impl PacketFate {
    /// All.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// The name in tables and JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether the link dropped it.
    pub const fn is_drop(self) -> bool {
        !matches!(self, Self::Delivered | Self::InFlight)
    }
}

impl From<DropCause> for PacketFate {
    fn from(cause: DropCause) -> Self {
        match cause {
            DropCause::Lost => Self::Lost,
            DropCause::Scripted => Self::Scripted,
            DropCause::BlackOut => Self::BlackOut,
            DropCause::TailDropped => Self::TailDropped,
            DropCause::CodelDropped => Self::CodelDropped,
        }
    }
}

/// One packet of the packet log, in the order in which packets entered their direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketRecord {
    /// When it entered the link.
    pub at: Time,
    /// When it left; [`Time::NEVER`] if it did not.
    pub out_at: Time,
    /// Its index among all packets of its direction, on which all draws depend; a copy has that of its original.
    pub index: u64,
    /// The client's TCP or UDP port, 0 for other packets.
    pub client_port: u16,
    /// The server's port.
    pub server_port: u16,
    /// Bytes at the network layer (with the IP header).
    pub bytes: u32,
    /// TCP payload bytes: 0 for a bare acknowledgement.
    pub payload: u32,
    /// TCP sequence number of its first payload byte.
    pub seq: u32,
    /// Which way it went.
    pub direction: Direction,
    /// What became of it.
    pub fate: PacketFate,
    /// Its impairments.
    #[serde(default)]
    pub marks: Marks,
}

impl PacketRecord {
    /// Whether it arrived unchanged: a corrupted one is delivered, and the receiver drops it.
    pub fn arrived_intact(&self) -> bool {
        self.fate == PacketFate::Delivered && self.marks.corrupt.is_none()
    }
}

/// What the link did in one repetition, and how late it was itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
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
    /// How packets are moved: `veth+af_packet`, `tun` or `tun+reflector`.
    pub mechanism: String,
    /// Why packets are not moved by `veth+af_packet`, the mechanism of choice; `None` if they are.
    #[serde(default)]
    pub fallback_reason: Option<String>,
    /// Whether the pump ran under SCHED_FIFO.
    pub realtime: bool,
}
