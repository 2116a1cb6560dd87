//! From records to findings: rules with evidence and cost.
//!
//! [`run`] builds the [`Facts`](h2lab_wire::trace::Facts) of every repetition, shows each rule all repetitions of a cell at once,
//! and sorts what they find by its cost. A cause is a folder under `causes/` with its page `page.md`; if a rule recognises it,
//! with `mod.rs`, and `tests.rs` with cases on both sides of each of its thresholds.

mod case;
mod causes;
pub mod facts;
pub mod finding;
mod hop;
pub mod passive;
pub mod rule;
#[cfg(test)]
mod testing;
pub mod waits;

pub use case::{Against, Case, Repetition};
pub use causes::{CAUSES, CauseMeta, FAMILIES, Status, cause, of_limit, of_wait};
pub use finding::{Confidence, Evidence, Finding};
pub use rule::{Rule, RuleStatus};

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::stats::{CellVerdict, Conclusion, repetitions_by_cell};
use h2lab_model::record::CellRecord;
use h2lab_model::scenario::labels;

/// As [`findings`], of cells that are compared with nothing.
pub fn run(records: &[CellRecord]) -> Vec<Finding> {
    findings(records, &[])
}

/// The findings of all rules in these repetitions, the costliest of all cells first. What another finding of the same cell explains
/// (`CauseMeta::supersedes`) is left out. A cell with a verdict is compared with the baseline of that.
///
/// Of several attempts at one repetition only the last counts: the earlier ones were invalid.
pub fn findings(records: &[CellRecord], verdicts: &[CellVerdict]) -> Vec<Finding> {
    let cells = repetitions_by_cell(records);
    let labels = labels(cells.values().map(|repetitions| &repetitions[0].cell));
    let check = |(index, records): (&u32, &Vec<&CellRecord>)| {
        let verdict = verdicts.iter().find(|verdict| verdict.cell == *index);
        let against = verdict.and_then(|verdict| {
            let repetitions = cells.get(&verdict.baseline)?.clone();
            Some(Against { label: &labels[&verdict.baseline], repetitions, verdict })
        });
        of_case(&Case::new(&labels[index], records.clone(), against))
    };
    let mut findings: Vec<Finding> = cells.iter().flat_map(check).collect();
    findings.sort_by(costliest_first);
    findings
}

/// Observations, for which nothing needs to change, come last.
fn costliest_first(a: &Finding, b: &Finding) -> std::cmp::Ordering {
    let place = |finding: &Finding| (finding.is_observation(), -finding.cost_share);
    let ((of_a, a), (of_b, b)) = (place(a), place(b));
    of_a.cmp(&of_b).then(a.total_cmp(&b))
}

/// The findings of one cell, the costliest first.
fn of_case(case: &Case<'_>) -> Vec<Finding> {
    let rules = CAUSES.iter().filter_map(|cause| cause.rule());
    let mut findings: Vec<Finding> = rules.flat_map(|rule| rule.check(case)).collect();
    let explained: BTreeSet<&str> = findings
        .iter()
        .filter_map(|finding| cause(&finding.rule))
        .flat_map(|cause| cause.supersedes.iter().copied())
        .collect();
    findings.retain(|finding| !explained.contains(finding.rule.as_str()));
    findings.sort_by(costliest_first);
    // The gap takes all response times in order.
    if let Some(against) = case.against.as_ref().filter(|_| !findings.is_empty()) {
        divide(&mut findings, case, against);
    }
    findings
}

/// Divides the difference from the other cell among the findings: each explains the time that it cost, but no more than those before
/// it have left. Where the cell is known not to be slower, they are observations, and nothing needs to change.
fn divide(findings: &mut [Finding], case: &Case<'_>, against: &Against<'_>) {
    let (gap, all) = (against.gap(case).as_secs_f64(), case.response_time().as_secs_f64());
    let mut left = 1.0;
    // What a rule itself calls an observation explains no difference.
    for finding in findings.iter_mut().filter(|finding| !finding.is_observation()) {
        if against.verdict.is_no_slower() {
            finding.explains = Some(0.0);
            finding.fixes.clear();
            let much =
                if against.verdict.conclusion == Conclusion::NoDifference { "measurably " } else { "" };
            let _ = write!(
                finding.cost,
                "; an observation: {} is not {much}slower than {}",
                case.label, against.label
            );
        } else if against.verdict.is_slower() && gap > 0.0 {
            let explains = (finding.cost_share * all / gap).min(left);
            left -= explains;
            finding.explains = Some(explains);
            let percent = explains * 100.0;
            let _ = write!(finding.cost, "; that is {percent:.0} % of the difference from {}", against.label);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::Scene;
    use super::*;
    use crate::stats::{CellSummary, verdict_on};
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
    fn a_finding_says_what_part_of_the_difference_it_explains_or_that_there_is_none() {
        let mut quick = Scene::new(Protocol::H1).request(0, 0, 100, 125, 125).record();
        quick.cell.index = 1;
        let slow = Scene::with_shared_stall().record();
        let verdict = |baseline: &CellRecord, cell: &CellRecord| {
            let [baseline, cell] = [baseline, cell].map(|record| CellSummary::of(&[record]));
            verdict_on(&baseline, &cell, 1)
        };
        let explained = |conclusion: Conclusion| {
            let verdict = CellVerdict { conclusion, ..verdict(&quick, &slow) };
            findings(&[slow.clone(), quick.clone()], &[verdict]).remove(0)
        };
        // Three requests of 25, 55 and 55 ms against 25: the stalls of 30 ms are the difference; the 0.5 ms before
        // the segment would have come are not of them.
        let unstable = Conclusion::Unstable { offered_rps: 1.0, served_rps: 0.5 };
        for conclusion in [Conclusion::Slower, unstable] {
            let finding = explained(conclusion);
            assert!(finding.explains.is_some_and(|part| (0.98..=1.0).contains(&part)), "{}", finding.cost);
            assert!(finding.cost.ends_with("; that is 98 % of the difference from h1"), "{}", finding.cost);
            assert!(!finding.fixes.is_empty());
        }
        let observation = explained(Conclusion::Faster);
        assert_eq!((observation.explains, observation.fixes.len()), (Some(0.0), 0));
        assert_eq!(explained(Conclusion::Invalid).explains, None);
        let alike = |median| CellVerdict {
            conclusion: Conclusion::Faster,
            median_conclusion: median,
            ..verdict(&quick, &slow)
        };
        assert!(alike(None).is_no_slower() && alike(Some(Conclusion::Faster)).is_no_slower());
        assert!(!alike(Some(Conclusion::Slower)).is_no_slower(), "its usual request is");
    }

    #[test]
    fn repetitions_of_one_cell_make_one_finding_and_cells_are_sorted_by_cost() {
        let first = Scene::with_shared_stall().record();
        let mut again = first.clone();
        again.cell.repetition = 1;
        let mut cheap = Scene::with_shared_stall().request(1, 1, 100, 400, 600).record();
        cheap.cell.index = 7;
        let findings = run(&[cheap, first, again]);
        let found: Vec<(&str, u32)> = findings.iter().map(|f| (f.rule.as_str(), f.cell)).collect();
        assert_eq!(found, [("LOSS101", 0), ("LOSS101", 7)]);
        assert!(findings[0].cost_share > findings[1].cost_share);
    }
}
