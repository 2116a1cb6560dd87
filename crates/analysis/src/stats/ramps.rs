//! Ramps: requests that were sent one after the other and answered together, because they waited for the same thing.
//!
//! In a plot of response time against the time of sending they are on a line of slope −1: a request sent a millisecond
//! later waited a millisecond less. A lost segment puts all requests of its connection on such a line: this makes
//! head-of-line blocking visible. Requests that each wait for a loss of their own, as in HTTP/1.1, are scattered.

use std::time::Duration;

use super::RepetitionSeries;

/// How straight a line of how many requests must be not to be chance: the fewer requests, the straighter. Chosen on
/// recorded runs of HTTP/1.1 without sidecars: at most 3 % of their delayed requests are on lines by these criteria.
const LINES: [Line; 2] =
    [Line { fewest: 5, slope: 0.1, gap: 0.4 }, Line { fewest: 3, slope: 0.02, gap: 0.7 }];
/// A shorter ramp cannot be distinguished from one wake-up of a busy machine.
const SHORTEST: Duration = Duration::from_millis(5);
/// A request is delayed if it takes more than twice as long as the quickest twentieth of its repetition, and by more than this.
const DELAYED: Duration = Duration::from_millis(10);
/// A request that is not delayed enough to be counted may be on a ramp, too, if it takes longer than the quickest
/// twentieth by this.
const LATER: Duration = Duration::from_millis(1);

/// The criteria for a ramp of requests that are answered one after the other.
#[derive(Debug, Clone, Copy)]
struct Line {
    /// At least this many requests.
    fewest: usize,
    /// The slope is −1 within this tolerance: the time from the first to the last answer is at most this share of the
    /// time from the first to the last sending.
    slope: f64,
    /// No gap between two sendings is longer than this share of the latter: two clusters of requests would form a line
    /// between any points.
    gap: f64,
}

/// The ramps of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ramps {
    /// Delayed requests.
    pub delayed: u64,
    /// Those of them that are on a ramp.
    pub delayed_on_ramps: u64,
    /// Ramps.
    pub ramps: u64,
}

/// A request: when it was due, and when it was answered, in seconds from the beginning of the measured time.
#[derive(Debug, Clone, Copy)]
struct Point {
    due: f64,
    answered: f64,
    is_delayed: bool,
}

impl Ramps {
    /// The ramps of these repetitions, whose requests were all kept.
    pub fn of(repetitions: &[RepetitionSeries]) -> Self {
        repetitions.iter().map(Self::of_repetition).fold(Self::default(), |sum, one| Self {
            delayed: sum.delayed + one.delayed,
            delayed_on_ramps: sum.delayed_on_ramps + one.delayed_on_ramps,
            ramps: sum.ramps + one.ramps,
        })
    }

    /// The share of the delayed requests that are on ramps; `None` if none is delayed.
    pub fn share(&self) -> Option<f64> {
        (self.delayed > 0).then(|| self.delayed_on_ramps as f64 / self.delayed as f64)
    }

    fn of_repetition(repetition: &RepetitionSeries) -> Self {
        let points = candidates(repetition);
        let reach = reach(&points);
        let mut ramps =
            Self { delayed: points.iter().filter(|p| p.is_delayed).count() as u64, ..Self::default() };
        let mut first = 0;
        while first < points.len() {
            match ramp(&points[first..], reach) {
                Some(length) => {
                    ramps.ramps += 1;
                    let on_it = &points[first..first + length];
                    ramps.delayed_on_ramps += on_it.iter().filter(|p| p.is_delayed).count() as u64;
                    first += length;
                }
                None => first += 1,
            }
        }
        ramps
    }
}

/// The requests that took longer than the quick ones, in the order in which they were answered.
fn candidates(repetition: &RepetitionSeries) -> Vec<Point> {
    let mut times: Vec<Duration> = repetition.points.iter().map(|(_, response)| response).collect();
    times.sort_unstable();
    let Some(&quick) = times.get(times.len() / 20) else { return Vec::new() };
    let bound = quick + quick.max(DELAYED);
    let mut points: Vec<Point> = repetition
        .points
        .iter()
        .filter(|(_, response)| *response > quick + LATER)
        .map(|(due, response)| Point {
            due: due.as_secs_f64(),
            answered: (due + response).as_secs_f64(),
            is_delayed: response > bound,
        })
        .collect();
    points.sort_by(|a, b| a.answered.total_cmp(&b.answered));
    points
}

/// For how many seconds after a point another one can be on a line with it. The time from the first to the last answer
/// is at most a share of the line's length; and the earliest request on it was sent no longer before the first answer
/// than the longest response time. (A limit from only those answered so far would miss one that was sent before all of
/// them.)
fn reach(points: &[Point]) -> f64 {
    let longest = points.iter().map(|point| point.answered - point.due).fold(0.0, f64::max);
    let slope = LINES[0].slope;
    slope / (1.0 - slope) * longest
}

/// How many of these points, counted from the first, form a ramp: the most possible. None on it is answered later than
/// `reach` seconds after the first.
fn ramp(points: &[Point], reach: f64) -> Option<usize> {
    let (mut earliest, mut latest) = (f64::INFINITY, f64::NEG_INFINITY);
    let mut lines = Vec::new();
    let near = points.iter().take_while(|point| point.answered - points[0].answered <= reach);
    for (k, point) in near.enumerate() {
        (earliest, latest) = (earliest.min(point.due), latest.max(point.due));
        let (length, spread) = (latest - earliest, point.answered - points[0].answered);
        let is_straight = |line: &&Line| k + 1 >= line.fewest && spread <= line.slope * length;
        if length >= SHORTEST.as_secs_f64()
            && let Some(line) = LINES.iter().find(is_straight)
        {
            lines.push((k + 1, line.gap * length));
        }
    }
    lines.into_iter().rev().find(|&(n, gap)| has_no_gap(&points[..n], gap)).map(|(n, _)| n)
}

