//! FLOW102: the server's stream window is smaller than bandwidth × round trip.

#[cfg(test)]
mod tests;

use super::flow::FLOW102 as META;
use super::views::stopped::{Stopped, large_enough};
use super::views::windows::Scope;
use crate::diagnose::{Case, Finding, Rule};
use h2lab_model::settings::Knob;
use h2lab_wire::trace::Direction;

/// The smallest window that is advised: enough for 84 Mbit/s over 100 ms.
const LEAST: u64 = 1 << 20;

/// The rule.
#[derive(Debug)]
pub(super) struct UploadStreamWindow;

impl Rule for UploadStreamWindow {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let stopped = Stopped::of(case, Direction::Up, Scope::Stream, false);
        stopped.map(|stopped| finding(case, &stopped)).into_iter().collect()
    }
}

fn finding(case: &Case<'_>, stopped: &Stopped) -> Finding {
    let value = Some(large_enough(stopped.window, LEAST));
    Finding {
        symptom: format!(
            "{}, until the server gave its stream credit: the server's stream window lets {} through",
            stopped.symptom(),
            stopped.rate()
        ),
        evidence: stopped.evidence("the stream"),
        fixes: vec![case.advise(Knob::StreamWindow, value)],
        confirm: "raise the server's stream window, and run `h2lab diagnose --again latest`: uploads must become quicker, \
                  and stop no more"
            .to_owned(),
        ..case.finding(&META, stopped.time, "without credit for the stream while the client had more to send")
    }
}
