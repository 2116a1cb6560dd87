//! Congestion control: set on the route, read back from a connection.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use h2lab_link::LinkSpec;
use socket2::SockRef;

use super::error::{During, Step, TopologyError};
use super::namespaces::{Namespaces, Side};
use super::pump::{Pump, PumpOptions};
use super::sys::congestion_of;

/// Packets that the ring of the read-back's pump holds: a handshake needs few.
const PACKETS: u32 = 64;
/// How long a handshake over an unimpaired link may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The congestion control of both ends.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Congestion {
    /// Of the socket that connected.
    pub client: String,
    /// Of the socket that was accepted.
    pub server: String,
}

/// Connects client and server over the link, unimpaired, and reads the congestion control of both sockets.
///
/// A pump of its own carries the handshake, so that it takes no draw of the measured one's loss model. That a connection
/// can be made also proves the whole path: devices, routes, neighbours, checksums, rings.
pub(super) fn read_back(namespaces: &Namespaces, asked: Option<&str>) -> Result<Congestion, TopologyError> {
    let options = PumpOptions { packets: PACKETS, ..PumpOptions::default() };
    let pump = Pump::start(namespaces, &LinkSpec::default(), 0, options)?;
    let sockets = connect(namespaces);
    pump.stop()?;
    let [dialled, accepted] = sockets?;
    let read = || Ok(Congestion { client: congestion_of(&dialled)?, server: congestion_of(&accepted)? });
    let found = read().map_err(|error: io::Error| TopologyError::refused(Step::Connection, error))?;
    for (side, found) in [(Side::Client, &found.client), (Side::Server, &found.server)] {
        if let Some(asked) = asked.filter(|asked| asked != found) {
            let (side, asked, found) = (side.name(), asked.to_owned(), found.clone());
            return Err(TopologyError::CongestionNotApplied { side, asked, found });
        }
    }
    Ok(found)
}

/// A connection over the link: the socket that connected and the one that was accepted.
fn connect(namespaces: &Namespaces) -> Result<[TcpStream; 2], TopologyError> {
    let addressing = namespaces.addressing();
    let listen = || TcpListener::bind((addressing.own(Side::Server), 0));
    let listener = namespaces.within(Side::Server, listen)?.during(Step::Connection)?;
    let address = namespaces.dialled(listener.local_addr().during(Step::Connection)?);
    let dial = || TcpStream::connect_timeout(&address, PATIENCE);
    let dialled = namespaces.within(Side::Client, dial)?.during(Step::Connection)?;
    let (accepted, _) = listener.accept().during(Step::Connection)?;
    for socket in [&dialled, &accepted] {
        // Closing it resets it: the FINs of an ordinary close would be sent again and again, into the measured link.
        SockRef::from(socket).set_linger(Some(Duration::ZERO)).during(Step::Connection)?;
    }
    Ok([dialled, accepted])
}

/// Says which congestion controls there are if the kernel refused a route for want of one.
pub(super) fn explain(error: TopologyError, asked: Option<&str>) -> TopologyError {
    let (TopologyError::Refused { step: Step::Route, source, .. }, Some(asked)) = (&error, asked) else {
        return error;
    };
    let available = available();
    if source.raw_os_error() != Some(libc::EINVAL) || available.iter().any(|name| name == asked) {
        return error;
    }
    TopologyError::UnknownCongestion { asked: asked.to_owned(), available }
}

/// The congestion controls that the kernel has loaded.
pub fn available() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    text.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}
