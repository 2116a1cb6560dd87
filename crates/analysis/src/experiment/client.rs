//! The experiment with a user's client: its command is run again, unchanged and with one setting of our end changed.
//!
//! A run gives one figure of each kind: how long the command took, and two quantiles of its requests' response times. The
//! variation is that between runs alone, so that the intervals are those of Student's t. They have Bonferroni's
//! correction for all changes, looks and kinds of figures.

#[cfg(test)]
mod tests;

use std::time::Duration;

use h2lab_base::counts::{count, plural};
use h2lab_base::units::measured_time;
use h2lab_model::experiment::{Knob, ServerSetting};
use h2lab_model::record::CellRecord;
use h2lab_model::scenario::Cell;
use h2lab_model::settings;

use super::{Effect, Experiment, FAILED, Metric, Outcome, Trial, looks};
use crate::diagnose::Finding;
use crate::stats::{Tail, correction, spread_of_some};

/// Rounds of a change before anything is concluded: fewer say little about the variation between runs.
pub const LEAST_ROUNDS: u32 = 3;
/// What is compared, the first where nothing differs.
const METRICS: [Metric; 3] = [Metric::Run, Metric::Response(Tail::P95), Metric::Median];
/// A longer run than this part of the budget is not repeated.
const LONGEST: u32 = 3;

/// A run of the command.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClientRun {
    /// The cell: the unchanged one, or that of a change.
    pub cell: u32,
    /// The round: a change is compared with the unchanged run of the same one.
    pub round: u32,
    /// For how long the command ran.
    pub took: Duration,
    /// Whether it ended with an error.
    pub has_failed: bool,
    /// The response times of the requests that were answered, ascending.
    pub responses: Vec<Duration>,
    /// All requests.
    pub requests: u64,
    /// Those of them that failed.
    pub failures: u64,
    /// Why its figures are not to be trusted; empty if they are.
    pub doubts: Vec<String>,
}

impl ClientRun {
    /// A run over the settings of `cell`, with what its connections showed.
    pub fn of(cell: &Cell, records: &[CellRecord]) -> Self {
        let samples = || records.iter().flat_map(|record| record.samples.iter());
        let answered = samples().filter(|sample| sample.outcome.is_complete());
        let mut responses: Vec<Duration> = answered.map(|sample| sample.response_time()).collect();
        responses.sort_unstable();
        Self {
            cell: cell.index,
            round: cell.repetition,
            responses,
            requests: samples().count() as u64,
            failures: samples().filter(|sample| sample.outcome.is_failure()).count() as u64,
            ..Self::default()
        }
    }

    /// Its figure in seconds, if it has one above 0.
    fn figure(&self, metric: Metric) -> Option<f64> {
        let time = match metric {
            Metric::Run => self.took,
            _ => {
                let rank = (metric.share() * self.responses.len() as f64).ceil() as usize;
                *self.responses.get(rank.saturating_sub(1))?
            }
        };
        (!time.is_zero()).then_some(time.as_secs_f64())
    }
}

/// The changes at our end that remove findings about a client, those of the first finding first. `ours` has the settings
/// of our end, and `named` are those of our origin that findings name.
pub fn suspects(findings: &[Finding], ours: &Cell, named: Vec<ServerSetting>) -> Vec<Knob> {
    // The other settings have knobs of their own.
    let is_streams = |setting: &ServerSetting| setting.change.knob == settings::Knob::MaxConcurrentStreams;
    let streams = named.into_iter().filter(is_streams).map(Knob::Server);
    let place = |knob: &Knob| {
        let causes = knob.causes();
        findings.iter().position(|finding| causes.contains(&finding.rule.as_str()))
    };
    let all = streams.chain(Knob::of_our_end(ours));
    let mut placed: Vec<(usize, Knob)> = all.filter_map(|knob| Some((place(&knob)?, knob))).collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, knob)| knob).collect()
}

/// Why a client that takes so long is not run again within `budget`, and which budget would do; `None` if it is.
pub fn too_long(run: Duration, budget: Duration) -> Option<String> {
    // The least rounds of one change, and a quarter more for the labs of all these runs.
    let enough = (run * 2 * LEAST_ROUNDS).mul_f64(1.25).as_secs_f64();
    (run > budget / LONGEST).then(|| {
        let enough = (enough / 10.0).ceil() * 10.0;
        format!("one run takes {}: give --budget {enough:.0}s", measured_time(run))
    })
}

/// How many changes can have their least rounds within `left`, if a run takes `run`; at least one.
pub fn fitting(left: Duration, run: Duration) -> usize {
    let rounds = run * LEAST_ROUNDS;
    let runs = left.as_secs_f64() / rounds.as_secs_f64().max(f64::MIN_POSITIVE);
    (runs.min(f64::from(u32::MAX)) as usize).saturating_sub(1).max(1)
}

