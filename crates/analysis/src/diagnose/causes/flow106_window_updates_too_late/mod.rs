//! FLOW106: credit comes when the window is used up, although the window is large enough for the path.

#[cfg(test)]
mod tests;

use super::flow::FLOW106 as META;
use super::views::stopped::Stopped;
use super::views::windows::Scope;
use crate::diagnose::{Case, Confidence, Finding, Rule};
use h2lab_base::units::format_bytes;
use h2lab_model::Fix;
use h2lab_wire::trace::Direction;

/// The rule.
#[derive(Debug)]
pub(super) struct WindowUpdatesTooLate;

impl Rule for WindowUpdatesTooLate {
    // For an upload it is not visible for how long data flowed: the client's socket accepts a whole window at once.
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let of = |scope| Stopped::of(case, Direction::Down, scope, true);
        let stopped = of(Scope::Stream).or_else(|| of(Scope::Connection));
        stopped.map(|stopped| finding(case, &stopped)).into_iter().collect()
    }
}

fn finding(case: &Case<'_>, stopped: &Stopped) -> Finding {
    Finding {
        symptom: format!(
            "{}, each time after data had flowed for a round trip or longer: the client returns credit when its window of {} is \
             used up",
            stopped.symptom(),
            format_bytes(stopped.window)
        ),
        evidence: stopped.evidence("the window"),
        confidence: Confidence::Inferred,
        fixes: vec![Fix::new(
            "client",
            "return credit at half of the window (ours: --window-update-threshold 50)",
            "data must still flow when the update arrives: RFC 9113 §5.2.3 asks for a timely WINDOW_UPDATE",
        )],
        confirm: case.compare("--window-update-threshold 50") + ": the stops must go",
        ..case.finding(&META, stopped.time, "without credit that could have come a round trip earlier")
    }
}
