//! HOST105: the server has more to do than its CPU time allows.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::host::HOST105 as META;
use crate::diagnose::{Against, Case, Confidence, Evidence, Finding, Repetition, Rule};
use h2lab_base::units::{measured_time, millis_f64};
use h2lab_model::Fix;
use h2lab_model::record::{CellRecord, ServerSummary};

/// The CPU time that a server with one busy thread uses, together with what other programs took of it, is at least this
/// part of the time.
const BUSY: f64 = 0.9;
/// The server must have used at least this part of the time itself: it is uncertain how it would have used the time
/// that others took.
const LEAST_USED: f64 = 0.75;
/// One thread cannot use more; an excess comes from the way time is counted.
const ONE_THREAD: f64 = 1.1;
/// A server needs more CPUs if its threads were ready for this part of the time and had no CPU, beyond what other
/// programs took.
const WAITING: f64 = 0.05;
/// Waiting in the server must be at least this part of the response time: if it is less, the CPU is not the limit.
const LEAST_SHARE: f64 = 0.1;
/// In a shorter time a process is busy with its start.
const SHORTEST: Duration = Duration::from_millis(500);

/// The rule.
#[derive(Debug)]
pub(super) struct ServerCpu;

impl Rule for ServerCpu {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let seen: Vec<(&Repetition<'_>, &ServerSummary)> = case
            .repetitions
            .iter()
            .filter_map(|repetition| Some((repetition, server(repetition.record)?)))
            .collect();
        let Some((_, first)) = seen.first() else { return Vec::new() };
        let mean = |of: fn(&ServerSummary) -> u64| {
            let part =
                |(_, server): &(&Repetition<'_>, &ServerSummary)| of(server) as f64 / server.wall_ns as f64;
            seen.iter().map(part).sum::<f64>() / seen.len() as f64
        };
        let cpu = mean(|server| server.cpu_ns);
        let waiting = mean(|server| server.run_delay.waited_ns - server.run_delay.taken_ns());
        let queued: Duration = seen.iter().map(|(repetition, _)| queued(repetition)).sum();
        let finding = case.finding(&META, queued, "in the server beyond what its quickest response takes");
        let wanted = mean(wanted_ns);
        if cpu < LEAST_USED || wanted < BUSY || finding.cost_share < LEAST_SHARE {
            return Vec::new();
        }
        let is_over_both = case.against.as_ref().is_some_and(is_as_busy);
        let both = if is_over_both { " over both protocols" } else { "" };
        let one = if wanted <= ONE_THREAD { ", as much as one thread can" } else { "" };
        vec![Finding {
            symptom: format!(
                "{} used {cpu:.2} CPUs throughout{both}{one}; responses began {} later on average than the quickest",
                first.name,
                measured_time(queued / (case.samples().count() as u32).max(1))
            ),
            evidence: vec![
                Evidence::new("CPU time of the server per time", cpu, "CPUs"),
                Evidence::new("CPUs that its threads wanted beside these", waiting, "CPUs"),
                Evidence::new("the same that other programs had instead", wanted - cpu, "CPUs"),
                Evidence::new("time in it beyond its quickest response", millis_f64(queued), "ms"),
            ],
            // Whether it could use a second CPU is visible only where its threads waited for one.
            confidence: if waiting >= WAITING { Confidence::Observed } else { Confidence::Inferred },
            fixes: vec![
                Fix::new(
                    "server",
                    "more CPU time or workers, or less work per request",
                    "requests wait for its CPU",
                ),
                Fix::new(
                    "client",
                    "connections kept and spread",
                    "handshakes cost CPU; one connection is often one thread",
                ),
            ],
            confirm: case.compare("-c 1,4")
                + ": at half the load, or with twice the CPUs, responses begin at once",
            // No protocol is at fault, and the fix is the same.
            explains: is_over_both.then_some(0.0),
            ..finding
        }]
    }
}

/// The server of a repetition that lasted for long enough.
pub(super) fn server(record: &CellRecord) -> Option<&ServerSummary> {
    record.server.as_ref().filter(|server| u128::from(server.wall_ns) >= SHORTEST.as_nanos())
}

/// The CPU time of a server, including what other programs took from it.
fn wanted_ns(server: &ServerSummary) -> u64 {
    server.cpu_ns + server.run_delay.taken_ns()
}

/// Whether the server has no CPU time left over the other protocol either, and that protocol is no quicker.
fn is_as_busy(against: &Against<'_>) -> bool {
    let servers: Vec<&ServerSummary> =
        against.repetitions.iter().filter_map(|record| server(record)).collect();
    let is_busy = |server: &&ServerSummary| wanted_ns(server) as f64 >= BUSY * server.wall_ns as f64;
    !against.verdict.is_slower() && !servers.is_empty() && servers.iter().all(is_busy)
}

/// How much later than the quickest the responses of a repetition began, in sum.
fn queued(repetition: &Repetition<'_>) -> Duration {
    let quickest = repetition.facts().quickest;
    let times = repetition.record.samples.iter().filter_map(|sample| sample.time_to_first_byte());
    times.map(|time| time.saturating_sub(quickest)).sum()
}
