//! MUX105: the server processes the requests of a connection one after another.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use super::mux::MUX105 as META;
use super::views::{mean, more_connections};
use crate::diagnose::{Case, Confidence, Evidence, Finding, Repetition, Rule};
use h2lab_base::counts::plural;
use h2lab_base::units::{Bandwidth, measured_time, millis_f64};
use h2lab_model::record::{CellRecord, Sample};
use h2lab_model::settings::Knob;

/// A work time below this may be CPU time and the scheduling of our own processes.
const LEAST_WORK: Duration = Duration::from_millis(5);
/// What the scheduling of processes may add between two answers.
const JITTER: Duration = Duration::from_millis(3);
/// Fewer requests that were at the server together with another may be chance.
const LEAST_PAIRS: usize = 20;
/// This share of them must have been answered one work time after the one before.
const REGULAR: f64 = 0.9;
/// Share of one CPU: a server that uses more may have no time for another request.
const BUSY: f64 = 0.5;
/// Bits per second of a path on which the bytes of a request would take the time instead.
const SLOW_PATH: u64 = 10_000_000;
/// Bytes of heads and frames around a request and its answer, at most.
const HEADS: u64 = 1_000;
/// How many connections are advised.
const MANY: u32 = 8;

/// The rule.
#[derive(Debug)]
pub(super) struct SerialProcessing;

impl Rule for SerialProcessing {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        // If HTTP/1.1 is no faster, the connection is not what makes the server process requests one after another.
        let is_own = case.against.as_ref().is_none_or(|against| against.verdict.is_slower());
        if !is_own || case.records().any(is_busy) {
            return Vec::new();
        }
        // If the server is busy from its first request on, a repetition does not show how long one request takes alone:
        // the least time of all repetitions counts.
        let Some(work) = case.repetitions.iter().filter_map(work).min() else { return Vec::new() };
        let lines: Vec<Line> =
            case.repetitions.iter().filter_map(|repetition| Line::of(repetition, work)).collect();
        let line = Line::joined(&lines);
        let is_line = line.pairs >= LEAST_PAIRS && line.regular as f64 >= REGULAR * line.pairs as f64;
        let is_it = is_line && case.is_worth_time(line.waited);
        is_it.then(|| finding(case, &line)).into_iter().collect()
    }
}

/// Whether the server's CPU may be what requests wait for.
fn is_busy(record: &CellRecord) -> bool {
    let server = record.server.as_ref().filter(|server| server.wall_ns > 0);
    server.is_some_and(|server| server.cpu_ns as f64 > BUSY * server.wall_ns as f64)
}

/// The successes of a repetition.
fn answered<'a>(repetition: &Repetition<'a>) -> impl Iterator<Item = Sample> + use<'a> {
    repetition.record.samples.iter().filter(|sample: &Sample| sample.outcome.is_success())
}

/// The server's time for the quickest request of a repetition: its work time.
fn work(repetition: &Repetition<'_>) -> Option<Duration> {
    let quickest = answered(repetition).filter_map(|sample| sample.time_to_first_byte()).min()?;
    Some(quickest.saturating_sub(repetition.facts().rtt))
}

/// How the answers of connections followed each other.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    /// The server's time for the quickest request.
    work: Duration,
    /// Requests that had reached the server before the one answered last.
    pairs: usize,
    /// Those of them that were answered one work time after that.
    regular: usize,
    /// The sum of the times between the two answers.
    spacing: Duration,
    /// How much longer these requests took than the quickest.
    waited: Duration,
}

impl Line {
    /// The line of a repetition; `None` if requests need too little work, or if their bytes may take as long.
    fn of(repetition: &Repetition<'_>, work: Duration) -> Option<Self> {
        let rtt = repetition.facts().rtt;
        let quickest = answered(repetition).map(|sample| sample.service_time()).min()?;
        if work < LEAST_WORK || takes_the_path(repetition.record, work) {
            return None;
        }
        let mut line = Self { work, ..Self::default() };
        let mut connections: BTreeMap<u32, Vec<Sample>> = BTreeMap::new();
        for sample in answered(repetition) {
            connections.entry(sample.connection).or_default().push(sample);
        }
        for samples in connections.values_mut() {
            samples.sort_unstable_by_key(|sample| sample.completed_at);
            for pair in samples.windows(2) {
                // Both were at the server when it answered the first.
                if pair[1].sent_at + rtt < pair[0].completed_at {
                    line.add(
                        pair[1].completed_at.since(pair[0].completed_at),
                        pair[1].service_time().saturating_sub(quickest),
                    );
                }
            }
        }
        Some(line)
    }

    fn add(&mut self, spacing: Duration, waited: Duration) {
        let expected = self.work * 3 / 4..=self.work * 3 / 2 + JITTER;
        self.pairs += 1;
        self.regular += usize::from(expected.contains(&spacing));
        self.spacing += spacing;
        self.waited += waited;
    }

    fn joined(each: &[Self]) -> Self {
        Self {
            work: each.iter().map(|line| line.work).min().unwrap_or_default(),
            pairs: each.iter().map(|line| line.pairs).sum(),
            regular: each.iter().map(|line| line.regular).sum(),
            spacing: each.iter().map(|line| line.spacing).sum(),
            waited: each.iter().map(|line| line.waited).sum(),
        }
    }

    /// The time between two answers that followed one another, on average.
    fn each(&self) -> Duration {
        mean(self.spacing, self.pairs as u64)
    }

    fn evidence(&self) -> Vec<Evidence> {
        Evidence::list([
            ("the server's time for the quickest request", millis_f64(self.work), "ms"),
            ("requests that were at the server together with one before", self.pairs as f64, "requests"),
            ("of these, answered one such time after that one", self.regular as f64, "requests"),
            ("time between two such answers, on average", millis_f64(self.each()), "ms"),
        ])
    }
}

/// Whether the bytes of the longest request and answer may take a quarter of the work time or more.
fn takes_the_path(record: &CellRecord, work: Duration) -> bool {
    let answer = record.samples.iter().map(|sample| sample.body_bytes).max().unwrap_or(0);
    let bytes = answer + record.cell.work.body_length() + HEADS;
    let narrowest = record.cell.link.as_ref().map_or(SLOW_PATH, |link| {
        let rates = [link.uplink.bandwidth, link.downlink.bandwidth];
        rates.into_iter().flatten().map(Bandwidth::bits_per_second).min().unwrap_or(SLOW_PATH).min(SLOW_PATH)
    });
    bytes as f64 * 8.0 / narrowest as f64 > work.as_secs_f64() / 4.0
}

fn finding(case: &Case<'_>, line: &Line) -> Finding {
    Finding {
        symptom: format!(
            "{} at the server together with another of their connection were answered one after the other, {} apart: as long as \
             one takes alone",
            plural(line.pairs as u64, "request"),
            measured_time(line.each()),
        ),
        evidence: line.evidence(),
        confidence: Confidence::Inferred,
        fixes: vec![
            case.advise(Knob::Workers, None),
            more_connections(
                Some(MANY.into()),
                "if each connection has a worker of its own, they are processed at the same time",
            ),
        ],
        confirm: format!(
            "{}: with more connections all take the time of one",
            case.compare(&format!("-c {},{MANY}", case.cell().connections))
        ),
        ..case.finding(&META, line.waited, "waiting for other requests of the connection at the server")
    }
}
