//! HOST102: the load generator is the limit, so that it measures itself.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::host::HOST102 as META;
use super::views::effort::generator;
use crate::diagnose::{Case, Evidence, Finding, Rule};
use h2lab_base::units::{measured_time, millis_f64};
use h2lab_model::Fix;
use h2lab_model::record::{CellRecord, Sample};
use h2lab_model::workload::Arrival;

/// A thread that works for at least this part of the time is the limit.
const BUSY: f64 = 0.9;
/// In a shorter time a thread is busy from the first to the last request, which proves nothing.
const SHORTEST: Duration = Duration::from_millis(500);

/// The rule.
#[derive(Debug)]
pub(super) struct LoadGenerator;

impl Rule for LoadGenerator {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let measured: Vec<&CellRecord> = case.records().filter(|record| is_long(record)).collect();
        let busy: Vec<f64> = measured.iter().map(|record| generator(record)).collect();
        let mean = busy.iter().sum::<f64>() / busy.len().max(1) as f64;
        let late: Duration = case.samples().filter_map(|sample: Sample| sample.lateness()).sum();
        let finding = case.finding(&META, late, "before the generator sent requests that were due");
        let is_closed = matches!(case.cell().work.arrival, Arrival::Closed { .. });
        // A closed loop has no due times: it is only known that the generator never waited.
        let share = if is_closed { mean } else { finding.cost_share };
        if mean < BUSY || !case.is_worth(share) {
            return Vec::new();
        }
        let threads = case.records().map(|record| record.generator.threads).max().unwrap_or(1).max(1);
        let cost = if is_closed {
            format!(
                "the generator had work for {:.0} % of the time, and served no more than it could",
                mean * 100.0
            )
        } else {
            finding.cost.clone()
        };
        vec![Finding {
            symptom: format!(
                "the load generator's busiest thread worked {:.0} % of the time, of {threads}: it is the limit, not the server",
                mean * 100.0
            ),
            evidence: vec![
                Evidence::new("part of the time in which the busiest thread worked", mean * 100.0, "%"),
                Evidence::new("threads of the generator", threads.into(), "threads"),
                Evidence::new("lateness of all requests", millis_f64(late), "ms"),
            ],
            cost,
            cost_share: share,
            fixes: vec![Fix::new(
                "generator",
                &format!("more threads (h2lab load -t {}), or less load", threads * 2),
                "each thread has its own connections; the machine needs a free CPU for each",
            )],
            confirm: format!(
                "h2lab load with -t {} against -t {threads}: the rate must rise, and the lateness of {} fall",
                threads * 2,
                measured_time(late)
            ),
            ..finding
        }]
    }
}

/// Whether a repetition lasts long enough, and is not bulk work, which has no due times.
fn is_long(record: &CellRecord) -> bool {
    record.bulk.is_none() && u128::from(record.generator.wall_ns) >= SHORTEST.as_nanos()
}
