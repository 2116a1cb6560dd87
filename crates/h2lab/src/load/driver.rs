//! The loop of the generator: completions in, requests out, by the clock.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use h2lab_core::record::{GeneratorSummary, Outcome};
use h2lab_core::units::{Time, nanos};
use h2lab_core::workload::{Arrival, H2cMode, Protocol, Schedule};

use super::connections::Connections;
use super::requests::{Expectation, Expired, Requests};
use super::{Finished, LoadError, LoadResult, LoadSpec, Progress, Watching};
use crate::client::defaults::MAX_REPLAYS;
use crate::client::{ConnectError, Exchange as _, Fate, Pool, Prepared, Session, Target};
use crate::io::clock::{Clock, thread_cpu_ns};

/// Between looking at `TCP_INFO`, at the stop flag and, every tenth time, at the progress.
const TICK: Duration = Duration::from_millis(10);
const TICKS_PER_PROGRESS: u64 = 10;

/// Failures in a row, with no connection up, after which those who wait for one are told.
const FAILURES_TO_GIVE_UP: u32 = 3;

/// From the end of dialling to the first request, so that the first one is not late.
const LEAD: Duration = Duration::from_millis(1);

/// The generator of one cell.
pub(super) struct Driver<'a> {
    spec: &'a LoadSpec<'a>,
    clock: Clock,
    connections: Connections<'a>,
    requests: Requests,
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
            replays: if cell.work.replay { MAX_REPLAYS } else { 0 },
            idempotent: prepared.is_idempotent(),
            closed_loop: matches!(cell.work.arrival, Arrival::Closed { .. }),
        };
        let mut target = Target::new(spec.address, cell.protocol, &spec.server_name, &spec.tls, congestion)?;
        cell.client.apply(&mut target.engine);
        // Whoever waits for a head has given up by then, and until it ends no other response can come (RFC 9113 §4.3).
        target.engine.limits.head = Some(cell.work.timeout);
        let upgrades = cell.protocol == Protocol::H2c && cell.h2c_mode == H2cMode::Upgrade;
        target.tap = spec.tap;
        target.upgrade_of = upgrades.then(|| prepared.head().authority.to_owned());
        let pool = Pool::new(cell.connections, cell.max_connections);
        Ok(Self {
            spec,
            clock,
            connections: Connections::new(
                target,
                pool,
                cell.client.window_budget(),
                cell.streams,
                prepared,
                clock,
            )?,
            requests: Requests::new(expectation),
            proven: false,
            limit: spec.requests.unwrap_or(usize::MAX),
            started_at: Time::ZERO,
            generator: GeneratorSummary { threads: 1, ..GeneratorSummary::default() },
            interrupted: false,
        })
    }

    /// Lets somebody look at everything, from the first connection on.
    pub fn watch(&mut self, watching: &Watching) {
        let target = self.connections.target();
        target.watch = Some(Arc::clone(&watching.watch));
        target.engine.enable_push = watching.accept_push;
    }

    /// Why the last connection failed or ended, if one did.
    pub const fn take_connect_error(&mut self) -> Option<ConnectError> {
        self.connections.last_error().take()
    }

    /// Opens the warm pool. A failure is fatal if no connection has been of use yet, or if it repeats.
    pub fn dial(&mut self) -> Result<(), LoadError> {
        loop {
            self.connections.dial_wanted(&mut self.requests);
            self.connections.flush(&mut self.requests);
            self.proven = self.proven || self.connections.sessions().any(Session::is_established);
            let hopeless = !self.proven || self.connections.pool().failures() >= FAILURES_TO_GIVE_UP;
            if hopeless && let Some(why) = self.connections.last_error().take() {
                return Err(LoadError::Unreachable { address: self.spec.address, why });
            }
            let warm =
                self.connections.pool().is_warm() && self.connections.sessions().all(Session::is_established);
            if warm || self.is_stopped() {
                return Ok(());
            }
            // The deadlines of dials and engines are timers of the reactor: this ends.
            let look_again = self.clock.now() + TICK;
            self.connections.wait(self.connections.pool().pause_until().min(look_again))?;
            while let Some(completion) = self.connections.next_completion() {
                self.connections.act_on(completion, &mut self.requests);
            }
        }
    }

    /// Whether the caller wants an early end.
    pub fn is_stopped(&self) -> bool {
        self.spec.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
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
            self.connections.wait(wake)?;
            // Between completions too: behind a hundred of them a request that is due would wait half a millisecond.
            let now = loop {
                let completion = self.connections.next_completion();
                let more = completion.is_some();
                if let Some(completion) = completion {
                    self.connections.act_on(completion, &mut self.requests);
                }
                let now = self.clock.now();
                self.add_due(&mut schedule, &mut owed, now);
                self.connections.assign(now, &mut self.requests);
                self.connections.flush(&mut self.requests);
                if !more {
                    break now;
                }
            };
            self.expire(now);
            if now >= tick_at {
                self.connections.sample_tcp(now);
                self.interrupted |= self.is_stopped();
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
            // Not before it is known that there is work for them.
            self.connections.dial_wanted(&mut self.requests);
        }
        self.cut(thread_cpu_ns() - cpu_before);
        Ok(())
    }

    /// Goes on hearing what the server says when all is done, until it has closed every connection, for `patience` at most.
    pub fn linger(&mut self, patience: Duration) -> io::Result<()> {
        let until = self.clock.now() + patience;
        while self.connections.pool().live() > 0 && self.clock.now() < until && !self.is_stopped() {
            self.connections.wait(until)?;
            while let Some(completion) = self.connections.next_completion() {
                self.connections.act_on(completion, &mut self.requests);
            }
            self.connections.flush(&mut self.requests);
        }
        Ok(())
    }

    /// When something must be done even if nothing completes.
    fn next_wake(&mut self, schedule: &Schedule, owed: u32, until: Time) -> Time {
        if self.requests.waiting() > 0 && self.connections.pool().pick().is_some() {
            return Time::ZERO; // a replayed request can go at once
        }
        let due = if owed > 0 { self.started_at } else { schedule.next_at() };
        let due = if due < until && self.requests.due() < self.limit { due } else { Time::NEVER };
        due.min(self.requests.next_timeout()).min(self.connections.pool().pause_until())
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

    /// Cancels what has timed out, and tells those who wait when there is no more hope of a connection.
    fn expire(&mut self, now: Time) {
        while let Some(expired) = self.requests.next_expired(now) {
            let Expired { request, connection, stream } = expired;
            if !self.connections.cancel(now, connection, stream, &mut self.requests) {
                self.requests.ended(request, now, Fate::Failed { outcome: Outcome::Timeout, code: 0 });
            }
        }
        let pool = self.connections.pool();
        let given_up = pool.live() == 0 && pool.failures() >= FAILURES_TO_GIVE_UP;
        if given_up && let Some(error) = self.connections.last_error() {
            let outcome = error.outcome();
            self.requests.fail_waiting(now, outcome);
        }
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
            connections: self.connections.pool().live(),
        }
    }

    /// Ends the cell now: books what is unfinished.
    fn cut(&mut self, cpu_ns: u64) {
        let now = self.clock.now();
        self.generator.cpu_ns = cpu_ns;
        self.generator.wall_ns = nanos(now.since(self.started_at));
        self.generator.backlog_at_cut = self.requests.cut(now);
        self.connections.cut(now, &mut self.requests);
    }

    /// The result, with the connections that are still open.
    pub fn finish(self) -> Finished {
        let (connections, tcp, open) = self.connections.into_parts(self.clock.now());
        let (samples, frames, lost) = self.requests.into_parts();
        let mut warnings = Vec::new();
        if lost > 0 {
            warnings
                .push(format!("{lost} frames were not recorded: the cell has more of them than are kept"));
        }
        let result = LoadResult {
            started_at: self.started_at,
            samples,
            connections,
            frames,
            tcp,
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
