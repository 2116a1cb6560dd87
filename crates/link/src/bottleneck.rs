//! Bandwidth, and the queue before it.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::codel::{Codel, HeadPacket};
use h2lab_base::units::{Bandwidth, ParseQuantityError, Time, format_exact, parse_duration};

/// Bit-nanoseconds per byte and bit/s: transmitting one byte takes this, in units of 1/bandwidth nanoseconds.
const PER_BYTE: u128 = 8 * 1_000_000_000;

/// What limits the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueueDiscipline {
    /// Only its size.
    #[default]
    DropTail,
    /// CoDel (RFC 8289), and its size.
    Codel {
        /// The acceptable sojourn time in the queue.
        target: Duration,
        /// How long it may be exceeded before CoDel drops.
        interval: Duration,
    },
}

impl QueueDiscipline {
    /// CoDel as RFC 8289 §4.2 and §4.3 recommend it for the Internet.
    pub const CODEL: Self =
        Self::Codel { target: Duration::from_millis(5), interval: Duration::from_millis(100) };
}

impl FromStr for QueueDiscipline {
    type Err = ParseQuantityError;

    /// `drop-tail`, `codel` (5 ms, 100 ms), `codel:TARGET/INTERVAL`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || {
            ParseQuantityError::new(
                text,
                "a queue discipline (drop-tail, codel, codel:TARGET/INTERVAL with a target above 0 and below the interval, such as codel:5ms/100ms)",
            )
        };
        match text.split_once(':') {
            None if text == "drop-tail" => Ok(Self::DropTail),
            None if text == "codel" => Ok(Self::CODEL),
            Some(("codel", times)) => {
                let (target, interval) = times.split_once('/').ok_or_else(refuse)?;
                let (target, interval) = (parse_duration(target)?, parse_duration(interval)?);
                let is_sensible =
                    !target.is_zero() && target < interval && interval <= Duration::from_secs(60);
                if is_sensible { Ok(Self::Codel { target, interval }) } else { Err(refuse()) }
            }
            _ => Err(refuse()),
        }
    }
}

impl fmt::Display for QueueDiscipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DropTail => f.write_str("drop-tail"),
            codel if *codel == Self::CODEL => f.write_str("codel"),
            Self::Codel { target, interval } => {
                write!(f, "codel:{}/{}", format_exact(*target), format_exact(*interval))
            }
        }
    }
}

super::text_form!(QueueDiscipline);

/// A transmitter of a given capacity with a queue bounded in bytes.
///
/// Times are kept in units of 1/bandwidth nanoseconds, in which every transmission takes a whole number: rounding each
/// packet to nanoseconds would let 10 Gbit/s run up to 0.08 % fast.
///
/// A fluid model that only stores when all accepted bytes will have been sent was rejected: CoDel decides at the head
/// of the queue, and a change of bandwidth changes when already queued packets leave.
#[derive(Debug)]
pub struct Bottleneck<T> {
    /// Bits per second.
    rate: u128,
    /// Capacity of the queue in bytes, including the rest of the packet being sent.
    limit: u64,
    codel: Option<Codel>,
    queue: VecDeque<Waiting<T>>,
    /// Bytes in `queue`.
    backlog: u64,
    /// The packet that is being sent.
    sending: Option<T>,
    /// When the packet that is being sent, or was sent last, has left: nanoseconds times `rate`.
    free: u128,
}

#[derive(Debug)]
struct Waiting<T> {
    entered: Time,
    bytes: u32,
    item: T,
}

impl<T> Bottleneck<T> {
    /// A transmitter of `bandwidth` with a queue of at most `limit` bytes.
    pub fn new(bandwidth: Bandwidth, limit: u64, discipline: QueueDiscipline) -> Self {
        let codel = match discipline {
            QueueDiscipline::DropTail => None,
            QueueDiscipline::Codel { target, interval } => Some(Codel::new(target, interval)),
        };
        Self {
            rate: u128::from(bandwidth.bits_per_second()),
            limit,
            codel,
            queue: VecDeque::new(),
            backlog: 0,
            sending: None,
            free: 0,
        }
    }

    /// Takes a packet of `bytes` bytes at `now`; gives it back if the queue is full. Packets that have left by then
    /// must have been taken out by [`Bottleneck::leave`] first.
    ///
    /// An idle transmitter takes any packet: a packet that need not wait needs no room in the queue.
    pub fn enter(&mut self, now: Time, bytes: u32, item: T) -> Result<(), T> {
        let at = self.units(now);
        let waiting = self.free.saturating_sub(at) + u128::from(self.backlog) * PER_BYTE;
        let cost = u128::from(bytes) * PER_BYTE;
        if waiting > 0 && waiting + cost > u128::from(self.limit) * PER_BYTE {
            return Err(item);
        }
        if self.sending.is_some() {
            self.queue.push_back(Waiting { entered: now, bytes, item });
            self.backlog += u64::from(bytes);
        } else {
            self.free = self.free.max(at) + cost;
            self.sending = Some(item);
        }
        Ok(())
    }

