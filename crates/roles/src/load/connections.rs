//! The connections of a cell: completions in, bytes out, replacements for those that end.

use std::io;
use std::time::Duration;

use h2lab_base::counters::TcpTick;
use h2lab_base::units::Time;
use h2lab_model::record::{ConnectionRecord, Outcome};
use h2lab_model::workload::ClientPolicy;
use h2lab_wire::{StreamId, WindowBudget};

use super::requests::Requests;
use crate::client::slots::OpenSessions;
use crate::client::{Change, DialTarget, Outgoing as _, Pool, Prepared, Slots};
use h2lab_net::clock::Clock;
use h2lab_net::reactor::Completion;

/// Connections whose `TCP_INFO` is read per tick. A read costs about a microsecond: this bounds it to 1 % of a core.
const LOOKS_PER_TICK: usize = 64;

/// A connection that ends within this time without a single response counts as a failed dial.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// Why we end a connection by our own choice.
const RECONNECT: &str = "request limit reached (--reconnect-every)";
const SURPLUS: &str = "idle, and the pool is full (--pool-size)";
const TOO_LATE: &str = "dialled in a stampede and not needed (--dial-policy)";

/// The notes on a connection in its slot, whose index is its name in the pool.
#[derive(Debug, Default)]
pub(super) struct Use {
    /// It may have something to write.
    dirty: bool,
    /// The pool no longer counts on it.
    retired: bool,
    /// Bytes received at the last tick.
    received: u64,
    /// Responses reported to the pool.
    responses: u32,
    /// Bytes reported to the listener.
    moved: u64,
}

impl Use {
    /// Adds the connection, which is in this slot, to those that may have something to write.
    #[inline]
    fn mark(&mut self, index: u32, dirty: &mut Vec<u32>) {
        if !std::mem::replace(&mut self.dirty, true) {
            dirty.push(index);
        }
    }
}

/// All connections of a cell, on one reactor.
pub(super) struct Connections<'a> {
    prepared: &'a Prepared<'a>,
    pub slots: Slots<Use>,
    /// Streams at a time on each.
    streams: u32,
    policy: ClientPolicy,
    /// Slots that had no request any more at the last check, if the policy bounds how many idle ones are kept.
    idle: Vec<u32>,
    clock: Clock,
    pool: Pool,
    budget: WindowBudget,
    free: Vec<u32>,
    /// Slots that may have something to write.
    dirty: Vec<u32>,
    ticks: Vec<TcpTick>,
    /// The slot whose `TCP_INFO` is read first at the next tick.
    look_from: u32,
    /// Connections that were established so far.
    opened: u64,
}

impl<'a> Connections<'a> {
    /// No connections yet; `pool` decides how many there will be, `budget` bounds their windows, `streams` how many requests each
    /// may carry at a time.
    pub fn new(
        target: DialTarget,
        pool: Pool,
        budget: WindowBudget,
        streams: u32,
        policy: ClientPolicy,
        prepared: &'a Prepared<'a>,
        clock: Clock,
    ) -> io::Result<Self> {
        Ok(Self {
            prepared,
            slots: Slots::new(target, 0, clock)?,
            streams,
            policy,
            idle: Vec::new(),
            clock,
            pool,
            budget,
            free: Vec::new(),
            dirty: Vec::new(),
            ticks: Vec::with_capacity(4096),
            look_from: 0,
            opened: 0,
        })
    }

    /// Connections that were established so far.
    pub const fn opened(&self) -> u64 {
        self.opened
    }

    /// Which kind a request is, see [`Prepared::kind`].
    pub fn kind(&self, number: u64) -> u16 {
        self.prepared.kind(number)
    }

    /// What the pool knows.
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Gives waiting requests to connections as long as there are both. [`Connections::flush`] sends them.
    pub fn assign(&mut self, now: Time, requests: &mut Requests) {
        while requests.waiting() > 0
            && let Some((index, most)) = self.pool.pick_for_many()
        {
            self.assign_to(index, most, now, requests);
        }
    }

