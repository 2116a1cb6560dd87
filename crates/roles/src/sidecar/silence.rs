//! Instances over QUIC that no longer have a connection, because they were started anew: see
//! [`h2lab_proxy::pool::silence`].
//!
//! A connection on which nothing is acknowledged is suspect: another one is dialled beside it, and further requests
//! wait for that. The connection may have been slow, and continues if it answers. Once another connection is answered
//! and this one still is not, the requests on it that may be sent again are sent again. Those that may not, since they
//! may have been processed, stay until the connection is given up by `timeouts.ping`.
//!
//! A connection without a request is probed each `timeouts.ping`, as the kernel does over TCP. So the request that
//! follows is not delayed by it, and the instance's idle timeout ([`h2lab_net::quic`]) does not end what
//! `timeouts.idle` keeps. All loops are notified when an instance has gone: each doubts its connections on which
//! nothing has arrived since.

use std::io;

use h2lab_base::units::Time;
use h2lab_net::transport::TransportError;
use h2lab_proxy::config::RetryOn;
use h2lab_proxy::retry::Fate;
use h2lab_wire::ErrorCode;

use super::observe::Again;
use super::pool::Pool;
use super::side::{Peer, Side};
use super::{Sidecar, Slot, mark};

impl Side {
    /// Whether the instance may be gone: requests go elsewhere if they can.
    pub fn is_doubted(&self, pool: &Pool) -> bool {
        self.liveness.is_doubted() || self.is_silent(pool)
    }

    /// Whether it is a connection over QUIC that the instance has probably lost.
    pub fn is_silent(&self, pool: &Pool) -> bool {
        self.is_lost(pool.standing.gone_at())
    }

    /// The same, where the instance has lost its connections at `gone_at`.
    fn is_lost(&self, gone_at: Time) -> bool {
        let is_suspect = self.silence.as_ref().map(|silence| silence.is_suspect());
        is_suspect.is_some_and(|is_suspect| is_suspect || gone_at > self.liveness.heard_at())
    }
}

