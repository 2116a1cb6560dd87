//! Times in which nothing arrived from a server, although requests waited for it. A closed loop hides them: it sends
//! nothing more until it has an answer. So one long pause of the server appears as one slow request on each connection,
//! however many users would have come during the pause (coordinated omission). An open loop has them in its
//! percentiles, but without their cause. A silence that lasts until the end of the measured time and beyond means that
//! the server stopped answering.

use std::fmt;
use std::time::Duration;

use super::summary::CellSummary;
use super::tallied::{ANSWERED, window};
use h2lab_base::counts::{count, plural};
use h2lab_base::units::{Time, measured_time};
use h2lab_model::record::{CellRecord, LinkSummary, Outcome, Sample};
use h2lab_model::workload::Arrival;

/// Shorter silences occur on any loaded machine; our own generator may pause for as long (see `state.rs`).
const SHORTEST: Duration = Duration::from_millis(100);
/// A silence is longer than this many times the p99 of the requests that were not in it: a server that is always slow,
/// or slow for one request in fifty, is just as silent between its answers, and the percentiles show that.
const TIMES_P99: u32 = 10;
/// A server has stopped answering only if it was silent for this long until the end, or for [`GONE_SHARE`] of the time:
/// a shorter silence may be a pause that the end of the measured time cut off.
const GONE: Duration = Duration::from_secs(1);
/// See [`GONE`].
const GONE_SHARE: f64 = 0.05;

/// A pause of a server delays all requests in flight. There must be at least this many: if fewer wait, it may be a slow
/// response.
const LEAST_WAITING: f64 = 3.0;

/// A time in which no connection received anything, counted from the beginning of the measured time; if there are
/// several, the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// When the last data before it arrived.
    pub from: Duration,
    /// When the first data after it arrived, or the wait for the last requests ended.
    pub until: Duration,
    /// In which repetition, from 1, if there are several.
    pub repetition: Option<u32>,
    /// How many there were, of all repetitions.
    pub times: u32,
    /// Their total length.
    pub total: Duration,
}

impl Silence {
    fn length(self) -> Duration {
        self.until.saturating_sub(self.from)
    }
}

impl fmt::Display for Silence {
    /// `nothing arrived from the server from 1.20 s to 2.20 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [from, until] = [self.from, self.until].map(shown);
        write!(f, "nothing arrived from the server from {from} to {until}")?;
        self.repetition.map_or(Ok(()), |nth| write!(f, " of repetition {nth}"))?;
        match self.times {
            0 | 1 => Ok(()),
            times => write!(f, ", the longest of {times} such pauses, {} together", shown(self.total)),
        }
    }
}

/// The longest silence of a cell, unless the server always answers like this, and the number of others.
pub(super) fn of(summary: &CellSummary, repetitions: &[&CellRecord]) -> Option<Silence> {
    let of_one = |(n, repetition): (usize, &&CellRecord)| {
        let nth = (repetitions.len() > 1).then_some(n as u32 + 1);
        silences(repetition)
            .into_iter()
            .map(move |silence| Silence { repetition: nth, ..observed(repetition, silence) })
            .collect::<Vec<_>>()
    };
    let all: Vec<Silence> = repetitions.iter().enumerate().flat_map(of_one).collect();
    let longest = all.iter().copied().max_by_key(|silence| silence.length())?;
    // A single silence is judged by the requests that were not in it; several are judged by the requests that were in
    // none of them, if each made all requests wait.
    let several: Vec<Silence> = all.into_iter().filter(|silence| makes_all_wait(summary, *silence)).collect();
    let is_exception = several.len() > 1 && is_exception(summary, &several);
    let several = if is_exception { several } else { Vec::new() };
    [several, vec![longest]].into_iter().find_map(|candidates| unusual(summary, &candidates))
}

/// A silence of a repetition as far as it was observed: one that lasts until the end of the measured time goes on while
/// the last requests are waited for, if nothing arrives then either.
fn observed(repetition: &CellRecord, silence: Silence) -> Silence {
    let (from, until) = window(repetition);
    if silence.until < until.since(from) || is_heard_after(repetition, until) {
        return silence;
    }
    let open = repetition.samples.iter().filter(|sample: &Sample| sample.sent_at.happened());
    let ends = open.map(|sample| sample.completed_at).filter(|at| at.happened());
    let until = ends.max().map_or(silence.until, |at| silence.until.max(at.since(from)));
    Silence { until, total: until.saturating_sub(silence.from), ..silence }
}

