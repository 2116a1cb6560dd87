//! What the coordinators of all jobs have in common: agents from their first message to the instant at which all begin.
//!
//! Each agent reports that it is ready, and its clock is compared with ours by several pings. What it has to prepare is up to the
//! job; then those that are left are given one instant, each by its own clock. Our clock is monotonic: it has no steps. A message
//! that comes twice, late or unasked changes nothing.

use std::collections::VecDeque;
use std::time::Duration;

use super::messages::{FromAgent, ToAgent};
use super::{AgentRecord, ClockOffset, RoundTrip};
use h2lab_base::units::Time;

/// Round trips by which a clock is compared.
const PINGS: u32 = 8;

/// The least lead of a start, besides twice the longest round trip: time for an agent on a busy machine to receive it.
const LEAD: Duration = Duration::from_millis(200);

/// A driver that looks so long after a deadline was stopped (SIGSTOP) or suspended meanwhile …
pub(super) const STOPPED: Duration = Duration::from_secs(5);

/// … and gets so much time to read what has come meanwhile.
const CATCHING_UP: Duration = Duration::from_secs(5);

/// What decides in a job, without I/O: messages and the time go in, messages come out.
pub trait Decider {
    /// The next message, and the agent that it is for.
    fn poll_message(&mut self) -> Option<(usize, ToAgent)>;

    /// When [`Decider::handle_timeout`] wants to be called, unless something happens before.
    fn poll_timeout(&self) -> Time;

    /// Whether no useful message can come any more.
    fn is_over(&self) -> bool;

    /// An agent sent a message.
    fn handle_message(&mut self, now: Time, agent: usize, message: FromAgent);

    /// An agent's transport has ended, or delivered an invalid message.
    fn handle_gone(&mut self, now: Time, agent: usize, why: &str);

    /// Interrupts the job: what was measured until now is collected.
    fn handle_interrupt(&mut self, now: Time);

    /// Handles all deadlines up to `now`.
    fn handle_timeout(&mut self, now: Time);
}

/// The stage of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Agents are started, clocks compared, servers started. Until this time.
    Comparing(Time),
    /// Agents receive their tasks and prepare them. Until this time.
    Planning(Time),
    /// Agents work.
    Running {
        /// The instant at which all begin.
        start: Time,
        /// When agents that have reported no results are sent Stop; [`Time::NEVER`] once they were.
        stop: Time,
        /// When results that have not been reported are lost.
        until: Time,
    },
    /// All pairs are over; servers report what they spent. Until this time. A load has no such stage.
    Closing(Time),
    /// The end.
    Over,
}

impl Stage {
    /// Moves a deadline that passed while this driver was stopped: messages that came in time may be unread.
    pub(super) fn postpone(&mut self, now: Time) {
        let (Self::Comparing(until)
        | Self::Planning(until)
        | Self::Running { until, .. }
        | Self::Closing(until)) = self
        else {
            return;
        };
        if now.since(*until) >= STOPPED {
            *until = now + CATCHING_UP;
        }
    }
}

/// The state of an agent's setup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    /// It has not reported ready.
    Silent,
    /// Its clock is being compared; the last ping's time and number.
    Compared { asked: Time, number: u32 },
    /// It was asked to serve.
    Opening,
    /// It waits: a client for its task, a server for clients.
    Ready,
    /// Its task was sent.
    Reading,
    /// It has acknowledged its task.
    Accepted,
    /// A server that was sent Stop, and has not reported what it spent.
    Stopped,
    /// A server that has reported that.
    Reported,
}

/// An agent as a coordinator sees it.
#[derive(Debug)]
pub(super) struct Agent {
    pub readiness: Readiness,
    pub record: AgentRecord,
    trips: Vec<RoundTrip>,
}

impl Agent {
    /// Whether it takes part still.
    pub const fn is_present(&self) -> bool {
        self.record.lost.is_none()
    }
}

/// The agents of a job, and the messages for them.
#[derive(Debug)]
pub(super) struct AgentSet {
    pub agents: Vec<Agent>,
    outbox: VecDeque<(usize, ToAgent)>,
}

