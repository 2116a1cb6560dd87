//! What is done from time to time: the paths of connections are read, and queries of the admin listener answered.

use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::sidecar::PathStatus;
use h2lab_net::tcp_info::TcpInfo;
use h2lab_net::transport::Transport;
use h2lab_proxy::fields::Version;

use super::admin_state::LoopHandle;
use super::{RECENT, unix};
use crate::sidecar::side::Peer;
use crate::sidecar::{Sidecar, Slot};

/// How often paths are read, and queries answered.
const CHECK_PERIOD: Duration = Duration::from_millis(100);
/// How often connections of HTTP/2 are read for the diagnosis: retransmissions must be visible beside what waited for
/// them.
const TICK: Duration = Duration::from_millis(10);
/// Rates are averaged over this.
const AVERAGED: Duration = Duration::from_secs(10);

impl Sidecar<'_> {
    /// An exchange is over.
    pub(in crate::sidecar) fn note_answered(&mut self, id: u32, now: Time) {
        if !self.observer.is_on {
            return;
        }
        let exchange = self.exchanges.get(id);
        if !exchange.seen.is_of_a_client() {
            return; // a check of our own
        }
        let instance = exchange.seen.instance.map(|number| self.pools.name(number));
        self.observer.over(exchange, instance, now);
    }

    /// Writes the log, reads the paths, and answers queries: most of it ten times per second.
    pub(in crate::sidecar) fn observe(&mut self, now: Time) {
        let watch = &mut self.observer;
        if let Some(log) = &mut watch.log {
            log.look(now);
        }
        if now >= watch.tick_at {
            watch.tick_at = now + TICK;
            self.tick_paths(now);
        }
        let watch = &mut self.observer;
        if now < watch.look_at {
            return;
        }
        watch.look_at = now + CHECK_PERIOD;
        watch.since_1970 = unix().saturating_sub(now.since(Time::ZERO));
        if watch.admin.is_none() {
            return;
        }
        self.read_paths(now);
        let watch = &mut self.observer;
        if let Some(window) = &mut watch.window {
            window.look(now);
        }
        if now >= watch.recent_until {
            watch.recent_until = now + RECENT;
            for instance in &mut watch.instances {
                let mut recent = std::mem::take(&mut instance.recent);
                recent.merge(&instance.meter.take());
                instance.before = recent;
                instance.responses.turn();
            }
        }
        if let Some(query) = watch.admin.as_ref().and_then(LoopHandle::pending_query) {
            let snapshot = self.snapshot(query.of_records(), now);
            if let Some(admin) = &mut self.observer.admin {
                admin.answer(query, snapshot);
            }
        }
    }

    /// A point of the time series of each connection of HTTP/2 to an instance.
    fn tick_paths(&mut self, now: Time) {
        for instance in 0..self.pools.count() {
            for slot in &self.pools.get(instance).connections {
                let Slot::Open(side) = &self.slots[*slot as usize] else { continue };
                if side.version == Version::H1 {
                    continue; // there may be a thousand, and none waits for another one's packets
                }
                let info = side.transport.tcp().and_then(|tcp| TcpInfo::of(tcp).ok());
                let tick = info.map(|info| info.tick(now, side.number));
                let tick = tick.or_else(|| side.transport.quic().map(|quic| quic.tick(now, side.number)));
                if let (Some(tick), Some(window)) = (tick, &mut self.observer.window) {
                    window.tick(instance, tick);
                }
            }
        }
    }

    /// Reads the kernel's figures of the connections to instances.
    fn read_paths(&mut self, now: Time) {
        let Self { observer: watch, slots, .. } = self;
        let lasted = now.since(std::mem::replace(&mut watch.looked_at, now)).as_secs_f64();
        if lasted <= 0.0 {
            return;
        }
        let mut sums: Vec<PathStatus> = vec![PathStatus::default(); watch.instances.len()];
        for slot in slots.iter_mut() {
            let Slot::Open(side) = slot else { continue };
            let Peer::Instance(instance) = side.peer else { continue };
            let Some((counted, rtt_us, window)) = path_of(&side.transport) else { continue };
            watch.at(instance);
            sums.resize(watch.instances.len(), PathStatus::default());
            let sum = &mut sums[instance as usize];
            let before = std::mem::replace(&mut side.counted, counted);
            let [sent, received, again] = [0, 1, 2].map(|n| f64::from(counted[n].wrapping_sub(before[n])));
            sum.sent_per_s += sent;
            sum.received_per_s += received;
            sum.again_per_s += again;
            sum.rtt_ns += u64::from(rtt_us) * 1_000;
            sum.window += f64::from(window);
            sum.connections += 1;
            if let (Some(watched), Some(window)) = (&mut side.watched, &mut watch.window) {
                window.gather(instance, watched);
            }
        }
        let weight = 1.0 - (-lasted / AVERAGED.as_secs_f64()).exp();
        for (counts, sum) in watch.instances.iter_mut().zip(sums) {
            let path = &mut counts.path;
            for (rate, count) in [
                (&mut path.sent_per_s, sum.sent_per_s),
                (&mut path.received_per_s, sum.received_per_s),
                (&mut path.again_per_s, sum.again_per_s),
            ] {
                *rate += (count / lasted - *rate) * weight;
            }
            path.connections = sum.connections;
            let each = f64::from(sum.connections.max(1));
            (path.rtt_ns, path.window) = ((sum.rtt_ns as f64 / each) as u64, sum.window / each);
        }
    }
}

/// Segments sent, received and sent again, of QUIC packets; the round trip in microseconds, and the window in segments.
fn path_of(transport: &Transport) -> Option<([u32; 3], u32, u32)> {
    if let Some(quic) = transport.quic() {
        let (summary, tick) = (quic.summary(), quic.tick(Time::ZERO, 0));
        // Only their differences count.
        let counted = [summary.packets_sent, summary.datagrams_received, summary.packets_lost];
        return Some((counted.map(|count| count as u32), summary.rtt_us, tick.cwnd));
    }
    let info = TcpInfo::of(transport.tcp()?).ok()?;
    Some(([info.segments_out, info.segments_in, info.retransmits], info.rtt_us, info.cwnd))
}
