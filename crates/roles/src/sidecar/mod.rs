//! The sidecar: takes requests of clients over HTTP/1.1 and HTTP/2 and gives them to instances of services over either.
//!
//! One loop over the reactor, or one in each of several threads ([`threads`]). Events of all connections go into exchanges ([`exchange`]);
//! then every exchange that something happened to is advanced: it gets a connection, its bytes go from one engine to the other; then each
//! connection that has something to send writes once. So what comes at the same time leaves in one system call.
//!
//! What a message means between two hops, and which connection takes it, is decided in `h2lab_proxy`.

mod after_handshake;
mod answer;
mod body;
mod buffers;
pub mod certificates;
mod clients;
mod config;
mod datagrams;
mod drain;
mod engines;
mod events;
mod exchange;
mod fallback;
mod guard;
mod handover;
mod hints;
mod http3;
mod listeners;
mod live;
mod liveness;
mod members;
pub mod names;
mod observe;
mod outcome;
mod path;
mod pool;
pub mod registry;
mod reload;
mod removed;
mod scarce;
mod side;
mod silence;
mod sockets;
mod streams;
#[cfg(test)]
mod tests;
mod threads;
mod transparent;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use h2lab_base::counts::noun_of;
use h2lab_base::random::Counter;
use h2lab_base::units::Time;
use h2lab_net::clock::Clock;
use h2lab_net::reactor::{Completion, Reactor, Token};
use h2lab_net::tcp::StreamSocket;
use h2lab_net::transport::TransportError;
use h2lab_proxy::fields::Version;
use h2lab_proxy::guard::memory::Pressure;
use h2lab_proxy::hints::Pages;
use h2lab_wire::Connection;

use crate::date::Date;
use buffers::SpareBuffers;
pub use config::{Listening, SidecarConfig, SidecarError};
use engines::Engines;
use exchange::Exchanges;
use guard::Guard;
use handover::Handover;
pub use handover::Passing;
use listeners::{FIRST, Listeners, Opening, WAKEUP};
pub use live::{Live, Resolved, State, unresolved};
pub use observe::{AccessLog, AdminState, Writer as AccessLogWriter};
use pool::{Dialling, Pools};
use side::{Next, Peer, Side};
pub use sockets::Sockets;
use threads::{Assignment, Given, Shared};
use transparent::Destinations;
pub use transparent::check_mark;

/// How often the flag that stops it is looked at.
const STOP_PERIOD: Duration = Duration::from_millis(100);

/// What a sidecar has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Requests of clients.
    pub requests: u64,
    /// Of these, those that it answered by itself: no route, no instance, no response.
    pub refused: u64,
    /// Of these, those whose response broke off.
    pub broken: u64,
    /// How often a request was sent again.
    pub repeated: u64,
    /// Responses that were pushed to clients.
    pub pushed: u64,
    /// Connections of clients.
    pub clients: u64,
    /// Connections to instances.
    pub dialled: u64,
    /// Of the connections of clients, those that the process before had.
    pub taken_over: u64,
    /// Of these, those that the process after went on with.
    pub handed_over: u64,
}

impl fmt::Display for Totals {
    /// `1000 requests from 3 client connections over 2 connections to instances; 1 aborted, 12 retried`: what is zero is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, refused, broken, repeated, pushed, clients, dialled, handed_over, .. } = self;
        write!(
            f,
            "{requests} {} from {clients} client {} over {dialled} {} to instances; ",
            noun_of(*requests, "request"),
            noun_of(*clients, "connection"),
            noun_of(*dialled, "connection"),
        )?;
        let said = [
            (*refused, "answered with an error by the sidecar"),
            (*broken, "aborted"),
            (*repeated, "retried"),
            (*pushed, "pushed"),
            (*handed_over, "handed over to the next process"),
        ];
        let said = said.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
        let none = (refused + broken == 0).then(|| "none failed".to_owned());
        f.write_str(&none.into_iter().chain(said).collect::<Vec<_>>().join(", "))
    }
}

/// A place for a connection.
#[derive(Debug, Default)]
enum Slot {
    #[default]
    Empty,
    /// It was accepted, and its protocol is not known yet.
    Opening(Box<Opening>),
    /// It is being dialled.
    Dialling(Box<Dialling>),
    /// It carries requests.
    Open(Box<Side>),
}

