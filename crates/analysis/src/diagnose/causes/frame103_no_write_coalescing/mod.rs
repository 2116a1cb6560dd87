//! FRAME103: each frame leaves in a segment or a write of its own, although several were ready.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::frame::FRAME103 as META;
use super::views::effort::{Sent, busy_end, observation};
use crate::diagnose::{Case, Confidence, Evidence, Finding, Rule};
use h2lab_base::counts::count;
use h2lab_model::Fix;
use h2lab_model::record::Sample;
use h2lab_model::scenario::Target;
use h2lab_wire::trace::Direction;

/// Fewer frames may be those at the beginning.
const LEAST: u64 = 1_000;
/// A message has at least this many frames: HEADERS and DATA.
const FRAMES: f64 = 1.8;
/// With at least this many segments per frame, each frame has its own.
const SEGMENTS: f64 = 0.9;
/// Half of a segment over Ethernet: longer frames fill a segment soon, however many there are.
const HALF: f64 = 724.0;
/// DATA frames of this length on average, 90 % of what every receiver accepts, are full: more was ready behind each.
const LONG: f64 = 0.9 * 16_384.0;
/// At least this share of the frames must be HEADERS and DATA: SETTINGS and credit are written when they are due, and
/// nothing is ready behind them.
const OF_MESSAGES: f64 = 0.9;
/// With as many WINDOW_UPDATE frames for a DATA frame, of its stream and of its connection, credit comes for one frame at
/// a time, and nothing more may be written. Credit for half of the smallest window is for two frames.
const CREDITS: f64 = 1.5;
/// A response that ends this soon after it began was ready as a whole.
const AT_ONCE: Duration = Duration::from_millis(1);
/// At least this share of responses must have been ready as a whole.
const MOST: f64 = 0.9;

/// The rule.
#[derive(Debug)]
pub(super) struct NoWriteCoalescing;

impl Rule for NoWriteCoalescing {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let Some(end) = busy_end(case) else { return Vec::new() };
        let down = finding(case, Direction::Down, &end).or_else(|| by_writes(case, &end));
        down.into_iter().chain(finding(case, Direction::Up, &end)).collect()
    }
}

/// Whether the messages in this direction were ready as a whole. Our client has the whole body when it begins.
fn is_whole(case: &Case<'_>, direction: Direction) -> bool {
    if direction == Direction::Up {
        return case.cell().work.body_length() > 0;
    }
    let answered = || case.samples().filter(|sample: &Sample| sample.outcome.is_success());
    let at_once = answered().filter(|sample| sample.completed_at.since(sample.first_byte_at) <= AT_ONCE);
    at_once.count() as f64 >= MOST * answered().count() as f64
}

fn finding(case: &Case<'_>, direction: Direction, end: &(String, f64)) -> Option<Finding> {
    let sent = Sent::of(case, direction);
    let [frames, segments, requests] = [sent.frames, sent.segments, sent.requests].map(|n| n as f64);
    let bytes = sent.bytes as f64 / segments.max(1.0);
    let is_it = sent.frames >= LEAST
        && frames >= FRAMES * requests
        && segments >= SEGMENTS * frames
        && bytes <= HALF
        && is_whole(case, direction);
    if !is_it {
        return None;
    }
    let (who, message, fix) = match direction {
        Direction::Down => ("the server", "response", server_fix()),
        Direction::Up => ("our client", "request", client_fix()),
    };
    let more = sent.segments.saturating_sub(sent.requests);
    let observation = observation(
        case,
        &META,
        &format!("{} segments and writes more than one for each {message}", count(more)),
        end,
    );
    let mut evidence = vec![
        Evidence::new(&format!("frames that {who} sent"), frames, "frames"),
        Evidence::new("segments with data for them", segments, "segments"),
        Evidence::new("bytes of a segment, on average", bytes, "bytes"),
    ];
    evidence.extend(observation.evidence.clone());
    Some(Finding {
        symptom: format!(
            "{who} sent {} frames in {} segments of {bytes:.0} bytes, although all of a {message} was ready at once: each frame \
             is a write and a segment of its own",
            count(sent.frames),
            count(sent.segments)
        ),
        evidence,
        confidence: Confidence::Observed,
        fixes: vec![fix],
        confirm: "the same load with frames joined must take fewer segments and less CPU time at both ends"
            .to_owned(),
        ..observation
    })
}

/// The same for long frames, which fill segments however they are written: our origin counts its writes.
fn by_writes(case: &Case<'_>, end: &(String, f64)) -> Option<Finding> {
    let is_ours = case.cell().target == Target::Origin && case.cell().sidecar.is_none();
    let counts = case.records().filter(|_| is_ours).filter_map(|record| record.server.as_ref()?.origin);
    let (frames, writes) =
        counts.fold((0, 0), |(frames, writes), one| (frames + one.frames, writes + one.writes));
    let sent = Sent::of(case, Direction::Down);
    let bytes = sent.bytes as f64 / sent.data.max(1) as f64;
    let is_it = frames >= LEAST
        && frames as f64 >= FRAMES * sent.requests as f64
        && (sent.requests + sent.data) as f64 >= OF_MESSAGES * frames as f64
        && (sent.credits as f64) < CREDITS * sent.data as f64
        && writes as f64 >= SEGMENTS * frames as f64
        && (bytes >= LONG || is_whole(case, Direction::Down));
    if !is_it {
        return None;
    }
    let observation =
        observation(case, &META, &format!("{} writes for {} frames", count(writes), count(frames)), end);
    let mut evidence = vec![
        Evidence::new("frames that our origin sent", frames as f64, "frames"),
        Evidence::new("system calls that wrote to its sockets", writes as f64, "writes"),
        Evidence::new("bytes for a DATA frame, on average", bytes, "bytes"),
    ];
    evidence.extend(observation.evidence.clone());
    Some(Finding {
        symptom: format!(
            "our origin sent {} frames in {} writes, although more was ready behind each: each frame is a system call of its own",
            count(frames),
            count(writes)
        ),
        evidence,
        confidence: Confidence::Observed,
        fixes: vec![Fix::new(
            "server",
            "frames collected and written at once (ours: without --no-coalesce)",
            "64 KiB a write take a quarter of the system calls of 16 KiB",
        )],
        confirm: "the same load with frames joined must take fewer writes and less CPU time at the server"
            .to_owned(),
        ..observation
    })
}

fn server_fix() -> Fix {
    Fix::new(
        "server",
        "frames collected and written at once",
        "HEADERS and DATA of a small response fit into one segment",
    )
}

fn client_fix() -> Fix {
    Fix::new(
        "client",
        "frames joined in a write (ours: without --no-coalesce)",
        "HEADERS and DATA fit into one segment",
    )
}
