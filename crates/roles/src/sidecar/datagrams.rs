//! HTTP/3 of clients: which connection each datagram of a UDP port is for, and how they go to another process.
//!
//! All of QUIC is on the loop that has the listeners.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_net::quic::{Congestion, Incoming, QuicEndpoint, RoutedDatagram};
use h2lab_net::transport::Transport;
use h2lab_proxy::guard::memory::Pressure;
use h2lab_wire::ErrorCode;

use super::side::Side;
use super::sockets::Datagrams;
use super::{Sidecar, SidecarError, Slot, http3, mark};

/// Handshakes under way above which a client must first prove that it receives what is sent to its address (RFC 9000 §8.1.2): until then
/// one datagram with a spoofed address makes us keep a connection. Always asking costs a round trip.
const MOST_UNPROVEN: usize = 1_000;
/// System calls that read from one UDP port before it is the others' turn.
const READS_PER_TURN: usize = 32;
/// How often clients that wait for long responses are checked.
const CHECK_PERIOD: Duration = Duration::from_secs(5);
/// A client that waits for a response and has sent nothing for so long is asked whether it is there. Otherwise the idle
/// timeouts of QUIC, often 30 seconds, would end its connection.
const ASK_AFTER: Duration = Duration::from_secs(10);
/// Rounds in which connections are separated from the ports on which they arrived; each takes the connections that have
/// arrived since the round before.
const MOST_ROUNDS: u32 = 100;

/// Connections of clients over QUIC.
#[derive(Debug, Default)]
pub struct Clients {
    /// By the place of the port, and the number that it has there: the slot.
    slots: BTreeMap<(u32, usize), u32>,
    /// The same the other way round.
    names: BTreeMap<u32, (u32, usize)>,
    /// Those whose handshake is under way.
    handshaking: BTreeSet<u32>,
    /// Those that wait for room in their port's socket, which reports it only once.
    blocked: BTreeSet<u32>,
    /// Ports that may have more to read.
    unread: Vec<u32>,
    /// The ports are another process's: each connection has a socket of its own.
    has_left: bool,
    /// Some have a socket of their own, which may bring what is for others.
    has_separated: bool,
    /// When those that wait are checked next.
    look_at: Time,
}

impl Clients {
    /// How many there are.
    pub fn count(&self) -> u32 {
        self.names.len() as u32
    }

    /// Whether a port may have more to read.
    pub const fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }
}

