//! Where servers run, and how to detect that one listens there.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::error::SutError;
use super::kind::{Endpoints, Ready, START_TIMEOUT, Sut};
use h2lab_net::process::{Child, WaitError};
use h2lab_net::tcp;

/// Where a server runs: a namespace of a lab, or our own.
pub trait ServerNamespace {
    /// The command that runs `program` there.
    fn command(&self, program: &Path) -> Command;

    /// Connects to `address` from there, and closes at once.
    fn reach(&self, address: SocketAddr) -> io::Result<()>;

    /// Whether programs other than ours may listen there, on ports of their choice: so everywhere except in a network
    /// namespace of our own.
    fn is_shared(&self) -> bool;
}

/// Our own namespaces.
impl<F: Fn(&Path) -> Command> ServerNamespace for F {
    fn command(&self, program: &Path) -> Command {
        self(program)
    }

    fn reach(&self, address: SocketAddr) -> io::Result<()> {
        tcp::probe_port(address)
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// How long to wait on a silent server's log, which ends with the server, before the next connection attempt.
const PROBE_PERIOD: Duration = Duration::from_millis(2);

/// Returns when `sut` accepts connections on all of its endpoints.
pub(super) fn wait_until_ready(
    sut: &dyn Sut,
    child: &Child,
    endpoints: &mut Endpoints,
    place: &dyn ServerNamespace,
) -> Result<(), SutError> {
    let ready = match sut.about().ready {
        Ready::Line(says) => child.wait_for_line(START_TIMEOUT, |line| says(line).then_some(())),
        Ready::Addresses(says) => {
            child.wait_for_line(START_TIMEOUT, |line| says(line, endpoints).then_some(()))
        }
        Ready::Silent => probe_port(sut, child, endpoints, place)?,
    };
    ready.map_err(|why| SutError::NotStarted { server: sut.name(), why, said: child.log() })
}

/// Tries to connect to every endpoint of a silent server until each has accepted.
fn probe_port(
    sut: &dyn Sut,
    child: &Child,
    endpoints: &Endpoints,
    place: &dyn ServerNamespace,
) -> Result<Result<(), WaitError>, SutError> {
    let deadline = Instant::now() + START_TIMEOUT;
    let addresses: BTreeSet<SocketAddr> = endpoints.values().copied().collect();
    for address in addresses {
        while let Err(error) = place.reach(address) {
            if error.kind() != io::ErrorKind::ConnectionRefused {
                return Err(SutError::Io { server: sut.name(), source: error });
            }
            match child.wait_for_line(PROBE_PERIOD, |_| None::<()>) {
                Err(WaitError::Timeout) if Instant::now() < deadline => {}
                ended_or_late => return Ok(ended_or_late),
            }
        }
    }
    Ok(Ok(()))
}