    /// Takes out the next packet whose last bit has left by `now`, and returns when. What the queue's discipline drops before
    /// the next one is sent goes to `drop`, with the time.
    pub fn leave(&mut self, now: Time, mut drop: impl FnMut(Time, T)) -> Option<(Time, T)> {
        let left = self.next_at();
        if left > now {
            return None;
        }
        let item = self.sending.take()?;
        let Self { codel, queue, backlog, .. } = self;
        let mut pop = || {
            let Waiting { entered, bytes, item } = queue.pop_front()?;
            *backlog -= u64::from(bytes);
            Some(HeadPacket { entered, backlog: *backlog, item: (bytes, item) })
        };
        let next = match codel {
            None => pop().map(|head| head.item),
            Some(codel) => codel.dequeue(left, pop, |(_, item)| drop(left, item)),
        };
        if let Some((bytes, next)) = next {
            self.free += u128::from(bytes) * PER_BYTE;
            self.sending = Some(next);
        }
        Some((left, item))
    }

    /// When the packet that is being sent will have left; [`Time::NEVER`] if there is none.
    pub fn next_at(&self) -> Time {
        if self.sending.is_none() {
            return Time::NEVER;
        }
        Time::from_nanos(u64::try_from(self.free.div_ceil(self.rate)).unwrap_or(u64::MAX))
    }

    /// Changes the bandwidth from `now` on, also for the rest of the packet being sent.
    pub fn change(&mut self, now: Time, bandwidth: Bandwidth) {
        let rest = self.free.saturating_sub(self.units(now));
        self.rate = u128::from(bandwidth.bits_per_second());
        self.free = self.units(now) + rest;
    }

    /// Packets inside.
    pub fn inside(&self) -> usize {
        self.queue.len() + usize::from(self.sending.is_some())
    }

