//! A packet that enters the link.

use h2lab_link::Offload;

/// A packet that entered, valid until [`super::port::Port::receive`] returns.
#[derive(Debug)]
pub(super) struct Received<'a> {
    /// From the IP header on.
    pub bytes: &'a [u8],
    /// When the kernel took it, in nanoseconds of `CLOCK_REALTIME`; `None` without a timestamp.
    pub stamp_nanos: Option<u64>,
    /// The offload that is still to be done; `None` if the packet is truncated or of an unknown kind.
    pub offload: Option<Offload>,
}
