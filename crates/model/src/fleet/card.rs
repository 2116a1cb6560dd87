//! What an agent says of itself when it is asked who is there.

use serde::{Deserialize, Serialize};

use super::{AgentLimits, AgentName};
use crate::record::HostId;
use h2lab_base::JsonSchema;

/// An agent, its machine, and what it permits. Its texts are printable if it was read with
/// [`super::messages::decode_printable`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentCard {
    /// The name under which it is addressed.
    #[schemars(with = "String")]
    pub name: AgentName,
    /// Version of h2lab.
    pub version: String,
    /// Version of the messages, [`super::AGENT_VERSION`].
    pub agent: u32,
    /// Kernel and machine, as in [`super::FromAgent::Ready`].
    pub machine: String,
    /// Which machine that is. Where it is not known, the agent counts as a machine of its own.
    #[serde(default)]
    #[schemars(with = "String")]
    pub host: HostId,
    /// The kernel's name and release.
    pub kernel: String,
    /// The CPU's model; empty if the machine does not say it.
    pub cpu_model: String,
    /// The CPUs that it may use.
    pub cpus: u32,
    /// The machine's memory, in bytes.
    pub memory: u64,
    /// How well generator and link are isolated from other work; `None` if it cannot start a lab.
    pub isolation: Option<String>,
    /// Whether it may have real-time priority.
    pub realtime: bool,
    /// Servers under test that are installed: name and version.
    pub programs: Vec<(String, String)>,
    /// Congestion controls that its kernel has.
    pub congestion: Vec<String>,
    /// Its bounds, whatever a driver asks.
    pub limits: AgentLimits,
    /// What it permits, as its `--allow` has it.
    pub allow: Vec<String>,
    /// With whom it is busy, and since when; `None` if it is free.
    pub busy: Option<String>,
    /// For how many seconds it has served.
    pub serves_s: u64,
}

impl AgentCard {
    /// What must be equal for the figures of two machines to be compared: version of h2lab, kernel, model and number
    /// of CPUs, level of isolation. One line.
    pub fn likeness(&self) -> String {
        let isolation = self.isolation.as_deref().unwrap_or("none");
        let cpu = if self.cpu_model.is_empty() { "unknown CPU" } else { &self.cpu_model };
        format!("h2lab {}, {}, {} × {cpu}, isolation {isolation}", self.version, self.kernel, self.cpus)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fleet::messages::{decode, decode_printable, encode};

    fn card() -> AgentCard {
        AgentCard {
            name: "kek-1".parse().unwrap(),
            version: "0.1.0".to_owned(),
            agent: 7,
            machine: "Linux 6.1 x86_64".to_owned(),
            host: HostId::new("x"),
            kernel: "Linux 6.1".to_owned(),
            cpu_model: "EPYC".to_owned(),
            cpus: 8,
            memory: 1 << 34,
            isolation: Some("full".to_owned()),
            realtime: true,
            programs: vec![("nginx".to_owned(), "1.26".to_owned())],
            congestion: vec!["cubic".to_owned()],
            limits: AgentLimits { time: Some(Duration::from_secs(60)), ..AgentLimits::default() },
            allow: vec!["lab".to_owned()],
            busy: None,
            serves_s: 5,
        }
    }

    #[test]
    fn a_card_reads_back_as_it_was_and_printable() {
        let line = encode(&card()).unwrap();
        assert_eq!(decode::<AgentCard>(&line).unwrap(), card());
        let strange = AgentCard { busy: Some("\u{1b}[2J".to_owned()), ..card() };
        let read: AgentCard = decode_printable(&encode(&strange).unwrap()).unwrap();
        assert_eq!(read.busy.as_deref(), Some("\\u{1b}[2J"));
        assert!(decode::<AgentCard>(&line.replace("kek-1", "kek.*")).is_err());
    }

    #[test]
    fn machines_are_alike_if_all_that_figures_depend_on_is_equal() {
        let alike = AgentCard {
            name: "kek-2".parse().unwrap(),
            memory: 1,
            host: HostId::default(),
            busy: Some("x".to_owned()),
            serves_s: 9,
            ..card()
        };
        assert_eq!(alike.likeness(), card().likeness());
        let others = [
            AgentCard { version: "0.2.0".to_owned(), ..card() },
            AgentCard { kernel: "Linux 6.2".to_owned(), ..card() },
            AgentCard { cpu_model: String::new(), ..card() },
            AgentCard { cpus: 9, ..card() },
            AgentCard { isolation: None, ..card() },
        ];
        for other in others {
            assert_ne!(other.likeness(), card().likeness());
        }
    }
}
