//! One port of the link: a packet socket on a veth device, which receives through a memory-mapped ring.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socket_with};

use super::error::{During, Step, TopologyError};
use super::sys::{bind_to_device, get_option, set_option};

/// Bytes of a slot: a frame of 1514 bytes behind the ring's own header, rounded up to what divides a page.
const SLOT: u32 = 2048;
/// Bytes of a block, which the kernel allocates in one piece.
const BLOCK: u32 = 64 * 1024;
/// `ETH_P_IP`. Only IPv4 is taken from the device: nothing else may use up draws of the loss model.
const PROTOCOL: u16 = 0x0800;
/// Bytes of an Ethernet header.
pub(super) const ETHERNET: usize = 14;

/// A frame in the ring, valid until [`Port::receive`] returns.
#[derive(Debug)]
pub(super) struct Received<'a> {
    /// From the Ethernet header on.
    pub bytes: &'a [u8],
    /// When the kernel put it there, in nanoseconds of `CLOCK_REALTIME`.
    pub stamp_nanos: u64,
    /// Whether all of it is here and its checksum is complete; anything else cannot be sent on as it is.
    pub is_whole: bool,
}

/// A port: receives what the device's peer sends, and sends to it.
#[derive(Debug)]
pub(super) struct Port {
    socket: OwnedFd,
    ring: NonNull<u8>,
    slots: u32,
    /// The slot that the kernel fills next.
    next: u32,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for Port {}

impl Port {
    /// Opens a port on the device with this index in the calling thread's network namespace. Its ring holds `frames`
    /// frames, rounded up to whole blocks.
    pub fn open(interface: u32, frames: u32) -> Result<Self, TopologyError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // No protocol yet: nothing may arrive before the ring is there.
        let socket =
            socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None).during(Step::PacketRing)?;
        let blocks = (frames.max(1) * SLOT).div_ceil(BLOCK);
        let slots = blocks * (BLOCK / SLOT);
        let request = libc::tpacket_req {
            tp_block_size: BLOCK,
            tp_block_nr: blocks,
            tp_frame_size: SLOT,
            tp_frame_nr: slots,
        };
        let set_up = || -> io::Result<NonNull<u8>> {
            let version = libc::tpacket_versions::TPACKET_V2 as i32;
            set_option(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
            set_option(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1_i32)?;
            set_option(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
            let length = slots as usize * SLOT as usize;
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
            let ring = unsafe { mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, &socket, 0)? };
            bind_to_device(&socket, interface, PROTOCOL)?;
            NonNull::new(ring.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
        };
        let ring = set_up().during(Step::PacketRing)?;
        Ok(Self { socket, ring, slots, next: 0 })
    }

    /// To wait for frames by.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether [`Port::receive`] has something.
    pub fn is_ready(&self) -> bool {
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Hands the next frame to `take` and gives its slot back to the kernel; `None` if there is none.
    pub fn receive<T>(&mut self, take: impl FnOnce(Received<'_>) -> T) -> Option<T> {
        let status = self.status().load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let slot = self.slot();
        // SAFETY: the kernel has filled this slot, handed it over by the status that was just acquired, and does not touch
        // it before the status is TP_STATUS_KERNEL again. A slot begins with its tpacket2_hdr, 16-byte aligned.
        let header = unsafe { slot.cast::<libc::tpacket2_hdr>().read() };
        let start = u32::from(header.tp_mac).min(SLOT);
        let length = header.tp_snaplen.min(SLOT - start) as usize;
        // SAFETY: `start + length` is within the slot, which is ours until the status changes.
        let bytes = unsafe { std::slice::from_raw_parts(slot.add(start as usize).as_ptr(), length) };
        let result = take(Received {
            bytes,
            stamp_nanos: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
            is_whole: header.tp_snaplen == header.tp_len && status & libc::TP_STATUS_CSUMNOTREADY == 0,
        });
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.slots;
        Some(result)
    }

    /// Sends a frame to the device's peer, past any queueing discipline.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        send(&self.socket, frame, SendFlags::empty())?;
        Ok(())
    }

    /// Frames that did not fit into the ring since this was last asked.
    pub fn take_drops(&self) -> io::Result<u64> {
        // SAFETY: tpacket_stats is two integers.
        let stats: libc::tpacket_stats =
            unsafe { get_option(&self.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS)? };
        Ok(u64::from(stats.tp_drops))
    }

    fn slot(&self) -> NonNull<u8> {
        // SAFETY: `next` is below `slots`, so that the slot is within the mapping.
        unsafe { self.ring.add(self.next as usize * SLOT as usize) }
    }

    /// The word by which the kernel and we hand the slot to each other.
    fn status(&self) -> &AtomicU32 {
        // SAFETY: tp_status is the first field of the slot, aligned, and both sides access it atomically.
        unsafe { self.slot().cast::<AtomicU32>().as_ref() }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and no reference into it outlives `self`.
        let result = unsafe { munmap(self.ring.as_ptr().cast(), self.slots as usize * SLOT as usize) };
        debug_assert!(result.is_ok(), "a mapping of ours can be unmapped");
    }
}
