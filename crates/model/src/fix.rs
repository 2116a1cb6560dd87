//! A suggested change, in a product's own terms.

use serde::{Deserialize, Serialize};

/// A change that should help.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Fix {
    /// The product that it is for: `nginx`, `client`, `kernel` …
    pub product: String,
    /// The setting, as it is written in that product's configuration.
    pub setting: String,
    /// What it does and what it costs.
    pub why: String,
}
