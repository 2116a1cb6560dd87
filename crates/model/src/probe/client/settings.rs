//! The client's initial SETTINGS, and its socket options.

use super::seen::{CaseRun, ConnectionSeen, FrameNote};
use crate::probe::{Check, Verdict, id};
use h2lab_base::units::format_bytes;
use h2lab_wire::h2::setting;
use h2lab_wire::trace::FrameKind;

/// The initial value (RFC 9113 §6.5.2, §6.9.2).
const LEAST_FRAME: u32 = 16_384;
const DEFAULT_WINDOW: u32 = 65_535;

/// The largest frame that it accepts.
pub fn frame_size(connection: &ConnectionSeen) -> Check {
    let announced = connection.setting(setting::MAX_FRAME_SIZE);
    let size = announced.unwrap_or(LEAST_FRAME);
    let said = if announced.is_some() { "announced" } else { "nothing announced" };
    let verdict = if size > LEAST_FRAME { Verdict::Pass } else { Verdict::Fail };
    let summary = format!("frames of {size} bytes at most ({said})");
    Check::new(id::CLNT102, verdict, summary).with("its SETTINGS", greeting(connection))
}

/// The windows that it opens before any body comes.
pub fn windows(connection: &ConnectionSeen) -> Check {
    let stream = connection.setting(setting::INITIAL_WINDOW_SIZE).unwrap_or(DEFAULT_WINDOW);
    let is_body = |frame: &&FrameNote| !frame.is_up() && frame.kind == FrameKind::DATA;
    let opened: u64 = connection
        .frames
        .iter()
        .take_while(|frame| !is_body(frame))
        .filter(|frame| frame.is_up() && frame.kind == FrameKind::WINDOW_UPDATE && frame.stream == 0)
        .map(|frame| u64::from(frame.value))
        .sum();
    let whole = u64::from(DEFAULT_WINDOW) + opened;
    let least = u64::from(stream).min(whole);
    // Bits per second that one window per round trip of 25 ms lets through.
    let rate = least as f64 * 8.0 / 0.025 / 1e6;
    let summary = format!(
        "{} for a stream, {} for the connection: {rate:.0} Mbit/s at most with a round trip of 25 ms",
        format_bytes(u64::from(stream)),
        format_bytes(whole),
    );
    let verdict = if least > u64::from(DEFAULT_WINDOW) { Verdict::Pass } else { Verdict::Fail };
    Check::new(id::CLNT103, verdict, summary).with("its SETTINGS and WINDOW_UPDATE", greeting(connection))
}

/// Its first frames with limits: SETTINGS and WINDOW_UPDATE.
fn greeting(connection: &ConnectionSeen) -> Vec<crate::probe::EvidenceItem> {
    let is_wanted = |item: &&crate::probe::EvidenceItem| {
        item.direction == h2lab_wire::trace::Direction::Up
            && (item.seen.starts_with("SETTINGS") || item.seen.starts_with("WINDOW_UPDATE[0]"))
    };
    connection.items.iter().filter(is_wanted).take(3).cloned().collect()
}

/// Whether small writes are sent at once.
pub fn no_delay(case_runs: &[CaseRun]) -> Check {
    let mut sockets = Vec::new();
    let mut seen = Vec::new();
    for case_run in case_runs {
        for (n, connection) in case_run.connections.iter().enumerate() {
            let Some(is_set) = connection.no_delay else { continue };
            seen.push(is_set);
            sockets.push(format!(
                "{} {} {}",
                case_run.test_case.name(),
                n + 1,
                if is_set { "set" } else { "not set" }
            ));
        }
    }
    let set = seen.iter().filter(|is_set| **is_set).count();
    let (verdict, summary) = match (seen.len(), set) {
        (0, _) => (Verdict::Undecided, "its sockets could not be inspected".to_owned()),
        (n, set) if n == set => (Verdict::Pass, format!("set on all {n} sockets that were inspected")),
        (n, set) => (Verdict::Fail, format!("set on {set} of {n} sockets that were inspected")),
    };
    let check = Check::new(id::CLNT117, verdict, summary);
    if sockets.is_empty() {
        return check;
    }
    check.with(format!("the sockets by test case and connection: {}", sockets.join(", ")), Vec::new())
}
