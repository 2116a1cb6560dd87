//! From records to findings: rules with evidence and cost.
//!
//! [`run`] builds the [`Facts`](h2lab_wire::trace::Facts) of every repetition, shows each rule all repetitions of a cell at once,
//! and sorts what they find by its cost. A rule is a folder under `rules/`: `mod.rs`, its page `doc.md`, and `tests.rs`
//! with cases on both sides of each of its thresholds.

pub mod facts;
pub mod finding;
pub mod rule;
mod rules;
#[cfg(test)]
mod testing;
pub mod waits;

pub use finding::{Confidence, Evidence, Finding};
pub use rule::{Repetition, Rule, RuleMeta, RuleStatus};
pub use rules::RULES;

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
        RULES.iter().filter_map(|rule| rule.check(&repetitions)).collect::<Vec<Finding>>()
    };
    let mut findings: Vec<Finding> = cells.into_iter().flat_map(check).collect();
    findings.sort_by(|a, b| b.cost_share.total_cmp(&a.cost_share));
    findings
}

/// The rule with this id, for its page.
pub fn explain(id: &str) -> Option<&'static RuleMeta> {
    RULES.iter().map(|rule| rule.meta()).find(|meta| meta.id == id)
}

#[cfg(test)]
mod tests {
    use super::testing::Scene;
    use super::*;
    use h2lab_model::workload::Protocol;

    /// The headings of every rule's page, in this order.
    const HEADINGS: [&str; 6] =
        ["What it is", "Why it is slower than HTTP/1.1", "Evidence", "Confirm", "Fix", "References"];

    #[test]
    fn rules_are_listed_once_each_in_the_order_of_their_ids() {
        assert!(RULES.is_sorted_by(|a, b| a.meta().id < b.meta().id));
        for rule in RULES {
            assert_eq!(explain(rule.meta().id), Some(rule.meta()));
        }
        for check in h2lab_model::probe::CHECKS {
            assert_eq!(explain(check.id), None, "rules and checks share `h2lab explain`");
        }
        assert_eq!(explain("LOSS999"), None);
    }

    #[test]
    fn every_page_has_the_fixed_headings_in_order() {
        for rule in RULES {
            let meta = rule.meta();
            assert!(meta.doc.starts_with(&format!("# {}: ", meta.id)), "{}", meta.id);
            let headings: Vec<&str> = meta.doc.lines().filter_map(|line| line.strip_prefix("## ")).collect();
            assert_eq!(headings, HEADINGS, "{}", meta.id);
        }
    }

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
