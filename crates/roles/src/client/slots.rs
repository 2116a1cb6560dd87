//! The connections of a role on one reactor, each in its slot: dialled, driven by completions, removed when they end.
//!
//! The role decides when to dial and what a connection carries. The result of an event of the reactor is reported as a
//! [`Change`], on which the role acts: statically dispatched, since every response takes this path.

use std::io;

use h2lab_base::units::Time;
use h2lab_model::record::{CloseReason, ConnectionRecord};

use super::connect::{ConnectError, Dial, DialState, DialTarget, Established};
use super::request::Outgoing;
use super::request_observer::RequestObserver;
use super::session::ClientSession;
use super::watch::WatchEvent;
use h2lab_net::clock::Clock;
use h2lab_net::precise_wakeup::PreciseWakeup;
use h2lab_net::reactor::{Completion, Reactor, Token};

/// A place for a connection; its index is the connection's token.
#[derive(Debug, Default)]
struct ConnectionSlot<T> {
    state: State,
    /// The role's own data of the slot.
    note: T,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Empty,
    Dialling(Dial),
    Open(Box<ClientSession>),
}

/// What has changed for the connection in a slot.
#[derive(Debug)]
pub enum Change {
    /// Nothing that concerns its role.
    Nothing,
    /// It can carry requests: the role calls [`Slots::open`] or [`Slots::reject`].
    Established(Box<Established>),
    /// It was not established, and the slot is empty.
    Failed,
    /// Its session made progress.
    Progress,
    /// Its session made progress and has ended: [`Slots::settle`] must follow.
    Ended,
}

impl Change {
    #[inline]
    const fn of(session: &ClientSession) -> Self {
        if session.end().is_some() { Self::Ended } else { Self::Progress }
    }
}

/// Sessions that are open when a role is done.
#[allow(clippy::vec_box, reason = "they stay where they are: ten thousand are not moved at a time")]
pub type OpenSessions = Vec<Box<ClientSession>>;

/// All connections of a role, with a `T` of its own for each slot.
#[derive(Debug)]
pub struct Slots<T> {
    /// Where to connect to and how.
    pub target: DialTarget,
    /// Why the last connection failed or ended, if one did.
    pub last_error: Option<ConnectError>,
    clock: Clock,
    reactor: Reactor,
    all: Vec<ConnectionSlot<T>>,
    /// Slots whose socket has more to read than their turn allowed.
    unread: Vec<u32>,
    /// Those of them whose next turn is in this pass.
    resuming: Vec<u32>,
    /// By a connection's index in the run: its slot.
    slot_of: Vec<u32>,
    records: Vec<ConnectionRecord>,
    calls: (u64, u64),
}

impl<T: Default> Slots<T> {
    /// So many empty slots for connections to `target`.
    pub fn new(target: DialTarget, slots: u32, clock: Clock) -> io::Result<Self> {
        let mut empty = Self {
            target,
            last_error: None,
            clock,
            reactor: Reactor::new(clock)?,
            all: Vec::new(),
            unread: Vec::new(),
            resuming: Vec::new(),
            slot_of: Vec::new(),
            records: Vec::new(),
            calls: (0, 0),
        };
        empty.all.resize_with(slots as usize, ConnectionSlot::default);
        Ok(empty)
    }

    /// Adds an empty slot.
    pub fn add(&mut self) -> u32 {
        self.all.push(ConnectionSlot::default());
        self.all.len() as u32 - 1
    }

    /// How many there are.
    pub const fn count(&self) -> u32 {
        self.all.len() as u32
    }

    /// Whether the slot has neither a connection nor a dial.
    pub fn is_vacant(&self, slot: u32) -> bool {
        matches!(self.all[slot as usize].state, State::Empty)
    }

    /// The role's own data of the slot.
    #[inline]
    pub fn note(&mut self, slot: u32) -> &mut T {
        &mut self.all[slot as usize].note
    }

    /// The session there, if it is up, and the role's own data.
    #[inline]
    pub fn session(&mut self, slot: u32) -> Option<(&mut ClientSession, &mut T)> {
        match &mut self.all[slot as usize] {
            ConnectionSlot { state: State::Open(session), note } => Some((session, note)),
            _ => None,
        }
    }

