//! FLOW103: the connection window is used up while the streams have credit.

#[cfg(test)]
mod tests;

use super::flow::FLOW103 as META;
use super::flow101_download_stream_window::fix;
use super::views::stopped::{Stopped, large_enough};
use super::views::windows::Scope;
use crate::diagnose::{Case, Confidence, Finding, Rule};
use h2lab_model::settings::Knob;
use h2lab_wire::trace::Direction;

/// The smallest window that is advised: enough for 320 Mbit/s over 100 ms.
const LEAST: u64 = 4 << 20;

/// The rule.
#[derive(Debug)]
pub(super) struct ConnectionWindow;

impl Rule for ConnectionWindow {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        [Direction::Down, Direction::Up]
            .into_iter()
            .filter_map(|data| Some(finding(case, data, &Stopped::of(case, data, Scope::Connection, false)?)))
            .collect()
    }
}

fn finding(case: &Case<'_>, data: Direction, stopped: &Stopped) -> Finding {
    let large = large_enough(stopped.window, LEAST);
    let front = case.advise(Knob::ConnectionWindow, Some(large));
    let (receiver, confidence, fix, confirm) = match data {
        Direction::Down => {
            let confirm = case.compare(&format!("-W {large}"));
            ("client", Confidence::Inferred, fix(Knob::ConnectionWindow, large), confirm)
        }
        Direction::Up => ("server", Confidence::Observed, front, case.compare("-c 1,4")),
    };
    Finding {
        symptom: format!(
            "{}, although its stream had credit: the {receiver}'s connection window lets all streams together have {}",
            stopped.symptom(),
            stopped.rate()
        ),
        evidence: stopped.evidence("the connection"),
        confidence,
        fixes: vec![fix],
        confirm: format!(
            "{confirm}: the stops must become fewer with a larger connection window, or with more connections"
        ),
        ..case.finding(
            &META,
            stopped.time,
            "without credit for the connection while streams had credit and data",
        )
    }
}
