//! Why an agent does not do what a driver asks.

use h2lab_base::text::made_printable;

use crate::scenario::ScenarioError;

/// Why an agent refuses a task. Its texts are printable, and name the flag of the agent that has to be another one,
/// or what the driver has to ask otherwise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is not certain which server a URL stands for.
    #[error("a URL that is not requested: {why}")]
    Url {
        /// What is wrong with it.
        why: &'static str,
    },
    /// The server is not permitted.
    #[error("{server} is not permitted here; the agent's --allow has {allowed}")]
    Server {
        /// Scheme, host and port.
        server: String,
        /// What is permitted.
        allowed: String,
    },
    /// The server is permitted, but it is looked for in another place, which is not.
    #[error(
        "{server} is permitted here, but {flag} leads to {place}, which is not: omit {flag}, or start the agent with --allow \
         for both; it has {allowed}"
    )]
    Detour {
        /// The driver's flag.
        flag: &'static str,
        /// The server.
        server: String,
        /// Where it is looked for.
        place: String,
        /// What is permitted.
        allowed: String,
    },
    /// A Unix socket, which no `--allow` stands for.
    #[error("a Unix socket of an agent's machine is never permitted: omit --unix-socket")]
    UnixSocket,
    /// The protocol does not fit the scheme of the URL.
    #[error("{protocol} is not spoken to {scheme}:// servers: give a URL and a protocol that fit")]
    Protocol {
        /// The protocol.
        protocol: &'static str,
        /// The URL's scheme.
        scheme: &'static str,
    },
    /// A role that is not permitted.
    #[error("{task} is not permitted here: start the agent with --allow {word}; it has {allowed}")]
    Role {
        /// What was asked, as a noun.
        task: &'static str,
        /// What would permit it.
        word: &'static str,
        /// What is permitted.
        allowed: String,
    },
    /// A port for other services.
    #[error(
        "no agent listens on port {port}: ports below 1024 are for other services; give 0 or one from 1024 on"
    )]
    Port {
        /// The port.
        port: u16,
    },
    /// More than a bound of the agent.
    #[error(
        "{asked} would be more than this agent does ({flag} {most}): ask for less, or start the agent with another {flag}"
    )]
    Limit {
        /// The agent's flag.
        flag: &'static str,
        /// What was asked.
        asked: String,
        /// The bound.
        most: String,
    },
    /// The agent bounds its rate, and the task has none.
    #[error(
        "a task without a rate (a closed loop, a transfer) is refused by this agent (--max-rate {most}): give a rate, or start \
         the agent without --max-rate"
    )]
    NoRate {
        /// The bound.
        most: String,
    },
    /// The agent bounds the bytes of a task, and this one's are not counted while it runs.
    #[error(
        "the bytes of {task} are not counted while it runs, and this agent bounds them (--max-bytes {most}): have another agent \
         do it, or start this one without --max-bytes"
    )]
    Uncounted {
        /// What was asked, as a noun.
        task: &'static str,
        /// The bound.
        most: String,
    },
    /// A number of a transfer that no agent takes, whatever its flags are.
    #[error("{what} = {asked} is out of range: {expected}")]
    Range {
        /// What the number is of.
        what: &'static str,
        /// What was asked.
        asked: String,
        /// What is accepted.
        expected: &'static str,
    },
    /// A congestion control that cannot be one: the kernel loads a module of its name.
    #[error("`{name}` is not the name of a congestion control, such as cubic or bbr")]
    Congestion {
        /// The name, or its beginning.
        name: String,
    },
    /// The scenario is not one that a file could have.
    #[error("{why}")]
    Scenario {
        /// Why.
        why: String,
    },
}

impl From<ScenarioError> for Refusal {
    fn from(error: ScenarioError) -> Self {
        Self::Scenario { why: shown(&error.to_string()) }
    }
}

/// The beginning of a text of the driver, printable.
pub(super) fn shown(text: &str) -> String {
    let beginning: String = text.chars().take(300).collect();
    made_printable(&beginning).into_owned()
}