/// Whether less than half of the requests waited in these: otherwise the server always answers like this.
fn is_exception(summary: &CellSummary, silences: &[Silence]) -> bool {
    1.0 - usual_share(summary, silences) / 0.99 < 0.5
}

/// Whether so many requests wait in a silence that it is not just a slow response.
fn makes_all_wait(summary: &CellSummary, silence: Silence) -> bool {
    let waiting = match summary.cell.work.arrival {
        Arrival::Closed { concurrency } => f64::from(concurrency),
        _ => summary.offered_rps * silence.length().as_secs_f64(),
    };
    silence.length() >= SHORTEST && waiting >= LEAST_WAITING
}

/// The longest of these and their number, without those that are no longer than responses usually take.
fn unusual(summary: &CellSummary, candidates: &[Silence]) -> Option<Silence> {
    let share = usual_share(summary, candidates);
    let least = SHORTEST.max(summary.response.quantile(share) * TIMES_P99);
    let found: Vec<Silence> =
        candidates.iter().copied().filter(|silence| silence.length() >= least).collect();
    let longest = found.iter().copied().max_by_key(|silence| silence.length())?;
    Some(Silence { times: found.len() as u32, total: total(&found), ..longest })
}

/// The warning about the silence of a cell.
pub(super) fn warning(summary: &CellSummary) -> Option<String> {
    let silence = summary.silence?;
    Some(match summary.cell.work.arrival {
        Arrival::Closed { concurrency } => {
            let sent = summary.requests.sent;
            format!(
                "{silence}: a closed loop hides it, only {} of {} waited; --rate sends on while the server pauses",
                count((waiting(concurrency, sent) * u64::from(silence.times)).min(sent)),
                plural(sent, "request")
            )
        }
        _ => format!("{silence}, while requests waited for it: that is no lack of connections"),
    })
}

/// How many requests of a closed loop wait at the same time.
fn waiting(concurrency: u32, sent: u64) -> u64 {
    u64::from(concurrency).min(sent)
}

/// See [`usual_share_of`], for silences of a cell.
fn usual_share(summary: &CellSummary, silences: &[Silence]) -> f64 {
    let silent = total(silences).as_secs_f64() / summary.measured.as_secs_f64().max(f64::MIN_POSITIVE);
    usual_share_of(summary.cell.work.arrival, summary.requests.sent, silent, silences.len() as u64)
}

fn total(silences: &[Silence]) -> Duration {
    silences.iter().map(|silence| silence.length()).sum()
}

/// The p99 of the requests that did not wait in a silence, as a share of all requests: if there are few, those that
/// waited are more than one in a hundred. `silent` is the share of the time that was silent, and so the share of an
/// open loop's requests that waited; in a closed loop all requests in flight wait in each of `times` silences.
fn usual_share_of(arrival: Arrival, sent: u64, silent: f64, times: u64) -> f64 {
    let waited = match arrival {
        Arrival::Closed { concurrency } => (waiting(concurrency, sent) * times) as f64 / sent.max(1) as f64,
        _ => silent,
    };
    0.99 * (1.0 - waited.min(1.0))
}

/// Whether a server stopped answering, as a sentence: nothing arrived from it from some time to the end, nor while the
/// last requests were waited for. `all` are repetitions of the same cell: what its responses usually take is known from
/// them if nothing arrived in this one.
pub(super) fn to_the_end(repetition: &CellRecord, all: &[&CellRecord]) -> Option<String> {
    // Of the answered requests only: those still open at the end have the age that they reached.
    fn p99(repetition: &CellRecord) -> Option<Duration> {
        Some(ANSWERED.quantile(repetition, 0.99)).filter(|p99| !p99.is_zero())
    }
    let (from, until) = window(repetition);
    let measured = until.since(from);
    let is_any_heard = is_any_heard(repetition);
    let found = if is_any_heard { silences(repetition) } else { of_server(repetition, of_none) };
    let longest = found.into_iter().max_by_key(|silence| silence.length());
    let silence = longest.filter(|silence| silence.until == measured)?;
    let of_others = || all.iter().filter_map(|one| p99(one)).min();
    let usual = p99(repetition).or_else(of_others).unwrap_or_default();
    let is_long = silence.length() >= GONE.max(measured.mul_f64(GONE_SHARE)).max(usual * TIMES_P99);
    let is_gone = is_long && repetition.bulk.is_none() && !is_heard_after(repetition, until);
    is_gone.then(|| {
        format!(
            "nothing arrived from the server from {} until the end, for {}, while requests waited for it",
            measured_time(silence.from),
            measured_time(silence.length())
        )
    })
}

