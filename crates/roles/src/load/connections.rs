//! The connections of a cell: completions in, bytes out, replacements for those that end.

use std::io;
use std::time::Duration;

use h2lab_base::counters::TcpTick;
use h2lab_base::units::Time;
use h2lab_model::record::{CloseReason, ConnectionRecord, Outcome};
use h2lab_model::workload::ClientPolicy;
use h2lab_wire::{StreamId, WindowBudget};

use super::requests::Requests;
use crate::client::connect::{Established, Step};
use crate::client::{ConnectError, Dial, Outgoing as _, Pool, Prepared, Session, Sight, Target};
use h2lab_net::alarm::Alarm;
use h2lab_net::clock::Clock;
use h2lab_net::reactor::{Completion, Reactor, Token};

/// Connections whose TCP is looked at per tick. A look costs about a microsecond: this bounds it to 1 % of a core.
const LOOKS_PER_TICK: usize = 64;

/// A connection that ends within this time without a single response counts as a failed dial.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// Why we end a connection by our own choice.
const RECONNECT: &str = "it has carried as many requests as it may (--reconnect-every)";
const SURPLUS: &str = "it is idle, and enough others are (--pool-size)";
const TOO_LATE: &str = "it was dialled in a stampede, and another was there first (--dial-policy)";

/// A place for a connection; its index is the connection's token and its name in the pool.
#[derive(Debug, Default)]
struct Seat {
    occupant: Occupant,
    /// It may have something to write.
    dirty: bool,
    /// The pool no longer counts on it.
    retired: bool,
    /// Bytes received at the last tick.
    received: u64,
    /// Responses that the pool has been told of.
    responses: u32,
}

#[derive(Debug, Default)]
enum Occupant {
    #[default]
    Nobody,
    Dialling(Dial),
    Open(Box<Session>),
}

/// All connections of a cell, on one reactor.
pub(super) struct Connections<'a> {
    prepared: &'a Prepared<'a>,
    target: Target,
    /// Streams at a time on each.
    streams: u32,
    policy: ClientPolicy,
    /// Seats that had no request any more when they were last looked at, if the policy bounds how many idle ones are kept.
    idle: Vec<u32>,
    clock: Clock,
    reactor: Reactor,
    pool: Pool,
    budget: WindowBudget,
    seats: Vec<Seat>,
    free: Vec<u32>,
    /// Seats that may have something to write.
    dirty: Vec<u32>,
    /// Seats whose socket has more to read than they took in their turn.
    unread: Vec<u32>,
    /// Those of them whose next turn is in this pass.
    resuming: Vec<u32>,
    /// By a connection's index in the cell: its seat.
    seat_of: Vec<u32>,
    records: Vec<ConnectionRecord>,
    ticks: Vec<TcpTick>,
    /// The seat whose TCP is looked at first at the next tick.
    look_from: usize,
    /// Why the last connection failed or ended.
    last_error: Option<ConnectError>,
    /// Connections that were established so far.
    opened: u64,
}

impl<'a> Connections<'a> {
    /// No connections yet; `pool` says how many there will be, `budget` what their windows may have, `streams` how many requests each may carry at a time.
    pub fn new(
        target: Target,
        pool: Pool,
        budget: WindowBudget,
        streams: u32,
        policy: ClientPolicy,
        prepared: &'a Prepared<'a>,
        clock: Clock,
    ) -> io::Result<Self> {
        Ok(Self {
            prepared,
            target,
            streams,
            policy,
            idle: Vec::new(),
            clock,
            reactor: Reactor::new(clock)?,
            pool,
            budget,
            seats: Vec::new(),
            free: Vec::new(),
            dirty: Vec::new(),
            unread: Vec::new(),
            resuming: Vec::new(),
            seat_of: Vec::new(),
            records: Vec::new(),
            ticks: Vec::with_capacity(4096),
            look_from: 0,
            last_error: None,
            opened: 0,
        })
    }

    /// Connections that were established so far.
    pub const fn opened(&self) -> u64 {
        self.opened
    }

    /// Where to connect to and how; for what is changed before anything is dialled.
    pub const fn target(&mut self) -> &mut Target {
        &mut self.target
    }

    /// Which kind a request is, see [`Prepared::kind`].
    pub fn kind(&self, number: u64) -> u16 {
        self.prepared.kind(number)
    }

    /// What the pool knows.
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Why the last connection failed or ended, if one did.
    pub const fn last_error(&mut self) -> &mut Option<ConnectError> {
        &mut self.last_error
    }