    /// Gives up to `most` waiting requests to the connection in a slot, and reports to the pool what it can take after that.
    fn assign_to(&mut self, index: u32, most: u32, now: Time, requests: &mut Requests) {
        let Some((session, noted)) = self.slots.session(index) else { return self.pool.update(index, 0, 0) };
        noted.mark(index, &mut self.dirty);
        let quota = self.policy.reconnect_every.unwrap_or(u32::MAX);
        let room = session.available().min(most).min(quota.saturating_sub(session.requests()));
        let mut refused = false;
        for _ in 0..room {
            let Some(request) = requests.next_waiting() else { break };
            match session.begin(now, request, requests.number(request), self.prepared, requests) {
                Some(stream) => requests.assigned(now, session.index(), stream),
                // The engine takes fewer than it announced: do not ask again until something changes.
                None => {
                    refused = true;
                    break;
                }
            }
        }
        if session.requests() >= quota {
            session.leave(now, RECONNECT, self.prepared, requests);
            self.offer(index, false);
        } else {
            let available = if refused { 0 } else { session.available() };
            self.pool.update(index, session.open_streams(), available);
        }
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
        let Some(index) = self.slots.slot_of(connection) else { return false };
        let Some((session, noted)) = self.slots.session(index) else { return false };
        noted.mark(index, &mut self.dirty);
        let cancelled =
            session.index() == connection && session.cancel(now, stream, outcome, self.prepared, requests);
        self.settle(index, requests);
        cancelled
    }

    /// Acts on one completion.
    pub fn act_on(&mut self, completion: Completion, requests: &mut Requests) {
        let (index, change) = self.slots.act_on(completion, self.prepared, requests);
        self.follow(index, change, requests);
    }

    /// Dials as many connections as the pool wants as of `now`; each dial has its own start time.
    pub fn dial_wanted(&mut self, now: Time, requests: &mut Requests) {
        for _ in 0..self.pool.dials_wanted(now, requests.waiting()) {
            let index = self.free.pop().unwrap_or_else(|| self.slots.add());
            self.pool.dial_began();
            let share = self.budget.share_with(self.pool.dialling());
            let change = self.slots.dial(index, share);
            self.follow(index, change, requests);
        }
    }

    /// Does what follows from a change in a slot.
    #[inline]
    fn follow(&mut self, index: u32, change: Change, requests: &mut Requests) {
        match change {
            Change::Progress => {
                self.count(index, requests);
                self.offer(index, true);
            }
            // Before the pool is asked whether it wants another connection.
            Change::Ended => self.settle(index, requests),
            Change::Nothing => {}
            Change::Established(established) => {
                self.opened += 1;
                if self.pool.comes_too_late(requests.waiting()) {
                    self.pool.dial_wasted();
                    self.slots.reject(index, *established, TOO_LATE);
                    return self.free.push(index);
                }
                self.pool.dial_succeeded();
                let share = self.budget.opened();
                self.share_out(share);
                let (streams, share) = (self.streams, self.budget.share());
                self.slots.open(index, *established, streams, share, self.prepared, requests);
                let noted = self.slots.note(index);
                *noted = Use::default();
                noted.mark(index, &mut self.dirty);
                self.settle(index, requests);
            }
            Change::Failed => {
                self.pool.dial_failed(self.clock.now());
                self.free.push(index);
            }
        }
    }

    /// Reports to the listener, if there is one, what a session has moved since it was last counted.
    #[inline]
    fn count(&mut self, index: u32, requests: &Requests) {
        if !requests.is_heard() {
            return;
        }
        let Some((session, noted)) = self.slots.session(index) else { return };
        let total = session.bytes_received() + session.bytes_sent();
        let fresh = total.saturating_sub(std::mem::replace(&mut noted.moved, total));
        if fresh > 0 {
            requests.moved(fresh);
        }
    }