/// Whether anything arrived from the server after this time, or may have: for a response that had begun and was cut,
/// the arrival of its bytes is unknown.
fn is_heard_after(repetition: &CellRecord, until: Time) -> bool {
    let of_sample = |sample: Sample| {
        let has_begun = sample.first_byte_at.happened();
        (has_begun && (sample.first_byte_at > until || !is_heard(sample.outcome)))
            || (is_heard(sample.outcome) && sample.completed_at > until)
    };
    repetition.samples.iter().any(of_sample)
        || repetition.tallies.iter().any(|tally| tally.at >= until && is_heard(tally.class.outcome))
}

/// Whether anything of a response arrived in this repetition.
fn is_any_heard(repetition: &CellRecord) -> bool {
    let of_sample = |sample: Sample| sample.first_byte_at.happened() || is_heard(sample.outcome);
    repetition.samples.iter().any(of_sample)
        || repetition.tallies.iter().any(|tally| is_heard(tally.class.outcome))
}

/// Whether a request with this outcome was ended by something that arrived.
const fn is_heard(outcome: Outcome) -> bool {
    use Outcome::{Cancelled, Connect, Timeout, Unanswered, Unfinished};
    !matches!(outcome, Cancelled | Connect | Timeout | Unanswered | Unfinished)
}

