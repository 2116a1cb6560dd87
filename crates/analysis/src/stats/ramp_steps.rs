//! A load whose rate changes, step by step: what was offered and served at each rate, and the rate above which it was
//! too much.

use std::time::Duration;

use super::CellSummary;
use super::Latency;
use h2lab_model::workload::{Arrival, due_within};

/// A linear ramp is divided into this many steps, if none of them is then shorter than [`SHORTEST`].
const STEPS: u32 = 10;
/// Below a second, a rate rests on too few requests.
const SHORTEST: Duration = Duration::from_secs(1);
/// A step is not carried if less than this share of what was offered was served.
const SERVED_SHARE: f64 = 0.98;
/// This many requests of a step and repetition may end in the next step.
const SERVED_SLACK: f64 = 2.0;
/// Nor is a step carried if its p95 is this many times the least one before it, and longer by [`SLOWER_BY`].
const SLOWER: u32 = 3;
const SLOWER_BY: Duration = Duration::from_millis(10);

/// Failures are due to the rate if their share is more than this many times that of the steps before, with one failure
/// added there.
const MORE_FAILURES: f64 = 3.0;

/// A time in which the offered rate was (nearly) constant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RampStep {
    /// When it began, from the beginning of the measured time.
    pub from: Duration,
    /// When it ended.
    pub until: Duration,
    /// Requests per second that were due, on average.
    pub offered_rps: f64,
    /// Requests per second that were answered successfully.
    pub served_rps: f64,
    /// Requests that failed in another way than by a timeout or a refusal because of the load.
    pub failed: u64,
    /// Half of the requests that were due here took this or less; `None` if none of them was answered.
    pub p50: Option<Duration>,
    /// 95 % of them.
    pub p95: Option<Duration>,
    /// 99 % of them.
    pub p99: Option<Duration>,
    /// Why it was too much; `None` if it was carried.
    pub why: Option<Overload>,
}

/// How a step shows that its rate was too high.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Overload {
    /// Fewer requests were served than were due.
    Served,
    /// This many of them failed, a much larger share than at lower rates.
    Failed(u64),
    /// They took much longer than in the best step before; this is the p95 of that step.
    Slower(Duration),
}

/// The steps of a cell whose rate changes.
#[derive(Debug, Clone, PartialEq)]
pub struct RampSteps {
    /// In the order of time.
    pub steps: Vec<RampStep>,
}

impl RampSteps {
    /// The steps of a cell; `None` if its rate does not change, or nothing of it was measured.
    pub fn of(summary: &CellSummary) -> Option<Self> {
        let Arrival::Ramp { over, steps, .. } = summary.cell.work.arrival else { return None };
        let measured = summary.series.iter().map(|repetition| repetition.duration).max()?;
        let warmup = summary.cell.work.phases.warmup;
        let bounds = bounds(over, steps, warmup, measured);
        let mut found: Vec<RampStep> = Vec::new();
        for bounds in bounds.windows(2) {
            let mut step = step(summary, bounds[0], bounds[1])?;
            step.why = overload(&step, &found, summary.series.len());
            found.push(step);
        }
        (!found.is_empty()).then_some(Self { steps: found })
    }

    /// The first step that was too much, if the next one was, too: a single one may be an accident.
    pub fn knee(&self) -> Option<&RampStep> {
        let k = self.knee_place()?;
        self.steps.get(k)
    }

    /// The last step before the knee; without a knee the one with the highest rate.
    pub fn last_carried(&self) -> Option<&RampStep> {
        match self.knee_place() {
            Some(k) => self.steps[..k].last(),
            None => self.steps.iter().max_by(|a, b| a.offered_rps.total_cmp(&b.offered_rps)),
        }
    }

    fn knee_place(&self) -> Option<usize> {
        let is_over = |k: usize| self.steps.get(k).is_none_or(|step| step.why.is_some());
        (0..self.steps.len()).find(|&k| is_over(k) && is_over(k + 1))
    }
}