    /// All sessions that are up.
    pub fn sessions(&mut self) -> impl Iterator<Item = (u32, &mut ClientSession, &mut T)> {
        self.all.iter_mut().zip(0..).filter_map(|(slot, index)| match &mut slot.state {
            State::Open(session) => Some((index, &mut **session, &mut slot.note)),
            State::Empty | State::Dialling(_) => None,
        })
    }

    /// Which slot the connection with this index in the run has or had.
    pub fn slot_of(&self, connection: u32) -> Option<u32> {
        self.slot_of.get(connection as usize).copied()
    }

    /// Sleeps until a completion, a deadline or `until`, which is met precisely with `precise_wakeup`, see
    /// [`Reactor::wait_precisely`]; not at all if a socket has more to read. Returns the time of waking.
    pub fn wait(&mut self, until: Time, precise_wakeup: Option<&mut PreciseWakeup>) -> io::Result<Time> {
        self.resuming.append(&mut self.unread);
        match precise_wakeup {
            _ if !self.resuming.is_empty() => self.reactor.wait(Time::ZERO),
            Some(precise_wakeup) => self.reactor.wait_precisely(until, precise_wakeup),
            None => self.reactor.wait(until),
        }
    }

    /// The next completion of the last [`Slots::wait`]. The sockets' events come first, then each connection that has
    /// more to read, once. So this ends, however fast a server sends.
    #[inline]
    pub fn next_completion(&mut self) -> Option<Completion> {
        let resume =
            |slot| Completion::Ready { token: Token(slot), readable: true, writable: false, hangup: false };
        self.reactor.next_completion().or_else(|| self.resuming.pop().map(resume))
    }

    /// Sets the slot's timer: [`Slots::wait`] ends at `at`.
    pub fn set_timer(&mut self, slot: u32, at: Time) {
        self.reactor.set_timer(Token(slot), at);
    }

    /// Acts on one completion; returns its slot, and the change.
    #[inline]
    pub fn act_on(
        &mut self,
        completion: Completion,
        outgoing: &impl Outgoing,
        exchange: &mut impl RequestObserver,
    ) -> (u32, Change) {
        let (Completion::Ready { token: Token(slot), .. }
        | Completion::Timer { token: Token(slot) }
        | Completion::Connected { token: Token(slot), .. }
        | Completion::Accepted { token: Token(slot), .. }) = completion;
        let change = match (&mut self.all[slot as usize].state, completion) {
            (State::Open(session), Completion::Ready { hangup, .. }) => {
                session.receive(self.clock, hangup, outgoing, exchange);
                Change::of(session)
            }
            (State::Open(session), Completion::Timer { .. }) => {
                session.expire(self.clock.now(), outgoing, exchange);
                Change::of(session)
            }
            (State::Dialling(_), Completion::Connected { result, .. }) => {
                self.step(slot, |dial, target, now| dial.connected(result, target, now))
            }
            (State::Dialling(_), Completion::Ready { .. }) => {
                self.step(slot, |dial, _, now| dial.proceed(now))
            }
            (State::Dialling(dial), Completion::Timer { .. }) if dial.deadline() <= self.clock.now() => {
                self.step(slot, |dial, _, now| dial.expire(now))
            }
            _ => Change::Nothing,
        };
        (slot, change)
    }

    /// Dials into an empty slot, as the next connection of the run, whose windows may have `window_limit` bytes.
    pub fn dial(&mut self, slot: u32, window_limit: u32) -> Change {
        let index = self.slot_of.len() as u32;
        self.slot_of.push(slot);
        let now = self.clock.now();
        let step = Dial::begin(&mut self.reactor, Token(slot), index, &self.target, window_limit, now);
        self.place(slot, step)
    }

    /// Continues the dial in a slot.
    fn step(&mut self, slot: u32, advance: impl FnOnce(Dial, &DialTarget, Time) -> DialState) -> Change {
        let State::Dialling(dial) = std::mem::take(&mut self.all[slot as usize].state) else {
            return Change::Nothing;
        };
        let step = advance(dial, &self.target, self.clock.now());
        self.place(slot, step)
    }

    /// Puts the result of a step into its slot.
    fn place(&mut self, slot: u32, step: DialState) -> Change {
        match step {
            DialState::Pending(dial) => {
                self.set_timer(slot, dial.deadline());
                self.all[slot as usize].state = State::Dialling(dial);
                Change::Nothing
            }
            DialState::Established(established) => Change::Established(Box::new(established)),
            DialState::Failed(record, error) => {
                self.vacate(slot, *record, Some(error));
                Change::Failed
            }
        }
    }

