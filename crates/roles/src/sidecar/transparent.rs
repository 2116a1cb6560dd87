//! Connections that were made to another address and that the kernel redirects to a listener. What they carry goes
//! where a route says, or to its original destination.
//!
//! Each destination is an instance of the service `original`. It is created when it is first needed, and removed when
//! it is no longer used.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_net::byte_stream::ByteStream;
use h2lab_net::intercept;
use h2lab_net::tcp::{Endpoint, Read, StreamSocket};
use h2lab_net::transport::TransportError;
use h2lab_proxy::beginning::{self, Beginning};
use h2lab_proxy::config::{
    Config as File, Instance, Interception, Listen, Member, ORIGINAL, Other, Speaks, Transparent,
};
use h2lab_proxy::fields::Version;
use h2lab_proxy::handover::Original;
use h2lab_proxy::head::Part;
use h2lab_proxy::refusal::ProxyError;
use h2lab_wire::connection::Request;
use h2lab_wire::{Config, Connection};

use super::config::{SidecarConfig, SidecarError};
use super::exchange::StreamAt;
use super::listeners::Opening;
use super::live::Resolved;
use super::side::Peer;
use super::sockets::{Dialled, Sockets};
use super::{Sidecar, Slot, members, side_at};
use crate::accepted::Spoken;

/// The most destinations that all loops together keep.
const MOST: u32 = 1_024;
/// A destination without connections that was not used for this long is removed.
const UNUSED: Duration = Duration::from_secs(60);
/// How often unused destinations are looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// The service of a request; else the status with which it is refused, and why.
type Routed = Result<u32, (u16, &'static str)>;

/// How many first bytes of a connection are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detection {
    /// Any.
    First,
    /// Enough to tell the protocol.
    More,
    /// None. It has sent too little for too long: its server speaks first, or its protocol is not HTTP.
    Over,
}

/// A connection that came to a transparent listener.
#[derive(Debug, Clone, Copy)]
pub struct Intercepted {
    /// What the listener does with such connections.
    how: Interception,
    /// The destination.
    pub original: Original,
    detection: Detection,
    /// When [`Detection::More`] ends.
    until: Time,
}

impl Intercepted {
    /// Reads the destination of a connection from the kernel. `listening`: the addresses of all listeners; `until`:
    /// when its protocol must be known.
    pub fn new(
        how: Interception,
        stream: &StreamSocket,
        mut listening: impl Iterator<Item = SocketAddr>,
        sockets: &Sockets,
        until: Time,
    ) -> io::Result<Self> {
        let local = canonical(stream.local_address()?);
        let original = match how.by {
            Transparent::Redirect => stream.redirected_from().map_or(local, canonical),
            Transparent::Tproxy => local,
        };
        let is_here = |listener: SocketAddr| {
            let ip = listener.ip().to_canonical();
            listener.port() == original.port() && (ip.is_unspecified() || ip == original.ip())
        };
        let ends = Dialled { from: canonical(stream.peer_address()?), to: original };
        let original = if sockets.have_dialled(ends) {
            Original::Ours(original)
        } else if (how.by == Transparent::Redirect && original == local) || listening.any(is_here) {
            Original::Here(original)
        } else {
            Original::At(original)
        };
        Ok(Self::again(how, original, until))
    }

    /// A connection whose destination is already known.
    pub const fn again(how: Interception, original: Original, until: Time) -> Self {
        Self { how, original, detection: Detection::First, until }
    }

    /// When to check whether it has sent anything.
    pub fn look_at(&self, now: Time) -> Time {
        now + self.how.detect
    }

    /// Detects the protocol from the first bytes, which are kept in `first_bytes`. `None` if it is not HTTP and is
    /// passed on. An error if the connection is refused.
    pub fn spoken(
        &self,
        stream: &mut ByteStream,
        first_bytes: &mut Vec<u8>,
    ) -> Result<Option<Spoken>, TransportError> {
        let refused = |words: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, words).into());
        if let Original::Ours(to) = self.original {
            return refused(format!(
                "to {to} was opened by this sidecar itself and redirected back to it: exempt its own connections in the rules (see h2lab \
                 sidecar --print-nft)"
            ));
        }
        let mut space = [0; 16 * 1024];
        let mut what = beginning::of(first_bytes);
        while what == Beginning::Unclear {
            match stream.read(&mut space)? {
                Read::WouldBlock => break,
                Read::Eof | Read::Truncated => return Ok(Some(Spoken::Nothing)),
                Read::Bytes(n) => first_bytes.extend_from_slice(&space[..n]),
            }
            what = beginning::of(first_bytes);
        }
        match (what, self.original) {
            (Beginning::Http1, _) => Ok(Some(Spoken::H1)),
            (Beginning::Http2, _) => Ok(Some(Spoken::H2)),
            (Beginning::Unclear, _) if self.detection != Detection::Over => Ok(Some(Spoken::Unknown)),
            (_, Original::At(to)) if self.how.other == Other::Refuse => {
                refused(format!("to {to} is not HTTP and was refused (other = \"refuse\")"))
            }
            (_, Original::At(_)) => Ok(None),
            (_, Original::Here(to) | Original::Ours(to)) => refused(format!(
                "to {to} was made to the listener itself, not redirected to it, and is not HTTP"
            )),
        }
    }

    /// It has sent too little so far. Returns until when more is waited for; `None` if that time is over.
    pub fn wait_on(&mut self, has_said_anything: bool) -> Option<Time> {
        self.detection = match self.detection {
            Detection::First if has_said_anything => Detection::More,
            Detection::First | Detection::More => Detection::Over,
            Detection::Over => return None,
        };
        Some(self.until)
    }
}

