//! Times in which nothing arrived from a server, although requests waited for it. A closed loop hides them: it sends nothing more until
//! it has an answer, so that one long pause of the server is one slow request on each connection, however many users would have come in
//! it (coordinated omission). An open loop has them in its percentiles, but not what they are of. One that lasts to the end, and behind
//! it, is a server that stopped answering.

use std::fmt;
use std::time::Duration;

use super::summary::CellSummary;
use super::tallied::{RESPONSE, window};
use h2lab_base::counts::{count, plural};
use h2lab_base::units::{Time, measured_time};
use h2lab_model::record::{CellRecord, LinkSummary, Outcome, Sample};
use h2lab_model::workload::Arrival;

/// Shorter ones are those of any loaded machine; our own generator may pause for as long (see `state.rs`).
const SHORTEST: Duration = Duration::from_millis(100);
/// A silence is longer than this many times the p99 of the requests that were not in it: a server that is always slow, or slow to one in
/// fifty, is as silent between its answers, and that is in the percentiles.
const TIMES_P99: u32 = 10;
/// A server has stopped answering only if it was silent for this long until the end, or for [`GONE_SHARE`] of the time: a shorter silence
/// may be a pause that the end of measuring cut.
const GONE: Duration = Duration::from_secs(1);
/// See [`GONE`].
const GONE_SHARE: f64 = 0.05;

/// A time in which no connection received anything, since measuring began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// When the last thing before it arrived.
    pub from: Duration,
    /// When the first thing after it arrived, or measuring ended.
    pub until: Duration,
    /// In which repetition, from 1, if there are several.
    pub repetition: Option<u32>,
}

impl Silence {
    fn length(self) -> Duration {
        self.until.saturating_sub(self.from)
    }

