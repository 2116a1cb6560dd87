//! Makes a load with agents that may be late, silent, wrong or dead, without I/O: their messages and the time go in, the messages
//! for them come out.
//!
//! First clocks are compared; then each agent receives its share and dials, and when the connections of all are up they
//! are given one instant to begin at, each by its own clock. An agent that is silent or dies until then is left out:
//! its share is not offered, and the outcome says so. If one refuses its share, the load is not begun: who asked has to
//! ask otherwise. From then on the end is fixed: halfway through the grace, agents that have not reported where their
//! records are get Stop, and at its end their shares are lost, with what they reported last.

use std::time::Duration;

use super::agent_set::{Agent, AgentSet, Decider, Readiness, STOPPED, Stage, busy};
use super::load_job::{LoadJob, LoadOutcome, ShareEnd, ShareRecord};
use super::messages::{FromAgent, PartReport, ShareProgress, ToAgent};
use crate::record::Histogram;
use h2lab_base::units::{Time, format_duration};

/// Why there is no part of a share that nobody waits for any more.
const ABANDONED: &str = "it was ended without results";

/// An agent that works reports four times per second. One that was not heard of for this long is silent.
const SILENT: Duration = Duration::from_secs(5);

/// The same of an agent without connections, which has nothing to report while it stores its part: it answers pings, which come
/// every 5 s.
const SILENT_WITHOUT_LOAD: Duration = Duration::from_secs(12);

/// After an interruption, agents that were not heard of for this long are not waited for.
const GIVEN_UP: Duration = Duration::from_secs(10);

/// A share as the coordinator sees it.
#[derive(Debug, Default)]
struct ShareStatus {
    end: Option<ShareEnd>,
    /// What its agent reported last, without response times.
    newest: Option<Box<ShareProgress>>,
    late: Option<Duration>,
    /// When its agent said something last; the start of the job before.
    heard: Time,
}

/// See the module.
#[derive(Debug)]
pub struct LoadCoordinator {
    job: LoadJob,
    stage: Stage,
    set: AgentSet,
    /// By agent.
    shares: Vec<ShareStatus>,
    /// Response times that were reported since they were last asked for.
    recent: Histogram,
    start_at: Time,
    /// When the driver was interrupted first.
    interrupted_at: Option<Time>,
}

impl LoadCoordinator {
    /// Begins `now` with a job whose agents are being started.
    pub fn new(job: LoadJob, now: Time) -> Self {
        let set = AgentSet::new(job.agents.iter().map(String::as_str));
        let shares =
            job.agents.iter().map(|_| ShareStatus { heard: now, ..ShareStatus::default() }).collect();
        let stage = if job.agents.is_empty() { Stage::Over } else { Stage::Comparing(now + job.waits.setup) };
        Self {
            job,
            stage,
            set,
            shares,
            recent: Histogram::default(),
            start_at: Time::NEVER,
            interrupted_at: None,
        }
    }

    /// The job.
    pub const fn job(&self) -> &LoadJob {
        &self.job
    }

    /// The current stage.
    pub const fn stage(&self) -> Stage {
        self.stage
    }

    /// What all agents have reported: sums of their newest reports, those of lost agents and of shares that are over among them.
    /// The response times are those that were reported since the last call.
    pub fn progress(&mut self) -> ShareProgress {
        let mut sum = ShareProgress { recent: std::mem::take(&mut self.recent), ..ShareProgress::default() };
        for share in &self.shares {
            match (&share.end, &share.newest) {
                (None, Some(newest)) => sum.add(newest),
                (Some(ShareEnd::Reported(report)), _) => sum.add(&report.last.when_over()),
                (Some(ShareEnd::Lost { progress: Some(progress), .. }), _) => sum.add(&progress.when_over()),
                // Of the others nothing is known.
                _ => {}
            }
        }
        sum
    }

    /// Names of the agents that are lost until now, by place, and why.
    pub fn lost(&self) -> impl Iterator<Item = (usize, &str, &str)> {
        let agents = self.set.agents.iter().enumerate();
        agents.filter_map(|(place, Agent { record, .. })| {
            Some((place, record.name.as_str(), record.lost.as_deref()?))
        })
    }

    /// Names of the agents whose shares run and that were not heard of for some time, by place, and for how long. Their shares
    /// are lost if they stay silent.
    pub fn silent(&self, now: Time) -> impl Iterator<Item = (usize, &str, Duration)> {
        let start = if let Stage::Running { start, .. } = self.stage { start } else { Time::NEVER };
        self.waiting().filter_map(move |(place, name)| {
            let share = &self.shares[place];
            let is_loading = share.newest.as_ref().is_none_or(|newest| newest.connections > 0);
            let most = if is_loading { SILENT } else { SILENT_WITHOUT_LOAD };
            let silence = now.since(share.heard.max(start));
            (silence >= most).then_some((place, name, silence))
        })
    }