impl AgentSet {
    /// Agents of these names, which are being started.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let agent = |name: &str| Agent {
            readiness: Readiness::Silent,
            record: AgentRecord::new(name),
            trips: Vec::new(),
        };
        Self { agents: names.into_iter().map(agent).collect(), outbox: VecDeque::new() }
    }

    /// The next message, and the agent that it is for.
    pub fn poll_message(&mut self) -> Option<(usize, ToAgent)> {
        self.outbox.pop_front()
    }

    /// Sends a message to the agent at `place`.
    pub fn send(&mut self, place: usize, message: ToAgent) {
        self.outbox.push_back((place, message));
    }

    /// Whether there is an agent at `place` which is not lost. Messages of lost agents are ignored: their work has ended.
    pub fn is_present(&self, place: usize) -> bool {
        self.agents.get(place).is_some_and(Agent::is_present)
    }

    /// Gives up the agent at `place`. It is told to end what it has begun: it may be there, and keep connections for a start that
    /// never comes.
    pub fn lose(&mut self, place: usize, why: &str) {
        self.send(place, ToAgent::Bye);
        self.agents[place].record.lost = Some(why.to_owned());
    }

    /// The places of agents that are present and satisfy `which`.
    pub fn those(&self, which: impl Fn(&Agent) -> bool) -> Vec<usize> {
        let present = self.agents.iter().enumerate().filter(|(_, agent)| agent.is_present());
        present.filter(|(_, agent)| which(agent)).map(|(place, _)| place).collect()
    }

    /// Whether all agents that are present are so.
    pub fn all(&self, wanted: fn(Readiness) -> bool) -> bool {
        self.agents.iter().filter(|agent| agent.is_present()).all(|agent| wanted(agent.readiness))
    }

    /// An agent has reported that it is ready: its clock is compared.
    pub fn note_ready(&mut self, now: Time, place: usize, version: String, machine: String) {
        let agent = &mut self.agents[place];
        if agent.readiness != Readiness::Silent {
            return;
        }
        (agent.record.version, agent.record.machine) = (Some(version), Some(machine));
        self.ping(now, place, 0);
    }

    fn ping(&mut self, now: Time, place: usize, number: u32) {
        self.agents[place].readiness = Readiness::Compared { asked: now, number };
        self.send(place, ToAgent::Ping { number });
    }

    /// An agent's clock was read. Returns whether it is ready now; the error says why it can take no part.
    pub fn compare(
        &mut self,
        now: Time,
        place: usize,
        number: u32,
        theirs: Time,
    ) -> Result<bool, &'static str> {
        let agent = &mut self.agents[place];
        let Readiness::Compared { asked, number: expected } = agent.readiness else { return Ok(false) };
        if number != expected {
            return Ok(false);
        }
        agent.trips.push(RoundTrip { sent: asked, theirs, received: now });
        if number + 1 < PINGS {
            self.ping(now, place, number + 1);
            return Ok(false);
        }
        agent.readiness = Readiness::Ready;
        agent.record.offset = ClockOffset::of(&agent.trips);
        agent.record.offset.map(|_| true).ok_or("its clock cannot be compared")
    }

    /// An agent has acknowledged its task.
    pub fn note_planned(&mut self, place: usize) {
        let agent = &mut self.agents[place];
        if agent.readiness == Readiness::Reading {
            agent.readiness = Readiness::Accepted;
        }
    }

    /// Gives all agents that have acknowledged their task one instant, and returns it.
    pub fn start(&mut self, now: Time) -> Time {
        let trips = self.agents.iter().filter(|agent| agent.is_present()).flat_map(|agent| &agent.trips);
        let longest = trips.map(|trip| trip.received.since(trip.sent)).max();
        let start = now + LEAD + longest.unwrap_or_default() * 2;
        for place in self.those(|agent| agent.readiness == Readiness::Accepted) {
            if let Some(offset) = self.agents[place].record.offset {
                self.send(place, ToAgent::StartAt { at: offset.to_agent(start) });
            }
        }
        start
    }
}

/// Why an agent takes no part that serves the driver `with`.
pub(super) fn busy(with: &str) -> String {
    format!("it is busy with {with}; `h2lab agents` shows when it is free")
}
