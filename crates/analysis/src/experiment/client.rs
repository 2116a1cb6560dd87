//! The experiment with a user's client: its command is run again, unchanged and with one setting of our end changed.
//!
//! A run gives one figure of each kind: how long the command took, or its requests per second if it runs for a fixed time, and two
//! quantiles of its requests' response times. The
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
use crate::stats::{Tail, fail_more, spread_of_some};

/// Rounds of a change before anything is concluded: fewer say little about the variation between runs.
pub const LEAST_ROUNDS: u32 = 3;
/// The kinds of figures that are compared, the first where nothing differs.
const METRICS: u32 = 3;
/// A command whose runs have requests that differ by this factor runs for a fixed time, not for a number of requests.
const OTHER_WORK: f64 = 1.1;
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

    /// Whether it did other work than was asked for: the command failed, or made no request, or too many of its requests failed.
    fn is_bad(&self) -> bool {
        self.has_failed || self.requests == 0 || self.failures as f64 > self.requests as f64 * FAILED
    }

    /// Its figure in seconds, if it has one above 0.
    fn figure(&self, metric: Metric) -> Option<f64> {
        let time = match metric {
            Metric::Served => {
                let rate = self.responses.len() as f64 / self.took.as_secs_f64();
                return (rate.is_finite() && rate > 0.0).then_some(rate);
            }
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
    let streams = named.into_iter().map(Knob::Server).filter(is_of_streams);
    let place = |knob: &Knob| findings.iter().position(|finding| finding.is_removed_by(knob));
    let all = streams.chain(Knob::of_our_end(ours));
    let mut placed: Vec<(usize, Knob)> = all.filter_map(|knob| Some((place(&knob)?, knob))).collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, knob)| knob).collect()
}

fn is_of_streams(knob: &Knob) -> bool {
    matches!(knob, Knob::Server(setting) if setting.change.knob == settings::Knob::MaxConcurrentStreams)
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
    let metrics = metrics(runs);
    let of = |metric: Metric| {
        let trial = |(cell, knob): &(u32, Knob)| {
            // A response time begins when the request is sent: with more streams that is sooner, and what waited or was refused
            // before is in none.
            let metric = if is_of_streams(knob) { metrics[0] } else { metric };
            let compared = Compared::of(runs, [subject, *cell]);
            (compared.rounds() > 0).then(|| compared.trial(*cell, knob, metric, tried))
        };
        knobs.iter().filter_map(trial).collect::<Vec<Trial>>()
    };
    let by_metric = metrics.map(of);
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
        hops: Vec::new(),
        metric: metrics[place],
        untried: knobs.len() - trials.len(),
        trials,
    }
}

