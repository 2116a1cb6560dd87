//! How long a response takes. If that is as long as the measured time, the figures rest on few responses or none, and a
//! cause that they suggest may be only an effect of that.

use std::time::Duration;

use super::summary::CellSummary;
use super::tallied;
use h2lab_base::counts::plural;
use h2lab_base::units::{format_bytes, measured_time};
use h2lab_model::record::{CellRecord, Outcome, Sample};
use h2lab_model::scenario::Target;
use h2lab_model::workload::{Arrival, Phases};

/// The measured time does not matter for shorter responses.
const LONG: Duration = Duration::from_millis(500);
/// At least this many responses, one after the other, should fit into the measured time: with fewer, its beginning and
/// end dominate the figures.
const FIT: u32 = 2;
/// The number that is advised.
const ADVISED: u32 = 5;
/// If something limits each response, nine in ten arrive at a rate this close to the median.
const STEADY: f64 = 0.1;
/// The share of responses that may be quicker than the time that a response "takes".
const QUICKEST: f64 = 0.05;
/// With fewer responses, no rate is reported.
const LEAST_RESPONSES: usize = 3;

/// How long responses take, and the data on those that did not end in time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Transfers {
    /// Counted requests whose response had begun and was never complete.
    pub begun: u64,
    /// Those of them that the end of the measurement cut.
    pub unfinished: u64,
    /// Those of them that ran into the timeout of their request.
    pub timed_out: u64,
    /// Body bytes that arrived of these responses.
    pub begun_bytes: u64,
    /// From sending a request to the last byte of its response: nineteen in twenty complete responses, including those
    /// of the warm-up, take this long or longer; `None` without any. In an overloaded cell the median would be that of
    /// a queue.
    pub takes: Option<Duration>,
    /// Body bytes per second of a long response, if it is the same for each; `None` if it differs, or is unknown.
    pub steady_rate: Option<f64>,
}

impl Transfers {
    /// From these repetitions.
    pub(super) fn of(repetitions: &[&CellRecord]) -> Self {
        let samples = || repetitions.iter().flat_map(|repetition| repetition.samples.iter());
        let begun: Vec<Sample> = samples()
            .filter(|sample| sample.measured && sample.first_byte_at.happened() && is_partial(sample.outcome))
            .collect();
        let mut complete: Vec<Sample> = samples().filter(|sample| sample.outcome.is_success()).collect();
        complete.sort_unstable_by_key(Sample::service_time);
        let counted = || {
            let service = tallied::SERVICE.of(repetitions);
            (!service.is_empty()).then(|| service.quantile(QUICKEST))
        };
        let ended = |how: Outcome| begun.iter().filter(|sample| sample.outcome == how).count() as u64;
        Self {
            begun: begun.len() as u64,
            unfinished: ended(Outcome::Unfinished),
            timed_out: ended(Outcome::Timeout),
            begun_bytes: begun.iter().map(|sample| sample.body_bytes).sum(),
            takes: complete
                .get((complete.len() as f64 * QUICKEST) as usize)
                .map(Sample::service_time)
                .or_else(counted),
            steady_rate: steady_rate(&complete),
        }
    }
}

impl Transfers {
    /// What arrived of responses that were never complete, and what to do about it; `None` if nothing did.
    pub(super) fn parts(&self) -> Option<String> {
        let Self { begun, unfinished, timed_out, begun_bytes, .. } = *self;
        // More time may help only if most lacked it, and only of the kind that they lacked: a request has no more than its
        // timeout, however long the measurement is.
        let advice = match (unfinished, timed_out) {
            _ if (unfinished + timed_out) * 2 <= begun => "",
            (_, 0) => "; if they take longer, measure for longer (-z, --drain)",
            (0, _) => "; if they take longer, raise --timeout",
            _ => "; if they take longer, raise --timeout and measure for longer (-z, --drain)",
        };
        (begun > 0).then(|| {
            let begun = plural(begun, "response");
            format!("{begun} had begun, and {} of body arrived{advice}", format_bytes(begun_bytes))
        })
    }
}

