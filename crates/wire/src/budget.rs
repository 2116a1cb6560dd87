//! Bounds the receive-window memory that all connections of a process may grant together.
//!
//! A window is a promise to buffer that many bytes. Most roles consume them at once, but when they do not, every
//! connection may fill its window. [`WindowBudget`] gives each connection an equal share. That needs no usage
//! statistics, is predictable, and lets no connection take another's share. Giving busy connections more was rejected:
//! a client would be busy to get it.
//!
//! Shares are powers of two: they change once while the number of connections doubles. So a change, which is passed to
//! all connections, costs nothing per connection in the long run. They grow again at three quarters of the number at
//! which they shrank, not at one connection less: a single connection that comes and goes would change them each time.

/// What a process has for windows by default: 1 GiB. One connection may have all of it, sixteen 64 MiB each, which is
/// 500 Mbit/s with a round trip of a second, and 16,384 still 64 KiB.
pub const DEFAULT_WINDOW_BUDGET: u64 = 1 << 30;

/// Shares out memory among connections. A role creates connections with [`super::FlowControl::within`] their share, and
/// applies a changed share by [`super::Connection::set_window_limit`].
#[derive(Debug, Clone)]
pub struct WindowBudget {
    bytes: u64,
    connections: u64,
    /// What each may have: a power of two.
    share: u32,
}

impl WindowBudget {
    /// A budget of `bytes` for all connections, none of them open yet.
    pub const fn new(bytes: u64) -> Self {
        Self { bytes, connections: 0, share: share(bytes, 1) }
    }

    /// The largest window that each connection, and each stream, may have now, in bytes.
    pub const fn share(&self) -> u32 {
        self.share
    }

    /// The share of each connection once `more` connections are open. For connections that grant windows before they
    /// are counted: QUIC does so in its transport parameters, which cannot be reduced later.
    pub fn share_with(&self, more: u32) -> u32 {
        self.share.min(share(self.bytes, self.connections + u64::from(more)))
    }

    /// A connection was opened. Returns the new share of all if it shrinks.
    #[must_use]
    pub const fn opened(&mut self) -> Option<u32> {
        self.connections += 1;
        let share = share(self.bytes, self.connections);
        self.change(share, share < self.share)
    }

    /// A connection has ended. Returns the new share of all if it grows.
    #[must_use]
    pub const fn closed(&mut self) -> Option<u32> {
        self.connections = self.connections.saturating_sub(1);
        // As if there were a third more connections.
        let share = share(self.bytes, self.connections + self.connections.div_ceil(3));
        self.change(share, share > self.share)
    }

    const fn change(&mut self, share: u32, changes: bool) -> Option<u32> {
        if changes {
            self.share = share;
            return Some(share);
        }
        None
    }
}

/// The largest power of two that each of `connections` may have of `bytes`; 1 at least.
const fn share(bytes: u64, connections: u64) -> u32 {
    let equal = bytes / if connections == 0 { 1 } else { connections };
    match equal.checked_ilog2() {
        None => 1,
        // Windows are at most 2^31 - 1 (RFC 9113 §6.9.1).
        Some(31..) => 1 << 31,
        Some(bits) => 1 << bits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlowControl;

    const MIB: u64 = 1 << 20;

    /// The shares returned as `n` more connections open.
    fn open(budget: &mut WindowBudget, n: u32) -> Vec<u32> {
        (0..n).filter_map(|_| budget.opened()).collect()
    }

    fn close(budget: &mut WindowBudget, n: u32) -> Vec<u32> {
        (0..n).filter_map(|_| budget.closed()).collect()
    }

    #[test]
    fn shares_halve_with_the_connection_that_would_exceed_the_budget_and_not_before() {
        let mut budget = WindowBudget::new(8 * MIB);
        assert_eq!((open(&mut budget, 1), budget.share()), (vec![], 8 << 20));
        assert_eq!(open(&mut budget, 1), [4 << 20]);
        assert_eq!(open(&mut budget, 1), [2 << 20], "three times 4 MiB are too much");
        assert_eq!(open(&mut budget, 1), Vec::<u32>::new(), "four times 2 MiB are not");
        assert_eq!(open(&mut budget, 1), [1 << 20]);
    }

    #[test]
    fn a_connection_that_is_still_to_be_opened_knows_its_share() {
        let mut budget = WindowBudget::new(8 * MIB);
        for _ in 0..100 {
            let next = budget.share_with(1);
            let _ = budget.opened();
            assert_eq!(budget.share(), next);
        }
        close(&mut budget, 1);
        assert_eq!(budget.share_with(1), budget.share(), "room that is not shared out yet is nobody's");
    }

    #[test]
    fn the_sum_of_all_shares_is_never_above_the_budget() {
        for bytes in [100 * MIB, DEFAULT_WINDOW_BUDGET, 12_345_678] {
            let mut budget = WindowBudget::new(bytes);
            for n in 1..=5_000_u64 {
                let _ = budget.opened();
                assert!(u64::from(budget.share()) * n <= bytes, "{n} of {bytes}");
            }
            for n in (0..5_000_u64).rev() {
                let _ = budget.closed();
                assert!(u64::from(budget.share()) * n <= bytes, "{n} of {bytes}");
            }
            assert_eq!(budget.share(), WindowBudget::new(bytes).share(), "all have gone");
        }
    }

    #[test]
    fn shares_grow_again_at_three_quarters_of_the_number_at_which_they_shrank() {
        let mut budget = WindowBudget::new(64 * MIB);
        open(&mut budget, 65);
        assert_eq!(budget.share(), 1 << 19);
        assert_eq!(close(&mut budget, 16), Vec::<u32>::new(), "49 are left");
        assert_eq!(close(&mut budget, 1), [1 << 20], "48 are");
    }

    #[test]
    fn a_connection_that_comes_and_goes_changes_nothing() {
        let mut budget = WindowBudget::new(64 * MIB);
        open(&mut budget, 65);
        for _ in 0..10 {
            assert_eq!((close(&mut budget, 1), open(&mut budget, 1)), (vec![], vec![]));
        }
    }

    #[test]
    fn thousands_of_connections_are_updated_a_dozen_times() {
        let mut budget = WindowBudget::new(DEFAULT_WINDOW_BUDGET);
        assert_eq!(open(&mut budget, 4_096).len(), 12);
        assert_eq!(budget.share(), 1 << 18);
    }

    #[test]
    fn new_connections_promise_their_share_or_the_least_that_is_of_use() {
        let flow =
            FlowControl { stream_window: 4 << 20, connection_window: 1 << 30, ..FlowControl::default() };
        let windows = |share| (flow.within(share).stream_window, flow.within(share).connection_window);
        assert_eq!(windows(1 << 30), (4 << 20, 1 << 30));
        assert_eq!(windows(1 << 26), (4 << 20, 1 << 26));
        assert_eq!(windows(1 << 15), (1 << 15, 65_535));
        assert_eq!(windows(1), (16_384, 65_535));
    }

    #[test]
    fn extremes_are_shares_too() {
        let mut budget = WindowBudget::new(u64::MAX);
        assert_eq!((open(&mut budget, 100), budget.share()), (vec![], 1 << 31));
        let mut budget = WindowBudget::new(0);
        assert_eq!((open(&mut budget, 100), close(&mut budget, 101), budget.share()), (vec![], vec![], 1));
    }
}
