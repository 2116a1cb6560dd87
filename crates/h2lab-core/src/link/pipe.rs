//! One direction of the link.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::loss::Loss;
use super::shaper::Shaper;
use super::{DEFAULT_QUEUE_BYTES, Impairment, LinkSpec, Packet};
use crate::random::{Counter, derive};
use crate::units::{Time, nanos};

/// What became of a packet as it entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It will come out of [`Pipe::poll`].
    Queued,
    /// The loss model took it.
    Lost,
    /// The queue was full.
    TailDropped,
}

/// Totals of one direction. `packets_in = delivered + lost + tail_dropped + in_flight` always holds, or the cell is
/// invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DirectionTotals {
    /// Packets that entered.
    pub packets_in: u64,
    /// Packets that came out.
    pub delivered: u64,
    /// Packets that the loss model took.
    pub lost: u64,
    /// Packets that found the queue full.
    pub tail_dropped: u64,
    /// Packets still inside at the end.
    pub in_flight: u64,
    /// Bytes that entered, at the network layer.
    pub bytes_in: u64,
}

impl DirectionTotals {
    /// Whether every packet is accounted for.
    pub fn adds_up(&self) -> bool {
        self.packets_in == self.delivered + self.lost + self.tail_dropped + self.in_flight
    }
}

/// One direction of a link: packets go in, and come out later or never, in the order in which they went in.
///
/// A packet first meets the loss model, then bandwidth and queue, then delay and jitter. What is lost at random uses no
/// bandwidth, as in netem. `T` is what the caller needs to send the packet on: its bytes, a slot in a ring, nothing.
#[derive(Debug)]
pub struct Pipe<T> {
    loss: Loss,
    shaper: Option<Shaper>,
    /// The shortest delay: `delay - jitter`.
    floor: Duration,
    /// Full width of the jitter in nanoseconds, 0 for none.
    jitter_width: u64,
    jitter: Counter,
    queue: VecDeque<(Time, T)>,
    /// Due time of the newest packet: none overtakes it.
    last_due: Time,
    totals: DirectionTotals,
}

impl<T> Pipe<T> {
    /// A direction with this impairment. Each purpose (loss, jitter) has its own stream of random numbers under `seed`;
    /// the two directions of a link need different seeds, see [`LinkSpec::pipes`].
    pub fn new(impairment: &Impairment, seed: u64) -> Self {
        let jitter = impairment.jitter.min(impairment.delay);
        Self {
            loss: Loss::new(impairment.loss, seed),
            shaper: impairment
                .bandwidth
                .map(|rate| Shaper::new(rate, impairment.queue_bytes.unwrap_or(DEFAULT_QUEUE_BYTES))),
            floor: impairment.delay.saturating_sub(jitter),
            jitter_width: nanos(jitter).saturating_mul(2),
            jitter: Counter::new(seed, "jitter"),
            queue: VecDeque::new(),
            last_due: Time::ZERO,
            totals: DirectionTotals::default(),
        }
    }

    /// Takes in the packet with the next index. `now` is when it arrived.
    pub fn push(&mut self, now: Time, packet: &Packet, payload: T) -> Verdict {
        let index = self.totals.packets_in;
        self.totals.packets_in += 1;
        self.totals.bytes_in += u64::from(packet.bytes);
        if self.loss.takes_next() {
            self.totals.lost += 1;
            return Verdict::Lost;
        }
        let sent = match &mut self.shaper {
            None => now,
            Some(shaper) => match shaper.accept(now, packet.bytes) {
                Some(sent) => sent,
                None => {
                    self.totals.tail_dropped += 1;
                    return Verdict::TailDropped;
                }
            },
        };
        let due = (sent + self.floor + self.jitter_of(index)).max(self.last_due);
        self.last_due = due;
        self.queue.push_back((due, payload));
        Verdict::Queued
    }

    /// When the next packet is due; [`Time::NEVER`] if none is inside.
    pub fn next_at(&self) -> Time {
        self.queue.front().map_or(Time::NEVER, |(due, _)| *due)
    }