    /// Sleeps until a completion, a deadline or `until`, not at all if a socket has more to read, and returns the time of
    /// waking.
    pub fn wait(&mut self, until: Time) -> io::Result<Time> {
        self.resuming.append(&mut self.unread);
        let until = if self.resuming.is_empty() { until } else { Time::ZERO };
        self.reactor.wait(until)
    }

    /// As [`Connections::wait`], and back at `until` itself, see [`Reactor::wait_sharply`].
    pub fn wait_sharply(&mut self, until: Time, alarm: &mut Alarm) -> io::Result<Time> {
        if !self.unread.is_empty() || !self.resuming.is_empty() {
            return self.wait(until);
        }
        self.reactor.wait_sharply(until, alarm)
    }

    /// The next completion of the last [`Connections::wait`]. The socket's news come first, and then each connection once
    /// that has more to read: there is an end to it, however fast a server sends.
    pub fn next_completion(&mut self) -> Option<Completion> {
        let resume =
            |index| Completion::Ready { token: Token(index), readable: true, writable: false, hangup: false };
        self.reactor.next_completion().or_else(|| self.resuming.pop().map(resume))
    }

    /// Gives waiting requests to connections as long as there are both. [`Connections::flush`] sends them.
    pub fn assign(&mut self, now: Time, requests: &mut Requests) {
        while requests.waiting() > 0
            && let Some((index, most)) = self.pool.pick_for_many()
        {
            self.assign_to(index, most, now, requests);
        }
    }

    /// Gives up to `most` waiting requests to the connection in a seat, and tells the pool what it can take after that.
    fn assign_to(&mut self, index: u32, most: u32, now: Time, requests: &mut Requests) {
        let Occupant::Open(session) = &mut self.seats[index as usize].occupant else {
            return self.pool.update(index, 0, 0);
        };
        let quota = self.policy.reconnect_every.unwrap_or(u32::MAX);
        let room = session.available().min(most).min(quota.saturating_sub(session.requests()));
        let mut refused = false;
        for _ in 0..room {
            let Some(request) = requests.next_waiting() else { break };
            match session.begin(now, request, requests.number(request), self.prepared, requests) {
                Some(stream) => requests.assigned(now, session.index(), stream),
                // The engine knows better than its own count: do not ask again until something changes.
                None => {
                    refused = true;
                    break;
                }
            }
        }
        if session.requests() >= quota {
            session.leave(now, RECONNECT, self.prepared, requests);
            self.offer(index);
        } else {
            let available = if refused { 0 } else { session.available() };
            self.pool.update(index, session.open_streams(), available);
        }
        self.mark_dirty(index);
    }

    /// Cancels the request on a stream of the connection with this index, with this outcome; `false` if there is none.
    pub fn cancel(
        &mut self,
        now: Time,
        connection: u32,
        stream: StreamId,
        outcome: Outcome,
        requests: &mut Requests,
    ) -> bool {
        let Some(&index) = self.seat_of.get(connection as usize) else { return false };
        let Occupant::Open(session) = &mut self.seats[index as usize].occupant else { return false };
        let cancelled =
            session.index() == connection && session.cancel(now, stream, outcome, self.prepared, requests);
        self.settle(index, requests);
        self.mark_dirty(index);
        cancelled
    }

    /// Acts on one completion.
    pub fn act_on(&mut self, completion: Completion, requests: &mut Requests) {
        match completion {
            Completion::Connected { token, result } => {
                self.step(token.0, requests, |dial, target, now| dial.connected(result, target, now));
            }
            Completion::Ready { token, hangup, .. } => self.ready(token.0, hangup, requests),
            Completion::Timer { token } => self.timer(token.0, requests),
            Completion::Accepted { .. } => {} // we listen nowhere
        }
    }

    /// A stream has news.
    fn ready(&mut self, index: u32, hangup: bool, requests: &mut Requests) {
        match &mut self.seats[index as usize].occupant {
            Occupant::Open(session) => {
                session.receive(self.clock, hangup, self.prepared, requests);
                // Before anybody looks whether the pool wants another connection.
                if session.end().is_some() {
                    return self.settle(index, requests);
                }
                self.offer(index);
                self.mark_dirty(index);
            }
            Occupant::Dialling(_) => self.step(index, requests, |dial, _, now| dial.proceed(now)),
            Occupant::Nobody => {}
        }
    }

