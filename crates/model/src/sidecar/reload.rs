//! How often a sidecar has read its file again, and with what result.

use serde::{Deserialize, Serialize};

/// Reloads since the sidecar began. Reading the file at the start counts as success.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReloadStatus {
    /// Reloads that changed the configuration to what the file says.
    pub succeeded: u64,
    /// Reloads that changed nothing, because of an error.
    pub failed: u64,
    /// Why the last one failed, if it did.
    pub wrong: Option<String>,
    /// When the configuration in effect was read, in seconds since 1970.
    pub succeeded_unix_s: u64,
    /// A hash of the configuration in effect, as it is shown: sidecars with the same configuration have the same hash,
    /// from 0 to 2^48 - 1.
    pub config_hash: u64,
}
