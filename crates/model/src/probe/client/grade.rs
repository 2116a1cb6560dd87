//! The checks that follow from all test cases.

mod endings;
mod evidence;
mod flow;
mod honours;
mod waits;

pub use evidence::CaseRuns;
use evidence::{broken, last_words, many, opening};

use super::{TestCase, settings};
use crate::probe::{Check, Verdict, id};

impl CaseRuns<'_> {
    /// Whether the other test cases are meaningful: the client spoke HTTP/2 to an ordinary server, and ended well.
    pub fn is_gradable(self) -> bool {
        self.first().is_some() && protocol(self).verdict == Verdict::Pass
    }
}

/// All checks. Test cases that were not run leave theirs out.
pub fn checks(case_runs: CaseRuns<'_>) -> Vec<Check> {
    let protocol = protocol(case_runs);
    if case_runs.first().is_none() {
        return vec![protocol];
    }
    let mut checks = vec![protocol];
    checks.extend(case_runs.first().map(settings::frame_size));
    checks.extend(case_runs.first().map(settings::windows));
    if checks[0].verdict != Verdict::Pass {
        // If the command fails by itself, no test case is conclusive.
        checks.push(settings::no_delay(case_runs.0));
        return checks;
    }
    checks.extend(case_runs.of(TestCase::LargeBody).map(flow::cadence));
    checks.extend(endings::all(case_runs));
    checks.extend(honours::all(case_runs));
    checks.extend(waits::all(case_runs));
    let expected = case_runs.expected();
    checks.extend(case_runs.of(TestCase::SmallWindows).map(|small| flow::small_windows(small, expected)));
    checks.push(settings::no_delay(case_runs.0));
    checks.sort_by_key(|check| check.id.clone());
    checks
}

/// The protocol that it speaks.
fn protocol(case_runs: CaseRuns<'_>) -> Check {
    let Some(plain) = case_runs.of(TestCase::Plain).or_else(|| case_runs.0.first()) else {
        return Check::new(id::CLNT101, Verdict::Undecided, "no test case was run");
    };
    let ending = plain.ending();
    if let Some(connection) = plain.h2().next() {
        let [requests, dials] = [(plain.answered(), "request"), (plain.dials(), "connection")].map(many);
        let summary = format!("HTTP/2: {requests} over {dials}; {ending}");
        if !plain.is_content() {
            let what = format!("{requests} over {dials}, from a server that behaves normally");
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
                "it speaks {other}: HTTP/2 cannot be graded (configure it for HTTP/2, or use --tls); {ending}"
            ),
        ),
        None => (Verdict::Undecided, format!("received no request; {ending}: {}", last_words(plain))),
    };
    Check::new(id::CLNT101, verdict, summary)
}

#[cfg(test)]
mod tests;
