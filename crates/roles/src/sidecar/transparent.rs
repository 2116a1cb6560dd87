//! Connections that were made to another address and that the kernel brings to a listener: what they carry goes where a route says, or
//! where they were to go.
//!
//! Each destination is an instance of the service `original`, found when it is first needed, and forgotten when it is not used any more.

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

/// Destinations that all loops together keep at most.
const MOST: u32 = 1_024;
/// One that was not used for so long, and has no connection, is forgotten.
const UNUSED: Duration = Duration::from_secs(60);
/// How often these are looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// The service of a request; else the status with which it is refused, and why.
type Routed = Result<u32, (u16, &'static str)>;

/// For what its first bytes are waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detection {
    /// For any.
    First,
    /// For so many that they tell what it is.
    More,
    /// It has said too little for too long: its server speaks first, or what it says is no HTTP.
    Over,
}

/// A connection that came to a transparent listener.
#[derive(Debug, Clone, Copy)]
pub struct Intercepted {
    /// What the listener does with such.
    how: Interception,
    /// Where it was to go.
    pub original: Original,
    detection: Detection,
    /// When [`Detection::More`] ends.
    until: Time,
}

impl Intercepted {
    /// What the kernel knows of a connection. `listening`: the addresses of all listeners; `until`: when it must have said what it is.
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

    /// One of which it is known where it was to go.
    pub const fn again(how: Interception, original: Original, until: Time) -> Self {
        Self { how, original, detection: Detection::First, until }
    }

    /// When it is to be looked whether it has said anything.
    pub fn look_at(&self, now: Time) -> Time {
        now + self.how.detect
    }

    /// Finds out what it speaks, from bytes that are kept in `first_bytes`; `None` if that is not HTTP, and passes. An error if it is
    /// refused.
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

    /// It has said too little for now; until when it may go on so, if it may.
    pub fn wait_on(&mut self, has_said_anything: bool) -> Option<Time> {
        self.detection = match self.detection {
            Detection::First if has_said_anything => Detection::More,
            Detection::First | Detection::More => Detection::Over,
            Detection::Over => return None,
        };
        Some(self.until)
    }
}

/// The engine of a client's connection that is no HTTP.
pub fn tunnel(config: &Config) -> (Connection, Version) {
    (Connection::tunnel(*config), Version::H1)
}

/// One of IPv4 that a socket of IPv6 reports is one of IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Has a listener take connections of other addresses, where it is to.
pub fn take_foreign(listen: &Listen, socket: impl std::os::fd::AsFd) -> Result<(), SidecarError> {
    if listen.transparent != Some(Transparent::Tproxy) {
        return Ok(());
    }
    intercept::take_foreign(socket).map_err(|source| tproxy_error(listen, source))
}

fn tproxy_error(listen: &Listen, source: io::Error) -> SidecarError {
    SidecarError::Tproxy { address: listen.address, source }
}

/// Looks whether a listener that is not what it was at this address can become so; the socket that is there does.
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
    /// Service and instance of addresses that are instances of a service, as of a version of the state.
    known: HashMap<SocketAddr, (u32, u32)>,
    known_at: Option<u64>,
    /// Connections that this loop has dialled, by place.
    dialled: HashMap<u32, Dialled>,
    sweep_at: Time,
}

impl Sidecar<'_> {
    /// The service of a request that came on this connection, where no route takes it: that of which its destination is an instance, or
    /// `original`, with that destination. `routed`: what the routes say.
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
            // Its caller has chosen it. Where it fails, another one may be asked.
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

    /// Finds the instance of a request that is for a destination, at which it counts from now on; `false` if it is refused.
    pub(super) fn find_destination(&mut self, id: u32, now: Time) -> bool {
        let exchange = self.exchanges.get(id);
        let (Some((to, speaks)), None) = (exchange.destination, exchange.instance) else { return true };
        let service = exchange.service;
        let is_original = self.pools.service(ORIGINAL) == Some(service);
        let number = if is_original {
            self.original(to, speaks, now)
        } else {
            // Once: after a failure, or where it is gone, the service decides.
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

    /// The instance of `original` that is this destination.
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

    /// Gives up destinations that nobody asks for any more.
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

    /// Gives up the destination that was used longest ago and carries nothing; `false` if all carry something.
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

    /// The timer of a connection has passed that has not said what it speaks.
    pub(super) fn open_late(&mut self, slot: u32) {
        let Slot::Opening(opening) = &mut self.slots[slot as usize] else { return };
        match opening.wait_on() {
            Some(until) => {
                self.reactor.set_timer(Self::token(slot), until);
                self.open(slot);
            }
            None => self.vacate(slot), // it has said too little for too long
        }
    }

    /// Says why a connection that was brought here is closed.
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

    /// A connection of a client that is no HTTP is a tunnel to where it was to go.
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
            // Nothing can be said to this client but the end of its connection.
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

    /// Whether an exchange is a tunnel to where it was to go whose client may still send. Neither end knows of a tunnel (RFC 9110 §9.3.6 would
    /// end it): each of its directions ends by itself, as of any connection.
    pub(super) fn is_half_open(&mut self, id: u32) -> bool {
        let exchange = self.exchanges.get(id);
        let is_open = exchange.is_raw() && !exchange.request.is_done();
        let Some(up) = exchange.up.filter(|_| is_open) else { return false };
        side_at(&mut self.slots, up).is_some_and(|side| !side.is_closed)
    }

    /// A connection is being dialled: where it comes back to a listener of ours it is known.
    pub(super) fn note_dial(&mut self, slot: u32, to: &Endpoint) {
        let (Endpoint::Tcp(to), true) = (to, self.config.file.is_transparent()) else { return };
        let local = self.reactor.connecting(Self::token(slot)).and_then(|stream| stream.local_address().ok());
        if let Some(from) = local.map(canonical) {
            let ends = Dialled { from, to: canonical(*to) };
            self.config.sockets.dialled(ends);
            self.destinations.dialled.insert(slot, ends);
        }
    }

    /// There is no connection in this place any more.
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
