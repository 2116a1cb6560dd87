//! How many requests a second are taken: token buckets, one for all or one for each client.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use h2lab_base::units::Time;

/// Clients that have a bucket of their own at a time. Those beyond share one.
pub const MOST_CLIENTS: usize = 10_000;

/// A second.
const SECOND: u64 = 1_000_000_000;

/// A bucket, as the time at which it will be full: a request puts that off by what one token takes (GCRA). So a bucket is one number,
/// and one that is full needs none.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    full_at: Time,
}

/// A limit of requests: `per_second` in the long run, `burst` at once after a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Nanoseconds for a token.
    each: u64,
    /// Nanoseconds for all that fit.
    whole: u64,
}

impl Limit {
    /// Both at least 1.
    pub fn new(per_second: u32, burst: u32) -> Self {
        let each = SECOND / u64::from(per_second.max(1));
        Self { each: each.max(1), whole: each.max(1) * u64::from(burst.max(1)) }
    }

    /// Takes a token, or says after what time there is one.
    fn take(self, bucket: &mut Bucket, now: Time) -> Result<(), Duration> {
        let full_at = bucket.full_at.max(now) + Duration::from_nanos(self.each);
        let missing = full_at.nanos_since(now);
        if missing > self.whole {
            return Err(Duration::from_nanos(missing - self.whole));
        }
        bucket.full_at = full_at;
        Ok(())
    }
}

/// The key of a client's bucket: its address or, of IPv6, the first 64 bits of that. A host chooses the rest as it
/// likes (RFC 4291 §2.5.4), and could otherwise have as many buckets as it wants.
fn whose(client: &str) -> Cow<'_, str> {
    match client.parse() {
        Ok(IpAddr::V6(address)) => {
            let [a, b, c, d, ..] = address.segments();
            Cow::Owned(format!("{a:x}:{b:x}:{c:x}:{d:x}::"))
        }
        _ => Cow::Borrowed(client),
    }
}

/// The buckets of a limit.
#[derive(Debug, Clone)]
pub struct RateLimiter {
    limit: Limit,
    by_client: bool,
    clients: BTreeMap<Box<str>, Bucket>,
    /// The bucket of all, or of clients beyond [`MOST_CLIENTS`].
    shared: Bucket,
    /// Before then the table is not searched for clients that can be removed.
    search_at: Time,
}

impl RateLimiter {
    /// Full buckets. `by_client`: one for each client, else one for all.
    pub const fn new(limit: Limit, by_client: bool) -> Self {
        let shared = Bucket { full_at: Time::ZERO };
        Self { limit, by_client, clients: BTreeMap::new(), shared, search_at: Time::ZERO }
    }

    /// Takes a request of the client with this address, or says after what time to come again.
    pub fn take(&mut self, client: &str, now: Time) -> Result<(), Duration> {
        if !self.by_client {
            return self.limit.take(&mut self.shared, now);
        }
        let client = &*whose(client);
        if let Some(bucket) = self.clients.get_mut(client) {
            return self.limit.take(bucket, now);
        }
        if self.clients.len() >= MOST_CLIENTS && now >= self.search_at {
            // A full bucket is the same as none.
            self.clients.retain(|_, bucket| bucket.full_at > now);
            self.search_at = now + Duration::from_nanos((self.limit.whole / 4).clamp(SECOND / 100, SECOND));
        }
        if self.clients.len() >= MOST_CLIENTS {
            return self.limit.take(&mut self.shared, now);
        }
        let mut bucket = Bucket { full_at: now };
        let taken = self.limit.take(&mut bucket, now);
        self.clients.insert(client.into(), bucket);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn a_burst_is_taken_at_once_and_then_the_rate() {
        let mut rate = RateLimiter::new(Limit::new(10, 5), false);
        let mut taken = |ms| (0..100).filter(|_| rate.take("a", at(ms)).is_ok()).count();
        assert_eq!([taken(1_000), taken(1_099), taken(1_100), taken(1_350), taken(9_000)], [5, 0, 1, 2, 5]);
        assert_eq!(rate.take("a", at(9_000)), Err(Duration::from_millis(100)), "when to come again");
        assert_eq!(rate.take("a", at(9_060)), Err(Duration::from_millis(40)));
    }

    #[test]
    fn a_host_has_one_bucket_for_all_addresses_of_its_network_in_ipv6() {
        let mut rate = RateLimiter::new(Limit::new(1, 2), true);
        let mut taken = |client: &str| (0..9).filter(|_| rate.take(client, at(0)).is_ok()).count();
        let of = ["2001:db8:0:1::1", "2001:db8:0:1:ffff::2", "2001:db8:0:2::1", "10.0.0.1", "10.0.0.2"];
        assert_eq!(of.map(&mut taken), [2, 0, 2, 2, 2]);
    }

    #[test]
    fn clients_have_buckets_of_their_own_and_the_table_is_bounded() {
        let mut rate = RateLimiter::new(Limit::new(1, 2), true);
        for client in ["a", "b"] {
            assert_eq!((0..9).filter(|_| rate.take(client, at(0)).is_ok()).count(), 2, "{client}");
        }
        for n in 0..MOST_CLIENTS + 500 {
            let _ = rate.take(&n.to_string(), at(0));
        }
        assert_eq!(rate.clients.len(), MOST_CLIENTS);
        assert!(rate.take("another", at(1)).is_err(), "it shares a bucket with hundreds");
        assert!(rate.take("a", at(1)).is_err(), "and those that are known are remembered");
        assert!(rate.take("another", at(5_000)).is_ok());
        assert_eq!(rate.clients.len(), 1, "all others have rested, and are forgotten");
    }
}
