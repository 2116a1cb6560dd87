//! Connections of clients that a successor continues, so that no request finds a closed connection: those over HTTP/1.1
//! in clear, which HTTP/1.1 cannot end in an orderly way, and those whose protocol is not known yet.
//!
//! A connection is handed over when it carries nothing. What its client has sent by then is in the socket, or was read
//! and goes with it. From then on this process reads nothing of it. If the successor does not take it, it comes back,
//! and ends as without a successor.

mod passing;

use h2lab_net::tcp::StreamSocket;
use h2lab_net::transport::Transport;
use h2lab_proxy::fields::Version;
use h2lab_proxy::handover::{Client, Listener, MOST_BYTES, Stage};

use super::listeners::original;
use super::side::Peer;
use super::threads::{Assignment, Given};
use super::{Sidecar, Slot, drain};
use passing::Leaving;
pub use passing::Passing;

/// What the successor of this process continues.
#[derive(Debug)]
pub struct Handover {
    /// Connections of these listeners.
    takes: Vec<Listener>,
    /// Places of connections that may carry nothing since the last check.
    candidates: Vec<u32>,
}

impl Sidecar<'_> {
    /// This process ends: from now on, the connections that the next one continues are handed to it.
    pub(super) fn begin_handover(&mut self) {
        let takes = self.config.sockets.passing().successor_takes();
        let candidates = (0..self.slots.len() as u32).collect();
        self.handover = takes.map(|takes| Handover { takes, candidates });
        self.hand_over_idle();
    }

    /// A connection may carry nothing any more.
    pub(super) fn may_leave(&mut self, slot: u32) {
        if let Some(handover) = &mut self.handover {
            handover.candidates.push(slot);
        }
    }

    /// Hands over those that carry nothing.
    pub(super) fn hand_over_idle(&mut self) {
        let candidates = self.handover.as_mut().map(|handover| std::mem::take(&mut handover.candidates));
        for slot in candidates.unwrap_or_default() {
            self.hand_over(slot);
        }
    }

    /// Whether a connection is handed over once it carries nothing: then its client is not notified that it ends.
    pub(super) fn awaits_handover(&self, slot: u32) -> bool {
        match &self.slots[slot as usize] {
            Slot::Open(side) => match side.peer {
                Peer::Client { listener, .. } => {
                    side.may_be_handed_over() && self.successor_takes(listener).is_some()
                }
                Peer::Instance(_) => false,
            },
            _ => false,
        }
    }

    /// The listener in this place, if the successor takes connections of it.
    fn successor_takes(&self, place: u32) -> Option<Listener> {
        let kind = self.listeners.kind(place)?;
        self.handover.as_ref()?.takes.contains(&kind).then_some(kind)
    }

    /// The description of a connection that can be handed over as it is.
    fn leaving(&self, slot: u32) -> Option<Client> {
        match &self.slots[slot as usize] {
            Slot::Open(side) => {
                let bytes = side.idle_input().filter(|bytes| bytes.len() <= MOST_BYTES)?;
                let Peer::Client { listener, .. } = side.peer else { return None };
                side.assignment.as_ref()?;
                Some(Client {
                    listener: self.successor_takes(listener)?.address,
                    client: side.client?,
                    stage: Stage::Http1,
                    original: original(side.intercepted.as_deref(), side.named.as_deref().copied()),
                    written: side.transport.tcp()?.written(),
                    bytes: bytes.to_vec(),
                })
            }
            Slot::Opening(opening) => opening.handed_over(self.successor_takes(opening.listener)?.address),
            Slot::Empty | Slot::Dialling(_) => None,
        }
    }

    /// Hands a connection over, if it carries nothing.
    fn hand_over(&mut self, slot: u32) {
        let Some(client) = self.leaving(slot) else { return };
        let (transport, assignment) = match std::mem::take(&mut self.slots[slot as usize]) {
            Slot::Open(side) => (side.transport, side.assignment),
            Slot::Opening(opening) => (opening.transport, Some(opening.assignment)),
            Slot::Empty | Slot::Dialling(_) => return,
        };
        let Transport::Stream(stream) = transport else { return };
        let (Some(stream), Some(assignment)) = (stream.into_clear(), assignment) else { return };
        self.reactor.withdraw(Self::token(slot), &stream);
        self.vacate(slot);
        let leaving = Leaving { stream, assignment, client };
        if let Err(Leaving { stream, assignment, client }) = self.config.sockets.passing().give(leaving) {
            self.resume(stream, assignment, client);
        }
    }

    /// Takes back what the successor has not taken. If the successor takes nothing more, notifies clients that their
    /// connections end, and returns `true`.
    pub(super) fn take_returned(&mut self) -> bool {
        let passing = self.config.sockets.passing().clone();
        let is_gone = self.handover.is_some() && !passing.takes_more();
        if is_gone {
            let all = 0..self.slots.len() as u32;
            let waiting: Vec<u32> = all.filter(|slot| self.awaits_handover(*slot)).collect();
            self.handover = None;
            for slot in waiting {
                self.tell_end(slot, drain::WHY);
            }
        }
        let returned = passing.returned(self.number);
        for Leaving { stream, assignment, client } in returned {
            self.resume(stream, assignment, client);
        }
        is_gone
    }

    /// Takes connections that the process before hands over, and gives each to the loop with the fewest; the first loop does.
    pub(super) fn take_arrived(&mut self) {
        if !self.is_first() {
            return;
        }
        for (fd, client) in self.config.sockets.passing().arrived() {
            // It was announced that these are taken, but the configuration may have changed since then.
            // What was in clear is not served where that is not allowed.
            let mut kinds = self.listeners.kinds();
            let place = kinds.find(|(_, kind)| kind.address == client.listener && !kind.tls);
            drop(kinds);
            let (Some((place, _)), Ok(stream)) = (place, StreamSocket::given(fd, client.written)) else {
                continue;
            };
            if client.stage == Stage::HeaderDue && !self.listeners.trusts(place, client.client.ip()) {
                continue; // as where it was accepted here
            }
            self.totals.clients += 1;
            self.totals.taken_over += 1;
            // The other loops may have ended.
            let assignment = if self.is_draining {
                self.shared.assign_here(self.number, place)
            } else {
                self.shared.assign(place)
            };
            if assignment.thread() == self.number {
                self.resume(stream, assignment, client);
            } else {
                self.shared.give(Given { stream, assignment, before: Some(client) });
            }
        }
    }

    /// Continues a connection that another process had, or this one.
    pub(super) fn resume(&mut self, stream: StreamSocket, assignment: Assignment, client: Client) {
        let stage = client.stage;
        let mut opening = self.listeners.resumed(stream, assignment, client, self.now);
        let Some(slot) = self.register(&opening) else { return };
        if stage == Stage::Http1 {
            let engine = opening.resume_http1(&self.config, &mut self.engines, &mut self.spare, self.now);
            self.begin(slot, opening, engine, Version::H1);
        } else {
            opening.wait(&self.config.server.limits, self.now);
            self.reactor.set_timer(Self::token(slot), opening.timeout_at);
            self.slots[slot as usize] = Slot::Opening(Box::new(opening));
            self.may_leave(slot);
        }
        self.settle(); // a request may have come
    }
}
