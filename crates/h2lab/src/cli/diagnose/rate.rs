//! The rate at which a live server is asked: the highest of a short ramp that it carries.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use h2lab_analysis::diagnose;
use h2lab_analysis::diagnose::Finding;
use h2lab_analysis::stats::{CellState, CellSummary, Failed, Overload, RampStep, RampSteps};
use h2lab_base::counts::plural;
use h2lab_base::units::measured_time;
use h2lab_model::record::RunRecord;
use h2lab_model::scenario::{Axis, Cell, Ramp, Scenario};
use h2lab_wire::h1::reason_phrase;

use super::plan::is_at;
use super::progress::Progress;
use crate::cli::cells::new_run;
use crate::cli::signals;
use crate::run::execute::{Live, PlanContext, execute_rounds};
use crate::run::messages::with_causes;
use crate::run::messages::{Failure, FailureKind};
use crate::run::store;

/// The ramp for any service, without its owner's consent.
const GENTLE: [&str; 1] = ["10..50/5s/5"];
/// The ramps for one's own service, one after the other until it no longer carries the rate.
const OWN: [&str; 3] = ["50..500/4s/4", "800..2000/4s/4", "3000..6000/4s/4"];
/// Maximum of HTTP/1.1 connections to one's own service: with the 16 for other services, they and not the server would
/// be the limit.
pub(super) const OWN_CONNECTIONS: u32 = 100;
/// Experiments need a rate that is carried in each of their repetitions, also when the server is slower.
const EXPERIMENT_RATE_SHARE: f64 = 0.7;

/// A step of a ramp takes a second, and shows nothing about responses that take longer than this.
const LONG: Duration = Duration::from_millis(500);
/// The highest rate at which a server is asked without a ramp.
const MOST: f64 = 50.0;

/// The rate for responses that take too long for a ramp: what this many connections carry, with one response after the
/// other on each.
pub(super) fn of_long(takes: Duration, connections: u32) -> Option<f64> {
    let carried = f64::from(connections) / takes.as_secs_f64() * EXPERIMENT_RATE_SHARE;
    (takes >= LONG).then(|| ((carried * 10.0).floor() / 10.0).clamp(0.1, MOST))
}

/// The same in a sentence.
pub(super) fn words_of_long(rate: f64, takes: Duration, connections: u32) -> String {
    let takes = measured_time(takes);
    format!(
        "rate: {rate}/s, since a response takes {takes} on one of at most {connections} connections (-q sets another rate)"
    )
}

/// What a ramp found.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Found {
    /// Requests per second for the experiments.
    pub rate: f64,
    /// The rate at which the server was overloaded; `None` if no rate of the ramp overloaded it.
    pub overloaded_at: Option<f64>,
    /// The highest rate below that one that the server carried; `None` if it carried none of the ramp.
    carried: Option<f64>,
    /// Whether no request of the ramp succeeded: then the rate is its lowest one.
    is_lowest: bool,
    /// The status with which the server refused most requests of that ramp, and to how many; `None` if it refused none.
    refused: Option<(u16, u64)>,
    /// That the server limits the rate, where the ramp shows it: what is measured afterwards stays below that limit.
    pub limit: Option<Finding>,
    /// Which share of the ramp's requests failed, and how, if the rate is not the reason; `None` if hardly any did.
    failing: Option<String>,
    /// Why the ramp was no sound measurement; `None` if it was.
    doubt: Option<String>,
    /// The ramps that these values were found from; `None` if the rate was not searched for.
    pub ramps: Option<RunRecord>,
}

impl Found {
    /// A rate that was not searched for by a ramp.
    pub fn at(rate: f64) -> Self {
        Self { rate, ..Self::default() }
    }

    /// What the ramps before the run in `folder` showed; `None` if there were none.
    pub fn in_folder(folder: &Path) -> Option<Self> {
        let ramps = store::read_ramps(folder).unwrap_or_else(|error| {
            let why = with_causes(&error);
            super::super::note(&format_args!("what the ramp of the rate showed is unknown: {why}"));
            None
        });
        found(&ramps?)
    }

