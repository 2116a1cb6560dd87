//! A driver and many agents in virtual time: sessions over a network that loses, doubles and reorders packets, while agents die.

use std::collections::BTreeMap;
use std::time::Duration;

use super::messages::{decode, decode_printable, encode};
use super::session::Session;
use super::testing::{load_job, part_report};
use super::{
    Decider, FromAgent, LoadCoordinator, LoadOutcome, PartReport, ShareEnd, ShareProgress, Stage, ToAgent,
};
use crate::record::Histogram;
use h2lab_base::random::Counter;
use h2lab_base::units::Time;

/// How often an agent reports its progress.
const PERIOD: Duration = Duration::from_millis(250);
/// How often the driver sends PINGs, so that no session is silent.
const PING_EVERY: Duration = Duration::from_secs(5);
/// A session that is silent for so long has ended.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Phases of the load, as in [`load_job`].
const LOAD: Duration = Duration::from_secs(11);

/// What is simulated.
#[derive(Clone, Copy)]
struct Conditions {
    agents: usize,
    /// Share of packets that are lost, and as many are doubled.
    loss: f64,
    /// One agent of 20 dies, at some time within 20 seconds from this on; [`Time::NEVER`] kills none.
    dying_from: Time,
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    Driver,
    Agent,
}

enum Event {
    Packet {
        to: End,
        packet: Vec<u8>,
    },
    Wake(End),
    /// The agent's connections are up.
    Connected,
    Report,
    Store,
    /// The driver's PINGs to all agents.
    Pings,
    /// The coordinator's deadline.
    Deadline,
}

/// An agent and both ends of its session.
struct Peer {
    driver: Session,
    agent: Session,
    /// When each end is woken next: the driver's, the agent's.
    wakes: [Time; 2],
    /// How far its clock is ahead of ours.
    ahead: Duration,
    dies_at: Time,
    /// When its schedule began, by its own clock.
    began: Option<Time>,
    has_stored: bool,
}

impl Peer {
    fn session(&mut self, end: End) -> &mut Session {
        match end {
            End::Driver => &mut self.driver,
            End::Agent => &mut self.agent,
        }
    }

    fn progress(&self, now: Time, random: &mut Counter) -> ShareProgress {
        let elapsed = self.began.map_or(Duration::ZERO, |began| (now + self.ahead).since(began));
        let due = elapsed.as_millis() as u64;
        let times = (0..64).map(|_| Duration::from_micros(500 + random.below(20_000)));
        ShareProgress {
            elapsed,
            total: LOAD,
            due,
            succeeded: due,
            in_flight: 8,
            connections: 8,
            opened: 8,
            recent: Histogram::of(times),
            ..ShareProgress::default()
        }
    }
}

struct World {
    conditions: Conditions,
    random: Counter,
    now: Time,
    /// By time, then by the order in which they were made.
    events: BTreeMap<(Time, u64), (usize, Event)>,
    made: u64,
    coordinator: LoadCoordinator,
    peers: Vec<Peer>,
    deadline: Time,
    /// Packets and bytes that reached the driver while the load ran.
    packets: u64,
    bytes: u64,
}

impl World {
    fn new(conditions: Conditions) -> Self {
        let mut random = Counter::new(1, "many agents");
        let mut peer = |n: usize| {
            let dies_after = Duration::from_micros(random.below(20_000_000));
            Peer {
                driver: Session::new(Time::ZERO, random.below(u64::MAX)),
                agent: Session::new(Time::ZERO, random.below(u64::MAX)),
                wakes: [Time::NEVER; 2],
                ahead: Duration::from_micros(random.below(1 << 40)),
                dies_at: if n % 20 == 7 { conditions.dying_from + dies_after } else { Time::NEVER },
                began: None,
                has_stored: false,
            }
        };
        let peers = (0..conditions.agents).map(&mut peer).collect();
        Self {
            conditions,
            random,
            now: Time::ZERO,
            events: BTreeMap::new(),
            made: 0,
            coordinator: LoadCoordinator::new(load_job(conditions.agents as u32), Time::ZERO),
            peers,
            deadline: Time::NEVER,
            packets: 0,
            bytes: 0,
        }
    }

    fn at(&mut self, time: Time, agent: usize, event: Event) {
        self.made += 1;
        self.events.insert((time, self.made), (agent, event));
    }

    fn after(&mut self, most: Duration, agent: usize, event: Event) {
        let delay = Duration::from_micros(500 + self.random.below(most.as_micros() as u64));
        self.at(self.now + delay, agent, event);
    }