/// The event loop.
struct Sidecar<'a> {
    /// What all loops follow, and the version of it that this one has.
    live: &'a Live,
    seen: u64,
    /// What is common to all loops, and the number of this one.
    shared: Arc<Shared>,
    number: u32,
    config: Arc<SidecarConfig>,
    reactor: Reactor,
    clock: Clock,
    /// When the turn under way began, or when what came with it was taken: the clock is not read for each message.
    now: Time,
    listeners: Listeners,
    /// Where connections lead that were made to other addresses.
    destinations: Destinations,
    /// Clients over QUIC.
    udp: datagrams::Clients,
    /// By token, after those of the listeners.
    slots: Vec<Slot>,
    free: Vec<u32>,
    engines: Engines,
    spare: SpareBuffers,
    exchanges: Exchanges,
    pools: Pools,
    /// The links that clients get early.
    pages: Pages,
    /// Connections that may have something to send.
    dirty: Vec<u32>,
    /// Connections of which more is to be read.
    unread: Vec<u32>,
    /// What protects services and the sidecar.
    guard: Guard,
    random: Counter,
    /// Of the next connection.
    serial: u32,
    /// When the paths of connections are read next.
    look_at: Time,
    /// When to check next whether instances are still there.
    check_at: Time,
    totals: Totals,
    /// How many clients may be there.
    clients: clients::Bounded,
    /// What the system has run out of.
    lacks: scarce::Lacks,
    /// For responses that have none.
    date: Date,
    /// It is to end.
    is_draining: bool,
    /// Listeners that were taken out while it runs.
    removed: removed::Removed,
    /// What the successor of this process continues, while this one ends.
    handover: Option<Handover>,
    /// What it sees of its own work.
    observer: observe::Watch,
}

/// Passes requests on until `stop` is set, which is checked ten times per second, and then until those under way are answered; returns
/// what it did. `ready` is called with every socket once it listens, before threads are started.
pub fn run(
    live: &Live,
    stop: &AtomicBool,
    ready: &mut dyn FnMut(&[Listening]),
) -> Result<Totals, SidecarError> {
    let threads = live.state().1.config.threads;
    let mut first = Sidecar::new(live, Arc::new(Shared::new(threads)?), 0)?;
    let passing = first.config.sockets.passing().clone();
    passing.takes_for(first.listeners.kinds().map(|(_, kind)| kind).collect(), &first.shared);
    // This comes before there is another thread: privileges that are given up here are given up in all threads.
    ready(&first.listeners.listening());
    let totals = threads::run(&mut first, stop);
    let handed_over = passing.finish();
    totals.map(|totals| Totals { handed_over, ..totals })
}

impl<'a> Sidecar<'a> {
    /// The loop with this number, for the calling thread. The first one listens.
    fn new(live: &'a Live, shared: Arc<Shared>, number: u32) -> Result<Self, SidecarError> {
        let common = shared.common();
        let (seen, state) =
            common.as_ref().map_or_else(|| live.state(), |common| (common.version, common.state.clone()));
        let config = Arc::clone(&state.config);
        let clock = shared.clock();
        let mut reactor = Reactor::new(clock)?;
        reactor.submit_wakeups(WAKEUP, shared.wakeup(number))?;
        let pools = Pools::new(&state, &shared, shared.portion(number))?;
        let listeners = match &common {
            None => Listeners::open(&config, &mut reactor)?,
            Some(common) => Listeners::of(&common.places, &config, &|name| pools.service(name).unwrap_or(0)),
        };
        let sidecar = Self {
            listeners,
            destinations: Destinations::default(),
            udp: datagrams::Clients::default(),
            pools,
            pages: Pages::new(&config.file.hint, &config.file.hints),
            live,
            seen,
            reactor,
            clock,
            now: clock.now(),
            slots: Vec::new(),
            free: Vec::new(),
            engines: Engines::new(&config.server),
            spare: SpareBuffers::default(),
            exchanges: Exchanges::default(),
            dirty: Vec::new(),
            unread: Vec::new(),
            guard: Guard::new(&config.file, config.on_note, &shared, common.as_deref()),
            random: Counter::new(config.seed.wrapping_add(u64::from(number) << 32), "instances"),
            shared,
            number,
            serial: 0,
            look_at: clock.now(),
            check_at: clock.now(),
            observer: observe::Watch::new(&config, clock.now()),
            clients: clients::Bounded::new(&config),
            config,
            totals: Totals::default(),
            lacks: scarce::Lacks::default(),
            date: Date::default(),
            is_draining: false,
            removed: removed::Removed::default(),
            handover: None,
        };
        sidecar.publish(&state);
        Ok(sidecar)
    }

