//! The loop of the generator: takes completions and sends requests on schedule.

mod before_start;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use h2lab_base::units::{Time, nanos};
use h2lab_model::record::{GeneratorSummary, Histogram, Outcome};
use h2lab_model::workload::{Arrival, H2cMode, Protocol, Schedule};

use super::connections::Connections;
use super::gathering::Gathering;
use super::merge::Done;
use super::recorder::Recording;
use super::requests::{Expectation, Expired, Requests};
use super::spec::{LoadError, LoadProgress, LoadSpec, SampleListener, Watching};
use super::team::{LEAD, Part, Team};
use crate::client::defaults::MAX_REPLAYS;
use crate::client::{
    ConnectError, DialTarget, Pool, Prepared, RequestEnd, RequestObserver as _, UpgradeOffer, Watch,
};
use crate::heartbeat::Heartbeat;
use h2lab_net::clock::{Clock, RunnableTime, thread_cpu_ns};
use h2lab_net::cpu_budget::{CpuBudget, CpuShares};
use h2lab_net::precise_wakeup::PreciseWakeup;
use h2lab_net::resources::{Memory, online_cpus, stolen_ns};

/// The period of reading `TCP_INFO`, of checking the stop flag and, every tenth time, of progress.
const TICK: Duration = Duration::from_millis(10);
const TICKS_PER_PROGRESS: u64 = 10;

/// What is shorter is no pause: clocks of the kernel's scheduler are not so precise.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);

/// Failures in a row, with no connection up, after which requests that wait for one fail.
const FAILURES_TO_GIVE_UP: u32 = 3;

/// How long to wait for outstanding answers after a stop.
const STOP_DRAIN: Duration = Duration::from_millis(300);

/// One in so many wake-ups is later than its request.
const ONE_LATE_IN: u32 = 10;

/// The longest time that a thread spins before a request is due, so that it goes out in time: what waking takes on a virtual
/// machine. With a request every 50 µs that is most of a CPU, with one per millisecond a twentieth at most.
const LONGEST_SPIN: Duration = Duration::from_micros(60);

/// It spins with at most the first share, which is short of what the kernel stops real-time threads at; where sending takes more than
/// the second, it gathers what comes due in 50 to 100 µs.
const SHARES: CpuShares = CpuShares { waiting: 80, working: 85 };

/// The generator of one cell, or of one thread's part of it.
pub(super) struct Driver<'a> {
    spec: &'a LoadSpec<'a>,
    part: Part<'a>,
    clock: Clock,
    connections: Connections<'a>,
    requests: Requests,
    /// Whether any connection has worked.
    proven: bool,
    /// At most so many requests are sent.
    limit: u64,
    started_at: Time,
    /// No request is due from here on: the end of measuring, or when it was stopped.
    until: Time,
    generator: GeneratorSummary,
    interrupted: bool,
    /// From the end of dialling to the first request.
    lead: Duration,
    watch: Option<Arc<dyn Watch>>,
}

