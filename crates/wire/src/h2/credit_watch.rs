//! Whether the peer had used up the credit of a receive window, as far as the receiver can see it.
//!
//! A sender that was stopped by a window continues as soon as credit reaches it: its data beyond the old limit arrive
//! one round trip after our WINDOW_UPDATE left, after a pause. Data of a sender that had credit left pass the old limit
//! without a pause, and those of one that had nothing to send pass it later. What is left of our window says nothing:
//! we return credit long before a sender a round trip away has it.

use std::time::Duration;

use h2lab_base::units::Time;

/// Limits that are watched at a time: credit returned by halves makes two, by quarters four.
const WATCHED: usize = 4;
/// Delays of both ends, beside a quarter of a round trip.
const SLACK: Duration = Duration::from_millis(1);

/// The most that the peer could send before a WINDOW_UPDATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OldLimit {
    /// In bytes received, modulo 2^32: windows have less than half of that.
    at: u32,
    /// WINDOW_UPDATEs that it stands for: those since the last that was watched, and its own.
    updates: u32,
    /// When the WINDOW_UPDATE left.
    raised_at: Time,
}

/// What is known of one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CreditWatch {
    received: u32,
    /// When bytes last arrived.
    last: Time,
    /// When the last limit was passed.
    passed: Time,
    limits: [OldLimit; WATCHED],
    /// How many limits there are, in the order of their `at`.
    count: u8,
    skipped: u32,
}

impl CreditWatch {
    /// Nothing arrived yet.
    pub(super) const NEW: Self = Self {
        received: 0,
        last: Time::NEVER,
        passed: Time::NEVER,
        limits: [OldLimit { at: 0, updates: 0, raised_at: Time::NEVER }; WATCHED],
        count: 0,
        skipped: 0,
    };

    /// A WINDOW_UPDATE leaves; the peer could send `available` bytes until now. Not watched if `now` is not known.
    pub(super) fn raised(&mut self, now: Time, available: i32) {
        if !now.happened() {
            return;
        }
        if usize::from(self.count) == WATCHED {
            self.skipped = self.skipped.saturating_add(1);
            return;
        }
        let at = self.received.wrapping_add(available.max(0).unsigned_abs());
        let updates = 1 + std::mem::take(&mut self.skipped);
        self.limits[usize::from(self.count)] = OldLimit { at, updates, raised_at: now };
        self.count += 1;
    }

    /// `bytes` arrive; returns for how long the peer had waited for the credit to send them. `rtt` is the least round
    /// trip seen, which this may lower.
    #[inline]
    pub(super) fn received(&mut self, now: Time, bytes: u32, rtt: &mut Duration) -> Duration {
        let before = std::mem::replace(&mut self.last, now);
        self.received = self.received.wrapping_add(bytes);
        if self.count == 0 || !before.happened() { Duration::ZERO } else { self.pass(now, before, rtt) }
    }

    /// Drops the limits that are passed.
    fn pass(&mut self, now: Time, before: Time, rtt: &mut Duration) -> Duration {
        let mut waited = Duration::ZERO;
        while self.count > 0 && self.received.wrapping_sub(self.limits[0].at).cast_signed() > 0 {
            let limit = self.limits[0];
            self.limits.rotate_left(1);
            self.count -= 1;
            let answered = now.since(limit.raised_at);
            *rtt = (*rtt).min(answered);
            if answered <= *rtt + *rtt / 4 + SLACK {
                let most = if self.passed.happened() { now.since(self.passed) } else { answered };
                waited += (now.since(before) * limit.updates).min(most);
            }
            self.passed = now;
        }
        waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);
    const FRAME: u32 = 16_384;

    /// A sender on the other side of [`RTT`] whose application gives it `rate` bytes per millisecond for two seconds,
    /// with a window of `window` bytes that is returned by `share`s. Returns the share of the time in which its credit
    /// was seen to be used up.
    fn used_up(rate: u64, window: u32, share: u32) -> f64 {
        let (mut watch, mut rtt) = (CreditWatch::NEW, Duration::from_millis(100));
        let (mut available, mut due, mut waited) = (window.cast_signed(), 0, Duration::ZERO);
        let (mut sent, mut limit) = (0_u64, u64::from(window));
        let mut credit = std::collections::VecDeque::<(Time, u32)>::new();
        for millis in 0..2_000_u64 {
            let now = Time::from_millis(millis);
            while credit.front().is_some_and(|(at, _)| *at <= now) {
                limit += credit.pop_front().map_or(0, |(_, more)| u64::from(more));
            }
            let given = rate * (millis + 1);
            // All times are those of arrival: the credit takes a whole round trip.
            while sent < limit.min(given) {
                // A frame ends where credit is due, as frames of 16 KiB do: the excess is missing from the next half.
                let most = u64::from(FRAME.min(window / share - due));
                let bytes = (limit.min(given) - sent).min(most) as u32;
                sent += u64::from(bytes);
                waited += watch.received(now, bytes, &mut rtt);
                available -= bytes.cast_signed();
                due += bytes;
                if due >= window / share {
                    watch.raised(now, available);
                    available += due.cast_signed();
                    credit.push_back((now + RTT, due));
                    due = 0;
                }
            }
        }
        waited.as_secs_f64() / 2.0
    }

    #[test]
    fn a_sender_with_more_to_give_is_seen_to_have_used_its_window_up() {
        // 64 KiB in 100 ms are 655 bytes in a millisecond.
        for (share, least) in [(1, 0.9), (2, 0.9), (4, 0.9), (16, 0.8)] {
            let seen = used_up(100_000, 65_536, share);
            assert!((least..=1.0).contains(&seen), "credit by 1/{share}: {seen}");
        }
    }

    #[test]
    fn a_sender_that_has_nothing_more_to_send_is_not() {
        // 3,000 bytes in a millisecond are 300,000 in a round trip.
        assert!(used_up(3_000, 1 << 30, 2) < 1e-9);
        assert!(used_up(3_000, 1 << 20, 2) < 0.05, "the window is never used up");
        // With credit by halves 256 KiB are left when it is returned, so it stops for a moment, and then catches up.
        let seen = used_up(3_000, 512 << 10, 2);
        assert!((0.05..0.25).contains(&seen), "{seen}");
        assert!(used_up(3_000, 512 << 10, 4) < 0.05, "of quarters enough is left");
    }

    #[test]
    fn a_sender_that_goes_on_long_after_it_has_credit_had_nothing_to_send() {
        let resumed = |after: u64| {
            let (mut watch, mut rtt) = (CreditWatch::NEW, RTT);
            let _ = watch.received(Time::from_millis(0), 1_000, &mut rtt);
            watch.raised(Time::from_millis(0), 0);
            watch.received(Time::from_millis(after), 1, &mut rtt)
        };
        assert_eq!(resumed(100), RTT);
        assert_eq!(resumed(126), Duration::from_millis(126));
        assert_eq!(resumed(127), Duration::ZERO);
    }

    #[test]
    fn counts_of_bytes_may_wrap() {
        let (mut watch, mut rtt) = (CreditWatch { received: u32::MAX - 10, ..CreditWatch::NEW }, RTT);
        let _ = watch.received(Time::from_millis(0), 10, &mut rtt);
        watch.raised(Time::from_millis(0), 100);
        assert_eq!(watch.received(Time::from_millis(50), 100, &mut rtt), Duration::ZERO, "not passed");
        assert_eq!(watch.received(Time::from_millis(100), 1, &mut rtt), Duration::from_millis(50));
    }
}
