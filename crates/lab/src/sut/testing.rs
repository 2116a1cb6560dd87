//! Helpers that the tests of the servers share.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use h2lab_model::workload::Protocol;

use super::error::SutError;
use super::kind::{Launch, Ports, Site, StartOptions, Sut};
use super::upstream::Upstream;

/// The options of a server at 10.9.0.2.
pub(super) fn options() -> StartOptions {
    StartOptions::new(IpAddr::from([10, 9, 0, 2]), PathBuf::from("logs"))
}

/// How `sut` is launched there with an upstream over `protocol`.
pub(super) fn launched(sut: &dyn Sut, protocol: Protocol) -> Result<Launch, SutError> {
    launched_with(sut, protocol, 1, None)
}

/// The same, with this many `connections`, and with a limit of requests on each connection of clients.
pub(super) fn launched_with(
    sut: &dyn Sut,
    protocol: Protocol,
    connections: u32,
    max_requests_per_connection: Option<u32>,
) -> Result<Launch, SutError> {
    let options = StartOptions { max_requests_per_connection, ..options() };
    let upstream = Upstream { address: SocketAddr::from(([127, 0, 0, 1], 40001)), protocol, connections };
    let site = Site { folder: Path::new("/x"), ports: Ports::LAB, upstream: Some(upstream) };
    sut.launch(site, &options)
}
