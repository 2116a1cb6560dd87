//! The sockets that the origin listens on.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::config::{Listening, OriginConfig, OriginError};
use h2lab_net::byte_stream::ByteStream;
use h2lab_net::quic::QuicEndpoint;
use h2lab_net::reactor::{Reactor, Token};
use h2lab_net::tcp::{Listener, StreamSocket};
use h2lab_net::tls::ServerTls;
use h2lab_net::transport::Transport;

/// Attempts to find a free TCP port whose UDP port is free, too.
const ATTEMPTS: u32 = 16;

/// All listeners. Their tokens are the lowest ones: their indices in here.
#[derive(Debug)]
pub struct Listeners {
    listening: Vec<Listening>,
    /// Those over UDP, by their places.
    endpoints: Vec<Option<Arc<QuicEndpoint>>>,
    tls: Option<ServerTls>,
}

impl Listeners {
    /// Listens on the addresses of `config`: first in clear, then for each address with TLS, over UDP before TCP.
    pub fn open(config: &OriginConfig, reactor: &mut Reactor) -> Result<Self, OriginError> {
        let names = ["localhost", "server", "127.0.0.1", "::1"];
        let alpn: &[&str] = if config.http1 { &["http/1.1"] } else { &["h2", "http/1.1"] };
        let tls = match config.tls_listen.as_slice() {
            [] => None,
            _ => Some(ServerTls::new(&config.tls, &names, alpn)?),
        };
        let mut listeners = Self { listening: Vec::new(), endpoints: Vec::new(), tls };
        for &address in &config.listen {
            let listener = bind(address, config)?;
            listeners.add(reactor, listener, false)?;
        }
        for &address in &config.tls_listen {
            let listener = match config.h3 {
                None => bind(address, config)?,
                Some(_) => {
                    let (listener, endpoint) = listeners.bind_both(address, config, reactor)?;
                    listeners.add_endpoint(reactor, endpoint)?;
                    listener
                }
            };
            listeners.add(reactor, listener, true)?;
        }
        Ok(listeners)
    }

    fn next_token(&self) -> Token {
        Token(self.listening.len() as u32)
    }

    fn add(&mut self, reactor: &mut Reactor, listener: Listener, tls: bool) -> io::Result<()> {
        let address = listener.local_address()?;
        reactor.submit_accept(self.next_token(), listener)?;
        self.listening.push(Listening { tls, h3: false, address });
        self.endpoints.push(None);
        Ok(())
    }

    fn add_endpoint(&mut self, reactor: &mut Reactor, endpoint: Arc<QuicEndpoint>) -> io::Result<()> {
        let address = endpoint.local_address()?;
        reactor.submit_datagrams(self.next_token(), &endpoint)?;
        self.listening.push(Listening { tls: true, h3: true, address });
        self.endpoints.push(Some(endpoint));
        Ok(())
    }

    /// Listens on a port of TCP and on the UDP port of the same number. Port 0 gets one that is free in both.
    fn bind_both(
        &self,
        address: SocketAddr,
        config: &OriginConfig,
        reactor: &Reactor,
    ) -> Result<(Listener, Arc<QuicEndpoint>), OriginError> {
        let tls = self.tls.as_ref().expect("there is TLS where something listens with it");
        let mut attempts = if address.port() == 0 { ATTEMPTS } else { 1 };
        loop {
            attempts -= 1;
            let listener = bind(address, config)?;
            let taken = listener.local_address()?;
            let endpoint = QuicEndpoint::listen(taken, tls, reactor.clock());
            match endpoint {
                Ok(endpoint) => return Ok((listener, endpoint)),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempts > 0 => {}
                Err(source) => return Err(OriginError::ListenUdp { address: taken, source }),
            }
        }
    }

    /// All sockets, in the order of their tokens.
    pub fn listening(&self) -> &[Listening] {
        &self.listening
    }

    /// How many there are; the tokens from there on are free.
    pub const fn count(&self) -> usize {
        self.listening.len()
    }

    /// Whether a token is one of theirs.
    pub const fn is_one(&self, token: Token) -> bool {
        (token.0 as usize) < self.listening.len()
    }

    /// The one over UDP in this place, if it is one.
    pub fn endpoint(&self, place: usize) -> Option<Arc<QuicEndpoint>> {
        self.endpoints.get(place)?.clone()
    }

    /// The transport of a connection that was accepted on `listener`. `None` if there is no memory for TLS: the client
    /// then sees a closed connection.
    pub fn transport(&self, listener: Token, stream: StreamSocket) -> Option<Transport> {
        let is_tls = self.listening[listener.0 as usize].tls;
        let stream = match (&self.tls, is_tls) {
            (Some(tls), true) => ByteStream::tls(stream, tls.session().ok()?),
            _ => ByteStream::clear(stream),
        };
        Some(Transport::Stream(stream))
    }

    /// The UDP port of the same number, if clients of `listener` are to get an Alt-Svc for HTTP/3 there.
    pub fn alt_svc(&self, listener: Token) -> Option<u16> {
        let Listening { tls, address, .. } = self.listening[listener.0 as usize];
        let has_h3 = self.listening.iter().any(|other| other.h3 && other.address == address);
        (tls && has_h3).then(|| address.port())
    }

    /// Accepts no connections any more. UDP sockets keep receiving for the existing connections.
    pub fn close(&self, reactor: &mut Reactor) {
        for (place, endpoint) in self.endpoints.iter().enumerate() {
            match endpoint {
                Some(endpoint) => endpoint.refuse(),
                None => reactor.forget(Token(place as u32)),
            }
        }
    }
}

fn bind(address: SocketAddr, config: &OriginConfig) -> Result<Listener, OriginError> {
    let congestion = config.congestion.as_deref();
    let bound = Listener::bind_with(address, congestion);
    let listener = bound.map_err(|source| OriginError::Listen { address, source })?;
    Ok(if config.nagle { listener.with_nagle() } else { listener })
}
