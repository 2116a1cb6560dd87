//! What an experiment shows: the effect of each knob on the cell in which it was changed.
//!
//! A cell with one setting changed is compared with the repetitions of the unchanged cell that were made in the same
//! rounds. Several knobs are tried in one run, and each is evaluated after each round. The intervals have Bonferroni's
//! correction for all of these looks together, so that the chance of a single false claim in the whole run is at most 5
//! %. The variation of a cell from round to round is taken from all repetitions of the unchanged cell: a change may
//! have a single round.

#[cfg(test)]
mod calibration;
mod recorded;
mod remedy;

use std::time::Duration;

pub use recorded::Recorded;
pub use remedy::{Again, Harm, Remedy};

use h2lab_base::counts::{count, plural};
use h2lab_model::experiment::Knob;
use h2lab_model::record::{CellRecord, RunRecord};
use h2lab_model::scenario::Cell;
use h2lab_model::workload::{Arrival, Protocol};

use crate::stats::correction;
use crate::stats::{
    CellState, CellSummary, CellVerdict, RepetitionSeries, Tail, different_work, interval_of_rates,
    interval_of_times, repetitions_of, spread_of_some, time_floor, verdict_on,
};

/// An effect below this is not claimed, and is not worth a change.
const EFFECT: f64 = 1.10;
/// A knob has no effect if its whole interval is below this, in either direction.
const NO_EFFECT: f64 = 1.15;
/// A changed cell may fail this share of its requests; if more fail, its figures describe other work.
const FAILED: f64 = 0.02;

/// Rounds of the unchanged cells, before anything is changed.
pub const FIRST_ROUNDS: u32 = 2;
/// The most rounds with changes: every change is evaluated after each of them, which makes the intervals wider.
pub const CHANGED_ROUNDS: u32 = 5;
/// Rounds of a change before it is evaluated for the first time: a single round says little about the variation between
/// rounds.
pub const UNSEEN: u32 = 2;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Successes per second: of a closed loop, and of a cell that does not carry its load.
    Served,
    /// A percentile of the response time.
    Response(Tail),
    /// The median of the response time, if the median differs and the tail does not.
    Median,
}

impl Metric {
    /// The name in reports: `requests/s`, `p99`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Served => "requests/s",
            Self::Response(tail) => tail.name(),
            Self::Median => "p50",
        }
    }

    /// The percentile of the response time, 0 to 1; for rates, which have none, the median.
    const fn share(self) -> f64 {
        match self {
            Self::Response(tail) => tail.share(),
            Self::Served | Self::Median => 0.5,
        }
    }

    /// How much worse a cell is than one that is `ratio` times as good, as a share of the better one's milliseconds or
    /// requests/s.
    fn excess(self, ratio: f64) -> f64 {
        match self {
            Self::Served => 1.0 - ratio.recip(),
            Self::Response(_) | Self::Median => ratio - 1.0,
        }
    }

    /// The derivative of [`Self::excess`] with respect to the logarithm of the ratio.
    fn slope(self, ratio: f64) -> f64 {
        match self {
            Self::Served => ratio.recip(),
            Self::Response(_) | Self::Median => ratio,
        }
    }
}

/// The result of trying a knob.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It helps.
    Confirmed,
    /// It makes things worse.
    Worse,
    /// It has no effect of 15 % or more.
    Refuted,
    /// The interval allows no conclusion.
    Undecided,
    /// The changed cell or the unchanged one has no sound measurement; why, in a sentence.
    Void(String),
}

impl Outcome {
    /// The name in JSON and reports.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Worse => "worse",
            Self::Refuted => "refuted",
            Self::Undecided => "undecided",
            Self::Void(_) => "void",
        }
    }

    /// Whether more repetitions cannot change it.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Confirmed | Self::Worse | Self::Refuted)
    }
}

/// How many times better the changed cell is, with its interval; below 1 it is worse.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effect {
    /// The estimate.
    pub ratio: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
    /// The figure without the change: requests per second, or seconds.
    pub before: f64,
    /// The figure with it.
    pub after: f64,
}

impl Effect {
    /// With an interval that extends at least this far to either side, in the logarithm.
    fn no_narrower(self, half: f64) -> Self {
        let by = half.exp();
        Self { low: self.low.min(self.ratio / by), high: self.high.max(self.ratio * by), ..self }
    }

