//! The requests of timelines: to a server, or to the first server of a chain.

use anyhow::Result;
use h2lab_model::workload::{Arrival, Protocol};

use crate::cli::asking::AskArgs;
use crate::cli::reach;
use crate::run::messages::{Failure, FailureKind};
use h2lab_lab::sut::SutError;
use h2lab_net::clock::Clock;
use h2lab_roles::load::LoadSpec;
use h2lab_roles::timeline::chain::{ChainError, ServerChain};

/// One request on one connection.
pub fn prepare(spec: &mut LoadSpec<'_>, protocol: Protocol) {
    spec.requests = Some(1);
    let cell = &mut spec.cell;
    (cell.protocol, cell.connections, cell.max_connections, cell.streams) = (protocol, 1, 1, 1);
    cell.work.replay = false;
    cell.work.arrival = Arrival::Closed { concurrency: 1 };
}

/// The request for `path` of a chain's first server.
pub fn to_chain(
    ask: &AskArgs,
    chain: &ServerChain,
    protocol: Protocol,
    path: &str,
    clock: Clock,
) -> Result<LoadSpec<'static>> {
    let scheme = if protocol.is_tls() { "https" } else { "http" };
    let text = format!("{scheme}://{}{path}", chain.address().map_err(failure)?);
    let mut spec = ask.spec(&text, &reach::url(&text)?)?;
    prepare(&mut spec, protocol);
    // The chain's certificates are self-signed, and its listeners use this clock.
    spec.tls.insecure = true;
    spec.clock_origin_ns = clock.origin_ns();
    Ok(spec)
}

/// The failure, with its exit code, of a chain that could not be started.
pub fn failure(error: ChainError) -> Failure {
    match error {
        // There is no other chain that could be used instead.
        ChainError::Sut(error @ SutError::Missing { .. }) => {
            Failure { kind: FailureKind::Environment, message: error.to_string() }
        }
        ChainError::Sut(error) => error.into(),
        ChainError::Order(message) => Failure { kind: FailureKind::Usage, message },
        error @ ChainError::Io(_) => Failure { kind: FailureKind::Environment, message: error.to_string() },
    }
}
