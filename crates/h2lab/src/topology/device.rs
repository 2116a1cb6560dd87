//! The device at each end of the link: made, connected to the link's namespace, configured.
//!
//! Client and server have each other's link-layer address as a permanent neighbour. So frames cross the link unchanged,
//! no ARP uses it, and the link's own IP stack sees only frames for somebody else. A TUN device has no link layer.
//!
//! Segmentation and checksum offload stay on: the kernel hands down super-packets with unfinished checksums, which
//! [`h2lab_core::link`] cuts before the loss model, so that neither end spends time on what nobody needs.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};

use super::congestion;
use super::error::{During, Step, TopologyError};
use super::namespaces::{Side, within};
use super::netlink::{Netlink, VethEnd};
use super::port::{Mechanism, Plug};
use super::sys::set_feature;
use super::tun;
use super::veth::{self, Pair};

/// Largest packet at the network layer, as on Ethernet.
pub const MTU: u32 = 1500;
/// The network of client and server.
const NETWORK: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 9, 0, 0), 24);
/// Name of the device in the client's and the server's namespace.
const DEVICE: &str = "eth0";
/// Packets that may wait at a device: in the queue of a TUN device until the pump reads them, at a veth device only
/// should the system's default queueing discipline be attached to it.
const DEVICE_QUEUE: u32 = 10_000;
/// `ETHTOOL_SGRO` of `linux/ethtool.h`.
const SET_GRO: u32 = 0x0000_002c;

/// Makes the device of `side` in `namespace` and connects it to the calling thread's namespace, which is the link's.
pub(super) fn plug_in(
    side: Side,
    mechanism: Mechanism,
    link: &Netlink,
    namespace: &OwnedFd,
) -> Result<Plug, TopologyError> {
    match mechanism {
        Mechanism::PacketRing => {
            let here = VethEnd { name: side.name(), mac: side.port_mac() };
            let there = VethEnd { name: DEVICE, mac: side.mac() };
            link.create_veth(&here, &there, namespace.as_fd(), MTU, DEVICE_QUEUE)?;
            let device = within(namespace, || Netlink::open().during(Step::Veth)?.index_of(DEVICE))??;
            let namespace = namespace.try_clone().during(Step::Veth)?;
            Ok(Plug::Veth(Pair { port: link.index_of(side.name())?, namespace, device }))
        }
        Mechanism::Tun => within(namespace, || tun::create(DEVICE))?.map(Plug::Tun),
    }
}

/// Opens a ring on a device that every namespace has, and closes it.
pub(super) fn try_ring(link: &Netlink) -> Result<(), TopologyError> {
    veth::open_rings(link.index_of("lo")?, 1).map(drop).during(Step::PacketRing)
}

/// The device of the calling thread's namespace, which is that of a side, while it is configured.
pub(super) struct Device {
    pub side: Side,
    pub mechanism: Mechanism,
    pub netlink: Netlink,
    pub index: u32,
}

impl Device {
    pub fn open(side: Side, mechanism: Mechanism) -> Result<Self, TopologyError> {
        let netlink = Netlink::open().during(Step::NetworkNamespace)?;
        let index = netlink.index_of(DEVICE)?;
        Ok(Self { side, mechanism, netlink, index })
    }

    /// Configures it, once and for all.
    pub fn configure(&self, congestion: Option<&str>) -> Result<(), TopologyError> {
        self.netlink.set_up(self.netlink.index_of("lo")?)?;
        match self.mechanism {
            Mechanism::PacketRing => self.limit_offload()?,
            Mechanism::Tun => self.netlink.set_size(self.index, MTU, DEVICE_QUEUE)?,
        }
        self.set_up()?;
        self.add_address()?;
        if self.mechanism == Mechanism::PacketRing {
            self.add_neighbour()?;
        }
        self.add_route(congestion)
    }

    /// Lets the kernel hand down super-packets that a slot of the ring holds, and pass up what it receives as it is:
    /// merging is the link's own affair.
    pub fn limit_offload(&self) -> Result<(), TopologyError> {
        self.netlink.limit_offload(self.index, veth::LARGEST_FRAME)?;
        set_feature(self.netlink.as_fd(), DEVICE, SET_GRO, false).during(Step::Offload)
    }

    pub fn set_up(&self) -> Result<(), TopologyError> {
        self.netlink.set_up(self.index)
    }

    pub fn add_address(&self) -> Result<(), TopologyError> {
        self.netlink.add_address(self.index, self.side.address(), NETWORK.1)
    }

    pub fn add_neighbour(&self) -> Result<(), TopologyError> {
        let peer = self.side.opposite();
        self.netlink.add_neighbour(self.index, peer.address(), peer.mac())
    }

    pub fn add_route(&self, congestion: Option<&str>) -> Result<(), TopologyError> {
        self.netlink
            .add_route(self.index, NETWORK.0, NETWORK.1, self.side.address(), congestion)
            .map_err(|error| congestion::explain(error, congestion))
    }
}
