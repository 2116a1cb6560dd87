//! The connections of a run, on one reactor: dials them, gives them requests, replaces those that break, and gives up a server
//! that has gone.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::bulk::Meter;
use h2lab_model::record::{ConnectionRecord, Outcome};

use super::attempts::Attempts;
use super::fetch::FetchError;
use super::work::{Doomed, Outbox, Work};
use crate::client::connect::Step;
use crate::client::{ConnectError, Dial, Session, Target};
use h2lab_net::clock::Clock;
use h2lab_net::reactor::{Completion, Reactor, Token};

/// How often it is looked whether somebody wants an end, and progress is told.
const TICK: Duration = Duration::from_millis(100);

/// How often what arrived is made to survive our end, if there is time for it.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// How the connections of a run are made and used.
#[derive(Debug, Clone, Copy)]
pub struct Traffic<'a> {
    /// How many there are.
    pub connections: u32,
    /// Requests at a time on each; 1 in HTTP/1.1.
    pub streams: u32,
    /// Bytes that a receive window may have.
    pub window_limit: u32,
    /// After so long without a byte a server has gone.
    pub patience: Duration,
    /// When to begin nothing new and cut what is under way.
    pub until: Option<Duration>,
    /// Set to end early.
    pub stop: Option<&'a AtomicBool>,
}

/// How far a run is.
#[derive(Debug)]
pub struct Progress<'a> {
    /// Now.
    pub now: Time,
    /// What came when.
    pub meter: &'a Meter,
    /// The files.
    pub work: &'a Work,
}

/// A place for a connection; its index is the connection's token.
#[derive(Debug)]
enum Seat {
    /// Nobody sits there, and nobody is to be dialled before this.
    Empty(Time),
    Dialling(Dial),
    Open(Box<Session>),
}

/// All connections of a run.
pub struct Driver<'a> {
    traffic: Traffic<'a>,
    target: Target,
    clock: Clock,
    reactor: Reactor,
    seats: Vec<Seat>,
    /// Seats whose sockets have more to read than they took in their turn.
    unread: Vec<usize>,
    work: Work,
    outbox: Outbox<'a>,
    meter: Meter,
    has_begun: bool,
    records: Vec<ConnectionRecord>,
    /// Connections that were dialled.
    dialled: u32,
    attempts: Attempts,
    last_error: Option<ConnectError>,
    /// Whether a connection has shown that it is of use.
    proven: bool,
    /// System calls that read from sockets and wrote to them.
    calls: (u64, u64),
    interrupted: bool,
}

impl<'a> Driver<'a> {
    /// Nothing is dialled yet.
    pub fn new(
        target: Target,
        traffic: Traffic<'a>,
        work: Work,
        authority: &'a str,
        clock: Clock,
    ) -> io::Result<Self> {
        let now = clock.now();
        Ok(Self {
            traffic,
            target,
            clock,
            reactor: Reactor::new(clock)?,
            seats: (0..traffic.connections).map(|_| Seat::Empty(Time::ZERO)).collect(),
            unread: Vec::new(),
            work,
            outbox: Outbox::new(authority),
            meter: Meter::new(now),
            has_begun: false,
            records: Vec::new(),
            dialled: 0,
            attempts: Attempts::new(traffic.connections as usize),
            last_error: None,
            proven: false,
            calls: (0, 0),
            interrupted: false,
        })
    }

