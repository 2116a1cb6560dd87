//! What an experiment shows: the effect of each knob on the cell in which it was changed.
//!
//! A cell with one setting changed is compared with the repetitions of the unchanged cell that were made in the same rounds. Several
//! knobs are tried in one run, and each is looked at after each round: the intervals are those of Bonferroni's correction for all
//! of these looks together, so that the chance of a single false claim in the whole run is at most 5 %.

#[cfg(test)]
mod calibration;
mod remedy;

use std::time::Duration;

pub use remedy::{Again, Harm, Remedy};

use h2lab_base::counts::{count, plural};
use h2lab_model::experiment::Knob;
use h2lab_model::record::{CellRecord, RunRecord};
use h2lab_model::workload::{Arrival, Protocol};

use crate::stats::correction;
use crate::stats::{
    CellState, CellSummary, CellVerdict, Tail, interval_of_rates, interval_of_times, repetitions_of,
    time_floor, verdict_on,
};

/// An effect below this is not claimed, and is not worth a change.
const EFFECT: f64 = 1.10;
/// A knob has no effect if all of its interval is below this, either way.
const NO_EFFECT: f64 = 1.15;
/// A changed cell may fail this share of its requests; if it fails more, its figures are of other work.
const FAILED: f64 = 0.02;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Successes per second: of a closed loop, and of a cell that does not carry its load.
    Served,
    /// A percentile of the response time.
    Response(Tail),
}

impl Metric {
    /// The name in reports: `requests/s`, `p99`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Served => "requests/s",
            Self::Response(tail) => tail.name(),
        }
    }

    /// How much worse a cell is than one that is `ratio` times as good, as a part of the better one's milliseconds or requests/s.
    fn excess(self, ratio: f64) -> f64 {
        match self {
            Self::Served => 1.0 - ratio.recip(),
            Self::Response(_) => ratio - 1.0,
        }
    }

    /// The derivative of [`Self::excess`] by the logarithm of the ratio.
    fn slope(self, ratio: f64) -> f64 {
        match self {
            Self::Served => ratio.recip(),
            Self::Response(_) => ratio,
        }
    }
}

/// What came of a knob.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It helps.
    Confirmed,
    /// It makes things worse.
    Worse,
    /// It has no effect of 15 % or more.
    Refuted,
    /// The interval says neither.
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
    /// With an interval so many times wider, in the logarithm.
    fn widened(self, by: f64) -> Self {
        let wider = |end: f64| correction::widened(self.ratio, end, by);
        Self { low: wider(self.low), high: wider(self.high), ..self }
    }

    /// Of a ratio of times: less is better.
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

/// A knob, the cell that has it, and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// What was changed.
    pub knob: Knob,
    /// The index of the changed cell.
    pub cell: u32,
    /// How often it was measured beside the unchanged one.
    pub rounds: u32,
    /// The effect; `None` if there is none to be had.
    pub effect: Option<Effect>,
    /// What came of it.
    pub outcome: Outcome,
    /// The part of the difference from the twin that the change closes, 0 to 1; `None` without a difference.
    pub closes: Option<f64>,
}

/// The cells of an experiment, by their indices in the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// The cell that is asked about.
    pub subject: u32,
    /// The same work over another protocol, if there is one.
    pub twin: Option<u32>,
    /// Twin and subject at the server itself, where the others go through a proxy.
    pub direct: Option<[u32; 2]>,
    /// A cell at the server itself and one through the proxy, of protocols that are alike, if there are such.
    pub hop: Option<[u32; 2]>,
    /// Knobs, and the cells that have them.
    pub knobs: Vec<(u32, Knob)>,
    /// How often each knob is looked at, at most.
    pub looks: u32,
}

/// What is known of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// The subject against its twin; `None` without one.
    pub verdict: Option<CellVerdict>,
    /// The same at the server itself, where these go through a proxy.
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
    /// The median response times; why there is no sound one, in a sentence.
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
        let medians = both.each_ref().map(|one| one.response.quantile(0.5));
        Some(Self { protocols, medians: unsound.map_or(Ok(medians), Err) })
    }
}

