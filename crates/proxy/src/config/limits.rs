//! `[service.NAME.limits]`.

use std::time::Duration;

use h2lab_base::JsonSchema;
use h2lab_base::units::optional_duration_text;
use serde::{Deserialize, Serialize};

use super::ConfigError;
use crate::guard::breaker::Bounds;

/// How much of a service's work may be under way. Requests beyond that are answered 503 at once. A missing key is no
/// bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ServiceLimits {
    /// Requests under way.
    pub open: Option<u32>,
    /// Of these, those that wait for a connection.
    pub waiting: Option<u32>,
    /// How long one waits for a connection; otherwise as long as for a response.
    #[serde(with = "optional_duration_text")]
    #[schemars(with = "Option<String>")]
    pub wait: Option<Duration>,
    /// Connections to each instance.
    pub connections: Option<u32>,
}

impl ServiceLimits {
    /// The bounds of requests.
    pub const fn bounds(&self) -> Bounds {
        Bounds { open: self.open, waiting: self.waiting, wait: self.wait }
    }

    pub(super) fn check(&self, place: &str) -> Result<(), ConfigError> {
        // Every request waits while the first connection is made.
        let why = if self.open == Some(0) {
            "open must be at least 1; without the key there is no limit"
        } else if self.waiting == Some(0) {
            "waiting must be at least 1; without the key there is no limit"
        } else if self.connections == Some(0) {
            "connections must be at least 1; without the key there is no limit"
        } else {
            return Ok(());
        };
        Err(ConfigError::Value { place: place.to_owned(), why })
    }
}
