//! An attempt at an instance that takes longer than `timeouts.attempt`: the request goes elsewhere, if it may be sent again.
//!
//! A request that may not be sent again continues until `timeouts.response`: it may still be answered, and to end it
//! earlier would help nobody.

use h2lab_base::units::Time;
use h2lab_proxy::retry::Fate;

use super::super::observe::Again;
use super::super::{Sidecar, mark, side_at};

impl Sidecar<'_> {
    /// The attempt under way has taken as long as one may.
    pub(super) fn end_attempt(&mut self, id: u32, now: Time) {
        let exchange = self.exchanges.get(id);
        let (service, instance) = (exchange.service, exchange.instance);
        let goes = match exchange.up {
            // It only waits for a connection: nothing was sent, which costs no budget.
            None => instance.is_some_and(|instance| self.has_other(service, instance, now)),
            Some(_) => self.may_afford(id, Fate::Unknown, now),
        };
        if !goes {
            self.exchanges.get(id).watched.is_last = true;
            return self.watch(id);
        }
        if let Some(at) = self.exchanges.get(id).up {
            if let Some(side) = side_at(&mut self.slots, at) {
                side.streams.remove(at.stream);
                side.cancel(at.stream, now);
                mark(side, at.slot, &mut self.dirty);
            }
            if let Some(instance) = instance {
                self.judge(instance, true, now);
            }
            self.observer.reason = Again::Attempt;
            self.repeat(id, Fate::Unknown, now);
        } else {
            self.leave(id);
            self.exchanges.get(id).watched.avoids = instance;
            self.exchanges.stir(id);
            self.watch(id);
        }
    }

    /// Whether a service has another instance than this one that takes requests.
    fn has_other(&self, service: u32, instance: u32, now: Time) -> bool {
        self.pools
            .of(service)
            .iter()
            .any(|other| *other != instance && self.pools.all[*other as usize].is_open(now))
    }
}