    /// With an interval that is `by` times as wide, in the logarithm.
    fn widened(self, by: f64) -> Self {
        let wider = |end: f64| correction::widened(self.ratio, end, by);
        Self { low: wider(self.low), high: wider(self.high), ..self }
    }

    /// For a ratio of times: less is better.
    fn inverted(self) -> Self {
        Self { ratio: 1.0 / self.ratio, low: 1.0 / self.high, high: 1.0 / self.low, ..self }
    }

    fn outcome(self) -> Outcome {
        let all_below = |limit: f64| self.high < limit && self.low > 1.0 / limit;
        if self.low > 1.0 && self.ratio >= EFFECT {
            Outcome::Confirmed
        } else if self.high < 1.0 && self.ratio <= 1.0 / EFFECT {
            Outcome::Worse
        } else if all_below(NO_EFFECT) {
            Outcome::Refuted
        } else {
            Outcome::Undecided
        }
    }
}

/// A knob, the cell that has it, and the result.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// What was changed.
    pub knob: Knob,
    /// The index of the changed cell.
    pub cell: u32,
    /// How often it was measured beside the unchanged one.
    pub rounds: u32,
    /// The effect; `None` if it cannot be computed.
    pub effect: Option<Effect>,
    /// The result.
    pub outcome: Outcome,
    /// The part of the difference from the twin that the change closes, 0 to 1; `None` without a difference.
    pub closes: Option<f64>,
}

/// The cells of an experiment, by their indices in the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// The cell that is examined.
    pub subject: u32,
    /// The same work over another protocol, if there is one.
    pub twin: Option<u32>,
    /// Twin and subject at the server itself, if the others go through a proxy.
    pub direct: Option<[u32; 2]>,
    /// A cell at the server itself and one through the proxy, with comparable protocols, if there are such cells.
    pub hop: Option<[u32; 2]>,
    /// Knobs, and the cells that have them.
    pub knobs: Vec<(u32, Knob)>,
    /// The most looks at each knob.
    pub looks: u32,
}

impl Setup {
    /// The looks at each change.
    pub const LOOKS: u32 = CHANGED_ROUNDS + 1 - UNSEEN;

    /// A cell at the server itself and one through the proxy, with comparable protocols: HTTP/1.1, or else protocols
    /// that both multiplex.
    pub fn hop(direct: &[&Cell], via: &[&Cell]) -> Option<[u32; 2]> {
        let of = |cells: &[&Cell], is_multiplexed| {
            cells.iter().find(|cell| cell.protocol.is_multiplexed() == is_multiplexed).map(|cell| cell.index)
        };
        [false, true].into_iter().find_map(|kind| Some([of(direct, kind)?, of(via, kind)?]))
    }
}

/// The results of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// The subject against its twin; `None` without one.
    pub verdict: Option<CellVerdict>,
    /// The same at the server itself, if these go through a proxy.
    pub direct: Option<CellVerdict>,
    /// What a request takes at the server itself and through the proxy.
    pub hop: Option<Hop>,
    /// What was compared.
    pub metric: Metric,
    /// The knobs that were tried, in the order of the setup.
    pub trials: Vec<Trial>,
    /// Knobs that were not tried before the budget was spent.
    pub untried: usize,
}

/// What a request takes at the server itself, and through the proxy in front of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// Over which protocol, at the server itself and through the proxy.
    pub protocols: [Protocol; 2],
    /// The median response times; or why they are not sound, in a sentence.
    pub medians: Result<[Duration; 2], String>,
}

impl Hop {
    fn of(run: &RunRecord, cells: [u32; 2]) -> Option<Self> {
        let [direct, via] = cells.map(|index| summary(&repetitions_of(run, index)));
        let both = [direct?, via?];
        let protocols = both.each_ref().map(|one| one.cell.protocol);
        let unsound = both.iter().find_map(|one| match &one.state {
            CellState::Ok => None,
            CellState::Unstable { .. } => Some(format!("{} does not carry this load", one.label)),
            CellState::Invalid { reasons } => Some(format!("{}: {}", one.label, reasons.join("; "))),
            CellState::Failed { why, .. } | CellState::Unsupported { why } => {
                Some(format!("{}: {why}", one.label))
            }
        });
        let differs = || different_work(&both.each_ref());
        let unsound = unsound.or_else(differs);
        let medians = both.each_ref().map(|one| one.response.quantile(0.5));
        Some(Self { protocols, medians: unsound.map_or(Ok(medians), Err) })
    }
}