/// Whether a response that had begun is only a part of one.
const fn is_partial(outcome: Outcome) -> bool {
    !outcome.is_complete() && !matches!(outcome, Outcome::Cancelled)
}

/// See [`Transfers::steady_rate`].
fn steady_rate(complete: &[Sample]) -> Option<f64> {
    let transfer = |sample: &Sample| sample.completed_at.since(sample.first_byte_at);
    let mut rates: Vec<f64> = complete
        .iter()
        .filter(|sample| sample.first_byte_at.happened() && transfer(sample) >= LONG)
        .map(|sample| sample.body_bytes as f64 / transfer(sample).as_secs_f64())
        .collect();
    rates.sort_unstable_by(f64::total_cmp);
    let is_most = rates.len() >= LEAST_RESPONSES && rates.len() * 2 > complete.len();
    let [low, middle, high] = [5, 50, 95].map(|percent| rates.get(rates.len() * percent / 100).copied());
    let (low, middle, high) = (low?, middle?, high?);
    let is_steady = low >= middle * (1.0 - STEADY) && high <= middle * (1.0 + STEADY);
    (is_most && is_steady).then_some(middle)
}

/// The flags that give responses of this length enough time: `-z 20s --drain 5s`.
pub fn longer_flags(takes: Duration) -> String {
    let seconds = |time: Duration| time.as_secs_f64().ceil();
    format!("-z {}s --drain {}s", seconds(takes * ADVISED), seconds(takes.mul_f64(1.25)))
}

/// Whether responses that take this long leave no sound figures for a measurement with these phases.
pub fn is_too_long(takes: Duration, phases: &Phases) -> bool {
    takes >= LONG && takes * FIT > phases.measure
}

/// Why no response was complete in the measured time to give figures, in a sentence; `None` if there are such
/// responses.
pub(super) fn too_short(summary: &CellSummary) -> Option<String> {
    if summary.cell.work.bulk || summary.repetitions == 0 {
        return None;
    }
    let is_closed = matches!(summary.cell.work.arrival, Arrival::Closed { .. });
    let is_none_served = summary.requests.succeeded > 0 && summary.served_rps <= 0.0;
    let is_none_of_its_own = is_closed && summary.requests.succeeded == 0 && summary.served_rps > 0.0;
    let takes = summary.transfers.takes.filter(|takes| *takes >= LONG)?;
    let too_short = || {
        format!(
            "a response takes {}, and {} are measured: too short to tell requests per second; measure for longer ({})",
            measured_time(takes),
            measured_time(summary.cell.work.phases.measure),
            longer_flags(takes)
        )
    };
    (is_none_served || is_none_of_its_own).then(|| timed_out(summary).unwrap_or_else(too_short))
}

/// The advice instead of longer measuring where most of the measured requests ran into their timeout: they would do so again. `None`
/// if most did not.
fn timed_out(summary: &CellSummary) -> Option<String> {
    is_mostly_timeouts(summary).then(|| {
        format!(
            "most requests ran into their timeout of {}; if responses take longer, raise --timeout",
            measured_time(summary.cell.work.timeout)
        )
    })
}

fn is_mostly_timeouts(summary: &CellSummary) -> bool {
    summary.failed_as(Outcome::Timeout) * 2 > summary.requests.sent
}

/// What to do where no response had begun and most requests ran into their timeout, to be put behind that; `None` if most did not,
/// or if there was no connection.
pub(super) fn after_timeouts(summary: &CellSummary) -> Option<String> {
    if !is_mostly_timeouts(summary) || summary.connections.opened == 0 {
        return None;
    }
    let timeout = measured_time(summary.cell.work.timeout);
    let waited = summary.connections.stalls.open.div_f64(summary.requests.sent.max(1) as f64);
    Some(if waited * 2 > summary.cell.work.timeout {
        format!(
            "; on average they waited {} of their {timeout} for a connection: raise -c, or --timeout",
            measured_time(waited)
        )
    } else {
        format!("; if responses take longer than {timeout}, raise --timeout")
    })
}

