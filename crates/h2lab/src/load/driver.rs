//! The loop of the generator: completions in, requests out, by the clock.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use h2lab_core::record::{ConnectionRecord, GeneratorSummary, TcpTick};
use h2lab_core::units::{Time, nanos};
use h2lab_core::workload::{Arrival, Schedule};

use super::requests::{Expectation, Requests};
use super::{Finished, LoadError, LoadResult, LoadSpec, Progress};
use crate::client::connect::Step;
use crate::client::{ConnectError, Dial, Pool, Prepared, Session, Target};
use crate::io::clock::{Clock, thread_cpu_ns};
use crate::io::reactor::{Completion, Reactor, Token};

/// Between looking at `TCP_INFO`, at the stop flag and, every tenth time, at the progress.
const TICK: Duration = Duration::from_millis(10);
const TICKS_PER_PROGRESS: u64 = 10;

/// Connections whose TCP is looked at per tick. A look costs about a microsecond: this bounds it to 1 % of a core.
const LOOKS_PER_TICK: usize = 64;

/// Failures in a row, with no connection up, after which those who wait for one are told.
const FAILURES_TO_GIVE_UP: u32 = 3;

/// A connection that ends within this time without a single response counts as a failed dial.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// From the end of dialling to the first request, so that the first one is not late.
const LEAD: Duration = Duration::from_millis(1);

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

/// The generator of one cell.
pub(super) struct Driver<'a> {
    spec: &'a LoadSpec<'a>,
    prepared: &'a Prepared<'a>,
    target: Target,
    clock: Clock,
    reactor: Reactor,
    pool: Pool,
    requests: Requests,
    seats: Vec<Seat>,
    free: Vec<u32>,
    /// Seats that may have something to write.
    dirty: Vec<u32>,
    /// By a connection's index in the cell: its seat.
    seat_of: Vec<u32>,
    records: Vec<ConnectionRecord>,
    ticks: Vec<TcpTick>,
    /// The seat whose TCP is looked at first at the next tick.
    look_from: usize,
    /// Why the last connection failed or ended.
    last_error: Option<ConnectError>,
    /// Whether any connection has shown that it is of use.
    proven: bool,
    /// At most so many requests are sent.
    limit: usize,
    started_at: Time,
    generator: GeneratorSummary,
    interrupted: bool,
}

impl<'a> Driver<'a> {
    pub fn new(spec: &'a LoadSpec<'a>, prepared: &'a Prepared<'a>) -> Result<Self, LoadError> {
        let cell = &spec.cell;
        let clock = Clock::new(spec.clock_origin_ns);
        // Behind an emulated link the routes of the namespace set it, which needs no privilege per socket.
        let congestion = cell.congestion.clone().filter(|_| cell.link.is_none());
        let expectation = Expectation {
            requests: expected_requests(spec),
            timeout: cell.work.timeout,
            idempotent: prepared.is_idempotent(),
            closed_loop: matches!(cell.work.arrival, Arrival::Closed { .. }),
        };
        Ok(Self {
            spec,
            prepared,
            target: Target::new(spec.address, cell.protocol, &spec.server_name, &spec.tls, congestion)?,
            clock,
            reactor: Reactor::new(clock)?,
            pool: Pool::new(cell.connections, cell.max_connections),
            requests: Requests::new(expectation),
            seats: Vec::new(),
            free: Vec::new(),
            dirty: Vec::new(),
            seat_of: Vec::new(),
            records: Vec::new(),
            ticks: Vec::with_capacity(4096),
            look_from: 0,
            last_error: None,
            proven: false,
            limit: usize::MAX,
            started_at: Time::ZERO,
            generator: GeneratorSummary { threads: 1, ..GeneratorSummary::default() },
            interrupted: false,
        })
    }

    /// Sends at most `requests` requests.
    pub const fn limit(&mut self, requests: usize) {
        self.limit = requests;
    }

    /// Why the last connection failed or ended, if one did.
    pub const fn take_connect_error(&mut self) -> Option<ConnectError> {
        self.last_error.take()
    }

