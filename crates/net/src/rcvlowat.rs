//! How many bytes must have arrived before a reader is woken: `SO_RCVLOWAT` (socket(7)), like interrupt moderation in network
//! cards.
//!
//! A fast sender wakes its reader for every few segments. With a body at 36 Gbit/s over loopback, seven of ten reads
//! had to wait first, and each sleep costs both ends: the reader's system call, the sender's wake-up of another CPU. So
//! where more of the current message is known to follow, and data arrives quickly, the reader sleeps until [`STEP`]s of
//! it are there. It does not wait for what may follow the message. So only bytes in the middle of a body are reported
//! later, by [`LATENCY`] at most if the sender keeps its rate. A peer that closes wakes a reader at any low-water mark.
//! Bulk goes further ([`DialTarget::gathers`](h2lab_roles::client::connect::DialTarget::gathers)).

use std::time::Duration;

use h2lab_base::units::{Time, nanos};

/// How long data may be withheld from a reader for the sake of fewer sleeps.
const LATENCY: Duration = Duration::from_micros(100);

/// A mark is a multiple of this, so that it does not follow small changes of the rate, unless a message ends before.
const STEP: u64 = 64 * 1024;

/// The highest mark. A read takes 256 KiB, including what comes between the wake-up and the read.
const MOST: u64 = 3 * STEP;

/// The low-water mark of a socket, and its inputs.
#[derive(Debug)]
pub struct RcvLowat {
    /// In bytes; every socket begins with 1.
    set: u32,
    /// When the socket was last found empty, and what has come since then.
    since: Time,
    bytes: u64,
}

impl RcvLowat {
    /// The state of a new socket.
    pub const fn new() -> Self {
        Self { set: 1, since: Time::ZERO, bytes: 0 }
    }

    /// `bytes` bytes were read.
    #[inline]
    pub const fn received(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// The socket is empty at `now`, and `expected` bytes of the current message are still to come, 0 if that is not known.
    /// Returns the mark to set, in bytes, if it has changed.
    #[inline]
    pub fn next(&mut self, expected: u64, now: Time) -> Option<u32> {
        let (bytes, elapsed_ns) = (self.bytes, now.nanos_since(self.since).max(1));
        (self.since, self.bytes) = (now, 0);
        // The usual case of small messages.
        if self.set == 1 && expected < STEP {
            return None;
        }
        let soon = bytes.saturating_mul(nanos(LATENCY)) / elapsed_ns;
        let mark = (soon / STEP * STEP).min(MOST).min(expected).max(1) as u32;
        (mark != self.set).then(|| {
            self.set = mark;
            mark
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_HAND: u64 = 1 << 30;

    /// The marks that are set while bytes come at this rate and the socket is found empty every `micros`.
    fn marks(bits_per_second: u64, micros: u64) -> Vec<Option<u32>> {
        let mut rcvlowat = RcvLowat::new();
        let each = bits_per_second / 8 * micros / 1_000_000;
        (1..5)
            .map(|turn| {
                rcvlowat.received(each as usize);
                rcvlowat.next(AT_HAND, Time::from_micros(turn * micros))
            })
            .collect()
    }

    #[test]
    fn a_fast_body_is_read_in_large_pieces_and_a_slow_one_as_it_comes() {
        assert_eq!(marks(40_000_000_000, 50), [Some(196_608), None, None, None]);
        assert_eq!(marks(10_000_000_000, 50), [Some(65_536), None, None, None], "125 kB in 100 us");
        for slow in [1_000_000, 1_000_000_000, 5_000_000_000] {
            assert_eq!(marks(slow, 50), [None; 4], "{slow}: nobody waits for longer than 100 us");
        }
    }

    #[test]
    fn no_more_is_waited_for_than_the_message_has() {
        let mut rcvlowat = RcvLowat::new();
        let mut next = |expected, micros| {
            rcvlowat.received(1_000_000);
            rcvlowat.next(expected, Time::from_micros(micros))
        };
        assert_eq!(next(500_000, 100), Some(196_608));
        assert_eq!(next(300_000, 200), None);
        assert_eq!(next(100, 300), Some(100), "its end");
        assert_eq!(next(0, 400), Some(1), "whatever comes next");
        assert_eq!(next(500_000, 400_000), None, "the sender has paused");
    }
}
