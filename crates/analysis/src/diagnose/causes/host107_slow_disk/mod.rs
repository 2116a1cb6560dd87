//! HOST107: a server that we started waits for its disk. (That of a transfer's own end is found by `bulk`.)

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::host::HOST107 as META;
use super::host105_server_cpu::server;
use crate::diagnose::{Against, Case, Confidence, Evidence, Finding, Rule};
use h2lab_base::units::{measured_time, millis_f64};
use h2lab_model::Fix;
use h2lab_model::record::ServerSummary;

/// The server must wait for its disk for at least this part of the time: then the disk is what it lacks most.
const WAITING: f64 = 0.5;
/// Responses must take at least this long beyond their round trip, on average: else the waits hold up something else, such
/// as a log.
const LEAST: Duration = Duration::from_millis(5);

/// The rule.
#[derive(Debug)]
pub(super) struct SlowDisk;

impl Rule for SlowDisk {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let servers: Vec<&ServerSummary> = case.records().filter_map(server).collect();
        let requests = case.samples().count() as u32;
        let Some(first) = servers.first().filter(|_| requests > 0) else { return Vec::new() };
        let waiting = servers.iter().map(|server| waiting(server)).sum::<f64>() / servers.len() as f64;
        let late: Duration = case
            .repetitions
            .iter()
            .flat_map(|repetition| {
                let rtt = repetition.facts().rtt;
                repetition.record.samples.iter().map(move |sample| sample.response_time().saturating_sub(rtt))
            })
            .sum();
        if waiting < WAITING || late < LEAST * requests {
            return Vec::new();
        }
        let is_over_both = case.against.as_ref().is_some_and(waits_as_well);
        let both = if is_over_both { " over both protocols" } else { "" };
        let finding =
            case.finding(&META, late.mul_f64(waiting.min(1.0)), "in the server while it waited for its disk");
        vec![Finding {
            symptom: format!(
                "{} waited for its disk for {:.0} % of the time{both}; responses took {} beyond their round trip on average",
                first.name,
                waiting * 100.0,
                measured_time(late / requests)
            ),
            evidence: vec![
                Evidence::new("time in which the kernel kept it waiting for a disk", waiting * 100.0, "%"),
                Evidence::new("time of responses beyond their round trip", millis_f64(late), "ms"),
            ],
            // The kernel shows the wait, and neither for which disk nor for which request.
            confidence: Confidence::Inferred,
            fixes: vec![
                Fix::new(
                    "server",
                    "a faster disk, or a cache in memory",
                    "its reads and writes wait for the disk",
                ),
                Fix::new(
                    "server",
                    "reads and writes in threads of their own",
                    "one of them holds up all streams of its thread",
                ),
            ],
            confirm: case.compare("-c 1")
                + ": with its files on tmpfs, or in the page cache, responses must be quicker",
            // No protocol is at fault, and the fix is the same.
            explains: is_over_both.then_some(0.0),
            ..finding
        }]
    }
}

/// For which part of the time a server waited for its disk.
fn waiting(server: &ServerSummary) -> f64 {
    server.disk_wait_ns as f64 / server.wall_ns as f64
}

/// Whether the server waits for its disk over the other protocol too, and that protocol is no quicker.
fn waits_as_well(against: &Against<'_>) -> bool {
    let mut servers = against.repetitions.iter().filter_map(|record| server(record)).peekable();
    let is_any = servers.peek().is_some();
    !against.verdict.is_slower() && is_any && servers.all(|server| waiting(server) >= WAITING)
}
