//! How it returns credit for what it receives.

use crate::probe::client::act::LARGE;
use crate::probe::client::seen::{ConnectionSeen, FrameNote, Performance};
use crate::probe::{Check, Verdict, id};
use crate::trace::FrameKind;
use crate::units::format_bytes;

/// One update for each DATA frame of the default size, or more often, is too often.
const LEAST: u64 = 16_384;

/// Bytes of the large body for each WINDOW_UPDATE, of its stream or of the connection, whichever come oftener.
pub fn cadence(performance: &Performance) -> Check {
    let bytes = |connection: &ConnectionSeen| -> u64 {
        connection.received(FrameKind::DATA).map(|frame| u64::from(frame.length)).sum()
    };
    let Some(connection) = performance.h2().max_by_key(|connection| bytes(connection)) else {
        return Check::new(id::CLNT104, Verdict::Undecided, "no body was received over HTTP/2");
    };
    let received = bytes(connection);
    if received < LARGE {
        let summary = format!("only {} of {} were received", format_bytes(received), format_bytes(LARGE));
        return super::broken(id::CLNT104, performance, &summary);
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
    let told = format!(
        "{of_connection} WINDOW_UPDATE for the connection and {of_stream} for streams while {} came",
        format_bytes(received)
    );
    let exhibits = super::frames(performance, |exhibit| exhibit.seen.starts_with("WINDOW_UPDATE"));
    let check = if often == 0 {
        Check::new(id::CLNT104, Verdict::Pass, format!("{told}: its windows were large enough"))
    } else {
        let each = received / often as u64;
        let verdict = if each < LEAST { Verdict::Fail } else { Verdict::Pass };
        Check::new(id::CLNT104, verdict, format!("one for {each} bytes: {told}"))
    };
    check.with("the first of them", exhibits)
}
