//! The last stage: servers are told to stop, and say what they spent. A run waits for that as little as for anything else: one
//! that is silent has no figures, and no pair is lost by it.

use std::time::Duration;

use super::{Agent, Coordinator, Readiness, Stage};
use crate::fleet::{ServerFigures, ToAgent};
use h2lab_base::units::Time;

/// How long servers may take to tell, within the grace that results have: they need a tenth of a second, and the way of a message.
const CLOSING: Duration = Duration::from_secs(2);

impl Agent {
    /// Whether what it spent is still to come.
    fn is_closing(&self) -> bool {
        self.readiness == Readiness::Stopped && self.record.lost.is_none()
    }
}

impl Coordinator {
    /// Pairs are waited for until then; clients that have told no results are told to stop at `stop`. Servers are told a quarter of the
    /// grace before the end, so that a client which hangs takes no figures of theirs along: it was told to stop long before.
    pub(super) fn run_until(&mut self, start: Time, stop: Time, until: Time) {
        self.stage = Stage::Running { start, stop, until };
        self.stop_servers_at = until - self.job.waits.grace / 4;
    }

    /// Tells servers to stop, each once.
    pub(super) fn stop_servers(&mut self) {
        self.stop_servers_at = Time::NEVER;
        for (place, agent) in self.agents.iter_mut().enumerate() {
            let is_serving = agent.server.is_some() && agent.readiness == Readiness::Ready;
            if is_serving && agent.record.lost.is_none() {
                agent.readiness = Readiness::Stopped;
                self.outbox.push_back((place, ToAgent::Stop));
            }
        }
    }

    /// What follows when all pairs are over.
    pub(super) fn after_pairs(&mut self, now: Time) -> Stage {
        let until = match self.stage {
            Stage::Running { until, .. } => {
                self.stop_servers();
                until.min(now + CLOSING)
            }
            Stage::Closing(until) => until,
            // Nobody has fetched anything.
            Stage::Waking(_) | Stage::Planning(_) | Stage::Over => return Stage::Over,
        };
        let is_awaited = now < until && self.agents.iter().any(Agent::is_closing);
        if is_awaited { Stage::Closing(until) } else { Stage::Over }
    }

    /// A server says what it spent. Unasked it has nothing to tell: it is still serving.
    pub(super) fn note_served(&mut self, agent: usize, figures: ServerFigures) {
        let seen = &mut self.agents[agent];
        if seen.readiness == Readiness::Stopped {
            seen.readiness = Readiness::Reported;
            seen.record.served = Some(figures).filter(ServerFigures::is_sound);
        }
    }
}
