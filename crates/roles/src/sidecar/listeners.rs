//! The sockets that the sidecar listens on, which the first loop has, and connections whose protocol is not known yet.

#[cfg(test)]
mod tests;
mod udp;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use h2lab_base::units::Time;
use h2lab_net::byte_stream::ByteStream;
use h2lab_net::reactor::{Reactor, Token};
use h2lab_net::tcp::{Read, StreamSocket};
use h2lab_net::tls::{ServerTls, ServerTlsOptions};
use h2lab_net::transport::{Transport, TransportError};
use h2lab_proxy::config::{Interception, Listen, Network, Tunnels};
use h2lab_proxy::fields::Version;
use h2lab_proxy::handover::{self, Original};
use h2lab_proxy::proxy_protocol;
use h2lab_proxy::route::Routes;
use h2lab_proxy::target;
use h2lab_wire::{Connection, Limits, RequestHead};

use super::buffers::SpareBuffers;
use super::config::{Listening, SidecarConfig, SidecarError};
use super::engines::{Carrier, Engines};
use super::live::Live;
use super::sockets::Sockets;
use super::threads::Assignment;
use super::transparent::{self, Intercepted};
use crate::accepted::{Spoken, spoken};
use udp::UdpPort;

/// Places of listeners, twice as many as a configuration may have, so that all can be replaced by others. Their tokens are the lowest ones:
/// their places.
pub const PLACES: u32 = 2 * h2lab_proxy::config::MOST_LISTENERS as u32;
/// The token of what other loops wake this one with. Those of UDP ports follow, by the places of their listeners.
pub const WAKEUP: Token = Token(PLACES);
/// The first token that is no listener's.
pub const FIRST: u32 = 2 * PLACES + 1;
/// Attempts to find a free TCP port whose UDP port is free, too.
const ATTEMPTS: u32 = 16;

/// All of them, by their places, which are the same ones in all loops.
#[derive(Debug)]
pub struct Listeners {
    places: Vec<Place>,
    /// Ports of HTTP/3 by the places of their listeners, which the first loop has.
    udp: BTreeMap<u32, UdpPort>,
    /// How long a client may take until its protocol is known.
    first_bytes_timeout: Option<std::time::Duration>,
}

/// A listener, as a loop sees it.
#[derive(Debug, Clone)]
pub struct Place {
    /// As it is written; with port 0 not with the one that was taken.
    listen: Listen,
    /// Its socket, which the first loop has.
    listening: Option<Listening>,
    /// It is in the configuration. Without it, it accepts nothing and serves the connections that it has.
    is_open: bool,
    tls: Option<(ServerTlsOptions, ServerTls)>,
    routes: Routes,
    tunnels: Tunnels,
    /// Whether connections begin with a header of the PROXY protocol, and who may connect then.
    proxied: Option<Vec<Network>>,
    /// Whether connections are to other addresses, and what becomes of those.
    interception: Option<Interception>,
    /// What is announced to clients of its HTTP/3.
    alt_svc: Option<String>,
}

impl Place {
    /// What a listener does with connections. `before` is what it did; its TLS configuration is kept if nothing of it
    /// has changed.
    fn new(
        listen: &Listen,
        options: &ServerTlsOptions,
        number: &dyn Fn(&str) -> u32,
        before: Option<&Self>,
    ) -> Result<Self, SidecarError> {
        let before = before.and_then(|place| place.tls.clone()).filter(|(old, _)| old == options);
        let ip = listen.address.ip().to_string();
        let tls = || ServerTls::new(options, &["localhost", ip.as_str()], &["h2", "http/1.1"]);
        let tls = match (listen.tls, before) {
            (false, _) => None,
            (true, Some(before)) => Some(before),
            (true, None) => Some((options.clone(), tls()?)),
        };
        let listening = None;
        let (routes, tunnels) = Self::leads(listen, number);
        let proxied = listen.proxy_protocol.then(|| listen.proxy_protocol_from.clone());
        let interception = listen.interception();
        Ok(Self {
            listen: listen.clone(),
            listening,
            is_open: true,
            tls,
            routes,
            tunnels,
            proxied,
            interception,
            alt_svc: None,
        })
    }

    /// Where requests go, by the numbers that services have in a loop.
    fn leads(listen: &Listen, number: &dyn Fn(&str) -> u32) -> (Routes, Tunnels) {
        let routes = Routes::new(&listen.route, listen.service.as_deref().map(number), number);
        (routes, Tunnels::new(listen, number))
    }
}

