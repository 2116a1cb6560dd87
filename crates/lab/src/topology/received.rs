//! A packet that comes into the link.

use h2lab_link::Offload;

/// A packet that came in, valid until [`super::port::Port::receive`] returns.
#[derive(Debug)]
pub(super) struct Received<'a> {
    /// From the IP header on.
    pub bytes: &'a [u8],
    /// When the kernel took it, in nanoseconds of `CLOCK_REALTIME`; `None` if it does not say.
    pub stamp_nanos: Option<u64>,
    /// What is left to be done; `None` if not all of it is here or if it is of an unknown kind.
    pub offload: Option<Offload>,
}