    /// The result of the ramp, in a sentence: over HTTP/1.1 or another protocol with at most so many connections.
    pub fn words(&self, scenario: &Scenario) -> String {
        let Self { rate, .. } = self;
        let failing = self.failing.as_ref().map_or(String::new(), |failing| format!("; {failing}"));
        let set = "-q sets another rate";
        let Some(knee) = self.overloaded_at else {
            if self.is_lowest {
                return format!(
                    "rate: {rate:.0}/s, the lowest of a short ramp, in which no request succeeded{failing} ({set})"
                );
            }
            let higher = if *rate > MOST { "" } else { ", --i-own-this-host tries higher ones" };
            return format!(
                "rate: {rate:.0}/s, the highest of a short ramp, since it was carried{failing} ({set}{higher})"
            );
        };
        let most = scenario.matrix.max_connections;
        let why = match self.refusal() {
            Some(refusal) => format!("at {knee:.0}/s {refusal}"),
            None => format!("{knee:.0}/s was too much over at most {most} connections"),
        };
        let lead = match self.carried {
            Some(carried) => {
                let share = EXPERIMENT_RATE_SHARE * 100.0;
                format!("{share:.0} % of {carried:.0}/s, the highest that was carried in a short ramp")
            }
            None => "since no rate of a short ramp was carried".to_owned(),
        };
        format!("rate: {rate:.0}/s, {lead}; {why}{failing} ({set})")
    }

    /// What the report has to say of it: that the server refuses more requests, or that the ramp was no sound measurement.
    pub fn remark(&self) -> Option<String> {
        let (rate, knee) = (self.rate, self.overloaded_at?);
        let why = match (&self.doubt, self.refusal()) {
            (_, Some(refusal)) => format!("in a ramp of the rate, from {knee:.0}/s on, {refusal}"),
            (Some(doubt), None) => {
                format!(
                    "{knee:.0}/s was too much in a ramp of the rate that was no sound measurement ({doubt})"
                )
            }
            (None, None) => return None,
        };
        Some(format!("{why}; what follows is measured at {rate:.0}/s"))
    }

    fn refusal(&self) -> Option<String> {
        let (status, n) = self.refused?;
        let limits = match (&self.limit, status) {
            (Some(limit), _) => format!(": it limits the rate ({})", limit.rule),
            (None, 429 | 503) => ": does it limit the rate?".to_owned(),
            (None, _) => String::new(),
        };
        let reason = reason_phrase(status);
        Some(format!("the server answered {status} {reason} to {}{limits}", plural(n, "request")))
    }
}

/// Finds a rate that the server of `url` carries. Over HTTP/1.1, if it is spoken: the diagnosis must also find rates
/// that HTTP/2 cannot carry. `None` if nothing was answered; breaks if the user stopped it.
pub(super) fn find(
    scenario: &Scenario,
    url: &str,
    live: &Live,
    is_own: bool,
    quiet: bool,
) -> Result<ControlFlow<(), Option<Found>>> {
    let stop = signals::stop_flag()?;
    let scratch = tempfile::tempdir().context("cannot make a folder for the ramp's records")?;
    let texts = if is_own { &OWN[..] } else { &GENTLE[..] };
    let ramps: Vec<Ramp> =
        texts.iter().map(|text| text.parse()).collect::<Result<_, _>>().context("a constant")?;
    let (folder, run) = new_run(scenario.clone(), Some(&scratch.path().join("ramp")), Vec::new())?;
    let mut progress = Progress::new(quiet, ramps.iter().map(|ramp| ramp.over).sum());
    let mut ramps = ramps.into_iter();
    let mut next = |run: &RunRecord| -> Vec<Cell> {
        let is_over = found(run).is_some_and(|found| found.overloaded_at.is_some());
        let ramp = if is_over { None } else { ramps.next() };
        ramp.and_then(|ramp| cell(scenario, url, ramp, run.repetitions.len() as u32)).into_iter().collect()
    };
    let context = PlanContext { live, stop: &stop, own: None };
    let executed = execute_rounds(run, &mut next, folder, &context, &mut progress);
    progress.line.clear();
    let executed = executed?;
    if let Some(failure) = executed.failure {
        return Err(failure);
    }
    let ramps = executed.run;
    if let Some(why) = ended(&ramps) {
        let message = format!("while a rate was searched for: {why}");
        return Err(Failure { kind: FailureKind::Ended, message }.into());
    }
    if ramps.interrupted {
        return Ok(ControlFlow::Break(()));
    }
    Ok(ControlFlow::Continue(found(&ramps).map(|found| Found { ramps: Some(ramps), ..found })))
}