impl Listeners {
    /// Listens where `config` says.
    pub fn open(config: &SidecarConfig, reactor: &mut Reactor) -> Result<Self, SidecarError> {
        let first_bytes_timeout = config.server.limits.head;
        let mut listeners = Self { places: Vec::new(), udp: BTreeMap::new(), first_bytes_timeout };
        let number = |name: &str| config.file.service.keys().position(|key| key == name).unwrap_or(0) as u32;
        for (listen, options) in config.file.listen.iter().zip(&config.listeners) {
            let mut place = Place::new(listen, options, &number, None)?;
            let token = listeners.places.len() as u32;
            listeners.listen_at((&config.sockets, listen), &mut place, token, reactor)?;
            listeners.places.push(place);
        }
        Ok(listeners)
    }

    /// Those that the first loop has, for another one.
    pub fn of(places: &[Place], config: &SidecarConfig, number: &dyn Fn(&str) -> u32) -> Self {
        let first_bytes_timeout = config.server.limits.head;
        let mut listeners = Self { places: Vec::new(), udp: BTreeMap::new(), first_bytes_timeout };
        listeners.take(places, number);
        listeners
    }

    /// Takes what the first loop has now. Returns the places that were closed, whose clients are to be notified.
    pub fn take(&mut self, places: &[Place], number: &dyn Fn(&str) -> u32) -> Vec<u32> {
        let was_open = |at: usize| self.places.get(at).is_some_and(|place| place.is_open);
        let closed = places.iter().enumerate().filter(|(at, place)| was_open(*at) && !place.is_open);
        let closed = closed.map(|(at, _)| at as u32).collect();
        self.places = places.to_vec();
        for place in &mut self.places {
            (place.routes, place.tunnels) = Place::leads(&place.listen, number);
        }
        closed
    }

    /// All of them, for other loops.
    pub fn places(&self) -> Vec<Place> {
        self.places.clone()
    }

    /// Listens where `config` says now: what is gone is closed, what is new is opened, the rest has other routes and
    /// certificates. `number` gives the number of a service; `is_used`, whether a place has connections. Returns the
    /// places that were closed, whose clients are to be notified. What cannot be done is reported.
    pub fn follow(
        &mut self,
        config: &SidecarConfig,
        number: &dyn Fn(&str) -> u32,
        is_used: &dyn Fn(u32) -> bool,
        reactor: &mut Reactor,
        live: &Live,
    ) -> Vec<u32> {
        let is_there =
            |place: &Place| config.file.listen.iter().any(|listen| listen.address == place.listen.address);
        let mut closed = Vec::new();
        for (token, place) in (0..).zip(&mut self.places) {
            if place.is_open && !is_there(place) {
                place.is_open = false;
                reactor.forget(Token(token));
                if let Some(listening) = place.listening {
                    config.sockets.close(listening.address);
                }
                if let Some(port) = self.udp.get_mut(&token) {
                    port.close();
                }
                closed.push(token);
            }
        }
        let mut taken = Vec::new();
        for (listen, options) in config.file.listen.iter().zip(&config.listeners) {
            let is_its = |at: &usize| {
                let place = &self.places[*at];
                place.is_open && place.listen.address == listen.address && !taken.contains(at)
            };
            let kept = (0..self.places.len()).find(is_its);
            taken.extend(kept);
            let place = Place::new(listen, options, number, kept.map(|at| &self.places[at]));
            let result = place.and_then(|mut place| match kept {
                Some(at) => {
                    let before = self.places[at].listening;
                    place.listening = before.map(|before| Listening { tls: listen.tls, ..before });
                    self.places[at] = place;
                    self.follow_http3(at as u32, (&config.sockets, listen), reactor, live)
                }
                None => self.add((&config.sockets, listen), place, is_used, reactor, live),
            });
            if let Err(error) = result {
                live.report(&error.to_string());
            }
        }
        closed
    }

    fn add(
        &mut self,
        (sockets, listen): (&Sockets, &Listen),
        mut place: Place,
        is_used: &dyn Fn(u32) -> bool,
        reactor: &mut Reactor,
        live: &Live,
    ) -> Result<(), SidecarError> {
        let is_free = |at: &usize| !self.places[*at].is_open && !is_used(*at as u32);
        let left = self.left_with_udp(listen);
        let at = left.or_else(|| (0..self.places.len()).find(is_free)).unwrap_or(self.places.len());
        if at >= PLACES as usize {
            sockets.release(listen.address);
            let source = std::io::Error::other("too many listeners that are gone still have connections");
            return Err(SidecarError::Listen { address: listen.address, source });
        }
        if left.is_none() {
            self.release_udp(at as u32, reactor);
        }
        self.listen_at((sockets, listen), &mut place, at as u32, reactor)?;
        if at == self.places.len() {
            self.places.push(place);
        } else {
            self.places[at] = place;
        }
        for listening in self.listening_at(at) {
            live.report(&format!("listening {listening}"));
        }
        Ok(())
    }

