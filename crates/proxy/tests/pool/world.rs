//! Clients and servers that talk over connections of TCP, of which each segment may be lost. What the sidecar's loop does with the pool
//! is done here in the same order, in virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use h2lab_base::random::{Counter, derive};
use h2lab_base::units::Time;

use h2lab_link::loss::Loss;
use h2lab_link::tcp::Segment;
use h2lab_link::{FlowNumber, LossModel, LossPer};

use h2lab_proxy::config::Policy;
use h2lab_proxy::pool::dials::{self, Count, MOST_ADAPTIVE};
use h2lab_proxy::pool::estimate::{Estimate, Interval};
use h2lab_proxy::pool::place::{self, Load, Room};
use h2lab_proxy::pool::portion::Portion;
use h2lab_proxy::pool::quota::Quota;
use h2lab_proxy::pool::ramp;
use h2lab_proxy::retry::{self, Attempt, Fate};

use crate::plan::{Kind, Plan, Server, Step};
use crate::wire::{Connection, End, GOAWAY, PING, PONG, REQUEST, RESPONSE, SMALL};

/// How often the pool looks, and where it probes.
const CHECK_PERIOD: Duration = Duration::from_millis(100);
const LOSSY: f64 = 0.002;
/// A reading is this old at most when a request is placed by it.
const FRESH: Duration = Duration::from_millis(5);
/// Streams that a server allows at once on a connection.
const STREAMS: u32 = 100;
/// How long an instance that has joined gets less than its share.
const SLOW_START: Duration = Duration::from_secs(10);
/// How long an instance that cannot be reached is left alone, doubled at each failure.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Requests are due from here on.
pub const FROM: Time = Time::from_millis(3_000);
/// How long responses may take after the last request is due.
const AFTER: Duration = Duration::from_secs(5);

enum Event {
    Segment { connection: usize, to_client: bool, segment: Segment },
    Timer { connection: usize, client: bool },
    Probe { connection: usize, client: bool },
    Answer { connection: usize, number: u32 },
    Step(Step),
    Due,
    Look,
}

/// Events in the order of their times; `n` keeps those of one time in the order in which they were made.
struct Entry {
    at: Time,
    n: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.n == other.n
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.n).cmp(&(other.at, other.n))
    }
}

/// An instance: its server, and what the pool knows of it.
struct Instance {
    server: Server,
    is_up: bool,
    /// Requests that its server has taken since it started, and when it has finished them.
    taken: u32,
    busy_until: Time,
    /// `None`: it was there from the start.
    appeared_at: Option<Time>,
    connections: Vec<usize>,
    last: usize,
    numbered: u32,
    estimate: Estimate,
    wanted: u32,
    quota: Quota,
    load: Load,
    answered_at: Time,
    down_until: Time,
    failures: u32,
    waiting: VecDeque<u32>,
    read_at: Time,
}

/// A request.
struct Asked {
    due: Time,
    sent_at: Time,
    instance: Option<usize>,
    /// The connection, and the number of the request on it.
    connection: Option<(usize, u32)>,
    repeated: u8,
}

/// A request that was answered.
#[derive(Debug, Clone, Copy)]
pub struct Answered {
    pub due: Time,
    pub took: Duration,
}

/// Everything.
pub struct World {
    kind: Kind,
    delay: Duration,
    now: Time,
    n: u64,
    queue: BinaryHeap<Reverse<Entry>>,
    until: Time,
    rate: f64,
    arrivals: Counter,
    loss: [Loss; 2],
    random: Counter,
    connections: Vec<Connection>,
    instances: Vec<Instance>,
    asked: BTreeMap<u32, Asked>,
    next: u32,
    space: Vec<u8>,
    pub answered: Vec<Answered>,
    /// Requests that got no answer because they may have been processed.
    pub failed: u32,
    /// Requests that were sent again.
    pub repeated: u32,
    /// How often each request reached a server that processes it.
    pub processed: Vec<u8>,
    /// When each request went to which instance.
    pub placed: Vec<(Time, usize)>,
    /// How many connections the pool wanted, of all instances together, at each look.
    pub wanted: Vec<(Time, u32)>,
    /// Connections that take requests, at each look.
    pub there: Vec<(Time, u32)>,
}