/// The beginnings of the steps and the end of the last, from the beginning of the measured time.
fn bounds(over: Duration, steps: u32, warmup: Duration, measured: Duration) -> Vec<Duration> {
    let mut bounds = vec![Duration::ZERO];
    if steps > 0 {
        // A step shorter than a hundredth of the time is a remainder of the warm-up's step.
        let least = measured / 100;
        let ends = (1..=steps).map(|k| (over * k / steps).saturating_sub(warmup));
        bounds.extend(ends.filter(|end| *end > least && *end + least < measured));
    } else {
        let n = (measured.as_secs_f64() / SHORTEST.as_secs_f64()).clamp(1.0, f64::from(STEPS)) as u32;
        bounds.extend((1..n).map(|k| measured * k / n));
    }
    bounds.push(measured);
    bounds
}

fn step(summary: &CellSummary, from: Duration, until: Duration) -> Option<RampStep> {
    let is_in = |at: Duration| from <= at && at < until;
    let repetitions = summary.series.len() as f64;
    let seconds = until.saturating_sub(from).as_secs_f64();
    let warmup = summary.cell.work.phases.warmup;
    let due = |until: Duration| due_within(summary.cell.work.arrival, warmup + until);
    let served = summary.series.iter().flat_map(|repetition| &repetition.served);
    let served: u64 = served.filter(|(at, _)| is_in(*at)).map(|(_, n)| n).sum();
    let points = summary.series.iter().flat_map(|repetition| repetition.points.iter());
    let failed = summary.series.iter().flat_map(|repetition| &repetition.failed);
    let latency = Latency::new(points.filter(|(at, _)| is_in(*at)).map(|(_, time)| time));
    let at = |share| (!latency.is_empty()).then(|| latency.quantile(share));
    Some(RampStep {
        from,
        until,
        offered_rps: (due(until)? - due(from)?) / seconds,
        served_rps: served as f64 / seconds / repetitions.max(1.0),
        failed: failed.filter(|(at, _)| is_in(*at)).map(|(_, n)| n).sum(),
        p50: at(0.5),
        p95: at(0.95),
        p99: at(0.99),
        why: None,
    })
}

