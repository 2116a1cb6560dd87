//! How many requests may be sent again: a share of those that came lately, so that retries never multiply the load of a service that
//! fails under it (Google SRE, "Handling Overload"; Linkerd's and Envoy's retry budgets).

use h2lab_base::units::Time;

/// How many seconds requests and retries count.
const SECONDS: usize = 10;

/// What has happened in a second.
#[derive(Debug, Clone, Copy, Default)]
struct Second {
    requests: u64,
    retries: u64,
}

/// The budget of a service.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Percent of the requests of the last ten seconds.
    percent: u32,
    /// Retries a second that are allowed in any case: a service with few requests could otherwise have none.
    least: u32,
    seconds: [Second; SECONDS],
    /// The second of the newest entry.
    second: u64,
    sum: Second,
}

impl Budget {
    /// An empty one: `percent` of the requests of the last ten seconds, and `least` a second in any case.
    pub fn new(percent: u32, least: u32) -> Self {
        Self { percent, least, seconds: [Second::default(); SECONDS], second: 0, sum: Second::default() }
    }

    fn advance(&mut self, now: Time) {
        let second = now.as_nanos() / 1_000_000_000;
        let passed = second.saturating_sub(self.second).min(SECONDS as u64);
        for n in 1..=passed {
            let old = &mut self.seconds[((self.second + n) % SECONDS as u64) as usize];
            self.sum.requests -= old.requests;
            self.sum.retries -= old.retries;
            *old = Second::default();
        }
        self.second = self.second.max(second);
    }

    fn newest(&mut self) -> &mut Second {
        &mut self.seconds[(self.second % SECONDS as u64) as usize]
    }

    /// `n` requests have come.
    pub fn requests(&mut self, n: u64, now: Time) {
        self.advance(now);
        self.newest().requests += n;
        self.sum.requests += n;
    }

    /// Takes a retry from the budget; `false` if nothing is left of it.
    #[must_use]
    pub fn retry(&mut self, now: Time) -> bool {
        self.advance(now);
        let allowed =
            self.sum.requests * u64::from(self.percent) / 100 + u64::from(self.least) * SECONDS as u64;
        let may = self.sum.retries < allowed;
        if may {
            self.newest().retries += 1;
            self.sum.retries += 1;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn a_fifth_of_the_requests_of_ten_seconds_may_be_sent_again() {
        let mut budget = Budget::new(20, 0);
        assert!(!budget.retry(at(0)), "there was no request");
        (0..1_000).for_each(|n| budget.requests(1, at(n)));
        assert_eq!((0..1_000).filter(|_| budget.retry(at(1_000))).count(), 200);
        (0..100).for_each(|n| budget.requests(1, at(5_000 + n)));
        assert_eq!((0..1_000).filter(|_| budget.retry(at(5_200))).count(), 20);
        // The first thousand no longer count, nor do the retries of that second.
        assert_eq!((0..1_000).filter(|_| budget.retry(at(11_500))).count(), 0, "100 requests, 20 retries");
        assert_eq!((0..1_000).filter(|_| budget.retry(at(500_000))).count(), 0);
    }

    #[test]
    fn a_few_are_allowed_where_there_are_few_requests() {
        let mut budget = Budget::new(0, 3);
        assert_eq!((0..100).filter(|_| budget.retry(at(0))).count(), 30);
        assert_eq!((0..100).filter(|_| budget.retry(at(9_999))).count(), 0);
        assert_eq!((0..100).filter(|_| budget.retry(at(10_000))).count(), 30);
    }

    #[test]
    fn retries_of_a_service_that_always_fails_are_a_fifth_of_its_requests() {
        let mut budget = Budget::new(20, 1);
        let mut retries = 0;
        for n in 0..60_000_u64 {
            budget.requests(1, at(n));
            retries += u32::from(budget.retry(at(n))) + u32::from(budget.retry(at(n)));
        }
        assert!((12_000..12_200).contains(&retries), "{retries}");
    }
}
