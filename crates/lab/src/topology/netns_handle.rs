//! The namespace of an end of the link: a network namespace of its own, or, behind a reflector, ours.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use super::error::{During, Result};
use super::setup_step::SetupStep;
use super::sys::unshare;

/// A network namespace, held by a descriptor: it is anonymous and ends with the last descriptor and the last process inside.
#[derive(Debug, Clone)]
pub(super) struct NetnsHandle(Option<Arc<OwnedFd>>);

impl NetnsHandle {
    /// The namespace that we are in.
    pub const HERE: Self = Self(None);

    /// A fresh one.
    pub fn new() -> Result<Self> {
        Ok(Self(Some(Arc::new(new_namespace()?))))
    }

    /// The fresh namespace; `None` for ours.
    pub fn namespace(&self) -> Option<&OwnedFd> {
        self.0.as_deref()
    }

    /// Runs `work` there. Sockets that it opens stay there wherever they are used later.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        match &self.0 {
            Some(namespace) => within(namespace, work),
            None => Ok(work()),
        }
    }

    /// Permanently moves the calling thread there. Only makes system calls, as required in a child before `exec`.
    pub fn move_in(&self) -> io::Result<()> {
        let Some(namespace) = &self.0 else { return Ok(()) };
        Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}

/// A fresh network namespace, made by a thread that ends: the caller stays where it is.
pub(super) fn new_namespace() -> Result<OwnedFd> {
    std::thread::scope(|scope| {
        let make = || -> io::Result<OwnedFd> {
            unshare(UnshareFlags::NEWNET)?;
            Ok(File::open("/proc/thread-self/ns/net")?.into())
        };
        let thread = std::thread::Builder::new().spawn_scoped(scope, make)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
    .during(SetupStep::NetworkNamespace)
}

/// Runs `work` in a thread inside of `namespace`. A thread that ends need not move back, which a panic could prevent.
pub(super) fn within<T: Send>(namespace: &OwnedFd, work: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let moved = || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .during(SetupStep::NetworkNamespace)?;
            Ok(work())
        };
        let thread =
            std::thread::Builder::new().spawn_scoped(scope, moved).during(SetupStep::NetworkNamespace)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