/// Whether no two consecutive ones of these were sent more than `longest` seconds apart.
fn has_no_gap(points: &[Point], longest: f64) -> bool {
    let mut due: Vec<f64> = points.iter().map(|point| point.due).collect();
    due.sort_by(f64::total_cmp);
    due.windows(2).all(|pair| pair[1] - pair[0] <= longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A repetition of 2 s with one request every millisecond, answered after 25 ms, or at the time from `answered`, in
    /// milliseconds.
    fn repetition(answered: impl Fn(u32) -> Option<f64>) -> RepetitionSeries {
        let point = |k: u32| {
            let at = answered(k).unwrap_or(f64::from(k) + 25.0);
            (MS * k, MS.mul_f64(at - f64::from(k)))
        };
        RepetitionSeries {
            round: 0,
            duration: MS * 2000,
            longest_stall: Duration::ZERO,
            points: (0..2000).map(point).collect(),
            served: Vec::new(),
            failed: Vec::new(),
        }
    }

    fn ramps(answered: impl Fn(u32) -> Option<f64>) -> Ramps {
        Ramps::of(&[repetition(answered)])
    }

    #[test]
    fn what_is_as_quick_as_ever_is_neither_delayed_nor_on_a_ramp() {
        assert_eq!(ramps(|_| None), Ramps::default());
        assert_eq!(Ramps::default().share(), None);
        assert_eq!(Ramps::of(&[]), Ramps::default());
    }

    #[test]
    fn every_fourth_request_that_waits_for_one_moment_is_a_ramp() {
        // One of four connections is stalled for 225 ms; of its 56 requests, those that wait 50 ms longer are delayed.
        let stalled = |from: u32| {
            move |k: u32| {
                (k.is_multiple_of(4) && (from..from + 225).contains(&k)).then_some(f64::from(from) + 250.0)
            }
        };
        let found = ramps(stalled(500));
        assert_eq!((found.ramps, found.delayed, found.delayed_on_ramps), (1, 50, 50));
        let both = ramps(|k| stalled(500)(k).or_else(|| stalled(503)(k + 1)));
        assert_eq!((both.ramps, both.share()), (1, Some(1.0)), "two that end together are one picture");
        assert_eq!(ramps(|k| stalled(500)(k).or_else(|| stalled(1200)(k))).ramps, 2);
    }

    #[test]
    fn requests_that_wait_each_for_itself_are_delayed_and_on_no_ramp() {
        // HTTP/1.1: one in 17 requests waits for its own timeout, whose length varies.
        let own = |k: u32| k.is_multiple_of(17).then(|| f64::from(k) + 230.0 + f64::from(k * 7 % 40));
        let found = ramps(own);
        assert!(found.delayed == 118 && found.share() <= Some(0.05), "{found:?}");
    }

    #[test]
    fn the_slope_must_be_near_minus_one_and_the_line_without_holes() {
        // Answered one after the other: slope −1 + 0.08, then −1 + 0.15.
        let drained = |slower: f64| {
            ramps(move |k| (500..700).contains(&k).then(|| 750.0 + f64::from(k - 500) * slower))
        };
        assert!(drained(0.08).share() > Some(0.95), "{:?}", drained(0.08));
        assert_eq!(drained(1.0).delayed_on_ramps, 0, "a longer way is no stall");
        let heaps = ramps(|k| ((500..503).contains(&k) || (697..700).contains(&k)).then_some(750.0));
        assert_eq!((heaps.delayed, heaps.delayed_on_ramps), (6, 0));
    }

    #[test]
    fn the_fewer_requests_the_straighter_the_line() {
        // One request every 20 ms waits, and each further one is answered `later` ms after the one before.
        let found = |n: u32, later: f64| {
            let waits = move |k: u32| k >= 500 && k < 500 + 20 * n && k.is_multiple_of(20);
            ramps(move |k| waits(k).then(|| 800.0 + f64::from((k - 500) / 20) * later)).delayed_on_ramps
        };
        assert_eq!([2, 3, 4, 5].map(|n| found(n, 0.0)), [0, 3, 4, 5]);
        assert_eq!([3, 4, 5].map(|n| found(n, 1.0)), [0, 0, 5], "a slope of -0.95");
        assert_eq!(found(5, 3.0), 0, "a slope of -0.85");
    }

    #[test]
    fn a_request_that_was_sent_before_all_others_makes_their_line_longer_although_it_is_answered_last() {
        // The second answer alone is too late for a line from 690 to 700; together with those from 500 on it is not.
        let answered = |k: u32| match k {
            690 => Some(750.0),
            700 => Some(758.0),
            500 | 550 | 600 | 650 => Some(759.0),
            _ => None,
        };
        let found = ramps(answered);
        assert_eq!((found.ramps, found.delayed, found.delayed_on_ramps), (1, 6, 6));
    }

    #[test]
    fn a_request_is_delayed_that_takes_twice_as_long_as_the_quickest_and_ten_milliseconds_more() {
        let delayed = |quick: f64, response: f64| {
            ramps(|k| Some(f64::from(k) + if k == 700 { response } else { quick })).delayed
        };
        assert_eq!([delayed(25.0, 50.0), delayed(25.0, 50.1)], [0, 1]);
        assert_eq!([delayed(4.0, 14.0), delayed(4.0, 14.1)], [0, 1]);
    }
}
