//! `[timeouts]`.

use std::time::Duration;

use h2lab_base::units::duration_text;
use serde::{Deserialize, Serialize};

/// How long a sidecar waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Timeouts {
    /// For a connection to an instance, with TLS.
    #[serde(with = "duration_text")]
    pub connect: Duration,
    /// For the head of the response, from the moment at which the request was complete.
    #[serde(with = "duration_text")]
    pub response: Duration,
    /// For requests under way when it is stopped.
    #[serde(with = "duration_text")]
    pub drain: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let secs = Duration::from_secs;
        Self { connect: secs(5), response: secs(60), drain: secs(10) }
    }
}
