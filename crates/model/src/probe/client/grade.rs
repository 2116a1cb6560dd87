//! The checks that follow from all acts.

mod endings;
mod flow;
mod heeds;
mod waits;

use super::seen::{ConnectionSeen, Performance};
use super::{Act, settings};
use crate::probe::{Check, CheckMeta, Exhibit, Verdict, id};

/// All acts that were played, by what they are.
#[derive(Debug, Clone, Copy)]
pub struct Played<'a>(pub &'a [Performance]);

impl<'a> Played<'a> {
    /// What was seen in `act`; `None` if it was not played.
    pub fn of(self, act: Act) -> Option<&'a Performance> {
        self.0.iter().find(|performance| performance.act == act)
    }

    /// Requests that the command makes when nothing is in its way.
    pub fn expected(self) -> usize {
        self.of(Act::Plain).map_or(0, Performance::answered)
    }

    /// Whether the other acts would say anything: the client spoke HTTP/2 to a server that behaves as any, and ended well.
    pub fn is_gradable(self) -> bool {
        self.first().is_some() && protocol(self).verdict == Verdict::Pass
    }

    /// The first connection of HTTP/2 in the first act that has one.
    fn first(self) -> Option<&'a ConnectionSeen> {
        self.0.iter().find_map(|performance| performance.h2().next())
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

/// `1 request`, `2 requests`.
fn many((n, what): (usize, &str)) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// The first frames of a connection.
fn opening(connection: &ConnectionSeen) -> Vec<Exhibit> {
    connection.exhibits.iter().take(8).cloned().collect()
}

/// What the command said last, as a part of a sentence.
fn last_words(performance: &Performance) -> String {
    // Bodies of ours are dots; whoever prints them says nothing by that.
    let words = |line: &'_ str| line.trim().trim_start_matches('.').chars().take(120).collect::<String>();
    let line = performance.said.lines().rev().map(words).find(|line| !line.is_empty());
    line.map_or_else(|| "it said nothing".to_owned(), |line| format!("it said `{line}`"))
}

/// The frames of connections that `is_wanted` wants, at most a dozen.
fn frames(performance: &Performance, is_wanted: impl Fn(&Exhibit) -> bool) -> Vec<Exhibit> {
    let exhibits = performance.connections.iter().flat_map(|connection| &connection.exhibits);
    exhibits.filter(|exhibit| is_wanted(exhibit)).take(12).cloned().collect()
}

/// The last frames of the connections that `is_wanted` wants, at most two dozen of each.
fn last_frames(performance: &Performance, is_wanted: impl Fn(&ConnectionSeen) -> bool) -> Vec<Exhibit> {
    let last = |connection: &'_ ConnectionSeen| {
        let exhibits = &connection.exhibits;
        exhibits[exhibits.len().saturating_sub(24)..].to_vec()
    };
    performance.connections.iter().filter(|connection| is_wanted(connection)).take(2).flat_map(last).collect()
}

/// A check that says how the command ended when it did not end well.
fn broken(meta: &CheckMeta, performance: &Performance, what: &str) -> Check {
    let errors = performance.connections.iter().find_map(|connection| connection.error.as_deref());
    let error = errors.map_or_else(String::new, |error| format!("; our engine ended a connection: {error}"));
    let summary = format!("{what}; {}, {}{error}", performance.ending(), last_words(performance));
    Check::new(meta, Verdict::Fail, summary)
}

#[cfg(test)]
mod tests;
