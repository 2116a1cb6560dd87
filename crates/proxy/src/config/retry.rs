//! `[retry]` and `[service.NAME.retry]`.

use std::fmt;
use std::str::FromStr;

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Config, ConfigError};

/// When a request is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(into = "String", try_from = "String")]
pub enum RetryOn {
    /// No connection to an instance could be made.
    Connect,
    /// The connection ended, or the stream was reset, before any of the response.
    Reset,
    /// The response has this status, from 500 to 599.
    Status(u16),
}

impl FromStr for RetryOn {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        match text {
            "connect" => Ok(Self::Connect),
            "reset" => Ok(Self::Reset),
            _ => match text.parse() {
                Ok(status @ 500..=599) => Ok(Self::Status(status)),
                _ => Err(ConfigError::RetryOn(text.to_owned())),
            },
        }
    }
}

impl TryFrom<String> for RetryOn {
    type Error = ConfigError;

    fn try_from(text: String) -> Result<Self, ConfigError> {
        text.parse()
    }
}

impl From<RetryOn> for String {
    fn from(on: RetryOn) -> Self {
        on.to_string()
    }
}

impl fmt::Display for RetryOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect => f.write_str("connect"),
            Self::Reset => f.write_str("reset"),
            Self::Status(status) => write!(f, "{status}"),
        }
    }
}

/// Which requests are sent again. Those that were provably not processed always are, and count for nothing here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Retry {
    /// How often a request that may have been processed is sent again; only idempotent methods are (RFC 9110 §9.2.2). 0
    /// to 10.
    pub attempts: u8,
    /// Percent of the requests of the last ten seconds that may be sent again.
    pub budget: u32,
    /// This many per second may be sent again in any case.
    pub per_second: u32,
    /// When.
    pub on: Vec<RetryOn>,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: crate::retry::MOST,
            budget: 20,
            per_second: 10,
            on: vec![RetryOn::Connect, RetryOn::Reset],
        }
    }
}

impl Retry {
    pub(super) fn check(&self, place: &str) -> Result<(), ConfigError> {
        let why = if self.attempts > 10 {
            "attempts must be from 0 to 10"
        } else if self.budget > 100 {
            "budget is a percentage of the requests: from 0 to 100"
        } else {
            return Ok(());
        };
        Err(ConfigError::Value { place: place.to_owned(), why })
    }
}

impl Config {
    /// Checks what protects services and the proxy.
    pub(super) fn check_guards(&self) -> Result<(), ConfigError> {
        self.retry.check("[retry]")?;
        if let Some(memory) = &self.memory {
            memory.check(1)?;
        }
        for listen in &self.listen {
            if let Some(rate) = &listen.rate {
                rate.check(&format!("rate of the listener on {}", listen.address))?;
            }
        }
        for (name, service) in &self.service {
            let place = |table: &str| format!("[service.{name}.{table}]");
            if let Some(retry) = &service.retry {
                retry.check(&place("retry"))?;
            }
            if let Some(rate) = &service.rate {
                rate.check(&place("rate"))?;
            }
            if let Some(health) = &service.health {
                health.check(&place("health"))?;
            }
            service.limits.check(&place("limits"))?;
            service.outlier.check(&place("outlier"))?;
        }
        Ok(())
    }
}