impl Experiment {
    /// These verdicts of a run with those of the experiment in place of others on the same cells: through a proxy, the twin is the other
    /// protocol there and not at the server itself.
    pub fn verdicts(&self, of_run: &[CellVerdict]) -> Vec<CellVerdict> {
        let own: Vec<&CellVerdict> = self.verdict.iter().chain(&self.direct).collect();
        let others = of_run.iter().filter(|one| own.iter().all(|own| own.cell != one.cell));
        own.iter().copied().chain(others).cloned().collect()
    }

    /// What the repetitions so far say. `None` before the subject was measured.
    pub fn of(run: &RunRecord, setup: &Setup) -> Option<Self> {
        let subject = summary(&repetitions_of(run, setup.subject))?;
        let twin = setup.twin.and_then(|twin| summary(&repetitions_of(run, twin)));
        let metric = metric(&subject);
        let gap = twin.as_ref().and_then(|twin| effect(&subject, twin, metric, run.seed));
        let widened = correction::of_looks(setup.knobs.len() as u32 * setup.looks);
        let trials = setup.knobs.iter().filter_map(|(index, knob)| {
            let changed = repetitions_of(run, *index);
            let beside = beside(&repetitions_of(run, setup.subject), &changed);
            let (subject, changed) = (summary(&beside)?, summary(&changed)?);
            let of =
                |metric: Metric| effect(&subject, &changed, metric, run.seed).map(|it| it.widened(widened));
            let (effect, served) = (of(metric), of(Metric::Served));
            Some(Trial {
                knob: knob.clone(),
                cell: *index,
                rounds: changed.repetitions,
                effect,
                outcome: outcome(&subject, &changed, metric, [effect, served]),
                closes: gap.zip(effect).and_then(|(gap, effect)| closed(metric, gap, effect)),
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

    /// Of a run that was ended before the subject was measured.
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

/// What became of the difference between the subject and its twin since an earlier run.
#[derive(Debug, Clone, PartialEq)]
pub struct Since {
    /// What is compared: that of the earlier run.
    pub metric: Metric,
    /// How many times better the twin was.
    pub before: Effect,
    /// How many times better it is.
    pub now: Effect,
    /// The part of the difference that is gone: 1 if all is, below 0 if it has grown. `None` if there was none.
    pub closed: Option<f64>,
}

impl Since {
    /// Of an earlier run and a later one of the same cells; `None` where one of them is not measured, or has too few requests.
    pub fn of(before: &RunRecord, now: &RunRecord, setup: &Setup) -> Option<Self> {
        let subject = summary(&repetitions_of(before, setup.subject))?;
        let metric = metric(&subject);
        let gap = |run: &RunRecord| {
            let subject = summary(&repetitions_of(run, setup.subject))?;
            effect(&subject, &summary(&repetitions_of(run, setup.twin?))?, metric, run.seed)
        };
        let (before, now) = (gap(before)?, gap(now)?);
        let closed = (before.low > 1.0).then(|| 1.0 - metric.excess(now.ratio) / metric.excess(before.ratio));
        Some(Self { metric, before, now, closed })
    }
}

fn summary(repetitions: &[&CellRecord]) -> Option<CellSummary> {
    (!repetitions.is_empty()).then(|| CellSummary::of(repetitions))
}

/// The repetitions of the subject that were made in the rounds of these: what drifts in between is in neither.
fn beside<'a>(subject: &[&'a CellRecord], changed: &[&CellRecord]) -> Vec<&'a CellRecord> {
    let is_beside =
        |one: &&&CellRecord| changed.iter().any(|other| other.cell.repetition == one.cell.repetition);
    subject.iter().filter(is_beside).copied().collect()
}

fn metric(subject: &CellSummary) -> Metric {
    let is_closed = matches!(subject.cell.work.arrival, Arrival::Closed { .. });
    match subject.state {
        CellState::Unstable { .. } => Metric::Served,
        _ if is_closed => Metric::Served,
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
        Metric::Response(tail) => {
            let of = interval_of_times(tail.share(), subject, changed, seed)?;
            let (before, after) = (of.baseline.as_secs_f64(), of.candidate.as_secs_f64());
            Some(Effect { ratio: of.ratio, low: of.low, high: of.high, before, after }.inverted())
        }
    }
}

/// What a knob's effects, on the metric and on what is served, come to.
fn outcome(
    subject: &CellSummary,
    changed: &CellSummary,
    metric: Metric,
    [effect, served]: [Option<Effect>; 2],
) -> Outcome {
    let requests = &changed.requests;
    let fails_more =
        requests.failed > subject.requests.failed && requests.failed as f64 > requests.sent as f64 * FAILED;
    let is_unsound = |summary: &CellSummary| matches!(summary.state, CellState::Invalid { .. });
    let unsound = [subject, changed].into_iter().find(|summary| is_unsound(summary));
    match (&unsound.unwrap_or(changed).state, effect) {
        (CellState::Invalid { reasons }, _) => Outcome::Void(reasons.first().cloned().unwrap_or_default()),
        (CellState::Failed { why, .. } | CellState::Unsupported { why }, _) => Outcome::Void(why.clone()),
        _ if fails_more => Outcome::Void(format!(
            "{} of {} failed",
            count(requests.failed),
            plural(requests.sent, "request")
        )),
        // A cell that breaks down is never better, whatever its quickest requests say. It is worse if an interval says so: a short
        // repetition may break down by chance.
        (CellState::Unstable { .. }, _) if matches!(subject.state, CellState::Ok) => {
            let is_worse = |effect: Effect| effect.outcome() == Outcome::Worse;
            let mut effects = [effect, served].into_iter().flatten();
            if effects.any(is_worse) { Outcome::Worse } else { Outcome::Undecided }
        }
        // What is offered bounds the effect: it may be small, and is all that there is to gain.
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

/// Whether a difference of times is smaller than what our own lateness makes of it.
fn is_below_floor(effect: &Effect, metric: Metric, floor: Duration) -> bool {
    let is_time = matches!(metric, Metric::Response(_));
    let span = |end: f64| (effect.before / end - effect.before).abs();
    is_time && span(effect.low).max(span(effect.high)) < floor.as_secs_f64()
}

/// The part of a gap that an effect closes, of the milliseconds or of the requests/s.
fn closed(metric: Metric, gap: Effect, effect: Effect) -> Option<f64> {
    let rest = metric.excess(gap.ratio / effect.ratio);
    (gap.low > 1.0).then(|| (1.0 - rest / metric.excess(gap.ratio)).clamp(0.0, 1.0))
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
        // The run compares with another cell than the experiment.
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

    #[test]
    fn what_a_change_closes_is_its_part_of_what_is_served() {
        let effect = |before: f64, after: f64| {
            let ratio = after / before;
            Effect { ratio, low: ratio * 0.99, high: ratio * 1.01, before, after }
        };
        // 72 of 2,036 requests/s, and 283 with the change.
        let part = closed(Metric::Served, effect(72.0, 2036.0), effect(72.0, 283.0)).unwrap();
        assert!((part - 211.0 / 1964.0).abs() < 1e-9, "{part}");
        let times = closed(Metric::Response(Tail::P95), effect(1.0, 4.0), effect(1.0, 2.0)).unwrap();
        assert!((times - 2.0 / 3.0).abs() < 1e-9, "of 4 ms against 1 ms, 2 ms are left: {times}");
        assert_eq!(closed(Metric::Served, effect(1.0, 1.0), effect(1.0, 2.0)), None);
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
        let closed = |before: &RunRecord, now: &RunRecord| Since::of(before, now, &setup()).unwrap().closed;
        let is_near = |closed: Option<f64>, part: f64| closed.is_some_and(|it| (it - part).abs() < 0.1);
        assert!(is_near(closed(&slow, &quick), 1.0) && is_near(closed(&slow, &between), 2.0 / 3.0));
        assert!(is_near(closed(&between, &slow), -2.0), "it has grown");
        assert_eq!(closed(&quick, &slow), None, "there was none");
        assert_eq!(Since::of(&slow, &quick, &Setup { twin: None, ..setup() }), None);
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
