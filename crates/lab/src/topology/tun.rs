//! One port of the link: a TUN device in the side's namespace. The fallback where packet sockets are unavailable.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use h2lab_link::Offload;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::address::{admit, release};
use super::error::{During, Result};
use super::received::Received;
use super::setup_step::SetupStep;
use super::sys::{InterfaceRequest, check};
use super::vnet;

/// Bytes of the largest packet, and of the header in front of it.
const LARGEST: usize = 65_535 + vnet::LENGTH;
/// What the device may offload to us: checksums, and TCP segmentation. The kernel segments UDP itself: a fallback need not be
/// fast at everything, and USO is new (Linux 6.2).
const OFFLOADS: u32 = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;

/// Creates a device of this name in the calling thread's network namespace; it exists as long as the descriptor.
pub(super) fn create(name: &str) -> Result<OwnedFd> {
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    let make = || -> io::Result<OwnedFd> {
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")?;
        let mut request = InterfaceRequest::new(name, flags as u16);
        // SAFETY: TUNSETIFF reads and writes an ifreq, which outlives the call.
        check(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })?;
        // SAFETY: TUNSETOFFLOAD takes its argument by value.
        check(unsafe {
            libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(OFFLOADS))
        })?;
        Ok(device.into())
    };
    make().during(SetupStep::Tun)
}

/// A port: receives what the side sends into the device, and sends to it.
#[derive(Debug)]
pub(super) struct Tun {
    device: OwnedFd,
    /// Whether both ends are in one namespace, so that addresses are exchanged for their stand-ins.
    reflects: bool,
    buffer: Box<[u8]>,
}

impl Tun {
    /// Opens a port on a device. What was sent into it before is dropped, as on an unplugged cable.
    pub fn open(device: &OwnedFd, reflects: bool) -> Result<Self> {
        let device = device.try_clone().during(SetupStep::Tun)?;
        let mut port = Self { device, reflects, buffer: vec![0; LARGEST].into_boxed_slice() };
        while port.receive(|_| ()).is_some() {}
        Ok(port)
    }

    /// The descriptor to poll.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    /// Whether [`Tun::receive`] has something.
    pub fn is_ready(&self) -> bool {
        let mut fds = [PollFd::new(&self.device, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }

    /// Hands the next packet to `take`; `None` if there is none.
    pub fn receive<T>(&mut self, take: impl FnOnce(Received<'_>) -> T) -> Option<T> {
        let (header, bytes) = loop {
            // An error means that there is nothing yet, or recurs at the next wait.
            let length = rustix::io::read(&self.device, &mut self.buffer[..]).ok()?;
            // Packets that others send into a device of a shared namespace do not belong to the link.
            let is_ours =
                length > vnet::LENGTH && (!self.reflects || admit(&mut self.buffer[vnet::LENGTH..length]));
            if is_ours {
                break self.buffer[..length].split_first_chunk()?;
            }
        };
        Some(take(Received { bytes, stamp_nanos: None, offload: vnet::decode(*header, 0) }))
    }

    /// The header before a packet with these headers, in which the sender's address becomes its stand-in.
    pub fn prefix<'a>(&self, offload: Offload, headers: &mut [u8], out: &'a mut [u8]) -> &'a [u8] {
        if self.reflects {
            release(headers);
        }
        let out = &mut out[..vnet::LENGTH];
        out.copy_from_slice(&vnet::encode(offload, headers, 0));
        out
    }
}
