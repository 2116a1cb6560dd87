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

/// What the time of a load consists of, in the driver's flags.
pub(super) const TIME_OF_LOAD: &str = "--warmup, -z and --drain together; -n does not bound it";
/// The same of a cell of a study, in the keys of its scenario.
pub(super) const TIME_OF_CELL: &str = "warmup, measure and drain of a cell together";
/// The same of transfers, which run side by side.
pub(super) const TIME_OF_TRANSFERS: &str = "--duration of the longest transfer";

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
    /// Each bound that a demand is above.
    fn above(&self, demand: &Demand) -> Vec<Above> {
        let rate = self.rate.and_then(|most| match demand.rate {
            None => Some(Above::NoRate { most }),
            // A rate that is not a number is not within the bound either.
            Some(asked) => (!(0.0..=most).contains(&asked)).then_some(Above::Rate { asked, most }),
        });
        let asked = demand.connections;
        let connections = self.connections.filter(|most| asked > *most);
        let connections = connections.map(|most| Above::Connections { asked, most });
        let asked = demand.time;
        let time = self.time.filter(|most| asked > *most).map(|most| Above::Time { asked, most });
        [rate, connections, time].into_iter().flatten().collect()
    }

    /// Each bound that the demand of a cell is above, in words: why the agent cannot measure it.
    pub(in crate::fleet) fn above_in_words(&self, demand: &Demand) -> Vec<String> {
        self.above(demand).into_iter().map(Above::of_cell).collect()
    }

    /// Refuses a demand above a bound. `counted` says what its time consists of.
    pub(super) fn check(&self, demand: &Demand, counted: &str) -> Result<(), Refusal> {
        self.above(demand).first().map_or(Ok(()), |above| Err(above.refusal(counted)))
    }
}

/// A bound that a demand is above.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Above {
    /// The rate is bounded, and the demand has none.
    NoRate { most: f64 },
    /// Requests per second.
    Rate { asked: f64, most: f64 },
    /// Connections.
    Connections { asked: u32, most: u32 },
    /// The time.
    Time { asked: Duration, most: Duration },
}

impl Above {
    /// The refusal of the task. `counted` says what its time consists of.
    fn refusal(self, counted: &str) -> Refusal {
        let (flag, asked, most) = match self {
            Self::NoRate { most } => return Refusal::NoRate { most: format!("{most}/s") },
            Self::Rate { asked, most } => ("--max-rate", format!("{asked}/s"), format!("{most}/s")),
            Self::Connections { asked, most } => {
                ("--max-connections", plural(asked.into(), "connection"), most.to_string())
            }
            Self::Time { asked, most } => {
                let asked = format!("{} ({counted})", format_duration(asked));
                ("--max-time", asked, format_duration(most))
            }
        };
        Refusal::Limit { flag, asked, most }
    }

    /// Why an agent cannot measure a cell that asks for this.
    fn of_cell(self) -> String {
        match self {
            Self::NoRate { most } => {
                format!("its --max-rate is {most}/s, and a cell has no rate (a closed loop)")
            }
            Self::Rate { asked, most } => format!("its --max-rate is {most}/s, and a cell sends {asked}/s"),
            Self::Connections { asked, most } => {
                format!("its --max-connections is {most}, and a cell may have {asked}")
            }
            Self::Time { asked, most } => {
                let (most, time) = (format_duration(most), format_duration(asked));
                format!("its --max-time is {most}, and a cell takes {time}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    const DEMAND: Demand = Demand { rate: Some(100.0), connections: 10, time: Duration::from_secs(60) };

    fn flag(limits: AgentLimits, demand: Demand) -> Option<&'static str> {
        match limits.check(&demand, "all of it") {
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
        let words = |demand: Demand| limits.check(&demand, TIME_OF_LOAD).unwrap_err().to_string();
        let above = words(Demand { connections: 11, ..DEMAND });
        let expected = "11 connections would be more than this agent does (--max-connections 10): ";
        assert!(above.starts_with(expected), "{above}");
        let above = words(Demand { time: longer, ..DEMAND });
        let expected = " (--warmup, -z and --drain together; -n does not bound it) would be more";
        assert!(above.contains(expected) && above.contains("(--max-time 60s)"), "{above}");
    }

    #[test]
    fn a_demand_above_several_bounds_is_refused_for_the_first_and_all_are_known() {
        let limits = AgentLimits {
            rate: Some(99.0),
            connections: Some(9),
            bytes: None,
            time: Some(Duration::from_secs(59)),
        };
        assert_eq!(flag(limits, DEMAND), Some("--max-rate"));
        let above = limits.above(&DEMAND);
        assert!(matches!(above[..], [Above::Rate { .. }, Above::Connections { .. }, Above::Time { .. }]));
        let none = Demand { rate: None, ..DEMAND };
        assert_eq!(limits.above(&none)[0], Above::NoRate { most: 99.0 });
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
