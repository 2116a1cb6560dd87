//! FLOW111: a flow-control window grows beyond 2^31 - 1 bytes.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::flow::FLOW111 as META;
use super::views::failed::{Failed, ended_by_server};
use super::views::windows::{DEFAULT_WINDOW, initial_window};
use crate::diagnose::{Case, Confidence, Evidence, Finding, Repetition, Rule};
use h2lab_base::counts::count;
use h2lab_base::units::Time;
use h2lab_model::Fix;
use h2lab_model::record::{CellRecord, Outcome, Sample};
use h2lab_wire::ErrorCode;
use h2lab_wire::trace::{Direction, FrameKind};

/// The most credit that a window may have (RFC 9113 §6.9.1).
const MOST: i64 = 0x7fff_ffff;
const CODE: ErrorCode = ErrorCode::FLOW_CONTROL_ERROR;

/// The rule.
#[derive(Debug)]
pub(super) struct WindowOverflow;

impl Rule for WindowOverflow {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let protocol = case.cell().protocol;
        if !protocol.is_multiplexed() || protocol.is_quic() {
            return Vec::new();
        }
        [Direction::Down, Direction::Up].into_iter().filter_map(|data| finding(case, data)).collect()
    }
}

/// The windows for data in this direction: the sender of the data, who counts the credit, ended requests because of it.
fn finding(case: &Case<'_>, data: Direction) -> Option<Finding> {
    let ended = |one: &Repetition<'_>| -> Vec<Sample> {
        match data {
            Direction::Down => ended_by_server(one, CODE).collect(),
            Direction::Up => one.record.samples.iter().filter(is_ended_by_client).collect(),
        }
    };
    let ended = Failed::of(case, case.repetitions.iter().flat_map(ended))?;
    let seen = case.records().find_map(|record| overflow(record, data));
    // The code also answers DATA beyond a window: without a body the client has sent none.
    let is_about_credit = data == Direction::Down && !case.cell().work.has_bodies();
    if seen.is_none() && !is_about_credit {
        return None;
    }
    let (by, other) = match data {
        Direction::Down => ("server", "client"),
        Direction::Up => ("client", "server"),
    };
    let why = seen.as_ref().map_or_else(
        || "though no request has a body: it counts the client's credit, and finds too much".to_owned(),
        |seen| {
            let (window, credit) = (seen.window(), count(seen.credit.unsigned_abs()));
            format!("since the credit of the {other} took {window} to {credit} bytes, above 2^31 - 1")
        },
    );
    let mut evidence = vec![ended.evidence("requests ended with FLOW_CONTROL_ERROR")];
    evidence.extend(seen.as_ref().map(Overflow::evidence));
    Some(Finding {
        symptom: format!("the {by} ended {} with FLOW_CONTROL_ERROR, {why}", ended.of_all()),
        evidence,
        cost: ended.of_all() + " failed",
        confidence: if seen.is_some() { Confidence::Observed } else { Confidence::Inferred },
        fixes: vec![Fix::new(
            other,
            "an initial stream window of 65,535 bytes, or another version",
            "with the default no sum of credit comes near 2^31 - 1; where it does, the sums of credit are wrong",
        )],
        confirm: case.compare("-w 65535") + ": with the default window of the client no request is ended",
        of_failures: true,
        ..case.finding_of_share(&META, ended.share())
    })
}

/// Whether our engine, or the client of a capture, reset its stream or ended its connection with the code.
fn is_ended_by_client(sample: &Sample) -> bool {
    matches!(sample.outcome, Outcome::Protocol | Outcome::Cancelled) && sample.code == CODE.0
}

/// A window with more credit than it may have.
#[derive(Debug)]
struct Overflow {
    connection: u32,
    /// 0 for the connection's own.
    stream: u32,
    at: Time,
    /// In bytes; more than none.
    credit: i64,
}

impl Overflow {
    fn window(&self) -> String {
        match self.stream {
            0 => "the connection window".to_owned(),
            stream => format!("the window of stream {stream}"),
        }
    }

    fn evidence(&self) -> Evidence {
        let what = format!("credit of {}", self.window());
        Evidence::new(&what, self.credit as f64, "bytes").seen(self.connection, self.at)
    }
}

/// The first window for data in this direction that has more credit than it may have, by the frames. For responses that
/// is the sum at the client, without the data that is on its way.
fn overflow(record: &CellRecord, data: Direction) -> Option<Overflow> {
    let initial: BTreeMap<u32, u64> =
        record.connections.iter().map(|one| (one.index, initial_window(one, data))).collect();
    let mut windows: BTreeMap<(u32, u32), i64> = BTreeMap::new();
    for frame in &record.frames {
        let (connection, stream) = (frame.connection, frame.stream.0);
        let Some(initial) = initial.get(&connection) else { continue };
        let both = [stream, 0];
        // DATA takes from both windows, and credit is for one of them.
        let (of, change) = match frame.kind {
            FrameKind::DATA if frame.direction == data => (&both[..], -i64::from(frame.length)),
            FrameKind::WINDOW_UPDATE if frame.direction != data => (&both[..1], i64::from(frame.value)),
            _ => continue,
        };
        for &stream in of {
            let begin = if stream == 0 { DEFAULT_WINDOW } else { *initial };
            let credit = windows.entry((connection, stream)).or_insert(begin.cast_signed());
            *credit += change;
            if *credit > MOST {
                return Some(Overflow { connection, stream, at: frame.at, credit: *credit });
            }
        }
    }
    None
}
