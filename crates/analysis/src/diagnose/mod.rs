//! From records to findings: rules with evidence and cost.
//!
//! [`run`] builds the [`Facts`](h2lab_wire::trace::Facts) of every repetition, shows each rule all repetitions of a cell at once,
//! and sorts what they find by its cost. A cause is a folder under `causes/` with its page `page.md`; if a rule recognises it,
//! with `mod.rs`, and `tests.rs` with cases on both sides of each of its thresholds.

mod causes;
pub mod facts;
pub mod finding;
pub mod rule;
#[cfg(test)]
mod testing;
pub mod waits;

pub use causes::{CAUSES, CauseMeta, FAMILIES, Status, cause, of_limit, of_wait};
pub use finding::{Confidence, Evidence, Finding};
pub use rule::{Repetition, Rule, RuleStatus};

use crate::stats::repetitions_by_cell;
use h2lab_model::record::CellRecord;
use h2lab_model::scenario::labels;

/// The findings of all rules in these repetitions: one finding per rule and cell, the costliest first.
///
/// Of several attempts at one repetition only the last counts: the earlier ones were invalid.
pub fn run(records: &[CellRecord]) -> Vec<Finding> {
    let cells = repetitions_by_cell(records);
    let labels = labels(cells.values().map(|repetitions| &repetitions[0].cell));
    let check = |(index, records): (u32, Vec<&CellRecord>)| {
        let measured = |record| Repetition { facts: facts::of(record), record, label: &labels[&index] };
        let repetitions: Vec<Repetition<'_>> = records.into_iter().map(measured).collect();
        let rules = CAUSES.iter().filter_map(|cause| cause.rule());
        rules.filter_map(|rule| rule.check(&repetitions)).collect::<Vec<Finding>>()
    };
    let mut findings: Vec<Finding> = cells.into_iter().flat_map(check).collect();
    findings.sort_by(|a, b| b.cost_share.total_cmp(&a.cost_share));
    findings
}

#[cfg(test)]
mod tests {
    use super::testing::Scene;
    use super::*;
    use h2lab_model::workload::Protocol;

    #[test]
    fn only_the_last_attempt_at_a_repetition_counts() {
        let lossy = Scene::with_shared_stall().record();
        let mut clean = Scene::new(Protocol::H2c).record();
        assert_eq!(run(std::slice::from_ref(&lossy)).len(), 1);
        clean.attempt = 1;
        assert_eq!(run(&[lossy.clone(), clean.clone()]), []);
        assert_eq!(run(&[clean, lossy]), [], "whatever their order");
    }

    #[test]
    fn a_finding_calls_its_cell_as_the_tables_do() {
        let first = Scene::with_shared_stall().record();
        let mut second = first.clone();
        (second.cell.index, second.cell.streams) = (1, first.cell.streams + 1);
        let labels: Vec<String> = run(&[first, second]).into_iter().map(|finding| finding.label).collect();
        assert_eq!(labels, ["h2c × 1 × 100 streams", "h2c × 1 × 101 streams"]);
    }

    #[test]
    fn repetitions_of_one_cell_make_one_finding_and_cells_are_sorted_by_cost() {
        let first = Scene::with_shared_stall().record();
        let mut again = first.clone();
        again.cell.repetition = 1;
        let mut cheap = Scene::with_shared_stall().request(1, 1, 100, 3_000, 5_000).record();
        cheap.cell.index = 7;
        let findings = run(&[cheap, first, again]);
        let found: Vec<(&str, u32)> = findings.iter().map(|f| (f.rule.as_str(), f.cell)).collect();
        assert_eq!(found, [("LOSS101", 0), ("LOSS101", 7)]);
        assert!(findings[0].cost_share > findings[1].cost_share);
    }
}