    /// Names of the agents whose shares are not over, by place.
    pub fn waiting(&self) -> impl Iterator<Item = (usize, &str)> {
        let names = self.set.agents.iter().map(|agent| agent.record.name.as_str()).enumerate();
        names.filter(|(place, _)| self.shares[*place].end.is_none())
    }

    /// Whether the driver was interrupted: then what is missing is not waited for long.
    pub const fn is_interrupted(&self) -> bool {
        self.interrupted_at.is_some()
    }

    /// When no more requests are due; far away before the common instant is set.
    pub fn due_until(&self) -> Time {
        self.start_at + self.job.duration.saturating_sub(self.job.task.scenario.work.drain)
    }

    /// Ends the load at once: nothing is waited for any more, and shares that are not stored by now are lost.
    pub fn abandon(&mut self) {
        self.end_the_rest(ABANDONED);
        self.stage = Stage::Over;
    }
}

impl Decider for LoadCoordinator {
    fn poll_message(&mut self) -> Option<(usize, ToAgent)> {
        self.set.poll_message()
    }

    fn poll_timeout(&self) -> Time {
        match self.stage {
            Stage::Comparing(until) | Stage::Planning(until) | Stage::Closing(until) => until,
            Stage::Running { stop, until, .. } => stop.min(until).min(self.give_up_at()),
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
        self.shares[agent].heard = now;
        match message {
            FromAgent::Ready { version, machine } => self.set.note_ready(now, agent, version, machine),
            FromAgent::Pong { number, at } => {
                if let Err(why) = self.set.compare(now, agent, number, at) {
                    self.lose(agent, why);
                }
            }
            FromAgent::Planned => self.set.note_planned(agent),
            FromAgent::Refused { why } => self.refuse(agent, &why),
            FromAgent::Busy { with } => self.refuse(agent, &busy(&with)),
            FromAgent::Loading(progress) => self.note(agent, progress),
            FromAgent::Part(report) => self.conclude(agent, report),
            // Those of transfers.
            FromAgent::Serving { .. }
            | FromAgent::Progress { .. }
            | FromAgent::Result { .. }
            | FromAgent::Served(_) => {}
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
        if self.is_interrupted() || self.is_over() {
            return;
        }
        self.interrupted_at = Some(now);
        if let Stage::Running { start, until, .. } = self.stage {
            self.stop_all();
            let until = until.min(now + self.job.waits.grace);
            self.stage = Stage::Running { start, stop: Time::NEVER, until };
        } else {
            self.end_the_rest("it was interrupted before it began");
        }
        self.advance(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        let setup = self.job.waits.setup;
        self.stage.postpone(now);
        if now.since(self.give_up_at()) >= STOPPED {
            // This driver was stopped, and could receive nothing.
            for place in self.open() {
                self.shares[place].heard = now;
            }
        }
        match self.stage {
            Stage::Comparing(until) if now >= until => {
                let late = format!("it was not ready within {}", format_duration(setup));
                for place in self.set.those(|agent| agent.readiness != Readiness::Ready) {
                    self.lose(place, &late);
                }
            }
            Stage::Planning(until) if now >= until => {
                let late = format!("its connections were not up within {}", format_duration(setup));
                for place in self.set.those(|agent| agent.readiness == Readiness::Reading) {
                    self.lose(place, &late);
                }
            }
            Stage::Running { start, until, .. } if now >= until => {
                let grace = self.job.waits.grace;
                let end = start + self.job.duration;
                let silent = if self.interrupted_at.is_some_and(|at| at < end) {
                    format!(
                        "it did not store its part within {} after the interruption",
                        format_duration(grace)
                    )
                } else {
                    let after = format_duration(self.job.duration + grace);
                    format!("it did not store its part within {after} after the start")
                };
                for place in self.open() {
                    self.lose(place, &silent);
                }
            }
            Stage::Running { .. } if now >= self.give_up_at() => {
                let silence = format_duration(GIVEN_UP);
                let silent = format!("the driver was interrupted, and nothing was heard of it for {silence}");
                for place in self.open() {
                    self.lose(place, &silent);
                }
            }
            Stage::Running { start, stop, until } if now >= stop => {
                self.stop_all();
                self.stage = Stage::Running { start, stop: Time::NEVER, until };
            }
            _ => {}
        }
        self.advance(now);
    }
}

impl LoadCoordinator {
    /// Enters the next stage if nothing is left to wait for.
    fn advance(&mut self, now: Time) {
        if self.shares.iter().all(|share| share.end.is_some()) {
            self.stage = Stage::Over;
        }
        match self.stage {
            Stage::Comparing(_) if self.set.all(|readiness| readiness == Readiness::Ready) => {
                self.stage = Stage::Planning(now + self.job.waits.setup);
                for place in self.open() {
                    self.set.agents[place].readiness = Readiness::Reading;
                    self.set.send(place, ToAgent::Load(Box::new(self.job.task(place))));
                }
            }
            Stage::Planning(_) if self.set.all(|readiness| readiness == Readiness::Accepted) => {
                let start = self.set.start(now);
                let end = start + self.job.duration;
                let grace = self.job.waits.grace;
                self.start_at = start;
                self.stage = Stage::Running { start, stop: end + grace / 2, until: end + grace };
            }
            _ => {}
        }
    }

    /// The places of agents whose shares are not over.
    fn open(&self) -> Vec<usize> {
        (0..self.shares.len()).filter(|&place| self.shares[place].end.is_none()).collect()
    }

    /// When shares that are not over are given up before the grace is over: the driver was interrupted, and all their agents are
    /// silent.
    fn give_up_at(&self) -> Time {
        let open = self.shares.iter().filter(|share| share.end.is_none());
        match open.map(|share| share.heard).max() {
            Some(heard) if self.is_interrupted() => heard + GIVEN_UP,
            _ => Time::NEVER,
        }
    }

    /// An agent's progress. What goes backwards, or comes twice, is older than what is known.
    fn note(&mut self, agent: usize, mut progress: Box<ShareProgress>) {
        let share = &mut self.shares[agent];
        let has_task = matches!(self.set.agents[agent].readiness, Readiness::Reading | Readiness::Accepted);
        let is_newer = share.newest.as_ref().is_none_or(|known| progress.follows(known));
        if has_task && share.end.is_none() && is_newer && progress.is_sound() {
            self.recent.merge(&std::mem::take(&mut progress.recent));
            share.newest = Some(progress);
        }
    }

    /// An agent's records are stored. Before the start there are none, and a second report is one too many.
    fn conclude(&mut self, agent: usize, report: PartReport) {
        let record = &self.set.agents[agent].record;
        let is_running = matches!(self.stage, Stage::Running { .. });
        let (true, None, Some(offset)) = (is_running, &self.shares[agent].end, record.offset) else { return };
        // The name of a part is its agent's own, so that no two shares can have one part.
        let is_sound = report.is_sound(&record.name);
        let share = &mut self.shares[agent];
        share.end = Some(if is_sound {
            let began_late = offset.to_us(report.started_at).since(self.start_at);
            share.late = Some(began_late + report.late);
            ShareEnd::Reported(Box::new(report))
        } else {
            ShareEnd::Lost {
                why: "its agent reports figures that are too large to add up, or a part that is not its own"
                    .to_owned(),
                progress: share.newest.take(),
            }
        });
    }

    /// An agent has said that it cannot make its share, or cannot go on. Before the common instant is set, the load is not begun.
    fn refuse(&mut self, agent: usize, why: &str) {
        if !matches!(self.stage, Stage::Comparing(_) | Stage::Planning(_)) {
            self.lose(agent, why);
            return;
        }
        self.shares[agent].end = Some(ShareEnd::Failed { why: why.to_owned() });
        self.set.lose(agent, why);
        self.end_the_rest("the load was not begun");
    }

    fn stop_all(&mut self) {
        for place in self.open() {
            self.set.send(place, ToAgent::Stop);
        }
    }

    /// Gives an agent up. One that has stored its part has nothing more to say: that it leaves is no loss.
    fn lose(&mut self, agent: usize, why: &str) {
        if matches!(self.shares[agent].end, Some(ShareEnd::Reported(_))) {
            return;
        }
        self.set.lose(agent, why);
        self.end(agent, why);
    }

    fn end_the_rest(&mut self, why: &str) {
        for place in self.open() {
            self.end(place, why);
        }
    }

    /// A share that is not over is lost.
    fn end(&mut self, place: usize, why: &str) {
        let share = &mut self.shares[place];
        if share.end.is_none() {
            share.end = Some(ShareEnd::Lost { why: why.to_owned(), progress: share.newest.take() });
        }
    }

    /// Whether the driver was interrupted before the load had ended: while requests were due, or while a share that came waited for
    /// its last answers. What comes later only ends the waiting for shares that are missing.
    fn is_load_interrupted(&self) -> bool {
        let is_cut = |share: &ShareStatus| match &share.end {
            Some(ShareEnd::Reported(report)) => report.interrupted,
            _ => false,
        };
        self.interrupted_at.is_some_and(|at| at < self.due_until() || self.shares.iter().any(is_cut))
    }

    /// What became of the load.
    pub fn into_result(mut self) -> LoadOutcome {
        self.end_the_rest(ABANDONED);
        let interrupted = self.is_load_interrupted();
        let Self { job, set, shares, start_at, .. } = self;
        let shares =
            set.agents.into_iter().zip(shares).enumerate().map(|(place, (agent, share))| ShareRecord {
                share: job.share(place),
                end: share.end.unwrap_or(ShareEnd::Lost { why: String::new(), progress: None }),
                late: share.late,
                agent: agent.record,
            });
        LoadOutcome { start_at, interrupted, shares: shares.collect() }
    }
}

#[cfg(test)]
mod tests;
