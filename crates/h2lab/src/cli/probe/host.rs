//! Which host a probe asks, and by what right.

use anyhow::Result;
use clap::Args;

use super::safety::SafetyArgs;
use crate::cli::client::ClientArgs;
use crate::cli::flags::{Flags, Refusal};
use crate::cli::reach::{self, ReachArgs};
use h2lab_roles::client::url::Url;
use h2lab_roles::probe::Host;

/// What may be done to a host, and how it is reached.
#[derive(Debug, Args)]
pub struct HostArgs {
    #[command(flatten)]
    pub safety: SafetyArgs,
    #[command(flatten)]
    _client: Flags<ClientArgs, OwnRequests>,
    #[command(flatten)]
    reach: ReachArgs,
}

/// What a probe says, and in which protocol, is what it finds out about.
#[derive(Debug, Clone, Default)]
struct OwnRequests;

impl Refusal for OwnRequests {
    fn why(_: &str) -> Option<&'static str> {
        Some(
            "is not for probes, which ask in every protocol with requests and settings of their own; `h2lab trace` takes it",
        )
    }
}

impl HostArgs {
    /// The host of a URL, given as `text`, once all addresses that it may be at may be asked: the first of them that answers.
    pub fn at(&self, text: &str, url: &Url) -> Result<Host> {
        let endpoints = self.reach.endpoints(text, url)?;
        endpoints.iter().try_for_each(|endpoint| self.safety.admit(endpoint))?;
        Ok(Host {
            endpoint: reach::answering(&endpoints),
            server_name: url.host().to_owned(),
            authority: url.authority().to_owned(),
            path: url.path_and_query().to_owned(),
            tls: self.reach.tls.trust()?.options(),
        })
    }
}
