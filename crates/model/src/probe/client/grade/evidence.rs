//! The evidence of the test cases that were run, in the form that all checks use.

use crate::probe::client::TestCase;
use crate::probe::client::seen::{CaseRun, ConnectionSeen};
use crate::probe::{Check, CheckMeta, EvidenceItem, Verdict};
use h2lab_base::counts::plural;

/// All test cases that were run, by what they are.
#[derive(Debug, Clone, Copy)]
pub struct CaseRuns<'a>(pub &'a [CaseRun]);

impl<'a> CaseRuns<'a> {
    /// What was seen in `test_case`; `None` if it was not run.
    pub fn of(self, test_case: TestCase) -> Option<&'a CaseRun> {
        self.0.iter().find(|case_run| case_run.test_case == test_case)
    }

    /// Requests that the command makes without faults.
    pub fn expected(self) -> usize {
        self.of(TestCase::Plain).map_or(0, CaseRun::answered)
    }

    /// The first connection of HTTP/2 in the first test case that has one.
    pub(super) fn first(self) -> Option<&'a ConnectionSeen> {
        self.0.iter().find_map(|case_run| case_run.h2().next())
    }
}

/// `1 request`, `2 requests`.
pub(super) fn many((n, what): (usize, &str)) -> String {
    plural(n as u64, what)
}

/// The first frames of a connection.
pub(super) fn opening(connection: &ConnectionSeen) -> Vec<EvidenceItem> {
    connection.items.iter().take(8).cloned().collect()
}

/// The last output of the command, as a part of a sentence.
pub(super) fn last_words(case_run: &CaseRun) -> String {
    // Our bodies are dots; a command that prints them has printed no message.
    let words = |line: &'_ str| line.trim().trim_start_matches('.').chars().take(120).collect::<String>();
    let line = case_run.said.lines().rev().map(words).find(|line| !line.is_empty());
    line.map_or_else(|| "no output".to_owned(), |line| format!("its output: `{line}`"))
}

/// The frames of connections that match `is_wanted`, at most a dozen.
pub(super) fn frames(case_run: &CaseRun, is_wanted: impl Fn(&EvidenceItem) -> bool) -> Vec<EvidenceItem> {
    let items = case_run.connections.iter().flat_map(|connection| &connection.items);
    items.filter(|item| is_wanted(item)).take(12).cloned().collect()
}

/// The last frames of the connections that match `is_wanted`, at most two dozen of each.
pub(super) fn last_frames(
    case_run: &CaseRun,
    is_wanted: impl Fn(&ConnectionSeen) -> bool,
) -> Vec<EvidenceItem> {
    let last = |connection: &'_ ConnectionSeen| {
        let items = &connection.items;
        items[items.len().saturating_sub(24)..].to_vec()
    };
    case_run.connections.iter().filter(|connection| is_wanted(connection)).take(2).flat_map(last).collect()
}

/// A check for a command that did not end well.
pub(super) fn broken(meta: &CheckMeta, case_run: &CaseRun, what: &str) -> Check {
    let errors = case_run.connections.iter().find_map(|connection| connection.error.as_deref());
    let error = errors.map_or_else(String::new, |error| format!("; our engine closed a connection: {error}"));
    let summary = format!("{what}; {}, {}{error}", case_run.ending(), last_words(case_run));
    Check::new(meta, Verdict::Fail, summary)
}
