//! What an agent over NATS is and does: its card, who is there, its share of a load, units of runs.

pub mod card;
pub mod free;
pub mod share;
pub mod units;
pub mod who;

use std::time::Duration;

use h2lab_model::fleet::{Demand, FetchTask, LoadRequest, LoadTask, Permissions, Refusal, ServeTask};
use h2lab_roles::fleet::agent::SILENCE_TIMEOUT;
use h2lab_roles::fleet::permits::Permits;

/// How long what was measured is tried to be stored and reported while the NATS server is away: as long as one end waits for the
/// other.
const STORE_TIMEOUT: Duration = SILENCE_TIMEOUT;

/// What the owner of the machine permits, as the agent's threads ask for it.
#[derive(Debug)]
pub struct OwnPermits(pub Permissions);

impl Permits for OwnPermits {
    fn load(&self, task: &LoadTask) -> Result<(), String> {
        let cell = task.cell().map_err(|error| error.to_string())?;
        let load = LoadRequest {
            url: &task.url,
            reach: &task.reach,
            protocol: cell.protocol,
            congestion: task.congestion.as_deref(),
            demand: Demand::of_cell(&cell, task.share.of),
        };
        in_words(self.0.check_load(&load))
    }

    fn fetch(&self, tasks: &[FetchTask]) -> Result<(), String> {
        in_words(self.0.check_fetch(tasks))
    }

    fn serve(&self, task: &ServeTask) -> Result<(), String> {
        in_words(self.0.check_serve(task))
    }

    fn bytes(&self) -> Option<u64> {
        self.0.limits.bytes
    }

    fn time(&self) -> Option<Duration> {
        self.0.limits.time
    }
}

fn in_words(checked: Result<(), Refusal>) -> Result<(), String> {
    checked.map_err(|refusal| refusal.to_string())
}

#[cfg(test)]
mod tests {
    use h2lab_model::fleet::{AgentLimits, AllowList, testing};
    use h2lab_model::scenario::Axis;
    use h2lab_model::workload::Protocol;

    use super::*;

    fn permits(allow: &[&str], limits: AgentLimits) -> OwnPermits {
        let allow: AllowList = allow.iter().map(|entry| entry.parse().unwrap()).collect();
        OwnPermits(Permissions { allow, limits })
    }

    #[test]
    fn a_task_is_refused_by_the_list_and_by_the_bounds_of_the_agent() {
        let task = testing::load_task();
        let any = ["http://*:*", "https://*:*"];
        assert_eq!(permits(&any, AgentLimits::default()).load(&task), Ok(()));
        let refusal = permits(&["lab"], AgentLimits::default()).load(&task).unwrap_err();
        assert!(refusal.contains("not permitted") && refusal.contains("lab"), "{refusal}");
        let short = AgentLimits { time: Some(Duration::from_millis(1)), ..AgentLimits::default() };
        let refusal = permits(&any, short).load(&task).unwrap_err();
        assert!(refusal.contains("--max-time 1ms"), "{refusal}");
    }

    #[test]
    fn what_is_checked_is_the_protocol_that_is_spoken() {
        let permits = permits(&["https://*:*"], AgentLimits::default());
        let mut task = LoadTask { protocol: Protocol::H1s, ..testing::load_task() };
        let refusal = permits.load(&task).unwrap_err();
        assert!(refusal.contains("both must be the same"), "{refusal}");
        task.scenario.matrix.protocols = Axis::one(Protocol::H1s);
        task.scenario.matrix.live[0].protocols = Axis::one(Protocol::H1s);
        assert_eq!(permits.load(&task), Ok(()));
    }

    #[test]
    fn the_bounds_that_are_kept_while_a_task_runs_are_those_of_the_flags() {
        let time = Duration::from_secs(60);
        let limits = AgentLimits { bytes: Some(1000), time: Some(time), ..AgentLimits::default() };
        let permits = permits(&[], limits);
        assert_eq!((permits.bytes(), permits.time()), (Some(1000), Some(time)));
    }
}
