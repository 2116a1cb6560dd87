//! Whether it heeds what a server tells it: settings, interim responses, promises.

use super::evidence::{Played, broken, frames, last_frames};
use crate::probe::client::Act;
use crate::probe::client::act::{CHANGED, INTERIM};
use crate::probe::client::seen::{ConnectionSeen, FrameNote, Performance};
use crate::probe::{Check, Verdict, id};
use h2lab_base::units::{Time, format_duration};
use h2lab_wire::ErrorCode;
use h2lab_wire::trace::FrameKind;

/// `SETTINGS_ENABLE_PUSH`.
const ENABLE_PUSH: u16 = 2;

/// The checks of these acts.
pub fn all(played: Played<'_>) -> Vec<Check> {
    let expected = played.expected();
    let mut checks = Vec::new();
    checks.extend(played.of(Act::Interim).map(|interim| interims(interim, expected)));
    checks.extend(played.of(Act::Push).map(|push| pushes(push, expected)));
    checks.extend(played.of(Act::OneStream).map(|one| obeys(one, expected)));
    checks.extend(played.of(Act::Change).map(acknowledges));
    checks
}

fn is_well(performance: &Performance, expected: usize) -> bool {
    performance.is_content() && performance.answered() >= expected.max(1)
}

fn interims(performance: &Performance, expected: usize) -> Check {
    let sent = INTERIM.map(|status| status.to_string()).join(", ");
    if is_well(performance, expected) {
        let summary = format!("{sent} before each response did no harm; {}", performance.ending());
        return Check::new(id::CLNT109, Verdict::Pass, summary);
    }
    broken(id::CLNT109, performance, &format!("{sent} before each response broke it"))
        .with("as it came about", frames(performance, |exhibit| exhibit.seen.contains("HEADERS")))
}

fn pushes(performance: &Performance, expected: usize) -> Check {
    let Some(connection) = performance.h2().next() else {
        return Check::new(id::CLNT110, Verdict::Undecided, "no connection of HTTP/2");
    };
    if connection.setting(ENABLE_PUSH) == Some(0) {
        return Check::new(id::CLNT110, Verdict::Pass, "it refuses promises from the start: ENABLE_PUSH=0");
    }
    let promised = connection.received(FrameKind::PUSH_PROMISE).count();
    let refused = connection.sent(FrameKind::RST_STREAM).filter(|frame| frame.stream % 2 == 0).count();
    if promised == 0 {
        return Check::new(id::CLNT110, Verdict::Undecided, "nothing could be promised to it");
    }
    let mut exhibits = frames(performance, |exhibit| exhibit.seen.starts_with("PUSH_PROMISE"));
    if exhibits.is_empty() {
        // Among many frames those in the middle are not kept; what became of it is at the end.
        exhibits = last_frames(performance, |seen| seen.received(FrameKind::PUSH_PROMISE).next().is_some());
    }
    if is_well(performance, expected) {
        let what = if refused > 0 { "it reset the promised stream" } else { "it took the promised response" };
        let summary = format!("it leaves ENABLE_PUSH on, and {what}");
        return Check::new(id::CLNT110, Verdict::Pass, summary).with("the promise", exhibits);
    }
    broken(id::CLNT110, performance, "it leaves ENABLE_PUSH on, and a promise broke it")
        .with("the promise", exhibits)
}

/// The most streams that a client had open at a time after it had acknowledged our SETTINGS.
fn most_open(connection: &ConnectionSeen) -> usize {
    let mut acknowledged = false;
    connection.most_open(|frame| {
        acknowledged |= frame.is_up() && frame.kind == FrameKind::SETTINGS && frame.is_ack();
        acknowledged
    })
}

fn obeys(performance: &Performance, expected: usize) -> Check {
    let told = "MAX_CONCURRENT_STREAMS=1 and HEADER_TABLE_SIZE=0 were announced";
    let check = obedience(performance, expected, told);
    check.with("its last frames", last_frames(performance, |connection| !connection.requests.is_empty()))
}

fn obedience(performance: &Performance, expected: usize, told: &str) -> Check {
    if let Some(error) = performance.connections.iter().find_map(|connection| connection.error.clone()) {
        return broken(id::CLNT111, performance, &format!("{told}; it broke a rule: {error}"));
    }
    let most = performance.h2().map(most_open).max().unwrap_or(0);
    if most > 1 {
        let summary = format!("{told}, it acknowledged them, and then had {most} streams open");
        return Check::new(id::CLNT111, Verdict::Fail, summary);
    }
    if performance.h2().all(|connection| connection.requests.is_empty()) {
        return Check::new(id::CLNT111, Verdict::Undecided, "no request came");
    }
    if performance.ran_out {
        return broken(id::CLNT111, performance, &format!("{told}, and it came to no end with them"));
    }
    // What it had begun before it could know of the limit was refused, which is CLNT108's.
    let is_refusal = |frame: &&FrameNote| frame.value == ErrorCode::REFUSED_STREAM.0;
    let refused =
        |connection| ConnectionSeen::received(connection, FrameKind::RST_STREAM).filter(is_refusal).count();
    let refused: usize = performance.h2().map(refused).sum();
    let answered = performance.answered();
    if refused == 0 && (answered < expected || !performance.is_content()) {
        let what = format!("{told}, and with them {answered} of {expected} requests were answered");
        return broken(id::CLNT111, performance, &what);
    }
    let more = if expected < 2 {
        "; with one request alone, little can be seen".to_owned()
    } else if answered < expected {
        format!("; {answered} of {expected} requests were answered: those begun before it knew were refused")
    } else {
        String::new()
    };
    Check::new(id::CLNT111, Verdict::Pass, format!("{told}, and it kept to both{more}"))
}

fn acknowledges(performance: &Performance) -> Check {
    let changed = CHANGED.map(|(id, value)| format!("{}={value}", name(id))).join(" and ");
    let Some((connection, at)) = performance.h2().find_map(|connection| {
        let second = connection.received(FrameKind::SETTINGS).filter(|frame| !frame.is_ack()).nth(1)?;
        Some((connection, second.at))
    }) else {
        return Check::new(
            id::CLNT112,
            Verdict::Undecided,
            "the settings could not be changed: no request came",
        );
    };
    let acks: Vec<Time> = connection
        .frames
        .iter()
        .filter(|frame| frame.is_up() && frame.kind == FrameKind::SETTINGS && frame.is_ack())
        .map(|frame| frame.at)
        .collect();
    let exhibits = frames(performance, |exhibit| exhibit.seen.starts_with("SETTINGS"));
    let check = match acks.get(1) {
        Some(ack) => Check::new(
            id::CLNT112,
            Verdict::Pass,
            format!("{changed} during a response were acknowledged after {}", format_duration(ack.since(at))),
        ),
        None => broken(id::CLNT112, performance, &format!("{changed} were never acknowledged")),
    };
    check.with("the settings", exhibits)
}

fn name(identifier: u16) -> &'static str {
    h2lab_wire::connection::setting_name(identifier).unwrap_or("?")
}
