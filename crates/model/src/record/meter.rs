//! Throughput over wall-clock time.

use h2lab_base::JsonSchema;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use h2lab_base::units::{Time, nanos};

/// Counts bytes by the interval in which they came. Time begins with the first request and ends with the last byte: all time
/// in between is wall-clock time, waiting included, so that the sum over many streams is what the wire carried.
/// (A mean of per-stream rates, each over its own time, can be off tenfold in either direction.)
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteMeter {
    began: Time,
    ended: Time,
    #[serde(rename = "interval_ns", with = "interval_ns")]
    interval: Duration,
    bytes: Vec<u64>,
}

/// Durations in JSON as whole nanoseconds.
mod interval_ns {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(interval: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(h2lab_base::units::nanos(*interval))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(|ns| Duration::from_nanos(ns.max(1)))
    }
}

impl ByteMeter {
    /// The interval of a new meter.
    pub const INTERVAL: Duration = Duration::from_millis(100);
    /// The most intervals that are kept: an hour of 100 ms. Beyond that pairs are merged, and the interval doubles.
    pub const MOST: usize = 36_000;

    /// A meter of transfers whose first request was sent at `began`.
    pub const fn new(began: Time) -> Self {
        Self::with_interval(began, Self::INTERVAL)
    }

    /// The same with this interval, above zero.
    pub const fn with_interval(began: Time, interval: Duration) -> Self {
        let interval = if interval.is_zero() { Self::INTERVAL } else { interval };
        Self { began, ended: began, interval, bytes: Vec::new() }
    }

    /// Counts `bytes` that came at `now`; times need not be in order. Earlier ones than the beginning count there.
    pub fn add(&mut self, now: Time, bytes: u64) {
        self.add_over(now, now, bytes);
    }

    /// Counts `bytes` that came between `from` and `until`, when exactly is not known: evenly over that time. Counted at
    /// its end, they would give the interval of that moment the bytes of the one before. Times before the beginning
    /// count there.
    pub fn add_over(&mut self, from: Time, until: Time, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let until = until.max(self.began);
        let from = from.clamp(self.began, until);
        while self.index(until) >= Self::MOST as u64 {
            self.bytes = self.bytes.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.interval *= 2;
        }
        self.ended = self.ended.max(until);
        let (start, end) = (nanos(from.since(self.began)), nanos(until.since(self.began)));
        let mut counted = 0;
        for n in self.index(from)..self.index(until) {
            // What came until the end of this interval, rounded down: the last one has what is missing to the sum.
            let until_then = (n + 1).saturating_mul(nanos(self.interval));
            let share = u128::from(bytes) * u128::from(until_then - start) / u128::from(end - start);
            self.count(n, share as u64 - counted);
            counted = share as u64;
        }
        self.count(self.index(until), bytes - counted);
    }

    /// Counts `bytes` in the interval with this index, below [`Self::MOST`].
    fn count(&mut self, index: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let index = index as usize;
        if index >= self.bytes.len() {
            self.bytes.resize(index + 1, 0);
        }
        self.bytes[index] += bytes;
    }

    /// Removes the last counted bytes, which turned out not to have arrived.
    pub fn take_back(&mut self, mut bytes: u64) {
        for counted in self.bytes.iter_mut().rev() {
            let fewer = bytes.min(*counted);
            (*counted, bytes) = (*counted - fewer, bytes - fewer);
        }
    }

    /// Adds another meter, whose times `to_ours` converts to this one's. Inside an interval bytes have no time
    /// of their own: they count evenly over it, those of the last one until the last byte came.
    pub fn add_all(&mut self, other: &Self, to_ours: impl Fn(Time) -> Time) {
        for (n, &bytes) in (0..).zip(&other.bytes) {
            let from = (other.began + other.interval * n).min(other.ended);
            let until = (other.began + other.interval * (n + 1)).min(other.ended);
            self.add_over(to_ours(from), to_ours(until), bytes);
        }
        if !other.bytes.is_empty() {
            self.ended = self.ended.max(to_ours(other.ended));
        }
    }

    fn index(&self, now: Time) -> u64 {
        nanos(now.since(self.began)) / nanos(self.interval).max(1)
    }

    /// When the first request was sent.
    pub const fn began(&self) -> Time {
        self.began
    }

    /// When the last byte came; as `began` if none did.
    pub const fn ended(&self) -> Time {
        self.ended
    }

    /// The length of an interval.
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    /// Bytes of each interval, from the first request to the one of the last byte.
    pub fn intervals(&self) -> &[u64] {
        &self.bytes
    }

