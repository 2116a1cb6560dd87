//! Which host a probe asks, and by what right.

use std::net::SocketAddr;

use anyhow::Result;
use clap::Args;

use super::safety::SafetyArgs;
use crate::cli::live::{self, LiveArgs};
use crate::cli::reach::{self, ReachArgs};
use h2lab_net::tcp::Endpoint;
use h2lab_roles::client::url::Url;
use h2lab_roles::probe::Host;

/// What may be done to a host, and how it is reached.
#[derive(Debug, Args)]
pub struct HostArgs {
    #[command(flatten)]
    pub safety: SafetyArgs,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    reach: ReachArgs,
}

impl HostArgs {
    /// The host of a URL, given as `text`, once all addresses that it may be at may be asked: the first of them that answers.
    pub fn at(&self, text: &str, url: &Url) -> Result<Host> {
        let endpoints = reach::endpoints(text, url, &self.live.resolve, &self.reach)?;
        endpoints.iter().try_for_each(|endpoint| self.safety.admit(endpoint))?;
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
            tls: live::trust(&self.live)?.options(),
        })
    }
}
