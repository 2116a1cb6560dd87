//! The shares of a load that several agents made: which of them are whole, what was really offered, how well they began
//! together.
//!
//! A load that lacks a share, or whose shares are no one arrival process, is not the load that was asked for. Its
//! figures are kept and shown, and its cell is invalid.

use std::time::Duration;

use h2lab_base::counts::{count, plural};
use h2lab_base::units::{measured_time, nanos};
use h2lab_model::record::CellRecord;
use h2lab_model::record::agents::{ShareLateness, ShareSummary};
use h2lab_model::workload::{Arrival, Phases, due_within};

use super::tallied;

/// The number of requests of a Poisson process is chance: by so many standard deviations it may differ from its mean.
const DEVIATIONS: f64 = 5.0;

/// A share may begin so late, besides the error of its clock.
const SKEW: Duration = Duration::from_millis(1);

/// What became of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum ShareState {
    /// Its figures are in the sum.
    Whole,
    /// The same, but its first request was sent more than 1 ms and its clock's error late.
    Late,
    /// Its figures are missing.
    Lost,
}

impl ShareState {
    /// Of this share.
    pub fn of(share: &ShareSummary) -> Self {
        match share.lost {
            Some(_) => Self::Lost,
            None if is_late(share, share.start_late_ns) => Self::Late,
            None => Self::Whole,
        }
    }

    /// The name in JSON and reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Whether a share began so late.
fn is_late(share: &ShareSummary, late_ns: Option<u64>) -> bool {
    late_ns.is_some_and(|late| Duration::from_nanos(late) > allowed(share))
}

/// How late a share may begin.
fn allowed(share: &ShareSummary) -> Duration {
    SKEW + Duration::from_nanos(share.clock.map_or(0, |clock| clock.uncertainty_ns))
}

/// All shares of a load together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShareTotals {
    /// Shares into which the load was divided.
    pub all: u64,
    /// Those of [`ShareState::Late`].
    pub late: u64,
    /// Those of [`ShareState::Lost`].
    pub lost: u64,
    /// Between how late the first and the last share began, on the driver's clock; `None` if fewer than two are known
    /// to have begun.
    pub skew: Option<Duration>,
    /// The largest error of an agent's clock; `None` if no clock was compared.
    pub clock_error: Option<Duration>,
    /// Requests that were due in the measured time at the agents whose shares are in the sum.
    pub offered: u64,
    /// How many the whole load would have had in that time; `None` in closed loop, which offers what is answered. Of a
    /// Poisson process that is a mean: where no share is missing and only chance is between them, it is what was offered.
    pub asked: Option<u64>,
}

impl ShareTotals {
    /// Of a repetition; `None` if no agents made it.
    pub fn of(repetition: &CellRecord) -> Option<Self> {
        let shares = &repetition.agents;
        let in_state = |state| shares.iter().map(ShareState::of).filter(|its| *its == state).count() as u64;
        let starts = || shares.iter().filter_map(|share| share.start_late_ns);
        let skew = starts().max().zip(starts().min()).filter(|_| starts().count() > 1);
        let clocks = shares.iter().filter_map(|share| share.clock);
        let lost = in_state(ShareState::Lost);
        let there = shares.iter().filter(|share| share.lost.is_none());
        let offered: u64 = there.filter_map(|share| share.due).sum();
        let work = &repetition.cell.work;
        let asked = due_in_measured_time(&work.phases, work.arrival).map(|mean| {
            let is_chance = (offered as f64 - mean).abs() <= DEVIATIONS * mean.sqrt();
            let is_poisson = matches!(work.arrival, Arrival::Poisson { .. });
            if is_poisson && is_chance && lost == 0 { offered } else { mean.round() as u64 }
        });
        Some(Self {
            all: u64::from(shares.first()?.of),
            late: in_state(ShareState::Late),
            lost,
            skew: skew.map(|(last, first)| Duration::from_nanos(last - first)),
            clock_error: clocks.map(|clock| Duration::from_nanos(clock.uncertainty_ns)).max(),
            offered,
            asked,
        })
    }
}

/// How many requests of a schedule are due in the measured time; `None` in closed loop.
pub(super) fn due_in_measured_time(phases: &Phases, arrival: Arrival) -> Option<f64> {
    Some(due_within(arrival, phases.warmup + phases.measure)? - due_within(arrival, phases.warmup)?)
}

