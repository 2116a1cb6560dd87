//! How many clients may be connected at a time.
//!
//! Further ones wait in the queue of their listener (listen(2)), as behind `HAProxy`'s `maxconn`, and are accepted in
//! their order when others have gone: a short burst loses nobody, and the kernel bounds the queue. QUIC has no such
//! queue: over it a client is refused.

use std::collections::BTreeSet;

use h2lab_base::units::Time;
use h2lab_net::reactor::Token;
use h2lab_net::resources::open_files;
use h2lab_proxy::refusal::ProxyError;

use super::Sidecar;
use super::config::SidecarConfig;
use super::guard::NOTE_PERIOD;

/// What a loop records for that.
#[derive(Debug)]
pub struct Bounded {
    /// Files that this process may have open, and how many clients over TCP leave enough of them.
    files: u64,
    usual: u32,
    /// The listeners that accept nothing for now, by their places; only in the first loop.
    paused: BTreeSet<u32>,
    /// How often the bound was reached.
    pub reached: u64,
    /// How many clients this loop had when it last checked.
    seen: u32,
}

impl Bounded {
    /// Nobody is connected.
    pub fn new(config: &SidecarConfig) -> Self {
        let files = open_files();
        let usual = config.file.usual_clients(files, config.threads);
        Self { files, usual, paused: BTreeSet::new(), reached: 0, seen: 0 }
    }

    /// The listener in this place is gone; another one there accepts.
    pub fn forget(&mut self, place: u32) {
        self.paused.remove(&place);
    }
}

impl Sidecar<'_> {
    /// How many clients may be connected.
    pub(super) fn most_clients(&self) -> u32 {
        self.config.file.max_clients.unwrap_or(self.clients.usual)
    }

    /// Why no further client may come to the listener in this place, if none may.
    fn why_full(&self, place: u32) -> Option<String> {
        let all = self.shared.clients();
        match self.config.file.max_clients {
            Some(most) if all >= most => {
                return Some(format!("{all} clients are connected, the limit of max-clients"));
            }
            // Clients over QUIC need no file.
            None if all.saturating_sub(self.udp.count()) >= self.clients.usual => {
                return Some(format!(
                    "{all} clients are connected, the limit without max-clients: half of the {} file descriptors of this process are \
                     kept for instances. Raise LimitNOFILE (systemd) or ulimit -n, or set max-clients",
                    self.clients.files
                ));
            }
            _ => {}
        }
        let (most, address) = self.listeners.most_clients(place)?;
        let is_full = self.shared.clients_of(place) >= most;
        is_full.then(|| {
            format!("{most} clients are connected, the limit of max-clients of the listener on {address}")
        })
    }

    /// Whether a client over QUIC is refused, and counts it.
    pub(super) fn refuses_client(&mut self, place: u32) -> bool {
        // By default only files bound clients, and clients over QUIC need none.
        let is_bounded =
            self.config.file.max_clients.is_some() || self.listeners.most_clients(place).is_some();
        let is_full = is_bounded && self.why_full(place).is_some();
        self.clients.reached += u64::from(is_full);
        is_full
    }

    /// Has listeners accept while there may be more clients.
    pub(super) fn bound_clients(&mut self, now: Time) {
        if !self.is_first() {
            let own = self.shared.clients_at(self.number);
            let before = std::mem::replace(&mut self.clients.seen, own);
            if own < before && self.shared.is_full() {
                self.shared.wakeup(0).wake();
            }
            return;
        }
        if self.is_draining {
            return;
        }
        for place in 0..self.listeners.count() {
            let why = self.why_full(place);
            if why.is_some() == self.clients.paused.contains(&place) {
                continue;
            }
            self.reactor.pause_accept(Token(place), why.is_some());
            match why {
                Some(why) => {
                    self.clients.paused.insert(place);
                    self.clients.reached += 1;
                    self.note_full(&why, now);
                }
                None => self.clients.forget(place),
            }
            self.shared.set_full(!self.clients.paused.is_empty());
        }
    }

    fn note_full(&self, why: &str, now: Time) {
        let Some(write) = self.config.on_note else { return };
        let kind = ProxyError::ConnectionLimitReached;
        if let Some(others) = self.shared.may_note("clients".to_owned(), kind, now, NOTE_PERIOD) {
            let others =
                if others > 0 { format!(" ({others} more since the last such line)") } else { String::new() };
            write(&format!("new clients wait: {why}{others}"));
        }
    }
}
