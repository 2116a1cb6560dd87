//! `h2lab probe URL`.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use h2lab_model::probe::Budget;

use super::host::HostArgs;
use super::output::ReportArgs;
use crate::cli::reach;
use crate::cli::values::duration;
use crate::cli::{Exit, signals, tls};
use crate::run::messages::{Failure, FailureKind};
use h2lab_net::clock::Clock;
use h2lab_net::tcp::Endpoint;
use h2lab_roles::probe::{ProbeError, Prober, url};

/// A server and how it is asked.
#[derive(Debug, Args)]
pub struct UrlArgs {
    /// The server (http:// or https://) and the path
    #[arg(required = true)]
    url: Option<String>,
    /// Other ports of the host that are asked, too, what they speak
    #[arg(long = "port", value_name = "PORT,…", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..))]
    ports: Vec<u16>,
    /// How long the server may take over anything before that counts as silence
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    timeout: Duration,
    /// How long an idle connection is watched at most
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    idle: Duration,
    /// Attack the server too, each attack up to the first sign of a bound; needs --i-own-this-host
    #[arg(long)]
    resistance: bool,
    /// The server's process on this machine: what attacks add to its memory and that of its children is told and judged
    #[arg(long, value_name = "PID", requires = "resistance", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    report: ReportArgs,
}

/// Probes a server.
pub fn main(args: &UrlArgs) -> Result<Exit> {
    args.report.validate()?;
    if args.resistance {
        args.host.safety.require("--resistance")?;
    }
    let text = args.url.as_deref().unwrap_or_default();
    let url = reach::url(text)?;
    let allowance = args.host.safety.allowance()?;
    let host = args.host.at(text, &url)?;
    if let (Endpoint::Unix(path), [_, ..]) = (&host.endpoint, args.ports.as_slice()) {
        let message =
            format!("--port: {} is a Unix socket, which has no ports; leave it out", path.display());
        return Err(Failure { kind: FailureKind::Usage, message }.into());
    }
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
    let wishes = url::Wishes {
        ports: args.ports.clone(),
        idle: args.idle,
        resistance: args.resistance,
        pid: args.pid,
    };
    match url::run(&mut prober, &url, &wishes, &mut progress) {
        Ok(report) => {
            let exit = args.report.notify(&report)?;
            Ok(if prober.check_stop().is_err() { Exit::Interrupted } else { exit })
        }
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
