//! `health` of a service.

use std::time::Duration;

use h2lab_base::JsonSchema;
use h2lab_base::units::duration_text;
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// How the health of instances is checked: by GET, in the protocol that they speak; any 2xx is a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Health {
    /// The path.
    pub path: String,
    /// How often.
    #[serde(default = "interval", with = "duration_text")]
    #[schemars(with = "String")]
    pub interval: Duration,
    /// How long the response may take.
    #[serde(default = "timeout", with = "duration_text")]
    #[schemars(with = "String")]
    pub timeout: Duration,
    /// After this many successes in a row it gets requests again.
    #[serde(default = "healthy")]
    pub healthy: u32,
    /// After this many failures in a row it gets none.
    #[serde(default = "unhealthy")]
    pub unhealthy: u32,
}

const fn interval() -> Duration {
    Duration::from_secs(5)
}

const fn timeout() -> Duration {
    Duration::from_secs(1)
}

const fn healthy() -> u32 {
    2
}

const fn unhealthy() -> u32 {
    3
}

impl Health {
    pub(super) fn check(&self, place: &str) -> Result<(), ConfigError> {
        let is_of_path = |byte: u8| byte > b' ' && byte < 0x7f;
        let why = if !self.path.starts_with('/') || !self.path.bytes().all(is_of_path) {
            "path must begin with / and contain no white space"
        } else if self.healthy == 0 {
            "healthy must be at least 1"
        } else if self.unhealthy == 0 {
            "unhealthy must be at least 1"
        } else {
            return Ok(());
        };
        Err(ConfigError::Value { place: place.to_owned(), why })
    }
}