impl<'a> Driver<'a> {
    pub fn new(
        spec: &'a LoadSpec<'a>,
        prepared: &'a Prepared<'a>,
        part: Part<'a>,
    ) -> Result<Self, LoadError> {
        let cell = &spec.cell;
        let clock = Clock::new(spec.clock_origin_ns);
        // Behind an emulated link the routes of the namespace set TCP's, which needs no privilege per socket.
        let is_ours = cell.link.is_none() || cell.protocol.is_quic();
        let congestion = cell.congestion.clone().filter(|_| is_ours);
        // With one timeout for all, requests expire in the order in which they were due.
        let cancels = cell.policy.cancel_after.filter(|after| *after < cell.work.timeout);
        let expectation = Expectation {
            requests: expected_requests(spec) / part.of as usize,
            recording: Recording {
                level: spec.record,
                threads: part.threads,
                seed: cell.seed,
                phases: cell.work.phases,
            },
            part: (part.number, part.of),
            timeout: cancels.unwrap_or(cell.work.timeout),
            given_up: if cancels.is_some() { Outcome::Cancelled } else { Outcome::Timeout },
            replays: if cell.work.replay { MAX_REPLAYS } else { 0 },
            closed_loop: matches!(cell.work.arrival, Arrival::Closed { .. }),
        };
        let mut tls = spec.tls.clone();
        tls.full_handshakes |= cell.policy.no_tls_resumption;
        let mut target =
            DialTarget::new(spec.address.clone(), cell.protocol, &spec.server_name, &tls, congestion)?;
        cell.client.apply(&mut target.engine);
        // By then the request has timed out, and until the head ends no other response can come (RFC 9113 §4.3).
        target.engine.limits.head = Some(cell.work.timeout);
        let upgrades = cell.protocol == Protocol::H2c && cell.h2c_mode == H2cMode::Upgrade;
        target.connect_timeout = cell.policy.connect_timeout.unwrap_or(target.connect_timeout);
        target.quick_acks = cell.policy.quick_acks;
        target.tap = spec.tap;
        target.blames_silence = cell.link.as_ref().is_none_or(|link| !link.may_drop());
        target.upgrade = upgrades.then(|| UpgradeOffer::of(prepared.authority(), cell.work.has_bodies()));
        let pool = Pool::of(cell);
        Ok(Self {
            spec,
            part,
            clock,
            connections: Connections::new(
                target,
                pool,
                cell.client.window_budget(),
                cell.streams,
                cell.policy,
                prepared,
                clock,
            )?,
            requests: Requests::new(expectation),
            proven: false,
            limit: spec.requests.map_or(u64::MAX, |requests| requests as u64),
            started_at: Time::ZERO,
            until: Time::NEVER,
            generator: GeneratorSummary { threads: 1, ..GeneratorSummary::default() },
            interrupted: false,
            lead: LEAD,
            watch: None,
        })
    }

    /// Attaches an observer, from the first connection on. There is no schedule then: the first request goes as soon as it can.
    pub fn watch(&mut self, watching: &Watching) {
        self.lead = Duration::ZERO;
        self.watch = Some(Arc::clone(&watching.watch));
        let target = &mut self.connections.slots.target;
        target.watch = Some(Arc::clone(&watching.watch));
        target.engine.enable_push = watching.accept_push;
        target.connect_timeout = watching.timeout;
        target.engine.peer_timeout = watching.timeout;
    }

    /// Has each request that ends reported to `listener`.
    pub fn listen(&mut self, listener: Arc<dyn SampleListener>) {
        self.requests.listen(self.part.thread, listener);
    }

    /// Why the last connection failed or ended, if one did.
    pub const fn take_connect_error(&mut self) -> Option<ConnectError> {
        self.connections.slots.last_error.take()
    }

    /// A failed connection is fatal as long as none has worked, or if failures continue.
    fn check_reachable(&mut self) -> Result<(), LoadError> {
        self.proven =
            self.proven || self.connections.slots.sessions().any(|(_, session, _)| session.is_established());
        let is_final = !self.proven || self.connections.pool().failures() >= FAILURES_TO_GIVE_UP;
        self.fail_if(|_| is_final)
    }

    /// A server that has served nothing yet and answers in another protocol is not asked again. One of HTTP/1.1 shows that only
    /// when it has read a request: its connections count as working until then.
    fn check_spoken(&mut self) -> Result<(), LoadError> {
        self.fail_if(|why| matches!(why, ConnectError::WrongProtocol { .. }))
    }

    /// The failure of the last connection is the load's if it `is_final`.
    fn fail_if(&mut self, is_final: impl FnOnce(&ConnectError) -> bool) -> Result<(), LoadError> {
        match self.connections.slots.last_error.take_if(|why| is_final(why)) {
            Some(why) => Err(LoadError::Unreachable { address: self.spec.address.clone(), why }),
            None => Ok(()),
        }
    }

    /// Whether the caller wants an early end, or another thread has failed.
    pub fn is_stopped(&self) -> bool {
        self.spec.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
            || self.part.team.is_some_and(Team::has_failed)
    }

