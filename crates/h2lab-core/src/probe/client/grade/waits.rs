//! What it does while a server says little or nothing.

use super::Played;
use crate::probe::client::seen::Performance;
use crate::probe::client::{Act, Fate};
use crate::probe::{Check, Verdict, id};
use crate::trace::FrameKind;
use crate::units::format_duration;

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
    if performance.is_content() && performance.count(Fate::Answered) >= expected.max(1) {
        let summary = format!("a body that came in drops was waited for; {}", performance.ending());
        return Check::new(id::CLNT113, Verdict::Pass, summary);
    }
    super::broken(id::CLNT113, performance, "a body that came in drops was not waited for")
}

fn stalled(performance: &Performance) -> Check {
    if performance.connections.iter().all(|connection| connection.requests.is_empty()) {
        return Check::new(id::CLNT114, Verdict::Undecided, "no request came");
    }
    if performance.ran_out {
        let summary = format!(
            "half a body, then nothing: {} (no time limit of its own, or a longer one: --patience)",
            performance.ending()
        );
        return Check::new(id::CLNT114, Verdict::Fail, summary);
    }
    let summary = format!("half a body, then nothing: it gave up; {}", performance.ending());
    Check::new(id::CLNT114, Verdict::Pass, summary)
}

fn recovers(performance: &Performance, expected: usize) -> Check {
    let Some(dark) = performance.connections.iter().find_map(|connection| connection.dark_since) else {
        return Check::new(id::CLNT115, Verdict::Undecided, "no request came that could be left unanswered");
    };
    let next = performance.connections.iter().map(|connection| connection.opened_at).find(|at| *at > dark);
    let answered = performance.count(Fate::Answered);
    match next {
        Some(next) if answered > 0 => {
            let after = format_duration(next.since(dark));
            let summary = format!(
                "it dialled again {after} after its connection fell silent, and {answered} of {expected} requests were answered"
            );
            Check::new(id::CLNT115, Verdict::Pass, summary)
        }
        _ if performance.ran_out => {
            let summary = format!(
                "its connection fell silent, and it did nothing about it: no other connection, no end; {}",
                performance.ending()
            );
            Check::new(id::CLNT115, Verdict::Fail, summary)
        }
        _ => {
            let summary =
                format!("its connection fell silent, and it gave up by itself; {}", performance.ending());
            Check::new(id::CLNT115, Verdict::Pass, summary)
        }
    }
}

/// Whether it asks by PING if the server is still there.
fn asks(performance: &Performance) -> Check {
    let pings: usize = performance.h2().map(|connection| connection.sent(FrameKind::PING).count()).sum();
    if pings > 0 {
        let exhibits = super::frames(performance, |exhibit| exhibit.seen.starts_with("PING"));
        let summary = format!("it sent {pings} PING on the connection that fell silent");
        return Check::new(id::CLNT116, Verdict::Pass, summary).with("the first of them", exhibits);
    }
    if performance.h2().all(|connection| connection.dark_since.is_none()) {
        return Check::new(id::CLNT116, Verdict::Undecided, "no connection fell silent");
    }
    let took = format_duration(performance.took);
    Check::new(id::CLNT116, Verdict::Fail, format!("no PING within {took} on a connection that fell silent"))
}
