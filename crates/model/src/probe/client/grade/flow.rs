//! How it returns credit for what it receives, and honours the credit that it gets.

use std::collections::BTreeMap;

use super::evidence::{broken, frames};
use crate::probe::client::seen::{CaseRun, ConnectionSeen, FrameNote};
use crate::probe::client::test_case::{LARGE, WINDOWS};
use crate::probe::{Check, Verdict, id};
use h2lab_base::units::format_bytes;
use h2lab_wire::h2::frame::flag;
use h2lab_wire::h2::setting;
use h2lab_wire::trace::FrameKind;

/// One update for each DATA frame of the default size, or more, is too frequent.
const LEAST: u64 = 16_384;

/// Bytes of the large body for each WINDOW_UPDATE, of its stream or of the connection, whichever are more frequent.
pub fn cadence(case_run: &CaseRun) -> Check {
    let bytes = |connection: &ConnectionSeen| -> u64 {
        connection.received(FrameKind::DATA).map(|frame| u64::from(frame.length)).sum()
    };
    let Some(connection) = case_run.h2().max_by_key(|connection| bytes(connection)) else {
        return Check::new(id::CLNT104, Verdict::Undecided, "no body was received over HTTP/2");
    };
    let received = bytes(connection);
    if received < LARGE {
        let summary = format!("received only {} of {}", format_bytes(received), format_bytes(LARGE));
        return broken(id::CLNT104, case_run, &summary);
    }
    let is_body = |frame: &FrameNote| !frame.is_up() && frame.kind == FrameKind::DATA;
    let behind = connection.frames.iter().skip_while(|frame| !is_body(frame));
    let updates: Vec<u32> = behind
        .filter(|frame| frame.is_up() && frame.kind == FrameKind::WINDOW_UPDATE)
        .map(|frame| frame.stream)
        .collect();
    let on = |is_stream: bool| updates.iter().filter(|stream| (**stream != 0) == is_stream).count();
    let (of_connection, of_stream) = (on(false), on(true));
    let often = of_connection.max(of_stream);
    let rendered = format!(
        "{of_connection} WINDOW_UPDATE for the connection and {of_stream} for streams, for {} received",
        format_bytes(received)
    );
    let items = frames(case_run, |item| item.seen.starts_with("WINDOW_UPDATE"));
    let check = if often == 0 {
        Check::new(id::CLNT104, Verdict::Pass, format!("{rendered}: its windows were large enough"))
    } else {
        let each = received / often as u64;
        let verdict = if each < LEAST { Verdict::Fail } else { Verdict::Pass };
        Check::new(id::CLNT104, verdict, format!("one for {each} bytes: {rendered}"))
    };
    check.with("the first of them", items)
}

/// The window before the client has acknowledged ours.
const DEFAULT_WINDOW: i64 = 65_535;

/// How many of its DATA frames were larger than the window of their stream by the settings that it had acknowledged.
fn overruns(connection: &ConnectionSeen) -> usize {
    let mut announced = Vec::new();
    let (mut initial, mut overruns) = (DEFAULT_WINDOW, 0);
    // What has been granted and used of each stream, without the initial window.
    let mut streams: BTreeMap<u32, i64> = BTreeMap::new();
    for frame in &connection.frames {
        let stream = streams.entry(frame.stream);
        match (frame.is_up(), frame.kind) {
            (false, FrameKind::SETTINGS) if !frame.is_ack() => {
                let value = frame
                    .settings
                    .iter()
                    .find(|(id, _)| *id == setting::INITIAL_WINDOW_SIZE)
                    .map(|(_, value)| *value);
                announced.push(value);
            }
            (true, FrameKind::SETTINGS) if frame.is_ack() && !announced.is_empty() => {
                initial = announced.remove(0).map_or(initial, i64::from);
            }
            (false, FrameKind::WINDOW_UPDATE) => *stream.or_default() += i64::from(frame.value),
            (true, FrameKind::DATA) => {
                let used = stream.or_default();
                *used -= i64::from(frame.length);
                overruns += usize::from(frame.length > 0 && initial + *used < 0);
            }
            _ => {}
        }
    }
    overruns
}

/// Whether it uploads through small windows, and honours them when they become smaller.
pub fn small_windows(case_run: &CaseRun, expected: usize) -> Check {
    let [before, after] = WINDOWS;
    let data = |connection: &ConnectionSeen| -> u64 {
        connection.sent(FrameKind::DATA).map(|frame| u64::from(frame.length)).sum()
    };
    let sent: u64 = case_run.h2().map(data).sum();
    let whole = case_run
        .h2()
        .flat_map(|connection| connection.sent(FrameKind::DATA))
        .filter(|frame| frame.flags & flag::END_STREAM != 0)
        .count();
    let overruns: usize = case_run.h2().map(overruns).sum();
    let rendered =
        format!("windows of {before} bytes, then {after}: {} in {whole} bodies", format_bytes(sent));
    let error = case_run.connections.iter().find_map(|connection| connection.error.as_deref());
    let check = if let Some(error) = error {
        broken(id::CLNT119, case_run, &format!("{rendered}; it violated the protocol: {error}"))
    } else if overruns > 0 {
        let what = format!("{rendered}; {overruns} DATA frames were larger than what it was allowed");
        broken(id::CLNT119, case_run, &what)
    } else if sent <= u64::from(before) {
        let why = "the command uploads too little to decide: let it send a body of 64 KiB or more";
        Check::new(id::CLNT119, Verdict::Undecided, format!("{rendered}; {why}"))
    } else if case_run.is_content() && case_run.answered() >= expected.max(1) {
        Check::new(id::CLNT119, Verdict::Pass, format!("{rendered}; {}", case_run.ending()))
    } else {
        broken(id::CLNT119, case_run, &format!("{rendered}; it did not complete"))
    };
    let is_flow = |item: &crate::probe::EvidenceItem| {
        ["SETTINGS", "WINDOW_UPDATE", "DATA"].iter().any(|kind| item.seen.starts_with(kind))
    };
    check.with("the first of its DATA, and the credit for it", frames(case_run, is_flow))
}
