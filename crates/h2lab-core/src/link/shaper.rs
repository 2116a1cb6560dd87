//! Bandwidth and the queue before it, as a fluid: no second queue is kept.

use crate::units::{Bandwidth, Time};

/// Bit-nanoseconds per byte and bit/s: transmitting one byte moves `free` by this.
const PER_BYTE: u128 = 8 * 1_000_000_000;

/// A transmitter of a given capacity with a queue bounded in bytes.
///
/// Its whole state is the moment at which all that it has accepted will have been sent. That moment is kept in units of
/// 1/bandwidth nanoseconds, in which every transmission time is a whole number: rounding each packet to nanoseconds would
/// let 10 Gbit/s run up to 0.08 % fast.
#[derive(Debug, Clone)]
pub struct Shaper {
    /// Bits per second.
    rate: u128,
    /// Bytes that may be in the queue, the rest of the packet that is being sent included.
    limit: u64,
    /// When the transmitter falls idle: nanoseconds times `rate`.
    free: u128,
}

impl Shaper {
    /// A transmitter that sends at `bandwidth` what waits in at most `limit` bytes of queue.
    pub fn new(bandwidth: Bandwidth, limit: u64) -> Self {
        Self { rate: u128::from(bandwidth.bits_per_second()), limit, free: 0 }
    }

    /// Takes a packet of `bytes` bytes at `now` and says when its last bit has left; `None` if the queue is full.
    ///
    /// An idle transmitter takes any packet: what need not wait does not need room to wait in.
    pub fn accept(&mut self, now: Time, bytes: u32) -> Option<Time> {
        let now = u128::from(now.as_nanos()) * self.rate;
        let waiting = self.free.saturating_sub(now);
        let cost = u128::from(bytes) * PER_BYTE;
        if waiting > 0 && waiting + cost > u128::from(self.limit) * PER_BYTE {
            return None;
        }
        self.free = self.free.max(now) + cost;
        Some(Time::from_nanos(u64::try_from(self.free.div_ceil(self.rate)).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mbit(n: u64) -> Bandwidth {
        Bandwidth::from_bits_per_second(n * 1_000_000).unwrap()
    }

    #[test]
    fn packets_leave_one_transmission_time_apart_and_without_drift() {
        // 1500 bytes at 7 Gbit/s take 1714.28… ns: a million of them must not lose the fraction.
        let mut shaper = Shaper::new(mbit(7000), u64::MAX);
        let mut last = Time::ZERO;
        for _ in 0..1_000_000 {
            last = shaper.accept(Time::ZERO, 1500).unwrap();
        }
        assert_eq!(last.as_nanos(), (1_000_000_u64 * 1500 * 8).div_ceil(7));
    }

    #[test]
    fn an_idle_transmitter_starts_at_once() {
        let mut shaper = Shaper::new(mbit(1000), 3000);
        shaper.accept(Time::ZERO, 1250).unwrap();
        assert_eq!(shaper.accept(Time::from_millis(5), 1250), Some(Time::from_micros(5010)));
    }

    #[test]
    fn the_tail_is_dropped_one_byte_beyond_the_limit_and_not_at_it() {
        for (bytes, taken) in [(500, true), (501, false)] {
            let mut shaper = Shaper::new(mbit(8), 2000);
            assert!(shaper.accept(Time::ZERO, 1500).is_some());
            assert_eq!(shaper.accept(Time::ZERO, bytes).is_some(), taken, "{bytes} bytes");
        }
    }

    #[test]
    fn room_comes_back_as_bytes_leave() {
        let mut shaper = Shaper::new(mbit(8), 2000);
        assert!(shaper.accept(Time::ZERO, 2000).is_some());
        // One byte leaves per microsecond.
        assert!(shaper.accept(Time::from_micros(499), 500).is_none());
        assert_eq!(shaper.accept(Time::from_micros(500), 500), Some(Time::from_micros(2500)));
    }

    #[test]
    fn a_queue_smaller_than_a_packet_still_lets_an_idle_link_send() {
        let mut shaper = Shaper::new(mbit(8), 0);
        assert!(shaper.accept(Time::ZERO, 1500).is_some());
        assert!(shaper.accept(Time::from_micros(1499), 1).is_none());
        assert!(shaper.accept(Time::from_micros(1500), 1500).is_some());
    }
}
