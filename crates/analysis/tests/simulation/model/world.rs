//! The events of a repetition in their order: packets, deadlines, requests, disturbances.

use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::record::CellRecord;
use h2lab_model::scenario::Cell;
use h2lab_model::workload::{Arrival, Schedule};
use h2lab_wire::trace::{Direction, FrameEvent};
use h2lab_wire::{Config, Connection, Counters};

use super::client::{Client, Dial, Prepared};
use super::network::{FIRST_PORT, Network, SERVER_PORT};
use super::pool::Pool;
use super::record;
use super::requests::Requests;
use super::server::Server;
use super::setup::{Disturbance, DisturbanceKind, Setup, Side};
use super::timers::Timers;
use h2lab_link::tcp::{self, EndFigures};

/// The number of events at one moment after which the simulation counts as livelocked.
const EVENTS_AT_ONCE: u32 = 1_000_000;

/// From the end of dialling to the first request.
const LEAD: Duration = Duration::from_millis(1);

/// The longest time that the warm pool may take to be established.
const DIAL_LIMIT: Time = Time::from_millis(60_000);

/// The result of a repetition.
#[derive(Debug, Clone, PartialEq)]
pub struct Repetition {
    /// The record as the lab would have made it.
    pub record: CellRecord,
    /// The counters of the server's engine of each connection.
    pub servers: Vec<Counters>,
    /// When the last window stall of each server's engine ended; [`Time::ZERO`] without one.
    pub stalled_until: Vec<Time>,
}

/// Both ends of a connection.
struct EndPair<'a> {
    client: Client<'a>,
    server: Server<'a>,
    phase: Phase,
    stalled_until: Time,
}

/// The phase of a connection, for the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Dialling,
    Live,
    /// It accepts no further requests, ever.
    Spent,
}

/// All parties of a repetition.
struct World<'a> {
    cell: &'a Cell,
    setup: &'a Setup<'a>,
    prepared: &'a Prepared<'a>,
    now: Time,
    network: Network,
    pairs: Vec<EndPair<'a>>,
    /// Two per connection: the client's, then the server's.
    timers: Timers,
    pool: Pool,
    /// Connections in [`Phase::Dialling`] and in [`Phase::Live`].
    dialling: usize,
    live: usize,
    requests: Requests,
    frames: Vec<FrameEvent>,
    started_at: Time,
    /// Disturbances that have happened.
    disturbed: usize,
    events_at_once: u32,
}

/// Measures a cell: dials, warms up, measures, drains. All random choices are determined by the cell's seed and the
/// setup.
///
/// Panics if the cell has no link, or if the model makes no progress, which would be a defect of an engine or of the model.
pub fn repetition(cell: &Cell, setup: &Setup<'_>) -> Repetition {
    let prepared = Prepared::new(&cell.work);
    let mut world = World::new(cell, setup, &prepared);
    world.warm_up();
    world.measure();
    world.finish()
}

impl<'a> World<'a> {
    fn new(cell: &'a Cell, setup: &'a Setup<'a>, prepared: &'a Prepared<'a>) -> Self {
        let link = cell.link.as_ref().expect("a simulated cell has a link");
        let closed_loop = matches!(cell.work.arrival, Arrival::Closed { .. });
        Self {
            cell,
            setup,
            prepared,
            now: Time::ZERO,
            network: Network::new(link, cell.seed),
            pairs: Vec::new(),
            timers: Timers::default(),
            pool: Pool::new(cell.connections, cell.max_connections),
            dialling: 0,
            live: 0,
            requests: Requests::new(cell.work.timeout, closed_loop),
            frames: Vec::new(),
            started_at: Time::ZERO,
            disturbed: 0,
            events_at_once: 0,
        }
    }

    /// Opens the warm pool.
    fn warm_up(&mut self) {
        loop {
            self.dial_wanted();
            let up = self.pairs.iter().filter(|pair| pair.client.is_established()).count();
            if up >= self.pool.warm() {
                return;
            }
            assert!(self.now < DIAL_LIMIT, "no connection comes up");
            self.step(DIAL_LIMIT);
        }
    }

