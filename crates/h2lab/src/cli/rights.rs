//! What commands that make requests themselves give up when they run as root.

use anyhow::{Context, Result};
use h2lab_net::privileges;
use h2lab_net::privileges::CapabilitySet;

/// Permanently drops all capabilities except `more`, those to write files of other users and to give them to their
/// owner, and the one to set a scheduling class.
///
/// Call it before the first thread and the first byte from a peer; not in a command that starts programs of the user's,
/// which would lack the capabilities, too.
pub fn reduce(more: CapabilitySet) -> Result<()> {
    privileges::keep(privileges::FILES | CapabilitySet::SYS_NICE | more)
        .context("cannot drop root privileges; allow h2lab capset(2) and prctl(2)")
}
