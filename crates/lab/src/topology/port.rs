//! A port of the link: where packets of one side enter and leave, by either mechanism.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

use h2lab_link::Offload;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::error::Result;
use super::received::Received;
use super::side::Side;
use super::tun::Tun;
use super::veth::{self, Pair, Veth};

/// The device of a side's port.
#[derive(Debug)]
pub(super) enum Plug {
    /// A veth pair between the side and the link.
    Veth(Pair),
    /// The side's device itself.
    Tun {
        /// The device exists as long as this descriptor.
        device: OwnedFd,
        /// Whether both sides' devices are in one namespace.
        reflects: bool,
    },
}

/// A port: receives what a side sends, and sends to it.
#[derive(Debug)]
pub(super) enum Port {
    Veth(Veth),
    Tun(Tun),
}

/// Pieces of payload of one packet to send, at most.
pub(super) const PIECES: usize = 32;

/// Closes ports or their rings in a separate thread: for each ring, the kernel waits tens of milliseconds until no CPU
/// uses it any more. Nothing reads from them meanwhile, and packets that they still receive are dropped.
pub(super) fn close_beside(ports: impl Send + 'static) {
    // If no thread can be started, they are closed here.
    let _ = std::thread::Builder::new().name("link-close".to_owned()).spawn(move || drop(ports));
}

impl Port {
    /// Opens the port of `side`, from a thread in the link's namespace; `packets` is how many ordinary ones a ring holds.
    pub fn open(plug: &Plug, side: Side, packets: u32) -> Result<Self> {
        match plug {
            Plug::Veth(pair) => Veth::open(pair, side, packets).map(Self::Veth),
            Plug::Tun { device, reflects } => Tun::open(device, *reflects).map(Self::Tun),
        }
    }

    /// Whether it has packet rings, which the kernel takes long to close.
    pub const fn has_rings(&self) -> bool {
        matches!(self, Self::Veth(_))
    }

    /// Adds the descriptors to poll for packets.
    pub fn watch<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) {
        let watch = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        match self {
            Self::Veth(veth) => fds.extend(veth.as_fds().map(watch)),
            Self::Tun(tun) => fds.push(watch(tun.as_fd())),
        }
    }

    /// Whether [`Port::receive`] has something.
    pub fn is_ready(&self) -> bool {
        match self {
            Self::Veth(veth) => veth.is_ready(),
            Self::Tun(tun) => tun.is_ready(),
        }
    }

    /// Hands the next packet to `take`; `None` if there is none.
    pub fn receive<T>(&mut self, take: impl FnOnce(Received<'_>) -> T) -> Option<T> {
        match self {
            Self::Veth(veth) => veth.receive(take),
            Self::Tun(tun) => tun.receive(take),
        }
    }

    /// Sends a packet to the side: its headers, then its payload in at most [`PIECES`] pieces. A reflector changes the
    /// headers.
    pub fn send<'a>(
        &self,
        offload: Offload,
        headers: &mut [u8],
        payload: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<()> {
        let mut prefix = [0; veth::PREFIX];
        let (to, prefix): (_, &[u8]) = match self {
            Self::Veth(veth) => (veth.sender(), veth.prefix(offload, headers, &mut prefix)),
            Self::Tun(tun) => (tun.as_fd(), tun.prefix(offload, headers, &mut prefix)),
        };
        let mut slices = [IoSlice::new(&[]); PIECES + 2];
        slices[..2].copy_from_slice(&[IoSlice::new(prefix), IoSlice::new(headers)]);
        let mut used = 2;
        for (slice, piece) in slices[2..].iter_mut().zip(payload) {
            *slice = IoSlice::new(piece);
            used += 1;
        }
        loop {
            match rustix::io::writev(to, &slices[..used]) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Packets that did not fit into the rings since this was last called. A TUN device's are in its counters.
    pub fn take_drops(&self) -> io::Result<u64> {
        match self {
            Self::Veth(veth) => veth.take_drops(),
            Self::Tun(_) => Ok(0),
        }
    }
}
