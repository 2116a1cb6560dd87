//! Clients and a server that talk over connections of TCP, of which each segment may be lost.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use h2lab_base::random::Counter;
use h2lab_base::units::Time;

use h2lab_proxy::pool::estimate::{Estimate, Interval};
use h2lab_proxy::pool::path::PathReading;
use h2lab_proxy::pool::place::{self, Room};
use h2lab_proxy::pool::probe::Probe;

use h2lab_link::tcp::{Config, Congestion, Segment, Socket};

/// Who decides how many connections there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One for each request under way.
    Http1,
    /// So many; the one with the fewest open requests carries the next.
    Fixed(usize),
    /// The pool.
    Adaptive,
}

/// Numbers of messages that are none of a request.
const PING: u32 = u32::MAX;
const PONG: u32 = u32::MAX - 1;
/// Bytes of a request of 1 KiB in HTTP/2, and of its response.
const REQUEST: usize = 1_200;
const RESPONSE: usize = 1_100;
/// How often the pool looks, and where it probes.
const LOOK: Duration = Duration::from_millis(100);
const LOSSY: f64 = 0.002;

#[derive(Debug, Clone)]
enum Event {
    Segment { connection: usize, to_client: bool, segment: Segment },
    Timer { connection: usize, client: bool },
    Due,
    Look,
    Probe { connection: usize, client: bool },
}

/// One end of a connection.
struct End {
    socket: Socket,
    received: Vec<u8>,
    unsent: VecDeque<u8>,
    timer: Time,
    probe: Probe,
    /// When its event is due.
    probe_at: Time,
    /// PINGs that it sent since a message came, and those without an answer.
    pings: u32,
    unanswered: u32,
}

struct Connection {
    ends: [End; 2],
    open: u32,
    requests: u64,
    before: PathReading,
    ends_soon: bool,
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

/// Everything.
pub struct World {
    kind: Kind,
    delay: Duration,
    /// Losses to come: from when on, and which share.
    losses: Vec<(Duration, f64)>,
    loss: f64,
    begins: Time,
    now: Time,
    n: u64,
    queue: BinaryHeap<Reverse<Entry>>,
    connections: Vec<Connection>,
    random: [Counter; 2],
    begun: BTreeMap<u32, (Time, usize)>,
    next: u32,
    last: usize,
    estimate: Estimate,
    /// When each request was due, and what its response took.
    pub answered: Vec<(Time, Duration)>,
    /// How many connections the pool wanted, at each look.
    pub wanted: Vec<(Time, u32)>,
}

const fn end(client: bool) -> usize {
    if client { 0 } else { 1 }
}

impl World {
    /// `losses`: from which second on which share of the segments is lost.
    pub fn new(kind: Kind, delay: Duration, losses: &[(u64, f64)], seed: u64) -> Self {
        let mut world = Self {
            kind,
            delay,
            losses: losses.iter().map(|(second, loss)| (Duration::from_secs(*second), *loss)).collect(),
            loss: 0.0,
            begins: Time::ZERO,
            now: Time::ZERO,
            n: 0,
            queue: BinaryHeap::new(),
            connections: Vec::new(),
            random: [Counter::new(seed, "up"), Counter::new(seed, "down")],
            begun: BTreeMap::new(),
            next: 0,
            last: 0,
            estimate: Estimate::new(Time::ZERO),
            answered: Vec::new(),
            wanted: Vec::new(),
        };
        let count = match kind {
            Kind::Http1 => 32,
            Kind::Fixed(n) => n,
            Kind::Adaptive => 1,
        };
        for _ in 0..count {
            world.dial();
        }
        world
    }

    fn at(&mut self, at: Time, event: Event) {
        self.n += 1;
        self.queue.push(Reverse(Entry { at, n: self.n, event }));
    }

