//! Listening sockets that outlive a process: those that it was given are used before new ones are made, and all of them can be handed on.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use h2lab_net::intercept;
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
    /// Local addresses of connections that this process has made.
    dialled: HashMap<SocketAddr, u32>,
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

    /// Has TPROXY bring connections of other addresses to the listener on this local address.
    pub fn take_foreign(&self, local: SocketAddr) -> io::Result<()> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut its = held.used.iter().filter(|(address, _)| *address == local);
        its.try_for_each(|(_, fd)| intercept::take_foreign(fd))
    }

    /// A connection was made from this local address.
    pub fn dialled(&self, local: SocketAddr) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *held.dialled.entry(local).or_default() += 1;
    }

    /// One of these is no more.
    pub fn hung_up(&self, local: SocketAddr) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = held.dialled.get_mut(&local) {
            *count -= 1;
            if *count == 0 {
                held.dialled.remove(&local);
            }
        }
    }

    /// Whether this process has made a connection from this address.
    pub fn have_dialled(&self, address: SocketAddr) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).dialled.contains_key(&address)
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
