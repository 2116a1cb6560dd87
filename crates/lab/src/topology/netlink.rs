//! Devices, addresses, neighbours and routes, by rtnetlink (RFC 3549).
//!
//! Starting `ip` for each step was rejected: it costs milliseconds each, may not be installed, and its messages are not
//! machine-readable. A netlink crate was rejected for eight messages.

use std::ffi::c_int;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::error::{Result, TopologyError};
use super::setup_step::SetupStep;
use h2lab_net::socket_option::set_option;

/// `NETLINK_CAP_ACK`: an error answer carries only the header of its request.
const CAP_ACK: c_int = 10;
/// `NETLINK_EXT_ACK`: an error answer carries the kernel's message.
const EXT_ACK: c_int = 11;
/// `NLM_F_ACK_TLVS`: attributes follow in an error answer.
const HAS_ATTRIBUTES: u16 = 0x200;
/// `NLMSGERR_ATTR_MSG`: the kernel's message.
const ERROR_MESSAGE: u16 = 1;
/// `NLA_F_NESTED`.
const NESTED: u16 = 0x8000;
/// `VETH_INFO_PEER` of `linux/veth.h`.
const VETH_PEER: u16 = 1;
/// `RTAX_CC_ALGO` of `linux/rtnetlink.h`: name of a congestion control.
const METRIC_CONGESTION: u16 = 16;
/// `RTAX_LOCK`: the metrics that the kernel must not update.
const METRIC_LOCK: u16 = 1;
/// The metrics of a connection that TCP would cache for the next one to the same address: `RTAX_RTT`, `_RTTVAR`,
/// `_SSTHRESH` and `_REORDERING`. It does not update a locked metric. (`RTAX_CWND` is not among them: if locked, it is
/// a limit, which begins at 0.)
const REMEMBERED: u32 = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 9;
/// `IFA_F_NOPREFIXROUTE`: we make the route ourselves, with its metrics.
const NO_PREFIX_ROUTE: u32 = 0x200;
/// `IFA_F_NODAD`: an IPv6 address is usable at once; no other host could have it.
const NO_DUPLICATE_DETECTION: u32 = 0x02;
/// Headers and attributes are aligned to this many bytes.
const ALIGNMENT: usize = 4;
/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;

/// A link-layer address.
pub(super) type Mac = [u8; 6];

/// One end of a veth pair.
#[derive(Debug, Clone, Copy)]
pub(super) struct VethEnd<'a> {
    /// Name in its namespace, up to 15 bytes.
    pub name: &'a str,
    /// Link-layer address.
    pub mac: Mac,
}

/// Packets that the kernel has dropped at a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Drops {
    /// On their way in.
    pub received: u64,
    /// On their way out.
    pub sent: u64,
}

/// A route, which must be new.
#[derive(Debug, Clone, Copy)]
pub(super) struct Route<'a> {
    /// Its destination: an address and a prefix length.
    pub network: (IpAddr, u8),
    /// The source address of packets that take it.
    pub source: IpAddr,
    /// Congestion control of its connections; `None` leaves the system's. There is no other way in a namespace:
    /// `tcp_congestion_control` accepts only what init's namespace allows.
    pub congestion: Option<&'a str>,
    /// Whether its connections cache nothing for the next one, where no sysctl turns that off.
    pub forgets: bool,
}

