//! Which host is probed, and whether that is allowed.

use anyhow::Result;
use clap::Args;

use super::safety::SafetyArgs;
use crate::cli::reach::{self, ReachArgs};
use crate::run::messages::FailureKind;
use h2lab_roles::client::reach::tls_options;
use h2lab_roles::client::url::Url;
use h2lab_roles::probe::{Host, ProbeError};
use h2lab_wire::trace::detail::Secrets;

/// What may be done to a host, and how to reach it.
#[derive(Debug, Args)]
pub struct HostArgs {
    #[command(flatten)]
    pub safety: SafetyArgs,
    #[command(flatten)]
    pub reach: ReachArgs,
}

/// The kind of failure, and so the exit code, of a probe that could not be made.
pub const fn kind_of(error: &ProbeError) -> FailureKind {
    match error {
        ProbeError::Connect(_) => FailureKind::Unreachable,
        ProbeError::Tls(_) => FailureKind::Usage,
        _ => FailureKind::Environment,
    }
}

impl HostArgs {
    /// The host of a URL, given as `text`: the first of its addresses that answers. All of them must be allowed.
    pub fn at(&self, text: &str, url: &Url) -> Result<Host> {
        let endpoints = self.reach.endpoints(text, url)?;
        endpoints.iter().try_for_each(|endpoint| self.safety.admit(endpoint))?;
        Ok(Host {
            endpoint: reach::answering(&endpoints),
            server_name: url.host().to_owned(),
            authority: url.authority().to_owned(),
            path: url.path_and_query().to_owned(),
            tls: tls_options(&self.reach.tls.trust()?),
            fields: Vec::new(),
            protocols: Vec::new(),
            hidden: Secrets::default(),
        })
    }
}