    /// The number of the listener with this address, as it is written.
    pub fn place(&self, written: SocketAddr) -> Option<usize> {
        self.places.iter().position(|place| place.is_open && place.listen.address == written)
    }

    /// All sockets, in the order of their places: those over UDP behind those over TCP on the port of the same number.
    pub fn listening(&self) -> Vec<Listening> {
        (0..self.places.len()).flat_map(|at| self.listening_at(at)).collect()
    }

    fn listening_at(&self, at: usize) -> impl Iterator<Item = Listening> + use<> {
        let tcp = self.places[at].listening;
        let udp = tcp.filter(|_| self.is_udp_open(at as u32)).map(|tcp| Listening { h3: true, ..tcp });
        tcp.into_iter().chain(udp)
    }

    /// How many places there are.
    pub const fn count(&self) -> u32 {
        self.places.len() as u32
    }

    /// How many clients the listener in this place may have, and its address, if that is bounded.
    pub fn most_clients(&self, place: u32) -> Option<(u32, SocketAddr)> {
        let place = self.places.get(place as usize)?;
        let address = place.listening.map_or(place.listen.address, |listening| listening.address);
        Some((place.listen.max_clients?, address))
    }

    /// Whether the listener in this place accepts connections.
    pub fn is_open(&self, place: u32) -> bool {
        self.places.get(place as usize).is_some_and(|place| place.is_open)
    }

    /// The service of a request that came to a listener; else the status with which it is refused, and why.
    pub fn service(&self, listener: u32, head: &RequestHead<'_>) -> Result<u32, (u16, &'static str)> {
        let place = &self.places[listener as usize];
        match (head.method, head.protocol) {
            (b"CONNECT", b"") => place.tunnels.service(head.authority),
            (b"CONNECT", protocol) if protocol != b"websocket" => {
                Err((501, "extended CONNECT is supported for WebSocket only"))
            }
            _ => {
                let service = place.routes.service(head.authority, &target::path(head.method, head.path));
                service.ok_or((404, "no route matches this host and path"))
            }
        }
    }

    /// A connection that was accepted. `None` if there is no memory for TLS, or if its peer may not send a header of
    /// the PROXY protocol, which is expected; the client then sees a closed connection.
    pub fn opening(
        &self,
        stream: StreamSocket,
        assignment: Assignment,
        sockets: &Sockets,
        now: Time,
    ) -> Option<Opening> {
        let client = stream.peer_address().ok()?;
        let listener = assignment.place();
        let place = &self.places[listener as usize];
        if !self.trusts(listener, client.ip()) {
            return None;
        }
        let timeout_at = self.first_bytes_timeout.map_or(Time::NEVER, |timeout| now + timeout);
        let open = self.places.iter().filter(|place| place.is_open);
        let open = open.filter_map(|place| Some(place.listening?.address));
        let intercepted =
            place.interception.map(|how| Intercepted::new(how, &stream, open, sockets, timeout_at));
        let intercepted = intercepted.transpose().ok()?;
        let detected = intercepted.as_ref().filter(|_| place.tls.is_none());
        let timeout_at = detected.map_or(timeout_at, |intercepted| intercepted.look_at(now).min(timeout_at));
        let stream = match &place.tls {
            Some((_, tls)) => ByteStream::tls(stream, tls.session().ok()?),
            None => ByteStream::clear(stream),
        };
        let is_header_due = place.proxied.is_some();
        let opening = self.opening_of(Transport::Stream(stream), assignment, client, now);
        Some(Opening { is_header_due, intercepted, timeout_at, ..opening })
    }

    /// Whether a peer with this address may name its client in a header of the PROXY protocol, if the listener in this
    /// place expects one.
    pub fn trusts(&self, place: u32, ip: IpAddr) -> bool {
        let proxied = self.places.get(place as usize).and_then(|place| place.proxied.as_ref());
        proxied
            .is_none_or(|networks| networks.is_empty() || networks.iter().any(|network| network.contains(ip)))
    }

    /// How the process before and the one after see the listener in this place; `None` if it accepts nothing.
    pub fn kind(&self, place: u32) -> Option<handover::Listener> {
        let place = self.places.get(place as usize).filter(|place| place.is_open)?;
        Some(handover::Listener {
            address: place.listening?.address,
            tls: place.tls.is_some(),
            proxy_protocol: place.proxied.is_some(),
            transparent: place.listen.transparent,
        })
    }

