//! `[admin]`: where the sidecar reports its status.

use std::net::SocketAddr;
use std::time::Duration;

use h2lab_base::JsonSchema;
use h2lab_base::units::duration_text;
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// The longest window: what happens in it is kept in memory.
const LONGEST_WINDOW: Duration = Duration::from_secs(300);

/// The admin listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Admin {
    /// Address and port; port 0 takes a free one. Without it there is no such listener.
    pub address: Option<SocketAddr>,
    /// Whether the address may be one that others reach: there is no authentication.
    pub public: bool,
    /// How long requests and frames are kept for `h2lab diagnose --sidecar`; `0s` keeps none.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub window: Duration,
}

impl Default for Admin {
    fn default() -> Self {
        Self { address: None, public: false, window: Duration::from_secs(30) }
    }
}

impl Admin {
    /// Checks what the types do not say.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if let Some(address) = self.address
            && !address.ip().to_canonical().is_loopback()
            && !self.public
        {
            return Err(ConfigError::AdminIsPublic(address));
        }
        if self.window > LONGEST_WINDOW {
            return Err(ConfigError::AdminWindow(self.window));
        }
        Ok(())
    }
}
