//! `h2lab agent`: what drivers have on other machines.

#[cfg(feature = "nats")]
mod log;
#[cfg(feature = "nats")]
mod nats;

use anyhow::{Context, Result};
use clap::Args;

use super::exit::Usage;
use super::{Exit, help};
use h2lab_net::resources;
use h2lab_roles::fleet::stdio;

/// Work for drivers on other machines
///
/// With --nats it is a service that waits at a NATS server for drivers: `bulk drive`, `load --agents` and `run --agents`.
/// It does only what --allow permits, within its own bounds, for one driver at a time, and logs to standard error what it
/// does for whom. No other agent may have its name; `h2lab agents` lists those that are there. While the server is absent,
/// it waits for it.
///
/// With --stdio it is what `bulk drive` starts over ssh, or in a network namespace; there is no need to start it by hand.
/// It reads and writes messages, one line of JSON each, discards what it fetches, and serves bytes from memory. When its
/// input ends, it stops all transfers and exits. It writes nothing to disk.
#[cfg_attr(
    not(feature = "nats"),
    doc = "",
    doc = "This h2lab was built without NATS, so that --nats is missing: `cargo build --release --features nats` makes one."
)]
#[derive(Debug, Args)]
#[command(after_long_help = help::after_with(EXAMPLES, &format!("{SIGNALS}\n\n{}", help::EXIT_CODES)))]
pub struct AgentArgs {
    /// Messages on standard input and output
    #[arg(long)]
    #[cfg_attr(feature = "nats", arg(conflicts_with_all = nats::FLAGS))]
    stdio: bool,
    #[cfg(feature = "nats")]
    #[command(flatten)]
    service: nats::ServiceArgs,
}

const EXAMPLES: &[(&str, &str)] = &[
    ("h2lab agent --stdio", "what `bulk drive --clients ssh:HOST` runs on HOST"),
    #[cfg(feature = "nats")]
    (
        "h2lab agent --nats nats://hub.example:4222 --name kek-1 --allow 'https://*.staging.example:443'",
        "loads of one domain",
    ),
    #[cfg(feature = "nats")]
    (
        "h2lab agent --nats tls://hub.example --creds kek-2.creds --name kek-2 --allow lab --max-time 10m",
        "cells of studies, behind the emulated link",
    ),
    #[cfg(feature = "nats")]
    (
        "h2lab agent --nats nats://hub.example --name lyon-1 --allow serve --allow http://10.1.0.0/16:8080 --max-rate 5000",
        "serve bytes to others, and load one network",
    ),
];

/// What signals do while it runs.
const SIGNALS: &str = "\
Signals:
  SIGTERM, SIGINT  stop: with --nats finish what is under way, for --drain-time
                   at most, and begin nothing new; a second SIGINT (Ctrl-C)
                   exits at once";

/// Works until the input ends, or a signal comes.
pub fn main(args: &AgentArgs) -> Result<Exit> {
    if args.stdio {
        resources::raise_open_files();
        stdio::work(h2lab_analysis::fleet::pair_figures).context("cannot work")?;
        return Ok(Exit::Done);
    }
    #[cfg(feature = "nats")]
    if args.service.is_given() {
        return nats::main(&args.service);
    }
    Err(Usage(USAGE.to_owned()).into())
}

/// What is missing where neither kind of agent is asked for.
#[cfg(feature = "nats")]
const USAGE: &str = "give --nats URL with --name NAME and --allow WHAT, or --stdio";
#[cfg(not(feature = "nats"))]
const USAGE: &str = "give --stdio: this h2lab was built without the feature `nats`, and has no --nats";
