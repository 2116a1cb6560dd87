//! A few requests to a live server, in the protocol that it speaks: the flags that `trace` and `timeline` have in common.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use h2lab_model::scenario::Scenario;
use h2lab_model::workload::{Phases, Protocol};

use super::axes::{H2cModeArg, WorkArgs};
use super::exit::Usage;
use super::live::{self, LiveArgs};
use super::values::duration;
use crate::run::messages::{Failure, FailureKind};
use h2lab_net::tls::TlsError;
use h2lab_roles::client::ConnectError;
use h2lab_roles::client::url::Url;
use h2lab_roles::load::{LoadError, LoadSpec};

/// What is asked.
#[derive(Debug, Clone, Args)]
pub struct AskArgs {
    /// Protocol: h1, h1s, h2, h2c or h3 [default: HTTP/2, or else HTTP/1.1]
    #[arg(long = "proto", value_name = "PROTOCOL")]
    pub protocol: Option<Protocol>,
    /// How h2c begins: HTTP/2 at once, or HTTP/1.1 with `Upgrade: h2c`
    #[arg(long, value_name = "MODE")]
    h2c_mode: Option<H2cModeArg>,
    /// Request method
    #[arg(short = 'X', long = "request", value_name = "METHOD")]
    method: Option<String>,
    /// A further header field, `Name: value`; repeatable
    #[arg(short = 'H', long = "header", value_name = "LINE")]
    headers: Vec<String>,
    /// Request body: text, or @FILE
    #[arg(short = 'd', long = "data", value_name = "DATA")]
    data: Option<String>,
    /// A request unanswered for this long is cancelled, and a server silent for this long given up
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub timeout: Duration,
}

/// Longer than anybody watches: the requests end the work, not the clock.
const NO_END: Duration = Duration::from_secs(365 * 24 * 3_600);

impl AskArgs {
    /// A GET in this protocol, with no more than a client has to say.
    pub const fn plain(protocol: Protocol, timeout: Duration) -> Self {
        Self {
            protocol: Some(protocol),
            h2c_mode: None,
            method: None,
            headers: Vec::new(),
            data: None,
            timeout,
        }
    }

    /// Refuses a protocol that the URL's scheme does not allow.
    pub fn check(&self, url: &Url) -> Result<(), Usage> {
        match self.protocol {
            Some(protocol) if protocol.is_tls() != url.is_tls() => Err(Usage(format!(
                "--proto {protocol} does not fit {url}: https:// takes h1s, h2 and h3, http:// takes h1 and h2c"
            ))),
            _ => Ok(()),
        }
    }

    /// What is tried first.
    pub const fn first_choice(&self, url: &Url) -> Protocol {
        match self.protocol {
            Some(protocol) => protocol,
            None if url.is_tls() => Protocol::H2,
            None => Protocol::H2c,
        }
    }

    /// What is tried next when `error` came of the first choice, if anything is.
    pub fn second_choice(&self, url: &Url, error: &LoadError) -> Option<Protocol> {
        let LoadError::Unreachable { why, .. } = error else { return None };
        let next = if url.is_tls() { Protocol::H1s } else { Protocol::H1 };
        (self.protocol.is_none() && speaks_something_else(why)).then_some(next)
    }

    /// The requests, but for their protocol and number.
    pub fn spec(&self, text: &str, url: &Url, live: &LiveArgs) -> Result<LoadSpec<'static>> {
        let mut scenario: Scenario = live::gentle();
        let work = WorkArgs {
            h2c_mode: self.h2c_mode,
            method: self.method.clone(),
            headers: self.headers.clone(),
            data: self.data.clone(),
            timeout: Some(self.timeout),
            ..WorkArgs::default()
        };
        work.apply(&mut scenario)?;
        super::flags::check(&scenario)?;
        let mut spec = live::one_cell(text, url, live, &scenario)?;
        spec.tap = false; // who watches reads for itself
        spec.cell.work.phases =
            Phases { warmup: Duration::ZERO, measure: NO_END, drain: Duration::from_secs(1) };
        Ok(spec)
    }
}

/// Whether a server that ends the first connection like this may speak HTTP/1.1.
const fn speaks_something_else(why: &ConnectError) -> bool {
    matches!(
        why,
        ConnectError::WrongProtocol { .. }
            | ConnectError::Closed(_)
            | ConnectError::Protocol(_)
            | ConnectError::Tls(TlsError::Alpn { .. })
    )
}

/// What it means for the exit code that no request could be made.
pub fn failure(error: &LoadError) -> Failure {
    let kind = match error {
        LoadError::Unreachable { .. } => FailureKind::Unreachable,
        LoadError::Tls(_) | LoadError::Template(_) => FailureKind::Usage,
        LoadError::Io(_) => FailureKind::Environment,
    };
    Failure { kind, message: error.to_string() }
}