/// The results of the runs so far. Reported is the kind of figure in which most changes are confirmed, or worse.
pub fn experiment(runs: &[ClientRun], subject: u32, knobs: &[(u32, Knob)]) -> Experiment {
    let tried = knobs.len() as u32;
    let of = |metric: Metric| {
        let trial = |(cell, knob): &(u32, Knob)| {
            let compared = Compared::of(runs, [subject, *cell]);
            (compared.rounds() > 0).then(|| compared.trial(*cell, knob, metric, tried))
        };
        knobs.iter().filter_map(trial).collect::<Vec<Trial>>()
    };
    let by_metric = METRICS.map(of);
    let most = |outcome: &Outcome| {
        let with = |trials: &Vec<Trial>| trials.iter().filter(|trial| trial.outcome == *outcome).count();
        let counts = by_metric.each_ref().map(with);
        let most = counts.into_iter().max().filter(|most| *most > 0)?;
        counts.into_iter().position(|one| one == most)
    };
    let place = most(&Outcome::Confirmed).or_else(|| most(&Outcome::Worse)).unwrap_or(0);
    let in_view_of_all = |(n, trial): (usize, &Trial)| {
        let all: Vec<&Outcome> =
            by_metric.iter().filter_map(|trials| Some(&trials.get(n)?.outcome)).collect();
        Trial { outcome: joined(&trial.outcome, &all), ..trial.clone() }
    };
    let trials: Vec<Trial> = by_metric[place].iter().enumerate().map(in_view_of_all).collect();
    Experiment {
        verdict: None,
        direct: None,
        hop: None,
        metric: METRICS[place],
        untried: knobs.len() - trials.len(),
        trials,
    }
}

/// The outcome of a change by one kind of figure, in view of its outcomes by `all` of them: without effect is only what
/// has none on any, and what makes one better and another worse is neither.
fn joined(own: &Outcome, all: &[&Outcome]) -> Outcome {
    let has = |outcome: &Outcome| all.contains(&outcome);
    match own {
        Outcome::Refuted if all.iter().any(|outcome| **outcome != Outcome::Refuted) => Outcome::Undecided,
        Outcome::Confirmed if has(&Outcome::Worse) => Outcome::Undecided,
        Outcome::Worse if has(&Outcome::Confirmed) => Outcome::Undecided,
        own => own.clone(),
    }
}

/// The runs of a change, and the unchanged ones beside them.
struct Compared<'a> {
    /// All sound runs without the change: they show the variation.
    unchanged: Vec<&'a ClientRun>,
    /// Without it and with it, in the same rounds.
    pairs: Vec<[&'a ClientRun; 2]>,
}

impl<'a> Compared<'a> {
    /// Of the unchanged cell and the changed one.
    fn of(runs: &'a [ClientRun], [subject, changed]: [u32; 2]) -> Self {
        let of = |cell: u32| runs.iter().filter(move |run| run.cell == cell);
        let pair = |run: &'a ClientRun| Some([of(subject).find(|other| other.round == run.round)?, run]);
        Self {
            unchanged: of(subject).filter(|run| run.doubts.is_empty()).collect(),
            pairs: of(changed).filter_map(pair).collect(),
        }
    }

    fn rounds(&self) -> u32 {
        self.pairs.len() as u32
    }

    /// The rounds in which neither run is doubtful.
    fn sound(&self) -> impl Iterator<Item = &[&'a ClientRun; 2]> {
        self.pairs.iter().filter(|pair| pair.iter().all(|run| run.doubts.is_empty()))
    }

    fn trial(&self, cell: u32, knob: &Knob, metric: Metric, tried: u32) -> Trial {
        let rounds = self.sound().count() as u32;
        let effect = self.effect(metric, tried * looks(rounds) * METRICS.len() as u32);
        let outcome = match (self.void(), effect) {
            (Some(why), _) => Outcome::Void(why),
            (None, Some(effect)) if rounds >= LEAST_ROUNDS => effect.outcome(),
            _ => Outcome::Undecided,
        };
        Trial { knob: knob.clone(), cell, rounds, effect, outcome, closes: None }
    }

    /// Why these runs show nothing, if so.
    fn void(&self) -> Option<String> {
        let sound = self.sound().count();
        if sound * 2 < self.pairs.len() {
            return self.pairs.iter().flatten().find_map(|run| run.doubts.first().cloned());
        }
        let of = |end: usize| self.sound().map(move |pair| pair[end]);
        let [failed, failed_with] = [0, 1].map(|end| of(end).filter(|run| run.has_failed).count());
        if failed_with > failed {
            return Some(format!("the command failed in {failed_with} of {sound} runs with the change"));
        }
        if of(1).any(|run| run.requests == 0) {
            return Some("no request came in a run with the change".to_owned());
        }
        let [before, after] = [0, 1].map(|end| of(end).map(|run| run.failures).sum::<u64>());
        let requests: u64 = of(1).map(|run| run.requests).sum();
        (after > before && after as f64 > requests as f64 * FAILED)
            .then(|| format!("{} of {} failed", count(after), plural(requests, "request")))
    }

    /// The effect on the geometric mean, with an interval that is corrected for this many looks; `None` if nothing is
    /// known of the variation.
    fn effect(&self, metric: Metric, looks: u32) -> Option<Effect> {
        let figures =
            |end: usize| self.sound().filter_map(|pair| pair[end].figure(metric)).collect::<Vec<f64>>();
        let (beside, changed) = (figures(0), figures(1));
        let (before, after) = (mean(&beside)?, mean(&changed)?);
        let unchanged: Vec<f64> = self.unchanged.iter().filter_map(|run| run.figure(metric)).collect();
        let freedom = (unchanged.len() + changed.len()).saturating_sub(2);
        if freedom == 0 {
            return None;
        }
        let compared = [beside.len(), changed.len()];
        let spread = spread_of_some([unchanged, changed], compared);
        let ratio = before / after;
        let effect = Effect { ratio, low: ratio, high: ratio, before, after };
        Some(effect.no_narrower(spread * correction::of_looks_of_few(looks, freedom)))
    }
}

/// The geometric mean; `None` of nothing.
fn mean(figures: &[f64]) -> Option<f64> {
    let logs: f64 = figures.iter().map(|figure| figure.ln()).sum();
    (!figures.is_empty()).then(|| (logs / figures.len() as f64).exp())
}
