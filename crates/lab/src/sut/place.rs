//! Where servers run, and how one there is known to listen.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Endpoints, PATIENCE, Sut, SutError};
use h2lab_net::process::{Child, WaitError};
use h2lab_net::tcp;

/// Where a server runs: a namespace of a lab, or simply here.
pub trait Place {
    /// The command that runs `program` there.
    fn command(&self, program: &Path) -> Command;

    /// Connects to `address` from there, and lets go at once.
    fn reach(&self, address: SocketAddr) -> io::Result<()>;

    /// Whether others than our own may listen there, on ports that they have chosen: so it is wherever it is no network
    /// namespace of our own.
    fn is_shared(&self) -> bool;
}

/// Where we are ourselves.
impl<F: Fn(&Path) -> Command> Place for F {
    fn command(&self, program: &Path) -> Command {
        self(program)
    }

    fn reach(&self, address: SocketAddr) -> io::Result<()> {
        tcp::knock(address)
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// How long to listen to a silent server's log, which ends with the server, before it is knocked at again.
const KNOCK: Duration = Duration::from_millis(2);

/// Returns when `sut` accepts connections on all of its endpoints.
pub(super) fn wait_until_ready(
    sut: &dyn Sut,
    child: &Child,
    endpoints: &mut Endpoints,
    place: &dyn Place,
) -> Result<(), SutError> {
    let ready = if sut.is_silent() {
        knock(sut, child, endpoints, place)?
    } else {
        child.wait_for_line(PATIENCE, |line| sut.is_ready(line, endpoints).then_some(()))
    };
    ready.map_err(|why| SutError::NotStarted { server: sut.name(), why, said: child.log() })
}

/// Knocks at every endpoint of a server that says nothing, until each has opened.
fn knock(
    sut: &dyn Sut,
    child: &Child,
    endpoints: &Endpoints,
    place: &dyn Place,
) -> Result<Result<(), WaitError>, SutError> {
    let deadline = Instant::now() + PATIENCE;
    let addresses: BTreeSet<SocketAddr> = endpoints.values().copied().collect();
    for address in addresses {
        while let Err(error) = place.reach(address) {
            if error.kind() != io::ErrorKind::ConnectionRefused {
                return Err(SutError::Io { server: sut.name(), source: error });
            }
            match child.wait_for_line(KNOCK, |_| None::<()>) {
                Err(WaitError::Timeout) if Instant::now() < deadline => {}
                ended_or_late => return Ok(ended_or_late),
            }
        }
    }
    Ok(Ok(()))
}