impl World {
    /// Carries a plan out.
    pub fn run(plan: Plan) -> Self {
        let mut world = Self::new(&plan);
        for server in plan.servers {
            world.join(server, None);
        }
        for (second, step) in plan.steps {
            world.at(FROM + Duration::from_secs_f64(second), Event::Step(step));
        }
        world.at(FROM, Event::Due);
        world.at(FROM, Event::Look);
        while let Some(Reverse(Entry { at, event, .. })) = world.queue.pop() {
            let is_over = at > world.until && world.asked.is_empty() || at > world.until + AFTER;
            if is_over {
                break;
            }
            world.now = at;
            world.take(event);
        }
        world
    }

    /// Requests that were due, and have got no answer and no error.
    pub fn unanswered(&self) -> usize {
        self.asked.len()
    }

    /// Connections that there have been.
    pub fn dialled(&self) -> usize {
        self.connections.len()
    }

    fn new(plan: &Plan) -> Self {
        let loss = |of| Loss::new(LossModel::None, LossPer::Link, derive(plan.seed, of), Time::ZERO);
        Self {
            kind: plan.kind,
            delay: plan.rtt / 2,
            now: Time::ZERO,
            n: 0,
            queue: BinaryHeap::new(),
            until: FROM + Duration::from_secs_f64(plan.seconds),
            rate: 0.0,
            arrivals: Counter::new(3, "arrivals"),
            loss: ["up", "down"].map(loss),
            random: Counter::new(plan.seed, "instances"),
            connections: Vec::new(),
            instances: Vec::new(),
            asked: BTreeMap::new(),
            next: 0,
            space: vec![0; 65_536],
            answered: Vec::new(),
            failed: 0,
            repeated: 0,
            processed: Vec::new(),
            placed: Vec::new(),
            wanted: Vec::new(),
            there: Vec::new(),
        }
    }

