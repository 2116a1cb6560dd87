//! After how many requests an instance ends a connection, as nginx's `keepalive_requests` does.
//!
//! It says so only by a GOAWAY, when requests beyond the quota are under way and have to be sent again. Two connections in a row that
//! ended after the same number make a quota: then no more are sent on one, and the next is dialled before it is spent. A server that is
//! restarted ends connections after numbers that differ.

/// Every connection with a number that this divides is used without the quota, which may have been raised.
const TRIED: u32 = 16;
/// The next connection is dialled when so many requests are left of the quota, or a quarter of it if that is less.
const AHEAD: u32 = 64;

/// What is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quota {
    /// Requests of the last connection that ended so.
    last: Option<u32>,
    /// The quota.
    known: Option<u32>,
}

impl Quota {
    /// A connection has ended with a GOAWAY after so many requests.
    pub fn ended_after(&mut self, requests: u32) {
        self.known = (self.last == Some(requests) && requests > 0).then_some(requests);
        self.last = Some(requests);
    }

    /// The quota, if it was learned.
    pub const fn known(&self) -> Option<u32> {
        self.known
    }

    /// How many more requests the connection with this number takes that has had so many.
    pub fn left(&self, number: u32, requests: u32) -> u32 {
        match self.known {
            Some(quota) if !number.is_multiple_of(TRIED) => quota.saturating_sub(requests),
            _ => u32::MAX,
        }
    }

    /// Whether so many requests are so few that the next connection is dialled.
    pub fn is_low(&self, left: u32) -> bool {
        self.known.is_some_and(|quota| left <= AHEAD.min(quota / 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_connections_that_end_alike_make_a_quota_and_one_that_does_not_unmakes_it() {
        let mut quota = Quota::default();
        assert_eq!((quota.left(1, 5), quota.is_low(0)), (u32::MAX, false));
        quota.ended_after(137);
        quota.ended_after(90);
        quota.ended_after(137);
        assert_eq!(quota.left(1, 5), u32::MAX, "they differ");
        quota.ended_after(137);
        assert_eq!([quota.left(1, 5), quota.left(1, 137), quota.left(1, 900)], [132, 0, 0]);
        assert_eq!(quota.left(16, 137), u32::MAX, "some find out whether it has changed");
        assert_eq!([quota.is_low(34), quota.is_low(35)], [true, false]);
        quota.ended_after(274);
        assert_eq!(quota.left(1, 137), u32::MAX);
    }
}