    /// Warm-up, measured time and drain.
    fn measure(&mut self) {
        let work = &self.cell.work;
        let start = self.now + LEAD;
        self.started_at = start;
        let (from, until) = (work.phases.measure_from(start), work.phases.measure_until(start));
        let cut = work.phases.cut(start);
        let mut schedule = Schedule::new(work.arrival, start, self.cell.seed);
        let mut owed = if let Arrival::Closed { concurrency } = work.arrival { concurrency } else { 0 };
        loop {
            let due = if owed > 0 { start } else { schedule.next_at() };
            let due = if due < until { due } else { Time::NEVER };
            let wake = due.min(self.requests.next_timeout()).min(self.next_disturbance()).min(cut);
            self.step(wake);
            while schedule.next_at() <= self.now && schedule.next_at() < until {
                let due = schedule.advance();
                self.requests.add(due, due >= from);
            }
            while owed > 0 && start <= self.now {
                owed -= 1;
                self.requests.add(start, start >= from);
            }
            while self.now < until
                && let Some(ended) = self.requests.take_ended()
            {
                self.requests.add(ended, ended >= from);
            }
            self.disturb();
            self.expire();
            self.assign();
            self.dial_wanted();
            let all_sent = self.now >= until || (!schedule.next_at().happened() && owed == 0);
            if self.now >= cut || (all_sent && self.now >= start && self.requests.outstanding() == 0) {
                return;
            }
        }
    }

    /// Advances to the next event, but not beyond `until`, and processes everything that is due then.
    fn step(&mut self, until: Time) {
        let next = self.network.next_at().min(self.timers.next_at()).min(until);
        self.events_at_once = if next > self.now { 0 } else { self.events_at_once + 1 };
        assert!(self.events_at_once < EVENTS_AT_ONCE, "time stands still at {}", self.now);
        self.now = self.now.max(next);
        while let Some((direction, connection, segment)) = self.network.poll(self.now) {
            let pair = &mut self.pairs[connection];
            let (end, side) = match direction {
                Direction::Up => (&mut pair.server.end, Side::Server),
                Direction::Down => (&mut pair.client.end, Side::Client),
            };
            end.socket.handle_segment(self.now, segment);
            self.touch(connection, side);
        }
        while let Some(key) = self.timers.pop(self.now) {
            self.touch(key / 2, if key % 2 == 0 { Side::Client } else { Side::Server });
        }
    }

    /// Advances an end, sends its output, records its events.
    fn touch(&mut self, connection: usize, side: Side) {
        let now = self.now;
        let pair = &mut self.pairs[connection];
        let (end, direction) = match side {
            Side::Client => {
                pair.client.advance(now);
                (&mut pair.client.end, Direction::Up)
            }
            Side::Server => {
                let stalled = pair.server.stalled();
                pair.server.advance(now);
                if pair.server.stalled() > stalled {
                    pair.stalled_until = now;
                }
                (&mut pair.server.end, Direction::Down)
            }
        };
        while let Some(segment) = end.socket.poll_transmit(now) {
            self.network.push(now, direction, connection, &segment);
        }
        match side {
            Side::Client => {
                self.timers.set(2 * connection, pair.client.deadline());
                self.take_news(connection);
            }
            Side::Server => self.timers.set(2 * connection + 1, pair.server.deadline()),
        }
    }

    fn take_news(&mut self, connection: usize) {
        let EndPair { client, phase, .. } = &mut self.pairs[connection];
        let (finished, frames) = client.take_news();
        self.pool.update(connection, client.open(), client.available());
        self.frames.extend(frames);
        let new = match phase {
            _ if client.is_spent() => Phase::Spent,
            Phase::Dialling if client.end.socket.is_open() => Phase::Live,
            _ => *phase,
        };
        for (phase, change) in [(std::mem::replace(phase, new), -1), (new, 1)] {
            match phase {
                Phase::Dialling => self.dialling = self.dialling.wrapping_add_signed(change),
                Phase::Live => self.live = self.live.wrapping_add_signed(change),
                Phase::Spent => {}
            }
        }
        for (request, sample, fate) in finished {
            self.requests.ended(self.now, request, sample, fate);
        }
    }

    /// Assigns waiting requests to connections as long as there are both. Requests assigned together are sent together.
    fn assign(&mut self) {
        let mut dirty = Vec::new();
        while self.requests.waiting() > 0
            && let Some(connection) = self.pool.pick()
        {
            let Some((request, sample)) = self.requests.next_waiting(self.now) else { break };
            let client = &mut self.pairs[connection].client;
            if client.begin(self.now, request, sample) {
                self.pool.update(connection, client.open(), client.available());
                dirty.push(connection);
            } else {
                self.requests.put_back(self.now, request);
                self.pool.update(connection, client.open(), 0);
            }
        }
        dirty.sort_unstable();
        dirty.dedup();
        for connection in dirty {
            self.touch(connection, Side::Client);
        }
    }

    /// Cancels requests that have timed out.
    fn expire(&mut self) {
        while let Some(request) = self.requests.next_expired(self.now) {
            let found = self.pairs.iter().position(|pair| pair.client.stream_of(request).is_some());
            let connection = found.expect("an unfinished request waits or is carried");
            let client = &mut self.pairs[connection].client;
            let stream = client.stream_of(request).expect("it was just found");
            client.cancel(self.now, stream);
            self.touch(connection, Side::Client);
        }
    }