    fn serve(&mut self, stop: &AtomicBool) -> Result<(), SidecarError> {
        while !self.is_over(stop) {
            self.catch_up()?;
            self.take_arrived();
            self.take_inbox();
            self.hand_on_datagrams()?;
            self.turn(self.clock.now() + STOP_PERIOD)?;
        }
        self.drain()
    }

    /// Waits until something happens, or `until`, and deals with it.
    fn turn(&mut self, until: Time) -> Result<(), SidecarError> {
        let until = until.min(self.guard.due.next()).min(self.pools.next_retry());
        let is_idle = self.unread.is_empty() && !self.udp.has_unread();
        self.now = self.reactor.wait(if is_idle { until } else { Time::ZERO })?;
        self.guard.look_at_memory();
        self.check_instances(self.now);
        for slot in std::mem::take(&mut self.unread) {
            self.read(slot);
        }
        while let Some(completion) = self.reactor.next_completion() {
            self.complete(completion);
        }
        let now = self.clock.now();
        self.now = now;
        self.tend_datagrams(now);
        self.expire(now);
        self.retry(now);
        self.tend(now);
        self.forget_destinations(now);
        self.relieve();
        self.end_removed(now);
        self.look(now);
        self.settle();
        self.bound_clients(now);
        self.tell_waiting();
        self.observe(now);
        Ok(())
    }

    fn complete(&mut self, completion: Completion) {
        match completion {
            Completion::Accepted { result: Ok(_), .. } if self.guard.pressure() == Pressure::Full => {} // it is closed
            Completion::Accepted { token, result: Ok(stream) } => {
                let assignment = self.shared.assign(token.0);
                if assignment.thread() == self.number {
                    self.take_client(stream, assignment);
                } else {
                    self.shared.give(Given { stream, assignment, before: None });
                }
                self.bound_clients(self.now);
            }
            Completion::Accepted { result: Err(error), .. } => self.accept_failed(&error, self.now),
            // Another loop has handed something over, which is taken before the next turn.
            Completion::Ready { token: WAKEUP, .. } => {}
            Completion::Connected { token, result } => {
                let slot = Self::slot(token);
                if result.is_ok() {
                    self.win(slot);
                }
                self.step(slot, |dial, target, now| dial.connected(result, target, now));
            }
            Completion::Ready { token, writable, .. } if token.0 < FIRST => {
                if let Some(place) = Listeners::udp_place(token) {
                    self.datagrams_ready(place, writable);
                }
            }
            Completion::Ready { token, writable, hangup, .. } => {
                let slot = Self::slot(token);
                match &mut self.slots[slot as usize] {
                    Slot::Empty => {}
                    Slot::Opening(_) => self.open(slot),
                    Slot::Dialling(_) => self.step(slot, |dial, _, now| dial.proceed(now)),
                    Slot::Open(side) => {
                        side.note(writable, hangup);
                        mark(side, slot, &mut self.dirty);
                        self.read(slot);
                    }
                }
            }
            Completion::Timer { token } => self.tick(Self::slot(token)),
        }
    }

    /// A slot for a client's connection, whose events the reactor reports from now on; `None` if it cannot.
    fn register(&mut self, opening: &Opening) -> Option<u32> {
        let slot = self.free_slot();
        let tcp = opening.transport.tcp();
        if tcp.is_some_and(|tcp| self.reactor.submit_stream(Self::token(slot), tcp).is_ok()) {
            return Some(slot);
        }
        self.free.push(slot);
        None
    }

    /// Takes a connection that was accepted.
    fn take_client(&mut self, stream: StreamSocket, assignment: Assignment) {
        let opening = self.listeners.opening(stream, assignment, &self.config.sockets, self.now);
        let Some(mut opening) = opening else { return };
        opening.wait(&self.config.server.limits, self.now);
        let Some(slot) = self.register(&opening) else { return };
        self.reactor.set_timer(Self::token(slot), opening.timeout_at);
        self.totals.clients += 1;
        self.slots[slot as usize] = Slot::Opening(Box::new(opening));
        self.may_leave(slot);
    }