    /// Does all of the work. Fails if the server was of no use from the beginning on: then nothing was asked of it.
    pub fn run(&mut self, progress: &mut dyn FnMut(&Progress<'_>)) -> Result<(), RunError> {
        let done = self.work_off(progress);
        if let Err(error) = &done {
            self.work.give_up(|| FetchError::Vanished(error.to_string()));
        }
        let now = self.clock.now();
        self.count(now);
        progress(&Progress { now, meter: &self.meter, work: &self.work });
        self.work.keep();
        self.close(now);
        done
    }

    fn work_off(&mut self, progress: &mut dyn FnMut(&Progress<'_>)) -> Result<(), RunError> {
        let (mut tick_at, mut save_at) = (Time::ZERO, self.clock.now() + SAVE_EVERY);
        loop {
            let now = self.clock.now();
            self.dial(now);
            self.assign(now);
            self.count(now);
            if self.work.is_over() {
                break;
            }
            self.look_after_the_server(now)?;
            if now >= tick_at {
                self.look(now);
                self.end_early(now);
                self.judge_silence(now);
                progress(&Progress { now, meter: &self.meter, work: &self.work });
                tick_at = now + TICK;
            }
            if now >= save_at {
                self.work.save();
                save_at = now + SAVE_EVERY;
            }
            self.wait(tick_at)?;
        }
        Ok(())
    }

    /// Sleeps until something happens, or `until`, and acts on it.
    fn wait(&mut self, until: Time) -> io::Result<()> {
        let unread = std::mem::take(&mut self.unread);
        self.reactor.wait(if unread.is_empty() { until } else { Time::ZERO })?;
        // All that was there to be read by now is heard before anybody is called silent, however long a disk holds us up.
        self.work.hear(self.clock.now());
        while let Some(completion) = self.reactor.next_completion() {
            match completion {
                Completion::Connected { token, result } => {
                    self.step(token.0 as usize, |dial, target, now| dial.connected(result, target, now));
                }
                Completion::Ready { token, hangup, .. } => self.ready(token.0 as usize, hangup),
                Completion::Timer { token } => self.timer(token.0 as usize),
                Completion::Accepted { .. } => {} // we listen nowhere
            }
        }
        for seat in unread {
            self.ready(seat, false);
        }
        Ok(())
    }

    /// Lets nobody wait for more than comes.
    fn look(&mut self, now: Time) {
        for occupant in &mut self.seats {
            if let Seat::Open(session) = occupant
                && !session.has_unread()
            {
                session.look(now);
            }
        }
    }

    /// Counts what came.
    fn count(&mut self, now: Time) {
        let (fresh, back) = self.work.take_fresh();
        if fresh > 0 {
            self.meter.add(now, fresh);
        }
        if back > 0 {
            self.meter.take_back(back);
        }
    }

    /// Gives up a server that is of no use or has gone.
    fn look_after_the_server(&mut self, now: Time) -> Result<(), RunError> {
        let is_alone = self.seats.iter().all(|seat| matches!(seat, Seat::Empty(_)));
        let is_hopeless = is_alone && (!self.proven || self.attempts.are_hopeless());
        if let Some(why) = self.last_error.take_if(|_| is_hopeless) {
            if !self.proven {
                return Err(RunError::Unreachable(why));
            }
            self.work.give_up(|| FetchError::Vanished(format!("the server has gone: {why}")));
        }
        self.cancel_doomed(now);
        Ok(())
    }

    /// Asks again, on another connection, what was asked of one that stays silent; gives up a server of which all do.
    fn judge_silence(&mut self, now: Time) {
        for (seat, occupant) in self.seats.iter().enumerate() {
            if let Seat::Open(session) = occupant {
                self.work.taken(seat, session.index(), || session.bytes_taken());
            }
        }
        if let Some(silence) = self.work.doom_silent(self.traffic.patience) {
            let why = format!("{} for {}", self.work.silence(), h2lab_base::units::format_duration(silence));
            self.cut(|| FetchError::Vanished(why.clone()));
        }
        self.cancel_doomed(now);
    }

    /// Looks whether somebody wants an end before all is done.
    fn end_early(&mut self, now: Time) {
        if self.traffic.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) && !self.interrupted {
            self.interrupted = true;
            self.cut(|| FetchError::Interrupted);
        }
        if self.has_begun && self.traffic.until.is_some_and(|until| now.since(self.meter.began()) >= until) {
            self.traffic.until = None;
            self.cut(|| FetchError::Deadline);
        }
        self.cancel_doomed(now);
    }

    /// Ends all that is under way. What of it lies in our engines and sockets has not gone.
    fn cut(&mut self, why: impl FnMut() -> FetchError) {
        for occupant in &self.seats {
            if let Seat::Open(session) = occupant {
                self.work.take_back(session.index(), session.left_behind());
            }
        }
        self.work.give_up(why);
    }

    /// Ends the requests that nobody waits for any more.
    fn cancel_doomed(&mut self, now: Time) {
        while let Some(Doomed { seat, stream, is_silent }) = self.work.next_doomed() {
            if let Seat::Open(session) = &mut self.seats[seat] {
                if is_silent {
                    // Nothing more is asked there.
                    session.leave(now, "it stayed silent", &self.outbox, &mut self.work);
                }
                session.cancel(now, stream, Outcome::Cancelled, &self.outbox, &mut self.work);
                self.settle(seat);
            }
        }
    }

    /// Dials what is missing, as long as there is something to ask.
    fn dial(&mut self, now: Time) {
        let is_due = |seat: &Seat| matches!(seat, Seat::Empty(not_before) if *not_before <= now);
        if !self.seats.iter().any(is_due) || !self.work.waits() {
            return;
        }
        for seat in 0..self.seats.len() {
            let Seat::Empty(not_before) = self.seats[seat] else { continue };
            if now < not_before {
                continue;
            }
            let number = self.dialled;
            self.dialled += 1;
            let (token, limit) = (Token(seat as u32), self.traffic.window_limit);
            let step = Dial::begin(&mut self.reactor, token, number, &self.target, limit, now);
            self.seat(seat, step, now);
        }
    }

    /// Gives requests to the connections as long as there are both, and sends them.
    fn assign(&mut self, now: Time) {
        for seat in 0..self.seats.len() {
            self.cancel_doomed(now);
            self.flush(seat);
        }
        while let Some(seat) = self.least_busy() {
            if !self.begin(seat, now) {
                break;
            }
        }
        (0..self.seats.len()).for_each(|seat| self.flush(seat));
    }

    /// The connection with the fewest requests under way, of those that take more.
    fn least_busy(&self) -> Option<usize> {
        let takes_more = |(seat, occupant): (usize, &Seat)| match occupant {
            Seat::Open(session) if session.available() > 0 => Some((session.open_streams(), seat)),
            _ => None,
        };
        self.seats.iter().enumerate().filter_map(takes_more).min().map(|(_, seat)| seat)
    }

    /// Begins a request there; `false` if there is none, or it is not taken.
    fn begin(&mut self, seat: usize, now: Time) -> bool {
        let Seat::Open(session) = &mut self.seats[seat] else { return false };
        let Some(number) = self.work.next(now) else { return false };
        if !self.has_begun {
            // Time counts from the first request.
            (self.has_begun, self.meter) = (true, Meter::new(now));
        }
        self.outbox.prepare(&self.work, number);
        match session.begin(now, number, number.into(), &self.outbox, &mut self.work) {
            Some(stream) => {
                self.work.begun(number, seat, session.index(), stream);
                true
            }
            None => {
                self.work.not_begun(number, now);
                false
            }
        }
    }

    /// A stream has news.
    fn ready(&mut self, seat: usize, hangup: bool) {
        match &mut self.seats[seat] {
            Seat::Open(session) => {
                session.receive(self.clock, hangup, &self.outbox, &mut self.work);
                self.proven |= session.is_established() && session.bytes_received() > 0;
                self.settle(seat);
            }
            Seat::Dialling(_) => self.step(seat, |dial, _, now| dial.proceed(now)),
            Seat::Empty(_) => {}
        }
    }

    /// A deadline of a dial or an engine has passed.
    fn timer(&mut self, seat: usize) {
        let now = self.clock.now();
        match &mut self.seats[seat] {
            Seat::Open(session) => {
                session.expire(now, &self.outbox, &mut self.work);
                self.settle(seat);
            }
            Seat::Dialling(dial) if dial.deadline() <= now => {
                self.step(seat, |dial, _, now| dial.expire(now));
            }
            Seat::Dialling(_) | Seat::Empty(_) => {}
        }
    }

    /// Lets the dial in a seat go on.
    fn step(&mut self, seat: usize, advance: impl FnOnce(Dial, &Target, Time) -> Step) {
        match std::mem::replace(&mut self.seats[seat], Seat::Empty(Time::ZERO)) {
            Seat::Dialling(dial) => {
                let now = self.clock.now();
                let step = advance(dial, &self.target, now);
                self.seat(seat, step, now);
            }
            other => self.seats[seat] = other,
        }
    }

    /// Seats the outcome of a step.
    fn seat(&mut self, seat: usize, step: Step, now: Time) {
        match step {
            Step::Pending(dial) => {
                self.reactor.set_timer(Token(seat as u32), dial.deadline());
                self.seats[seat] = Seat::Dialling(dial);
            }
            Step::Established(established) => {
                let Traffic { streams, window_limit, .. } = self.traffic;
                let session = Session::open(established, &self.target, streams, window_limit, now);
                self.seats[seat] = Seat::Open(Box::new(session));
                // The first bytes may have come with the end of the handshake.
                self.ready(seat, false);
            }
            Step::Failed(record, error) => self.vacate(seat, *record, Some(error)),
        }
    }

    /// Writes what a session has to send.
    fn flush(&mut self, seat: usize) {
        let Seat::Open(session) = &mut self.seats[seat] else { return };
        let news = session.flush(self.clock, &self.outbox, &mut self.work);
        // Here, since what was written may be what reading had to wait for.
        if session.has_unread() && !self.unread.contains(&seat) {
            self.unread.push(seat);
        }
        if news {
            self.settle(seat);
        } else {
            self.reactor.set_timer(Token(seat as u32), session.deadline());
        }
    }

    /// Takes a session away that has ended, else sets its timer.
    fn settle(&mut self, seat: usize) {
        let Seat::Open(session) = &mut self.seats[seat] else { return };
        if session.end().is_none() {
            self.reactor.set_timer(Token(seat as u32), session.deadline());
            return;
        }
        // The engine may have a last word, such as the GOAWAY that says what the peer did wrong.
        session.flush(self.clock, &self.outbox, &mut self.work);
        let empty = Seat::Empty(Time::ZERO);
        if let Seat::Open(session) = std::mem::replace(&mut self.seats[seat], empty) {
            self.note_calls(&session);
            let (record, end) = session.into_record();
            let patience = self.target.engine.peer_timeout;
            self.vacate(seat, record, end.map(|end| end.into_connect_error(patience)));
        }
    }

    /// Adds up what a session that ends asked of the kernel.
    fn note_calls(&mut self, session: &Session) {
        let (reads, writes) = session.calls().unwrap_or_default();
        self.calls = (self.calls.0 + reads, self.calls.1 + writes);
    }

    /// Empties a seat whose connection has ended, and says when the next may be dialled.
    fn vacate(&mut self, seat: usize, record: ConnectionRecord, error: Option<ConnectError>) {
        self.reactor.forget(Token(seat as u32));
        let now = self.clock.now();
        let was_of_use = record.ready_at.happened() && self.work.heard(seat) >= record.ready_at;
        let pause = self.attempts.ended(seat, was_of_use);
        self.seats[seat] = Seat::Empty(now + pause);
        self.reactor.set_timer(Token(seat as u32), now + pause);
        self.records.push(record);
        self.last_error = error.or(self.last_error.take());
    }

    /// Says goodbye on all connections.
    fn close(&mut self, now: Time) {
        for seat in std::mem::take(&mut self.seats) {
            match seat {
                Seat::Empty(_) => {}
                Seat::Dialling(dial) => self.records.push(dial.abandon(now)),
                Seat::Open(mut session) => {
                    self.note_calls(&session);
                    self.records.push(session.record().clone());
                    session.say_goodbye(now);
                }
            }
        }
        self.records.sort_by_key(|record| record.index);
    }
}

impl Driver<'_> {
    /// What was done.
    pub fn into_done(self) -> Done {
        let Self { work, meter, records, calls, interrupted, .. } = self;
        Done { work, meter, records, calls, interrupted }
    }
}

/// What a run did.
#[derive(Debug)]
pub struct Done {
    /// The files.
    pub work: Work,
    /// What came when.
    pub meter: Meter,
    /// The connections, by index.
    pub records: Vec<ConnectionRecord>,
    /// System calls that read from sockets and wrote to them; those of QUIC are not counted.
    pub calls: (u64, u64),
    /// Whether somebody wanted an early end.
    pub interrupted: bool,
}

/// Why nothing could be fetched.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No connection was of use.
    #[error("{0}")]
    Unreachable(ConnectError),
    /// The kernel refused us something that has nothing to do with the server.
    #[error("cannot work: {0}")]
    Io(#[from] io::Error),
}