    /// All bytes.
    pub fn total(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// From the first request to the last byte.
    pub const fn elapsed(&self) -> Duration {
        self.ended.since(self.began)
    }

    /// All bytes over all time, in bits per second; `None` before the first byte.
    pub fn aggregate(&self) -> Option<f64> {
        bits_per_second(self.total(), self.elapsed())
    }

    /// Bits per second of the last `window` before the last byte: over its whole intervals, since bytes inside an
    /// interval have no time of their own; the last interval counts only if it was over. `None` if there is none.
    pub fn over_last(&self, window: Duration) -> Option<f64> {
        self.until(self.ended, window)
    }

    /// Bits per second from `from` after the beginning, over `length`, whether bytes came all that time or not; of a partly
    /// covered interval that part counts. `None` if `length` is zero.
    pub fn within(&self, from: Duration, length: Duration) -> Option<f64> {
        let interval = nanos(self.interval).max(1) as f64;
        let (first, last) = (nanos(from) as f64 / interval, nanos(from + length) as f64 / interval);
        let counted = self.bytes.iter().enumerate().map(|(n, &bytes)| {
            let part = last.min(n as f64 + 1.0) - first.max(n as f64);
            bytes as f64 * part.max(0.0)
        });
        (!length.is_zero()).then(|| counted.sum::<f64>() * 8.0 / length.as_secs_f64())
    }

    /// As [`ByteMeter::over_last`], before `now`, while bytes are still coming.
    pub fn recent(&self, now: Time, window: Duration) -> Option<f64> {
        self.until(now, window)
    }

    fn until(&self, until: Time, window: Duration) -> Option<f64> {
        let end = self.index(until);
        let from = nanos(until.since(self.began)).saturating_sub(nanos(window));
        let first = from.div_ceil(nanos(self.interval).max(1));
        let count = u32::try_from(end.checked_sub(first)?).ok()?;
        let counted = self.bytes.iter().take(end as usize).skip(first as usize).sum();
        bits_per_second(counted, self.interval.checked_mul(count)?)
    }

    /// How long `left` bytes take at the speed of the last five seconds before `now`; `None` if nothing came in them.
    pub fn time_left(&self, now: Time, left: u64) -> Option<Duration> {
        let speed = self.recent(now, Duration::from_secs(5)).filter(|speed| *speed > 0.0)?;
        Duration::try_from_secs_f64(left as f64 * 8.0 / speed).ok()
    }
}

/// `bytes` in `time`, in bits per second; `None` if `time` is zero.
pub fn bits_per_second(bytes: u64, time: Duration) -> Option<f64> {
    (!time.is_zero()).then(|| bytes as f64 * 8.0 / time.as_secs_f64())
}

/// CPU seconds per GB (10^9 bytes); `None` without bytes.
pub fn cpu_per_gb(cpu: Duration, bytes: u64) -> Option<f64> {
    (bytes > 0).then(|| cpu.as_secs_f64() / (bytes as f64 / 1e9))
}

/// A rate as text, with three significant digits: `134 Mbit/s`, `1.07 Gbit/s`.
pub fn bits_text(bits_per_second: f64) -> String {
    let scaled = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")]
        .into_iter()
        .find(|(scale, _)| bits_per_second >= 0.9995 * scale);
    let Some((scale, unit)) = scaled else { return format!("{bits_per_second:.0} bit/s") };
    let value = bits_per_second / scale;
    match value {
        v if v >= 99.95 => format!("{v:.0} {unit}"),
        v if v >= 9.995 => format!("{v:.1} {unit}"),
        v => format!("{v:.2} {unit}"),
    }
}

/// What several streams have of something, from the least to the most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RateSpread {
    /// The least.
    pub min: f64,
    /// The one in the middle; between the two in the middle of an even number.
    pub median: f64,
    /// The most.
    pub max: f64,
    /// Of how many.
    pub n: u64,
}

impl RateSpread {
    /// The spread of these numbers; `None` without any.
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Self> {
        Self::weighted(numbers.into_iter().map(|number| (number, 1)))
    }

