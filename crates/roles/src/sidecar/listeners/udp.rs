//! UDP ports of listeners, for HTTP/3. A port is the one of TCP with the same number.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use h2lab_net::quic::QuicEndpoint;
use h2lab_net::reactor::{Reactor, Token};
use h2lab_proxy::config::Listen;

use super::{FIRST, Listeners, PLACES, Place, WAKEUP};
use crate::sidecar::config::SidecarError;
use crate::sidecar::live::Live;
use crate::sidecar::sockets::Sockets;

/// A UDP port.
#[derive(Debug)]
pub struct UdpPort {
    endpoint: Arc<QuicEndpoint>,
    /// It takes connections. Without it, it serves those that it has.
    is_open: bool,
}

impl UdpPort {
    /// Takes no more connections; those that it has continue.
    pub(super) fn close(&mut self) {
        self.is_open = false;
        self.refuse();
    }

    /// The same, at the end of the sidecar.
    pub(super) fn refuse(&self) {
        self.endpoint.refuse();
    }
}

/// The token of the UDP port in this place.
const fn token(place: u32) -> Token {
    Token(WAKEUP.0 + 1 + place)
}

impl Listeners {
    /// Listens over UDP, if that is asked for; `address` is the one over TCP.
    pub(super) fn listen_http3(
        &mut self,
        (sockets, listen): (&Sockets, &Listen),
        (place, address): (&mut Place, SocketAddr),
        at: u32,
        reactor: &mut Reactor,
    ) -> Result<(), SidecarError> {
        let Some((_, tls)) = place.tls.as_ref().filter(|_| listen.h3) else { return Ok(()) };
        if let Some(port) = self.udp.get_mut(&at) {
            // It was closed, and earlier clients still use it.
            port.endpoint.accept_with(tls)?;
            port.is_open = true;
            sockets.uses(address, &port.endpoint)?;
            place.alt_svc = listen.alt_svc_field(address.port());
            return Ok(());
        }
        let listened = sockets.datagrams(address).and_then(|socket| {
            let endpoint = QuicEndpoint::listen_on(socket, tls, reactor.clock())?;
            sockets.uses(address, &endpoint)?;
            reactor.submit_datagrams(token(at), &endpoint)?;
            Ok(endpoint)
        });
        let endpoint = listened.map_err(|source| SidecarError::ListenUdp { address, source })?;
        place.alt_svc = listen.alt_svc_field(address.port());
        self.udp.insert(at, UdpPort { endpoint, is_open: true });
        Ok(())
    }

    /// The place of a removed listener at the address of a new one, if its UDP port still has clients. Nobody else can
    /// have the port, so the new listener takes that place.
    pub(super) fn left_with_udp(&self, listen: &Listen) -> Option<usize> {
        let is_at = |place: &Place| place.listening.is_some_and(|tcp| tcp.address == listen.address);
        let is_left = |at: &usize| {
            let place = &self.places[*at];
            !place.is_open && is_at(place) && self.udp.contains_key(&(*at as u32))
        };
        (0..self.places.len()).find(|at| listen.h3 && is_left(at))
    }

    /// Starts or ends HTTP/3 in a place that stays, as the configuration says now.
    pub(super) fn follow_http3(
        &mut self,
        at: u32,
        (sockets, listen): (&Sockets, &Listen),
        reactor: &mut Reactor,
        live: &Live,
    ) -> Result<(), SidecarError> {
        let place = &mut self.places[at as usize];
        let Some(address) = place.listening.map(|listening| listening.address) else { return Ok(()) };
        let tls = place.tls.as_ref().filter(|_| listen.h3).map(|(_, tls)| tls);
        match (self.udp.get_mut(&at), tls) {
            (Some(port), Some(tls)) => {
                port.endpoint.accept_with(tls)?;
                if !std::mem::replace(&mut port.is_open, true) {
                    sockets.uses(address, &port.endpoint)?;
                    live.report(&format!("listening https://{address} h3"));
                }
                place.alt_svc = listen.alt_svc_field(address.port());
            }
            (None, Some(_)) => {
                let mut place = place.clone();
                self.listen_http3((sockets, listen), (&mut place, address), at, reactor)?;
                self.places[at as usize] = place;
                live.report(&format!("listening https://{address} h3"));
            }
            (Some(port), None) => {
                port.close();
                sockets.close_datagrams(address);
            }
            (None, None) => {}
        }
        Ok(())
    }

    /// The place of a UDP port, by its token.
    pub const fn udp_place(token: Token) -> Option<u32> {
        if token.0 > WAKEUP.0 && token.0 < FIRST { Some(token.0 - WAKEUP.0 - 1) } else { None }
    }

    /// Places that may have a UDP port.
    pub fn udp_places(&self) -> Vec<u32> {
        self.udp.keys().copied().collect()
    }

    /// The UDP port in this place.
    pub fn endpoint(&self, place: u32) -> Option<Arc<QuicEndpoint>> {
        self.udp.get(&place).map(|port| Arc::clone(&port.endpoint))
    }

    /// Whether the UDP port in this place takes connections.
    pub fn is_udp_open(&self, place: u32) -> bool {
        self.udp.get(&place).is_some_and(|port| port.is_open)
    }

    /// Gives a UDP port back that takes no connections and has none.
    pub fn release_udp(&mut self, place: u32, reactor: &mut Reactor) {
        if !self.is_udp_open(place)
            && let Some(port) = self.udp.remove(&place)
        {
            reactor.withdraw(token(place), &port.endpoint);
        }
    }

    /// Stops or resumes reading the UDP ports.
    pub fn read_udp(&self, is_read: bool, reactor: &mut Reactor) -> io::Result<()> {
        for (place, port) in &self.udp {
            reactor.withdraw(token(*place), &port.endpoint);
            if is_read {
                reactor.submit_datagrams(token(*place), &port.endpoint)?;
            }
        }
        Ok(())
    }

    /// Keeps no port that another process has, too. These are not read, and connections have sockets of their own.
    pub fn give_up_udp(&self) {
        for port in self.udp.values() {
            // Without a file descriptor to spare it stays open until this process ends.
            let _ = port.endpoint.give_up_port();
        }
    }

    /// The announcement of a listener's HTTP/3 in its responses.
    pub fn alt_svc(&self, listener: u32) -> Option<&str> {
        self.places.get(listener as usize)?.alt_svc.as_deref()
    }
}

const _: () = assert!(FIRST == WAKEUP.0 + 1 + PLACES, "each place has a token for its UDP port");