/// The shares of a load that are missing.
#[derive(Debug, Clone, PartialEq)]
pub struct LostShares {
    /// The agents that had them.
    pub agents: Vec<String>,
    /// Requests per second of the measured time that were due at all agents together, those of lost shares included; `None` in
    /// closed loop.
    pub asked_rps: Option<f64>,
    /// Requests per second that were due at each of `agents`; `None` in closed loop.
    pub each_rps: Option<f64>,
}

impl LostShares {
    /// Of the repetitions of a cell; `None` if no share is missing.
    pub(super) fn of(repetitions: &[&CellRecord]) -> Option<Self> {
        let is_lost = |share: &&ShareSummary| share.lost.is_some();
        let repetition =
            repetitions.iter().find(|repetition| repetition.agents.iter().any(|share| is_lost(&share)))?;
        let ShareTotals { all, asked, .. } = ShareTotals::of(repetition)?;
        let seconds = repetition.cell.work.phases.measure.as_secs_f64().max(f64::MIN_POSITIVE);
        let asked_rps = asked.map(|asked| asked as f64 / seconds);
        Some(Self {
            agents: repetition.agents.iter().filter(is_lost).map(|share| share.agent.clone()).collect(),
            asked_rps,
            each_rps: asked_rps.map(|rps| rps / all.max(1) as f64),
        })
    }
}

/// How late the measured requests of a share were sent, from its own record.
pub fn share_lateness(repetition: &CellRecord) -> ShareLateness {
    let late = tallied::LATENESS.of(&[repetition]);
    let at = |share| nanos(late.quantile(share));
    ShareLateness { p50_ns: at(0.5), p99_ns: at(0.99), max_ns: at(1.0) }
}

/// How many requests of a repetition were due in the measured time.
pub fn measured_requests_due(repetition: &CellRecord) -> u64 {
    tallied::Tallies::of(&[repetition]).measured().map(|tally| tally.counts.requests).sum()
}

/// How many requests of a repetition were due, warm-up included.
pub fn requests_due(repetition: &CellRecord) -> u64 {
    match repetition.tallies.as_slice() {
        [] => repetition.samples.len() as u64,
        tallies => tallies.iter().map(|tally| tally.counts.requests).sum(),
    }
}

/// Why a load of several agents is not the one that was asked for, in sentences; empty if it is.
pub(super) fn reasons(repetition: &CellRecord) -> Vec<String> {
    let Some(totals) = ShareTotals::of(repetition) else { return Vec::new() };
    let mut reasons: Vec<String> = missing(repetition, &totals).into_iter().collect();
    if is_open(repetition) {
        reasons.extend(shifted(repetition));
    }
    for share in &repetition.agents {
        reasons.extend(share.doubts.iter().map(|doubt| format!("{}: {doubt}", share.agent)));
    }
    reasons
}

/// Doubts about a load of several agents that do not make it invalid: one request that is sent late, and a closed loop
/// that begins late, which has no schedule. Where the state says something else of the cell, all that [`reasons`] has.
pub(super) fn warnings(repetitions: &[&CellRecord], is_invalid: bool) -> Vec<String> {
    let of = |repetition: &&CellRecord| {
        let others = if is_invalid { Vec::new() } else { reasons(repetition) };
        let shifted = if is_open(repetition) { Vec::new() } else { shifted(repetition) };
        [others, shifted, late_starts(repetition)].concat()
    };
    repetitions.iter().flat_map(of).collect()
}

fn is_open(repetition: &CellRecord) -> bool {
    !matches!(repetition.cell.work.arrival, Arrival::Closed { .. })
}

/// That shares are missing, which ones and why, and what was offered without them.
fn missing(repetition: &CellRecord, totals: &ShareTotals) -> Option<String> {
    let of_share = |share: &ShareSummary| Some(format!("{}: {}", share.agent, share.lost.as_ref()?.why));
    let lost: Vec<String> = repetition.agents.iter().filter_map(of_share).collect();
    if lost.is_empty() {
        return None;
    }
    let requests = match totals.asked {
        Some(asked) => format!("{} of {} were offered", count(totals.offered), plural(asked, "request")),
        None => format!("{} were offered by the others", plural(totals.offered, "request")),
    };
    let which = if totals.lost == 1 { "is" } else { "are" };
    let all = plural(totals.all, "share");
    Some(format!("{} of {all} {which} missing, {requests} ({})", totals.lost, lost.join("; ")))
}

/// Whose schedule began late: in an open loop its requests are not between those of the others where they should be.
fn shifted(repetition: &CellRecord) -> Vec<String> {
    let shifted = repetition.agents.iter().filter(|share| is_late(share, share.schedule_late_ns));
    shifted.map(|share| said(share, "began", share.schedule_late_ns, "after the common instant")).collect()
}