/// The engine of a client's connection that does not speak HTTP.
pub fn tunnel(config: &Config) -> (Connection, Version) {
    (Connection::tunnel(*config), Version::H1)
}

/// Turns an IPv4 address that an IPv6 socket reports (IPv4-mapped) into a plain one.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Lets a listener accept connections to other addresses, if it is configured to.
pub fn take_foreign(listen: &Listen, socket: impl std::os::fd::AsFd) -> Result<(), SidecarError> {
    if listen.transparent != Some(Transparent::Tproxy) {
        return Ok(());
    }
    intercept::take_foreign(socket).map_err(|source| tproxy_error(listen, source))
}

fn tproxy_error(listen: &Listen, source: io::Error) -> SidecarError {
    SidecarError::Tproxy { address: listen.address, source }
}

/// Checks whether a listener can become transparent at an address where it was not. A socket that is already there is
/// changed.
pub fn prepare(listen: &Listen, before: &File, sockets: &Sockets) -> Result<(), SidecarError> {
    if listen.transparent != Some(Transparent::Tproxy) {
        return Ok(());
    }
    let result = match before.listen.iter().find(|old| old.address == listen.address) {
        Some(old) if old.transparent == listen.transparent => Ok(()),
        Some(_) => sockets.take_foreign(listen.address),
        None => intercept::may_take_foreign(),
    };
    result.map_err(|source| tproxy_error(listen, source))
}

/// What is known of a destination.
#[derive(Debug)]
struct Destination {
    /// The number of its instance.
    number: u32,
    used_at: Time,
}

/// Destinations of connections that were made to other addresses.
#[derive(Debug, Default)]
pub struct Destinations {
    all: HashMap<(SocketAddr, Speaks), Destination>,
    /// By address: the service and the instance there, as of a version of the state.
    known: HashMap<SocketAddr, (u32, u32)>,
    known_at: Option<u64>,
    /// Connections that this loop has dialled, by slot.
    dialled: HashMap<u32, Dialled>,
    sweep_at: Time,
}

