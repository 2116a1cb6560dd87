//! The network of one repetition: a client, a server, and the link between them, each in a network namespace of its own.
//!
//! ```text
//!   client namespace        link namespace (the lab's own)        server namespace
//!   eth0 10.9.0.1 ══ veth ══ client ── packet pump ── server ══ veth ══ eth0 10.9.0.2
//!   eth0 10.9.0.1 ══ TUN ═════════════ packet pump ═════════════ TUN ══ eth0 10.9.0.2
//!   h2lab-client 198.18.n.4 ══ TUN ═══ packet pump ═══ TUN ══ h2lab-server 198.18.n.2
//! ```
//!
//! The second line is the fallback where packet sockets are unavailable, the third the fallback where namespaces are:
//! client, link and server are then in the namespace in which h2lab was started. See [`Mechanism`].

use std::io;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::address::Addressing;
use super::congestion::CongestionReadBack;
use super::device::{self, Device};
use super::error::{During, Result, TopologyError};
use super::netlink::{Drops, Netlink};
use super::netns_handle::NetnsHandle;
use super::port::Plug;
use super::setup_step::SetupStep;
use super::side::Side;
use super::spec::{Mechanism, TopologySpec};
use super::sysctl::{self, Sysctl};

/// One end.
#[derive(Debug)]
struct LinkEnd {
    netns: NetnsHandle,
    /// What the link's port to it is opened on.
    plug: Plug,
}

/// The kernel's counters of packets dropped between the pump and a side.
#[derive(Debug)]
pub(super) struct DropCounters {
    counters: Vec<DropCounter>,
}

/// The counters of one device.
#[derive(Debug)]
pub(super) struct DropCounter {
    /// A socket of the device's namespace.
    netlink: Arc<Netlink>,
    /// The device's index there.
    device: u32,
    /// Which of its drops are the link's.
    counted: fn(Drops) -> u64,
}

impl DropCounters {
    /// Packets dropped since the devices were made.
    pub fn read(&self) -> io::Result<u64> {
        let read = |counter: &DropCounter| Ok((counter.counted)(counter.netlink.drops(counter.device)?));
        self.counters.iter().map(read).sum()
    }
}

/// The three namespaces. Dropping it leaves nothing behind.
#[derive(Debug)]
pub struct Namespaces {
    client: LinkEnd,
    server: LinkEnd,
    counters: Arc<DropCounters>,
    sysctls: Vec<(String, String)>,
    mechanism: Mechanism,
    addressing: Addressing,
    fallback_reason: Option<String>,
    pub(super) congestion: CongestionReadBack,
}

impl Namespaces {
    /// Makes them as `spec` says, without reading back the ends' congestion control.
    pub(super) fn make(spec: &TopologySpec) -> Result<Self> {
        if spec.mechanism != Some(Mechanism::Reflector) {
            // The link has no address, so it must announce nothing.
            sysctl::switch_ipv6(false)?;
        }
        match spec.mechanism {
            Some(mechanism) => Self::connect(spec, mechanism)
                .map(|namespaces| Self { fallback_reason: spec.instead_of.clone(), ..namespaces })
                .map_err(|error| match &spec.instead_of {
                    Some(why) => error.or_else_impossible(why),
                    None => error,
                }),
            None => Self::connect(spec, Mechanism::PacketRing).or_else(|error| Self::fall_back(spec, error)),
        }
    }

    /// Creates them with TUN devices, after packet rings failed with `error`. If that fails too, `error` is returned:
    /// packet rings are what a machine should have.
    fn fall_back(spec: &TopologySpec, error: TopologyError) -> Result<Self> {
        match error {
            TopologyError::Refused {
                step: step @ (SetupStep::Veth | SetupStep::Offload | SetupStep::PacketRing),
                source,
                detail,
            } => {
                let reason = TopologyError::Refused { step, source, detail };
                match Self::connect(spec, Mechanism::Tun) {
                    Ok(namespaces) => Ok(Self { fallback_reason: Some(reason.to_string()), ..namespaces }),
                    Err(tun) => Err(reason.or_else_impossible(&tun)),
                }
            }
            error => Err(error),
        }
    }

