//! The network of one visit: a client, a server, and the link between them, each in a network namespace of its own.
//!
//! ```text
//!   client namespace        link namespace (the lab's own)        server namespace
//!   eth0 10.9.0.1 ══ veth ══ client ── packet pump ── server ══ veth ══ eth0 10.9.0.2
//! ```
//!
//! Client and server have each other's link-layer address as a permanent neighbour. So frames cross the link unchanged,
//! no ARP uses it, and the link's own IP stack sees only frames for somebody else.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use super::congestion::{self, Congestion};
use super::enter::unshare;
use super::error::{During, Step, TopologyError};
use super::netlink::{Mac, Netlink, VethEnd};
use super::sys::set_feature;
use super::sysctl::{self, Sysctl};

/// Largest packet at the network layer, as on Ethernet.
pub const MTU: u32 = 1500;
/// The network of client and server.
const NETWORK: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 9, 0, 0), 24);
/// Name of the device in the client's and the server's namespace.
const DEVICE: &str = "eth0";
/// Packets that may wait at a device, should the system's default queueing discipline be attached to it.
const DEVICE_QUEUE: u32 = 10_000;

/// `ETHTOOL_S…` of `linux/ethtool.h`. With checksums done in software before the device, the kernel also cuts packets to
/// the MTU there, so that the link sees each packet of the wire and its true checksum.
const OFFLOADS: [(u32, &str); 3] = [(0x0000_0017, "tx"), (0x0000_001f, "tso"), (0x0000_002c, "gro")];

/// An end of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Where load comes from.
    Client,
    /// Where the server under test or the origin listens.
    Server,
}

impl Side {
    /// Both ends.
    pub const BOTH: [Self; 2] = [Self::Client, Self::Server];

    /// `client` or `server`; also the name of the link's device to it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }

    /// The other end.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    /// Its address on the link.
    pub const fn address(self) -> Ipv4Addr {
        match self {
            Self::Client => Ipv4Addr::new(10, 9, 0, 1),
            Self::Server => Ipv4Addr::new(10, 9, 0, 2),
        }
    }

    /// Link-layer address of its device (locally administered).
    const fn mac(self) -> Mac {
        match self {
            Self::Client => [2, 0, 0, 0, 0, 1],
            Self::Server => [2, 0, 0, 0, 0, 2],
        }
    }

    /// Link-layer address of the link's device to it: never that of a frame.
    const fn port_mac(self) -> Mac {
        match self {
            Self::Client => [2, 0, 0, 0, 1, 1],
            Self::Server => [2, 0, 0, 0, 1, 2],
        }
    }
}

/// What client and server are to be like.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopologySpec {
    /// Congestion control of both ends, set on their routes; `None` leaves the system's default.
    pub congestion: Option<String>,
    /// `tcp_rmem` of both ends, in bytes: smallest, initial and largest receive buffer; `None` leaves the system's.
    pub tcp_rmem: Option<[u64; 3]>,
    /// `tcp_wmem` of both ends: the same of the send buffer.
    pub tcp_wmem: Option<[u64; 3]>,
    /// Further sysctls of both ends, such as `net.ipv4.tcp_slow_start_after_idle` with its value. They win over ours.
    pub sysctls: Vec<(String, String)>,
}

/// One end, held by descriptors: the namespace is anonymous and goes with the last of them and the last process inside.
#[derive(Debug)]
struct Station {
    namespace: Arc<OwnedFd>,
    /// Index of the link's device to it, in the link's namespace.
    port: u32,
}

/// Where the kernel counts the packets that it dropped at our four devices.
#[derive(Debug)]
pub(super) struct DropCounters {
    /// A socket of the device's namespace, and the device's index there.
    devices: Vec<(Arc<Netlink>, u32)>,
}

impl DropCounters {
    /// Packets dropped since the devices were made.
    pub fn read(&self) -> io::Result<u64> {
        self.devices.iter().map(|(netlink, device)| netlink.drops(*device)).sum()
    }
}

/// The three namespaces. Dropping it leaves nothing behind.
#[derive(Debug)]
pub struct Namespaces {
    client: Station,
    server: Station,
    counters: Arc<DropCounters>,
    sysctls: Vec<(String, String)>,
    congestion: Congestion,
}

impl Namespaces {
    /// Makes the client's and the server's namespace around the calling thread's, which becomes the link's; sets what
    /// `spec` says and reads it back, the congestion control from a real connection over the link.
    ///
    /// Call it in the process that returned from [`super::enter`], once: the link's devices have fixed names.
    pub fn create(spec: &TopologySpec) -> Result<Self, TopologyError> {
        sysctl::disable_ipv6()?;
        let link = Arc::new(Netlink::open().during(Step::NetworkNamespace)?);
        let (mut sysctls, mut devices) = (Vec::new(), Vec::new());
        let mut station = |side| Station::create(side, &link, spec, &mut sysctls, &mut devices);
        let (client, server) = (station(Side::Client)?, station(Side::Server)?);
        let counters = Arc::new(DropCounters { devices });
        let mut namespaces = Self { client, server, counters, sysctls, congestion: Congestion::default() };
        namespaces.congestion = congestion::read_back(&namespaces, spec.congestion.as_deref())?;
        Ok(namespaces)
    }

