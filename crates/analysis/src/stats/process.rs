//! The cost of the servers and sidecars that we started in a cell, its repetitions pooled.

use super::tallied::Tallies;
use h2lab_base::JsonSchema;
use h2lab_model::record::tally::Counts;
use h2lab_model::record::{CellRecord, ServerSummary};
use serde::{Deserialize, Serialize};

/// A process that we started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessTotals {
    /// `origin`, `haproxy` …
    pub name: String,
    /// As reported by the process.
    pub version: String,
    /// CPU time per request, in microseconds.
    pub cpu_us_per_request: f64,
    /// The most memory that was resident at any time, in bytes; null if it could not be read.
    pub rss_peak_bytes: Option<u64>,
}

impl ProcessTotals {
    /// The process that `which` selects in a repetition; `None` if there is none.
    pub(super) fn of(
        repetitions: &[&CellRecord],
        tallies: &Tallies<'_>,
        which: impl Fn(&CellRecord) -> Option<&ServerSummary>,
    ) -> Option<Self> {
        let processes: Vec<&ServerSummary> =
            repetitions.iter().filter_map(|repetition| which(repetition)).collect();
        let first = processes.first()?;
        let cpu_ns: u64 = processes.iter().map(|process| process.cpu_ns).sum();
        let sent = Counts::total(tallies.all()).sent;
        Some(Self {
            name: first.name.clone(),
            version: first.version.clone(),
            cpu_us_per_request: cpu_ns as f64 / 1e3 / sent.max(1) as f64,
            rss_peak_bytes: processes.iter().map(|process| process.rss_peak_bytes).max().filter(|&n| n > 0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::record::testing::{Model, cell, one_repetition};
    use h2lab_model::workload::Protocol;

    #[test]
    fn cpu_is_shared_by_all_requests_and_the_peak_is_the_highest() {
        let cell = cell(0, 0, Protocol::H1, 4, 0.0);
        let with = |cpu_ns, rss_peak_bytes| {
            let mut repetition = one_repetition(&cell, 0, &Model::CLEAN);
            repetition.server = Some(ServerSummary { cpu_ns, rss_peak_bytes, ..ServerSummary::default() });
            repetition
        };
        let repetitions = [with(1_000_000, 7), with(3_000_000, 5)];
        let repetitions: Vec<&CellRecord> = repetitions.iter().collect();
        let tallies = Tallies::of(&repetitions);
        let sent = Counts::total(tallies.all()).sent;
        let totals =
            ProcessTotals::of(&repetitions, &tallies, |repetition| repetition.server.as_ref()).unwrap();
        assert!((totals.cpu_us_per_request * sent as f64 - 4000.0).abs() < 1e-6);
        assert_eq!(totals.rss_peak_bytes, Some(7));
        assert_eq!(
            ProcessTotals::of(&repetitions, &tallies, |repetition| Some(
                &repetition.sidecar.as_ref()?.process
            )),
            None
        );
    }
}
