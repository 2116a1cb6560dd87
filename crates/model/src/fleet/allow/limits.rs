//! How much an agent does at most, whatever a driver asks.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Refusal;
use crate::scenario::Cell;
use crate::workload::Arrival;
use h2lab_base::JsonSchema;
use h2lab_base::counts::plural;
use h2lab_base::units::{format_duration, optional_duration_text};

/// The bounds of an agent; `None`: not bounded.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AgentLimits {
    /// Requests per second of one task (`--max-rate`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Connections of one task (`--max-connections`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// Bytes of one task, sent and received (`--max-bytes`). Nobody knows them before: who makes a share of a load, or
    /// transfers, counts them and ends it. Of a server and of a unit they are not counted while it runs: both are
    /// refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The time of one task (`--max-time`): a share of a load or a transfer, or one cell of a unit.
    #[serde(with = "optional_duration_text", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub time: Option<Duration>,
}

/// How much a task asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    /// Requests per second at most; `None` if only the server's speed bounds them: in a closed loop, and in a transfer.
    pub rate: Option<f64>,
    /// Connections at most.
    pub connections: u32,
    /// How long it takes at most.
    pub time: Duration,
}

impl Demand {
    /// What each agent does of a cell that is shared among so many of them, at least 1.
    pub fn of_cell(cell: &Cell, agents: u32) -> Self {
        let agents = agents.max(1);
        let rate = match cell.work.arrival {
            Arrival::Closed { .. } => None,
            Arrival::Constant { rate } | Arrival::Poisson { rate } => Some(rate),
            Arrival::Ramp { from, to, .. } => Some(from.max(to)),
        };
        let of_sidecar = cell.sidecar.as_ref().map_or(0, |sidecar| sidecar.max_connections);
        let connections = cell.connections.max(cell.max_connections).max(of_sidecar);
        let phases = cell.work.phases;
        Self {
            rate: rate.map(|rate| rate / f64::from(agents)),
            connections: connections.div_ceil(agents),
            time: phases.warmup.saturating_add(phases.measure).saturating_add(phases.drain),
        }
    }
}

impl AgentLimits {
    /// Refuses a demand above a bound.
    pub(super) fn check(&self, demand: &Demand) -> Result<(), Refusal> {
        if let Some(most) = self.rate {
            let most_text = format!("{most}/s");
            match demand.rate {
                None => return Err(Refusal::NoRate { most: most_text }),
                // A rate that is not a number is not within the bound either.
                Some(rate) if !(0.0..=most).contains(&rate) => {
                    return exceeds("--max-rate", format!("{rate}/s"), most_text);
                }
                Some(_) => {}
            }
        }
        if let Some(most) = self.connections.filter(|most| demand.connections > *most) {
            let asked = plural(demand.connections.into(), "connection");
            return exceeds("--max-connections", asked, most.to_string());
        }
        match self.time.filter(|most| demand.time > *most) {
            Some(most) => {
                let asked = format_duration(demand.time) + " (a load's --drain counts)";
                exceeds("--max-time", asked, format_duration(most))
            }
            None => Ok(()),
        }
    }
}

fn exceeds(flag: &'static str, asked: String, most: String) -> Result<(), Refusal> {
    Err(Refusal::Limit { flag, asked, most })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    const DEMAND: Demand = Demand { rate: Some(100.0), connections: 10, time: Duration::from_secs(60) };

    fn flag(limits: AgentLimits, demand: Demand) -> Option<&'static str> {
        match limits.check(&demand) {
            Ok(()) => None,
            Err(Refusal::Limit { flag, .. }) => Some(flag),
            Err(Refusal::NoRate { .. }) => Some("no rate"),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_demand_at_the_bound_is_taken_and_one_above_it_is_refused_with_the_flag() {
        let limits = AgentLimits {
            rate: Some(100.0),
            connections: Some(10),
            bytes: Some(1),
            time: Some(Duration::from_secs(60)),
        };
        assert_eq!(flag(limits, DEMAND), None);
        assert_eq!(flag(limits, Demand { rate: Some(100.1), ..DEMAND }), Some("--max-rate"));
        assert_eq!(flag(limits, Demand { rate: Some(f64::NAN), ..DEMAND }), Some("--max-rate"));
        assert_eq!(flag(limits, Demand { rate: None, ..DEMAND }), Some("no rate"));
        assert_eq!(flag(limits, Demand { connections: 11, ..DEMAND }), Some("--max-connections"));
        let longer = Duration::from_nanos(60_000_000_001);
        assert_eq!(flag(limits, Demand { time: longer, ..DEMAND }), Some("--max-time"));
        let most = Demand { rate: None, connections: u32::MAX, time: Duration::MAX };
        assert_eq!(flag(AgentLimits::default(), most), None);
        let words = limits.check(&Demand { connections: 11, ..DEMAND }).unwrap_err().to_string();
        let expected = "11 connections would be more than this agent does (--max-connections 10): ";
        assert!(words.starts_with(expected), "{words}");
        let words = limits.check(&Demand { time: longer, ..DEMAND }).unwrap_err().to_string();
        assert!(words.contains("--drain") && words.contains("(--max-time 60s)"), "{words}");
    }

    #[test]
    fn bounds_read_back_as_they_were() {
        let limits = AgentLimits {
            rate: Some(0.5),
            time: Some(Duration::from_millis(1500)),
            ..AgentLimits::default()
        };
        let json = serde_json::to_string(&limits).unwrap();
        assert_eq!(json, r#"{"rate":0.5,"time":"1500ms"}"#);
        assert_eq!(serde_json::from_str::<AgentLimits>(&json).unwrap(), limits);
        assert_eq!(serde_json::from_str::<AgentLimits>("{}").unwrap(), AgentLimits::default());
    }

    #[test]
    fn a_cell_asks_for_its_fastest_rate_all_its_connections_and_all_its_phases() {
        let of = |text: &str, agents| {
            let text = format!(
                "repetitions = 1\n{text}\n[matrix]\nprotocols = 'h1'\nmax-connections = 100\nwarm-pool = 3"
            );
            Demand::of_cell(&Scenario::from_toml(&text).unwrap().plan()[0], agents)
        };
        let work = "[work]\nwarmup = '1s'\nmeasure = '10s'\ndrain = '500ms'\n";
        let whole = of(&format!("{work}rate = 300"), 1);
        let time = Duration::from_millis(11_500);
        assert_eq!(whole, Demand { rate: Some(300.0), connections: 100, time });
        let third = of(&format!("{work}rate = 300"), 3);
        assert_eq!(third, Demand { rate: Some(100.0), connections: 34, time });
        assert_eq!(of(&format!("{work}ramp = '900..5/5s'"), 1).rate, Some(900.0));
        assert_eq!(of(&format!("{work}concurrency = 5"), 1).rate, None);
    }
}