/// The warning about responses that take almost as long as the measured time, or longer.
pub(super) fn warning(summary: &CellSummary) -> Option<String> {
    let takes = summary.transfers.takes?;
    let phases = &summary.cell.work.phases;
    // If that made the cell invalid, it is already reported.
    let is_told = too_short(summary).is_some();
    let too_long = || {
        format!(
            "a response takes {}, of {} that are measured and {} of drain: for sound figures measure for longer ({})",
            measured_time(takes),
            measured_time(phases.measure),
            measured_time(phases.drain),
            longer_flags(takes)
        )
    };
    (is_too_long(takes, phases) && !is_told).then(|| timed_out(summary).unwrap_or_else(too_long))
}

/// The observation that all long responses of live servers arrive at the same rate, in each cell that has any: however
/// many are in flight, and with any protocol.
pub(super) fn limited(cells: &[CellSummary]) -> Option<String> {
    let answered = || cells.iter().filter(|cell| cell.transfers.takes.is_some());
    let rates: Vec<f64> = answered().filter_map(|cell| cell.transfers.steady_rate).collect();
    let is_live = answered().all(|cell| matches!(cell.cell.target, Target::Url { .. }));
    let (low, high) = (rates.iter().copied().reduce(f64::min)?, rates.iter().copied().reduce(f64::max)?);
    let is_one = is_live && rates.len() == answered().count() && high <= low * (1.0 + STEADY);
    let alike = if rates.len() > 1 { " in each cell alike" } else { "" };
    is_one.then(|| {
        format!(
            "an observation: each response arrives at {}/s{alike}; the server or the path limits it, and no protocol changes that",
            format_bytes((low * high).sqrt().round() as u64)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{CellState, Ending, analyse};
    use h2lab_base::units::Time;
    use h2lab_model::record::testing::{Model, cell, one_repetition, run};
    use h2lab_model::workload::Protocol;

    /// Three requests of a closed loop at once, each answered `takes` after it was sent; `rates` are bytes per second.
    fn closed(takes: Duration, measure: Duration, rates: [f64; 3]) -> CellRecord {
        let mut record = one_repetition(&cell(0, 0, Protocol::H1, 3, 0.0), 0, &Model::CLEAN);
        record.cell.work.arrival = Arrival::Closed { concurrency: 3 };
        record.cell.work.phases =
            Phases { warmup: Duration::ZERO, measure, drain: Duration::from_millis(700) };
        record.cell.target = Target::Url { url: "http://a/".to_owned() };
        record.link = None;
        let began = record.started_at;
        let sample = |rate: f64| Sample {
            connection: 0,
            sent_at: began,
            first_byte_at: began + Duration::from_millis(1),
            completed_at: began + Duration::from_millis(1) + takes,
            outcome: Outcome::Succeeded,
            status: 200,
            body_bytes: (rate * takes.as_secs_f64()) as u64,
            ..Sample::due(began, true)
        };
        record.samples = rates.into_iter().map(sample).collect();
        record
    }

    const STEADY_RATES: [f64; 3] = [50e3, 51e3, 49e3];

    fn seconds(takes: f64, measure: f64) -> CellRecord {
        closed(Duration::from_secs_f64(takes), Duration::from_secs_f64(measure), STEADY_RATES)
    }

    #[test]
    fn a_measurement_that_holds_no_response_is_invalid_and_says_for_how_long_to_measure() {
        let analysis = analyse(&run(vec![seconds(3.85, 3.0)]));
        let CellState::Invalid { reasons } = &analysis.cells[0].state else { panic!("{analysis:?}") };
        let expected = "a response takes 3.85 s, and 3 s are measured: too short to tell requests per second; measure for longer \
                        (-z 20s --drain 5s)";
        assert_eq!(reasons.as_slice(), [expected]);
        assert_eq!(Ending::of(&analysis).first(), Some(&Ending::Invalid));
        assert_eq!(analyse(&run(vec![seconds(2.9, 3.0)])).cells[0].state, CellState::Ok);
    }

    #[test]
    fn a_response_that_takes_half_of_what_is_measured_is_warned_about() {
        let told = |takes| {
            let warnings = CellSummary::of(&[&seconds(takes, 3.0)]).warnings;
            warnings.into_iter().find(|warning| warning.starts_with("a response takes"))
        };
        let warning = told(1.6).unwrap();
        assert!(warning.contains("1.60 s, of 3 s that are measured and 700 ms of drain"), "{warning}");
        assert!(warning.contains("(-z 9s --drain 3s)"), "{warning}");
        assert_eq!(told(1.4), None);
        assert_eq!(told(3.1), None, "the reason why it is invalid says it");
        // Requests that are short compared with any measured time need no advice.
        let short = CellSummary::of(&[&seconds(0.4, 0.5)]).warnings;
        assert!(!short.iter().any(|warning| warning.starts_with("a response takes")), "{short:?}");
    }

    #[test]
    fn a_response_of_which_a_part_arrived_is_told_apart_from_none() {
        let cut = |has_begun: bool, outcome: Outcome| {
            let mut record = seconds(10.0, 3.0);
            let end = record.cell.work.phases.cut(record.started_at);
            for sample in record.samples.edit().iter_mut() {
                (sample.outcome, sample.status, sample.completed_at) = (outcome, 0, end);
                sample.body_bytes = if has_begun { 102_400 } else { 0 };
                sample.first_byte_at = if has_begun { sample.first_byte_at } else { Time::NEVER };
            }
            CellSummary::of(&[&record]).no_response()
        };
        assert_eq!(cut(false, Outcome::Unfinished).as_deref(), Some("no response to 3 requests"));
        let closed = cut(true, Outcome::Closed).unwrap();
        assert!(
            closed.contains("3 responses had begun") && !closed.contains("measure for longer"),
            "{closed}"
        );
        let begun = cut(true, Outcome::Unfinished).unwrap();
        assert!(
            begun.starts_with(
                "no complete response to 3 requests: 3 responses had begun, and 300 KiB of body"
            ),
            "{begun}"
        );
        assert!(begun.ends_with("; if they take longer, measure for longer (-z, --drain)"), "{begun}");
        let timed_out = cut(true, Outcome::Timeout).unwrap();
        assert!(timed_out.contains("; if they take longer, raise --timeout"), "{timed_out}");
        assert!(!timed_out.contains("measure for longer"), "{timed_out}");
    }

    #[test]
    fn requests_that_all_timed_out_say_whether_the_connection_or_the_response_took_that_long() {
        let said = |waited: f64, opened: bool| {
            let mut record = seconds(10.0, 3.0);
            record.cell.work.timeout = Duration::from_secs(2);
            for sample in record.samples.edit().iter_mut() {
                (sample.outcome, sample.status, sample.body_bytes) = (Outcome::Timeout, 0, 0);
                (sample.first_byte_at, sample.stall_open_ns) = (Time::NEVER, (waited * 1e9) as u64);
            }
            let mut summary = CellSummary::of(&[&record]);
            summary.connections.opened = u64::from(opened);
            summary.no_response().unwrap()
        };
        let all = "no response to 3 requests; all ended as `timeout`";
        let raise = format!("{all}; if responses take longer than 2 s, raise --timeout");
        assert_eq!([said(0.0, true), said(1.0, true)], [raise.clone(), raise]);
        let waited = said(1.5, true);
        let words = "; on average they waited 1.50 s of their 2 s for a connection: raise -c, or --timeout";
        assert_eq!(waited, format!("{all}{words}"));
        assert_eq!(said(1.5, false), all, "more connections would not have been there either");
    }

    #[test]
    fn the_advice_is_to_give_more_of_what_most_responses_lacked() {
        let advice = |unfinished, timed_out| {
            let transfers = Transfers { begun: 4, unfinished, timed_out, ..Transfers::default() };
            transfers.parts().unwrap().split_once("; ").map(|(_, advice)| advice.to_owned())
        };
        let said = |what: &str| Some(format!("if they take longer, {what}"));
        assert_eq!([advice(2, 0), advice(0, 2), advice(1, 1)], [None, None, None], "half of them");
        assert_eq!(advice(3, 0), said("measure for longer (-z, --drain)"));
        assert_eq!(advice(0, 3), said("raise --timeout"));
        assert_eq!(advice(2, 1), said("raise --timeout and measure for longer (-z, --drain)"));
    }

    #[test]
    fn requests_that_ran_into_their_timeout_are_no_reason_to_measure_for_longer() {
        // The warm-up was answered in 600 ms each; of three measured requests so many ran into their timeout.
        let told = |timed_out: usize| {
            let mut record = seconds(0.6, 3.0);
            record.cell.work.phases.warmup = Duration::from_millis(500);
            record.cell.work.timeout = Duration::from_secs(2);
            record.samples.edit().iter_mut().for_each(|sample| sample.measured = false);
            let (from, until) = tallied::window(&record);
            for n in 0..3 {
                let outcome = if n < timed_out { Outcome::Timeout } else { Outcome::Unfinished };
                let due = Sample::due(from, true);
                record.samples.push(&Sample { sent_at: from, completed_at: until, outcome, ..due });
            }
            too_short(&CellSummary::of(&[&record])).unwrap()
        };
        let why = told(2);
        assert!(why.starts_with("most requests ran into their timeout of 2 s"), "{why}");
        assert!(why.ends_with("raise --timeout") && !why.contains("measure for longer"), "{why}");
        assert!(told(1).contains("measure for longer (-z"), "{}", told(1));

        // The same where some of the measured requests were answered, slowly.
        let warned = |timed_out: usize| {
            let mut record = seconds(1.6, 3.0);
            let sent_at = record.started_at;
            let (completed_at, outcome) = (sent_at + Duration::from_secs(2), Outcome::Timeout);
            for _ in 0..timed_out {
                record.samples.push(&Sample { sent_at, completed_at, outcome, ..Sample::due(sent_at, true) });
            }
            let warnings = CellSummary::of(&[&record]).warnings;
            let is_it = |words: &str| warnings.iter().any(|warning| warning.contains(words));
            (is_it("raise --timeout"), is_it("measure for longer"))
        };
        assert_eq!((warned(4), warned(3)), ((true, false), (false, true)));
    }

    #[test]
    fn requests_that_wait_behind_those_of_the_warm_up_are_an_overload_and_no_silence() {
        let mut record = seconds(3.0, 5.0);
        record.cell.work.arrival = Arrival::Constant { rate: 50.0 };
        let end = record.cell.work.phases.cut(record.started_at);
        for sample in record.samples.edit().iter_mut() {
            sample.measured = false;
        }
        let (from, _) = tallied::window(&record);
        for n in 0..250_u64 {
            let waiting = Sample::due(from + Duration::from_millis(n * 20), true);
            record.samples.push(&Sample { completed_at: end, ..waiting });
        }
        let summary = CellSummary::of(&[&record]);
        assert!(matches!(summary.state, CellState::Unstable { .. }), "{:?}", summary.state);
        assert!(summary.served_rps > 0.0 && !summary.is_dead() && summary.no_response().is_none());
    }

    #[test]
    fn the_rate_of_a_response_is_told_where_each_has_the_same_in_every_cell() {
        let told = |rates: &[[f64; 3]], takes: f64| {
            let record = |(index, rates): (u32, &[f64; 3])| {
                let mut record = closed(Duration::from_secs_f64(takes), Duration::from_secs(60), *rates);
                record.cell.index = index;
                record
            };
            let warnings = analyse(&run((0..).zip(rates).map(record).collect())).warnings;
            warnings.into_iter().find(|warning| warning.starts_with("an observation: each response"))
        };
        assert!(
            told(&[STEADY_RATES], 3.85).unwrap().contains("arrives at 48.83 KiB/s; the server or the path")
        );
        let both = told(&[STEADY_RATES, [53e3; 3]], 3.85).unwrap();
        assert!(both.contains("KiB/s in each cell alike; the server"), "{both}");
        assert_eq!(told(&[STEADY_RATES, [60e3; 3]], 3.85), None, "a protocol changes it");
        assert_eq!(told(&[[50e3, 60e3, 40e3]], 3.85), None, "they differ");
        assert_eq!(told(&[STEADY_RATES, [50e3, 60e3, 40e3]], 3.85), None, "they differ in one cell");
        assert_eq!(told(&[STEADY_RATES], 0.4), None, "short");
    }
}