    /// Makes the client's and the server's namespace and connects them to the link's.
    fn connect(spec: &TopologySpec, mechanism: Mechanism) -> Result<Self> {
        let addressing = spec.addressing()?;
        let link = Arc::new(Netlink::open().during(SetupStep::NetworkNamespace)?);
        if mechanism == Mechanism::PacketRing {
            device::try_ring(&link)?;
        }
        let (mut sysctls, mut counters) = (Vec::new(), Vec::new());
        let mut end_of =
            |side| LinkEnd::create(side, (mechanism, addressing), &link, spec, &mut sysctls, &mut counters);
        let (client, server) = (end_of(Side::Client)?, end_of(Side::Server)?);
        Ok(Self {
            client,
            server,
            counters: Arc::new(DropCounters { counters }),
            sysctls,
            mechanism,
            addressing,
            fallback_reason: None,
            congestion: CongestionReadBack::default(),
        })
    }

    /// A command whose process runs on `side`. It dies with the calling thread, see `PR_SET_PDEATHSIG`.
    pub fn command(&self, side: Side, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let netns = self.end_of(side).netns.clone();
        let parent = rustix::process::getpid();
        let mut command = Command::new(program);
        let before_exec = move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if getppid() != Some(parent) {
                return Err(io::Error::from_raw_os_error(libc::ECHILD));
            }
            netns.move_in()
        };
        // SAFETY: between fork and exec it only makes system calls: no allocation, no lock.
        unsafe { command.pre_exec(before_exec) };
        command
    }

    /// Runs `work` in a thread on `side`. Sockets that it opens stay on that side wherever they are used later.
    pub fn within<T: Send>(&self, side: Side, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.end_of(side).netns.within(work)
    }

    /// Sysctls that were set, as read back: `client net.ipv4.tcp_rmem` and the value.
    pub fn sysctls(&self) -> &[(String, String)] {
        &self.sysctls
    }

    /// The congestion control of both ends, read back from a connection between them.
    pub fn congestion(&self) -> &CongestionReadBack {
        &self.congestion
    }

    /// The addresses of the ends.
    pub const fn addressing(&self) -> Addressing {
        self.addressing
    }

    /// What the client dials to reach a server that listens on `address`.
    pub fn dialled(&self, address: SocketAddr) -> SocketAddr {
        let (own, afar) = (self.addressing.own(Side::Server), self.addressing.from_afar(Side::Server));
        if address.ip() == own { SocketAddr::new(afar, address.port()) } else { address }
    }

    /// The counters of the devices.
    pub(super) fn drop_counters(&self) -> Arc<DropCounters> {
        Arc::clone(&self.counters)
    }

    /// How packets are moved.
    pub const fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Why packets are not moved by packet rings; `None` if they are, or if the specification asked for something else.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback_reason.as_deref()
    }

    /// What the link's port to `side` is opened on.
    pub(super) fn plug(&self, side: Side) -> &Plug {
        &self.end_of(side).plug
    }

    fn end_of(&self, side: Side) -> &LinkEnd {
        match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }
}

impl LinkEnd {
    /// Makes one end and connects it to the link's namespace.
    fn create(
        side: Side,
        (mechanism, addressing): (Mechanism, Addressing),
        link: &Arc<Netlink>,
        spec: &TopologySpec,
        sysctls: &mut Vec<(String, String)>,
        counters: &mut Vec<DropCounter>,
    ) -> Result<Self> {
        let netns = if mechanism == Mechanism::Reflector {
            Sysctl::refuse_any(spec)?;
            NetnsHandle::HERE
        } else {
            let netns = NetnsHandle::new()?;
            // Before there is a device: else IPv6 would announce itself on it.
            let wanted = Sysctl::of_spec(side, spec);
            let settle = || sysctl::switch_ipv6(spec.ipv6).and_then(|()| sysctl::apply(side, &wanted));
            sysctls.extend(netns.within(settle)??);
            netns
        };
        let plug = device::plug_in(side, mechanism, link, &netns)?;
        let device = netns.within(|| -> Result<Device> {
            let device = Device::open(side, mechanism, addressing)?;
            device.configure(spec.congestion.as_deref())?;
            Ok(device)
        })??;
        let mut counted: fn(Drops) -> u64 = |drops| drops.received + drops.sent;
        if let Plug::Veth(pair) = &plug {
            link.set_up(pair.port)?;
            // Packets that a side sends are captured at its own device. The copy that goes on to the link's end is not
            // used, so it does not matter whether it arrives there.
            counters.push(DropCounter {
                netlink: Arc::clone(link),
                device: pair.port,
                counted: |drops| drops.sent,
            });
            counted = |drops| drops.received;
        }
        counters.push(DropCounter { netlink: Arc::new(device.netlink), device: device.index, counted });
        Ok(Self { netns, plug })
    }
}