/// Who sent the first request late although its schedule began in time.
fn late_starts(repetition: &CellRecord) -> Vec<String> {
    let is_it = |share: &&ShareSummary| {
        ShareState::of(share) == ShareState::Late && !is_late(share, share.schedule_late_ns)
    };
    let late = repetition.agents.iter().filter(is_it);
    late.map(|share| said(share, "sent its first request", share.start_late_ns, "late")).collect()
}

fn said(share: &ShareSummary, did: &str, late_ns: Option<u64>, than: &str) -> String {
    let late = measured_time(Duration::from_nanos(late_ns.unwrap_or_default()));
    format!("{} {did} {late} {than}, {} is allowed", share.agent, measured_time(allowed(share)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{CellState, Ending, analyse};
    use h2lab_model::record::agents::{LostShare, ShareClock};
    use h2lab_model::record::testing::{Model, cell, one_repetition, run};
    use h2lab_model::workload::Protocol;

    /// An open loop of 1,000 requests/s by two agents that began on time: 0.5 s of warm-up, 3 s are measured.
    fn load() -> CellRecord {
        let mut record = one_repetition(&cell(0, 0, Protocol::H1, 4, 0.0), 0, &Model::CLEAN);
        let share = |number| ShareSummary {
            clock: Some(ShareClock { offset_ns: -9, uncertainty_ns: 80_000 }),
            due: Some(1_500),
            start_late_ns: Some(u64::from(number) * 1_000),
            ..ShareSummary::new(&format!("kek-{number}"), number, 2)
        };
        record.agents = vec![share(0), share(1)];
        record
    }

    fn lost(mut record: CellRecord) -> CellRecord {
        record.agents[1].lost = Some(LostShare { why: "it was silent for 60s".to_owned(), progress: None });
        record
    }

    fn closed(mut record: CellRecord) -> CellRecord {
        record.cell.work.arrival = Arrival::Closed { concurrency: 4 };
        record
    }

    /// The reasons of an invalid cell, and its warnings.
    fn judged(record: CellRecord) -> (Vec<String>, Vec<String>) {
        let summary = analyse(&run(vec![record])).cells.swap_remove(0);
        match summary.state {
            CellState::Invalid { reasons } => (reasons, summary.warnings),
            _ => (Vec::new(), summary.warnings),
        }
    }

    #[test]
    fn shares_that_are_all_there_and_began_together_are_no_doubt() {
        let totals = ShareTotals::of(&load()).unwrap();
        assert_eq!((totals.all, totals.late, totals.lost), (2, 0, 0));
        assert_eq!((totals.offered, totals.asked), (3_000, Some(3_000)));
        assert_eq!(totals.skew, Some(Duration::from_micros(1)));
        assert_eq!(totals.clock_error, Some(Duration::from_micros(80)));
        assert_eq!(reasons(&load()), [""; 0]);
        assert_eq!(Ending::of(&analyse(&run(vec![load()]))).pop_first(), Some(Ending::Answered));
        let alone = CellRecord { agents: Vec::new(), ..load() };
        assert_eq!(ShareTotals::of(&alone), None);
    }

    #[test]
    fn the_number_of_a_poisson_process_is_chance_and_no_requests_are_missing_for_it() {
        let poisson = |due: u64| {
            let mut record = load();
            record.cell.work.arrival = Arrival::Poisson { rate: 1_000.0 };
            record.agents[0].due = Some(due);
            record
        };
        let totals = |record: &CellRecord| {
            let totals = ShareTotals::of(record).unwrap();
            (totals.offered, totals.asked)
        };
        // The mean is 3,000, and five standard deviations are 273.9.
        for (due, offered, asked) in
            [(1_773, 3_273, 3_273), (1_774, 3_274, 3_000), (1_227, 2_727, 2_727), (1_226, 2_726, 3_000)]
        {
            assert_eq!(totals(&poisson(due)), (offered, Some(asked)));
        }
        assert_eq!(totals(&lost(poisson(2_950))), (2_950, Some(3_000)), "a share is missing");
        let mut constant = load();
        constant.agents[0].due = Some(1_503);
        assert_eq!(totals(&constant), (3_003, Some(3_000)), "of a constant rate the number is exact");
    }

    #[test]
    fn a_load_that_lacks_a_share_is_invalid_and_says_what_was_offered() {
        let (reasons, _) = judged(lost(load()));
        let words = "1 of 2 shares is missing, 1,500 of 3,000 requests were offered";
        assert_eq!(reasons, [format!("{words} (kek-1: it was silent for 60s)")]);
        assert_eq!(Ending::of(&analyse(&run(vec![lost(load())]))).pop_first(), Some(Ending::Invalid));
        let (reasons, _) = judged(closed(lost(load())));
        assert!(reasons[0].contains("1,500 requests were offered by the others"), "{reasons:?}");
    }

    #[test]
    fn the_rate_of_a_load_that_lacks_a_share_is_the_one_that_was_asked_for_and_nothing_else_is_said_of_it() {
        let summary = |mut record: CellRecord| {
            if record.agents[1].lost.is_some() {
                record.samples = record.samples.iter().step_by(2).collect();
            }
            analyse(&run(vec![record])).cells.swap_remove(0)
        };
        let whole = summary(load());
        assert_eq!((whole.offered_rps.round() as u64, whole.lost_shares), (1_000, None));
        let lacking = summary(lost(load()));
        assert_eq!((lacking.offered_rps.round() as u64, lacking.served_rps.round() as u64), (1_000, 500));
        let lost_shares = lacking.lost_shares.unwrap();
        assert_eq!((lost_shares.agents, lost_shares.each_rps), (vec!["kek-1".to_owned()], Some(500.0)));
        let again = |warning: &String| warning.contains("but the schedule has");
        assert!(!lacking.warnings.iter().any(again), "the reason says it: {:?}", lacking.warnings);
        let closed = summary(closed(lost(load())));
        let rates = closed.lost_shares.map(|lost| (lost.asked_rps, lost.each_rps));
        assert_eq!(rates, Some((None, None)), "a closed loop asks for no rate");
        assert_eq!(closed.offered_rps.round() as u64, 500, "it offers what is answered");
    }

    #[test]
    fn a_share_may_begin_a_millisecond_and_its_clocks_error_late_and_no_later() {
        let begun = |late_ns| {
            let mut record = load();
            let share = &mut record.agents[1];
            (share.start_late_ns, share.schedule_late_ns) = (Some(late_ns), Some(late_ns));
            record
        };
        assert_eq!(ShareState::of(&begun(1_080_000).agents[1]), ShareState::Whole);
        assert_eq!(ShareState::of(&begun(1_080_001).agents[1]), ShareState::Late);
        assert_eq!(judged(begun(1_080_000)).0, [""; 0]);
        let mut record = begun(5_000_000);
        record.agents[1].schedule_late_ns = Some(0);
        let (reasons, warnings) = judged(record);
        assert_eq!(reasons, [""; 0], "one request does not decide");
        let words = "kek-1 sent its first request 5 ms late, 1.08 ms is allowed";
        assert!(warnings.iter().any(|warning| warning == words), "{warnings:?}");
        let (reasons, _) = judged(begun(5_000_000));
        assert_eq!(reasons, ["kek-1 began 5 ms after the common instant, 1.08 ms is allowed"]);
        let (reasons, warnings) = judged(closed(begun(5_000_000)));
        assert_eq!(reasons, [""; 0], "a closed loop has no schedule that could be missed");
        assert!(warnings.iter().any(|warning| warning.contains("kek-1 began 5 ms")), "{warnings:?}");
    }

    #[test]
    fn the_doubt_about_one_agent_is_one_about_the_load() {
        let mut record = load();
        record.agents[0].doubts = vec!["the generator was late: p99 9 ms, 1 ms is allowed".to_owned()];
        let (reasons, _) = judged(record);
        assert_eq!(reasons, ["kek-0: the generator was late: p99 9 ms, 1 ms is allowed"]);
    }

    #[test]
    fn what_is_kept_of_a_shares_own_record_is_counted_the_same_at_every_level() {
        let record = load();
        let late = share_lateness(&record);
        assert!(late.p50_ns <= late.p99_ns && late.p99_ns <= late.max_ns, "{late:?}");
        assert_eq!(requests_due(&record), record.samples.len() as u64);
        let measured = record.samples.iter().filter(|sample| sample.measured).count() as u64;
        assert_eq!(measured_requests_due(&record), measured);
        assert!(measured < requests_due(&record), "the warm-up has requests");
        let tallies = tallied::Tallies::of(&[&record]).all().cloned().collect();
        let samples = record.samples.iter().take(3).collect();
        let counted = CellRecord { tallies, samples, ..record.clone() };
        assert_eq!(requests_due(&counted), requests_due(&record));
        assert_eq!(measured_requests_due(&counted), measured);
    }
}
