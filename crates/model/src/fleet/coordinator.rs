//! Executes a plan with agents that may be late, silent, wrong or dead, without I/O: their messages and the time go in, the
//! messages for them come out.
//!
//! First all agents are started, their clocks compared with ours, and servers started. Agents that are not ready in time are
//! lost, with the pairs that need them. Then clients receive their tasks, and all are given one instant to begin at, each by its
//! own clock. From then on the end is fixed: what is not reported within `duration` and `grace` after that instant is lost, and
//! the rest is kept. Within that time, when all pairs are over, servers are asked for what they spent (`closing.rs`).

mod closing;

use super::agent_set::{AgentSet, Decider, Readiness, busy};
use super::figures::MOST_COUNT;
use super::messages::{FromAgent, ToAgent};
use super::record::FleetAsked;
use super::{
    AgentRecord, FleetJob, FleetRecord, PairEnd, PairFigures, PairRecord, Server, ServerPlace, Stage,
};
use crate::bulk::ByteMeter;
use crate::bulk::record::RECORD_VERSION;
use h2lab_base::units::{Time, format_duration};

/// A pair as the coordinator sees it.
#[derive(Debug)]
struct PairProgress {
    end: Option<PairEnd>,
    /// Bytes by progress reports.
    meter: ByteMeter,
    reported: u64,
    began: Option<Time>,
}

/// Why there are no figures of a pair that nobody waits for any more.
const ABANDONED: &str = "ended by the user without waiting for its results";

/// See the module.
#[derive(Debug)]
pub struct Coordinator {
    job: FleetJob,
    stage: Stage,
    /// Clients come first, then servers.
    set: AgentSet,
    /// By agent: the index of its server, if it is one.
    server_of: Vec<Option<usize>>,
    /// By server: those without an agent are ready from the start.
    servers: Vec<AgentRecord>,
    pairs: Vec<PairProgress>,
    start_at: Time,
    /// When servers are sent Stop, also if pairs are open; [`Time::NEVER`] once they were.
    stop_servers_at: Time,
    interrupted: bool,
}

impl Coordinator {
    /// Begins `now` with a job whose agents are being started: clients first, then servers that have one, in their order.
    pub fn new(job: FleetJob, now: Time) -> Self {
        let mut server_of: Vec<Option<usize>> = vec![None; job.clients.len()];
        let mut names: Vec<&str> = job.clients.iter().map(String::as_str).collect();
        let mut servers = Vec::new();
        for (place, server) in job.servers.iter().enumerate() {
            let url = match &server.place {
                ServerPlace::Url(url) => Some(url.clone()),
                ServerPlace::Agent { .. } => {
                    names.push(&server.name);
                    server_of.push(Some(place));
                    None
                }
            };
            servers.push(AgentRecord { url, ..AgentRecord::new(&server.name) });
        }
        let set = AgentSet::new(names);
        let progress = |_| PairProgress { end: None, meter: ByteMeter::new(now), reported: 0, began: None };
        let pairs = (0..job.plan.pairs.len()).map(progress).collect();
        let stage = Stage::Comparing(now + job.waits.setup);
        Self {
            job,
            stage,
            set,
            server_of,
            servers,
            pairs,
            start_at: Time::NEVER,
            stop_servers_at: Time::NEVER,
            interrupted: false,
        }
    }

    /// How many agents a job needs.
    pub fn agents_of(job: &FleetJob) -> usize {
        let started = |server: &&Server| matches!(server.place, ServerPlace::Agent { .. });
        job.clients.len() + job.servers.iter().filter(started).count()
    }

    /// The job.
    pub const fn job(&self) -> &FleetJob {
        &self.job
    }

    /// The current stage.
    pub const fn stage(&self) -> Stage {
        self.stage
    }

    /// Bytes that are known to have come, and pairs that are over.
    pub fn progress(&self) -> (u64, usize) {
        let over = self.pairs.iter().filter(|progress| progress.end.is_some()).count();
        (self.pairs.iter().map(|progress| progress.reported).sum(), over)
    }

    /// Bytes that are known to have come of the pair at this place of the plan.
    pub fn bytes_of(&self, pair: usize) -> u64 {
        self.pairs.get(pair).map_or(0, |progress| progress.reported)
    }

