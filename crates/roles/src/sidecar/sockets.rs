//! Listening sockets that outlive a process: those that it was given are used before new ones are made, and all of them can be handed on.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use h2lab_net::tcp::Listener;

/// Listening sockets. Clones are of the same ones.
#[derive(Debug, Clone, Default)]
pub struct Sockets(Arc<Mutex<Held>>);

#[derive(Debug, Default)]
struct Held {
    /// From another process, and not in use yet.
    given: Vec<Listener>,
    /// Copies of those in use.
    used: Vec<(SocketAddr, OwnedFd)>,
    /// Another process uses them, too.
    is_handed_on: bool,
}

impl Sockets {
    /// These were given to the process.
    pub fn given(fds: Vec<OwnedFd>) -> io::Result<Self> {
        let given = fds.into_iter().map(Listener::given).collect::<io::Result<_>>()?;
        Ok(Self(Arc::new(Mutex::new(Held { given, ..Held::default() }))))
    }

    /// Listens on `address`: with a socket that was given, if one is for it, else with a new one.
    pub fn listener(&self, address: SocketAddr) -> io::Result<Listener> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |listener: &Listener| listener.local_address().is_ok_and(|local| local == address);
        let listener = match held.given.iter().position(is_it) {
            Some(at) => held.given.swap_remove(at),
            None => Listener::bind(address)?,
        };
        held.used.push((listener.local_address()?, listener.try_clone_fd()?));
        Ok(listener)
    }

    /// Addresses of sockets that were given and that nobody has asked for, whose connections would wait for ever. They are closed.
    pub fn close_unused(&self) -> Vec<SocketAddr> {
        let given = std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).given);
        given.iter().filter_map(|listener| listener.local_address().ok()).collect()
    }

    /// The sidecar does not listen on this local address any more.
    pub fn close(&self, local: SocketAddr) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.used.retain(|(address, _)| *address != local);
    }

    /// Copies of all sockets in use.
    pub fn copies(&self) -> io::Result<Vec<OwnedFd>> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.used.iter().map(|(_, fd)| fd.try_clone()).collect()
    }

    /// Another process has taken them over.
    pub fn handed_on(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_handed_on = true;
    }

    /// Whether another process has taken them over.
    pub fn are_handed_on(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_handed_on
    }

    /// Forgets the copies: what is closed elsewhere is closed.
    pub fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).used.clear();
    }
}