/// A request under construction, in the machine's byte order.
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// A request of type `kind`, which begins with its family's fixed `body`.
    fn new(kind: u16, flags: c_int, body: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
        bytes.extend_from_slice(body);
        Self { bytes }
    }

    /// Adds an attribute.
    fn with(mut self, kind: u16, value: &[u8]) -> Self {
        self.bytes.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
        self
    }

    /// Adds an attribute that holds what `fill` adds.
    fn with_nested(mut self, kind: u16, fill: impl FnOnce(Self) -> Self) -> Self {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        let mut filled = fill(self);
        let length = (filled.bytes.len() - start) as u16;
        filled.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        filled.bytes[start + 2..start + 4].copy_from_slice(&(kind | NESTED).to_ne_bytes());
        filled
    }

    /// Adds a C string.
    fn with_text(self, kind: u16, text: &str) -> Self {
        let mut value = text.as_bytes().to_vec();
        value.push(0);
        self.with(kind, &value)
    }

    /// Adds bytes without an attribute header.
    fn with_raw(mut self, body: &[u8]) -> Self {
        self.bytes.extend_from_slice(body);
        self
    }

    /// Adds what describes one end of a veth pair.
    fn with_veth_end(self, end: &VethEnd<'_>, mtu: u32, queue: u32) -> Self {
        self.with_text(libc::IFLA_IFNAME, end.name)
            .with(libc::IFLA_ADDRESS, &end.mac)
            .with(libc::IFLA_MTU, &mtu.to_ne_bytes())
            .with(libc::IFLA_TXQLEN, &queue.to_ne_bytes())
    }
}

/// The kernel's family of an address, and its bytes.
fn wire(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(v4) => (libc::AF_INET as u8, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6 as u8, v6.octets().to_vec()),
    }
}

/// `struct ifinfomsg`.
fn interface_body(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut body = [0; 16];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body[8..12].copy_from_slice(&flags.to_ne_bytes());
    body[12..16].copy_from_slice(&change.to_ne_bytes());
    body
}

/// The attribute of type `wanted` among `attributes`.
fn find_attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(attributes.get(0..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(attributes.get(2..4)?.try_into().ok()?);
        let value = attributes.get(4..length)?;
        if kind & !NESTED == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(ALIGNMENT)..)?;
    }
}

/// A route socket of the network namespace in which it was opened.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
}

impl Netlink {
    /// Opens a socket in the calling thread's network namespace.
    pub fn open() -> io::Result<Self> {
        // Protocol 0, here `None`, is NETLINK_ROUTE.
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        for option in [CAP_ACK, EXT_ACK] {
            // A kernel before 4.12 supports neither; then errors have a number but no message.
            let _ = set_option(&socket, libc::SOL_NETLINK, option, &1_i32);
        }
        Ok(Self { socket })
    }

    /// The socket, for ioctls on devices of its namespace.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends a request and returns the first answer: type, flags and body.
    fn ask(&self, mut message: Message) -> io::Result<Answer> {
        let length = message.bytes.len() as u32;
        message.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        rustix::net::send(&self.socket, &message.bytes, SendFlags::empty())?;
        let mut bytes = vec![0; 32 * 1024];
        let (received, _) = rustix::net::recv(&self.socket, bytes.as_mut_slice(), RecvFlags::empty())?;
        bytes.truncate(received);
        Answer::parse(&bytes).ok_or_else(|| io::Error::from_raw_os_error(libc::EBADMSG))
    }

    /// Sends a request that the kernel acknowledges.
    fn run(&self, step: SetupStep, message: Message) -> Result<()> {
        let answer = self.ask(message).map_err(|error| TopologyError::refused(step, error))?;
        match answer.error() {
            None => Ok(()),
            Some((source, detail)) => Err(TopologyError::Refused { step, source, detail }),
        }
    }

    /// Makes a veth pair: `here` in this namespace, `there` in the namespace `peer_namespace`.
    pub fn create_veth(
        &self,
        here: &VethEnd<'_>,
        there: &VethEnd<'_>,
        peer_namespace: BorrowedFd<'_>,
        mtu: u32,
        queue: u32,
    ) -> Result<()> {
        use std::os::fd::AsRawFd;
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL | libc::NLM_F_ACK;
        let message = Message::new(libc::RTM_NEWLINK, flags, &interface_body(0, 0, 0))
            .with_veth_end(here, mtu, queue)
            .with_nested(libc::IFLA_LINKINFO, |message| {
                message.with_text(libc::IFLA_INFO_KIND, "veth").with_nested(libc::IFLA_INFO_DATA, |message| {
                    message.with_nested(VETH_PEER, |message| {
                        message
                            .with_raw(&interface_body(0, 0, 0))
                            .with_veth_end(there, mtu, queue)
                            .with(libc::IFLA_NET_NS_FD, &peer_namespace.as_raw_fd().to_ne_bytes())
                    })
                })
            });
        self.run(SetupStep::Veth, message)
    }