    /// A command whose process runs on `side`. It dies with the calling thread, see `PR_SET_PDEATHSIG`.
    pub fn command(&self, side: Side, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let namespace = Arc::clone(&self.station(side).namespace);
        let parent = rustix::process::getpid();
        let mut command = Command::new(program);
        let before_exec = move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if getppid() != Some(parent) {
                return Err(io::Error::from_raw_os_error(libc::ECHILD));
            }
            Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
        };
        // SAFETY: between fork and exec it only makes system calls: no allocation, no lock.
        unsafe { command.pre_exec(before_exec) };
        command
    }

    /// Runs `work` in a thread on `side`. Sockets that it opens stay on that side wherever they are used later.
    pub fn within<T: Send>(&self, side: Side, work: impl FnOnce() -> T + Send) -> Result<T, TopologyError> {
        within(&self.station(side).namespace, work)
    }

    /// Sysctls that were set, as read back: `client net.ipv4.tcp_rmem` and the value.
    pub fn sysctls(&self) -> &[(String, String)] {
        &self.sysctls
    }

    /// The congestion control of both ends, read back from a connection between them.
    pub fn congestion(&self) -> &Congestion {
        &self.congestion
    }

    /// The counters of the devices.
    pub(super) fn drop_counters(&self) -> Arc<DropCounters> {
        Arc::clone(&self.counters)
    }

    /// Index of the link's device to `side`.
    pub(super) fn port(&self, side: Side) -> u32 {
        self.station(side).port
    }

    fn station(&self, side: Side) -> &Station {
        match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }
}

impl Station {
    /// Makes one end and connects it to the link's namespace.
    fn create(
        side: Side,
        link: &Arc<Netlink>,
        spec: &TopologySpec,
        sysctls: &mut Vec<(String, String)>,
        devices: &mut Vec<(Arc<Netlink>, u32)>,
    ) -> Result<Self, TopologyError> {
        let namespace = new_namespace()?;
        // Before there is a device: IPv6 would otherwise announce itself on it.
        let wanted = Sysctl::of_spec(spec);
        sysctls.extend(within(&namespace, || sysctl::apply(side, &wanted))??);
        let port = connect(side, link, &namespace)?;
        let device = within(&namespace, || -> Result<Device, TopologyError> {
            let device = Device::open(side)?;
            device.configure(spec.congestion.as_deref())?;
            Ok(device)
        })??;
        link.set_up(port)?;
        devices.extend([(Arc::clone(link), port), (Arc::new(device.netlink), device.index)]);
        Ok(Self { namespace: Arc::new(namespace), port })
    }
}

/// Makes the veth pair between the calling thread's namespace, which is the link's, and `side`'s; the link's end's index.
pub(super) fn connect(side: Side, link: &Netlink, namespace: &OwnedFd) -> Result<u32, TopologyError> {
    let here = VethEnd { name: side.name(), mac: side.port_mac() };
    let there = VethEnd { name: DEVICE, mac: side.mac() };
    link.create_veth(&here, &there, namespace.as_fd(), MTU, DEVICE_QUEUE)?;
    link.index_of(side.name())
}

/// The device of the calling thread's namespace, which is that of a side, while it is configured.
pub(super) struct Device {
    pub side: Side,
    pub netlink: Netlink,
    pub index: u32,
}

impl Device {
    pub fn open(side: Side) -> Result<Self, TopologyError> {
        let netlink = Netlink::open().during(Step::NetworkNamespace)?;
        let index = netlink.index_of(DEVICE)?;
        Ok(Self { side, netlink, index })
    }

    /// Configures it, once and for all.
    fn configure(&self, congestion: Option<&str>) -> Result<(), TopologyError> {
        self.netlink.set_up(self.netlink.index_of("lo")?)?;
        self.switch_off_offloads()?;
        self.set_up()?;
        self.add_address()?;
        self.add_neighbour()?;
        self.add_route(congestion)
    }

    pub fn switch_off_offloads(&self) -> Result<(), TopologyError> {
        for (command, name) in OFFLOADS {
            set_feature(self.netlink.as_fd(), DEVICE, command, false).map_err(|source| {
                TopologyError::Refused { step: Step::Offload, source, detail: name.to_owned() }
            })?;
        }
        Ok(())
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

/// A fresh network namespace, made by a thread that ends: the caller stays where it is.
pub(super) fn new_namespace() -> Result<OwnedFd, TopologyError> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| -> io::Result<OwnedFd> {
            unshare(UnshareFlags::NEWNET)?;
            Ok(File::open("/proc/thread-self/ns/net")?.into())
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
    .during(Step::NetworkNamespace)
}

/// Runs `work` in a thread inside of `namespace`. A thread that ends needs no way back, which a panic could miss.
pub(super) fn within<T: Send>(
    namespace: &OwnedFd,
    work: impl FnOnce() -> T + Send,
) -> Result<T, TopologyError> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .during(Step::NetworkNamespace)?;
            Ok(work())
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