    /// Opens a session of up to `limit` requests at a time whose windows may have `window_limit` bytes. It may have ended when
    /// this returns.
    pub fn open(
        &mut self,
        slot: u32,
        established: Established,
        limit: u32,
        window_limit: u32,
        outgoing: &impl Outgoing,
        exchange: &mut impl RequestObserver,
    ) {
        let now = established.record.ready_at;
        let mut session = Box::new(ClientSession::open(established, &self.target, limit, window_limit, now));
        // The first bytes may have come with the end of the handshake.
        session.receive(self.clock, false, outgoing, exchange);
        self.all[slot as usize].state = State::Open(session);
    }

    /// Closes a connection that is no longer needed, before a byte of HTTP.
    pub fn reject(&mut self, slot: u32, established: Established, why: &str) {
        let Established { mut transport, record } = established;
        let closed_at = record.ready_at;
        let _ = transport.shutdown(closed_at);
        let closed = CloseReason::Local { why: why.to_owned() };
        self.vacate(slot, ConnectionRecord { closed_at, closed, ..*record }, None);
    }

    /// Writes what a session has to send. Returns whether anything else changed, so that [`Slots::settle`] must follow, and the
    /// role's own data of the slot; `None` if no session is up there.
    #[inline]
    pub fn flush(
        &mut self,
        slot: u32,
        outgoing: &impl Outgoing,
        exchange: &mut impl RequestObserver,
    ) -> Option<(bool, &mut T)> {
        let ConnectionSlot { state: State::Open(session), note } = &mut self.all[slot as usize] else {
            return None;
        };
        let news = session.flush(self.clock, outgoing, exchange);
        // Here, since reading may have had to wait for the write.
        if session.has_unread() && !self.unread.contains(&slot) {
            self.unread.push(slot);
        }
        self.reactor.set_timer(Token(slot), session.deadline());
        Some((news, note))
    }

    /// Removes a session that has ended, and returns its record; else sets its timer.
    pub fn settle(
        &mut self,
        slot: u32,
        outgoing: &impl Outgoing,
        exchange: &mut impl RequestObserver,
    ) -> Option<&ConnectionRecord> {
        let state = &mut self.all[slot as usize].state;
        let State::Open(session) = state else { return None };
        if session.end().is_none() {
            self.reactor.set_timer(Token(slot), session.deadline());
            return None;
        }
        // The engine may have a last frame to send, such as the GOAWAY with the peer's error.
        session.flush(self.clock, outgoing, exchange);
        add_calls(&mut self.calls, session);
        let State::Open(session) = std::mem::take(state) else { return None };
        let (record, end) = session.into_record();
        let timeout = self.target.engine.peer_timeout;
        self.vacate(slot, record, end.map(|end| end.into_connect_error(timeout)));
        self.records.last()
    }

    /// Empties a slot whose connection has ended.
    fn vacate(&mut self, slot: u32, record: ConnectionRecord, error: Option<ConnectError>) {
        self.reactor.forget(Token(slot));
        self.target.show(record.closed_at, WatchEvent::Closed { record: &record });
        self.records.push(record);
        self.last_error = error.or(self.last_error.take());
        self.all[slot as usize].state = State::Empty;
    }

    /// System calls by which removed sessions read from sockets and wrote to them; those of QUIC are not counted.
    pub const fn calls(&self) -> (u64, u64) {
        self.calls
    }

    /// The records by index, and the sessions that are still open. All slots are empty after that.
    pub fn close(&mut self, now: Time) -> (Vec<ConnectionRecord>, OpenSessions) {
        let (mut records, mut open) = (std::mem::take(&mut self.records), Vec::new());
        for slot in &mut self.all {
            match std::mem::take(&mut slot.state) {
                State::Empty => {}
                State::Dialling(dial) => records.push(dial.abandon(now)),
                State::Open(mut session) => {
                    add_calls(&mut self.calls, &session);
                    records.push(session.record().clone());
                    open.push(session);
                }
            }
        }
        records.sort_by_key(|record| record.index);
        (records, open)
    }
}

fn add_calls(calls: &mut (u64, u64), session: &ClientSession) {
    let (reads, writes) = session.calls().unwrap_or_default();
    *calls = (calls.0 + reads, calls.1 + writes);
}