    /// Waits until the load begins, warms up, measures and drains.
    pub fn measure(&mut self, progress: &mut dyn FnMut(&LoadProgress)) -> Result<(), LoadError> {
        let work = &self.spec.cell.work;
        let Some(start) = self.start()? else {
            self.end_before_start();
            return Ok(());
        };
        self.started_at = start;
        self.requests.begin(start);
        self.until = work.phases.measure_until(start);
        let mut cut = work.phases.cut(start);
        let Part { number, of, .. } = self.part;
        let mut schedule = Schedule::part(work.arrival, start, self.spec.cell.request_seed, number, of);
        let mut owed = if let Arrival::Closed { concurrency } = work.arrival { concurrency } else { 0 };
        let is_closed = matches!(work.arrival, Arrival::Closed { .. });
        let (cpu_before, stolen_before) = (thread_cpu_ns(), stolen_ns());
        let mut precise_wakeup = longest_spin(self.spec, self.part, online_cpus()).map(|longest| {
            PreciseWakeup::new(ONE_LATE_IN, longest, CpuBudget::new(SHARES, self.clock.now(), cpu_before))
        });
        let runnable = RunnableTime::of_this_thread();
        let mut heartbeat = Heartbeat::new(SHORTEST_PAUSE, runnable.ns());
        let (mut tick_at, mut ticks) = (start, 0);
        let mut gathering = is_closed.then(Gathering::of_this_thread);
        loop {
            if let Some(gathering) = &mut gathering {
                gathering.rest();
            }
            let wake = self.next_wake(&schedule, owed).min(tick_at).min(cut);
            // For requests that are due, not for ticks.
            let precise_wakeup = precise_wakeup.as_mut().filter(|_| schedule.next_at() <= wake);
            let woken = self.connections.slots.wait(wake, precise_wakeup)?;
            if !self.proven {
                // What is asked for with the first request shows only now whether it is spoken.
                self.check_reachable()?;
            }
            // Between completions too: behind a hundred of them a request that is due would wait half a millisecond. In a
            // closed loop nothing is due but what follows a request that has ended, whose time is known: no clock is read.
            let now = loop {
                let completion = self.connections.slots.next_completion();
                let more = completion.is_some();
                if let Some(completion) = completion {
                    self.connections.act_on(completion, &mut self.requests);
                }
                let now = if is_closed { self.requests.last_end().max(woken) } else { self.clock.now() };
                self.add_due(&mut schedule, &mut owed, now);
                self.connections.assign(now, &mut self.requests);
                self.connections.flush(&mut self.requests);
                if !more {
                    break now;
                }
            };
            if !self.connections.pool().has_served() {
                self.check_spoken()?;
            }
            self.expire(now);
            if now >= tick_at {
                heartbeat.beat(tick_at, now, runnable.ns());
                self.connections.sample_tcp(now);
                if let Some(gathering) = &mut gathering {
                    gathering.decide(self.requests.due(), self.requests.outstanding(), TICK);
                }
                if self.is_stopped() && !self.interrupted {
                    self.interrupted = true;
                    (self.until, cut) = (self.until.min(now), cut.min(now + STOP_DRAIN));
                }
                if ticks % TICKS_PER_PROGRESS == 0 {
                    let recent = self.requests.look(now);
                    progress(&self.progress(now, recent));
                }
                ticks += 1;
                tick_at = now + TICK;
            }
            let all_sent =
                (now >= self.until && schedule.next_at() >= self.until) || self.requests.due() >= self.limit;
            if now >= cut || (all_sent && self.requests.outstanding() == 0) {
                break;
            }
            // Only while there is work for them.
            if !all_sent || self.requests.waiting() > 0 {
                self.connections.dial_wanted(now, &mut self.requests);
            }
        }
        self.generator.awake_ns = precise_wakeup.map_or(0, |precise_wakeup| nanos(precise_wakeup.awake()));
        self.generator.stolen_ns = stolen_ns().saturating_sub(stolen_before);
        self.generator.paused_ns = nanos(heartbeat.paused);
        self.generator.longest_pause_ns = nanos(heartbeat.longest);
        self.cut(thread_cpu_ns() - cpu_before);
        Ok(())
    }

    /// Keeps receiving after the last request, until the server has closed every connection or the observer has seen everything,
    /// for `time` at most.
    pub fn linger(&mut self, time: Duration) -> io::Result<()> {
        let until = self.clock.now() + time;
        let has_seen_all =
            |watch: &Option<Arc<dyn Watch>>| watch.as_ref().is_some_and(|it| it.has_seen_all());
        while self.connections.pool().live() > 0
            && self.clock.now() < until
            && !self.is_stopped()
            && !has_seen_all(&self.watch)
        {
            self.connections.slots.wait(until, None)?;
            while let Some(completion) = self.connections.slots.next_completion() {
                self.connections.act_on(completion, &mut self.requests);
            }
            self.connections.flush(&mut self.requests);
        }
        Ok(())
    }

