//! The connections that a loop was given, and how many it has.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use h2lab_net::tcp::StreamSocket;
use h2lab_net::wakeup::Wakeup;
use h2lab_proxy::handover::Client;

use crate::sidecar::listeners::PLACES;

/// One of the loops, as the others see it.
#[derive(Debug)]
pub struct Worker {
    number: u32,
    /// Clients' connections that it has, those in the inbox included.
    clients: AtomicU32,
    /// The same, by the place of their listener.
    places: Box<[AtomicU32]>,
    inbox: Mutex<Vec<Given>>,
    /// There is something in the inbox: the loop looks at this at each turn.
    has_new: AtomicBool,
    wakeup: Wakeup,
}

impl Worker {
    /// One without clients.
    pub fn new(number: u32) -> io::Result<Self> {
        Ok(Self {
            number,
            clients: AtomicU32::new(0),
            places: (0..PLACES).map(|_| AtomicU32::new(0)).collect(),
            inbox: Mutex::default(),
            has_new: AtomicBool::new(false),
            wakeup: Wakeup::new()?,
        })
    }

    /// How many clients it has.
    pub fn clients(&self) -> u32 {
        self.clients.load(Ordering::Relaxed)
    }

    /// How many of them are of the listener in this place.
    pub fn clients_of(&self, place: u32) -> u32 {
        self.places[place as usize].load(Ordering::Relaxed)
    }

    /// Whether it has connections of the listener in this place.
    pub fn uses(&self, place: u32) -> bool {
        self.clients_of(place) > 0
    }

    /// What wakes it.
    pub const fn wakeup(&self) -> &Wakeup {
        &self.wakeup
    }

    /// Gives it this connection.
    pub fn give(&self, given: Given) {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).push(given);
        // A loop that has not looked yet was woken already.
        if !self.has_new.swap(true, Ordering::AcqRel) {
            self.wakeup.wake();
        }
    }

    /// What it was given since the last time.
    pub fn take(&self) -> Vec<Given> {
        if !self.has_new.load(Ordering::Relaxed) {
            return Vec::new();
        }
        // This comes first: whatever is given after it wakes the loop again.
        self.has_new.store(false, Ordering::SeqCst);
        std::mem::take(&mut *self.inbox.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A connection for a loop.
#[derive(Debug)]
pub struct Given {
    pub stream: StreamSocket,
    pub assignment: Assignment,
    /// Its state in the process before; `None` if it was accepted here.
    pub before: Option<Client>,
}

/// As long as this exists, a client's connection counts at a loop and at a listener.
#[derive(Debug)]
pub struct Assignment {
    worker: Arc<Worker>,
    place: u32,
}

impl Assignment {
    /// For a connection that the listener in this place has accepted.
    pub fn new(worker: &Arc<Worker>, place: u32) -> Self {
        worker.clients.fetch_add(1, Ordering::Relaxed);
        worker.places[place as usize].fetch_add(1, Ordering::Relaxed);
        Self { worker: Arc::clone(worker), place }
    }

    /// The number of its loop.
    pub fn thread(&self) -> u32 {
        self.worker.number
    }

    /// The place of its listener.
    pub const fn place(&self) -> u32 {
        self.place
    }
}

impl Drop for Assignment {
    fn drop(&mut self) {
        self.worker.clients.fetch_sub(1, Ordering::Relaxed);
        self.worker.places[self.place as usize].fetch_sub(1, Ordering::Relaxed);
    }
}
