//! After how many requests an instance ends a connection, as nginx's `keepalive_requests` does.
//!
//! It says so only by a GOAWAY, when requests beyond the quota are under way and have to be sent again. Two connections in a row that
//! ended after the same number make a quota: then no more are sent on one, and the next is dialled before it is spent. A server that is
//! restarted ends connections after numbers that differ.

/// Every connection whose number is a multiple of this is used without the quota, which may have been raised. If it was
/// not, the requests under way beyond it are sent again: with 32 callers and a quota of 137 that would be 1.5 % of all
/// requests if this were 16, too much for a p99.
const TRIED: u32 = 64;
/// The next connection is dialled when this many requests are left of the quota, or a quarter of it if that is less.
const AHEAD: u32 = 64;

/// What is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quota {
    /// Requests of the last connection that ended with a GOAWAY.
    last: Option<u32>,
    /// The quota.
    known: Option<u32>,
}

impl Quota {
    /// A connection has ended with a GOAWAY after `requests` requests.
    pub fn ended_after(&mut self, requests: u32) {
        self.known = (self.last == Some(requests) && requests > 0).then_some(requests);
        self.last = Some(requests);
    }

    /// The quota, if it was learned.
    pub const fn known(&self) -> Option<u32> {
        self.known
    }

    /// How many more requests the connection with this number takes after `requests` requests.
    pub fn left(&self, number: u32, requests: u32) -> u32 {
        match self.known {
            Some(quota) if !is_tried(number) => quota.saturating_sub(requests),
            _ => u32::MAX,
        }
    }

    /// Whether the next connection is dialled because the one with this number may be about to end after `requests`
    /// requests. If one without the quota has had clearly more requests than the quota, the quota was raised.
    pub fn is_low(&self, number: u32, requests: u32) -> bool {
        self.known.is_some_and(|quota| {
            let ahead = AHEAD.min(quota / 4);
            requests >= quota - ahead && (!is_tried(number) || requests <= quota.saturating_add(ahead))
        })
    }
}

/// Whether the connection with this number is used without the quota.
const fn is_tried(number: u32) -> bool {
    number.is_multiple_of(TRIED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_connections_that_end_alike_make_a_quota_and_one_that_does_not_unmakes_it() {
        let mut quota = Quota::default();
        assert_eq!((quota.left(1, 5), quota.is_low(1, 5)), (u32::MAX, false));
        quota.ended_after(137);
        quota.ended_after(90);
        quota.ended_after(137);
        assert_eq!(quota.left(1, 5), u32::MAX, "they differ");
        quota.ended_after(137);
        assert_eq!([quota.left(1, 5), quota.left(1, 137), quota.left(1, 900)], [132, 0, 0]);
        assert_eq!([quota.is_low(1, 102), quota.is_low(1, 103), quota.is_low(1, 500)], [false, true, true]);
        assert_eq!(quota.left(TRIED, 137), u32::MAX, "some find out whether it has changed");
        let is_low = [102, 103, 171, 172].map(|requests| quota.is_low(TRIED, requests));
        assert_eq!(is_low, [false, true, true, false], "the next is there when it has not");
        quota.ended_after(274);
        assert_eq!(quota.left(1, 137), u32::MAX);
    }
}
