//! What is different where the transport is QUIC.
//!
//! An HTTP/3 connection is a [`Side`] as any other: its engine takes the same calls, and its transport moves the bytes of its streams.
//! This module does what the kernel does for TCP, but not for QUIC: readings of the path, PINGs, room for streams.

use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_net::quic::QuicSession;
use h2lab_net::transport::Transport;
use h2lab_proxy::fields::Version;
use h2lab_proxy::pool::path::PathReading;
use h2lab_wire::{Config, Connection, FlowControl};

use super::pool::Pool;
use super::side::{LITTLE, Peer, Side};
use super::{Sidecar, guard};
use crate::client::connect::{ConnectError, DialTarget};

/// Streams that are opened ahead of the requests that will use them, as far as the instance grants them.
const AHEAD: u32 = 500;
/// Stream windows of QUIC. They do not grow with the path as those of HTTP/2 do: 20 MB/s for one body at a round trip of 25 ms.
const STREAM_WINDOW: u32 = 512 * 1024;
/// The number of streams of which a connection may hold all unread bytes that their windows allow. With fewer, a few
/// slow readers would stop the other streams; with more, one connection could use up the memory of all.
const FULL_STREAMS: u32 = 128;
/// The same where memory is short: so many times the largest window of one stream of HTTP/2, which is an eighth of the
/// memory of all.
const LARGEST_STREAMS: u32 = 64;
/// Bytes that a peer may leave unacknowledged on a connection: what Linux gives a TCP socket (`tcp_wmem`).
const UNACKNOWLEDGED: u64 = 4 << 20;
/// After so long, an instance that did not answer over QUIC is asked over it again: the obstacle may be gone.
const WITHOUT: Duration = Duration::from_secs(300);

/// How an instance is dialled over QUIC. `has_other`: it may be asked over TCP, so that half of the time is left for that.
pub fn prepare(target: &mut DialTarget, has_other: bool) {
    target.engine.flow = flow(&target.engine.flow);
    if has_other {
        target.connect_timeout /= 2;
    }
}

/// The settings of the engine of a client's connection.
pub fn server(config: &Config) -> Config {
    Config { tls: true, flow: flow(&config.flow), ..*config }
}

/// The windows of QUIC that correspond to these of HTTP/2. QUIC keeps what nobody reads, so the connection has a
/// window, too: 64 MiB, or an eighth of the memory of all.
fn flow(of_http2: &FlowControl) -> FlowControl {
    let stream_window = STREAM_WINDOW.min(2 * of_http2.stream_window);
    let most = of_http2.auto_limit.map_or(u32::MAX, |limit| limit.saturating_mul(LARGEST_STREAMS));
    let connection_window =
        most.min(STREAM_WINDOW * FULL_STREAMS).max(4 * stream_window).min(of_http2.connection_window);
    FlowControl { stream_window, connection_window, ..*of_http2 }
}

/// Bounds what a connection holds for its peer.
pub fn bound(quic: &mut QuicSession) {
    quic.limit_unacknowledged(UNACKNOWLEDGED);
}

/// The engine of a connection to an instance.
pub fn engine(transport: &mut Transport, target: &DialTarget, now: Time) -> Connection {
    if let Some(quic) = transport.quic_mut() {
        quic.expect_streams(AHEAD);
        bound(quic);
    }
    Connection::h3(target.engine, now)
}

/// QUIC's measurements of a connection's path, in the form that the kernel reports for TCP: packets count as segments.
pub fn reading(quic: &QuicSession, side: &Side) -> PathReading {
    let (summary, tick) = (quic.summary(), quic.tick(Time::ZERO, 0));
    PathReading {
        rtt: Duration::from_micros(summary.rtt_us.into()),
        min_rtt: Duration::from_micros(summary.min_rtt_us.into()),
        window: tick.cwnd,
        in_flight: tick.unacked,
        unsent: u32::try_from(side.engine.unsent()).unwrap_or(u32::MAX),
        is_repairing: false, // other streams do not wait for that
        sent: summary.packets_sent,
        lost: summary.packets_lost,
        received: summary.datagrams_received,
        requests: side.requests.into(),
        bytes_sent: summary.datagram_bytes_sent,
        bytes_received: summary.datagram_bytes_received,
        is_by_stream: true,
    }
}

impl Pool {
    /// Tries HTTP/3 again, some time after it has failed.
    pub fn try_http3(&mut self, now: Time) {
        let is_due = self.known > 0 && now.since(self.without_http3_at) >= WITHOUT;
        if is_due && self.targets[0].protocol.is_quic() {
            self.known = 0;
        }
    }
}

impl Sidecar<'_> {
    /// An instance was not reached over HTTP/3: it is asked over TCP from now on.
    pub(super) fn without_http3(&mut self, instance: u32, error: &ConnectError, now: Time) {
        let pool = self.pools.get(instance);
        pool.without_http3_at = now;
        if !pool.standing.may_tell_of_http3(now, WITHOUT) {
            return; // another loop has reported it
        }
        let (_, why) = guard::in_short(error);
        let text =
            format!("{} is unreachable over HTTP/3 ({why}): falling back to HTTP/2 or HTTP/1.1", pool.name);
        self.live.report(&text);
    }

    /// Writing opens streams that the instance has granted: requests that wait may get one.
    pub(super) fn call_granted(&mut self, side: &Side) {
        if side.version == Version::H3 && matches!(side.peer, Peer::Instance(_)) {
            self.call(side);
        }
    }
}

impl Side {
    /// Asks the peer whether it is there.
    pub fn ask(&mut self, now: Time) {
        self.engine.ping(now);
        if let Some(quic) = self.transport.quic_mut() {
            quic.ping();
        }
    }

    /// How much QUIC may hold for its peer, in both directions: little, or as much as `config` allows.
    pub fn limit_quic(&mut self, is_tight: bool, config: &Config) {
        if let Some(quic) = self.transport.quic_mut() {
            let window = if is_tight { LITTLE } else { flow(&config.flow).connection_window };
            quic.limit_window(window);
            quic.limit_unacknowledged(if is_tight { LITTLE.into() } else { UNACKNOWLEDGED });
        }
    }

    /// Whether nothing is left to do of a QUIC connection that was closed: it answers a client that has not noticed the end.
    pub(super) fn is_quic_over(&mut self, now: Time) -> Result<bool, h2lab_net::transport::TransportError> {
        self.transport.flush(now)?;
        Ok(self.transport.quic().is_none_or(QuicSession::is_drained))
    }
}

#[cfg(test)]
mod tests {
    use h2lab_proxy::guard::memory::{Memory, largest_window, share};
    use h2lab_wire::Role;

    use super::*;

    #[test]
    fn what_one_connection_may_hold_is_a_part_of_the_memory() {
        let flow_within = |room: u64| {
            let mut of = Config::new(Role::Server).flow;
            (of.stream_window, of.connection_window) = (share(room), i32::MAX as u32);
            of.auto_limit = Some(largest_window(room));
            flow(&of)
        };
        for bytes in [64 << 20, 96 << 20, 512 << 20] {
            let room = Memory::new(bytes, 1).room();
            let flow = flow_within(room);
            assert!(u64::from(flow.connection_window) <= room / 8, "{bytes}: {flow:?}");
            assert!(
                flow.connection_window >= 64 * flow.stream_window,
                "{bytes}: a few may be slow: {flow:?}"
            );
        }
        assert_eq!(flow_within(64 << 30).connection_window, 64 << 20, "whatever there is");
    }
}
