//! One of several instances that may take a request.
//!
//! Two are drawn at random, with odds by weight, speed and failures, and the first one drawn is taken unless it has
//! clearly more to do for its capacity than the second one (Mitzenmacher 2001, "The Power of Two Choices in Randomized
//! Load Balancing"). Where both have as much to do, and where little is under way, the odds alone decide, so that
//! weights hold for two instances as well. Measurements change the odds, but never to 0: an instance that is measured
//! badly by chance, or has recovered, is measured again.
//!
//! **Failures** lower the odds, and do not count as response times: an instance that fails at once has nothing under
//! way, and would attract requests only to fail them. Others: Finagle's peak EWMA and Envoy's least-request count a
//! failure as any response, and rely on ejection alone; gRPC's weighted round robin lowers the weight in proportion to
//! the share of errors, and Linkerd takes a failing endpoint out altogether. Here it is as in gRPC. Ejection has
//! thresholds and is bounded to a share of the instances; this works below both, too. It is relative: where all fail
//! alike, all have their shares.

use std::time::Duration;

use h2lab_base::random::Counter;

use super::place::Load;

/// Times below this count as this: the sidecar's own turn and the scheduler vary by as much.
const NOISE: Duration = Duration::from_millis(1);
/// An instance counts as slower than the quickest one only from this ratio on.
const CLEARLY: f64 = 1.25;
/// The least part of its capacity that failures leave to an instance. Its odds have the square of that, 1.6 %: without
/// any request it could not show that it has recovered.
const LEAST: f64 = 1.0 / 8.0;
/// An instance whose share of failures is higher by more than this does not get requests for having less to do.
const ALIKE: f64 = 0.1;
/// What a failure, or a success, adds to the share of failures.
const EACH: f64 = 1.0 / 8.0;
/// The half-life of the share of failures while there are no results, in seconds.
const HALF: f64 = 10.0;

/// The share of failures after one more result.
pub fn failing(before: f64, failed: bool) -> f64 {
    before + EACH * (f64::from(u8::from(failed)) - before)
}

/// What is left of a share of failures when the last result came `age` ago.
pub fn failing_after(share: f64, age: Duration) -> f64 {
    share * (-age.as_secs_f64() / HALF).exp2()
}

/// What an instance can do, relative to the others.
#[derive(Debug, Clone, Copy)]
struct Able {
    /// Requests that it answers well in the time in which the quickest one answers one, times its weight.
    capacity: f64,
    /// How likely it is drawn, relative to the others.
    odds: f64,
}

/// The part of its requests that an instance answers well, as far as is known.
pub(super) fn answers_well(load: &Load) -> f64 {
    (1.0 - load.fails).max(LEAST)
}

impl Able {
    fn of(load: &Load, quickest: Duration) -> Self {
        // One without a response yet counts as the quickest: it is tried, and its requests without a response bound how
        // much.
        let ratio = load.takes.unwrap_or(quickest).max(NOISE).div_duration_f64(quickest.max(NOISE));
        let speed = if ratio < CLEARLY { 1.0 } else { 1.0 / ratio };
        let part = speed * answers_well(load);
        let capacity = f64::from(load.weight) * part;
        // The square: one that is fifty times slower would else have 2 % of a quiet service's requests, which is its p99.
        Self { capacity, odds: capacity * part }
    }
}

/// The place of the instance that takes the next request, of those that fit, whose weights are above 0.
pub(super) fn of_two(loads: &[Load], random: &mut Counter, fits: impl Fn(&Load) -> bool) -> Option<usize> {
    let fitting = || loads.iter().enumerate().filter(|(_, load)| fits(load));
    let quickest = fitting().filter_map(|(_, load)| load.takes).min().unwrap_or_default();
    let draw = |random: &mut Counter, without: Option<usize>| {
        let others = || fitting().filter(|(place, _)| Some(*place) != without);
        let total: f64 = others().map(|(_, load)| Able::of(load, quickest).odds).sum();
        let mut left = random.next_f64() * total;
        let drawn = others().find(|(_, load)| {
            left -= Able::of(load, quickest).odds;
            left < 0.0
        });
        drawn.or_else(|| others().last()) // where rounding has left a little
    };
    let (first, one) = draw(random, None)?;
    let Some((second, other)) = draw(random, Some(first)) else { return Some(first) };
    let fails_more = other.fails > one.fails + ALIKE;
    Some(if !fails_more && is_fuller(one, other, quickest) { second } else { first })
}

/// Whether `one` has more under way for its capacity than `other`, by at least one request of the weaker of them: less is rounding.
fn is_fuller(one: &Load, other: &Load, quickest: Duration) -> bool {
    let [a, b] = [one, other].map(|load| Able::of(load, quickest).capacity);
    let more = f64::from(one.open) * b - f64::from(other.open) * a;
    more >= a.max(b) * (1.0 - 1e-9)
}