impl Sidecar<'_> {
    /// The service of a request on this connection that no route takes, and its destination. The service is the one
    /// that has the destination as an instance, else `original`. `routed`: what the routes say.
    pub(super) fn destine(
        &mut self,
        (intercepted, version): (Option<Intercepted>, Version),
        routed: Routed,
        now: Time,
    ) -> (Routed, Option<(SocketAddr, Speaks)>) {
        let (Some(intercepted), Err((404 | 501, _))) = (intercepted, routed) else {
            return (routed, None);
        };
        let to = match intercepted.original {
            Original::At(to) => to,
            Original::Here(to) | Original::Ours(to) => {
                let detail =
                    format!("a request to {to} was made to the listener itself, not redirected to it");
                let service = self.pools.service(ORIGINAL).unwrap_or(0);
                self.guard.note(service, "", ProxyError::DestinationNotFound, &detail, now);
                return (Err((421, "this listener accepts only redirected connections")), None);
            }
        };
        if let Some((service, instance)) = self.known_instance(to) {
            let is_open = self.pools.get(instance).is_open(now);
            // The client chose this instance. If it fails, another one may be tried.
            return (Ok(service), is_open.then_some((to, Speaks::Tls)));
        }
        let speaks = intercepted.how.speaks(version == Version::H2);
        let service = self.pools.service(ORIGINAL).ok_or((503, "the destination's service has been removed"));
        (service, Some((to, speaks)))
    }

    /// The service and the instance at an address, if there is one.
    fn known_instance(&mut self, to: SocketAddr) -> Option<(u32, u32)> {
        if self.destinations.known_at != Some(self.seen) {
            self.destinations.known_at = Some(self.seen);
            self.destinations.known.clear();
            let is_there = |name: &str| name != ORIGINAL && self.config.file.service.contains_key(name);
            let services = (0..).zip(self.pools.service_names()).zip(&self.pools.services);
            for ((service, _), numbers) in services.filter(|((_, name), _)| is_there(name)) {
                for number in numbers {
                    let at = &self.pools.all[*number as usize].part.at;
                    if at.member.url.speaks != Speaks::Tcp {
                        for address in at.addresses() {
                            self.destinations.known.entry(canonical(address)).or_insert((service, *number));
                        }
                    }
                }
            }
        }
        self.destinations.known.get(&to).copied()
    }

    /// Finds the instance of a request that has a destination, and counts the request there; `false` if it is refused.
    pub(super) fn find_destination(&mut self, id: u32, now: Time) -> bool {
        let exchange = self.exchanges.get(id);
        let (Some((to, speaks)), None) = (exchange.destination, exchange.instance) else { return true };
        let service = exchange.service;
        let is_original = self.pools.service(ORIGINAL) == Some(service);
        let number = if is_original {
            self.original(to, speaks, now)
        } else {
            // Used once: after a failure, or if the instance is gone, the service decides.
            exchange.destination = None;
            self.known_instance(to).filter(|(of, _)| *of == service).map(|(_, number)| number)
        };
        if let Some(number) = number {
            self.pools.get(number).load.open += 1;
            self.exchanges.get(id).instance = Some(number);
        } else if is_original {
            self.exchanges.get(id).refuse(503, "too many destinations are in use");
            return false;
        }
        true
    }

    /// The instance of `original` for this destination.
    fn original(&mut self, to: SocketAddr, speaks: Speaks, now: Time) -> Option<u32> {
        let service = self.pools.service(ORIGINAL)?;
        if let Some(known) = self.destinations.all.get_mut(&(to, speaks)) {
            let pool = &self.pools.all[known.number as usize];
            let is_it = pool.part.at.address == to && pool.part.at.member.url.speaks == speaks;
            if is_it && pool.service == service && !pool.part.is_leaving {
                known.used_at = now;
                return Some(known.number);
            }
            self.destinations.all.remove(&(to, speaks));
        }
        let most = self.pools.portion.part(MOST) as usize;
        if self.destinations.all.len() >= most && !self.forget_oldest(now) {
            return None;
        }
        let config = std::sync::Arc::clone(&self.config);
        let (_, dialled) =
            members::services(&config, self.pools.portion).find(|(name, _)| *name == ORIGINAL)?;
        let url = Instance { speaks, host: to.ip().to_string(), port: to.port() };
        let (member, server_name) = (Member::from(url), to.ip().to_string());
        let at = Resolved { member, address: to, others: Vec::new(), server_name };
        let standing = self.shared.standing(ORIGINAL, &at);
        let number = match dialled.pool(service, &at, None, standing) {
            Ok(pool) => self.place_pool(pool),
            Err(error) => {
                self.live.report(&format!("{to}: {error}"));
                return None;
            }
        };
        self.pools.services[service as usize].push(number);
        self.destinations.all.insert((to, speaks), Destination { number, used_at: now });
        Some(number)
    }

    /// Removes destinations that are no longer used.
    pub(super) fn forget_destinations(&mut self, now: Time) {
        if now < self.destinations.sweep_at || self.destinations.all.is_empty() {
            return;
        }
        self.destinations.sweep_at = now + SWEEP;
        let is_unused = |known: &Destination| {
            let pool = &self.pools.all[known.number as usize];
            now.since(known.used_at) >= UNUSED && pool.is_idle() && pool.connections.is_empty()
        };
        let all = self.destinations.all.iter();
        let unused: Vec<_> = all.filter(|(_, known)| is_unused(known)).map(|(key, _)| *key).collect();
        for key in unused {
            self.forget_destination(key, now);
        }
    }

    /// Removes the least recently used destination that carries nothing; `false` if all carry something.
    fn forget_oldest(&mut self, now: Time) -> bool {
        let all = self.destinations.all.iter();
        let idle = all.filter(|(_, known)| self.pools.all[known.number as usize].is_idle());
        let Some(key) = idle.min_by_key(|(_, known)| known.used_at).map(|(key, _)| *key) else {
            return false;
        };
        self.forget_destination(key, now);
        true
    }

    fn forget_destination(&mut self, key: (SocketAddr, Speaks), now: Time) {
        let Some(Destination { number, .. }) = self.destinations.all.remove(&key) else { return };
        let Some(service) = self.pools.service(ORIGINAL) else { return };
        let numbers = &mut self.pools.services[service as usize];
        if numbers.contains(&number) {
            numbers.retain(|other| *other != number);
            self.dismiss(number, now);
        }
    }

    /// The timer of a connection whose protocol is not yet known has expired.
    pub(super) fn open_late(&mut self, slot: u32) {
        let Slot::Opening(opening) = &mut self.slots[slot as usize] else { return };
        match opening.wait_on() {
            Some(until) => {
                self.reactor.set_timer(Self::token(slot), until);
                self.open(slot);
            }
            None => self.vacate(slot), // it has sent too little for too long
        }
    }

    /// Reports why an intercepted connection is closed.
    pub(super) fn note_refused(&mut self, opening: &Opening, error: &TransportError) {
        let TransportError::Io(error) = error else { return };
        let service = self.pools.service(ORIGINAL);
        if let (Some(service), io::ErrorKind::PermissionDenied) = (service, error.kind()) {
            let detail = format!("a connection from {} {error}", opening.client);
            let kind = match opening.intercepted.map(|intercepted| intercepted.original) {
                Some(Original::Ours(_)) => ProxyError::ProxyLoopDetected,
                Some(Original::Here(_)) => ProxyError::DestinationNotFound,
                _ => ProxyError::HttpRequestDenied,
            };
            self.guard.note(service, "", kind, &detail, self.now);
        }
    }

    /// Opens a tunnel to the destination for a client's connection that does not speak HTTP.
    pub(super) fn begin_tunnel(&mut self, slot: u32) {
        let now = self.now;
        self.with_side(slot, |sidecar, side| {
            let Some(&Intercepted { original: Original::At(to), .. }) = side.intercepted.as_deref() else {
                return Ok(());
            };
            if !side.engine.is_tunnel() {
                return Ok(());
            }
            let request = Request {
                method: "CONNECT",
                authority: "",
                path: "",
                fields: &[],
                body_length: None,
                end_stream: false,
            };
            let Some(stream) = side.engine.send_request(now, &request) else { return Ok(()) };
            let Some(service) = sidecar.pools.service(ORIGINAL) else { return Ok(()) };
            let id = sidecar.exchanges.begin();
            side.streams.insert(stream, id);
            sidecar.totals.requests += 1;
            let exchange = sidecar.exchanges.get(id);
            exchange.down = Some(StreamAt { slot, serial: side.serial, stream });
            (exchange.service, exchange.began_at) = (service, now);
            exchange.destination = Some((to, Speaks::Tcp));
            exchange.asked.connect = true;
            // Nothing can be sent to this client but the end of its connection.
            exchange.is_answered = true;
            exchange.head.set(Part::Method, b"CONNECT");
            exchange.head.set(Part::Authority, to.to_string().as_bytes());
            sidecar.observer.began(exchange, &side.peer, side.version, Some(service));
            if let Peer::Client { listener, address } = &side.peer {
                sidecar.admit_request(id, *listener, address, now);
            }
            Ok(())
        });
    }

    /// Whether an exchange is a tunnel to its destination whose client may still send. Neither end is aware of the
    /// tunnel (RFC 9110 §9.3.6 would end it): each direction ends by itself, as in any connection.
    pub(super) fn is_half_open(&mut self, id: u32) -> bool {
        let exchange = self.exchanges.get(id);
        let is_open = exchange.is_raw() && !exchange.request.is_done();
        let Some(up) = exchange.up.filter(|_| is_open) else { return false };
        side_at(&mut self.slots, up).is_some_and(|side| !side.is_closed)
    }

    /// Records a connection that is being dialled: it is recognised if it comes back to one of our listeners.
    pub(super) fn note_dial(&mut self, slot: u32, to: &Endpoint) {
        let (Endpoint::Tcp(to), true) = (to, self.config.file.is_transparent()) else { return };
        let local = self.reactor.connecting(Self::token(slot)).and_then(|stream| stream.local_address().ok());
        if let Some(from) = local.map(canonical) {
            let ends = Dialled { from, to: canonical(*to) };
            self.config.sockets.dialled(ends);
            self.destinations.dialled.insert(slot, ends);
        }
    }

    /// There is no connection in this slot any more.
    pub(super) fn forget_dial(&mut self, slot: u32) {
        if let Some(ends) = self.destinations.dialled.remove(&slot) {
            self.config.sockets.hung_up(ends);
        }
    }
}

/// Whether connections can get the mark that the file asks for.
pub fn check_mark(config: &SidecarConfig) -> Result<(), SidecarError> {
    match config.file.mark {
        Some(_) => intercept::may_mark().map_err(SidecarError::Mark),
        None => Ok(()),
    }
}