    fn dial_wanted(&mut self) {
        for _ in 0..self.pool.dials_wanted(self.live, self.dialling, self.requests.waiting()) {
            self.dial();
        }
    }

    fn dial(&mut self) {
        let connection = self.pairs.len();
        let is_h2 = self.cell.protocol.is_multiplexed();
        let now = self.now;
        let engine =
            |config: Config| if is_h2 { Connection::h2(config, now) } else { Connection::h1(config) };
        let mut client = self.setup.client;
        client.flow.manual_release |= self.setup.reader.is_some();
        // Each end cuts the stream in its own way.
        let own = |tcp: tcp::Config, end: usize| tcp::Config {
            shred: tcp.shred.map(|seed| seed ^ (2 * connection + end) as u64),
            ..tcp
        };
        let dial = Dial {
            index: connection as u32,
            ports: (FIRST_PORT.wrapping_add(connection as u16), SERVER_PORT),
            tcp: own(self.setup.client_tcp, 0),
            engine: engine(client),
            limit: self.cell.streams,
            prepared: self.prepared,
            reader: self.setup.reader,
        };
        let client = Client::new(dial, now);
        let server =
            Server::new(own(self.setup.server_tcp, 1), engine(self.setup.server), self.setup.application);
        self.pairs.push(EndPair { client, server, phase: Phase::Dialling, stalled_until: Time::ZERO });
        self.dialling += 1;
        self.touch(connection, Side::Client);
    }

    fn next_disturbance(&self) -> Time {
        let next = self.setup.disturbances.get(self.disturbed);
        next.map_or(Time::NEVER, |disturbance| self.started_at + disturbance.after)
    }

    fn disturb(&mut self) {
        while self.next_disturbance() <= self.now {
            let disturbance = self.setup.disturbances[self.disturbed];
            self.disturbed += 1;
            let is_live = |k: &usize| self.pairs[*k].phase == Phase::Live;
            let live: Vec<usize> = (0..self.pairs.len()).filter(is_live).collect();
            if let Some(&connection) = live.get(disturbance.connection % live.len().max(1)) {
                self.apply(connection, disturbance);
                self.touch(connection, Side::Client);
                self.touch(connection, Side::Server);
            }
        }
    }

    fn apply(&mut self, connection: usize, disturbance: Disturbance) {
        let now = self.now;
        let EndPair { client, server, .. } = &mut self.pairs[connection];
        match disturbance.kind {
            DisturbanceKind::GoAway(Side::Client, code) => client.goaway(now, code),
            DisturbanceKind::GoAway(Side::Server, code) => server.end.engine.goaway(now, code, b"model"),
            DisturbanceKind::Reset(place, code) => {
                if let Some(stream) = server.open_stream(place) {
                    server.reset(now, stream, code);
                }
            }
            DisturbanceKind::Cancel(place) => {
                if let Some(stream) = client.open_stream(place) {
                    client.cancel(now, stream);
                }
            }
            DisturbanceKind::Ping(Side::Client) => client.end.engine.ping(now),
            DisturbanceKind::Ping(Side::Server) => server.end.engine.ping(now),
            DisturbanceKind::WindowLimit(Side::Client, bytes) => client.end.engine.set_window_limit(bytes),
            DisturbanceKind::WindowLimit(Side::Server, bytes) => server.end.engine.set_window_limit(bytes),
            DisturbanceKind::Abort(Side::Client) => client.end.socket.abort(),
            DisturbanceKind::Abort(Side::Server) => server.end.socket.abort(),
        }
    }

    /// The repetition is cut: records unfinished requests.
    fn finish(mut self) -> Repetition {
        for connection in 0..self.pairs.len() {
            self.pairs[connection].client.cut();
            self.take_news(connection);
        }
        let backlog = self.requests.cut(self.now);
        let stalled_until = self.pairs.iter().map(|pair| pair.stalled_until).collect();
        let ends = |pair: EndPair<'_>| {
            let figures: [EndFigures; 2] =
                [pair.client.end.socket.figures(), pair.server.end.socket.figures()];
            let counters = pair.server.end.engine.counters();
            (pair.client.into_record(), figures, counters)
        };
        let (connections, servers) = record::connections(self.pairs.into_iter().map(ends), self.setup);
        let outcome = record::ModelOutcome {
            started_at: self.started_at,
            ended_at: self.now,
            backlog,
            samples: self.requests.into_samples(),
            frames: self.frames,
            connections,
        };
        Repetition {
            record: record::of(self.cell, self.setup, outcome, self.network),
            servers,
            stalled_until,
        }
    }
}