    /// Opens the warm pool. A failure is fatal if no connection has been of use yet, or if it repeats.
    pub fn dial(&mut self) -> Result<(), LoadError> {
        loop {
            self.dial_wanted();
            self.flush();
            self.proven = self.proven || self.sessions().any(Session::is_established);
            let hopeless = !self.proven || self.pool.failures() >= FAILURES_TO_GIVE_UP;
            if hopeless && let Some(why) = self.last_error.take() {
                return Err(LoadError::Unreachable { address: self.spec.address, why });
            }
            if self.pool.is_warm() && self.sessions().all(Session::is_established) {
                return Ok(());
            }
            // The deadlines of dials and engines are timers of the reactor: this ends.
            self.reactor.wait(self.pool.pause_until())?;
            while let Some(completion) = self.reactor.next_completion() {
                self.act_on(completion);
            }
        }
    }

    /// Warms up, measures and drains.
    pub fn measure(&mut self, progress: &mut dyn FnMut(&Progress)) -> io::Result<()> {
        let work = &self.spec.cell.work;
        let start = self.clock.now() + LEAD;
        self.started_at = start;
        let (until, cut) = (work.phases.measure_until(start), work.phases.cut(start));
        let mut schedule = Schedule::new(work.arrival, start, self.spec.cell.seed);
        let mut owed = if let Arrival::Closed { concurrency } = work.arrival { concurrency } else { 0 };
        let cpu_before = thread_cpu_ns();
        let (mut tick_at, mut ticks) = (start, 0);
        loop {
            let wake = self.next_wake(&schedule, owed, until).min(tick_at).min(cut);
            self.reactor.wait(wake)?;
            // Between completions too: behind a hundred of them a request that is due would wait half a millisecond.
            let now = loop {
                let completion = self.reactor.next_completion();
                let more = completion.is_some();
                if let Some(completion) = completion {
                    self.act_on(completion);
                }
                let now = self.clock.now();
                self.add_due(&mut schedule, &mut owed, now);
                self.assign(now);
                self.flush();
                if !more {
                    break now;
                }
            };
            self.expire(now);
            self.dial_wanted();
            if now >= tick_at {
                self.sample_tcp(now);
                self.interrupted |= self.spec.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
                if ticks % TICKS_PER_PROGRESS == 0 {
                    progress(&self.progress(now));
                }
                ticks += 1;
                tick_at = now + TICK;
            }
            let all_sent = (now >= until && schedule.next_at() >= until) || self.requests.due() >= self.limit;
            if now >= cut || self.interrupted || (all_sent && self.requests.outstanding() == 0) {
                break;
            }
        }
        self.cut(thread_cpu_ns() - cpu_before);
        Ok(())
    }

    /// When something must be done even if nothing completes.
    fn next_wake(&mut self, schedule: &Schedule, owed: u32, until: Time) -> Time {
        if self.requests.waiting() > 0 && self.pool.pick().is_some() {
            return Time::ZERO; // a replayed request can go at once
        }
        let due = if owed > 0 { self.started_at } else { schedule.next_at() };
        let due = if due < until && self.requests.due() < self.limit { due } else { Time::NEVER };
        due.min(self.requests.next_timeout()).min(self.pool.pause_until())
    }

    /// Makes the requests that are due at `now`.
    fn add_due(&mut self, schedule: &mut Schedule, owed: &mut u32, now: Time) {
        let phases = self.spec.cell.work.phases;
        let (from, until) = (phases.measure_from(self.started_at), phases.measure_until(self.started_at));
        let start = self.started_at;
        while self.requests.due() < self.limit {
            let due = if schedule.next_at() <= now && schedule.next_at() < until {
                schedule.advance()
            } else if *owed > 0 && start <= now {
                *owed -= 1;
                start
            } else if now < until
                && let Some(ended) = self.requests.take_ended()
            {
                ended
            } else {
                return;
            };
            self.requests.add(due, due >= from, now);
        }
    }

    /// Gives waiting requests to connections as long as there are both.
    fn assign(&mut self, now: Time) {
        while let Some(request) = self.requests.next_waiting() {
            let Some(index) = self.pool.pick() else { return };
            let Occupant::Open(session) = &mut self.seats[index as usize].occupant else {
                self.pool.update(index, 0, 0);
                continue;
            };
            match session.begin(now, request, self.prepared, &mut self.requests) {
                Some(stream) => {
                    self.requests.assigned(now, session.index(), stream);
                    self.pool.update(index, session.open_streams(), session.available());
                }
                // The engine knows better than its own count: do not ask again until something changes.
                None => self.pool.update(index, session.open_streams(), 0),
            }
            self.mark_dirty(index);
        }
    }