impl Sidecar<'_> {
    /// Reads what is left in UDP ports, and does what is due for clients.
    pub(super) fn tend_datagrams(&mut self, now: Time) {
        for place in std::mem::take(&mut self.udp.unread) {
            self.receive_datagrams(place);
        }
        if self.udp.names.is_empty() {
            return;
        }
        let places = if self.udp.has_separated { self.listeners.udp_places() } else { Vec::new() };
        for place in places {
            if let Some(endpoint) = self.listeners.endpoint(place) {
                let strays = endpoint.take_strays();
                self.route(place, &endpoint, strays);
            }
        }
        if now >= self.udp.look_at {
            self.udp.look_at = now + CHECK_PERIOD;
            self.ask_waiting(now);
        }
    }

    /// Something has come on a UDP port, or it has room.
    pub(super) fn datagrams_ready(&mut self, place: u32, writable: bool) {
        if writable {
            for slot in std::mem::take(&mut self.udp.blocked) {
                if let Slot::Open(side) = &mut self.slots[slot as usize] {
                    side.note(true, false);
                    mark(side, slot, &mut self.dirty);
                }
            }
        }
        self.receive_datagrams(place);
    }

    fn receive_datagrams(&mut self, place: u32) {
        let Some(endpoint) = self.listeners.endpoint(place) else { return };
        for _ in 0..READS_PER_TURN {
            let mut arrivals = Vec::new();
            // Errors that a client's host reports, such as that the client is gone, are ignored: silence shows the
            // same.
            let read = endpoint.receive(self.now, &mut |arrival| arrivals.push(arrival)).unwrap_or(1);
            self.route(place, &endpoint, arrivals);
            if read == 0 {
                return;
            }
        }
        self.udp.unread.push(place);
    }

    /// Gives connections what has come for them.
    fn route(&mut self, place: u32, endpoint: &Arc<QuicEndpoint>, arrivals: Vec<RoutedDatagram>) {
        let mut stirred = BTreeSet::new();
        for arrival in arrivals {
            match arrival {
                RoutedDatagram::Known(number, event) => {
                    let Some(slot) = self.udp.slots.get(&(place, number)).copied() else { continue };
                    let transport = match &mut self.slots[slot as usize] {
                        Slot::Opening(opening) => &mut opening.transport,
                        Slot::Open(side) => &mut side.transport,
                        Slot::Empty | Slot::Dialling(_) => continue,
                    };
                    if let Some(quic) = transport.quic_mut() {
                        quic.handle(event);
                        stirred.insert(slot);
                    }
                }
                RoutedDatagram::New(incoming) => stirred.extend(self.take_in(place, endpoint, incoming)),
            }
        }
        for slot in stirred {
            match &self.slots[slot as usize] {
                Slot::Opening(_) => self.open(slot),
                _ => self.read(slot),
            }
        }
    }

    /// Accepts a connection; returns its slot.
    fn take_in(&mut self, place: u32, endpoint: &Arc<QuicEndpoint>, incoming: Incoming) -> Option<u32> {
        if self.guard.pressure() == Pressure::Full || self.refuses_client(place) {
            endpoint.turn_away(incoming);
            return None;
        }
        if self.udp.handshaking.len() >= MOST_UNPROVEN && !incoming.remote_address_validated() {
            endpoint.ask_for_proof(incoming);
            return None;
        }
        let client = incoming.remote_address();
        let engine = http3::server(&self.config.server);
        let mut quic = match endpoint.accept(incoming, &engine, Congestion::default(), self.now) {
            Ok(quic) => quic,
            Err(error) => {
                self.observer.not_opened(&client.ip().to_canonical().to_string(), &error, self.now);
                return None;
            }
        };
        http3::bound(&mut quic);
        let number = quic.number();
        let transport = Transport::Quic(Box::new(quic));
        let assignment = self.shared.assign_here(self.number, place);
        let opening = self.listeners.opening_of(transport, assignment, client, self.now);
        let slot = self.free_slot();
        self.udp.slots.insert((place, number), slot);
        self.udp.names.insert(slot, (place, number));
        self.udp.handshaking.insert(slot);
        self.reactor.set_timer(Self::token(slot), opening.deadline());
        self.totals.clients += 1;
        self.slots[slot as usize] = Slot::Opening(Box::new(opening));
        if self.udp.has_left {
            self.separate(slot);
        }
        Some(slot)
    }

    /// A handshake is over.
    pub(super) fn note_handshake_done(&mut self, slot: u32) {
        self.udp.handshaking.remove(&slot);
    }

    /// A connection waits for room in its port's socket.
    pub(super) fn waits_for_port(&mut self, slot: u32) {
        if self.udp.names.contains_key(&slot) {
            self.udp.blocked.insert(slot);
        }
    }

    /// Nothing is in this place any more.
    pub(super) fn forget_datagrams(&mut self, slot: u32) {
        let Some(name) = self.udp.names.remove(&slot) else { return };
        self.udp.slots.remove(&name);
        self.udp.handshaking.remove(&slot);
        self.udp.blocked.remove(&slot);
        self.release_port(name.0);
    }

    /// Gives the port in this place back, if it is of no use any more.
    fn release_port(&mut self, place: u32) {
        let is_used = self.udp.slots.range((place, 0)..=(place, usize::MAX)).next().is_some();
        if !is_used {
            self.listeners.release_udp(place, &mut self.reactor);
        }
    }

    /// Notifies clients of ports that take no more connections, and gives back ports without clients.
    pub(super) fn end_closed_ports(&mut self, now: Time) {
        for place in self.listeners.udp_places() {
            if self.listeners.is_udp_open(place) {
                continue;
            }
            let all = self.udp.slots.range((place, 0)..=(place, usize::MAX));
            for slot in all.map(|(_, slot)| *slot).collect::<Vec<u32>>() {
                match &mut self.slots[slot as usize] {
                    Slot::Open(side) => {
                        side.engine.goaway(now, ErrorCode::NO_ERROR, b"HTTP/3 has been disabled here");
                        mark(side, slot, &mut self.dirty);
                    }
                    _ => self.vacate(slot),
                }
            }
            self.release_port(place);
        }
    }

    /// Asks clients that have waited for long whether they are there, which also shows them that we are.
    fn ask_waiting(&mut self, now: Time) {
        for slot in self.udp.names.keys() {
            if let Slot::Open(side) = &mut self.slots[*slot as usize]
                && side.streams.len() > 0
                && now.since(side.liveness.heard_at()) >= ASK_AFTER
            {
                side.ask(now);
                mark(side, *slot, &mut self.dirty);
            }
        }
    }

    /// Leaves the UDP ports where another process is to read them, and reads them again where none did.
    pub(super) fn hand_on_datagrams(&mut self) -> Result<(), SidecarError> {
        match (self.config.sockets.who_reads(), self.udp.has_left) {
            (Datagrams::Asked, _) if !self.listeners.udp_places().is_empty() => {
                self.leave_ports()?;
                self.config.sockets.left();
            }
            (Datagrams::Read, true) => {
                self.udp.has_left = false;
                self.listeners.read_udp(true, &mut self.reactor)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// If another process has taken over the UDP ports, this one keeps none of them, so that a third one can have them
    /// once that other one has ended. Connections continue.
    pub(super) fn give_up_ports(&mut self) -> Result<(), SidecarError> {
        if !self.config.sockets.are_handed_on() || self.listeners.udp_places().is_empty() {
            return Ok(());
        }
        if !self.udp.has_left {
            self.leave_ports()?; // they are of listeners that are gone
        }
        self.listeners.give_up_udp();
        Ok(())
    }

    /// Gives each connection a socket of its own, and reads the ports to their end. New connections from now on wait in
    /// the ports.
    fn leave_ports(&mut self) -> Result<(), SidecarError> {
        self.now = self.clock.now();
        self.listeners.read_udp(false, &mut self.reactor)?;
        self.udp.has_left = true;
        let slots: Vec<u32> = self.udp.names.keys().copied().collect();
        for slot in slots {
            self.separate(slot);
        }
        let mut places = self.listeners.udp_places();
        for _ in 0..MOST_ROUNDS {
            for place in places {
                self.receive_datagrams(place);
            }
            places = std::mem::take(&mut self.udp.unread);
            if places.is_empty() {
                break;
            }
        }
        self.udp.unread.clear();
        self.settle();
        Ok(())
    }

    /// Gives a connection a socket of its own. If the kernel does not allow it, the client makes a new connection when
    /// this one is silent.
    fn separate(&mut self, slot: u32) {
        let token = Self::token(slot);
        let transport = match &mut self.slots[slot as usize] {
            Slot::Opening(opening) => &mut opening.transport,
            Slot::Open(side) => &mut side.transport,
            Slot::Empty | Slot::Dialling(_) => return,
        };
        if let Some(quic) = transport.quic_mut()
            && matches!(quic.separate(), Ok(true))
        {
            self.udp.has_separated = true;
            let _ = self.reactor.submit_datagrams(token, &quic.socket()); // it is a socket
        }
    }
}

impl Side {
    /// Whether it waits for room in a socket.
    pub(super) const fn waits_for_room(&self) -> bool {
        self.is_blocked() && self.transport.quic().is_some()
    }
}
