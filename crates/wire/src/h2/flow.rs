//! Flow-control windows as values (RFC 9113 §5.2, §6.9).

use super::frame::MAX_31_BITS;
use crate::limits::accounts::FAIR_PIECE;

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

/// What we let the peer send, and how much credit is due: the difference to the window's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReceiveWindow {
    /// What the peer may still send. Negative only between our shrinking SETTINGS and the peer's acknowledgement.
    available: i32,
    /// What it could send if no credit were due. It may become smaller than `available`: credit that was handed out
    /// cannot be taken back, but no more of it is returned until the window has shrunk.
    size: u32,
    /// Delivered to a role that releases by hand, not yet released.
    held: u32,
}

impl ReceiveWindow {
    /// A window of `bytes`, at most 2^31 − 1.
    pub(super) const fn new(bytes: u32) -> Self {
        Self { available: bytes.cast_signed(), size: bytes, held: 0 }
    }

    /// `bytes` arrived; `false` if the peer had no credit for them.
    #[must_use]
    pub(super) const fn receive(&mut self, bytes: u32) -> bool {
        if bytes as i64 > self.available as i64 {
            return false;
        }
        self.available -= bytes.cast_signed();
        true
    }

    /// Whether the peer has credit for a piece of useful size: a peer that waits for more credit need not cut its body
    /// into tiny frames.
    pub(super) fn has_room(&self) -> bool {
        let piece = self.size.clamp(1, FAIR_PIECE as u32);
        i64::from(self.available) >= i64::from(piece)
    }

    /// A quarter of what the peer may still send: a read may wait for that much without delaying credit for long.
    pub(super) const fn quarter(&self) -> u64 {
        if self.available > 0 { self.available.unsigned_abs() as u64 / 4 } else { 0 }
    }

    /// What the peer may still send.
    pub(super) const fn available(&self) -> i32 {
        self.available
    }

    /// Its size when all credit is returned.
    pub(super) const fn size(&self) -> u32 {
        self.size
    }

    /// Sets the size to `bytes`, at most 2^31 − 1.
    pub(super) const fn resize(&mut self, bytes: u32) {
        self.size = bytes;
    }

    /// `bytes` of what arrived stay with the role until it releases them.
    pub(super) const fn hold(&mut self, bytes: u32) {
        self.held += bytes;
    }

    /// What the role holds.
    pub(super) const fn held(&self) -> u32 {
        self.held
    }

    /// The role is done with `bytes`, or with as many as it holds: returns how many.
    pub(super) const fn release(&mut self, bytes: u32) -> u32 {
        let released = if bytes < self.held { bytes } else { self.held };
        self.held -= released;
        released
    }

    /// Our announced window changed by `delta` and the peer has acknowledged it.
    pub(super) const fn adjust(&mut self, delta: i64) {
        self.available = (self.available as i64 + delta) as i32;
        let size = self.size as i64 + delta;
        self.size = if size > 0 { size as u32 } else { 0 };
    }

    /// The credit to return now: all that is due, once it reaches `threshold`.
    pub(super) const fn take_credit(&mut self, threshold: u32) -> Option<u32> {
        let free = self.size as i64 - self.held as i64 - self.available as i64;
        if free <= 0 || free < threshold as i64 {
            return None;
        }
        let credit = if free > MAX_31_BITS as i64 { MAX_31_BITS } else { free as u32 };
        self.available += credit.cast_signed();
        Some(credit)
    }
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
    fn there_is_room_for_a_fair_piece_or_for_all_of_a_smaller_window() {
        for (size, used, has_room) in
            [(65_535, 64_511, true), (65_535, 64_512, false), (10, 0, true), (10, 1, false), (0, 0, false)]
        {
            let mut window = ReceiveWindow::new(size);
            assert!(window.receive(used));
            assert_eq!(window.has_room(), has_room, "{used} of {size}");
        }
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
    fn a_window_that_is_to_be_smaller_gets_no_credit_until_it_has_come_down() {
        let mut window = ReceiveWindow::new(100);
        window.resize(40);
        assert!(window.receive(60));
        assert_eq!(window.take_credit(1), None, "40 are still out");
        assert!(window.receive(1));
        assert_eq!(window.take_credit(1), Some(1));
        window.resize(100);
        assert_eq!(window.take_credit(1), Some(60), "and it grows by as much credit");
        assert!(window.receive(100));
    }
}
