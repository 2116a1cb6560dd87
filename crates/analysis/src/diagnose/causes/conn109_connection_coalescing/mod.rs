//! CONN109: a connection that serves several hosts is answered with 421.

#[cfg(test)]
mod tests;

use super::conn::CONN109 as META;
use super::views::failed::Failed;
use crate::diagnose::{Case, Confidence, Finding, Rule};
use h2lab_model::Fix;
use h2lab_model::record::{Outcome, Sample};

/// "Misdirected Request" (RFC 9110 §15.5.20).
const MISDIRECTED: u16 = 421;
/// If HTTP/1.1, whose clients share no connection between hosts, has at least this part of the cell's share, the host
/// itself is not served.
const ALIKE: f64 = 0.5;

/// The rule.
#[derive(Debug)]
pub(super) struct ConnectionCoalescing;

impl Rule for ConnectionCoalescing {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        if !case.cell().protocol.is_multiplexed() {
            return Vec::new();
        }
        let refused = Failed::of(case, case.samples().filter(is_misdirected));
        let Some(refused) = refused else { return Vec::new() };
        // A connection of its own serves a host that only shared one: where none does, sharing is not the reason.
        let is_served = case.samples().any(|sample| sample.outcome == Outcome::Succeeded);
        if !is_served || over_http1(case) >= ALIKE * refused.share() {
            return Vec::new();
        }
        vec![Finding {
            symptom: format!(
                "the server answered 421 Misdirected Request to {}{}: on the connection that they came on it does not serve \
                 their host",
                refused.of_all(),
                refused.paths(case)
            ),
            evidence: vec![refused.evidence("requests answered with 421")],
            cost: refused.of_all() + " failed; each must be sent again on a connection of its own host",
            // The hosts that shared the connection, behind a proxy for example, were not seen.
            confidence: Confidence::Inferred,
            fixes: vec![
                Fix::new(
                    "server",
                    "separate certificates or addresses for hosts that are served by different machines",
                    "a client, or a proxy before the server, may share a connection between hosts with one certificate and address",
                ),
                Fix::new(
                    "client",
                    "send the request again on a new connection after 421",
                    "the server has not processed it, so that any method may be repeated (RFC 9110 §15.5.20)",
                ),
            ],
            confirm:
                "send a second host's request on the same connection: check PROT112 of `h2lab probe` does"
                    .to_owned(),
            of_failures: true,
            ..case.finding_of_share(&META, refused.share())
        }]
    }
}

fn is_misdirected(sample: &Sample) -> bool {
    sample.outcome == Outcome::Status && sample.status == MISDIRECTED
}

/// The share of requests that got the same answer over HTTP/1.1; 0 if that was not measured.
fn over_http1(case: &Case<'_>) -> f64 {
    let records = case.against.iter().flat_map(|against| &against.repetitions);
    let of_http1 = records.filter(|record| !record.cell.protocol.is_multiplexed());
    let samples = of_http1.flat_map(|record| &record.samples);
    let (refused, all) = samples.fold((0_u64, 0_u64), |(refused, all), sample| {
        (refused + u64::from(is_misdirected(&sample)), all + 1)
    });
    refused as f64 / all.max(1) as f64
}