/// Why the server ended during a ramp, if it did: then no rate of the ramp was too high.
fn ended(run: &RunRecord) -> Option<String> {
    run.repetitions.iter().find_map(|repetition| match CellSummary::of(&[repetition]).state {
        CellState::Failed { why, how: Failed::ServerEnded } => Some(why),
        _ => None,
    })
}

/// One repetition with this ramp, over HTTP/1.1 if it is spoken.
fn cell(scenario: &Scenario, url: &str, ramp: Ramp, index: u32) -> Option<Cell> {
    let mut scenario = scenario.clone();
    scenario.repetitions = 1;
    scenario.work.ramp = Some(ramp);
    scenario.work.measure = Axis::one(ramp.over);
    scenario.work.warmup = Duration::ZERO;
    let cell = scenario.plan().into_iter().find(|cell| is_at(cell, url))?;
    Some(Cell { index, ..cell })
}

/// What the ramps so far show.
fn found(run: &RunRecord) -> Option<Found> {
    let mut carried: Option<Found> = None;
    for repetition in &run.repetitions {
        let summary = CellSummary::of(&[repetition]);
        let steps = RampSteps::of(&summary)?;
        let lowest = steps.steps.first()?.offered_rps;
        // No success even at the lowest rate: a rate limit would let some requests through.
        if matches!(summary.state, CellState::Failed { how: Failed::NoSuccess, .. }) {
            let failing = h2lab_report::failing(&summary);
            return Some(Found { failing, is_lowest: true, ..Found::at(lowest.round()) });
        }
        if let Some(knee) = steps.knee() {
            let before = steps.last_carried().map(|step| step.offered_rps);
            let carried = before.or(carried.map(|it| it.rate));
            let rate = carried.unwrap_or(lowest / 2.0) * EXPERIMENT_RATE_SHARE;
            return Some(Found {
                rate: rate.round().max(1.0),
                overloaded_at: Some(knee.offered_rps),
                carried,
                is_lowest: false,
                refused: refused(&summary),
                failing: failing(&summary, knee),
                limit: limit(run),
                doubt: match &summary.state {
                    CellState::Invalid { reasons } => reasons.first().cloned(),
                    _ => None,
                },
                ramps: None,
            });
        }
        let last = steps.last_carried()?;
        carried = Some(Found { failing: failing(&summary, last), ..Found::at(last.offered_rps.round()) });
    }
    carried
}

/// The cause of a rate limit (`h2lab explain LIMIT105`).
const RATE_LIMIT: &str = "LIMIT105";

/// What the ramps show of a rate limit.
fn limit(run: &RunRecord) -> Option<Finding> {
    let found = diagnose::run(&run.repetitions).into_iter().find(|finding| finding.rule == RATE_LIMIT)?;
    Some(Finding {
        label: format!("a ramp of the rate over {}", found.label),
        symptom: format!("in a ramp of the rate, {}", found.symptom),
        ..found
    })
}

