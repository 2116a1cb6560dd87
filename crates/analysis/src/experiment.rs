//! What an experiment shows: the effect of each knob on the cell in which it was changed.
//!
//! A cell with one setting changed is compared with the repetitions of the unchanged cell that were made in the same
//! rounds. Several knobs are tried in one run, and each is looked at after some of its rounds ([`LOOKS`]). The intervals
//! have Bonferroni's correction for all of these looks together, so that the chance of a single false claim among the
//! changes of a run is at most 5 %. The variation from round to round is that of all cells together (`variation`): a change may have
//! a single round. A change is judged by the rounds up to its last one, so that what a look has decided stays decided.

#[cfg(test)]
mod calibration;
pub mod client;
mod recorded;
mod remedy;
#[cfg(test)]
mod tests;
mod told;
mod variation;
mod without_effect;

use std::collections::BTreeMap;
use std::time::Duration;

pub use recorded::Recorded;
pub use remedy::{Again, Harm, Remedy};

use h2lab_base::counts::{count, plural};
use h2lab_model::experiment::Knob;
use h2lab_model::record::{CellRecord, RunRecord};
use h2lab_model::scenario::Cell;
use h2lab_model::workload::{Arrival, Protocol};

use crate::diagnose::Finding;
use crate::stats::correction::Looks;
use crate::stats::{
    CellState, CellSummary, CellVerdict, Tail, different_work, fail_more, interval_of_rates,
    interval_of_times, repetitions_of, time_floor, verdict_on,
};
use variation::Known;

/// An effect below this is not claimed, and is not worth a change.
const EFFECT: f64 = 1.10;
/// A knob has no effect if its whole interval is below this, in either direction.
const NO_EFFECT: f64 = 1.15;
/// A changed cell may fail this share of its requests; if more fail, its figures describe other work.
const FAILED: f64 = 0.02;

/// Rounds of the unchanged cells, before anything is changed.
pub const FIRST_ROUNDS: u32 = 2;
/// Rounds of a change after which it is looked at, and decided if its interval allows it: first after each, then after
/// ever more of them. Each look widens the intervals, and a few more rounds hardly make them narrower. A single round says
/// little about the variation between rounds. The last ones are for long budgets.
pub const LOOKS: [u32; 12] = [2, 3, 4, 5, 7, 10, 14, 20, 28, 40, 56, 80];
/// How many of the looks are early.
const EARLY: usize = 4;

/// Among how many looks of the same width the chance of a false claim about one change would be divided, for the look after
/// `rounds` rounds. Each early look has a fifth of that chance, since most budgets end with them. The later looks share the
/// last fifth with one more: that when the budget ends, after whatever number of rounds.
fn looks(rounds: u32) -> u32 {
    let early = EARLY as u32 + 1;
    let later = (LOOKS.len() - EARLY) as u32 + 1;
    if rounds <= LOOKS[EARLY - 1] { early } else { early * later }
}

/// The place of the first of `findings` on the cell that names a cause which `knob` removes; the costliest come first. `None`
/// if there is none.
pub fn suspicion(knob: &Knob, cell: u32, findings: &[Finding]) -> Option<usize> {
    findings.iter().position(|finding| finding.cell == cell && finding.is_removed_by(knob))
}

/// Whether a knob is worth a try on a cell that has these findings.
pub fn is_worth_trying(knob: &Knob, cell: u32, findings: &[Finding]) -> bool {
    !knob.needs_finding() || suspicion(knob, cell, findings).is_some()
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Successes per second: of a closed loop, and of a cell that does not carry its load.
    Served,
    /// A percentile of the response time.
    Response(Tail),
    /// The median of the response time, if the median differs and the tail does not.
    Median,
    /// The time that a run of a user's client takes ([`client`]).
    Run,
}

