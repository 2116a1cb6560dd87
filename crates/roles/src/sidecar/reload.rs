//! A loop follows the state that is common to all loops.

use h2lab_base::units::Time;
use h2lab_proxy::hints::Pages;
use h2lab_wire::ErrorCode;

use super::side::Peer;
use super::{Sidecar, Slot, mark};

impl Sidecar<'_> {
    /// Makes its own state equal to the common one, if that has changed.
    pub(super) fn catch_up(&mut self) {
        if self.live.version() != self.seen {
            self.now = self.clock.now();
            self.take_state(self.now);
            self.settle();
        } else if self.pools.has_retired() {
            self.dismiss_retired(self.now);
        }
    }

    fn take_state(&mut self, now: Time) {
        let (version, state) = self.live.state();
        self.seen = version;
        let before = std::mem::replace(&mut self.config, std::sync::Arc::clone(&state.config));
        // Services first: listeners name them.
        self.take_services(&state, now);
        self.observer.follow(self.pools.service_names());
        if std::sync::Arc::ptr_eq(&before, &state.config) {
            return;
        }
        let [old, new] = [&before.file, &state.config.file];
        if old.hint != new.hint || old.hints != new.hints {
            self.pages = Pages::new(&new.hint, &new.hints);
        }
        let number = |name: &str| self.pools.service(name);
        self.guard.follow(old, new, &number);
        self.take_listeners(now);
    }

    /// Listens where the configuration says.
    fn take_listeners(&mut self, now: Time) {
        let is_used = |place: u32| {
            self.slots.iter().any(|slot| match slot {
                Slot::Opening(opening) => opening.listener == place,
                Slot::Open(side) => matches!(side.peer, Peer::Client { listener, .. } if listener == place),
                _ => false,
            })
        };
        let number = |name: &str| self.pools.service(name).unwrap_or(0);
        let closed = self.listeners.follow(&self.config, &number, &is_used, &mut self.reactor, self.live);
        for listen in &self.config.file.listen {
            self.guard.limit_listener(self.listeners.place(listen.address), listen);
        }
        for slot in 0..self.slots.len() as u32 {
            match &mut self.slots[slot as usize] {
                Slot::Open(side) if matches!(side.peer, Peer::Client { listener, .. } if closed.contains(&listener)) =>
                {
                    side.engine.goaway(now, ErrorCode::NO_ERROR, b"the proxy does not listen here any more");
                    mark(side, slot, &mut self.dirty);
                }
                Slot::Opening(opening) if closed.contains(&opening.listener) => self.vacate(slot),
                _ => {}
            }
        }
    }
}
