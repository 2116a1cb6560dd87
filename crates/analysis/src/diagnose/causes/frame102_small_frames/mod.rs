//! FRAME102: many short DATA frames where the CPU is the limit.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::frame::FRAME102 as META;
use super::views::effort::{Sent, observation, of_both_ways};
use crate::diagnose::{Case, Confidence, Evidence, Finding, Rule};
use h2lab_base::counts::count;
use h2lab_model::Fix;
use h2lab_model::settings::Knob;
use h2lab_wire::trace::Direction;

/// The length of frames that every receiver accepts (RFC 9113 §4.2), in bytes.
const USUAL: f64 = 16_384.0;
/// A sender whose frames have at least this length on average uses what is allowed: a fast transfer in frames of the
/// usual length is healthy.
const SHORT: f64 = 0.9 * USUAL;
/// Fewer frames per second are negligible work for a CPU.
const RATE: f64 = 10_000.0;
/// With longer frames, a body of at most this many frames would have hardly fewer.
const FRAMES: u64 = 4;

/// The rule.
#[derive(Debug)]
pub(super) struct SmallFrames;

impl Rule for SmallFrames {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        of_both_ways(case, |data, sent, end| finding(case, data, sent, end))
    }
}

fn finding(case: &Case<'_>, data: Direction, sent: &Sent, end: &(String, f64)) -> Option<Finding> {
    let seconds =
        Duration::from_nanos(case.records().map(|record| record.generator.wall_ns).sum()).as_secs_f64();
    let rate = sent.data as f64 / seconds.max(f64::MIN_POSITIVE);
    let length = sent.bytes as f64 / sent.data.max(1) as f64;
    let is_it = rate >= RATE && length < SHORT && sent.data >= FRAMES * sent.requests.max(1);
    if !is_it {
        return None;
    }
    let who = if data == Direction::Down { "the server" } else { "our client" };
    let observation =
        observation(case, &META, &format!("{} DATA frames per second", count(rate as u64)), end);
    let mut evidence = vec![
        Evidence::new(&format!("DATA frames of {who}"), sent.data as f64, "frames"),
        Evidence::new("frames per second", rate, "1/s"),
        Evidence::new("bytes of a frame, on average", length, "bytes"),
    ];
    evidence.extend(observation.evidence.clone());
    Some(Finding {
        symptom: format!(
            "{who} sent {} DATA frames of {} bytes, {} per second: each has a header, and is handled by itself",
            count(sent.data),
            count(length as u64),
            count(rate as u64)
        ),
        evidence,
        confidence: Confidence::Observed,
        fixes: vec![fix(case, data)],
        confirm: case.compare("").trim_end().to_owned()
            + ", before and after the change: with longer frames both ends must use less CPU time for each byte",
        ..observation
    })
}

/// The sender makes frames longer: every receiver accepts that.
fn fix(case: &Case<'_>, data: Direction) -> Fix {
    match data {
        Direction::Down => case.advise(Knob::WriteSize, Some(USUAL as u64)),
        Direction::Up => Fix::new(
            "client",
            "frames of 16 KiB, larger writes",
            "the server accepts them, as every receiver must",
        ),
    }
}
