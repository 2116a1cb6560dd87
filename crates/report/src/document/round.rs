//! How many digits a figure of a document has.

use std::time::Duration;

use h2lab_base::units::nanos;

/// Microseconds, to a tenth.
pub(super) fn micros(duration: Duration) -> f64 {
    (nanos(duration) as f64 / 100.0).round() / 10.0
}

/// Three decimals: more would be noise in a document.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
