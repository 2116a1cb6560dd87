//! Where our server listens and how it behaves there: the flags that `origin` and `bulk serve` have in common, and their checks.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use h2lab_model::workload::EngineSettings;

use super::engine::EngineArgs;
use super::exit::{MissingRequirement, Usage};
use super::tls::{self, IdentityArgs};
use super::values::{duration, size};
use h2lab_roles::origin::OriginConfig;

/// Sockets, TLS identity, engine, and the end.
#[derive(Debug, Args)]
pub struct ListenArgs {
    /// Listen in clear: h1, and h2c by prior knowledge; port 0 picks a free one
    #[arg(long, value_name = "ADDR")]
    listen: Vec<SocketAddr>,
    /// Listen with TLS: h1s and h2 by ALPN; without --cert, a self-signed certificate is created
    #[arg(long, value_name = "ADDR")]
    tls_listen: Vec<SocketAddr>,
    /// Serve HTTP/3 too, over UDP on the ports of --tls-listen, announced to TLS clients with Alt-Svc
    #[arg(long, requires = "tls_listen")]
    pub h3: bool,
    #[command(flatten)]
    identity: IdentityArgs,
    /// Time for open requests to finish after SIGTERM or Ctrl-C; a second Ctrl-C exits at once
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    drain_timeout: Duration,
    /// Memory for all connections together; above it, requests get 503 and new connections are closed [default: a quarter
    /// of the machine's, or of the control group's]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_memory: Option<u64>,
    /// Write what was counted so far to standard output, ten times a second while requests come, for the lab
    #[arg(long, hide = true)]
    counts: bool,
    #[command(flatten)]
    engine: EngineArgs,
}

/// Prints a line for each socket that listens. If that fails, `stop` is set: a server that nobody can find is of no
/// use.
pub fn announce(sockets: &[impl Display], stop: &AtomicBool) -> io::Result<()> {
    crate::stderr::flush(); // earlier messages come before these lines
    let mut out = io::stdout().lock();
    let announced =
        sockets.iter().try_for_each(|socket| writeln!(out, "listening {socket}")).and_then(|()| out.flush());
    stop.fetch_or(announced.is_err(), Ordering::Relaxed);
    announced
}

/// The error of a server that has ended because it could not [`announce`] its sockets.
pub fn unannounced(error: &io::Error) -> MissingRequirement {
    MissingRequirement(format!(
        "standard output cannot be written, and nobody knows where it listens: {error}"
    ))
}

impl ListenArgs {
    /// The configuration of a server that listens there. `for_tls` are further flags that have an effect only with TLS,
    /// and whether they are given.
    pub fn config(&self, for_tls: &[(bool, &str)]) -> Result<OriginConfig> {
        if self.listen.is_empty() && self.tls_listen.is_empty() {
            let words = "give --listen ADDR, --tls-listen ADDR or both (such as 127.0.0.1:8080)";
            return Err(Usage(words.to_owned()).into());
        }
        let identity = (self.identity.is_given(), "--cert");
        if self.tls_listen.is_empty()
            && let Some((_, flag)) = std::iter::once(&identity).chain(for_tls).find(|(given, _)| *given)
        {
            return Err(Usage(format!("{flag} is for TLS: give --tls-listen ADDR")).into());
        }
        let mut config = OriginConfig::new(self.listen.clone(), self.tls_listen.clone());
        config.drain_timeout = self.drain_timeout;
        config.memory = self.max_memory.unwrap_or(config.memory);
        config.tls.identity = self.identity.read()?;
        // A line that nobody reads is lost.
        config.on_counts = self.counts.then_some(|line| drop(writeln!(io::stdout(), "{line}")));
        tls::announce_key_log()?;
        Ok(config)
    }

    /// Overrides `config` with the engine's flags, after the defaults of a role were set.
    pub fn tune(&self, config: &mut OriginConfig) -> EngineSettings {
        let mut settings = EngineSettings::default();
        self.engine.apply(&mut settings);
        settings.apply(&mut config.engine);
        config.window_budget = settings.window_budget.unwrap_or(config.window_budget);
        settings
    }
}
