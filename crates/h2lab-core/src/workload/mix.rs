//! Several kinds of requests in one work: which of them each request is.

use serde::{Deserialize, Serialize};

/// One kind of request of a mix. What it does not say is as in the work itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct MixEntry {
    /// How often it occurs against the others: 1 or more.
    pub weight: u32,
    /// `GET`, `POST` …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Path and query.
    pub path: String,
    /// Header fields beside those of the work; a name given here replaces that of the work.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The request body instead of that of the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}