/// Whether the rate of a step was too high. Requests that fail equally often at each rate do not fail because of the
/// rate.
fn overload(step: &RampStep, before: &[RampStep], repetitions: usize) -> Option<Overload> {
    let least = before.iter().filter_map(|step| step.p95).min();
    let due = |step: &RampStep| {
        step.offered_rps * step.until.saturating_sub(step.from).as_secs_f64() * repetitions as f64
    };
    let carried = || before.iter().filter(|step| step.why.is_none());
    let usual = (carried().map(|step| step.failed).sum::<u64>() + 1) as f64 / carried().map(due).sum::<f64>();
    let is_of_rate = carried().next().is_some() && step.failed as f64 / due(step) > MORE_FAILURES * usual;
    let seconds = step.until.saturating_sub(step.from).as_secs_f64() * repetitions as f64;
    let missing = (step.offered_rps - step.served_rps) * seconds - step.failed as f64;
    // Requests in flight at its end are answered in the next step.
    let late = step.p50.unwrap_or_default().as_secs_f64().min(seconds) * step.offered_rps;
    let is_served = missing <= (1.0 - SERVED_SHARE) * step.offered_rps * seconds
        || missing <= (SERVED_SLACK + late) * repetitions as f64;
    match (least, step.p95) {
        _ if !is_served => Some(Overload::Served),
        _ if is_of_rate => Some(Overload::Failed(step.failed)),
        (Some(least), Some(p95)) if p95 > least * SLOWER && p95 > least + SLOWER_BY => {
            Some(Overload::Slower(least))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::record::testing::{Model, cell, one_repetition};
    use h2lab_model::workload::Protocol;

    /// A cell of three seconds whose rate rises in `steps` steps; each request is answered `took` after it was due, and
    /// nothing is answered from `dead` on.
    fn ramped(steps: u32, took: impl Fn(Duration) -> Duration, dead: Duration) -> CellSummary {
        let base = one_repetition(&cell(0, 0, Protocol::H1, 32, 0.0), 0, &Model::CLEAN);
        let mut summary = CellSummary::of(&[&base]);
        let measured = Duration::from_secs(3);
        summary.cell.work.phases.warmup = Duration::ZERO;
        summary.cell.work.arrival = Arrival::Ramp { from: 100.0, to: 300.0, over: measured, steps };
        let mut due: Vec<Duration> = Vec::new();
        let mut at = Duration::ZERO;
        while at < measured {
            let asked = due_within(summary.cell.work.arrival, at).unwrap_or(0.0) as usize;
            due.extend(std::iter::repeat_n(at, asked.saturating_sub(due.len())));
            at += Duration::from_millis(1);
        }
        let series = &mut summary.series[0];
        series.duration = measured;
        series.points = due.iter().map(|&at| (at, took(at))).collect();
        let answered = due.iter().map(|&at| at + took(at)).filter(|at| *at < measured && *at < dead);
        series.served = answered.map(|at| (at, 1)).collect();
        summary
    }

    const QUICK: fn(Duration) -> Duration = |_| Duration::from_millis(2);

    #[test]
    fn stairs_have_a_row_each_with_their_own_rate() {
        let steps = RampSteps::of(&ramped(3, QUICK, Duration::MAX)).expect("it ramps").steps;
        let offered: Vec<f64> = steps.iter().map(|step| step.offered_rps.round()).collect();
        assert_eq!(offered, [100.0, 200.0, 300.0]);
        assert!(steps.iter().all(|step| step.why.is_none()), "{steps:?}");
        assert_eq!(steps[1].p95, Some(Duration::from_millis(2)));
        let line = RampSteps::of(&ramped(0, QUICK, Duration::MAX)).expect("it ramps").steps;
        assert_eq!(line.len(), 3, "none is shorter than a second");
    }

    #[test]
    fn the_knee_is_where_requests_stay_unserved_or_get_much_slower() {
        let dead = RampSteps::of(&ramped(3, QUICK, Duration::from_millis(1_500))).expect("it ramps");
        assert_eq!(dead.knee(), Some(&dead.steps[1]));
        assert_eq!(dead.last_carried(), Some(&dead.steps[0]));
        assert_eq!(dead.steps[1].why, Some(Overload::Served));
        let slower = |at: Duration| Duration::from_millis(if at > Duration::from_secs(2) { 40 } else { 2 });
        let slow = RampSteps::of(&ramped(3, slower, Duration::MAX)).expect("it ramps");
        assert_eq!(slow.knee(), Some(&slow.steps[2]));
        assert_eq!(slow.steps[2].why, Some(Overload::Slower(Duration::from_millis(2))));
    }

    #[test]
    fn a_single_slow_step_is_no_knee_and_without_one_the_highest_rate_is_carried() {
        let slower = |at: Duration| {
            let is_second = (Duration::from_secs(1)..Duration::from_secs(2)).contains(&at);
            Duration::from_millis(if is_second { 40 } else { 2 })
        };
        let steps = RampSteps::of(&ramped(3, slower, Duration::MAX)).expect("it ramps");
        assert!(steps.steps[1].why.is_some());
        assert_eq!((steps.knee(), steps.last_carried()), (None, Some(&steps.steps[2])));
    }

    /// The same, where every `nth` request that is due after `from` fails at once.
    fn failing(nth: usize, from: Duration) -> RampSteps {
        let mut summary = ramped(3, QUICK, Duration::MAX);
        let series = &mut summary.series[0];
        let (mut served, mut failed) = (Vec::new(), Vec::new());
        for (n, one) in series.served.iter().enumerate() {
            if n % nth == 0 && one.0 >= from { failed.push(*one) } else { served.push(*one) }
        }
        (series.served, series.failed) = (served, failed);
        RampSteps::of(&summary).expect("it ramps")
    }

    #[test]
    fn what_fails_at_each_rate_is_no_overload_and_what_fails_from_a_rate_on_is() {
        let always = failing(10, Duration::ZERO);
        assert_eq!((always.knee(), always.last_carried()), (None, Some(&always.steps[2])));
        assert!(always.steps[0].failed >= 9, "{always:?}");
        let from = failing(10, Duration::from_secs(1));
        assert!(
            matches!(from.knee().and_then(|step| step.why), Some(Overload::Failed(n)) if n >= 19),
            "{from:?}"
        );
        assert_eq!(from.last_carried(), Some(&from.steps[0]));
    }

    #[test]
    fn a_constant_rate_has_no_steps() {
        let base = one_repetition(&cell(0, 0, Protocol::H1, 32, 0.0), 0, &Model::CLEAN);
        assert_eq!(RampSteps::of(&CellSummary::of(&[&base])), None);
    }
}