    fn units(&self, at: Time) -> u128 {
        u128::from(at.as_nanos()) * self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mbit(n: u64) -> Bandwidth {
        Bandwidth::from_bits_per_second(n * 1_000_000).unwrap()
    }

    fn tail(bandwidth: Bandwidth, limit: u64) -> Bottleneck<u32> {
        Bottleneck::new(bandwidth, limit, QueueDiscipline::DropTail)
    }

    /// Takes out what has left by `now`.
    fn left(bottleneck: &mut Bottleneck<u32>, now: Time) -> Vec<Time> {
        std::iter::from_fn(|| bottleneck.leave(now, |_, _| panic!("nothing is dropped")))
            .map(|(at, _)| at)
            .collect()
    }

    fn accepts(bottleneck: &mut Bottleneck<u32>, now: Time, bytes: u32) -> bool {
        left(bottleneck, now);
        bottleneck.enter(now, bytes, bytes).is_ok()
    }

    #[test]
    fn packets_leave_one_transmission_time_apart_and_without_drift() {
        // 1500 bytes at 7 Gbit/s take 1714.28… ns: a million of them must not lose the fraction.
        let mut bottleneck = tail(mbit(7000), u64::MAX / 8);
        for k in 0..1_000_000 {
            bottleneck.enter(Time::ZERO, 1500, k).unwrap();
        }
        assert_eq!(bottleneck.inside(), 1_000_000);
        let left = left(&mut bottleneck, Time::NEVER);
        assert_eq!(left.last().unwrap().as_nanos(), (1_000_000_u64 * 1500 * 8).div_ceil(7));
        assert_eq!((left.len(), bottleneck.inside()), (1_000_000, 0));
    }

    #[test]
    fn an_idle_transmitter_starts_at_once() {
        let mut bottleneck = tail(mbit(1000), 3000);
        assert!(accepts(&mut bottleneck, Time::ZERO, 1250));
        assert!(accepts(&mut bottleneck, Time::from_millis(5), 1250));
        assert_eq!(bottleneck.next_at(), Time::from_micros(5010));
    }

    #[test]
    fn the_tail_is_dropped_one_byte_beyond_the_limit_and_not_at_it() {
        for (bytes, taken) in [(500, true), (501, false)] {
            let mut bottleneck = tail(mbit(8), 2000);
            assert!(accepts(&mut bottleneck, Time::ZERO, 1500));
            assert_eq!(accepts(&mut bottleneck, Time::ZERO, bytes), taken, "{bytes} bytes");
        }
    }

    #[test]
    fn room_comes_back_as_bytes_leave() {
        let mut bottleneck = tail(mbit(8), 2000);
        assert!(accepts(&mut bottleneck, Time::ZERO, 2000));
        // One byte leaves per microsecond.
        assert!(!accepts(&mut bottleneck, Time::from_micros(499), 500));
        assert!(accepts(&mut bottleneck, Time::from_micros(500), 500));
        assert_eq!(left(&mut bottleneck, Time::NEVER), [2000, 2500].map(Time::from_micros));
    }

    #[test]
    fn a_queue_smaller_than_a_packet_still_lets_an_idle_link_send() {
        let mut bottleneck = tail(mbit(8), 0);
        assert!(accepts(&mut bottleneck, Time::ZERO, 1500));
        assert!(!accepts(&mut bottleneck, Time::from_micros(1499), 1));
        assert!(accepts(&mut bottleneck, Time::from_micros(1500), 1500));
    }

    #[test]
    fn another_bandwidth_holds_for_what_waits_and_for_the_rest_of_what_is_being_sent() {
        let mut bottleneck = tail(mbit(8), 10_000);
        (0..2).for_each(|_| assert!(accepts(&mut bottleneck, Time::ZERO, 1000)));
        bottleneck.change(Time::from_micros(500), mbit(4));
        assert_eq!(left(&mut bottleneck, Time::NEVER), [1500, 3500].map(Time::from_micros));
        bottleneck.change(Time::from_micros(4000), mbit(80));
        assert!(accepts(&mut bottleneck, Time::from_micros(5000), 1000));
        assert_eq!(left(&mut bottleneck, Time::NEVER), [Time::from_micros(5100)]);
    }

    #[test]
    fn a_packet_that_came_before_the_last_one_left_waits_for_it() {
        // A late pump takes packets out before it puts new ones in.
        let mut bottleneck = tail(mbit(8), 10_000);
        assert!(accepts(&mut bottleneck, Time::ZERO, 1000));
        assert_eq!(left(&mut bottleneck, Time::from_micros(1200)).len(), 1);
        bottleneck.enter(Time::from_micros(900), 1000, 0).unwrap();
        assert_eq!(bottleneck.next_at(), Time::from_micros(2000));
    }

    #[test]
    fn codel_brings_down_a_queue_that_drop_tail_lets_stand() {
        // 12 Mbit/s send a packet of 1500 bytes each millisecond; the sender's interval shrinks from 1.3 to 0.8 ms until
        // it learns of a drop.
        let mean = |discipline| {
            let mut bottleneck = Bottleneck::new(mbit(12), 150_000, discipline);
            let (mut now, mut dropped, mut pace, mut sojourns) = (Time::ZERO, 0_u32, 800_u64, Vec::new());
            for k in 0..20_000_u32 {
                now += Duration::from_micros(pace);
                let mut drops = 0;
                while let Some((at, (entered, _))) = bottleneck.leave(now, |_, _: (Time, u32)| drops += 1) {
                    sojourns.push((at.since(entered)).as_micros() as u64);
                }
                drops += u32::from(bottleneck.enter(now, 1500, (now, k)).is_err());
                pace = if drops > 0 { 1300 } else { pace.saturating_sub(1).max(800) };
                dropped += drops;
            }
            let last = &sojourns[sojourns.len() / 2..];
            (last.iter().sum::<u64>() / last.len() as u64, dropped)
        };
        let (codel, codel_dropped) = mean(QueueDiscipline::CODEL);
        let (tail, tail_dropped) = mean(QueueDiscipline::DropTail);
        assert!(codel < 10_000 && tail > 50_000, "codel {codel} µs, drop-tail {tail} µs");
        assert!(codel_dropped > 0 && tail_dropped > 0);
    }

    #[test]
    fn disciplines_parse_as_they_print() {
        for text in ["drop-tail", "codel", "codel:1ms/20ms"] {
            assert_eq!(text.parse::<QueueDiscipline>().unwrap().to_string(), text);
        }
        assert_eq!("codel:5ms/100ms".parse(), Ok(QueueDiscipline::CODEL));
        for bad in ["fq", "codel:", "codel:5ms", "codel:0ms/100ms", "codel:100ms/100ms", "codel:5ms/61s"] {
            assert!(bad.parse::<QueueDiscipline>().is_err(), "{bad}");
        }
    }
}
