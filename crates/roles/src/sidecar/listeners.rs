//! The sockets that the sidecar listens on, and connections that have not said what they speak.

use h2lab_base::units::Time;
use h2lab_net::byte_stream::ByteStream;
use h2lab_net::reactor::{Reactor, Token};
use h2lab_net::tcp::{Listener, StreamSocket};
use h2lab_net::tls::ServerTls;
use h2lab_net::transport::{Transport, TransportError};
use h2lab_proxy::fields::Version;
use h2lab_proxy::route::Routes;
use h2lab_wire::{Config, Connection};

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
            let listener = Listener::bind(listen.address).map_err(wrong)?;
            let address = listener.local_address()?;
            reactor.submit_accept(Token(places.len() as u32), listener)?;
            listening.push(Listening { tls: listen.tls, address });
            let default = listen.service.as_deref().map(number);
            places.push(Place { tls, routes: Routes::new(&listen.route, default, number) });
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

    /// The routes of a listener.
    pub fn routes(&self, listener: u32) -> &Routes {
        &self.places[listener as usize].routes
    }

    /// A connection that was accepted. `None` if there is no memory for TLS, and its client sees a closed connection.
    pub fn opening(&self, listener: Token, stream: StreamSocket, now: Time) -> Option<Opening> {
        let address = stream.peer_address().ok()?.ip().to_canonical().to_string();
        let stream = match &self.places[listener.0 as usize].tls {
            Some(tls) => ByteStream::tls(stream, tls.session().ok()?),
            None => ByteStream::clear(stream),
        };
        Some(Opening {
            transport: Transport::Stream(stream),
            first_bytes: Vec::new(),
            listener: listener.0,
            address,
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
    /// The client's address.
    pub address: String,
    /// When it is given up.
    pub timeout_at: Time,
}

impl Opening {
    /// Reads what has come. The engine, once it is known which; an error if the client is gone.
    pub fn proceed(
        &mut self,
        config: &Config,
        now: Time,
    ) -> Result<Option<(Connection, Version)>, TransportError> {
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
