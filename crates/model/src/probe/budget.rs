//! How much a probe may ask of a host: requests, bytes either way, time, and how fast.

use std::fmt;
use std::time::Duration;

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use h2lab_base::units::{Time, format_bytes, format_duration};

/// The most that a probe may send to a host, and have the host send.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Allowance {
    /// Requests: everything that may cause work on the host, answered or not.
    pub requests: u64,
    /// Bytes sent, in clear.
    pub bytes: u64,
    /// Bytes received, in clear.
    pub received: u64,
    /// From the first connection to the last.
    pub time: Duration,
    /// Requests per second.
    pub rate: f64,
}

impl Allowance {
    /// The allowance without authorization: less than a page with its pictures.
    pub const GENTLE: Self = Self {
        requests: 100,
        bytes: 1 << 20,
        received: 32 << 20,
        time: Duration::from_secs(180),
        rate: 50.0,
    };

    /// The allowance for a host of one's own. Enough to find a quota of 10,000 requests, and the fate of those above it.
    pub const OWNED: Self = Self {
        requests: 30_000,
        bytes: 256 << 20,
        received: 1 << 30,
        time: Duration::from_secs(600),
        rate: 2_000.0,
    };
}

/// What has been used of an [`Allowance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Spent {
    /// Requests sent.
    pub requests: u64,
    /// Bytes sent, in clear.
    pub bytes: u64,
    /// Bytes received, in clear; 0 for a client under test, which is sent no requests.
    #[serde(default)]
    pub received: u64,
    /// Connections dialled.
    pub connections: u64,
    /// Milliseconds from the first connection to the end.
    pub ms: u64,
}

/// Why a probe must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exhausted {
    /// The maximum of requests sent.
    Requests(u64),
    /// The maximum of bytes sent.
    Bytes(u64),
    /// The maximum of bytes received.
    Received(u64),
    /// The maximum of time.
    Time(Duration),
}

impl Exhausted {
    /// The flag that allows more: for a maximum other than the default, the flag that set it.
    const fn remedy(&self) -> &'static str {
        let gentle = Allowance::GENTLE;
        match self {
            Self::Requests(n) if *n == gentle.requests => MORE,
            Self::Bytes(n) if *n == gentle.bytes => MORE,
            Self::Received(n) if *n == gentle.received => MORE,
            Self::Time(time) if time.as_nanos() == gentle.time.as_nanos() => MORE,
            Self::Requests(_) => "--max-requests allows more",
            Self::Bytes(_) => "--max-bytes allows more",
            Self::Received(_) => "a path with a smaller response needs less",
            Self::Time(_) => "--max-time allows more",
        }
    }
}

/// How to allow more than [`Allowance::GENTLE`].
const MORE: &str = "--i-own-this-host allows more";

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requests(n) => write!(f, "the budget of {n} requests is used up"),
            Self::Bytes(n) => write!(f, "the budget of {} to send is used up", format_bytes(*n)),
            Self::Received(n) => write!(f, "the budget of {} to receive is used up", format_bytes(*n)),
            Self::Time(time) => write!(f, "the budget of {} is used up", format_duration(*time)),
        }?;
        write!(f, "; {}", self.remedy())
    }
}

impl std::error::Error for Exhausted {}

/// Counts what is sent to a host, and refuses what exceeds the allowance.
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

    /// Takes one request; returns when it may be sent, `now` or later.
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

    /// Counts `n` bytes that have been sent, even beyond the allowance: sent bytes always count.
    pub const fn sent(&mut self, n: usize) {
        self.spent.bytes = self.spent.bytes.saturating_add(n as u64);
    }

    /// Counts `n` bytes that have come.
    pub const fn received(&mut self, n: usize) {
        self.spent.received = self.spent.received.saturating_add(n as u64);
    }

    /// How many bytes may still come; the error once none may.
    pub const fn receivable(&self) -> Result<u64, Exhausted> {
        match self.allowance.received.saturating_sub(self.spent.received) {
            0 => Err(Exhausted::Received(self.allowance.received)),
            left => Ok(left),
        }
    }

    /// The flag that allows more requests, for a check that stops before the allowance is used up.
    pub const fn remedy(&self) -> &'static str {
        Exhausted::Requests(self.allowance.requests).remedy()
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

    /// When its time ends.
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

    const SMALL: Allowance =
        Allowance { requests: 2, bytes: 10, received: 100, time: Duration::from_secs(5), rate: 10.0 };

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
    fn what_has_gone_or_come_is_counted_whatever_is_left() {
        let mut budget = Budget::new(SMALL, Time::ZERO);
        budget.sent(12);
        assert_eq!((budget.spent(Time::ZERO).bytes, budget.bytes_left()), (12, 0));
        budget.received(99);
        assert_eq!(budget.receivable(), Ok(1));
        budget.received(5);
        assert_eq!(budget.receivable(), Err(Exhausted::Received(100)));
        assert_eq!(budget.spent(Time::ZERO).received, 104);
    }

    #[test]
    fn what_is_used_up_names_what_allows_more() {
        let gentle = Allowance::GENTLE;
        for why in [Exhausted::Requests(100), Exhausted::Bytes(gentle.bytes), Exhausted::Time(gentle.time)] {
            assert!(why.to_string().ends_with("; --i-own-this-host allows more"), "{why}");
        }
        assert!(Exhausted::Requests(101).to_string().ends_with("; --max-requests allows more"));
        assert_eq!(Budget::new(Allowance::OWNED, Time::ZERO).remedy(), "--max-requests allows more");
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
