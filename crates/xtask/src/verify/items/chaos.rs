//! The chaos lab: every feature of the link, the isolation levels, and what may be left behind.

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

/// A killed run leaves nothing behind and is resumed. Devices can outlive a lab only where it has no namespace that ends with it.
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