    /// When to wake even if nothing completes.
    fn next_wake(&mut self, schedule: &Schedule, owed: u32) -> Time {
        if self.requests.waiting() > 0 && self.connections.pool().pick().is_some() {
            return Time::ZERO; // a replayed request can go at once
        }
        let due = if owed > 0 { self.started_at } else { schedule.next_at() };
        let due = if due < self.until && self.requests.due() < self.limit { due } else { Time::NEVER };
        due.min(self.requests.next_timeout()).min(self.connections.pool().pause_until())
    }

    /// Makes the requests that are due at `now`.
    fn add_due(&mut self, schedule: &mut Schedule, owed: &mut u32, now: Time) {
        let phases = self.spec.cell.work.phases;
        let (from, until, start) = (phases.measure_from(self.started_at), self.until, self.started_at);
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
            let kind = self.connections.kind(self.requests.next_number());
            self.requests.add(due, due >= from, kind, now);
        }
    }

    /// Cancels what has timed out, and fails the waiting requests when there is no more hope of a connection.
    fn expire(&mut self, now: Time) {
        while let Some(expired) = self.requests.next_expired(now) {
            let Expired { request, connection, stream } = expired;
            let outcome = self.requests.given_up();
            if !self.connections.cancel(now, connection, stream, outcome, &mut self.requests) {
                self.requests.ended(request, now, RequestEnd::Failed { outcome, code: 0 });
            }
        }
        let pool = self.connections.pool();
        let given_up = pool.live() == 0 && pool.failures() >= FAILURES_TO_GIVE_UP;
        if given_up && let Some(error) = &self.connections.slots.last_error {
            let outcome = error.outcome();
            self.requests.fail_waiting(now, outcome);
        }
    }

    fn progress(&self, now: Time, recent: Histogram) -> LoadProgress {
        let phases = self.spec.cell.work.phases;
        LoadProgress {
            elapsed: now.since(self.started_at),
            total: phases.warmup + phases.measure,
            due: self.requests.due(),
            succeeded: self.requests.succeeded(),
            failed: self.requests.failed(),
            waiting: self.requests.waiting() as u64,
            in_flight: self.requests.outstanding() - self.requests.waiting() as u64,
            connections: self.connections.pool().live(),
            opened: self.connections.opened(),
            recent,
        }
    }

    /// Ends the cell now: records what is unfinished.
    fn cut(&mut self, cpu_ns: u64) {
        let now = self.clock.now();
        self.generator.cpu_ns = cpu_ns;
        self.generator.busiest_ns = cpu_ns.saturating_sub(self.generator.awake_ns);
        self.generator.wall_ns = nanos(now.since(self.started_at));
        self.generator.backlog_at_cut = self.requests.cut(now);
        self.connections.cut(now, &mut self.requests);
        self.generator.memory.peak = Memory::now().peak;
    }

    /// What was measured, with the connections that are still open.
    pub fn finish(self) -> Done {
        let (connections, tcp, open) = self.connections.into_parts(self.clock.now());
        let (recorder, frames, frames_lost) = self.requests.into_parts();
        Done {
            started_at: self.started_at,
            recorder,
            connections,
            frames,
            frames_lost,
            tcp,
            generator: self.generator,
            interrupted: self.interrupted,
            open,
            clock: self.clock,
        }
    }
}

/// The longest time for which a thread with this part of a load on a machine of so many CPUs may spin before a request is due;
/// `None` where it only sleeps, as the kernel has it.
pub(super) fn longest_spin(spec: &LoadSpec<'_>, part: Part<'_>, cpus: usize) -> Option<Duration> {
    let is_closed = matches!(spec.cell.work.arrival, Arrival::Closed { .. });
    let longest = if part.leaves_one_of(cpus) { LONGEST_SPIN } else { Duration::ZERO };
    (spec.sharp && !is_closed).then_some(longest)
}

/// How many requests to make room for; a closed loop's number is unknown, and the table grows if necessary.
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
