//! Where an end of the link lives: in a network namespace of its own, or, behind a reflector, in ours.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::error::TopologyError;
use super::namespaces::{new_namespace, within};

/// A network namespace, held by a descriptor: it is anonymous and goes with the last of them and the last process inside.
#[derive(Debug, Clone)]
pub(super) struct Home(Option<Arc<OwnedFd>>);

impl Home {
    /// The namespace that we are in.
    pub const HERE: Self = Self(None);

    /// A fresh one.
    pub fn new() -> Result<Self, TopologyError> {
        Ok(Self(Some(Arc::new(new_namespace()?))))
    }

    /// The fresh namespace; `None` for ours.
    pub fn namespace(&self) -> Option<&OwnedFd> {
        self.0.as_deref()
    }

    /// Runs `work` there. Sockets that it opens stay there wherever they are used later.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, TopologyError> {
        match &self.0 {
            Some(namespace) => within(namespace, work),
            None => Ok(work()),
        }
    }

    /// Moves the calling thread there, for good. Only makes system calls, as a child before `exec` must.
    pub fn move_in(&self) -> io::Result<()> {
        let Some(namespace) = &self.0 else { return Ok(()) };
        Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}