impl Experiment {
    /// The verdicts of a run, with those of the experiment in place of others on the same cells: through a proxy, the
    /// twin is the other protocol through that proxy, not at the server itself.
    pub fn verdicts(&self, of_run: &[CellVerdict]) -> Vec<CellVerdict> {
        let own: Vec<&CellVerdict> = self.verdict.iter().chain(&self.direct).collect();
        let others = of_run.iter().filter(|one| own.iter().all(|own| own.cell != one.cell));
        own.iter().copied().chain(others).cloned().collect()
    }

    /// The results from the repetitions so far. `None` before the subject was measured.
    pub fn of(run: &RunRecord, setup: &Setup) -> Option<Self> {
        let subject = summary(&repetitions_of(run, setup.subject))?;
        let twin = setup.twin.and_then(|twin| summary(&repetitions_of(run, twin)));
        let metric = metric_of(run, setup)?;
        let unchanged = &subject;
        let sound = twin.as_ref().filter(|twin| ![*twin, &subject].into_iter().any(CellSummary::is_invalid));
        let gap = sound.and_then(|twin| effect(&subject, twin, metric, run.seed));
        let widened = correction::of_looks(setup.knobs.len() as u32 * setup.looks);
        let trials = setup.knobs.iter().filter_map(|(index, knob)| {
            let changed = repetitions_of(run, *index);
            let beside = beside(&repetitions_of(run, setup.subject), &changed);
            let (subject, changed) = (summary(&beside)?, summary(&changed)?);
            let of = |metric: Metric| {
                let spread = spread(metric, unchanged, &subject, &changed);
                effect(&subject, &changed, metric, run.seed).map(|it| it.no_narrower(spread).widened(widened))
            };
            let (effect, served) = (of(metric), of(Metric::Served));
            let is_single = unchanged.repetitions.max(changed.repetitions) < 2;
            Some(Trial {
                knob: knob.clone(),
                cell: *index,
                rounds: changed.repetitions,
                effect,
                outcome: match outcome(&subject, &changed, metric, [effect, served]) {
                    // The variation between rounds is unknown.
                    outcome if is_single && outcome.is_final() => Outcome::Undecided,
                    outcome => outcome,
                },
                closes: gap.zip(effect).and_then(|(gap, effect)| closed(gap, effect)),
            })
        });
        let direct = setup.direct.and_then(|[twin, subject]| {
            let [twin, subject] = [twin, subject].map(|index| summary(&repetitions_of(run, index)));
            Some(verdict_on(&twin?, &subject?, run.seed))
        });
        let trials: Vec<Trial> = trials.collect();
        Some(Self {
            verdict: twin.as_ref().map(|twin| verdict_on(twin, &subject, run.seed)),
            direct,
            hop: setup.hop.and_then(|cells| Hop::of(run, cells)),
            metric,
            untried: setup.knobs.len() - trials.len(),
            trials,
        })
    }

    /// For a run that was ended before the subject was measured.
    pub const fn unmeasured() -> Self {
        Self {
            verdict: None,
            direct: None,
            hop: None,
            metric: Metric::Served,
            trials: Vec::new(),
            untried: 0,
        }
    }

    /// The knobs that help, the most effective first.
    pub fn confirmed(&self) -> Vec<&Trial> {
        let mut confirmed: Vec<&Trial> =
            self.trials.iter().filter(|trial| trial.outcome == Outcome::Confirmed).collect();
        let ratio = |trial: &Trial| trial.effect.map_or(1.0, |effect| effect.ratio);
        confirmed.sort_by(|a, b| ratio(b).total_cmp(&ratio(a)));
        confirmed
    }

    /// Whether the subject is known to be no worse than its twin: then there is nothing to look for.
    pub fn is_healthy(&self) -> bool {
        self.verdict.as_ref().is_some_and(CellVerdict::is_no_slower)
    }
}

/// How the subject has changed since an earlier run, and its difference from its twin.
#[derive(Debug, Clone, PartialEq)]
pub struct Since {
    /// What is compared: the metric of the earlier run.
    pub metric: Metric,
    /// How many times better the subject itself is.
    pub subject: Effect,
    /// The difference from the twin; `None` if one of the runs has no twin, or too few of its requests.
    pub gap: Option<Gap>,
    /// Why one of the runs is not a sound measurement, if so: then nothing can be concluded.
    pub doubt: Option<String>,
}

