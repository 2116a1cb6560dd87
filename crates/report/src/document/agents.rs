//! The JSON document of `agents --json`.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::round::rounded;
use h2lab_base::units::millis_f64;
use h2lab_model::fleet::{AgentCard, ClockOffset};

/// The document of the agents at a NATS server, and of the runs that are open there. What is not known is null, never 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentsDocument {
    /// Version of h2lab.
    pub version: String,
    /// The NATS server.
    pub server: NatsServerDocument,
    /// For how long answers were awaited.
    pub wait_s: f64,
    /// The agents that answered, by name.
    pub agents: Vec<AgentCardDocument>,
    /// The runs that are open, by their start.
    pub runs: Vec<OpenRunDocument>,
    /// Answers that are of no use, and names that two agents have.
    pub warnings: Vec<String>,
}

/// A NATS server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NatsServerDocument {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// A round trip to it; null if that took longer than 2 s.
    pub round_trip_ms: Option<f64>,
    /// The longest message that it takes, in bytes.
    pub max_payload: u64,
}

/// An agent, as it describes itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentCardDocument {
    /// Its name.
    pub name: String,
    /// With whom it is busy, and since when; null if it is free.
    pub busy: Option<String>,
    /// Its version of h2lab.
    pub version: String,
    /// Its version of the messages between drivers and agents.
    pub agent_protocol: u32,
    /// Kernel and machine.
    pub machine: String,
    /// The boot ID of its kernel: agents that have one in common run on one machine. Empty if it is not known.
    pub host: String,
    /// CPUs that it may use.
    pub cpus: u32,
    /// Memory that it may use, in bytes.
    pub memory_bytes: u64,
    /// What its emulated links stand on: `root`, `user-namespace`, `reflector`; null if it can have none.
    pub isolation_level: Option<String>,
    /// Whether it can have real-time priority.
    pub realtime: bool,
    /// The servers that it can start.
    pub programs: Vec<ProgramDocument>,
    /// Congestion controls that it can use.
    pub congestion_controls: Vec<String>,
    /// What it was allowed: the values of `--allow`.
    pub allow: Vec<String>,
    /// Its own bounds, whatever a driver asks for.
    pub limits: AgentLimitsDocument,
    /// What must be equal of two machines whose figures are compared.
    pub likeness: String,
    /// Its clock against that of this machine; null if that could not be compared.
    pub clock: Option<AgentClockDocument>,
}

/// A program of an agent's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramDocument {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// The bounds of an agent; null where it has none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentLimitsDocument {
    /// Requests per second.
    pub rate_rps: Option<f64>,
    /// Connections at a time.
    pub connections: Option<u32>,
    /// Bytes of one task.
    pub bytes: Option<u64>,
    /// Duration of one task.
    pub time_s: Option<f64>,
}

/// A clock against another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentClockDocument {
    /// By how much it is ahead; negative if it is behind.
    pub offset_ms: f64,
    /// The largest possible error of that.
    pub uncertainty_ms: f64,
}

/// A run whose units agents take from a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OpenRunDocument {
    /// Its identity.
    pub run: String,
    /// Who began it.
    pub driver: String,
    /// When, UTC, RFC 3339.
    pub started: String,
    /// The agents that may take its units.
    pub agents: Vec<String>,
    /// How many units it has.
    pub units: u32,
    /// Units that nobody has finished, whether an agent has taken them or not; null if that is not known.
    pub waiting: Option<u32>,
    /// Units of which there is a report; null if that is not known.
    pub reported: Option<u32>,
}

/// The document of an agent; `clock` is ours against its own.
pub fn agent_card_document(card: &AgentCard, clock: Option<ClockOffset>) -> AgentCardDocument {
    let program =
        |(name, version): &(String, String)| ProgramDocument { name: name.clone(), version: version.clone() };
    AgentCardDocument {
        name: card.name.to_string(),
        busy: card.busy.clone(),
        version: card.version.clone(),
        agent_protocol: card.agent,
        machine: card.machine.clone(),
        host: card.host.as_str().to_owned(),
        cpus: card.cpus,
        memory_bytes: card.memory,
        isolation_level: card.isolation.clone(),
        realtime: card.realtime,
        programs: card.programs.iter().map(program).collect(),
        congestion_controls: card.congestion.clone(),
        allow: card.allow.clone(),
        limits: AgentLimitsDocument {
            rate_rps: card.limits.rate,
            connections: card.limits.connections,
            bytes: card.limits.bytes,
            time_s: card.limits.time.map(|time| rounded(time.as_secs_f64())),
        },
        likeness: card.likeness(),
        clock: clock.map(|clock| AgentClockDocument {
            offset_ms: rounded(-(clock.nanos() as f64) / 1e6),
            uncertainty_ms: rounded(millis_f64(clock.uncertainty)),
        }),
    }
}

#[cfg(test)]
mod tests {
    use h2lab_base::units::Time;
    use h2lab_model::fleet::{AGENT_VERSION, AgentLimits, RoundTrip};
    use h2lab_model::record::HostId;

    use super::*;

    #[test]
    fn a_clock_that_is_ahead_of_ours_has_a_positive_offset() {
        let card = AgentCard {
            name: "kek-1".parse().unwrap(),
            version: "0.1.0".to_owned(),
            agent: AGENT_VERSION,
            machine: "Linux 6.1 x86_64".to_owned(),
            host: HostId::default(),
            kernel: "Linux 6.1".to_owned(),
            cpu_model: String::new(),
            cpus: 4,
            memory: 1 << 33,
            isolation: None,
            realtime: false,
            programs: vec![("nginx".to_owned(), "1.26".to_owned())],
            congestion: Vec::new(),
            limits: AgentLimits::default(),
            allow: vec!["lab".to_owned()],
            busy: None,
            serves_s: 1,
        };
        let time = Time::from_millis;
        let trip = RoundTrip { sent: time(1000), theirs: time(1110), received: time(1020) };
        let document = agent_card_document(&card, ClockOffset::of(&[trip]));
        let clock = document.clock.unwrap();
        assert_eq!((clock.offset_ms, clock.uncertainty_ms), (100.0, 10.0));
        assert_eq!(document.likeness, card.likeness());
        assert_eq!(agent_card_document(&card, None).clock, None);
    }
}
