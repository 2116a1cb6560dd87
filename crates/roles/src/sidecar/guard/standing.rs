//! What is known of an instance's failures, for all loops together.
//!
//! While no request fails, each loop counts those that end well, and reports now and then how many there were: they
//! cost no lock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_proxy::guard::health::Health;
use h2lab_proxy::guard::outlier::{Record, Rules};

/// What is known of an instance.
#[derive(Debug)]
pub struct Standing {
    record: Mutex<Record>,
    /// Until when it is left out.
    until: AtomicU64,
    /// The last request has failed.
    is_failing: AtomicBool,
    /// It is well according to its checks, which the first loop makes.
    is_well: AtomicBool,
    /// The last connection that a loop tried was not made.
    is_unreachable: AtomicBool,
    /// It was reported that it does not speak HTTP/2.
    is_told: AtomicBool,
    /// When it was reported that it is not reached over HTTP/3, in nanoseconds; 0 if it was not, or if it was reached
    /// since.
    told_of_http3: AtomicU64,
    /// Connections over QUIC on which nothing has come since then are likely to be gone, in nanoseconds.
    gone_at: AtomicU64,
}

impl Default for Standing {
    fn default() -> Self {
        Self {
            record: Mutex::default(),
            until: AtomicU64::new(0),
            is_failing: AtomicBool::new(false),
            is_well: AtomicBool::new(true),
            is_unreachable: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
            told_of_http3: AtomicU64::new(0),
            gone_at: AtomicU64::new(0),
        }
    }
}

impl Standing {
    /// Its counts; [`Standing::release`] makes known what has changed.
    pub fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the changed counts visible without the lock.
    fn release(&self, record: &MutexGuard<'_, Record>) {
        self.until.store(record.until().as_nanos(), Ordering::Release);
        self.is_failing.store(record.is_failing(), Ordering::Relaxed);
    }

    /// Whether it is left out.
    pub fn is_out(&self, now: Time) -> bool {
        now.as_nanos() < self.until.load(Ordering::Acquire)
    }

    /// Whether its checks succeed, or there are none.
    pub fn is_well(&self) -> bool {
        self.is_well.load(Ordering::Acquire)
    }

    /// Whether it may get requests like any other instance.
    pub fn is_fit(&self, now: Time) -> bool {
        self.is_well() && !self.is_out(now)
    }

    /// A request of a loop has ended; `uncounted` others of it ended well before. Returns whether the instance should
    /// be left out.
    pub fn ended(&self, failed: bool, uncounted: &mut u32, rules: &Rules, now: Time) -> bool {
        if !failed && !self.is_failing.load(Ordering::Relaxed) {
            *uncounted = uncounted.saturating_add(1);
            return false;
        }
        let mut record = self.record();
        record.count(std::mem::take(uncounted));
        let should = record.ended(failed, rules, now);
        self.release(&record);
        should
    }

    /// Counts what ended well in a loop.
    pub fn count(&self, uncounted: &mut u32) {
        if *uncounted > 0 {
            self.record().count(std::mem::take(uncounted));
        }
    }

    /// It is left out; until when. `None` if it is already.
    pub fn eject(&self, rules: &Rules, now: Time) -> Option<Time> {
        let mut record = self.record();
        if record.is_out(now) {
            return None;
        }
        record.eject(rules, now);
        self.release(&record);
        Some(record.until())
    }

    /// Records the present result of its checks.
    pub fn examined(&self, health: Health) {
        self.is_well.store(health.is_well(), Ordering::Release);
    }

    /// A loop has tried to connect to it.
    pub fn dialled(&self, is_reached: bool) {
        self.is_unreachable.store(!is_reached, Ordering::Relaxed);
    }

    /// Whether the last connection that any loop tried was not made. A loop that has tried none relies on this.
    pub fn is_unreachable(&self) -> bool {
        self.is_unreachable.load(Ordering::Relaxed)
    }

    /// Whether to report that it does not speak HTTP/2: once, until it is started anew.
    pub fn may_tell(&self) -> bool {
        !self.is_told.swap(true, Ordering::Relaxed)
    }

    /// It is being started anew, and may speak HTTP/2 then.
    pub fn starts(&self) {
        self.is_told.store(false, Ordering::Relaxed);
    }

    /// Whether to report that it is not reached over HTTP/3: once by all loops in each `period`, until it is reached.
    pub fn may_tell_of_http3(&self, now: Time, period: Duration) -> bool {
        let told = &self.told_of_http3;
        let before = told.load(Ordering::Relaxed);
        let is_due = before == 0 || now.since(Time::from_nanos(before)) >= period;
        let at = now.as_nanos().max(1);
        is_due && told.compare_exchange(before, at, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// It has lost its connections over QUIC; any later answer comes from a new one.
    pub fn gone(&self, since: Time) {
        self.gone_at.fetch_max(since.as_nanos(), Ordering::Relaxed);
    }

    /// When it last lost them.
    pub fn gone_at(&self) -> Time {
        Time::from_nanos(self.gone_at.load(Ordering::Relaxed))
    }

    /// It was reached over HTTP/3.
    pub fn reached_over_http3(&self) {
        self.told_of_http3.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules {
        consecutive: 3,
        percent: 50,
        base: Duration::from_secs(10),
        most: Duration::from_secs(25),
        share: 50,
        panic: 50,
    };

    #[test]
    fn failures_of_several_loops_are_one_row_and_any_success_ends_it() {
        let standing = Standing::default();
        let (mut a, mut b) = (0, 0);
        let now = Time::from_millis(1);
        assert!(!standing.ended(true, &mut a, &RULES, now) && !standing.ended(true, &mut b, &RULES, now));
        assert!(!standing.ended(false, &mut b, &RULES, now));
        assert_eq!((a, b), (0, 0), "it was counted at once: the row is over");
        assert!(!standing.ended(true, &mut a, &RULES, now) && !standing.ended(true, &mut b, &RULES, now));
        assert!(standing.ended(true, &mut a, &RULES, now), "three in a row");
        assert!(standing.is_fit(now));
        let until = standing.eject(&RULES, now).expect("it was not out");
        assert_eq!(standing.eject(&RULES, now), None, "another loop was quicker");
        assert_eq!(
            [standing.is_out(now), standing.is_fit(now), standing.is_out(until)],
            [true, false, false]
        );
    }

    #[test]
    fn that_http3_has_no_effect_is_said_once_by_all_loops_in_each_period() {
        let (standing, period) = (Standing::default(), Duration::from_secs(300));
        let may = |seconds: u64| standing.may_tell_of_http3(Time::from_millis(seconds * 1_000), period);
        assert_eq!([0, 0, 299, 301, 302].map(may), [true, false, false, true, false]);
        standing.reached_over_http3();
        assert!(may(303), "it is news again");
    }

    #[test]
    fn what_ends_well_is_counted_when_it_is_said() {
        let standing = Standing::default();
        let mut uncounted = 0;
        (0..30).for_each(|_| assert!(!standing.ended(false, &mut uncounted, &RULES, Time::ZERO)));
        assert_eq!(uncounted, 30);
        standing.count(&mut uncounted);
        assert_eq!(uncounted, 0);
        // 30 requests, of which none failed, and another instance with 30 of which all did.
        let mut other = Record::default();
        other.count(0);
        let never = Rules { consecutive: 0, ..RULES };
        (0..30).for_each(|_| assert!(!other.ended(true, &never, Time::ZERO)));
        let worse = h2lab_proxy::guard::outlier::compare(
            &mut [&mut standing.record(), &mut other],
            &RULES,
            Time::ZERO,
        );
        assert_eq!(worse, [1]);
    }
}