    /// Puts what an end of a session has to send on its way.
    fn flush(&mut self, agent: usize, end: End) {
        let now = self.now;
        while let Some(packet) = self.peers[agent].session(end).poll_packet(now) {
            let (first, second) = (self.random.next_f64(), self.random.next_f64());
            let loss = self.conditions.loss;
            let copies = usize::from(first >= loss) * (1 + usize::from(second < loss));
            let to = if end == End::Driver { End::Agent } else { End::Driver };
            for _ in 0..copies {
                self.after(Duration::from_millis(4), agent, Event::Packet { to, packet: packet.clone() });
            }
        }
        let peer = &mut self.peers[agent];
        let wake = peer.session(end).poll_timeout();
        let known = &mut peer.wakes[usize::from(end == End::Agent)];
        if wake.happened() && (wake < *known || *known <= now) {
            // Time passes, whatever a session says.
            *known = wake.max(now + Duration::from_micros(1));
            let wake = *known;
            self.at(wake, agent, Event::Wake(end));
        }
    }

    fn order(&mut self, agent: usize, message: &ToAgent) {
        let line = encode(message).unwrap();
        self.peers[agent].driver.send(self.now, line);
        self.flush(agent, End::Driver);
    }

    fn say(&mut self, agent: usize, message: &FromAgent) {
        let line = encode(message).unwrap();
        self.peers[agent].agent.send(self.now, line);
        self.flush(agent, End::Agent);
    }

    /// Until the coordinator's job is over.
    fn run(mut self) -> (LoadOutcome, Self) {
        for agent in 0..self.peers.len() {
            self.order(agent, &ToAgent::Open { driver: "ann at desk".to_owned() });
        }
        self.at(Time::ZERO + PING_EVERY, 0, Event::Pings);
        while !self.coordinator.is_over() {
            let deadline = self.coordinator.poll_timeout();
            if deadline != self.deadline {
                self.deadline = deadline;
                self.at(deadline, 0, Event::Deadline);
            }
            let ((time, _), (agent, event)) = self.events.pop_first().expect("a deadline is left");
            assert!(time < Time::from_millis(300_000), "nothing hangs");
            self.now = self.now.max(time);
            self.happen(agent, event);
            while let Some((agent, message)) = self.coordinator.poll_message() {
                self.order(agent, &message);
            }
        }
        let job = load_job(self.conditions.agents as u32);
        let coordinator = std::mem::replace(&mut self.coordinator, LoadCoordinator::new(job, self.now));
        (coordinator.into_result(), self)
    }

    fn happen(&mut self, agent: usize, event: Event) {
        let is_dead = self.now >= self.peers[agent].dies_at;
        match event {
            Event::Packet { to: End::Driver, packet } => self.receive_at_driver(agent, &packet),
            Event::Wake(End::Driver) => self.flush(agent, End::Driver),
            Event::Pings => self.ping(),
            Event::Deadline => self.coordinator.handle_timeout(self.now),
            _ if is_dead => {}
            Event::Packet { to: End::Agent, packet } => {
                let lines = self.peers[agent].agent.handle(self.now, &packet).unwrap();
                for line in lines {
                    self.obey(agent, decode(&line).unwrap());
                }
                self.flush(agent, End::Agent);
            }
            Event::Wake(End::Agent) => self.flush(agent, End::Agent),
            Event::Connected => self.say(agent, &FromAgent::Planned),
            Event::Report if self.peers[agent].has_stored => {}
            Event::Report => {
                let progress = self.peers[agent].progress(self.now, &mut self.random);
                let line = encode(&FromAgent::Loading(Box::new(progress))).unwrap();
                self.peers[agent].agent.send_once(line);
                self.flush(agent, End::Agent);
                self.at(self.now + PERIOD, agent, Event::Report);
            }
            Event::Store => self.store(agent),
        }
    }

    fn receive_at_driver(&mut self, agent: usize, packet: &[u8]) {
        if let Stage::Running { start, .. } = self.coordinator.stage()
            && (start..start + LOAD).contains(&self.now)
        {
            (self.packets, self.bytes) = (self.packets + 1, self.bytes + packet.len() as u64);
        }
        for line in self.peers[agent].driver.handle(self.now, packet).unwrap() {
            self.coordinator.handle_message(self.now, agent, decode_printable(&line).unwrap());
        }
        self.flush(agent, End::Driver);
    }

    fn ping(&mut self) {
        for agent in 0..self.peers.len() {
            if self.now.since(self.peers[agent].driver.heard_at()) >= SILENCE_TIMEOUT {
                self.coordinator.handle_gone(self.now, agent, "nothing was heard of it");
            } else {
                self.order(agent, &ToAgent::Ping { number: u32::MAX });
            }
        }
        self.at(self.now + PING_EVERY, 0, Event::Pings);
    }

    fn obey(&mut self, agent: usize, message: ToAgent) {
        let clock = self.now + self.peers[agent].ahead;
        match message {
            ToAgent::Open { .. } => {
                let (version, machine) = ("0.1.0".to_owned(), "Linux 6.12.0 x86_64, 4 CPUs".to_owned());
                self.say(agent, &FromAgent::Ready { version, machine });
            }
            ToAgent::Ping { number } => self.say(agent, &FromAgent::Pong { number, at: clock }),
            ToAgent::Load(_) => self.after(Duration::from_millis(100), agent, Event::Connected),
            ToAgent::StartAt { at } => {
                let began = at.max(clock);
                self.peers[agent].began = Some(began);
                let over = began - self.peers[agent].ahead + LOAD;
                self.at(over + Duration::from_millis(150), agent, Event::Store);
                self.after(PERIOD, agent, Event::Report);
            }
            ToAgent::Stop => self.store(agent),
            ToAgent::Bye => {}
            other => panic!("not of loads: {other:?}"),
        }
    }