/// The status with which the server refused a tenth of the requests or more, and to how many.
fn refused(summary: &CellSummary) -> Option<(u16, u64)> {
    let (status, n) = summary.statuses.range(400..).max_by_key(|(_, n)| **n)?;
    (*n * 10 >= summary.requests.sent).then_some((*status, *n))
}

/// Which share of the requests of a ramp failed, and how, if more than one in a hundred failed other than by a refusal
/// of the load.
fn failing(summary: &CellSummary, step: &RampStep) -> Option<String> {
    let n: u64 = summary.series.iter().flat_map(|series| &series.failed).map(|(_, n)| n).sum();
    let said = h2lab_report::failing(summary).filter(|_| n * 100 >= summary.requests.sent)?;
    Some(match step.why {
        Some(Overload::Failed(_)) => format!("{said}, more of them at higher rates"),
        _ => said,
    })
}

#[cfg(test)]
mod tests {
    use h2lab_base::units::Time;
    use h2lab_model::record::testing::{Model, cell as some_cell, one_repetition, run as run_of};
    use h2lab_model::record::{Outcome, Sample};
    use h2lab_model::workload::{Arrival, Protocol};

    use super::*;
    use crate::run::store::RunFolder;

    /// The ramp for services of others, on a server that serves `limit` requests in each second and answers 429 to the
    /// rest.
    fn limited(limit: u32) -> RunRecord {
        let mut cell = some_cell(0, 0, Protocol::H1, 32, 0.0);
        let measured = Duration::from_secs(5);
        cell.work.arrival = Arrival::Ramp { from: 10.0, to: 50.0, over: measured, steps: 5 };
        (cell.work.phases.warmup, cell.work.phases.measure) = (Duration::ZERO, measured);
        let mut record = one_repetition(&cell, 0, &Model::CLEAN);
        let (mut second, mut served) = (Time::ZERO, 0);
        let answer = |sample: Sample| {
            if sample.scheduled_at.since(second) >= Duration::from_secs(1) {
                (second, served) = (sample.scheduled_at, 0);
            }
            served += 1;
            let is_served = served <= limit;
            let (outcome, status) =
                if is_served { (Outcome::Succeeded, 200) } else { (Outcome::Status, 429) };
            Sample { outcome, status, ..sample }
        };
        record.samples = record.samples.iter().map(answer).collect();
        run_of(vec![record])
    }

