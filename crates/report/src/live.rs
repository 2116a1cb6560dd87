//! The figures of one repetition, for the progress of a run: something to read before the whole is done.

use h2lab_analysis::stats::{CellState, CellSummary, Tail};
use h2lab_model::record::CellRecord;
use h2lab_model::workload::Arrival;

use crate::format::{count, millis, rate};

/// `served 296 of 1,000/s` and, if the cell carries its load, its p50 and its tail. Nothing for bulk work, and for what
/// was not measured.
pub fn repetition_figures(repetition: &CellRecord) -> Option<String> {
    if repetition.unsupported.is_some() || repetition.bulk.is_some() {
        return None;
    }
    let summary = CellSummary::of(&[repetition]);
    // A ramp ends at other rates than its mean.
    let is_ramp = matches!(summary.cell.work.arrival, Arrival::Ramp { .. });
    let mean = if is_ramp { " on average" } else { "" };
    let (served, offered) = (rate(summary.served_rps), rate(summary.offered_rps));
    let mut words = vec![format!("served {served} of {offered}/s{mean}")];
    match summary.response.percentiles() {
        Some(p) if summary.state == CellState::Ok => {
            let (name, tail) = match summary.response.tail() {
                Tail::P99 => ("p99", p.p99),
                Tail::P95 => ("p95", p.p95),
            };
            words.push(format!("p50 {} ms, {name} {} ms", millis(p.p50), millis(tail)));
        }
        _ => words.push(summary.state.name().to_owned()),
    }
    if summary.requests.failed > 0 {
        words.push(format!("{} failed", count(summary.requests.failed)));
    }
    Some(words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fixture;

    #[test]
    fn a_cell_that_carries_its_load_has_times_and_one_that_does_not_has_none() {
        let fixture = Fixture::new();
        let figures: Vec<String> = fixture.run.repetitions.iter().filter_map(repetition_figures).collect();
        assert!(figures.iter().any(|text| text.contains("/s, p50 25.1 ms, p95 ")), "{figures:?}");
        let unstable = figures.iter().find(|text| text.contains("unstable")).unwrap();
        assert!(unstable.starts_with("served ") && !unstable.contains(" ms"), "{unstable}");
    }

    #[test]
    fn the_rate_of_a_ramp_is_an_average() {
        let mut repetition = Fixture::new().run.repetitions.swap_remove(0);
        let is_average =
            |repetition: &CellRecord| repetition_figures(repetition).unwrap().contains("/s on average, ");
        assert!(!is_average(&repetition));
        repetition.cell.work.arrival =
            Arrival::Ramp { from: 10.0, to: 50.0, over: std::time::Duration::from_secs(5), steps: 0 };
        assert!(is_average(&repetition));
    }

    #[test]
    fn what_was_not_measured_has_no_figures() {
        let mut repetition = Fixture::new().run.repetitions.swap_remove(0);
        repetition.unsupported = Some("it speaks another protocol".to_owned());
        assert_eq!(repetition_figures(&repetition), None);
    }
}
