//! Wakes the reactor of another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// Wakes the thread to whose reactor it was submitted ([`crate::reactor::Reactor::submit_wakeups`]), from other
/// threads.
#[derive(Debug)]
pub struct Wakeup(OwnedFd);

impl Wakeup {
    /// One that is not submitted yet.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Wakes it. The thread that wakes sees what was written to memory before.
    pub fn wake(&self) {
        // Cannot fail: the counter has room for 2^64 - 1, and is never read, since the reactor reports each write (edge-triggered).
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
