//! Making the network of a repetition, and verifying its settings with a connection over it.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use h2lab_link::LinkSpec;
use socket2::SockRef;

use super::congestion::CongestionReadBack;
use super::error::{During, Result, TopologyError};
use super::namespaces::Namespaces;
use super::pump::{Pump, PumpOptions};
use super::setup_step::SetupStep;
use super::side::Side;
use super::spec::TopologySpec;
use super::sys::congestion_of;

/// Packets that the ring of the read-back's pump holds: a handshake needs few.
const PACKETS: u32 = 64;
/// How long a handshake over an unimpaired link may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl Namespaces {
    /// Creates the client's and the server's namespace; the calling thread's namespace becomes the link's. Applies the
    /// settings of `spec` and reads them back, the congestion control from a real connection over the link.
    ///
    /// Call it in the process that returned from [`super::enter`], once: the link's devices have fixed names. To call it
    /// again, [`super::EnteredNamespaces::renew`] comes first.
    pub fn create(spec: &TopologySpec) -> Result<Self> {
        let mut namespaces = Self::make(spec)?;
        namespaces.congestion = read_back(&namespaces, spec.congestion.as_deref())?;
        Ok(namespaces)
    }
}

/// Connects client and server over the link, unimpaired, and reads the congestion control of both sockets.
///
/// A separate pump carries the handshake, so that the handshake uses no draw of the loss model of the measured pump. A
/// successful connection also proves the whole path: devices, routes, neighbours, checksums, rings.
fn read_back(namespaces: &Namespaces, asked: Option<&str>) -> Result<CongestionReadBack> {
    let options = PumpOptions { packets: PACKETS, ..PumpOptions::default() };
    let pump = Pump::start(namespaces, &LinkSpec::default(), 0, options)?;
    let sockets = connect(namespaces);
    pump.stop()?;
    let [dialled, accepted] = sockets?;
    let read =
        || Ok(CongestionReadBack { client: congestion_of(&dialled)?, server: congestion_of(&accepted)? });
    let found = read().map_err(|error: io::Error| TopologyError::refused(SetupStep::Connection, error))?;
    for (side, found) in [(Side::Client, &found.client), (Side::Server, &found.server)] {
        if let Some(asked) = asked.filter(|asked| asked != found) {
            let (side, asked, found) = (side.name(), asked.to_owned(), found.clone());
            return Err(TopologyError::CongestionNotApplied { side, asked, found });
        }
    }
    Ok(found)
}

/// A connection over the link: the socket that connected and the one that was accepted.
fn connect(namespaces: &Namespaces) -> Result<[TcpStream; 2]> {
    let addressing = namespaces.addressing();
    let listen = || TcpListener::bind((addressing.own(Side::Server), 0));
    let listener = namespaces.within(Side::Server, listen)?.during(SetupStep::Connection)?;
    let address = namespaces.dialled(listener.local_addr().during(SetupStep::Connection)?);
    let dial = || TcpStream::connect_timeout(&address, CONNECT_TIMEOUT);
    let dialled = namespaces.within(Side::Client, dial)?.during(SetupStep::Connection)?;
    let (accepted, _) = listener.accept().during(SetupStep::Connection)?;
    for socket in [&dialled, &accepted] {
        // Closing it sends a RST: the FINs of an ordinary close would be retransmitted into the measured link.
        SockRef::from(socket).set_linger(Some(Duration::ZERO)).during(SetupStep::Connection)?;
    }
    Ok([dialled, accepted])
}
