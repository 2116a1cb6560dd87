//! The steps that a run needs the kernel to allow.

use std::fmt;

/// A step that a run needs the kernel to allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetupStep {
    /// A user namespace, in which an ordinary user may do the other steps. Root does not need it.
    UserNamespace,
    /// Network namespaces for client, link and server.
    NetworkNamespace,
    /// A mount namespace, for a `/proc` of our own.
    MountNamespace,
    /// A PID namespace, whose processes the kernel kills when its first one ends.
    PidNamespace,
    /// PDEATHSIG: a child dies with its parent.
    DeathSignal,
    /// A pair of virtual Ethernet devices between two namespaces.
    Veth,
    /// Limiting segmentation offload to what the packet ring holds.
    Offload,
    /// An address on a device.
    Address,
    /// A permanent neighbour, so that no ARP uses the link.
    Neighbour,
    /// A route, which also carries the congestion control.
    Route,
    /// Writing a sysctl of a network namespace.
    Sysctl,
    /// A packet socket with a memory-mapped ring, with metadata of super-packets (`PACKET_VNET_HDR`).
    PacketRing,
    /// A TUN device, which replaces veth pair and packet ring where those are unavailable.
    Tun,
    /// Both ends in one namespace, with only `CAP_NET_ADMIN`. Only needed where namespaces are refused.
    Reflector,
    /// A TCP connection over the link, from which settings are read back.
    Connection,
    /// Real-time priority for the packet pump. A run works without.
    Realtime,
}

impl SetupStep {
    /// The stable name in JSON.
    pub const fn id(self) -> &'static str {
        match self {
            Self::UserNamespace => "user-namespace",
            Self::NetworkNamespace => "network-namespace",
            Self::MountNamespace => "mount-namespace",
            Self::PidNamespace => "pid-namespace",
            Self::DeathSignal => "death-signal",
            Self::Veth => "veth",
            Self::Offload => "offload",
            Self::Address => "address",
            Self::Neighbour => "neighbour",
            Self::Route => "route",
            Self::Sysctl => "sysctl",
            Self::PacketRing => "packet-ring",
            Self::Tun => "tun",
            Self::Reflector => "reflector",
            Self::Connection => "connection",
            Self::Realtime => "realtime",
        }
    }

    /// What is done, as a phrase after "cannot".
    pub const fn what(self) -> &'static str {
        match self {
            Self::UserNamespace => "create a user namespace",
            Self::NetworkNamespace => "create a network namespace",
            Self::MountNamespace => "create a mount namespace",
            Self::PidNamespace => "create a PID namespace",
            Self::DeathSignal => "end a child with its parent (PDEATHSIG)",
            Self::Veth => "create a veth pair between network namespaces",
            Self::Offload => "limit the segmentation offload of a veth device",
            Self::Address => "give a device an address",
            Self::Neighbour => "add a permanent neighbour",
            Self::Route => "add a route",
            Self::Sysctl => "set a sysctl of a network namespace",
            Self::PacketRing => "open a packet socket with a ring (AF_PACKET, TPACKET_V2, PACKET_VNET_HDR)",
            Self::Tun => "create a TUN device (/dev/net/tun, IFF_VNET_HDR)",
            Self::Reflector => "put both ends into this network namespace, with a reflector between them",
            Self::Connection => "make a TCP connection over the link",
            Self::Realtime => "give the packet pump real-time priority (SCHED_FIFO)",
        }
    }
}

impl fmt::Display for SetupStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what())
    }
}
