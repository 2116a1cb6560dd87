//! Times in which nothing arrived from a server. A closed loop hides them: it sends nothing more until it has an answer, so that one long
//! pause of the server is one slow request on each connection, however many users would have come in it (coordinated omission).

use std::time::Duration;

use super::summary::CellSummary;
use super::tallied::window;
use h2lab_base::counts::{count, plural};
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, Sample};
use h2lab_model::workload::Arrival;

/// Shorter ones are those of any loaded machine; our own generator may pause for as long (see `state.rs`).
const SHORTEST: Duration = Duration::from_millis(100);
/// A silence is longer than this many times the p99 of the requests that were not in it: a server that is always slow, or slow to one in
/// fifty, is as silent between its answers, and that is in the percentiles.
const TIMES_P99: u32 = 10;

/// A time in which no connection received anything, since measuring began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Silence {
    from: Duration,
    until: Duration,
}

impl Silence {
    fn length(self) -> Duration {
        self.until.saturating_sub(self.from)
    }
}

/// The warning about the longest silence of a closed loop, if it has one that its percentiles do not show.
pub(super) fn warning(summary: &CellSummary, repetitions: &[&CellRecord]) -> Option<String> {
    let Arrival::Closed { concurrency } = summary.cell.work.arrival else { return None };
    let found = repetitions.iter().enumerate().filter_map(|(n, repetition)| Some((n, longest(repetition)?)));
    let (nth, silence) = found.max_by_key(|(_, silence)| silence.length())?;
    let sent = summary.requests.sent;
    let waited = u64::from(concurrency).min(sent);
    // Without those that waited in it: of few requests they are more than one in a hundred.
    let others = (sent - waited) as f64 / sent.max(1) as f64;
    let usual = summary.response.quantile(0.99 * others);
    (silence.length() >= SHORTEST.max(usual * TIMES_P99)).then(|| {
        let which = if repetitions.len() > 1 { format!(" of repetition {}", nth + 1) } else { String::new() };
        let [from, until] = [silence.from, silence.until].map(shown);
        format!(
            "nothing arrived from the server from {from} to {until}{which}: a closed loop hides it, only {} of {} waited; --rate \
             sends on while the server pauses",
            count(waited),
            plural(sent, "request")
        )
    })
}

/// In seconds, to a hundredth.
fn shown(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// The longest silence of a repetition after its first response. None where we did not run ourselves, or the link lost packets: then the
/// server may have sent.
fn longest(repetition: &CellRecord) -> Option<Silence> {
    if repetition.link.as_ref().is_some_and(|link| link.up.dropped() + link.down.dropped() > 0) {
        return None;
    }
    let silence =
        if repetition.tallies.is_empty() { of_samples(repetition) } else { of_tallies(repetition) }?;
    let paused = Duration::from_nanos(repetition.generator.longest_pause_ns);
    (paused * 2 < silence.length()).then_some(silence)
}

/// Of requests that were all kept: nothing is known of the bytes between the first and the last of a response, so that no time in which
/// one was under way counts.
fn of_samples(repetition: &CellRecord) -> Option<Silence> {
    let mut busy: Vec<(Time, Time)> = repetition
        .samples
        .iter()
        .filter(|sample: &Sample| sample.first_byte_at.happened())
        .map(|sample| (sample.first_byte_at, sample.completed_at.max(sample.first_byte_at)))
        .collect();
    busy.sort_unstable();
    between(busy.into_iter(), window(repetition))
}

/// Of counted requests: slices of time in which none ended, however they did.
fn of_tallies(repetition: &CellRecord) -> Option<Silence> {
    let mut slices: Vec<Time> = repetition.tallies.iter().map(|tally| tally.at).collect();
    slices.sort_unstable();
    slices.dedup();
    let width = slices.windows(2).map(|pair| pair[1].since(pair[0])).min()?;
    between(slices.into_iter().map(|at| (at, at + width)), window(repetition))
}

/// The longest time inside the window that lies between these, which are sorted, or behind the last of them.
fn between(busy: impl Iterator<Item = (Time, Time)>, (from, until): (Time, Time)) -> Option<Silence> {
    let mut longest: Option<Silence> = None;
    let mut heard: Option<Time> = None;
    for (begin, end) in busy.chain([(until, until)]) {
        if let Some(last) = heard {
            let of = |at: Time| at.max(from).min(until).since(from);
            let silence = Silence { from: of(last), until: of(begin) };
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
    fn an_open_loop_shows_a_pause_by_itself() {
        let mut open = paused(1_000);
        open.cell.work.arrival = Arrival::Constant { rate: 1000.0 };
        assert_eq!(said(&open), None);
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
