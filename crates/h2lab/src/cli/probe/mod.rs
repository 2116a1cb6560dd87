//! `h2lab probe`: checks of a server, a proxy or a client, each with its evidence and its fix.

mod client;
mod host;
mod output;
mod safety;
mod smuggling;
mod url;

use anyhow::Result;
use clap::{Args, Subcommand};

use super::{Exit, help};

/// Check a server's protocols, its limits, and whether it is ready for h2c
///
/// Checks a server before clients speak HTTP/2 to it. Each result has its evidence (frames or bytes), its severity, and
/// the fix for each product. `h2lab explain ID` has a page on every check.
///
/// Sends requests only to the host on the command line: at most 100 and 1 MiB in total, and only if it is on this machine or in
/// a network namespace without external connectivity. More needs --i-own-this-host, for hosts that are yours or whose owner has
/// agreed (docs/probe.md).
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_long_help = help::after(
    &[
        ("h2lab probe http://127.0.0.1:8080/", "which protocols does it speak, what are its limits?"),
        ("h2lab probe http://127.0.0.1:8080/ --i-own-this-host", "limits above 100 requests too"),
        ("h2lab probe https://service.example/ --i-own-this-host --json", "for scripts"),
        ("h2lab probe http://127.0.0.1:8080/ --fail-on medium --junit", "for CI: exit 1 if a check fails"),
    ],
))]
pub struct ProbeArgs {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    url: url::UrlArgs,
}

/// Probes of something other than a URL.
#[derive(Debug, Subcommand)]
enum What {
    Client(Box<client::ProbeClientArgs>),
    Smuggling(Box<smuggling::SmugglingArgs>),
}

/// Probes.
pub fn main(args: &ProbeArgs) -> Result<Exit> {
    match &args.what {
        Some(What::Client(args)) => client::main(args),
        Some(What::Smuggling(args)) => smuggling::main(args),
        None => url::main(&args.url),
    }
}
