//! A packet socket that receives through a memory-mapped ring (`TPACKET_V2`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::received::Received;
use super::sys::{Filter, attach_filter, bind_to_device, get_option};
use super::vnet;
use h2lab_net::socket_option::set_option;

/// Bytes of an Ethernet header.
pub(super) const ETHERNET: usize = 14;
/// `PACKET_VNET_HDR` of `linux/if_packet.h`: a `virtio_net_hdr` precedes each frame.
const PACKET_VNET_HDR: i32 = 15;
/// Bytes of a block, which the kernel allocates in one piece.
const BLOCK: u32 = 64 * 1024;
/// Bytes of a slot besides its frame: the ring's own headers, which take 76, rounded up.
pub(super) const OVERHEAD: u32 = 128;

/// The size of a ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Bytes of a slot, which holds one frame; divides 64 KiB.
    pub slot: u32,
    /// The least number of slots: whole blocks are allocated.
    pub slots: u32,
}

/// A socket that receives nothing until it is bound to a protocol.
pub(super) fn packet_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    set_option(&socket, libc::SOL_PACKET, PACKET_VNET_HDR, &1_i32)?;
    Ok(socket)
}

/// A ring of frames that came in.
#[derive(Debug)]
pub(super) struct Ring {
    socket: OwnedFd,
    slots: NonNull<u8>,
    shape: Shape,
    /// The slot that the kernel fills next.
    next: u32,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Opens a ring on the device with this index, in the calling thread's network namespace, for what `filter` accepts.
    ///
    /// `TPACKET_V3`, whose slots are as large as their frames, was rejected: it hands over whole blocks, full ones or after a
    /// timeout of at least 1 ms, which would delay packets.
    pub fn open(interface: u32, shape: Shape, filter: &Filter) -> io::Result<Self> {
        let blocks = (shape.slots.max(1) * shape.slot).div_ceil(BLOCK);
        let shape = Shape { slots: blocks * (BLOCK / shape.slot), ..shape };
        let request = libc::tpacket_req {
            tp_block_size: BLOCK,
            tp_block_nr: blocks,
            tp_frame_size: shape.slot,
            tp_frame_nr: shape.slots,
        };
        let socket = packet_socket()?;
        let version = libc::tpacket_versions::TPACKET_V2 as i32;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        attach_filter(&socket, filter)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let slots =
            unsafe { mmap(std::ptr::null_mut(), shape.bytes(), access, MapFlags::SHARED, &socket, 0)? };
        let slots = NonNull::new(slots.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let ring = Self { socket, slots, shape, next: 0 };
        // Nothing arrives before this: the socket was opened without a protocol. Only ETH_P_ALL receives outgoing frames.
        bind_to_device(&ring.socket, interface, libc::ETH_P_ALL as u16)?;
        Ok(ring)
    }

    /// The descriptor to poll.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether [`Ring::receive`] has something.
    pub fn is_ready(&self) -> bool {
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// When the next frame was sent, in nanoseconds of `CLOCK_REALTIME`; `None` if there is none.
    pub fn next_stamp(&self) -> Option<u64> {
        // SAFETY: the kernel has filled this slot, handed it over by the status that was just acquired, and does not touch
        // it before the status is TP_STATUS_KERNEL again. A slot begins with its tpacket2_hdr, 16-byte aligned.
        self.is_ready().then(|| stamp_of(unsafe { self.slot().cast().as_ref() }))
    }

    /// Hands the next frame to `take` and gives its slot back to the kernel; `None` if there is none.
    pub fn receive<T>(&mut self, take: impl FnOnce(Received<'_>) -> T) -> Option<T> {
        if !self.is_ready() {
            return None;
        }
        let slot = self.slot();
        // SAFETY: as in `next_stamp`.
        let header = unsafe { slot.cast::<libc::tpacket2_hdr>().read() };
        let start = u32::from(header.tp_mac).clamp(vnet::LENGTH as u32, self.shape.slot);
        let length = header.tp_snaplen.min(self.shape.slot - start) as usize;
        // SAFETY: `start + length` is within the slot, which is ours until the status changes, and the header before the
        // frame, which begins at `start` or later, is too.
        let (vnet, frame) = unsafe {
            let frame = slot.add(start as usize).as_ptr();
            let vnet = frame.sub(vnet::LENGTH).cast::<[u8; vnet::LENGTH]>().read();
            (vnet, std::slice::from_raw_parts(frame, length))
        };
        let is_whole = header.tp_snaplen == header.tp_len;
        let result = take(Received {
            bytes: frame.get(ETHERNET..).unwrap_or_default(),
            stamp_nanos: Some(stamp_of(&header)),
            offload: vnet::decode(vnet, ETHERNET as u16).filter(|_| is_whole),
        });
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.shape.slots;
        Some(result)
    }

    /// Frames that did not fit into the ring since this was last called.
    pub fn take_drops(&self) -> io::Result<u64> {
        // SAFETY: tpacket_stats is two integers.
        let stats: libc::tpacket_stats =
            unsafe { get_option(&self.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS)? };
        Ok(u64::from(stats.tp_drops))
    }

    fn slot(&self) -> NonNull<u8> {
        // SAFETY: `next` is below `slots`, so that the slot is within the mapping.
        unsafe { self.slots.add(self.next as usize * self.shape.slot as usize) }
    }

    /// The status word by which the kernel and we hand the slot to each other.
    fn status(&self) -> &AtomicU32 {
        // SAFETY: tp_status is the first field of the slot, aligned, and both sides access it atomically.
        unsafe { self.slot().cast::<AtomicU32>().as_ref() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and no reference into it outlives `self`.
        let result = unsafe { munmap(self.slots.as_ptr().cast(), self.shape.bytes()) };
        debug_assert!(result.is_ok(), "a mapping of ours can be unmapped");
    }
}

impl Shape {
    const fn bytes(self) -> usize {
        self.slot as usize * self.slots as usize
    }
}

fn stamp_of(header: &libc::tpacket2_hdr) -> u64 {
    u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec)
}
