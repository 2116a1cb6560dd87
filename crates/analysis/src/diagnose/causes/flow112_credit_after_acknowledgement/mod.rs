//! FLOW112: the client returns credit long after the data arrived, since it reads slowly.
//!
//! For request bodies the client cannot distinguish a server that did not read from data that was still in flight.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::flow::FLOW112 as META;
use super::views::stopped::LEAST_STOPS;
use super::views::windows::Stop;
use crate::diagnose::{Case, Confidence, Evidence, Finding, Repetition, Rule};
use h2lab_base::units::{format_bytes, measured_time, millis_f64};
use h2lab_model::Fix;
use h2lab_wire::trace::Direction;

/// The rule.
#[derive(Debug)]
pub(super) struct CreditAfterReading;

impl Rule for CreditAfterReading {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        finding(case).into_iter().collect()
    }
}

fn finding(case: &Case<'_>) -> Option<Finding> {
    let rtt = case.repetitions.iter().map(|repetition| repetition.facts().rtt).max()?;
    let all = case.repetitions.iter().flat_map(Repetition::stops);
    let all: Vec<&Stop> = all.filter(|stop| stop.direction == Direction::Down).collect();
    // A stop in which credit was held for less would last a round trip anyway: a larger window shortens it more than
    // faster reading.
    let held: Vec<&Stop> =
        all.iter().copied().filter(|stop| stop.is_prompt && stop.is_read_slowly(rtt)).collect();
    let cost: Duration = held.iter().map(|stop| stop.held.min(stop.duration())).sum();
    if held.len() < LEAST_STOPS || held.len() * 2 <= all.len() || !case.is_worth_time(cost) {
        return None;
    }
    let longest = held.iter().max_by_key(|stop| stop.held)?;
    let mean =
        held.iter().map(|stop| stop.held).sum::<Duration>() / u32::try_from(held.len()).unwrap_or(u32::MAX);
    Some(Finding {
        symptom: format!(
            "{} times a response stopped until the client, which had had its data for {} on average, returned their credit: the client \
             reads slowly, and no window changes that (the round trip is {})",
            held.len(),
            measured_time(mean),
            measured_time(rtt)
        ),
        evidence: vec![
            Evidence::new("times the client held the credit of a response back", held.len() as f64, "stops"),
            Evidence::new("from the data to their credit, on average", millis_f64(mean), "ms"),
            Evidence::new("round trip of the path", millis_f64(rtt), "ms"),
            Evidence::new(
                &format!("the longest, of stream {}", longest.stream),
                millis_f64(longest.held),
                "ms",
            )
            .seen(longest.connection, longest.begin),
            Evidence::new("bytes of the window", longest.window as f64, "bytes"),
        ],
        // That the application had not read is concluded from the missing credit.
        confidence: Confidence::Inferred,
        fixes: vec![Fix::new(
            "client",
            "read responses as they come, and do the work on them elsewhere",
            format!(
                "a window larger than {} makes the client hold more that it has not read, and the response no quicker",
                format_bytes(longest.window)
            ),
        )],
        confirm: "let the client discard what it reads: the stops must become as short as a round trip"
            .to_owned(),
        ..case.finding(&META, cost, "without credit for data that the client had and had not read")
    })
}
