//! HOST106: the server takes its time for each response, whatever the protocol. Only an observation of where the time
//! goes.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::host::HOST106 as META;
use crate::diagnose::{Case, Evidence, Finding, Rule, facts};
use h2lab_base::counters::INITIAL_WINDOW;
use h2lab_base::units::{measured_time, millis_f64};
use h2lab_model::Fix;
use h2lab_model::record::{CellRecord, Sample};
use h2lab_wire::trace::Facts;

/// The server must take at least this long: any server and its machine take less than that.
const LEAST: Duration = Duration::from_millis(5);
/// It must be at least this part of the median response time.
const BULK: f64 = 0.5;
/// The times over both protocols are equal if they differ by less than this part.
const ALIKE: f64 = 0.2;
/// Sending a longer request takes additional round trips, which are not time of the server.
const SHORT_REQUEST: u64 = 10_000;

/// The rule.
#[derive(Debug)]
pub(super) struct SlowHandler;

impl Rule for SlowHandler {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let cell = case.cell();
        if !cell.protocol.is_multiplexed() || cell.work.body_length() > SHORT_REQUEST {
            return Vec::new();
        }
        let own = case.repetitions.iter().map(|repetition| (repetition.record, repetition.facts()));
        let Some(work) =
            own.filter_map(|(record, facts)| least_work(record, facts)).min().filter(|work| *work >= LEAST)
        else {
            return Vec::new();
        };
        let mut times: Vec<Duration> = case.samples().map(|sample| sample.response_time()).collect();
        times.sort_unstable();
        let median = times[times.len() / 2];
        if work.as_secs_f64() < median.as_secs_f64() * BULK {
            return Vec::new();
        }
        let against = case.against.as_ref();
        let other = against.map(|against| {
            let of = |record: &&CellRecord| least_work(record, &facts::of(record));
            against.repetitions.iter().filter_map(of).min()
        });
        let is_alike = |other: Duration| other.abs_diff(work).as_secs_f64() <= ALIKE * work.as_secs_f64();
        if other.is_some_and(|other| !other.is_some_and(is_alike)) {
            return Vec::new();
        }
        // It may be another protocol at another address: the server itself, behind this proxy.
        let is_here = against.is_some_and(|against| against.repetitions[0].cell.target == cell.target);
        let both = if is_here { " over both protocols" } else { "" };
        // Of what was cancelled or ran into its timeout before, no more than it took.
        let all = times.iter().map(|time| work.min(*time)).sum();
        let finding = case.finding(&META, all, "in the server");
        vec![Finding {
            symptom: format!(
                "the server takes {} or more before each response{both}, of a median response time of {}",
                measured_time(work),
                measured_time(median)
            ),
            evidence: vec![
                Evidence::new("the quickest response began after its round trip by", millis_f64(work), "ms"),
                Evidence::new("the median response time", millis_f64(median), "ms"),
            ],
            cost: format!("{}; an observation of where the time goes: no protocol changes it", finding.cost),
            explains: Some(0.0),
            fixes: vec![Fix::new(
                "server",
                "make the handler quicker",
                "its application, or what it waits for: a database, a backend, a lock",
            )],
            confirm: "h2lab timeline shows when a response begins; a static file of the same server must begin at once".to_owned(),
            ..finding
        }]
    }
}

/// The shortest time from a request to the beginning of its response, without the round trip; `None` if either is not
/// known.
fn least_work(record: &CellRecord, facts: &Facts) -> Option<Duration> {
    let is_known = !facts.rtt.is_zero() && !record.samples.is_empty();
    let work = is_known.then(|| facts.quickest.saturating_sub(facts.rtt));
    work.filter(|work| *work > facts.rtt * 3 / 2 || !is_read_by_records(record))
}

/// Whether the first byte of each response may have arrived a round trip before our client could read it: a TLS record
/// longer than an initial congestion window is decrypted when the rest of it has arrived. In a capture the packets show
/// it.
fn is_read_by_records(record: &CellRecord) -> bool {
    let is_ours = record.generator.wall_ns > 0;
    let is_long = |sample: Sample| sample.body_bytes >= u64::from(INITIAL_WINDOW);
    is_ours && record.cell.protocol.is_tls() && record.samples.iter().all(is_long)
}
