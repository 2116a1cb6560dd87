//! The machine of a repetition that an agent made.

use serde::{Deserialize, Deserializer, Serialize};

/// Which machine an agent runs on: the boot ID of its kernel, `/proc/sys/kernel/random/boot_id` (random(4)). All
/// containers of a machine have the same one; after a restart the machine has another one. Empty if it is not known. An
/// agent reports it; it is printable by construction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
#[serde(transparent)]
pub struct HostId(String);

impl HostId {
    /// The longest one, in bytes; a boot ID has 36.
    const LONGEST: usize = 64;

    /// What `text` says, without white space around it. Not known if that is longer than 64 bytes, or has anything but
    /// letters, digits and hyphens of ASCII: cut short, it could be that of another machine.
    pub fn new(text: &str) -> Self {
        let text = text.trim();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let is_one = text.len() <= Self::LONGEST && text.chars().all(is_plain);
        Self(if is_one { text.to_owned() } else { String::new() })
    }

    /// It as text; empty if it is not known.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether both are known and of one machine.
    pub fn is_same(&self, other: &Self) -> bool {
        !self.0.is_empty() && self == other
    }
}

impl<'de> Deserialize<'de> for HostId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::new(&String::deserialize(deserializer)?))
    }
}

/// Who made a repetition, and on which machine. Repetitions that this machine made itself have none: their run says what it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MeasuredOn {
    /// The agent's name.
    pub agent: String,
    /// Kernel and machine, as the agent reports it.
    pub machine: String,
    /// What must be equal of two machines before their figures may be compared:
    /// [`AgentCard::likeness`](crate::fleet::AgentCard::likeness).
    pub likeness: String,
    /// Which machine that is. Where it is not known, each agent counts as a machine of its own.
    #[serde(default)]
    pub host: HostId,
}

impl MeasuredOn {
    /// One agent is on one machine, whatever it says: a machine that was restarted has another identity.
    fn is_same_machine(&self, other: &Self) -> bool {
        self.agent == other.agent || self.host.is_same(&other.host)
    }

    /// These by their machines, in the order in which they come first: of each machine its agents, each once.
    pub fn by_machine<'a>(all: impl IntoIterator<Item = &'a Self>) -> Vec<Vec<&'a Self>> {
        let mut machines: Vec<Vec<&'a Self>> = Vec::new();
        for one in all {
            match machines.iter_mut().find(|of| of.iter().any(|known| known.is_same_machine(one))) {
                Some(of) if of.iter().any(|known| known.agent == one.agent) => {}
                Some(of) => of.push(one),
                None => machines.push(vec![one]),
            }
        }
        machines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: &str = "0b6f3c5e-93a4-4a43-9c0e-1f0f4f2d9a11";

    fn on(agent: &str, host: &str) -> MeasuredOn {
        let [agent, machine, likeness] = [agent, "Linux", "alike"].map(str::to_owned);
        MeasuredOn { agent, machine, likeness, host: HostId::new(host) }
    }

    #[test]
    fn an_identity_is_short_and_plain_or_not_known() {
        assert_eq!(HostId::new(&format!("{BOOT}\n")).as_str(), BOOT);
        let longest = "a".repeat(HostId::LONGEST);
        assert_eq!(HostId::new(&longest).as_str(), longest);
        for none in ["", "\n", "a\u{1b}[2J", "a b", "ä", &format!("{longest}a")] {
            assert_eq!(HostId::new(none), HostId::default(), "{none}");
        }
        let read: HostId = serde_json::from_str(&format!("\"{longest}a\"")).unwrap();
        assert_eq!(read, HostId::default(), "what an agent says is bounded as it is read");
    }

    #[test]
    fn agents_of_one_machine_are_together_if_it_is_known() {
        let names = |all: &[MeasuredOn]| -> Vec<String> {
            let name = |on: &&MeasuredOn| on.agent.clone();
            let joined = |of: Vec<&MeasuredOn>| of.iter().map(name).collect::<Vec<_>>().join(" ");
            MeasuredOn::by_machine(all).into_iter().map(joined).collect()
        };
        assert_eq!(names(&[on("a", "x"), on("b", "y"), on("c", "x")]), ["a c", "b"]);
        assert_eq!(names(&[on("a", "x"), on("b", "y")]), ["a", "b"]);
        assert_eq!(names(&[on("a", ""), on("b", ""), on("a", "")]), ["a", "b"], "of neither it is known");
        assert_eq!(names(&[on("a", "x"), on("a", "y")]), ["a"], "it was restarted");
    }

    #[test]
    fn what_an_older_version_has_stored_is_of_an_unknown_machine() {
        let stored = r#"{"agent":"a","machine":"Linux","likeness":"alike"}"#;
        assert_eq!(serde_json::from_str::<MeasuredOn>(stored).unwrap(), on("a", ""));
        let known = on("a", BOOT);
        let text = serde_json::to_string(&known).unwrap();
        assert_eq!(serde_json::from_str::<MeasuredOn>(&text).unwrap(), known);
    }
}
