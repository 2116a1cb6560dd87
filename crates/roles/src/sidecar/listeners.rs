//! The sockets that the sidecar listens on, and connections that have not said what they speak.

use std::io;
use std::net::SocketAddr;

use h2lab_base::units::Time;
use h2lab_net::byte_stream::ByteStream;
use h2lab_net::reactor::{Reactor, Token};
use h2lab_net::tcp::{Read, StreamSocket};
use h2lab_net::tls::ServerTls;
use h2lab_net::transport::{Transport, TransportError};
use h2lab_proxy::config::{Network, Tunnels};
use h2lab_proxy::fields::Version;
use h2lab_proxy::proxy_protocol;
use h2lab_proxy::route::Routes;
use h2lab_wire::{Config, Connection, RequestHead};

use super::config::{Listening, SidecarConfig, SidecarError};
use crate::accepted::{Spoken, spoken};

/// All of them. Their tokens are the lowest ones: their places in here.
#[derive(Debug)]
pub struct Listeners {
    listening: Vec<Listening>,
    places: Vec<Place>,
    /// How long a client may take to say what it speaks.
    first_bytes_timeout: Option<std::time::Duration>,
}

#[derive(Debug)]
struct Place {
    tls: Option<ServerTls>,
    routes: Routes,
    tunnels: Tunnels,
    /// Whether connections begin with a header of the PROXY protocol, and who may connect then.
    proxied: Option<Vec<Network>>,
}

impl Listeners {
    /// Listens where `config` says.
    pub fn open(config: &SidecarConfig, reactor: &mut Reactor) -> Result<Self, SidecarError> {
        let (mut listening, mut places) = (Vec::new(), Vec::new());
        let number = |name: &str| config.file.service.keys().position(|key| key == name).unwrap_or(0) as u32;
        for (listen, options) in config.file.listen.iter().zip(&config.listeners) {
            let ip = listen.address.ip().to_string();
            let names = ["localhost", ip.as_str()];
            let tls = listen.tls.then(|| ServerTls::new(options, &names, &["h2", "http/1.1"])).transpose()?;
            let wrong = |source| SidecarError::Listen { address: listen.address, source };
            let listener = config.sockets.listener(listen.address).map_err(wrong)?;
            let address = listener.local_address()?;
            reactor.submit_accept(Token(places.len() as u32), listener)?;
            listening.push(Listening { tls: listen.tls, address });
            let default = listen.service.as_deref().map(number);
            let tunnels = Tunnels::new(listen, number);
            let proxied = listen.proxy_protocol.then(|| listen.proxy_protocol_from.clone());
            places.push(Place { tls, routes: Routes::new(&listen.route, default, number), tunnels, proxied });
        }
        Ok(Self { listening, places, first_bytes_timeout: config.server.limits.head })
    }

    /// All sockets, in the order of their tokens.
    pub fn listening(&self) -> &[Listening] {
        &self.listening
    }

    /// How many there are; the tokens from there on are free.
    pub const fn count(&self) -> u32 {
        self.places.len() as u32
    }

    /// The service of a request that came to a listener; else the status with which it is refused, and why.
    pub fn service(&self, listener: u32, head: &RequestHead<'_>) -> Result<u32, (u16, &'static str)> {
        let place = &self.places[listener as usize];
        match (head.method, head.protocol) {
            (b"CONNECT", b"") => place.tunnels.service(head.authority),
            (b"CONNECT", protocol) if protocol != b"websocket" => {
                Err((501, "of the protocols of an extended CONNECT this proxy passes WebSocket"))
            }
            _ => {
                let service = place.routes.service(head.authority, head.path);
                service.ok_or((404, "no route of this proxy takes this host and path"))
            }
        }
    }

    /// A connection that was accepted. `None` if there is no memory for TLS, or it is of nobody who may say whose it is, and its client
    /// sees a closed connection.
    pub fn opening(&self, listener: Token, stream: StreamSocket, now: Time) -> Option<Opening> {
        let client = stream.peer_address().ok()?;
        let place = &self.places[listener.0 as usize];
        let trusted = |networks: &Vec<Network>| {
            networks.is_empty() || networks.iter().any(|network| network.contains(client.ip()))
        };
        if !place.proxied.as_ref().is_none_or(trusted) {
            return None;
        }
        let stream = match &place.tls {
            Some(tls) => ByteStream::tls(stream, tls.session().ok()?),
            None => ByteStream::clear(stream),
        };
        Some(Opening {
            transport: Transport::Stream(stream),
            first_bytes: Vec::new(),
            listener: listener.0,
            client,
            is_header_due: place.proxied.is_some(),
            timeout_at: self.first_bytes_timeout.map_or(Time::NEVER, |timeout| now + timeout),
        })
    }

    /// Accepts no connections any more.
    pub fn close(&self, reactor: &mut Reactor) {
        (0..self.count()).for_each(|place| reactor.forget(Token(place)));
    }
}

/// A connection that was accepted, until its client has said what it speaks.
#[derive(Debug)]
pub struct Opening {
    /// What carries it.
    pub transport: Transport,
    first_bytes: Vec<u8>,
    /// The listener's number.
    pub listener: u32,
    /// The client's address: the connection's, or what a header of the PROXY protocol says.
    pub client: SocketAddr,
    /// That header is still to come.
    is_header_due: bool,
    /// When it is given up.
    pub timeout_at: Time,
}

impl Opening {
    /// Takes the header of the PROXY protocol off the socket, before TLS; `false` while it is incomplete. What follows is left there.
    fn read_header(&mut self) -> Result<bool, TransportError> {
        let Some(tcp) = self.transport.tcp() else { return Ok(true) };
        let mut space = [0; proxy_protocol::LONGEST];
        let come = match tcp.peek(&mut space)? {
            Read::Bytes(n) => &space[..n],
            Read::WouldBlock => return Ok(false),
            Read::Eof | Read::Truncated => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        };
        let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let Some(header) = proxy_protocol::parse(come).map_err(wrong)? else { return Ok(false) };
        tcp.read(&mut space[..header.length])?;
        self.client = header.client.unwrap_or(self.client);
        self.is_header_due = false;
        Ok(true)
    }

    /// Reads what has come. The engine, once it is known which; an error if the client is gone.
    pub fn proceed(
        &mut self,
        config: &Config,
        now: Time,
    ) -> Result<Option<(Connection, Version)>, TransportError> {
        if self.is_header_due && !self.read_header()? {
            return Ok(None);
        }
        if self.transport.is_handshaking() && !self.transport.handshake(now)? {
            self.transport.flush(now)?;
            return Ok(None);
        }
        self.transport.flush(now)?;
        let Transport::Stream(stream) = &mut self.transport else { return Ok(None) };
        let version = match spoken(stream, &mut self.first_bytes)? {
            Spoken::Unknown => return Ok(None),
            Spoken::Nothing => return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()),
            Spoken::H1 => Version::H1,
            Spoken::H2 => Version::H2,
        };
        let mut engine = super::engine(config, version, self.transport.is_tls(), now);
        engine.handle_input(now, &std::mem::take(&mut self.first_bytes));
        Ok(Some((engine, version)))
    }
}
