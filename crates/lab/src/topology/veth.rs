//! One port of the link: the two ends of a veth pair. What a side sends is captured at the side's own end, as it is sent; what it
//! is to receive is sent into the link's end.
//!
//! Capturing at the link's end was rejected. On the way there the kernel puts packets into per-CPU queues, and packets of one
//! connection whose sender uses two CPUs are reordered: measured, hundreds of times per second in a fast transfer. At the side's
//! own end a packet is in the ring before the call that sent it returns, in the order of its connection.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use h2lab_link::Offload;

use super::error::{During, Result};
use super::netns_handle::within;
use super::received::Received;
use super::ring::{ETHERNET, OVERHEAD, Ring, Shape, packet_socket};
use super::setup_step::SetupStep;
use super::side::Side;
use super::sys::{Filter, bind_to_device};
use super::vnet;
use h2lab_net::socket_option::set_option;

/// Bytes before the IP header of a sent packet.
pub(super) const PREFIX: usize = vnet::LENGTH + ETHERNET;
/// Bytes of a slot for ordinary frames and the shorter super-packets.
const SMALL: u32 = 4 * 1024;
/// Bytes of a slot for super-packets.
const LARGE: u32 = 64 * 1024;
/// Small slots for each large one. 512 large ones hold what eight unlimited connections may have in flight; with 256 some of it
/// was dropped.
const SMALL_PER_LARGE: u32 = 8;
/// Bytes of the largest frame that a slot holds, from the Ethernet header on.
pub(super) const LARGEST_FRAME: u32 = LARGE - OVERHEAD;

/// The two ends of a pair.
#[derive(Debug)]
pub(super) struct Pair {
    /// Index of the link's end in the link's namespace.
    pub port: u32,
    /// The side's namespace.
    pub namespace: OwnedFd,
    /// Index of the side's end there.
    pub device: u32,
}

/// A port: receives what the side sends, and sends to it.
#[derive(Debug)]
pub(super) struct Veth {
    small: Ring,
    large: Ring,
    sender: OwnedFd,
    /// The header of every frame that is sent, except for the family.
    ethernet: [u8; ETHERNET],
}

impl Veth {
    /// Opens the port to `side`, from a thread in the link's namespace; `packets` is how many ordinary ones its ring holds.
    pub fn open(pair: &Pair, side: Side, packets: u32) -> Result<Self> {
        let open = || -> io::Result<(Ring, Ring)> { open_rings(pair.device, packets) };
        let (small, large) = within(&pair.namespace, open)?.during(SetupStep::PacketRing)?;
        let sender = open_sender(pair.port).during(SetupStep::PacketRing)?;
        let mut ethernet = [0; ETHERNET];
        ethernet[..6].copy_from_slice(&side.mac());
        ethernet[6..12].copy_from_slice(&side.opposite().mac());
        Ok(Self { small, large, sender, ethernet })
    }

    /// The descriptors to poll.
    pub fn as_fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.small.as_fd(), self.large.as_fd()]
    }

    /// Whether [`Veth::receive`] has something.
    pub fn is_ready(&self) -> bool {
        self.small.is_ready() || self.large.is_ready()
    }

    /// Hands the next packet to `take`, in the order in which they were sent; `None` if there is none.
    pub fn receive<T>(&mut self, take: impl FnOnce(Received<'_>) -> T) -> Option<T> {
        let small = self.small.next_stamp();
        let large = self.large.next_stamp();
        // What was sent before the large one, but after the small ring was checked, is there now.
        let small = small.or_else(|| large.and_then(|_| self.small.next_stamp()));
        match (small, large) {
            (Some(small), Some(large)) if large < small => self.large.receive(take),
            (None, _) => self.large.receive(take),
            (Some(_), _) => self.small.receive(take),
        }
    }

    /// The bytes before a packet with these headers.
    pub fn prefix<'a>(&self, offload: Offload, headers: &[u8], out: &'a mut [u8; PREFIX]) -> &'a [u8] {
        let family = if vnet::is_v6(headers) { libc::ETH_P_IPV6 } else { libc::ETH_P_IP };
        out[..vnet::LENGTH].copy_from_slice(&vnet::encode(offload, headers, ETHERNET as u16));
        out[vnet::LENGTH..].copy_from_slice(&self.ethernet);
        out[PREFIX - 2..].copy_from_slice(&(family as u16).to_be_bytes());
        out
    }

    /// The descriptor to send packets by.
    pub fn sender(&self) -> BorrowedFd<'_> {
        self.sender.as_fd()
    }

    /// Packets that did not fit into the rings since this was last called.
    pub fn take_drops(&self) -> io::Result<u64> {
        Ok(self.small.take_drops()? + self.large.take_drops()?)
    }
}

/// Opens the rings on a device of the calling thread's namespace.
///
/// There are two, because frames are small or very large: slots of 64 KiB for 4096 of either kind take 256 MiB. Limiting
/// super-packets, so that the slots of one ring could be smaller, was rejected: measured, one connection gets 9 Gbit/s with
/// 16 KiB, 14 with 32 KiB and 22 with 64 KiB. `PACKET_COPY_THRESH` was rejected: what does not fit into a slot then waits
/// in the socket's buffer, which without root has room for three super-packets.
pub(super) fn open_rings(device: u32, packets: u32) -> io::Result<(Ring, Ring)> {
    let limit = SMALL - OVERHEAD;
    let small = Ring::open(device, Shape { slot: SMALL, slots: packets }, &sent_ip(0, limit))?;
    let large = Shape { slot: LARGE, slots: packets / SMALL_PER_LARGE };
    Ok((small, Ring::open(device, large, &sent_ip(limit, u32::MAX))?))
}

/// Opens a socket that sends into a device of the calling thread's namespace, past any queueing discipline.
fn open_sender(port: u32) -> io::Result<OwnedFd> {
    let socket = packet_socket()?;
    set_option(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1_i32)?;
    bind_to_device(&socket, port, 0)?;
    Ok(socket)
}

/// Accepts outgoing IP frames of more than `above` and at most `limit` bytes.
///
/// Only IP is accepted: nothing else may use up draws of the loss model.
fn sent_ip(above: u32, limit: u32) -> Filter {
    const OUTGOING: u32 = libc::PACKET_OUTGOING as u32;
    let load = |size: u32, what: i32| {
        (libc::BPF_LD | size | libc::BPF_ABS, 0, 0, (libc::SKF_AD_OFF + what).cast_unsigned())
    };
    let jump = |test: u32, value: u32, if_true: u8, if_false: u8| {
        (libc::BPF_JMP | test | libc::BPF_K, if_true, if_false, value)
    };
    let verdict = |bytes: u32| (libc::BPF_RET | libc::BPF_K, 0, 0, bytes);
    [
        load(libc::BPF_B, libc::SKF_AD_PKTTYPE),
        jump(libc::BPF_JEQ, OUTGOING, 0, 6),
        load(libc::BPF_H, libc::SKF_AD_PROTOCOL),
        jump(libc::BPF_JEQ, libc::ETH_P_IP as u32, 1, 0),
        jump(libc::BPF_JEQ, libc::ETH_P_IPV6 as u32, 0, 3),
        (libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0, 0, 0),
        jump(libc::BPF_JGT, limit, 1, 0),
        jump(libc::BPF_JGT, above, 1, 0),
        verdict(0),
        verdict(u32::MAX),
    ]
    .map(|(code, jt, jf, k)| libc::sock_filter { code: code as u16, jt, jf, k })
}
