//! The settings of a network, and how its packets are moved.

use std::io;

use h2lab_model::scenario::Sysctls;

use super::address::Addressing;
use super::error::{Result, TopologyError};
use super::setup_step::SetupStep;

/// How packets are moved between the client's and the server's namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mechanism {
    /// Packet sockets with memory-mapped rings on two veth pairs. The kernel timestamps each packet as it is sent.
    PacketRing,
    /// A TUN device in each namespace. A packet's timestamp is the time at which we read it, so that a late pump adds
    /// an unrecorded delay. Used where packet sockets are unavailable.
    Tun,
    /// Two TUN devices in one namespace, with address translation between them, see [`super::Addressing`]. All that is left where
    /// `CAP_NET_ADMIN` is the only privilege: no sysctl can be set, no name resolves, and one lab may run at a time.
    Reflector,
}

impl Mechanism {
    /// The name in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PacketRing => "veth+af_packet",
            Self::Tun => "tun",
            Self::Reflector => "tun+reflector",
        }
    }
}

/// The settings of client and server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopologySpec {
    /// Congestion control of both ends, set on their routes; `None` leaves the system's default.
    pub congestion: Option<String>,
    /// `tcp_rmem` of both ends, in bytes: smallest, initial and largest receive buffer; `None` leaves the system's.
    pub tcp_rmem: Option<[u64; 3]>,
    /// `tcp_wmem` of both ends: the same of the send buffer.
    pub tcp_wmem: Option<[u64; 3]>,
    /// Further sysctls of each end, such as `net.ipv4.tcp_slow_start_after_idle` with its value. They override ours.
    pub sysctls: Sysctls,
    /// Whether the ends have IPv6 addresses, and use them.
    pub ipv6: bool,
    /// The mechanism to move packets; `None` takes packet rings, and TUN devices where those are unavailable.
    pub mechanism: Option<Mechanism>,
    /// Why it is `mechanism`, if a better one was refused: [`super::EnteredNamespaces::refusal`].
    pub instead_of: Option<String>,
}

impl TopologySpec {
    pub(super) fn addressing(&self) -> Result<Addressing> {
        match (self.mechanism, self.ipv6) {
            (Some(Mechanism::Reflector), true) => Err(TopologyError::refused(
                SetupStep::Address,
                io::Error::other("IPv6 needs network namespaces, and there is only a reflector"),
            )),
            (Some(Mechanism::Reflector), false) => Ok(Addressing::Reflected(std::process::id() as u8)),
            (_, true) => Ok(Addressing::V6),
            (_, false) => Ok(Addressing::V4),
        }
    }
}