    /// The same for all of them, with their places.
    pub fn kinds(&self) -> impl Iterator<Item = (u32, handover::Listener)> {
        (0..self.places.len() as u32).filter_map(|place| Some((place, self.kind(place)?)))
    }

    /// A connection in clear that another process had, or this one, in the state that it had there.
    pub fn resumed(
        &self,
        stream: StreamSocket,
        assignment: Assignment,
        before: handover::Client,
        now: Time,
    ) -> Opening {
        let transport = Transport::Stream(ByteStream::clear(stream));
        let interception = self.places.get(assignment.place() as usize).and_then(|place| place.interception);
        let opening = self.opening_of(transport, assignment, before.client, now);
        let intercepted = interception.zip(before.original);
        let named = before.original.filter(|_| interception.is_none()).map(Original::address);
        let intercepted = intercepted.map(|(how, to)| Intercepted::again(how, to, opening.timeout_at));
        let look_at = intercepted.map_or(Time::NEVER, |intercepted| intercepted.look_at(now));
        let timeout_at = opening.timeout_at.min(look_at);
        let is_header_due = before.stage == handover::Stage::HeaderDue;
        Opening { first_bytes: before.bytes, named, is_header_due, intercepted, timeout_at, ..opening }
    }

    /// A connection whose client has sent nothing yet.
    pub fn opening_of(
        &self,
        transport: Transport,
        assignment: Assignment,
        client: SocketAddr,
        now: Time,
    ) -> Opening {
        let timeout_at = self.first_bytes_timeout.map_or(Time::NEVER, |timeout| now + timeout);
        let listener = assignment.place();
        let takes_upgrade = self.places.get(listener as usize).is_some_and(|place| place.listen.upgrade_h2c);
        Opening {
            transport,
            first_bytes: Vec::new(),
            listener,
            assignment,
            client,
            named: None,
            is_header_due: false,
            takes_upgrade,
            intercepted: None,
            is_idle: false,
            timeout_at,
        }
    }

    /// Accepts no connections any more.
    pub fn close(&self, reactor: &mut Reactor) {
        (0..self.places.len() as u32).for_each(|place| reactor.forget(Token(place)));
        self.udp.values().for_each(UdpPort::refuse);
    }

    /// Listens, under this token, over UDP as well where that is asked for. Port 0 gets one that is free in both.
    fn listen_at(
        &mut self,
        (sockets, listen): (&Sockets, &Listen),
        place: &mut Place,
        token: u32,
        reactor: &mut Reactor,
    ) -> Result<(), SidecarError> {
        let wrong = |source| SidecarError::Listen { address: listen.address, source };
        let mut attempts = if listen.address.port() == 0 { ATTEMPTS } else { 1 };
        loop {
            attempts -= 1;
            let listener = sockets.listener(listen.address).map_err(wrong)?;
            transparent::take_foreign(listen, &listener)?;
            let address = listener.local_address()?;
            match self.listen_http3((sockets, listen), (place, address), token, reactor) {
                Err(SidecarError::ListenUdp { source, .. })
                    if source.kind() == io::ErrorKind::AddrInUse && attempts > 0 =>
                {
                    sockets.close(address);
                }
                result => {
                    result?;
                    reactor.submit_accept(Token(token), listener)?;
                    place.listening = Some(Listening { tls: listen.tls, h3: false, address });
                    return Ok(());
                }
            }
        }
    }
}

/// The destination of a connection as reported to a successor: where it was to go, or the destination that a header of
/// the PROXY protocol names.
pub fn original(intercepted: Option<&Intercepted>, named: Option<SocketAddr>) -> Option<Original> {
    intercepted.map_or_else(|| named.map(Original::Here), |intercepted| Some(intercepted.original))
}