impl Metric {
    /// The name in reports: `requests/s`, `p99`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Served => "requests/s",
            Self::Response(tail) => tail.name(),
            Self::Median => "p50",
            Self::Run => "time of a run",
        }
    }

    /// The percentile of the response time, 0 to 1; for rates, which have none, the median.
    const fn share(self) -> f64 {
        match self {
            Self::Response(tail) => tail.share(),
            Self::Served | Self::Median | Self::Run => 0.5,
        }
    }

    /// How much worse a cell is than one that is `ratio` times as good, as a share of the better one's milliseconds or
    /// requests/s.
    fn excess(self, ratio: f64) -> f64 {
        match self {
            Self::Served => 1.0 - ratio.recip(),
            Self::Response(_) | Self::Median | Self::Run => ratio - 1.0,
        }
    }

    /// The derivative of [`Self::excess`] with respect to the logarithm of the ratio.
    fn slope(self, ratio: f64) -> f64 {
        match self {
            Self::Served => ratio.recip(),
            Self::Response(_) | Self::Median | Self::Run => ratio,
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
    /// The part of the difference from the twin that the change closes, and its interval, 0 to 1; `None` without a
    /// difference.
    pub closes: Option<[f64; 3]>,
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
    /// Cells at the server itself and through the proxy, with comparable protocols ([`Setup::hops`]).
    pub hops: Vec<[u32; 2]>,
    /// Knobs, and the cells that have them.
    pub knobs: Vec<(u32, Knob)>,
}

impl Setup {
    /// A cell at the server itself and one through the proxy, over HTTP/1.1 and over what multiplexes: none of those that
    /// one of them does not speak.
    pub fn hops(direct: &[&Cell], via: &[&Cell]) -> Vec<[u32; 2]> {
        let of = |cells: &[&Cell], is_multiplexed| {
            cells.iter().find(|cell| cell.protocol.is_multiplexed() == is_multiplexed).map(|cell| cell.index)
        };
        [false, true].into_iter().filter_map(|kind| Some([of(direct, kind)?, of(via, kind)?])).collect()
    }
}

/// The results of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// The subject against its twin; `None` without one.
    pub verdict: Option<CellVerdict>,
    /// The same at the server itself, if these go through a proxy.
    pub direct: Option<CellVerdict>,
    /// What a request takes at the server itself and through the proxy, over each protocol that both speak.
    pub hops: Vec<Hop>,
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
        let places = ["at the server itself", "through the proxy"];
        let unsound = both.iter().zip(places).find_map(|(one, place)| match &one.state {
            CellState::Ok => None,
            CellState::Unstable { .. } => Some(format!("{place} {} does not carry this load", one.label)),
            CellState::Invalid { reasons } => Some(format!("{place} {}: {}", one.label, reasons.join("; "))),
            CellState::Failed { why, .. } | CellState::Unsupported { why } => {
                Some(format!("{place} {}: {why}", one.label))
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
        let sound = twin.as_ref().filter(|twin| ![*twin, &subject].into_iter().any(CellSummary::is_invalid));
        let gap = sound.and_then(|twin| effect(&subject, twin, metric, run.seed));
        let mut by_last: BTreeMap<u32, Option<Known>> = BTreeMap::new();
        let trials = setup.knobs.iter().filter_map(|(index, knob)| {
            let changed = repetitions_of(run, *index);
            let last = changed.iter().map(|one| one.cell.repetition).max()?;
            let known = by_last.entry(last).or_insert_with(|| Known::until(run, setup, last)).as_ref()?;
            let beside = beside(&repetitions_of(run, setup.subject), &changed);
            let subject = summary(&beside)?;
            let changed = known.changed(*index)?;
            let among = setup.knobs.len() as u32 * looks(changed.repetitions);
            let of = |metric: Metric| {
                // Two rounds of each cell alone have two degrees of freedom: by Student's t for a small share, no
                // change would ever have an effect. So how rounds vary is in `spread`, by Student's t with the degrees
                // of freedom of all cells. What is left is by Student's t for the blocks, which may be few;
                // `calibration.rs` counts what both together claim falsely.
                let looks = Looks::at_known_variation(among);
                let own = effect_among(&subject, changed, metric, run.seed, looks)?;
                Some(own.no_narrower(known.spread(metric, [&subject, changed], among)))
            };
            let (effect, served) = (of(metric), of(Metric::Served));
            let is_single = known.unchanged.repetitions.max(changed.repetitions) < 2;
            Some(Trial {
                knob: knob.clone(),
                cell: *index,
                rounds: changed.repetitions,
                effect,
                outcome: match outcome([&subject, changed], metric, [effect, served]) {
                    // The variation between rounds is unknown.
                    outcome if is_single && outcome.is_final() => Outcome::Undecided,
                    outcome => outcome,
                },
                closes: gap.zip(effect).and_then(|(gap, effect)| closed(metric, gap, effect)),
            })
        });
        let direct = setup.direct.and_then(|[twin, subject]| {
            let [twin, subject] = [twin, subject].map(|index| summary(&repetitions_of(run, index)));
            Some(verdict_on(&twin?, &subject?, run.seed))
        });
        let trials: Vec<Trial> = trials.collect();
        let verdict = twin.as_ref().map(|twin| verdict_on(twin, &subject, run.seed));
        Some(Self {
            direct,
            hops: setup.hops.iter().filter_map(|cells| Hop::of(run, *cells)).collect(),
            verdict,
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
            hops: Vec::new(),
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

    /// The changes to go on with after `made` rounds: those that no look has decided and that are not void, as long as
    /// a look follows. What is decided is not measured again, and stays decided.
    pub fn open(&self, knobs: &[(u32, Knob)], made: u32) -> Vec<(u32, Knob)> {
        let is_open = |cell: u32| {
            let known = self.trials.iter().find(|trial| trial.cell == cell);
            known.is_none_or(|trial| {
                let is_void = matches!(trial.outcome, Outcome::Void(_)) && trial.rounds >= LOOKS[0];
                !(is_void || LOOKS.contains(&trial.rounds) && trial.outcome.is_final())
            })
        };
        let is_over = LOOKS.iter().all(|look| *look <= made);
        knobs.iter().filter(|(cell, _)| !is_over && is_open(*cell)).cloned().collect()
    }

    /// Of these open changes, those to measure next: where some look as if they help, those of at least half of the largest
    /// effect, in its logarithm; the others wait until these are decided. A budget for two rounds of all changes decides
    /// none of them; each change has its own share of the chance of a false claim, whenever it is measured.
    pub fn promising(&self, mut open: Vec<(u32, Knob)>) -> Vec<(u32, Knob)> {
        let gain = |cell: u32| {
            let trial = self.trials.iter().find(|trial| trial.cell == cell)?;
            Some(trial.effect?.ratio.ln())
        };
        let gains: Option<Vec<f64>> = open.iter().map(|(cell, _)| gain(*cell)).collect();
        let best = gains.map_or(0.0, |gains| gains.into_iter().fold(0.0, f64::max));
        if best >= EFFECT.ln() {
            open.retain(|(cell, _)| gain(*cell).is_some_and(|gain| gain >= best / 2.0));
        }
        open
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
    // Only the first rounds, or those of the twin: the metric stays the same, however many rounds follow.
    let all = repetitions_of(run, setup.subject);
    let Some(twin) = setup.twin.map(|twin| repetitions_of(run, twin)).filter(|twin| !twin.is_empty()) else {
        let mut first = all.clone();
        first.retain(|one| one.cell.repetition < FIRST_ROUNDS);
        let subject = summary(&first).or_else(|| summary(&all))?;
        return Some(metric(&subject, None, run.seed));
    };
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
    effect_among(subject, changed, metric, seed, Looks::from(1))
}

/// The same with an interval that is one of `looks`.
fn effect_among(
    subject: &CellSummary,
    changed: &CellSummary,
    metric: Metric,
    seed: u64,
    looks: Looks,
) -> Option<Effect> {
    match metric {
        Metric::Served => {
            let of = interval_of_rates(subject, changed, seed, looks)?;
            let (before, after) = (of.baseline_rps, of.cell_rps);
            Some(Effect { ratio: of.ratio, low: of.low, high: of.high, before, after })
        }
        Metric::Response(_) | Metric::Median | Metric::Run => {
            let of = interval_of_times(metric.share(), subject, changed, seed, looks)?;
            let (before, after) = (of.baseline.as_secs_f64(), of.candidate.as_secs_f64());
            Some(Effect { ratio: of.ratio, low: of.low, high: of.high, before, after }.inverted())
        }
    }
}

/// The outcome for a knob, from its effects on the metric and on what is served.
fn outcome(
    [subject, changed]: [&CellSummary; 2],
    metric: Metric,
    [effect, served]: [Option<Effect>; 2],
) -> Outcome {
    let requests = &changed.requests;
    let [without, with] = [subject, changed].map(|cell| [cell.requests.failed, cell.requests.sent]);
    let fails_more = requests.failed as f64 > requests.sent as f64 * FAILED && fail_more(without, with);
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
/// unchanged cell, in the rounds of the changed one, and the twin. The ends of the interval have the unfavourable ends of
/// both effects' intervals, and the favourable ones: where the estimate is no better, only the latter may close something.
fn closed(metric: Metric, gap: Effect, effect: Effect) -> Option<[f64; 3]> {
    if gap.low <= 1.0 || effect.high <= 1.0 {
        return (gap.low > 1.0).then_some([0.0; 3]);
    }
    let is_better = effect.ratio > 1.0;
    let part = |after: f64, twin: f64| (effect.before - after) / (effect.before - twin);
    let closes = if is_better { part(effect.after, gap.after) } else { 0.0 };
    let better = |figure: f64, ratio: f64| {
        if metric == Metric::Served { figure * ratio } else { figure / ratio }
    };
    let end =
        |of_effect: f64, of_gap: f64| part(better(effect.before, of_effect), better(gap.before, of_gap));
    let (low, high) = (end(effect.low, gap.high), end(effect.high, gap.low));
    // At its least, the difference may be none at all.
    let high = if high >= closes { high } else { 1.0 };
    let low = low.min(closes);
    // In these rounds the unchanged cell may have been as good as the twin: there was no difference.
    let is_known = closes.is_finite() && (closes > 0.0 || !is_better);
    is_known.then(|| [closes, low, high].map(|part| part.clamp(0.0, 1.0)))
}