    /// The spread of numbers with their counts; `None` without any.
    pub fn weighted(numbers: impl IntoIterator<Item = (f64, u64)>) -> Option<Self> {
        let mut sorted: Vec<(f64, u64)> = numbers.into_iter().filter(|(_, times)| *times > 0).collect();
        sorted.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let ((min, _), (max, _)) = (*sorted.first()?, *sorted.last()?);
        let n: u64 = sorted.iter().map(|(_, times)| times).sum();
        let at = |rank: u64| {
            let mut passed = 0;
            let found = sorted.iter().find(|(_, times)| {
                passed += times;
                passed > rank
            });
            found.map_or(max, |(number, _)| *number)
        };
        Some(Self { min, median: f64::midpoint(at((n - 1) / 2), at(n / 2)), max, n })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn the_aggregate_is_all_bytes_from_the_first_request_to_the_last_byte() {
        let mut meter = ByteMeter::new(ms(1000));
        assert_eq!(meter.aggregate(), None);
        // Half a second until the first byte counts as any other.
        meter.add(ms(1500), 100_000);
        meter.add(ms(2000), 25_000);
        assert_eq!((meter.total(), meter.elapsed()), (125_000, Duration::from_secs(1)));
        assert_eq!(meter.aggregate(), Some(1e6));
        assert_eq!(meter.intervals().len(), 11);
        meter.add(ms(9000), 0);
        assert_eq!(meter.ended(), ms(2000));
    }

    #[test]
    fn streams_side_by_side_give_their_sum_and_not_their_mean() {
        // Ten streams share 1 Gbit/s one after the other: each has the whole of it while it lasts.
        let mut meter = ByteMeter::new(ms(0));
        for stream in 0..10 {
            meter.add(ms(100 * stream + 100), 12_500_000);
        }
        assert_eq!(meter.aggregate(), Some(1e9));
    }

    #[test]
    fn meters_of_several_clocks_add_up_on_one() {
        let (mut ours, mut theirs) = (ByteMeter::new(ms(1000)), ByteMeter::new(ms(20)));
        ours.add(ms(1950), 1);
        theirs.add(ms(120), 2);
        theirs.add(ms(950), 4);
        ours.add_all(&theirs, |time| time + Duration::from_secs(1));
        assert_eq!((ours.total(), ours.ended()), (7, ms(1950)));
        assert_eq!(ours.intervals()[9], 5, "the last byte of both came at 1950");
        ours.add_all(&ByteMeter::new(ms(5000)), |time| time);
        assert_eq!(ours.ended(), ms(1950), "who carried nothing adds no time");
    }

    #[test]
    fn bytes_of_a_span_are_spread_evenly_over_it_and_none_is_lost() {
        let mut meter = ByteMeter::new(ms(1000));
        meter.add_over(ms(1050), ms(1250), 200);
        assert_eq!((meter.intervals(), meter.ended()), (&[50, 100, 50][..], ms(1250)));
        // No interval begins before there is a byte in it.
        meter.add_over(ms(1250), ms(1300), 10);
        assert_eq!((meter.intervals(), meter.ended()), (&[50, 100, 60][..], ms(1300)));
        // Times before the beginning, and a span that is reversed, count at a point.
        meter.add_over(ms(0), ms(10), 1);
        meter.add_over(ms(1190), ms(1100), 2);
        assert_eq!((meter.intervals(), meter.ended()), (&[51, 102, 60][..], ms(1300)));
        meter.add_over(ms(0), ms(1200), 100);
        assert_eq!((meter.intervals()[0], meter.total()), (101, 313));
    }

    #[test]
    fn two_meters_that_begin_one_after_the_other_have_no_peak_at_the_end_of_their_sum() {
        let steady = |began: u64| {
            let mut meter = ByteMeter::new(ms(began));
            (began..began + 2_000).for_each(|at| meter.add_over(ms(at), ms(at + 1), 1_000));
            meter
        };
        let mut all = ByteMeter::new(ms(1_000));
        for one in [steady(1_000), steady(1_016)] {
            all.add_all(&one, |time| time);
        }
        assert_eq!((all.total(), all.elapsed()), (4_000_000, Duration::from_millis(2_016)));
        assert_eq!(all.intervals().len(), 21);
        assert_eq!(all.intervals()[0], 184_000, "the second one was not there for 16 ms");
        assert!(all.intervals()[1..20].iter().all(|&bytes| bytes == 200_000), "{:?}", all.intervals());
        assert_eq!(all.intervals()[20], 16_000, "16 ms have the bytes of 16 ms");
    }

    #[test]
    fn what_did_not_come_is_taken_back_from_the_end() {
        let mut meter = ByteMeter::new(ms(0));
        (0..3).for_each(|tick| meter.add(ms(100 * tick), 10));
        meter.take_back(15);
        assert_eq!((meter.intervals(), meter.total(), meter.ended()), (&[10, 5, 0][..], 15, ms(200)));
        meter.take_back(100);
        assert_eq!(meter.total(), 0);
    }

    #[test]
    fn the_last_seconds_are_those_before_the_last_byte() {
        let mut meter = ByteMeter::new(ms(0));
        for tick in 0..600 {
            // 100 Mbit/s for half a minute, then 1 Gbit/s for as long, in the middle of each interval.
            meter.add(ms(100 * tick + 50), if tick < 300 { 1_250_000 } else { 12_500_000 });
        }
        meter.add(ms(60_000), 1);
        assert_eq!(meter.over_last(Duration::from_secs(30)), Some(1e9));
        assert_eq!(meter.over_last(Duration::from_secs(3600)), Some(0.55e9));
        assert!(meter.over_last(Duration::from_millis(99)).is_none());
        assert_eq!(meter.recent(ms(70_000), Duration::from_secs(5)), Some(0.0));
        assert_eq!(meter.recent(ms(0), Duration::from_secs(5)), None);
    }

    #[test]
    fn a_time_in_which_nothing_came_counts_as_any_other() {
        let mut meter = ByteMeter::new(ms(500));
        for tick in 0..20 {
            meter.add(ms(500 + 100 * tick), if tick < 10 { 1_250_000 } else { 12_500_000 });
        }
        let seconds = Duration::from_secs;
        assert_eq!(meter.within(seconds(1), seconds(1)), Some(1e9));
        // It breaks off after two seconds: half of the measured time.
        assert_eq!(meter.within(seconds(1), seconds(2)), Some(0.5e9));
        assert_eq!(meter.within(Duration::from_millis(950), Duration::from_millis(100)), Some(0.55e9));
        assert_eq!(
            (meter.within(seconds(9), seconds(1)), meter.within(seconds(0), seconds(0))),
            (Some(0.0), None)
        );
    }

    #[test]
    fn time_left_follows_the_recent_speed() {
        let mut meter = ByteMeter::new(ms(0));
        (0..100).for_each(|tick| meter.add(ms(100 * tick), 100_000));
        assert_eq!(meter.time_left(ms(10_000), 10_000_000), Some(Duration::from_secs(10)));
        assert_eq!(meter.time_left(ms(60_000), 1), None);
    }

    #[test]
    fn a_long_transfer_takes_bounded_memory_and_loses_nothing() {
        let mut meter = ByteMeter::new(ms(0));
        let ticks = ByteMeter::MOST as u64 * 3;
        (0..ticks).for_each(|tick| meter.add(ms(100 * tick), 1));
        assert!(meter.intervals().len() <= ByteMeter::MOST);
        assert_eq!((meter.total(), meter.interval()), (ticks, ByteMeter::INTERVAL * 4));
        assert!(meter.intervals()[..1000].iter().all(|&bytes| bytes == 4));
        meter.add(Time::from_nanos(u64::MAX - 1), 1);
        assert!(meter.intervals().len() <= ByteMeter::MOST && meter.total() == ticks + 1);
    }

    #[test]
    fn rates_have_three_digits_in_the_largest_unit() {
        let rates = [0.0, 999.0, 1e3, 134_217_728.0, 999.6e6, 1.0737e9, 99.96e9];
        let texts =
            ["0 bit/s", "999 bit/s", "1.00 kbit/s", "134 Mbit/s", "1.00 Gbit/s", "1.07 Gbit/s", "100 Gbit/s"];
        assert_eq!(rates.map(bits_text), texts);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        let of = |numbers: &[f64]| RateSpread::of(numbers.iter().copied());
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some(RateSpread { min: 1.0, median: 2.0, max: 3.0, n: 3 }));
        assert_eq!(of(&[4.0, 1.0]).map(|spread| spread.median), Some(2.5));
        assert_eq!(of(&[]), None);
    }

    proptest! {
        #[test]
        fn no_byte_is_lost_whenever_it_comes(
            began in 0_u64..1_000_000,
            bytes in prop::collection::vec((0_u64..100_000_000, 0_u64..100_000, 0_u64..1000), 0..100),
        ) {
            let mut meter = ByteMeter::with_interval(ms(began), Duration::from_millis(7));
            for &(at, time, n) in &bytes {
                meter.add_over(ms(at), ms(at + time), n);
            }
            prop_assert_eq!(meter.total(), bytes.iter().map(|(.., n)| n).sum::<u64>());
            let text = serde_json::to_string(&meter).unwrap();
            prop_assert_eq!(serde_json::from_str::<ByteMeter>(&text).unwrap(), meter);
        }
    }
}