    /// The index of a device of this namespace.
    pub fn index_of(&self, name: &str) -> Result<u32> {
        rustix::net::netdevice::name_to_index(&self.socket, name)
            .map_err(|error| TopologyError::refused(SetupStep::Veth, error))
    }

    /// Switches a device on.
    pub fn set_up(&self, index: u32) -> Result<()> {
        let up = libc::IFF_UP as u32;
        self.run(
            SetupStep::Veth,
            Message::new(libc::RTM_NEWLINK, libc::NLM_F_ACK, &interface_body(index, up, up)),
        )
    }

    /// Sets the largest packet and the length of the queue of a device.
    pub fn set_size(&self, index: u32, mtu: u32, queue: u32) -> Result<()> {
        let message = Message::new(libc::RTM_NEWLINK, libc::NLM_F_ACK, &interface_body(index, 0, 0))
            .with(libc::IFLA_MTU, &mtu.to_ne_bytes())
            .with(libc::IFLA_TXQLEN, &queue.to_ne_bytes());
        self.run(SetupStep::Tun, message)
    }

    /// Limits the super-packets that the kernel leaves to a device to segment, in bytes.
    pub fn limit_offload(&self, index: u32, bytes: u32) -> Result<()> {
        let message = Message::new(libc::RTM_NEWLINK, libc::NLM_F_ACK, &interface_body(index, 0, 0))
            .with(libc::IFLA_GSO_MAX_SIZE, &bytes.to_ne_bytes());
        self.run(SetupStep::Offload, message)
    }

    /// Gives a device an address. No route is made.
    pub fn add_address(&self, index: u32, address: IpAddr, prefix: u8) -> Result<()> {
        let (family, octets) = wire(address);
        let mut body = [0; 8];
        body[0] = family;
        body[1] = prefix;
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE | libc::NLM_F_ACK;
        let message = Message::new(libc::RTM_NEWADDR, flags, &body)
            .with(libc::IFA_LOCAL, &octets)
            .with(libc::IFA_ADDRESS, &octets)
            .with(libc::IFA_FLAGS, &(NO_PREFIX_ROUTE | NO_DUPLICATE_DETECTION).to_ne_bytes());
        self.run(SetupStep::Address, message)
    }

    /// Adds a permanent neighbour.
    pub fn add_neighbour(&self, index: u32, address: IpAddr, mac: Mac) -> Result<()> {
        let (family, octets) = wire(address);
        let mut body = [0; 12];
        body[0] = family;
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        body[8..10].copy_from_slice(&libc::NUD_PERMANENT.to_ne_bytes());
        let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE | libc::NLM_F_ACK;
        let message = Message::new(libc::RTM_NEWNEIGH, flags, &body)
            .with(libc::NDA_DST, &octets)
            .with(libc::NDA_LLADDR, &mac);
        self.run(SetupStep::Neighbour, message)
    }

    /// Makes a route through a device.
    pub fn add_route(&self, index: u32, route: &Route<'_>) -> Result<()> {
        let ((family, network), (_, source)) = (wire(route.network.0), wire(route.source));
        let mut body = [0; 12];
        body[0] = family;
        body[1] = route.network.1;
        body[4] = libc::RT_TABLE_MAIN;
        body[5] = libc::RTPROT_STATIC;
        body[6] = libc::RT_SCOPE_LINK;
        body[7] = libc::RTN_UNICAST;
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL | libc::NLM_F_ACK;
        let message = Message::new(libc::RTM_NEWROUTE, flags, &body)
            .with(libc::RTA_DST, &network)
            .with(libc::RTA_OIF, &index.to_ne_bytes())
            .with(libc::RTA_PREFSRC, &source)
            .with_nested(libc::RTA_METRICS, |mut metrics| {
                if route.forgets {
                    metrics = metrics.with(METRIC_LOCK, &REMEMBERED.to_ne_bytes());
                }
                match route.congestion {
                    Some(name) => metrics.with_text(METRIC_CONGESTION, name),
                    None => metrics,
                }
            });
        self.run(SetupStep::Route, message)
    }

