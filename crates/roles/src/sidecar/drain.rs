//! The orderly end: no request that a client has sent is lost.
//!
//! HTTP/2 clients are notified in two steps (RFC 9113 §6.8): GOAWAY with the highest stream number, then, a round trip
//! later, with that of the last stream that was taken. HTTP/1.1 has one step: the next response says
//! `Connection: close`. A connection without a request stays open for [`LAST_REQUEST_WAIT`], so that a request under way does
//! not find it closed. If a successor continues a connection ([`super::handover`]), it does not end.

use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_wire::ErrorCode;

use super::side::Peer;
use super::{STOP_PERIOD, Sidecar, SidecarError, Slot, mark};

/// How long clients that have no request under way may still send one over HTTP/1.1.
const LAST_REQUEST_WAIT: Duration = Duration::from_secs(1);
/// The reason that clients get.
pub(super) const WHY: &[u8] = b"the proxy is shutting down";

impl Sidecar<'_> {
    /// Accepts no more connections, passes on what clients send until they have been notified, and returns when nothing
    /// is left, or after `timeouts.drain`.
    pub(super) fn drain(&mut self) -> Result<(), SidecarError> {
        self.observer.drain();
        // What the kernel has established is taken, or handed over: its client may have sent a request.
        self.turn(Time::ZERO)?;
        if self.is_first() {
            self.listeners.close(&mut self.reactor);
            self.give_up_ports()?;
            self.config.sockets.forget();
            self.shared.close();
        } else {
            self.take_inbox();
        }
        self.is_draining = true;
        self.begin_handover();
        for slot in 0..self.slots.len() as u32 {
            self.announce_end(slot, WHY);
        }
        self.settle();
        let begun = self.now;
        let drain = self.config.file.timeouts.drain;
        // If another process has taken over, nobody waits for this one to end.
        let last_call =
            begun + if self.config.sockets.are_handed_on() { drain / 8 * 7 } else { LAST_REQUEST_WAIT };
        let until = begun + drain;
        let mut is_called = false;
        loop {
            let now = self.clock.now();
            self.now = now;
            self.take_arrived();
            is_called &= !self.take_returned();
            self.hand_over_idle();
            if !is_called && now >= last_call {
                is_called = true;
                for slot in 0..self.slots.len() as u32 {
                    self.end_quiet(slot);
                    self.settle(); // at once: a request that comes between the last read and the close is lost
                }
            }
            if now >= until || self.is_done(now) {
                break;
            }
            let until = if is_called { until } else { until.min(last_call) };
            self.turn(until.min(now + STOP_PERIOD))?;
        }
        self.totals.broken += self.exchanges.open() as u64;
        Ok(())
    }

    /// Whether nothing is under way, and nothing more will arrive.
    fn is_done(&self, now: Time) -> bool {
        let passing = self.config.sockets.passing();
        // The successor is ready. If this process was asked for its state before, the answer is still due from this
        // one.
        let is_asked = self.config.sockets.are_handed_on() && self.observer.is_asked();
        let is_idle = self.exchanges.open() == 0 && !self.has_clients(now) && !is_asked;
        is_idle && !passing.has_under_way(self.number) && (!self.is_first() || passing.ends_arrivals())
    }

    /// Notifies a client, once its version is known, that its connection takes no further requests; unless the
    /// successor continues the connection.
    pub(super) fn announce_end(&mut self, slot: u32, why: &[u8]) {
        if !self.awaits_handover(slot) {
            self.tell_end(slot, why);
        }
    }

    pub(super) fn tell_end(&mut self, slot: u32, why: &[u8]) {
        if let Slot::Open(side) = &mut self.slots[slot as usize]
            && matches!(side.peer, Peer::Client { .. })
        {
            side.engine.announce_end(self.now, why);
            mark(side, slot, &mut self.dirty);
        }
    }

    /// Ends a connection that has no request under way and cannot be notified.
    pub(super) fn end_quiet(&mut self, slot: u32) {
        if self.awaits_handover(slot) {
            // It carries something, or it would not be here. If that ends in time, the connection is handed over.
            return self.tell_end(slot, WHY);
        }
        // A request that has arrived in the meantime is answered, and the response announces the end.
        self.read(slot);
        match &mut self.slots[slot as usize] {
            Slot::Open(side)
                if matches!(side.peer, Peer::Client { .. }) && side.engine.open_streams() == 0 =>
            {
                side.engine.goaway(self.now, ErrorCode::NO_ERROR, b"");
                mark(side, slot, &mut self.dirty);
                // HTTP/1.1 reports its end as an event.
                self.with_side(slot, |sidecar, side| {
                    sidecar.take_events(slot, side, sidecar.now);
                    Ok(())
                });
            }
            Slot::Opening(_) => self.vacate(slot),
            _ => {}
        }
    }

    /// Whether a client's connection is open that may still bring a request, or has not been sent all of a response.
    fn has_clients(&self, now: Time) -> bool {
        self.slots.iter().any(|slot| match slot {
            Slot::Opening(_) => true,
            Slot::Open(side) => matches!(side.peer, Peer::Client { .. }) && !side.has_lingered(now),
            Slot::Empty | Slot::Dialling(_) => false,
        })
    }
}