/// The difference between the subject and its twin in two runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Gap {
    /// How many times better the twin was.
    pub before: Effect,
    /// How many times better it is.
    pub now: Effect,
    /// The part of the difference that is gone: 1 if all is, below 0 if it has grown. `None` if there was none.
    pub closed: Option<f64>,
}

impl Since {
    /// From an earlier run and a later one of the same cells; `None` if the subject of one of them was not measured, or
    /// has too few requests.
    pub fn of(before: &RunRecord, now: &RunRecord, setup: &Setup) -> Option<Self> {
        let of = |run: &RunRecord, index: u32| summary(&repetitions_of(run, index));
        let [earlier, later] = [of(before, setup.subject)?, of(now, setup.subject)?];
        let twins = [before, now].map(|run| setup.twin.and_then(|twin| of(run, twin)));
        let metric = metric_of(before, setup)?;
        let gap = |run: &RunRecord, subject: &CellSummary, twin: &Option<CellSummary>| {
            effect(subject, twin.as_ref()?, metric, run.seed)
        };
        let gaps = gap(before, &earlier, &twins[0]).zip(gap(now, &later, &twins[1]));
        let cells = [("before", Some(&earlier)), ("now", Some(&later))];
        let of_twins = ["before", "now"].into_iter().zip(twins.iter().map(Option::as_ref));
        let doubt = cells.into_iter().chain(of_twins).find_map(|(when, cell)| {
            let why = cell.and_then(unsound)?;
            Some(format!("{when}, {why}"))
        });
        let closed = |before, now| gone(metric, before, now).filter(|_| doubt.is_none());
        Some(Self {
            metric,
            subject: effect(&earlier, &later, metric, now.seed)?,
            gap: gaps.map(|(before, now)| Gap { before, now, closed: closed(before, now) }),
            doubt,
        })
    }
}

/// Why a cell is not a sound measurement, if so.
fn unsound(cell: &CellSummary) -> Option<String> {
    match &cell.state {
        CellState::Invalid { reasons } => reasons.first().cloned(),
        _ => None,
    }
}

/// The part of a difference that is gone.
fn gone(metric: Metric, before: Effect, now: Effect) -> Option<f64> {
    (before.low > 1.0).then(|| 1.0 - metric.excess(now.ratio) / metric.excess(before.ratio))
}

fn summary(repetitions: &[&CellRecord]) -> Option<CellSummary> {
    (!repetitions.is_empty()).then(|| CellSummary::of(repetitions))
}

/// The repetitions of the subject that were made in the rounds of the changed cell: neither then includes drift between
/// rounds.
fn beside<'a>(subject: &[&'a CellRecord], changed: &[&CellRecord]) -> Vec<&'a CellRecord> {
    let is_beside =
        |one: &&&CellRecord| changed.iter().any(|other| other.cell.repetition == one.cell.repetition);
    subject.iter().filter(is_beside).copied().collect()
}

/// The metric by which the experiment of a run is judged.
fn metric_of(run: &RunRecord, setup: &Setup) -> Option<Metric> {
    let all = repetitions_of(run, setup.subject);
    let Some(twin) = setup.twin.map(|twin| repetitions_of(run, twin)).filter(|twin| !twin.is_empty()) else {
        return Some(metric(&summary(&all)?, None, run.seed));
    };
    // Only the rounds of the twin: the metric stays the same, however many rounds follow.
    let subject = summary(&beside(&all, &twin)).or_else(|| summary(&all))?;
    Some(metric(&subject, summary(&twin).as_ref(), run.seed))
}

/// The quantity in which the subject differs from its twin: the tail, unless only the median is slower. A closed loop,
/// and a cell that does not carry its load, is judged by what is served.
fn metric(subject: &CellSummary, twin: Option<&CellSummary>, seed: u64) -> Metric {
    let is_closed = matches!(subject.cell.work.arrival, Arrival::Closed { .. });
    let is_in_median = || {
        let verdict = twin.map(|twin| verdict_on(twin, subject, seed));
        verdict.is_some_and(|verdict| verdict.is_slower_in_median_only())
    };
    match subject.state {
        CellState::Unstable { .. } => Metric::Served,
        _ if is_closed => Metric::Served,
        _ if is_in_median() => Metric::Median,
        _ => Metric::Response(subject.response.tail()),
    }
}