    /// Reports to the pool what a session can take now, and with `writes` that it may have something to write.
    fn offer(&mut self, index: u32, writes: bool) {
        let Some((session, noted)) = self.slots.session(index) else { return };
        if writes {
            noted.mark(index, &mut self.dirty);
        }
        if std::mem::replace(&mut noted.responses, session.responses()) != session.responses() {
            self.pool.served();
        }
        if !noted.retired {
            if session.is_draining() {
                noted.retired = true;
                self.pool.retire(index);
            } else {
                self.pool.update(index, session.open_streams(), session.available());
                if self.policy.pool_size.is_some() && session.open_streams() == 0 {
                    self.idle.push(index);
                }
            }
        }
    }

    /// Ends surplus idle connections, after waiting requests could use them.
    fn trim(&mut self, requests: &mut Requests) {
        while let Some(index) = self.idle.pop() {
            let Some((session, noted)) = self.slots.session(index) else { continue };
            let idle = !noted.retired && session.open_streams() == 0;
            if idle && self.pool.is_surplus(session.requests() > 0) {
                session.leave(self.clock.now(), SURPLUS, self.prepared, requests);
                self.settle(index, requests);
            }
        }
    }

    /// Reports to the pool and the reactor what has become of a session; removes it if it has ended.
    fn settle(&mut self, index: u32, requests: &mut Requests) {
        self.count(index, requests);
        self.offer(index, false);
        let Some((session, _)) = self.slots.session(index) else { return };
        let useless = session.was_useless(SHORT_LIFE);
        if self.slots.settle(index, self.prepared, requests).is_none() {
            return;
        }
        if useless {
            self.pool.pause(self.clock.now());
        }
        let share = self.budget.closed();
        self.share_out(share);
        self.free.push(index);
    }

    /// Sets how large the windows of all connections may be from now on, if that has changed.
    fn share_out(&mut self, share: Option<u32>) {
        let Some(share) = share else { return };
        for (index, session, noted) in self.slots.sessions() {
            session.limit_windows(share);
            noted.mark(index, &mut self.dirty);
        }
    }

    /// Writes what the sessions have to send: all that became due together leaves together.
    pub fn flush(&mut self, requests: &mut Requests) {
        self.trim(requests);
        while let Some(index) = self.dirty.pop() {
            let Some((news, noted)) = self.slots.flush(index, self.prepared, requests) else { continue };
            noted.dirty = false;
            if news {
                self.settle(index, requests);
            } else {
                // Nothing ended: the pool is up to date since the requests were begun.
                self.count(index, requests);
            }
        }
    }

    /// Reads `TCP_INFO` of the connections that have work, or have received since the last time: the others do not change. If
    /// there are more than a tick allows, they take turns.
    pub fn sample_tcp(&mut self, now: Time) {
        let slots = self.slots.count();
        let mut looks = 0;
        for step in 0..slots {
            let at = (self.look_from + step) % slots;
            let Some((session, noted)) = self.slots.session(at) else { continue };
            let received = session.bytes_received();
            if noted.received == received && session.open_streams() == 0 {
                continue;
            }
            if looks == LOOKS_PER_TICK {
                self.look_from = at;
                return;
            }
            looks += 1;
            noted.received = received;
            self.ticks.extend(session.tcp_tick(now));
        }
        self.look_from = 0;
    }

    /// The cell is cut at `now`: what the connections carry is reported as unfinished, and they stay open.
    pub fn cut(&mut self, now: Time, requests: &mut Requests) {
        self.slots.sessions().for_each(|(_, session, _)| session.cut(now, requests));
        self.sample_tcp(now);
    }

    /// The records by index, the time series of TCP, and the sessions that are still open.
    pub fn into_parts(mut self, now: Time) -> (Vec<ConnectionRecord>, Vec<TcpTick>, OpenSessions) {
        let (records, open) = self.slots.close(now);
        (records, self.ticks, open)
    }
}