    /// A deadline of a dial or an engine has passed.
    fn timer(&mut self, index: u32, requests: &mut Requests) {
        let now = self.clock.now();
        match &mut self.seats[index as usize].occupant {
            Occupant::Open(session) => {
                session.expire(now, self.prepared, requests);
                self.settle(index, requests);
                self.mark_dirty(index);
            }
            Occupant::Dialling(dial) if dial.deadline() <= now => {
                self.step(index, requests, |dial, _, now| dial.expire(now));
            }
            Occupant::Dialling(_) | Occupant::Nobody => {}
        }
    }

    /// Dials as many connections as the pool wants, which is asked as of `now`; a dial begins when it does.
    pub fn dial_wanted(&mut self, now: Time, requests: &mut Requests) {
        for _ in 0..self.pool.dials_wanted(now, requests.waiting()) {
            let now = self.clock.now();
            let index = self.free.pop().unwrap_or_else(|| {
                self.seats.push(Seat::default());
                self.seats.len() as u32 - 1
            });
            let number = self.seat_of.len() as u32;
            self.seat_of.push(index);
            self.pool.dial_began();
            let share = self.budget.share_with(self.pool.dialling());
            let step = Dial::begin(&mut self.reactor, Token(index), number, &self.target, share, now);
            self.seat(index, step, now, requests);
        }
    }

    /// Lets the dial in a seat go on.
    fn step(
        &mut self,
        index: u32,
        requests: &mut Requests,
        advance: impl FnOnce(Dial, &Target, Time) -> Step,
    ) {
        let seat = &mut self.seats[index as usize];
        if let Occupant::Dialling(dial) = std::mem::take(&mut seat.occupant) {
            let now = self.clock.now();
            let step = advance(dial, &self.target, now);
            self.seat(index, step, now, requests);
        }
    }

    /// Seats the outcome of a step.
    fn seat(&mut self, index: u32, step: Step, now: Time, requests: &mut Requests) {
        match step {
            Step::Pending(dial) => {
                self.reactor.set_timer(Token(index), dial.deadline());
                self.seats[index as usize].occupant = Occupant::Dialling(dial);
            }
            Step::Established(established) if self.pool.comes_too_late(requests.waiting()) => {
                self.opened += 1;
                self.waste(index, established, now);
            }
            Step::Established(established) => {
                self.opened += 1;
                self.pool.dial_succeeded();
                let share = self.budget.opened();
                self.share_out(share);
                let (streams, share) = (self.streams, self.budget.share());
                let mut session = Box::new(Session::open(established, &self.target, streams, share, now));
                // The first bytes may have come with the end of the handshake.
                session.receive(self.clock, false, self.prepared, requests);
                self.seats[index as usize] = Seat { occupant: Occupant::Open(session), ..Seat::default() };
                self.settle(index, requests);
                self.mark_dirty(index);
            }
            Step::Failed(record, error) => {
                self.pool.dial_failed(now);
                self.vacate(index, *record, Some(error));
            }
        }
    }

    /// Throws away a connection that nobody needs any more, before a byte of HTTP.
    fn waste(&mut self, index: u32, established: Established, now: Time) {
        let Established { mut transport, record } = established;
        let _ = transport.shutdown(now);
        self.pool.dial_wasted();
        let closed = CloseReason::Local { why: TOO_LATE.to_owned() };
        self.vacate(index, ConnectionRecord { closed_at: now, closed, ..*record }, None);
    }

    /// Tells the pool what a session can take now.
    fn offer(&mut self, index: u32) {
        let seat = &mut self.seats[index as usize];
        let Occupant::Open(session) = &seat.occupant else { return };
        if std::mem::replace(&mut seat.responses, session.responses()) != session.responses() {
            self.pool.served();
        }
        if !seat.retired {
            if session.is_draining() {
                seat.retired = true;
                self.pool.retire(index);
            } else {
                self.pool.update(index, session.open_streams(), session.available());
                if self.policy.pool_size.is_some() && session.open_streams() == 0 {
                    self.idle.push(index);
                }
            }
        }
    }

    /// Ends connections that became idle and are too many. Not before waiting requests had their choice of them.
    fn trim(&mut self, requests: &mut Requests) {
        while let Some(index) = self.idle.pop() {
            let seat = &mut self.seats[index as usize];
            let Occupant::Open(session) = &mut seat.occupant else { continue };
            let idle = !seat.retired && session.open_streams() == 0;
            if idle && self.pool.is_surplus(session.requests() > 0) {
                session.leave(self.clock.now(), SURPLUS, self.prepared, requests);
                self.settle(index, requests);
            }
        }
    }

