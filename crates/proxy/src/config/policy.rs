//! How many connections an instance gets.

use std::fmt;
use std::str::FromStr;

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// How many HTTP/2 connections an instance gets. HTTP/1.1 needs one for each request under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(into = "String", try_from = "String")]
pub enum Policy {
    /// As many as the path needs: one where nothing is lost, more where a lost packet or the congestion window stops requests.
    #[default]
    Adaptive,
    /// This many.
    Fixed(u32),
    /// One for each request under way, as in HTTP/1.1.
    PerRequest,
}

/// The most connections of [`Policy::Fixed`].
pub(super) const MOST_CONNECTIONS: u32 = 1_024;

impl FromStr for Policy {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let wrong = || ConfigError::Policy(text.to_owned());
        match text.split_once(':') {
            None if text == "adaptive" => Ok(Self::Adaptive),
            None if text == "per-request" => Ok(Self::PerRequest),
            Some(("fixed", n)) => {
                let n = n.parse().map_err(|_| wrong())?;
                if (1..=MOST_CONNECTIONS).contains(&n) { Ok(Self::Fixed(n)) } else { Err(wrong()) }
            }
            _ => Err(wrong()),
        }
    }
}

impl TryFrom<String> for Policy {
    type Error = ConfigError;

    fn try_from(text: String) -> Result<Self, ConfigError> {
        text.parse()
    }
}

impl From<Policy> for String {
    fn from(policy: Policy) -> Self {
        policy.to_string()
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Adaptive => f.write_str("adaptive"),
            Self::Fixed(n) => write!(f, "fixed:{n}"),
            Self::PerRequest => f.write_str("per-request"),
        }
    }
}
