//! `h2lab agent`: what `bulk drive` has on other machines.

use anyhow::{Context, Result};
use clap::Args;

use super::{Exit, help};
use h2lab_net::resources;
use h2lab_roles::fleet::stdio;

/// Fetch and serve for a `bulk drive`, told by standard input
///
/// `bulk drive` starts this over ssh, or in a network namespace; by hand there is no need to. It reads messages and writes them, one
/// line of JSON each, fetches to nowhere, and serves bytes of memory. It ends when its input ends, and with it all that it began:
/// nothing is written to a disk, and nothing stays behind.
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