    /// Tells the pool and the reactor what has become of a session; takes it away if it has ended.
    fn settle(&mut self, index: u32, requests: &mut Requests) {
        self.offer(index);
        let seat = &mut self.seats[index as usize];
        let Occupant::Open(session) = &mut seat.occupant else { return };
        if session.end().is_none() {
            self.reactor.set_timer(Token(index), session.deadline());
            return;
        }
        // The engine may have a last word, such as the GOAWAY that says what the peer did wrong.
        session.flush(self.clock, self.prepared, requests);
        if let Occupant::Open(session) = std::mem::take(&mut seat.occupant) {
            if session.was_useless(SHORT_LIFE) {
                self.pool.pause(self.clock.now());
            }
            let (record, end) = session.into_record();
            let share = self.budget.closed();
            self.share_out(share);
            let patience = self.target.engine.peer_timeout;
            self.vacate(index, record, end.map(|end| end.into_connect_error(patience)));
        }
    }

    /// Tells all connections how large their windows may be from now on, if that has changed.
    fn share_out(&mut self, share: Option<u32>) {
        let Some(share) = share else { return };
        for (index, seat) in self.seats.iter_mut().enumerate() {
            if let Occupant::Open(session) = &mut seat.occupant {
                session.limit_windows(share);
                if !std::mem::replace(&mut seat.dirty, true) {
                    self.dirty.push(index as u32);
                }
            }
        }
    }

    /// Empties a seat whose connection has ended.
    fn vacate(&mut self, index: u32, record: ConnectionRecord, error: Option<ConnectError>) {
        self.reactor.forget(Token(index));
        self.target.show(record.closed_at, Sight::Closed { record: &record });
        self.records.push(record);
        self.last_error = error.or(self.last_error.take());
        self.seats[index as usize].occupant = Occupant::Nobody;
        self.free.push(index);
    }

    fn mark_dirty(&mut self, index: u32) {
        let seat = &mut self.seats[index as usize];
        if !std::mem::replace(&mut seat.dirty, true) {
            self.dirty.push(index);
        }
    }

    /// Writes what the sessions have to send: all that became due together leaves together.
    pub fn flush(&mut self, requests: &mut Requests) {
        self.trim(requests);
        while let Some(index) = self.dirty.pop() {
            let seat = &mut self.seats[index as usize];
            seat.dirty = false;
            if let Occupant::Open(session) = &mut seat.occupant {
                let news = session.flush(self.clock, self.prepared, requests);
                // Here, since what was written may be what reading had to wait for.
                if session.has_unread() {
                    self.unread.push(index);
                }
                if news {
                    self.settle(index, requests);
                } else {
                    // Nothing ended: the pool knows all since the requests were begun.
                    self.reactor.set_timer(Token(index), session.deadline());
                }
            }
        }
    }

    /// Looks at TCP on the connections that have work, or have received since the last look: the others stand still. With
    /// more of them than may be looked at, they take turns.
    pub fn sample_tcp(&mut self, now: Time) {
        let seats = self.seats.len();
        let mut looks = 0;
        for step in 0..seats {
            let at = (self.look_from + step) % seats;
            let seat = &mut self.seats[at];
            let Occupant::Open(session) = &seat.occupant else { continue };
            let received = session.bytes_received();
            if seat.received == received && session.open_streams() == 0 {
                continue;
            }
            if looks == LOOKS_PER_TICK {
                self.look_from = at;
                return;
            }
            looks += 1;
            seat.received = received;
            self.ticks.extend(session.tcp_tick(now));
        }
        self.look_from = 0;
    }

    /// The sessions that are up.
    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.seats.iter().filter_map(|seat| match &seat.occupant {
            Occupant::Open(session) => Some(&**session),
            Occupant::Nobody | Occupant::Dialling(_) => None,
        })
    }

    /// The cell is cut at `now`: what the connections carry is told as unfinished, and they stay open.
    pub fn cut(&mut self, now: Time, requests: &mut Requests) {
        for seat in &mut self.seats {
            if let Occupant::Open(session) = &mut seat.occupant {
                session.cut(now, requests);
            }
        }
        self.sample_tcp(now);
    }

    /// The records by index, the time series of TCP, and the sessions that are still open.
    pub fn into_parts(mut self, now: Time) -> (Vec<ConnectionRecord>, Vec<TcpTick>, Vec<Session>) {
        let mut open = Vec::new();
        for seat in self.seats {
            match seat.occupant {
                Occupant::Nobody => {}
                Occupant::Dialling(dial) => self.records.push(dial.abandon(now)),
                Occupant::Open(mut session) => {
                    self.records.push(session.record().clone());
                    open.push(*session);
                }
            }
        }
        self.records.sort_by_key(|record| record.index);
        (self.records, self.ticks, open)
    }
}
