//! Listeners that a reload has removed: their clients are notified as at the [end of the process](super::drain), and
//! lose no request.
//!
//! The process continues and nobody waits for it. So idle connections of HTTP/1.1, which cannot be notified, stay open
//! for most of `timeouts.drain`, as when another process has taken over.

use h2lab_base::units::Time;
use h2lab_wire::ErrorCode;

use super::side::Peer;
use super::{Sidecar, Slot, mark};

/// The reason that their clients get.
const WHY: &[u8] = b"this listener has been removed";

/// Places of listeners that were removed, and when connections without a request end there.
#[derive(Debug, Default)]
pub struct Removed(Vec<(u32, Time)>);

impl Sidecar<'_> {
    /// Notifies the clients of these places that their connections take no further requests.
    pub(super) fn dismiss_clients(&mut self, closed: &[u32], now: Time) {
        let last_call = now + self.config.file.timeouts.drain / 8 * 7;
        self.removed.0.retain(|(place, _)| !closed.contains(place));
        self.removed.0.extend(closed.iter().map(|place| (*place, last_call)));
        for slot in 0..self.slots.len() as u32 {
            if self.place_of(slot).is_some_and(|place| closed.contains(&place)) {
                self.announce_end(slot, WHY);
            }
        }
    }

    /// The version of a connection of a listener that was removed in the meantime is known now.
    pub(super) fn dismiss_late_client(&mut self, slot: u32) {
        if self.place_of(slot).is_some_and(|place| !self.listeners.is_open(place)) {
            self.announce_end(slot, WHY);
        }
    }

    /// Ends connections that have had the time to send a last request.
    pub(super) fn end_removed(&mut self, now: Time) {
        if self.removed.0.iter().all(|(_, at)| *at > now) {
            return;
        }
        let due = self.removed.0.extract_if(.., |(_, at)| *at <= now);
        // If a listener is in that place again, the connections there belong to clients of that listener.
        let due: Vec<u32> =
            due.map(|(place, _)| place).filter(|place| !self.listeners.is_open(*place)).collect();
        for slot in 0..self.slots.len() as u32 {
            // A slot that was left may have another connection.
            let is_its = |sidecar: &Self| sidecar.place_of(slot).is_some_and(|place| due.contains(&place));
            if !is_its(self) {
                continue;
            }
            self.end_quiet(slot);
            if is_its(self)
                && let Slot::Open(side) = &mut self.slots[slot as usize]
            {
                // A connection that carries requests ends with them.
                side.engine.goaway(now, ErrorCode::NO_ERROR, WHY);
                mark(side, slot, &mut self.dirty);
            }
            self.settle(); // at once: a request that comes between the last read and the close is lost
        }
    }

    /// The place of the listener that a client came to.
    fn place_of(&self, slot: u32) -> Option<u32> {
        match &self.slots[slot as usize] {
            Slot::Opening(opening) => Some(opening.listener),
            Slot::Open(side) => match side.peer {
                Peer::Client { listener, .. } => Some(listener),
                Peer::Instance(_) => None,
            },
            Slot::Empty | Slot::Dialling(_) => None,
        }
    }
}
