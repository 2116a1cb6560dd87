//! A loop follows the state that is common to all loops. The first one follows [`super::live::Live`], the others follow
//! what the first has made of it.

use std::sync::Arc;

use h2lab_base::units::Time;
use h2lab_proxy::config::{Config as File, Listen};
use h2lab_proxy::hints::Pages;

use super::live::State;
use super::threads::Common;
use super::{Sidecar, SidecarError};

impl Sidecar<'_> {
    /// Makes its own state equal to the common one, if that has changed.
    pub(super) fn catch_up(&mut self) -> Result<(), SidecarError> {
        let version = if self.is_first() { self.live.version() } else { self.shared.version() };
        if version != self.seen {
            if self.is_first() && !Arc::ptr_eq(&self.live.state().1.config, &self.config) {
                // What the kernel has established is accepted before a listener is closed: its client may have sent a request.
                self.turn(Time::ZERO)?;
            }
            self.now = self.clock.now();
            self.take_state(self.now);
            self.settle();
        } else if self.pools.has_retired() {
            self.dismiss_retired(self.now);
        }
        Ok(())
    }

    fn take_state(&mut self, now: Time) {
        let common = if self.is_first() { None } else { self.shared.common() };
        let (version, state) = common
            .as_ref()
            .map_or_else(|| self.live.state(), |common| (common.version, common.state.clone()));
        self.take_common(version, &state, common.as_deref(), now);
        self.publish(&state);
    }

    /// Passes the state to the other loops, if this is the first one.
    pub(super) fn publish(&self, state: &State) {
        if self.is_first() && self.shared.threads() > 1 {
            let (services, rates) = self.guard.shares();
            let (version, state, places) = (self.seen, state.clone(), self.listeners.places());
            self.shared.publish(Common { version, state, places, services, rates });
        }
    }

    fn take_common(&mut self, version: u64, state: &State, common: Option<&Common>, now: Time) {
        self.seen = version;
        let before = std::mem::replace(&mut self.config, Arc::clone(&state.config));
        // Services first: listeners name them.
        self.take_services(state, now);
        self.observer.follow(self.pools.service_names());
        if Arc::ptr_eq(&before, &state.config) {
            return;
        }
        let [old, new] = [&before.file, &state.config.file];
        if old.hint != new.hint || old.hints != new.hints {
            self.pages = Pages::new(&new.hint, &new.hints);
        }
        let number = |name: &str| self.pools.service(name);
        self.guard.follow(old, new, &number, common);
        self.take_listeners(common, old, now);
    }

    /// Listens where the configuration says, or takes over where the first loop listens.
    fn take_listeners(&mut self, common: Option<&Common>, before: &File, now: Time) {
        let number = |name: &str| self.pools.service(name).unwrap_or(0);
        let closed = if let Some(common) = common {
            self.guard.take_rates(&common.rates);
            self.listeners.take(&common.places, &number)
        } else {
            let is_used = |place: u32| self.shared.uses(place);
            let closed = self.listeners.follow(&self.config, &number, &is_used, &mut self.reactor, self.live);
            for place in &closed {
                self.guard.forget_listener(*place);
                self.clients.forget(*place);
            }
            for listen in &self.config.file.listen {
                let is_it = |old: &Listen| (old.address, &old.rate) == (listen.address, &listen.rate);
                let is_same = before.listen.iter().any(is_it);
                self.guard.limit_listener(self.listeners.place(listen.address), listen, is_same);
            }
            self.end_closed_ports(now);
            closed
        };
        self.dismiss_clients(&closed, now);
    }
}
