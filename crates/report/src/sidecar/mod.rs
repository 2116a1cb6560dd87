//! What a sidecar reports of itself: metrics for Prometheus, sentences for people. Its page: `html/sidecar.rs`.

mod metrics;
mod sentences;

pub use metrics::sidecar_metrics;
pub(super) use sentences::{answer, full, instance, lacks, limits, protection, reload, since, unresolved};