    fn tick(&mut self, slot: u32) {
        let now = self.now;
        // A connection on which a request has arrived is no longer idle.
        if side(&mut self.slots, slot).is_some_and(|side| side.is_ending_idle(now)) {
            self.read(slot);
        }
        match &mut self.slots[slot as usize] {
            Slot::Empty => {}
            Slot::Opening(opening) if now < opening.timeout_at && opening.transport.quic().is_some() => {
                opening.transport.handle_timeout(now);
                self.open(slot);
            }
            Slot::Opening(_) => self.open_late(slot),
            Slot::Dialling(_) => self.expire_dial(slot),
            Slot::Open(side) => {
                let has_events = side.expire(now);
                self.dirty.push(slot);
                if has_events {
                    self.with_side(slot, |sidecar, side| {
                        sidecar.take_events(slot, side, now);
                        Ok(())
                    });
                }
            }
        }
    }

    /// Finds out what a client speaks.
    fn open(&mut self, slot: u32) {
        let Slot::Opening(mut opening) = std::mem::take(&mut self.slots[slot as usize]) else { return };
        let now = self.now;
        match opening.proceed(&self.config, &mut self.engines, &mut self.spare, now) {
            Ok(None) => {
                if opening.wait(&self.config.server.limits, now) || opening.transport.quic().is_some() {
                    self.reactor.set_timer(Self::token(slot), opening.deadline());
                }
                self.slots[slot as usize] = Slot::Opening(opening);
            }
            Ok(Some((engine, version))) => self.begin(slot, *opening, engine, version),
            // That a client resets its connection, or sends nothing, is no error of the sidecar.
            Err(error) => {
                self.note_refused(&opening, &error);
                let client = opening.client.ip().to_canonical().to_string();
                self.observer.not_opened(&client, &error, now);
                self.vacate(slot);
            }
        }
    }

    /// A client speaks this from now on.
    fn begin(&mut self, slot: u32, opening: Opening, engine: Connection, version: Version) {
        let now = self.now;
        self.note_handshake_done(slot);
        let Opening { transport, listener, client, named, assignment, intercepted, .. } = opening;
        let address = client.ip().to_canonical().to_string().into();
        let mut side = Side::new(transport, engine, version, Peer::Client { listener, address });
        (side.client, side.assignment, side.intercepted) =
            (Some(client), Some(assignment), intercepted.map(Box::new));
        side.named = named.map(Box::new);
        side.used_at = now;
        self.place(slot, side);
        self.begin_tunnel(slot);
        if self.is_draining {
            self.announce_end(slot, drain::WHY);
        }
        self.dismiss_late_client(slot);
        self.with_side(slot, |sidecar, side| {
            sidecar.take_events(slot, side, now);
            Ok(())
        });
        self.read(slot);
    }

    fn place(&mut self, slot: u32, mut side: Side) {
        side.is_dirty = true;
        side.serial = self.serial;
        side.limit_unsent();
        self.fit_new(&mut side);
        side.liveness.heard(self.now);
        self.serial = self.serial.wrapping_add(1);
        self.dirty.push(slot);
        self.slots[slot as usize] = Slot::Open(Box::new(side));
    }

    /// Reads what a connection has, up to a bound.
    fn read(&mut self, slot: u32) {
        let now = self.now;
        self.with_side(slot, |sidecar, side| {
            let mut turn = 0;
            sidecar.spare.lend(&mut side.engine);
            sidecar.spare.lend_transport(&mut side.transport);
            while {
                let is_held = sidecar.is_held(side);
                side.receive(now, &mut turn, is_held)?
            } {
                sidecar.take_events(slot, side, now);
                sidecar.cancel_if_gone(side, now);
                if side.is_drained() {
                    break;
                }
            }
            // It was the others' turn. What waits for something else is read when that has happened.
            if side.has_unread() && turn > crate::accepted::TURN {
                sidecar.unread.push(slot);
            }
            Ok(())
        });
    }

    /// Whether what has come of the one message of HTTP/1.1 must first be taken by the other side.
    fn is_held(&mut self, side: &Side) -> bool {
        if side.version != Version::H1 || self.is_held_back(side) {
            return self.is_held_back(side);
        }
        let Some((_, id)) = side.streams.iter().next() else { return false };
        let exchange = self.exchanges.get(id);
        let body = match side.peer {
            Peer::Client { .. } => &exchange.request,
            Peer::Instance(_) => &exchange.response,
        };
        let window = if self.guard.is_tight() { side::LITTLE } else { self.config.server.flow.stream_window };
        body.waiting() >= body::KEPT.min(window as usize)
    }