    /// Cancels what has timed out.
    fn expire(&mut self, now: Time) {
        while let Some((connection, stream)) = self.requests.next_expired(now) {
            let index = self.seat_of[connection as usize];
            if let Occupant::Open(session) = &mut self.seats[index as usize].occupant {
                session.cancel(now, stream, self.prepared, &mut self.requests);
            }
            self.settle(index);
            self.mark_dirty(index);
        }
        let given_up = self.pool.live() == 0 && self.pool.failures() >= FAILURES_TO_GIVE_UP;
        if given_up && let Some(error) = &self.last_error {
            let outcome = error.outcome();
            self.requests.fail_waiting(now, outcome);
        }
    }

    /// Acts on one completion.
    fn act_on(&mut self, completion: Completion) {
        match completion {
            Completion::Connected { token, result } => {
                self.step(token.0, |dial, target, now| dial.connected(result, target, now));
            }
            Completion::Ready { token, hangup, .. } => self.ready(token.0, hangup),
            Completion::Timer { token } => self.timer(token.0),
            Completion::Accepted { .. } => {} // we listen nowhere
        }
    }

    /// A stream has news.
    fn ready(&mut self, index: u32, hangup: bool) {
        match &mut self.seats[index as usize].occupant {
            Occupant::Open(session) => {
                session.receive(self.clock, hangup, self.prepared, &mut self.requests);
                self.settle(index);
                self.mark_dirty(index);
            }
            Occupant::Dialling(_) => self.step(index, |dial, _, now| dial.proceed(now)),
            Occupant::Nobody => {}
        }
    }

    /// A deadline of a dial or an engine has passed.
    fn timer(&mut self, index: u32) {
        let now = self.clock.now();
        match &mut self.seats[index as usize].occupant {
            Occupant::Open(session) => {
                session.expire(now, self.prepared, &mut self.requests);
                self.settle(index);
                self.mark_dirty(index);
            }
            Occupant::Dialling(dial) if dial.deadline() <= now => {
                self.step(index, |dial, _, now| dial.expire(now));
            }
            Occupant::Dialling(_) | Occupant::Nobody => {}
        }
    }

    /// Dials as many connections as the pool wants.
    fn dial_wanted(&mut self) {
        let now = self.clock.now();
        for _ in 0..self.pool.dials_wanted(now, self.requests.waiting()) {
            let index = self.free.pop().unwrap_or_else(|| {
                self.seats.push(Seat::default());
                self.seats.len() as u32 - 1
            });
            let number = self.seat_of.len() as u32;
            self.seat_of.push(index);
            self.pool.dial_began();
            let step = Dial::begin(&mut self.reactor, Token(index), number, &self.target, now);
            self.seat(index, step, now);
        }
    }

    /// Lets the dial in a seat go on.
    fn step(&mut self, index: u32, advance: impl FnOnce(Dial, &Target, Time) -> Step) {
        let seat = &mut self.seats[index as usize];
        if let Occupant::Dialling(dial) = std::mem::take(&mut seat.occupant) {
            let now = self.clock.now();
            let step = advance(dial, &self.target, now);
            self.seat(index, step, now);
        }
    }

    /// Seats the outcome of a step.
    fn seat(&mut self, index: u32, step: Step, now: Time) {
        match step {
            Step::Pending(dial) => {
                self.reactor.set_timer(Token(index), dial.deadline());
                self.seats[index as usize].occupant = Occupant::Dialling(dial);
            }
            Step::Established(established) => {
                self.pool.dial_succeeded();
                let mut session =
                    Box::new(Session::open(established, &self.target, self.spec.cell.streams, now));
                // The first bytes may have come with the end of the handshake.
                session.receive(self.clock, false, self.prepared, &mut self.requests);
                self.seats[index as usize] = Seat { occupant: Occupant::Open(session), ..Seat::default() };
                self.settle(index);
                self.mark_dirty(index);
            }
            Step::Failed(record, error) => {
                self.pool.dial_failed(now);
                self.vacate(index, *record, Some(error));
            }
        }
    }