    /// Ends the drive at once: nothing is waited for any more, and pairs that are not over by now are lost.
    pub fn abandon(&mut self) {
        self.interrupted = true;
        self.end_the_rest(ABANDONED);
        self.stage = Stage::Over;
    }
}

impl Decider for Coordinator {
    fn poll_message(&mut self) -> Option<(usize, ToAgent)> {
        self.set.poll_message()
    }

    fn poll_timeout(&self) -> Time {
        match self.stage {
            Stage::Comparing(until) | Stage::Planning(until) | Stage::Closing(until) => until,
            Stage::Running { stop, until, .. } => stop.min(self.stop_servers_at).min(until),
            Stage::Over => Time::NEVER,
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    fn handle_message(&mut self, now: Time, agent: usize, message: FromAgent) {
        if !self.set.is_present(agent) {
            return;
        }
        match message {
            FromAgent::Ready { version, machine } => self.set.note_ready(now, agent, version, machine),
            FromAgent::Pong { number, at } => match self.set.compare(now, agent, number, at) {
                Ok(true) => self.open(agent),
                Ok(false) => {}
                Err(why) => self.lose(agent, why),
            },
            FromAgent::Serving { address } => {
                if let (Some(server), Readiness::Opening) =
                    (self.server_of[agent], self.set.agents[agent].readiness)
                {
                    self.servers[server].url = Some(self.job.url(server, address));
                    self.set.agents[agent].readiness = Readiness::Ready;
                }
            }
            FromAgent::Planned => self.set.note_planned(agent),
            FromAgent::Refused { why } => self.refuse(agent, &why),
            FromAgent::Busy { with } => self.refuse(agent, &busy(&with)),
            FromAgent::Progress { at, bytes } => self.note(now, agent, at, &bytes),
            FromAgent::Result { pair, began, figures } => self.conclude(now, agent, pair, began, figures),
            FromAgent::Served(figures) => self.note_served(agent, figures),
            // Those of loads.
            FromAgent::Loading(_) | FromAgent::Part(_) => {}
        }
        self.advance(now);
    }

    fn handle_gone(&mut self, now: Time, agent: usize, why: &str) {
        if self.set.is_present(agent) {
            self.lose(agent, why);
            self.advance(now);
        }
    }

    fn handle_interrupt(&mut self, now: Time) {
        if self.interrupted || self.is_over() {
            return;
        }
        self.interrupted = true;
        match self.stage {
            Stage::Running { start, .. } => {
                self.stop_all();
                let until = now + self.job.waits.grace;
                self.run_until(start, Time::NEVER, until);
            }
            // All measurements are in: do not wait for more.
            Stage::Closing(_) => self.stage = Stage::Over,
            _ => self.end_the_rest("it was interrupted before it began"),
        }
        self.advance(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.stage.postpone(now);
        match self.stage {
            Stage::Comparing(until) if now >= until => {
                let late = format!("it was not ready within {}", format_duration(self.job.waits.setup));
                for place in self.set.those(|agent| agent.readiness != Readiness::Ready) {
                    self.lose(place, &late);
                }
            }
            Stage::Planning(until) if now >= until => {
                let late =
                    format!("it did not accept its plan within {}", format_duration(self.job.waits.setup));
                for place in self.set.those(|agent| agent.readiness == Readiness::Reading) {
                    self.lose(place, &late);
                }
            }
            Stage::Running { until, .. } if now >= until => {
                let after = format_duration(self.job.duration + self.job.waits.grace);
                let silent = format!("it reported no result within {after} after the start");
                let interrupted = format!(
                    "it reported no result within {} after the interruption",
                    format_duration(self.job.waits.grace)
                );
                let why = if self.interrupted { interrupted } else { silent };
                for client in 0..self.job.clients.len() {
                    if self.job.plan.of_client(client as u32).any(|pair| self.pairs[pair].end.is_none()) {
                        self.lose(client, &why);
                    }
                }
            }
            Stage::Running { start, stop, until } if now >= stop => {
                self.stop_all();
                self.stage = Stage::Running { start, stop: Time::NEVER, until };
            }
            Stage::Running { .. } if now >= self.stop_servers_at => self.stop_servers(),
            _ => {}
        }
        self.advance(now);
    }
}

impl Coordinator {
    /// An agent is ready: a server is asked to serve.
    fn open(&mut self, agent: usize) {
        if let Some(task) = self.server_of[agent].and_then(|server| self.job.serve_task(server)) {
            self.set.agents[agent].readiness = Readiness::Opening;
            self.set.send(agent, ToAgent::Serve(task));
        }
    }

    /// Enters the next stage if nothing is left to wait for.
    fn advance(&mut self, now: Time) {
        if self.pairs.iter().all(|progress| progress.end.is_some()) {
            self.stage = self.after_pairs(now);
        }
        match self.stage {
            Stage::Comparing(_) if self.set.all(|readiness| readiness == Readiness::Ready) => {
                self.send_tasks(now);
            }
            Stage::Planning(_) if self.set.all(|readiness| readiness != Readiness::Reading) => {
                self.start(now);
            }
            _ => {}
        }
    }

    /// Sends clients their tasks.
    fn send_tasks(&mut self, now: Time) {
        self.stage = Stage::Planning(now + self.job.waits.setup);
        for client in 0..self.job.clients.len() {
            let open = self.job.plan.of_client(client as u32).filter(|&pair| self.pairs[pair].end.is_none());
            let task = |pair: usize| {
                let server = self.job.plan.pairs[pair].server as usize;
                self.job.fetch_task(pair, self.servers[server].url.as_deref()?)
            };
            let tasks: Vec<_> = open.filter_map(task).collect();
            if !tasks.is_empty() {
                self.set.agents[client].readiness = Readiness::Reading;
                self.set.send(client, ToAgent::FleetPlan(tasks));
            }
        }
        self.advance(now);
    }

    /// Gives all clients one instant.
    fn start(&mut self, now: Time) {
        let start = self.set.start(now);
        let end = start + self.job.duration;
        let grace = self.job.waits.grace;
        self.start_at = start;
        self.run_until(start, end + grace / 2, end + grace);
    }

    /// Records an agent's progress report on its pairs. Nothing can have come before the start, or after now.
    fn note(&mut self, now: Time, agent: usize, at: Time, bytes: &[(u32, u64)]) {
        let is_running = matches!(self.stage, Stage::Running { .. });
        let (true, Some(offset)) = (is_running, self.set.agents[agent].record.offset) else { return };
        for &(pair, bytes) in bytes {
            let Some(progress) = progress_of(&self.job, &mut self.pairs, agent, pair) else { continue };
            let fresh = bytes.min(MOST_COUNT).saturating_sub(progress.reported);
            if progress.reported == 0 {
                // A lost pair's time begins with the common instant: the time of its first request is unknown.
                progress.meter = ByteMeter::new(self.start_at);
            }
            let from = progress.meter.ended();
            progress.meter.add_over(from, offset.to_us(at).min(now), fresh);
            progress.reported += fresh;
        }
    }

    /// A pair is over.
    fn conclude(
        &mut self,
        now: Time,
        agent: usize,
        pair: u32,
        began: Time,
        figures: Result<Box<PairFigures>, String>,
    ) {
        let Some(offset) = self.set.agents[agent].record.offset else { return };
        let Some(progress) = progress_of(&self.job, &mut self.pairs, agent, pair) else { return };
        progress.began = began.happened().then(|| offset.to_us(began).min(now));
        // All bytes are added up on one clock: those of another time would make the sum last for years. The uncertainty is
        // bounded, since it comes of what the agent says.
        let (start, grace) = (self.start_at, self.job.waits.grace);
        let waits = grace + offset.uncertainty.min(grace);
        let is_of_this_time = |meter: &ByteMeter| {
            let [first, last] = [meter.began(), meter.ended()].map(|time| offset.to_us(time));
            start.since(first) <= waits && last.since(start) <= self.job.duration + waits
        };
        progress.end = Some(match figures {
            Ok(figures) if figures.is_sound() && is_of_this_time(&figures.meter) => {
                progress.reported = figures.bytes();
                progress.meter = ByteMeter::new(offset.to_us(figures.meter.began()));
                progress.meter.add_all(&figures.meter, |time| offset.to_us(time));
                PairEnd::Reported(figures)
            }
            Ok(_) => PairEnd::Lost {
                why: "its client reports figures that are too large to add up, or of another time".to_owned(),
            },
            Err(why) => PairEnd::Failed { why },
        });
    }

    fn stop_all(&mut self) {
        for client in 0..self.job.clients.len() {
            if self.job.plan.of_client(client as u32).any(|pair| self.pairs[pair].end.is_none()) {
                self.set.send(client, ToAgent::Stop);
            }
        }
    }

    /// An agent has refused what it was asked for. Before the start its pairs have failed, for nothing was lost.
    fn refuse(&mut self, agent: usize, why: &str) {
        match self.stage {
            Stage::Comparing(_) | Stage::Planning(_) => {
                self.give_up(agent, why, |name| PairEnd::Failed { why: format!("{name} refused: {why}") });
            }
            _ => self.lose(agent, why),
        }
    }

    /// Gives an agent up, and the pairs that need it.
    fn lose(&mut self, agent: usize, why: &str) {
        self.give_up(agent, why, |name| PairEnd::Lost { why: format!("{name}: {why}") });
    }

    /// No message of this agent is taken any more, and pairs that need it end in this way, given its name.
    fn give_up(&mut self, agent: usize, why: &str, end: impl Fn(&str) -> PairEnd) {
        self.set.lose(agent, why);
        let (server, name) = (self.server_of[agent], self.set.agents[agent].record.name.clone());
        // Once started, a client itself reports a dead server, and what it got until then.
        let is_running = matches!(self.stage, Stage::Running { .. });
        for (progress, pair) in self.pairs.iter_mut().zip(&self.job.plan.pairs) {
            let needs_it = match server {
                None => pair.client as usize == agent,
                Some(server) => pair.server as usize == server && !is_running,
            };
            if needs_it && progress.end.is_none() {
                progress.end = Some(end(&name));
            }
        }
    }

    fn end_the_rest(&mut self, why: &str) {
        for progress in self.pairs.iter_mut().filter(|progress| progress.end.is_none()) {
            progress.end = Some(PairEnd::Lost { why: why.to_owned() });
        }
    }

    /// The record; the role adds what only it knows.
    pub fn into_record(mut self) -> FleetRecord {
        self.end_the_rest("it was ended without results");
        let Self { job, set, server_of, mut servers, pairs, start_at, interrupted, .. } = self;
        let mut clients = Vec::new();
        for (agent, server) in set.agents.into_iter().zip(server_of) {
            match server {
                None => clients.push(agent.record),
                Some(place) => {
                    servers[place] = AgentRecord { url: servers[place].url.take(), ..agent.record }
                }
            }
        }
        let pairs = job.plan.pairs.iter().zip(pairs).map(|(&pair, progress)| PairRecord {
            pair,
            end: progress.end.unwrap_or(PairEnd::Lost { why: String::new() }),
            meter: progress.meter,
            late: progress.began.map(|began| began.since(start_at)),
        });
        FleetRecord {
            schema: RECORD_VERSION,
            version: String::new(),
            command: Vec::new(),
            started: String::new(),
            machine: String::new(),
            seed: job.seed,
            protocol: job.protocol,
            pairs: pairs.collect(),
            asked: FleetAsked {
                direction: job.direction,
                concurrency: job.concurrency,
                duration: job.duration,
                grace: job.waits.grace,
                sizes: job.sizes,
                engine: job.settings,
                congestion: job.congestion,
            },
            clients,
            servers,
            start_at,
            interrupted,
            warnings: Vec::new(),
        }
    }
}

/// The pair of this number, if it is of that client and not over.
fn progress_of<'a>(
    job: &FleetJob,
    pairs: &'a mut [PairProgress],
    agent: usize,
    pair: u32,
) -> Option<&'a mut PairProgress> {
    let planned = job.plan.pairs.get(pair as usize)?;
    let progress = pairs.get_mut(pair as usize)?;
    (planned.client as usize == agent && progress.end.is_none()).then_some(progress)
}

#[cfg(test)]
mod tests;
