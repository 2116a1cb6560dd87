//! What root's commands give up that make requests themselves.

use anyhow::{Context, Result};
use h2lab_net::privileges;
use h2lab_net::privileges::CapabilitySet;

/// Gives up, for good, all rights but `more` and those to write files of others and to give them to their owner, and to set a
/// scheduling class.
///
/// Call it before the first thread and the first byte of a peer; not in a command that starts programs of the user's, which would
/// lack the rights, too.
pub fn reduce(more: CapabilitySet) -> Result<()> {
    privileges::keep(privileges::FILES | CapabilitySet::SYS_NICE | more)
        .context("cannot drop root privileges; allow h2lab capset(2) and prctl(2)")
}
