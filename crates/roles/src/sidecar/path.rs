//! The paths of connections: what the kernel counts, how many connections an instance wants for that, and probes of the tail.

use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_net::tcp::StreamSocket;
use h2lab_net::tcp_info::TcpInfo;
use h2lab_proxy::config::Policy;
use h2lab_proxy::fields::Version;
use h2lab_proxy::pool::dials::MOST_ADAPTIVE;
use h2lab_proxy::pool::estimate::Interval;
use h2lab_proxy::pool::path::PathReading;
use h2lab_proxy::pool::place::{self, Room};
use h2lab_proxy::pool::probe::Probe;
use h2lab_wire::ErrorCode;

use super::side::{Peer, Side};
use super::{Sidecar, Slot, http3, mark, side};

/// How often connections are checked.
const CHECK_PERIOD: Duration = Duration::from_millis(100);
/// How old a reading may be when a request is placed by it.
const FRESH: Duration = Duration::from_millis(5);
/// Paths that lose more than this share of their packets are probed.
const LOSSY: f64 = 0.002;
/// The factor that is applied to counts of losses at each look: half is left after five seconds.
const LOSS_DECAY: f64 = 0.986;

/// What is known of the path of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Path {
    /// At the last look.
    before: PathReading,
    /// The last reading.
    pub now: PathReading,
    /// Segments of requests that were placed since.
    pub added: u32,
    /// Segments that were sent and lost lately.
    recent: [f64; 2],
    /// Whether the end of what is sent is to be probed.
    is_probed: bool,
    /// Something was put into the engine that waits for an answer.
    is_asking: bool,
    /// PINGs that follow it.
    probe: Probe,
    /// What has arrived waits for a segment that is missing.
    has_gap: bool,
}

impl Default for Path {
    fn default() -> Self {
        let reading = PathReading::default();
        Self {
            before: reading,
            now: reading,
            added: 0,
            recent: [0.0; 2],
            is_probed: false,
            is_asking: false,
            probe: Probe::default(),
            has_gap: false,
        }
    }
}

impl Path {
    /// A part of a message was put into the engine.
    const fn carries(&mut self, segments: u32) {
        self.added += segments;
        self.is_asking = true;
    }

    /// All that the engine had went into the socket.
    pub fn sent(&mut self, now: Time) {
        if std::mem::take(&mut self.is_asking) && self.is_probed {
            self.probe.sent(now, self.now.rtt);
        }
    }

    /// When a probe may be due.
    pub fn probe_at(&self) -> Time {
        self.probe.at()
    }

    /// Takes over a reading. `waits`: responses are waited for.
    fn read(&mut self, mut reading: PathReading, waits: bool) {
        self.has_gap = waits
            && (reading.has_gap_since(&self.now)
                || self.has_gap && reading.bytes_received == self.now.bytes_received);
        reading.is_repairing |= self.has_gap;
        (self.now, self.added) = (reading, 0);
    }

    /// The readings of the last look and of now.
    fn look(&mut self) -> (PathReading, PathReading) {
        let before = std::mem::replace(&mut self.before, self.now);
        let [sent, lost] = &mut self.recent;
        *sent = *sent * LOSS_DECAY + self.now.sent.saturating_sub(before.sent) as f64;
        *lost = (*lost * LOSS_DECAY + self.now.lost_since(&before) as f64).max(0.0);
        self.is_probed = *lost > LOSSY * *sent;
        (before, self.now)
    }
}

impl Side {
    /// The path of a connection. For a client's over HTTP/1.1 there is none: it has one request at a time, and is not
    /// chosen.
    pub fn path_of(version: Version, peer: &Peer) -> Option<Box<Path>> {
        (version != Version::H1 || matches!(peer, Peer::Instance(_))).then(Box::default)
    }

    /// A part of a message was put into the engine.
    pub fn carries(&mut self, segments: u32) {
        if let Some(path) = &mut self.path {
            path.carries(segments);
        }
    }

    /// Reads its path again.
    fn read_path(&mut self) -> bool {
        let waits = self.streams.len() > 0;
        let Some(reading) = self.path.as_ref().and_then(|_| reading(self)) else { return false };
        if let Some(path) = &mut self.path {
            path.read(reading, waits);
        }
        true
    }

    /// Whether a probe is due, which is then sent.
    pub fn is_probe_due(&mut self, now: Time) -> bool {
        if self.path.as_ref().is_none_or(|path| now < path.probe.at()) {
            return false;
        }
        let written = self.transport.tcp().map_or(0, StreamSocket::written);
        let is_read = self.read_path();
        let pings = self.engine.pings_since_message();
        let Some(Path { now: reading, probe, .. }) = self.path.as_deref_mut() else { return false };
        if is_read {
            return probe.is_due(now, reading.rtt, pings, || (reading.bytes_sent, written));
        }
        *probe = Probe::default();
        false
    }
}

