//! What is different where the transport is QUIC.
//!
//! An HTTP/3 connection is a [`Side`] as any other: its engine takes the same calls, and its transport moves the bytes of its streams.
//! Here is what the kernel does for TCP and nobody for QUIC: readings of the path, PINGs, room for streams.

use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_net::quic::QuicSession;
use h2lab_net::transport::Transport;
use h2lab_proxy::fields::Version;
use h2lab_proxy::pool::path::PathReading;
use h2lab_wire::{Config, Connection, FlowControl};

use super::pool::Pool;
use super::side::{Peer, Side};
use super::{Sidecar, guard};
use crate::client::connect::{ConnectError, DialTarget};

/// Streams that are opened ahead of the requests that will use them, as far as the instance grants them.
const AHEAD: u32 = 500;
/// Stream windows of QUIC. They do not grow with the path as those of HTTP/2 do: 20 MB/s for one body at a round trip of 25 ms.
const STREAM_WINDOW: u32 = 512 * 1024;
/// Bytes that a peer may leave unacknowledged on a connection: what Linux gives a TCP socket (`tcp_wmem`).
const UNACKNOWLEDGED: u64 = 4 << 20;
/// An instance that did not answer over QUIC is asked over it again after so long: what was in the way may be gone.
const WITHOUT: Duration = Duration::from_secs(300);

/// How an instance is dialled over QUIC. `has_other`: it may be asked over TCP, so that half of the time is left for that.
pub fn prepare(target: &mut DialTarget, has_other: bool) {
    target.engine.flow.stream_window = STREAM_WINDOW.min(2 * target.engine.flow.stream_window);
    if has_other {
        target.connect_timeout /= 2;
    }
}

/// The settings of the engine of a client's connection.
pub fn server(config: &Config) -> Config {
    let stream_window = STREAM_WINDOW.min(2 * config.flow.stream_window);
    let flow = FlowControl { stream_window, ..config.flow };
    Config { tls: true, flow, ..*config }
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

/// What QUIC knows of a connection's path, as the kernel tells it of TCP's: packets are segments.
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
        retransmitted: summary.packets_lost,
        received: summary.datagrams_received,
        requests: side.requests.into(),
        bytes_sent: summary.datagram_bytes_sent,
        bytes_received: summary.datagram_bytes_received,
        is_by_stream: true,
    }
}

impl Pool {
    /// It is asked over HTTP/3 again, some time after that was in vain.
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
        let (_, why) = guard::in_short(error);
        let text = format!("{} is not reached over HTTP/3 ({why}): it gets HTTP/2 or HTTP/1.1", pool.name);
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

    /// How much QUIC may hold for its peer, in both directions.
    pub fn limit_quic(&mut self, is_plenty: bool, window: u32) {
        if let Some(quic) = self.transport.quic_mut() {
            quic.limit_window(window);
            quic.limit_unacknowledged(if is_plenty { UNACKNOWLEDGED } else { window.into() });
        }
    }

    /// Whether nothing is left to do of a QUIC connection that was closed: it answers a client that has not noticed the end.
    pub(super) fn is_quic_over(&mut self, now: Time) -> Result<bool, h2lab_net::transport::TransportError> {
        self.transport.flush(now)?;
        Ok(self.transport.quic().is_none_or(QuicSession::is_drained))
    }
}