/// How many times better `changed` is than `subject`, with an interval of 95 %.
fn effect(subject: &CellSummary, changed: &CellSummary, metric: Metric, seed: u64) -> Option<Effect> {
    match metric {
        Metric::Served => {
            let of = interval_of_rates(subject, changed, seed)?;
            let (before, after) = (of.baseline_rps, of.cell_rps);
            Some(Effect { ratio: of.ratio, low: of.low, high: of.high, before, after })
        }
        Metric::Response(_) | Metric::Median => {
            let of = interval_of_times(metric.share(), subject, changed, seed)?;
            let (before, after) = (of.baseline.as_secs_f64(), of.candidate.as_secs_f64());
            Some(Effect { ratio: of.ratio, low: of.low, high: of.high, before, after }.inverted())
        }
    }
}

/// How far two cells may differ by the variation from round to round alone, in the logarithm of their ratio. The
/// variation comes from all repetitions of the unchanged cell and of the changed one; only those in `beside` are
/// compared. 0 if neither cell has two.
fn spread(metric: Metric, unchanged: &CellSummary, beside: &CellSummary, changed: &CellSummary) -> f64 {
    let figures = |cell: &CellSummary| cell.series.iter().filter_map(|one| figure(metric, one)).collect();
    spread_of_some([figures(unchanged), figures(changed)], [beside, changed].map(|cell| cell.series.len()))
}

/// The figure of one repetition, if it has one above 0.
fn figure(metric: Metric, repetition: &RepetitionSeries) -> Option<f64> {
    let figure = match metric {
        Metric::Served => {
            repetition.served.iter().map(|(_, count)| *count as f64).sum::<f64>()
                / repetition.duration.as_secs_f64()
        }
        Metric::Response(_) | Metric::Median => {
            let mut times: Vec<Duration> = repetition.points.iter().map(|(_, response)| response).collect();
            let rank =
                ((metric.share() * times.len() as f64).ceil() as usize).clamp(1, times.len().max(1)) - 1;
            (!times.is_empty()).then(|| times.select_nth_unstable(rank).1.as_secs_f64())?
        }
    };
    (figure > 0.0).then_some(figure)
}

/// The outcome for a knob, from its effects on the metric and on what is served.
fn outcome(
    subject: &CellSummary,
    changed: &CellSummary,
    metric: Metric,
    [effect, served]: [Option<Effect>; 2],
) -> Outcome {
    let requests = &changed.requests;
    let fails_more =
        requests.failed > subject.requests.failed && requests.failed as f64 > requests.sent as f64 * FAILED;
    let unsound = [subject, changed].into_iter().find(|summary| summary.is_invalid());
    match (&unsound.unwrap_or(changed).state, effect) {
        (CellState::Invalid { reasons }, _) => Outcome::Void(reasons.first().cloned().unwrap_or_default()),
        (CellState::Failed { why, .. } | CellState::Unsupported { why }, _) => Outcome::Void(why.clone()),
        _ if fails_more => Outcome::Void(format!(
            "{} of {} failed",
            count(requests.failed),
            plural(requests.sent, "request")
        )),
        // A cell that breaks down is never better, whatever its quickest requests show. It is worse if an interval
        // shows it: a short repetition may break down by chance.
        (CellState::Unstable { .. }, _) if matches!(subject.state, CellState::Ok) => {
            let is_worse = |effect: Effect| effect.outcome() == Outcome::Worse;
            let mut effects = [effect, served].into_iter().flatten();
            if effects.any(is_worse) { Outcome::Worse } else { Outcome::Undecided }
        }
        // The offered load limits the effect: it may be small and still be all that can be gained.
        (CellState::Ok, Some(effect))
            if matches!(subject.state, CellState::Unstable { .. }) && effect.low > 1.0 =>
        {
            Outcome::Confirmed
        }
        (_, Some(effect)) if is_below_floor(&effect, metric, time_floor(subject, changed)) => {
            Outcome::Refuted
        }
        (_, Some(effect)) => effect.outcome(),
        (_, None) => Outcome::Undecided,
    }
}

