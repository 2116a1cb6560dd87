//! The chaos lab: the link in full, what it stands on, and what outlives it.

use anyhow::Result;

use super::suites::suite;
use super::{causes, engines};
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;

/// What the link carries.
pub fn throughput(_: &H2lab) -> Result<ItemOutcome> {
    engines::xtask(&["bench", "link"])
}

/// The isolation levels below root, each with the binary as its users run it.
pub fn ladder(h2lab: &H2lab) -> Result<ItemOutcome> {
    suite(h2lab, &["--package", "h2lab", "--test", "integration"], "privileges::")
}

/// What is killed, leaves nothing and is gone on with. Devices can outlive a lab only where it has no namespace to take them
/// along.
pub fn killed(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = suite(h2lab, &["--package", "h2lab", "--test", "integration"], "leftovers::")?;
    outcome.add(suite(h2lab, &["--package", "h2lab", "--test", "integration"], "resume::")?);
    outcome.add(causes::topology("killing_", &[])?);
    Ok(outcome)
}

/// `h2lab link` for programs of others.
pub fn programs(h2lab: &H2lab) -> Result<ItemOutcome> {
    suite(h2lab, &["--package", "h2lab", "--test", "integration"], "link::")
}