    fn share_of(self, time: Duration) -> f64 {
        self.length().as_secs_f64() / time.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

impl fmt::Display for Silence {
    /// `nothing arrived from the server from 1.20 s to 2.20 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [from, until] = [self.from, self.until].map(shown);
        write!(f, "nothing arrived from the server from {from} to {until}")?;
        self.repetition.map_or(Ok(()), |nth| write!(f, " of repetition {nth}"))
    }
}

/// The longest silence of a cell, if it has one that is no part of how the server always answers.
pub(super) fn of(summary: &CellSummary, repetitions: &[&CellRecord]) -> Option<Silence> {
    let found = repetitions.iter().enumerate().filter_map(|(n, repetition)| Some((n, longest(repetition)?)));
    let (nth, silence) = found.max_by_key(|(_, silence)| silence.length())?;
    let share =
        usual_share(summary.cell.work.arrival, summary.requests.sent, silence.share_of(summary.measured));
    let usual = summary.response.quantile(share);
    let repetition = (repetitions.len() > 1).then_some(nth as u32 + 1);
    (silence.length() >= SHORTEST.max(usual * TIMES_P99)).then_some(Silence { repetition, ..silence })
}

/// The warning about it.
pub(super) fn warning(summary: &CellSummary) -> Option<String> {
    let silence = summary.silence?;
    Some(match summary.cell.work.arrival {
        Arrival::Closed { concurrency } => {
            let sent = summary.requests.sent;
            format!(
                "{silence}: a closed loop hides it, only {} of {} waited; --rate sends on while the server pauses",
                count(waiting(concurrency, sent)),
                plural(sent, "request")
            )
        }
        _ => format!("{silence}, while requests waited for it: that is no lack of connections"),
    })
}

/// How many requests of a closed loop wait at a time.
fn waiting(concurrency: u32, sent: u64) -> u64 {
    u64::from(concurrency).min(sent)
}

/// The p99 of the requests that did not wait in a silence, as a share of all: of few requests those that did are more than one in a
/// hundred. `silent` is the share of the time in which an open loop has as many of its requests.
fn usual_share(arrival: Arrival, sent: u64, silent: f64) -> f64 {
    let waited = match arrival {
        Arrival::Closed { concurrency } => waiting(concurrency, sent) as f64 / sent.max(1) as f64,
        _ => silent.min(1.0),
    };
    0.99 * (1.0 - waited)
}

/// That a server stopped answering: nothing of it arrived from some time to the end, nor while the last requests were waited for.
pub(super) fn to_the_end(repetition: &CellRecord) -> Option<String> {
    let (from, until) = window(repetition);
    let measured = until.since(from);
    let silence = longest(repetition).filter(|silence| silence.until == measured)?;
    let sent = match repetition.tallies.as_slice() {
        [] => repetition.samples.len() as u64,
        tallies => tallies.iter().map(|tally| tally.counts.requests).sum(),
    };
    let share = usual_share(repetition.cell.work.arrival, sent, silence.share_of(measured));
    let usual = RESPONSE.quantile(repetition, share);
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

/// Whether anything arrived from the server after this time, or may have: of a response that had begun and was cut nothing is known of
/// its bytes.
fn is_heard_after(repetition: &CellRecord, until: Time) -> bool {
    let of_sample = |sample: Sample| {
        let has_begun = sample.first_byte_at.happened();
        (has_begun && (sample.first_byte_at > until || !is_heard(sample.outcome)))
            || (is_heard(sample.outcome) && sample.completed_at > until)
    };
    repetition.samples.iter().any(of_sample)
        || repetition.tallies.iter().any(|tally| tally.at >= until && is_heard(tally.class.outcome))
}

/// Whether a request that ended so ended with something that arrived.
const fn is_heard(outcome: Outcome) -> bool {
    use Outcome::{Cancelled, Connect, Timeout, Unanswered, Unfinished};
    !matches!(outcome, Cancelled | Connect | Timeout | Unanswered | Unfinished)
}

/// In seconds, to a hundredth.
fn shown(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// The longest silence of a repetition after its first response. None where we did not run ourselves, the link lost packets, or
/// what we know is from a capture, which may have holes: then the server may have sent.
fn longest(repetition: &CellRecord) -> Option<Silence> {
    let lost = |link: &LinkSummary| link.up.dropped() + link.down.dropped() > 0;
    if repetition.is_of_packets() || repetition.link.as_ref().is_some_and(lost) {
        return None;
    }
    let silence =
        if repetition.tallies.is_empty() { of_samples(repetition) } else { of_tallies(repetition) }?;
    let paused = Duration::from_nanos(repetition.generator.longest_pause_ns);
    (paused * 2 < silence.length()).then_some(silence)
}

/// Of requests that were all kept: nothing is known of the bytes between the first and the last of a response, so that no time in which
/// one was under way counts, and none in which no request waited for an answer.
fn of_samples(repetition: &CellRecord) -> Option<Silence> {
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

/// The times between requests, in which no server has anything to answer.
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

/// Of counted requests: slices of time in which none ended with something that arrived.
fn of_tallies(repetition: &CellRecord) -> Option<Silence> {
    let slices_of = |which: fn(Outcome) -> bool| {
        let tallies = repetition.tallies.iter().filter(|tally| which(tally.class.outcome));
        let mut slices: Vec<Time> = tallies.map(|tally| tally.at).collect();
        slices.sort_unstable();
        slices.dedup();
        slices
    };
    let width = slices_of(|_| true).windows(2).map(|pair| pair[1].since(pair[0])).min()?;
    let slices = slices_of(is_heard);
    between(slices.into_iter().map(|at| (at, at + width)), window(repetition))
}

/// The longest time inside the window that lies between these, which are sorted, or behind the last of them.
fn between(busy: impl Iterator<Item = (Time, Time)>, (from, until): (Time, Time)) -> Option<Silence> {
    let mut longest: Option<Silence> = None;
    let mut heard: Option<Time> = None;
    for (begin, end) in busy.chain([(until, until)]) {
        if let Some(last) = heard {
            let of = |at: Time| at.max(from).min(until).since(from);
            let silence = Silence { from: of(last), until: of(begin), repetition: None };
            longest = longest.into_iter().chain([silence]).max_by_key(|silence| silence.length());
        }
        heard = Some(heard.map_or(end, |last| last.max(end)));
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::record::testing::{Model, cell, counted, one_repetition};
    use h2lab_model::workload::Protocol;

    /// A closed loop of which nothing arrives for so many milliseconds from one second on: what was due to arrive then arrives after it.
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

    /// A closed loop whose server stops so many milliseconds before the end, and answers what waits `later`, if ever.
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

    #[test]
    fn a_server_that_is_silent_to_the_end_has_stopped_and_one_that_answers_later_has_not() {
        let why = to_the_end(&stopped(1_500, None)).unwrap();
        assert!(why.contains(" until the end, for 1.50 s, while"), "{why}");
        assert!(to_the_end(&counted(stopped(1_500, None))).is_some());
        assert_eq!(to_the_end(&stopped(1_500, Some(Duration::from_millis(500)))), None, "a pause");
        let mut long = counted(stopped(1_500, None));
        let mut begun = Sample::due(window(&long).0, true);
        begun.first_byte_at = begun.scheduled_at;
        begun.outcome = Outcome::Unfinished;
        long.samples.push(&begun);
        assert_eq!(to_the_end(&long), None, "a long response may have been under way");
        assert_eq!(to_the_end(&stopped(500, None)), None, "too short to tell");
        assert_eq!(to_the_end(&paused(0)), None);
        let mut own = stopped(1_500, None);
        own.generator.longest_pause_ns = 1_000_000_000;
        assert_eq!(to_the_end(&own), None);
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