/// Whether a difference of times is smaller than our own lateness could cause.
fn is_below_floor(effect: &Effect, metric: Metric, floor: Duration) -> bool {
    let is_time = matches!(metric, Metric::Response(_) | Metric::Median);
    let span = |end: f64| (effect.before / end - effect.before).abs();
    is_time && span(effect.low).max(span(effect.high)) < floor.as_secs_f64()
}

/// The part of a gap that an effect closes, in milliseconds or requests/s. The gap is the difference between the
/// unchanged cell, in the rounds of the changed one, and the twin.
fn closed(gap: Effect, effect: Effect) -> Option<f64> {
    if gap.low <= 1.0 || effect.ratio <= 1.0 {
        return (gap.low > 1.0).then_some(0.0);
    }
    let part = (effect.before - effect.after) / (effect.before - gap.after);
    // In these rounds the unchanged cell may have been as good as the twin: there was no difference.
    (part.is_finite() && part > 0.0).then(|| part.min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Instability;
    use h2lab_model::record::testing::{Model, cell, one_repetition, run};

    fn setup() -> Setup {
        Setup {
            subject: 1,
            twin: Some(0),
            direct: None,
            hop: Some([0, 1]),
            knobs: vec![(2, Knob::Connections(4))],
            looks: 3,
        }
    }

    /// Three rounds; the subject is `slow` times as slow as the twin, and the changed cell `changed` times.
    fn measured(slow: f64, changed: f64) -> RunRecord {
        let mut repetitions = Vec::new();
        for round in 0..3 {
            for (index, protocol, factor) in
                [(0, Protocol::H1, 1.0), (1, Protocol::H2c, slow), (2, Protocol::H2c, changed)]
            {
                let model = Model { factor, ..Model::CLEAN };
                repetitions.push(one_repetition(&cell(index, 0, protocol, 1, 0.0), round, &model));
            }
        }
        run(repetitions)
    }

    fn concluded(slow: f64, changed: f64) -> Experiment {
        Experiment::of(&measured(slow, changed), &setup()).unwrap()
    }

    #[test]
    fn a_hop_has_the_medians_of_both_cells_and_the_verdicts_of_the_experiment_come_first() {
        let run = measured(2.0, 1.0);
        let experiment = Experiment::of(&run, &setup()).unwrap();
        let hop = experiment.hop.clone().unwrap();
        let [direct, via] = hop.medians.unwrap();
        let ratio = via.as_secs_f64() / direct.as_secs_f64();
        assert!((1.8..2.2).contains(&ratio), "{direct:?} {via:?}");
        assert_eq!(hop.protocols, [Protocol::H1, Protocol::H2c]);
        assert_eq!(Hop::of(&run, [0, 7]), None, "it was not measured");
        let mut other_work = run.clone();
        let of_subject = other_work.repetitions.iter_mut().filter(|one| one.cell.index == 1);
        of_subject
            .for_each(|one| one.samples.edit().iter_mut().for_each(|sample| sample.body_bytes += 9_999));
        let medians = Hop::of(&other_work, [0, 1]).unwrap().medians;
        assert!(medians.unwrap_err().ends_with("the work compared is not the same"));
        // The run compares with a different cell than the experiment does.
        let own = experiment.verdict.clone().unwrap();
        let foreign = CellVerdict { baseline: 2, ..own.clone() };
        let other = CellVerdict { cell: 2, ..own.clone() };
        assert_eq!(experiment.verdicts(&[foreign, other.clone()]), [own, other]);
    }

    #[test]
    fn a_knob_that_closes_the_gap_is_confirmed_with_its_effect() {
        let experiment = concluded(2.0, 1.0);
        let trial = &experiment.trials[0];
        assert_eq!(trial.outcome, Outcome::Confirmed);
        assert_eq!((trial.knob.clone(), trial.cell, trial.rounds), (Knob::Connections(4), 2, 3));
        let effect = trial.effect.unwrap();
        assert!((effect.ratio - 2.0).abs() < 0.05 && effect.low > 1.5 && effect.high < 2.5, "{effect:?}");
        assert!(trial.closes.unwrap() > 0.95, "{trial:?}");
        assert!(!experiment.is_healthy());
        assert_eq!(experiment.confirmed().len(), 1);
    }

    /// Like `measured`, but every tenth request takes 300 ms in each cell: the tails do not differ.
    fn measured_in_median(slow: f64, changed: f64) -> RunRecord {
        let mut run = measured(slow, changed);
        for one in &mut run.repetitions {
            for (n, sample) in one.samples.edit().iter_mut().enumerate() {
                if n % 10 == 0 {
                    sample.completed_at = sample.scheduled_at + Duration::from_millis(300);
                }
            }
        }
        run
    }

    #[test]
    fn changes_are_judged_by_the_quantity_in_which_the_difference_was_found() {
        let of = |run: &RunRecord, setup: &Setup| Experiment::of(run, setup).unwrap();
        let run = measured_in_median(2.0, 1.0);
        let experiment = of(&run, &setup());
        assert!(experiment.verdict.as_ref().unwrap().is_slower_in_median_only());
        assert_eq!(experiment.metric, Metric::Median);
        let trial = &experiment.trials[0];
        assert_eq!(trial.outcome, Outcome::Confirmed, "{trial:?}");
        assert!(trial.closes.unwrap() > 0.9, "{trial:?}");
        let since = Since::of(&run, &measured_in_median(1.0, 1.0), &setup()).unwrap();
        assert_eq!(since.metric, Metric::Median);
        assert!(since.gap.as_ref().unwrap().closed.unwrap() > 0.9, "{since:?}");
        let tail = |experiment: Experiment| matches!(experiment.metric, Metric::Response(_));
        assert!(tail(of(&run, &Setup { twin: None, ..setup() })), "there is nothing that differs");
        assert!(tail(concluded(2.0, 1.0)), "the tail differs as well");
        assert!(tail(of(&measured_in_median(1.0, 1.0), &setup())), "nothing differs");
    }

    #[test]
    fn what_a_change_closes_is_its_part_of_what_is_served() {
        let effect = |before: f64, after: f64, ratio: f64| Effect {
            ratio,
            low: ratio * 0.99,
            high: ratio * 1.01,
            before,
            after,
        };
        // 72 of 2,036 requests/s, and 283 with the change.
        let part = closed(effect(72.0, 2036.0, 28.3), effect(72.0, 283.0, 3.9)).unwrap();
        assert!((part - 211.0 / 1964.0).abs() < 1e-9, "{part}");
        // The unchanged cell took 244 ms over all rounds, and 148 ms in those of the change.
        let part = closed(effect(0.244, 0.066, 3.7), effect(0.148, 0.0666, 2.2)).unwrap();
        assert!((part - 81.4 / 82.0).abs() < 1e-9, "of what is printed beside it: {part}");
        assert_eq!(closed(effect(1.0, 1.0, 1.0), effect(1.0, 2.0, 0.5)), None);
        // In the rounds of the change the unchanged cell was quicker than the twin: 100 ms, and 110 ms.
        let gap = effect(0.244, 0.11, 2.2);
        assert_eq!(closed(gap, effect(0.1, 0.12, 0.83)), Some(0.0), "what is worse closes nothing");
        assert_eq!(closed(gap, effect(0.1, 0.08, 1.25)), None);
    }

    #[test]
    fn a_knob_without_effect_is_refuted_and_one_that_harms_is_worse() {
        assert_eq!(concluded(2.0, 2.0).trials[0].outcome, Outcome::Refuted);
        let worse = concluded(2.0, 3.0);
        assert_eq!(worse.trials[0].outcome, Outcome::Worse);
        assert_eq!(worse.trials[0].closes, Some(0.0));
        assert!(concluded(1.0, 1.0).is_healthy());
    }

    #[test]
    fn what_is_gone_of_a_difference_is_its_part_of_the_milliseconds() {
        let [slow, between, quick] = [4.0, 2.0, 1.0].map(|slow| measured(slow, slow));
        let since = |before: &RunRecord, now: &RunRecord| Since::of(before, now, &setup()).unwrap();
        let closed = |before: &RunRecord, now: &RunRecord| since(before, now).gap.unwrap().closed;
        let is_near = |closed: Option<f64>, part: f64| closed.is_some_and(|it| (it - part).abs() < 0.1);
        assert!(is_near(closed(&slow, &quick), 1.0) && is_near(closed(&slow, &between), 2.0 / 3.0));
        assert!(is_near(closed(&between, &slow), -2.0), "it has grown");
        assert_eq!(closed(&quick, &slow), None, "there was none");
        let alone = Since::of(&slow, &quick, &Setup { twin: None, ..setup() }).unwrap();
        assert_eq!(alone.gap, None);
        assert!((alone.subject.ratio - 4.0).abs() < 0.2 && alone.subject.low > 3.0, "{:?}", alone.subject);
        assert_eq!(since(&slow, &quick).subject, alone.subject, "whatever there is beside it");
    }

    #[test]
    fn a_single_round_claims_no_more_than_the_rounds_of_the_unchanged_cell_vary() {
        // The unchanged cell takes 1, 1.7 and 1.9 times as long in its rounds, and the change without effect takes 1.5
        // times as long, once.
        let mut run = measured(1.0, 1.5);
        run.repetitions.retain(|one| one.cell.index != 2 || one.cell.repetition == 2);
        for one in run.repetitions.iter_mut().filter(|one| one.cell.index == 1) {
            let factor = [1.0, 1.7, 1.9][one.cell.repetition as usize];
            for sample in one.samples.edit().iter_mut() {
                sample.completed_at = sample.scheduled_at + sample.response_time().mul_f64(factor);
            }
        }
        let trial = |run: &RunRecord| Experiment::of(run, &setup()).unwrap().trials[0].clone();
        assert_eq!(trial(&run).outcome, Outcome::Undecided, "{:?}", trial(&run).effect);
        // Without the other rounds this variation is unknown.
        run.repetitions.retain(|one| one.cell.repetition == 2);
        assert_eq!(trial(&run).outcome, Outcome::Undecided, "{:?}", trial(&run).effect);
    }

    #[test]
    fn only_rounds_that_both_have_are_compared() {
        let mut run = measured(2.0, 1.0);
        run.repetitions.retain(|one| one.cell.index != 2 || one.cell.repetition == 2);
        for one in run.repetitions.iter_mut().filter(|one| one.cell.index == 1 && one.cell.repetition < 2) {
            one.samples.edit().iter_mut().for_each(|sample| sample.completed_at += Duration::from_millis(60));
        }
        let experiment = Experiment::of(&run, &setup()).unwrap();
        let effect = experiment.trials[0].effect.unwrap();
        assert!((effect.ratio - 2.0).abs() < 0.1, "the slow rounds are not beside it: {effect:?}");
        run.repetitions.retain(|one| one.cell.index != 2);
        assert_eq!(Experiment::of(&run, &setup()).unwrap().trials, []);
        run.repetitions.retain(|one| one.cell.index == 0);
        assert_eq!(Experiment::of(&run, &setup()), None);
    }

    #[test]
    fn a_change_with_which_the_load_is_carried_helps_however_little_was_missing() {
        let run = measured(2.0, 1.0);
        let [mut subject, changed] = [1, 2].map(|index| summary(&repetitions_of(&run, index)).unwrap());
        let effect = |low: f64| Some(Effect { ratio: 1.05, low, high: 1.06, before: 95.0, after: 100.0 });
        let of = |subject: &CellSummary, low| {
            outcome(subject, &changed, Metric::Served, [effect(low), effect(low)])
        };
        assert_eq!(of(&subject, 1.04), Outcome::Refuted, "it is carried without");
        let why = Instability::Served { share: 0.95, failed: 0.0 };
        subject.state = CellState::Unstable { offered_rps: 100.0, served_rps: 95.0, why };
        assert_eq!([1.04, 0.99].map(|low| of(&subject, low)), [Outcome::Confirmed, Outcome::Refuted]);
    }

    #[test]
    fn what_was_not_measured_soundly_confirms_nothing() {
        for unsound in [1, 2] {
            let mut run = measured(2.0, 1.0);
            let cell = run.repetitions.iter_mut().find(|one| one.cell.index == unsound).unwrap();
            cell.link.as_mut().unwrap().device_drops = 9;
            let experiment = Experiment::of(&run, &setup()).unwrap();
            assert!(matches!(experiment.trials[0].outcome, Outcome::Void(_)), "cell {unsound}");
        }
    }

    #[test]
    fn the_causes_that_a_knob_takes_away_are_in_the_catalogue() {
        let mut odd = cell(0, 0, Protocol::H2c, 1, 0.0);
        odd.max_requests_per_connection = Some(9);
        odd.dial = h2lab_model::workload::DialPolicy::Stampede;
        for knob in Knob::of(&odd) {
            for id in knob.causes() {
                assert!(crate::diagnose::cause(id).is_some(), "{id} of {knob:?}");
            }
        }
    }
}