    fn take(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Step(step) => self.step(step),
            Event::Due => {
                self.begin();
                let due = now + Duration::from_secs_f64(-(1.0 - self.arrivals.next_f64()).ln() / self.rate);
                if due < self.until {
                    self.at(due, Event::Due);
                }
            }
            Event::Look => {
                (0..self.instances.len()).for_each(|instance| self.look(instance));
                self.note_numbers();
                self.at(now + CHECK_PERIOD, Event::Look);
            }
            Event::Segment { connection, to_client, segment } => {
                if self.connections[connection].is_gone {
                    return;
                }
                self.end(connection, to_client).socket.handle_segment(now, segment);
                self.note_state(connection);
                self.read(connection, to_client);
                self.pump(connection, to_client);
            }
            Event::Timer { connection, client } => {
                if self.connections[connection].is_gone {
                    return;
                }
                let end = self.end(connection, client);
                if end.timer == now {
                    end.timer = Time::NEVER;
                }
                end.socket.handle_timeout(now);
                self.pump(connection, client);
            }
            Event::Probe { connection, client } => self.probe(connection, client),
            Event::Answer { connection, number } => self.send(connection, false, number, RESPONSE),
        }
    }

    fn at(&mut self, at: Time, event: Event) {
        self.n += 1;
        self.queue.push(Reverse(Entry { at, n: self.n, event }));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Loss(model) => self.loss.iter_mut().for_each(|loss| loss.change(model, self.now)),
            Step::Rate(rate) => self.rate = rate,
            Step::Join(server) => self.join(server, Some(self.now)),
            Step::GoAway(instance) => {
                for connection in self.instances[instance].connections.clone() {
                    self.go_away(connection);
                }
            }
            Step::Die(instance) => {
                self.instances[instance].is_up = false;
                for connection in 0..self.connections.len() {
                    let of = &mut self.connections[connection];
                    if of.instance == instance && !of.is_gone {
                        of.ends[1].socket.abort();
                        self.pump(connection, false);
                    }
                }
            }
            Step::Return(instance) => {
                let instance = &mut self.instances[instance];
                (instance.is_up, instance.taken, instance.busy_until) = (true, 0, self.now);
            }
        }
    }

    fn join(&mut self, server: Server, appeared_at: Option<Time>) {
        self.instances.push(Instance {
            server,
            is_up: true,
            taken: 0,
            busy_until: Time::ZERO,
            appeared_at,
            connections: Vec::new(),
            last: 0,
            numbered: 0,
            estimate: Estimate::new(self.now),
            wanted: 1,
            quota: Quota::default(),
            load: Load { weight: 1, ..Load::default() },
            answered_at: Time::ZERO,
            down_until: Time::ZERO,
            failures: 0,
            waiting: VecDeque::new(),
            read_at: Time::ZERO,
        });
        let from_start = match self.kind {
            Kind::Http1 => 32,
            Kind::Fixed(n) => n,
            Kind::Adaptive => u32::from(appeared_at.is_none()) as usize,
        };
        for _ in 0..from_start {
            self.dial(self.instances.len() - 1);
        }
    }

    // Connections.

    fn end(&mut self, connection: usize, client: bool) -> &mut End {
        &mut self.connections[connection].ends[usize::from(!client)]
    }

    fn dial(&mut self, instance: usize) -> usize {
        let connection = self.connections.len();
        let of = &mut self.instances[instance];
        of.numbered += 1;
        of.connections.push(connection);
        self.connections.push(Connection::new(instance, of.numbered, self.now));
        if !of.is_up {
            self.end(connection, false).socket.abort(); // what comes is answered with RST
        }
        self.pump(connection, true);
        connection
    }

    /// Hands an end's bytes to its socket, and its segments to the link.
    fn pump(&mut self, connection: usize, client: bool) {
        let now = self.now;
        self.end(connection, client).flush();
        while let Some(segment) = self.end(connection, client).socket.poll_transmit(now) {
            if !self.loss[usize::from(!client)].takes(now, FlowNumber::NONE) {
                self.at(now + self.delay, Event::Segment { connection, to_client: !client, segment });
            }
        }
        let end = self.end(connection, client);
        let at = end.socket.poll_timeout();
        if at < end.timer || end.timer <= now {
            end.timer = at;
            if at.happened() {
                self.at(at, Event::Timer { connection, client });
            }
        }
    }

    /// The client's end may have been established, or reset.
    fn note_state(&mut self, connection: usize) {
        let of = &mut self.connections[connection];
        let socket = &of.ends[0].socket;
        let instance = of.instance;
        if socket.is_reset() && !of.is_gone {
            of.is_gone = true;
            let was_open = of.is_open;
            self.instances[instance].connections.retain(|other| *other != connection);
            if was_open {
                self.abandon(connection, 0, Fate::Unknown);
            } else {
                self.not_reached(instance);
            }
        } else if socket.is_open() && !of.is_open {
            of.is_open = true;
            let of = &mut self.instances[instance];
            (of.failures, of.down_until) = (0, Time::ZERO);
            self.admit(instance);
        }
    }

    /// Takes whole messages.
    fn read(&mut self, connection: usize, client: bool) {
        let (now, mut space) = (self.now, std::mem::take(&mut self.space));
        let messages = self.end(connection, client).messages(now, &mut space);
        self.space = space;
        for (number, value) in messages {
            let end = self.end(connection, client);
            match number {
                PING => {}
                PONG => end.unanswered -= 1,
                _ => end.pings = end.unanswered,
            }
            match (number, client) {
                (PING, _) => self.send(connection, client, PONG, SMALL),
                (PONG, _) => {}
                (GOAWAY, _) => self.goes_away(connection, value),
                (number, false) => self.serve(connection, number),
                (number, true) => self.is_answered(connection, number),
            }
        }
    }

    fn send(&mut self, connection: usize, client: bool, number: u32, length: usize) {
        self.end(connection, client).write(number, 0, length);
        self.pump(connection, client);
        let loss = self.instances[self.connections[connection].instance].estimate.loss();
        if self.kind == Kind::Adaptive && loss > LOSSY && number < GOAWAY {
            let (now, rtt) = (self.now, self.delay * 2);
            self.end(connection, client).probe.sent(now, rtt);
            self.await_probe(connection, client);
        }
    }

    fn await_probe(&mut self, connection: usize, client: bool) {
        let end = self.end(connection, client);
        let at = end.probe.at();
        if at.happened() && at < end.probe_at {
            end.probe_at = at;
            self.at(at, Event::Probe { connection, client });
        }
    }

    fn probe(&mut self, connection: usize, client: bool) {
        let (now, rtt) = (self.now, self.delay * 2);
        let end = self.end(connection, client);
        if end.probe_at == now {
            end.probe_at = Time::NEVER;
        }
        let counts = end.progress();
        if end.probe.is_due(now, rtt, end.pings, || counts) {
            (end.pings, end.unanswered) = (end.pings + 1, end.unanswered + 1);
            self.send(connection, client, PING, SMALL);
        }
        self.await_probe(connection, client);
    }

    // The servers.

    fn serve(&mut self, connection: usize, number: u32) {
        let of = &mut self.connections[connection];
        if of.last.is_some() {
            return; // above the last one that it answers
        }
        of.arrived += 1;
        let (arrived, instance) = (of.arrived, &mut self.instances[of.instance]);
        self.processed[number as usize] += 1;
        let Server { quota, warm, cold, warms_up } = instance.server;
        let left = warms_up.saturating_sub(instance.taken);
        instance.taken += 1;
        let takes = warm + cold.saturating_sub(warm) * left / warms_up.max(1);
        instance.busy_until = instance.busy_until.max(self.now) + takes;
        let at = instance.busy_until;
        if takes.is_zero() {
            self.send(connection, false, number, RESPONSE);
        } else {
            self.at(at, Event::Answer { connection, number });
        }
        if quota == Some(arrived) {
            self.go_away(connection);
        }
    }

    /// The server answers nothing that comes after this.
    fn go_away(&mut self, connection: usize) {
        let of = &mut self.connections[connection];
        let last = of.arrived;
        if of.last.replace(last).is_some() {
            return;
        }
        self.end(connection, false).write(GOAWAY, last, SMALL);
        self.pump(connection, false);
    }

    // The pool, as in the sidecar's loop.

    fn look(&mut self, instance: usize) {
        if self.kind != Kind::Adaptive {
            return;
        }
        self.read_paths(instance);
        let mut interval = Interval::default();
        for connection in &self.instances[instance].connections {
            let of = &mut self.connections[*connection];
            let before = std::mem::replace(&mut of.before, of.path);
            if of.is_open {
                interval.add(&before, &of.path);
            }
        }
        let is_used = interval.has_requests() || self.instances[instance].load.open > 0;
        let of = &mut self.instances[instance];
        of.wanted = of.estimate.look(self.now, interval, MOST_ADAPTIVE);
        let wanted = of.wanted as usize;
        let lasting = self.lasting(instance);
        if lasting.len() > wanted {
            let rooms: Vec<Room> = lasting.iter().map(|connection| self.room(*connection)).collect();
            if let Some(index) = place::to_retire(&rooms) {
                self.part_with(lasting[index]);
            }
        } else if is_used {
            self.dial_more(instance);
        }
    }

    fn note_numbers(&mut self) {
        let wanted = self.instances.iter().map(|instance| instance.wanted).sum();
        let there = (0..self.instances.len()).map(|instance| self.lasting(instance).len() as u32).sum();
        self.wanted.push((self.now, wanted));
        self.there.push((self.now, there));
    }

    fn read_paths(&mut self, instance: usize) {
        self.instances[instance].read_at = self.now;
        for connection in &self.instances[instance].connections {
            self.connections[*connection].read_path();
        }
    }

    /// It takes no further request.
    fn part_with(&mut self, connection: usize) {
        let of = &mut self.connections[connection];
        of.is_ending = true;
        of.is_gone = of.open == 0;
        let instance = of.instance;
        self.instances[instance].connections.retain(|other| *other != connection);
    }

    /// Connections that take further requests, and are not about to end.
    fn lasting(&self, instance: usize) -> Vec<usize> {
        let of = &self.instances[instance];
        let lasts = |connection: &&usize| {
            let connection = &self.connections[**connection];
            connection.is_open && !of.quota.is_low(connection.number, connection.requests)
        };
        of.connections.iter().filter(lasts).copied().collect()
    }

    fn room(&self, connection: usize) -> Room {
        let of = &self.connections[connection];
        let left = self.instances[of.instance].quota.left(of.number, of.requests);
        let free = if of.is_open { STREAMS.saturating_sub(of.open).min(left) } else { 0 };
        let wait = match self.kind {
            Kind::Adaptive => place::wait(&of.path, of.added),
            Kind::Http1 | Kind::Fixed(_) => Duration::ZERO,
        };
        Room { free, open: of.open, wait }
    }

    fn dial_more(&mut self, instance: usize) {
        let policy = match self.kind {
            Kind::Http1 => return,
            Kind::Fixed(n) => Policy::Fixed(n as u32),
            Kind::Adaptive => Policy::Adaptive,
        };
        loop {
            let lasting = self.lasting(instance).len() as u32;
            let of = &self.instances[instance];
            let is_dialling = |connection: &&usize| !self.connections[**connection].is_open;
            let dialling = of.connections.iter().filter(is_dialling).count() as u32;
            if of.failures > 0 && dialling > 0 || self.now < of.down_until {
                return;
            }
            let count = Count { lasting, dialling, waiting: of.waiting.len() as u32 };
            if lasting + dialling >= count.wanted(policy, false, of.wanted, Portion::default()) {
                return;
            }
            self.dial(instance);
        }
    }

    fn begin(&mut self) {
        let number = self.next;
        self.next += 1;
        self.processed.push(0);
        let asked = Asked { due: self.now, sent_at: self.now, instance: None, connection: None, repeated: 0 };
        self.asked.insert(number, asked);
        self.place(number);
    }

    /// Finds an instance and a connection for a request; if there is none, it waits for one.
    fn place(&mut self, number: u32) {
        let instance = self.asked[&number].instance.unwrap_or_else(|| self.choose_instance());
        let asked = self.asked.get_mut(&number).expect("it is under way");
        if asked.instance.replace(instance).is_none() {
            self.instances[instance].load.open += 1;
            self.placed.push((self.now, instance));
        }
        let of = &self.instances[instance];
        if self.kind == Kind::Http1 {
            let idle = of.connections.iter().copied().find(|index| self.connections[*index].open == 0);
            let connection = idle.unwrap_or_else(|| self.dial(instance));
            return self.ask(number, connection);
        }
        if self.kind == Kind::Adaptive && of.connections.len() > 1 && self.now.since(of.read_at) >= FRESH {
            self.read_paths(instance);
        }
        let of = &self.instances[instance];
        let rooms: Vec<Room> = of.connections.iter().map(|connection| self.room(*connection)).collect();
        let chosen = place::connection(&rooms, of.last);
        let is_lasting =
            chosen.is_some_and(|chosen| self.lasting(instance).contains(&of.connections[chosen]));
        if let Some(chosen) = chosen {
            let connection = of.connections[chosen];
            self.instances[instance].last = chosen;
            self.ask(number, connection);
        } else {
            self.instances[instance].waiting.push_back(number);
        }
        if !dials::is_enough(chosen.map(|chosen| rooms[chosen]), is_lasting) {
            self.dial_more(instance);
        }
    }

    fn choose_instance(&mut self) -> usize {
        let load = |of: &Instance| {
            let age = of.appeared_at.map(|at| self.now.since(at));
            let takes = of.load.takes.map(|takes| place::remembered(takes, self.now.since(of.answered_at)));
            let weight = ramp::weight(of.load.weight, age, SLOW_START);
            Load { is_down: self.now < of.down_until, takes, weight, ..of.load }
        };
        let loads: Vec<Load> = self.instances.iter().map(load).collect();
        place::instance(&loads, &mut self.random).expect("there is one")
    }

    fn ask(&mut self, number: u32, connection: usize) {
        let of = &mut self.connections[connection];
        (of.open, of.requests, of.added) = (of.open + 1, of.requests + 1, of.added + 1);
        let asked = self.asked.get_mut(&number).expect("it is under way");
        (asked.sent_at, asked.connection) = (self.now, Some((connection, of.requests)));
        self.send(connection, true, number, REQUEST);
    }

    /// Requests that wait begin, as far as there is room.
    fn admit(&mut self, instance: usize) {
        let of = &self.instances[instance];
        let free = |connection: &usize| u64::from(self.room(*connection).free);
        let free: u64 = if of.waiting.is_empty() { 0 } else { of.connections.iter().map(free).sum() };
        for _ in 0..free {
            let Some(number) = self.instances[instance].waiting.pop_front() else { return };
            self.place(number);
        }
        if !self.instances[instance].waiting.is_empty() {
            self.dial_more(instance);
        }
    }

    fn is_answered(&mut self, connection: usize, number: u32) {
        let asked = self.asked.remove(&number).expect("each is answered once");
        self.answered.push(Answered { due: asked.due, took: self.now.since(asked.due) });
        let of = &mut self.connections[connection];
        of.open -= 1;
        of.is_gone |= of.is_ending && of.open == 0;
        let instance = of.instance;
        let of = &mut self.instances[instance];
        of.load.open -= 1;
        let before = of.load.takes.map(|takes| place::remembered(takes, self.now.since(of.answered_at)));
        of.load.takes = Some(place::smoothed(before, self.now.since(asked.sent_at)));
        of.answered_at = self.now;
        self.admit(instance);
    }

    /// A GOAWAY has come: what is above the last stream is sent again.
    fn goes_away(&mut self, connection: usize, last: u32) {
        let instance = self.connections[connection].instance;
        self.instances[instance].quota.ended_after(last);
        self.part_with(connection);
        self.abandon(connection, last, Fate::Unprocessed);
        self.admit(instance);
    }

    /// Requests on a connection above the one of this number have got no answer.
    fn abandon(&mut self, connection: usize, last: u32, fate: Fate) {
        let is_above =
            |asked: &Asked| asked.connection.is_some_and(|(of, number)| of == connection && number > last);
        let all: Vec<u32> =
            self.asked.iter().filter(|(_, asked)| is_above(asked)).map(|(number, _)| *number).collect();
        for number in all {
            self.connections[connection].open -= 1;
            self.leave(number);
            // Every other one asks for the same when it is sent twice.
            let method: &[u8] = if number % 2 == 0 { b"GET" } else { b"POST" };
            let asked = self.asked.get_mut(&number).expect("it is under way");
            let attempt = Attempt {
                method,
                repeated: asked.repeated,
                most: retry::MOST,
                is_kept: true,
                is_answered: false,
            };
            if attempt.may_repeat(fate) {
                asked.repeated += 1;
                self.repeated += 1;
                self.place(number);
            } else {
                self.failed += 1;
                self.asked.remove(&number);
            }
        }
        let of = &mut self.connections[connection];
        of.is_gone |= of.is_ending && of.open == 0;
    }

    /// A request is no longer counted at its instance.
    fn leave(&mut self, number: u32) {
        let asked = self.asked.get_mut(&number).expect("it is under way");
        asked.connection = None;
        if let Some(instance) = asked.instance.take() {
            self.instances[instance].load.open -= 1;
        }
    }

    /// A connection to an instance could not be made.
    fn not_reached(&mut self, instance: usize) {
        let of = &mut self.instances[instance];
        of.failures += 1;
        of.down_until = self.now + (FIRST_PAUSE * (1 << of.failures.min(6))).min(LONGEST_PAUSE);
        for number in std::mem::take(&mut of.waiting) {
            self.leave(number);
            self.place(number);
        }
    }
}