/// A connection that was accepted, until its client's protocol is known.
#[derive(Debug)]
pub struct Opening {
    /// What carries it.
    pub transport: Transport,
    first_bytes: Vec<u8>,
    /// The listener's place.
    pub listener: u32,
    /// Its place among the clients of all loops.
    pub assignment: Assignment,
    /// The client's address: the connection's, or what a header of the PROXY protocol says.
    pub client: SocketAddr,
    /// Where the client has connected to, if such a header names it.
    pub named: Option<SocketAddr>,
    /// That header is still to come.
    is_header_due: bool,
    /// In clear it may become one of HTTP/2 by `Upgrade`.
    takes_upgrade: bool,
    /// Where it was to go, if it was brought here.
    pub intercepted: Option<Intercepted>,
    /// It waits for the first byte of a request, with nothing else to come before.
    is_idle: bool,
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
        if let Some((client, named)) = header.ends {
            (self.client, self.named) = (client, Some(named));
        }
        self.is_header_due = false;
        Ok(true)
    }

    /// What the process after this one needs to continue, if it can: no TLS is involved.
    pub fn handed_over(&self, listener: SocketAddr) -> Option<handover::Client> {
        let tcp = self.transport.tcp().filter(|_| !self.transport.is_tls())?;
        Some(handover::Client {
            listener,
            client: self.client,
            stage: if self.is_header_due { handover::Stage::HeaderDue } else { handover::Stage::New },
            original: original(self.intercepted.as_ref(), self.named),
            written: tcp.written(),
            bytes: self.first_bytes.clone(),
        })
    }

    /// The engine of one that was handed over while it spoke HTTP/1.1, with what has come of its next request.
    pub fn resume_http1(
        &mut self,
        config: &SidecarConfig,
        engines: &mut Engines,
        spare: &mut SpareBuffers,
        now: Time,
    ) -> Connection {
        let mut engine = engines.engine(&config.server, Version::H1, self.carrier(), now);
        engine.set_own_answers(Arc::clone(&config.refusals));
        let bytes = std::mem::take(&mut self.first_bytes);
        if !bytes.is_empty() {
            spare.lend(&mut engine);
            engine.handle_input(now, &bytes);
        }
        engine
    }

    const fn carrier(&self) -> Carrier {
        match (self.transport.is_tls(), self.takes_upgrade) {
            (true, _) => Carrier::Tls,
            (false, true) => Carrier::Clear,
            (false, false) => Carrier::ClearWithoutUpgrade,
        }
    }

    /// How long it may send nothing more: before its first request as long as before any other, else as long as a head
    /// may take. Returns whether that time begins now. A connection that was intercepted has times of its own: see
    /// [`Opening::wait_on`].
    pub fn wait(&mut self, limits: &Limits, now: Time) -> bool {
        let is_handshaking = self.is_header_due || self.transport.is_handshaking();
        let is_detected = self.intercepted.is_some() && !self.transport.is_tls();
        let is_idle = !is_handshaking && !is_detected && self.first_bytes.is_empty();
        if is_idle == self.is_idle {
            return false;
        }
        let timeout = if is_idle { limits.idle } else { limits.head };
        self.is_idle = is_idle;
        self.timeout_at = timeout.map_or(Time::NEVER, |timeout| now + timeout);
        true
    }

    /// Too little has arrived for now. Returns until when this may go on, if it may.
    pub fn wait_on(&mut self) -> Option<Time> {
        let is_clear = !self.transport.is_tls();
        let has_said_anything = !self.first_bytes.is_empty();
        self.intercepted.as_mut().filter(|_| is_clear)?.wait_on(has_said_anything)
    }

    /// When it is to be looked at again: it is given up, or QUIC has to repeat what was lost.
    pub fn deadline(&self) -> Time {
        self.timeout_at.min(self.transport.timeout())
    }

    /// Reads what has come. Returns the engine, once it is known which; an error if the client is gone.
    pub fn proceed(
        &mut self,
        config: &SidecarConfig,
        engines: &mut Engines,
        spare: &mut SpareBuffers,
        now: Time,
    ) -> Result<Option<(Connection, Version)>, TransportError> {
        if self.is_header_due && !self.read_header()? {
            return Ok(None);
        }
        spare.lend_transport(&mut self.transport);
        if self.transport.is_handshaking() && !self.transport.handshake(now)? {
            self.transport.flush(now)?;
            return Ok(None);
        }
        self.transport.flush(now)?;
        let Transport::Stream(stream) = &mut self.transport else {
            let version = Version::H3;
            return Ok(Some((engines.engine(&config.server, version, Carrier::Tls, now), version)));
        };
        let is_clear = !stream.is_tls();
        let spoken = match &self.intercepted {
            Some(intercepted) if is_clear => intercepted.spoken(stream, &mut self.first_bytes)?,
            _ => Some(spoken(stream, &mut self.first_bytes)?),
        };
        let carrier = self.carrier();
        let mut engine = |version| (engines.engine(&config.server, version, carrier, now), version);
        let (mut engine, version) = match spoken {
            Some(Spoken::Unknown) => return Ok(None),
            Some(Spoken::Nothing) => {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
            }
            Some(Spoken::H1) => engine(Version::H1),
            Some(Spoken::H2) => engine(Version::H2),
            None => transparent::tunnel(&config.client),
        };
        spare.lend(&mut engine);
        engine.set_own_answers(Arc::clone(&config.refusals));
        engine.handle_input(now, &std::mem::take(&mut self.first_bytes));
        Ok(Some((engine, version)))
    }
}
