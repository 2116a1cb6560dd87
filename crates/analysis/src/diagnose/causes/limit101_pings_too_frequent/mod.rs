//! LIMIT101: the server ends connections because of the client's PINGs.

#[cfg(test)]
mod tests;

use super::limit::LIMIT101 as META;
use super::views::calm::{self, Calm};
use crate::diagnose::{Case, Confidence, Evidence, Finding, Rule};
use h2lab_base::counts::plural;
use h2lab_base::units::{measured_time, millis_f64};
use h2lab_model::Fix;
use h2lab_model::settings::{Knob, Role, Wish, advise};

/// If no reason is given, at least this many PINGs must have been sent on each connection: with fewer, something else
/// was too much.
const LEAST_PINGS: u64 = 3;

/// The rule.
#[derive(Debug)]
pub(super) struct PingsTooFrequent;

impl Rule for PingsTooFrequent {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let calm: Vec<Calm<'_>> = calm::of(case).filter(is_about_pings).collect();
        let Some(first) = calm.first() else { return Vec::new() };
        let cost = calm::cost(case, is_about_pings);
        let pings: u64 = calm.iter().map(Calm::pings).sum();
        let life: std::time::Duration = calm.iter().map(Calm::age).sum();
        let every = life / u32::try_from(pings).unwrap_or(u32::MAX).max(1);
        let is_said = calm.iter().any(|one| one.says(&["ping"]));
        let server = if first.is_of_total() {
            advise(&first.peer(case), Wish { knob: Knob::MisuseLimit, role: Role::Front, value: None })
        } else {
            let why = "at or below the interval of its clients";
            Fix::new("server", "a shorter minimum interval of PINGs", why)
        };
        vec![Finding {
            symptom: format!(
                "the server ended {} with ENHANCE_YOUR_CALM{} after {} of the client, one in {} on average",
                plural(calm.len() as u64, "connection"),
                first.quoted(),
                plural(pings, "PING"),
                measured_time(every)
            ),
            evidence: vec![
                Evidence::new("connections ended with ENHANCE_YOUR_CALM", calm.len() as f64, "connections")
                    .seen(first.connection.index, first.goaway.at),
                Evidence::new("PINGs of the client on them", pings as f64, "PINGs"),
                Evidence::new("time between two of them", millis_f64(every), "ms"),
                Evidence::new("requests that failed with them", cost.lost as f64, "requests"),
            ],
            cost: cost.sentence(),
            confidence: if is_said { Confidence::Observed } else { Confidence::Inferred },
            fixes: vec![
                Fix::new(
                    "client",
                    "a longer interval of PINGs (--keep-alive), and none without open streams",
                    "many servers take one PING in 5 minutes without a request",
                ),
                server,
            ],
            confirm: case.compare("--keep-alive 60s") + ": with the longer interval no connection is ended",
            ..case.finding_of_share(&META, cost.whole())
        }]
    }
}

/// Whether a server named PINGs as the reason; or it named none, and PINGs are the only unusual thing.
fn is_about_pings(calm: &Calm<'_>) -> bool {
    let by_number = calm.gives_no_reason() && calm.pings() >= LEAST_PINGS && calm.pings() > calm.resets();
    calm.says(&["ping"]) || by_number
}
