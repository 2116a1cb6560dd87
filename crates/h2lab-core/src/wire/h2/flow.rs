//! Flow-control windows as values (RFC 9113 §5.2, §6.9).

use super::frame::MAX_31_BITS;
use crate::wire::FlowControl;

/// What the peer lets us send. Negative after a SETTINGS that shrinks it below what is in flight (§6.9.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SendWindow(i32);

impl SendWindow {
    /// A window of `bytes`, at most 2^31 − 1.
    pub(super) const fn new(bytes: u32) -> Self {
        Self(bytes.cast_signed())
    }

    /// Bytes that may be sent now.
    pub(super) const fn usable(self) -> usize {
        if self.0 > 0 { self.0.unsigned_abs() as usize } else { 0 }
    }

    /// `bytes` were sent; no more than [`SendWindow::usable`].
    pub(super) const fn consume(&mut self, bytes: usize) {
        self.0 -= (bytes as u32).cast_signed();
    }

    /// Opens the window, or shrinks it by a negative `delta`; `false` if it would exceed 2^31 − 1 (§6.9.1).
    #[must_use]
    pub(super) const fn adjust(&mut self, delta: i64) -> bool {
        let window = self.0 as i64 + delta;
        if window > MAX_31_BITS as i64 || window < i32::MIN as i64 {
            return false;
        }
        self.0 = window as i32;
        true
    }
}

/// What we let the peer send, and how much credit we owe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReceiveWindow {
    /// What the peer may still send. Negative only between our shrinking SETTINGS and the peer's draining it.
    available: i32,
    /// Received and not yet returned: the sum of what the role holds and what awaits the threshold.
    owed: u32,
    /// Of `owed`: delivered to a role that releases by hand, not yet released.
    held: u32,
}

impl ReceiveWindow {
    /// A window of `bytes`, at most 2^31 − 1.
    pub(super) const fn new(bytes: u32) -> Self {
        Self { available: bytes.cast_signed(), owed: 0, held: 0 }
    }

    /// `bytes` arrived; `false` if the peer had no credit for them.
    #[must_use]
    pub(super) const fn receive(&mut self, bytes: u32) -> bool {
        if bytes as i64 > self.available as i64 {
            return false;
        }
        self.available -= bytes.cast_signed();
        self.owed += bytes;
        true
    }

    /// Whether the peer may send anything.
    pub(super) const fn is_open(&self) -> bool {
        self.available > 0
    }

    /// `bytes` of what arrived stay with the role until it releases them.
    pub(super) const fn hold(&mut self, bytes: u32) {
        self.held += bytes;
    }

    /// What the role holds.
    pub(super) const fn held(&self) -> u32 {
        self.held
    }

    /// The role is done with `bytes`, or with as many as it holds.
    pub(super) const fn release(&mut self, bytes: u32) {
        self.held = self.held.saturating_sub(bytes);
    }

    /// Our announced window changed by `delta` and the peer has acknowledged it.
    pub(super) const fn adjust(&mut self, delta: i64) {
        self.available = (self.available as i64 + delta) as i32;
    }

    /// The credit to return now: all that is free, once it reaches `threshold`.
    pub(super) const fn take_credit(&mut self, threshold: u32) -> Option<u32> {
        let free = self.owed - self.held;
        if free == 0 || free < threshold {
            return None;
        }
        self.owed = self.held;
        self.available += free.cast_signed();
        Some(free)
    }
}

/// When credit goes back: a share of the window, at least 1 byte, at most all of it (more would never come).
pub(super) fn threshold(window: u32, flow: &FlowControl) -> u32 {
    let share = u64::from(flow.update_threshold_percent.min(100));
    ((u64::from(window) * share / 100) as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_window_may_be_negative_and_then_nothing_is_usable() {
        let mut window = SendWindow::new(100);
        window.consume(100);
        assert!(window.adjust(-50));
        assert_eq!(window.usable(), 0);
        assert!(window.adjust(50));
        assert_eq!(window.usable(), 0);
        assert!(window.adjust(1));
        assert_eq!(window.usable(), 1);
    }

    #[test]
    fn a_send_window_ends_at_2_to_the_31_minus_1() {
        let mut window = SendWindow::new(1);
        assert!(window.adjust(i64::from(MAX_31_BITS) - 1));
        assert!(!window.adjust(1));
        assert_eq!(window.usable(), MAX_31_BITS as usize);
    }

    #[test]
    fn a_peer_may_use_its_window_up_and_not_a_byte_more() {
        let mut window = ReceiveWindow::new(10);
        assert!(window.receive(10));
        assert!(window.receive(0));
        assert!(!window.receive(1));
    }

    #[test]
    fn credit_returns_at_the_threshold_and_not_before() {
        let mut window = ReceiveWindow::new(100);
        assert!(window.receive(49));
        assert_eq!(window.take_credit(50), None);
        assert!(window.receive(1));
        assert_eq!(window.take_credit(50), Some(50));
        assert_eq!(window.take_credit(1), None);
        assert!(window.receive(100), "the window is whole again");
    }

    #[test]
    fn what_a_role_holds_is_not_returned_until_it_is_released() {
        let mut window = ReceiveWindow::new(100);
        assert!(window.receive(60));
        window.hold(50);
        assert_eq!(window.take_credit(1), Some(10), "padding is not held");
        window.release(1_000);
        assert_eq!(window.take_credit(1), Some(50), "no more than was held");
    }

    #[test]
    fn thresholds_stay_between_one_byte_and_the_window() {
        let at = |percent| {
            threshold(1000, &FlowControl { update_threshold_percent: percent, ..FlowControl::default() })
        };
        assert_eq!((at(0), at(50), at(100), at(255)), (1, 500, 1000, 1000));
    }
}
