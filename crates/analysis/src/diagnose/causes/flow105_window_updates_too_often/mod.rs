//! FLOW105: credit comes for every one or two DATA frames.

#[cfg(test)]
mod tests;

use super::flow::FLOW105 as META;
use super::views::effort::{Sent, observation, of_both_ways};
use crate::diagnose::{Case, Confidence, Evidence, Finding, Rule};
use h2lab_base::counts::count;
use h2lab_model::Fix;
use h2lab_wire::trace::Direction;

/// Fewer WINDOW_UPDATEs may belong to small bodies, and cost nothing.
const LEAST: u64 = 1_000;
/// More than this many for each DATA frame are too many: a receiver that waits for half of its window sends one for
/// several dozen.
const RATIO: f64 = 0.5;

/// The rule.
#[derive(Debug)]
pub(super) struct WindowUpdatesTooOften;

impl Rule for WindowUpdatesTooOften {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        of_both_ways(case, |data, sent, end| finding(case, data, sent, end))
    }
}

fn finding(case: &Case<'_>, data: Direction, sent: &Sent, end: &(String, f64)) -> Option<Finding> {
    let ratio = sent.credits as f64 / sent.data.max(1) as f64;
    if sent.credits < LEAST || ratio <= RATIO {
        return None;
    }
    let later = "credit when half of the window is used";
    let (who, fix) = match data {
        Direction::Down => (
            "our client",
            Fix::new(
                "client",
                &format!("{later} (ours: without --window-update-bytes)"),
                "fewer frames at both ends",
            ),
        ),
        Direction::Up => ("the server", Fix::new("server", later, "fewer frames at both ends")),
    };
    let observation =
        observation(case, &META, &format!("{} frames more to make, send and read", count(sent.credits)), end);
    let mut evidence = vec![
        Evidence::new(&format!("WINDOW_UPDATE frames of {who}"), sent.credits as f64, "frames"),
        Evidence::new("DATA frames that they are for", sent.data as f64, "frames"),
    ];
    evidence.extend(observation.evidence.clone());
    Some(Finding {
        symptom: format!(
            "{who} sent {} WINDOW_UPDATEs for {} DATA frames: {ratio:.1} for each",
            count(sent.credits),
            count(sent.data)
        ),
        evidence,
        confidence: Confidence::Observed,
        fixes: vec![fix],
        confirm: case.compare("--window-update-threshold 50")
            + ": both ends must use less CPU time for each byte",
        ..observation
    })
}
