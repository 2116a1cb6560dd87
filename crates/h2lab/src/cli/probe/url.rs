//! `h2lab probe URL`.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use h2lab_model::probe::Budget;

use super::super::values::whole;
use super::host::{HostArgs, kind_of};
use super::output::ProbeReportArgs;
use crate::cli::client::ClientArgs;
use crate::cli::flags::{FlagRefusal, Flags};
use crate::cli::progress::ProgressLine;
use crate::cli::reach;
use crate::cli::values::duration;
use crate::cli::{Exit, rights, signals, tls};
use crate::run::messages::{Failure, FailureKind};
use h2lab_net::clock::Clock;
use h2lab_net::privileges;
use h2lab_net::tcp::Endpoint;
use h2lab_roles::client::url::Url;
use h2lab_roles::probe::{Host, ProbeError, Prober, url};

/// A server and how to make requests to it.
#[derive(Debug, Args)]
pub struct UrlArgs {
    /// The server (http:// or https://) and the path
    #[arg(required = true, value_parser = reach::url_text())]
    url: Option<String>,
    /// Check what these other ports of the host speak too
    #[arg(long = "port", value_name = "PORT,…", value_delimiter = ',', value_parser = whole::<u16>(1..))]
    ports: Vec<u16>,
    /// Timeout: time without a response from the server
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    timeout: Duration,
    /// Maximum time to watch an idle connection
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    idle: Duration,
    /// Attack the server too, each attack until it shows a limit; needs --i-own-this-host
    #[arg(long)]
    resistance: bool,
    /// The server's process on this machine: report and judge how much memory attacks add to it and its children
    #[arg(long, value_name = "PID", requires = "resistance", value_parser = whole::<u32>(1..))]
    pid: Option<u32>,
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    client: Flags<ClientArgs, ChecksSettings>,
    #[command(flatten)]
    report: ProbeReportArgs,
}

/// Each check has a method, a body and settings of its own.
#[derive(Debug, Clone, Default)]
struct ChecksSettings;

impl FlagRefusal for ChecksSettings {
    fn why(id: &str) -> Option<&'static str> {
        match id {
            "protocols"
            | "http1"
            | "http2"
            | "http2_prior_knowledge"
            | "h2c"
            | "http3"
            | "headers"
            | "user"
            | "oauth2_bearer"
            | "cookie"
            | "secrets" => None,
            "h2c_mode" => Some("is not for probes, which start h2c in both ways; use it with `h2lab trace`"),
            "method" | "data" | "data_raw" | "body_bytes" | "shape" | "template" => {
                Some("is not for probes: each check has its own method and body; use it with `h2lab trace`")
            }
            _ => Some("is not for probes: checks use their own settings; use it with `h2lab trace`"),
        }
    }
}

impl UrlArgs {
    /// The host, with what the flags say of requests to it.
    fn host(&self, text: &str, url: &Url) -> Result<Host> {
        let (mut fields, _) = self.client.checked()?;
        let protocols = self.client.protocol.either_scheme();
        if !protocols.is_empty() && !protocols.iter().any(|protocol| protocol.is_tls() == url.is_tls()) {
            return Err(self.client.protocol.misfit().into());
        }
        self.host.reach.check(&self.client.protocol)?;
        let mut host = self.host.at(text, url)?;
        if let Some(place) = fields.iter().position(|(name, _)| name == "host") {
            host.authority = fields.remove(place).1;
        }
        Ok(Host { fields, protocols, hidden: self.client.request.hidden()?, ..host })
    }
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
    let host = args.host(text, &url)?;
    if let (Endpoint::Unix(path), [_, ..]) = (&host.endpoint, args.ports.as_slice()) {
        let message = format!("--port: {} is a Unix socket, which has no ports; omit --port", path.display());
        return Err(Failure { kind: FailureKind::Usage, message }.into());
    }
    rights::reduce(privileges::NONE)?;
    tls::announce_key_log()?;
    let stop = signals::stop_flag()?;
    let clock = Clock::start();
    let mut prober = Prober::new(host, Budget::new(allowance, clock.now()), clock, args.timeout, stop);
    let line = ProgressLine::new(false);
    let mut progress = |what: &str| line.show(&format!("{what} …"));
    let options = url::CheckOptions {
        ports: args.ports.clone(),
        idle: args.idle,
        resistance: args.resistance,
        pid: args.pid,
    };
    let ended = url::run(&mut prober, &url, &options, &mut progress);
    drop(line);
    match ended {
        Ok(report) => {
            let exit = args.report.notify(&report)?;
            if prober.check_stop().is_err() {
                return Ok(Exit::Interrupted);
            }
            if exit == Exit::Done && !report.speaks_any() {
                let message = format!("{text} speaks none of the requested protocols");
                return Err(Failure { kind: FailureKind::Unreachable, message }.into());
            }
            Ok(exit)
        }
        Err(ProbeError::Interrupted) => Ok(Exit::Interrupted),
        Err(error) => Err(Failure { kind: kind_of(&error), message: format!("{text}: {error}") }.into()),
    }
}
