//! The checks that follow from all acts.

mod endings;
mod evidence;
mod flow;
mod heeds;
mod waits;

pub use evidence::Played;
use evidence::{broken, last_words, many, opening};

use super::{Act, settings};
use crate::probe::{Check, Verdict, id};

impl Played<'_> {
    /// Whether the other acts would say anything: the client spoke HTTP/2 to a server that behaves as any, and ended well.
    pub fn is_gradable(self) -> bool {
        self.first().is_some() && protocol(self).verdict == Verdict::Pass
    }
}

/// All checks. Acts that were not played leave theirs out.
pub fn checks(played: Played<'_>) -> Vec<Check> {
    let protocol = protocol(played);
    if played.first().is_none() {
        return vec![protocol];
    }
    let mut checks = vec![protocol];
    checks.extend(played.first().map(settings::frame_size));
    checks.extend(played.first().map(settings::windows));
    if checks[0].verdict != Verdict::Pass {
        // What fails by itself says nothing of the acts.
        checks.push(settings::no_delay(played.0));
        return checks;
    }
    checks.extend(played.of(Act::LargeBody).map(flow::cadence));
    checks.extend(endings::all(played));
    checks.extend(heeds::all(played));
    checks.extend(waits::all(played));
    let expected = played.expected();
    checks.extend(played.of(Act::SmallWindows).map(|small| flow::small_windows(small, expected)));
    checks.push(settings::no_delay(played.0));
    checks.sort_by_key(|check| check.id.clone());
    checks
}

/// What it speaks.
fn protocol(played: Played<'_>) -> Check {
    let Some(plain) = played.of(Act::Plain).or_else(|| played.0.first()) else {
        return Check::new(id::CLNT101, Verdict::Undecided, "no act was played");
    };
    let ending = plain.ending();
    if let Some(connection) = plain.h2().next() {
        let [requests, dials] = [(plain.answered(), "request"), (plain.dials(), "connection")].map(many);
        let summary = format!("HTTP/2: {requests} over {dials}; {ending}");
        if !plain.is_content() {
            let what = format!("{requests} over {dials}, from a server that behaves as any");
            return broken(id::CLNT101, plain, &what).with("its first connection", opening(connection));
        }
        return Check::new(id::CLNT101, Verdict::Pass, summary)
            .with("its first connection", opening(connection));
    }
    let spoken = plain.connections.iter().find_map(|connection| connection.protocol);
    let (verdict, summary) = match spoken {
        Some(other) => (
            Verdict::Unsupported,
            format!(
                "it speaks {other}: nothing of HTTP/2 can be graded (tell it to, or use --tls); {ending}"
            ),
        ),
        None => (Verdict::Undecided, format!("no request came; {ending}: {}", last_words(plain))),
    };
    Check::new(id::CLNT101, verdict, summary)
}

#[cfg(test)]
mod tests;
