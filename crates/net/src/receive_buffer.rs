//! A bound on a socket's receive buffer: where the round trip is short, no more than the CPU's caches hold.
//!
//! The kernel lets a receive buffer grow as long as its reader keeps up (tcp(7), `tcp_rmem`), which is right for a long fat link
//! and harmful without one: a buffer of some MiB exceeds the caches, so that a reader who falls behind a little copies from
//! memory from then on, and falls behind more. On loopback ten streams in one connection came at 26 Gbit/s with the 32 MiB of an
//! ordinary machine and at 45 with 512 KiB (`results/2026-11-22-2-cpus/bulk.md`). So a bulk reader whose server is near bounds
//! its buffer, and lifts the bound if that could be what limits the rate.
//!
//! Rejected: `TCP_WINDOW_CLAMP` by itself, which is forgotten when the buffer grows; a bound that follows the bandwidth-delay
//! product at every distance, since a receiver knows the round trip only from its few requests.

use std::time::Duration;

use h2lab_base::units::{Time, nanos};

use super::tcp::Stream;
use super::tcp_info::TcpInfo;

/// A server is near if it answered the SYN within this: it is on this machine, perhaps in another namespace, or next to it.
const NEAR: Duration = Duration::from_micros(50);

/// The bound, in bytes. The kernel doubles it for what it needs itself (socket(7)), so that the window can be larger.
const BOUND: u32 = 256 * 1024;

/// How often to check whether the bound limits the rate.
const LOOK: Duration = Duration::from_millis(100);

/// The bound of a socket's receive buffer.
#[derive(Debug)]
pub struct ReceiveBuffer {
    min_rtt: Duration,
    /// When that was last checked, and the bytes received by then.
    since: Time,
    bytes: u64,
}

impl ReceiveBuffer {
    /// Bounds the buffer of a new connection, if its server is near and the kernel can undo it.
    pub fn bound(stream: &Stream, now: Time) -> Option<Self> {
        let min_rtt = Duration::from_micros(TcpInfo::of(stream).ok()?.min_rtt_us.into());
        let is_near = !min_rtt.is_zero() && min_rtt <= NEAR;
        let is_bound = is_near && stream.bound_receive_buffer(BOUND);
        is_bound.then_some(Self { min_rtt, since: now, bytes: 0 })
    }

    /// `bytes` have come in all at `now`: `true` once if more could come without the bound, which is then lifted.
    pub fn let_go(&mut self, stream: &Stream, bytes: u64, now: Time) -> bool {
        let is_small = self.is_small(bytes, now);
        if is_small {
            stream.free_receive_buffer();
        }
        is_small
    }

    fn is_small(&mut self, bytes: u64, now: Time) -> bool {
        let elapsed = now.since(self.since);
        if elapsed < LOOK {
            return false;
        }
        let came = u128::from(bytes.saturating_sub(self.bytes));
        (self.since, self.bytes) = (now, bytes);
        let in_a_round_trip = came * self.min_rtt.as_nanos() / u128::from(nanos(elapsed));
        in_a_round_trip > u128::from(BOUND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_let_go_only_where_the_path_may_hold_more() {
        let is_small = |gigabits: u64, micros| {
            let mut buffer =
                ReceiveBuffer { min_rtt: Duration::from_micros(micros), since: Time::ZERO, bytes: 0 };
            let of = |millis: u64| gigabits * 1_000_000 / 8 * millis;
            assert!(!buffer.is_small(of(99), Time::from_millis(99)), "not yet looked");
            let first = buffer.is_small(of(100), Time::from_millis(100));
            assert_eq!(buffer.is_small(of(200), Time::from_millis(200)), first, "it is what came since");
            first
        };
        assert!(!is_small(45, 20), "113 kB in a round trip of loopback");
        assert!(!is_small(40, 50), "250 kB");
        assert!(is_small(45, 50), "281 kB of 256 KiB");
    }
}
