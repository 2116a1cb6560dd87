//! LIMIT102: a limit against attacks ends connections that carry legitimate traffic.

#[cfg(test)]
mod tests;

use super::limit::LIMIT102 as META;
use super::views::calm::{self, Calm};
use crate::diagnose::{Case, Confidence, Evidence, Finding, Rule};
use h2lab_base::counts::{count, plural};
use h2lab_model::Fix;
use h2lab_model::settings::{Knob, Role, Wish, advise};

/// The client must have reset more than this part of the streams of a connection that was ended …
const SHARE: f64 = 0.1;
/// … or at least this many.
const MANY: u64 = 1_000;
/// Words in the debug data of servers that name such a limit.
const WORDS: [&str; 7] = ["reset", "rst", "flood", "glitch", "abuse", "too_many_data", "small-data"];

/// The rule.
#[derive(Debug)]
pub(super) struct AbuseLimits;

impl Rule for AbuseLimits {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let calm: Vec<Calm<'_>> = calm::of(case).filter(is_about_misuse).collect();
        let Some(first) = calm.first() else { return Vec::new() };
        let cost = calm::cost(case, is_about_misuse);
        let resets: u64 = calm.iter().map(Calm::resets).sum();
        let requests: u64 = calm.iter().map(|one| u64::from(one.connection.requests)).sum();
        let is_said = calm.iter().any(|one| one.says(&WORDS));
        let cancel = case.cell().policy.cancel_after.map_or("", |_| " (raise or remove --cancel-after)");
        vec![Finding {
            symptom: format!(
                "the server ended {} with ENHANCE_YOUR_CALM{}; the client had reset {} of {} on them",
                plural(calm.len() as u64, "connection"),
                first.quoted(),
                count(resets),
                plural(requests, "stream"),
            ),
            evidence: vec![
                Evidence::new("connections ended with ENHANCE_YOUR_CALM", calm.len() as f64, "connections")
                    .seen(first.connection.index, first.goaway.at),
                Evidence::new("streams that the client had reset on them", resets as f64, "streams"),
                Evidence::new("streams on them", requests as f64, "streams"),
                Evidence::new("requests that failed with them", cost.lost as f64, "requests"),
            ],
            cost: cost.sentence(),
            confidence: if is_said { Confidence::Observed } else { Confidence::Inferred },
            fixes: vec![
                advise(&first.peer(case), Wish { knob: Knob::MisuseLimit, role: Role::Front, value: None }),
                Fix::new(
                    "client",
                    &format!("cancel less, or spread requests over connections{cancel}"),
                    "each reset counts against its connection, and all requests on it fail when it is ended",
                ),
            ],
            confirm: "run the same cell without cancellations: no connection is ended".to_owned(),
            ..case.finding_of_share(&META, cost.whole())
        }]
    }
}

/// Whether a server named such a limit; or the client reset many streams, and the server gave no other reason.
fn is_about_misuse(calm: &Calm<'_>) -> bool {
    let requests = f64::from(calm.connection.requests.max(1));
    let is_much = calm.resets() >= MANY || calm.resets() as f64 > SHARE * requests;
    let by_number = calm.gives_no_reason() && is_much && calm.resets() >= calm.pings();
    calm.says(&WORDS) || by_number
}