    fn dial(&mut self) -> usize {
        let config = Config { congestion: Congestion::Cubic, ..Config::default() };
        let end = |socket| End {
            socket,
            received: Vec::new(),
            unsent: VecDeque::new(),
            timer: Time::NEVER,
            probe: Probe::default(),
            probe_at: Time::NEVER,
            pings: 0,
            unanswered: 0,
        };
        let ends = [end(Socket::dial(config, self.now)), end(Socket::listen(config))];
        self.connections.push(Connection {
            ends,
            open: 0,
            requests: 0,
            before: PathReading::default(),
            ends_soon: false,
        });
        let connection = self.connections.len() - 1;
        self.pump(connection, true);
        connection
    }

    fn end(&mut self, connection: usize, client: bool) -> &mut End {
        &mut self.connections[connection].ends[end(client)]
    }

    /// Hands an end's bytes to its socket, and its segments to the link.
    fn pump(&mut self, connection: usize, client: bool) {
        let now = self.now;
        loop {
            let end = self.end(connection, client);
            let piece: Vec<u8> = end.unsent.iter().copied().take(16_384).collect();
            let n = if piece.is_empty() { 0 } else { end.socket.write(&piece) };
            end.unsent.drain(..n);
            if n == 0 {
                break;
            }
        }
        while let Some(segment) = self.end(connection, client).socket.poll_transmit(now) {
            let is_lost = self.random[end(client)].next_f64() < self.loss;
            if !is_lost {
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

    /// Takes whole messages: number and length, four bytes each, and filler.
    fn read(&mut self, connection: usize, client: bool) {
        let now = self.now;
        let mut space = vec![0; 65_536];
        let end = self.end(connection, client);
        loop {
            let n = end.socket.read(now, &mut space);
            if n == 0 {
                break;
            }
            end.received.extend_from_slice(&space[..n]);
        }
        loop {
            let received = &mut self.end(connection, client).received;
            let word = |at: usize| {
                received.get(at..at + 4).map(|word| u32::from_be_bytes(word.try_into().expect("four")))
            };
            let (Some(number), Some(length)) = (word(0), word(4)) else { return };
            if received.len() < length as usize {
                return;
            }
            received.drain(..length as usize);
            let end = self.end(connection, client);
            match number {
                PING => {}
                PONG => end.unanswered -= 1,
                _ => end.pings = end.unanswered,
            }
            match (number, client) {
                (PING, _) => self.send(connection, client, PONG, 17),
                (PONG, _) => {}
                (number, false) => self.send(connection, false, number, RESPONSE),
                (number, true) => {
                    if let Some((due, connection)) = self.begun.remove(&number) {
                        self.connections[connection].open -= 1;
                        self.answered.push((due, now.since(due)));
                    }
                }
            }
        }
    }

    fn send(&mut self, connection: usize, client: bool, number: u32, length: usize) {
        let mut message = vec![0; length];
        message[..4].copy_from_slice(&number.to_be_bytes());
        message[4..8].copy_from_slice(&(length as u32).to_be_bytes());
        let end = self.end(connection, client);
        end.unsent.extend(message);
        self.pump(connection, client);
        let is_probed = self.kind == Kind::Adaptive && self.estimate.loss() > LOSSY;
        if is_probed && number < PONG {
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
        let End { probe, socket, unsent, pings, unanswered, .. } = end;
        let counts = || {
            let (acknowledged, written) = socket.progress();
            (acknowledged, written + unsent.len() as u64)
        };
        if probe.is_due(now, rtt, *pings, counts) {
            (*pings, *unanswered) = (*pings + 1, *unanswered + 1);
            self.send(connection, client, PING, 17);
        }
        self.await_probe(connection, client);
    }

    fn reading(&self, connection: usize) -> PathReading {
        let end = &self.connections[connection].ends[0];
        let figures = end.socket.figures();
        let (in_flight, known, unsent) = end.socket.flight();
        PathReading {
            rtt: figures.rtt,
            min_rtt: figures.min_rtt,
            window: figures.cwnd,
            in_flight,
            unsent: unsent + end.unsent.len() as u32,
            is_repairing: known > 0 || end.socket.has_hole(),
            sent: figures.segments_out.into(),
            retransmitted: figures.retransmits.into(),
            received: figures.segments_in.into(),
            requests: self.connections[connection].requests,
            bytes_sent: 0,
            bytes_received: 0,
            is_by_stream: false,
        }
    }

    fn look(&mut self) {
        let mut interval = Interval::default();
        for index in 0..self.connections.len() {
            if self.connections[index].ends[0].socket.is_open() {
                let now = self.reading(index);
                let before = std::mem::replace(&mut self.connections[index].before, now);
                interval.add(&before, &now);
            }
        }
        let wanted = self.estimate.look(self.now, interval, 64);
        let there = self.connections.iter().filter(|connection| !connection.ends_soon).count() as u32;
        for _ in there..wanted {
            self.dial();
        }
        if wanted < there {
            let lasting: Vec<usize> =
                (0..self.connections.len()).filter(|index| !self.connections[*index].ends_soon).collect();
            let room =
                |index: &usize| Room { free: 100, open: self.connections[*index].open, wait: Duration::ZERO };
            let rooms: Vec<Room> = lasting.iter().map(room).collect();
            if let Some(index) = place::to_retire(&rooms) {
                self.connections[lasting[index]].ends_soon = true;
            }
        }
        self.wanted.push((self.now, wanted));
    }

    /// Which connection carries the next request.
    fn choose(&mut self) -> usize {
        let usable: Vec<usize> = (0..self.connections.len())
            .filter(|index| {
                let connection = &self.connections[*index];
                !connection.ends_soon && (self.kind != Kind::Adaptive || connection.ends[0].socket.is_open())
            })
            .collect();
        if self.kind == Kind::Http1 {
            let idle = usable.iter().copied().find(|index| self.connections[*index].open == 0);
            return idle.unwrap_or_else(|| self.dial());
        }
        let room = |index: &usize| {
            let connection = &self.connections[*index];
            let wait = match self.kind {
                Kind::Adaptive => place::wait(&self.reading(*index), 0),
                Kind::Http1 | Kind::Fixed(_) => Duration::ZERO,
            };
            Room { free: 1, open: connection.open, wait }
        };
        let rooms: Vec<Room> = usable.iter().map(room).collect();
        let chosen = place::connection(&rooms, self.last).expect("there is one");
        self.last = chosen;
        usable[chosen]
    }

    fn begin(&mut self) {
        let number = self.next;
        self.next += 1;
        let connection = self.choose();
        self.connections[connection].open += 1;
        self.connections[connection].requests += 1;
        self.begun.insert(number, (self.now, connection));
        self.send(connection, true, number, REQUEST);
    }

    /// Requests at this rate, independent of each other, for so long.
    pub fn run(&mut self, from: Time, rate: f64, lasts: Duration) {
        let (until, mut arrivals, mut due) = (from + lasts, Counter::new(3, "arrivals"), from);
        self.begins = from;
        self.at(due, Event::Due);
        if self.kind == Kind::Adaptive {
            self.at(Time::from_millis(1_000), Event::Look);
        }
        while let Some(Reverse(Entry { at, event, .. })) = self.queue.pop() {
            if at > until + Duration::from_secs(5) {
                return;
            }
            self.now = at;
            while let Some((when, loss)) = self.losses.first().copied()
                && self.begins + when <= at
            {
                self.loss = loss;
                self.losses.remove(0);
            }
            match event {
                Event::Due => {
                    self.begin();
                    due += Duration::from_secs_f64(-(1.0 - arrivals.next_f64()).ln() / rate);
                    if due < until {
                        self.at(due, Event::Due);
                    }
                }
                Event::Look => {
                    self.look();
                    self.at(at + LOOK, Event::Look);
                }
                Event::Segment { connection, to_client, segment } => {
                    self.end(connection, to_client).socket.handle_segment(at, segment);
                    self.read(connection, to_client);
                    self.pump(connection, to_client);
                }
                Event::Timer { connection, client } => {
                    let end = self.end(connection, client);
                    if end.timer == at {
                        end.timer = Time::NEVER;
                    }
                    end.socket.handle_timeout(at);
                    self.pump(connection, client);
                }
                Event::Probe { connection, client } => self.probe(connection, client),
            }
        }
    }
}
