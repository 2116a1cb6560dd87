//! What it does while a server says little or nothing.

use super::evidence::{Played, broken, last_frames, many};
use crate::probe::client::Act;
use crate::probe::client::seen::{ConnectionSeen, Performance};
use crate::probe::{Check, Verdict, id};
use h2lab_base::units::{Time, format_duration};
use h2lab_wire::trace::FrameKind;

/// The checks of these acts.
pub fn all(played: Played<'_>) -> Vec<Check> {
    let expected = played.expected();
    let mut checks = Vec::new();
    checks.extend(played.of(Act::SlowBody).map(|slow| slow_body(slow, expected)));
    checks.extend(played.of(Act::StalledBody).map(stalled));
    if let Some(dark) = played.of(Act::BlackOut) {
        checks.push(recovers(dark, expected));
        checks.push(asks(dark));
    }
    checks
}

fn slow_body(performance: &Performance, expected: usize) -> Check {
    let check = if performance.is_content() && performance.answered() >= expected.max(1) {
        let summary = format!("a body that came in drops was waited for; {}", performance.ending());
        Check::new(id::CLNT113, Verdict::Pass, summary)
    } else {
        broken(id::CLNT113, performance, "a body that came in drops was not waited for")
    };
    check.with("the last frames", last_frames(performance, |connection| !connection.requests.is_empty()))
}

fn stalled(performance: &Performance) -> Check {
    let Some(since) = performance.connections.iter().find_map(|connection| connection.stalled_since) else {
        let summary = format!("no body could be stopped in its middle; {}", performance.ending());
        return Check::new(id::CLNT114, Verdict::Undecided, summary);
    };
    let ending = performance.ending();
    let quiet = format_duration(performance.went_on(since));
    let (verdict, summary) = match performance.exit {
        _ if performance.ran_out => (
            Verdict::Fail,
            format!(
                "half a body, then nothing for {quiet}: {ending} (no time limit of its own, or a longer one: --patience)"
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
        .with("the last frames", last_frames(performance, |connection| connection.stalled_since.is_some()))
}

fn recovers(performance: &Performance, expected: usize) -> Check {
    let Some(dark) = performance.connections.iter().find_map(|connection| connection.dark_since) else {
        return Check::new(id::CLNT115, Verdict::Undecided, "no request came that could be left unanswered");
    };
    let (verdict, summary) = recovery(performance, expected, dark);
    Check::new(id::CLNT115, verdict, summary)
        .with("the last frames of the silent one", last_frames(performance, is_dark))
}

/// What it does about a connection that is silent since `dark`.
fn recovery(performance: &Performance, expected: usize, dark: Time) -> (Verdict, String) {
    let next = performance.connections.iter().map(|connection| connection.opened_at).find(|at| *at > dark);
    let (answered, ending) = (performance.answered(), performance.ending());
    let dialled = next.map(|next| format!("it dialled again {} after", format_duration(next.since(dark))));
    if performance.ran_out {
        let did = dialled.map_or_else(
            || "it did nothing about it: no other connection, no end".to_owned(),
            |dialled| {
                format!("{dialled} and went on waiting: {answered} of {expected} requests were answered")
            },
        );
        return (Verdict::Fail, format!("its connection fell silent, and {did}; {ending}"));
    }
    if let Some(dialled) = dialled.filter(|_| answered >= expected.max(1)) {
        let summary = format!(
            "{dialled} its connection fell silent, and {answered} of {expected} requests were answered; {ending}"
        );
        return (Verdict::Pass, summary);
    }
    let after = format_duration(performance.went_on(dark));
    match performance.exit {
        Some(_) => (
            Verdict::Pass,
            format!("its connection fell silent, and it gave up by itself {after} after; {ending}"),
        ),
        None => (Verdict::Undecided, format!("its connection fell silent; {ending}")),
    }
}

const fn is_dark(connection: &ConnectionSeen) -> bool {
    connection.dark_since.is_some()
}

/// Whether it asks by PING if the server is still there.
fn asks(performance: &Performance) -> Check {
    let Some((connection, dark)) =
        performance.h2().find_map(|connection| Some((connection, connection.dark_since?)))
    else {
        return Check::new(id::CLNT116, Verdict::Undecided, "no connection fell silent");
    };
    let pings: Vec<Time> =
        connection.sent(FrameKind::PING).map(|frame| frame.at).filter(|at| *at > dark).collect();
    let quiet = format_duration(performance.went_on(dark));
    let (verdict, summary) = match pings.first() {
        Some(first) => (
            Verdict::Pass,
            format!(
                "it sent {} on the connection that fell silent, the first after {}",
                many((pings.len(), "PING")),
                format_duration(first.since(dark))
            ),
        ),
        None => (Verdict::Fail, format!("no PING within {quiet} on a connection that fell silent")),
    };
    Check::new(id::CLNT116, verdict, summary).with("its last frames", last_frames(performance, is_dark))
}
