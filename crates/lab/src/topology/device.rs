//! The device at each end of the link: created, connected to the link's namespace, configured.
//!
//! Client and server have each other's link-layer address as a permanent neighbour. So frames cross the link unchanged, no ARP
//! uses it, and the link's own IP stack ignores them as frames for another host. A TUN device has no link layer.
//!
//! Segmentation and checksum offload stay on: the kernel hands down super-packets with unfinished checksums, which [`h2lab_link`]
//! segments before the loss model, so that neither end spends time on either.

use std::net::IpAddr;
use std::os::fd::AsFd;

use super::address::Addressing;
use super::congestion;
use super::error::{During, Result};
use super::netlink::{Netlink, Route, VethEnd};
use super::netns_handle::NetnsHandle;
use super::port::{self, Plug};
use super::setup_step::SetupStep;
use super::side::Side;
use super::spec::Mechanism;
use super::sys::set_feature;
use super::tun;
use super::veth::{self, Pair};

/// Largest packet at the network layer, as on Ethernet.
pub const MTU: u32 = 1500;
/// Bits of the network of client and server.
const PREFIX_V4: u8 = 24;
const PREFIX_V6: u8 = 64;
/// Packets that may wait at a device: in the queue of a TUN device until the pump reads them, at a veth device only if the system
/// attaches its default queueing discipline.
const DEVICE_QUEUE: u32 = 10_000;
/// `ETHTOOL_SGRO` of `linux/ethtool.h`.
const SET_GRO: u32 = 0x0000_002c;

/// The name of the device of `side`, in its namespace.
const fn device_name(side: Side, mechanism: Mechanism) -> &'static str {
    match (mechanism, side) {
        (Mechanism::PacketRing | Mechanism::Tun, _) => "eth0",
        // The namespace has other devices, too. A second lab in it is refused, since these names are in use.
        (Mechanism::Reflector, Side::Client) => "h2lab-client",
        (Mechanism::Reflector, Side::Server) => "h2lab-server",
    }
}

/// Makes the device of `side` in `netns` and connects it to the calling thread's namespace, which is the link's.
pub(super) fn plug_in(side: Side, mechanism: Mechanism, link: &Netlink, netns: &NetnsHandle) -> Result<Plug> {
    let name = device_name(side, mechanism);
    match (mechanism, netns.namespace()) {
        (Mechanism::PacketRing, Some(namespace)) => {
            let here = VethEnd { name: side.name(), mac: side.port_mac() };
            let there = VethEnd { name, mac: side.mac() };
            link.create_veth(&here, &there, namespace.as_fd(), MTU, DEVICE_QUEUE)?;
            let device = netns.within(|| Netlink::open().during(SetupStep::Veth)?.index_of(name))??;
            let namespace = namespace.try_clone().during(SetupStep::Veth)?;
            Ok(Plug::Veth(Pair { port: link.index_of(side.name())?, namespace, device }))
        }
        // Packet rings need a namespace for each end: within one, a frame to one of its own addresses is never sent.
        _ => {
            let device = netns.within(|| tun::create(name))??;
            Ok(Plug::Tun { device, reflects: mechanism == Mechanism::Reflector })
        }
    }
}

/// Opens a ring on a device that every namespace has, and closes it.
pub(super) fn try_ring(link: &Netlink) -> Result<()> {
    veth::open_rings(link.index_of("lo")?, 1).map(port::close_beside).during(SetupStep::PacketRing)
}

/// A side's device while it is configured. The calling thread is in that side's namespace.
pub(super) struct Device {
    pub side: Side,
    pub mechanism: Mechanism,
    pub addressing: Addressing,
    pub netlink: Netlink,
    pub index: u32,
}

impl Device {
    pub fn open(side: Side, mechanism: Mechanism, addressing: Addressing) -> Result<Self> {
        let netlink = Netlink::open().during(SetupStep::NetworkNamespace)?;
        let index = netlink.index_of(device_name(side, mechanism))?;
        Ok(Self { side, mechanism, addressing, netlink, index })
    }

    /// Makes the complete configuration of the device.
    pub fn configure(&self, congestion: Option<&str>) -> Result<()> {
        if self.mechanism != Mechanism::Reflector {
            self.netlink.set_up(self.netlink.index_of("lo")?)?;
        }
        match self.mechanism {
            Mechanism::PacketRing => self.limit_offload()?,
            Mechanism::Tun | Mechanism::Reflector => self.netlink.set_size(self.index, MTU, DEVICE_QUEUE)?,
        }
        self.set_up()?;
        self.add_address()?;
        if self.mechanism == Mechanism::PacketRing {
            self.add_neighbour()?;
        }
        self.add_route(congestion)
    }

    /// Limits the kernel's super-packets to what a slot of the ring holds, and turns GRO off: merging is the link's own task.
    pub fn limit_offload(&self) -> Result<()> {
        self.netlink.limit_offload(self.index, veth::LARGEST_FRAME)?;
        let name = device_name(self.side, self.mechanism);
        set_feature(self.netlink.as_fd(), name, SET_GRO, false).during(SetupStep::Offload)
    }

    pub fn set_up(&self) -> Result<()> {
        self.netlink.set_up(self.index)
    }

    pub fn add_address(&self) -> Result<()> {
        let mut all = self.addressing.all(self.side).into_iter();
        all.try_for_each(|own| self.netlink.add_address(self.index, own, self.prefix(own)))
    }

    pub fn add_neighbour(&self) -> Result<()> {
        let peer = self.side.opposite();
        let mut all = self.addressing.all(peer).into_iter();
        all.try_for_each(|address| self.netlink.add_neighbour(self.index, address, peer.mac()))
    }

    pub fn add_route(&self, congestion: Option<&str>) -> Result<()> {
        self.addressing.all(self.side).into_iter().try_for_each(|source| {
            let network = match self.addressing {
                Addressing::Reflected(_) => self.addressing.from_afar(self.side.opposite()),
                Addressing::V4 | Addressing::V6 => network_of(source),
            };
            let forgets = self.mechanism == Mechanism::Reflector;
            let route = Route { network: (network, self.prefix(network)), source, congestion, forgets };
            let added = self.netlink.add_route(self.index, &route);
            added.map_err(|error| congestion::explain(error, congestion))
        })
    }

    /// Prefix length of an address of the link. Behind a reflector it is that of a single address.
    const fn prefix(&self, address: IpAddr) -> u8 {
        match address {
            _ if matches!(self.addressing, Addressing::Reflected(_)) => 32,
            IpAddr::V4(_) => PREFIX_V4,
            IpAddr::V6(_) => PREFIX_V6,
        }
    }
}

/// The network of an address of either side.
const fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => IpAddr::V4(std::net::Ipv4Addr::from_bits(v4.to_bits() >> 8 << 8)),
        IpAddr::V6(v6) => IpAddr::V6(std::net::Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
    }
}
