//! Listeners that a reload has taken out: their clients are told as at the [end of the process](super::drain), and lose no request.
//!
//! The process goes on and nobody waits for it. So connections of HTTP/1.1 that are idle, which cannot be told anything, stay open for most
//! of `timeouts.drain`, as where another process has taken over.

use h2lab_base::units::Time;
use h2lab_wire::ErrorCode;

use super::side::Peer;
use super::{Sidecar, Slot, mark};

/// What their clients are told.
const WHY: &[u8] = b"this listener has been removed";

/// Places of listeners that were taken out, and when connections end there that have no request.
#[derive(Debug, Default)]
pub struct Removed(Vec<(u32, Time)>);

impl Sidecar<'_> {
    /// The clients of these places are told that their connections take no further requests.
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

    /// A connection of a listener that was taken out in the meantime has said which version it speaks.
    pub(super) fn dismiss_late_client(&mut self, slot: u32) {
        if self.place_of(slot).is_some_and(|place| !self.listeners.is_open(place)) {
            self.announce_end(slot, WHY);
        }
    }

    /// Ends what has had the time to send a last request.
    pub(super) fn end_removed(&mut self, now: Time) {
        if self.removed.0.iter().all(|(_, at)| *at > now) {
            return;
        }
        let due = self.removed.0.extract_if(.., |(_, at)| *at <= now);
        // Where somebody listens again, those that are there are the clients of that listener.
        let due: Vec<u32> =
            due.map(|(place, _)| place).filter(|place| !self.listeners.is_open(*place)).collect();
        for slot in 0..self.slots.len() as u32 {
            // Another connection may be in a slot that was left.
            let is_its = |sidecar: &Self| sidecar.place_of(slot).is_some_and(|place| due.contains(&place));
            if !is_its(self) {
                continue;
            }
            self.end_quiet(slot);
            if is_its(self)
                && let Slot::Open(side) = &mut self.slots[slot as usize]
            {
                // One that is at work ends with what it does.
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
