//! Whether it honours what a server sends: settings, interim responses, promises.

use super::evidence::{CaseRuns, broken, frames, last_frames};
use crate::probe::client::TestCase;
use crate::probe::client::seen::{CaseRun, ConnectionSeen, FrameNote};
use crate::probe::client::test_case::{CHANGED, INTERIM};
use crate::probe::{Check, Verdict, id};
use h2lab_base::units::{Time, measured_time};
use h2lab_wire::ErrorCode;
use h2lab_wire::h2::setting;
use h2lab_wire::trace::FrameKind;

/// The checks of these test cases.
pub fn all(case_runs: CaseRuns<'_>) -> Vec<Check> {
    let expected = case_runs.expected();
    let mut checks = Vec::new();
    checks.extend(case_runs.of(TestCase::Interim).map(|interim| interims(interim, expected)));
    checks.extend(case_runs.of(TestCase::Push).map(|push| pushes(push, expected)));
    checks.extend(case_runs.of(TestCase::OneStream).map(|one| obeys(one, expected)));
    checks.extend(case_runs.of(TestCase::Change).map(acknowledges));
    checks
}

fn is_well(case_run: &CaseRun, expected: usize) -> bool {
    case_run.is_content() && case_run.answered() >= expected.max(1)
}

fn interims(case_run: &CaseRun, expected: usize) -> Check {
    let sent = INTERIM.map(|status| status.to_string()).join(", ");
    if is_well(case_run, expected) {
        let summary = format!("{sent} before each response did no harm; {}", case_run.ending());
        return Check::new(id::CLNT109, Verdict::Pass, summary);
    }
    broken(id::CLNT109, case_run, &format!("{sent} before each response made it fail"))
        .with("sequence of events", frames(case_run, |item| item.seen.contains("HEADERS")))
}

fn pushes(case_run: &CaseRun, expected: usize) -> Check {
    let Some(connection) = case_run.h2().next() else {
        return Check::new(id::CLNT110, Verdict::Undecided, "no connection of HTTP/2");
    };
    if connection.setting(setting::ENABLE_PUSH) == Some(0) {
        return Check::new(id::CLNT110, Verdict::Pass, "it refuses promises from the start: ENABLE_PUSH=0");
    }
    let promised = connection.received(FrameKind::PUSH_PROMISE).count();
    let refused = connection.sent(FrameKind::RST_STREAM).filter(|frame| frame.stream % 2 == 0).count();
    if promised == 0 {
        return Check::new(id::CLNT110, Verdict::Undecided, "no response could be promised to it");
    }
    let mut items = frames(case_run, |item| item.seen.starts_with("PUSH_PROMISE"));
    if items.is_empty() {
        // Of many frames the middle is not kept; the outcome is at the end.
        items = last_frames(case_run, |seen| seen.received(FrameKind::PUSH_PROMISE).next().is_some());
    }
    if is_well(case_run, expected) {
        let what =
            if refused > 0 { "it reset the promised stream" } else { "it accepted the promised response" };
        let summary = format!("it leaves ENABLE_PUSH on, and {what}");
        return Check::new(id::CLNT110, Verdict::Pass, summary).with("the promise", items);
    }
    broken(id::CLNT110, case_run, "it leaves ENABLE_PUSH on, and a promise made it fail")
        .with("the promise", items)
}

/// The most streams that a client had open at once after it had acknowledged our SETTINGS.
fn most_open(connection: &ConnectionSeen) -> usize {
    let mut acknowledged = false;
    connection.most_open(|frame| {
        acknowledged |= frame.is_up() && frame.kind == FrameKind::SETTINGS && frame.is_ack();
        acknowledged
    })
}

fn obeys(case_run: &CaseRun, expected: usize) -> Check {
    let rendered = "MAX_CONCURRENT_STREAMS=1 and HEADER_TABLE_SIZE=0 were announced";
    let check = obedience(case_run, expected, rendered);
    check.with("its last frames", last_frames(case_run, |connection| !connection.requests.is_empty()))
}

fn obedience(case_run: &CaseRun, expected: usize, rendered: &str) -> Check {
    if let Some(error) = case_run.connections.iter().find_map(|connection| connection.error.clone()) {
        return broken(id::CLNT111, case_run, &format!("{rendered}; it violated the protocol: {error}"));
    }
    let most = case_run.h2().map(most_open).max().unwrap_or(0);
    if most > 1 {
        let summary = format!("{rendered}, it acknowledged them, and then had {most} streams open");
        return Check::new(id::CLNT111, Verdict::Fail, summary);
    }
    if case_run.h2().all(|connection| connection.requests.is_empty()) {
        return Check::new(id::CLNT111, Verdict::Undecided, "received no request");
    }
    if case_run.ran_out {
        return broken(id::CLNT111, case_run, &format!("{rendered}, and it did not finish with them"));
    }
    // Streams begun before it could know the limit were refused; CLNT108 covers that.
    let is_refusal = |frame: &&FrameNote| frame.value == ErrorCode::REFUSED_STREAM.0;
    let refused =
        |connection| ConnectionSeen::received(connection, FrameKind::RST_STREAM).filter(is_refusal).count();
    let refused: usize = case_run.h2().map(refused).sum();
    let answered = case_run.answered();
    if refused == 0 && (answered < expected || !case_run.is_content()) {
        let what = format!("{rendered}, and with them {answered} of {expected} requests were answered");
        return broken(id::CLNT111, case_run, &what);
    }
    let more = if expected < 2 {
        "; a single request shows little".to_owned()
    } else if answered < expected {
        format!("; {answered} of {expected} requests were answered: those begun before it knew were refused")
    } else {
        String::new()
    };
    Check::new(id::CLNT111, Verdict::Pass, format!("{rendered}, and it respected both{more}"))
}

fn acknowledges(case_run: &CaseRun) -> Check {
    let changed = CHANGED.map(|(id, value)| format!("{}={value}", name(id))).join(" and ");
    let Some((connection, at)) = case_run.h2().find_map(|connection| {
        let second = connection.received(FrameKind::SETTINGS).filter(|frame| !frame.is_ack()).nth(1)?;
        Some((connection, second.at))
    }) else {
        return Check::new(
            id::CLNT112,
            Verdict::Undecided,
            "the settings could not be changed: received no request",
        );
    };
    let acks: Vec<Time> = connection
        .frames
        .iter()
        .filter(|frame| frame.is_up() && frame.kind == FrameKind::SETTINGS && frame.is_ack())
        .map(|frame| frame.at)
        .collect();
    let items = frames(case_run, |item| item.seen.starts_with("SETTINGS"));
    let check = match acks.as_slice() {
        [_, ack, ..] => Check::new(
            id::CLNT112,
            Verdict::Pass,
            format!("{changed} during a response were acknowledged after {}", measured_time(ack.since(at))),
        ),
        // A client that closes with bytes unread resets the connection, and what it sent last is lost. If it had not
        // yet read all that we sent, it may have its responses although nothing of what it sent arrived.
        [] if case_run.is_content() => Check::new(
            id::CLNT112,
            Verdict::Undecided,
            format!("it ended before it was heard to acknowledge any settings; {}", case_run.ending()),
        ),
        _ => broken(id::CLNT112, case_run, &format!("{changed} were not acknowledged")),
    };
    check.with("the settings", items)
}

fn name(identifier: u16) -> &'static str {
    h2lab_wire::connection::setting_name(identifier).unwrap_or("?")
}