    /// Takes out the next packet that is due at `now`, with the time at which it was due.
    pub fn poll(&mut self, now: Time) -> Option<(Time, T)> {
        if self.next_at() > now {
            return None;
        }
        let out = self.queue.pop_front()?;
        self.totals.delivered += 1;
        Some(out)
    }

    /// The ledger's totals up to now.
    pub fn totals(&self) -> DirectionTotals {
        DirectionTotals { in_flight: self.queue.len() as u64, ..self.totals }
    }

    /// How much later than the shortest delay packet `index` is, drawn from the seed.
    fn jitter_of(&self, index: u64) -> Duration {
        Duration::from_nanos((self.jitter.f64_at(index) * self.jitter_width as f64).round() as u64)
    }
}

impl LinkSpec {
    /// The uplink's and the downlink's pipe under one seed, independent of each other.
    pub fn pipes<T>(&self, seed: u64) -> (Pipe<T>, Pipe<T>) {
        (Pipe::new(&self.uplink, derive(seed, "uplink")), Pipe::new(&self.downlink, derive(seed, "downlink")))
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::*;

    use super::super::{Endpoint, LossModel, Offload};
    use super::*;
    use crate::units::{Bandwidth, Ratio};

    fn packet(bytes: u32) -> Packet {
        let end = Endpoint { address: IpAddr::V4(Ipv4Addr::LOCALHOST), port: 1 };
        let payload = bytes.saturating_sub(40);
        Packet {
            source: end,
            destination: end,
            protocol: 6,
            bytes,
            payload,
            seq: 0,
            offload: Offload::default(),
        }
    }

    fn lossy(share: f64) -> Impairment {
        let loss = LossModel::bernoulli(Ratio::new(share).unwrap());
        Impairment { delay: Duration::from_millis(10), loss, ..Impairment::default() }
    }

    /// Pushes `n` packets a microsecond apart; the verdicts, and what came out with its due time.
    fn run(impairment: &Impairment, seed: u64, n: u64) -> (Vec<Verdict>, Vec<(Time, u64)>) {
        let mut pipe = Pipe::new(impairment, seed);
        let verdicts = (0..n).map(|k| pipe.push(Time::from_micros(k), &packet(1500), k)).collect();
        let out = std::iter::from_fn(|| pipe.poll(Time::NEVER)).collect();
        (verdicts, out)
    }

    #[test]
    fn a_packet_comes_out_when_its_delay_is_over_and_not_before() {
        let mut pipe = Pipe::new(&lossy(0.0), 1);
        assert_eq!(pipe.next_at(), Time::NEVER);
        assert_eq!(pipe.push(Time::from_millis(5), &packet(100), 'x'), Verdict::Queued);
        assert_eq!(pipe.next_at(), Time::from_millis(15));
        assert_eq!(pipe.poll(Time::from_nanos(14_999_999)), None);
        assert_eq!(pipe.poll(Time::from_millis(15)), Some((Time::from_millis(15), 'x')));
        assert_eq!(pipe.poll(Time::from_millis(99)), None);
    }

    #[test]
    fn the_same_seed_loses_the_same_packets() {
        let (first, _) = run(&lossy(0.03), 7, 10_000);
        assert_eq!(first, run(&lossy(0.03), 7, 10_000).0);
        assert_ne!(first, run(&lossy(0.03), 8, 10_000).0);
    }

    #[test]
    fn changing_the_jitter_does_not_change_what_is_lost() {
        let jittery = Impairment { jitter: Duration::from_millis(3), ..lossy(0.03) };
        assert_eq!(run(&lossy(0.03), 7, 10_000).0, run(&jittery, 7, 10_000).0);
    }

    #[test]
    fn the_directions_lose_different_packets() {
        let (mut up, mut down) = LinkSpec::symmetric(lossy(0.5)).pipes::<()>(1);
        let same = (0..1000)
            .filter(|_| up.push(Time::ZERO, &packet(100), ()) == down.push(Time::ZERO, &packet(100), ()));
        assert!((400..600).contains(&same.count()));
    }

    #[test]
    fn jitter_spreads_the_delay_over_its_whole_width() {
        let impairment = Impairment { jitter: Duration::from_millis(3), ..lossy(0.0) };
        let mut pipe = Pipe::new(&impairment, 2);
        // A second between packets, so that order never holds one back.
        let delays: Vec<f64> = (0..10_000)
            .map(|k| {
                let now = Time::from_millis(k * 1000);
                pipe.push(now, &packet(100), ());
                pipe.poll(Time::NEVER).unwrap().0.since(now).as_secs_f64() * 1e3
            })
            .collect();
        let mean = delays.iter().sum::<f64>() / delays.len() as f64;
        assert!((mean - 10.0).abs() < 0.06, "mean {mean}");
        assert!(delays.iter().all(|d| (7.0..=13.0).contains(d)));
        assert!(delays.iter().any(|d| *d < 7.01) && delays.iter().any(|d| *d > 12.99));
    }

    #[test]
    fn jitter_beyond_the_delay_never_sends_a_packet_back_in_time() {
        let impairment = Impairment { jitter: Duration::from_secs(1), ..lossy(0.0) };
        let (_, out) = run(&impairment, 3, 1000);
        assert!(out.iter().all(|(due, k)| *due >= Time::from_micros(*k)));
    }

    #[test]
    fn a_lost_packet_uses_no_bandwidth() {
        let rate = Bandwidth::from_bits_per_second(12_000_000);
        let impairment = Impairment { bandwidth: rate, queue_bytes: Some(u64::MAX), ..lossy(0.5) };
        let mut pipe = Pipe::new(&impairment, 4);
        let queued = (0..100).filter(|_| pipe.push(Time::ZERO, &packet(1500), ()) == Verdict::Queued).count();
        let last = std::iter::from_fn(|| pipe.poll(Time::NEVER)).last().unwrap().0;
        assert_eq!(last, Time::from_millis(queued as u64 + 10));
    }

    fn impairments() -> impl Strategy<Value = Impairment> {
        (0_u64..50, 0_u64..60, 0.0..0.9_f64, 1.0..10.0_f64, any::<bool>(), 1_u64..1000, 0_u64..100_000)
            .prop_map(|(delay, jitter, share, burst, bursty, mbit, queue)| {
                let share = Ratio::new(share).unwrap();
                Impairment {
                    delay: Duration::from_millis(delay),
                    jitter: Duration::from_millis(jitter),
                    loss: if bursty {
                        LossModel::gilbert_elliott(share, burst)
                    } else {
                        LossModel::bernoulli(share)
                    },
                    bandwidth: Bandwidth::from_bits_per_second(mbit * 1_000_000),
                    queue_bytes: Some(queue),
                }
            })
    }

    proptest! {
        #[test]
        fn every_packet_is_accounted_for_and_none_overtakes(
            impairment in impairments(),
            seed in any::<u64>(),
            steps in proptest::collection::vec((0_u64..2_000, 20_u32..1501, any::<bool>()), 1..400),
        ) {
            let mut pipe = Pipe::new(&impairment, seed);
            let (mut now, mut came_out, mut bytes_in) = (Time::ZERO, Vec::new(), 0);
            for (k, (gap, bytes, poll)) in steps.iter().enumerate() {
                now += Duration::from_micros(*gap);
                pipe.push(now, &packet(*bytes), (k, now));
                bytes_in += u64::from(*bytes);
                if *poll {
                    came_out.extend(std::iter::from_fn(|| pipe.poll(now)));
                }
                prop_assert!(pipe.totals().adds_up());
            }
            let inside = pipe.totals().in_flight;
            let left: Vec<_> = std::iter::from_fn(|| pipe.poll(Time::NEVER)).collect();
            prop_assert_eq!(left.len() as u64, inside);
            came_out.extend(left);
            let totals = pipe.totals();
            prop_assert!(totals.adds_up() && totals.in_flight == 0);
            prop_assert_eq!((totals.packets_in, totals.bytes_in), (steps.len() as u64, bytes_in));
            prop_assert_eq!(totals.delivered, came_out.len() as u64);
            prop_assert!(came_out.is_sorted_by_key(|(due, (k, _))| (*due, *k)));
            let floor = impairment.delay.saturating_sub(impairment.jitter);
            prop_assert!(came_out.iter().all(|(due, (_, pushed))| *due >= *pushed + floor));
        }
    }
}
