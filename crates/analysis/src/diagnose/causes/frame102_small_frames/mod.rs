//! FRAME102: many short DATA frames where the CPU is the limit.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::frame::FRAME102 as META;
use super::views::effort::{Sent, busy_end, observation};
use crate::diagnose::{Case, Confidence, Evidence, Finding, Rule};
use h2lab_base::counts::count;
use h2lab_model::Fix;
use h2lab_model::settings::{Knob, Role, Wish, advise};
use h2lab_wire::trace::Direction;

/// The length of frames that every receiver accepts (RFC 9113 §4.2), in bytes.
const USUAL: f64 = 16_384.0;
/// A sender whose frames are shorter than this on average does not make use of that.
const SHORT: f64 = 0.9 * USUAL;
/// Fewer frames in a second are no work for a CPU.
const RATE: f64 = 10_000.0;
/// A body that is no longer than so many frames would have hardly fewer of another length.
const FRAMES: u64 = 4;

/// The rule.
#[derive(Debug)]
pub(super) struct SmallFrames;

impl Rule for SmallFrames {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let Some(end) = busy_end(case) else { return Vec::new() };
        let ways = [Direction::Down, Direction::Up].into_iter();
        ways.filter_map(|way| finding(case, way, &end)).collect()
    }
}

fn finding(case: &Case<'_>, data: Direction, end: &(String, f64)) -> Option<Finding> {
    let sent = Sent::of(case, data);
    let seconds =
        Duration::from_nanos(case.records().map(|record| record.generator.wall_ns).sum()).as_secs_f64();
    let rate = sent.data as f64 / seconds.max(f64::MIN_POSITIVE);
    let length = sent.bytes as f64 / sent.data.max(1) as f64;
    // With its header a frame of 16 KiB is a little longer.
    let is_it = rate >= RATE && length <= USUAL + 16.0 && sent.data >= FRAMES * sent.requests.max(1);
    if !is_it {
        return None;
    }
    let who = if data == Direction::Down { "the server" } else { "our client" };
    let observation = observation(case, &META, &format!("{rate:.0} DATA frames per second"), end);
    let mut evidence = vec![
        Evidence::new(&format!("DATA frames of {who}"), sent.data as f64, "frames"),
        Evidence::new("frames per second", rate, "1/s"),
        Evidence::new("bytes of a frame, on average", length, "bytes"),
    ];
    evidence.extend(observation.evidence.clone());
    Some(Finding {
        symptom: format!(
            "{who} sent {} DATA frames of {length:.0} bytes, {rate:.0} per second: each has a header, and is handled by itself",
            count(sent.data)
        ),
        evidence,
        confidence: Confidence::Observed,
        fixes: vec![fix(case, data, length)],
        confirm: case.compare("-f 16k,64k")
            + ": with longer frames both ends must use less CPU time for each byte",
        ..observation
    })
}

/// What makes frames longer: the receiver's bound, or the sender if its frames do not reach that of every receiver.
fn fix(case: &Case<'_>, data: Direction, length: f64) -> Fix {
    let wish = |knob, value| Wish { knob, role: Role::Front, value: Some(value) };
    match data {
        Direction::Down if length < SHORT => advise(&case.peer(), wish(Knob::WriteSize, USUAL as u64)),
        Direction::Down => {
            Fix::new("client", "longer frames accepted (ours: -f 64k)", "the server may fill them")
        }
        Direction::Up => advise(&case.peer(), wish(Knob::MaxFrameSize, 65_536)),
    }
}