    #[test]
    fn what_ramps_showed_is_found_again_in_the_run_folder() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        let folder = RunFolder::create(&path, &run_of(Vec::new())).unwrap();
        assert_eq!(Found::in_folder(&path), None, "as in folders of before");
        let ramps = limited(15);
        let known = found(&ramps).unwrap();
        assert_eq!(known.limit.as_ref().map(|limit| &limit.rule[..]), Some(RATE_LIMIT), "{known:?}");
        assert!(
            known.remark().unwrap().contains("the server answered 429 Too Many Requests to"),
            "{known:?}"
        );
        folder.keep_ramps(&ramps).unwrap();
        assert_eq!(Found::in_folder(&path), Some(known));
        drop(folder);
        store::discard(&path).unwrap();
        assert!(!path.exists(), "a run of which nothing is kept leaves no ramps");
    }

    #[test]
    fn a_limit_far_below_the_ramp_is_one_of_the_rate_and_what_lets_nothing_through_is_none() {
        let low = found(&limited(3)).unwrap();
        assert_eq!((low.refused, low.overloaded_at), (Some((429, 135)), Some(10.0)), "{low:?}");
        assert!(low.remark().unwrap().contains("it limits the rate"), "{low:?}");
        let none = found(&limited(0)).unwrap();
        assert_eq!((none.rate, none.overloaded_at, &none.limit), (10.0, None, &None), "{none:?}");
        assert!(none.failing.as_ref().unwrap().contains("status 429"), "{none:?}");
    }

    #[test]
    fn the_ramps_parse_and_rise_and_others_services_get_50_at_most() {
        let parsed =
            |texts: &[&str]| texts.iter().map(|text| text.parse::<Ramp>().unwrap()).collect::<Vec<_>>();
        assert!(parsed(&GENTLE).iter().all(|ramp| ramp.from < ramp.to && ramp.to <= 50.0));
        let own = parsed(&OWN);
        assert!(own.windows(2).all(|pair| pair[0].to < pair[1].from), "{own:?}");
    }

    #[test]
    fn long_responses_are_asked_at_a_rate_that_the_connections_carry() {
        let of = |millis| of_long(Duration::from_millis(millis), 16);
        assert_eq!([of(499), of(500), of(3_850), of(600_000)], [None, Some(22.4), Some(2.9), Some(0.1)]);
        assert_eq!(of_long(LONG, 100), Some(MOST));
        assert!(
            words_of_long(2.9, Duration::from_millis(3_850), 16)
                .starts_with("rate: 2.9/s, since a response takes 3.85 s")
        );
    }

    #[test]
    fn a_load_that_is_too_much_is_told_with_its_connections() {
        let mut scenario = Scenario::default();
        scenario.matrix.max_connections = 16;
        let found = |overloaded_at| Found { rate: 28.0, overloaded_at, ..Found::default() };
        assert_eq!(
            Found { carried: Some(40.0), ..found(Some(50.0)) }.words(&scenario),
            "rate: 28/s, 70 % of 40/s, the highest that was carried in a short ramp; 50/s was too much over at most 16 \
             connections (-q sets another rate)"
        );
        assert_eq!(
            found(Some(10.0)).words(&scenario),
            "rate: 28/s, since no rate of a short ramp was carried; 10/s was too much over at most 16 connections \
             (-q sets another rate)"
        );
        assert_eq!([found(Some(50.0)).remark(), found(None).remark()], [None, None]);
        let failing = Some("10.0 % of 150 requests failed (the connection was closed)".to_owned());
        let words = Found { failing, ..found(None) }.words(&scenario);
        assert!(
            words.contains("carried; 10.0 % of 150 requests failed (the connection was closed) (-q sets"),
            "{words}"
        );
        let late = Found { doubt: Some("the generator was late".to_owned()), ..found(Some(50.0)) };
        assert!(
            late.remark().unwrap().contains("(the generator was late); what follows is measured at 28/s")
        );
    }

    #[test]
    fn a_rate_at_an_end_of_the_ramp_is_told_with_why_it_ended_there() {
        let words = |found: Found| found.words(&Scenario::default());
        let highest = "/s, the highest of a short ramp, since it was carried (-q sets another rate";
        let higher = ", --i-own-this-host tries higher ones)";
        assert_eq!(words(Found::at(MOST)), format!("rate: 50{highest}{higher}"));
        assert_eq!(words(Found::at(6_000.0)), format!("rate: 6000{highest})"));
        let none = words(found(&limited(0)).unwrap());
        assert!(none.starts_with("rate: 10/s, the lowest of a short ramp, in which no request succeeded; "));
        assert_eq!(found(&limited(3)).unwrap().carried, None);
    }

    #[test]
    fn a_server_that_refuses_more_requests_is_told_with_its_status() {
        let found =
            Found { rate: 35.0, overloaded_at: Some(200.0), refused: Some((503, 853)), ..Found::default() };
        let words = "at 200/s the server answered 503 Service Unavailable to 853 requests: does it limit the rate? (-q";
        assert!(found.words(&Scenario::default()).contains(words), "{found:?}");
        let remark = found.remark().unwrap();
        assert!(
            remark.starts_with("in a ramp of the rate, from 200/s on, the server answered 503"),
            "{remark}"
        );
        let limit = Finding { rule: RATE_LIMIT.to_owned(), ..Finding::default() };
        let known = Found { limit: Some(limit), ..found }.remark().unwrap();
        assert!(known.contains("to 853 requests: it limits the rate (LIMIT105); what follows"), "{known}");
        assert!(diagnose::cause(RATE_LIMIT).is_some());
    }
}
