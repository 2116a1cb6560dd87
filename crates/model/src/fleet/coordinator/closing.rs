//! The last stage: servers are asked to stop, and report what they spent. The wait is bounded like all others: a silent server
//! has no figures, and no pair is lost by it.

use std::time::Duration;

use super::{Coordinator, Readiness};
use crate::fleet::agent_set::Agent;
use crate::fleet::{ServerFigures, Stage, ToAgent};
use h2lab_base::units::Time;

/// How long servers may take to report, within the grace for results: they need a tenth of a second, and a message's delay.
const CLOSING: Duration = Duration::from_secs(2);

/// Whether a server's report is still to come.
fn is_closing(agent: &Agent) -> bool {
    agent.readiness == Readiness::Stopped && agent.is_present()
}

impl Coordinator {
    /// Waits for pairs until `until`; clients that have reported no results are sent Stop at `stop`. Servers are sent it a
    /// quarter of the grace before the end, so that a client that hangs does not cost their figures: it was sent Stop long
    /// before.
    pub(super) fn run_until(&mut self, start: Time, stop: Time, until: Time) {
        self.stage = Stage::Running { start, stop, until };
        self.stop_servers_at = until - self.job.waits.grace / 4;
    }

    /// Sends Stop to servers, each once.
    pub(super) fn stop_servers(&mut self) {
        self.stop_servers_at = Time::NEVER;
        let is_serving = |agent: &Agent| agent.readiness == Readiness::Ready;
        for place in self.set.those(is_serving) {
            if self.server_of[place].is_some() {
                self.set.agents[place].readiness = Readiness::Stopped;
                self.set.send(place, ToAgent::Stop);
            }
        }
    }

    /// The stage after all pairs are over.
    pub(super) fn after_pairs(&mut self, now: Time) -> Stage {
        let until = match self.stage {
            Stage::Running { until, .. } => {
                self.stop_servers();
                until.min(now + CLOSING)
            }
            Stage::Closing(until) => until,
            // Nothing was fetched.
            Stage::Comparing(_) | Stage::Planning(_) | Stage::Over => return Stage::Over,
        };
        let is_awaited = now < until && self.set.agents.iter().any(is_closing);
        if is_awaited { Stage::Closing(until) } else { Stage::Over }
    }

    /// A server reports what it spent. Unasked reports are invalid: it is still serving.
    pub(super) fn note_served(&mut self, agent: usize, figures: ServerFigures) {
        let seen = &mut self.set.agents[agent];
        if seen.readiness == Readiness::Stopped {
            seen.readiness = Readiness::Reported;
            seen.record.served = Some(figures).filter(ServerFigures::is_sound);
        }
    }
}