    fn store(&mut self, agent: usize) {
        let peer = &mut self.peers[agent];
        if std::mem::replace(&mut peer.has_stored, true) {
            return;
        }
        let last =
            ShareProgress { recent: Histogram::default(), ..peer.progress(self.now, &mut self.random) };
        let started_at = peer.began.expect("a share that never began is not stopped");
        let report = PartReport { started_at, last, ..part_report(&format!("kek-{agent}")) };
        self.say(agent, &FromAgent::Part(report));
    }
}

/// How late the shares that were reported began, the latest first.
fn lates(outcome: &LoadOutcome) -> Vec<Duration> {
    let mut lates: Vec<Duration> = outcome.shares.iter().filter_map(|share| share.late).collect();
    lates.sort_unstable();
    lates.reverse();
    lates
}

fn reported(outcome: &LoadOutcome) -> usize {
    outcome.shares.iter().filter(|share| matches!(share.end, ShareEnd::Reported(_))).count()
}

#[test]
fn a_hundred_agents_begin_together_over_a_network_that_loses_and_doubles() {
    let conditions = Conditions { agents: 100, loss: 0.02, dying_from: Time::NEVER };
    let (outcome, _) = World::new(conditions).run();
    assert_eq!(reported(&outcome), 100);
    let lates = lates(&outcome);
    assert!(lates[0] < Duration::from_secs(2), "{lates:?}");
    assert!(lates[10] < Duration::from_millis(20), "nine of ten heard of the instant in time: {lates:?}");
    assert!(outcome.start_at < Time::from_millis(20_000), "{}", outcome.start_at);
}

#[test]
fn agents_that_die_are_lost_and_all_others_are_kept_and_nothing_is_counted_twice() {
    let conditions = Conditions { agents: 100, loss: 0.02, dying_from: Time::ZERO };
    let (outcome, world) = World::new(conditions).run();
    assert!(outcome.start_at.happened());
    for (share, peer) in outcome.shares.iter().zip(&world.peers) {
        match &share.end {
            ShareEnd::Reported(report) => assert!(peer.has_stored && report.last.due > 0),
            ShareEnd::Lost { why, .. } => assert!(peer.dies_at.happened(), "{why}"),
            ShareEnd::Failed { why } => panic!("none refused: {why}"),
        }
    }
    let never_died = world.peers.iter().filter(|peer| !peer.dies_at.happened()).count();
    assert_eq!(never_died, 95);
    assert!(reported(&outcome) >= never_died);
}

/// Pages of memory that this process has, in MiB; 0 where the system does not say it.
#[allow(clippy::disallowed_methods, reason = "a test that measures asks the system for its memory")]
fn memory_mib() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.unwrap_or(0.0) * 4096.0 / f64::from(1 << 20)
}

#[test]
#[ignore = "prints the table of docs/agents.md; run it in a release build"]
#[allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "it measures, and prints what it measures"
)]
fn the_scale_table() {
    println!(
        "| agents | dying | start after | latest start | kept | packets/s | KiB/s | MiB, both ends, at most | merging |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    // An upper bound: what earlier rows have freed may still belong to the process.
    let start = memory_mib();
    for agents in [3, 30, 300, 1_000] {
        for (words, dying_from) in
            [("none", Time::NEVER), ("5 % later", Time::from_millis(5_000)), ("5 % at any time", Time::ZERO)]
        {
            let conditions = Conditions { agents, loss: 0.01, dying_from };
            let (outcome, world) = World::new(conditions).run();
            let memory = memory_mib() - start;
            let times =
                |n: usize| (0..2_000).map(move |k| Duration::from_micros(500 + (k * 37 + n as u64) % 90_000));
            let parts: Vec<Histogram> = (0..agents).map(|n| Histogram::of(times(n))).collect();
            let began = std::time::Instant::now();
            let mut sum = Histogram::default();
            for part in &parts {
                sum.merge(part);
            }
            let merging = began.elapsed();
            println!(
                "| {agents} | {words} | {:.2} s | {:.1?} | {} | {:.0} | {:.0} | {memory:.0} | {merging:.1?} |",
                outcome.start_at.as_secs_f64(),
                lates(&outcome).first().copied().unwrap_or_default(),
                reported(&outcome),
                world.packets as f64 / LOAD.as_secs_f64(),
                world.bytes as f64 / 1024.0 / LOAD.as_secs_f64(),
            );
            assert!(reported(&outcome) * 20 >= agents * 19 - 20, "no more than those that died are lost");
        }
    }
}
