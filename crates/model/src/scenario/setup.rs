//! How the configuration of a server that we start differs from our own: a file of the user's, changed settings.

use serde::{Deserialize, Serialize};

use crate::settings::Knob;

/// A setting of the server that replaces what its configuration says; nothing else of it is changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What it controls; the table of settings says how the server's product writes it.
    pub knob: Knob,
    /// To at least this: bytes, a count or milliseconds. `None` where there is nothing to count.
    pub value: Option<u64>,
}

/// How a server that we start is configured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSetup {
    /// The path of the user's configuration, as it was given; `None`: ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// What is changed in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
}

impl ServerSetup {
    /// Whether the server is as we configure it.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