impl Sidecar<'_> {
    /// Checks whether the instance of a connection over QUIC answers.
    pub(super) fn check_silence(&mut self, slot: u32, now: Time) {
        let Slot::Open(side) = &mut self.slots[slot as usize] else { return };
        let (Peer::Instance(instance), Some(quic), Some(silence)) =
            (&side.peer, side.transport.quic_mut(), &mut side.silence)
        else {
            return;
        };
        if side.is_closed {
            return;
        }
        let instance = *instance;
        let was_suspect = silence.is_suspect();
        let rtt = side.path.as_ref().map_or_else(Default::default, |path| path.now.rtt);
        if silence.look(now, quic.traffic(), rtt) {
            side.liveness.heard(now);
        }
        let waits = side.streams.len() > 0;
        let (since, is_suspect, is_over) = (silence.since(), silence.is_suspect(), silence.is_over());
        let pool = self.pools.get(instance);
        let ping = self.config.file.timeouts.ping;
        let is_due = !ping.is_zero() && !pool.refuses_pings && now.since(side.liveness.heard_at()) >= ping;
        let is_told = pool.standing.gone_at() > side.liveness.heard_at();
        let is_new = is_suspect && !was_suspect;
        // Once more if it is suspect: an instance that was stopped reads this first.
        if is_new || (since.is_none() && (is_told || (is_due && !waits))) {
            quic.ping();
            mark(side, slot, &mut self.dirty);
        }
        if is_new && waits {
            side.liveness.ask(now); // from now on it has as long to answer as any other
        }
        let Some(since) = since.filter(|_| is_suspect) else { return };
        let is_replaced = self.is_answered_elsewhere(instance, slot, since);
        if !waits && (is_replaced || is_over) {
            self.tell_gone(instance, is_told, since);
            self.end_silent(slot, instance);
        } else if waits && is_replaced {
            self.tell_gone(instance, is_told, since);
            self.move_on(slot);
        } else if waits && is_new {
            self.dial_more(instance, now);
        }
    }

    /// Whether anything has arrived from an instance on another connection.
    fn is_answered_elsewhere(&self, instance: u32, slot: u32, since: Time) -> bool {
        let pool = &self.pools.all[instance as usize];
        pool.connections.iter().filter(|other| **other != slot).any(|other| {
            matches!(&self.slots[*other as usize], Slot::Open(side)
                if !side.is_closed && side.liveness.heard_at() > since && !side.is_silent(pool))
        })
    }

    /// Makes all loops doubt connections on which nothing has arrived since then. If it `is_told` already that this one
    /// is lost, what was sent on it later says nothing about connections that were made meanwhile.
    fn tell_gone(&mut self, instance: u32, is_told: bool, since: Time) {
        if !is_told {
            self.pools.get(instance).standing.gone(since);
        }
    }

    /// Ends a connection without a request on which nothing is answered.
    fn end_silent(&mut self, slot: u32, instance: u32) {
        let pool = self.pools.get(instance);
        pool.connections.retain(|other| *other != slot);
        if let Slot::Open(side) = &mut self.slots[slot as usize] {
            side.engine.goaway(self.now, ErrorCode::NO_ERROR, b"nothing is acknowledged");
            mark(side, slot, &mut self.dirty);
        }
    }

    /// Starts requests on a connection on which nothing is answered again elsewhere, if they may be sent twice; only
    /// once each.
    fn move_on(&mut self, slot: u32) {
        self.with_side(slot, |sidecar, side| {
            let now = sidecar.now;
            let requests: Vec<_> = side.streams.iter().filter(|(_, id)| !sidecar.was_tried(*id)).collect();
            for (stream, id) in requests {
                sidecar.observer.reason = Again::Ended;
                if sidecar.repeats(id, Fate::Unknown, RetryOn::Reset, now) {
                    side.streams.remove(stream);
                    side.cancel(stream, now);
                    sidecar.repeat(id, Fate::Unknown, now);
                }
                sidecar.exchanges.get(id).was_tried = true;
            }
            Ok(())
        });
    }

    /// Whether this request was already tried elsewhere, or it was decided that it may not be.
    fn was_tried(&mut self, id: u32) -> bool {
        self.exchanges.get(id).was_tried
    }

    /// If all of an instance's connections over QUIC seem to be gone, dials another one before a request is placed.
    pub(super) fn replace_silent(&mut self, instance: u32, now: Time) {
        let pool = &self.pools.all[instance as usize];
        let is_silent =
            |slot: &u32| matches!(&self.slots[*slot as usize], Slot::Open(side) if side.is_silent(pool));
        let is_quic = pool.targets[pool.known].protocol.is_quic() && !pool.connections.is_empty();
        if is_quic && !pool.is_single() && pool.connections.iter().all(is_silent) {
            self.dial_more(instance, now);
        }
    }

    /// The fate of the requests of a connection that broke with `error`.
    ///
    /// An error that nobody listens on the port refers to one datagram. A process that opens the port later does not
    /// have the connection, so nobody read what was sent after that datagram. If that was the only datagram in a while,
    /// everything in it is known not to have arrived.
    pub(super) fn fate_of_break(&mut self, side: &Side, error: &TransportError) -> Fate {
        let (Peer::Instance(instance), Some(quic), TransportError::Io(error)) =
            (&side.peer, side.transport.quic(), error)
        else {
            return Fate::Unknown;
        };
        let is_refused = error.kind() == io::ErrorKind::ConnectionRefused;
        if is_refused || error.kind() == io::ErrorKind::ConnectionReset {
            self.pools.get(*instance).standing.gone(self.now);
        }
        let before = quic.before_only_datagram().filter(|_| is_refused);
        let is_in_it = |id| before.is_some_and(|before| self.exchanges.get(id).sent_at > before);
        let mut ids = side.streams.iter().map(|(_, id)| id);
        if ids.all(is_in_it) { Fate::Unprocessed } else { Fate::Unknown }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use h2lab_net::byte_stream::ByteStream;
    use h2lab_net::tcp::{ConnectOptions, Listener, StreamSocket};
    use h2lab_net::transport::Transport;
    use h2lab_proxy::fields::Version;
    use h2lab_wire::{Config, Connection, Role};

    use super::*;

    #[test]
    fn what_another_loop_has_found_holds_for_connections_on_which_nothing_has_come_since() {
        let listener = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let to = listener.local_address().unwrap().into();
        let transport = Transport::Stream(ByteStream::clear(
            StreamSocket::connect(&to, &ConnectOptions::default()).unwrap(),
        ));
        let engine = Connection::h3(Config::new(Role::Client), Time::ZERO);
        let mut side = Side::new(transport, engine, Version::H3, Peer::Instance(0));
        let (before, gone_at, after) = (Time::from_millis(1), Time::from_millis(2), Time::from_millis(3));
        side.liveness.heard(before);
        assert!(!side.is_lost(gone_at), "over TCP the kernel says it");
        side.silence = Some(Box::default());
        assert!(side.is_lost(gone_at) && !side.is_lost(before));
        side.liveness.heard(after);
        assert!(!side.is_lost(gone_at), "it is a new one, or was not lost");
    }
}
