//! A few requests to a live server, in the protocol that it speaks: the flags that `trace` and `timeline` have in common.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use h2lab_model::scenario::Scenario;
use h2lab_model::workload::{Phases, Protocol};

use super::client::ClientArgs;
use super::discover;
use super::exit::Usage;
use super::flags::Flags;
use super::needs;
use super::protocols::ProtocolArgs;
use super::reach::ReachArgs;
use super::values::duration;
use crate::run::messages::{Failure, FailureKind};
use h2lab_net::tls::TlsError;
use h2lab_roles::client::ConnectError;
use h2lab_roles::client::url::Url;
use h2lab_roles::load::{LoadError, LoadSpec};

/// Which requests are made, and to where.
#[derive(Debug, Clone, Args)]
pub struct AskArgs {
    /// Timeout of a request, and of a server that sends nothing
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub timeout: Duration,
    #[command(flatten)]
    pub client: Flags<ClientArgs>,
    #[command(flatten)]
    pub reach: Flags<ReachArgs>,
}

/// Longer than any trace: the work ends with the last request, not by the clock.
const NO_END: Duration = Duration::from_secs(365 * 24 * 3_600);

impl AskArgs {
    /// A GET in this protocol, with default flags otherwise.
    pub fn plain(protocol: Protocol, timeout: Duration) -> Self {
        let client = ClientArgs { protocol: ProtocolArgs::named(protocol), ..ClientArgs::default() };
        Self { timeout, client: client.into(), reach: Flags::default() }
    }

    /// The protocols to try, the best first; one if it was asked for by name.
    pub fn protocols(&self, url: &Url) -> Result<Vec<Protocol>, Usage> {
        let protocols = self.client.protocol.to_try(url.is_tls(), &[Protocol::H2c, Protocol::H1])?;
        needs::check(&self.client, &protocols)?;
        Ok(protocols)
    }

    /// The requests, but for their protocol and number.
    pub fn spec(&self, text: &str, url: &Url) -> Result<LoadSpec<'static>> {
        self.reach.check(&self.client.protocol)?;
        let mut scenario: Scenario = discover::gentle();
        scenario.work.timeout = self.timeout;
        self.client.apply(&mut scenario)?;
        super::flags::check(&scenario)?;
        let mut spec = discover::one_cell(text, url, &self.reach, &scenario)?;
        spec.tap = false; // callers that need frames read them themselves
        spec.cell.work.phases =
            Phases { warmup: Duration::ZERO, measure: NO_END, drain: Duration::from_secs(1) };
        Ok(spec)
    }
}

/// The protocol to try after the first of `protocols` failed with `error`, if any.
pub fn next_choice(protocols: &[Protocol], error: &LoadError) -> Option<Protocol> {
    let LoadError::Unreachable { why, .. } = error else { return None };
    protocols.get(1).copied().filter(|_| speaks_something_else(why))
}

/// Whether a server that ends the first connection like this may speak HTTP/1.1.
const fn speaks_something_else(why: &ConnectError) -> bool {
    matches!(
        why,
        ConnectError::WrongProtocol { .. }
            | ConnectError::Closed(_)
            | ConnectError::Protocol(_)
            | ConnectError::Reset(_)
            | ConnectError::Tls(TlsError::Alpn { .. })
    )
}

/// The failure, with its exit code, when no request could be made.
pub fn failure(error: &LoadError) -> Failure {
    let kind = match error {
        LoadError::Unreachable { why, .. } => why.into(),
        LoadError::Tls(_) | LoadError::Template(_) => FailureKind::Usage,
        LoadError::Io(_) => FailureKind::Environment,
    };
    Failure { kind, message: error.to_string() }
}
