//! `h2lab probe URL`.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use h2lab_core::probe::Budget;

use super::output::ReportArgs;
use super::safety::SafetyArgs;
use crate::cli::live::{self, LiveArgs};
use crate::cli::reach::{self, ReachArgs};
use crate::cli::values::duration;
use crate::cli::{Exit, signals, tls};
use crate::client::url::Url;
use crate::io::clock::Clock;
use crate::io::tcp::Endpoint;
use crate::probe::{Host, ProbeError, Prober, url};
use crate::run::messages::{Failure, FailureKind};

/// A server and how it is asked.
#[derive(Debug, Args)]
pub struct UrlArgs {
    /// The server (http:// or https://) and the path
    #[arg(required = true)]
    url: Option<String>,
    /// How long the server may take over anything before that counts as silence
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    timeout: Duration,
    /// How long an idle connection is watched at most
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    idle: Duration,
    /// Attack the server too, each attack up to the first sign of a bound; needs --i-own-this-host
    #[arg(long)]
    resistance: bool,
    #[command(flatten)]
    safety: SafetyArgs,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    reach: ReachArgs,
    #[command(flatten)]
    report: ReportArgs,
}

/// The host of a URL, given as `text`, once all addresses that it may be at may be asked: the first of them that answers.
pub fn host_at(
    text: &str,
    url: &Url,
    safety: &SafetyArgs,
    live: &LiveArgs,
    reach: &ReachArgs,
) -> Result<Host> {
    let endpoints = reach::endpoints(text, url, &live.resolve, reach)?;
    endpoints.iter().try_for_each(|endpoint| safety.admit(endpoint))?;
    let addresses: Vec<SocketAddr> = endpoints
        .iter()
        .filter_map(|endpoint| match endpoint {
            Endpoint::Tcp(address) => Some(*address),
            Endpoint::Unix(_) => None,
        })
        .collect();
    let endpoint = match addresses.as_slice() {
        [] => endpoints[0].clone(),
        addresses => Endpoint::Tcp(live::answering(addresses)),
    };
    Ok(Host {
        endpoint,
        server_name: url.host().to_owned(),
        authority: url.authority().to_owned(),
        path: url.path_and_query().to_owned(),
        tls: live::trust(live)?.options(),
    })
}

/// Probes a server.
pub fn main(args: &UrlArgs) -> Result<Exit> {
    args.report.validate()?;
    if args.resistance {
        args.safety.require("--resistance")?;
    }
    let text = args.url.as_deref().unwrap_or_default();
    let url = live::parse(text)?;
    let allowance = args.safety.allowance()?;
    let host = host_at(text, &url, &args.safety, &args.live, &args.reach)?;
    tls::announce_key_log()?;
    let stop = signals::stop_flag()?;
    let clock = Clock::start();
    let mut prober = Prober::new(host, Budget::new(allowance, clock.now()), clock, args.timeout, stop);
    let is_watched = std::io::stderr().is_terminal();
    let mut progress = |what: &str| {
        if is_watched {
            eprintln!("{what} …");
        }
    };
    let wishes = url::Wishes { idle: args.idle, resistance: args.resistance };
    match url::run(&mut prober, &url, wishes, &mut progress) {
        Ok(report) => args.report.tell(&report),
        Err(ProbeError::Interrupted) => Ok(Exit::Interrupted),
        Err(error) => {
            let kind = match error {
                ProbeError::Connect(_) => FailureKind::Unreachable,
                ProbeError::Tls(_) => FailureKind::Usage,
                _ => FailureKind::Environment,
            };
            Err(Failure { kind, message: format!("{text}: {error}") }.into())
        }
    }
}
