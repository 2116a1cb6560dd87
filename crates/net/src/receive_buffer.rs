//! A bound on a socket's receive buffer: where the round trip is short, no more than the CPU's caches hold.
//!
//! The kernel lets a receive buffer grow as long as its reader keeps up (tcp(7), `tcp_rmem`), which is right for a long fat link.
//! Without one it depends on the machine: a buffer of some MiB may exceed the caches, so that a reader who falls behind a little
//! copies from memory from then on, and falls behind more. Ten streams in one connection over loopback came at 26 Gbit/s with the
//! 32 MiB of an ordinary machine and at 45 with 512 KiB (`results/2026-11-22-2-cpus/bulk.md`); on another machine one came at 70
//! with 32 MiB and at 49 with 256 KiB (`results/2026-11-23-2-cpus/bulk.md`). So a bulk reader whose server is near bounds its
//! buffer, tries without the bound for a moment, and stays with what is faster. The bound is lifted as well if it may be less than
//! the path holds.
//!
//! Rejected: `TCP_WINDOW_CLAMP` by itself, which is forgotten when the buffer grows; a bound that follows the bandwidth-delay
//! product at every distance, since a receiver knows the round trip only from its few requests; bounds in between, which
//! `net.core.rmem_max` forbids on most machines.

use std::time::Duration;

use h2lab_base::units::{Time, nanos};

use super::tcp::Stream;
use super::tcp_info::TcpInfo;

/// A server is near if it answered the SYN within this: it is on this machine, perhaps in another namespace, or next to it.
const NEAR: Duration = Duration::from_micros(50);

/// The bound, in bytes. The kernel doubles it for what it needs itself (socket(7)), so that the window can be larger.
const BOUND: u32 = 256 * 1024;

/// How often to look at the rate.
const LOOK: Duration = Duration::from_millis(100);

/// Without the bound the rate must be so many times as high.
const GAIN: f64 = 1.1;

/// The bound of a socket's receive buffer.
#[derive(Debug)]
pub struct ReceiveBuffer {
    min_rtt: Duration,
    stage: Stage,
    /// When the rate was last looked at, and the bytes received by then.
    since: Time,
    bytes: u64,
}

/// What the rate until the next look is for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    /// Nothing: the connection begins.
    Beginning,
    /// That with the bound is measured.
    Bounded,
    /// Nothing: the buffer grows. The bytes per second with the bound are known.
    Growing(f64),
    /// That without the bound is measured, to be compared with this.
    Free(f64),
    /// The bound stays, as long as the path holds no more.
    Kept,
}

/// What is to be done with the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Nothing,
    /// Lift the bound.
    Try,
    /// Set it again.
    Bound,
    /// Leave it without the bound for good.
    Done,
}

impl ReceiveBuffer {
    /// Bounds the buffer of a new connection, if its server is near and the kernel can undo it.
    pub fn bound(stream: &Stream, now: Time) -> Option<Self> {
        let min_rtt = Duration::from_micros(TcpInfo::of(stream).ok()?.min_rtt_us.into());
        let is_near = !min_rtt.is_zero() && min_rtt <= NEAR;
        let is_bound = is_near && stream.bound_receive_buffer(BOUND);
        is_bound.then_some(Self { min_rtt, stage: Stage::Beginning, since: now, bytes: 0 })
    }

    /// `bytes` have come in all at `now`: `true` once the kernel may have its way with the buffer for good.
    pub fn look(&mut self, stream: &Stream, bytes: u64, now: Time) -> bool {
        let step = self.step(bytes, now);
        match step {
            Step::Nothing => {}
            Step::Try | Step::Done => {
                stream.free_receive_buffer();
            }
            // It could be set before.
            Step::Bound => {
                stream.bound_receive_buffer(BOUND);
            }
        }
        step == Step::Done
    }

    fn step(&mut self, bytes: u64, now: Time) -> Step {
        let elapsed = now.since(self.since);
        if elapsed < LOOK {
            return Step::Nothing;
        }
        let came = bytes.saturating_sub(self.bytes);
        (self.since, self.bytes) = (now, bytes);
        let is_bound = matches!(self.stage, Stage::Beginning | Stage::Bounded | Stage::Kept);
        let in_a_round_trip = u128::from(came) * self.min_rtt.as_nanos() / u128::from(nanos(elapsed));
        if is_bound && in_a_round_trip > u128::from(BOUND) {
            return Step::Done;
        }
        let rate = came as f64 / elapsed.as_secs_f64();
        let (stage, step) = match self.stage {
            Stage::Beginning => (Stage::Bounded, Step::Nothing),
            Stage::Bounded => (Stage::Growing(rate), Step::Try),
            Stage::Growing(bounded) => (Stage::Free(bounded), Step::Nothing),
            Stage::Free(bounded) if rate > GAIN * bounded => (Stage::Kept, Step::Done),
            Stage::Free(_) => (Stage::Kept, Step::Bound),
            Stage::Kept => (Stage::Kept, Step::Nothing),
        };
        self.stage = stage;
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection of this round trip in microseconds, and the steps after these rates in Gbit/s, 100 ms each.
    fn steps(micros: u64, gigabits: &[u64]) -> Vec<Step> {
        let min_rtt = Duration::from_micros(micros);
        let mut buffer = ReceiveBuffer { min_rtt, stage: Stage::Beginning, since: Time::ZERO, bytes: 0 };
        let mut bytes = 0;
        let looks = gigabits.iter().zip(1..).map(|(rate, n)| {
            bytes += rate * 1_000_000_000 / 8 / 10;
            assert_eq!(buffer.step(bytes, Time::from_millis(100 * n - 1)), Step::Nothing, "not yet");
            buffer.step(bytes, Time::from_millis(100 * n))
        });
        looks.collect()
    }

    #[test]
    fn the_faster_of_both_is_kept() {
        use Step::{Bound, Done, Nothing, Try};
        assert_eq!(steps(20, &[20, 49, 60, 70]), [Nothing, Try, Nothing, Done]);
        assert_eq!(steps(20, &[20, 45, 40, 26, 45, 45]), [Nothing, Try, Nothing, Bound, Nothing, Nothing]);
        assert_eq!(steps(20, &[20, 45, 45, 49])[3], Bound, "that is noise");
    }

    #[test]
    fn the_bound_is_let_go_where_the_path_may_hold_more() {
        assert_eq!(steps(20, &[45])[0], Step::Nothing, "113 kB in a round trip of loopback");
        assert_eq!(steps(50, &[40])[0], Step::Nothing, "250 kB");
        assert_eq!(steps(50, &[45])[0], Step::Done, "281 kB of 256 KiB");
        assert_eq!(steps(50, &[10, 10, 10, 10, 45])[4], Step::Done);
        assert_eq!(steps(50, &[10, 10, 45])[2], Step::Nothing, "there is no bound then");
    }
}
