//! `h2lab agent`: what `bulk drive` has on other machines.

use anyhow::{Context, Result};
use clap::Args;

use super::{Exit, help};
use h2lab_net::resources;
use h2lab_roles::fleet::stdio;

/// Fetch and serve for `bulk drive`, controlled over standard input
///
/// `bulk drive` starts this command over ssh, or in a network namespace; there is no need to start it by hand. It reads
/// and writes messages, one line of JSON each, discards what it fetches, and serves bytes from memory. When its input ends, it
/// stops all transfers and exits. It writes nothing to disk.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab agent --stdio", "what `bulk drive --clients ssh:HOST` runs on HOST"),
    ],
))]
pub struct AgentArgs {
    /// Messages on standard input and output
    #[arg(long, required = true)]
    stdio: bool,
}

/// Works until the input ends.
pub fn main(args: &AgentArgs) -> Result<Exit> {
    debug_assert!(args.stdio, "clap requires it: there is no other agent transport yet");
    resources::raise_open_files();
    stdio::work(h2lab_analysis::fleet::pair_figures).context("cannot work")?;
    Ok(Exit::Done)
}
