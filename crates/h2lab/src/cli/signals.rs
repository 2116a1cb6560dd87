//! Ctrl-C, SIGTERM and SIGHUP stop a run in an orderly way: children die, what was measured is kept.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

/// A flag that the signals set. A second one ends the program at once.
pub fn stop_flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // First: if the flag is set already, exit. Then: set it. In this order the first signal only sets the flag.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("cannot catch signals")?;
    }
    Ok(stop)
}

/// A file that would become larger than this process may write (`ulimit -f`) is an error of that write and does not end the
/// program, as SIGXFSZ would.
pub fn ignore_file_size_limit() -> Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).context("cannot catch signals").map(drop)
}