/// What is compared: of a command that runs for a fixed time, what it does in a second.
fn metrics(runs: &[ClientRun]) -> [Metric; METRICS as usize] {
    let sound = runs.iter().filter(|run| run.doubts.is_empty() && !run.is_bad());
    let requests: Vec<usize> = sound.map(|run| run.responses.len()).collect();
    let [least, most] = [requests.iter().min(), requests.iter().max()].map(|n| n.map_or(1.0, |n| *n as f64));
    let work = if most > least * OTHER_WORK { Metric::Served } else { Metric::Run };
    [work, Metric::Response(Tail::P95), Metric::Median]
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

/// The runs of a change, and the unchanged ones beside them. Pairs are of the same round, without the change and with it.
struct Compared<'a> {
    /// The unchanged runs that show the variation.
    unchanged: Vec<&'a ClientRun>,
    /// All pairs.
    pairs: Vec<[&'a ClientRun; 2]>,
    /// Those of which neither run is doubtful.
    sound: Vec<[&'a ClientRun; 2]>,
    /// Those of them whose figures are compared.
    judged: Vec<[&'a ClientRun; 2]>,
}

impl<'a> Compared<'a> {
    /// Of the unchanged cell and the changed one.
    fn of(runs: &'a [ClientRun], [subject, changed]: [u32; 2]) -> Self {
        let of = |cell: u32| runs.iter().filter(move |run| run.cell == cell);
        let pair = |run: &'a ClientRun| Some([of(subject).find(|other| other.round == run.round)?, run]);
        let pairs: Vec<[&ClientRun; 2]> = of(changed).filter_map(pair).collect();
        let mut sound = pairs.clone();
        sound.retain(|pair| pair.iter().all(|run| run.doubts.is_empty()));
        let mut good = sound.clone();
        good.retain(|pair| !pair.iter().any(|run| run.is_bad()));
        // A client that always fails without the change is compared as it is.
        let [bad, bad_with] = bad_runs(&sound);
        let is_always_bad = good.is_empty() && bad_with <= bad;
        let varies = |run: &&ClientRun| run.doubts.is_empty() && (is_always_bad || !run.is_bad());
        Self {
            unchanged: of(subject).filter(varies).collect(),
            judged: if is_always_bad { sound.clone() } else { good },
            pairs,
            sound,
        }
    }

    fn rounds(&self) -> u32 {
        self.pairs.len() as u32
    }

    fn trial(&self, cell: u32, knob: &Knob, metric: Metric, tried: u32) -> Trial {
        let rounds = self.sound.len() as u32;
        let among = tried * looks(rounds);
        let effect = self.effect(metric, among * METRICS);
        let outcome = match (self.void(), effect) {
            (Some(why), _) => Outcome::Void(why),
            (None, Some(effect)) if self.judged.len() as u32 >= LEAST_ROUNDS => effect.outcome(),
            _ => Outcome::Undecided,
        };
        Trial { knob: knob.clone(), cell, rounds, effect, outcome, closes: None }
    }

    /// Why these runs show nothing, if so. A single bad run is no reason: it may be bad without the change as well.
    fn void(&self) -> Option<String> {
        let sound = self.sound.len();
        if sound * 2 < self.pairs.len() {
            return self.pairs.iter().flatten().find_map(|run| run.doubts.first().cloned());
        }
        let bad = bad_runs(&self.sound);
        let [without, with] = bad.map(|bad| [bad as u64, sound as u64]);
        if fail_more(without, with) {
            return Some(self.why_bad());
        }
        // Of a client that always fails some requests, more may fail.
        let [before, after] = [0, 1].map(|end| failures(&self.judged, end));
        let is_much = after[0] as f64 > after[1] as f64 * FAILED;
        let is_more = is_much && fail_more(before, after);
        (is_more && self.judged.len() as u32 >= LEAST_ROUNDS).then(|| failed_of(after))
    }

    /// Why the runs with the change are bad, in a sentence.
    fn why_bad(&self) -> String {
        let (sound, with) = (self.sound.len(), || self.sound.iter().map(|pair| pair[1]));
        match with().filter(|run| run.has_failed).count() {
            0 if with().any(|run| run.requests == 0) => "no request came in a run with the change".to_owned(),
            0 => failed_of(failures(&self.sound, 1)),
            failed => format!("the command failed in {failed} of {sound} runs with the change"),
        }
    }

    /// The effect on the geometric mean, with an interval that is corrected for this many looks; `None` if nothing is
    /// known of the variation.
    fn effect(&self, metric: Metric, looks: u32) -> Option<Effect> {
        let figures =
            |end: usize| self.judged.iter().filter_map(|pair| pair[end].figure(metric)).collect::<Vec<f64>>();
        let (beside, changed) = (figures(0), figures(1));
        let (before, after) = (mean(&beside)?, mean(&changed)?);
        let unchanged: Vec<f64> = self.unchanged.iter().filter_map(|run| run.figure(metric)).collect();
        let freedom = (unchanged.len() + changed.len()).saturating_sub(2);
        if freedom == 0 {
            return None;
        }
        let compared = [beside.len(), changed.len()];
        let spread = spread_of_some([unchanged, changed], compared, looks);
        let ratio = if metric == Metric::Served { after / before } else { before / after };
        let effect = Effect { ratio, low: ratio, high: ratio, before, after };
        Some(effect.no_narrower(spread))
    }
}

/// How many runs are bad, without the change and with it.
fn bad_runs(pairs: &[[&ClientRun; 2]]) -> [usize; 2] {
    [0, 1].map(|end| pairs.iter().filter(|pair| pair[end].is_bad()).count())
}

/// The requests that failed at this end of the pairs, and all of them.
fn failures(pairs: &[[&ClientRun; 2]], end: usize) -> [u64; 2] {
    let runs = || pairs.iter().map(|pair| pair[end]);
    [runs().map(|run| run.failures).sum(), runs().map(|run| run.requests).sum()]
}

fn failed_of([failed, all]: [u64; 2]) -> String {
    format!("{} of {} failed", count(failed), plural(all, "request"))
}

/// The geometric mean; `None` of nothing.
fn mean(figures: &[f64]) -> Option<f64> {
    let logs: f64 = figures.iter().map(|figure| figure.ln()).sum();
    (!figures.is_empty()).then(|| (logs / figures.len() as f64).exp())
}
