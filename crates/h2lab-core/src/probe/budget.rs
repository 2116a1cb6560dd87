//! How much a probe may ask of a host: requests, bytes, time, and how fast.

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{Time, format_bytes, format_duration};

/// What a probe may send to a host at most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Allowance {
    /// Requests: whatever may make the host do something, answered or not.
    pub requests: u64,
    /// Bytes sent, in clear.
    pub bytes: u64,
    /// From the first connection to the last.
    pub time: Duration,
    /// Requests per second.
    pub rate: f64,
}

impl Allowance {
    /// What anybody may ask of a host: less than a page with its pictures.
    pub const GENTLE: Self =
        Self { requests: 100, bytes: 1 << 20, time: Duration::from_secs(180), rate: 50.0 };

    /// What whoever answers for a host may ask of it. Enough to find a quota of 10,000 requests, and what
    /// becomes of those above it.
    pub const OWNED: Self =
        Self { requests: 30_000, bytes: 256 << 20, time: Duration::from_secs(600), rate: 2_000.0 };
}

/// What has been used of an [`Allowance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Spent {
    /// Requests sent.
    pub requests: u64,
    /// Bytes sent, in clear.
    pub bytes: u64,
    /// Connections dialled.
    pub connections: u64,
    /// Milliseconds from the first connection to the end.
    pub ms: u64,
}

/// Why a probe may not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exhausted {
    /// So many requests were sent.
    Requests(u64),
    /// So many bytes are all that may be sent.
    Bytes(u64),
    /// So long has it taken.
    Time(Duration),
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requests(n) => write!(f, "the budget of {n} requests is used up (--max-requests)"),
            Self::Bytes(n) => write!(f, "the budget of {} is used up (--max-bytes)", format_bytes(*n)),
            Self::Time(time) => {
                write!(f, "the budget of {} is used up (--max-time)", format_duration(*time))
            }
        }
    }
}

impl std::error::Error for Exhausted {}

/// Counts what is sent to a host, and says when it is enough.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    allowance: Allowance,
    began: Time,
    spent: Spent,
    /// When the next request may go.
    next_at: Time,
}

impl Budget {
    /// Nothing has been sent at `now`.
    pub fn new(allowance: Allowance, now: Time) -> Self {
        Self { allowance, began: now, spent: Spent::default(), next_at: now }
    }

    /// Takes one request; when it may go, which is `now` or later.
    pub fn request(&mut self, now: Time) -> Result<Time, Exhausted> {
        self.check_time(now)?;
        if self.spent.requests >= self.allowance.requests {
            return Err(Exhausted::Requests(self.allowance.requests));
        }
        self.spent.requests += 1;
        let at = self.next_at.max(now);
        self.next_at = at + Duration::from_secs_f64(1.0 / self.allowance.rate.max(0.001));
        Ok(at)
    }

    /// Takes `n` bytes that are to be sent.
    pub fn bytes(&mut self, now: Time, n: usize) -> Result<(), Exhausted> {
        self.check_time(now)?;
        let after = self.spent.bytes.saturating_add(n as u64);
        if after > self.allowance.bytes {
            return Err(Exhausted::Bytes(self.allowance.bytes));
        }
        self.spent.bytes = after;
        Ok(())
    }

    /// Takes a connection.
    pub fn connection(&mut self, now: Time) -> Result<(), Exhausted> {
        self.check_time(now)?;
        self.spent.connections += 1;
        Ok(())
    }

    fn check_time(&self, now: Time) -> Result<(), Exhausted> {
        if now >= self.ends_at() { Err(Exhausted::Time(self.allowance.time)) } else { Ok(()) }
    }

    /// When its time is over.
    pub fn ends_at(&self) -> Time {
        self.began + self.allowance.time
    }

    /// Requests that may still be sent.
    pub const fn requests_left(&self) -> u64 {
        self.allowance.requests.saturating_sub(self.spent.requests)
    }

    /// Bytes that may still be sent.
    pub const fn bytes_left(&self) -> u64 {
        self.allowance.bytes.saturating_sub(self.spent.bytes)
    }

    /// What is allowed in all.
    pub const fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    /// What has been used by `now`.
    pub fn spent(&self, now: Time) -> Spent {
        Spent { ms: u64::try_from(now.since(self.began).as_millis()).unwrap_or(u64::MAX), ..self.spent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Allowance = Allowance { requests: 2, bytes: 10, time: Duration::from_secs(5), rate: 10.0 };

    #[test]
    fn the_last_request_is_taken_and_the_next_is_not() {
        let mut budget = Budget::new(SMALL, Time::ZERO);
        assert_eq!(budget.request(Time::ZERO), Ok(Time::ZERO));
        assert_eq!(budget.request(Time::ZERO), Ok(Time::from_millis(100)), "ten a second");
        assert_eq!(budget.request(Time::ZERO), Err(Exhausted::Requests(2)));
        assert_eq!(budget.spent(Time::from_millis(7)), Spent { requests: 2, ms: 7, ..Spent::default() });
    }

    #[test]
    fn bytes_are_taken_as_a_whole_or_not_at_all() {
        let mut budget = Budget::new(SMALL, Time::ZERO);
        assert_eq!(budget.bytes(Time::ZERO, 6), Ok(()));
        assert_eq!(budget.bytes(Time::ZERO, 5), Err(Exhausted::Bytes(10)));
        assert_eq!(budget.bytes(Time::ZERO, 4), Ok(()));
        assert_eq!(budget.bytes_left(), 0);
    }

    #[test]
    fn nothing_is_taken_once_the_time_is_over() {
        let mut budget = Budget::new(SMALL, Time::from_millis(1_000));
        assert!(budget.connection(Time::from_millis(5_999)).is_ok());
        let over = Err(Exhausted::Time(Duration::from_secs(5)));
        assert_eq!(budget.connection(Time::from_millis(6_000)), over);
        assert_eq!(budget.bytes(Time::from_millis(6_000), 1), over);
    }

    #[test]
    fn a_request_that_comes_late_does_not_save_up_for_others() {
        let mut budget = Budget::new(Allowance { requests: 10, ..SMALL }, Time::ZERO);
        assert_eq!(budget.request(Time::from_millis(950)), Ok(Time::from_millis(950)));
        assert_eq!(budget.request(Time::from_millis(951)), Ok(Time::from_millis(1_050)));
    }
}
