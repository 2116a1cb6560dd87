//! `[trace]`: trace context (W3C Trace Context).

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

/// What becomes of `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Trace {
    /// Whether this hop takes part.
    pub context: TraceContext,
}

/// Whether this hop takes part in traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TraceContext {
    /// What the client sends passes as it is.
    #[default]
    Pass,
    /// This hop is a span: it is the parent of what follows, and a request without a trace begins one. Its ids are in the access log.
    Join,
}