/// Asks the kernel.
fn reading(side: &Side) -> Option<PathReading> {
    if let Some(quic) = side.transport.quic() {
        return Some(http3::reading(quic, side));
    }
    let info = TcpInfo::of(side.transport.tcp()?).ok()?;
    // Of a connection that we dialled our SYN is acknowledged, too.
    let syn = u64::from(matches!(side.peer, Peer::Instance(_)));
    Some(PathReading {
        rtt: Duration::from_micros(info.rtt_us.into()),
        min_rtt: Duration::from_micros(info.min_rtt_us.into()),
        window: info.cwnd,
        in_flight: info.unacked,
        unsent: info.unsent_bytes,
        is_repairing: info.is_repairing,
        sent: info.segments_out.into(),
        lost: info.retransmits.saturating_sub(info.spurious).into(),
        received: info.segments_in.into(),
        requests: side.requests.into(),
        bytes_sent: info.bytes_acked.saturating_sub(syn),
        bytes_received: info.bytes_received,
        is_by_stream: false,
    })
}

impl Sidecar<'_> {
    /// Checks the paths of all connections that carry streams, and adapts the number of connections.
    pub(super) fn look(&mut self, now: Time) {
        if now < self.look_at {
            return;
        }
        self.look_at = now + CHECK_PERIOD;
        for slot in &mut self.slots {
            if let Slot::Open(side) = slot
                && side.version != Version::H1
                && side.read_path()
                && matches!(side.peer, Peer::Client { .. })
                && let Some(path) = &mut side.path
            {
                path.look();
            }
        }
        for instance in 0..self.pools.count() {
            self.adapt(instance, now);
        }
    }

    /// Adapts the number of connections to an instance to what its path needs.
    fn adapt(&mut self, instance: u32, now: Time) {
        let most = self.pools.portion.part(MOST_ADAPTIVE);
        let pool = self.pools.get(instance);
        if pool.policy != Policy::Adaptive || pool.is_single() {
            return;
        }
        let mut interval = Interval::default();
        for slot in &pool.connections {
            // A connection without any answer shows nothing of the path.
            if let Some(side) = side(&mut self.slots, *slot)
                && !side.silence.as_ref().is_some_and(|silence| silence.is_suspect())
                && let Some(path) = &mut side.path
            {
                let (before, after) = path.look();
                interval.add(&before, &after);
            }
        }
        pool.read_at = now;
        // An instance that gets no requests may never be used.
        let is_used = interval.has_requests() || pool.load.open > 0;
        pool.wanted = pool.estimate.look(now, interval, most);
        let lossy = pool.estimate.loss() > LOSSY && !pool.refuses_pings;
        let wanted = pool.wanted as usize;
        for slot in pool.connections.clone() {
            if let Some(side) = side(&mut self.slots, slot)
                && let Some(path) = &mut side.path
            {
                // QUIC has probes of its own (RFC 9002 §6.2).
                path.is_probed = lossy && side.version == Version::H2;
            }
        }
        let there = self.lasting(instance).len();
        if there > wanted {
            self.retire(instance, now);
        } else if there > 0 && is_used {
            self.dial_more(instance, now);
        }
    }

    /// A connection takes no more requests, and ends with its last one, if the others have room for them.
    fn retire(&mut self, instance: u32, now: Time) {
        let (slots, rooms): (Vec<u32>, Vec<Room>) = self.lasting(instance).into_iter().unzip();
        let Some(slot) = place::to_retire(&rooms).map(|index| slots[index]) else { return };
        self.pools.get(instance).connections.retain(|other| *other != slot);
        if let Some(side) = side(&mut self.slots, slot) {
            side.engine.goaway(now, ErrorCode::NO_ERROR, b"fewer connections are enough");
            side.retire();
            mark(side, slot, &mut self.dirty);
        }
    }

    /// Reads the paths of an instance's connections again, if what is known of them is old.
    pub(super) fn refresh(&mut self, instance: u32, now: Time) {
        let pool = self.pools.get(instance);
        if pool.is_single() || pool.connections.len() < 2 || now.since(pool.read_at) < FRESH {
            return;
        }
        pool.read_at = now;
        for slot in &pool.connections {
            if let Some(side) = side(&mut self.slots, *slot) {
                side.read_path();
            }
        }
    }
}