/// In seconds, to a hundredth.
fn shown(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// The silences of a repetition after its first response, see [`of_server`].
fn silences(repetition: &CellRecord) -> Vec<Silence> {
    of_server(repetition, if repetition.tallies.is_empty() { of_samples } else { of_tallies })
}

/// The silences that `find` finds, if they are the server's. Empty if our generator was stopped, if the link lost
/// packets, or if the record is from a capture, which may have holes: then the server may have sent something.
fn of_server(repetition: &CellRecord, find: fn(&CellRecord) -> Vec<Silence>) -> Vec<Silence> {
    let lost = |link: &LinkSummary| link.up.dropped() + link.down.dropped() > 0;
    if repetition.is_of_packets() || repetition.link.as_ref().is_some_and(lost) {
        return Vec::new();
    }
    let mut silences = find(repetition);
    let paused = Duration::from_nanos(repetition.generator.longest_pause_ns);
    let link_late =
        repetition.link.as_ref().map_or(Duration::ZERO, |link| Duration::from_nanos(link.late_max_ns));
    let ours = paused.max(link_late);
    silences.retain(|silence| ours * 2 < silence.length() && !is_generator_late(repetition, *silence));
    silences
}

/// Whether a request that was due in a silence was sent so late that the generator itself was stopped for half of the
/// silence.
fn is_generator_late(repetition: &CellRecord, silence: Silence) -> bool {
    let (begin, _) = window(repetition);
    let (from, until) = (begin + silence.from, begin + silence.until);
    repetition.samples.iter().any(|sample: Sample| {
        (from..until).contains(&sample.scheduled_at)
            && sample.lateness().is_some_and(|late| late * 2 >= silence.length())
    })
}

/// For requests that were all kept. The bytes between the first and the last of a response are unknown, so no time
/// counts in which a response was in progress, nor one in which no request waited for an answer.
fn of_samples(repetition: &CellRecord) -> Vec<Silence> {
    let mut busy: Vec<(Time, Time)> = repetition
        .samples
        .iter()
        .filter(|sample: &Sample| sample.first_byte_at.happened())
        .map(|sample| (sample.first_byte_at, sample.completed_at.max(sample.first_byte_at)))
        .collect();
    let ended = repetition.samples.iter().filter(|sample| is_heard(sample.outcome));
    busy.extend(ended.map(|sample| (sample.completed_at, sample.completed_at)));
    busy.extend(idle(repetition));
    busy.sort_unstable();
    between(busy.into_iter(), window(repetition))
}

/// For a repetition in which nothing arrived: from its first request to its end. When requests that were only counted
/// were sent is unknown.
fn of_none(repetition: &CellRecord) -> Vec<Silence> {
    let sent = repetition.samples.iter().map(|sample: Sample| sample.sent_at);
    let first = sent.filter(|at| at.happened()).min();
    between(first.into_iter().map(|at| (at, at)), window(repetition))
}

/// The times between requests, in which the server has nothing to answer.
fn idle(repetition: &CellRecord) -> Vec<(Time, Time)> {
    let sent = repetition.samples.iter().filter(|sample: &Sample| sample.sent_at.happened());
    let mut waits: Vec<(Time, Time)> =
        sent.map(|sample| (sample.sent_at, sample.completed_at.max(sample.sent_at))).collect();
    waits.sort_unstable();
    let (_, end) = window(repetition);
    let mut times = Vec::new();
    let mut covered: Option<Time> = None;
    for (begin, until) in waits.into_iter().chain([(end, end)]) {
        times.extend(covered.filter(|covered| *covered < begin).map(|covered| (covered, begin)));
        covered = Some(covered.map_or(until, |covered| until.max(covered)));
    }
    times
}

/// For requests that were only counted: slices of time in which no request was ended by something that arrived.
fn of_tallies(repetition: &CellRecord) -> Vec<Silence> {
    let slices_of = |which: fn(Outcome) -> bool| {
        let tallies = repetition.tallies.iter().filter(|tally| which(tally.class.outcome));
        let mut slices: Vec<Time> = tallies.map(|tally| tally.at).collect();
        slices.sort_unstable();
        slices.dedup();
        slices
    };
    let widths = slices_of(|_| true);
    let Some(width) = widths.windows(2).map(|pair| pair[1].since(pair[0])).min() else { return Vec::new() };
    let slices = slices_of(is_heard);
    between(slices.into_iter().map(|at| (at, at + width)), window(repetition))
}

/// The times inside the window that are between these sorted times, and after the last of them; those that are too
/// short are left out.
fn between(busy: impl Iterator<Item = (Time, Time)>, (from, until): (Time, Time)) -> Vec<Silence> {
    let mut silences: Vec<Silence> = Vec::new();
    let mut heard: Option<Time> = None;
    for (begin, end) in busy.chain([(until, until)]) {
        if let Some(last) = heard {
            let of = |at: Time| at.max(from).min(until).since(from);
            let (from, until) = (of(last), of(begin));
            let silence =
                Silence { from, until, repetition: None, times: 1, total: until.saturating_sub(from) };
            if silence.length() >= SHORTEST {
                silences.push(silence);
            }
        }
        heard = Some(heard.map_or(end, |last| last.max(end)));
    }
    silences
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::record::testing::{Model, cell, counted, one_repetition};
    use h2lab_model::workload::Protocol;

    /// A closed loop in which nothing arrives for `millis` milliseconds, starting at one second: what was due to arrive
    /// then arrives afterwards.
    fn paused(millis: u64) -> CellRecord {
        let mut record = one_repetition(&cell(0, 0, Protocol::H1, 25, 0.0), 0, &Model::CLEAN);
        record.cell.work.arrival = Arrival::Closed { concurrency: 25 };
        record.link = None;
        let (from, _) = window(&record);
        let (begin, pause) = (from + Duration::from_secs(1), Duration::from_millis(millis));
        for sample in record.samples.edit().iter_mut().filter(|sample| sample.completed_at >= begin) {
            sample.completed_at += pause;
            sample.first_byte_at += pause;
            if sample.scheduled_at >= begin {
                sample.scheduled_at += pause;
                sample.sent_at += pause;
            }
        }
        record
    }

    fn said(record: &CellRecord) -> Option<String> {
        let warnings = CellSummary::of(&[record]).warnings;
        warnings.into_iter().find(|warning| warning.starts_with("nothing arrived"))
    }

    #[test]
    fn a_pause_of_the_server_in_a_closed_loop_is_told_with_when_and_how_long() {
        let warning = said(&paused(1_000)).unwrap();
        assert!(warning.contains("from 1.00 s to 2.00 s: a closed loop hides it, only 25 of "), "{warning}");
        assert!(warning.contains("; --rate"), "{warning}");
        // The p99 of the others is a little more than 25 ms.
        assert_eq!((said(&paused(200)), said(&paused(0))), (None, None));
        assert!(said(&paused(400)).is_some());
    }

    #[test]
    fn of_counted_requests_a_pause_is_known_to_a_slice() {
        let warning = said(&counted(paused(1_000))).unwrap();
        assert!(warning.contains("a closed loop hides it, only 25 of "), "{warning}");
        assert_eq!(said(&counted(paused(0))), None);
    }

    #[test]
    fn in_an_open_loop_a_pause_is_told_as_what_it_is() {
        let mut open = paused(1_000);
        open.cell.work.arrival = Arrival::Constant { rate: 1000.0 };
        let warning = said(&open).unwrap();
        assert!(warning.contains("from 1.00 s to 2.00 s, while requests waited for it"), "{warning}");
        assert!(!warning.contains("closed loop"), "{warning}");
        assert!(said(&counted(open)).is_some());
    }

    /// An open loop of `rate` requests per second, each answered after a millisecond, except while the server pauses:
    /// for `millis` milliseconds at the beginning of each of `times` half seconds after the first.
    fn paused_often(millis: u64, times: u64, rate: u64) -> CellRecord {
        let mut record = one_repetition(&cell(0, 0, Protocol::H1, 25, 0.0), 0, &Model::CLEAN);
        record.cell.work.arrival = Arrival::Constant { rate: rate as f64 };
        record.link = None;
        let (from, _) = window(&record);
        let usual = record.samples.iter().find(|sample| sample.measured).expect("one was measured");
        let asked = (0..3 * rate).map(|n| {
            let due = n * 1_000 / rate;
            let (nth, within) = (due / 500, due % 500);
            let end =
                if (1..=times).contains(&nth) && within < millis { nth * 500 + millis } else { due } + 1;
            let [due, end] = [due, end].map(|millis| from + Duration::from_millis(millis));
            Sample { scheduled_at: due, sent_at: due, first_byte_at: end, completed_at: end, ..usual }
        });
        record.samples = asked.collect();
        record
    }

    #[test]
    fn several_pauses_in_an_open_loop_are_counted_though_all_are_in_its_percentiles() {
        let warning = said(&paused_often(200, 5, 50)).unwrap();
        assert!(
            warning.contains(", the longest of 5 such pauses, 1.00 s together, while requests waited"),
            "{warning}"
        );
        assert_eq!(said(&paused_often(90, 5, 50)), None, "too short");
        assert_eq!(said(&paused_often(200, 5, 10)), None, "two requests wait: these may be slow responses");
        assert_eq!(said(&paused_often(300, 6, 50)), None, "that is how it always answers");
    }

    #[test]
    fn time_without_a_request_is_no_silence() {
        let mut record = paused(0);
        record.cell.work.arrival = Arrival::Constant { rate: 1000.0 };
        let (from, _) = window(&record);
        let [begin, end] = [1, 2].map(|second| from + Duration::from_secs(second));
        let is_outside = |sample: &Sample| sample.completed_at < begin || sample.sent_at > end;
        record.samples = record.samples.iter().filter(is_outside).collect();
        assert_eq!(said(&record), None);
    }

    /// A closed loop whose server stops `before` milliseconds before the end, and answers what waits after `later`, if
    /// ever.
    fn stopped(before: u64, later: Option<Duration>) -> CellRecord {
        let mut record = paused(0);
        let (_, until) = window(&record);
        let stop = until - Duration::from_millis(before);
        record.samples = record.samples.iter().filter(|sample| sample.sent_at < stop).collect();
        for sample in record.samples.edit().iter_mut().filter(|sample| sample.completed_at >= stop) {
            let at = until + later.unwrap_or(Duration::from_secs(1));
            sample.completed_at = at;
            if later.is_some() {
                sample.first_byte_at = at;
            } else {
                (sample.outcome, sample.first_byte_at) = (Outcome::Timeout, Time::NEVER);
            }
        }
        record
    }

    fn end(record: &CellRecord) -> Option<String> {
        to_the_end(record, &[record])
    }

    #[test]
    fn a_server_that_is_silent_to_the_end_has_stopped_and_one_that_answers_later_has_not() {
        let why = end(&stopped(1_500, None)).unwrap();
        assert!(why.contains(" until the end, for 1.50 s, while"), "{why}");
        assert!(end(&counted(stopped(1_500, None))).is_some());
        assert_eq!(end(&stopped(1_500, Some(Duration::from_millis(500)))), None, "a pause");
        let mut long = counted(stopped(1_500, None));
        let mut begun = Sample::due(window(&long).0, true);
        begun.first_byte_at = begun.scheduled_at;
        begun.outcome = Outcome::Unfinished;
        long.samples.push(&begun);
        assert_eq!(end(&long), None, "a long response may have been under way");
        assert_eq!(end(&stopped(500, None)), None, "too short to tell");
        assert_eq!(end(&paused(0)), None);
        let mut own = stopped(1_500, None);
        own.generator.longest_pause_ns = 1_000_000_000;
        assert_eq!(end(&own), None);
    }

    /// Fifty requests per second, each answered after 35 ms until the server stops at `stop` milliseconds; those after
    /// that are cut at the end.
    fn stopped_under_load(stop: u64) -> CellRecord {
        let mut record = paused_often(0, 0, 50);
        let (from, until) = window(&record);
        let stop = from + Duration::from_millis(stop);
        for sample in record.samples.edit().iter_mut() {
            let answered = sample.sent_at + Duration::from_millis(35);
            (sample.first_byte_at, sample.completed_at) = (answered, answered);
            if answered >= stop {
                (sample.outcome, sample.first_byte_at) = (Outcome::Unfinished, Time::NEVER);
                sample.completed_at = until + Duration::from_millis(700);
            }
        }
        record
    }

    #[test]
    fn the_age_of_requests_that_were_cut_is_not_what_responses_usually_take() {
        for stop in [200, 1_500] {
            let why = end(&stopped_under_load(stop));
            assert!(why.is_some_and(|why| why.contains(" until the end, for ")), "{stop}");
        }
        assert_eq!(end(&stopped_under_load(2_500)), None, "too short to tell");
        assert_eq!(end(&stopped_under_load(10_000)), None, "it never stops");
    }

    #[test]
    fn a_pause_at_the_end_is_as_long_as_the_last_requests_waited() {
        let silent = stopped_under_load(2_780);
        let warning = said(&silent).unwrap();
        assert!(warning.contains(" to 3.70 s, while requests waited for it"), "{warning}");
        let mut answered = silent;
        for sample in answered.samples.edit().iter_mut().filter(|one| one.outcome == Outcome::Unfinished) {
            (sample.outcome, sample.first_byte_at) = (Outcome::Succeeded, sample.completed_at);
        }
        assert_eq!(said(&answered), None, "something arrived after the end of the measured time");
    }

    #[test]
    fn a_repetition_without_any_response_is_silent_from_its_first_request() {
        let silent = stopped_under_load(0);
        let why = to_the_end(&silent, &[&stopped_under_load(10_000), &silent]).unwrap();
        assert!(why.contains(" until the end, for 3"), "{why}");
        let mut slow = stopped_under_load(10_000);
        for sample in slow.samples.edit().iter_mut() {
            sample.completed_at += Duration::from_millis(500);
        }
        assert_eq!(to_the_end(&silent, &[&slow, &silent]), None, "its responses take long");
        let mut unsent = silent.clone();
        for sample in unsent.samples.edit().iter_mut() {
            sample.sent_at = Time::NEVER;
        }
        assert_eq!(end(&unsent), None, "nothing was asked");
    }

    #[test]
    fn our_own_stop_and_lost_packets_are_no_pause_of_the_server() {
        let mut own = paused(1_000);
        own.generator.longest_pause_ns = 900_000_000;
        assert_eq!(said(&own), None);
        let mut lossy = paused(1_000);
        let mut link = one_repetition(&cell(0, 0, Protocol::H1, 25, 0.0), 0, &Model::CLEAN).link.unwrap();
        lossy.link = Some(link.clone());
        assert!(said(&lossy).is_some(), "it lost none");
        link.down.tail_dropped += 1;
        lossy.link = Some(link);
        assert_eq!(said(&lossy), None);
    }

    #[test]
    fn a_response_that_arrives_all_the_time_is_no_silence() {
        let mut record = paused(1_000);
        let (from, until) = window(&record);
        let mut samples = record.samples.edit();
        let first = samples.iter_mut().next().unwrap();
        (first.first_byte_at, first.completed_at) = (from, until);
        drop(samples);
        assert_eq!(said(&record), None);
    }
}