    /// Takes a connection that carries requests out of its place, so that others can be reached meanwhile. Anything
    /// else in the place stays: a place that was left may have another connection already.
    fn take_side(&mut self, slot: u32) -> Option<Box<Side>> {
        let place = &mut self.slots[slot as usize];
        if !matches!(place, Slot::Open(_)) {
            return None;
        }
        match std::mem::take(place) {
            Slot::Open(side) => Some(side),
            _ => None,
        }
    }

    /// Works on a connection that carries requests; one that breaks is removed.
    fn with_side(
        &mut self,
        slot: u32,
        work: impl FnOnce(&mut Self, &mut Side) -> Result<(), TransportError>,
    ) {
        let Some(mut side) = self.take_side(slot) else { return };
        let result = work(self, &mut side);
        match result {
            Ok(()) => {
                mark(&mut side, slot, &mut self.dirty);
                self.slots[slot as usize] = Slot::Open(side);
                self.weigh_slot(slot);
            }
            Err(error) => self.break_off(slot, *side, &error),
        }
    }

    /// Advances exchanges and writes, until nothing is left to do at once.
    fn settle(&mut self) {
        let (mut stirred, mut dirty) = (Vec::new(), Vec::new());
        loop {
            self.admit();
            self.exchanges.take_stirred(&mut stirred);
            for id in stirred.drain(..) {
                self.advance(id);
                self.weigh_exchange(id);
            }
            std::mem::swap(&mut self.dirty, &mut dirty);
            if dirty.is_empty() && !self.exchanges.has_stirred() {
                return;
            }
            for slot in dirty.drain(..) {
                self.write(slot);
            }
        }
    }

    /// Writes what a connection has to send, and takes the events of that: what was sent makes room, and ends what was to end.
    fn write(&mut self, slot: u32) {
        let now = self.now;
        let Some(mut side) = self.take_side(slot) else { return };
        let until = loop {
            match side.write(now) {
                Ok(Next::Wait(until)) if side.is_closed => break until,
                Ok(Next::Wait(_)) => {
                    let had_events = self.take_events(slot, &mut side, now);
                    // Even without an event the engine may have output: it reads the next one of pipelined requests
                    // only now, and refuses it, or waits for the rest of it.
                    if !had_events && (side.is_blocked() || !side.engine.has_output(now)) {
                        break side.due();
                    }
                }
                Ok(Next::Drop) => return self.lose(slot, *side, "it was closed"),
                Err(error) => return self.break_off(slot, *side, &error),
            }
        };
        self.reactor.set_timer(Self::token(slot), until);
        // What was sent may have made room to read.
        let reads = side.has_unread() && !self.is_held(&side) && side.may_receive();
        if self.guard.is_tight() {
            side.shrink();
        }
        self.call_granted(&side);
        if side.waits_for_room() {
            self.waits_for_port(slot);
        }
        self.spare.take_back(&mut side.engine);
        self.spare.take_back_transport(&mut side.transport);
        self.slots[slot as usize] = Slot::Open(side);
        self.weigh_slot(slot);
        self.may_leave(slot);
        if reads && !self.unread.contains(&slot) {
            self.unread.push(slot);
        }
    }

    fn free_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::Empty);
            self.slots.len() as u32 - 1
        })
    }

    /// Nothing is in this place any more.
    fn vacate(&mut self, slot: u32) {
        self.reactor.forget(Self::token(slot));
        self.forget_dial(slot);
        self.slots[slot as usize] = Slot::Empty;
        self.forget_datagrams(slot);
        self.weigh_slot(slot);
        self.free.push(slot);
    }

    const fn token(slot: u32) -> Token {
        Token(FIRST + slot)
    }

    const fn slot(token: Token) -> u32 {
        token.0 - FIRST
    }
}

/// A connection may have something to send.
fn mark(side: &mut Side, slot: u32, dirty: &mut Vec<u32>) {
    if !std::mem::replace(&mut side.is_dirty, true) {
        dirty.push(slot);
    }
}

/// The connection in this place, if it carries requests.
fn side(slots: &mut [Slot], slot: u32) -> Option<&mut Side> {
    match &mut slots[slot as usize] {
        Slot::Open(side) => Some(side),
        _ => None,
    }
}

/// The connection of a stream, if it is still there.
fn side_at(slots: &mut [Slot], at: exchange::StreamAt) -> Option<&mut Side> {
    side(slots, at.slot).filter(|side| side.serial == at.serial)
}