    /// Packets that the kernel has dropped at a device.
    pub fn drops(&self, index: u32) -> io::Result<Drops> {
        // `rx_dropped` and `tx_dropped` in `struct rtnl_link_stats64`.
        const RECEIVED: usize = 6;
        const SENT: usize = 7;
        let answer = self.ask(Message::new(libc::RTM_GETLINK, 0, &interface_body(index, 0, 0)))?;
        if let Some((error, _)) = answer.error() {
            return Err(error);
        }
        let stats =
            answer.body.get(16..).and_then(|attributes| find_attribute(attributes, libc::IFLA_STATS64));
        let counter = |n: usize| Some(u64::from_ne_bytes(stats?.get(n * 8..n * 8 + 8)?.try_into().ok()?));
        Ok(Drops { received: counter(RECEIVED).unwrap_or(0), sent: counter(SENT).unwrap_or(0) })
    }
}

/// An answer of the kernel.
struct Answer {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let length = u32::from_ne_bytes(bytes.get(0..4)?.try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
        let flags = u16::from_ne_bytes(bytes.get(6..8)?.try_into().ok()?);
        Some(Self { kind, flags, body: bytes.get(HEADER..length)?.to_vec() })
    }

    /// The error that it carries, with the kernel's message; an acknowledgement is error 0.
    fn error(&self) -> Option<(io::Error, String)> {
        if c_int::from(self.kind) != libc::NLMSG_ERROR {
            return None;
        }
        let number = self
            .body
            .get(0..4)
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(-libc::EBADMSG, i32::from_ne_bytes);
        if number == 0 {
            return None;
        }
        let attributes = if self.flags & HAS_ATTRIBUTES == 0 { None } else { self.body.get(4 + HEADER..) };
        let message = attributes.and_then(|attributes| find_attribute(attributes, ERROR_MESSAGE));
        let message = String::from_utf8_lossy(message.unwrap_or_default()).trim_end_matches('\0').to_owned();
        Some((io::Error::from_raw_os_error(-number), message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_nested() {
        let message = Message::new(1, 0, &[]).with_nested(5, |message| message.with(7, b"abc"));
        let attributes = &message.bytes[HEADER..];
        assert_eq!(attributes.len(), 12);
        let nested = find_attribute(attributes, 5).unwrap();
        assert_eq!(find_attribute(nested, 7), Some(b"abc".as_slice()));
        assert_eq!(find_attribute(nested, 8), None);
    }

    #[test]
    fn attributes_that_lie_about_their_length_are_not_read() {
        for length in [0_u16, 3, 9, u16::MAX] {
            let mut bytes = vec![0; 8];
            bytes[0..2].copy_from_slice(&length.to_ne_bytes());
            bytes[2..4].copy_from_slice(&1_u16.to_ne_bytes());
            assert_eq!(find_attribute(&bytes, 1), None, "length {length}");
        }
    }

    #[test]
    fn the_kernel_says_in_words_what_it_refuses() {
        // An interface without any type: refused for root and user alike, without side effects.
        let message = Message::new(libc::RTM_NEWROUTE, libc::NLM_F_ACK, &[0xff; 12]);
        let error = Netlink::open().unwrap().run(SetupStep::Route, message).unwrap_err();
        assert!(error.to_string().starts_with("cannot add a route: "), "{error}");
    }
}
