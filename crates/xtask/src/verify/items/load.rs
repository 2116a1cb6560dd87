//! What `h2lab load` and `h2lab trace` promise and their tests show.

use anyhow::Result;

use crate::verify::binary::H2lab;
use crate::verify::items::suites;
use crate::verify::outcome::Outcome;

const INTEGRATION: &[&str] = &["--package", "h2lab", "--test", "integration"];

/// Loops, templates, endings, self-checks.
pub fn suite(h2lab: &H2lab) -> Result<Outcome> {
    suites::suite(h2lab, INTEGRATION, "load::")
}

/// Every frame with its time, among them those of a connection that is used up.
pub fn trace(h2lab: &H2lab) -> Result<Outcome> {
    suites::suite(h2lab, INTEGRATION, "trace::")
}
