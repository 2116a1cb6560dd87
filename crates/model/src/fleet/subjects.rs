//! The subjects of NATS by which drivers and agents reach each other, and the names of parts in the object store.
//!
//! Permissions of NATS are given by subject, so that the name of an agent and the number of a session have a place of
//! their own in each. Subjects of streams are in the crate that makes the streams.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use h2lab_base::text::made_printable;
use h2lab_base::units::ParseQuantityError;

/// Drivers ask here which agents there are; each answers on a session's subject.
pub const WHO: &str = "h2lab.who";

/// The longest name of an agent, in characters.
const LONGEST_NAME: usize = 64;

/// The name of an agent: 1 to 64 letters, digits, `-` and `_` of ASCII, so that it is one token of a subject and of a
/// file's name. It does not begin with `-`, as flags do: drivers name agents in `--agents` and `--clients`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AgentName(String);

impl AgentName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AgentName {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        if is_plain && !text.starts_with('-') && (1..=LONGEST_NAME).contains(&text.len()) {
            return Ok(Self(text.to_owned()));
        }
        Err(refused(
            text,
            "the name of an agent (1 to 64 of a-z, A-Z, 0-9, - and _, no - at the beginning, such as kek-1)",
        ))
    }
}

impl TryFrom<String> for AgentName {
    type Error = ParseQuantityError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<AgentName> for String {
    fn from(name: AgentName) -> Self {
        name.0
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The number of a session or of a run: 128 random bits, written as 32 hexadecimal digits in lower case, so
/// that it cannot be guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RandomId(u128);

impl RandomId {
    /// The number of these random bits.
    pub const fn new(random: u128) -> Self {
        Self(random)
    }
}

impl FromStr for RandomId {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let number = (text.len() == 32 && text.bytes().all(is_digit)).then(|| u128::from_str_radix(text, 16));
        match number {
            Some(Ok(number)) => Ok(Self(number)),
            _ => Err(refused(text, "the number of a session or a run (32 digits of 0-9 and a-f)")),
        }
    }
}

impl TryFrom<String> for RandomId {
    type Error = ParseQuantityError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<RandomId> for String {
    fn from(id: RandomId) -> Self {
        id.to_string()
    }
}

impl fmt::Display for RandomId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The error names the beginning of a text, which may come from another machine.
fn refused(text: &str, expected: &'static str) -> ParseQuantityError {
    let beginning: String = text.chars().take(100).collect();
    ParseQuantityError::new(&made_printable(&beginning), expected)
}

/// Where the driver of a session publishes packets for an agent.
pub fn to_agent(agent: &AgentName, session: RandomId) -> String {
    format!("h2lab.agent.{agent}.to.{session}")
}

/// Where an agent publishes packets for the driver of a session.
pub fn from_agent(agent: &AgentName, session: RandomId) -> String {
    format!("h2lab.agent.{agent}.from.{session}")
}

/// What an agent subscribes to: packets of all sessions for it.
pub fn to_agent_of_all_sessions(agent: &AgentName) -> String {
    format!("h2lab.agent.{agent}.to.*")
}

/// What a driver subscribes to: packets of all agents in its session.
pub fn from_all_agents(session: RandomId) -> String {
    format!("h2lab.agent.*.from.{session}")
}

/// The agent and the session of a subject made by [`to_agent`] or [`from_agent`]; `None` for another one.
pub fn of_session(subject: &str) -> Option<(AgentName, RandomId)> {
    let mut tokens = subject.strip_prefix("h2lab.agent.")?.split('.');
    let agent = tokens.next()?.parse().ok()?;
    tokens.next().filter(|direction| ["to", "from"].contains(direction))?;
    let session = tokens.next()?.parse().ok()?;
    tokens.next().is_none().then_some((agent, session))
}

/// The name of the part that an agent made of a unit. Each `measurement` has a number of its own: one of a unit that the agent gets
/// a second time must not replace the first, of which the driver may know already.
pub fn unit_part(run: RandomId, unit: u32, measurement: RandomId, agent: &AgentName) -> String {
    format!("{run}.{unit}.{measurement}.{agent}")
}

/// The name of the part that an agent made of its share of a load.
pub fn share_part(session: RandomId, agent: &AgentName) -> String {
    format!("{session}.{agent}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent() -> AgentName {
        "kek-1".parse().unwrap()
    }

    #[test]
    fn a_name_is_one_token_of_a_subject() {
        for name in ["a", "kek-1", "a-", "_a", "Rack_7", &"x".repeat(64)] {
            assert_eq!(name.parse::<AgentName>().unwrap().as_str(), name);
        }
        let long = "x".repeat(65);
        for name in ["", "-", "-a", "a.b", "*", ">", "a b", "ü", "a/b", "\u{1b}[2J", "a\n", &long] {
            let error = name.parse::<AgentName>().unwrap_err().to_string();
            assert!(error.contains("the name of an agent") && !error.contains('\u{1b}'), "{error}");
            assert!(serde_json::from_value::<AgentName>(name.into()).is_err(), "{name}");
        }
        assert_eq!(serde_json::to_string(&agent()).unwrap(), r#""kek-1""#);
        let huge = "é".repeat(1 << 20).parse::<AgentName>().unwrap_err().to_string();
        assert!(huge.len() < 500, "{}", huge.len());
    }

    #[test]
    fn a_number_has_32_digits_and_reads_back() {
        for number in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
            let id = RandomId::new(number);
            assert_eq!(id.to_string().len(), 32);
            assert_eq!(id.to_string().parse(), Ok(id));
            assert_eq!(serde_json::from_str::<RandomId>(&serde_json::to_string(&id).unwrap()).unwrap(), id);
        }
        let (short, long) = ("0".repeat(31), "0".repeat(33));
        for text in [&short, &long, &"A".repeat(32), &"g".repeat(32), &format!("+{short}")] {
            assert!(text.parse::<RandomId>().is_err(), "{text}");
        }
    }

    #[test]
    fn subjects_of_a_session_name_the_agent_the_direction_and_the_session() {
        let session = RandomId::new(255);
        let number = "000000000000000000000000000000ff";
        assert_eq!(to_agent(&agent(), session), format!("h2lab.agent.kek-1.to.{number}"));
        assert_eq!(from_agent(&agent(), session), format!("h2lab.agent.kek-1.from.{number}"));
        assert_eq!(to_agent_of_all_sessions(&agent()), "h2lab.agent.kek-1.to.*");
        assert_eq!(from_all_agents(session), format!("h2lab.agent.*.from.{number}"));
        let part = |measurement| unit_part(session, 7, RandomId::new(measurement), &agent());
        assert_eq!(part(255), format!("{number}.7.{number}.kek-1"));
        assert_ne!(part(254), part(255), "each measurement has a name of its own");
        assert_eq!(share_part(session, &agent()), format!("{number}.kek-1"));
        for subject in [to_agent(&agent(), session), from_agent(&agent(), session)] {
            assert_eq!(of_session(&subject), Some((agent(), session)));
            assert_eq!(of_session(&format!("{subject}.x")), None);
            assert_eq!(of_session(&subject[1..]), None);
        }
        let strange =
            [WHO, "", "h2lab.agent.", "h2lab.agent.kek-1.to", "h2lab.agent.kek-1.via.x", "h2lab.agent..to.x"];
        assert_eq!(strange.map(of_session), [const { None }; 6]);
        assert_eq!(of_session(&format!("h2lab.agent.kek-1.via.{number}")), None);
    }
}
