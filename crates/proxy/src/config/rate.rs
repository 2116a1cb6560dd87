//! `rate` of a listener or a service.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConfigError;
use crate::guard::rate::{Limit, RateLimiter};

/// Whose requests are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RateKey {
    /// All.
    #[default]
    All,
    /// Those of each client address.
    Client,
}

/// How many requests are taken; others are answered 429.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rate {
    /// Per second, in the long run.
    pub per_second: u32,
    /// At once after a pause; as many as in a second, if it is missing.
    #[serde(default)]
    pub burst: Option<u32>,
    /// Whose requests are counted together.
    #[serde(default)]
    pub key: RateKey,
}

impl Rate {
    /// Full buckets.
    pub fn limiter(&self) -> RateLimiter {
        let limit = Limit::new(self.per_second, self.burst.unwrap_or(self.per_second));
        RateLimiter::new(limit, self.key == RateKey::Client)
    }

    pub(super) fn check(&self, place: &str) -> Result<(), ConfigError> {
        if self.per_second > 0 && self.burst != Some(0) {
            return Ok(());
        }
        Err(ConfigError::Value { place: place.to_owned(), why: "per-second and burst must be at least 1" })
    }
}