    /// Tells the pool and the reactor what has become of a session; takes it away if it has ended.
    fn settle(&mut self, index: u32) {
        let seat = &mut self.seats[index as usize];
        let Occupant::Open(session) = &mut seat.occupant else { return };
        if std::mem::replace(&mut seat.responses, session.responses()) != session.responses() {
            self.pool.served();
        }
        if !seat.retired {
            if session.is_draining() {
                seat.retired = true;
                self.pool.retire(index);
            } else {
                self.pool.update(index, session.open_streams(), session.available());
            }
        }
        if session.end().is_none() {
            self.reactor.set_timer(Token(index), session.deadline());
            return;
        }
        // The engine may have a last word, such as the GOAWAY that says what the peer did wrong.
        session.flush(self.clock, self.prepared, &mut self.requests);
        if let Occupant::Open(session) = std::mem::take(&mut seat.occupant) {
            if session.was_useless(SHORT_LIFE) {
                self.pool.pause(self.clock.now());
            }
            let (record, end) = session.into_record();
            self.vacate(index, record, end.map(crate::client::session::End::into_connect_error));
        }
    }

    /// Empties a seat whose connection has ended.
    fn vacate(&mut self, index: u32, record: ConnectionRecord, error: Option<ConnectError>) {
        self.reactor.forget(Token(index));
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
    fn flush(&mut self) {
        while let Some(index) = self.dirty.pop() {
            let seat = &mut self.seats[index as usize];
            seat.dirty = false;
            if let Occupant::Open(session) = &mut seat.occupant {
                session.flush(self.clock, self.prepared, &mut self.requests);
                self.settle(index);
            }
        }
    }

    fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.seats.iter().filter_map(|seat| match &seat.occupant {
            Occupant::Open(session) => Some(&**session),
            Occupant::Nobody | Occupant::Dialling(_) => None,
        })
    }

    /// Looks at TCP on the connections that have work, or have received since the last look: the others stand still. With
    /// more of them than may be looked at, they take turns.
    fn sample_tcp(&mut self, now: Time) {
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

    fn progress(&self, now: Time) -> Progress {
        let phases = self.spec.cell.work.phases;
        Progress {
            elapsed: now.since(self.started_at),
            total: phases.warmup + phases.measure,
            due: self.requests.due() as u64,
            succeeded: self.requests.succeeded(),
            failed: self.requests.failed(),
            waiting: self.requests.waiting() as u64,
            connections: self.pool.live(),
        }
    }

    /// Ends the cell now: books what is unfinished.
    fn cut(&mut self, cpu_ns: u64) {
        let now = self.clock.now();
        self.generator.cpu_ns = cpu_ns;
        self.generator.wall_ns = nanos(now.since(self.started_at));
        self.generator.backlog_at_cut = self.requests.cut(now);
        for seat in &mut self.seats {
            if let Occupant::Open(session) = &mut seat.occupant {
                session.cut(now, &mut self.requests);
            }
        }
        self.sample_tcp(now);
    }

    /// The result, with the connections that are still open.
    pub fn finish(mut self) -> Finished {
        let now = self.clock.now();
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
        let (samples, frames, lost) = self.requests.into_parts();
        let mut warnings = Vec::new();
        if lost > 0 {
            warnings
                .push(format!("{lost} frames were not recorded: the cell has more of them than are kept"));
        }
        let result = LoadResult {
            started_at: self.started_at,
            samples,
            connections: self.records,
            frames,
            tcp: self.ticks,
            generator: self.generator,
            warnings,
            interrupted: self.interrupted,
        };
        Finished { result, open, clock: self.clock }
    }
}

/// How many requests to make room for; a closed loop's number is not known, it grows beyond this if need be.
fn expected_requests(spec: &LoadSpec<'_>) -> usize {
    const CLOSED_LOOP: usize = 1 << 16;
    const LIMIT: f64 = 16e6;
    let work = &spec.cell.work;
    let seconds = (work.phases.warmup + work.phases.measure).as_secs_f64();
    match work.arrival.rate() {
        Some(rate) => (rate * seconds * 1.05).min(LIMIT) as usize + 64,
        None => CLOSED_LOOP,
    }
}
