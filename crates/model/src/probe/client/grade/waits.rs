//! Its behaviour while a server sends little or nothing.

use super::evidence::{CaseRuns, broken, last_frames, many};
use crate::probe::client::TestCase;
use crate::probe::client::seen::{CaseRun, ConnectionSeen};
use crate::probe::{Check, Verdict, id};
use h2lab_base::units::{Time, measured_time};
use h2lab_wire::trace::FrameKind;

/// The checks of these test cases.
pub fn all(case_runs: CaseRuns<'_>) -> Vec<Check> {
    let expected = case_runs.expected();
    let mut checks = Vec::new();
    checks.extend(case_runs.of(TestCase::SlowBody).map(|slow| slow_body(slow, expected)));
    checks.extend(case_runs.of(TestCase::StalledBody).map(stalled));
    if let Some(dark) = case_runs.of(TestCase::BlackOut) {
        checks.push(recovers(dark, expected));
        checks.push(asks(dark));
    }
    checks
}

fn slow_body(case_run: &CaseRun, expected: usize) -> Check {
    let check = if case_run.is_content() && case_run.answered() >= expected.max(1) {
        let summary = format!("it waited for a body that arrived in pieces; {}", case_run.ending());
        Check::new(id::CLNT113, Verdict::Pass, summary)
    } else {
        broken(id::CLNT113, case_run, "it did not wait for a body that arrived in pieces")
    };
    check.with("the last frames", last_frames(case_run, |connection| !connection.requests.is_empty()))
}

fn stalled(case_run: &CaseRun) -> Check {
    let Some(since) = case_run.connections.iter().find_map(|connection| connection.stalled_since) else {
        let summary = format!("no body could be stopped midway; {}", case_run.ending());
        return Check::new(id::CLNT114, Verdict::Undecided, summary);
    };
    let ending = case_run.ending();
    let quiet = measured_time(case_run.went_on(since));
    let (verdict, summary) = match case_run.exit {
        _ if case_run.ran_out => (
            Verdict::Fail,
            format!(
                "half a body, then nothing for {quiet}: {ending} (no timeout, or a longer one: --idle-timeout)"
            ),
        ),
        Some(0) => (
            Verdict::Undecided,
            format!("half a body, then nothing for {quiet}: {ending}, as if nothing were missing"),
        ),
        Some(_) => (Verdict::Pass, format!("half a body, then nothing for {quiet}: it gave up; {ending}")),
        None => (Verdict::Undecided, format!("half a body, then nothing for {quiet}: {ending}")),
    };
    Check::new(id::CLNT114, verdict, summary)
        .with("the last frames", last_frames(case_run, |connection| connection.stalled_since.is_some()))
}

fn recovers(case_run: &CaseRun, expected: usize) -> Check {
    let Some(dark) = case_run.connections.iter().find_map(|connection| connection.dark_since) else {
        return Check::new(
            id::CLNT115,
            Verdict::Undecided,
            "received no request that could be left unanswered",
        );
    };
    let (verdict, summary) = recovery(case_run, expected, dark);
    Check::new(id::CLNT115, verdict, summary)
        .with("the last frames of the unresponsive one", last_frames(case_run, is_dark))
}

/// How it recovers from a connection that has been silent since `dark`.
fn recovery(case_run: &CaseRun, expected: usize, dark: Time) -> (Verdict, String) {
    let next = case_run.connections.iter().map(|connection| connection.opened_at).find(|at| *at > dark);
    let (answered, ending) = (case_run.answered(), case_run.ending());
    let dialled = next.map(|next| format!("it dialled again {} after", measured_time(next.since(dark))));
    if case_run.ran_out {
        let did = dialled.map_or_else(
            || "no reaction: it neither reconnected nor closed the connection".to_owned(),
            |dialled| {
                format!("{dialled} and continued to wait: {answered} of {expected} requests were answered")
            },
        );
        return (Verdict::Fail, format!("its connection stopped responding, and {did}; {ending}"));
    }
    if let Some(dialled) = dialled.filter(|_| answered >= expected.max(1)) {
        let summary = format!(
            "{dialled} its connection stopped responding, and {answered} of {expected} requests were answered; {ending}"
        );
        return (Verdict::Pass, summary);
    }
    let after = measured_time(case_run.went_on(dark));
    match case_run.exit {
        Some(_) => (
            Verdict::Pass,
            format!("its connection stopped responding, and it gave up {after} later; {ending}"),
        ),
        None => (Verdict::Undecided, format!("its connection stopped responding; {ending}")),
    }
}

const fn is_dark(connection: &ConnectionSeen) -> bool {
    connection.dark_since.is_some()
}

/// Whether it checks by PING that the server is alive.
fn asks(case_run: &CaseRun) -> Check {
    let Some((connection, dark)) =
        case_run.h2().find_map(|connection| Some((connection, connection.dark_since?)))
    else {
        return Check::new(id::CLNT116, Verdict::Undecided, "no connection stopped responding");
    };
    let pings: Vec<Time> =
        connection.sent(FrameKind::PING).map(|frame| frame.at).filter(|at| *at > dark).collect();
    let quiet = measured_time(case_run.went_on(dark));
    let (verdict, summary) = match pings.first() {
        Some(first) => (
            Verdict::Pass,
            format!(
                "it sent {} on the unresponsive connection, the first after {}",
                many((pings.len(), "PING")),
                measured_time(first.since(dark))
            ),
        ),
        None => (Verdict::Fail, format!("no PING within {quiet} on an unresponsive connection")),
    };
    Check::new(id::CLNT116, verdict, summary).with("its last frames", last_frames(case_run, is_dark))
}
