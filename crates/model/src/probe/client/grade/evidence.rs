//! What was seen of the acts that were played, as all checks tell it.

use crate::probe::client::Act;
use crate::probe::client::seen::{ConnectionSeen, Performance};
use crate::probe::{Check, CheckMeta, Exhibit, Verdict};

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

    /// The first connection of HTTP/2 in the first act that has one.
    pub(super) fn first(self) -> Option<&'a ConnectionSeen> {
        self.0.iter().find_map(|performance| performance.h2().next())
    }
}

/// `1 request`, `2 requests`.
pub(super) fn many((n, what): (usize, &str)) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// The first frames of a connection.
pub(super) fn opening(connection: &ConnectionSeen) -> Vec<Exhibit> {
    connection.exhibits.iter().take(8).cloned().collect()
}

/// What the command said last, as a part of a sentence.
pub(super) fn last_words(performance: &Performance) -> String {
    // Bodies of ours are dots; whoever prints them says nothing by that.
    let words = |line: &'_ str| line.trim().trim_start_matches('.').chars().take(120).collect::<String>();
    let line = performance.said.lines().rev().map(words).find(|line| !line.is_empty());
    line.map_or_else(|| "it said nothing".to_owned(), |line| format!("it said `{line}`"))
}

/// The frames of connections that `is_wanted` wants, at most a dozen.
pub(super) fn frames(performance: &Performance, is_wanted: impl Fn(&Exhibit) -> bool) -> Vec<Exhibit> {
    let exhibits = performance.connections.iter().flat_map(|connection| &connection.exhibits);
    exhibits.filter(|exhibit| is_wanted(exhibit)).take(12).cloned().collect()
}

/// The last frames of the connections that `is_wanted` wants, at most two dozen of each.
pub(super) fn last_frames(
    performance: &Performance,
    is_wanted: impl Fn(&ConnectionSeen) -> bool,
) -> Vec<Exhibit> {
    let last = |connection: &'_ ConnectionSeen| {
        let exhibits = &connection.exhibits;
        exhibits[exhibits.len().saturating_sub(24)..].to_vec()
    };
    performance.connections.iter().filter(|connection| is_wanted(connection)).take(2).flat_map(last).collect()
}

/// A check that says how the command ended when it did not end well.
pub(super) fn broken(meta: &CheckMeta, performance: &Performance, what: &str) -> Check {
    let errors = performance.connections.iter().find_map(|connection| connection.error.as_deref());
    let error = errors.map_or_else(String::new, |error| format!("; our engine ended a connection: {error}"));
    let summary = format!("{what}; {}, {}{error}", performance.ending(), last_words(performance));
    Check::new(meta, Verdict::Fail, summary)
}
